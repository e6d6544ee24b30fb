"""Rows of the store as small frozen objects, and the one door from row to object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from labkit.states import Direction, State
from labkit.values import Json, from_json, known


class Outcome(StrEnum):
    """What is known of one attempt. An attempt with none is one nobody knows the end of."""

    APPLIED = "applied"
    NOT_SENT = "not_sent"
    REFUSED = "refused"
    NOT_APPLIED = "not_applied"


class Status(StrEnum):
    """Where one operation stands."""

    PENDING = "pending"
    DONE = "done"
    CANNOT_BE_UNDONE = "cannot_be_undone"


@dataclass(frozen=True)
class PlannedOperation:
    """One logical external write, as planned.

    Args:
        name: short and unique within the task; the operation id becomes `<task id>/<name>`.
        remote: the name of the system that is written to.
        request: the body, as JSON.
        undo_request: the body of the operation that makes up for this one; None where nothing can.
        needs_approval: a person must approve before it is first sent.
    """

    name: str
    remote: str
    request: Json
    undo_request: Json | None = None
    needs_approval: bool = False


@dataclass(frozen=True)
class Attempt:
    """One sending of an operation: its number from 1, its own request id, the token it was sent under."""

    number: int
    request_id: str
    token: int
    sent_at: float
    outcome: Outcome | None


@dataclass(frozen=True)
class Operation:
    """One logical external write of a task; `id` stays the same over every attempt and restart."""

    id: str
    name: str
    position: int
    direction: Direction
    remote: str
    request: Json
    undo_request: Json | None
    needs_approval: bool
    approved_by: str | None
    status: Status
    result_ref: str | None
    result_source: str | None
    attempts: tuple[Attempt, ...] = ()

    @property
    def in_doubt(self) -> bool:
        """Whether an attempt has no known outcome while no result is recorded."""
        return self.status is Status.PENDING and any(attempt.outcome is None for attempt in self.attempts)

    @property
    def standing(self) -> str:
        """`done`, `in doubt`, `pending` or `cannot be undone`, for people."""
        return "in doubt" if self.in_doubt else self.status.replace("_", " ")


@dataclass(frozen=True)
class Task:
    """A task as it was read. Its `version` is what a change that follows from this reading expects.

    Times are seconds of the store's clock. `lease_token` in a row read by anybody is no lease: only `claim`
    and `take_over` hand one out.
    """

    id: str
    kind: str
    state: State
    version: int
    direction: Direction
    step: int
    lease_owner: str | None
    lease_token: int
    lease_expires_at: float | None
    attempts: int
    max_attempts: int
    first_attempt_at: float | None
    max_seconds: float
    next_run_at: float
    awaiting_for: str | None
    awaiting_until: float | None
    error_category: str | None
    cancel_requested: bool
    created_at: float
    operations: tuple[Operation, ...] = ()

    @property
    def current(self) -> tuple[Operation, ...]:
        """The operations of the direction in which the task is going."""
        return tuple(operation for operation in self.operations if operation.direction is self.direction)

    @property
    def next_operation(self) -> Operation | None:
        """The first operation of this direction without a result; None when there is none left."""
        return next((one for one in self.current if one.status is Status.PENDING), None)

    @property
    def in_doubt(self) -> Operation | None:
        """The operation whose outcome nobody knows, if there is one."""
        return next((one for one in self.operations if one.in_doubt), None)


@dataclass(frozen=True)
class Lease:
    """Proof of one acquisition: the fencing token, and the version its holder expects next.

    Every change under a lease returns the next one; an old one is refused by its version.
    """

    task_id: str
    worker: str
    token: int
    version: int
    state: State
    expires_at: float


@dataclass(frozen=True)
class Progress:
    """How far several changes in one commit have carried a task.

    `lease` is None once the task has ended. `operation_id` and `attempt` are what to send now, its intent being on
    record; both are None where there is nothing to send.
    """

    state: State
    lease: Lease | None
    operation_id: str | None
    attempt: Attempt | None


@dataclass(frozen=True)
class Entry:
    """One line of a task's append-only history."""

    seq: int
    task_id: str
    at: float
    event: str
    source: str | None
    target: str
    version: int
    token: int
    worker: str | None
    detail: Json


@dataclass(frozen=True)
class Announcement:
    """What to announce together with a change: a topic and a JSON payload."""

    topic: str
    payload: Json


@dataclass(frozen=True)
class OutboxMessage:
    """A message on its way; `id` is the same on every delivery, so that a consumer can deduplicate."""

    id: str
    task_id: str
    topic: str
    payload: Json
    created_at: float
    deliveries: int
    delivered_at: float | None


@dataclass(frozen=True)
class Message:
    """One line of the transcript. The transcript is not state: nothing is ever decided by it."""

    number: int
    role: str
    content: Json


def task_from_row(row: Sequence[Any], operations: tuple[Operation, ...] = ()) -> Task:
    """Build a `Task` from a row of `tasks`, rejecting a state or direction that does not exist."""
    task_id, kind, state, version, direction, *more, cancel_requested, created_at = row
    head = (task_id, kind, known(State, state), version, known(Direction, direction))
    values = (*head, *more, bool(cancel_requested), created_at, operations)
    return Task(*values)


def operation_from_row(row: Sequence[Any], attempts: tuple[Attempt, ...]) -> Operation:
    """Build an `Operation` from a row of `operations` and its attempts."""
    operation_id, _, name, position, direction, remote, request, undo_request, needs_approval, by, status, *result = row
    undo = None if undo_request is None else from_json(undo_request)
    head = (operation_id, name, position, known(Direction, direction), remote, from_json(request), undo)
    values = (*head, bool(needs_approval), by, known(Status, status), *result, attempts)
    return Operation(*values)


def attempt_from_row(row: Sequence[Any]) -> Attempt:
    """Build an `Attempt` from `n, request_id, token, sent_at, outcome`."""
    *sending, outcome = row
    values = (*sending, None if outcome is None else known(Outcome, outcome))
    return Attempt(*values)
