"""Each law is silent about a run that keeps it, and says in a sentence how another one broke it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from labkit.agent import REMOTES, plan
from labkit.errors import OutcomeUnknown, StaleToken
from labkit.explore.bench import BenchRun
from labkit.explore.choices import CANCEL, Surprise
from labkit.explore.journal import WIRE, Applied, Changed, Handed, Logged, Said
from labkit.explore.laws import LAWS, broken
from labkit.explore.message_laws import OUTBOX_LAWS
from labkit.explore.programs import LabWorker
from labkit.explore.record import Record, Stranger
from labkit.explore.row_laws import CLAIM_LAWS, WORKER_LAWS, decides_by_what_it_read
from labkit.explore.sqlworld import SqlLaw
from labkit.explore.world import TaskScenario
from labkit.records import Entry, Status
from labkit.retries import Budget
from labkit.states import Event, State

REFUND, TICKET, MAIL = "task-1/refund", "task-1/update_ticket", "task-1/send_email"


def played(*surprises: tuple[str, str], operations: int = 3, compensate: bool = False) -> Record:
    """Play a run of the lab's own worker, with surprises at points that are named."""
    scenario = TaskScenario(
        LabWorker("by_capability"),
        tuple(plan()[:operations]),
        REMOTES,
        allowed=frozenset({"crash", "refused", "response_lost", CANCEL}),
        compensate=compensate,
        budget=Budget(max_attempts=3, max_seconds=100.0),
    )
    world = scenario.open()
    try:
        schedule: tuple[Surprise, ...] = ()
        for point, choice in surprises:
            steps = world.play(schedule).steps
            behind = schedule[-1].place + 1 if schedule else 0
            place = next(at for at, step in enumerate(steps) if at >= behind and step.point == point)
            schedule = (*schedule, Surprise(place, choice))
        world.play(schedule)
        return world.record()
    finally:
        world.close()


QUIET = played()
CANCELLED = played(("checkpoint task-1/update_ticket", CANCEL))
COMPENSATED = played(("checkpoint task-1/update_ticket", CANCEL), compensate=True)
RESENT = played((f"wire: send {REFUND}", "response_lost"))


def entry(event: Event, source: State, target: State, **more: Any) -> Entry:
    facts: dict[str, Any] = {"version": 50, "token": 1, "worker": "worker-1", "detail": {}, "at": 0.0}
    facts |= more
    return Entry(
        99,
        "task-1",
        facts["at"],
        event,
        source,
        target,
        facts["version"],
        facts["token"],
        facts["worker"],
        facts["detail"],
    )


def without(record: Record, operation_id: str) -> Record:
    """The same, with the operation's result gone from the record."""
    operations = tuple(
        replace(one, status=Status.PENDING, result_ref=None, attempts=()) if one.id == operation_id else one
        for one in record.task.operations
    )
    return replace(record, task=replace(record.task, operations=operations))


def with_entry(record: Record, new: Entry, place: int | None = None) -> Record:
    history = list(record.history)
    history.insert(len(history) if place is None else place, new)
    return replace(record, history=history)


def place_of(record: Record, event: Event, number: int = 0) -> int:
    return [at for at, one in enumerate(record.history) if one.event == event][number]


def in_state(record: Record, state: State) -> Record:
    return replace(record, task=replace(record.task, state=state))


INTEND_MAIL = entry(Event.INTEND, State.RUNNING, State.RUNNING, detail={"operation": MAIL})
TAKE_OVER = entry(Event.TAKE_OVER, State.RUNNING, State.RUNNING, worker="worker-2", token=2)
REQUEST = entry(Event.REQUEST_CANCEL, State.RUNNING, State.RUNNING, worker=None)
UNDO_CANCELLED = entry(Event.COMPENSATE, State.CANCELLED, State.QUEUED, worker=None)


def failed(category: str, at: float = 0.0) -> Entry:
    return entry(Event.FAIL, State.RUNNING, State.FAILED, detail={"category": category}, at=at)


