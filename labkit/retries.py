"""What to do after an error: its category, budgets of attempts and time, and a growing, jittered wait.

Backoff with full jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/.
Retry-After: RFC 9110, section 10.2.3.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from enum import StrEnum

from labkit.errors import InvalidInput, NotSent, OutcomeUnknown, Refused, RemoteError
from labkit.values import checked_seconds, known

NO_ATTEMPT = "attempts and first_attempt_at as numbers (this task has no attempt under way: is it still yours?)"


class Category(StrEnum):
    """Why a call gave no result, by what helps."""

    TRANSIENT = "transient"
    """Not applied, and the same call may succeed later."""
    PERMISSION = "permission"
    """Not applied; no repetition helps, a person must grant something."""
    INVALID = "invalid"
    """Not applied; the request itself is wrong."""
    UNCONFIRMED = "unconfirmed"
    """Perhaps applied: find out before anything else."""


class Then(StrEnum):
    """The three ways on after an error."""

    RETRY = "retry"
    FAIL = "fail"
    RECONCILE = "reconcile"


@dataclass(frozen=True)
class Move:
    """What to do next, and from when on another attempt could be made (seconds of the clock)."""

    kind: Then
    at: float | None = None


@dataclass(frozen=True)
class Budget:
    """How much one operation may cost; kept in the task's row, so that it survives restarts.

    Args:
        max_attempts: sendings at the most, 1 or more.
        max_seconds: from the first sending on, no new one begins after so many seconds.
    """

    max_attempts: int = 5
    max_seconds: float = 3600.0

    def __post_init__(self) -> None:
        if type(self.max_attempts) is not int or self.max_attempts < 1:
            raise InvalidInput("max_attempts: 1 or more", self.max_attempts)
        checked_seconds("max_seconds", self.max_seconds)


@dataclass(frozen=True)
class Backoff:
    """How long to wait before the next attempt.

    Args:
        base_seconds: the wait after the first attempt.
        factor: by which it grows with each further one.
        cap_seconds: it grows no further.
        jitter: the share of the wait that is drawn at random, from 0 (none) to 1 (full jitter).
        seed: of the draws, so that a run can be repeated; workers with the same one wait in step.
    """

    base_seconds: float = 1.0
    factor: float = 2.0
    cap_seconds: float = 60.0
    jitter: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        checked_seconds("base_seconds", self.base_seconds)
        checked_seconds("cap_seconds", self.cap_seconds)
        for name, value, least, most in (
            ("factor", self.factor, 1.0, sys.float_info.max),
            ("jitter", self.jitter, 0.0, 1.0),
        ):
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise InvalidInput(f"{name}: a number from {least:g} to {most:g}", value)

    def delay_seconds(self, attempts: int) -> float:
        """Seconds to wait after `attempts` sendings (1 or more); the same for the same seed and number."""
        try:
            growth = float(self.factor) ** max(attempts - 1, 0)
        except OverflowError:
            growth = sys.float_info.max
        wait = min(self.cap_seconds, self.base_seconds * growth)
        return wait * (1 - self.jitter * random.Random(f"{self.seed}/{attempts}").random())


def category_of(error: RemoteError) -> Category:
    """Sort an error by what helps; an unknown outcome is a category of its own, not a failure."""
    if isinstance(error, NotSent):
        return Category.TRANSIENT
    if isinstance(error, Refused):
        return known(Category, error.category)
    if isinstance(error, OutcomeUnknown):
        return Category.UNCONFIRMED
    raise InvalidInput("NotSent, OutcomeUnknown or Refused", type(error).__name__)


def next_move(
    error: RemoteError,
    attempts: int,
    first_attempt_at: float,
    now: float,
    budget: Budget | None = None,
    backoff: Backoff | None = None,
) -> Move:
    """Decide what follows an error, from durable facts alone.

    Args:
        error: what the remote call raised.
        attempts: sendings of this operation so far, 1 or more, from the task's row.
        first_attempt_at: when the first of them was, in seconds of the clock.
        now: the present time of the same clock.
        budget: the bounds; by default 5 attempts within an hour.
        backoff: the wait; a longer Retry-After of the remote is respected.

    Returns:
        `reconcile` after an unknown outcome; `retry` at a time within the budget after a transient error; else `fail`.

    Raises:
        InvalidInput: there is no attempt to decide about, as where somebody else holds the task by now.
    """
    _check_under_way(attempts, first_attempt_at, now)
    budget, backoff = budget or Budget(), backoff or Backoff()
    category = category_of(error)
    if category is Category.UNCONFIRMED:
        return Move(Then.RECONCILE)
    if category is not Category.TRANSIENT or attempts >= budget.max_attempts:
        return Move(Then.FAIL)
    wished = error.retry_after_seconds if isinstance(error, Refused) else None
    at = now + max(backoff.delay_seconds(attempts), wished or 0.0)
    return Move(Then.RETRY if at - first_attempt_at < budget.max_seconds else Then.FAIL, at)


def _check_under_way(attempts: object, first_attempt_at: object, now: object) -> None:
    if first_attempt_at is None or attempts in (None, 0):
        raise InvalidInput(NO_ATTEMPT, (attempts, first_attempt_at))
    if type(attempts) is not int or attempts < 1:
        raise InvalidInput("attempts: 1 or more", attempts)
    checked_seconds("first_attempt_at", first_attempt_at, float("-inf"))
    checked_seconds("now", now, float("-inf"))
