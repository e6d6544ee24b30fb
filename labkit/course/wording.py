"""The words that the two forms of a report share."""

from __future__ import annotations

from collections.abc import Mapping

from labkit.course.findings import Checked, Failure, Findings, Prediction, Result

TITLE = "Recovery Lab: report"
DATE = "Last entry of the journal: {}"
NONE_YET = "none yet"
NO_FAILURE = "No failure case is in the journal."
NO_PREDICTION = "No prediction is in the journal yet."
NO_REASON = "No answer is in the journal yet."
NO_TRADE_OFF = "Not written yet."
WHAT_CAME_BACK, NOT_TO_THE_END = "it returned something else", "not tried to the end"
RETURNED = " returned "
"""Stands in the trouble of an answer that came back with something that was not wanted."""

EDGES = "Every edge with its condition, as the store enforces it"
SEEN = "What there was to see"
RESULTS = "Each exercise with its last result"
BESIDE = "What was predicted, and what was seen"
PREDICTION_HEADERS = ("about", "predicted", "observed", "so it was")
SECTIONS: Mapping[str, str] = {
    "exercises": "Exercises",
    "failures": "Failure cases met",
    "predictions": "Predictions beside observations",
    "trade-off": "The trade-off (10.2)",
    "why": "Why?",
    "states": "The states of a task",
}
"""Of each part its name and its title, in order."""

SIGNS: Mapping[str, tuple[str, str]] = {
    "passed": ("✔", "good"),
    "not passed": ("✘", "bad"),
    "not attempted": ("○", "none"),
    "as predicted": ("✔", "good"),
    "a surprise": ("!", "odd"),
}
"""Of each outcome its sign, and the name of its colour."""


def intro(found: Findings) -> str:
    """How far the course has got, and what a pass says."""
    return (
        f"{found.attempted} of {len(found.results)} exercises attempted, {_passed(found)}. A pass is a statement "
        "with bounds: it says what was tried, and nothing about what was not."
    )


def _passed(found: Findings) -> str:
    return f"{found.passed} passed" + (f", {found.earlier} of them not with the last answer" if found.earlier else "")


def contents(found: Findings) -> tuple[str, ...]:
    """How much each part holds, to stand behind its title."""
    surprises = sum(not one.right for one in found.predictions)
    return (
        f": {found.attempted} of {len(found.results)} attempted, {_passed(found)}",
        f": {len(found.failures)}",
        f": {len(found.predictions)}" + (f", of them {surprises} a surprise" if found.predictions else ""),
        f": {'written' if found.trade_off else 'not written yet'}",
        f": {len(found.reasons)} answered",
        "",
    )


def outcome(one: Result) -> str:
    """What the last check of an exercise came to, as in `SIGNS`."""
    if one.last is None:
        return "not attempted"
    return "passed" if one.last.passed else "not passed"


def shown_by(one: Result) -> list[str]:
    """What the last check of an exercise has shown or what broke, a sentence each."""
    last = one.last
    if last is None:
        return []
    if last.passed:
        return [f"{line[:1].upper()}{line[1:]}." for line in last.shown]
    broke = f"{last.law}: {last.broke}" if last.law else last.trouble
    return [line for line in (broke, "An earlier answer passed." if one.passed else "") if line]


def came_true(one: Prediction) -> str:
    """What a prediction came to, as in `SIGNS`."""
    return "as predicted" if one.right else "a surprise"


def what_broke(case: Checked) -> str:
    """The heading of a failure case."""
    untried = WHAT_CAME_BACK if RETURNED in case.trouble else NOT_TO_THE_END
    broke = case.law or (untried if case.trouble else "not passed")
    return f"{case.number} {case.title}".strip() + f": {broke}"


def told(case: Checked) -> list[str]:
    """What a failure case has to say before its story, a sentence each; the story may be an older version's text."""
    run = f"{case.run[:1].upper()}{case.run[1:]}:" if case.run else ""
    return [line for line in (case.trouble, run) if line]


def met(one: Failure) -> str:
    """How often a failure case was met, and when first."""
    often = "Met once" if one.times == 1 else f"Met {one.times} times, first"
    return f"{often} on {one.first.on}." if one.first.on else f"{often.removesuffix(', first')}."
