"""Leases, intents, attempts, budgets and checkpoints: what a worker does with a task that it holds."""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from stage import APPROVAL_PLAN, FIRST, FOREVER, ID, PLAN, SECOND, Stage, company, lease_of

from labkit.changes import Assumptions
from labkit.deciding import Answer
from labkit.errors import ChangeRefused, ConditionUnmet, InvalidInput, StaleToken, StaleVersion
from labkit.records import Announcement, Lease, Outcome, PlannedOperation
from labkit.retries import Budget, Category
from labkit.seams import ManualClock
from labkit.states import Condition, Event, State
from labkit.store import TaskStore


def refusal_of(call: Callable[[], object], condition: Condition) -> ConditionUnmet:
    with pytest.raises(ConditionUnmet) as refused:
        call()
    assert refused.value.condition is condition
    return refused.value


# Leases


def test_of_two_workers_that_read_the_same_version_one_claims(stage: Stage) -> None:
    task = stage.queued()
    assert stage.store.claim(task, "worker-1").token == 1
    with pytest.raises(StaleVersion):
        stage.store.claim(task, "worker-2")
    assert stage.task.lease_owner == "worker-1"


def test_tokens_only_grow_over_claims_take_overs_and_releases(stage: Stage) -> None:
    stage.queued()
    tokens = []
    for _ in range(3):
        lease = stage.store.claim(stage.task, "worker-1", 10)
        stage.clock.advance(10)
        taken = stage.store.take_over(stage.task, "worker-1", 10)
        tokens += [lease.token, taken.token]
        stage.store.retry_later(taken, FIRST, Outcome.NOT_SENT, Category.TRANSIENT, stage.clock.now())
        assert stage.task.lease_token == taken.token
    assert tokens == [1, 2, 3, 4, 5, 6]


def test_a_workers_name_is_never_compared(stage: Stage) -> None:
    """Two processes may share a name: only the token tells whose lease it is."""
    old = stage.running()
    stage.clock.advance(30)
    stage.store.take_over(stage.task, "worker-1")
    with pytest.raises(StaleToken):
        stage.store.intend(old, FIRST)


@pytest.mark.parametrize(("seconds", "expires_at"), [(60, 1070.0), (20, 1030.0), (0, 1030.0)])
def test_renewing_never_shortens_a_lease(seconds: float, expires_at: float, stage: Stage) -> None:
    lease = stage.running()
    stage.clock.advance(10)
    renewed = stage.store.renew(lease, seconds)
    assert renewed == replace(lease, expires_at=expires_at)
    assert stage.task.lease_expires_at == expires_at


def test_the_holder_goes_on_with_its_version_after_a_renewal_and_after_a_request_to_cancel(stage: Stage) -> None:
    lease = stage.sent()
    stage.store.renew(lease)
    stage.store.request_cancel(ID, "Ada")
    assert stage.task.version == lease.version
    assert stage.store.checkpoint(lease, FIRST, "payments-1").version == lease.version + 1


def test_renewing_with_an_old_lease_hands_out_the_present_version(stage: Stage) -> None:
    old = stage.running()
    newer, _ = stage.store.intend(old, FIRST)
    assert stage.store.renew(old).version == newer.version


@pytest.mark.parametrize(
    ("seconds", "taken"), [(29.999, False), (30, True), (31, True)], ids=["before", "to the second", "after"]
)
def test_a_task_is_taken_over_only_once_its_lease_has_run_out(seconds: float, taken: bool, stage: Stage) -> None:
    lease = stage.running()
    stage.clock.advance(seconds)
    if taken:
        assert stage.store.take_over(stage.task, "worker-2").token == 2
        assert stage.task.lease_owner == "worker-2"
    else:
        refusal_of(lambda: stage.store.take_over(stage.task, "worker-2"), Condition.LEASE_EXPIRED)
        assert stage.store.renew(lease).token == 1


def test_an_expired_lease_that_nobody_took_over_still_lets_its_holder_record_a_result(stage: Stage) -> None:
    """Time alone takes nothing away; only a larger token does."""
    lease = stage.sent()
    stage.clock.advance(1000)
    refusal_of(lambda: stage.store.renew(lease), Condition.LEASE_LIVE)
    stage.store.checkpoint(lease, FIRST, "payments-1")
    assert stage.task.step == 1


