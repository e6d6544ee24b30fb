"""The exercises of each lesson, and how an answer to each is tried."""

from __future__ import annotations

from collections.abc import Mapping

from labkit.course.exercises import MAX_HINTS, Exercise
from labkit.course.lessons import (
    capstone,
    claim,
    compensation,
    crash,
    lease,
    outbox,
    reconcile,
    replay,
    retry,
    start,
    states,
)
from labkit.errors import InvalidInput

EXERCISES: Mapping[str, Exercise] = {
    exercise.number: exercise
    for lesson in (start, states, claim, lease, crash, replay, reconcile, retry, outbox, compensation, capstone)
    for exercise in lesson.EXERCISES
}
_given: dict[str, int] = {}


def exercise(number: str | float) -> Exercise:
    """Return an exercise by its number, such as `"4.1"`, or raise `InvalidInput` naming all that exist."""
    if str(number) not in EXERCISES:
        raise InvalidInput(f"one of the exercises {', '.join(EXERCISES)}, as text", number)
    return EXERCISES[str(number)]


def hint(number: str | float) -> None:
    """Print the next of an exercise's three hints; after the last, that one again."""
    asked = exercise(number)
    number, hints = asked.number, asked.hints
    given = min(_given.get(number, 0), MAX_HINTS - 1)
    _given[number] = given + 1
    print(f"hint {given + 1} of {MAX_HINTS}: {hints[given]}")
