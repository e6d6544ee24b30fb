"""The panel of the retries: the move that the lab would make, and the waits to come."""

import re

import pytest

from labkit.course.move_cases import ERRORS
from labkit.panels import retry, retry_panel
from labkit.panels.base import said
from labkit.panels.retry import AGES, ATTEMPTS, attempts_to_come, show
from labkit.retries import Backoff


@pytest.mark.parametrize(
    ("error", "attempts", "age", "move", "category"),
    [
        ("NotSent", 1, 0.0, "retry in 1 s", "transient"),
        ("NotSent", 4, 60.0, "retry in 8 s", "transient"),
        ("NotSent", 5, 60.0, "fail", "transient"),
        ("NotSent", 2, 3600.0, "fail", "transient"),
        ("OutcomeUnknown", 5, 3600.0, "reconcile", "unconfirmed"),
        ("Refused, Retry-After 120", 1, 0.0, "retry in 120 s", "transient"),
        ("Refused, Retry-After 120", 1, 3500.0, "fail", "transient"),
        ("Refused, permission", 1, 0.0, "fail", "permission"),
    ],
)
def test_the_move_is_told_with_the_category_and_what_is_left(
    error: str, attempts: int, age: float, move: str, category: str
):
    shown = show(error, attempts, age)
    assert f"<p><b>{move}</b>. The category is {category}: " in shown
    left = {1: "1 attempt"}.get(5 - attempts, f"{5 - attempts} attempts")
    assert f"Left of the budget: {left} and {3600 - age:g} s." in shown
    assert ("<img" in shown) == move.startswith("retry")


def test_a_wish_beyond_the_budget_is_told_as_the_reason():
    late = "The next attempt could not begin before 4000 s from now: that is too late."
    assert late in show("Refused, Retry-After 4000", 1, 0.0)
    assert "too late" not in show("Refused, Retry-After 120", 1, 0.0)
    assert "too late" not in show("Refused, permission", 1, 0.0)


def test_every_error_and_every_number_that_can_be_chosen_has_a_move():
    kinds = {
        re.search(r"<b>(\w+)", show(error, attempts, age))[1]  # type: ignore[index]
        for error in ERRORS
        for attempts in (1, ATTEMPTS["5"])
        for age in (AGES["0 s"], AGES["3600 s"])
        if not (attempts == 1 and age == 0.0)
    }
    assert kinds == {"fail", "reconcile"}


def test_attempts_to_come_end_with_the_budget_of_attempts_or_of_time():
    not_sent = ERRORS["NotSent"]()
    assert attempts_to_come(not_sent, 1, 0.0, Backoff()) == [1.0, 3.0, 7.0, 15.0]
    assert attempts_to_come(not_sent, 4, 0.0, Backoff()) == [8.0]
    assert attempts_to_come(not_sent, 1, 3595.0, Backoff()) == [1.0, 3.0]
    assert attempts_to_come(ERRORS["Refused, permission"](), 1, 0.0, Backoff()) == []
    jittered = attempts_to_come(not_sent, 1, 0.0, retry.BACKOFFS["with jitter"])
    assert all(early < late for early, late in zip(jittered, [1.0, 3.0, 7.0, 15.0], strict=True))


def test_the_waits_are_drawn_and_the_end_of_the_budget_where_it_is_near():
    far, near = show("NotSent", 1, 0.0), show("NotSent", 1, 3590.0)
    assert "without jitter: 0, 1, 3, 7, 15; with jitter: 0, " in far
    assert "The budget of time ends" not in far
    assert "without jitter: 0, 1, 3, 7; with jitter: 0, " in near
    assert "The budget of time ends at 10." in near


def test_the_panel_shows_what_is_chosen_when_its_button_is_pressed():
    box = retry_panel()
    error, attempts, age, button = box.children[0].children
    assert [one.description for one in (error, attempts, age)] == ["the error", "attempts so far", "since the first"]
    error.value, attempts.value, age.value = "OutcomeUnknown", ATTEMPTS["3"], AGES["60 s"]
    button.click()
    assert box.children[1].value == said(show("OutcomeUnknown", 3, 60.0))
