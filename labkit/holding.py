"""Changes under a lease: what the worker that holds a task puts on record from one sending to the next."""

from __future__ import annotations

import math
import sqlite3
from typing import Any

from labkit.changes import Change, Changes
from labkit.errors import ChangeRefused, InvalidInput
from labkit.records import Announcement, Attempt, Lease, Outcome, Progress
from labkit.states import HELD_STATES, Event, State
from labkit.values import checked_name, checked_seconds, checked_text

LONGEST_LEASE_SECONDS = 86_400.0
"""A day: of a worker that died nothing but time frees the task."""

_NEXT_STEP = "step = step + 1, attempts = 0, first_attempt_at = NULL, error_category = NULL"
_ATTEMPTS_SO_FAR = "SELECT coalesce(max(n), 0) FROM attempts WHERE operation_id = :operation_id"
_ONE_MORE = "attempts = attempts + 1, first_attempt_at = coalesce(first_attempt_at, :now)"
_WHAT_FOLLOWS = """
SELECT cancel_requested AND direction = 'do', direction = 'undo',
       (SELECT operation_id FROM next_operation WHERE task_id = :id)
FROM tasks WHERE id = :id"""
_INTEND = """
INSERT INTO attempts (operation_id, n, request_id, token, sent_at)
VALUES (:operation_id, :number, :request_id, :token, :now)"""
LAST_OUTCOME = """
UPDATE attempts SET outcome = :outcome
WHERE operation_id = (SELECT operation_id FROM operations WHERE operation_id = :operation_id AND task_id = :id)
  AND n = (SELECT max(n) FROM attempts WHERE operation_id = :operation_id) AND outcome IS NULL AND token = :token"""
RECORD_RESULT = """
UPDATE operations SET status = 'done', result_ref = :reference, result_source = :source
WHERE operation_id = :operation_id"""
NONE_APPLIED = "UPDATE attempts SET outcome = 'not_applied' WHERE operation_id = :operation_id AND outcome IS NULL"


