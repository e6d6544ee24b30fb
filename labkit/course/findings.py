"""What a student's journal holds, in the order of a report.

A journal may be of an older version, half written or edited by hand: whatever of an entry is not as it should be counts
as not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from labkit.course import journal
from labkit.course.journal import MAX_TEXT, JournalEntry
from labkit.course.lessons import EXERCISES
from labkit.course.questions import QUESTIONS, TITLES
from labkit.errors import InvalidInput
from labkit.show.tables import TextTable

TRADE_OFF = "10.2"
UNREADABLE = "The journal cannot be read, so nothing of it is shown here:"
DAMAGED = "An earlier journal was damaged and put aside; nothing of it is shown here."
NAMELESS = "(not named)"
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


@dataclass(frozen=True)
class Checked:
    """One check as noted.

    Args:
        on: the day, in UTC, as `2026-11-29`; empty where it is not known.
        says: all that was said, as text.
        shown: what a pass has shown, with its bounds.
        run, story, law, broke: of a failure, as in `Trial`; empty or None in a journal of an older version.
        trouble: why an answer could not be tried to the end.
        capsule: as JSON; empty for none.
    """

    number: str
    title: str
    passed: bool
    on: str
    says: str
    shown: tuple[str, ...] = ()
    run: str = ""
    story: TextTable | None = None
    law: str = ""
    broke: str = ""
    trouble: str = ""
    capsule: str = ""


@dataclass(frozen=True)
class Result:
    """What has become of one exercise; `last` is None where it was not attempted, `passed` true if ever it passed."""

    number: str
    title: str
    last: Checked | None
    passed: bool


@dataclass(frozen=True)
class Failure:
    """A failure case, and how many times the same law was broken in the same exercise."""

    first: Checked
    times: int


@dataclass(frozen=True)
class Prediction:
    """A prediction beside what was observed."""

    about: str
    predicted: str
    observed: str
    right: bool


@dataclass(frozen=True)
class Reason:
    """The last answer to a "why?"; `asked` is empty where it is not known what was asked."""

    number: str
    title: str
    asked: str
    words: str


@dataclass(frozen=True)
class Findings:
    """All that a report tells; `on` is the day of the last entry, `trouble` why nothing could be read."""

    on: str
    results: tuple[Result, ...]
    failures: tuple[Failure, ...]
    predictions: tuple[Prediction, ...]
    reasons: tuple[Reason, ...]
    trade_off: str
    trouble: str = ""

    @property
    def attempted(self) -> int:
        """How many exercises were attempted."""
        return sum(one.last is not None for one in self.results)

    @property
    def passed(self) -> int:
        """How many exercises have passed, now or before."""
        return sum(one.passed for one in self.results)

    @property
    def earlier(self) -> int:
        """How many of them passed with an earlier answer, and not with the last."""
        return sum(one.passed and one.last is not None and not one.last.passed for one in self.results)


def gather() -> Findings:
    """Read the journal, whatever state it is in."""
    noted, trouble = _read()
    checks = [_checked(one) for one in noted if one.kind == "check"]
    words = {_name(one): _field(one, "answer") for one in noted if one.kind == "why"}
    reasons = [
        Reason(number, _title(number), QUESTIONS.get(number, ""), said)
        for number, said in words.items()
        if said.strip()
    ]
    return Findings(
        _day(noted[-1].at) if noted else "",
        tuple(_result(number, [one for one in checks if one.number == number]) for number in EXERCISES),
        _failures(one for one in checks if not one.passed),
        tuple(dict.fromkeys(_prediction(one) for one in noted if one.kind == "prediction")),
        tuple(sorted((one for one in reasons if one.number != TRADE_OFF), key=lambda one: _order(one.number))),
        words.get(TRADE_OFF, "").strip(),
        trouble,
    )


def _read() -> tuple[list[JournalEntry], str]:
    try:
        noted = journal.entries()
        return noted, DAMAGED if any(journal.home().glob(f"{journal.FILE}.damaged-*")) else ""
    except (*journal.FAILURES, ValueError) as error:
        return [], f"{UNREADABLE} {journal.trouble(error)}"


def _result(number: str, checks: Sequence[Checked]) -> Result:
    return Result(number, _title(number), checks[-1] if checks else None, any(one.passed for one in checks))


def _failures(failed: Iterable[Checked]) -> tuple[Failure, ...]:
    met: dict[tuple[str, str], Failure] = {}
    for one in failed:
        key = (one.number, one.law or one.says)
        before = met.get(key, Failure(one, 0))
        met[key] = Failure(before.first, before.times + 1)
    return tuple(sorted(met.values(), key=lambda one: _order(one.first.number)))


def _prediction(entry: JournalEntry) -> Prediction:
    right = _data(entry).get("right") is True
    return Prediction(_name(entry), _field(entry, "predicted"), _field(entry, "observed"), right)


def _checked(entry: JournalEntry) -> Checked:
    data, number = _data(entry), _name(entry)
    return Checked(
        number,
        _title(number),
        data.get("passed") is True,
        _day(entry.at),
        _field(entry, "says"),
        _texts(data.get("shown")),
        _field(entry, "run"),
        _story(data.get("story")),
        _field(entry, "law"),
        _field(entry, "broke"),
        _field(entry, "trouble"),
        _field(entry, "capsule"),
    )


def _story(data: Any) -> TextTable | None:
    if not isinstance(data, dict) or not isinstance(data.get("rows"), list):
        return None
    headers, rows = _texts(data.get("headers")), tuple(map(_texts, data["rows"]))
    with suppress(InvalidInput):
        return TextTable(headers, rows, notes=_texts(data.get("notes"))) if headers else None
    return None


def _data(entry: JournalEntry) -> dict[str, Any]:
    data: Any = entry.data
    return data if isinstance(data, dict) else {}


def _name(entry: JournalEntry) -> str:
    return " ".join(_text(entry.name).split()) or NAMELESS


def _field(entry: JournalEntry, name: str) -> str:
    return _text(_data(entry).get(name))


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, value)) if isinstance(value, list) else ()


def _text(value: Any) -> str:
    """A text that any file can hold and any page can show; empty where it is none."""
    lines = value[:MAX_TEXT].replace("\r\n", "\n").replace("\r", "\n") if isinstance(value, str) else ""
    return UNPRINTABLE.sub("\ufffd", lines)


def _day(at: Any) -> str:
    with suppress(TypeError, ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(at, UTC).date().isoformat()
    return ""


def _title(number: str) -> str:
    return EXERCISES[number].title if number in EXERCISES else TITLES.get(number, "")


def _order(number: str) -> tuple[int, str]:
    numbers = list(QUESTIONS)
    return (numbers.index(number), "") if number in QUESTIONS else (len(numbers), number)
