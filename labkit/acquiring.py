"""Changes by which a worker comes to hold a task: a claim, or a take-over of what its holder has let expire."""

from __future__ import annotations

import sqlite3
from typing import Any

from labkit.changes import Change, as_read
from labkit.holding import HoldingChanges, checked_lease_seconds
from labkit.records import Lease, Progress, Task
from labkit.states import Event
from labkit.values import checked_name

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


class AcquiringChanges(HoldingChanges):
    """Each acquisition gets a fencing token that is larger than all before it; the row count says who has it."""

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

    def _acquire(self, event: Event, task: Task, worker: str, lease_seconds: float) -> Lease:
        with self._change(event, as_read(task), _ACQUIRE, **_acquiring(worker, lease_seconds)) as change:
            pass
        return change.lease(worker)

    def begin(self, task: Task, worker: str, lease_seconds: float = 30.0) -> Progress:
        """Claim a queued task and, in the same commit, put its next operation's intent on record; see `advance`.

        Arguments and errors are those of `claim`. The sending follows, and one commit stands before it, not two.
        """
        params = self._params(as_read(task)) | _acquiring(worker, lease_seconds)
        with self._db.write() as db:
            claimed = self._update(db, Event.CLAIM, params, _ACQUIRE)
            self._record(claimed)
            follows = self._follow(claimed, worker)
        return self._crossed(worker, claimed, follows)

    def claim_next(self, worker: str, lease_seconds: float = 30.0) -> Lease | None:
        """Claim the task that has been due longest, or else take over the one whose lease ran out first.

        Returns:
            The lease, or None where there is nothing to do now.
        """
        params = _acquiring(worker, lease_seconds) | self._params("")
        if self._nothing_to_do(params):
            return None
        with self._db.write() as db:
            change = self._acquire_next(db, params)
            if change is None:
                return None
        self._cross(change)
        return change.lease(worker)

    def begin_next(self, worker: str, lease_seconds: float = 30.0) -> Progress | None:
        """Do what `claim_next` does and, in the same commit, what `begin` does; None where there is nothing to do."""
        params = _acquiring(worker, lease_seconds) | self._params("")
        if self._nothing_to_do(params):
            return None
        with self._db.write() as db:
            acquired = self._acquire_next(db, params)
            if acquired is None:
                return None
            follows = self._follow(acquired, worker)
        return self._crossed(worker, acquired, follows)

    def _nothing_to_do(self, params: dict[str, Any]) -> bool:
        """Look without the write lock: whoever finds nothing disturbs nobody."""
        with self._db.read() as db:
            return all(db.execute(query, params).fetchone() is None for query in _CANDIDATES.values())

    def _acquire_next(self, db: sqlite3.Connection, params: dict[str, Any]) -> Change | None:
        for event, query in _CANDIDATES.items():
            row = db.execute(query, params).fetchone()
            if row is not None:
                params["id"], params["version"] = row
                change = self._update(db, event, params, _ACQUIRE)
                self._record(change)
                return change
        return None


def _acquiring(worker: str, lease_seconds: float) -> dict[str, Any]:
    return {"worker": checked_name("worker", worker), "lease_seconds": checked_lease_seconds(lease_seconds)}
