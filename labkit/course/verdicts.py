"""What a check has shown, as HTML for a notebook: the colours of its theme, and a sign beside every colour."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from labkit.course.story import WRONG
from labkit.show.tables import TextTable

if TYPE_CHECKING:
    from labkit.course.checks import CheckResult

PASSED, FAILED = "#009E73", "#D55E00"
WHOLE = re.compile(
    r"worker-\d+(?: \(lab\))?|task-\d+[\w/]{0,24}(?: \d+x| [a-z_]{1,24} v\d+)?|!! \w+|&lt;- WRONG"
    r"|\b[a-z_]{1,24} v\d+|\b(?:token|attempt) \d+"
)
WRONG_CELL = f"; box-shadow: inset 4px 0 {FAILED}; font-weight: 700"
CELL = "padding: 2px 10px; text-align: left; vertical-align: top; white-space: pre-wrap"


def as_html(result: CheckResult) -> str:
    """Return a result as one `<div>`; a student's words in it are escaped."""
    sign, colour = ("&#10004;", PASSED) if result.passed else ("&#10008;", FAILED)
    head = f"<p><b>{sign} {escape(result.headline)}</b></p>"
    body = "".join(_parts(result))
    if result.printed:
        lines = escape("\n".join(result.printed))
        body += f"<p>What it printed first:</p><pre>{lines}</pre>"
    picture = "" if result.trial is None or result.trial.picture is None else _drawn(result)
    return f'<div style="border-left: 6px solid {colour}; padding-left: 12px">{head}{body}{picture}</div>'


def _parts(result: CheckResult) -> list[str]:
    trial, advice = result.trial, f"<p>{escape(result.advice)}</p>"
    if trial is None:
        return [f"<p>{escape(result.trouble)}</p>", advice]
    if trial.passed:
        return [f"<p>Shown:</p><ul>{''.join(f'<li>{escape(one)}.</li>' for one in trial.shown)}</ul>"]
    return [
        f"<p>{escape(trial.run[:1].upper() + trial.run[1:])}:</p>",
        table_html(trial.story) if trial.story is not None else "",
        f"<p><b>The law that broke,</b> <code>{escape(trial.law)}</code>: {_in_code(trial.broke)}</p>",
        f"<p><b>A hint:</b> {_in_code(result.hint)}</p>",
        advice,
    ]


def _in_code(words: str) -> str:
    """Escape words, and set as code what stands between backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", unbroken(escape(words)))


def unbroken(markup: str) -> str:
    """Keep names, marks and counts on one line each, in markup: a hyphen or a space would break them."""
    return WHOLE.sub(r'<span class="whole" style="white-space: nowrap">\g<0></span>', markup)


def table_html(table: TextTable) -> str:
    """Return a table of text as an HTML one, with its notes."""
    head = "".join(f'<th scope="col" style="{CELL}">{escape(one)}</th>' for one in table.headers)
    rows = ("".join(map(_cell, row)) for row in table.rows)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    notes = "".join(f"<p>{escape(note)}</p>" for note in table.notes)
    table_ = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div style="overflow-x: auto">{table_}</div>{notes}'


def _cell(text: str) -> str:
    look = CELL + WRONG_CELL if WRONG in text else CELL
    return f'<td style="{look}">{unbroken(escape(text))}</td>'


def _drawn(result: CheckResult) -> str:
    from labkit.show.diagram import NoRenderer

    assert result.trial is not None, "asked only where there is one"
    try:
        drawn = result.trial.picture.svg().replace("<svg", '<svg style="max-width: 100%; height: auto"', 1)
    except NoRenderer:
        return f"<pre>{escape(str(result.trial.picture))}</pre>"
    return f'<p>Of your edges those that the table has:</p><div style="background: #ffffff">{drawn}</div>'
