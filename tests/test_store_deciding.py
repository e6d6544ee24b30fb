"""Evidence, answers, cancelling and compensating: what ends a doubt or a task's plan."""

from collections.abc import Callable

import pytest
from stage import FIRST, FOREVER, ID, PLAN, SECOND, Stage, company, lease_of

from labkit.deciding import Answer
from labkit.errors import ConditionUnmet, InvalidInput, StaleVersion, WrongState
from labkit.records import Announcement, Lease, Outcome, PlannedOperation, Status, Task
from labkit.retries import Category
from labkit.states import Condition, Direction, Event, State

UNDO = f"{FIRST}/undo"


def refusal_of(call: Callable[[], object], condition: Condition) -> ConditionUnmet:
    with pytest.raises(ConditionUnmet) as refused:
        call()
    assert refused.value.condition is condition
    return refused.value


# Evidence


def test_evidence_is_recorded_with_its_source_and_the_remotes_reference(stage: Stage) -> None:
    lease = stage.uncertain()
    state = stage.store.settle(lease, FIRST, True, "status query", "payments-1", Announcement("refunded", {}))
    assert state is State.QUEUED
    done = stage.task.operations[0]
    assert (done.status, done.result_ref, done.result_source) == (Status.DONE, "payments-1", "status query")
    assert stage.store.history(ID)[-1].detail == {
        "operation": FIRST,
        "applied": True,
        "source": "status query",
        "reference": "payments-1",
    }
    assert [message.topic for message in stage.store.undelivered()] == ["refunded"]


def test_evidence_of_not_applied_closes_every_open_attempt_and_lets_it_be_sent_anew(stage: Stage) -> None:
    lease, _ = stage.store.intend(stage.uncertain(), FIRST, key_memory_seconds=1e6)
    assert stage.store.settle(lease, FIRST, False, "fenced status query") is State.QUEUED
    refund = stage.task.operations[0]
    assert [one.outcome for one in refund.attempts] == [Outcome.NOT_APPLIED, Outcome.NOT_APPLIED]
    assert refund.standing == "pending"
    assert stage.store.intend(stage.store.claim(stage.task, "worker-1"), FIRST)[1].number == 3


@pytest.mark.parametrize("by_a_person", [False, True])
def test_not_applied_says_nothing_new_of_an_attempt_whose_outcome_is_known(by_a_person: bool, stage: Stage) -> None:
    company(stage.store)
    others = [task for task in stage.store.tasks() if task.id != ID]
    lease, _ = stage.store.intend(stage.uncertain(), FIRST, key_memory_seconds=FOREVER)
    lease, _ = stage.store.intend(lease, FIRST, key_memory_seconds=FOREVER, last_outcome=Outcome.REFUSED)
    if by_a_person:
        stage.store.ask(lease, "the outcome is unknown", 60)
        stage.clock.advance(120)
        stage.store.answer(stage.task, Answer.NOT_APPLIED, "Ada")
    else:
        stage.store.settle(lease, FIRST, False, "fenced status query")
    outcomes = [one.outcome for one in stage.task.operations[0].attempts]
    assert outcomes == [Outcome.NOT_APPLIED, Outcome.REFUSED, Outcome.NOT_APPLIED]
    assert [task for task in stage.store.tasks() if task.id != ID] == others


@pytest.mark.parametrize("reference", ["", None])
def test_evidence_of_applied_comes_with_the_remotes_reference(reference: str | None, stage: Stage) -> None:
    lease = stage.uncertain()
    refusal_of(lambda: stage.store.settle(lease, FIRST, True, "status query", reference), Condition.EVIDENCE)


@pytest.mark.parametrize("applied", [1, 0, 2, None, "yes", ""], ids=repr)
def test_evidence_says_yes_or_no(applied: object, stage: Stage) -> None:
    lease = stage.uncertain()
    with pytest.raises(InvalidInput, match="applied: True or False"):
        stage.store.settle(lease, FIRST, applied, "status query", "payments-1")  # type: ignore[arg-type]


