"""The cursors of a traced connection: every statement is a crossing, every fetch needs a living worker."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol

from labkit.explore.doors import SideDoor
from labkit.explore.sqltext import DML, first_word, row_in_words, statements


class Traced(Protocol):
    """What a cursor needs of its connection."""

    in_transaction: bool
    learned: str

    @property
    def commits_each_statement(self) -> bool:
        """Whether a statement now is a transaction by itself."""

    def check_usable(self) -> None:
        """Raise where the worker is dead, the connection closed, or code has gone around it."""

    def commit(self) -> None:
        """Commit, with a crossing before it."""

    def statement(self, sql: str, run: Callable[[], Any]) -> Any:
        """Cross, then run one statement."""


class TracedCursor(sqlite3.Cursor):
    """A cursor whose statements are crossings."""

    _total: int | None = None

    def __init__(self, connection: sqlite3.Connection) -> None:
        if not getattr(connection, "making_cursor", False):
            raise SideDoor("sqlite3.Cursor(db)")
        super().__init__(connection)
        self._traced: Traced = connection  # type: ignore[assignment]

    @property
    def rowcount(self) -> int:
        """As sqlite3's."""
        return sqlite3.Cursor.rowcount.__get__(self) if self._total is None else self._total

    def execute(self, sql: str, *args: Any) -> TracedCursor:
        """As sqlite3's, with a crossing before the statement."""
        self._total = None
        self._traced.statement(sql, partial(super().execute, sql, *args))
        return self

    def executemany(self, sql: str, rows: Iterable[Any], /) -> TracedCursor:
        """As sqlite3's, with a crossing before the statement; before each row, where each is a transaction."""
        self._total = None
        again = _Again(rows)
        if first_word(sql) in DML and self._traced.commits_each_statement:
            total = 0
            for row in again:
                total += self.execute(sql, row).rowcount
            self._total = total
        else:
            self._traced.statement(sql, partial(super().executemany, sql, again))
        return self

    def executescript(self, script: str, /) -> TracedCursor:
        """As sqlite3's: it commits first, then runs each statement by itself."""
        self._total = None
        self._traced.commit()
        for sql in statements(script):
            self._traced.statement(sql, partial(self._run_bare, sql))
        return self

    def _run_bare(self, sql: str) -> None:
        """Run one statement to its end, without opening a transaction for it."""
        if self._traced.in_transaction:  # executescript would commit it
            sqlite3.Cursor.fetchall(sqlite3.Cursor.execute(self, sql))
        else:
            sqlite3.Cursor.executescript(self, sql)

    def __next__(self) -> Any:
        self._traced.check_usable()
        row = super().__next__()
        self._traced.learned = row_in_words(row)
        return row

    def fetchone(self) -> Any:
        """As sqlite3's."""
        self._traced.check_usable()
        row = super().fetchone()
        self._traced.learned = row_in_words(row)
        return row

    def fetchmany(self, size: int | None = None) -> list[Any]:
        """As sqlite3's."""
        self._traced.check_usable()
        return self._told(super().fetchmany(self.arraysize if size is None else size))

    def fetchall(self) -> list[Any]:
        """As sqlite3's."""
        self._traced.check_usable()
        return self._told(super().fetchall())

    def _told(self, rows: list[Any]) -> list[Any]:
        self._traced.learned = row_in_words(rows[0]) if len(rows) == 1 else f"read: {len(rows)} rows"
        return rows


class _Again:
    """The rows of executemany: those that it has drawn already come again if it has to start anew."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self._rest, self._drawn = iter(rows), list[Any]()

    def __iter__(self) -> Iterator[Any]:
        yield from self._drawn
        for row in self._rest:
            self._drawn.append(row)
            yield row
