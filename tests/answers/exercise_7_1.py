"""Exercise 7.1: what follows an error."""

import random

from answers import right, wrong
from labkit import Move, NotSent, OutcomeUnknown, Refused, Then

MAX_ATTEMPTS, MAX_SECONDS = 5, 3600


def wait(attempts, error):
    asked = getattr(error, "retry_after_seconds", None) or 0
    return max(min(60, 2 ** (attempts - 1)), asked)


def within(attempts, first_attempt_at, at):
    return attempts < MAX_ATTEMPTS and at - first_attempt_at < MAX_SECONDS


def hopeless(error):
    return isinstance(error, Refused) and error.category in ("permission", "invalid")


@right("7.1")
def branch_by_branch(error, attempts, first_attempt_at, now):
    if isinstance(error, OutcomeUnknown):
        return Move(Then.RECONCILE)
    at = now + wait(attempts, error)
    if hopeless(error) or not within(attempts, first_attempt_at, at):
        return Move(Then.FAIL)
    return Move(Then.RETRY, at)


@right("7.1")
def with_jitter(error, attempts, first_attempt_at, now):
    if isinstance(error, OutcomeUnknown):
        return Move(Then.RECONCILE)
    least = getattr(error, "retry_after_seconds", None) or 0.1
    at = now + least + random.random() * min(60, 2**attempts)
    if hopeless(error) or attempts >= MAX_ATTEMPTS or now + least + 60 - first_attempt_at > MAX_SECONDS:
        return Move(Then.FAIL)
    return Move(Then.RETRY, at)


@wrong("7.1", "The law that broke, unknown_is_reconciled:", "Your move is retry; reconcile is the right one.")
def a_time_out_is_tried_again(error, attempts, first_attempt_at, now):
    at = now + wait(attempts, error)
    if hopeless(error) or not within(attempts, first_attempt_at, at):
        return Move(Then.FAIL)
    return Move(Then.RETRY, at)


@wrong("7.1", "The law that broke, unknown_is_reconciled:", "Your move is fail")
def a_time_out_is_a_failure(error, attempts, first_attempt_at, now):
    at = now + wait(attempts, error)
    if isinstance(error, OutcomeUnknown) or hopeless(error) or not within(attempts, first_attempt_at, at):
        return Move(Then.FAIL)
    return Move(Then.RETRY, at)


@wrong("7.1", "The law that broke, unknown_is_reconciled:", "with 5 attempts, 60 s after the first")
def budget_before_anything_else(error, attempts, first_attempt_at, now):
    at = now + wait(attempts, error)
    if not within(attempts, first_attempt_at, at):
        return Move(Then.FAIL)
    return branch_by_branch(error, attempts, first_attempt_at, now)


@wrong("7.1", "The law that broke, hopeless_is_not_repeated:", "permission with 1 attempt,")
def forbidden_for_ever(error, attempts, first_attempt_at, now):
    if isinstance(error, OutcomeUnknown):
        return Move(Then.RECONCILE)
    at = now + wait(attempts, error)
    return Move(Then.RETRY, at) if within(attempts, first_attempt_at, at) else Move(Then.FAIL)


@wrong("7.1", "The law that broke, within_budget:", "NotSent with 5 attempts")
def one_attempt_too_many(error, attempts, first_attempt_at, now):
    move = branch_by_branch(error, min(attempts, 4), first_attempt_at, now)
    return move if attempts <= MAX_ATTEMPTS else Move(Then.FAIL)


@wrong("7.1", "The law that broke, within_budget:", "3600 s after the first")
def no_end_of_time(error, attempts, first_attempt_at, now):
    return branch_by_branch(error, attempts, now, now)


@wrong("7.1", "The law that broke, within_budget:", "Retry-After 4000")
def only_the_present_is_compared(error, attempts, first_attempt_at, now):
    if isinstance(error, OutcomeUnknown):
        return Move(Then.RECONCILE)
    if hopeless(error) or not within(attempts, first_attempt_at, now):
        return Move(Then.FAIL)
    return Move(Then.RETRY, now + wait(attempts, error))


@wrong("7.1", "The law that broke, waits:", "You wait no time")
def no_time_given(error, attempts, first_attempt_at, now):
    move = branch_by_branch(error, attempts, first_attempt_at, now)
    return Move(move.kind)


@wrong("7.1", "The law that broke, waits:", "You wait 0 s; retry later than now,")
def at_once(error, attempts, first_attempt_at, now):
    move = branch_by_branch(error, attempts, first_attempt_at, now)
    return Move(move.kind, now)


@wrong(
    "7.1",
    "The law that broke, waits:",
    "retry in 2 s  <- WRONG",
    "You wait 2 s; retry in 120 s or later, and in 720 s at the latest is right.",
)
def deaf_to_the_remote(error, attempts, first_attempt_at, now):
    move = branch_by_branch(error, attempts, first_attempt_at, now)
    return Move(move.kind, None if move.at is None else now + 2**attempts)


@wrong(
    "7.1",
    "The law that broke, waits:",
    "Refused, Retry-After 0",
    "You wait 0 s; retry later than now,",
)
def a_wish_for_nothing_is_a_wish(error, attempts, first_attempt_at, now):
    move = branch_by_branch(error, attempts, first_attempt_at, now)
    wish = getattr(error, "retry_after_seconds", None)
    return move if move.at is None or wish is None else Move(move.kind, now + wish)