BROKEN: list[tuple[str, Record, str]] = [
    ("no_second_effect", replace(QUIET, effects={**QUIET.effects, MAIL: 2}), f"{MAIL} stands 2 times in the ledger"),
    (
        "effect_at_its_own_remote",
        replace(QUIET, booked=[*QUIET.booked[1:], replace(QUIET.booked[0], remote="mail")]),
        f"{REFUND} stands in the ledger of mail, and is for payments",
    ),
    (
        "effect_as_planned",
        replace(QUIET, booked=[replace(QUIET.booked[0], body='{"amount": 4}')]),
        f'{REFUND} stands in the ledger with the body {{"amount": 4}}, and its request is '
        '{"amount": 40, "do": "refund", "order": 1042}',
    ),
    (
        "success_means_done",
        replace(QUIET, effects={REFUND: 1, TICKET: 1}),
        f"the task succeeded, but the ledger shows no {MAIL}",
    ),
    (
        "record_and_ledger_agree",
        without(CANCELLED, TICKET),
        f"the task is cancelled, and record and ledger disagree about {TICKET}",
    ),
    (
        "record_and_ledger_agree",
        replace(CANCELLED, effects={**CANCELLED.effects, "task-1/strange": 1}),
        "the task is cancelled, and record and ledger disagree about task-1/strange",
    ),
    (
        "final_is_final",
        with_entry(QUIET, entry(Event.CLAIM, State.SUCCEEDED, State.RUNNING, token=2)),
        "claim changed a task that was succeeded",
    ),
    (
        "only_the_current_token",
        with_entry(QUIET, TAKE_OVER, place_of(QUIET, Event.CHECKPOINT)),
        "checkpoint by worker-1 while worker-2 held token 2",
    ),
    (
        "only_the_current_token",
        with_entry(QUIET, replace(TAKE_OVER, token=1), place_of(QUIET, Event.CHECKPOINT)),
        "take_over by worker-2 gave token 1 after token 1",
    ),
    (
        "only_the_current_token",
        replace(QUIET, strangers=[Stranger("worker-1", Event.CHECKPOINT, 4, "worker-2")]),
        "checkpoint by worker-1 under token 1, which worker-2 had been given",
    ),
    (
        "intends_before_it_sends",
        replace(QUIET, unintended=[("worker-1", MAIL)]),
        f"worker-1 sends {MAIL}, and no intent of that is on record",
    ),
    (
        "no_new_intent_after_a_cancel",
        with_entry(CANCELLED, INTEND_MAIL, place_of(CANCELLED, Event.CANCEL)),
        f"{MAIL} was begun after the cancel",
    ),
    (
        "within_budget",
        with_entry(with_entry(with_entry(QUIET, INTEND_MAIL, 2), INTEND_MAIL, 2), INTEND_MAIL, 2),
        "4 attempts, of 3 allowed",
    ),
    (
        "within_budget",
        with_entry(QUIET, replace(INTEND_MAIL, at=100.0), place_of(QUIET, Event.CHECKPOINT)),
        "an attempt 100 s after the first, of 100 s allowed",
    ),
    ("within_budget", replace(QUIET, sent={**QUIET.sent, REFUND: 4}), f"{REFUND} was sent 4 times, of 3 allowed"),
    (
        "a_cancel_reverses_nothing",
        replace(COMPENSATED, undo_asked=0),
        "the cancelled task undid what was done, and nobody had asked for that",
    ),
    (
        "undone_in_order",
        replace(COMPENSATED, history=list(reversed(COMPENSATED.history))),
        f"undone in the order {REFUND}/undo, {TICKET}/undo",
    ),
    (
        "fails_only_for_a_cause",
        with_entry(QUIET, failed("permission")),
        "the task failed, category permission, and no remote has refused it so",
    ),
    (
        "fails_only_for_a_cause",
        replace(with_entry(QUIET, failed("permission")), refused=frozenset({(MAIL, "invalid")})),
        "the task failed, category permission, and no remote has refused it so",
    ),
    (
        "fails_only_for_a_cause",
        with_entry(with_entry(QUIET, INTEND_MAIL), failed("transient")),
        "the task failed, category transient, after 1 of 3 attempts, and its time was not up",
    ),
    (
        "fails_only_for_a_cause",
        replace(
            with_entry(with_entry(QUIET, UNDO_CANCELLED), failed("invalid")), refused=frozenset({(MAIL, "invalid")})
        ),
        "the task failed, category invalid, and no remote has refused it so",
    ),
    ("settled_in_the_end", in_state(QUIET, State.QUEUED), "the task is left queued"),
    ("settled_in_the_end", in_state(QUIET, State.UNCERTAIN), "the task is left uncertain"),
    (
        "settled_in_the_end",
        in_state(QUIET, State.RUNNING),
        "the task is left running, and nothing is left to do but to end it",
    ),
    (
        "no_worker_breaks",
        replace(QUIET, errors=(("worker-1", ValueError("no")),)),
        "worker-1 ended with ValueError: no",
    ),
]


