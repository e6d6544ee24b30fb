"""Changes that end a doubt or a task's plan: evidence, a person's answer, cancelling and compensating."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from labkit.changes import Changes, as_read
from labkit.errors import InvalidInput
from labkit.holding import LAST_OUTCOME, NONE_APPLIED, RECORD_RESULT, known_not_applied
from labkit.records import Announcement, Lease, Outcome, Task
from labkit.states import Event, State
from labkit.values import checked_name, checked_text, known


class Answer(StrEnum):
    """What a person can say: of an operation in doubt the first two, of an approval the last two."""

    APPLIED = "applied"
    NOT_APPLIED = "not_applied"
    APPROVED = "approved"
    DECLINED = "declined"


_SETTLE = """step = step + :applied,
    attempts = iif(:applied, 0, attempts), first_attempt_at = iif(:applied, NULL, first_attempt_at),
    error_category = iif(:applied, NULL, error_category)"""
_ANSWER = "step = step + :applied, attempts = 0, first_attempt_at = NULL, error_category = NULL, next_run_at = :now"
_APPROVE = """
UPDATE operations SET approved_by = :who
WHERE operation_id = (SELECT operation_id FROM next_operation WHERE task_id = :id)"""
_COMPENSATE = """direction = 'undo', cancel_requested = 0, next_run_at = :now,
    attempts = 0, first_attempt_at = NULL, error_category = NULL,
    step = (SELECT count(*) FROM operations
            WHERE task_id = tasks.id AND direction = 'undo' AND status <> 'pending')"""
_PLAN_UNDO = """
INSERT INTO operations (operation_id, task_id, name, position, direction, remote, request, status)
SELECT operation_id || '/undo', task_id, 'undo ' || name, row_number() OVER (ORDER BY position DESC) - 1, 'undo',
       remote, coalesce(undo_request, '{}'), iif(undo_request IS NULL, 'cannot_be_undone', 'pending')
FROM operations WHERE task_id = :id AND direction = 'do' AND status = 'done'
ON CONFLICT (operation_id) DO NOTHING"""


class DecidingChanges(Changes):
    """What evidence and people do. The store records what they say; it cannot know whether it is true."""

    def settle(
        self,
        held: Lease | Task,
        operation_id: str,
        applied: bool,
        source: str,
        reference: str | None = None,
        announce: Announcement | None = None,
        last_outcome: Outcome | None = None,
    ) -> State:
        """Record what became of the operation in doubt.

        Args:
            held: the lease of an `uncertain` task; or the task as read where it awaits an answer, for the remote's
                own record found late.
            operation_id: the operation in doubt.
            applied: whether it was; "not applied" closes every open attempt.
            source: where the evidence comes from, such as `status query` or `key`; kept beside the result.
            reference: the remote's own reference; needed where it was applied.
            announce: a message to the outbox, in the same transaction.
            last_outcome: `not_sent` or `refused`, if that was learned of this holder's last sending.

        Returns:
            `queued`, `cancelled` where that was requested, or `awaiting_confirmation` as before.
        """
        if not isinstance(applied, bool):
            raise InvalidInput("applied: True or False", applied)
        params: dict[str, Any] = {
            "operation_id": operation_id,
            "applied": applied,
            "source": checked_text("source", source),
            "reference": checked_text("reference", reference),
        }
        if last_outcome is not None:
            params["outcome"] = known_not_applied(last_outcome)
        first = LAST_OUTCOME if last_outcome is not None else ""
        with self._change(Event.SETTLE, held, _SETTLE, first, **params) as change:
            change.run(RECORD_RESULT if applied else NONE_APPLIED)
            change.announce(announce)
            change.detail = {"applied": applied, "source": source, "reference": reference}
            change.learned = f"{'applied' if applied else 'not applied'} ({source})"
        return change.state

    def answer(self, task: Task, answer: Answer, who: str, reference: str | None = None) -> State:
        """Record what a person says, and let the task go on or end.

        Args:
            task: as it was read; a version that has moved on since refuses the answer.
            answer: `applied` or `not_applied` for a doubt; `approved` or `declined` where nothing is in doubt.
            who: the person, on record with the time.
            reference: for `applied`, the remote's reference where the person knows it.

        Returns:
            `queued`, or `cancelled` where declined or where a cancel was requested.
        """
        doubt, answer = as_read(task).in_doubt, known(Answer, answer)
        params: dict[str, Any] = {
            "answer": answer,
            "who": checked_name("who", who),
            "operation_id": doubt.id if doubt else None,
            "applied": answer is Answer.APPLIED,
            "source": f"person: {who}",
            "reference": checked_text("reference", reference) or f"said by {who}",
        }
        with self._change(Event.ANSWER, task, _ANSWER, **params) as change:
            if answer is Answer.APPLIED:
                change.run(RECORD_RESULT)
            elif answer is Answer.NOT_APPLIED:
                change.run(NONE_APPLIED)
            elif answer is Answer.APPROVED and task.awaiting_for == "approval":
                change.run(_APPROVE)
            change.detail = {"answer": answer, "who": who}
        return change.state

    def expire(self, task: Task, announce: Announcement | None = None) -> State:
        """Fail a task whose approval did not come in time. A doubt never expires: see `TaskStore.overdue`."""
        with self._change(Event.EXPIRE, task, "error_category = 'permission'") as change:
            change.announce(announce)
        return change.state

    def request_cancel(self, task_id: str, who: str) -> None:
        """Ask for a task to be stopped: no new operation begins; nothing is reversed. Repeating it is harmless."""
        who = checked_name("who", who)
        with self._change(Event.REQUEST_CANCEL, task_id, "cancel_requested = 1") as change:
            change.detail = {"who": who}

    def cancel(self, held: Lease | Task, announce: Announcement | None = None) -> State:
        """End a task whose cancelling was requested. What is done stays done: see `compensate`.

        Args:
            held: the lease of a `running` task; or the task as read where nobody holds it.
            announce: a message to the outbox, in the same transaction.
        """
        with self._change(Event.CANCEL, held) as change:
            change.announce(announce)
        return change.state

    def compensate(self, task: Task, who: str) -> State:
        """Plan operations that make up for the done ones, last done first, and queue the task to carry them out.

        Each undo has an operation id, and so a key, of its own: `<operation id>/undo`. What cannot be undone goes on
        record as such. After a failed compensation a second call goes on with what is left.
        """
        who = checked_name("who", who)
        with self._change(Event.COMPENSATE, task, _COMPENSATE, _PLAN_UNDO) as change:
            change.detail = {"who": who}
        return change.state