ZOMBIE_CALLS: dict[str, Callable[[TaskStore, Lease], object]] = {
    "renew": lambda store, lease: store.renew(lease),
    "intend": lambda store, lease: store.intend(lease, FIRST),
    "resend": lambda store, lease: store.intend(lease, FIRST, key_memory_seconds=FOREVER),
    "checkpoint": lambda store, lease: store.checkpoint(lease, FIRST, "payments-9"),
    "retry_later": lambda store, lease: store.retry_later(lease, FIRST, Outcome.NOT_SENT, Category.TRANSIENT, 0),
    "lose_track": lambda store, lease: store.lose_track(lease, FIRST),
    "settle": lambda store, lease: store.settle(lease, FIRST, True, "status query", "payments-9"),
    "ask": lambda store, lease: store.ask(lease, "why not", 60),
    "cancel": lambda store, lease: store.cancel(lease),
    "succeed": lambda store, lease: store.succeed(lease),
    "fail": lambda store, lease: store.fail(lease, Category.INVALID, FIRST, Outcome.REFUSED),
    "compensated": lambda store, lease: store.compensated(lease),
}

SUCCESSORS: dict[State, Callable[[Stage, Lease], object]] = {
    State.UNCERTAIN: lambda stage, lease: None,
    State.QUEUED: lambda stage, lease: stage.store.settle(lease, FIRST, False, "fenced status query"),
    State.AWAITING_CONFIRMATION: lambda stage, lease: stage.store.ask(lease, "the outcome is unknown", 60),
    State.CANCELLED: lambda stage, lease: (
        stage.store.request_cancel(ID, "Ada"),
        stage.store.settle(lease, FIRST, True, "status query", "payments-1"),
    ),
}


@pytest.mark.parametrize("state", SUCCESSORS)
@pytest.mark.parametrize("call", ZOMBIE_CALLS)
def test_a_zombies_every_call_is_refused_as_a_lost_lease(call: str, state: State, stage: Stage) -> None:
    """It slept until its lease had run out; another took over, and led the task on while it slept."""
    zombie = stage.sent()
    stage.clock.advance(30)
    SUCCESSORS[state](stage, stage.store.take_over(stage.task, "worker-2"))
    assert stage.task.state is state
    before = stage.rows()
    with pytest.raises(StaleToken) as refused:
        ZOMBIE_CALLS[call](stage.store, zombie)
    assert (refused.value.expected, refused.value.found) == ("token 1", f"token 2 ({state})")
    assert stage.rows() == before


def test_a_lease_can_reach_as_far_as_a_day(stage: Stage) -> None:
    lease = stage.store.claim(stage.queued(), "worker-1", 86_400)
    stage.clock.advance(86_399)
    refusal_of(lambda: stage.store.take_over(stage.task, "worker-2"), Condition.LEASE_EXPIRED)
    assert stage.store.claim_next("worker-2") is None
    assert stage.store.renew(lease, 86_400).expires_at == 1000 + 86_399 + 86_400


def test_a_lease_of_more_than_a_day_is_refused_since_nothing_but_time_would_free_the_task(stage: Stage) -> None:
    task = stage.queued()
    with pytest.raises(InvalidInput, match="lease_seconds: a finite number of seconds, from 0 to 86400"):
        stage.store.claim(task, "worker-1", 86_401)
    with pytest.raises(InvalidInput, match="lease_seconds"):
        stage.store.claim_next("worker-1", 86_401)
    lease = stage.store.claim(task, "worker-1")
    with pytest.raises(InvalidInput, match="lease_seconds"):
        stage.store.renew(lease, 86_401)


def test_a_lease_of_no_length_can_be_taken_over_at_once(stage: Stage) -> None:
    lease = stage.store.claim(stage.queued(), "worker-1", 0)
    assert stage.store.take_over(stage.task, "worker-2").token == lease.token + 1


