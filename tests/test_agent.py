"""The support-desk agent: its plan, its transcript, and the context that is rebuilt from task state."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from plays import THREE, Played, Stage, attempts, every_crash

from labkit.agent import REMOTES, context_from, open_conversation, plan, tool_call, tool_result
from labkit.deciding import Answer
from labkit.exchange import Refusal
from labkit.policies import ASK_PERSON, BY_CAPABILITY, POLICIES
from labkit.records import Message, Task
from labkit.remote import Capabilities
from labkit.runs import Verdict
from labkit.seams import Delivery, ManualClock
from labkit.states import State
from labkit.store import TaskStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TaskStore]:
    with TaskStore(tmp_path / "tasks.sqlite", ManualClock(), synchronous="OFF") as opened:
        opened.enqueue("task-1", plan())
        yield opened


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    folder = tmp_path / "stage"
    folder.mkdir()
    opened = Stage(folder, Capabilities(idempotency_keys=True))
    yield opened
    opened.close()


def facts(task: Task) -> list[str]:
    """The lines of the context, without the first one that says what the task is."""
    return [message.content["text"] for message in context_from(task)[1:]]


# The plan


def test_the_plan_is_refund_ticket_and_mail_at_three_remotes_of_three_kinds() -> None:
    assert [(one.name, one.remote, one.undo_request is not None) for one in plan()] == [
        ("refund", "payments", True),
        ("update_ticket", "tickets", True),
        ("send_email", "mail", False),
    ]
    kinds = {name: (can.idempotency_keys, can.status_query) for name, can in REMOTES.items()}
    assert kinds == {"payments": (True, True), "tickets": (False, True), "mail": (False, False)}


def test_order_and_amount_are_in_every_request_that_names_them() -> None:
    refund, ticket, mail = plan(order=7, amount=12)
    assert refund.request == {"order": 7, "amount": 12, "do": "refund"}
    assert refund.undo_request == {"order": 7, "amount": 12, "do": "charge"}
    assert (ticket.request["order"], mail.request["order"]) == (7, 7)
    assert "12" in mail.request["text"]


def test_planning_twice_gives_the_same_plan_so_that_queueing_twice_is_harmless(store: TaskStore) -> None:
    assert plan() == plan()
    assert store.enqueue("task-1", plan()).id == "task-1"


# The transcript


def transcript(store: TaskStore) -> list[Message]:
    return store.transcript("task-1")


def test_the_model_says_the_same_for_the_same_seed_and_something_else_for_some_other(
    store: TaskStore,
) -> None:
    said = []
    for seed in (3, 3, *range(20)):
        open_conversation(store, "task-1", seed=seed)
        said.append(transcript(store)[-1].content["text"])
    assert said[0] == said[1] == said[2 + 3]
    assert len(set(said)) > 1


def test_a_conversation_opens_with_what_the_user_asks_for(store: TaskStore) -> None:
    open_conversation(store, "task-1", order=7)
    assert [(message.number, message.role) for message in transcript(store)] == [(1, "user"), (2, "assistant")]
    assert transcript(store)[0].content == {"text": "Refund order 7 and tell the customer."}


def test_tool_calls_are_numbered_on_from_the_transcript_so_that_reading_on_makes_a_new_id(store: TaskStore) -> None:
    refund, ticket, _ = store.get("task-1").operations
    open_conversation(store, "task-1")
    assert tool_call(store, "task-1", refund) == "call-1"
    tool_result(store, "task-1", "call-1", "payments-1")
    assert [tool_call(store, "task-1", one) for one in (ticket, ticket, refund)] == ["call-2", "call-3", "call-4"]
    calls = [message.content for message in transcript(store) if "tool_call" in message.content]
    assert [(call["tool_call"], call["call_id"]) for call in calls] == [
        ("refund", "call-1"),
        ("update_ticket", "call-2"),
        ("update_ticket", "call-3"),
        ("refund", "call-4"),
    ]
    assert calls[0]["input"] == refund.request


def test_each_task_counts_its_own_calls(store: TaskStore) -> None:
    store.enqueue("task-2", plan())
    assert tool_call(store, "task-1", store.get("task-1").operations[0]) == "call-1"
    assert tool_call(store, "task-2", store.get("task-2").operations[0]) == "call-1"


def test_replaying_the_transcript_doubles_at_a_remote_that_honours_keys_and_the_operation_id_does_not(
    stage: Stage,
) -> None:
    verdicts = {
        name: stage.play(POLICIES[name], THREE, ("send refund",), worker={"talks": True}).verdict
        for name in ("replay_transcript", "same_key")
    }
    assert verdicts == {"replay_transcript": Verdict.DUPLICATED, "same_key": Verdict.EXACTLY_ONCE}


# The context


def test_a_new_tasks_context_names_it_and_what_comes_first(store: TaskStore) -> None:
    assert context_from(store.get("task-1")) == [
        Message(1, "system", {"text": "Carry out: refund, task-1. Go by these facts."}),
        Message(2, "user", {"text": "Next: refund."}),
    ]


def test_a_context_says_what_is_done_with_its_reference_and_what_comes_next(stage: Stage) -> None:
    task_id = stage.enqueue(THREE).id
    stage.live(stage.worker(ASK_PERSON), task_id, "checkpoint update_ticket")
    assert facts(stage.store.get(task_id)) == [
        "refund is done, reference payments-1.",
        "update_ticket is done, reference tickets-1.",
        "Next: send_email.",
    ]


def test_the_context_after_any_crash_is_that_of_a_run_without_one(stage: Stage) -> None:
    """Replaying from state: whatever a crash left behind, the model reads the same facts once they are settled."""

    def play(crashes: Sequence[int]) -> Played:
        return stage.play(BY_CAPABILITY, THREE, crashes, attempts(Delivery.LATE))

    def told(played: Played) -> str:
        text = json.dumps([message.content for message in context_from(played.task)])
        for operation in played.task.operations:  # references count on from task to task
            assert operation.result_ref is not None
            text = text.replace(operation.result_ref, operation.remote)
        return text.replace(played.task.id, "task")

    told_by = [told(played) for played in every_crash(play, deaths=1)]
    assert len(told_by) > 20
    assert set(told_by) == {told_by[0]}


def test_the_same_durable_facts_give_the_same_context_whatever_was_said(stage: Stage) -> None:
    task_id = stage.enqueue(THREE).id
    stage.live(stage.worker(ASK_PERSON), task_id, "checkpoint refund")
    before = context_from(stage.store.get(task_id))
    open_conversation(stage.store, task_id)
    stage.store.say(task_id, "assistant", {"tool_call": "send_email", "call_id": "call-9", "input": {}})
    assert context_from(stage.store.get(task_id)) == before


def test_a_context_reads_nothing_but_the_task(stage: Stage) -> None:
    task = stage.play(ASK_PERSON, THREE).task
    stage.store.close()
    assert context_from(task) == context_from(replace(task, lease_token=99, version=77, attempts=5, lease_owner="x"))


def test_what_is_in_doubt_is_not_to_be_called_and_nothing_else_is_either(stage: Stage) -> None:
    task_id = stage.enqueue(THREE).id
    stage.live(stage.worker(ASK_PERSON), task_id, "send update_ticket")
    assert facts(stage.store.get(task_id)) == [
        "refund is done, reference payments-1.",
        "update_ticket was sent and its outcome is unknown; it is being settled, do not call it.",
        "Wait: update_ticket is being settled.",
    ]


def test_while_a_person_is_asked_the_model_waits(stage: Stage) -> None:
    task = stage.play(ASK_PERSON, THREE, ("send refund",)).task
    assert task.state is State.AWAITING_CONFIRMATION
    assert facts(task)[-1] == "Wait: a person has been asked."
    stage.answer(task)
    assert facts(stage.store.get(task.id)) == ["refund is done, reference said by Ada.", "Next: update_ticket."]


def test_a_model_that_waits_for_an_approval_is_told_so(stage: Stage) -> None:
    wanting = [replace(THREE[0], needs_approval=True)]
    task = stage.play(ASK_PERSON, wanting).task
    assert facts(task) == ["Wait: a person has been asked."]
    stage.store.answer(task, Answer.APPROVED, "Ada")
    assert facts(stage.store.get(task.id)) == ["Next: refund."]


def test_a_finished_task_leaves_no_question_open(stage: Stage) -> None:
    lines = facts(stage.play(BY_CAPABILITY, THREE, ("send refund",)).task)
    assert lines[-1] == "Nothing: the task is succeeded."
    assert len(lines) == 4
    assert not any("Next" in line or "Wait" in line or "unknown" in line for line in lines)


def test_after_a_cancel_the_model_is_told_to_begin_nothing_and_after_the_end_that_it_is_over(stage: Stage) -> None:
    task_id = stage.enqueue(THREE).id
    stage.live(stage.worker(ASK_PERSON), task_id, "checkpoint refund")
    stage.store.request_cancel(task_id, "Ada")
    assert facts(stage.store.get(task_id))[-1] == "Stop: a cancel was requested. Begin nothing new."
    assert facts(stage.carry_to_rest(task_id, ASK_PERSON).task)[-1] == "Nothing: the task is cancelled."


def test_a_failed_task_does_not_name_a_next_operation(stage: Stage) -> None:
    stage.gate = lambda request: Refusal("no", "permission", 403)
    task = stage.play(ASK_PERSON, THREE).task
    assert facts(task) == ["Nothing: the task is failed."]


def test_while_it_compensates_the_model_is_told_what_was_done_and_what_is_to_be_made_up_for(stage: Stage) -> None:
    stage.gate = lambda request: Refusal("no", "permission", 403) if "send_email" in request.operation_id else None
    task = stage.play(BY_CAPABILITY, THREE).task
    stage.store.compensate(task, "Ada")
    lines = [message.content["text"] for message in context_from(stage.store.get(task.id))]
    assert lines == [
        "Make up for what was done: refund, task-1. Go by these facts.",
        "refund is done, reference payments-1.",
        "update_ticket is done, reference tickets-1.",
        "Next: undo update_ticket.",
    ]
    stage.live(stage.worker(ASK_PERSON), task.id, "send update_ticket/undo")
    lines = facts(stage.store.get(task.id))
    assert lines[-1] == "Wait: undo update_ticket is being settled."


def test_what_cannot_be_undone_is_said_to_be_on_record(stage: Stage) -> None:
    stage.gate = lambda request: Refusal("no", "permission", 403) if "archive" in request.operation_id else None
    archive = replace(THREE[0], name="archive")
    task = stage.play(BY_CAPABILITY, [THREE[2], THREE[0], archive]).task
    stage.store.compensate(task, "Ada")
    done = stage.carry_to_rest(task.id, BY_CAPABILITY).task
    assert done.state is State.COMPENSATED
    assert "undo send_email cannot be done; that is on record." in facts(done)
    assert facts(done)[-1] == "Nothing: the task is compensated."


def test_messages_are_numbered_from_1_and_name_their_operation(stage: Stage) -> None:
    messages = context_from(stage.play(ASK_PERSON, THREE).task)
    assert [message.number for message in messages] == [1, 2, 3, 4, 5]
    assert [message.role for message in messages] == ["system", "tool", "tool", "tool", "user"]
    assert [message.content["operation"] for message in messages[1:4]] == [f"task-1/{one.name}" for one in THREE]
