"""The durable task store: one SQLite file that outlives every worker.

Every change is one transaction around one conditional UPDATE on state and version, and on the fencing token where a
lease is held; see `labkit.guards` for the conditions, `labkit/schema.sql` for the tables. There is no other way to
set a state.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from labkit.acquiring import AcquiringChanges
from labkit.changes import Assumptions
from labkit.database import Database, Schema, Synchronous, opened
from labkit.deciding import DecidingChanges
from labkit.errors import InvalidInput, TaskExists, UnknownTask
from labkit.outbox import OutboxChanges
from labkit.records import (
    Attempt,
    Entry,
    Message,
    Operation,
    PlannedOperation,
    Task,
    attempt_from_row,
    operation_from_row,
    task_from_row,
)
from labkit.releasing import ReleasingChanges
from labkit.retries import Budget
from labkit.seams import Boundary, Clock, Point, SystemClock, no_boundary, reading
from labkit.states import State
from labkit.values import Json, checked_name, checked_seconds, from_json, known, to_json

SCHEMA = Schema("schema.sql", application_id=0x4C41424B, version=1)
_OPERATIONS = "SELECT * FROM operations WHERE task_id = ? ORDER BY direction, position"
_ATTEMPTS = (
    "SELECT operation_id, n, request_id, token, sent_at, outcome FROM operations JOIN attempts USING (operation_id) "
    "WHERE task_id = ? ORDER BY direction, position, n"
)


class TaskStore(AcquiringChanges, ReleasingChanges, DecidingChanges, OutboxChanges):
    """Tasks in one SQLite file.

    Args:
        path: the file, created where it is missing; or one that is open already.
        clock: seconds for every time that is stored or compared.
        boundary: called after each durable write.
        assumptions: what is taken for granted about deliveries and pauses.
        synchronous: `FULL` keeps every acknowledged change through a power cut.

    Raises:
        StoreError: where the file cannot be used; its leaf says why and what to do.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Database,
        clock: Clock | None = None,
        boundary: Boundary = no_boundary,
        assumptions: Assumptions | None = None,
        synchronous: Synchronous = "FULL",
    ) -> None:
        super().__init__(
            opened(path, SCHEMA, synchronous), clock or SystemClock(), boundary, assumptions or Assumptions()
        )

    def enqueue(
        self,
        task_id: str,
        operations: Sequence[PlannedOperation],
        kind: str = "refund",
        budget: Budget | None = None,
        next_run_at: float | None = None,
    ) -> Task:
        """Put a task into the queue. The same call again is harmless: it returns the task as it stands by now.

        A repeated call changes nothing: budget and due time stay those of the first.

        Args:
            task_id: chosen by the caller, so that a caller in doubt can simply call again.
            operations: the external writes, in order; their names are unique within the task.
            kind: what the task is about, for people.
            budget: attempts and seconds for each operation.
            next_run_at: seconds of the store's clock before which nobody claims it; by default now.

        Raises:
            TaskExists: a task of that id exists and has other operations or another kind.
        """
        task_id, kind, budget = _name_within("task id", task_id), checked_name("kind", kind), budget or Budget()
        if not isinstance(operations, list | tuple):
            raise InvalidInput("operations: a list of PlannedOperation", operations)
        rows = [_planned(task_id, position, one) for position, one in enumerate(operations)]
        if len({row[0] for row in rows}) != len(rows):
            raise InvalidInput("operation names unique within the task", [one.name for one in operations])
        if not isinstance(budget, Budget):
            raise InvalidInput("a Budget", budget)
        now = reading(self.clock)
        due = now if next_run_at is None else checked_seconds("next_run_at", next_run_at, float("-inf"))
        with self._db.write() as db:
            created = db.execute(
                "INSERT INTO tasks (id, kind, max_attempts, max_seconds, next_run_at, created_at) "
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
                (task_id, kind, budget.max_attempts, budget.max_seconds, due, now),
            ).rowcount
            if created:
                db.executemany(f"INSERT INTO operations ({_PLAN}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
                db.execute(
                    "INSERT INTO events (task_id, at, event, target, version, token) "
                    "VALUES (?, ?, 'enqueue', 'queued', 1, 0)",
                    (task_id, now),
                )
            else:
                _same_task(db, task_id, kind, rows)
            (task,) = _tasks(db, "id = ?", task_id)
        if created:
            self._boundary(Point("enqueue", task_id, "queued v1, token 0"))
        return task

    def get(self, task_id: str) -> Task:
        """Read a task with its operations and their attempts, all from one snapshot.

        Raises:
            UnknownTask: there is none of that id.
        """
        found = self._read("id = ?", task_id)
        if not found:
            raise UnknownTask("get", task_id, "a task of that id", "none")
        return found[0]

    def _read(self, where: str, *values: object) -> list[Task]:
        with self._db.read() as db:
            return _tasks(db, where, *values)

    def tasks(self, state: State | None = None) -> list[Task]:
        """Read all tasks, or those in one state, by id."""
        wanted = None if state is None else known(State, state)
        return self._read("? IS NULL OR state = ? ORDER BY id", wanted, wanted)

    def overdue(self) -> list[Task]:
        """Read the tasks whose question a person has not answered in time. A doubt among them is never failed."""
        due = "state = 'awaiting_confirmation' AND awaiting_until <= ? ORDER BY awaiting_until, id"
        return self._read(due, reading(self.clock))

    def history(self, task_id: str) -> list[Entry]:
        """Read a task's history, oldest first; rows of it are never changed or deleted."""
        with self._db.read() as db:
            rows = db.execute("SELECT * FROM events WHERE task_id = ? ORDER BY seq", (task_id,)).fetchall()
            return [Entry(*(*row[:9], from_json(row[9]))) for row in rows]

    def say(self, task_id: str, role: str, content: Json) -> Message:
        """Add a line to the task's transcript, numbered from 1."""
        text = to_json(content)
        with self._db.write() as db:
            rows = db.execute(
                "INSERT INTO messages (task_id, n, role, content) "
                "SELECT id, 1 + (SELECT count(*) FROM messages WHERE task_id = tasks.id), ?, ? "
                "FROM tasks WHERE id = ? RETURNING n",
                (checked_name("role", role), text, task_id),
            ).fetchall()
            if not rows:
                raise UnknownTask("say", task_id, "a task of that id", "none")
        self._boundary(Point("say", task_id, f"transcript has {rows[0][0]} lines"))
        return Message(rows[0][0], role, content)

    def transcript(self, task_id: str) -> list[Message]:
        """Read the transcript. It tells what was said, not what happened: no decision is read from it."""
        with self._db.read() as db:
            query = "SELECT n, role, content FROM messages WHERE task_id = ? ORDER BY n"
            return [Message(n, role, from_json(text)) for n, role, text in db.execute(query, (task_id,)).fetchall()]

    @property
    def journal_mode(self) -> str:
        """`wal`, or `delete` where the file system refuses a write-ahead log (network homes)."""
        return self._db.journal_mode

    def close(self) -> None:
        """Close the file. Windows cannot delete an open one. A repeated call is harmless."""
        self._db.close()

    def __enter__(self) -> TaskStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_PLAN = "operation_id, task_id, name, position, remote, request, undo_request, needs_approval"


def _same_task(db: sqlite3.Connection, task_id: str, kind: str, rows: list[tuple[Any, ...]]) -> None:
    (found_kind,) = db.execute("SELECT kind FROM tasks WHERE id = ?", (task_id,)).fetchone()
    query = f"SELECT {_PLAN} FROM operations WHERE task_id = ? AND direction = 'do' ORDER BY position"
    found = db.execute(query, (task_id,)).fetchall()
    if (found_kind, found) != (kind, rows):
        names = [row[2] for row in found]
        raise TaskExists("enqueue", task_id, f"{kind} {[row[2] for row in rows]}", f"{found_kind} {names}")


def _tasks(db: sqlite3.Connection, where: str, *values: object) -> list[Task]:
    """Read tasks whole: a task without its operations would hide a doubt."""
    rows = db.execute(f"SELECT * FROM tasks WHERE {where}", values).fetchall()
    return [task_from_row(row, _operations(db, row[0])) for row in rows]


def _operations(db: sqlite3.Connection, task_id: str) -> tuple[Operation, ...]:
    attempts: dict[str, list[Attempt]] = {}
    for operation_id, *sending in db.execute(_ATTEMPTS, (task_id,)).fetchall():
        attempts.setdefault(operation_id, []).append(attempt_from_row(sending))
    rows = db.execute(_OPERATIONS, (task_id,)).fetchall()
    return tuple(operation_from_row(row, tuple(attempts.get(row[0], ()))) for row in rows)


def _name_within(what: str, value: str) -> str:
    """Check a part of an operation id: with a '/' in it, two operations could come to share one id."""
    if "/" in checked_name(what, value):
        raise InvalidInput(f"{what}: no '/' in it", value)
    return value


def _planned(task_id: str, position: int, one: PlannedOperation) -> tuple[Any, ...]:
    if not isinstance(one, PlannedOperation):
        raise InvalidInput("operations: a list of PlannedOperation", one)
    if not isinstance(one.needs_approval, bool):
        raise InvalidInput("needs_approval: True or False", one.needs_approval)
    name = _name_within("operation name", one.name)
    undo = None if one.undo_request is None else to_json(one.undo_request)
    remote = checked_name("remote", one.remote)
    request = to_json(one.request)
    return (f"{task_id}/{name}", task_id, name, position, remote, request, undo, one.needs_approval)
