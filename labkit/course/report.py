"""The report on a course: one HTML page that needs nothing beside it, and the same as Markdown."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from labkit.course import journal
from labkit.course.findings import gather

HTML_FILE, MARKDOWN_FILE = "recovery-report.html", "recovery-report.md"


@dataclass(frozen=True)
class Report:
    """A report that lies in a folder, or would.

    Args:
        html, markdown: its two files.
        attempted, passed, exercises: how many exercises were attempted, have ever passed, and there are.
        trouble: why nothing of the journal is in it; empty where something could be.
        unwritten: why there is none, and what to do; then a file of an earlier one is as it was, or new and whole.
    """

    html: Path
    markdown: Path
    attempted: int
    passed: int
    exercises: int
    trouble: str = ""
    unwritten: str = ""

    def __str__(self) -> str:
        if self.unwritten:
            return self.unwritten
        passed = f", {self.passed} passed" if self.attempted else ""
        text = f"a report of {self.attempted} of {self.exercises} exercises{passed}: {HTML_FILE} and {MARKDOWN_FILE}"
        return f"{text}\n{self.trouble}" if self.trouble else text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        if (
            self.unwritten or not self.attempted
        ):  # a stored notebook shows an untouched course, and no path of a machine
            return {"text/plain": str(self)}
        told, path = escape(str(self)), escape(str(self.html.resolve()))
        return {"text/plain": str(self), "text/html": f"<p>{told}</p><p>Open in a browser: <code>{path}</code></p>"}


def report(folder: str | Path | None = None) -> Report:
    """Write a report on the course so far, `recovery-report.html` and `recovery-report.md`, over an earlier one.

    Args:
        folder: where to; it is made if it is not there. By default where the journal lies.

    Returns:
        What was written: its text is the same everywhere for an untouched course; `html` and `markdown` are the paths.
        It is never an exception: where nothing could be written, the text says why.
    """
    from labkit.course import report_html, report_markdown

    try:
        place = journal.home() if folder is None else Path(folder)
    except RuntimeError:  # there is no home at all
        place = Path()
    found = gather()
    pages = {HTML_FILE: report_html.page(found), MARKDOWN_FILE: report_markdown.page(found)}
    html, markdown = (place / name for name in pages)
    unwritten = ""
    try:
        _write(place, pages)
    except OSError as error:
        advice = 'What to do: make room there, or name another folder: report("folder"). Your journal is as it was.'
        unwritten = f"The report cannot be written into {place}: {error.strerror or type(error).__name__}. {advice}"
    return Report(html, markdown, found.attempted, found.passed, len(found.results), found.trouble, unwritten)


def _write(place: Path, pages: Mapping[str, str]) -> None:
    """Write every page under a name of its own before the first takes the place of an older one."""
    place.mkdir(parents=True, exist_ok=True)
    written: dict[Path, Path] = {}
    try:
        for name, text in pages.items():
            new = place / f".{name}.{secrets.token_hex(4)}"
            written[new] = place / name
            with new.open("xb") as file:
                file.write(text.encode("utf-8"))
                file.flush()
                os.fsync(file.fileno())
        for new, target in written.items():
            new.replace(target)
    finally:
        for new in written:
            with suppress(OSError):
                new.unlink()
