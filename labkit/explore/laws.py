"""The laws that every run must keep, checked against the remotes' ledgers and the task's history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from labkit.errors import ChangeRefused, RemoteError
from labkit.explore.outside import Unfollowed
from labkit.explore.record import Record
from labkit.records import Entry, Status
from labkit.retries import Backoff, Category
from labkit.runs import Verdict, not_as_recorded
from labkit.states import FINAL_STATES, HELD_STATES, Condition, Direction, Event, State, edges_of
from labkit.values import to_json

UNDER_LEASE = frozenset(event for event in Event if all(Condition.TOKEN in edge.requires for edge in edges_of(event)))
ACQUIRING = frozenset({Event.CLAIM, Event.TAKE_OVER})
BY_THE_HOLDER = UNDER_LEASE - ACQUIRING | {Event.SETTLE, Event.CANCEL}
"""Changes under a lease; the last two also happen to tasks that nobody holds."""

REFUSALS = frozenset({Category.PERMISSION, Category.INVALID})
"""The categories that say that a remote has refused for good."""

LONGEST_WAIT_SECONDS = Backoff().cap_seconds
"""Before another attempt: a task may fail so long before its seconds are up, for it would have to wait longer."""


Law = Callable[[Record], str]
"""Says how a run broke it, in a sentence; empty where it did not."""


def no_second_effect(record: Record) -> str:
    """No operation has two effects."""
    for operation_id, count in sorted(record.effects.items()):
        if count > 1:
            return f"{operation_id} stands {count} times in the ledger"
    return ""


def effect_at_its_own_remote(record: Record) -> str:
    """An effect stands in the ledger of the remote that its operation is for."""
    for operation, remote in record.misplaced:
        return f"{operation.id} stands in the ledger of {remote}, and is for {operation.remote}"
    return ""


def effect_as_planned(record: Record) -> str:
    """What stands in the ledger is what was asked for: the body is the operation's request."""
    planned = {one.id: to_json(one.request) for one in record.task.operations}
    for one in record.booked:
        if one.body != planned.get(one.operation_id, one.body):
            asked = planned[one.operation_id]
            return f"{one.operation_id} stands in the ledger with the body {one.body}, and its request is {asked}"
    return ""


def success_means_done(record: Record) -> str:
    """A succeeded task has each effect once."""
    if record.task.state is State.SUCCEEDED:
        for operation in record.task.operations:
            if record.effects.get(operation.id, 0) == 0:
                return f"the task succeeded, but the ledger shows no {operation.id}"
    return ""


def record_and_ledger_agree(record: Record) -> str:
    """What is on record as done is in the ledger; once the task has ended, nothing else is."""
    if record.verdict is not Verdict.LOST:
        return ""
    wrong = not_as_recorded(record.task, record.effects)
    return f"the task is {record.task.state}, and record and ledger disagree about {', '.join(wrong)}" if wrong else ""


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
    return _by_a_stranger(record)


def _by_a_stranger(record: Record) -> str:
    """A row says what a worker calls itself and which token it shows; who had that token from the store is known."""
    for one in record.strangers:
        for entry in record.history:
            if (entry.event, entry.version) == (one.event, one.version) and entry.source in HELD_STATES:
                return f"{one.event} by {one.worker} under token {entry.token}, which {one.holder} had been given"
    return ""


def intends_before_it_sends(record: Record) -> str:
    """An operation is sent only once the intent of that sending is on record."""
    for worker, operation_id in record.unintended:
        return f"{worker} sends {operation_id}, and no intent of that is on record"
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
    for entry, attempts, first in _spending(record):
        if entry.event == Event.INTEND:
            if attempts > record.task.max_attempts:
                return f"{attempts} attempts, of {record.task.max_attempts} allowed"
            if attempts > 1 and entry.at - first >= record.task.max_seconds:
                return f"an attempt {entry.at - first:g} s after the first, of {record.task.max_seconds:g} s allowed"
    return _sent_within_budget(record)


def _spending(record: Record) -> Iterator[tuple[Entry, int, float]]:
    """Each event with what the operation has cost by then: attempts, and the time of the first of them."""
    attempts, first = 0, 0.0
    for entry in record.history:
        anew = entry.event in (Event.CHECKPOINT, Event.ANSWER, Event.COMPENSATE)
        if anew or (entry.event == Event.SETTLE and entry.detail.get("applied")):
            attempts = 0
        if entry.event == Event.INTEND:
            attempts += 1
            first = entry.at if attempts == 1 else first
        yield entry, attempts, first


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


def fails_only_for_a_cause(record: Record) -> str:
    """A task fails only for a cause: a remote's refusal of that category, a spent budget, an approval that expired."""
    undoing = False
    for entry, attempts, first in _spending(record):
        undoing = undoing or entry.event == Event.COMPENSATE
        if entry.event != Event.FAIL:
            continue
        category = str(entry.detail.get("category"))
        if category in REFUSALS:
            if not any(why == category and name.endswith("/undo") == undoing for name, why in record.refused):
                return f"the task failed, category {category}, and no remote has refused it so"
        elif attempts < record.task.max_attempts and not (attempts and _out_of_time(record, entry.at - first)):
            spent = f"{attempts} of {record.task.max_attempts} attempts"
            return f"the task failed, category {category}, after {spent}, and its time was not up"
    return ""


def _out_of_time(record: Record, seconds: float) -> bool:
    return seconds + LONGEST_WAIT_SECONDS >= record.task.max_seconds


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
    for place, (worker, error) in enumerate(record.errors):
        if not isinstance(error, ChangeRefused | RemoteError):
            if place and record.verdict is Verdict.STUCK and not isinstance(error, Unfollowed):
                return ""  # it came after a refusal that has left the task lying, which is told instead
            return f"{worker} ended with {type(error).__name__}: {error}"
    return ""


def the_work_is_done(record: Record) -> str:
    """A task that nobody stops succeeds."""
    if record.task.state is State.FAILED:
        return f"the task failed, category {record.task.error_category}, though nobody stopped it"
    return ""


LAWS: Mapping[str, Law] = {
    law.__name__: law
    for law in (
        no_second_effect,
        effect_at_its_own_remote,
        effect_as_planned,
        success_means_done,
        record_and_ledger_agree,
        final_is_final,
        only_the_current_token,
        intends_before_it_sends,
        no_new_intent_after_a_cancel,
        within_budget,
        a_cancel_reverses_nothing,
        undone_in_order,
        no_worker_breaks,  # before what such an error leaves behind
        fails_only_for_a_cause,
        settled_in_the_end,
    )
}


def broken(record: Record, laws: Mapping[str, Law] = LAWS) -> tuple[str, str]:
    """Return the name of the first law that a run broke and how, or two empty texts."""
    for name, law in laws.items():
        how = law(record)
        if how:
            return name, how
    return "", ""
