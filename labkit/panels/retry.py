"""The panel of the retries: choose an error and what is on record, and see the move and the waits to come."""

from __future__ import annotations

import html
from collections.abc import Mapping

from labkit.course.move_cases import ERRORS
from labkit.errors import RemoteError
from labkit.panels.base import Action, Panel, choice, panel, picture_html
from labkit.retries import Backoff, Budget, Category, Move, Then, category_of, next_move
from labkit.show.waits import Waits

INVITATION = "<p>Choose an error and what is on record about the attempts so far. Then press the button.</p>"
BUDGET = Budget()
ATTEMPTS: Mapping[str, int] = {str(number): number for number in range(1, BUDGET.max_attempts + 1)}
AGES: Mapping[str, float] = {f"{age} s": float(age) for age in (0, 60, 1800, 3500, 3590, 3600)}
BACKOFFS: Mapping[str, Backoff] = {"without jitter": Backoff(), "with jitter": Backoff(jitter=1.0)}
KNOWN: Mapping[Category, str] = {
    Category.TRANSIENT: "not applied, and the same call may succeed later",
    Category.PERMISSION: "not applied; a person must grant something first",
    Category.INVALID: "not applied; the request itself is wrong",
    Category.UNCONFIRMED: "perhaps applied: nothing is sent before that is found out",
}


def attempts_to_come(error: RemoteError, attempts: int, age: float, backoff: Backoff) -> list[float]:
    """Say when attempts would begin if every one ended by the same error.

    Args:
        error: how the last attempt ended, just now.
        attempts: sendings so far.
        age: seconds since the first of them.
        backoff: the waits.

    Returns:
        Seconds from now, up to the end of the budget.
    """
    coming: list[float] = []
    for made in range(attempts, BUDGET.max_attempts):
        move = next_move(error, made, 0.0, age + (coming[-1] if coming else 0.0), BUDGET, backoff)
        if move.kind is not Then.RETRY or move.at is None:
            break
        coming.append(move.at - age)
    return coming


def show(error: str, attempts: int, age: float) -> str:
    """Show the move after an error (a name in `ERRORS`) as HTML, and the waits to come where it is to be retried."""
    raised = ERRORS[error]()
    move, category = next_move(raised, attempts, 0.0, age, BUDGET), category_of(raised)
    said = (
        f"<p><b>{html.escape(_move(move, age))}</b>. The category is {category}: {KNOWN[category]}. "
        f"{_left(attempts, age)}{_too_late(move, age)}</p>"
    )
    if move.kind is not Then.RETRY:
        return said
    lines = {name: [0.0, *attempts_to_come(raised, attempts, age, one)] for name, one in BACKOFFS.items()}
    left = BUDGET.max_seconds - age
    last = max(time for times in lines.values() for time in times)
    until = left if left < 3 * last else None  # further away it would press all waits together
    light, dark = (Waits("The attempts to come, from now on", lines, until, theme) for theme in (False, True))
    return said + picture_html(light, dark)


def _move(move: Move, age: float) -> str:
    return f"{move.kind} in {move.at - age:g} s" if move.kind is Then.RETRY and move.at is not None else str(move.kind)


def _left(attempts: int, age: float) -> str:
    left, seconds = max(BUDGET.max_attempts - attempts, 0), max(BUDGET.max_seconds - age, 0.0)
    return f"Left of the budget: {left} {'attempt' if left == 1 else 'attempts'} and {seconds:g} s."


def _too_late(move: Move, age: float) -> str:
    """Why a transient error is not tried again though attempts and time are left."""
    if move.kind is not Then.FAIL or move.at is None:
        return ""
    return f" The next attempt could not begin before {move.at - age:g} s from now: that is too late."


def retry_panel() -> Panel:
    """Return a panel that asks the retry decision what follows an error."""
    errors = choice("the error", list(ERRORS))
    made, ages = choice("attempts so far", ATTEMPTS), choice("since the first", AGES)
    action = Action("what now?", "Ask the retry decision.", lambda: show(errors.value, made.value, ages.value))
    return panel("retry", [action], INVITATION, choices=[errors, made, ages])
