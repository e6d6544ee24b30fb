"""The one text renderer: aligned tables for notebooks and consoles, and the text twins of pictures.

All words of the lab are ASCII, so its tables print on any console.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labkit.errors import InvalidInput
from labkit.records import Attempt, Operation, Task
from labkit.show.style import mimebundle
from labkit.states import TRANSITIONS, Direction, Transition, up_to_lesson

WIDTH = 100
GAP = "  "
NUMBER_AND_UNIT, HARD_SPACE = re.compile(r"(?<=\d) (?=s\b)"), "\N{NO-BREAK SPACE}"
NARROWEST = 8
"""No column is squeezed below this many characters; a line may rather be too long."""


@dataclass(frozen=True)
class TextTable:
    """A table of text; `str()` of it and its display are the same aligned lines.

    Args:
        headers: one a column.
        rows: cells of each row, as many as there are headers; a line break in a cell is kept.
        title: a line above the table; empty for none.
        notes: lines below the table.
        width: characters that a line may have; the widest columns are wrapped until it fits.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    notes: tuple[str, ...] = ()
    width: int = WIDTH

    def __post_init__(self) -> None:
        if any(len(row) != len(self.headers) for row in self.rows):
            raise InvalidInput(f"rows of {len(self.headers)} cells", [len(row) for row in self.rows])

    def __str__(self) -> str:
        widths = column_widths((self.headers, *self.rows), self.width)
        rule = GAP.join("-" * width for width in widths)
        lines = [*_aligned(self.headers, widths), rule]
        bodies = [_aligned(row, widths) for row in self.rows]
        airy = any(len(body) > 1 for body in bodies)
        for number, body in enumerate(bodies):
            lines += [""] if airy and number else []
            lines += body
        above = [self.title, ""] if self.title else []
        below = ["", *self.notes] if self.notes else []
        return "\n".join([*above, *lines, *below])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return mimebundle(str(self))[0]


def wrapped(text: str, width: int) -> list[str]:
    """Break `text` into lines of at most `width` characters, its own line breaks kept, and `7 s` in one."""
    lines: list[str] = []
    for line in NUMBER_AND_UNIT.sub(HARD_SPACE, text).split("\n"):
        lines += textwrap.wrap(line, width, break_on_hyphens=False) or [""]
    return [line.replace(HARD_SPACE, " ") for line in lines]


