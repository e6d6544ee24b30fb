"""Rows that the exercises on plain SQL begin with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from labkit.states import State

TASK, OTHER = "task-1", "task-2"
QUEUED = "INSERT INTO tasks (id, kind, version, lease_token) VALUES (?, 'refund', ?, 6)"
"""It has been held before, under tokens up to 6: more than its version, so neither that nor 1 is a new token."""

RUNNING = (
    "INSERT INTO tasks (id, kind, state, version, lease_owner, lease_token, lease_expires_at) "
    "VALUES (?, 'refund', 'running', ?, 'worker-0', 1, 30)"
)
STANDING = (
    "INSERT INTO tasks (id, kind, state, version, lease_owner, lease_token, lease_expires_at, awaiting_for) "
    "VALUES ('task-' || :state, 'refund', :state, 2, iif(:state IN ('running', 'uncertain'), 'worker-0', NULL), 1, "
    "iif(:state IN ('running', 'uncertain'), 30, NULL), "
    "iif(:state = 'awaiting_confirmation', 'approval', NULL))"
)


def in_state(db: Any, states: Iterable[State]) -> None:
    """Put down a task in each state, named after it, at version 2; its last token was 1."""
    db.executemany(STANDING, [{"state": str(state)} for state in states])


def put_down(sql: str, rows: Iterable[tuple[Any, ...]], states: Iterable[State], db: Any) -> None:
    """Put down rows by a statement of this module, and a task in each state."""
    db.executemany(sql, rows)
    in_state(db, states)


def all_but(state: State) -> tuple[State, ...]:
    """Every state but one."""
    return tuple(one for one in State if one is not state)


def named_after(state: State) -> str:
    """The id of the task that `in_state` has put down."""
    return f"{TASK.partition('-')[0]}-{state}"
