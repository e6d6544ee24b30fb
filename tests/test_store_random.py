"""Random sequences of public calls, with old leases and old readings among them: what must hold, holds after each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from edges import Held, Key, key_of
from hypothesis import given, settings
from hypothesis import strategies as st
from stage import FOREVER

from labkit.deciding import Answer
from labkit.errors import ChangeRefused, InvalidInput
from labkit.records import Lease, Outcome, PlannedOperation, Status, Task
from labkit.retries import Budget, Category
from labkit.seams import ManualClock
from labkit.states import (
    ENDED_STATES,
    FINAL_STATES,
    HELD_STATES,
    TRANSITIONS,
    UNVERSIONED_EVENTS,
    Direction,
    Event,
    State,
)
from labkit.store import TaskStore

PLAN = (
    PlannedOperation("refund", "payments", {"amount": 40}, undo_request={"amount": -40}),
    PlannedOperation("send_email", "mail", {"text": "We have refunded 40 euros."}, needs_approval=True),
)
EDGES = {key_of(edge) for edge in TRANSITIONS}
FROM = {state: sorted({edge.event for edge in TRANSITIONS if edge.source is state}) for state in State}


RARE = {Event.REQUEST_CANCEL, Event.FAIL, Event.EXPIRE, Event.RENEW}
"""Usual from many states, so that they would end or fill most walks."""


@dataclass(frozen=True)
class Step:
    """What decides one call: the event to try first, whether any event may be, an old hold, arguments, a wait."""

    which: int
    wild: bool
    old: int
    choice: int
    wait: float


def _one_in(many: int) -> st.SearchStrategy[bool]:
    return st.integers(1, many).map(lambda number: number == many)


STEPS = st.lists(
    st.builds(
        Step,
        which=st.integers(0, 11),
        wild=_one_in(8),
        old=st.sampled_from([0, 0, 0, 0, 0, 0, 1, 4]),
        choice=st.integers(0, 11),
        wait=st.sampled_from([0.0, 0.0, 0.0, 0.0, 1.0, 30.0, 120.0]),
    ),
    min_size=30,
    max_size=30,
)


@dataclass
class Walk:
    """One task on its way, and all leases and readings of it that were ever handed out."""

    store: TaskStore
    clock: ManualClock
    id: str
    leases: list[Lease] = field(default_factory=list)
    readings: list[Task] = field(default_factory=list)

    def take(self, step: Step) -> None:
        """Try one event after the other until a call is accepted; a refused one must leave the task as it was."""
        self.clock.advance(step.wait)
        before = self.store.get(self.id)
        self.readings.append(before)
        for event in _in_turn(before.state, step):
            try:
                result = self.call(event, before, step)
            except (ChangeRefused, InvalidInput):
                assert self.store.get(self.id) == before
                continue
            lease = result[0] if isinstance(result, tuple) else result
            if isinstance(lease, Lease):
                self.leases.append(lease)
            check(before, self.store.get(self.id), event)
            break

    def call(self, event: Event, task: Task, step: Step) -> object:
        leases = self.leases or [Lease(task.id, "nobody", task.lease_token + 1, task.version, task.state, 0.0)]
        lease = leases[-1 - step.old % len(leases)]
        read = self.readings[-1 - step.old % len(self.readings)]
        return CALLS[event](self.store, lease, read, _operation(task, step), step.choice)


def _in_turn(state: State, step: Step) -> list[Event]:
    events = sorted(Event) if step.wild or not FROM[state] else FROM[state]
    start = step.which % len(events)
    usual = [event for event in events[start:] + events[:start] if event not in RARE or step.choice == 7]
    return usual[: 3 if step.wild else None]


def _operation(task: Task, step: Step) -> str:
    upcoming = task.in_doubt or task.next_operation
    if step.choice == 11 or upcoming is None:
        return task.operations[step.which % len(task.operations)].id
    return upcoming.id


def _held(lease: Lease, task: Task) -> Held:
    return lease if task.state in HELD_STATES else task


NOT_APPLIED = (Outcome.NOT_SENT, Outcome.REFUSED)

CALLS: dict[Event, Callable[[TaskStore, Lease, Task, str, int], object]] = {
    Event.CLAIM: lambda s, lease, task, op, n: s.claim(task, "worker-1", 30),
    Event.TAKE_OVER: lambda s, lease, task, op, n: s.take_over(task, "worker-2", 30),
    Event.RENEW: lambda s, lease, task, op, n: s.renew(lease, 10 * n),
    Event.INTEND: lambda s, lease, task, op, n: s.intend(
        lease, op, key_memory_seconds=FOREVER if n else None, last_outcome=NOT_APPLIED[n % 2] if n > 8 else None
    ),
    Event.CHECKPOINT: lambda s, lease, task, op, n: s.checkpoint(lease, op, f"ref-{n}"),
    Event.RETRY_LATER: lambda s, lease, task, op, n: s.retry_later(
        lease, op, NOT_APPLIED[n % 2], Category.TRANSIENT, s.clock.now() + n
    ),
    Event.LOSE_TRACK: lambda s, lease, task, op, n: s.lose_track(lease, op),
    Event.SETTLE: lambda s, lease, task, op, n: s.settle(_held(lease, task), op, n % 3 > 0, "query", f"ref-{n}"),
    Event.ASK: lambda s, lease, task, op, n: s.ask(lease, "why", 60 * n),
    Event.ANSWER: lambda s, lease, task, op, n: s.answer(task, list(Answer)[n % 4], "Ada"),
    Event.EXPIRE: lambda s, lease, task, op, n: s.expire(task),
    Event.REQUEST_CANCEL: lambda s, lease, task, op, n: s.request_cancel(task.id, "Ada"),
    Event.CANCEL: lambda s, lease, task, op, n: s.cancel(_held(lease, task)),
    Event.SUCCEED: lambda s, lease, task, op, n: s.succeed(lease),
    Event.FAIL: lambda s, lease, task, op, n: s.fail(lease, list(Category)[n % 2 + 1], op, NOT_APPLIED[n % 2]),
    Event.COMPENSATE: lambda s, lease, task, op, n: s.compensate(task, "Ada"),
    Event.COMPENSATED: lambda s, lease, task, op, n: s.compensated(lease),
}


def check(before: Task, after: Task, event: Event) -> None:
    """What one accepted call may do to a task."""
    assert before.state not in FINAL_STATES or after == before
    assert after.version - before.version in ({0} if event in UNVERSIONED_EVENTS else {0, 1})
    assert after.lease_token - before.lease_token == (event in {Event.CLAIM, Event.TAKE_OVER})
    assert after.direction is before.direction or event is Event.COMPENSATE
    assert after.attempts <= after.max_attempts
    assert after.step == sum(one.status is not Status.PENDING for one in after.current)
    check_doubts(after)
    kept = {one.id: one for one in before.operations}
    for one in after.operations:
        earlier = kept.get(one.id)
        if earlier is None:
            continue
        if earlier.status is Status.DONE:
            assert (one.status, one.result_ref) == (Status.DONE, earlier.result_ref)
        for old, new in zip(earlier.attempts, one.attempts, strict=False):
            assert old.outcome in (None, new.outcome), "what is known of an attempt is never taken back"
        if before.cancel_requested and before.direction is Direction.DO and not earlier.attempts:
            assert not one.attempts, "after a request to cancel nothing new begins"


def check_doubts(task: Task) -> None:
    """Where a doubt may be, and where it must be."""
    doubtful = [one for one in task.operations if one.in_doubt]
    assert len(doubtful) <= 1
    assert (task.lease_expires_at is not None) is (task.state in HELD_STATES)
    if task.state is State.UNCERTAIN:
        assert doubtful
    elif task.state is State.RUNNING and doubtful:
        tokens = {attempt.token for attempt in doubtful[0].attempts if attempt.outcome is None}
        assert tokens == {task.lease_token}, "a running task has only its holder's own sending open"
    elif task.state in ENDED_STATES | {State.QUEUED} or task.awaiting_for == "approval":
        assert not doubtful


def check_history(store: TaskStore, task_id: str) -> set[Key]:
    """A history is a chain along the table; returns the edges that it took."""
    first, *lines = store.history(task_id)
    assert (first.event, first.source, first.target) == ("enqueue", None, State.QUEUED)
    taken: set[Key] = set()
    for before, line in zip([first, *lines], lines, strict=False):
        assert line.source == before.target
        taken.add((Event(line.event), State(line.source or ""), State(line.target)))
        assert line.version == before.version + (line.event not in UNVERSIONED_EVENTS)
        assert line.token == before.token + (line.event in {Event.CLAIM, Event.TAKE_OVER})
        assert line.at >= before.at
    assert taken <= EDGES
    return taken


def test_whatever_is_called_in_whatever_order_a_task_moves_along_the_table_only(tmp_path: Path) -> None:
    clock, numbers, taken = ManualClock(1000.0), count(1), set[Key]()

    @settings(max_examples=200, deadline=None, derandomize=True, database=None)
    @given(STEPS)
    def walk(steps: list[Step]) -> None:
        task = store.enqueue(f"task-{next(numbers)}", PLAN, budget=Budget(4, 600))
        on_its_way = Walk(store, clock, task.id)
        for step in steps:
            on_its_way.take(step)
        taken.update(check_history(store, task.id))

    with TaskStore(tmp_path / "tasks.sqlite", clock, synchronous="OFF") as store:
        walk()
    assert len(taken) > 0.8 * len(EDGES), f"the walks must lead somewhere; never taken: {sorted(EDGES - taken)}"