class HoldingChanges(Changes):
    """What a worker does. Losing a lease shows as `StaleToken`: stop, somebody else goes on."""

    def renew(self, lease: Lease, lease_seconds: float = 30.0) -> Lease:
        """Hold a task for `lease_seconds` from now on, unless the lease has run out already; never for less."""
        sets = "lease_expires_at = max(lease_expires_at, :now + :lease_seconds)"
        with self._change(Event.RENEW, lease, sets, lease_seconds=checked_lease_seconds(lease_seconds)) as change:
            pass
        return change.lease(lease.worker)

    def intend(
        self,
        lease: Lease,
        operation_id: str,
        request_id: str | None = None,
        key_memory_seconds: float | None = None,
        last_outcome: Outcome | None = None,
    ) -> tuple[Lease, Attempt]:
        """Put on record that an operation is about to be sent; only then send it.

        Args:
            lease: from `running`, begins the next operation. From `uncertain`, sends the one in doubt again.
            operation_id: the operation; under its id as the idempotency key when it is sent again.
            request_id: names this sending; by default `<operation id>#<attempt>`.
            key_memory_seconds: how long the remote is believed to remember a key; needed to send again.
            last_outcome: `not_sent` or `refused`, if that was learned of this holder's sending before this one.

        Returns:
            The lease, and the attempt with its request id.
        """
        params: dict[str, Any] = {
            "operation_id": operation_id,
            "key_memory": None,
        }
        if request_id is not None:
            checked_name("request_id", request_id)
        if key_memory_seconds is not None:
            params["key_memory"] = checked_seconds("key_memory_seconds", key_memory_seconds, most=math.inf)
        if last_outcome is not None:
            params["outcome"] = known_not_applied(last_outcome)
        first = LAST_OUTCOME if last_outcome is not None else ""
        with self._change(Event.INTEND, lease, _ONE_MORE, first, **params) as change:
            attempt = _sending(change, request_id)
        return change.lease(lease.worker), attempt

    def checkpoint(
        self,
        lease: Lease,
        operation_id: str,
        reference: str,
        announce: Announcement | None = None,
    ) -> Lease:
        """Record an operation's result, the step and the version in one transaction.

        Args:
            lease: of a `running` task.
            operation_id: the operation whose answer is at hand.
            reference: the remote's own reference for the effect.
            announce: a message to the outbox, in the same transaction.
        """
        with self._db.write() as db:
            change = self._checkpoint(db, lease, operation_id, reference, announce)
        self._cross(change)
        return change.lease(lease.worker)

    def advance(
        self, lease: Lease, operation_id: str, reference: str, announce: Announcement | None = None
    ) -> Progress:
        """Checkpoint, and in the same commit whatever follows at once: the next operation's intent, or the end.

        Fewer commits, and no promise less: an intent is still committed before its sending, and a result after it.
        Arguments and errors are those of `checkpoint`.

        Returns:
            How far the task has come. An intent that is refused, as after a cancel, leaves the checkpoint as it is:
            then there is no attempt, and `intend` says why.
        """
        with self._db.write() as db:
            done = self._checkpoint(db, lease, operation_id, reference, announce)
            follows = self._follow(done, lease.worker)
        return self._crossed(lease.worker, done, follows)

    def _checkpoint(
        self, db: sqlite3.Connection, lease: Lease, operation_id: str, reference: str, announce: Announcement | None
    ) -> Change:
        params = {
            "operation_id": operation_id,
            "reference": checked_text("reference", reference),
            "source": "response",
            "outcome": "applied",
        }
        change = self._update(db, Event.CHECKPOINT, self._params(lease) | params, _NEXT_STEP)
        change.run(LAST_OUTCOME)
        change.run(RECORD_RESULT)
        change.announce(announce)
        change.detail = {"reference": reference}
        change.learned = "result on record"
        self._record(change)
        return change

    def _follow(self, change: Change, worker: str) -> Change | None:
        """Make the change that needs nothing from outside after this one, if there is one, in its transaction."""
        stopping, undoing, operation_id = change.run(_WHAT_FOLLOWS)[0]
        if stopping or change.state is not State.RUNNING:
            return None
        event, sets, params = Event.INTEND, _ONE_MORE, {"operation_id": operation_id, "key_memory": None}
        if operation_id is None:
            event, sets, params = Event.COMPENSATED if undoing else Event.SUCCEED, "", {}
        try:
            follows = self._update(change.db, event, self._params(change.lease(worker)) | params, sets)
        except ChangeRefused:  # it wants an approval, say; the change before stands
            return None
        if operation_id is not None:
            follows.attempt = _sending(follows, None)
        self._record(follows)
        return follows

    def _crossed(self, worker: str, first: Change, follows: Change | None) -> Progress:
        last = follows or first
        self._cross(*filter(None, (first, follows)))
        sending = None if last.attempt is None else last.subject
        return Progress(last.state, last.lease(worker) if last.state in HELD_STATES else None, sending, last.attempt)

    def lose_track(self, lease: Lease, operation_id: str) -> Lease:
        """Put on record that no answer came: the operation is in doubt. The holder keeps its lease."""
        sets = "error_category = 'unconfirmed'"
        with self._change(Event.LOSE_TRACK, lease, sets, operation_id=operation_id) as change:
            change.learned = "outcome unknown"
        return change.lease(lease.worker)


def checked_lease_seconds(value: float) -> float:
    """Return `value` if a lease may last so long: from 0 to a day."""
    return checked_seconds("lease_seconds", value, most=LONGEST_LEASE_SECONDS)


def _sending(change: Change, request_id: str | None) -> Attempt:
    """Write the row of the attempt whose intent this change is."""
    number = change.run(_ATTEMPTS_SO_FAR)[0][0] + 1
    request = request_id or f"{change.subject}#{number}"
    change.run(_INTEND, number=number, request_id=request)
    change.detail = {"request_id": request}
    change.learned = f"about to send, attempt {number}"
    return Attempt(number, request, change.token, change.params["now"], None)


def known_not_applied(outcome: Outcome) -> Outcome:
    """Return `outcome` if it can be learned from one sending: `not_sent` or `refused`."""
    if outcome not in (Outcome.NOT_SENT, Outcome.REFUSED):
        raise InvalidInput("outcome: not_sent or refused", outcome)
    return outcome