NOT_SECONDS = [float("nan"), float("inf"), -float("inf"), -1, -1e-9, True, False, "30", None, 10**400, 1j]


@pytest.mark.parametrize("seconds", NOT_SECONDS, ids=repr)
def test_what_is_no_span_of_seconds_is_no_lease(seconds: object, stage: Stage) -> None:
    task = stage.queued()
    before = stage.rows()
    for call in (stage.store.claim, stage.store.take_over):
        with pytest.raises(InvalidInput, match="lease_seconds: a finite number of seconds, from 0"):
            call(task, "worker-1", seconds)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="lease_seconds"):
        stage.store.claim_next("worker-1", seconds)  # type: ignore[arg-type]
    assert stage.rows() == before
    lease = stage.store.claim(task, "worker-1")
    with pytest.raises(InvalidInput, match="lease_seconds"):
        stage.store.renew(lease, seconds)  # type: ignore[arg-type]


# Choosing the next task


def queue(stage: Stage, **due: float) -> None:
    for name, at in due.items():
        stage.store.enqueue(name, PLAN, next_run_at=at)


def test_the_task_that_is_due_longest_comes_first_and_of_equals_the_smaller_id(stage: Stage) -> None:
    queue(stage, b=900, c=800, a=900, d=1001)
    leases = [stage.store.claim_next("worker-1") for _ in range(4)]
    assert [lease.task_id if lease else None for lease in leases] == ["c", "a", "b", None]


def test_a_task_is_chosen_from_the_very_second_it_is_due(stage: Stage) -> None:
    queue(stage, a=1001)
    assert stage.store.claim_next("worker-1") is None
    stage.clock.advance(1)
    lease = stage.store.claim_next("worker-1", 30)
    assert lease == Lease("a", "worker-1", 1, 2, State.RUNNING, 1031.0)


def test_a_task_whose_cancelling_is_requested_is_left_to_be_cancelled(stage: Stage) -> None:
    queue(stage, a=900, b=950)
    stage.store.request_cancel("a", "Ada")
    lease = stage.store.claim_next("worker-1")
    assert lease is not None
    assert lease.task_id == "b"
    assert stage.store.claim_next("worker-1") is None


def test_where_nothing_is_due_the_lease_that_ran_out_first_is_taken_over(stage: Stage) -> None:
    queue(stage, a=900, b=900, c=2000)
    for seconds in (20, 10):
        stage.store.claim_next("worker-1", seconds)
    stage.clock.advance(25)
    leases = [stage.store.claim_next("worker-2") for _ in range(3)]
    assert [lease and (lease.task_id, lease.token) for lease in leases] == [("b", 2), ("a", 2), None]


def test_a_task_in_doubt_is_taken_over_as_uncertain(stage: Stage) -> None:
    stage.sent()
    stage.clock.advance(30)
    lease = stage.store.claim_next("worker-2")
    assert lease is not None
    assert lease.state is stage.task.state is State.UNCERTAIN
    assert stage.store.history(ID)[-1].event == Event.TAKE_OVER


def test_with_nothing_to_do_none_is_returned_and_no_row_is_touched(stage: Stage) -> None:
    stage.succeeded()
    before = stage.rows()
    assert stage.store.claim_next("worker-1") is None
    assert stage.rows() == before


