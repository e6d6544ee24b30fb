"""The ways to a database that the explorer cannot follow, and those that leave something behind."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from labkit.explore.outside import Unfollowed

SIDE_DOORS = (
    *("backup", "blobopen", "serialize", "deserialize", "iterdump"),
    *("load_extension", "enable_load_extension", "set_trace_callback"),
)
ADDITIONS = (
    *("create_function", "create_aggregate", "create_window_function", "create_collation"),
    *("set_authorizer", "set_progress_handler", "setlimit", "setconfig"),
)

C = TypeVar("C", bound=type[sqlite3.Connection])


class SideDoor(Unfollowed):
    """Code under the explorer used a way to the database that it cannot follow."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not followed by the explorer; use execute, cursor(), commit and rollback")


def guarded(kind: C) -> C:
    """Let a kind of connection refuse side doors, and mark itself as `changed` by additions that cannot be undone."""
    for names, made in ((SIDE_DOORS, _refuse), (ADDITIONS, _marked)):
        for name in names:
            if hasattr(sqlite3.Connection, name):  # some came with later versions of Python
                setattr(kind, name, made(name))
    return kind


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise SideDoor(name)

    return refuse


def _marked(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **more: Any) -> Any:
        self.check_usable()
        self.changed = True
        return getattr(sqlite3.Connection, name)(self, *args, **more)

    return method
