"""The student's journal: predictions beside observations, checks, and answers to "why?", kept over kernel restarts.

It lies in the student's own folder for data, or where LABKIT_HOME says. Nothing that a notebook prints depends on it
but what `report` counts; where it cannot be written, one line says so, and the lesson goes on without it.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import platformdirs

from labkit.course.questions import QUESTIONS
from labkit.database import Database, Schema
from labkit.errors import (
    InvalidInput,
    NotALabFile,
    StoreBusy,
    StoreCorrupt,
    StoreDiskError,
    StoreError,
    StoreFull,
    StoreMoved,
    StoreNotFound,
    StoreReadOnly,
)
from labkit.runs import Verdict
from labkit.values import Json, to_json

JOURNAL = Schema("journal.sql", application_id=0x4C41424A, version=1)
FILE = "journal.sqlite"
KINDS = ("prediction", "check", "why")
NO_PREDICTION = "No prediction yet: write one above, then run again."
NO_NUMBER = frozenset({"never", "ever", "for ever"})
"""Words that may be predicted where what is observed is a number."""

MAX_TEXT = 20_000
"""Characters of one text; longer ones are cut."""
FAILURES = (StoreError, OSError, RuntimeError, sqlite3.Error)
"""What a journal may come to; `RuntimeError` is pathlib's, where there is no home at all."""
_AGAIN = "and run this again"
_ELSEWHERE = "set LABKIT_HOME to a folder that can be written"
_TROUBLES: Mapping[type[Exception], tuple[str, str]] = {
    StoreFull: ("the disk is full", f"make room, {_AGAIN}"),
    StoreDiskError: ("the disk, its quota or the network fails", f"see to it, {_AGAIN}"),
    StoreBusy: ("another program keeps it locked", f"close that program, {_AGAIN}"),
    StoreMoved: ("it was deleted while in use", "run this again"),
    StoreCorrupt: ("it is damaged", f"move it to another folder, {_AGAIN}"),
    StoreReadOnly: ("it may only be read", _ELSEWHERE),
}


