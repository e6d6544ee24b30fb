"""One SQLite file, opened with care: durability, locks, identity, and errors that say what to do.

Sources: https://www.sqlite.org/wal.html, https://www.sqlite.org/pragma.html#pragma_synchronous,
https://www.sqlite.org/rescode.html.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from labkit.errors import (
    InvalidInput,
    NotALabFile,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreNotFound,
    StoreReadOnly,
)

BUSY_TIMEOUT_SECONDS = 5.0
Synchronous = Literal["FULL", "NORMAL", "OFF"]

_BY_CODE: dict[int, type[StoreError]] = {
    sqlite3.SQLITE_BUSY: StoreBusy,
    sqlite3.SQLITE_LOCKED: StoreBusy,
    sqlite3.SQLITE_PROTOCOL: StoreBusy,
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_READONLY: StoreReadOnly,
    sqlite3.SQLITE_PERM: StoreReadOnly,
    sqlite3.SQLITE_CANTOPEN: StoreNotFound,
    sqlite3.SQLITE_CORRUPT: StoreCorrupt,
    sqlite3.SQLITE_NOTADB: StoreCorrupt,
    sqlite3.SQLITE_IOERR: StoreError,
}


@dataclass(frozen=True)
class Schema:
    """What a file of ours looks like: its SQL file in this package, and the two numbers that SQLite keeps for us."""

    sql_file: str
    application_id: int
    version: int

    @property
    def sql(self) -> str:
        """The statements that create an empty file's tables."""
        return files("labkit").joinpath(self.sql_file).read_text(encoding="utf-8")


class Database:
    """A SQLite file with one connection a thread; every use is a transaction.

    Args:
        path: the file; created where it is missing, its folder not. `:memory:` is refused: it dies with its process.
        schema: what the file must hold.
        synchronous: `FULL` keeps every acknowledged commit through a power cut; the others do not.

    Raises:
        StoreError: one of its leaves, by SQLite's error code, with advice.
    """

    def __init__(self, path: str | os.PathLike[str], schema: Schema, synchronous: Synchronous = "FULL") -> None:
        if str(path) == ":memory:" or not str(path):
            raise InvalidInput("the path of a file (memory dies with its process)", str(path))
        if synchronous not in ("FULL", "NORMAL", "OFF"):
            raise InvalidInput("synchronous: FULL, NORMAL or OFF", synchronous)
        self.path = Path(path)
        self.schema = schema
        self.synchronous = synchronous
        self._opened: dict[threading.Thread, sqlite3.Connection] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._closed = False
        self.journal_mode = "unknown"
        self.connection()

    def connection(self) -> sqlite3.Connection:
        """Return this thread's connection, opening it on first use.

        Raises:
            StoreClosed: after `close`, or in a process forked from the one that opened the file.
        """
        if self._closed or os.getpid() != self._process:
            raise StoreClosed(self.path.name, "closed" if self._closed else "opened by another process")
        thread = threading.current_thread()
        found = self._opened.get(thread)
        if found is None:
            with self.errors():
                found = self._open()
            with self._lock:
                for ended in [one for one in self._opened if not one.is_alive()]:
                    self._opened.pop(ended).close()
                self._opened[thread] = found
        return found

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("BEGIN")  # one snapshot: somebody may be creating the file right now
            empty = self._is_empty(connection)
            connection.execute("COMMIT")
            for pragma in (f"synchronous = {self.synchronous}", "foreign_keys = ON"):
                connection.execute(f"PRAGMA {pragma}")
            self.journal_mode = _write_ahead(connection)
            if empty:
                self._create(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_empty(self, connection: sqlite3.Connection) -> bool:
        """Tell whether the file is still empty; refuse one that is not ours."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if not tables and not application:
            return True
        if application != self.schema.application_id:
            raise NotALabFile(self.path.name, f"a database of another program (application id {application})")
        if version != self.schema.version:
            age = "an older" if version < self.schema.version else "a newer"
            found = f"{age} lab schema, version {version} (this lab reads version {self.schema.version})"
            raise NotALabFile(self.path.name, found)
        return False

    def _create(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        if self._is_empty(connection):  # nobody else was faster
            for statement in _statements(self.schema.sql):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {self.schema.application_id}")
            connection.execute(f"PRAGMA user_version = {self.schema.version}")
        connection.execute("COMMIT")

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Run the block as one write transaction: all of it is committed, or nothing.

        `BEGIN IMMEDIATE` takes the write lock before the first read; a transaction that reads first and then
        writes fails at once when another wrote in between, whatever the busy time-out.
        """
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Run the block on one snapshot of the file."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        connection = self.connection()
        with self.errors():
            try:
                connection.execute(begin)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn SQLite's errors into ours, by error code; a bug of ours stays a bug."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if self._closed:
                raise StoreClosed(self.path.name, "closed meanwhile by another thread") from error
            code = getattr(error, "sqlite_errorcode", None)
            kind = None if code is None else _BY_CODE.get(code & 0xFF)
            if kind is None:
                raise
            raise kind(self.path.name, str(error), error.sqlite_errorname) from error

    def close(self) -> None:
        """Close the connections of all threads. A repeated call is harmless."""
        self._closed = True
        if os.getpid() != self._process:  # https://www.sqlite.org/howtocorrupt.html, section 2.6
            return
        with self._lock:
            for connection in self._opened.values():
                if connection.in_transaction:
                    connection.rollback()
                connection.close()
            self._opened.clear()


def _write_ahead(connection: sqlite3.Connection) -> str:
    """Ask for a write-ahead log and return the mode that was granted.

    SQLite does not wait for the lock that this takes, lest two that wait block each other; so we try again.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return str(mode)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _statements(script: str) -> Iterator[str]:
    """Split a script at complete statements, since `executescript` would commit the transaction it runs in."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
