"""The worker: retries, doubts, cancelling, compensating and leases that are lost, all by durable facts."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from plays import ONE, THREE, Played, Stage, attempts, every_crash

from labkit.deciding import Answer
from labkit.errors import ChangeRefused, SimulatedCrash, StaleToken, WrongState
from labkit.exchange import Refusal, Request
from labkit.policies import ASK_PERSON, BLIND_REPLAY, BY_CAPABILITY, POLICIES, QUERY_FIRST, SAME_KEY, Policy
from labkit.records import Outcome, PlannedOperation, Status, Task
from labkit.remote import Capabilities
from labkit.retries import Backoff, Budget
from labkit.runs import Verdict, judge
from labkit.seams import Call, Delivery, Point, scripted
from labkit.states import Direction, State
from labkit.wire import Remote

REFUND = "task-1/refund"
KEYS = Capabilities(idempotency_keys=True)
BUSY = Refusal("overloaded", "transient", 503)
FORBIDDEN = Refusal("not allowed", "permission", 403)
Opened = Callable[..., Stage]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    stages: list[Stage] = []

    def open_stage(late_by: float = 45.0, **can: object) -> Stage:
        folder = tmp_path / str(len(stages))
        folder.mkdir()
        stages.append(Stage(folder, Capabilities(**can), late_by))  # type: ignore[arg-type]
        return stages[-1]

    yield open_stage
    for stage in stages:
        stage.close()


def refuse(*refusals: Refusal | None) -> Callable[[Request], Refusal | None]:
    """Refuse the first requests like this; None and every later one is let in."""
    left = list(refusals)
    return lambda request: left.pop(0) if left else None


def outcomes(task: Task) -> list[Outcome | None]:
    return [attempt.outcome for attempt in task.operations[0].attempts]


def events(stage: Stage, task_id: str = "task-1") -> list[str]:
    return [entry.event for entry in stage.store.history(task_id)]


# The quiet run


def test_a_quiet_run_does_each_operation_once_in_order_and_records_the_remotes_references(opened: Opened) -> None:
    stage = opened()
    played = stage.play(ASK_PERSON, THREE)
    assert played.task.state is State.SUCCEEDED
    assert [one.result_ref for one in played.task.operations] == ["payments-1", "tickets-1", "mail-1"]
    assert {one.result_source for one in played.task.operations} == {"response"}
    assert played.effects == {f"task-1/{one.name}": 1 for one in THREE}
    assert played.lives == (
        (
            "claim",
            *(f"{event} {one.name}" for one in THREE for event in ("intend", "send", "checkpoint")),
            "succeed",
        ),
    )


def test_a_worker_leaves_alone_what_is_ended_not_due_or_held_by_another(opened: Opened) -> None:
    stage = opened()
    stage.play(ASK_PERSON)
    assert stage.worker(ASK_PERSON).run("task-1") is State.SUCCEEDED
    stage.store.enqueue("later", ONE, next_run_at=stage.clock.now() + 10)
    assert stage.worker(ASK_PERSON).run("later") is State.QUEUED
    task = stage.store.enqueue("held", ONE)
    stage.store.claim(task, "somebody")
    assert stage.worker(ASK_PERSON).run("held") is State.RUNNING
    assert stage.effects("later") == stage.effects("held") == {}


def test_a_task_without_operations_succeeds_at_once(opened: Opened) -> None:
    played = opened().play(ASK_PERSON, ())
    assert (played.task.state, played.verdict) == (State.SUCCEEDED, Verdict.EXACTLY_ONCE)


def test_a_plan_of_many_operations_is_carried_out_whole(opened: Opened) -> None:
    many = [PlannedOperation(f"step_{number}", "payments", {"n": number}) for number in range(150)]
    played = opened().play(ASK_PERSON, many)
    assert (played.verdict, len(played.effects)) == (Verdict.EXACTLY_ONCE, 150)


def test_an_operation_at_a_remote_that_the_worker_does_not_know_leaves_nothing_in_doubt(opened: Opened) -> None:
    stage = opened()
    task = stage.enqueue([PlannedOperation("fax", "fax", {})])
    with pytest.raises(KeyError):
        stage.worker(ASK_PERSON).run(task.id)
    task = stage.store.get(task.id)
    assert (task.in_doubt, task.attempts) == (None, 0)


def test_eight_workers_at_once_carry_out_a_task_once(opened: Opened) -> None:
    stage, start = opened(), threading.Barrier(8)
    task = stage.enqueue(THREE)

    def run(number: int) -> State:
        start.wait()
        return stage.worker(ASK_PERSON, f"worker-{number}").run(task.id)

    with ThreadPoolExecutor(8) as pool:
        states = list(pool.map(run, range(8)))
    assert stage.store.get(task.id).state is State.SUCCEEDED
    assert stage.effects(task.id) == {f"task-1/{one.name}": 1 for one in THREE}
    assert set(states) <= {State.RUNNING, State.SUCCEEDED}
    assert State.SUCCEEDED in states
    assert events(stage).count("claim") == 1


def test_a_worker_that_comes_second_tells_the_state_as_it_is_now_and_not_as_it_read_it(opened: Opened) -> None:
    stage = opened()
    task = stage.enqueue()
    worker = stage.worker(ASK_PERSON)
    acquired = type(worker).acquire

    class Slow(type(worker)):  # type: ignore[misc]
        def acquire(self, read: Task) -> object:
            if read.state is State.QUEUED:
                stage.store.claim(read, "faster")
            return acquired(self, read)

    slow = Slow(stage.store, stage.remotes, ASK_PERSON)
    assert slow.run(task.id) is State.RUNNING


# Retries


@pytest.mark.parametrize(("wished", "next_run_at"), [(None, 1.0), (0.5, 1.0), (7.0, 7.0)])
def test_a_transient_refusal_lets_the_task_go_until_the_longer_of_backoff_and_retry_after(
    opened: Opened, wished: float | None, next_run_at: float
) -> None:
    stage = opened()
    stage.gate = refuse(replace(BUSY, retry_after_seconds=wished))
    task = stage.enqueue()
    assert stage.worker(ASK_PERSON).run(task.id) is State.QUEUED
    task = stage.store.get(task.id)
    assert (task.next_run_at, task.error_category, task.attempts) == (next_run_at, "transient", 1)
    assert (task.lease_owner, outcomes(task)) == (None, [Outcome.REFUSED])
    stage.clock.advance(next_run_at - 0.001)
    assert stage.worker(ASK_PERSON, "worker-2").run(task.id) is State.QUEUED
    stage.clock.advance(0.001)
    assert stage.worker(ASK_PERSON, "worker-3").run(task.id) is State.SUCCEEDED
    assert stage.effects(task.id) == {REFUND: 1}


def test_what_was_not_sent_is_known_not_applied_and_tried_again(opened: Opened) -> None:
    played = opened().play(ASK_PERSON, ONE, network=scripted(Delivery.REFUSED, Delivery.REFUSED))
    assert outcomes(played.task) == [Outcome.NOT_SENT, Outcome.NOT_SENT, Outcome.APPLIED]
    assert (played.verdict, played.asked) == (Verdict.EXACTLY_ONCE, 0)


def test_waits_grow_over_restarts_because_the_count_is_in_the_row(opened: Opened) -> None:
    stage = opened()
    stage.gate = refuse(*[BUSY] * 4)
    task, waits = stage.enqueue(), []
    for number in range(1, 5):
        assert stage.worker(ASK_PERSON, f"worker-{number}").run(task.id) is State.QUEUED
        task = stage.store.get(task.id)
        assert task.attempts == number
        waits.append(task.next_run_at - stage.clock.now())
        stage.clock.advance(waits[-1])
    assert waits == [1.0, 2.0, 4.0, 8.0]


def test_attempts_before_a_crash_count_too(opened: Opened) -> None:
    stage = opened(idempotency_keys=True)
    played = stage.play(SAME_KEY, ONE, ("intend refund", "intend refund", "intend refund"), budget=Budget(3))
    assert played.task.state is State.AWAITING_CONFIRMATION
    assert len(played.task.operations[0].attempts) == 3


@pytest.mark.parametrize("max_attempts", [1, 2, 5])
def test_a_budget_of_attempts_that_is_spent_fails_cleanly(opened: Opened, max_attempts: int) -> None:
    stage = opened()
    stage.gate = lambda request: BUSY
    played = stage.play(ASK_PERSON, ONE, budget=Budget(max_attempts))
    assert (played.task.state, played.task.error_category) == (State.FAILED, "transient")
    assert outcomes(played.task) == [Outcome.REFUSED] * max_attempts
    assert played.verdict is Verdict.STOPPED_CLEAN


@pytest.mark.parametrize(("max_seconds", "sendings"), [(0.5, 1), (1.0, 1), (1.001, 2), (3.0, 2), (3.001, 3)])
def test_a_budget_of_time_lets_no_attempt_begin_after_it(opened: Opened, max_seconds: float, sendings: int) -> None:
    stage = opened()
    stage.gate = lambda request: BUSY
    played = stage.play(ASK_PERSON, ONE, budget=Budget(50, max_seconds))
    assert played.task.state is State.FAILED
    assert outcomes(played.task) == [Outcome.REFUSED] * sendings


def test_a_replay_that_finds_its_attempts_spent_fails_without_another_sending(opened: Opened) -> None:
    played = opened().play(BLIND_REPLAY, ONE, network=attempts(Delivery.REQUEST_LOST, up_to=9), budget=Budget(2))
    assert (played.task.state, played.task.error_category) == (State.FAILED, "transient")
    assert outcomes(played.task) == [Outcome.NOT_APPLIED] * 2
    assert played.verdict is Verdict.STOPPED_CLEAN


def test_a_replay_that_finds_its_time_spent_fails_without_another_sending(opened: Opened) -> None:
    played = opened().play(BLIND_REPLAY, ONE, ("intend refund",), budget=Budget(9, 30.0))
    assert (played.task.state, len(played.task.operations[0].attempts)) == (State.FAILED, 1)
    played = opened().play(BLIND_REPLAY, ONE, ("intend refund",), budget=Budget(9, 30.001))
    assert (played.task.state, len(played.task.operations[0].attempts)) == (State.SUCCEEDED, 2)


def test_a_budget_of_time_counts_from_the_intent_even_where_the_refusal_was_slow(opened: Opened) -> None:
    stage = opened()

    def slow(request: Request) -> Refusal:
        stage.clock.advance(6)
        return BUSY

    stage.gate = slow
    played = stage.play(ASK_PERSON, ONE, budget=Budget(5, 10.0), worker={"backoff": Backoff(base_seconds=5)})
    assert (played.task.state, outcomes(played.task)) == (State.FAILED, [Outcome.REFUSED])


def test_a_retry_after_beyond_the_budget_of_time_fails_at_once_instead_of_waiting(opened: Opened) -> None:
    stage = opened()
    stage.gate = refuse(replace(BUSY, retry_after_seconds=7200.0))
    played = stage.play(ASK_PERSON, ONE)
    assert (played.task.state, len(played.lives)) == (State.FAILED, 1)


def test_each_operation_has_a_budget_of_its_own(opened: Opened) -> None:
    stage = opened()
    stage.gate = refuse(BUSY, None, BUSY, None, BUSY, None)
    played = stage.play(ASK_PERSON, THREE, budget=Budget(2))
    assert played.verdict is Verdict.EXACTLY_ONCE


@pytest.mark.parametrize("category", ["permission", "invalid"])
def test_permission_and_invalid_fail_at_once_and_later_operations_are_never_sent(opened: Opened, category: str) -> None:
    stage = opened()
    stage.gate = refuse(None, Refusal("no", category, 403))
    played = stage.play(BY_CAPABILITY, THREE)
    assert (played.task.state, played.task.error_category) == (State.FAILED, category)
    assert played.effects == {REFUND: 1}
    assert [one.status for one in played.task.operations] == [Status.DONE, Status.PENDING, Status.PENDING]
    assert (played.verdict, len(played.lives)) == (Verdict.STOPPED_CLEAN, 1)


# Outcome unknown


def test_an_unknown_outcome_is_not_failed_and_not_retried_but_uncertain(opened: Opened) -> None:
    stage = opened()
    task = stage.enqueue()
    stage.network = scripted(Delivery.RESPONSE_LOST)
    crossed = stage.live(stage.worker(BLIND_REPLAY), task.id, "lose_track refund")
    task = stage.store.get(task.id)
    assert crossed == ("claim", "intend refund", "send refund", "lose_track refund")
    assert (task.state, task.error_category) == (State.UNCERTAIN, "unconfirmed")
    assert task.in_doubt is not None
    assert task.in_doubt.id == REFUND


@pytest.mark.parametrize("policy", ["query_then_ask", "ask_person", "by_capability"])
def test_without_evidence_nothing_is_sent_a_second_time(opened: Opened, policy: str) -> None:
    for delivery in (Delivery.REQUEST_LOST, Delivery.RESPONSE_LOST, Delivery.LATE):
        played = opened().play(POLICIES[policy], ONE, network=attempts(delivery))
        assert outcomes(played.task) == [None]
        assert played.task.state is State.AWAITING_CONFIRMATION


def test_a_refused_resend_does_not_settle_the_first_sending(opened: Opened) -> None:
    stage = opened(idempotency_keys=True)
    stage.gate = refuse(None, FORBIDDEN)
    played = stage.play(BY_CAPABILITY, ONE, network=scripted(Delivery.RESPONSE_LOST))
    assert played.task.state is State.AWAITING_CONFIRMATION
    assert played.task.in_doubt is not None
    assert played.effects == {REFUND: 1}


def test_a_refused_resend_is_on_record_when_a_person_is_asked_and_no_other_resend_can_follow(opened: Opened) -> None:
    stage = opened(idempotency_keys=True)
    stage.gate = refuse(None, BUSY)
    played = stage.play(BY_CAPABILITY, ONE, network=scripted(Delivery.RESPONSE_LOST), budget=Budget(2))
    assert outcomes(played.task) == [None, Outcome.REFUSED]
    (asked,) = [entry for entry in stage.store.history("task-1") if entry.event == "ask"]
    assert asked.detail["reason"] == "no resend can follow, and there is no status query"


def test_a_refused_resend_is_on_record_when_the_status_query_settles_the_doubt(opened: Opened) -> None:
    stage = opened(idempotency_keys=True, status_query=True)
    stage.gate = refuse(None, BUSY)
    played = stage.play(BY_CAPABILITY, ONE, network=scripted(Delivery.RESPONSE_LOST), budget=Budget(2))
    assert outcomes(played.task) == [None, Outcome.REFUSED]
    assert (played.verdict, played.task.operations[0].result_source) == (Verdict.EXACTLY_ONCE, "status query")


@pytest.mark.parametrize("refusal", [BUSY, Refusal("in flight", "transient", 409, 4.0)])
def test_a_resend_refused_for_now_is_repeated_after_a_wait_under_the_same_lease(
    opened: Opened, refusal: Refusal
) -> None:
    stage = opened(idempotency_keys=True)
    stage.gate = refuse(None, refusal, refusal)
    played = stage.play(BY_CAPABILITY, ONE, network=scripted(Delivery.RESPONSE_LOST))
    assert played.verdict is Verdict.EXACTLY_ONCE
    assert outcomes(played.task) == [None, Outcome.REFUSED, Outcome.REFUSED, None]
    assert played.task.operations[0].result_source == "key"
    sent = [attempt.sent_at for attempt in played.task.operations[0].attempts]
    waits = [later - earlier for earlier, later in itertools.pairwise(sent[1:])]
    assert waits == ([2.0, 4.0] if refusal is BUSY else [4.0, 4.0])


def test_a_resend_that_times_out_is_not_repeated_without_a_pause(opened: Opened) -> None:
    stage = opened(idempotency_keys=True)
    played = stage.play(BY_CAPABILITY, ONE, network=attempts(Delivery.REQUEST_LOST, up_to=3))
    assert [attempt.sent_at for attempt in played.task.operations[0].attempts] == [0.0, 0.0, 2.0, 6.0]
    assert outcomes(played.task) == [None] * 4  # an answer by the key settles the operation, not the lost sendings


def test_waiting_holds_the_lease_for_as_long_as_the_wait_and_longer(opened: Opened) -> None:
    stage = opened(idempotency_keys=True)
    stage.gate = refuse(None, replace(BUSY, retry_after_seconds=500.0))
    task = stage.enqueue()
    stage.network = scripted(Delivery.RESPONSE_LOST)
    leases: list[float | None] = []

    def boundary(point: Point) -> None:
        if point.action == "renew":
            leases.append(stage.store.get(task.id).lease_expires_at)

    stage.boundary = boundary
    assert stage.worker(BY_CAPABILITY).run(task.id) is State.SUCCEEDED
    assert leases == [530.0]


def test_a_wait_beyond_the_budget_of_time_is_not_waited_but_put_to_a_person(opened: Opened) -> None:
    stage = opened(idempotency_keys=True)
    stage.gate = refuse(None, replace(BUSY, retry_after_seconds=7200.0))
    task = stage.enqueue()
    stage.network = scripted(Delivery.RESPONSE_LOST)
    assert stage.worker(BY_CAPABILITY).run(task.id) is State.AWAITING_CONFIRMATION
    assert stage.clock.now() == 0.0


def test_a_holder_whose_lease_ran_out_during_a_slow_call_goes_on_while_nobody_has_taken_over(opened: Opened) -> None:
    stage = opened(idempotency_keys=True)
    task = stage.enqueue()
    stage.network = scripted(Delivery.RESPONSE_LOST)
    slow = refuse(None, BUSY)

    def gate(request: Request) -> Refusal | None:
        stage.clock.advance(31)
        return slow(request)

    stage.gate = gate
    assert stage.worker(BY_CAPABILITY).run(task.id) is State.SUCCEEDED
    assert stage.effects(task.id) == {REFUND: 1}


def test_a_person_who_says_not_applied_and_is_wrong_doubles_or_after_a_cancel_loses(opened: Opened) -> None:
    for cancel, verdict in ((False, Verdict.DUPLICATED), (True, Verdict.LOST)):
        stage = opened()
        task = stage.enqueue()
        stage.network = attempts(Delivery.RESPONSE_LOST)
        assert stage.worker(ASK_PERSON).run(task.id) is State.AWAITING_CONFIRMATION
        if cancel:
            stage.store.request_cancel(task.id, "Ada")
        stage.clock.advance(120)
        stage.store.answer(stage.store.get(task.id), Answer.NOT_APPLIED, "Ada")
        stage.worker(ASK_PERSON, "worker-2").run(task.id)
        assert judge(stage.store.get(task.id), stage.effects(task.id)) is verdict
        assert [entry.detail["who"] for entry in stage.store.history(task.id) if entry.event == "answer"] == ["Ada"]


# Cancelling


def test_a_cancel_before_the_start_ends_the_task_without_any_sending(opened: Opened) -> None:
    stage = opened()
    played = stage.play(BY_CAPABILITY, THREE, prepare=lambda task_id: stage.store.request_cancel(task_id, "Ada"))
    assert (played.task.state, played.effects, played.lives) == (State.CANCELLED, {}, (("cancel",),))


@pytest.mark.parametrize("crossing", range(1, 12))
def test_after_a_cancel_at_any_crossing_no_new_operation_begins_and_record_and_ledger_agree(
    opened: Opened, crossing: int
) -> None:
    stage = opened()
    task = stage.enqueue(THREE)
    crossed: list[str] = []

    def boundary(point: Point) -> None:
        if point.action == "request_cancel":
            return
        crossed.append(point.name)
        if len(crossed) == crossing:
            begun.update(intended())
            if stage.store.get(task.id).state is State.RUNNING:
                stage.store.request_cancel(task.id, "Ada")

    def intended() -> set[str]:
        return {one.id for one in stage.store.get(task.id).operations if one.attempts}

    begun: set[str] = set()
    stage.boundary = boundary
    state = stage.worker(BY_CAPABILITY).run(task.id)
    assert state is (State.SUCCEEDED if crossing == 11 else State.CANCELLED)
    assert intended() == begun
    verdict = judge(stage.store.get(task.id), stage.effects(task.id))
    assert verdict is (Verdict.EXACTLY_ONCE if crossing == 11 else Verdict.STOPPED_CLEAN)


def test_a_cancel_in_doubt_waits_for_the_doubt_and_then_ends_the_task_as_it_really_stands(opened: Opened) -> None:
    for delivery in (Delivery.RESPONSE_LOST, Delivery.REQUEST_LOST, Delivery.LATE):
        stage = opened(idempotency_keys=True)
        task = stage.enqueue(THREE)
        stage.network = attempts(delivery)
        stage.live(stage.worker(BY_CAPABILITY), task.id, "lose_track refund")
        stage.store.request_cancel(task.id, "Ada")
        played = stage.carry_to_rest(task.id, BY_CAPABILITY)
        assert (played.task.state, played.verdict) == (State.CANCELLED, Verdict.STOPPED_CLEAN)
        assert played.effects == {REFUND: 1}
        assert played.task.operations[0].status is Status.DONE


def test_a_cancel_while_a_person_is_asked_ends_the_task_with_the_answer(opened: Opened) -> None:
    stage = opened()
    task = stage.enqueue(THREE)
    stage.network = attempts(Delivery.RESPONSE_LOST)
    assert stage.worker(ASK_PERSON).run(task.id) is State.AWAITING_CONFIRMATION
    stage.store.request_cancel(task.id, "Ada")
    played = stage.carry_to_rest(task.id, ASK_PERSON, person=True)
    assert (played.task.state, played.verdict) == (State.CANCELLED, Verdict.STOPPED_CLEAN)


def test_a_cancel_while_an_approval_is_awaited_needs_no_answer(opened: Opened) -> None:
    stage = opened()
    task = stage.enqueue(WANTS_APPROVAL)
    assert stage.worker(ASK_PERSON).run(task.id) is State.AWAITING_CONFIRMATION
    stage.store.request_cancel(task.id, "Ada")
    assert stage.worker(ASK_PERSON, "worker-2").run(task.id) is State.CANCELLED
    assert stage.effects(task.id) == {}


def test_a_cancel_does_not_end_a_doubt(opened: Opened) -> None:
    stage = opened()
    task = stage.enqueue()
    stage.network = attempts(Delivery.RESPONSE_LOST)
    assert stage.worker(ASK_PERSON).run(task.id) is State.AWAITING_CONFIRMATION
    stage.store.request_cancel(task.id, "Ada")
    assert stage.worker(ASK_PERSON, "worker-2").run(task.id) is State.AWAITING_CONFIRMATION


def test_a_cancel_after_the_end_is_refused(opened: Opened) -> None:
    stage = opened()
    stage.play(ASK_PERSON)
    with pytest.raises(WrongState):
        stage.store.request_cancel("task-1", "Ada")


def test_a_cancel_that_comes_between_reading_and_claiming_is_carried_out_at_once(opened: Opened) -> None:
    stage = opened()
    task = stage.enqueue()
    worker_class = type(stage.worker(ASK_PERSON))

    class Slow(worker_class):  # type: ignore[misc, valid-type]
        def acquire(self, read: Task) -> object:
            if not read.cancel_requested:
                stage.store.request_cancel(read.id, "Ada")
            return super().acquire(read)

    assert Slow(stage.store, stage.remotes, ASK_PERSON).run(task.id) is State.CANCELLED
    assert stage.effects(task.id) == {}


def test_a_cancel_that_comes_between_reading_and_intending_is_in_time(opened: Opened) -> None:
    stage = opened()
    task = stage.enqueue()

    class Cancelling:
        """A store on which somebody cancels just after the holder of the lease has read the task."""

        def __getattr__(self, name: str) -> object:
            return getattr(stage.store, name)

        def get(self, task_id: str) -> Task:
            read = stage.store.get(task_id)
            if read.state is State.RUNNING and not read.cancel_requested:
                stage.store.request_cancel(task_id, "Ada")
            return read

    worker = replace(stage.worker(ASK_PERSON), store=Cancelling())  # type: ignore[arg-type]
    assert worker.run(task.id) is State.CANCELLED
    assert (outcomes(stage.store.get(task.id)), stage.effects(task.id)) == ([], {})


def test_two_workers_that_both_cancel_agree(opened: Opened) -> None:
    stage = opened()
    task = stage.enqueue()
    stage.store.request_cancel(task.id, "Ada")
    read = stage.store.get
    answers = [read(task.id)]
    stage.store.cancel(answers[0])

    class Stale:
        """A store whose first reading is old."""

        def __getattr__(self, name: str) -> object:
            return getattr(stage.store, name)

        def get(self, task_id: str) -> Task:
            return answers.pop() if answers else read(task_id)

    worker = replace(stage.worker(ASK_PERSON), store=Stale())  # type: ignore[arg-type]
    assert worker.run(task.id) is State.CANCELLED


# Compensating

UNDO = {"task-1/refund/undo": 1, "task-1/update_ticket/undo": 1}


def fail_at_the_mail(stage: Stage) -> Task:
    stage.gate = lambda request: FORBIDDEN if "send_email" in request.operation_id else None
    task = stage.enqueue(THREE)
    assert stage.worker(BY_CAPABILITY).run(task.id) is State.FAILED
    return stage.store.get(task.id)


def cancel_before_the_mail(stage: Stage) -> Task:
    task = stage.enqueue(THREE)
    stage.live(stage.worker(BY_CAPABILITY), task.id, "checkpoint update_ticket")
    stage.store.request_cancel(task.id, "Ada")
    stage.clock.advance(30)
    assert stage.worker(BY_CAPABILITY).run(task.id) is State.CANCELLED
    return stage.store.get(task.id)


@pytest.mark.parametrize("ending", [fail_at_the_mail, cancel_before_the_mail])
def test_what_was_done_is_made_up_for_last_done_first_each_under_a_key_of_its_own(
    opened: Opened, ending: Callable[[Stage], Task]
) -> None:
    stage = opened(idempotency_keys=True)
    task = ending(stage)
    keys: list[str | None] = []
    stage.gate = lambda request: keys.append(request.key)
    stage.store.compensate(task, "Ada")
    played = stage.carry_to_rest(task.id, BY_CAPABILITY)
    assert (played.task.state, played.verdict) == (State.COMPENSATED, Verdict.STOPPED_CLEAN)
    assert keys == ["task-1/update_ticket/undo", "task-1/refund/undo"]
    assert played.effects == {REFUND: 1, "task-1/update_ticket": 1} | UNDO
    assert [one.request for one in played.task.current] == [THREE[1].undo_request, THREE[0].undo_request]


def test_what_cannot_be_undone_goes_on_record_and_is_never_sent(opened: Opened) -> None:
    stage = opened(idempotency_keys=True)
    four = [*THREE, PlannedOperation("archive", "payments", {})]
    task = stage.enqueue(four)
    stage.gate = lambda request: FORBIDDEN if "archive" in request.operation_id else None
    assert stage.worker(BY_CAPABILITY).run(task.id) is State.FAILED
    stage.store.compensate(stage.store.get(task.id), "Ada")
    played = stage.carry_to_rest(task.id, BY_CAPABILITY)
    assert [(one.name, one.status) for one in played.task.current] == [
        ("undo send_email", Status.CANNOT_BE_UNDONE),
        ("undo update_ticket", Status.DONE),
        ("undo refund", Status.DONE),
    ]
    assert "task-1/send_email/undo" not in played.effects
    assert (played.task.state, played.verdict) == (State.COMPENSATED, Verdict.STOPPED_CLEAN)


def test_where_nothing_can_be_undone_there_is_nothing_to_compensate(opened: Opened) -> None:
    stage = opened()
    stage.gate = lambda request: FORBIDDEN
    played = stage.play(ASK_PERSON, THREE)
    with pytest.raises(ChangeRefused):
        stage.store.compensate(played.task, "Ada")


@pytest.mark.parametrize("delivery", [Delivery.DELIVERED, Delivery.LATE])
@pytest.mark.parametrize(
    "can", [{"idempotency_keys": True}, {"status_query": True}, {}, {"status_query": True, "fencing_tokens": True}]
)
def test_a_compensation_that_dies_anywhere_twice_goes_on_and_makes_up_for_each_once(
    opened: Opened, can: dict[str, bool], delivery: Delivery
) -> None:
    stage = opened(**can)

    def play(crashes: Sequence[int]) -> Played:
        stage.network = attempts(Delivery.DELIVERED)
        stage.boundary = lambda point: None
        task = fail_at_the_mail(stage)
        stage.store.compensate(task, "Ada")
        stage.network = attempts(delivery)
        return stage.carry_to_rest(task.id, BY_CAPABILITY, crashes, person=True)

    for played in every_crash(play, deaths=2 if delivery is Delivery.DELIVERED else 1):
        assert played.task.state is State.COMPENSATED, played
        assert played.verdict is Verdict.STOPPED_CLEAN
        done = {f"{played.task.id}/{name}": 1 for name in ("refund", "update_ticket")}
        assert played.effects == done | {f"{one}/undo": 1 for one in done}


def test_a_compensation_that_fails_can_be_taken_up_again_and_does_only_what_is_left(opened: Opened) -> None:
    stage = opened(idempotency_keys=True)
    task = fail_at_the_mail(stage)
    stage.gate = lambda request: FORBIDDEN if request.operation_id.endswith("refund/undo") else None
    stage.store.compensate(task, "Ada")
    failed = stage.carry_to_rest(task.id, BY_CAPABILITY)
    assert (failed.task.state, failed.task.direction) == (State.FAILED, Direction.UNDO)
    assert failed.verdict is Verdict.STOPPED_CLEAN
    stage.gate = refuse()
    stage.store.compensate(failed.task, "Ada")
    played = stage.carry_to_rest(task.id, BY_CAPABILITY)
    assert (played.task.state, played.verdict) == (State.COMPENSATED, Verdict.STOPPED_CLEAN)
    assert {one: count for one, count in played.effects.items() if one.endswith("undo")} == UNDO


def test_a_compensation_is_not_cancelled(opened: Opened) -> None:
    stage = opened()
    task = fail_at_the_mail(stage)
    stage.store.compensate(task, "Ada")
    with pytest.raises(ChangeRefused):
        stage.store.request_cancel(task.id, "Ada")
    assert stage.worker(BY_CAPABILITY).run(task.id) is State.COMPENSATED


# Leases that are lost: a worker sleeps until its lease has run out, another goes on, the first one wakes.


def sleep_at(
    stage: Stage, policy: Policy, crossing: int, person: bool = True
) -> tuple[BaseException | State, str, Played]:
    """Let worker A sleep at one crossing; B carries the task on; A wakes; then everybody else comes to rest.

    Returns:
        How A ended, the point at which it slept (empty where it was through before), and what became of the task.
    """
    task_id = stage.enqueue().id
    crossed: list[str] = []
    slept_at = ""

    def boundary(point: Point) -> None:
        nonlocal slept_at
        crossed.append(point.name)
        if len(crossed) == crossing:
            slept_at = f"{point.action} {stage.store.get(task_id).state}"
            stage.boundary = lambda point: None
            stage.clock.advance(30)
            stage.worker(policy, "worker-B").run(task_id)
            stage.boundary = boundary

    stage.boundary = boundary
    ended: BaseException | State
    try:
        ended = stage.worker(policy, "worker-A").run(task_id)
    except StaleToken as error:
        ended = error
    return ended, slept_at, stage.carry_to_rest(task_id, policy, person=person)


CAN: dict[str, dict[str, bool]] = {
    "neither": {},
    "key": {"idempotency_keys": True},
    "query": {"status_query": True},
    "both": {"idempotency_keys": True, "status_query": True},
    "fenced query": {"status_query": True, "fencing_tokens": True},
    "all": {"idempotency_keys": True, "status_query": True, "fencing_tokens": True},
}


@pytest.mark.parametrize("delivery", [Delivery.DELIVERED, Delivery.REQUEST_LOST, Delivery.RESPONSE_LOST, Delivery.LATE])
@pytest.mark.parametrize("can", CAN)
def test_wherever_a_worker_sleeps_its_later_changes_are_refused_and_there_is_one_effect(
    opened: Opened, can: str, delivery: Delivery
) -> None:
    stage, slept = opened(**CAN[can]), set()
    for crossing in range(1, 20):
        stage.network = attempts(delivery)
        ended, slept_at, played = sleep_at(stage, BY_CAPABILITY, crossing)
        slept.add(slept_at)
        held = slept_at.endswith((" running", " uncertain"))
        assert isinstance(ended, StaleToken) if held else isinstance(ended, State), (slept_at, ended)
        assert (played.task.state, played.verdict) == (State.SUCCEEDED, Verdict.EXACTLY_ONCE), (slept_at, played)
        if not slept_at:
            break
    assert {"claim running", "intend running", "send running"} <= slept
    assert "" in slept


@pytest.mark.parametrize(
    ("policy", "can", "verdict"),
    [
        (BLIND_REPLAY, {}, Verdict.DUPLICATED),
        (QUERY_FIRST, {"status_query": True}, Verdict.DUPLICATED),
        (QUERY_FIRST, {"status_query": True, "fencing_tokens": True}, Verdict.EXACTLY_ONCE),
        (SAME_KEY, {"idempotency_keys": True}, Verdict.EXACTLY_ONCE),
        (ASK_PERSON, {}, Verdict.NEEDS_A_PERSON),
    ],
)
def test_a_token_guards_our_rows_but_not_the_remote_from_a_worker_that_sleeps_before_it_sends(
    opened: Opened, policy: Policy, can: dict[str, bool], verdict: Verdict
) -> None:
    stage = opened(**can)
    ended, slept_at, played = sleep_at(stage, policy, 2, person=False)
    assert slept_at == "intend running"
    assert isinstance(ended, StaleToken)
    assert played.verdict is verdict


def test_a_key_that_is_forgotten_while_its_sender_sleeps_longer_than_assumed_doubles(opened: Opened) -> None:
    """The longest pause is an assumption of the lab; here is the schedule that breaks the rule without it."""
    for sleep, verdict in ((60.0, Verdict.EXACTLY_ONCE), (400.0, Verdict.DUPLICATED)):
        stage = opened(idempotency_keys=True, key_ttl_seconds=300.0)
        task_id = stage.enqueue().id

        def boundary(point: Point, stage: Stage = stage, task_id: str = task_id, sleep: float = sleep) -> None:
            if point.action == "intend":
                stage.boundary = lambda point: None
                stage.clock.advance(30)
                assert stage.worker(BY_CAPABILITY, "worker-B").run(task_id) is State.SUCCEEDED
                stage.clock.advance(sleep - 30)

        stage.boundary = boundary
        with pytest.raises(StaleToken):
            stage.worker(BY_CAPABILITY, "worker-A").run(task_id)
        assert judge(stage.store.get(task_id), stage.effects(task_id)) is verdict


def test_the_sleepers_remote_call_is_refused_by_a_remote_that_has_seen_a_larger_token(opened: Opened) -> None:
    stage = opened(status_query=True, fencing_tokens=True)
    sleep_at(stage, BY_CAPABILITY, 2)
    told = [answer for _, _, answer in stage.services["payments"].requests()]
    assert told == ["applied: payments-1", "refused: a newer fencing token has been seen"]


def test_a_token_is_handed_only_to_a_remote_that_honours_tokens(opened: Opened) -> None:
    for fencing in (True, False):
        stage = opened(fencing_tokens=fencing)
        tokens: list[int | None] = []

        def gate(request: Request, tokens: list[int | None] = tokens) -> None:
            tokens.append(request.token)

        stage.gate = gate
        stage.play(ASK_PERSON)
        assert tokens == [1 if fencing else None]


# Approval

WANTS_APPROVAL = [replace(ONE[0], needs_approval=True), THREE[1]]


def test_a_step_that_wants_approval_is_not_begun_before_a_person_has_approved(opened: Opened) -> None:
    stage = opened()
    task = stage.enqueue(WANTS_APPROVAL)
    assert stage.worker(ASK_PERSON, answer_within_seconds=100.0).run(task.id) is State.AWAITING_CONFIRMATION
    task = stage.store.get(task.id)
    assert (task.awaiting_for, task.awaiting_until, stage.effects(task.id)) == ("approval", 100.0, {})
    assert task.operations[0].attempts == ()
    stage.store.answer(task, Answer.APPROVED, "Ada")
    assert stage.worker(ASK_PERSON, "worker-2").run(task.id) is State.SUCCEEDED
    assert stage.effects(task.id) == {REFUND: 1, "task-1/update_ticket": 1}
    assert stage.store.get(task.id).operations[0].approved_by == "Ada"


def test_an_approval_is_asked_for_once_and_not_again_after_a_doubt(opened: Opened) -> None:
    stage = opened(idempotency_keys=True)
    task = stage.enqueue(WANTS_APPROVAL)
    stage.worker(BY_CAPABILITY).run(task.id)
    stage.store.answer(stage.store.get(task.id), Answer.APPROVED, "Ada")
    played = stage.carry_to_rest(task.id, BY_CAPABILITY, ("intend refund",))
    assert (played.verdict, played.asked) == (Verdict.EXACTLY_ONCE, 0)


def test_a_declined_approval_cancels_without_any_effect(opened: Opened) -> None:
    stage = opened()
    task = stage.enqueue(WANTS_APPROVAL)
    stage.worker(ASK_PERSON).run(task.id)
    assert stage.store.answer(stage.store.get(task.id), Answer.DECLINED, "Ada") is State.CANCELLED
    assert stage.worker(ASK_PERSON, "worker-2").run(task.id) is State.CANCELLED
    assert stage.effects(task.id) == {}


def test_an_approval_that_comes_too_late_has_failed_the_task(opened: Opened) -> None:
    stage = opened()
    task = stage.enqueue(WANTS_APPROVAL)
    stage.worker(ASK_PERSON, answer_within_seconds=10.0).run(task.id)
    stage.clock.advance(9.999)
    with pytest.raises(ChangeRefused):
        stage.store.expire(stage.store.get(task.id))
    stage.clock.advance(0.001)
    assert stage.store.expire(stage.store.get(task.id)) is State.FAILED
    assert stage.worker(ASK_PERSON, "worker-2").run(task.id) is State.FAILED
    assert judge(stage.store.get(task.id), stage.effects(task.id)) is Verdict.STOPPED_CLEAN


# The transcript beside the work


@pytest.mark.parametrize("talks", [True, False])
def test_a_worker_that_talks_writes_each_call_and_result_and_a_silent_one_nothing(opened: Opened, talks: bool) -> None:
    stage = opened()
    played = stage.play(ASK_PERSON, ONE, worker={"talks": talks})
    said = [message.content for message in stage.store.transcript(played.task.id)]
    call = {"tool_call": "refund", "call_id": "call-1", "input": ONE[0].request}
    assert said == ([call, {"call_id": "call-1", "result": "payments-1"}] if talks else [])


@pytest.mark.parametrize("talks", [True, False])
def test_going_by_the_transcript_makes_a_new_key_after_a_crash_and_doubles_where_keys_are_honoured(
    opened: Opened, talks: bool
) -> None:
    stage, keys = opened(idempotency_keys=True), list[str | None]()
    stage.gate = lambda request: keys.append(request.key)
    policy = POLICIES["replay_transcript"]
    played = stage.play(policy, ONE, ("send refund",), worker={"talks": talks})
    assert keys == [f"{REFUND}/call-1", f"{REFUND}/call-2"]
    assert played.verdict is Verdict.DUPLICATED


def test_a_crash_is_not_survived_by_the_worker(opened: Opened) -> None:
    stage = opened()
    task = stage.enqueue()

    def die(point: Point) -> None:
        raise SimulatedCrash(point.name)

    stage.boundary = die
    with pytest.raises(SimulatedCrash, match="claim"):
        stage.worker(ASK_PERSON).run(task.id)


def test_a_worker_carries_on_by_the_rows_of_another_process_with_objects_of_its_own(opened: Opened) -> None:
    stage = opened(idempotency_keys=True)
    task = stage.enqueue(THREE)
    stage.live(stage.worker(BY_CAPABILITY), task.id, "send update_ticket")
    stage.close()
    again = Stage(stage.folder, stage.can, clock=stage.clock)
    played = again.carry_to_rest(task.id, BY_CAPABILITY)
    again.close()
    assert played.verdict is Verdict.EXACTLY_ONCE
    assert isinstance(again.remotes["payments"], Remote)


def test_the_network_sees_only_what_the_worker_put_on_record_before(opened: Opened) -> None:
    stage = opened()
    task = stage.enqueue()

    def network(call: Call) -> Delivery:
        recorded = stage.store.get(task.id).operations[0].attempts
        assert [attempt.request_id for attempt in recorded] == [call.request_id]
        return Delivery.DELIVERED

    stage.network = network
    assert stage.worker(ASK_PERSON).run(task.id) is State.SUCCEEDED
