"""One SQLite file, used with care: one transaction a use, one connection a thread, and errors that say what to do.

Sources: https://www.sqlite.org/wal.html, https://www.sqlite.org/rescode.html,
https://www.sqlite.org/howtocorrupt.html.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from labkit.errors import (
    InvalidInput,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreDiskError,
    StoreError,
    StoreFull,
    StoreMoved,
    StoreNotFound,
    StoreReadOnly,
)
from labkit.opening import BUSY_TIMEOUT_SECONDS, Schema, Synchronous, open_file, patiently, primary_code

__all__ = ["BUSY_TIMEOUT_SECONDS", "Database", "Schema", "Synchronous"]

CLOSING_SECONDS = 1.0
"""How long closing waits for other threads to leave what they are doing."""

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
    sqlite3.SQLITE_IOERR: StoreDiskError,
    sqlite3.SQLITE_NOLFS: StoreDiskError,
    # finer than their families:
    sqlite3.SQLITE_IOERR_SHMSIZE: StoreFull,
    sqlite3.SQLITE_IOERR_SHORT_READ: StoreCorrupt,
    sqlite3.SQLITE_READONLY_DBMOVED: StoreMoved,
}
_CONSTRAINT_DATATYPE = 3091  # without a name before Python 3.12
_BY_CALLER = {sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, _CONSTRAINT_DATATYPE}


class Database:
    """A SQLite file with one connection a thread; every use is a transaction.

    Args:
        path: the file; created where it is missing, its folder not. `:memory:` is refused: it dies with its process.
        schema: what the file must hold.
        synchronous: `FULL` keeps every acknowledged commit through a power cut; the others do not.

    Raises:
        StoreError: one of its leaves, by SQLite's error code, with advice.
    """

    journal_mode = "unknown"
    _closed = False
    _place: list[object] | None = None

    def __init__(self, path: str | os.PathLike[str], schema: Schema, synchronous: Synchronous = "FULL") -> None:
        name = _checked_path(path)
        if synchronous not in ("FULL", "NORMAL", "OFF"):
            raise InvalidInput("synchronous: FULL, NORMAL or OFF", synchronous)
        self.path = Path(name)
        self.schema = schema
        self.synchronous = synchronous
        try:
            self._file = os.path.realpath(name)  # the same file after a change of folder
        except OSError as error:
            raise StoreNotFound(self.path.name, f"the folder cannot be found: {error.strerror}") from error
        self._opened: dict[threading.Thread, sqlite3.Connection] = {}
        self._busy: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._process = os.getpid()
        self.connection()

    def connection(self) -> sqlite3.Connection:
        """Return this thread's connection, opening it on first use.

        Raises:
            StoreClosed: after `close`, or in a process forked from the one that opened the file.
        """
        if os.getpid() != self._process:
            raise StoreClosed(self.path.name, "opened by another process")
        self._check_open("closed")
        thread = threading.current_thread()
        found = self._opened.get(thread)
        if found is None:
            try:
                found = self._open()
            except Exception as error:
                self.tell(error)
                raise
            with self._lock:
                for ended in [one for one in self._opened if not one.is_alive()]:
                    self._opened.pop(ended).close()
                self._opened[thread] = found
            try:
                self._check_open("closed meanwhile by another thread")
            except StoreClosed:
                self._close_of(thread)
                raise
        return found

    def _check_open(self, found: str) -> None:
        if self._closed:
            raise StoreClosed(self.path.name, found)

    def _open(self) -> sqlite3.Connection:
        first = self._place is None
        try:
            opened, self.journal_mode = open_file(self._file, self.schema, self.synchronous, examine=first)
        except sqlite3.OperationalError as error:
            if primary_code(error) == sqlite3.SQLITE_ERROR:  # nothing that we ask of a sound file is an error
                raise StoreCorrupt(self.path.name, str(error)) from error
            raise
        except OSError as error:  # of the folder, which SQLite was not asked about
            raise StoreNotFound(self.path.name, str(error.strerror)) from error
        if first:
            beside = ("-wal", "-shm") if self.journal_mode == "wal" else ()
            self._paths = [self._file, *(self._file + name for name in beside)]
            try:
                self._place = self._places()
            except OSError as error:
                opened.close()
                raise StoreMoved(self.path.name, "the file, or -wal or -shm beside it, was deleted at once") from error
        return opened

    def _places(self) -> list[object]:
        """Which files lie at our paths now; see SQLite's "How To Corrupt", section 4."""
        found = [os.stat(path) for path in self._paths]
        return [found[0].st_size > 0, *[(one.st_dev, one.st_ino) for one in found]]

    def check_place(self) -> None:
        """A file that was deleted takes writes without a murmur, and loses them when its last user closes it."""
        try:
            moved = self._place is not None and self._places() != self._place
        except PermissionError as error:
            raise StoreNotFound(self.path.name, "its folder may not be looked into any more") from error
        except OSError:
            moved = True
        if moved:
            raise StoreMoved(
                self.path.name, "the file, or -wal or -shm beside it, was deleted or replaced while in use"
            )

    def write(self) -> AbstractContextManager[sqlite3.Connection]:
        """Run a `with` block as one write transaction: all of it is committed, or nothing.

        `BEGIN IMMEDIATE` takes the write lock before the first read; a transaction that reads first and then
        writes fails at once when another wrote in between, whatever the busy time-out.
        """
        return self._transaction(writes=True)

    def read(self) -> AbstractContextManager[sqlite3.Connection]:
        """Run a `with` block on one snapshot of the file; what cannot be read as what it should be is damaged."""
        return self._transaction(writes=False)

    @contextmanager
    def _transaction(self, writes: bool) -> Iterator[sqlite3.Connection]:
        # A generator, and one alone: whatever bytecode an interrupt hits, its end rolls back.
        thread = threading.current_thread()
        self._busy.add(thread)  # first this, then the look whether it is closed; `close` does it the other way round
        try:
            connection = self.idle_connection()
            try:
                patiently(connection.execute, "BEGIN IMMEDIATE" if writes else "BEGIN")
                self.check_place()
                if not writes:
                    patiently(connection.execute, "PRAGMA user_version")  # takes the snapshot now
                yield connection
                self._check_open("closed meanwhile by another thread")
                patiently(connection.execute, "COMMIT")
            except BaseException as error:
                with suppress(sqlite3.ProgrammingError):  # closed meanwhile, and so rolled back
                    connection.rollback()
                if isinstance(error, Exception):
                    self.tell(error, reading=not writes)
                raise
        finally:
            self._busy.discard(thread)
            if self._closed:
                self._close_of(thread)

    def idle_connection(self) -> sqlite3.Connection:
        """This thread's connection. A transaction left open by an interrupt is nobody's any more: close it.

        The new connection is opened first: with the last one SQLite would remove -wal, as if somebody had deleted it.
        """
        found = self.connection()
        if not found.in_transaction:
            return found
        self._opened.pop(threading.current_thread())
        try:
            if self.journal_mode != "wal":  # here its lock would keep the new one out, and there is no -wal
                found.close()
            return self.connection()
        finally:
            found.close()

    def tell(self, error: Exception, reading: bool = False) -> None:
        """Raise an error of SQLite's as ours, by error code; return where it is none, for a bug of ours stays a bug."""
        if isinstance(error, UnicodeEncodeError | OverflowError):
            raise InvalidInput("text and numbers that SQLite can hold", str(error)) from error
        if isinstance(error, UnicodeDecodeError):
            raise StoreCorrupt(self.path.name, f"text that cannot be read: {error}") from error
        if reading and isinstance(error, ValueError):
            raise StoreCorrupt(self.path.name, f"a row that cannot be read: {error}") from error
        if isinstance(error, sqlite3.Error):
            self._tell_sqlite(error)

    def _tell_sqlite(self, error: sqlite3.Error) -> None:
        if self._closed:
            raise StoreClosed(self.path.name, "closed meanwhile by another thread") from error
        if str(error).startswith("Cannot operate on a closed database"):  # see `idle_connection`
            raise StoreClosed(self.path.name, "used again in the middle of a call") from error
        code = getattr(error, "sqlite_errorcode", None)
        if code in _BY_CALLER or str(error).startswith("Error binding parameter"):
            raise InvalidInput("text and numbers that SQLite can hold", str(error)) from error
        if code is None and isinstance(error, sqlite3.OperationalError):  # only Python's "could not decode"
            raise StoreCorrupt(self.path.name, str(error)) from error
        kind = None if code is None else _BY_CODE.get(code, _BY_CODE.get(code & 0xFF))
        if kind is not None:
            raise kind(self.path.name, str(error), error.sqlite_errorname) from error

    def close(self) -> None:
        """Close the connections of all threads. A repeated call is harmless.

        A thread in the middle of a call is interrupted there, and closes its own: to close a connection under a thread
        that is using it would bring the whole process down. So this waits, but for `CLOSING_SECONDS` at the most.
        """
        self._closed = True
        if os.getpid() != self._process:  # https://www.sqlite.org/howtocorrupt.html, section 2.6
            return
        here, deadline = threading.current_thread(), time.monotonic() + CLOSING_SECONDS
        while True:
            for thread in list(self._opened):
                if thread is here or thread not in self._busy:
                    self._close_of(thread)
            busy = list(self._opened.values())
            if not busy or time.monotonic() > deadline:
                return
            for connection in busy:
                with suppress(sqlite3.Error):  # closed by now
                    connection.interrupt()
            time.sleep(0.001)

    def _close_of(self, thread: threading.Thread) -> None:
        with self._lock:
            connection = self._opened.pop(thread, None)
        if connection is not None:
            if connection.in_transaction:
                connection.rollback()
            connection.close()


def _checked_path(path: str | os.PathLike[str]) -> str:
    expected = "the path of a file (memory dies with its process)"
    try:
        name = os.fspath(path)
        os.fsencode(name)
    except (TypeError, ValueError) as error:
        raise InvalidInput(expected, path) from error
    if not isinstance(name, str) or name in ("", ":memory:") or "\0" in name:
        raise InvalidInput(expected, path)
    return name


def opened(path: str | os.PathLike[str] | Database, schema: Schema, synchronous: Synchronous) -> Database:
    """Open a file, or take one that is open already.

    Raises:
        InvalidInput: what is open holds something else.
        StoreError: where it cannot be opened.
    """
    if not isinstance(path, Database):
        return Database(path, schema, synchronous)
    if path.schema is not schema:
        raise InvalidInput(f"a file with the tables of {schema.sql_file}", path.schema.sql_file)
    return path
