"""Changes with which a worker lets go of the task that it holds: for a while, to a person, or for good."""

from __future__ import annotations

from typing import Any

from labkit.changes import Changes
from labkit.errors import InvalidInput
from labkit.holding import LAST_OUTCOME, known_not_applied
from labkit.records import Announcement, Lease, Outcome
from labkit.retries import Category
from labkit.states import Event, State
from labkit.values import checked_seconds, checked_text, known

_LAST_OUTCOME_IN_DOUBT = LAST_OUTCOME.replace(
    ":operation_id", "(SELECT operation_id FROM in_doubt WHERE task_id = :id)"
)


class ReleasingChanges(Changes):
    """Each ends the lease, and with it what its holder may do."""

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
        with self._change(Event.RETRY_LATER, lease, sets, LAST_OUTCOME, **params) as change:
            change.detail = {"next_run_at": next_run_at, "outcome": outcome}
            change.learned = f"again at {next_run_at:g}"
        return change.state

    def ask(
        self,
        lease: Lease,
        reason: str,
        answer_within_seconds: float,
        announce: Announcement | None = None,
        last_outcome: Outcome | None = None,
    ) -> State:
        """Hand the task to a person: about an operation in doubt, or for an approval that the next step wants.

        Args:
            lease: of an `uncertain` task (a doubt) or of a `running` one (an approval).
            reason: why a person must say; kept in the history.
            answer_within_seconds: until the approval expires, or the doubt counts as overdue.
            announce: a message to the outbox, in the same transaction.
            last_outcome: `not_sent` or `refused`, if that was learned of this holder's last sending.
        """
        within = checked_seconds("answer_within_seconds", answer_within_seconds)
        sets = (
            "awaiting_for = CASE state WHEN 'uncertain' THEN 'doubt' ELSE 'approval' END, "
            "awaiting_until = :now + :within"
        )
        params: dict[str, Any] = {"reason": checked_text("reason", reason), "within": within}
        if last_outcome is not None:
            params["outcome"] = known_not_applied(last_outcome)
        first = _LAST_OUTCOME_IN_DOUBT if last_outcome is not None else ""
        with self._change(Event.ASK, lease, sets, first, **params) as change:
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
        first = LAST_OUTCOME if outcome is not None else ""
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
    return {"operation_id": operation_id, "outcome": known_not_applied(outcome)}