@pytest.mark.parametrize(("law", "record", "how"), BROKEN, ids=[name for name, _, _ in BROKEN])
def test_a_law_says_in_a_sentence_how_a_run_broke_it(law: str, record: Record, how: str) -> None:
    assert LAWS[law](record) == how


def test_there_is_a_broken_run_for_every_law() -> None:
    assert {name for name, _, _ in BROKEN} == set(LAWS)


STALE = StaleToken("renew", "task-1", "token 1", "token 2")
KEPT = [
    QUIET,
    CANCELLED,
    COMPENSATED,
    RESENT,
    played(("claim task-1", "crash")),
    played((f"wire: send {REFUND}", "refused")),
    replace(QUIET, errors=(("worker-1", STALE), ("worker-2", OutcomeUnknown("mail", MAIL, "no answer")))),
    with_entry(CANCELLED, replace(INTEND_MAIL, source=State.UNCERTAIN), place_of(CANCELLED, Event.CANCEL)),
    in_state(QUIET, State.AWAITING_CONFIRMATION),
    replace(with_entry(QUIET, failed("invalid")), refused=frozenset({(MAIL, "invalid")})),
    with_entry(with_entry(with_entry(with_entry(QUIET, INTEND_MAIL), INTEND_MAIL), INTEND_MAIL), failed("transient")),
    with_entry(with_entry(QUIET, INTEND_MAIL), failed("transient", at=40.0)),
    replace(CANCELLED, strangers=[Stranger("worker-2", Event.CANCEL, 99, "worker-1")]),
]


@pytest.mark.parametrize("record", KEPT)
def test_every_law_is_silent_about_runs_that_keep_it(record: Record) -> None:
    assert broken(record) == ("", "")


def test_the_first_law_that_a_run_broke_is_named() -> None:
    both = replace(QUIET, effects={REFUND: 2, TICKET: 1})
    assert broken(both) == ("no_second_effect", f"{REFUND} stands 2 times in the ledger")
    assert broken(both, {"success_means_done": LAWS["success_means_done"]})[0] == "success_means_done"


def test_of_a_task_left_lying_the_first_error_is_told_and_not_what_followed_from_it() -> None:
    bug, refused = ("worker-2", ValueError("no")), ("worker-1", STALE)
    left = in_state(QUIET, State.QUEUED)
    assert broken(replace(left, errors=(bug, refused)))[0] == "no_worker_breaks"
    assert broken(replace(left, errors=(refused, bug)))[0] == "settled_in_the_end"
    assert broken(replace(QUIET, errors=(refused, bug)))[0] == "no_worker_breaks"


def test_a_person_s_answer_grants_a_new_budget_for_sendings() -> None:
    answer = entry(Event.ANSWER, State.AWAITING_CONFIRMATION, State.QUEUED, worker=None, detail={"operation": REFUND})
    many = replace(QUIET, sent={REFUND: 4})
    assert LAWS["within_budget"](many)
    assert not LAWS["within_budget"](with_entry(many, answer))
    assert LAWS["within_budget"](with_entry(many, replace(answer, detail={"operation": MAIL})))


