"""Rows as objects: one door that rejects the unknown, and dataclasses that cannot drift from the tables."""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest
from stage import APPROVAL_PLAN, FIRST, ID, Stage

from labkit.errors import StoreCorrupt
from labkit.records import Attempt, Entry, Message, Operation, OutboxMessage, Outcome, Status, Task
from labkit.retries import Category
from labkit.seams import ManualClock
from labkit.states import Direction, State
from labkit.store import TaskStore


def columns(stage: Stage, table: str) -> list[str]:
    return [name for (name,) in stage.sql("SELECT name FROM pragma_table_info(?) ORDER BY cid", table)]


def names(record: type, *without: str) -> list[str]:
    return [field.name for field in fields(record) if field.name not in without]


def test_the_fields_of_a_task_are_the_columns_of_its_table_in_their_order(stage: Stage) -> None:
    assert columns(stage, "tasks") == names(Task, "operations")


def test_the_fields_of_an_operation_are_the_columns_of_its_table_but_for_the_task_it_belongs_to(stage: Stage) -> None:
    first, task_id, *others = columns(stage, "operations")
    assert (first, task_id) == ("operation_id", "task_id")
    assert ["id", *others] == names(Operation, "attempts")


def test_the_fields_of_the_other_records_are_columns_too(stage: Stage) -> None:
    assert columns(stage, "events") == names(Entry)
    operation_id, number, *others = columns(stage, "attempts")
    assert (operation_id, number) == ("operation_id", "n")
    assert ["number", *others] == names(Attempt)
    seq, message_id, *others = columns(stage, "outbox")
    assert (seq, message_id) == ("seq", "message_id")
    assert ["id", *others] == names(OutboxMessage)
    assert columns(stage, "messages") == ["task_id", "n", *names(Message, "number")]


def test_the_choices_of_the_tables_are_the_members_of_the_enums(stage: Stage) -> None:
    """A CHECK lists what a column may hold; a second list must not differ from the first."""
    for table, column, kind in (
        ("tasks", "state", State),
        ("tasks", "direction", Direction),
        ("tasks", "error_category", Category),
        ("operations", "direction", Direction),
        ("operations", "status", Status),
        ("attempts", "outcome", Outcome),
    ):
        ((sql,),) = stage.sql("SELECT sql FROM sqlite_schema WHERE name = ?", table)
        listed = sql.split(f"CHECK ({column} IN (")[1].split(")")[0]
        assert [part.strip().strip("'") for part in listed.split(",")] == [str(member) for member in kind]


def test_every_column_arrives_in_its_own_field(stage: Stage) -> None:
    """Each value differs, so that no two fields could be swapped unnoticed."""
    stage.store.ask(stage.running(APPROVAL_PLAN, kind="a kind"), "approval", 60)
    stage.sql(
        "UPDATE tasks SET version = 11, step = 12, lease_token = 13, attempts = 14, max_attempts = 15, "
        "first_attempt_at = 16, max_seconds = 17, next_run_at = 18, awaiting_until = 19, created_at = 20, "
        "lease_owner = 'an owner', error_category = 'invalid', cancel_requested = 1, direction = 'undo'"
    )
    task = stage.task
    by_name = {field.name: getattr(task, field.name) for field in fields(Task) if field.name != "operations"}
    with stage.store._db.read() as db:
        db.row_factory = sqlite3.Row
        row = dict(db.execute("SELECT * FROM tasks").fetchone())
        db.row_factory = None
    assert by_name == row
    assert len(set(map(str, row.values()))) == len(row)
    assert task.cancel_requested is True
    assert task.state is State.AWAITING_CONFIRMATION
    assert task.direction is Direction.UNDO


@pytest.fixture
def unchecked(tmp_path: Path, stage: Stage) -> Iterator[sqlite3.Connection]:
    """A tool that writes what it likes, and a task to write to."""
    stage.sent()
    connection = sqlite3.connect(tmp_path / "tasks.sqlite", isolation_level=None)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE tasks SET state = 'done'", "one of queued, running, uncertain"),
        ("UPDATE tasks SET direction = 'back'", "one of do, undo"),
        ("UPDATE operations SET direction = 'back'", "one of do, undo"),
        ("UPDATE operations SET status = 'lost'", "one of pending, done, cannot_be_undone"),
        ("UPDATE attempts SET outcome = 'lost'", "one of applied, not_sent, refused, not_applied"),
    ],
)
def test_a_row_with_an_unknown_word_is_rejected_at_the_one_door(
    statement: str, expected: str, unchecked: sqlite3.Connection, stage: Stage
) -> None:
    unchecked.execute(statement)
    for read in (lambda: stage.store.get(ID), stage.store.tasks):
        with pytest.raises(StoreCorrupt, match=f"a row that cannot be read: expected {expected}"):
            read()


def test_records_are_frozen(stage: Stage) -> None:
    task = stage.in_state(State.RUNNING)
    with pytest.raises(FrozenInstanceError):
        task.state = State.SUCCEEDED  # type: ignore[misc]


@pytest.mark.parametrize(
    ("way", "in_doubt", "upcoming", "standings"),
    [
        (Stage.running, None, FIRST, ["pending", "pending"]),
        (Stage.sent, FIRST, FIRST, ["in doubt", "pending"]),
        (Stage.first_done, None, "task-1/send_email", ["done", "pending"]),
        (Stage.all_done, None, None, ["done", "done"]),
        (Stage.undoing, None, f"{FIRST}/undo", ["done", "pending", "pending"]),
        (Stage.all_undone, None, None, ["done", "pending", "done"]),
    ],
)
def test_a_task_tells_its_doubt_its_next_operation_and_how_each_stands(
    way: Any, in_doubt: str | None, upcoming: str | None, standings: list[str], stage: Stage
) -> None:
    way(stage)
    task = stage.task
    assert (task.in_doubt and task.in_doubt.id) == in_doubt
    assert (task.next_operation and task.next_operation.id) == upcoming
    assert [one.standing for one in task.operations] == standings
    with stage.store._db.read() as db:
        assert [row[0] for row in db.execute("SELECT operation_id FROM in_doubt")] == list(filter(None, [in_doubt]))
        assert [row[0] for row in db.execute("SELECT operation_id FROM next_operation")] == list(
            filter(None, [upcoming])
        )


def test_equal_readings_are_equal_and_survive_json(stage: Stage) -> None:
    task = stage.in_state(State.UNCERTAIN)
    assert task == stage.task
    assert json.loads(json.dumps(task.state)) == "uncertain"


def test_times_are_floats_wherever_they_come_from(tmp_path: Path) -> None:
    """SQLite hands whole numbers back from RETURNING as integers; a printed lease must not depend on that."""
    with TaskStore(tmp_path / "whole.sqlite", ManualClock(5), synchronous="OFF") as store:
        stage = Stage(store, ManualClock(5))
        lease, attempt = store.intend(stage.running(), FIRST)
        assert (repr(lease.expires_at), repr(attempt.sent_at)) == ("35.0", "5.0")
        assert attempt == stage.task.operations[0].attempts[0]
        assert repr(attempt) == repr(stage.task.operations[0].attempts[0])
