"""A report as one HTML page that needs nothing beside it: no script, no address, and a student's words as text only."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from html import escape
from importlib.resources import files

from labkit.course import wording
from labkit.course.findings import Checked, Failure, Findings, Reason, Result
from labkit.course.replaying import timeline_of
from labkit.course.verdicts import unbroken
from labkit.show.diagram import NoRenderer, renderer, state_diagram
from labkit.show.tables import TextTable, transition_table
from labkit.show.timeline import DITTO

SAFE = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
LONG_WORD = 30
"""Letters from which a word may be broken anywhere, as a column must not be as wide as that."""

SHORT_CELL = 12
"""Letters of a cell that stays in one line, such as `worker-1`."""

MOST_MOMENTS = 24
"""Moments of a timeline that a sheet of paper has room for; a longer one is shown as text, which can go over pages."""

HEAD = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{safe}">
<title>{title}</title>
<style>
{style}</style>
</head>
"""


def page(found: Findings) -> str:
    """Return the whole page; the same findings give the same text."""
    style = files("labkit.course").joinpath("report.css").read_text(encoding="utf-8")
    bodies = (_results(found), _failures(found), _predictions(found), _trade_off(found), _reasons(found), _states())
    parts = "\n".join(
        f'<section id="{name}" aria-labelledby="{name}-title">\n{body}\n</section>'
        for name, body in zip(wording.SECTIONS, map(_headed, wording.SECTIONS, bodies), strict=True)
    )
    links = "".join(
        f'<li><a href="#{name}">{escape(title)}</a>{escape(much)}</li>'
        for (name, title), much in zip(wording.SECTIONS.items(), wording.contents(found), strict=True)
    )
    date = wording.DATE.format(found.on or wording.NONE_YET)
    trouble = _p(found.trouble) if found.trouble else ""
    top = f"<h1>{wording.TITLE}</h1>\n{_quiet(date)}\n{_p(wording.intro(found))}\n{trouble}"
    return (
        f"{HEAD.format(safe=SAFE, title=wording.TITLE, style=style)}<body>\n<header>\n{top}</header>\n"
        f'<nav aria-label="Contents"><ol>{links}</ol></nav>\n<main>\n{parts}\n</main>\n</body>\n</html>\n'
    )


def _headed(name: str, body: str) -> str:
    """Put a part's heading before it; the picture of the states keeps its heading on a page of its own."""
    heading = f'<h2 id="{name}-title">{escape(wording.SECTIONS[name])}</h2>\n'
    picture, end, rest = body.partition("</figure>") if name == "states" else ("", "", "")
    return f'<div class="wide">{heading}{picture}{end}</div>{rest}' if end else heading + body


def _states() -> str:
    program = renderer()
    day, night = (state_diagram(dark=dark, renderer=program) for dark in (False, True))
    try:
        shade = night.svg().replace(' id="', ' id="night-')  # the two stand in one page, and ids in it only once
        drawn = f'<figure><div class="day">{day.svg()}</div><div class="night">{shade}</div></figure>'
    except NoRenderer:
        drawn = f"<pre>{escape(day.text)}</pre>"
    return drawn + _table(transition_table(), wording.EDGES, "small")


def _results(found: Findings) -> str:
    rows = "".join(_result(one) for one in found.results)
    return _whole_table(("exercise", "title", "last result"), rows, wording.RESULTS)


def _result(one: Result) -> str:
    lines = wording.shown_by(one)
    listed = "".join(f"<li>{unbroken(escape(line))}</li>" for line in lines)
    said = f"{_sign(wording.outcome(one))}{f'<ul>{listed}</ul>' if listed else ''}"
    return f'<tr><th scope="row">{escape(one.number)}</th><td>{escape(one.title)}</td><td class="last">{said}</td></tr>'


def _failures(found: Findings) -> str:
    if not found.failures:
        return _p(wording.NO_FAILURE)
    note = '<p class="paper quiet">The capsules, folded on the screen, are not printed; the Markdown file has them.</p>'
    return note + "\n".join(f"<article>{_failure(one)}</article>" for one in found.failures)


