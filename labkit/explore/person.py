"""Who answers in the simulated world: a truthful, patient person, who looks into the ledgers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from labkit.person import WHO, answer_truthfully
from labkit.records import Task
from labkit.seams import ManualClock
from labkit.states import State
from labkit.store import TaskStore

MAX_UNDO_ASKED = 5
"""A person whose undo failed asks again, and gives up at some time."""


class Person:
    """Answers once nothing can be under way any more, and may want what is done to be undone.

    Args:
        store: where the answers go.
        clock: what waiting moves.
        effects: counts the effects of each operation over all ledgers.
        answers: questions are answered.
        compensates: what is done is to be undone, once the task has failed or was cancelled.
    """

    def __init__(
        self,
        store: TaskStore,
        clock: ManualClock,
        effects: Callable[[], Mapping[str, int]],
        answers: bool,
        compensates: bool,
    ) -> None:
        self._store, self._clock, self._effects = store, clock, effects
        self._answers, self._compensates = answers, compensates
        self.undo_asked = 0

    def acts(self, task: Task) -> bool:
        """Do what there is to do for a person about a task; tells whether there was anything."""
        if self._answers and task.state is State.AWAITING_CONFIRMATION:
            answer_truthfully(self._store, task, self._clock, lambda one: self._effects().get(one.id, 0) > 0)
            return True
        stopped = task.state in (State.FAILED, State.CANCELLED) and self.undo_asked < MAX_UNDO_ASKED
        if self._compensates and stopped and _reversible(task):
            self.undo_asked += 1
            self._store.compensate(task, WHO)
            return True
        return False

    def cancels(self, task_id: str) -> None:
        """Want a task stopped."""
        self._store.request_cancel(task_id, WHO)


def _reversible(task: Task) -> bool:
    """Whether something done can be undone, and is not."""
    done = {one.id for one in task.operations if one.status == "done"}
    return any(
        one.undo_request is not None and one.id in done and f"{one.id}/undo" not in done for one in task.operations
    )
