"""Checks: an answer is tried in a process of its own that can be killed, so a check never raises and never hangs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle

from labkit.course.exercises import exercise
from labkit.course.trials import Trial

CHECK_SECONDS = 10.0
MAX_STORY_LINES = 40
MARKER = b"\n--trial--\n"


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
        if not self.attempted:
            return f"exercise {self.number}: not attempted yet"
        if self.trial is None:
            return f"exercise {self.number}: not passed. {self.trouble}"
        if self.trial.passed:
            return f"exercise {self.number}: passed. Shown: {self.trial.shown}."
        story = [f"  {line}" for line in self.trial.story[:MAX_STORY_LINES]]
        return "\n".join(
            [
                f"exercise {self.number}: not passed. The smallest run that breaks it:",
                *story,
                f"The law that broke: {self.trial.broke}.",
                f"For a hint: hint({self.number!r})",
            ]
        )

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": str(self)}


def check(number: str, answer: Callable[..., Any]) -> CheckResult:
    """Try an answer in every way that its exercise knows.

    Args:
        number: the exercise, such as `0.1`.
        answer: the student's function. It runs in a child process, so nothing that it does reaches this one.

    Returns:
        The result; it is never an exception, whatever the answer does, and comes within about `CHECK_SECONDS`.

    Raises:
        InvalidInput: there is no such exercise.
    """
    number = exercise(number).number
    try:
        parcel = cloudpickle.dumps((number, answer))
    except Exception as error:  # whatever a student's object does when it is pickled
        return CheckResult(number, True, trouble=f"The answer cannot be handed over: {in_words(error)}.")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "labkit.course.child"],
            input=parcel,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=CHECK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return CheckResult(number, True, trouble=f"It was still running after {CHECK_SECONDS:g} seconds: a loop?")
    return _result(number, done)


def _result(number: str, done: subprocess.CompletedProcess[bytes]) -> CheckResult:
    _, marker, parcel = done.stdout.rpartition(MARKER)
    if not marker:
        trouble = "Its process ended before the check did: sys.exit or os._exit in the answer?"
        return CheckResult(number, True, trouble=trouble)
    found = json.loads(parcel)
    trial = None if found["trial"] is None else Trial(**found["trial"])
    return CheckResult(number, found["attempted"], trial, found["trouble"])


def in_words(error: BaseException) -> str:
    """Say an error's kind and text in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