def test_a_cancelled_task_whose_undo_was_asked_for_must_not_be_left_half_undone() -> None:
    failed = replace(without(COMPENSATED, f"{REFUND}/undo"), undo_asked=1)
    assert LAWS["settled_in_the_end"](in_state(failed, State.FAILED)) == (
        f"the task is left failed, and {REFUND}/undo was asked for"
    )
    assert not LAWS["settled_in_the_end"](in_state(COMPENSATED, State.COMPENSATED))


def test_an_undo_that_a_person_asked_for_reverses_what_a_cancel_has_left() -> None:
    assert COMPENSATED.undo_asked == 1
    assert not LAWS["a_cancel_reverses_nothing"](COMPENSATED)
    assert LAWS["a_cancel_reverses_nothing"](with_entry(COMPENSATED, UNDO_CANCELLED))
    assert not LAWS["a_cancel_reverses_nothing"](with_entry(COMPENSATED, replace(UNDO_CANCELLED, source=State.FAILED)))


# Plain SQL: laws over the log of commits.


def row(**more: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "id": "task-1",
        "state": "queued",
        "version": 1,
        "direction": "do",
        "lease_owner": None,
        "lease_token": 0,
        "lease_expires_at": None,
        "cancel_requested": 0,
    }
    return facts | more


FIRST = row()
HELD = row(state="running", version=2, lease_owner="a", lease_token=1, lease_expires_at=30.0)
AGAIN = HELD | {"version": 3, "lease_owner": "b", "lease_token": 2, "lease_expires_at": 60.0}
DONE = row(state="succeeded", version=3, lease_token=1)


def changed(worker: str, before: Any, after: Any, at: float = 0.0, table: str = "tasks", commit: int = 1) -> Changed:
    return Changed(at, worker, commit, table, before, after)


def task(*pairs: tuple[str, Any, Any]) -> list[Logged]:
    """The task was there; then workers changed it, one commit each."""
    log: list[Logged] = [changed("", None, FIRST, commit=0)]
    for commit, (worker, before, after) in enumerate(pairs, start=1):
        log.append(changed(worker, before, after, commit=commit))
    return log


def attempt(worker: str, operation_id: str, n: int = 1) -> Changed:
    return changed(worker, None, {"operation_id": operation_id, "n": n}, table="attempts")


def planned(operation_id: str, undo_request: str | None = None, status: str = "done") -> dict[str, Any]:
    return {"operation_id": operation_id, "status": status, "undo_request": undo_request}


def plan_of(*rows: dict[str, Any]) -> list[Logged]:
    return [changed("", None, one, table="operations", commit=0) for one in rows]


def message(message_id: str, task_id: str = "task-1") -> Changed:
    return changed("w1", None, {"seq": 1, "message_id": message_id, "task_id": task_id}, table="outbox")


class NoRows:
    """A database in which every task has ended."""

    def __init__(self, *rows: tuple[str, str]) -> None:
        self.rows = rows

    def execute(self, _: str) -> Any:
        return iter(self.rows)


def run(*log: Logged, **more: Any) -> BenchRun:
    facts: dict[str, Any] = {"db": NoRows(), "results": {}, "errors": {}, "dead": frozenset()}
    return BenchRun(**(facts | {"log": log} | more))