@right("7.1")
def the_remotes_wish_or_its_own_wait(error, attempts, first_attempt_at, now):
    move = branch_by_branch(error, attempts, first_attempt_at, now)
    wish = getattr(error, "retry_after_seconds", None)
    return move if move.at is None or not wish else Move(move.kind, now + wish)


@wrong("7.1", "The law that broke, not_given_up_too_early:")
def one_try_is_enough(error, attempts, first_attempt_at, now):
    return Move(Then.RECONCILE if isinstance(error, OutcomeUnknown) else Then.FAIL)


@wrong("7.1", "The law that broke, not_given_up_too_early:", "Refused, transient with 1 attempt,")
def a_refusal_is_final(error, attempts, first_attempt_at, now):
    if isinstance(error, Refused):
        return Move(Then.FAIL)
    return branch_by_branch(error, attempts, first_attempt_at, now)


@wrong("7.1", "returned no Move of the kinds retry, fail, reconcile.")
def a_word_for_a_move(error, attempts, first_attempt_at, now):
    return "retry" if isinstance(error, NotSent) else "fail"


@wrong("7.1", "it raised AttributeError: 'NotSent' object has no attribute 'category'.")
def every_error_has_a_category(error, attempts, first_attempt_at, now):
    return Move(Then.RETRY, now + 1) if error.category == "transient" else Move(Then.FAIL)


@wrong("7.1", "returned a move at nan; seconds of the clock are wanted, or None.")
def not_a_number(error, attempts, first_attempt_at, now):
    move = branch_by_branch(error, attempts, first_attempt_at, now)
    return Move(move.kind, None if move.at is None else float("nan"))


@wrong("7.1", "The law that broke, not_given_up_too_early:", "60 s after the first, which was at 50000 s")
def a_budget_counted_from_zero(error, attempts, first_attempt_at, now):
    return branch_by_branch(error, attempts, 0.0, now)


@wrong("7.1", "The law that broke, within_budget:", "Retry-After 3600", "3600 s after it is too late already")
def later_but_not_too_late(error, attempts, first_attempt_at, now):
    if isinstance(error, OutcomeUnknown):
        return Move(Then.RECONCILE)
    at = now + wait(attempts, error)
    if hopeless(error) or attempts >= MAX_ATTEMPTS or at > first_attempt_at + MAX_SECONDS or now >= at:
        return Move(Then.FAIL)
    return Move(Then.RETRY, at) if now - first_attempt_at < MAX_SECONDS else Move(Then.FAIL)


@wrong("7.1", "The law that broke, not_given_up_too_early:", "Retry-After 1200")
def a_long_wish_is_no_wish(error, attempts, first_attempt_at, now):
    if getattr(error, "retry_after_seconds", None) and error.retry_after_seconds > 600:
        return Move(Then.FAIL)
    return branch_by_branch(error, attempts, first_attempt_at, now)


@wrong("7.1", "The law that broke, soon_enough:", "You wait 700 s; retry later than now, and in 600 s at the latest")
def longer_than_need_be(error, attempts, first_attempt_at, now):
    move = branch_by_branch(error, attempts, first_attempt_at, now)
    return Move(move.kind, None if move.at is None else max(move.at, now + 700))


@wrong("7.1", "The law that broke, within_budget:", "Refused, Retry-After 1 with 5 attempts")
def a_wish_goes_before_the_count(error, attempts, first_attempt_at, now):
    if isinstance(error, Refused) and error.retry_after_seconds and not hopeless(error):
        return branch_by_branch(error, 1, first_attempt_at, now)
    return branch_by_branch(error, attempts, first_attempt_at, now)


@wrong("7.1", "The law that broke, within_budget:", "which was at 0 s")
def zero_is_no_time(error, attempts, first_attempt_at, now):
    return branch_by_branch(error, attempts, first_attempt_at or now, now)


@wrong("7.1", "The law that broke, within_budget:", "Refused, transient with 2 attempts, 9000 s after the first")
def time_counts_only_where_nothing_was_sent(error, attempts, first_attempt_at, now):
    wishes = getattr(error, "retry_after_seconds", None)
    return branch_by_branch(error, attempts, first_attempt_at if wishes or isinstance(error, NotSent) else now, now)


@wrong("7.1", "The law that broke, hopeless_is_not_repeated:", "Refused, permission, Retry-After 120 with 1 attempt")
def whoever_names_a_time_may_be_asked_again(error, attempts, first_attempt_at, now):
    wish = getattr(error, "retry_after_seconds", None)
    if wish and within(attempts, first_attempt_at, now + wish):
        return Move(Then.RETRY, now + wish)
    return branch_by_branch(error, attempts, first_attempt_at, now)


@wrong("7.1", "The law that broke, not_given_up_too_early:", "Refused, transient, 409 with 2 attempts")
def by_the_status_alone(error, attempts, first_attempt_at, now):
    if isinstance(error, Refused) and error.status < 429:
        return Move(Then.FAIL)
    return branch_by_branch(error, attempts, first_attempt_at, now)
