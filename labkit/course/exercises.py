"""The exercises: what each one asks of an answer, and its hints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from labkit.course.submission import Submission
from labkit.course.trials import Trial

MAX_HINTS = 3
CHECK_SECONDS = 10.0


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    Args:
        number: as in the notebooks, such as `0.1`.
        title: in a few words.
        trial: tries an answer in every way that the exercise knows, running it in processes of its own.
        hints: three, the last nearly the answer.
        seconds: how long a check may take; a kill switch.
    """

    number: str
    title: str
    trial: Callable[[Submission], Trial]
    hints: tuple[str, str, str]
    seconds: float = CHECK_SECONDS
