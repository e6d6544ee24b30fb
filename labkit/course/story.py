"""A failing run as a table: who crossed what, and the three views after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labkit.course.trials import WIDTH
from labkit.show.tables import TextTable
from labkit.show.timeline import DITTO

HEADERS = ("who", "crossing", "the worker believes", "the database says", "the ledger shows")
MAX_LINES, MIN_KEPT = 30, 6
"""Lines of a story, as long as that leaves so many of its steps."""

MAX_CELL = 40
NOTHING = "nothing yet"
NO_REMOTE = "(What the ledger shows: nothing, from first to last.)"


@dataclass(frozen=True)
class Step:
    """One crossing of a run, or its end, as it travels from the process in which it was seen."""

    worker: str
    point: str
    believes: str
    database: str
    ledger: Mapping[str, int]
    fault: str = ""


def story_of(steps: Sequence[Step]) -> TextTable:
    """Return the steps as a table: a view that says what it said before is a ditto mark, a long run's middle is cut."""
    for kept in range(len(steps), MIN_KEPT, -1):
        table = _table(steps, kept)
        if len(str(table).splitlines()) <= MAX_LINES:
            return table
    return _table(steps, MIN_KEPT)


def _table(steps: Sequence[Step], kept: int) -> TextTable:
    first = kept // 3
    cut = range(first, len(steps) - kept + first)
    rows: list[tuple[str, ...]] = []
    before: Step | None = None
    for number, step in enumerate(steps):
        if number == cut.start and cut:
            rows.append(("", f"... {len(cut)} more ...", "", "", ""))
        if number not in cut:
            rows.append(_row(step, before))
        before = step
    if any(step.ledger for step in steps):
        return TextTable(HEADERS, tuple(rows), width=WIDTH)
    return TextTable(HEADERS[:-1], tuple(row[:-1] for row in rows), notes=(NO_REMOTE,), width=WIDTH)


def _row(step: Step, before: Step | None) -> tuple[str, ...]:
    same = before is not None
    who = DITTO if before is not None and before.worker == step.worker and step.worker else step.worker
    believes = DITTO if who == DITTO and before is not None and before.believes == step.believes else step.believes
    database = DITTO if same and before is not None and before.database == step.database else step.database
    ledger = DITTO if same and before is not None and before.ledger == step.ledger else ledger_text(step.ledger)
    crossing = "  ".join(
        filter(None, (_short(step.point.removeprefix("before ")), f"!! {step.fault}" if step.fault else ""))
    )
    return (who, crossing, _short(believes), database, ledger)


def ledger_text(ledger: Mapping[str, int]) -> str:
    """Effects by operation, one a line; more than one of a kind is marked."""
    lines = [_effects(name, count) for name, count in sorted(ledger.items()) if count]
    return "\n".join(lines) or NOTHING


def _effects(operation_id: str, count: int) -> str:
    name = operation_id.partition("/")[2] or operation_id
    return f"{name} {count}x{'  <- WRONG' if count > 1 else ''}"


def _short(text: str) -> str:
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 3]}..."
