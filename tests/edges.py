"""For each edge of the table one scene in which it is taken, and for each event the call that fires it."""

from collections.abc import Callable
from typing import Any

from stage import APPROVAL_PLAN, FIRST, FOREVER, ID, Stage

from labkit.deciding import Answer
from labkit.records import Lease, Outcome, Task
from labkit.retries import Category
from labkit.states import Event, State, Transition
from labkit.store import TaskStore

Held = Lease | Task
Call = Callable[[TaskStore, Any], object]
Key = tuple[Event, State, State]


def key_of(edge: Transition) -> Key:
    return edge.event, edge.source, edge.target


def _fire(method: str, *arguments: object, **more: object) -> Call:
    return lambda store, held: getattr(store, method)(held, *arguments, **more)


CALLS: dict[Event, Call] = {
    Event.CLAIM: _fire("claim", "worker-2"),
    Event.TAKE_OVER: _fire("take_over", "worker-2"),
    Event.RENEW: _fire("renew", 60),
    Event.INTEND: _fire("intend", FIRST, key_memory_seconds=FOREVER),
    Event.CHECKPOINT: _fire("checkpoint", FIRST, "payments-1"),
    Event.RETRY_LATER: _fire("retry_later", FIRST, Outcome.NOT_SENT, Category.TRANSIENT, 1007.0),
    Event.LOSE_TRACK: _fire("lose_track", FIRST),
    Event.SETTLE: _fire("settle", FIRST, True, "status query", "payments-1"),
    Event.ASK: _fire("ask", "nobody else can tell", 60),
    Event.ANSWER: _fire("answer", Answer.APPROVED, "Ada"),
    Event.EXPIRE: _fire("expire"),
    Event.REQUEST_CANCEL: lambda store, held: store.request_cancel(getattr(held, "task_id", None) or held.id, "Ada"),
    Event.CANCEL: _fire("cancel"),
    Event.SUCCEED: _fire("succeed"),
    Event.FAIL: _fire("fail", Category.INVALID),
    Event.COMPENSATE: _fire("compensate", "Ada"),
    Event.COMPENSATED: _fire("compensated"),
}

DECLINE = _fire("answer", Answer.DECLINED, "Ada")
NOT_APPLIED = _fire("answer", Answer.NOT_APPLIED, "Ada")
APPLIED = _fire("answer", Answer.APPLIED, "Ada", "payments-1")

BY_LEASE = frozenset(
    {
        Event.RENEW,
        Event.INTEND,
        Event.CHECKPOINT,
        Event.RETRY_LATER,
        Event.LOSE_TRACK,
        Event.ASK,
        Event.SUCCEED,
        Event.FAIL,
        Event.COMPENSATED,
    }
)
"""Events whose every edge needs a token. `settle` and `cancel` have edges of both kinds."""


def later(stage: Stage, held: Held, seconds: float) -> Task:
    """Let time pass and read the task again."""
    stage.clock.advance(seconds)
    return stage.task


def cancel_requested(stage: Stage, held: Held) -> Any:
    stage.store.request_cancel(ID, "Ada")
    return held


_WAITING = State.AWAITING_CONFIRMATION
Scene = Callable[[Stage], Held]

TAKEN: dict[Key, Scene] = {
    (Event.CLAIM, State.QUEUED, State.RUNNING): lambda s: s.queued(),
    (Event.TAKE_OVER, State.RUNNING, State.RUNNING): lambda s: later(s, s.running(), 30),
    (Event.TAKE_OVER, State.RUNNING, State.UNCERTAIN): lambda s: later(s, s.sent(), 30),
    (Event.TAKE_OVER, State.UNCERTAIN, State.UNCERTAIN): lambda s: later(s, s.uncertain(), 30),
    (Event.RENEW, State.RUNNING, State.RUNNING): lambda s: s.running(),
    (Event.RENEW, State.UNCERTAIN, State.UNCERTAIN): lambda s: s.uncertain(),
    (Event.INTEND, State.RUNNING, State.RUNNING): lambda s: s.running(),
    (Event.INTEND, State.UNCERTAIN, State.UNCERTAIN): lambda s: s.uncertain(),
    (Event.CHECKPOINT, State.RUNNING, State.RUNNING): lambda s: s.sent(),
    (Event.RETRY_LATER, State.RUNNING, State.QUEUED): lambda s: s.refused_once(),
    (Event.LOSE_TRACK, State.RUNNING, State.UNCERTAIN): lambda s: s.sent(),
    (Event.SETTLE, State.UNCERTAIN, State.QUEUED): lambda s: s.uncertain(),
    (Event.SETTLE, State.UNCERTAIN, State.CANCELLED): lambda s: cancel_requested(s, s.uncertain()),
    (Event.SETTLE, _WAITING, _WAITING): lambda s: s.awaiting_doubt(),
    (Event.ASK, State.UNCERTAIN, _WAITING): lambda s: s.uncertain(),
    (Event.ASK, State.RUNNING, _WAITING): lambda s: s.running(APPROVAL_PLAN),
    (Event.ANSWER, _WAITING, State.QUEUED): lambda s: s.awaiting_approval(),
    (Event.ANSWER, _WAITING, State.CANCELLED): lambda s: cancel_requested(s, s.awaiting_approval()),
    (Event.EXPIRE, _WAITING, State.FAILED): lambda s: later(s, s.awaiting_approval(), 60),
    (Event.REQUEST_CANCEL, State.QUEUED, State.QUEUED): lambda s: s.queued(),
    (Event.REQUEST_CANCEL, State.RUNNING, State.RUNNING): lambda s: s.running(),
    (Event.REQUEST_CANCEL, State.UNCERTAIN, State.UNCERTAIN): lambda s: s.uncertain(),
    (Event.REQUEST_CANCEL, _WAITING, _WAITING): lambda s: s.awaiting_doubt(),
    (Event.CANCEL, State.QUEUED, State.CANCELLED): lambda s: cancel_requested(s, s.queued()),
    (Event.CANCEL, _WAITING, State.CANCELLED): lambda s: cancel_requested(s, s.awaiting_approval()),
    (Event.CANCEL, State.RUNNING, State.CANCELLED): lambda s: cancel_requested(s, s.running()),
    (Event.SUCCEED, State.RUNNING, State.SUCCEEDED): lambda s: s.all_done(),
    (Event.FAIL, State.RUNNING, State.FAILED): lambda s: s.running(),
    (Event.COMPENSATE, State.FAILED, State.QUEUED): lambda s: s.failed(),
    (Event.COMPENSATE, State.CANCELLED, State.QUEUED): lambda s: s.cancelled(),
    (Event.COMPENSATED, State.RUNNING, State.COMPENSATED): lambda s: s.all_undone(),
}
