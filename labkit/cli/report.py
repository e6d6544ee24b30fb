"""`recovery-lab report`: write the report on the course so far."""

from __future__ import annotations

import sys

from labkit.course.report import report


def run_report(folder: str | None = None) -> int:
    """Write the report into a folder, by default where the journal lies, and say where it is; 1 where it cannot be."""
    written = report(folder)
    if written.unwritten:
        print(written, file=sys.stderr)
        return 1
    print(f"{written}\n{written.html.resolve()}\n{written.markdown.resolve()}")
    return 0
