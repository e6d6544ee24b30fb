"""The exercises: what each one asks of an answer, and its hints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from labkit.course.key_trials import try_key
from labkit.course.submission import Submission
from labkit.course.trials import Trial
from labkit.errors import InvalidInput

MAX_HINTS = 3


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    Args:
        number: as in the notebooks, such as `0.1`.
        title: in a few words.
        trial: tries an answer in every way that the exercise knows, running it in processes of its own.
        hints: three, the last nearly the answer.
    """

    number: str
    title: str
    trial: Callable[[Submission], Trial]
    hints: tuple[str, str, str]


EXERCISES: Mapping[str, Exercise] = {
    exercise.number: exercise
    for exercise in (
        Exercise(
            "0.1",
            "one refund, whatever happens",
            try_key,
            (
                "Call your function for two attempts at one operation, then for two operations. What must be equal?",
                "The operation is the same on every attempt; which of the two arguments says so?",
                "Return operation_id alone: a new attempt, a clock or a random number must not get into the key.",
            ),
        ),
    )
}
_given: dict[str, int] = {}


def exercise(number: str) -> Exercise:
    """Return an exercise by its number, or raise `InvalidInput` naming all that exist."""
    if number not in EXERCISES:
        raise InvalidInput(f"one of the exercises {', '.join(EXERCISES)}", number)
    return EXERCISES[number]


def hint(number: str) -> None:
    """Print the next of an exercise's three hints; after the last, that one again."""
    hints = exercise(number).hints
    given = min(_given.get(number, 0), MAX_HINTS - 1)
    _given[number] = given + 1
    print(f"hint {given + 1} of {MAX_HINTS}: {hints[given]}")
