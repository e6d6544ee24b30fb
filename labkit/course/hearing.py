"""What one worker has heard of its own sendings, and so knows: only what it cannot know is in doubt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from labkit.errors import ChangeRefused, NotSent, Refused, RemoteError
from labkit.exchange import Receipt
from labkit.records import Attempt, Operation, Status, Task
from labkit.states import HELD_STATES


class NotAllowed(BaseException):
    """A worker did what no law lets it do. It is no `Exception`: no `except` of a program is to hide it.

    Args:
        law: the name of the law that it broke.
        call: what it was about to do, such as `ask task-1`; empty where it was about to end.
        how: what was wrong with that, as the rest of a sentence about the worker.
    """

    def __init__(self, law: str, call: str, how: str) -> None:
        super().__init__(how)
        self.law, self.call = law, call


@dataclass
class Sending:
    """One attempt of this worker, and what it knows of it."""

    attempt: Attempt
    known: str = "has not sent it"
    """Empty where nothing is known: it was sent, and no answer came."""
    applied: bool = False


class Heard:
    """What one worker has heard.

    Args:
        read: reads a task by its id.
    """

    LAW: ClassVar[str] = "records_what_it_knows"

    def __init__(self, read: Callable[[str], Task]) -> None:
        self._read = read
        self._sendings: dict[str, list[Sending]] = {}
        self._stopped: NotAllowed | None = None

    def stop(self, law: str, call: str, how: str) -> NoReturn:
        """Stop the worker: for the arguments see `NotAllowed`."""
        stopped = NotAllowed(law, call, how)
        self._stopped = self._stopped or stopped
        raise stopped

    def intended(self, operation_id: str, attempt: Attempt) -> None:
        """An intent of this worker is on record."""
        self._sendings.setdefault(operation_id, []).append(Sending(attempt))

    def told(self, operation_id: str, answer: Receipt | RemoteError) -> None:
        """The wire has answered to the last sending of an operation, or has not."""
        if not self._sendings.get(operation_id):
            return  # sent under the intent of another worker
        last = self._sendings[operation_id][-1]
        if isinstance(answer, Receipt):
            last.applied, last.known = True, f"has its answer, {answer.reference}"
        elif isinstance(answer, NotSent):
            last.known = "knows that it was not sent"
        elif isinstance(answer, Refused):
            last.known = f"knows that it was refused ({answer.category})"
        else:
            last.known = ""

    def _knows(self, operation: Operation) -> str:
        """What this worker knows of an operation without a result on record; empty where it is in doubt for it too."""
        if operation.status is Status.DONE:
            return ""
        own = {one.attempt.request_id: one for one in self._sendings.get(operation.id, ())}
        applied = next((one.known for one in own.values() if one.applied), "")
        doubtful = [own.get(one.request_id) for one in operation.attempts if one.outcome is None]
        known = [one.known if one is not None else "" for one in doubtful]
        return applied or (known[-1] if known and all(known) else "")

    def not_applied(self, task: Task, operation_id: str) -> bool:
        """Whether this worker knows of all that is open of an operation that it was not applied."""
        operation = next((one for one in task.operations if one.id == operation_id), None)
        answered = any(one.applied for one in self._sendings.get(operation_id, ()))
        return operation is not None and not answered and bool(self._knows(operation))

    def must_doubt(self, call: str, does: str, task_id: str, operation_id: str | None = None) -> None:
        """Stop the worker where it knows what it is about to call doubtful.

        Args:
            call: as in `NotAllowed`.
            does: what the worker does, such as `loses track of`.
            task_id: the task.
            operation_id: the operation; None for any.
        """
        for operation in self._read(task_id).operations:
            known = self._knows(operation) if operation_id in (None, operation.id) else ""
            if known:
                self.stop(self.LAW, call, f"{does} {operation.id}, and {known}")

    @contextmanager
    def to_its_end(self) -> Iterator[None]:
        """Stop a worker that ends, holds its task still, and has not put on record what it knows."""
        try:
            yield
        except (ChangeRefused, RemoteError) as error:
            try:
                self._at_the_end()
            except NotAllowed as stopped:
                raise stopped from error
            raise
        self._at_the_end()

    def _at_the_end(self) -> None:
        if self._stopped is not None:
            raise self._stopped  # whatever the program has made of it
        tokens = {one.attempt.token for sendings in self._sendings.values() for one in sendings}
        for task_id in sorted({name.partition("/")[0] for name in self._sendings}):
            task = self._read(task_id)
            if task.state in HELD_STATES and task.lease_token in tokens:
                self.must_doubt("", "ends and leaves in doubt", task_id)
