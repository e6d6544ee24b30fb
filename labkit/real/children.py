"""Child processes that are led over pipes: an order is a line of JSON on stdin, an answer one on stdout.

A child ends when its stdin ends, so none outlives its parent, however that one ends. Nobody but our own children is
ever signalled.
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Any, Protocol

from labkit.errors import LabError

START_SECONDS = 60.0
END_SECONDS = 10.0
MOST_SAID = 2_000
KILLED = frozenset({-9, 9})
"""Exit codes of a killed process: minus the signal, or on Windows the code given to TerminateProcess."""
CAN_STOP = hasattr(signal, "SIGSTOP")
"""Whether this system can put a process to sleep without its knowledge."""

Order = dict[str, Any]


class ChildFailed(LabError):
    """A child process did not do what it is there for.

    Fields: `name`; `exit_code`, None where it had to be ended; `said`: the end of what it wrote to stderr.
    """

    def __init__(self, name: str, exit_code: int | None, said: str, what: str) -> None:
        self.name, self.exit_code, self.said = name, exit_code, said
        super().__init__(f"{name} {what}; it said: {said or 'nothing'}")


class Process(Protocol):
    """A running program as its starter sees it, such as a `subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """Its number while it has not been waited for."""

    def kill(self) -> None:
        """End it, unless it has ended."""

    def send_signal(self, sig: int) -> None:
        """Signal it, unless it has ended."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return its exit code."""


Start = Callable[[IO[bytes]], tuple[Process, IO[bytes], IO[bytes]]]
"""Starts a program whose stderr is the given file; returns it with the writing end of its stdin and of its stdout."""


def python(*arguments: str) -> Start:
    """Return how to start `python` with these arguments."""

    def start(errors: IO[bytes]) -> tuple[Process, IO[bytes], IO[bytes]]:
        pipe = subprocess.PIPE
        started = subprocess.Popen([sys.executable, *arguments], stdin=pipe, stdout=pipe, stderr=errors)
        assert started.stdin is not None, "a pipe"
        assert started.stdout is not None, "a pipe"
        return started, started.stdin, started.stdout

    return start


class Child:
    """One child process.

    Args:
        name: for people.
        start: starts it.
    """

    def __init__(self, name: str, start: Start) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        try:
            self._process, self._stdin, self._stdout = start(self._errors)
        except BaseException:
            self._errors.close()
            raise
        self._exit_code: int | None = None
        self._answers: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError, ValueError):  # closed, or cut off in the middle of a line by a kill
            for line in self._stdout:
                self._answers.put(json.loads(line))
        self._answers.put(None)

    def tell(self, order: Order) -> None:
        """Give an order; one to a child that has ended is lost, as `hear` will show."""
        with suppress(OSError, ValueError):
            self._stdin.write(json.dumps(order).encode() + b"\n")
            self._stdin.flush()

    def hear(self, seconds: float) -> Order | None:
        """Wait for the next answer; None once the child has ended.

        Raises:
            ChildFailed: nothing came within `seconds`. The child has been ended.
        """
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise ChildFailed(self.name, None, self.said, f"gave no sign within {seconds:g} s and was ended") from None
        if answer is None:
            self._answers.put(None)
        return answer

    def must_hear(self, seconds: float) -> Order:
        """Wait for the next answer of a child that has no reason to end.

        Raises:
            ChildFailed: it has ended, or nothing came.
        """
        answer = self.hear(seconds)
        if answer is None:
            code = self.wait()
            raise ChildFailed(self.name, code, self.said, f"ended with exit code {code}")
        return answer

    @property
    def said(self) -> str:
        """The end of what it wrote to stderr."""
        if self._errors.closed:
            return self._said
        size = self._errors.seek(0, 2)
        self._errors.seek(max(0, size - MOST_SAID))
        return self._errors.read().decode("utf-8", "replace").strip()

    _said = ""

    def kill(self) -> None:
        """End it from outside, wherever it stands."""
        self._process.kill()

    def stop(self) -> None:
        """Put it to sleep without its knowledge, where the system can; elsewhere it only gets no answer."""
        if CAN_STOP:
            self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Wake it from such a sleep."""
        if CAN_STOP:
            self._process.send_signal(signal.SIGCONT)

    def wait(self) -> int:
        """Wait for the end of a child that is about to end, end it where it is not, and return its exit code."""
        if self._exit_code is None:
            try:
                self._exit_code = self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._exit_code = self._process.wait(END_SECONDS)
        return self._exit_code

    def close(self) -> None:
        """Let it end, at once; nothing of it is left. A repeated call is harmless."""
        if self._errors.closed:
            return
        self._process.kill()
        self.wait()
        self._reader.join(END_SECONDS)
        for pipe in (self._stdin, self._stdout):
            with suppress(OSError):
                pipe.close()
        self._said = self.said
        self._errors.close()


def module(name: str, *arguments: str) -> Sequence[str]:
    """Return the arguments of `python` that run a module of the lab."""
    return ("-m", f"labkit.real.{name}", *arguments)
