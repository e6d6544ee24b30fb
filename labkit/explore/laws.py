"""The laws that every run must keep, checked against the remotes' ledgers and the task's history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from labkit.errors import ChangeRefused, RemoteError
from labkit.records import Entry, Status, Task
from labkit.runs import Verdict, judge
from labkit.states import FINAL_STATES, Condition, Direction, Event, State, edges_of

UNDER_LEASE = frozenset(event for event in Event if all(Condition.TOKEN in edge.requires for edge in edges_of(event)))
ACQUIRING = frozenset({Event.CLAIM, Event.TAKE_OVER})


@dataclass(frozen=True)
class Record:
    """All that is known of a finished run.

    Args:
        task: as last read, with operations and attempts.
        history: the task's events, in order.
        effects: how often each operation id stands in the remotes' ledgers.
        errors: how workers ended that ended with an error, as pairs of worker and error.
        sent: how often each operation id was put on the wire, whatever became of it.
        undo_asked: how often a person asked for what is done to be undone.
    """

    task: Task
    history: Sequence[Entry]
    effects: Mapping[str, int]
    errors: Sequence[tuple[str, BaseException]] = ()
    sent: Mapping[str, int] = field(default_factory=dict)
    undo_asked: int = 0

    @property
    def verdict(self) -> Verdict:
        """What the run came to."""
        return judge(self.task, self.effects)


Law = Callable[[Record], str]
"""Says how a run broke it, in a sentence; empty where it did not."""


def no_second_effect(record: Record) -> str:
    """No operation has two effects."""
    for operation_id, count in sorted(record.effects.items()):
        if count > 1:
            return f"{operation_id} stands {count} times in the ledger"
    return ""


def success_means_done(record: Record) -> str:
    """A succeeded task has each effect once."""
    if record.task.state is State.SUCCEEDED:
        for operation in record.task.operations:
            if record.effects.get(operation.id, 0) == 0:
                return f"the task succeeded, but the ledger shows no {operation.id}"
    return ""


def record_and_ledger_agree(record: Record) -> str:
    """In an ended task, what is on record as done is in the ledger, and nothing else is."""
    if record.verdict is not Verdict.LOST:
        return ""
    done = {operation.id for operation in record.task.operations if operation.status is Status.DONE}
    applied = {name for name, count in record.effects.items() if count}
    wrong = sorted(done ^ applied)
    return f"the task is {record.task.state}, and record and ledger disagree about {', '.join(wrong)}"


def final_is_final(record: Record) -> str:
    """A final state never changes."""
    for entry in record.history:
        if entry.source is not None and State(entry.source) in FINAL_STATES:
            return f"{entry.event} changed a task that was {entry.source}"
    return ""


def only_the_current_token(record: Record) -> str:
    """Only the holder of the current token moves a task that is held."""
    holder, token = "", 0
    for entry in record.history:
        if entry.event in ACQUIRING:
            if entry.token <= token:
                return f"{entry.event} by {entry.worker} gave token {entry.token} after token {token}"
            holder, token = str(entry.worker), entry.token
        elif entry.event in UNDER_LEASE and (entry.worker, entry.token) != (holder, token):
            return f"{entry.event} by {entry.worker} while {holder} held token {token}"
    return ""


def no_new_intent_after_a_cancel(record: Record) -> str:
    """Once a cancel is requested, no operation is begun; what is in doubt may be sent again to settle it."""
    requested = False
    for entry in record.history:
        requested = (requested or entry.event == Event.REQUEST_CANCEL) and entry.event != Event.COMPENSATE
        if requested and entry.event == Event.INTEND and entry.source == State.RUNNING:
            return f"{entry.detail.get('operation')} was begun after the cancel"
    return ""


def within_budget(record: Record) -> str:
    """Attempts and time stay within the budget of each operation."""
    attempts, first = 0, 0.0
    for entry in record.history:
        anew = entry.event in (Event.CHECKPOINT, Event.ANSWER, Event.COMPENSATE)
        if anew or (entry.event == Event.SETTLE and entry.detail.get("applied")):
            attempts = 0
        if entry.event == Event.INTEND:
            attempts += 1
            first = entry.at if attempts == 1 else first
            if attempts > record.task.max_attempts:
                return f"{attempts} attempts, of {record.task.max_attempts} allowed"
            if attempts > 1 and entry.at - first >= record.task.max_seconds:
                return f"an attempt {entry.at - first:g} s after the first, of {record.task.max_seconds:g} s allowed"
    return _sent_within_budget(record)


def _sent_within_budget(record: Record) -> str:
    """What went over the wire counts too, on record or not; a person's answer and a new undo grant a new budget."""
    for operation_id, count in sorted(record.sent.items()):
        granted = 1 + sum(
            entry.event == Event.ANSWER and entry.detail.get("operation") == operation_id for entry in record.history
        )
        if operation_id.endswith("/undo"):
            granted += sum(entry.event == Event.COMPENSATE for entry in record.history)
        if count > granted * record.task.max_attempts:
            return f"{operation_id} was sent {count} times, of {granted * record.task.max_attempts} allowed"
    return ""


def a_cancel_reverses_nothing(record: Record) -> str:
    """What is done stays done when a task is cancelled, until a person asks for it to be undone."""
    undone = sum(entry.event == Event.COMPENSATE and entry.source == State.CANCELLED for entry in record.history)
    return "the cancelled task undid what was done, and nobody had asked for that" if undone > record.undo_asked else ""


def settled_in_the_end(record: Record) -> str:
    """What can be settled is settled: no task is left queued, running or uncertain, and no undo asked for is left."""
    if record.verdict is Verdict.STUCK:
        over = record.task.state is State.RUNNING and record.task.next_operation is None
        return f"the task is left {record.task.state}" + (", and nothing is left to do but to end it" if over else "")
    if record.undo_asked and record.task.state in (State.FAILED, State.CANCELLED):
        left = [one.id for one in record.task.current if one.status is Status.PENDING]
        return f"the task is left {record.task.state}, and {', '.join(left)} was asked for"
    return ""


def undone_in_order(record: Record) -> str:
    """Operations are undone last done first, and only those that were done."""
    undone = [
        str(entry.detail.get("operation"))
        for entry in record.history
        if entry.event == Event.CHECKPOINT and str(entry.detail.get("operation")).endswith("/undo")
    ]
    done = [one.id + "/undo" for one in record.task.operations if one.direction is Direction.DO]
    order = [done.index(operation_id) for operation_id in undone if operation_id in done]
    return "" if order == sorted(order, reverse=True) else f"undone in the order {', '.join(undone)}"


def no_worker_breaks(record: Record) -> str:
    """A worker ends by itself, by a refused change or by a remote's error; anything else is a bug of the program."""
    for worker, error in record.errors:
        if not isinstance(error, ChangeRefused | RemoteError):
            return f"{worker} ended with {type(error).__name__}: {error}"
    return ""


LAWS: Mapping[str, Law] = {
    law.__name__: law
    for law in (
        no_second_effect,
        success_means_done,
        record_and_ledger_agree,
        final_is_final,
        only_the_current_token,
        no_new_intent_after_a_cancel,
        within_budget,
        a_cancel_reverses_nothing,
        undone_in_order,
        settled_in_the_end,
        no_worker_breaks,
    )
}


def broken(record: Record, laws: Mapping[str, Law] = LAWS) -> tuple[str, str]:
    """Return the name of the first law that a run broke and how, or two empty texts."""
    for name, law in laws.items():
        how = law(record)
        if how:
            return name, how
    return "", ""
