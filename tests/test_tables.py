"""The tables' own guards, of the store and of a remote: what each column refuses, whoever writes it."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from stage import FIRST, ID, SECOND, Stage

from labkit.exchange import Request
from labkit.records import Announcement
from labkit.remote import Capabilities, RemoteService
from labkit.seams import ManualClock

MAY_BE_EMPTY = {
    "tasks": {
        "lease_owner",
        "lease_expires_at",
        "first_attempt_at",
        "awaiting_for",
        "awaiting_until",
        "error_category",
    },
    "operations": {"undo_request", "approved_by", "result_ref", "result_source"},
    "attempts": {"outcome"},
    "events": {"source", "worker"},
    "outbox": {"delivered_at"},
    "messages": set(),
    "effects": set(),
    "keys": set(),
    "fences": set(),
    "under_way": {"key", "token"},
    "requests": {"key"},
}
"""Every other column must be filled."""

NUMBERED = {"events": "seq", "outbox": "seq", "effects": "effect_id", "under_way": "seq", "requests": "seq"}
"""SQLite counts these, where they are left empty."""


@pytest.fixture
def filled(stage: Stage, tmp_path: Path, clock: ManualClock) -> Iterator[dict[str, sqlite3.Connection]]:
    """Every table of a store and of a ledger, by name, with a row in it, as somebody with a SQLite tool opens them."""
    lease = stage.store.checkpoint(stage.sent(), FIRST, "payments-1", Announcement("refunded", {}))
    stage.store.intend(lease, SECOND)
    stage.store.say(ID, "user", {})
    with RemoteService(
        tmp_path / "ledger.sqlite", "payments", Capabilities(idempotency_keys=True, fencing_tokens=True), clock
    ) as service:
        service.handle(Request(FIRST, "1", "{}", "k", 1))
        service.accept_late(Request(FIRST, "2", "{}", "k", 1))
    tables = {}
    opened = [sqlite3.connect(tmp_path / name, isolation_level=None) for name in ("tasks.sqlite", "ledger.sqlite")]
    for db in opened:
        db.execute("PRAGMA foreign_keys = ON")
        tables |= {name: db for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()}
    yield tables
    for db in opened:
        db.close()


def columns_of(db: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in db.execute(f"PRAGMA table_info ({table})")]


def refusals(db: sqlite3.Connection, table: str, value: str) -> dict[str, str]:
    """Add a copy of a row with `value` in one column, for each column in turn; return what SQLite says."""
    columns = columns_of(db, table)
    said = {}
    for column in columns:
        copied = ", ".join(value if one == column else "NULL" if one == NUMBERED.get(table) else one for one in columns)
        db.execute("BEGIN")
        try:
            db.execute(f"INSERT INTO {table} ({', '.join(columns)}) SELECT {copied} FROM {table} LIMIT 1")
        except sqlite3.Error as error:
            said[column] = str(error)
        db.execute("ROLLBACK")
    return said


def test_every_table_has_its_line_here(filled: dict[str, sqlite3.Connection]) -> None:
    assert set(filled) == set(MAY_BE_EMPTY)


@pytest.mark.parametrize("table", MAY_BE_EMPTY)
def test_only_these_columns_may_be_left_empty(table: str, filled: dict[str, sqlite3.Connection]) -> None:
    said = refusals(filled[table], table, "NULL")
    refused = {one for one, text in said.items() if text == f"NOT NULL constraint failed: {table}.{one}"}
    assert refused == set(columns_of(filled[table], table)) - MAY_BE_EMPTY[table] - {NUMBERED.get(table)}


@pytest.mark.parametrize("table", MAY_BE_EMPTY)
def test_no_column_takes_a_value_of_another_type(table: str, filled: dict[str, sqlite3.Connection]) -> None:
    said = refusals(filled[table], table, "x'00'")
    assert set(said) == set(columns_of(filled[table], table))
    assert all(text.startswith(("cannot store BLOB value", "datatype mismatch")) for text in said.values()), said


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        ("operations", "UPDATE operations SET task_id = 'nobody'"),
        ("attempts", "UPDATE attempts SET operation_id = 'nobody/nothing'"),
        (
            "events",
            "INSERT INTO events (task_id, at, event, target, version, token) VALUES ('nobody', 0, 'x', 'y', 1, 0)",
        ),
        ("outbox", "UPDATE outbox SET task_id = 'nobody'"),
        ("messages", "UPDATE messages SET task_id = 'nobody'"),
        ("keys", "UPDATE keys SET effect_id = 99"),
    ],
)
def test_no_row_belongs_to_one_that_does_not_exist(
    table: str, statement: str, filled: dict[str, sqlite3.Connection]
) -> None:
    if table == "attempts":  # one sending only, lest two of them get the same number
        filled[table].execute("DELETE FROM attempts WHERE operation_id = ?", (SECOND,))
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY constraint failed"):
        filled[table].execute(statement)


@pytest.mark.parametrize(
    ("table", "statement", "guard"),
    [
        ("tasks", "UPDATE tasks SET state = 'done'", "state IN"),
        ("tasks", "UPDATE tasks SET direction = 'back'", "direction IN"),
        ("tasks", "UPDATE tasks SET cancel_requested = 2", "cancel_requested IN"),
        ("tasks", "UPDATE tasks SET error_category = 'odd'", "error_category IN"),
        ("tasks", "UPDATE tasks SET state = 'awaiting_confirmation', awaiting_for = 'rain', lease_expires_at = NULL",
         "awaiting_for IN"),
        ("tasks", "UPDATE tasks SET lease_expires_at = NULL", r"\(state IN"),
        ("tasks", "UPDATE tasks SET state = 'queued'", r"\(state IN"),
        ("tasks", "UPDATE tasks SET awaiting_for = 'doubt'", r"\(state = 'awaiting_confirmation'"),
        ("tasks", "UPDATE tasks SET state = 'awaiting_confirmation', lease_expires_at = NULL",
         r"\(state = 'awaiting_confirmation'"),
        ("operations", "UPDATE operations SET direction = 'back'", "direction IN"),
        ("operations", "UPDATE operations SET needs_approval = 2", "needs_approval IN"),
        ("operations", "UPDATE operations SET status = 'lost' WHERE result_ref IS NULL", "status IN"),
        ("operations", "UPDATE operations SET status = 'done'", r"\(status = 'done'"),
        ("operations", "UPDATE operations SET result_ref = 'payments-1'", r"\(status = 'done'"),
        ("attempts", "UPDATE attempts SET outcome = 'lost'", "outcome IN"),
    ],
)  # fmt: skip
def test_no_column_takes_what_cannot_be(
    table: str, statement: str, guard: str, filled: dict[str, sqlite3.Connection]
) -> None:
    with pytest.raises(sqlite3.IntegrityError, match=f"CHECK constraint failed: {guard}"):
        filled[table].execute(statement)


@pytest.mark.parametrize(
    ("table", "statement", "columns"),
    [
        ("operations", "UPDATE operations SET position = 0", "task_id, operations.direction, operations.position"),
        (
            "outbox",
            "INSERT INTO outbox (message_id, task_id, topic, payload, created_at) "
            "SELECT message_id, task_id, topic, payload, created_at FROM outbox",
            "message_id",
        ),
    ],
)
def test_no_two_rows_are_alike_where_one_must_be_told_from_the_other(
    table: str, statement: str, columns: str, filled: dict[str, sqlite3.Connection]
) -> None:
    with pytest.raises(sqlite3.IntegrityError, match=f"UNIQUE constraint failed: {table}.{columns}$"):
        filled[table].execute(statement)
