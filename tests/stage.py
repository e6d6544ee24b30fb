"""Brings a task into any state by real transitions only, and dumps every row of a store to compare."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labkit.records import Lease, Outcome, PlannedOperation, Task
from labkit.retries import Budget, Category
from labkit.seams import ManualClock
from labkit.states import State
from labkit.store import TaskStore

ID, FIRST, SECOND = "task-1", "task-1/refund", "task-1/send_email"
PLAN = (
    PlannedOperation("refund", "payments", {"amount": 40}, undo_request={"amount": -40}),
    PlannedOperation("send_email", "mail", {"text": "We have refunded 40 euros."}),
)
APPROVAL_PLAN = (PlannedOperation("refund", "payments", {"amount": 40}, {"amount": -40}, needs_approval=True), PLAN[1])
FOREVER = float("inf")
LEASE_SECONDS = 30.0

Rows = dict[str, list[tuple[Any, ...]]]


@dataclass
class Stage:
    """A store, its clock, and one task on it. Each method below leads the task one way into one state."""

    store: TaskStore
    clock: ManualClock

    @property
    def task(self) -> Task:
        return self.store.get(ID)

    def rows(self) -> Rows:
        """Every row of every table, SQLite's own counters included."""
        with self.store._db.read() as db:
            names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()]
            return {name: db.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in sorted(names)}

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement behind the store's back, as somebody with a SQLite tool would."""
        with self.store._db.write() as db:
            return db.execute(statement, values).fetchall()

    def queued(self, plan: tuple[PlannedOperation, ...] = PLAN, **more: Any) -> Task:
        return self.store.enqueue(ID, plan, **more)

    def running(self, plan: tuple[PlannedOperation, ...] = PLAN, **more: Any) -> Lease:
        return self.store.claim(self.queued(plan, **more), "worker-1", LEASE_SECONDS)

    def sent(self, **more: Any) -> Lease:
        """Running, with an intent on record and no answer yet."""
        return self.store.intend(self.running(**more), FIRST)[0]

    def refused_once(self, max_attempts: int = 5, max_seconds: float = 3600.0) -> Lease:
        """Queued again after a first sending that was not sent, and claimed again."""
        lease = self.sent(budget=Budget(max_attempts, max_seconds))
        self.store.retry_later(lease, FIRST, Outcome.NOT_SENT, Category.TRANSIENT, self.clock.now())
        return self.store.claim(self.task, "worker-1", LEASE_SECONDS)

    def uncertain(self, **more: Any) -> Lease:
        return self.store.lose_track(self.sent(**more), FIRST)

    def awaiting_doubt(self) -> Task:
        self.store.ask(self.uncertain(), "the outcome is unknown", 60)
        return self.task

    def settled_late(self, undo: bool = False) -> Task:
        """Still awaiting an answer, but the remote's record has been found meanwhile: nothing is in doubt."""
        if undo:
            lease, operation = self.undoing(), f"{FIRST}/undo"
            lease = self.store.lose_track(self.store.intend(lease, operation)[0], operation)
            self.store.ask(lease, "the outcome is unknown", 60)
        else:
            operation = self.awaiting_doubt().operations[0].id
        self.store.settle(self.task, operation, True, "status query", "payments-1")
        return self.task

    def awaiting_approval(self) -> Task:
        self.store.ask(self.running(APPROVAL_PLAN), "the refund wants approval", 60)
        return self.task

    def first_done(self, plan: tuple[PlannedOperation, ...] = PLAN) -> Lease:
        lease, _ = self.store.intend(self.running(plan), FIRST)
        return self.store.checkpoint(lease, FIRST, "payments-1")

    def all_done(self) -> Lease:
        lease, _ = self.store.intend(self.first_done(), SECOND)
        return self.store.checkpoint(lease, SECOND, "mail-1")

    def succeeded(self) -> Task:
        self.store.succeed(self.all_done())
        return self.task

    def failed(self) -> Task:
        """Failed after its first operation was done."""
        self.store.fail(self.first_done(), Category.INVALID)
        return self.task

    def cancelled(self) -> Task:
        """Cancelled after its first operation was done."""
        lease = self.first_done()
        self.store.request_cancel(ID, "Ada")
        self.store.cancel(lease)
        return self.task

    def undoing(self) -> Lease:
        """Running in direction `undo`, nothing undone yet."""
        self.store.compensate(self.failed(), "Ada")
        return self.store.claim(self.task, "worker-1", LEASE_SECONDS)

    def all_undone(self) -> Lease:
        lease, _ = self.store.intend(self.undoing(), f"{FIRST}/undo")
        return self.store.checkpoint(lease, f"{FIRST}/undo", "payments-2")

    def compensated(self) -> Task:
        self.store.compensated(self.all_undone())
        return self.task

    def in_state(self, state: State) -> Task:
        """Bring the task into a state, by its most usual way."""
        ways: dict[State, Callable[[], object]] = {
            State.QUEUED: self.queued,
            State.RUNNING: self.running,
            State.UNCERTAIN: self.uncertain,
            State.AWAITING_CONFIRMATION: self.awaiting_doubt,
            State.SUCCEEDED: self.succeeded,
            State.FAILED: self.failed,
            State.CANCELLED: self.cancelled,
            State.COMPENSATED: self.compensated,
        }
        ways[state]()
        assert self.task.state is state
        return self.task


def lease_of(task: Task) -> Lease:
    """The lease with the token and version that a task's row shows, whether anybody holds it or not."""
    return Lease(task.id, "worker-1", task.lease_token, task.version, task.state, task.lease_expires_at or 0.0)


def company(store: TaskStore) -> None:
    """Add other tasks, by id before and after the one on stage, with the rows that it could be mistaken for."""
    for place in ("a", "z"):
        store.ask(store.claim(store.enqueue(f"{place}-asked", APPROVAL_PLAN), "worker-9"), "it wants approval", 600)
        lost, done = f"{place}-lost", f"{place}-done"
        lease, _ = store.intend(store.claim(store.enqueue(lost, PLAN), "worker-9"), f"{lost}/refund")
        lease = store.lose_track(lease, f"{lost}/refund")
        store.intend(lease, f"{lost}/refund", key_memory_seconds=FOREVER)
        for task_id in (done, f"{place}-undone"):
            lease, _ = store.intend(store.claim(store.enqueue(task_id, PLAN), "worker-9"), f"{task_id}/refund")
            store.fail(store.checkpoint(lease, f"{task_id}/refund", "payments-9"), Category.INVALID)
        store.compensate(store.get(task_id), "Bob")
        lease, _ = store.intend(store.claim(store.get(task_id), "worker-9"), f"{task_id}/refund/undo")
        store.fail(store.checkpoint(lease, f"{task_id}/refund/undo", "payments-8"), Category.INVALID)
