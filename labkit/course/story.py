"""A failing run as a table: who crossed what, and the three views after it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby

from labkit.course.trials import WIDTH
from labkit.show.tables import TextTable
from labkit.show.timeline import DITTO

HEADERS = ("who", "crossing", "the worker believes", "the database says", "the ledger shows")
BEFORE = "before "
"""Begins the name of what is crossed before it is done, such as a statement, and not behind it."""

ABOUT_TO = "is about to"
MAX_LINES, MIN_KEPT = 52, 6
"""Lines of a story, as long as that leaves so many of its steps."""

MAX_UNCUT = 16
"""Steps before the one that breaks the law, from the last surprise on, that are never cut."""

MAX_CELL, MAX_POINT = 40, 80
MIN_SAME = 2
"""So many workers that do what the one before them did are told as one."""

SEVERAL = re.compile(r"^task-\S+ .*\n.*task-\S+ ")
NUMBER = re.compile(r"\d+")
MANY_TASKS = 4
"""From so many on, or where it is long, only those that have changed are shown again."""

NOTHING = "nothing yet"
NO_EFFECT = "(What the ledger shows: nothing, from first to last.)"
FROM_THE_START = "({} stood there from the start; other effects are the probe's own, and may come twice.)"
WRONG = "<- WRONG"
LAB, LAB_NOTE = " (lab)", "(lab: what the check itself does there, not your function.)"


@dataclass(frozen=True)
class StoryStep:
    """One crossing of a run, or its end, as it travels from the process in which it was seen; see `Moment`."""

    worker: str
    point: str
    believes: str
    database: str
    ledger: Mapping[str, int]
    fault: str = ""
    broken: bool = False
    lab: bool = False
    """The check's own work, and not that of the code on trial."""


def story_of(steps: Sequence[StoryStep], remotes: bool = True, real: Sequence[str] = ()) -> TextTable:
    """Return the steps as a table: a view that says what it said before is a ditto mark, a long run is cut.

    Args:
        steps: all of a run.
        remotes: whether there are any, whose ledgers could show something.
        real: operations that stood there from the start, if only those must not have a second effect.

    Whatever is cut, its ends, its first surprises and the first effects stay. Workers that start in vain or do the
    same, one behind the other, are told as one.
    """
    steps = _repeated(_folded(steps))
    for kept in range(min(len(steps), MAX_LINES), MIN_KEPT, -1):  # a step is a line at least
        table = _table(steps, kept, remotes, real)
        if len(str(table).splitlines()) <= MAX_LINES:
            return table
    return _table(steps, MIN_KEPT, remotes, real)


def _folded(steps: Sequence[StoryStep]) -> list[StoryStep]:
    told: list[StoryStep] = []
    again = 0
    for number, step in enumerate(steps):
        if number and _starts_in_vain(steps[number - 1], step):
            again += 1
            continue
        if again:
            told.append(replace(steps[number - 1], worker="", point=f"... {again} more start in vain ...", believes=""))
        told.append(step)
        again = 0
    return told


def _repeated(steps: Sequence[StoryStep]) -> list[StoryStep]:
    """Tell workers as one that do the same as the one before them, if there are several."""
    lives = [list(life) for _, life in groupby(steps, lambda step: step.worker)]
    told: list[StoryStep] = []
    for _, same in groupby(lives, _doings):
        first, *more = same
        told += first
        if len(more) >= MIN_SAME:
            told.append(replace(more[-1][-1], worker="", point=f"... {len(more)} more do the same ...", believes=""))
        else:
            told += chain.from_iterable(more)
    return told


def _doings(life: Sequence[StoryStep]) -> tuple[object, ...]:
    """What a worker does, whatever numbers it has; how much is in the ledger counts."""
    return tuple(
        (
            NUMBER.sub("", f"{one.point} {one.believes} {one.database}"),
            sorted(one.ledger.items()),
            one.fault,
            one.broken,
        )
        for one in life
    )


def _starts_in_vain(before: StoryStep, step: StoryStep) -> bool:
    """Whether a worker only starts, as the one before it only has; a run never ends with a start."""
    starts = all(one.point.startswith("start ") and not one.fault for one in (before, step))
    return starts and (before.database, before.ledger) == (step.database, step.ledger)


