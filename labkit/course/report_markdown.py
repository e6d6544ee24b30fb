"""A report as Markdown, with a student's words in fences that they cannot end, or with every sign of markup escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable

from labkit.course import wording
from labkit.course.findings import Failure, Findings, Result
from labkit.course.replaying import timeline_of
from labkit.show.diagram import state_diagram

MARKUP = re.compile(r"[\\`*_{}\[\]<>#|~&!$]")
FENCE = "```"


def page(found: Findings) -> str:
    """Return the whole text; the same findings give the same text."""
    bodies = (_results(found), _failures(found), _predictions(found), _trade_off(found), _reasons(found), _states())
    parts = [f"# {wording.TITLE}", wording.DATE.format(found.on or wording.NONE_YET), wording.intro(found)]
    parts += [inline(found.trouble)] if found.trouble else []
    for title, body in zip(wording.SECTIONS.values(), bodies, strict=True):
        parts += [f"## {title}", *body]
    return "\n\n".join(parts) + "\n"


def inline(text: str) -> str:
    """A text in one line that Markdown shows as it stands, in a cell of a table too."""
    return MARKUP.sub(r"\\\g<0>", " ".join(text.split()))


def fenced(text: str, kind: str = "text") -> str:
    """A text as a block of code behind a fence that is longer than every run of backticks in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(len(FENCE), longest + 1)
    return f"{fence}{kind}\n{text.rstrip()}\n{fence}"


def _states() -> Iterable[str]:
    yield fenced(str(state_diagram().text))


def _results(found: Findings) -> Iterable[str]:
    yield "\n".join(map(_result, found.results))


def _result(one: Result) -> str:
    word = wording.outcome(one)
    head = f"- **{inline(one.number)}** {inline(one.title)}: {wording.SIGNS[word][0]} {word}"
    return "\n".join([head, *(f"    - {inline(line)}" for line in wording.shown_by(one))])


def _failures(found: Findings) -> Iterable[str]:
    if not found.failures:
        yield wording.NO_FAILURE
    for one in found.failures:
        yield from _failure(one)


def _failure(one: Failure) -> Iterable[str]:
    case = one.first
    yield f"### {inline(wording.what_broke(case))}"
    yield wording.met(one)
    yield from map(inline, wording.told(case))
    if case.story is not None:
        yield fenced(str(case.story))
    elif not case.trouble:
        yield fenced(case.says)
    if case.law:
        yield f"**{inline(case.law)}**: {inline(case.broke)}"
    played = timeline_of(case.capsule) if case.capsule else None
    if played is not None:
        yield fenced(played.text)
    if case.capsule:
        yield from ("<details><summary>The capsule, as JSON</summary>", fenced(case.capsule, "json"), "</details>")


def _predictions(found: Findings) -> Iterable[str]:
    if not found.predictions:
        yield wording.NO_PREDICTION
        return
    rows: list[tuple[str, ...]] = [wording.PREDICTION_HEADERS, ("---",) * len(wording.PREDICTION_HEADERS)]
    for one in found.predictions:
        word = wording.came_true(one)
        said = (inline(one.about), inline(one.predicted), inline(one.observed))
        rows.append((*said, f"{wording.SIGNS[word][0]} {word}"))
    yield "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _trade_off(found: Findings) -> Iterable[str]:
    yield fenced(found.trade_off) if found.trade_off else wording.NO_TRADE_OFF


def _reasons(found: Findings) -> Iterable[str]:
    if not found.reasons:
        yield wording.NO_REASON
    for one in found.reasons:
        yield f"### {inline(f'{one.number} {one.title}')}"
        yield from ([inline(one.asked)] if one.asked else [])
        yield fenced(one.words)