@dataclass(frozen=True)
class JournalEntry:
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
    """Add a line to the journal; print in one line why it could not be kept, and what to do.

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
    row = (time.time(), kind, _cut(name), to_json(_cut(data)))
    try:
        try:
            _add(row)
        except StoreMoved:  # deleted or put aside meanwhile, and the line with it
            _add(row)
    except FAILURES as error:
        print(f"not kept in your journal: {trouble(error)}")
        return False
    return True


def _add(row: tuple[float, str, str, str]) -> None:
    home().mkdir(parents=True, exist_ok=True)
    with _opened() as journal:
        with journal.write() as db:
            db.execute("INSERT INTO entries (at, kind, name, data) VALUES (?, ?, ?, ?)", row)
        journal.check_place()


def trouble(error: Exception) -> str:
    """Why the journal cannot be used, and what to do, in two short sentences."""
    if isinstance(error, NotALabFile):
        return f"it is {error.found}. What to do: set LABKIT_HOME to another folder; this one is left as it is."
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    found, advice = _TROUBLES.get(StoreFull if full else type(error), ("it cannot be opened", _ELSEWHERE))
    return f"{found}. What to do: {advice}."


def _cut(value: Any) -> Any:
    if isinstance(value, str):  # half a character, of which a student's text may be made, would be refused by SQLite
        return value[:MAX_TEXT].encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {_cut(key): _cut(one) for key, one in value.items()}
    return [_cut(one) for one in value] if isinstance(value, (list, tuple)) else value


def entries(kind: str | None = None) -> list[JournalEntry]:
    """Return the journal's lines in order, of one kind or of all; none where there is no journal.

    Raises:
        StoreError: there is one, and it cannot be read.
    """
    path = home() / FILE
    if not path.exists():
        return []
    try:
        with _opened() as journal, journal.read() as db:
            rows = _select(db, kind)
    except (StoreFull, StoreDiskError, StoreReadOnly, StoreNotFound):
        kept = _read_only(path, kind)
        if kept is None:
            raise
        rows = kept
    return [JournalEntry(at, of, name, json.loads(data)) for at, of, name, data in rows]


def _select(db: sqlite3.Connection, kind: str | None) -> list[Any]:
    query = "SELECT at, kind, name, data FROM entries WHERE :kind IS NULL OR kind = :kind ORDER BY seq"
    return db.execute(query, {"kind": kind}).fetchall()


def _read_only(path: Path, kind: str | None) -> list[Any] | None:
    """Read a journal beside which nothing can be written, as SQLite wants even to read; None where that is unsafe."""
    ours = "SELECT 1 FROM pragma_application_id, pragma_user_version WHERE application_id = ? AND user_version = ?"
    with suppress(OSError, sqlite3.Error):
        log = path.with_name(f"{FILE}-wal")
        if log.exists() and log.stat().st_size:
            return None
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True)) as db:
            if db.execute(ours, (JOURNAL.application_id, JOURNAL.version)).fetchone():
                return _select(db, kind)
    return None


@contextmanager
def _opened() -> Iterator[Database]:
    """Open the journal. A damaged one is put aside under another name, and a new one begun."""
    path = home() / FILE
    before = _identity(path)
    try:
        journal = Database(path, JOURNAL)
    except StoreCorrupt:
        if _identity(path) == before:  # nobody else has put it aside meanwhile
            _put_aside(path)
        journal = Database(path, JOURNAL)
    try:
        yield journal
    finally:
        journal.close()


def _identity(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


def _put_aside(path: Path) -> None:
    """Rename a journal, with the log that belongs to it, and say so."""
    names = (f"{FILE}.damaged-{number}" for number in count(int(time.time())))
    aside = next(one for one in names if not path.with_name(one).exists())
    for end in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            path.with_name(f"{FILE}{end}").replace(path.with_name(f"{aside}{end}"))
    print(f"your journal was damaged: a new one is begun, and the old one lies beside it as {aside}")


def compare(prediction: object, observed: object, about: str = "") -> None:
    """Print a prediction beside what was observed, and note both in the journal; say nothing before there is one.

    Args:
        prediction: what the student wrote; None stands for "none yet", and then nothing observed is given away.
        observed: what the run came to. Where that is a verdict, only a verdict is taken for a prediction, and
            where it is a number, only a number or a word such as `never`.
        about: what was asked, such as `00: refunds after a blind replay`; the journal's name for it.
    """
    if prediction is None:
        print(NO_PREDICTION)
        return
    options = _options(observed)
    if options and _plain(prediction) not in options:
        print(f"predicted: {prediction}, which is none of these: {', '.join(options)}")
        return
    if isinstance(_plain(observed), float) and isinstance(word := _plain(prediction), str) and word not in NO_NUMBER:
        print(f"predicted: {prediction}, which is no number")
        return
    right = _plain(prediction) == _plain(observed)
    print(f"predicted: {prediction}; observed: {observed}; {'as predicted' if right else 'a surprise'}")
    note("prediction", about, predicted=str(prediction), observed=str(observed), right=right)


def _options(observed: object) -> tuple[str, ...]:
    """What can be predicted, where the lab knows that: of a run its verdict."""
    verdicts = tuple(map(str, Verdict))
    return verdicts if _plain(observed) in verdicts else ()


def _plain(said: object) -> str | float:
    """What was meant, however it was written: 15.0 is 15."""
    words = str(said).strip().lower()
    with suppress(ValueError):
        return float(words)
    return words


def why(number: str | float, answer: str) -> None:
    """Note in the journal what a student says to an exercise's "why?".

    Args:
        number: the exercise, such as `"0.1"`.
        answer: in the student's own words; nothing for "not yet".
    """
    words, number = str(answer).strip(), str(number)
    if number not in QUESTIONS:
        print(f"why {number}: there is no such question; there are {', '.join(QUESTIONS)}")
    elif not words:
        print(f"why {number}: not answered yet")
    elif note("why", number, answer=words):
        print(f"why {number}: in your journal now")