def _failure(one: Failure) -> str:
    case = one.first
    parts = [f"<h3>{escape(wording.what_broke(case))}</h3>", _quiet(wording.met(one))]
    if case.story is None and not case.trouble:
        parts.append(f"<pre>{escape(case.says)}</pre>")
    parts += map(_p, wording.told(case))
    parts += [_table(case.story, wording.SEEN, "small story")] if case.story else []
    parts += [f"<p><b>{escape(case.law)}</b>: {unbroken(escape(case.broke))}</p>"] if case.law else []
    return "\n".join([*parts, *_capsule(case)])


def _capsule(case: Checked) -> Iterable[str]:
    if not case.capsule:
        return
    played = timeline_of(case.capsule)
    if played is not None and len(played.run.moments) > MOST_MOMENTS:
        yield f"<pre>{escape(played.text)}</pre>"
    elif played is not None:
        picture = base64.b64encode(played.png()).decode("ascii")
        yield f'<figure><img src="data:image/png;base64,{picture}" alt="{escape(played.alt)}"></figure>'
        yield f"<details><summary>The timeline as text</summary><pre>{escape(played.text)}</pre></details>"
    yield f"<details><summary>The capsule, as JSON</summary><pre>{escape(case.capsule)}</pre></details>"


def _predictions(found: Findings) -> str:
    if not found.predictions:
        return _p(wording.NO_PREDICTION)
    rows = "".join(
        f'<tr><th scope="row">{escape(one.about)}</th><td>{escape(one.predicted)}</td><td>{escape(one.observed)}</td>'
        f"<td>{_sign(wording.came_true(one))}</td></tr>"
        for one in found.predictions
    )
    return _whole_table(wording.PREDICTION_HEADERS, rows, wording.BESIDE, "free")


def _trade_off(found: Findings) -> str:
    return _quote(found.trade_off) if found.trade_off else _p(wording.NO_TRADE_OFF)


def _reasons(found: Findings) -> str:
    return "\n".join(map(_reason, found.reasons)) or _p(wording.NO_REASON)


def _reason(one: Reason) -> str:
    heading, asked = f"<h3>{escape(f'{one.number} {one.title}'.strip())}</h3>\n", _quiet(one.asked) if one.asked else ""
    return heading + asked + _quote(one.words)


def _table(table: TextTable, caption: str, look: str = "") -> str:
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    notes = "".join(_quiet(note) for note in table.notes)
    return _whole_table(table.headers, rows, caption, look) + notes


def _whole_table(headers: Iterable[str], rows: str, caption: str, look: str = "") -> str:
    head = "".join(f'<th scope="col">{escape(one)}</th>' if one else "<td></td>" for one in headers)
    label = escape(caption)
    return (
        f'<div class="scroll" role="group" aria-label="{label}" tabindex="0"><table class="{look}">'
        f"<caption>{label}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _cell(text: str) -> str:
    if text == DITTO:
        return f'<td><span aria-hidden="true">{escape(DITTO)}</span><span class="unseen">as above</span></td>'
    if "<- WRONG" in text:
        return f'<td class="wrong">{unbroken(escape(text))}</td>'
    if len(text) <= SHORT_CELL:
        return f'<td class="short">{escape(text)}</td>'
    look = ' class="long"' if max(map(len, text.split()), default=0) > LONG_WORD else ""
    return f"<td{look}>{unbroken(escape(text))}</td>"


def _sign(word: str) -> str:
    sign, look = wording.SIGNS[word]
    return f'<span class="sign {look}"><span aria-hidden="true">{sign}</span> {escape(word)}</span>'


def _quote(words: str) -> str:
    return f'<blockquote dir="auto">{escape(words)}</blockquote>'


def _p(text: str) -> str:
    return f"<p>{unbroken(escape(text))}</p>"


def _quiet(text: str) -> str:
    return f'<p class="quiet">{escape(text)}</p>'
