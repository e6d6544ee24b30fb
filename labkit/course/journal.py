"""The student's journal: predictions beside observations, checks, and answers to "why?", kept over kernel restarts.

It lies in the student's own folder for data, or where LABKIT_HOME says. Nothing that a notebook prints depends on it
but what `report` counts, and where it cannot be written a lesson goes on without it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from labkit.database import Database, Schema
from labkit.errors import InvalidInput, StoreCorrupt, StoreError
from labkit.records import Json, to_json

JOURNAL = Schema("journal.sql", application_id=0x4C41424A, version=1)
FILE = "journal.sqlite"
KINDS = ("prediction", "check", "why")
MAX_TEXT = 20_000
"""Characters of one text; longer ones are cut."""


@dataclass(frozen=True)
class Entry:
    """One line of the journal: when (seconds since 1970), of what kind, about what, and what."""

    at: float
    kind: str
    name: str
    data: Json


def home() -> Path:
    """Where a student's journal and report lie; LABKIT_HOME overrides it."""
    chosen = os.environ.get("LABKIT_HOME", "")
    return Path(chosen) if chosen else Path(platformdirs.user_data_path("recovery-lab", appauthor=False))


def note(kind: str, name: str, **data: object) -> bool:
    """Add a line to the journal.

    Args:
        kind: one of `KINDS`.
        name: what it is about.
        data: what JSON can hold.

    Returns:
        Whether it is kept now: a journal that cannot be written stops no lesson.

    Raises:
        InvalidInput: there is no such kind.
    """
    if kind not in KINDS:
        raise InvalidInput(f"a kind of entry: {', '.join(KINDS)}", kind)
    with suppress(StoreError, OSError, RuntimeError):  # pathlib's, where there is no home at all
        home().mkdir(parents=True, exist_ok=True)
        with _opened() as journal, journal.write() as db:
            sql = "INSERT INTO entries (at, kind, name, data) VALUES (?, ?, ?, ?)"
            db.execute(sql, (time.time(), kind, _cut(name), to_json(_cut(data))))
        return True
    return False


def _cut(value: Any) -> Any:
    if isinstance(value, str):  # half a character, of which a student's text may be made, would be refused by SQLite
        return value[:MAX_TEXT].encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {_cut(key): _cut(one) for key, one in value.items()}
    return [_cut(one) for one in value] if isinstance(value, (list, tuple)) else value


def entries(kind: str | None = None) -> list[Entry]:
    """Return the journal's lines in order, of one kind or of all; none where there is no journal.

    Raises:
        StoreError: there is one, and it cannot be read.
    """
    if not (home() / FILE).exists():
        return []
    with _opened() as journal, journal.read() as db:
        query = "SELECT at, kind, name, data FROM entries WHERE :kind IS NULL OR kind = :kind ORDER BY seq"
        rows = db.execute(query, {"kind": kind}).fetchall()
    return [Entry(at, of, name, json.loads(data)) for at, of, name, data in rows]


@contextmanager
def _opened() -> Iterator[Database]:
    """Open the journal. A damaged one is put aside under another name, and a new one begun."""
    path = home() / FILE
    try:
        journal = Database(path, JOURNAL)
    except StoreCorrupt:
        path.replace(path.with_name(f"{FILE}.damaged-{int(time.time())}"))
        journal = Database(path, JOURNAL)
    try:
        yield journal
    finally:
        journal.close()


def compare(prediction: object, observed: object, about: str = "") -> None:
    """Print a prediction beside what was observed, and note both in the journal.

    Args:
        prediction: what the student wrote; None stands for "none yet".
        observed: what the run came to.
        about: what was asked, such as `00: refunds after a blind replay`; the journal's name for it.
    """
    if prediction is None:
        print(f"no prediction yet; observed: {observed}")
        return
    right = str(prediction).strip().lower() == str(observed).strip().lower()
    print(f"predicted: {prediction}; observed: {observed}; {'as predicted' if right else 'a surprise'}")
    note("prediction", about, predicted=str(prediction), observed=str(observed), right=right)


def why(number: str, answer: str) -> None:
    """Note in the journal what a student says to an exercise's "why?".

    Args:
        number: the exercise, such as `0.1`.
        answer: in the student's own words; nothing for "not yet".
    """
    words = str(answer).strip()
    if not words:
        print(f"why {number}: not answered yet")
    elif note("why", number, answer=words):
        print(f"why {number}: in your journal now")
    else:
        print(f"why {number}: your journal cannot be written, so this is kept in the notebook alone")
