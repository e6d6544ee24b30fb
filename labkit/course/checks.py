"""Checks: an answer is tried in processes of its own that can be killed, so a check never raises and never hangs."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from labkit.course import journal
from labkit.course.lessons import exercise
from labkit.course.submission import NotAttempted, Submission, Unfit, in_words, shortened
from labkit.course.trials import Trial
from labkit.course.verdicts import as_html
from labkit.errors import LabError

PRINTED, MAX_PRINTED_LINES = "What it printed first:", 8
WIDTH = 96
"""Characters a line: what the page of a notebook has room for on a projector."""


@dataclass(frozen=True)
class CheckResult:
    """What a check has shown.

    Args:
        number: the exercise.
        attempted: False for the untouched stub.
        trial: what trying the answer came to; None where it could not be tried to the end.
        trouble: why it could not.
        printed: the first lines that the answer has printed.
    """

    number: str
    attempted: bool
    trial: Trial | None = None
    trouble: str = ""
    printed: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every run kept every law."""
        return self.trial is not None and self.trial.passed

    @property
    def schedules(self) -> int:
        """How many runs were tried."""
        return self.trial.tried if self.trial is not None else 0

    @property
    def faults(self) -> Mapping[str, int]:
        """How many faults of each kind really happened in them."""
        return self.trial.faults if self.trial is not None else {}

    @property
    def headline(self) -> str:
        """The outcome in one line."""
        if not self.attempted:
            return f"exercise {self.number}: not attempted yet"
        return f"exercise {self.number}: {'passed' if self.passed else 'not passed'}."

    @property
    def advice(self) -> str:
        """How to get a hint, or another one."""
        which = "more hints" if self.trial else "a hint"
        return f'For {which}: from labkit.course import hint; hint("{self.number}")'

    @property
    def hint(self) -> str:
        """One hint for what went wrong; empty where nothing did."""
        if self.trial is None or self.passed:
            return ""
        return self.trial.hint or exercise(self.number).hints[0]

    def require(self) -> None:
        """Raise AssertionError unless the check passed: for graders."""
        if not self.passed:
            raise AssertionError(str(self))

    def score(self, points: float) -> float:
        """Return `points` if the check passed, else 0.0: for graders that sum up what a cell returns."""
        return float(points) if self.passed else 0.0

    def __str__(self) -> str:
        return "\n".join((self._said(), *((PRINTED, *self.printed) if self.printed else ())))

    def _said(self) -> str:
        trial = self.trial
        if not self.attempted:
            return f"{self.headline}\n{self.advice}"
        if trial is None:
            return _wrapped(self.headline, self.trouble, self.advice)
        if self.passed:
            return _wrapped(self.headline, *_listed(trial.shown))
        run = _wrapped(self.headline, f"{trial.run[:1].upper()}{trial.run[1:]}:")
        end = _wrapped(f"The law that broke, {trial.law}: {trial.broke}", f"A hint: {self.hint}", self.advice)
        return "\n\n".join((run, str(trial.story), end))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        if not self.attempted:
            return {"text/plain": str(self)}
        return {"text/plain": str(self), "text/html": as_html(self)}


def check(number: str | float, answer: Callable[..., Any], seconds: float | None = None) -> CheckResult:
    """Try an answer in every way that its exercise knows, and note the result in the student's journal.

    Args:
        number: the exercise, such as `"0.1"`.
        answer: the student's function. It runs in child processes, so nothing that it does reaches this one. That
            guards against accidents; whoever wants to fool a check of their own can.
        seconds: how long it may run; by default as long as the exercise gives it: 10, and up to 120 where thousands of
            runs are searched. A single run that does not end is told after 7.

    Returns:
        The result; it is never an exception, whatever the answer does, and comes within about `seconds`.

    Raises:
        InvalidInput: there is no such exercise.
    """
    asked = exercise(number)
    submission: Submission | None = None
    try:
        submission = Submission(answer, asked.seconds if seconds is None else seconds)
        trial = asked.trial(submission)
        result = CheckResult(asked.number, True, _with_what_is_gone(trial, submission.gone))
    except NotAttempted:
        return CheckResult(asked.number, False)
    except Unfit as unfit:
        result = CheckResult(asked.number, True, trouble=str(unfit))
    except (LabError, OSError) as error:  # no room on the disk, no process to be had
        return CheckResult(asked.number, True, trouble=f"The check itself could not be run: {in_words(error)}.")
    result = replace(result, printed=_first_lines(submission.printed if submission is not None else ""))
    journal.note("check", result.number, passed=result.passed, says=str(result), **_parts(result))
    return result


def _with_what_is_gone(trial: Trial, gone: str) -> Trial:
    """Say with the result what an answer has not found in its memory: it is there in the notebook."""
    if not gone:
        return trial
    if trial.passed:
        return replace(trial, shown=(*trial.shown, gone))
    return replace(trial, broke=f"{trial.broke} {gone}.")


def _parts(result: CheckResult) -> dict[str, Any]:
    """What a result is made of, for the report: JSON, nothing that is empty aside from the capsule."""
    trial, trouble = result.trial, {"trouble": result.trouble} if result.trouble else {}
    if trial is None:
        return {"capsule": "", **trouble}
    if trial.passed:
        return {"capsule": trial.capsule, "shown": list(trial.shown)}
    parts: dict[str, Any] = {"capsule": trial.capsule, "run": trial.run, "law": trial.law, "broke": trial.broke}
    if trial.story is not None:
        story = trial.story
        parts["story"] = {"headers": list(story.headers), "rows": [*map(list, story.rows)], "notes": [*story.notes]}
    return parts


def _first_lines(printed: str) -> tuple[str, ...]:
    lines = [shortened(line, WIDTH - 4) for line in printed.splitlines() if line.strip()]
    return tuple(f"  {line}" for line in lines[:MAX_PRINTED_LINES])


def _listed(shown: tuple[str, ...]) -> list[str]:
    if len(shown) == 1:
        return [f"Shown: {shown[0]}."]
    return ["Shown:", *(f"- {one}." for one in shown)]


def _wrapped(*paragraphs: str) -> str:
    return "\n".join(
        textwrap.fill(
            one,
            WIDTH,
            subsequent_indent="  " if one.startswith("- ") else "",
            break_on_hyphens=False,
        )
        for one in paragraphs
    )
