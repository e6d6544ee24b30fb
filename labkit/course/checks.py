"""Checks: an answer is tried in processes of its own that can be killed, so a check never raises and never hangs."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labkit.course.exercises import exercise
from labkit.course.submission import NotAttempted, Submission, Unfit, in_words
from labkit.course.trials import Trial
from labkit.errors import LabError

CHECK_SECONDS = 10.0
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
    """

    number: str
    attempted: bool
    trial: Trial | None = None
    trouble: str = ""

    @property
    def passed(self) -> bool:
        """Whether every run kept every law."""
        return self.trial is not None and self.trial.passed

    @property
    def schedules(self) -> int:
        """How many runs were tried."""
        return self.trial.tried if self.trial is not None else 0

    def require(self) -> None:
        """Raise AssertionError unless the check passed: for graders."""
        if not self.passed:
            raise AssertionError(str(self))

    def score(self, points: float) -> float:
        """Return `points` if the check passed, else 0.0: for graders that sum up what a cell returns."""
        return float(points) if self.passed else 0.0

    def __str__(self) -> str:
        head = f"exercise {self.number}: {'passed' if self.passed else 'not passed'}."
        more = f'For {"more hints" if self.trial else "a hint"}: from labkit.course import hint; hint("{self.number}")'
        if not self.attempted:
            return f"exercise {self.number}: not attempted yet"
        if self.trial is None:
            return _wrapped(head, self.trouble, more)
        if self.passed:
            return _wrapped(head, f"Shown: {self.trial.shown}.")
        law, hint = f"The law that broke: {self.trial.broke}", f"A hint: {self.trial.hint}"
        return "\n".join([_wrapped(head, f"{self.trial.run}:"), "", *self.trial.story, "", _wrapped(law, hint, more)])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": str(self)}


def check(number: str, answer: Callable[..., Any], seconds: float = CHECK_SECONDS) -> CheckResult:
    """Try an answer in every way that its exercise knows.

    Args:
        number: the exercise, such as `0.1`.
        answer: the student's function. It runs in child processes, so nothing that it does reaches this one. That
            guards against accidents; whoever wants to fool a check of their own can.
        seconds: how long it may run.

    Returns:
        The result; it is never an exception, whatever the answer does, and comes within about `seconds`.

    Raises:
        InvalidInput: there is no such exercise.
    """
    asked = exercise(number)
    try:
        return CheckResult(asked.number, True, asked.trial(Submission(answer, seconds)))
    except NotAttempted:
        return CheckResult(asked.number, False)
    except Unfit as unfit:
        return CheckResult(asked.number, True, trouble=str(unfit))
    except (LabError, OSError) as error:  # no room on the disk, no process to be had
        return CheckResult(asked.number, True, trouble=f"The check itself could not be run: {in_words(error)}.")


def _wrapped(*paragraphs: str) -> str:
    return "\n".join(textwrap.fill(one, WIDTH, break_long_words=False, break_on_hyphens=False) for one in paragraphs)
