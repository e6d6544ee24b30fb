"""Lesson 06: an operation in doubt is settled by the remote's record, or by a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from labkit.agent import plan
from labkit.course.asking import ASKING_LAWS, STRICT_LAWS, Gate, listening, opens
from labkit.course.exercises import Exercise
from labkit.course.searching import Answer, Search, Setting
from labkit.exchange import Refusal
from labkit.explore.laws import Law, the_work_is_done
from labkit.explore.record import Record
from labkit.explore.scenario import Scenario
from labkit.explore.world import ALL_SURPRISES, TaskScenario
from labkit.records import Operation
from labkit.remote import Capabilities
from labkit.states import State
from labkit.store import TaskStore
from labkit.wire import Remote

QUERY, NEITHER = Capabilities(status_query=True), Capabilities()
OPERATIONS = tuple(plan(order=2077, amount=65)[:1])
"""An order of its own: what is sent is what stands on record, and not what a cell above has sent."""

FORBIDDEN = Refusal("forbidden", "permission", 403)
NOT_FOUND = Refusal("no such order", "invalid", 404)


def overloaded(operation: Operation) -> Refusal | None:
    """Refuse the first attempt."""
    return Refusal("overloaded", "transient", 503) if len(operation.attempts) == 1 else None


def forbids(operation: Operation) -> Refusal:
    """Refuse every attempt."""
    return FORBIDDEN


def finds_it_invalid(operation: Operation) -> Refusal:
    """Refuse every attempt, for another reason."""
    return NOT_FOUND


def _ends_as(refusal: Refusal) -> Law:
    def ends_as_refused(record: Record) -> str:
        """What is refused for good has failed, with the category of the refusal."""
        if record.task.state is State.FAILED and record.task.error_category == refusal.category:
            return ""
        return f"every sending is refused ({refusal.category}), and the task is {_end_of(record)}"

    return ends_as_refused


REFUSED_FOR_GOOD: Mapping[Gate, Law] = {forbids: _ends_as(FORBIDDEN), finds_it_invalid: _ends_as(NOT_FOUND)}
"""What must come of it that a remote refuses every attempt."""


def _end_of(record: Record) -> str:
    category = f", category {record.task.error_category}" if record.task.error_category else ""
    return f"{record.task.state}{category}"


GATED: Mapping[Gate, Law] = {overloaded: the_work_is_done, **REFUSED_FOR_GOOD}
"""What a remote refuses, and what must come of it."""


def recovering(
    can: Capabilities,
    workers: int,
    allowed: frozenset[str],
    answer: Answer,
    gate: Gate = opens,
    strict: bool = False,
) -> TaskScenario:
    """Workers carry one refund as far as it can go, each new one by the same function.

    Where it is `strict`, what goes on record must be what was said.
    """

    def recovers(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
        asking, overheard = listening(store, remotes, gate, strict, in_vain=False)
        with asking.to_its_end():
            answer(task_id, asking, overheard["payments"])

    own = {law.__name__: law for refuses, law in GATED.items() if refuses is gate}
    laws = {**(STRICT_LAWS if strict else ASKING_LAWS), **own}
    return TaskScenario(recovers, OPERATIONS, {"payments": can}, workers, allowed, laws=laws)


def named_otherwise(can: Capabilities, answer: Answer) -> Scenario:
    """The one operation is no refund."""
    operations = tuple(replace(one, name="goodwill") for one in OPERATIONS)
    return replace(recovering(can, 1, frozenset(), answer), operations=operations)


NAMED = "Which operation is it? Its id stands in task.next_operation.id, and need not be that of a refund."
INVALID = "a remote to which it is invalid"


def one_worker_at_a_time(can: Capabilities) -> Callable[[Answer], Scenario]:
    """One worker after the other, and whatever can go wrong with it and with the wire."""
    return partial(recovering, can, 1, ALL_SURPRISES - {"switch"})


def two_at_once(can: Capabilities) -> Callable[[Answer], Scenario]:
    """Two workers from the start."""
    return partial(recovering, can, 2, ALL_SURPRISES)


def _settings(can: Capabilities) -> tuple[Setting, ...]:
    quiet: frozenset[str] = frozenset()
    return (
        Setting("one worker at a time", one_worker_at_a_time(can), 2),
        Setting("a remote that is overloaded once", partial(recovering, can, 1, quiet, gate=overloaded), 0),
        Setting("a remote that forbids it", partial(recovering, can, 1, quiet, gate=forbids), 0),
        Setting(INVALID, partial(recovering, can, 1, quiet, gate=finds_it_invalid), 0),
        Setting("an operation of another name", partial(named_otherwise, can), 0, {"settled_in_the_end": NAMED}),
        Setting("two workers at once", two_at_once(can), 2),
        Setting("what settles a doubt", partial(recovering, can, 1, ALL_SURPRISES - {"switch"}, strict=True), 1),
    )


TRANSIENT = (
    "Refused as transient: what was refused now may be taken later. For good is permission or invalid, as it was told."
)

HINTS = {
    "no_second_effect": "It was sent again although it may have been applied: a time-out is no answer, "
    "and 'not found' is no proof while something can be under way.",
    "success_means_done": "On record it is done, and the remote knows nothing of it. What was the evidence?",
    "record_and_ledger_agree": "Record and ledger differ. Was something settled on a guess?",
    "settled_in_the_end": "The task is left lying. What must the next worker do about a task in this state?",
    "intends_before_it_sends": "A worker that dies right after sending leaves nothing behind. What must be on record "
    "by then? See intend.",
    "records_what_it_knows": "An answer: checkpoint, with the lease that the last call gave you. Not sent, or refused "
    "for now: retry_later; refused for good: fail. Only where no answer came: lose_track.",
    "keeps_the_result": "The result is the remote's own reference: of a receipt, or of what a query has found.",
    "effect_as_planned": "What is to be sent stands on record: operation.request.",
    "asks_only_who_can_tell": "What this remote can do stands in remote.capabilities. Who else can know?",
    "records_what_it_knows: has not sent it": "It stopped behind its intent, and knows that nothing was sent. "
    "What may be refused (renew, say) comes before intend; after it put not_sent on record, by retry_later.",
    "waits_before_it_tries_again": "next_run_at is a time on the store's clock; now is store.clock.now().",
    "the_work_is_done": TRANSIENT,
    "fails_only_for_a_cause": TRANSIENT,
    "ends_as_refused": "Refused has a category: transient passes, permission and invalid do not. Record it.",
    "asks_only_when_it_must": "Try what the remote can do first: a query, and a resend under a key that it remembers.",
    "no_worker_breaks: is it still yours?": "Somebody else holds the task by now, and its record is theirs. Read it "
    "anew and compare task.lease_token with lease.token before you decide.",
    "no_worker_breaks": "It ended by an error of its own. What can the store and the wire raise there?",
    "within_budget": "Every sending is an intent, and intents count.",
    "bounded": "It goes round and round. What must change before another round makes sense?",
}

SAID = (
    "Settle by a receipt or by what a query has found, with that reference and by that name. Where nobody has said "
    "anything, ask."
)

EXERCISES = (
    Exercise(
        "6.1",
        "recover by a status query",
        Search(
            _settings(QUERY),
            {**HINTS, "settles_by_what_was_said": SAID},
        ),
        (
            "In which of the states can you find the task? For each: what is known, and what may you do?",
            "uncertain: remote.query(operation_id). Found: settle with its reference. Not found, or no answer: ask.",
            "queued: claim; running or uncertain: take_over. Then, running: intend, send; OutcomeUnknown: lose_track "
            "and go on as uncertain; NotSent, or Refused as transient: retry_later, until store.clock.now() + 5; "
            "else Refused: fail. uncertain: query; found: settle(lease, id, True, 'status query', reference), then "
            "start over; else ask(lease, reason, seconds). All operations done: succeed.",
        ),
        seconds=20.0,
    ),
    Exercise(
        "6.2",
        "recover with neither keys nor a query",
        Search(
            _settings(NEITHER),
            {**HINTS, "settles_by_what_was_said": SAID},
        ),
        (
            "Who knows whether the request had an effect? Not you, and this remote does not tell.",
            "As in 6.1, but in doubt there is one thing only that you may do.",
            "uncertain: store.ask(lease, 'sent, and no answer came', 3600). Never send it again.",
        ),
        seconds=20.0,
    ),
)