LOST = next(one for one in BROKEN if one[0] == "success_means_done")
DISAGREES = next(one for one in BROKEN if one[0] == "record_and_ledger_agree")
CLAIMED = ("w1", FIRST, HELD)
FINISHED = ("w1", HELD, DONE)
ROWS_BROKEN: list[tuple[str, BenchRun, str]] = [
    ("one_says_yes", run(results={"w1": True, "w2": 7}), "w1 and w2 were all told yes"),
    ("one_says_yes", run(results={"w1": False, "w2": None}), "nobody was told yes"),
    ("says_what_it_did", run(results={"w1": True}), "w1 says yes, and has changed nothing"),
    ("says_what_it_did", run(*task(CLAIMED), results={"w1": False}), "w1 says no, and has changed something"),
    ("no_worker_breaks", run(errors={"w1": KeyError("x")}), "w1 ended with KeyError: 'x'"),
    (
        "decides_by_what_it_read",
        run(Said(0.0, "w2", "read", 1), *task(CLAIMED, ("w2", HELD, AGAIN))),
        "w2 has read version 1 and changed version 2",
    ),
    (
        "every_change_has_its_version",
        run(*task(("w1", FIRST, HELD | {"version": 1}))),
        "w1 changed task-1, and its version went from 1 to 1",
    ),
    (
        "final_is_final",
        run(*task(CLAIMED, FINISHED, ("w2", DONE, row(version=4)))),
        "w2 made task-1 queued, which was succeeded",
    ),
    (
        "only_edges_of_the_table",
        run(*task(("w1", FIRST, row(state="succeeded", version=2)))),
        "w1 took task-1 from queued to succeeded",
    ),
    ("only_the_current_token", run(*task(CLAIMED, ("w2", HELD, AGAIN))), "w2 took task-1, which w1 held until 30"),
    (
        "every_holder_has_a_new_token",
        run(*task(CLAIMED), changed("w2", HELD, AGAIN | {"lease_token": 1}, at=30.0)),
        "w2 took task-1 with token 1, which is not a new one",
    ),
    (
        "only_the_current_token",
        run(*task(CLAIMED), changed("w2", HELD, AGAIN, at=30.0), changed("w1", AGAIN, DONE, at=31.0)),
        "w1 changed task-1 while w2 held token 2",
    ),
    (
        "no_new_intent_after_a_cancel",
        run(*task(CLAIMED, ("Ada", HELD, HELD | {"cancel_requested": 1})), attempt("w1", MAIL)),
        f"{MAIL} was begun after the cancel",
    ),
    (
        "no_new_intent_after_a_cancel",
        run(*task(("Ada", FIRST, row(cancel_requested=1))), attempt("w1", MAIL, 2)),
        f"{MAIL} was begun after the cancel",
    ),
    (
        "no_new_intent_after_a_cancel",
        run(*task(("Ada", FIRST, row(cancel_requested=1))), Applied(0, "w1", MAIL)),
        f"{MAIL} was begun after the cancel",
    ),
    ("nothing_is_deleted", run(*task(("w1", FIRST, None))), "w1 deleted task-1 from tasks"),
    (
        "nothing_is_deleted",
        run(changed("w1", planned(MAIL), None, table="operations")),
        f"w1 deleted {MAIL} from operations",
    ),
    ("effect_at_its_own_remote", run(records={"task-1": BROKEN[1][1]}), BROKEN[1][2]),
    (
        "undone_in_order",
        run(Applied(0, "w1", f"{REFUND}/undo"), before=(REFUND, TICKET)),
        f"{REFUND} was undone before what was done after it",
    ),
    (
        "undone_in_order",
        run(*plan_of(planned(TICKET, "{}")), Applied(0, "w1", f"{REFUND}/undo"), before=(REFUND, TICKET)),
        f"{REFUND} was undone before what was done after it",
    ),
    (
        "undone_in_order",
        run(
            *plan_of(planned(TICKET), planned(f"{TICKET}/undo", status="pending")),
            Applied(0, "w1", f"{REFUND}/undo"),
            before=(REFUND, TICKET),
        ),
        f"{REFUND} was undone before what was done after it",
    ),
    (
        "undone_in_order",
        run(Applied(0, "w1", f"{MAIL}/undo"), before=(REFUND,)),
        f"{MAIL} was undone, and had never been done",
    ),
    ("settled_in_the_end", run(db=NoRows(("task-1", "running"))), "task-1 is left running"),
    ("every_end_is_announced", run(*task(CLAIMED, FINISHED)), "task-1 is succeeded, and no message says so"),
    (
        "every_message_is_handed_over",
        run(message("m1"), message("m2"), Handed(0, "w1", "m1")),
        "m2 never reached its consumer",
    ),
    (
        "every_message_keeps_its_id",
        run(message("m1"), Handed(0, "w1", "m1"), Handed(0, "w2", "m1 again")),
        "w2 handed over m1 again, which the outbox does not know",
    ),
    ("no_second_effect", run(records={"task-1": BROKEN[0][1]}), BROKEN[0][2]),
    ("success_means_done", run(records={"task-0": QUIET, "task-1": LOST[1]}), LOST[2]),
    ("record_and_ledger_agree", run(records={"task-1": DISAGREES[1]}), DISAGREES[2]),
]
ROW_LAWS: dict[str, SqlLaw] = {
    law.__name__: law for law in (*CLAIM_LAWS, *WORKER_LAWS, *OUTBOX_LAWS, decides_by_what_it_read)
}


