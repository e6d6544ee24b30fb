"""The table of guarantees as text for notebooks, and as the page `docs/guarantees.md`.

`python -m labkit.show.guarantees docs/guarantees.md` writes the page anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from labkit.explore.guarantees import Shown, show
from labkit.show.tables import WIDTH, TextTable

QUIET = "the quiet run"

INTRO = """\
# Guarantees

Nothing here holds by itself. Each claim of the lab rests on an assumption, and without that assumption there is a
schedule that breaks it. The explorer has tried both sides: every schedule within the stated bound where the assumption
holds, and one after the other, the smallest first, where it does not.

A *surprise* is one departure from the quiet run: a crash, a lost, refused or late delivery, a switch of workers, a
pause (asleep until the lease has run out), a cancel, a clock that is off. A clean result is a statement within its
bound, and no more. A test keeps this page in step with what the explorer finds.

| | claim | rests on | with it | without it |
|---|---|---|---|---|
"""


def guarantee_table(shown: Iterable[Shown] | None = None, width: int = WIDTH) -> TextTable:
    """The claims, what each rests on, and the smallest schedule that breaks it without.

    Args:
        shown: of `labkit.explore.guarantees.show`; None tries all claims now.
        width: characters a line may have.
    """
    rows = tuple(
        (one.guarantee.claim, one.guarantee.assumption, _with(one), _without(one))
        for one in (show() if shown is None else shown)
    )
    return TextTable(("claim", "rests on", "with it", "without it"), rows, width=width)


def page(shown: Iterable[Shown] | None = None) -> str:
    """The page: one row a claim.

    Args:
        shown: of `labkit.explore.guarantees.show`; None tries all claims now.
    """
    lines = []
    for one in show() if shown is None else shown:
        row = (f"**{one.guarantee.name}**", one.guarantee.claim, one.guarantee.assumption, _with(one), _without(one))
        lines.append("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |\n")
    return INTRO + "".join(lines)


def _with(one: Shown) -> str:
    return f"{one.kept.summary[0].upper()}{one.kept.summary[1:]}."


def _without(one: Shown) -> str:
    failure = one.dropped.failure
    if failure is None:
        return f"{one.guarantee.dropped}: {one.dropped.summary}."
    surprises = "; then ".join(one.schedule) or QUIET
    return f"Suppose {one.guarantee.dropped}.\nSmallest schedule: {surprises}.\nThen {failure.how}."


def main() -> None:
    """Write the page to the file that the command line names, or to standard output."""
    text = page()
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text, encoding="utf-8", newline="\n")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