def column_widths(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Characters for each column, so that a row with its gaps fits into `width` where that is possible.

    Columns with little text give way first, and none below its longest word while another can.
    """
    columns = list(zip(*rows, strict=True))
    widths = [max(len(line) for cell in column for line in cell.split("\n")) for column in columns]
    words = [max((len(word) for cell in column for word in cell.split()), default=0) for column in columns]
    load = [sum(len(cell) for cell in column) for column in columns]
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - width
    for least in (words, [min(NARROWEST, wide) for wide in widths]):
        for _ in range(max(excess, 0)):
            can = [column for column, wide in enumerate(widths) if wide > max(least[column], 1)]
            if excess <= 0 or not can:
                break
            widths[min(can, key=lambda column: load[column] / (widths[column] * (widths[column] - 1)))] -= 1
            excess -= 1
    return widths


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    columns = [wrapped(cell, width) for cell, width in zip(cells, widths, strict=True)]
    height = max(len(column) for column in columns)
    lines = []
    for number in range(height):
        parts = [column[number] if number < len(column) else "" for column in columns]
        line = GAP.join(part.ljust(width) for part, width in zip(parts, widths, strict=True))
        lines.append(line.rstrip())
    return lines


def transition_table(lesson: int | None = None, width: int = WIDTH) -> TextTable:
    """The table of transitions, one row an edge, in the order of `labkit.states.TRANSITIONS`.

    Args:
        lesson: show what the notebooks up to this number have shown; None shows every edge.
        width: characters a line may have.
    """
    edges = TRANSITIONS if lesson is None else up_to_lesson(lesson)
    rows = tuple((edge.event.value, arrow(edge), edge.condition, edge.effect) for edge in edges)
    return TextTable(("event", "from -> to", "condition", "also"), rows, width=width)


def arrow(edge: Transition) -> str:
    """The two ends of an edge: `queued -> running`, or `running (stays)` for an edge that leads back."""
    return f"{edge.source} (stays)" if edge.source is edge.target else f"{edge.source} -> {edge.target}"


def task_table(task: Task, width: int = WIDTH) -> TextTable:
    """A task as a person wants to read it: where it stands, who holds it, its operations with every attempt.

    Args:
        task: as read from the store; times are shown in seconds since its creation.
        width: characters a line may have.
    """
    rows = tuple(_operation_row(operation, task.created_at) for operation in task.operations)
    headers = ("operation", "remote", "stands", "attempts", "result")
    return TextTable(headers, rows, title="\n".join(_task_lines(task)), width=width)


def _task_lines(task: Task) -> list[str]:
    undoing = ", undoing" if task.direction is Direction.UNDO else ""
    asked = "; cancel requested" if task.cancel_requested else ""
    lines = [
        f"{task.id} ({task.kind}): {task.state}{undoing}, version {task.version}, step {task.step}{asked}",
        f"lease: {_lease(task)}",
        f"attempts: {task.attempts} of {task.max_attempts}; time: {task.max_seconds:g} s an operation",
    ]
    if task.next_run_at > task.created_at:
        lines.append(f"due: {_at(task.next_run_at, task.created_at)}")
    if task.awaiting_for is not None:
        until = "" if task.awaiting_until is None else f", overdue {_at(task.awaiting_until, task.created_at)}"
        lines.append(f"waits for a person: {task.awaiting_for}{until}")
    if task.error_category is not None:
        lines.append(f"last error: {task.error_category}")
    return lines


def _lease(task: Task) -> str:
    if task.lease_owner is None:
        return f"nobody (last token {task.lease_token})"
    until = "" if task.lease_expires_at is None else f", expires {_at(task.lease_expires_at, task.created_at)}"
    return f"{task.lease_owner}, token {task.lease_token}{until}"


def _at(moment: float, start: float) -> str:
    return f"at {round(moment - start, 3):g} s"


def _operation_row(operation: Operation, start: float) -> tuple[str, ...]:
    undo = " (undo)" if operation.direction is Direction.UNDO else ""
    result = operation.result_ref or "-"
    source = f" (by {operation.result_source})" if operation.result_source else ""
    attempts = "\n".join(_attempt_line(attempt, operation, start) for attempt in operation.attempts) or "-"
    return operation.id + undo, operation.remote, _stands(operation), attempts, result + source


def _stands(operation: Operation) -> str:
    if operation.needs_approval:
        by = f"approved by {operation.approved_by}" if operation.approved_by else "wants approval"
        return f"{operation.standing}, {by}"
    return operation.standing


def _attempt_line(attempt: Attempt, operation: Operation, start: float) -> str:
    outcome = "outcome unknown" if attempt.outcome is None else attempt.outcome.replace("_", " ")
    request = attempt.request_id.removeprefix(operation.id)
    return f"{request}: {outcome} (token {attempt.token}, {_at(attempt.sent_at, start)})"


def ledger_table(effects: Mapping[str, int] | Iterable[tuple[str, int]], width: int = WIDTH) -> TextTable:
    """What stands in the remotes' own ledgers, one row an operation; a doubled effect is called wrong.

    Args:
        effects: how often each operation id stands in a ledger, as a mapping or as pairs.
        width: characters a line may have.
    """
    pairs = sorted(effects.items() if isinstance(effects, Mapping) else effects)
    rows = tuple((operation_id, str(count), _count_word(count)) for operation_id, count in pairs)
    return TextTable(("operation id", "effects", ""), rows or (("(no effects)", "0", ""),), width=width)


def _count_word(count: int) -> str:
    if count > 1:
        return f"WRONG: it happened {count} times"
    return "once" if count == 1 else "not there"