def _table(steps: Sequence[StoryStep], kept: int, remotes: bool, real: Sequence[str]) -> TextTable:
    shown = _shown(steps, kept)
    rows: list[tuple[str, ...]] = []
    before: StoryStep | None = None
    cut = 0
    for number, step in enumerate(steps):
        if number not in shown:
            before, cut = None, cut + 1  # a ditto mark must not point at what is not there
            continue
        if cut:
            rows.append(("", f"... {cut} more ...", "", "", ""))
        rows.append(_row(step, before, real))
        before, cut = step, 0
    notes: tuple[str, ...] = (LAB_NOTE,) if any(steps[number].lab for number in shown) else ()
    about_to = any(step.point.startswith(BEFORE) for step in steps)
    headers = (HEADERS[0], ABOUT_TO, *HEADERS[2:]) if about_to else HEADERS
    if any(step.ledger for step in steps):
        notes += (FROM_THE_START.format(", ".join(real)),) if real else ()
        return TextTable(headers, tuple(rows), notes=notes, width=WIDTH)
    notes += (NO_EFFECT,) if remotes else ()
    return TextTable(headers[:-1], tuple(row[:-1] for row in rows), notes=notes, width=WIDTH)


def _shown(steps: Sequence[StoryStep], kept: int) -> set[int]:
    """The places of so many steps: all that tell, and of the others more from the beginning, where it goes wrong."""
    near = _telling(steps)
    others = [number for number in range(len(steps)) if number not in near]
    spare = max(2, kept - len(near))
    last = spare // 3 or 1
    shown = {*near, *others[: spare - last], *others[-last:]}
    return {number for number in range(len(steps)) if number in shown or {number - 1, number + 1} <= shown}


def _telling(steps: Sequence[StoryStep]) -> list[int]:
    """The places of surprises, of the broken law, of changes of the ledger, and of what follows: a few of each."""
    surprises = [number for number, step in enumerate(steps) if step.fault or step.broken]
    booked = [number for number in range(1, len(steps)) if steps[number].ledger != steps[number - 1].ledger]
    after = [number + 1 for number in surprises]
    return sorted({*surprises[:MIN_KEPT], *booked[:MIN_KEPT], *after[: MIN_KEPT // 2], *_up_to_the_wrong(steps)})


def _up_to_the_wrong(steps: Sequence[StoryStep]) -> range:
    """The places from the last surprise to the step by which the law is broken: there it goes wrong."""
    broken = next((number for number, step in enumerate(steps) if step.broken), 0)
    since = max((number for number, step in enumerate(steps[:broken]) if step.fault), default=broken)
    return range(max(since, broken - MAX_UNCUT), broken)


def _row(step: StoryStep, before: StoryStep | None, real: Sequence[str]) -> tuple[str, ...]:
    same = before is not None
    alike = before is not None and (before.worker, before.lab) == (step.worker, step.lab) and step.worker
    who = DITTO if alike else f"{step.worker}{LAB if step.lab else ''}"
    believes = DITTO if who == DITTO and before is not None and before.believes == step.believes else step.believes
    database = DITTO if same and before is not None and before.database == step.database else step.database
    if before is not None and (database.count("\n") >= MANY_TASKS or ("\n" in database and len(database) > MAX_POINT)):
        known = before.database.splitlines()
        database = "\n".join(line for line in database.splitlines() if line not in known) or DITTO
    if step.broken:
        database = f"{step.database if database == DITTO else database}\n{WRONG}"
    shown = ledger_text(step.ledger, real, several=SEVERAL.search(step.database) is not None)
    ledger = DITTO if same and before is not None and before.ledger == step.ledger else shown
    point = _short(step.point.removeprefix(BEFORE), MAX_POINT)
    crossing = f"{point}  !! {step.fault}" if step.fault else point
    return (who, crossing, _short(believes, MAX_CELL), database, ledger)


def ledger_text(ledger: Mapping[str, int], real: Sequence[str] = (), several: bool = False) -> str:
    """Effects by operation, one a line; more than one of a kind is marked.

    Args:
        ledger: the counts.
        real: see `story_of`.
        several: there are several tasks, so an operation is told with its task.
    """
    lines = [_effects(name, count, real, several) for name, count in sorted(ledger.items()) if count]
    return "\n".join(lines) or NOTHING


def _effects(operation_id: str, count: int, real: Sequence[str], several: bool) -> str:
    name = operation_id if real or several else operation_id.partition("/")[2] or operation_id
    wrong = count > 1 and (not real or operation_id in real)
    return f"{name} {count}x{f'  {WRONG}' if wrong else ''}"


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
