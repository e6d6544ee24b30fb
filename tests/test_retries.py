"""What follows an error: categories, budgets and waits, all from durable facts."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import pytest

from labkit.errors import InvalidInput, NotSent, OutcomeUnknown, Refused, RemoteError
from labkit.retries import Backoff, Budget, Category, Move, Then, category_of, next_move


def refused(category: str = "transient", retry_after_seconds: float | None = None) -> Refused:
    return Refused("payments", "task-1/refund", "no", category, 503, retry_after_seconds)


NOT_SENT = NotSent("payments", "task-1/refund", "the connection was refused")
UNKNOWN = OutcomeUnknown("payments", "task-1/refund", "time-out")
PLAIN = Backoff(base_seconds=1, factor=2, cap_seconds=60)


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (NOT_SENT, Category.TRANSIENT),
        (UNKNOWN, Category.UNCONFIRMED),
        (refused("transient"), Category.TRANSIENT),
        (refused("permission"), Category.PERMISSION),
        (refused("invalid"), Category.INVALID),
    ],
)
def test_each_error_has_the_category_that_says_what_helps(error: RemoteError, category: Category) -> None:
    assert category_of(error) is category


def test_an_error_that_says_merely_failed_has_no_category() -> None:
    with pytest.raises(InvalidInput):
        category_of(RemoteError("payments", "task-1/refund", "it failed"))


def test_a_refusal_of_a_category_that_does_not_exist_is_refused_itself() -> None:
    with pytest.raises(InvalidInput, match="transient, permission, invalid, unconfirmed"):
        category_of(refused("flaky"))


# The table of moves: now is 100, the first attempt was at 90, the wait after the second attempt is 2 seconds.


def move(
    error: RemoteError, attempts: int = 2, max_attempts: int = 5, max_seconds: float = 3600.0, first: float = 90.0
) -> Move:
    return next_move(error, attempts, first, 100.0, Budget(max_attempts, max_seconds), PLAIN)


@pytest.mark.parametrize("error", [refused("permission"), refused("invalid"), refused("permission", 5.0)])
@pytest.mark.parametrize("attempts", [1, 4, 5, 50])
def test_permission_and_invalid_fail_at_once_whatever_is_left(error: RemoteError, attempts: int) -> None:
    assert move(error, attempts) == Move(Then.FAIL, None)


@pytest.mark.parametrize("attempts", [1, 4, 5, 50])
@pytest.mark.parametrize("max_seconds", [5.0, 3600.0])
def test_an_unknown_outcome_is_reconciled_whatever_is_left_and_never_simply_repeated(
    attempts: int, max_seconds: float
) -> None:
    assert move(UNKNOWN, attempts, max_seconds=max_seconds) == Move(Then.RECONCILE, None)


@pytest.mark.parametrize("error", [NOT_SENT, refused()])
def test_a_transient_error_is_retried_after_the_backoff(error: RemoteError) -> None:
    assert move(error) == Move(Then.RETRY, 102.0)


@pytest.mark.parametrize(("attempts", "kind"), [(4, Then.RETRY), (5, Then.FAIL), (6, Then.FAIL)])
def test_the_last_attempt_of_the_budget_is_not_followed_by_another(attempts: int, kind: Then) -> None:
    assert move(refused(), attempts).kind is kind


def test_attempts_spent_leave_no_time_to_try_again_at() -> None:
    assert move(refused(), attempts=5) == Move(Then.FAIL, None)


@pytest.mark.parametrize(("max_seconds", "kind"), [(12.001, Then.RETRY), (12.0, Then.FAIL), (11.0, Then.FAIL)])
def test_a_retry_must_begin_before_the_budget_of_time_is_over(max_seconds: float, kind: Then) -> None:
    assert move(refused(), max_seconds=max_seconds) == Move(kind, 102.0)


@pytest.mark.parametrize(
    ("retry_after", "at"), [(None, 102.0), (0.0, 102.0), (1.0, 102.0), (2.0, 102.0), (2.5, 102.5), (600.0, 700.0)]
)
def test_the_longer_of_backoff_and_retry_after_counts(retry_after: float | None, at: float) -> None:
    assert move(refused("transient", retry_after)) == Move(Then.RETRY, at)


def test_a_retry_after_beyond_the_budget_of_time_fails_and_says_when_it_would_have_been() -> None:
    assert move(refused("transient", 3590.0)) == Move(Then.FAIL, 3690.0)
    assert move(refused("transient", 3589.0)) == Move(Then.RETRY, 3689.0)


def test_a_retry_after_beyond_the_cap_of_the_backoff_is_respected() -> None:
    assert next_move(refused("transient", 500.0), 1, 0.0, 0.0, Budget(), Backoff(cap_seconds=1.0)).at == 500.0


def test_by_default_there_are_5_attempts_within_an_hour() -> None:
    assert [next_move(NOT_SENT, n, 0.0, 0.0).kind for n in (1, 4, 5)] == [Then.RETRY, Then.RETRY, Then.FAIL]
    assert next_move(NOT_SENT, 1, 0.0, 3598.5).kind is Then.RETRY
    assert next_move(NOT_SENT, 1, 0.0, 3599.0).kind is Then.FAIL


def test_the_same_facts_give_the_same_move_so_a_restart_changes_nothing() -> None:
    jittery = Backoff(jitter=1.0, seed=4)
    assert next_move(NOT_SENT, 3, 0.0, 10.0, None, jittery) == next_move(NOT_SENT, 3, 0.0, 10.0, None, jittery)


# Waits


def test_waits_grow_by_the_factor_up_to_the_cap() -> None:
    assert [PLAIN.delay_seconds(n) for n in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_small_factor_reaches_the_cap_too() -> None:
    assert Backoff(factor=1.01).delay_seconds(1000) == 60.0


@pytest.mark.parametrize("factor", [1, 2, 1e10, 1.7e308])
@pytest.mark.parametrize("attempts", [64, 65, 1_000_000, 10**12])
def test_a_great_many_attempts_wait_for_a_finite_time_at_once(factor: float, attempts: int) -> None:
    assert Backoff(base_seconds=1, factor=factor).delay_seconds(attempts) == (1 if factor == 1 else 60)


def test_no_base_means_no_wait_however_many_attempts() -> None:
    assert Backoff(base_seconds=0, factor=1e300).delay_seconds(10**6) == 0.0


@pytest.mark.parametrize("jitter", [0.0, 0.25, 1.0])
def test_jitter_takes_away_at_the_most_its_share_of_the_wait(jitter: float) -> None:
    for seed in range(50):
        for attempts in range(1, 9):
            wait = PLAIN.delay_seconds(attempts)
            drawn = Backoff(jitter=jitter, seed=seed).delay_seconds(attempts)
            assert wait * (1 - jitter) <= drawn <= wait


def test_jitter_is_drawn_anew_for_each_attempt_and_for_each_seed_and_is_the_same_on_every_run() -> None:
    waits = [Backoff(factor=1, jitter=1.0, seed=seed).delay_seconds(n) for seed in (1, 2) for n in range(1, 6)]
    again = [Backoff(factor=1, jitter=1.0, seed=seed).delay_seconds(n) for seed in (1, 2) for n in range(1, 6)]
    assert waits == again
    assert len(set(waits)) == 10


def test_jitter_really_spreads() -> None:
    drawn = sorted(Backoff(jitter=1.0, seed=seed).delay_seconds(1) for seed in range(200))
    assert drawn[0] < 0.05
    assert drawn[-1] > 0.95
    assert 0.4 < sum(drawn) / len(drawn) < 0.6


def test_drawing_does_not_touch_the_random_module_that_students_use() -> None:
    random.seed(1)
    expected = random.random()
    random.seed(1)
    Backoff(jitter=1.0).delay_seconds(3)
    assert random.random() == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_seconds": -1.0},
        {"base_seconds": math.nan},
        {"base_seconds": math.inf},
        {"factor": 0.5},
        {"factor": math.nan},
        {"factor": math.inf},
        {"cap_seconds": -1.0},
        {"cap_seconds": math.inf},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": math.nan},
        {"jitter": True},
        {"factor": "2"},
    ],
)
def test_a_backoff_that_cannot_be_meant_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        Backoff(**wrong)  # type: ignore[arg-type]


def test_the_smallest_budget_is_one_attempt_and_no_time_for_a_second() -> None:
    assert next_move(NOT_SENT, 1, 0.0, 0.0, Budget(1, 100.0)).kind is Then.FAIL
    assert next_move(NOT_SENT, 1, 0.0, 0.0, Budget(9, 0.0)).kind is Then.FAIL


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"max_attempts": -1},
        {"max_attempts": 1.5},
        {"max_attempts": True},
        {"max_attempts": "5"},
        {"max_seconds": -1.0},
        {"max_seconds": math.inf},
        {"max_seconds": math.nan},
    ],
)
def test_a_budget_that_cannot_be_meant_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        Budget(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("attempts", "first", "now", "says"),
    [
        (0, None, 5.0, "this task has no attempt under way: is it still yours?"),
        (1, None, 5.0, "this task has no attempt under way: is it still yours?"),
        (None, 1.0, 5.0, "this task has no attempt under way: is it still yours?"),
        (True, 1.0, 5.0, "attempts: 1 or more"),
        (-1, 1.0, 5.0, "attempts: 1 or more"),
        (1, "1", 5.0, "first_attempt_at: a finite number of seconds"),
        (1, 1.0, None, "now: a finite number of seconds"),
        (1, 1.0, math.nan, "now: a finite number of seconds"),
    ],
)
@pytest.mark.parametrize("error", [NOT_SENT, UNKNOWN])
def test_where_no_attempt_is_under_way_or_a_number_is_none_that_is_said(
    error: RemoteError, attempts: Any, first: Any, now: Any, says: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(says)):
        next_move(error, attempts, first, now)