def test_the_remotes_record_found_late_ends_the_doubt_and_leaves_the_question_with_the_person(stage: Stage) -> None:
    task = stage.settled_late()
    assert (task.state, task.awaiting_for, task.in_doubt, task.step) == (State.AWAITING_CONFIRMATION, "doubt", None, 1)
    for answer in (Answer.APPLIED, Answer.NOT_APPLIED):
        found = refusal_of(lambda: stage.store.answer(task, answer, "Ada"), Condition.ANSWER_FITS).found  # noqa: B023
        assert found == f"{answer} with nothing in doubt"
    assert stage.store.answer(task, Answer.APPROVED, "Ada") is State.QUEUED
    assert stage.task.step == 1


def test_saying_go_on_after_a_late_settlement_approves_no_operation(stage: Stage) -> None:
    plan = (PLAN[0], PlannedOperation("send_email", "mail", {}, needs_approval=True))
    lease, _ = stage.store.intend(stage.running(plan), FIRST)
    stage.store.ask(stage.store.lose_track(lease, FIRST), "the outcome is unknown", 60)
    stage.store.settle(stage.task, FIRST, True, "status query", "payments-1")
    stage.store.answer(stage.task, Answer.APPROVED, "Ada")
    assert [one.approved_by for one in stage.task.operations] == [None, None]


# A person's answer


@pytest.mark.parametrize("read", ["get", "tasks", "overdue"])
@pytest.mark.parametrize("answer", [Answer.APPLIED, Answer.NOT_APPLIED])
def test_an_answer_settles_the_doubt_however_the_task_was_read(read: str, answer: Answer, stage: Stage) -> None:
    stage.awaiting_doubt()
    stage.clock.advance(120)
    tasks = {
        "get": lambda: stage.store.get(ID),
        "tasks": lambda: stage.store.tasks(State.AWAITING_CONFIRMATION)[0],
        "overdue": lambda: stage.store.overdue()[0],
    }
    assert stage.store.answer(tasks[read](), answer, "Ada") is State.QUEUED
    refund = stage.task.operations[0]
    if answer is Answer.APPLIED:
        assert (refund.status, refund.result_ref, refund.result_source) == (Status.DONE, "said by Ada", "person: Ada")
    else:
        assert [one.outcome for one in refund.attempts] == [Outcome.NOT_APPLIED]
    assert stage.task.in_doubt is None
    assert stage.task.step == (answer is Answer.APPLIED)


def test_who_answered_and_when_is_on_record(stage: Stage) -> None:
    stage.awaiting_doubt()
    stage.clock.advance(5)
    stage.store.answer(stage.task, Answer.APPLIED, "Ada", "payments-1")
    line = stage.store.history(ID)[-1]
    assert (line.at, line.event, line.worker) == (1005.0, Event.ANSWER, None)
    assert line.detail == {"operation": FIRST, "answer": "applied", "who": "Ada"}
    assert stage.task.operations[0].result_ref == "payments-1"


@pytest.mark.parametrize(("seconds", "settled"), [(119.999, False), (120, True)])
def test_not_applied_is_accepted_only_once_nothing_can_be_under_way(
    seconds: float, settled: bool, stage: Stage
) -> None:
    stage.awaiting_doubt()  # sent at 1000; longest delivery and longest pause are 60 seconds each
    stage.clock.advance(seconds)
    if settled:
        assert stage.store.answer(stage.task, Answer.NOT_APPLIED, "Ada") is State.QUEUED
    else:
        refusal_of(lambda: stage.store.answer(stage.task, Answer.NOT_APPLIED, "Ada"), Condition.NOT_UNDER_WAY)
        assert stage.store.answer(stage.task, Answer.APPLIED, "Ada") is State.QUEUED


def test_what_can_be_under_way_counts_from_the_last_sending(stage: Stage) -> None:
    lease = stage.uncertain()
    stage.clock.advance(100)
    lease, _ = stage.store.intend(lease, FIRST, key_memory_seconds=1e6)
    stage.store.ask(lease, "the outcome is unknown", 60)
    stage.clock.advance(20)
    error = refusal_of(lambda: stage.store.answer(stage.task, Answer.NOT_APPLIED, "Ada"), Condition.NOT_UNDER_WAY)
    assert error.found == "under way until 1220.0, now 1120.0"


