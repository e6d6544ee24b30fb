"""Writes down the three views at every crossing of a worker, in any world."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from labkit.records import Task
from labkit.runs import Moment, database_view
from labkit.seams import Delivery, Point

MAX_MOMENTS = 10_000


@dataclass(frozen=True)
class Recorder:
    """Keeps the moments of one run in a file, a JSON line each, so that they outlive the worker.

    Args:
        path: the file; several workers of one run share it, one after the other.
        worker: who crosses.
        timed: keep the times; off where they are the machine's and so differ from run to run.
    """

    path: Path
    worker: str
    timed: bool = True

    def note(
        self, point: Point, task: Task, effects: Mapping[str, int], now: float, delivery: Delivery = Delivery.DELIVERED
    ) -> None:
        """Add the moment after one crossing.

        Args:
            point: the crossing, with what the worker learned at it.
            task: as the database has it now.
            effects: as the remotes' ledgers have them now.
            now: seconds of the run's clock; a moment's time counts from the task's creation.
            delivery: what the wire did with the call just made, if it was one.
        """
        fault = "" if delivery is Delivery.DELIVERED else delivery.replace("_", " ")
        ledger = tuple(sorted(effects.items()))
        believes, database = point.learned, database_view(task)
        number = len(read_moments(self.path)) + 1
        at = now - task.created_at if self.timed else None
        moment = Moment(number, at, self.worker, point.name, believes, database, ledger, fault)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(moment)) + "\n")


def read_moments(path: Path) -> tuple[Moment, ...]:
    """Read the moments of a run, in order; none where nothing was crossed yet."""
    if not path.exists():
        return ()
    moments = []
    for line in path.read_text(encoding="utf-8").splitlines()[:MAX_MOMENTS]:
        fields = json.loads(line)
        moments.append(Moment(**fields | {"ledger": tuple((name, count) for name, count in fields["ledger"])}))
    return tuple(moments)


def with_faults(moments: tuple[Moment, ...], numbers: Container[int], fault: str) -> tuple[Moment, ...]:
    """Mark the moments of these numbers: only who watches from outside can tell that a worker died there."""
    return tuple(replace(moment, fault=fault) if moment.number in numbers else moment for moment in moments)
