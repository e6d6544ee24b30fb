"""What a simulated world keeps warm between runs: a folder in memory, open files, and the rows they began with."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from labkit.database import Database, Schema
from labkit.explore.lives import Life
from labkit.scratch import Scratch

T = TypeVar("T")
SHARED_MEMORY = Path("/dev/shm")
_UNGUARD = "DROP TRIGGER IF EXISTS events_are_not_deleted"


class Files(Scratch):
    """A temporary folder: in shared memory where there is one, unless somebody has said where such folders belong.

    Args:
        within: a folder that somebody else removes too; one that does not exist, as on another machine, is passed over.
    """

    def __init__(self, within: Path | None = None) -> None:
        memory = None if "TMPDIR" in os.environ else SHARED_MEMORY
        super().__init__(next((place for place in (within, memory) if place is not None and _usable(place)), None))


def _usable(place: Path) -> bool:
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)


class WarmDatabase(Database):
    """A file of the world's own on one connection, which nobody else reads, moves or damages.

    So it needs no locks, and its transactions no precautions; errors are told in the same words.
    """

    _only: sqlite3.Connection | None = None

    def __init__(self, path: Path, schema: Schema) -> None:
        new = sqlite3.connect(path, isolation_level=None)
        for statement in ("PRAGMA page_size = 1024", "VACUUM"):  # the less a commit has to write
            new.execute(statement)
        new.close()
        super().__init__(path, schema, "OFF")
        self.connection().execute("PRAGMA locking_mode = EXCLUSIVE")

    def connection(self) -> sqlite3.Connection:
        """The one connection."""
        if self._only is None:
            self._only = super().connection()
        return self._only

    def idle_connection(self) -> sqlite3.Connection:
        """The one connection; a transaction left open by an interrupt is nobody's any more."""
        db = self.connection()
        if db.in_transaction:
            db.rollback()
        return db

    def check_place(self) -> None:
        """Nobody else knows the place."""

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """As for `Database`; what nobody else can change needs no snapshot."""
        try:
            yield self.idle_connection()
        except Exception as error:
            self.tell(error, reading=True)
            raise


class LifeDatabase(WarmDatabase):
    """The world's warm file in the hands of one worker; dead with it."""

    def __init__(self, warm: Database, life: Life) -> None:
        self.path, self.schema, self.synchronous = warm.path, warm.schema, warm.synchronous
        self.journal_mode = warm.journal_mode
        self._only, self._life, self._busy = warm.connection(), life, set()

    def connection(self) -> sqlite3.Connection:
        """The warm connection, for as long as the worker is alive and has not closed its store."""
        self._life.check_alive()
        self._check_open("closed")
        return super().connection()

    def close(self) -> None:
        """Close it for this worker; the file stays warm for others."""
        self._closed = True

    def _close_of(self, thread: threading.Thread) -> None:
        """The connection is the world's."""


class Known(Generic[T]):
    """What was read from a warm file, to be read again only once something in the file has changed."""

    def __init__(self, database: Database, read: Callable[[], T]) -> None:
        self._db, self._read = database.connection(), read
        self._at, self._value = self._db.total_changes, read()

    def __call__(self) -> T:
        """The present value."""
        if self._at != self._db.total_changes:
            self._at, self._value = self._db.total_changes, self._read()
        return self._value


class Rows:
    """The rows of a database as they are now, to be put back before each run.

    Args:
        database: the file.
        shared: others open it too, and check its schema: what forbids deletions is taken away only while they happen.
    """

    def __init__(self, database: Database, shared: bool = False) -> None:
        db = self._db = database.connection()
        self.file = database.path.name
        kept = db.execute("SELECT sql FROM sqlite_schema WHERE name = 'events_are_not_deleted'").fetchall()
        self._guards = [sql for (sql,) in kept] if shared else []
        if not shared:
            db.execute(_UNGUARD)
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid")]
        self._tables = {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in names}
        self._seen = self._mark()

    def now(self) -> dict[str, list[tuple[object, ...]]]:
        """The rows of each table as they are."""
        return {name: self._db.execute(f"SELECT * FROM {name}").fetchall() for name in self._tables}

    def _mark(self) -> tuple[int, int]:
        """Changes by this connection and by others: https://www.sqlite.org/pragma.html#pragma_data_version."""
        (others,) = self._db.execute("PRAGMA data_version").fetchone()
        return self._db.total_changes, others

    def put_back(self) -> None:
        """Let the tables hold what they held when this object was made."""
        db = self._db
        if db.in_transaction:
            db.rollback()
        if self._mark() == self._seen:
            return
        db.execute("BEGIN IMMEDIATE")
        if self._guards:
            db.execute(_UNGUARD)
        for name in reversed(self._tables):
            db.execute(f"DELETE FROM {name}")
        for name, rows in self._tables.items():
            if rows:
                db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        for guard in self._guards:
            db.execute(guard)
        db.execute("COMMIT")
        self._seen = self._mark()
