"""The person whom a worker asks, as the worlds play one: truthful and patient."""

from __future__ import annotations

from collections.abc import Callable

from labkit.deciding import Answer
from labkit.records import Operation, Task
from labkit.seams import Clock
from labkit.store import TaskStore

WHO = "Ada"


def answer_truthfully(store: TaskStore, task: Task, clock: Clock, happened: Callable[[Operation], bool]) -> None:
    """Approve; or wait until nothing can be under way any more, look into the ledger, and say what is there.

    Args:
        store: where the task is.
        task: one that awaits an answer, as last read.
        clock: on which the person waits.
        happened: whether an operation is in the ledger; looked up after the wait.
    """
    doubt = task.in_doubt
    if doubt is None:
        store.answer(task, Answer.APPROVED, WHO)
        return
    sent_at = max(attempt.sent_at for attempt in doubt.attempts)  # by a worker's clock, which may be fast
    clock.sleep(max(0.0, sent_at - clock.now()) + store.assumptions.longest_under_way_seconds)
    store.answer(task, Answer.APPLIED if happened(doubt) else Answer.NOT_APPLIED, WHO)