def test_of_two_persons_the_second_is_refused(stage: Stage) -> None:
    task = stage.awaiting_doubt()
    stage.store.answer(task, Answer.APPLIED, "Ada")
    with pytest.raises(StaleVersion) as refused:
        stage.store.answer(task, Answer.NOT_APPLIED, "Bob")
    assert refused.value.found == f"version {task.version + 1} (queued)"


@pytest.mark.parametrize("answer", list(Answer))
def test_after_a_request_to_cancel_every_fitting_answer_ends_the_task(answer: Answer, stage: Stage) -> None:
    doubtful = answer in (Answer.APPLIED, Answer.NOT_APPLIED)
    _ = stage.awaiting_doubt() if doubtful else stage.awaiting_approval()
    stage.store.request_cancel(ID, "Ada")
    stage.clock.advance(120)
    assert stage.store.answer(stage.task, answer, "Ada") is State.CANCELLED
    assert stage.task.in_doubt is None


@pytest.mark.parametrize("who", ["", "\n", None, 7, "x" * 201])
def test_nobody_is_not_a_person(who: object, stage: Stage) -> None:
    task = stage.awaiting_doubt()
    for call in (
        lambda: stage.store.answer(task, Answer.APPLIED, who),  # type: ignore[arg-type]
        lambda: stage.store.request_cancel(ID, who),  # type: ignore[arg-type]
        lambda: stage.store.compensate(task, who),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidInput, match="who: 1 to 200 printable characters"):
            call()


def test_an_answer_that_does_not_exist_is_no_input(stage: Stage) -> None:
    task = stage.awaiting_doubt()
    with pytest.raises(InvalidInput, match="one of applied, not_applied, approved, declined"):
        stage.store.answer(task, "maybe", "Ada")  # type: ignore[arg-type]


# Deadlines


def test_an_approval_expires_at_its_deadline_and_a_doubt_never(stage: Stage) -> None:
    stage.awaiting_approval()
    assert stage.store.overdue() == []
    stage.clock.advance(60)
    assert [task.id for task in stage.store.overdue()] == [ID]
    assert stage.store.expire(stage.task, Announcement("expired", {})) is State.FAILED
    assert stage.task.error_category == Category.PERMISSION
    assert stage.store.overdue() == []


@pytest.mark.parametrize("settled", [False, True])
def test_an_overdue_doubt_stays_marked_and_is_never_failed(settled: bool, stage: Stage) -> None:
    _ = stage.settled_late() if settled else stage.awaiting_doubt()
    stage.clock.advance(1e6)
    assert [task.id for task in stage.store.overdue()] == [ID]
    error = refusal_of(lambda: stage.store.expire(stage.task), Condition.APPROVAL_OVERDUE)
    assert error.found == "awaiting doubt until 1060.0, now 1001000.0"


def test_overdue_questions_come_longest_overdue_first(stage: Stage) -> None:
    for name, seconds in (("a", 50), ("b", 40), ("c", 500)):
        plan = (PlannedOperation("refund", "payments", {}, needs_approval=True),)
        stage.store.ask(stage.store.claim(stage.store.enqueue(name, plan), "worker-1"), "approval", seconds)
    stage.clock.advance(100)
    assert [task.id for task in stage.store.overdue()] == ["b", "a"]


# Cancelling


def test_a_request_to_cancel_is_repeated_without_harm(stage: Stage) -> None:
    lease = stage.running()
    for _ in range(2):
        stage.store.request_cancel(ID, "Ada")
    assert stage.task.cancel_requested is True
    assert stage.task.version == lease.version
    assert [line.detail for line in stage.store.history(ID)[-2:]] == [{"who": "Ada"}] * 2


def test_after_a_request_to_cancel_nothing_new_begins_and_what_was_sent_is_still_settled(stage: Stage) -> None:
    lease = stage.uncertain()
    stage.store.request_cancel(ID, "Ada")
    lease, attempt = stage.store.intend(lease, FIRST, key_memory_seconds=1e6)
    assert attempt.number == 2
    assert stage.store.settle(lease, FIRST, True, "key", "payments-1") is State.CANCELLED
    assert stage.task.step == 1


