"""Changes by a worker: acquiring a task, and everything that is done under its lease."""

from __future__ import annotations

import math
from typing import Any

from labkit.changes import Changes
from labkit.errors import InvalidInput
from labkit.records import Announcement, Attempt, Lease, Outcome, Task, checked_name, checked_seconds, known
from labkit.retries import Category
from labkit.states import Event, State

LONGEST_LEASE_SECONDS = 86_400.0
"""A day: of a worker that died nothing but time frees the task."""

_ACQUIRE = "lease_owner = :worker, lease_token = lease_token + 1, lease_expires_at = :now + :lease_seconds"
_CANDIDATES = {
    Event.CLAIM: """
SELECT id, version FROM tasks
WHERE state = 'queued' AND NOT (cancel_requested AND direction = 'do') AND next_run_at <= :now
ORDER BY next_run_at, id LIMIT 1""",
    Event.TAKE_OVER: """
SELECT id, version FROM tasks
WHERE state IN ('running', 'uncertain') AND lease_expires_at <= :now
ORDER BY lease_expires_at, id LIMIT 1""",
}
_NEXT_STEP = "step = step + 1, attempts = 0, first_attempt_at = NULL, error_category = NULL"
_ATTEMPTS_SO_FAR = "SELECT coalesce(max(n), 0) FROM attempts WHERE operation_id = :operation_id"
_INTEND = """
INSERT INTO attempts (operation_id, n, request_id, token, sent_at)
VALUES (:operation_id, :number, :request_id, :token, :now)"""
_LAST_OUTCOME = """
UPDATE attempts SET outcome = :outcome
WHERE operation_id = (SELECT operation_id FROM operations WHERE operation_id = :operation_id AND task_id = :id)
  AND n = (SELECT max(n) FROM attempts WHERE operation_id = :operation_id) AND outcome IS NULL AND token = :token"""
RECORD_RESULT = """
UPDATE operations SET status = 'done', result_ref = :reference, result_source = :source
WHERE operation_id = :operation_id"""
NONE_APPLIED = "UPDATE attempts SET outcome = 'not_applied' WHERE operation_id = :operation_id AND outcome IS NULL"


