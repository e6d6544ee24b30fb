"""What a worker written in plain SQL has beside its connection: a clock, remotes, and a consumer for its messages."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from labkit.errors import NotSent
from labkit.explore.journal import Changed
from labkit.explore.lives import Life
from labkit.explore.record import Record
from labkit.explore.sqlworld import SqlRun
from labkit.remote import RemoteService
from labkit.seams import Call, Delivery, Point
from labkit.states import HELD_STATES
from labkit.wire import Remote

Due = Callable[[sqlite3.Connection], float | None]
"""Says from when on a fresh worker would find something to do, in seconds of the clock; None where it never would."""

SAID = "said"
"""What a worker says to have been told by the function that is tried."""


def tasks_due(db: sqlite3.Connection) -> float | None:
    """When the next task can be claimed or taken over."""
    (due,) = db.execute(
        "SELECT min(CASE state WHEN 'queued' THEN iif(cancel_requested, 0, next_run_at) ELSE lease_expires_at END) "
        "FROM tasks WHERE state IN ('queued', 'running', 'uncertain')"
    ).fetchone()
    return None if due is None or math.isinf(due) else float(due)


def outbox_due(db: sqlite3.Connection) -> float | None:
    """When the next message can be delivered."""
    (due,) = db.execute("SELECT min(created_at) FROM outbox WHERE delivered_at IS NULL").fetchone()
    return None if due is None else float(due)


class Surroundings(Protocol):
    """The world as a bench needs it."""

    services: dict[str, RemoteService]

    def called(self, life: Life) -> None:
        """A worker has called a remote."""

    def handed(self, life: Life, message_id: str) -> None:
        """A worker has handed a message to its consumer."""

    def said(self, life: Life, what: str, value: Any) -> None:
        """A worker has said what it believes."""


class Bench:
    """What a worker has at hand beside its connection; dead with it.

    Args:
        life: whose it is.
        world: where it stands.
    """

    def __init__(self, life: Life, world: Surroundings) -> None:
        self._life, self._world, self._learned = life, world, ""
        self.name = life.name
        self.remotes: Mapping[str, Remote] = {
            name: Remote(service, self._deliver, self._answered) for name, service in world.services.items()
        }

    def now(self) -> float:
        """Seconds on this worker's clock."""
        return self._life.now()

    def sleep(self, seconds: float) -> None:
        """Let at least `seconds` pass."""
        self._life.sleep(seconds)

    def publish(self, message_id: str) -> None:
        """Hand a message to its consumer."""
        self._life.cross(Point("before", f"publish {message_id}"))
        self._world.handed(self._life, message_id)

    def publish_in_vain(self, message_id: str) -> None:
        """Hand a message to its consumer, who refuses it.

        Raises:
            NotSent: always.
        """
        self._life.cross(Point("before", f"publish {message_id}  !! refused"))
        raise NotSent("consumer", message_id, "the connection was refused")

    def say(self, what: str, value: Any) -> None:
        """Tell the run's log what this worker believes."""
        self._life.check_alive()
        self._world.said(self._life, what, value)

    def _deliver(self, call: Call) -> Delivery:
        self._life.cross(Point("before", f"{call.action} {call.operation_id}", self._learned))
        return self._life.deliver(call)

    def _answered(self, point: Point) -> None:
        self._learned = point.learned
        self._world.called(self._life)


@dataclass(frozen=True)
class BenchRun(SqlRun):
    """A finished run, for its laws; its log also holds what was said, handed over and applied.

    Args:
        effects: how often each operation id stands in the remotes' ledgers.
        before: those operation ids that stood there from the start.
        records: each task with its history, as laws of the task store want it, by task id.
    """

    effects: Mapping[str, int] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    records: Mapping[str, Record] = field(default_factory=dict)


def acquires(change: Changed) -> bool:
    """Whether a change of a row of `tasks` took the task for whoever made it."""
    if change.after is None or change.after["state"] not in HELD_STATES:
        return False
    was_held = change.before is not None and change.before["state"] in HELD_STATES
    return not was_held or change.becomes("lease_token") or change.becomes("lease_owner")