def test_cancelling_reverses_nothing(stage: Stage) -> None:
    task = stage.cancelled()
    assert [one.standing for one in task.operations] == ["done", "pending"]
    assert task.operations[0].result_ref == "payments-1"
    assert task.direction is Direction.DO


def test_a_cancelled_task_can_only_be_compensated(stage: Stage) -> None:
    task = stage.cancelled()
    for call in (lambda: stage.store.claim(task, "w"), lambda: stage.store.request_cancel(ID, "Ada")):
        with pytest.raises(WrongState):
            call()
    assert stage.store.compensate(task, "Ada") is State.QUEUED


def test_a_request_to_cancel_comes_too_late_for_what_has_ended(stage: Stage) -> None:
    stage.succeeded()
    with pytest.raises(WrongState) as refused:
        stage.store.request_cancel(ID, "Ada")
    assert refused.value.expected == "queued or running or uncertain or awaiting_confirmation"


# Compensating

THREE = (
    PlannedOperation("refund", "payments", {"do": 1}, undo_request={"undo": 1}),
    PlannedOperation("send_email", "mail", {"do": 2}),
    PlannedOperation("update_ticket", "tickets", {"do": 3}, undo_request={"undo": 3}),
)


def carry_out(stage: Stage, *operations: str) -> Lease:
    lease = lease_of(stage.task)
    for operation in operations:
        lease, attempt = stage.store.intend(lease, operation)
        lease = stage.store.checkpoint(lease, operation, f"ref-{operation}-{attempt.number}")
    return lease


def three_done_and_failed(stage: Stage) -> Task:
    """All three are done, and the task failed before it could say so."""
    stage.running(THREE)
    lease = carry_out(stage, FIRST, SECOND, f"{ID}/update_ticket")
    stage.store.fail(lease, Category.INVALID)
    return stage.task


def test_undoing_goes_from_the_last_done_to_the_first_with_ids_and_requests_of_its_own(stage: Stage) -> None:
    stage.store.compensate(three_done_and_failed(stage), "Ada")
    task = stage.task
    assert (task.direction, task.step, task.error_category) == (Direction.UNDO, 1, None)
    assert [(one.id, one.remote, one.request, one.status) for one in task.current] == [
        (f"{ID}/update_ticket/undo", "tickets", {"undo": 3}, Status.PENDING),
        (f"{ID}/send_email/undo", "mail", {}, Status.CANNOT_BE_UNDONE),
        (UNDO, "payments", {"undo": 1}, Status.PENDING),
    ]
    assert [one.position for one in task.current] == [0, 1, 2]
    assert task.next_operation is task.current[0]
    assert stage.store.history(ID)[-1].detail == {"who": "Ada"}


def test_what_was_not_done_is_not_undone(stage: Stage) -> None:
    stage.store.compensate(stage.failed(), "Ada")
    assert [one.id for one in stage.task.current] == [UNDO]


def test_a_compensation_that_is_carried_out_ends_compensated_and_what_cannot_be_undone_is_on_record(
    stage: Stage,
) -> None:
    stage.store.compensate(three_done_and_failed(stage), "Ada")
    stage.store.claim(stage.task, "worker-1")
    lease = carry_out(stage, f"{ID}/update_ticket/undo", UNDO)
    assert stage.store.compensated(lease, Announcement("compensated", {})) is State.COMPENSATED
    assert stage.task.step == 3
    assert [one.standing for one in stage.task.current] == ["done", "cannot be undone", "done"]
    assert [one.standing for one in stage.task.operations[:3]] == ["done", "done", "done"]


def test_after_a_failed_compensation_another_goes_on_with_what_is_left(stage: Stage) -> None:
    stage.store.compensate(three_done_and_failed(stage), "Ada")
    stage.store.claim(stage.task, "worker-1")
    lease = carry_out(stage, f"{ID}/update_ticket/undo")
    lease, _ = stage.store.intend(lease, UNDO)
    stage.store.fail(lease, Category.PERMISSION, UNDO, Outcome.REFUSED)
    before = stage.task
    assert stage.store.compensate(before, "Bob") is State.QUEUED
    after = stage.task
    assert (after.step, after.attempts, after.current) == (2, 0, before.current)
    lease, attempt = stage.store.intend(stage.store.claim(after, "worker-2"), UNDO)
    assert attempt.number == 2
    assert stage.store.compensated(stage.store.checkpoint(lease, UNDO, "payments-2")) is State.COMPENSATED


