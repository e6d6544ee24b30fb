"""A second task at the same remotes: what is the first one's own, such as its keys, must not serve for the second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from labkit.explore.choices import Schedule
from labkit.explore.laws import broken
from labkit.explore.lives import Life
from labkit.explore.record import Record
from labkit.explore.scenario import Played
from labkit.explore.scheduler import Scheduler
from labkit.explore.simulation import SimulatedWorld
from labkit.explore.witness import Witness
from labkit.explore.world import TASK_ID, TaskScenario, TaskWorld
from labkit.records import PlannedOperation, Task
from labkit.runs import database_view
from labkit.seams import Point
from labkit.states import HELD_STATES, State
from labkit.store import TaskStore
from labkit.wire import Remote

OTHER_ID = "task-2"
BOTH_IDS = (TASK_ID, OTHER_ID)
TITLE = "a second task at the same remotes"
SHARED = (
    "The remote has met this key before, on another operation, and gave its answer again. What is the same on every "
    "attempt at an operation, and different for any other one?"
)
LOSING_LAWS = ("success_means_done", "record_and_ledger_agree", "settled_in_the_end")
"""Those that a shared key can break; a remote refuses it where the bodies differ."""


@dataclass(frozen=True)
class TwoTasks(TaskScenario):
    """The same program for two tasks, each worker carrying the first that is due; every law holds for both.

    Args:
        second: the operations of the second task.
        undo: both are done, cancelled, and to be undone.
    """

    second: tuple[PlannedOperation, ...] = ()
    undo: bool = False

    def open(self, folder: Path | None = None) -> TaskWorld:
        """Return a world in which schedules of this scenario can be played, one after the other; see `Files`."""
        return _TwoTasksWorld(self, folder)


def due_first(task_id: str, store: TaskStore) -> str:
    """The task that a worker carries who is sent to either."""
    return next((one for one in BOTH_IDS if _due_at(store.get(one), store.clock.now()) <= store.clock.now()), task_id)


def _due_at(task: Task, now: float) -> float:
    if task.state is State.QUEUED:
        return now if task.cancel_requested else task.next_run_at
    until = task.lease_expires_at if task.state in HELD_STATES else None
    return float("inf") if until is None else until


class _TwoTasksWorld(TaskWorld):
    scenario: TwoTasks

    def _prepare(self) -> None:
        for task_id, operations in zip(BOTH_IDS, (self.scenario.operations, self.scenario.second), strict=True):
            self.store.enqueue(task_id, operations, budget=self.scenario.budget)
            if self.scenario.undo:
                self._done_and_to_be_undone(task_id)
        self._other = self._known(self._warm, partial(self.store.get, OTHER_ID))

    def _new_run(self) -> None:
        super()._new_run()
        self._other_witness = Witness()

    def crossed(self, life: Life, point: Point) -> None:
        """Note who holds either task; see `TaskWorld`."""
        if _task_of(point.subject) != OTHER_ID:
            super().crossed(life, point)
            return
        other = self._other()
        self._other_witness.crossed(life, point, other.lease_token, other.version)
        SimulatedWorld.crossed(self, life, point)

    def _done_and_to_be_undone(self, task_id: str) -> None:
        lease = self.store.claim(self.store.get(task_id), "worker-0")
        for one in self.store.get(task_id).operations:
            lease, attempt = self.store.intend(lease, one.id)
            receipt = Remote(self.services[one.remote]).send(one.id, one.request, attempt.request_id, one.id)
            lease = self.store.checkpoint(lease, one.id, receipt.reference)
        self.store.request_cancel(task_id, "Ada")
        self.store.cancel(lease)
        self.store.compensate(self.store.get(task_id), "Ada")

    def _due(self) -> float | None:
        due = [_due_at(task, self.clock.now()) for task in (self._task(), self._other())]
        return min((at for at in due if at != float("inf")), default=None)

    def _view(self) -> str:
        return "\n".join(f"{task.id} {database_view(task)}" for task in (self._task(), self._other()))

    def _judged(self, schedule: Schedule, hub: Scheduler, trouble: str) -> Played:
        played = super()._judged(schedule, hub, trouble)
        if trouble:
            return played
        record = self.record()
        for task in (self._task(), self._other()):
            law, how = broken(self._record_of(task, record), self.scenario.laws)
            if law:
                return replace(played, law=law, how=how.replace("the task ", f"{task.id} ", 1))
        return replace(played, law="", how="")

    def _record_of(self, task: Task, record: Record) -> Record:
        """What is known of one task alone."""
        witness = self._witness if task.id == TASK_ID else self._other_witness
        return replace(
            record,
            task=task,
            history=self.store.history(task.id),
            effects=_of(task, record.effects),
            sent=_of(task, record.sent),
            undo_asked=int(self.scenario.undo),
            booked=[one for one in record.booked if _task_of(one.operation_id) == task.id],
            refused=frozenset(pair for pair in record.refused if _task_of(pair[0]) == task.id),
            unintended=[pair for pair in record.unintended if _task_of(pair[1]) == task.id],
            strangers=tuple(witness.strangers),
        )


def _task_of(subject: str) -> str:
    """The task that a crossing or an operation is about."""
    return subject.partition("/")[0]


def _of(task: Task, counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if _task_of(name) == task.id}
