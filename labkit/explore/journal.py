"""A row journal: after each commit the tables are compared, and what has changed is put down with who did it.

A student's SQL writes no history of its own. So laws about who changed what, and under which token, go by this one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNWATCHED = frozenset({"events", "messages"})
"""Histories: rows are only ever added to them."""

WIRE = "the wire"
"""Who brings about an effect when a late request arrives."""

Row = Mapping[str, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Changed:
    """A row as a commit has changed it.

    Args:
        at: seconds on the clock of whoever changed it.
        worker: whose commit it was.
        commit: its number in the run, from 1; the rows of one transaction share it. Rows of commit 0 were there from
            the start, and are nobody's.
        table: such as `tasks`.
        before: the row before, by column; None where it is new.
        after: the row after; None where it is gone.
    """

    at: float
    worker: str
    commit: int
    table: str
    before: Row | None
    after: Row | None

    def becomes(self, column: str) -> bool:
        """Whether the value of a column is another one now."""
        return (self.before or {}).get(column) != (self.after or {}).get(column)


@dataclass(frozen=True)
class Said:
    """What a worker said that it believes: such as `read`, 3."""

    at: float
    worker: str
    what: str
    value: Any


@dataclass(frozen=True)
class Handed:
    """A message as it was handed to its consumer."""

    at: float
    worker: str
    message_id: str


@dataclass(frozen=True)
class Applied:
    """An effect as it came to stand in a remote's ledger; `worker` is whoever was calling just then."""

    at: float
    worker: str
    operation_id: str


Logged = Changed | Said | Handed | Applied


@dataclass(frozen=True)
class _Table:
    """A table to be read whole, each row by its primary key, or by its rowid where it has none."""

    name: str
    columns: tuple[str, ...]
    key: tuple[int, ...]

    def read(self, db: sqlite3.Connection) -> dict[Key, Key]:
        query = f"SELECT {', '.join(self.columns)} FROM {self.name} ORDER BY {', '.join(str(k + 1) for k in self.key)}"
        return {tuple(row[place] for place in self.key): row for row in db.execute(query)}

    def row(self, values: Key | None) -> Row | None:
        return None if values is None else dict(zip(self.columns, values, strict=True))


class Journal:
    """Compares the tables of a database with how they were.

    Args:
        db: a connection of one's own to the file.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid")]
        self._tables = [_table(db, name) for name in names if name not in UNWATCHED]
        self._start = self._rows = self._read()
        self._commits = 0
        self._first = [
            Changed(0.0, "", 0, table.name, None, table.row(values))
            for table, rows in zip(self._tables, self._start, strict=True)
            for values in rows.values()
        ]
        self.log: list[Logged] = []

    def begin(self) -> None:
        """Start anew, with the rows as they were when this object was made."""
        self._rows, self._commits, self.log = self._start, 0, [*self._first]

    def committed(self, worker: str, at: float) -> list[Changed]:
        """Put down and return what a commit has changed."""
        before, self._rows = self._rows, self._read()
        found = [
            Changed(at, worker, self._commits + 1, table.name, table.row(old.get(key)), table.row(new.get(key)))
            for table, old, new in zip(self._tables, before, self._rows, strict=True)
            if old != new
            for key in dict.fromkeys((*old, *new))
            if old.get(key) != new.get(key)
        ]
        self._commits += bool(found)
        self.log += found
        return found

    def _read(self) -> list[dict[Key, Key]]:
        return [table.read(self._db) for table in self._tables]


def _table(db: sqlite3.Connection, name: str) -> _Table:
    info = db.execute("SELECT name, pk FROM pragma_table_info(?) ORDER BY cid", (name,)).fetchall()
    columns = tuple(column for column, _ in info)
    key = tuple(place for place, (_, pk) in enumerate(info) if pk)
    return _Table(name, columns, key) if key else _Table(name, ("rowid", *columns), (0,))
