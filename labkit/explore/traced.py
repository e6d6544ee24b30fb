"""A student's own connection, traced: a crossing before every statement and every commit, on real SQLite.

Nothing in the student's code changes. The connection has sqlite3's default isolation, so `with db:` is a transaction.
Lock waits are SQLite's own: "busy" on a first write means waiting for another worker to move; "busy" after a read in
the same transaction, or on a snapshot that is too old, is raised at once, as it would be
(https://www.sqlite.org/isolation.html, https://www.sqlite.org/rescode.html#busy_snapshot).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from weakref import WeakSet

from labkit.explore.scheduler import Life
from labkit.seams import Point

T = TypeVar("T")
SHOWN = 60
SIDE_DOORS = ("backup", "blobopen", "deserialize", "iterdump", "load_extension", "enable_load_extension")


class SideDoor(Exception):
    """Code under the explorer used a way to the database that it cannot follow."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not followed by the explorer; use execute, cursor(), commit and rollback")


class TracedCursor(sqlite3.Cursor):
    """A cursor whose statements are crossings."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        if not isinstance(connection, TracedConnection) or not connection.making_cursor:
            raise SideDoor("sqlite3.Cursor(db)")
        super().__init__(connection)
        self._traced = connection

    def execute(self, sql: str, *args: Any) -> TracedCursor:
        """As sqlite3's, with a crossing before the statement."""
        self._traced.statement(sql, lambda: sqlite3.Cursor.execute(self, sql, *args))
        return self

    def executemany(self, sql: str, *args: Any) -> TracedCursor:
        """As sqlite3's, with one crossing before the statement."""
        self._traced.statement(sql, lambda: sqlite3.Cursor.executemany(self, sql, *args))
        return self

    def executescript(self, script: str) -> TracedCursor:
        """As sqlite3's: it commits first, then runs each statement by itself."""
        if self._traced.in_transaction:
            self._traced.commit()
        for sql in _statements(script):
            self._traced.statement(sql, lambda sql=sql: sqlite3.Cursor.executescript(self, sql))
        return self

    def __next__(self) -> Any:
        self._traced.life.check_alive()
        return super().__next__()

    def fetchone(self) -> Any:
        """As sqlite3's."""
        self._traced.life.check_alive()
        return super().fetchone()

    def fetchmany(self, size: int | None = None) -> list[Any]:
        """As sqlite3's."""
        self._traced.life.check_alive()
        return super().fetchmany(self.arraysize if size is None else size)

    def fetchall(self) -> list[Any]:
        """As sqlite3's."""
        self._traced.life.check_alive()
        return super().fetchall()


class TracedConnection(sqlite3.Connection):
    """A connection for one worker's life.

    Made by `connect`; `life` says who crosses, and kills its use once that worker is dead.
    """

    life: Life
    making_cursor = False
    closed = False
    _has_read = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()

    def cursor(self, factory: Any = None) -> Any:
        """As sqlite3's; only its own kind of cursor can be made."""
        self.life.check_alive()
        if factory is not None:
            raise SideDoor("cursor(factory)")
        self.making_cursor = True
        try:
            cursor = super().cursor(TracedCursor)
            self._cursors.add(cursor)
            return cursor
        finally:
            self.making_cursor = False

    def execute(self, sql: str, *args: Any) -> Any:
        """As sqlite3's, with a crossing before the statement."""
        return self.cursor().execute(sql, *args)

    def executemany(self, sql: str, *args: Any) -> Any:
        """As sqlite3's, with one crossing before the statement."""
        return self.cursor().executemany(sql, *args)

    def executescript(self, script: str) -> Any:
        """As sqlite3's."""
        return self.cursor().executescript(script)

    def commit(self) -> None:
        """As sqlite3's, with a crossing before it."""
        self.life.check_alive()
        if self.in_transaction:
            self.statement("COMMIT", super().commit)

    def rollback(self) -> None:
        """As sqlite3's. No crossing: rolling back is what a crash does too."""
        self.life.check_alive()
        super().rollback()
        self._has_read = False

    def __enter__(self) -> TracedConnection:
        self.life.check_alive()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        self.life.check_alive()
        if kind is None:
            self.commit()
        else:
            self.rollback()
        return False

    def close(self) -> None:
        """As sqlite3's: what was not committed is rolled back. The world keeps the connection for the next run."""
        self.life.check_alive()
        super().rollback()
        self.closed = True

    def statement(self, sql: str, run: Callable[[], T]) -> T:
        """Cross, then run one statement; wait where SQLite would wait, raise where it would raise."""
        self.life.cross(Point("before", _shown(sql)))
        if self.closed:
            raise sqlite3.ProgrammingError("Cannot operate on a closed database.")
        while True:
            began_reading = self.in_transaction and self._has_read
            try:
                result = run()
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or _is_snapshot(error) or began_reading or self.life.hub.waited_out(self.life):
                    raise
                self.life.block()
            else:
                self._has_read = self.in_transaction and (self._has_read or _reads(sql))
                return result

    def end_of_life(self) -> None:
        """Roll back and let go of every lock, by the base class: the worker's code has no say in it."""
        for cursor in list(self._cursors):  # an open cursor holds its snapshot, rolled back or not
            sqlite3.Cursor.close(cursor)
        self._cursors.clear()
        sqlite3.Connection.rollback(self)
        self.isolation_level = ""
        self._has_read, self.closed = False, False


def connect(path: Path) -> TracedConnection:
    """Open a traced connection with default isolation; it never waits by itself."""
    db: TracedConnection = sqlite3.connect(path, timeout=0, factory=TracedConnection, check_same_thread=False)
    for pragma in ("synchronous = OFF", "foreign_keys = ON"):
        sqlite3.Cursor.execute(sqlite3.Connection.cursor(db), f"PRAGMA {pragma}")
    return db


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise SideDoor(name)

    return refuse


for _name in SIDE_DOORS:
    if hasattr(sqlite3.Connection, _name):
        setattr(TracedConnection, _name, _refuse(_name))


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _is_snapshot(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode == sqlite3.SQLITE_BUSY_SNAPSHOT


def _reads(sql: str) -> bool:
    return sql.lstrip().upper().startswith(("SELECT", "WITH", "VALUES", "PRAGMA"))


def _shown(sql: str) -> str:
    text = " ".join(sql.split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for part in script.split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement):
            if statement.strip(" \n\t;"):
                yield statement
            statement = ""
