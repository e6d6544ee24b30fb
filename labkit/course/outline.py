"""The course in one table: what each notebook teaches, what it costs, and what it needs."""

from __future__ import annotations

from dataclasses import dataclass

from labkit.show.tables import TextTable


@dataclass(frozen=True)
class Lesson:
    """One notebook.

    Args:
        file: its name, without the ending.
        teaches: in a few words.
        reading: minutes.
        exercises: minutes.
        needs: the notebooks to know before; empty for none.
        short: it is on the two-hour path.
    """

    file: str
    teaches: str
    reading: int
    exercises: int
    needs: str
    short: bool = False

    @property
    def number(self) -> str:
        """Its two digits."""
        return self.file[:2]


SHORT_MINUTES = 120
"""Reading on the two-hour path, and the first exercise of each of its first two notebooks."""

OUTLINE: tuple[Lesson, ...] = (
    Lesson("00_start_here", "a crash after the effect, and one way out", 20, 5, "", True),
    Lesson("01_states", "a transcript is not state; states, edges, conditions", 20, 25, "00"),
    Lesson("02_claim", "compare-and-set, the race, stale versions", 25, 15, "00", True),
    Lesson("03_lease", "leases, zombies, fencing tokens", 25, 20, "02"),
    Lesson("04_crash", "crash points, and the checkpoint", 20, 30, "02", True),
    Lesson("05_replay", "operation ids and idempotency keys", 15, 20, "04", True),
    Lesson("06_reconcile", "in doubt: status query, late delivery, a person", 25, 45, "05", True),
    Lesson("07_retry", "error categories, budgets, backoff", 20, 20, "05"),
    Lesson("08_outbox", "a change and its message in one transaction", 20, 25, "04"),
    Lesson("09_compensation", "cancelling stops, compensating makes up", 20, 30, "06"),
    Lesson("10_lab", "the whole task over three remotes; your report", 20, 60, "07, 09"),
    Lesson("12_field_cases", "twelve reports from the field, broken and mended", 30, 0, "06"),
)


def course_map() -> TextTable:
    """Return the table of all notebooks; a star marks the two-hour path."""
    rows = tuple(
        (one.file, one.teaches, str(one.reading), str(one.exercises), one.needs, "*" if one.short else "")
        for one in OUTLINE
    )
    path = ", ".join(one.number for one in OUTLINE if one.short)
    headers = ("notebook", "teaches", "reading", "exercises", "needs", "")
    return TextTable(
        headers,
        rows,
        notes=(
            f"* the two-hour path: {path}, with the first exercise of the first two: {SHORT_MINUTES} minutes",
            "Minutes are for one person alone.",
        ),
    )
