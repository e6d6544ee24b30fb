"""What a run came to, by the remote's ledger and not by the task's own word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from plays import THREE, Stage

from labkit.policies import ASK_PERSON
from labkit.records import Attempt, Operation, Status, Task
from labkit.remote import Capabilities
from labkit.runs import Verdict, database_view, effects_of, judge, not_as_recorded
from labkit.states import ENDED_STATES, Direction, State

A, B = "task-1/a", "task-1/b"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    opened = Stage(tmp_path, Capabilities())
    yield opened
    opened.close()


def operation(operation_id: str, done: bool, direction: Direction = Direction.DO) -> Operation:
    reference = "remote-1" if done else None
    status = Status.DONE if done else Status.PENDING
    name = operation_id.rpartition("/")[2]
    return Operation(operation_id, name, 0, direction, "remote", {}, None, False, None, status, reference, None)


def task(state: State, *operations: Operation) -> Task:
    return Task(
        "task-1",
        "refund",
        state,
        3,
        Direction.DO,
        0,
        None,
        1,
        None,
        0,
        5,
        None,
        3600.0,
        0.0,
        None,
        None,
        None,
        False,
        0.0,
        operations,
    )


DONE = operation(A, True)
NOT_DONE = operation(A, False)
DOUBTFUL = replace(NOT_DONE, attempts=(Attempt(1, "a#1", 1, 0.0, None),))


@pytest.mark.parametrize(
    ("state", "one", "effects", "verdict"),
    [
        (State.SUCCEEDED, DONE, {A: 1}, Verdict.EXACTLY_ONCE),
        (State.FAILED, NOT_DONE, {}, Verdict.STOPPED_CLEAN),
        (State.FAILED, DONE, {A: 1}, Verdict.STOPPED_CLEAN),
        (State.CANCELLED, NOT_DONE, {}, Verdict.STOPPED_CLEAN),
        (State.COMPENSATED, DONE, {A: 1}, Verdict.STOPPED_CLEAN),
        (State.AWAITING_CONFIRMATION, DOUBTFUL, {A: 1}, Verdict.NEEDS_A_PERSON),
        (State.AWAITING_CONFIRMATION, DOUBTFUL, {}, Verdict.NEEDS_A_PERSON),
        (State.QUEUED, NOT_DONE, {}, Verdict.STUCK),
        (State.RUNNING, DONE, {A: 1}, Verdict.STUCK),
        (State.UNCERTAIN, DOUBTFUL, {A: 1}, Verdict.STUCK),
        (State.SUCCEEDED, DONE, {}, Verdict.LOST),
        (State.SUCCEEDED, NOT_DONE, {}, Verdict.LOST),
        (State.SUCCEEDED, NOT_DONE, {A: 1}, Verdict.LOST),
        (State.FAILED, NOT_DONE, {A: 1}, Verdict.LOST),
        (State.CANCELLED, DONE, {}, Verdict.LOST),
        (State.COMPENSATED, DONE, {}, Verdict.LOST),
        (State.QUEUED, DONE, {}, Verdict.LOST),
        (State.RUNNING, DONE, {}, Verdict.LOST),
        (State.AWAITING_CONFIRMATION, DONE, {}, Verdict.LOST),
        (State.RUNNING, NOT_DONE, {A: 1}, Verdict.STUCK),
        (State.SUCCEEDED, DONE, {A: 2}, Verdict.DUPLICATED),
        (State.QUEUED, NOT_DONE, {A: 2}, Verdict.DUPLICATED),
        (State.AWAITING_CONFIRMATION, DOUBTFUL, {A: 2}, Verdict.DUPLICATED),
    ],
)
def test_the_verdict_follows_from_state_record_and_ledger(
    state: State, one: Operation, effects: dict[str, int], verdict: Verdict
) -> None:
    assert judge(task(state, one), effects) is verdict


def test_verdicts_stand_from_best_to_worst_and_the_worst_that_fits_wins() -> None:
    assert list(Verdict) == ["exactly once", "stopped clean", "needs a person", "stuck", "lost", "duplicated"]
    lost_and_doubled = task(State.SUCCEEDED, DONE, operation(B, True))
    assert judge(lost_and_doubled, {A: 2}) is Verdict.DUPLICATED
    stuck_and_doubled = task(State.RUNNING, DONE)
    assert judge(stuck_and_doubled, {A: 2}) is Verdict.DUPLICATED


def test_exactly_once_is_said_only_where_each_operation_has_its_effect() -> None:
    assert judge(task(State.SUCCEEDED, DONE, operation(B, False)), {A: 1}) is Verdict.LOST
    assert not_as_recorded(task(State.SUCCEEDED, DONE, operation(B, False)), {A: 1}) == [B]
    assert judge(task(State.SUCCEEDED), {}) is Verdict.EXACTLY_ONCE, "there was nothing to do"


def test_what_waits_for_a_person_is_lost_where_something_on_record_as_done_is_missing() -> None:
    waits = task(State.AWAITING_CONFIRMATION, DONE, replace(DOUBTFUL, id=B))
    assert judge(waits, {A: 1}) is Verdict.NEEDS_A_PERSON
    assert judge(waits, {B: 1}) is Verdict.LOST


def test_effects_at_several_remotes_add_up() -> None:
    assert effects_of([{A: 1, B: 1}, {}, {A: 1}]) == {A: 2, B: 1}
    assert effects_of([]) == {}


def test_one_operation_that_is_not_as_recorded_is_enough() -> None:
    both = (DONE, operation(B, True))
    assert judge(task(State.SUCCEEDED, *both), {A: 1, B: 1}) is Verdict.EXACTLY_ONCE
    assert judge(task(State.SUCCEEDED, *both), {A: 1}) is Verdict.LOST


@pytest.mark.parametrize("state", sorted(ENDED_STATES))
def test_an_effect_of_an_operation_that_is_not_on_record_is_lost_from_it(state: State) -> None:
    assert judge(task(state, DONE), {A: 1, "task-1/other": 1}) is Verdict.LOST
    assert judge(task(state, DONE), {A: 1, "task-1/other": 2}) is Verdict.DUPLICATED


def test_a_count_of_none_is_no_effect() -> None:
    assert judge(task(State.SUCCEEDED, DONE), {A: 1, "task-1/other": 0}) is Verdict.EXACTLY_ONCE


def test_undo_operations_are_held_to_the_ledger_like_any_other() -> None:
    undo = operation(f"{A}/undo", True, Direction.UNDO)
    never = replace(operation(f"{B}/undo", False, Direction.UNDO), status=Status.CANNOT_BE_UNDONE)
    compensated = task(State.COMPENSATED, DONE, operation(B, True), undo, never)
    done = {A: 1, B: 1}
    assert judge(compensated, done | {undo.id: 1}) is Verdict.STOPPED_CLEAN
    assert judge(compensated, done) is Verdict.LOST
    assert judge(compensated, done | {undo.id: 1, never.id: 1}) is Verdict.LOST
    assert judge(compensated, done | {undo.id: 2}) is Verdict.DUPLICATED


def test_the_tasks_own_word_counts_for_nothing_against_the_ledger(stage: Stage) -> None:
    """`assume_done` has every operation on record as done; the ledger shows that none was."""
    succeeded = task(State.SUCCEEDED, replace(DONE, result_ref="assumed", result_source="assumed"))
    assert judge(succeeded, {}) is Verdict.LOST


def test_the_databases_view_is_one_line_that_names_state_version_and_where_each_operation_stands(
    stage: Stage,
) -> None:
    task_id = stage.enqueue(THREE).id
    views = [database_view(stage.store.get(task_id))]
    stage.live(stage.worker(ASK_PERSON), task_id, "send update_ticket")
    views.append(database_view(stage.store.get(task_id)))
    stage.carry_to_rest(task_id, ASK_PERSON)
    views.append(database_view(stage.store.get(task_id)))
    stage.carry_to_rest(task_id, ASK_PERSON, person=True)
    views.append(database_view(stage.store.get(task_id)))
    assert views == [
        "queued v1: refund pending, update_ticket pending, send_email pending",
        "running v5: refund done, update_ticket in doubt, send_email pending",
        "awaiting_confirmation v7: refund done, update_ticket in doubt, send_email pending",
        "succeeded v12: refund done, update_ticket done, send_email done",
    ]


def test_the_databases_view_says_when_a_task_is_undoing_and_what_cannot_be_undone() -> None:
    never = replace(operation(f"{A}/undo", False, Direction.UNDO), name="undo a", status=Status.CANNOT_BE_UNDONE)
    undoing = replace(task(State.RUNNING, DONE, never), direction=Direction.UNDO)
    assert database_view(undoing) == "running v3 (undo): a done, undo a cannot be undone"
