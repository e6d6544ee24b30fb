"""What the explorer has to know about the text of an SQL statement."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

SHOWN = 76
MORE = "..."
"""What is left out; not every console can print one sign for it."""

CONDITION = 56
"""So much of a WHERE clause is shown: enough for id, state and token."""

KEPT = 1_000
DML = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE"})
_BLANK = r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
_FIRST_WORD = re.compile(_BLANK + r"([A-Za-z]+)", re.DOTALL)
_TEMPORARY = re.compile(_BLANK + r"CREATE\s+TEMP", re.DOTALL | re.IGNORECASE)
_PRAGMA = re.compile(_BLANK + r"PRAGMA\s+(?:\w+\.)?(\w+)\s*(?:[=(]\s*['\"]?(\w*))?", re.DOTALL | re.IGNORECASE)
_OF_THE_FILE = frozenset({"application_id", "journal_mode", "locking_mode", "schema_version", "user_version"})
_IN_A_WORD = re.compile(r"[\w'.]")
_LAST_WORD = re.compile(r"(?<![\w'.])[\w'.]{1,16}$")
_HARMLESS = DML | {"SELECT", "WITH", "VALUES", "EXPLAIN"}
_TRANSACTION = frozenset({"BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE"})


@lru_cache(KEPT)
def first_word(sql: str) -> str:
    """The first word of a statement in capitals, comments left out; empty where there is none."""
    found = _FIRST_WORD.match(sql)
    return found.group(1).upper() if found else ""


def reads(sql: str) -> bool:
    """Whether a statement reads and does not write: inside a transaction it takes a snapshot."""
    return first_word(sql) in ("SELECT", "WITH", "VALUES")


@lru_cache(KEPT)
def side_door(sql: str) -> str:
    """Name what a statement does to the file itself, which no run may; empty where it does nothing of the kind."""
    word = first_word(sql)
    if word in ("ATTACH", "DETACH", "VACUUM", "DROP", "ALTER") or (word == "CREATE" and not _TEMPORARY.match(sql)):
        return word
    name, value = pragma(sql)
    is_wal = name == "journal_mode" and value.lower() == "wal"
    return f"PRAGMA {name} = {value}" if name in _OF_THE_FILE and value and not is_wal else ""


def pragma(sql: str) -> tuple[str, str]:
    """Name and value of a PRAGMA, each empty where there is none."""
    found = _PRAGMA.match(sql) if first_word(sql) == "PRAGMA" else None
    return (found.group(1).lower(), found.group(2) or "") if found else ("", "")


def leaves_traces(sql: str) -> bool:
    """Whether a statement may change the connection for the statements after it."""
    return first_word(sql) not in _HARMLESS | _TRANSACTION


def shown(sql: str) -> str:
    """A statement as one short line, with its condition: of a long one the middle is left out."""
    text = " ".join(sql.split())
    if len(text) <= SHOWN:
        return text
    where = text.upper().rfind(" WHERE ")
    condition = text[where:] if 0 < where < len(text) - len(MORE) else ""
    if len(condition) > CONDITION:
        condition = _cut(condition, CONDITION)
    return _cut(text, SHOWN - len(condition)) + condition


def _cut(text: str, length: int) -> str:
    """The beginning of a text that is longer, at most so many letters; it ends between two words if it can."""
    kept = text[: length - len(MORE)]
    word = _LAST_WORD.search(kept) if _IN_A_WORD.match(text[len(kept)]) else None
    return (kept if word is None else kept[: word.start()]) + MORE


def row_in_words(row: Any) -> str:
    """What reading a row has told, in one line."""
    if row is None:
        return "read: no row"
    values = row.values() if isinstance(row, Mapping) else row if isinstance(row, Sequence | sqlite3.Row) else (row,)
    return shown("read: " + ", ".join("NULL" if value is None else str(value) for value in values))


def statements(script: str) -> Iterator[str]:
    """Split a script at complete statements; what is incomplete comes last, for SQLite to complain about."""
    statement = ""
    for part in re.split(r"(?<=;)", script):
        statement += part
        if sqlite3.complete_statement(statement):
            if first_word(statement):
                yield statement
            statement = ""
    if first_word(statement):
        yield statement