class HoldingChanges(Changes):
    """What a worker does. Losing a lease shows as `StaleToken`: stop, somebody else goes on."""

    def claim(self, task: Task, worker: str, lease_seconds: float = 30.0) -> Lease:
        """Take a queued task: of all workers that read this version, one succeeds.

        Args:
            task: as it was read; its version is the expected one.
            worker: a name for people; it is never compared.
            lease_seconds: from now until others may take the task over; a day at the most.

        Returns:
            The lease, with a new and larger fencing token.

        Raises:
            ChangeRefused: somebody was faster, it is not due, a cancel is requested, or it is not queued.
        """
        return self._acquire(Event.CLAIM, task, worker, lease_seconds)

    def take_over(self, task: Task, worker: str, lease_seconds: float = 30.0) -> Lease:
        """Take a task whose lease has run out; with an operation in doubt it comes as `uncertain`.

        Arguments, result and errors are those of `claim`. Its old holder may be alive: the new token shuts it out
        of our rows, but not out of a remote that it is just about to call.
        """
        return self._acquire(Event.TAKE_OVER, task, worker, lease_seconds)

    def claim_next(self, worker: str, lease_seconds: float = 30.0) -> Lease | None:
        """Claim the task that has been due longest, or else take over the one whose lease ran out first.

        Returns:
            The lease, or None where there is nothing to do now.
        """
        params = self._acquiring(worker, lease_seconds) | self._params("")
        with self._db.read() as db:
            if all(db.execute(query, params).fetchone() is None for query in _CANDIDATES.values()):
                return None
        with self._db.write() as db:
            for event, query in _CANDIDATES.items():
                row = db.execute(query, params).fetchone()
                if row is not None:
                    params["id"], params["version"] = row
                    change = self._update(db, event, params, _ACQUIRE)
                    self._record(change, event)
                    break
            else:
                return None
        self._cross(event, change)
        return change.lease(worker)

    def _acquire(self, event: Event, task: Task, worker: str, lease_seconds: float) -> Lease:
        with self._change(event, task, _ACQUIRE, **self._acquiring(worker, lease_seconds)) as change:
            pass
        return change.lease(worker)

    def _acquiring(self, worker: str, lease_seconds: float) -> dict[str, Any]:
        seconds = checked_seconds("lease_seconds", lease_seconds, most=LONGEST_LEASE_SECONDS)
        return {"worker": checked_name("worker", worker), "lease_seconds": seconds}

    def renew(self, lease: Lease, lease_seconds: float = 30.0) -> Lease:
        """Hold a task for `lease_seconds` from now on, unless the lease has run out already; never for less."""
        sets = "lease_expires_at = max(lease_expires_at, :now + :lease_seconds)"
        seconds = checked_seconds("lease_seconds", lease_seconds, most=LONGEST_LEASE_SECONDS)
        with self._change(Event.RENEW, lease, sets, lease_seconds=seconds) as change:
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
            params |= _not_applied(operation_id, last_outcome)
        sets = "attempts = attempts + 1, first_attempt_at = coalesce(first_attempt_at, :now)"
        first = _LAST_OUTCOME if last_outcome is not None else ""
        with self._change(Event.INTEND, lease, sets, first, **params) as change:
            number = change.run(_ATTEMPTS_SO_FAR)[0][0] + 1
            request = request_id or f"{operation_id}#{number}"
            change.run(_INTEND, number=number, request_id=request)
            change.detail = {"request_id": request}
            change.learned = f"about to send, attempt {number}"
        return change.lease(lease.worker), Attempt(number, request, change.token, change.params["now"], None)

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
        params = {"operation_id": operation_id, "reference": reference, "source": "response", "outcome": "applied"}
        with self._change(Event.CHECKPOINT, lease, _NEXT_STEP, **params) as change:
            change.run(_LAST_OUTCOME)
            change.run(RECORD_RESULT)
            change.announce(announce)
            change.detail = {"reference": reference}
            change.learned = "result on record"
        return change.lease(lease.worker)

    def retry_later(
        self, lease: Lease, operation_id: str, outcome: Outcome, category: Category, next_run_at: float
    ) -> State:
        """Let the task go until `next_run_at`, after a sending that is known not to have been applied.

        Args:
            lease: of a `running` task.
            operation_id: the operation that was sent.
            outcome: `not_sent` or `refused`.
            category: must be `transient`.
            next_run_at: seconds of the store's clock; nobody claims the task before.
        """
        params = _not_applied(operation_id, outcome) | {
            "category": known(Category, category),
            "earliest": checked_seconds("next_run_at", next_run_at, float("-inf")),
        }
        sets = "next_run_at = :earliest, error_category = :category"
        with self._change(Event.RETRY_LATER, lease, sets, _LAST_OUTCOME, **params) as change:
            change.detail = {"next_run_at": next_run_at, "outcome": outcome}
            change.learned = f"again at {next_run_at:g}"
        return change.state

    def lose_track(self, lease: Lease, operation_id: str) -> Lease:
        """Put on record that no answer came: the operation is in doubt. The holder keeps its lease."""
        sets = "error_category = 'unconfirmed'"
        with self._change(Event.LOSE_TRACK, lease, sets, operation_id=operation_id) as change:
            change.learned = "outcome unknown"
        return change.lease(lease.worker)

    def ask(
        self, lease: Lease, reason: str, answer_within_seconds: float, announce: Announcement | None = None
    ) -> State:
        """Hand the task to a person: about an operation in doubt, or for an approval that the next step wants.

        Args:
            lease: of an `uncertain` task (a doubt) or of a `running` one (an approval).
            reason: why a person must say; kept in the history.
            answer_within_seconds: until the approval expires, or the doubt counts as overdue.
            announce: a message to the outbox, in the same transaction.
        """
        within = checked_seconds("answer_within_seconds", answer_within_seconds)
        sets = (
            "awaiting_for = CASE state WHEN 'uncertain' THEN 'doubt' ELSE 'approval' END, "
            "awaiting_until = :now + :within"
        )
        with self._change(Event.ASK, lease, sets, reason=reason, within=within) as change:
            change.announce(announce)
            change.detail = {"reason": reason}
            change.learned = "a person must say"
        return change.state

    def succeed(self, lease: Lease, announce: Announcement | None = None) -> State:
        """End a task all of whose operations have a result."""
        with self._change(Event.SUCCEED, lease) as change:
            change.announce(announce)
        return change.state

    def fail(
        self,
        lease: Lease,
        category: Category,
        operation_id: str | None = None,
        outcome: Outcome | None = None,
        earliest_retry_at: float | None = None,
        announce: Announcement | None = None,
    ) -> State:
        """End a task that cannot succeed: for good (`permission`, `invalid`), or because its budget is spent.

        Args:
            lease: of a `running` task with nothing in doubt.
            category: of the last error.
            operation_id: the operation that was sent last, with
            outcome: what is known of that sending: `not_sent` or `refused`.
            earliest_retry_at: when it could be tried again; beyond the budget of time it counts as spent.
            announce: a message to the outbox, in the same transaction.
        """
        params: dict[str, Any] = {"category": known(Category, category), "operation_id": operation_id}
        if outcome is not None:
            params |= _not_applied(operation_id, outcome)
        if earliest_retry_at is not None:
            params["earliest"] = checked_seconds("earliest_retry_at", earliest_retry_at, float("-inf"))
        first = _LAST_OUTCOME if outcome is not None else ""
        with self._change(Event.FAIL, lease, "error_category = :category", first, **params) as change:
            change.announce(announce)
            change.detail = {"category": category}
        return change.state

    def compensated(self, lease: Lease, announce: Announcement | None = None) -> State:
        """End a task that has made up for everything that can be made up for."""
        with self._change(Event.COMPENSATED, lease) as change:
            change.announce(announce)
        return change.state


def _not_applied(operation_id: str | None, outcome: Outcome) -> dict[str, Any]:
    if operation_id is None:
        raise InvalidInput("the operation that the outcome is of", operation_id)
    if outcome not in (Outcome.NOT_SENT, Outcome.REFUSED):
        raise InvalidInput("outcome: not_sent or refused", outcome)
    return {"operation_id": operation_id, "outcome": outcome}
