"""Every error of the lab, named for what its receiver now knows.

    LabError
    ├── ChangeRefused            the store refused a change; every row is as it was
    │   ├── UnknownTask            no task of that id
    │   ├── TaskExists             a task of that id exists, and it is another one
    │   ├── WrongState             the event has no edge from the state found
    │   ├── StaleVersion           the task has changed since it was read
    │   ├── StaleToken             somebody else has acquired the task since
    │   └── ConditionUnmet         state, version and token fit; another condition does not
    ├── StoreError               the file, not the change: SQLite's own errors, by error code
    │   ├── StoreBusy              another writer held the file for longer than the time-out
    │   ├── StoreFull              no room was left on the disk
    │   ├── StoreDiskError         the disk, its quota or the network failed: whether a change is there is not known
    │   ├── StoreReadOnly          the file or its folder may not be written
    │   ├── StoreNotFound          the file cannot be opened or created
    │   ├── StoreMoved             the file was deleted or replaced while it was open
    │   ├── StoreCorrupt           the file is damaged, or is no database
    │   ├── NotALabFile            a database, but of another program or another lab schema
    │   └── StoreClosed            closed, or opened by another process
    ├── RemoteError              a remote call, sorted by what the caller can know
    │   ├── NotSent                nothing reached the remote
    │   ├── OutcomeUnknown         it may have been applied, or may yet be
    │   └── Refused                the remote answered no; it applied nothing
    └── InvalidInput             an argument that cannot be meant (also a ValueError)

    SimulatedCrash (BaseException)   a worker dies here; no `except Exception` survives it

"Failed" is no leaf: after a time-out a caller does not know whether the call failed, and must not say so.
"""

from __future__ import annotations

import copyreg
from typing import Any


class LabError(Exception):
    """Root of the lab's errors: fields first, text second."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process with text and fields, whatever arguments the constructor takes."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ChangeRefused(LabError):
    """The store refused a change of a task and left every row as it was.

    Fields: `event`, `task_id`, what was `expected` and what was `found`.
    """

    def __init__(self, event: str, task_id: str, expected: object, found: object) -> None:
        self.event, self.task_id, self.expected, self.found = event, task_id, expected, found
        super().__init__(f"{event} {task_id} refused: expected {expected}, found {found}")


class UnknownTask(ChangeRefused):
    """There is no task of that id."""


class TaskExists(ChangeRefused):
    """A task of that id exists already and differs from the one to be queued."""


class WrongState(ChangeRefused):
    """The table of transitions has no edge for this event from the state found."""


class StaleVersion(ChangeRefused):
    """The task has changed since the caller read it: read again, then decide again."""


class StaleToken(ChangeRefused):
    """The lease was lost: a newer fencing token exists. Stop; another worker goes on."""


class ConditionUnmet(ChangeRefused):
    """A condition of the edge is not met; `condition` names it as the table of transitions does."""

    def __init__(self, event: str, task_id: str, expected: object, found: object, condition: Any) -> None:
        super().__init__(event, task_id, expected, found)
        self.condition = condition


class StoreError(LabError):
    """SQLite could not do its work. Fields: `path`, `advice` (what to do), `code` (SQLite's error name)."""

    advice = "see the message of SQLite"

    def __init__(self, path: str, found: str, code: str = "") -> None:
        self.path, self.found, self.code = path, found, code
        super().__init__(f"{path}: {found}. What to do: {self.advice}.")


class StoreBusy(StoreError):
    """Another writer held the file for longer than the busy time-out; nothing was changed."""

    advice = "try again; if it stays so, look for a program that keeps a write transaction open"


class StoreFull(StoreError):
    """The disk is full; the transaction was rolled back."""

    advice = "free some space and repeat the call; nothing of it was written"


class StoreDiskError(StoreError):
    """The disk, its quota or the network failed in the middle: whether the change is there is not known."""

    advice = (
        "look at free space, quota and the network folder; open the file again, and read before you repeat the call"
    )


class StoreReadOnly(StoreError):
    """The file or its folder may not be written; nothing was changed."""

    advice = "make the file, -wal and -shm beside it and their folder writable, or choose another place"


class StoreNotFound(StoreError):
    """The file cannot be opened or created."""

    advice = "check that the folder exists and may be read and written"


class StoreMoved(StoreError):
    """The file was deleted or replaced while it was open; nothing more is written to it."""

    advice = "close it and find out who removed it; then open what is at its place now"


class StoreCorrupt(StoreError):
    """The file is damaged, or is no SQLite database."""

    advice = "keep the file, and restore a copy or start with a new one"


class NotALabFile(StoreError):
    """The file is a database, but not of this lab, or of another version of its schema."""

    advice = "choose another file; this one was left as it is"


class StoreClosed(StoreError):
    """The store was closed, or was opened by another process."""

    advice = "open the file again, in this process"


class RemoteError(LabError):
    """A call to a remote gave no result. Fields: `remote`, `operation_id`, `reason`."""

    def __init__(self, remote: str, operation_id: str, reason: str) -> None:
        self.remote, self.operation_id, self.reason = remote, operation_id, reason
        super().__init__(f"{remote}, {operation_id}: {reason}")


class NotSent(RemoteError):
    """Known not sent: the connection was refused, nothing reached the remote."""


class OutcomeUnknown(RemoteError):
    """Sent, and no answer came: it may have been applied, or may be applied yet."""


class Refused(RemoteError):
    """The remote answered no and applied nothing for this sending.

    Args beyond those of `RemoteError`:
        category: `transient`, `permission` or `invalid`.
        status: the HTTP status a real service would give, such as 409.
        retry_after_seconds: the remote's wish, counted from its answer; None where it named none.

    An earlier sending of the same operation may still have been applied.
    """

    def __init__(
        self,
        remote: str,
        operation_id: str,
        reason: str,
        category: str,
        status: int,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(remote, operation_id, reason)
        self.category, self.status, self.retry_after_seconds = category, status, retry_after_seconds


class InvalidInput(LabError, ValueError):
    """An argument that cannot be meant. Fields: `expected`, `found`."""

    def __init__(self, expected: str, found: object) -> None:
        self.expected, self.found = expected, found
        super().__init__(f"expected {expected}, found {found!r}")


class SimulatedCrash(BaseException):
    """A worker dies at a crash point. Not an `Exception`, so that no broad handler outlives it."""
