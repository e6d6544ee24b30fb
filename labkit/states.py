"""The states of a task and the one table of its transitions.

The store enforces `TRANSITIONS`, the diagram draws it, the text table prints it, the exercises quiz it.
Each transition lists the conditions that must hold; `labkit.guards` has the SQL of each one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache


class State(StrEnum):
    """Where a task stands. It is a column of a row, so it outlives every worker."""

    QUEUED = "queued"
    RUNNING = "running"
    UNCERTAIN = "uncertain"
    AWAITING_CONFIRMATION = "awaiting_confirmation"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    COMPENSATED = "compensated"


FINAL_STATES = frozenset({State.SUCCEEDED, State.COMPENSATED})
"""No event leads out of these. `failed` and `cancelled` end a task too, but can still be compensated."""

ENDED_STATES = FINAL_STATES | {State.FAILED, State.CANCELLED}
"""No worker has anything to do in these."""

HELD_STATES = frozenset({State.RUNNING, State.UNCERTAIN})
"""A task in one of these is held by a lease."""


class Direction(StrEnum):
    """Whether a task carries out its operations or makes up for them."""

    DO = "do"
    UNDO = "undo"


class Event(StrEnum):
    """What can happen to a task."""

    CLAIM = "claim"
    TAKE_OVER = "take_over"
    RENEW = "renew"
    INTEND = "intend"
    CHECKPOINT = "checkpoint"
    RETRY_LATER = "retry_later"
    LOSE_TRACK = "lose_track"
    SETTLE = "settle"
    ASK = "ask"
    ANSWER = "answer"
    EXPIRE = "expire"
    REQUEST_CANCEL = "request_cancel"
    CANCEL = "cancel"
    SUCCEED = "succeed"
    FAIL = "fail"
    COMPENSATE = "compensate"
    COMPENSATED = "compensated"


UNVERSIONED_EVENTS = frozenset({Event.RENEW, Event.REQUEST_CANCEL})
"""These leave the version as it is, so that the holder of a lease can go on."""


class Condition(StrEnum):
    """What an edge asks for, in the words that people read. `labkit.guards.GUARDS` says it in SQL."""

    TOKEN = "token matches"
    VERSION = "version matches"
    DUE = "due (next_run_at <= now)"
    NO_CANCEL = "no cancel requested (direction do)"
    CANCEL_REQUESTED = "cancel requested (direction do)"
    DOING = "direction do"
    UNDOING = "direction undo"
    LEASE_LIVE = "lease not expired"
    LEASE_EXPIRED = "lease expired"
    NOTHING_IN_DOUBT = "nothing in doubt"
    SOMETHING_IN_DOUBT = "something in doubt"
    THIS_IN_DOUBT = "this operation is in doubt"
    NEXT_OPERATION = "the next operation without a result"
    INTENT_ON_RECORD = "intent on record"
    RESULT_AT_HAND = "result at hand"
    ATTEMPTS_LEFT = "attempts left"
    TIME_LEFT = "time left"
    TRANSIENT = "transient error"
    HOPELESS = "permission, invalid or budget spent"
    KEY_OUTLIVES = "age + longest delivery + longest pause < key memory"
    EVIDENCE = "evidence with its source"
    SAYS_APPLIED = "the remote's record says applied"
    NO_PROOF = "the remote can neither deduplicate nor prove"
    APPROVAL_WANTED = "the step wants approval"
    APPROVED = "approved where the step wants it"
    ANSWER_SIGNED = "who answered is on record"
    ANSWER_FITS = "the answer fits the question"
    NOT_DECLINED = "not declined"
    NOT_UNDER_WAY = "'not applied' only once nothing can be under way"
    STOP_WANTED = "declined or cancel requested (direction do)"
    APPROVAL_OVERDUE = "approval deadline passed"
    ALL_DONE = "every operation has a result"
    ALL_UNDONE = "every undo has a result or cannot be done"
    SOMETHING_TO_UNDO = "something done is reversible and not yet undone"


@dataclass(frozen=True)
class Transition:
    """One edge: an event that takes a task from `source` to `target` where `requires` holds.

    `lesson` is the number of the notebook that first shows the edge; `effect` says what else it writes.
    """

    event: Event
    source: State
    target: State
    requires: tuple[Condition, ...]
    lesson: int
    effect: str = ""

    @property
    def condition(self) -> str:
        """The conditions as one line of text."""
        return "; ".join(self.requires)


def _table() -> tuple[Transition, ...]:
    s, e, c, edge, waiting = State, Event, Condition, Transition, State.AWAITING_CONFIRMATION
    held = (c.TOKEN, c.VERSION)
    budget = (c.ATTEMPTS_LEFT, c.TIME_LEFT)
    expired = (c.VERSION, c.LEASE_EXPIRED)
    renew = (c.TOKEN, c.LEASE_LIVE)
    begin = (*held, c.NEXT_OPERATION, c.NOTHING_IN_DOUBT, c.NO_CANCEL, c.APPROVED, *budget)
    resend = (*held, c.THIS_IN_DOUBT, c.KEY_OUTLIVES, *budget)
    record = (*held, c.INTENT_ON_RECORD, c.RESULT_AT_HAND)
    later = (*held, c.NOTHING_IN_DOUBT, c.TRANSIENT, *budget)
    settle = (*held, c.THIS_IN_DOUBT, c.EVIDENCE)
    found_late = (c.VERSION, c.THIS_IN_DOUBT, c.EVIDENCE, c.SAYS_APPLIED)
    approval = (*held, c.APPROVAL_WANTED, c.NOTHING_IN_DOUBT)
    answer = (c.VERSION, c.ANSWER_SIGNED, c.ANSWER_FITS, c.NOT_UNDER_WAY)
    overdue = (c.VERSION, c.APPROVAL_OVERDUE, c.NOTHING_IN_DOUBT)
    cancel = (c.VERSION, c.CANCEL_REQUESTED, c.NOTHING_IN_DOUBT)
    undo = (c.VERSION, c.NOTHING_IN_DOUBT, c.SOMETHING_TO_UNDO)
    same, anew = "version unchanged", "budgets anew"
    return (
        edge(e.CLAIM, s.QUEUED, s.RUNNING, (c.VERSION, c.DUE, c.NO_CANCEL), 0, "new token"),
        edge(e.TAKE_OVER, s.RUNNING, s.RUNNING, (*expired, c.NOTHING_IN_DOUBT), 3, "new token"),
        edge(e.TAKE_OVER, s.RUNNING, s.UNCERTAIN, (*expired, c.SOMETHING_IN_DOUBT), 5, "new token"),
        edge(e.TAKE_OVER, s.UNCERTAIN, s.UNCERTAIN, expired, 5, "new token"),
        edge(e.RENEW, s.RUNNING, s.RUNNING, renew, 3, same),
        edge(e.RENEW, s.UNCERTAIN, s.UNCERTAIN, renew, 6, same),
        edge(e.INTEND, s.RUNNING, s.RUNNING, begin, 0, "one more attempt"),
        edge(e.INTEND, s.UNCERTAIN, s.UNCERTAIN, resend, 5, "one more attempt, under its own key"),
        edge(e.CHECKPOINT, s.RUNNING, s.RUNNING, record, 0, f"result + step, {anew}"),
        edge(e.RETRY_LATER, s.RUNNING, s.QUEUED, later, 7, "sets next_run_at"),
        edge(e.LOSE_TRACK, s.RUNNING, s.UNCERTAIN, (*held, c.THIS_IN_DOUBT), 6, "keeps its token"),
        edge(e.SETTLE, s.UNCERTAIN, s.QUEUED, (*settle, c.NO_CANCEL), 5),
        edge(e.SETTLE, s.UNCERTAIN, s.CANCELLED, (*settle, c.CANCEL_REQUESTED), 6),
        edge(e.SETTLE, waiting, waiting, found_late, 6),
        edge(e.ASK, s.UNCERTAIN, waiting, (*held, c.NO_PROOF), 6, "sets awaiting_until"),
        edge(e.ASK, s.RUNNING, waiting, approval, 1, "sets awaiting_until"),
        edge(e.ANSWER, waiting, s.QUEUED, (*answer, c.NOT_DECLINED, c.NO_CANCEL), 1, anew),
        edge(e.ANSWER, waiting, s.CANCELLED, (*answer, c.STOP_WANTED), 1),
        edge(e.EXPIRE, waiting, s.FAILED, overdue, 1),
        edge(e.REQUEST_CANCEL, s.QUEUED, s.QUEUED, (c.DOING,), 1, same),
        edge(e.REQUEST_CANCEL, s.RUNNING, s.RUNNING, (c.DOING,), 1, same),
        edge(e.REQUEST_CANCEL, s.UNCERTAIN, s.UNCERTAIN, (c.DOING,), 6, same),
        edge(e.REQUEST_CANCEL, waiting, waiting, (c.DOING,), 1, same),
        edge(e.CANCEL, s.QUEUED, s.CANCELLED, cancel, 1),
        edge(e.CANCEL, waiting, s.CANCELLED, cancel, 1),
        edge(e.CANCEL, s.RUNNING, s.CANCELLED, (c.TOKEN, *cancel), 1),
        edge(e.SUCCEED, s.RUNNING, s.SUCCEEDED, (*held, c.DOING, c.ALL_DONE), 0),
        edge(e.FAIL, s.RUNNING, s.FAILED, (*held, c.HOPELESS, c.NOTHING_IN_DOUBT), 1),
        edge(e.COMPENSATE, s.FAILED, s.QUEUED, undo, 9, f"direction undo, {anew}"),
        edge(e.COMPENSATE, s.CANCELLED, s.QUEUED, undo, 9, f"direction undo, {anew}"),
        edge(e.COMPENSATED, s.RUNNING, s.COMPENSATED, (*held, c.UNDOING, c.ALL_UNDONE), 9),
    )


TRANSITIONS: tuple[Transition, ...] = _table()
"""Every change of state that exists. What is not here, the store refuses."""


def up_to_lesson(lesson: int) -> tuple[Transition, ...]:
    """The part of the table that notebook number `lesson` and those before it have shown."""
    return tuple(edge for edge in TRANSITIONS if edge.lesson <= lesson)


@cache
def edges_of(event: Event) -> tuple[Transition, ...]:
    """Every edge of one event, in the order in which the store tries them."""
    return tuple(edge for edge in TRANSITIONS if edge.event is event)
