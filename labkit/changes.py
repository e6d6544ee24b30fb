"""How a task is changed: one transaction, one conditional UPDATE, one line of history; or nothing at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from labkit.database import Database
from labkit.errors import InvalidInput
from labkit.guards import refusal, updates
from labkit.records import Announcement, Attempt, Lease, Task
from labkit.seams import Boundary, Clock, Point, reading
from labkit.states import Event, State
from labkit.values import Json, checked_name, checked_seconds, to_json


@dataclass(frozen=True)
class Assumptions:
    """What the lab takes for granted about the world; each rule that rests on one names it.

    Args:
        longest_delivery_seconds: from sending a request to its being applied, at the most.
        longest_pause_seconds: how long a worker can sleep between recording an intent and sending it, at the most.
    """

    longest_delivery_seconds: float = 60.0
    longest_pause_seconds: float = 60.0

    def __post_init__(self) -> None:
        checked_seconds("longest_delivery_seconds", self.longest_delivery_seconds)
        checked_seconds("longest_pause_seconds", self.longest_pause_seconds)

    @property
    def longest_under_way_seconds(self) -> float:
        """From recording an intent to the last moment at which its request can be applied."""
        return self.longest_delivery_seconds + self.longest_pause_seconds


@dataclass
class Change:
    """One change in the making: the open transaction and what the conditional UPDATE returned."""

    event: Event
    db: sqlite3.Connection
    params: dict[str, Any]
    state: State
    version: int
    token: int
    expires_at: float | None
    subject: str
    attempt: Attempt | None = None
    learned: str = ""
    detail: Json = field(default_factory=dict)

    def run(self, sql: str, **more: Any) -> list[Any]:
        """Execute one more statement of the same transaction, with the change's parameters and perhaps more."""
        return self.db.execute(sql, self.params | more).fetchall()

    def announce(self, announcement: Announcement | None) -> None:
        """Put a message into the outbox, in the transaction of the change that it announces."""
        if announcement is not None:
            if not isinstance(announcement, Announcement):
                raise InvalidInput("an Announcement", announcement)
            checked_name("topic", announcement.topic)
            message = {"topic": announcement.topic, "payload": to_json(announcement.payload)}
            self.db.execute(
                "INSERT INTO outbox (message_id, task_id, topic, payload, created_at) "
                f"VALUES (:id || '@{self.version}', :id, :topic, :payload, :now)",
                self.params | message,
            )

    @property
    def news(self) -> str:
        """What the worker learned from it."""
        return self.learned or f"{self.state} v{self.version}, token {self.token}"

    def lease(self, worker: str) -> Lease:
        """Return the lease as it is after this change."""
        assert self.expires_at is not None, "a held task has a lease"
        return Lease(self.params["id"], worker, self.token, self.version, self.state, float(self.expires_at))


class Changes:
    """The one way to change a task; `TaskStore` builds every event on `_change`."""

    def __init__(self, db: Database, clock: Clock, boundary: Boundary, assumptions: Assumptions) -> None:
        self._db, self.clock, self._boundary, self.assumptions = db, clock, boundary, assumptions

    @contextmanager
    def _change(
        self, event: Event, held: Task | Lease | str, sets: str = "", first: str = "", **params: Any
    ) -> Iterator[Change]:
        """Change a task by one event, or raise `ChangeRefused` and leave every row as it was.

        Args:
            event: its edges are tried in the order of the table.
            held: what the caller has read or holds, and so expects: version, and token where it is a lease.
            sets: further assignments of the UPDATE.
            first: a statement to run before it, such as what was learned of the last attempt.
            params: values for the SQL.

        The block adds to the same transaction. After the commit comes the boundary: a worker can die there.
        """
        params = self._params(held) | params
        with self._db.write() as db:
            if first:
                db.execute(first, params)
            change = self._update(db, event, params, sets)
            yield change
            self._record(change)
        self._cross(change)

    def _cross(self, *changes: Change) -> None:
        """Let the world in after the commit of these changes: a worker can die here."""
        last = changes[-1]
        self._boundary(Point(last.event, last.subject, "; ".join(one.news for one in changes)))

    def _params(self, held: Task | Lease | str) -> dict[str, Any]:
        now = reading(self.clock)
        params = {
            "now": now,
            "earliest": now,
            "longest_delivery": self.assumptions.longest_delivery_seconds,
            "longest_pause": self.assumptions.longest_pause_seconds,
        }
        if isinstance(held, Lease):
            return params | {"id": held.task_id, "version": held.version, "token": held.token, "worker": held.worker}
        if isinstance(held, Task):
            return params | {"id": held.id, "version": held.version, "token": None}
        if isinstance(held, str):
            return params | {"id": held, "version": None, "token": None}
        raise InvalidInput("a task as it was read, or a lease", held)

    def _update(self, db: sqlite3.Connection, event: Event, params: dict[str, Any], sets: str) -> Change:
        for edge, sql in updates(event, sets):
            changed = db.execute(sql, params).fetchall()
            if changed:  # the row count is the verdict
                ((version, token, expires_at),) = changed
                subject = params.get("operation_id") or params["id"]
                params["source_state"] = edge.source
                return Change(event, db, params, edge.target, version, token, expires_at, subject)
        raise refusal(db, event, params)

    def _record(self, change: Change) -> None:
        detail = {"operation": change.subject} if change.subject != change.params["id"] else {}
        change.db.execute(
            "INSERT INTO events (task_id, at, event, source, target, version, token, worker, detail) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                change.params["id"],
                change.params["now"],
                str(change.event),  # a plain text, which sqlite3 takes as it is
                str(change.params["source_state"]),
                str(change.state),
                change.version,
                change.token,
                change.params.get("worker"),
                to_json(detail | change.detail),
            ),
        )


def as_read(task: Task) -> Task:
    """Return `task` if it is one that was read: its version is what a change expects.

    Raises:
        InvalidInput: for anything else, such as its id.
    """
    if not isinstance(task, Task):
        raise InvalidInput("a task as it was read, such as store.get(task_id)", task)
    return task