@pytest.mark.parametrize(("law", "broken_run", "how"), ROWS_BROKEN, ids=[name for name, _, _ in ROWS_BROKEN])
def test_a_law_over_rows_says_in_a_sentence_how_a_run_broke_it(law: str, broken_run: BenchRun, how: str) -> None:
    assert ROW_LAWS[law](broken_run) == how


def test_there_is_a_broken_run_for_every_law_over_rows() -> None:
    assert {name for name, _, _ in ROWS_BROKEN} == set(ROW_LAWS)


TAKEN_OVER = changed("w2", HELD, AGAIN, at=30.0)
ROWS_KEPT: list[tuple[str, Callable[[], BenchRun]]] = [
    ("a claim that one worker wins", lambda: run(*task(CLAIMED), results={"w1": True, "w2": False})),
    ("a race that nobody lives to win", lambda: run(results={"w2": False}, dead=frozenset({"w1"}))),
    ("a finished task", lambda: run(*task(CLAIMED, FINISHED), message("m1"), Handed(1, "w1", "m1"), results={"w1": 1})),
    (
        "a take-over when the lease has run out",
        lambda: run(*task(CLAIMED), TAKEN_OVER, results={"w1": 1, "w2": 2}, dead={"w1"}),
    ),
    ("a renewal by the holder", lambda: run(*task(CLAIMED, ("w1", HELD, HELD | {"lease_expires_at": 60.0})))),
    ("a cancel requested by somebody else", lambda: run(*task(CLAIMED, ("Ada", HELD, HELD | {"cancel_requested": 1})))),
    (
        "a second attempt of what was begun before the cancel",
        lambda: run(attempt("w1", MAIL), *task(("Ada", FIRST, row(cancel_requested=1))), attempt("w1", MAIL, 2)),
    ),
    (
        "an undo in order, and one done in this run",
        lambda: run(
            *(Applied(0, "w1", name) for name in (TICKET, f"{TICKET}/undo", f"{REFUND}/undo")), before=(REFUND,)
        ),
    ),
    (
        "an undo of what was done before something that cannot be undone",
        lambda: run(
            *plan_of(planned(REFUND, "{}"), planned(MAIL), planned(f"{MAIL}/undo", status="cannot_be_undone")),
            Applied(0, "w1", f"{REFUND}/undo"),
            before=(REFUND, MAIL),
        ),
    ),
    (
        "what was sent before the cancel arrives after it",
        lambda: run(*task(("Ada", FIRST, row(cancel_requested=1))), Applied(0, WIRE, MAIL)),
    ),
    ("a message delivered twice", lambda: run(message("m1"), Handed(1, "w1", "m1"), Handed(2, "w2", "m1"))),
    ("a refused change", lambda: run(errors={"w1": STALE})),
]


@pytest.mark.parametrize(("name", "kept"), ROWS_KEPT, ids=[name for name, _ in ROWS_KEPT])
def test_laws_over_rows_are_silent_about_runs_that_keep_them(name: str, kept: Callable[[], BenchRun]) -> None:
    silent = {law.__name__: law(kept()) for law in (*WORKER_LAWS, *OUTBOX_LAWS[1:], decides_by_what_it_read)}
    assert not any(silent.values()), silent
    if kept().results and not name.startswith("a take-over"):
        assert not any(law(kept()) for law in CLAIM_LAWS)


def test_what_was_read_again_may_be_changed_again() -> None:
    log = [Said(0, "w1", "read", 1), *task(CLAIMED, FINISHED)]
    assert not decides_by_what_it_read(run(*log)), "a worker knows the version that it has itself written"
