"""One run as people look at it: three views side by side at every crossing, and what the run came to.

The simulated world and the real one both record a `Run`, so the same pictures and verdicts serve both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from labkit.records import Status, Task
from labkit.states import ENDED_STATES, Direction, State


class Verdict(StrEnum):
    """What a run came to, from best to worst; where several fit, the later one wins."""

    EXACTLY_ONCE = "exactly once"
    STOPPED_CLEAN = "stopped clean"
    NEEDS_A_PERSON = "needs a person"
    STUCK = "stuck"
    LOST = "lost"
    DUPLICATED = "duplicated"


@dataclass(frozen=True)
class Moment:
    """The three views at one crossing of a run.

    Args:
        number: counts from 1 within the run.
        at: seconds on the run's clock, counted from the task's creation; None where it was the machine's clock, whose
            readings differ from run to run.
        worker: who crossed, such as `worker-1`.
        point: the crossing, such as `send task-1/refund`.
        believes: what the worker has in memory just now.
        database: what the task's row and its operations say.
        ledger: effects on record at the remotes, as pairs of operation id and count.
        fault: what went wrong here (`crash`, `reply lost`, …); empty on a quiet crossing.
        broken: here the database shows for the first time that the law is broken which the run breaks in the end.
    """

    number: int
    at: float | None
    worker: str
    point: str
    believes: str
    database: str
    ledger: tuple[tuple[str, int], ...]
    fault: str = ""
    broken: bool = False


@dataclass(frozen=True)
class Run:
    """A finished run: its moments in order, its last task row, the effects at the remotes, its verdict."""

    title: str
    moments: tuple[Moment, ...]
    task: Task
    effects: tuple[tuple[str, int], ...]
    verdict: Verdict


def effects_of(ledgers: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add up the effects of each operation over the ledgers of several remotes: two remotes can have one each."""
    counts: dict[str, int] = {}
    for effects in ledgers:
        for operation_id, count in effects.items():
            counts[operation_id] = counts.get(operation_id, 0) + count
    return counts


def judge(task: Task, effects: Mapping[str, int]) -> Verdict:
    """Say what a finished run came to, by the *remote's* ledger and not by the task's own word.

    Args:
        task: the task as last read, with its operations.
        effects: how often each operation id stands in the remotes' ledgers; of this task alone.

    Returns:
        The worst verdict that fits.
    """
    if any(count > 1 for count in effects.values()):
        return Verdict.DUPLICATED
    if not_as_recorded(task, effects):
        return Verdict.LOST
    if task.state is State.AWAITING_CONFIRMATION:
        return Verdict.NEEDS_A_PERSON
    if task.state not in ENDED_STATES:
        return Verdict.STUCK
    return Verdict.EXACTLY_ONCE if task.state is State.SUCCEEDED else Verdict.STOPPED_CLEAN


def not_as_recorded(task: Task, effects: Mapping[str, int]) -> list[str]:
    """List the operation ids about which record and ledger disagree.

    What is on record as done is in the ledger, whatever the task's state. Once the task has ended nothing else is, and
    of a task that has succeeded every operation that it was to do.
    """
    done = {one.id for one in task.operations if one.status is Status.DONE}
    applied = {operation_id for operation_id, count in effects.items() if count}
    wrong = done - applied
    if task.state in ENDED_STATES:
        wrong |= applied - done
    if task.state is State.SUCCEEDED:
        wrong |= {one.id for one in task.operations if one.direction is Direction.DO} - applied
    return sorted(wrong)


def database_view(task: Task) -> str:
    """What the database says of a task, in one line: `running v3: refund in doubt, send_email pending`."""
    parts = [f"{operation.name} {operation.standing}" for operation in task.operations]
    undoing = " (undo)" if task.direction is Direction.UNDO else ""
    return f"{task.state} v{task.version}{undoing}" + (f": {', '.join(parts)}" if parts else "")
