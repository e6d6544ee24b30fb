"""The simulated world of workers that share a queue: several tasks in one store, its outbox, and a consumer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from labkit.explore.bench import Bench, outbox_due, tasks_due
from labkit.explore.benchworld import BenchScenario, BenchWorld
from labkit.explore.lives import START, Life
from labkit.explore.scenario import checked_program
from labkit.explore.warm import LifeDatabase
from labkit.seams import Point
from labkit.store import TaskStore

StoreProgram = Callable[[TaskStore, Bench], Any]
"""A worker's code: it is given a store of its own, and what it has beside that."""


def work_due(db: Any) -> float | None:
    """When the next task can be claimed or taken over, or the next message delivered."""
    return min((at for at in (tasks_due(db), outbox_due(db)) if at is not None), default=None)


@dataclass(frozen=True)
class StoreScenario(BenchScenario):
    """What is explored: a worker of the task store, started again for as long as there is a task or a message due.

    Its program is given a `TaskStore` and a `Bench`; a worker can die or be passed by after every commit of the store,
    before every call and around every hand-over of a message. `prepare` fills the tables by plain SQL, or by a store.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_program(self.program, "a store and the worker's bench")

    def open(self, folder: Path | None = None) -> StoreWorld:
        """Return a world in which schedules of this scenario can be played, one after the other; see `Files`."""
        return StoreWorld(self, folder)


class StoreWorld(BenchWorld):
    """Plays schedules of a `StoreScenario`. All its stores are on one connection: nothing happens within a commit."""

    scenario: StoreScenario
    _changes = -1

    def _live(self, life: Life) -> Any:
        life.cross(Point(START, life.name, "nothing yet"))
        database = LifeDatabase(self._warm, life)
        store = TaskStore(database, life, partial(self._durable, life), self.scenario.assumptions)
        result = self._program()(store, self._given(life))
        life.cross(Point("end", life.name, self._told(life, result)))
        return result

    def _durable(self, life: Life, point: Point) -> None:
        """A change of this worker's is committed; or a message was handed over, and no row has changed."""
        if self._db.total_changes != self._changes:
            self._changes = self._db.total_changes
            self.committed(life)
        life.cross(point)