def test_a_busy_writer_does_not_disturb_who_finds_nothing_to_do(stage: Stage, tmp_path: Path) -> None:
    writer = sqlite3.connect(tmp_path / "tasks.sqlite", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    assert stage.store.claim_next("worker-1") is None
    writer.execute("ROLLBACK")
    writer.close()


def test_of_workers_that_choose_at_the_same_time_no_two_get_the_same_task(stage: Stage) -> None:
    queue(stage, **{f"task-{number:02}": 900.0 for number in range(40)})
    taken: list[Lease] = []

    def work() -> None:
        while (lease := stage.store.claim_next(threading.current_thread().name)) is not None:
            taken.append(lease)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(lease.task_id for lease in taken) == [f"task-{number:02}" for number in range(40)]
    assert {lease.token for lease in taken} == {1}


# Intents and attempts


def test_the_request_id_is_on_record_before_anything_is_sent(stage: Stage) -> None:
    lease, attempt = stage.store.intend(stage.running(), FIRST)
    assert stage.task.operations[0].attempts == (attempt,)
    assert (attempt.number, attempt.request_id, attempt.token) == (1, f"{FIRST}#1", lease.token)
    assert (attempt.sent_at, attempt.outcome) == (1000.0, None)
    assert isinstance(attempt.sent_at, float)
    assert stage.store.history(ID)[-1].detail == {"operation": FIRST, "request_id": f"{FIRST}#1"}
    assert stage.task.first_attempt_at == 1000.0


def test_attempts_are_counted_over_retries_take_overs_and_resends(stage: Stage) -> None:
    lease = stage.refused_once()
    lease, second = stage.store.intend(lease, FIRST, request_id="req-b")
    lease = stage.store.lose_track(lease, FIRST)
    lease, third = stage.store.intend(lease, FIRST, key_memory_seconds=FOREVER)
    stage.clock.advance(30)
    lease, fourth = stage.store.intend(stage.store.take_over(stage.task, "worker-2"), FIRST, key_memory_seconds=FOREVER)
    assert [(one.number, one.request_id, one.token) for one in (second, third, fourth)] == [
        (2, "req-b", 2),
        (3, f"{FIRST}#3", 2),
        (4, f"{FIRST}#4", 3),
    ]
    outcomes = [one.outcome for one in stage.task.operations[0].attempts]
    assert outcomes == [Outcome.NOT_SENT, None, None, None]
    assert stage.task.attempts == 4


@pytest.mark.parametrize("request_id", ["", " \n", "a\x00b", "x" * 201, 7], ids=repr)
def test_a_request_id_must_be_able_to_name_something(request_id: object, stage: Stage) -> None:
    lease = stage.running()
    before = stage.rows()
    with pytest.raises(InvalidInput, match="request_id"):
        stage.store.intend(lease, FIRST, request_id=request_id)  # type: ignore[arg-type]
    assert stage.rows() == before


@pytest.mark.parametrize(
    ("memory", "sent"), [(127.0, False), (127.001, True), (FOREVER, True), (0, False), (None, False)]
)
def test_a_resend_under_the_key_is_safe_only_while_the_remote_remembers_it_longer_than_anything_is_under_way(
    memory: float | None, sent: bool, stage: Stage
) -> None:
    lease = stage.uncertain()  # sent at 1000; longest delivery and longest pause are 60 seconds each
    stage.clock.advance(7)
    if sent:
        assert stage.store.intend(lease, FIRST, key_memory_seconds=memory)[1].number == 2
    else:
        error = refusal_of(lambda: stage.store.intend(lease, FIRST, key_memory_seconds=memory), Condition.KEY_OUTLIVES)
        assert error.found == ("no key memory" if memory is None else f"age 7.0, key memory {float(memory)}")


def test_the_age_of_a_key_counts_from_its_first_sending_in_doubt(stage: Stage) -> None:
    lease = stage.uncertain()
    for _ in range(3):
        stage.clock.advance(5)
        lease, _ = stage.store.intend(lease, FIRST, key_memory_seconds=140)
    stage.clock.advance(5)
    refusal_of(lambda: stage.store.intend(lease, FIRST, key_memory_seconds=140), Condition.KEY_OUTLIVES)


def test_a_key_from_a_time_that_is_yet_to_come_is_of_no_age_at_all(stage: Stage) -> None:
    """The clock was put back, so nobody knows how long the remote has had the key."""
    lease = stage.uncertain()
    stage.clock.reset(999)
    error = refusal_of(lambda: stage.store.intend(lease, FIRST, key_memory_seconds=1e6), Condition.KEY_OUTLIVES)
    assert error.found == "age -1.0, key memory 1000000.0"


def test_the_age_that_a_key_may_reach_follows_from_the_assumptions(tmp_path: Path, clock: ManualClock) -> None:
    with TaskStore(tmp_path / "a.sqlite", clock, assumptions=Assumptions(2, 3), synchronous="OFF") as store:
        lease = Stage(store, clock).uncertain()
        refusal_of(lambda: store.intend(lease, FIRST, key_memory_seconds=5), Condition.KEY_OUTLIVES)
        assert store.intend(lease, FIRST, key_memory_seconds=5.5)[1].number == 2


@pytest.mark.parametrize(
    "memory", [float("nan"), -1, True, "86400", 10**400, -(10**400)], ids=lambda one: repr(one)[:9]
)
def test_what_is_no_span_of_seconds_is_no_key_memory(memory: object, stage: Stage) -> None:
    lease = stage.uncertain()
    before = stage.rows()
    if memory == 10**400:  # a very long time indeed
        stage.store.intend(lease, FIRST, key_memory_seconds=memory)  # type: ignore[arg-type]
        return
    with pytest.raises(InvalidInput, match="key_memory_seconds"):
        stage.store.intend(lease, FIRST, key_memory_seconds=memory)  # type: ignore[arg-type]
    assert stage.rows() == before


def test_what_was_learned_of_the_last_sending_is_recorded_with_the_next_one(stage: Stage) -> None:
    lease, attempt = stage.store.intend(stage.sent(), FIRST, last_outcome=Outcome.REFUSED)
    assert attempt.number == 2
    assert [one.outcome for one in stage.task.operations[0].attempts] == [Outcome.REFUSED, None]
    assert stage.store.checkpoint(lease, FIRST, "payments-1").state is State.RUNNING
    assert [one.outcome for one in stage.task.operations[0].attempts] == [Outcome.REFUSED, Outcome.APPLIED]


@pytest.mark.parametrize("same_holder", [True, False])
def test_a_refused_resend_does_not_settle_the_first_sending(same_holder: bool, stage: Stage) -> None:
    lease = stage.uncertain()
    if not same_holder:
        stage.clock.advance(30)
        lease = stage.store.take_over(stage.task, "worker-2")
    for number in (2, 3):
        lease, attempt = stage.store.intend(
            lease, FIRST, key_memory_seconds=FOREVER, last_outcome=None if number == 2 else Outcome.REFUSED
        )
        assert attempt.number == number
    doubt = stage.task.in_doubt
    assert doubt is not None
    assert [one.outcome for one in doubt.attempts] == [None, Outcome.REFUSED, None]


def test_the_successor_cannot_say_what_became_of_its_predecessors_sending(stage: Stage) -> None:
    """`last_outcome` is about the caller's own sending; another's stays unknown."""
    stage.sent()
    stage.clock.advance(30)
    lease = stage.store.take_over(stage.task, "worker-2")
    stage.store.intend(lease, FIRST, key_memory_seconds=FOREVER, last_outcome=Outcome.NOT_SENT)
    assert [one.outcome for one in stage.task.operations[0].attempts] == [None, None]


def test_what_is_known_of_a_sending_is_not_unsaid(stage: Stage) -> None:
    stage.store.fail(stage.first_done(), Category.INVALID, FIRST, Outcome.REFUSED)
    assert [one.outcome for one in stage.task.operations[0].attempts] == [Outcome.APPLIED]


@pytest.mark.parametrize("outcome", [Outcome.APPLIED, Outcome.NOT_APPLIED, "lost", ""])
def test_only_a_sending_known_not_to_have_been_applied_lets_another_follow(outcome: str, stage: Stage) -> None:
    """After an answer "applied", sending again would double the effect; the answer belongs into a checkpoint."""
    lease = stage.sent()
    before = stage.rows()
    for call in (
        lambda: stage.store.intend(lease, FIRST, last_outcome=outcome),  # type: ignore[arg-type]
        lambda: stage.store.retry_later(lease, FIRST, outcome, Category.TRANSIENT, 1007),  # type: ignore[arg-type]
        lambda: stage.store.fail(lease, Category.INVALID, FIRST, outcome),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidInput, match="not_sent or refused"):
            call()
    assert stage.rows() == before


def test_an_outcome_without_its_operation_is_no_input(stage: Stage) -> None:
    lease = stage.sent()
    with pytest.raises(InvalidInput, match="the operation that the outcome is of"):
        stage.store.fail(lease, Category.INVALID, outcome=Outcome.REFUSED)


@pytest.mark.parametrize("name", ["retry_later", "fail", "intend", "checkpoint", "lose_track", "settle"])
def test_a_worker_cannot_touch_the_operations_of_a_task_that_it_does_not_hold(name: str, stage: Stage) -> None:
    """Both leases have token 1: a token counts within its task."""
    stage.sent()
    lease = stage.store.claim(stage.store.enqueue("task-2", PLAN), "worker-2")
    assert lease.token == stage.task.lease_token
    calls: dict[str, Callable[[], object]] = {
        "retry_later": lambda: stage.store.retry_later(lease, FIRST, Outcome.NOT_SENT, Category.TRANSIENT, 1007),
        "fail": lambda: stage.store.fail(lease, Category.INVALID, FIRST, Outcome.REFUSED),
        "intend": lambda: stage.store.intend(lease, FIRST, last_outcome=Outcome.NOT_SENT),
        "checkpoint": lambda: stage.store.checkpoint(lease, FIRST, "payments-9"),
        "lose_track": lambda: stage.store.lose_track(lease, FIRST),
        "settle": lambda: stage.store.settle(lease, FIRST, True, "status query", "payments-9"),
    }
    before = stage.task
    with suppress(ChangeRefused):
        calls[name]()
    assert stage.task == before


# Budgets of attempts and time


def test_attempts_and_time_are_counted_for_each_operation_and_a_checkpoint_starts_them_anew(stage: Stage) -> None:
    lease = stage.refused_once()
    stage.clock.advance(3)
    lease, _ = stage.store.intend(lease, FIRST)
    assert (stage.task.attempts, stage.task.first_attempt_at) == (2, 1000.0)
    stage.store.checkpoint(lease, FIRST, "payments-1")
    assert (stage.task.attempts, stage.task.first_attempt_at, stage.task.error_category) == (0, None, None)
    stage.clock.advance(5)
    stage.store.intend(lease_of(stage.task), SECOND)
    assert (stage.task.attempts, stage.task.first_attempt_at) == (1, 1008.0)


def test_evidence_that_it_was_applied_starts_the_budgets_anew_and_that_it_was_not_does_not(stage: Stage) -> None:
    lease = stage.uncertain()
    stage.store.settle(lease, FIRST, False, "fenced status query")
    assert (stage.task.attempts, stage.task.first_attempt_at, stage.task.step) == (1, 1000.0, 0)
    assert stage.task.error_category == Category.UNCONFIRMED
    lease = stage.store.claim(stage.task, "worker-1")
    lease = stage.store.lose_track(stage.store.intend(lease, FIRST)[0], FIRST)
    stage.store.settle(lease, FIRST, True, "status query", "payments-1")
    assert (stage.task.attempts, stage.task.first_attempt_at, stage.task.step) == (0, None, 1)
    assert stage.task.error_category is None


def test_a_persons_answer_starts_the_budgets_anew_even_if_it_was_not_applied(stage: Stage) -> None:
    stage.awaiting_doubt()
    stage.clock.advance(120)
    stage.store.answer(stage.task, Answer.NOT_APPLIED, "Ada")
    assert (stage.task.attempts, stage.task.first_attempt_at, stage.task.step) == (0, None, 0)


def test_compensating_starts_the_budgets_anew(stage: Stage) -> None:
    lease, _ = stage.store.intend(stage.first_done(), SECOND)
    stage.store.fail(lease, Category.INVALID, SECOND, Outcome.REFUSED)
    assert (stage.task.attempts, stage.task.error_category) == (1, Category.INVALID)
    stage.store.compensate(stage.task, "Ada")
    assert (stage.task.attempts, stage.task.first_attempt_at, stage.task.error_category) == (0, None, None)


def test_the_last_allowed_attempt_can_be_made_and_the_next_cannot(stage: Stage) -> None:
    lease = stage.refused_once(max_attempts=2)
    lease, attempt = stage.store.intend(lease, FIRST)
    assert attempt.number == 2
    error = refusal_of(
        lambda: stage.store.retry_later(lease, FIRST, Outcome.NOT_SENT, Category.TRANSIENT, 1007),
        Condition.ATTEMPTS_LEFT,
    )
    assert error.found == "2 of 2 attempts, 7.0 of 3600.0 seconds"
    assert stage.store.fail(lease, Category.TRANSIENT, FIRST, Outcome.NOT_SENT) is State.FAILED


@pytest.mark.parametrize(("at", "queued"), [(1009.999, True), (1010.0, False), (1e9, False)])
def test_a_retry_is_put_off_only_to_a_time_within_the_budget(at: float, queued: bool, stage: Stage) -> None:
    lease = stage.sent(budget=Budget(5, 10))
    if queued:
        assert stage.store.retry_later(lease, FIRST, Outcome.NOT_SENT, Category.TRANSIENT, at) is State.QUEUED
        assert stage.task.next_run_at == at
    else:
        refusal_of(
            lambda: stage.store.retry_later(lease, FIRST, Outcome.NOT_SENT, Category.TRANSIENT, at),
            Condition.TIME_LEFT,
        )
        ended = stage.store.fail(lease, Category.TRANSIENT, FIRST, Outcome.NOT_SENT, earliest_retry_at=at)
        assert ended is State.FAILED


def test_a_budget_of_no_time_allows_one_attempt(stage: Stage) -> None:
    lease, attempt = stage.store.intend(stage.running(budget=Budget(5, 0)), FIRST)
    assert attempt.number == 1
    refusal_of(lambda: stage.store.intend(lease, FIRST, last_outcome=Outcome.NOT_SENT), Condition.TIME_LEFT)


@pytest.mark.parametrize("category", ["hopeless", "", None])
def test_an_unknown_error_category_is_no_input(category: object, stage: Stage) -> None:
    lease = stage.sent()
    for call in (
        lambda: stage.store.fail(lease, category),  # type: ignore[arg-type]
        lambda: stage.store.retry_later(lease, FIRST, Outcome.NOT_SENT, category, 1007),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidInput, match="one of transient, permission, invalid, unconfirmed"):
            call()


@pytest.mark.parametrize("at", [float("nan"), float("inf"), "1007", True, None])
def test_a_time_to_retry_at_is_a_finite_number(at: object, stage: Stage) -> None:
    lease = stage.sent()
    with pytest.raises(InvalidInput, match="next_run_at"):
        stage.store.retry_later(lease, FIRST, Outcome.NOT_SENT, Category.TRANSIENT, at)  # type: ignore[arg-type]


# Checkpoints


def test_a_checkpoint_writes_result_step_version_and_announcement_together(stage: Stage) -> None:
    lease = stage.sent()
    announced = Announcement("refunded", {"amount": 40})
    after = stage.store.checkpoint(lease, FIRST, "payments-1", announced)
    task = stage.task
    assert (task.step, task.version, after.version) == (1, lease.version + 1, lease.version + 1)
    assert (task.operations[0].result_ref, task.operations[0].result_source) == ("payments-1", "response")
    assert task.operations[0].standing == "done"
    assert task.next_operation is task.operations[1]
    (message,) = stage.store.undelivered()
    assert (message.id, message.topic, message.payload) == (f"{ID}@{task.version}", "refunded", {"amount": 40})


BROKEN = {
    "the result": "CREATE TRIGGER broken BEFORE UPDATE ON operations BEGIN SELECT RAISE(ABORT, 'broken'); END",
    "the step": "CREATE TRIGGER broken BEFORE UPDATE ON tasks BEGIN SELECT RAISE(ABORT, 'broken'); END",
    "the attempt": "CREATE TRIGGER broken BEFORE UPDATE ON attempts BEGIN SELECT RAISE(ABORT, 'broken'); END",
    "the history": "CREATE TRIGGER broken BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'broken'); END",
    "the outbox": "CREATE TRIGGER broken BEFORE INSERT ON outbox BEGIN SELECT RAISE(ABORT, 'broken'); END",
}


@pytest.mark.parametrize("where", BROKEN)
def test_a_checkpoint_that_breaks_in_the_middle_leaves_nothing_half_written(where: str, stage: Stage) -> None:
    lease = stage.sent()
    stage.sql(BROKEN[where])
    before = stage.rows()
    with pytest.raises(sqlite3.IntegrityError, match="broken"):
        stage.store.checkpoint(lease, FIRST, "payments-1", Announcement("refunded", {}))
    assert stage.rows() == before
    stage.sql("DROP TRIGGER broken")
    assert stage.store.checkpoint(lease, FIRST, "payments-1").version == lease.version + 1


def test_an_announcement_that_cannot_be_written_takes_its_change_with_it(stage: Stage) -> None:
    lease = stage.sent()
    before = stage.rows()
    for announcement in (Announcement("refunded", {"amount": float("nan")}), Announcement("", {})):
        with pytest.raises(InvalidInput):
            stage.store.checkpoint(lease, FIRST, "payments-1", announcement)
    assert stage.rows() == before


def test_the_same_checkpoint_again_is_refused_and_changes_nothing(stage: Stage) -> None:
    lease = stage.sent()
    newer = stage.store.checkpoint(lease, FIRST, "payments-1")
    before = stage.rows()
    with pytest.raises(StaleVersion):
        stage.store.checkpoint(lease, FIRST, "payments-2")
    refusal_of(lambda: stage.store.checkpoint(newer, FIRST, "payments-2"), Condition.INTENT_ON_RECORD)
    assert stage.rows() == before


# Asking, succeeding, failing


def test_an_approval_is_asked_for_before_the_operation_is_first_sent_and_recorded_with_the_name(stage: Stage) -> None:
    lease = stage.running(APPROVAL_PLAN)
    assert stage.store.ask(lease, "40 euros", 60) is State.AWAITING_CONFIRMATION
    assert (stage.task.awaiting_for, stage.task.awaiting_until) == ("approval", 1060.0)
    assert stage.store.answer(stage.task, Answer.APPROVED, "Ada") is State.QUEUED
    assert stage.task.operations[0].approved_by == "Ada"
    lease = stage.store.claim(stage.task, "worker-1")
    assert stage.store.intend(lease, FIRST)[1].number == 1


def test_what_was_learned_before_asking_is_recorded_of_the_operation_in_doubt(stage: Stage) -> None:
    company(stage.store)
    lease, _ = stage.store.intend(stage.uncertain(), FIRST, key_memory_seconds=FOREVER)
    stage.store.ask(lease, "the outcome is unknown", 60, last_outcome=Outcome.REFUSED)
    assert [one.outcome for one in stage.task.operations[0].attempts] == [None, Outcome.REFUSED]


def test_a_plan_of_no_operations_succeeds_at_once(stage: Stage) -> None:
    assert stage.store.succeed(stage.running(())) is State.SUCCEEDED


def test_a_failure_tells_its_category_and_closes_the_last_sending(stage: Stage) -> None:
    stage.store.fail(stage.sent(), Category.PERMISSION, FIRST, Outcome.REFUSED, announce=Announcement("failed", {}))
    assert stage.task.error_category == Category.PERMISSION
    assert stage.task.operations[0].attempts[0].outcome is Outcome.REFUSED
    assert [message.topic for message in stage.store.undelivered()] == ["failed"]


@pytest.mark.parametrize("which", range(3))
def test_assumptions_are_spans_of_seconds(which: int) -> None:
    assert Assumptions(2, 3).longest_under_way_seconds == 5
    values = [float("nan"), -1.0, float("inf")]
    with pytest.raises(InvalidInput, match="longest_delivery_seconds"):
        Assumptions(longest_delivery_seconds=values[which])
    with pytest.raises(InvalidInput, match="longest_pause_seconds"):
        Assumptions(longest_pause_seconds=values[which])


def test_a_plan_may_have_an_operation_that_wants_approval_later_on(stage: Stage) -> None:
    plan = (PLAN[0], PlannedOperation("send_email", "mail", {}, needs_approval=True))
    lease = stage.first_done(plan)
    refusal_of(lambda: stage.store.intend(lease, SECOND), Condition.APPROVED)
    assert stage.store.ask(lease, "a person must see the text", 60) is State.AWAITING_CONFIRMATION
