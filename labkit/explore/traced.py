"""A student's own connection, traced: a crossing before every statement and every commit, on real SQLite.

Nothing in the student's code changes. The connection has sqlite3's default isolation, so `with db:` is a transaction.
Lock waits are SQLite's own: "busy" on a first write means waiting for another worker to move; "busy" after a read in
the same transaction, or on a snapshot that is too old, is raised at once, as it would be
(https://www.sqlite.org/isolation.html, https://www.sqlite.org/rescode.html#busy_snapshot).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

from labkit.database import BUSY_TIMEOUT_SECONDS
from labkit.explore.cursors import TracedCursor
from labkit.explore.doors import SideDoor, guarded
from labkit.explore.lives import Life
from labkit.explore.outside import ours
from labkit.explore.sqltext import DML, first_word, leaves_traces, pragma, reads, shown, side_door
from labkit.seams import Point

T = TypeVar("T")
_DEFAULTS: dict[str, Any] = {"isolation_level": "", "row_factory": None, "text_factory": str}
if hasattr(sqlite3.Connection, "autocommit"):  # Python 3.12 and later
    _DEFAULTS = {"autocommit": getattr(sqlite3, "LEGACY_TRANSACTION_CONTROL", -1), **_DEFAULTS}
_PROBE = "labkit_is_a_statement_open"


@guarded
class TracedConnection(sqlite3.Connection):
    """A connection for one worker's life.

    Made by `connect`; `life` says who crosses, and kills its use once that worker is dead. `changed` tells that code
    has set something that would outlast a run, and cannot be set back.
    """

    life: Life
    making_cursor = False
    closed = False
    changed = False
    busy_seconds = BUSY_TIMEOUT_SECONDS
    learned = ""
    _has_read = False
    _ours = False
    _side_door = ""
    _counted = 0
    _before = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "autocommit":  # Python 3.11 knows none, and would let it be set to no effect
            self.check_usable()
            raise SideDoor("autocommit")
        if name in _DEFAULTS:
            self.check_usable()
            if (name, value) == ("isolation_level", None):
                self.commit()  # sqlite3 does so: https://docs.python.org/3/library/sqlite3.html
        super().__setattr__(name, value)

    def check_usable(self) -> None:
        """Raise where the worker is dead, the connection closed, or code has gone around it."""
        self.life.check_alive()
        self.check_followed()
        if self.closed:
            raise sqlite3.ProgrammingError("Cannot operate on a closed database.")

    def check_followed(self) -> None:
        """Raise where code has gone around this connection."""
        if self._side_door:
            raise SideDoor(self._side_door)

    @property
    def total_changes(self) -> int:
        """As sqlite3's, counted from the start of this life."""
        return super().total_changes - self._before

    @property
    def commits_each_statement(self) -> bool:
        """Whether a statement now is a transaction by itself."""
        return not self.in_transaction and self.isolation_level is None

    def cursor(self, factory: Any = None) -> Any:
        """As sqlite3's; only its own kind of cursor can be made."""
        self.check_usable()
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

    def executemany(self, sql: str, rows: Iterable[Any], /) -> Any:
        """As sqlite3's, with one crossing before the statement."""
        return self.cursor().executemany(sql, rows)

    def executescript(self, script: str, /) -> Any:
        """As sqlite3's."""
        return self.cursor().executescript(script)

    def commit(self) -> None:
        """As sqlite3's, with a crossing before it."""
        self.check_usable()
        if self.in_transaction:
            self.statement("COMMIT", super().commit)
            self._has_read = False

    def rollback(self) -> None:
        """As sqlite3's. No crossing: rolling back is what a crash does too."""
        self.check_usable()
        self._by_us(super().rollback)
        self._has_read = False

    def __enter__(self) -> TracedConnection:
        self.check_usable()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        if kind is not None:
            self.rollback()
            return False
        try:
            self.commit()
        except sqlite3.Error:
            self.rollback()
            raise
        return False

    def close(self) -> None:
        """As sqlite3's: what was not committed is rolled back. The world keeps the connection for the next run."""
        self.life.check_alive()
        if not self.closed:
            self._let_go()
        self.closed = True

    def statement(self, sql: str, run: Callable[[], T]) -> T:
        """Cross, then run one statement; wait where SQLite would wait, raise where it would raise."""
        self.check_usable()
        if side_door(sql):
            raise SideDoor(side_door(sql))
        self.life.cross(Point("before", shown(sql), self.learned))
        until, waited_out = self.life.hub.clock.now() + self.busy_seconds, False
        while True:
            self.check_usable()
            had_read = self.in_transaction and self._has_read
            try:
                result = self._by_us(run)
            except sqlite3.OperationalError as error:
                if waited_out or had_read or not self._would_wait(sql, error):
                    raise
                waited_out = self.life.block(until)
            else:
                self._after(sql, result)
                return result

    def _after(self, sql: str, result: object) -> None:
        if isinstance(result, TracedCursor) and first_word(sql) in DML:
            self.learned = f"changed: {result.rowcount} {'row' if result.rowcount == 1 else 'rows'}"
        elif not reads(sql):
            self.learned = "committed" if first_word(sql) in ("COMMIT", "END") else ""
        self._has_read = self.in_transaction and (self._has_read or reads(sql))
        if leaves_traces(sql):
            self.changed, self._counted = True, -1  # it may write, such as ANALYZE, and count no change
        if pragma(sql)[0] == "busy_timeout":  # we wait by the run's clock, never by the machine's
            cursor = sqlite3.Connection.cursor(self, sqlite3.Cursor)
            (milliseconds,) = self._by_us(lambda: sqlite3.Cursor.execute(cursor, "PRAGMA busy_timeout").fetchone())
            self.busy_seconds = milliseconds / 1000
            self._by_us(lambda: sqlite3.Cursor.execute(cursor, "PRAGMA busy_timeout = 0"))
        if (not self.in_transaction or sql == "COMMIT") and self._counted != self.total_changes:
            self._counted = self.total_changes
            self.life.hub.world.committed(self.life)

    def _would_wait(self, sql: str, error: sqlite3.OperationalError) -> bool:
        """Whether SQLite's busy time-out would have been waited out, as it is where no snapshot is held."""
        waits = error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY)
        return waits and self.busy_seconds > 0 and first_word(sql) not in ("COMMIT", "END") and not self._mid_read()

    def _mid_read(self) -> bool:
        """Whether a SELECT is not read to its end: a function cannot be defined anew while a statement is open."""
        try:
            sqlite3.Connection.create_function(self, _PROBE, 0, _nothing)
        except sqlite3.OperationalError:
            return True
        return False

    def _by_us(self, run: Callable[[], T]) -> T:
        before, self._ours = self._ours, True
        try:
            return run()
        finally:
            self._ours = before

    def notice(self, sql: str) -> None:
        """Called by SQLite for each statement: one that did not come through a traced cursor is a side door."""
        if not self._ours:
            self._side_door = "sqlite3.Cursor(db)"

    def end_of_life(self) -> None:
        """Roll back and let go of every lock, by the base class: the worker's code has no say in it."""
        self._let_go()
        self.closed, self._side_door, self.busy_seconds = False, "", BUSY_TIMEOUT_SECONDS
        self.learned, self._counted, self._before = "", 0, super().total_changes
        for name, value in _DEFAULTS.items():
            if getattr(self, name) != value:
                sqlite3.Connection.__setattr__(self, name, value)

    def _let_go(self) -> None:
        for cursor in list(self._cursors):  # an open cursor holds its snapshot, rolled back or not
            with suppress(sqlite3.ProgrammingError):  # in the middle of executemany
                sqlite3.Cursor.close(cursor)
        self._cursors.clear()
        if "autocommit" in _DEFAULTS:  # with it on, rollback would do nothing; with it off, it would begin anew
            sqlite3.Connection.__setattr__(self, "autocommit", _DEFAULTS["autocommit"])
        self._by_us(lambda: sqlite3.Connection.rollback(self))
        self._has_read = False


def connect(path: Path) -> TracedConnection:
    """Open a traced connection with default isolation; it never waits by itself."""
    with ours():
        db: TracedConnection = sqlite3.connect(path, timeout=0, factory=TracedConnection, check_same_thread=False)
    for pragma_ in ("synchronous = OFF", "foreign_keys = ON"):
        sqlite3.Cursor.execute(sqlite3.Connection.cursor(db), f"PRAGMA {pragma_}")
    sqlite3.Connection.create_function(db, _PROBE, 0, _nothing)
    sqlite3.Connection.set_trace_callback(db, db.notice)
    return db


def _nothing() -> None:
    return None
