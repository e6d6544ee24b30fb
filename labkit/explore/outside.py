"""What a worker's code may not use under the explorer, for nobody could follow it there, and how that is noticed.

The explorer runs each worker in a greenlet, as if it were a process of its own. Threads, event loops, another worker's
handles and connections that the code opens by itself would all go on between two crossings, unseen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from labkit.errors import LabError


class Unfollowed(LabError):
    """A worker's code went where the explorer cannot follow; a run in which it does shows nothing."""


class NotItsThread(Unfollowed):
    """A worker's handle was used in a thread, or another kind of task, that the worker has started."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} has started a thread: the explorer runs each worker in one; start no others")


class NotItsOwn(Unfollowed):
    """A worker's handle was used by another worker, which came upon it in memory."""

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(
            f"{name} uses a store, connection or remote that {owner} was given, and has kept outside the function: "
            "each worker is a process of its own; use what the function is given"
        )


class InEventLoop(Unfollowed):
    """A worker's handle was used in an event loop that the worker has started."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} runs its code in an event loop (asyncio): the explorer runs each worker as a plain function, and "
            "decides by itself who goes on; write the steps without async, await and asyncio.run"
        )


class SecondConnection(Unfollowed):
    """A worker reached the run's file by another way than the connection it was given."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(
            f"{name} {what}, which the explorer cannot follow: use the connection or store that the function is given"
        )


def running_loop() -> object | None:
    """The event loop that is running in this thread; None where there is none, or nobody has loaded asyncio."""
    asyncio = sys.modules.get("asyncio")
    return None if asyncio is None else asyncio._get_running_loop()


@contextmanager
def loop_put_aside() -> Iterator[None]:
    """Let code that is called here find no event loop, as in a process of its own: a notebook has one running."""
    loop = running_loop()
    if loop is None:
        yield
        return
    asyncio: Any = sys.modules["asyncio"]
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


class Accused(Protocol):
    """Whose code runs: a life."""

    name: str
    misused: Unfollowed | None


class Runs(Protocol):
    """Who knows whose code runs: the scheduler."""

    current: Any


_UNDER_WAY: list[tuple[Path, Runs]] = []
_OURS: ContextVar[bool] = ContextVar("_OURS", default=False)


@contextmanager
def connections_watched(folder: Path, runs: Runs) -> Iterator[None]:
    """Refuse every connection to a file of a run, whichever thread opens it, except in `ours`."""
    _listen()
    entry = (folder, runs)
    _UNDER_WAY.append(entry)
    try:
        yield
    finally:
        _UNDER_WAY.remove(entry)


@contextmanager
def ours() -> Iterator[None]:
    """Open a connection for the explorer itself."""
    token = _OURS.set(True)
    try:
        yield
    finally:
        _OURS.reset(token)


@cache
def _listen() -> None:
    """An audit hook stays for as long as the process; it hears of every connection, by whatever name it is opened."""
    sys.addaudithook(_heard)


def _heard(event: str, args: tuple[Any, ...]) -> None:
    if event != "sqlite3.connect" or not _UNDER_WAY or _OURS.get():
        return
    for folder, runs in list(_UNDER_WAY):
        if _is_within(args[0], folder):
            life: Accused | None = runs.current
            error = SecondConnection("a worker" if life is None else life.name, "opened a second connection")
            if life is not None:
                life.misused = error
            raise error


def _is_within(database: object, folder: Path) -> bool:
    """Whether a connection leads to a file of a folder, by whatever path, link or URI."""
    with suppress(OSError, TypeError, ValueError):
        name = os.fsdecode(database)  # type: ignore[arg-type]
        paths = [name, unquote(urlsplit(name).path)] if name.startswith("file:") else [name]
        files = [*folder.iterdir()]
        return any(os.path.samefile(path, one) for path in paths if os.path.exists(path) for one in files)
    return False