def test_a_compensation_that_failed_after_its_last_undo_has_nothing_left_to_undo(stage: Stage) -> None:
    stage.store.fail(stage.all_undone(), Category.INVALID)
    refusal_of(lambda: stage.store.compensate(stage.task, "Ada"), Condition.SOMETHING_TO_UNDO)


def test_nothing_done_or_nothing_reversible_leaves_nothing_to_compensate(stage: Stage) -> None:
    stage.store.fail(stage.running((PLAN[1],)), Category.INVALID)
    refusal_of(lambda: stage.store.compensate(stage.task, "Ada"), Condition.SOMETHING_TO_UNDO)
    lease = stage.store.claim(stage.store.enqueue("task-2", (PLAN[1],)), "worker-1")
    lease, _ = stage.store.intend(lease, "task-2/send_email")
    stage.store.fail(stage.store.checkpoint(lease, "task-2/send_email", "mail-1"), Category.INVALID)
    before = stage.rows()
    refusal_of(lambda: stage.store.compensate(stage.store.get("task-2"), "Ada"), Condition.SOMETHING_TO_UNDO)
    assert stage.rows() == before


def test_compensating_after_a_cancel_clears_the_request_so_that_undoing_can_run(stage: Stage) -> None:
    stage.store.compensate(stage.cancelled(), "Ada")
    assert stage.task.cancel_requested is False
    lease = stage.store.claim(stage.task, "worker-1")
    assert stage.store.intend(lease, UNDO)[1].number == 1


def test_undoing_cannot_be_cancelled(stage: Stage) -> None:
    lease = stage.undoing()
    refusal_of(lambda: stage.store.request_cancel(ID, "Ada"), Condition.DOING)
    refusal_of(lambda: stage.store.cancel(lease), Condition.CANCEL_REQUESTED)


def test_an_undo_in_doubt_is_settled_like_any_other_operation(stage: Stage) -> None:
    lease, _ = stage.store.intend(stage.undoing(), UNDO)
    lease = stage.store.lose_track(lease, UNDO)
    assert stage.store.settle(lease, UNDO, True, "status query", "payments-2") is State.QUEUED
    assert stage.store.compensated(stage.store.claim(stage.task, "worker-1")) is State.COMPENSATED


def test_declining_ends_a_task_whose_cancelling_nobody_requested(stage: Stage) -> None:
    assert stage.store.answer(stage.awaiting_approval(), Answer.DECLINED, "Ada") is State.CANCELLED


def test_approving_one_operation_approves_no_other(stage: Stage) -> None:
    company(stage.store)
    stage.store.answer(stage.awaiting_approval(), Answer.APPROVED, "Ada")
    assert stage.sql("SELECT operation_id FROM operations WHERE approved_by IS NOT NULL") == [(FIRST,)]


def test_declining_does_not_end_an_undo(stage: Stage) -> None:
    task = stage.settled_late(undo=True)
    refusal_of(lambda: stage.store.answer(task, Answer.DECLINED, "Ada"), Condition.NOT_DECLINED)
    assert stage.store.answer(task, Answer.APPROVED, "Ada") is State.QUEUED


def test_no_other_task_can_bear_the_id_of_an_undo(stage: Stage) -> None:
    """Were a task called `task-1/refund`, its operation `undo` would be taken for the undo of `task-1`'s refund."""
    for name in (FIRST, "/", "a/"):
        with pytest.raises(InvalidInput, match="task id: no '/' in it"):
            stage.store.enqueue(name, (PlannedOperation("undo", "payments", {}),))
    with pytest.raises(InvalidInput, match="operation name: no '/' in it"):
        stage.queued((PlannedOperation("refund/undo", "payments", {}),))
    stage.queued((PlannedOperation("undo", "payments", {}),))
    assert stage.task.operations[0].id == f"{ID}/undo"
