"""Worker processes that start in a hundredth of a second: forked from a Python that has loaded everything already.

A long drill starts thousands of processes. Each is still a process of its own, with its own pipes, and dies as any
other does; but its imports were made once, by `python -m labkit.real.warm`, which does nothing else and has one thread.
When that one's own parent goes away it ends whoever is left, those too that are stopped and could not notice. Where a
system cannot fork, each process is a new Python.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO

from labkit.errors import NotSent
from labkit.real.children import END_SECONDS, START_SECONDS, Process, module
from labkit.real.signals import leave_to_the_parent
from labkit.remote import Capabilities

CAN_FORK = hasattr(os, "fork") and hasattr(socket, "send_fds")
_WIDTH = 32
"""Every message has this many bytes, so that none is read in part."""

_POLL_SECONDS = 0.01


class ForkServer:
    """The process that forks workers. Close it when the last one has ended."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            ours.settimeout(START_SECONDS)
            command = [sys.executable, *module("warm")]
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._socket, self._asked = ours, 0

    def start(self, errors: IO[bytes]) -> tuple[Process, IO[bytes], IO[bytes]]:
        """Start a worker process; see `labkit.real.children.Start`."""
        orders, our_orders = os.pipe()
        our_answers, answers = os.pipe()
        try:
            pid = int(self.ask("start", files=[orders, answers, errors.fileno()]))
        except BaseException:
            os.close(our_orders)
            os.close(our_answers)
            raise
        finally:
            os.close(orders)
            os.close(answers)
        return Forked(pid, self.ask), os.fdopen(our_orders, "wb"), os.fdopen(our_answers, "rb")

    def ask(self, *words: object, files: Sequence[int] = ()) -> str:
        """Have something done to a worker process: only its parent can know that its number is still its own."""
        self._asked += 1
        message = _message(self._asked, *words)
        if files:
            socket.send_fds(self._socket, [message], files)
        else:
            self._socket.sendall(message)
        while True:  # an interrupt may have left the answer to an earlier question behind
            number, answer = _received(self._socket.recv(_WIDTH, socket.MSG_WAITALL)).split()
            if int(number) == self._asked:
                return answer

    def close(self) -> None:
        """End it."""
        self._socket.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Forked:
    """A process of a fork server."""

    def __init__(self, pid: int, ask: Callable[..., str]) -> None:
        self.pid, self._ask = pid, ask

    def send_signal(self, sig: int) -> None:
        """Signal it, unless it has ended."""
        self._ask("signal", self.pid, int(sig))

    def kill(self) -> None:
        """End it, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return its exit code."""
        patience = END_SECONDS if timeout is None else timeout
        answer = self._ask("wait", self.pid, patience)
        if answer == "alive":
            raise subprocess.TimeoutExpired(str(self.pid), patience)
        return int(answer)


def _message(*words: object) -> bytes:
    return " ".join(map(str, words)).encode().ljust(_WIDTH)


def _received(message: bytes) -> str:
    if len(message) < _WIDTH:
        raise OSError("the fork server has ended")
    return message.decode().strip()


class _Parent:
    """The fork server's own side: it forks, signals and waits, as told."""

    def __init__(self, told: socket.socket) -> None:
        self._told = told
        self._codes: dict[int, int] = {}
        self._alive: set[int] = set()

    def run(self) -> None:
        while True:
            message, files, _, _ = socket.recv_fds(self._told, _WIDTH, 3)
            if len(message) < _WIDTH:
                self._end_all()
                return
            number, word, *rest = _received(message).split()
            answer: object
            if word == "start":
                answer = self._fork(files)
            elif word == "signal":
                answer = self._signal(*map(int, rest))
            else:
                answer = self._wait(int(rest[0]), float(rest[1]))
            self._told.sendall(_message(number, answer))

    def _end_all(self) -> None:
        for pid in tuple(self._alive):
            self._signal(pid, signal.SIGKILL)

    def _fork(self, files: list[int]) -> int:
        pid = os.fork()
        if pid:
            for file in files:
                os.close(file)
            self._alive.add(pid)
            return pid
        self._told.close()
        for place, file in enumerate(files):
            os.dup2(file, place)
            os.close(file)
        from labkit.real.worker import main

        try:
            main()
        finally:
            os._exit(1)

    def _signal(self, pid: int, sig: int) -> str:
        if pid in self._alive and self._look(pid, os.WNOHANG) is None:  # not waited for, so the number is its own
            os.kill(pid, sig)
        return "done"

    def _wait(self, pid: int, seconds: float) -> object:
        until = time.monotonic() + seconds
        while self._look(pid, os.WNOHANG) is None:
            if time.monotonic() > until:
                return "alive"
            time.sleep(_POLL_SECONDS / 10)
        return self._codes[pid]

    def _look(self, pid: int, how: int) -> int | None:
        if pid in self._alive:
            found, status = os.waitpid(pid, how)
            if found:
                self._alive.discard(pid)
                self._codes[pid] = os.waitstatus_to_exitcode(status)
        return self._codes.get(pid)


def _load() -> None:
    """Load what workers need: most of it only comes with the first call of all, here one to a closed door."""
    import cloudpickle  # noqa: F401 - for the functions of notebooks

    import labkit.real.worker  # noqa: F401
    from labkit.real.client import HttpService

    with socket.socket() as closed, suppress(NotSent):
        closed.bind(("127.0.0.1", 0))
        far = HttpService(f"http://127.0.0.1:{closed.getsockname()[1]}", "nobody", Capabilities())
        try:
            far.query("nothing")
        finally:
            far.close()


def main() -> None:
    """Load, then fork as told until the pipe ends."""
    _load()
    with socket.socket(fileno=os.dup(0)) as told, suppress(ConnectionError):
        _Parent(told).run()


if __name__ == "__main__":
    leave_to_the_parent()
    main()
