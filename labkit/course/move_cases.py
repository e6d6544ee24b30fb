"""Exercise 7.1's cases: an error, what is on record about the attempts before, and the move that must follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from labkit.errors import NotSent, OutcomeUnknown, Refused, RemoteError
from labkit.retries import Then

LONGEST_WAIT_SECONDS = 600.0
FIRST = 1_000.0
REMOTE, OPERATION = "payments", "task-1/refund"


@dataclass(frozen=True)
class Case:
    """An error, when it came, and what must follow.

    Args:
        error: a name in `ERRORS`.
        attempts: sendings so far.
        age: seconds since the first of them.
        kind: the right move.
        law: the law that another one breaks.
        wait: at least so many seconds until the next attempt.
        first: when the first sending was, in seconds of the clock.
    """

    error: str
    attempts: int
    age: float
    kind: Then
    law: str
    wait: float = 0.0
    first: float = FIRST

    @property
    def now(self) -> float:
        """When the error came."""
        return self.first + self.age

    @property
    def situation(self) -> str:
        """The case in words."""
        attempts = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        when = "" if self.first == FIRST else f", which was at {self.first:g} s"
        return f"{self.error} with {attempts}, {self.age:g} s after the first{when}"

    @property
    def right(self) -> str:
        """The right move in words, with its bounds."""
        if self.kind is not Then.RETRY:
            return str(self.kind)
        return f"{self.kind} {self.earliest}, and in {LONGEST_WAIT_SECONDS + self.wait:g} s at the latest"

    @property
    def earliest(self) -> str:
        """When another attempt may begin."""
        return f"in {self.wait:g} s or later" if self.wait else "later than now"


ERRORS: dict[str, Callable[[], RemoteError]] = {
    "NotSent": lambda: NotSent(REMOTE, OPERATION, "the connection was refused"),
    "OutcomeUnknown": lambda: OutcomeUnknown(REMOTE, OPERATION, "time-out: no answer came"),
    "Refused, transient": lambda: Refused(REMOTE, OPERATION, "overloaded", "transient", 503),
    "Refused, Retry-After 0": lambda: Refused(REMOTE, OPERATION, "try again", "transient", 503, 0.0),
    "Refused, Retry-After 1": lambda: Refused(REMOTE, OPERATION, "try again", "transient", 503, 1.0),
    "Refused, Retry-After 120": lambda: Refused(REMOTE, OPERATION, "slow down", "transient", 429, 120.0),
    "Refused, Retry-After 1200": lambda: Refused(REMOTE, OPERATION, "closed", "transient", 503, 1200.0),
    "Refused, Retry-After 3600": lambda: Refused(REMOTE, OPERATION, "closed", "transient", 503, 3600.0),
    "Refused, Retry-After 4000": lambda: Refused(REMOTE, OPERATION, "closed", "transient", 503, 4000.0),
    "Refused, transient, 409": lambda: Refused(REMOTE, OPERATION, "another one is under way", "transient", 409),
    "Refused, permission": lambda: Refused(REMOTE, OPERATION, "forbidden", "permission", 403),
    "Refused, invalid": lambda: Refused(REMOTE, OPERATION, "no such order", "invalid", 404),
    "Refused, invalid, 422": lambda: Refused(REMOTE, OPERATION, "no such amount", "invalid", 422),
    "Refused, permission, Retry-After 120": lambda: Refused(
        REMOTE, OPERATION, "not for this key", "permission", 429, 120.0
    ),
}
MOVE_LAWS = {
    "unknown_is_reconciled": "After an unknown outcome comes finding out, whatever the budget says.",
    "hopeless_is_not_repeated": "What no repetition can help is not repeated.",
    "within_budget": "Attempts and time stay within the budget.",
    "not_given_up_too_early": "What may succeed later is tried again while attempts and time are left.",
    "waits": "The next attempt comes later than now, and not before the remote wants it.",
    "soon_enough": "The next attempt comes within 600 s of when it may.",
    "decides_alike": "The same facts lead to the same kind of move.",
}
MOVE_HINTS = {
    "unknown_is_reconciled": "OutcomeUnknown is no failure: it may have been applied. Which kind finds out?",
    "hopeless_is_not_repeated": "Look at error.category of a Refused: permission and invalid stay as they are.",
    "within_budget": "Count attempts that were made, and compare the time of the next one with the first: 3600 s after "
    "it is too late already.",
    "not_given_up_too_early": "NotSent, and Refused with the category transient, may go well next time. The budget of "
    "time runs from first_attempt_at, and ends with it, whatever the remote wishes within.",
    "waits": "A Refused has retry_after_seconds, or None there: that is the least. The other errors have no such wish. "
    "Where the wish is 0, as where there is none, your own wait counts: later than now.",
    "soon_enough": "Waits grow, up to a bound: a task that waits for longer than need be is late for nothing.",
    "decides_alike": "Nothing but the four arguments may count; jitter moves `at`, never `kind`.",
}
_UNKNOWN, _HOPELESS, _BUDGET, _EARLY, _WAITS = list(MOVE_LAWS)[:5]
CASES = (
    Case("NotSent", 1, 0.0, Then.RETRY, _EARLY),
    Case("Refused, transient", 1, 0.0, Then.RETRY, _EARLY),
    Case("Refused, permission", 1, 0.0, Then.FAIL, _HOPELESS),
    Case("Refused, invalid", 1, 0.0, Then.FAIL, _HOPELESS),
    Case("OutcomeUnknown", 1, 0.0, Then.RECONCILE, _UNKNOWN),
    Case("Refused, Retry-After 120", 1, 0.0, Then.RETRY, _EARLY, 120.0),
    Case("Refused, Retry-After 0", 1, 0.0, Then.RETRY, _EARLY),
    Case("Refused, Retry-After 1", 1, 0.0, Then.RETRY, _EARLY, 1.0),
    Case("NotSent", 4, 60.0, Then.RETRY, _EARLY),
    Case("NotSent", 5, 60.0, Then.FAIL, _BUDGET),
    Case("Refused, transient", 7, 60.0, Then.FAIL, _BUDGET),
    Case("OutcomeUnknown", 5, 60.0, Then.RECONCILE, _UNKNOWN),
    Case("NotSent", 2, 3600.0, Then.FAIL, _BUDGET),
    Case("NotSent", 2, 9000.0, Then.FAIL, _BUDGET),
    Case("OutcomeUnknown", 2, 9000.0, Then.RECONCILE, _UNKNOWN),
    Case("Refused, Retry-After 4000", 1, 0.0, Then.FAIL, _BUDGET),
    Case("Refused, Retry-After 120", 2, 3500.0, Then.FAIL, _BUDGET),
    Case("Refused, Retry-After 3600", 1, 0.0, Then.FAIL, _BUDGET),
    Case("Refused, Retry-After 1200", 1, 0.0, Then.RETRY, _EARLY, 1200.0),
    Case("NotSent", 2, 60.0, Then.RETRY, _EARLY, first=50_000.0),
    Case("NotSent", 2, 3600.0, Then.FAIL, _BUDGET, first=0.0),
    Case("Refused, Retry-After 1", 5, 60.0, Then.FAIL, _BUDGET),
    Case("Refused, transient", 5, 60.0, Then.FAIL, _BUDGET),
    Case("Refused, transient", 2, 9000.0, Then.FAIL, _BUDGET),
    Case("OutcomeUnknown", 7, 9000.0, Then.RECONCILE, _UNKNOWN),
    Case("Refused, transient, 409", 2, 60.0, Then.RETRY, _EARLY),
    Case("Refused, invalid, 422", 2, 60.0, Then.FAIL, _HOPELESS),
    Case("Refused, permission, Retry-After 120", 1, 0.0, Then.FAIL, _HOPELESS),
)
