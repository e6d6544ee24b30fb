"""How a file of ours is opened: whose it is, whether it is sound, which journal it gets, and patience with others.

Sources: https://www.sqlite.org/wal.html, https://www.sqlite.org/pragma.html#pragma_synchronous,
https://www.sqlite.org/howtocorrupt.html.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Literal, ParamSpec, TypeVar

from labkit.errors import NotALabFile, StoreCorrupt, StoreReadOnly

BUSY_TIMEOUT_SECONDS = 5.0
"""What SQLite waits for a lock on a plain connection, if nobody says otherwise."""
PATIENCE_SECONDS = 15.0
"""How long the store tries for a lock; see `patiently`."""
LOOK_SECONDS = 0.02
EXAMINED_BYTES = 4 * 1024 * 1024
"""A file up to this size is looked through whenever it is opened, in well under a second."""
Synchronous = Literal["FULL", "NORMAL", "OFF"]
P = ParamSpec("P")
T = TypeVar("T")


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

    @cached_property
    def objects(self) -> frozenset[tuple[str, str]]:
        """Each table, index, trigger and view, with the SQL that made it."""
        with sqlite3.connect(":memory:") as db:
            db.executescript(self.sql)
            found = _objects(db)
        db.close()
        return found


def patiently(run: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
    """Call `run` again for as long as others keep the file locked, up to `PATIENCE_SECONDS`.

    SQLite's own waiting is unfair: its looks at the lock come to lie 100 ms apart, and whoever has just let go of it
    is faster. Of eight processes that wrote without a pause, some found no gap in five seconds. So a connection waits
    for 20 ms by itself and is asked again; an interrupt is heeded in between.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return run(*args, **more)
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.001)


def primary_code(error: BaseException) -> int | None:
    """SQLite's error code without its fine print; None where SQLite itself gave none."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else int(code) & 0xFF


def open_file(path: str, schema: Schema, synchronous: Synchronous, examine: bool) -> tuple[sqlite3.Connection, str]:
    """Connect to a file of ours, creating its tables where it is empty, and return its journal mode too.

    Args:
        path: absolute.
        schema: what the file must hold.
        synchronous: as for `Database`.
        examine: look through the whole file for damage.

    Raises:
        NotALabFile: it is somebody else's, and was left as it is.
        StoreCorrupt: it is damaged.
        sqlite3.DatabaseError: SQLite's own words.
    """
    _refuse_emptied(path)
    if os.access(path, os.R_OK) and not os.access(path, os.W_OK):  # SQLite would leave a -wal and -shm that are so, too
        raise StoreReadOnly(os.path.basename(path), "the file may not be written")
    try:
        return _prepared(_connect(path), path, schema, synchronous, examine, wal=True)
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_IOERR_SHMMAP:
            raise
    connection = _connect(path)
    try:  # no memory can be shared between processes here, as in some network homes
        patiently(_leave_wal, connection)
    except BaseException:
        connection.close()
        raise
    return _prepared(connection, path, schema, synchronous, examine, wal=False)


def _refuse_emptied(path: str) -> None:
    """SQLite would delete the log of an emptied file, and with it what can still be saved. A new file has none."""
    log = Path(f"{path}-wal")
    if log.is_file() and log.stat().st_size and os.path.isfile(path) and not os.path.getsize(path):
        raise StoreCorrupt(os.path.basename(path), "the file is empty, and yet its write-ahead log is not")


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=LOOK_SECONDS, isolation_level=None, check_same_thread=False)


def _prepared(
    connection: sqlite3.Connection, path: str, schema: Schema, synchronous: Synchronous, examine: bool, wal: bool
) -> tuple[sqlite3.Connection, str]:
    name = os.path.basename(path)
    try:
        empty = patiently(_look, connection, name, schema, examine)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA cache_spill = OFF")  # a spill would wait for readers in mid-transaction
        if empty and wal:  # later openers keep the mode that was found to work
            patiently(connection.execute, "PRAGMA journal_mode = WAL")
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        # A rollback journal that comes back after a power cut undoes its transaction; EXTRA makes its removal durable.
        level = "EXTRA" if synchronous == "FULL" and mode != "wal" else synchronous
        connection.execute(f"PRAGMA synchronous = {level}")
        if empty:
            _create(connection, name, schema)
    except BaseException:
        connection.close()
        raise
    return connection, str(mode)


def _look(connection: sqlite3.Connection, name: str, schema: Schema, examine: bool) -> bool:
    """Tell whether the file is still empty; refuse one that is not ours, or is damaged."""
    with connection:
        connection.execute("BEGIN")  # one snapshot: somebody may be creating the file right now
        empty = _is_empty(connection, name, schema)
        if examine and not empty:
            _examine(connection, name, schema)
    return empty


def _is_empty(connection: sqlite3.Connection, name: str, schema: Schema) -> bool:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not tables and not application:
        return True
    if application != schema.application_id:
        raise NotALabFile(name, f"a database of another program (application id {application})")
    if version != schema.version:
        age = "an older" if version < schema.version else "a newer"
        found = f"{age} lab schema, version {version} (this lab reads version {schema.version})"
        raise NotALabFile(name, found)
    return False


def _examine(connection: sqlite3.Connection, name: str, schema: Schema) -> None:
    """Find damage before a decision is built on it. SQLite keeps no checksums: a changed value may pass unseen.

    What is looked through grows with the file; a large one is opened at once, and its damage shows where it is met.
    """
    (pages,), (page_bytes,) = (connection.execute(f"PRAGMA {one}").fetchone() for one in ("page_count", "page_size"))
    small = pages * page_bytes <= EXAMINED_BYTES
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone() if small else ("ok",)
    if verdict != "ok":
        raise StoreCorrupt(name, " ".join(verdict.split()))
    changed = {one for one, _ in schema.objects - _objects(connection)}
    if changed:
        raise NotALabFile(name, f"a lab file whose schema was changed: {', '.join(sorted(changed))}")
    orphan = connection.execute("PRAGMA foreign_key_check").fetchone() if small else None
    if orphan is not None:
        raise StoreCorrupt(name, f"a row of {orphan[0]} belongs to a row of {orphan[2]} that is not there")


def _objects(connection: sqlite3.Connection) -> frozenset[tuple[str, str]]:
    return frozenset(connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"))


def _create(connection: sqlite3.Connection, name: str, schema: Schema) -> None:
    patiently(connection.execute, "BEGIN IMMEDIATE")
    if _is_empty(connection, name, schema):  # nobody else was faster
        for statement in _statements(schema.sql):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {schema.application_id}")
        connection.execute(f"PRAGMA user_version = {schema.version}")
    connection.execute("COMMIT")


def _leave_wal(connection: sqlite3.Connection) -> None:
    """Go back to a rollback journal; holding the file alone, SQLite needs no shared memory to read its log."""
    for statement in ("locking_mode = EXCLUSIVE", "user_version", "journal_mode = DELETE", "locking_mode = NORMAL"):
        connection.execute(f"PRAGMA {statement}").fetchone()
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # lets go of the file


def _statements(script: str) -> Iterator[str]:
    """Split a script at complete statements, since `executescript` would commit the transaction it runs in."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
