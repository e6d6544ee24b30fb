"""Asking an answer for keys, and comparing them side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

from labkit.course.submission import Unfit, shortened, told_by
from labkit.course.trials import WIDTH, Trial
from labkit.records import Json
from labkit.show.tables import TextTable

MAX_KEY = 40
MANY_ATTEMPTS = (*range(2, 13), 100, 1_000)
KEY_LAWS = {
    "one_key_at_any_time": "An operation has one key, on every attempt and on every day.",
    "a_key_for_each_operation": "Two operations never share a key, however much they look alike.",
}
KEY_HINTS = {
    "one_key_at_any_time": "Neither the attempt nor the time may get into it, nor the order of what is in the body.",
    "a_key_for_each_operation": "Task and name make the operation, and something between them keeps them apart.",
}


@dataclass(frozen=True)
class Sending:
    """One attempt at one operation, as an answer is asked for its key.

    Args:
        task_id: such as `task-1`.
        operation: its name within the task, such as `refund`.
        attempt: counts from 1.
        request: the body.
        now: seconds on the worker's clock.
    """

    task_id: str
    operation: str
    attempt: int
    request: Json
    now: float

    @property
    def operation_id(self) -> str:
        """The operation's own name in the whole store."""
        return f"{self.task_id}/{self.operation}"


KeyRule = Callable[[Callable[..., Any], Sending], Any]
"""Calls an answer with what its exercise says it is given; a function of an importable module."""


def attempts_at(first: Sending) -> tuple[Sending, ...]:
    """The same operation on its first attempt and on many later ones."""
    return (first, *(replace(first, attempt=number, now=first.now + number) for number in MANY_ATTEMPTS))


def told_keys(rule: KeyRule, sendings: Sequence[Sending], answer: Callable[..., Any]) -> list[str]:
    """Ask an answer for the key of each sending."""
    return [key_of(rule, answer, sending) for sending in sendings]


def side_by_side(keys: Sequence[str], sendings: Sequence[Sending]) -> Trial | None:
    """Compare the keys of sendings, each with each; None where each operation has one, and its own."""
    for (one, key), (other, its) in combinations(zip(sendings, keys, strict=True), 2):
        same = one.operation_id == other.operation_id
        if same != (key == its):
            law = "one_key_at_any_time" if same else "a_key_for_each_operation"
            return _beside((one, key), (other, its), law)
    return None


def _beside(one: tuple[Sending, str], other: tuple[Sending, str], law: str) -> Trial:
    pair = (one, other)
    bodies = [str(sent.request) for sent, _ in pair]
    headers = ("task_id", "operation", "attempt", "now", *(("request",) if bodies[0] != bodies[1] else ()), "your key")
    rows = []
    for (sent, key), body in zip(pair, bodies, strict=True):
        told = {
            "request": body,
            "attempt": str(sent.attempt),
            "now": f"{sent.now:g}",
            "your key": shortened(key, MAX_KEY),
        }
        told |= {"task_id": sent.task_id, "operation": sent.operation}
        rows.append(tuple(told[header] for header in headers))
    return Trial(
        False,
        0,
        run="two sendings side by side",
        story=TextTable(headers, tuple(rows), width=WIDTH),
        law=law,
        broke=KEY_LAWS[law],
        hint=KEY_HINTS[law],
    )


def key_of(rule: KeyRule, answer: Callable[..., Any], sending: Sending) -> str:
    """Ask an answer for one key.

    Raises:
        Unfit: it raised something, or returned something that is no key.
    """
    asked = f"Asked for the key of {sending.operation_id}, attempt {sending.attempt}, it"
    key = told_by(partial(rule, answer, sending), asked)
    if not isinstance(key, str) or not key or not key.isprintable():
        raise Unfit(f"{asked} returned {_named(key)}. A key is text, and not empty.")
    return str.__str__(key)


def _named(value: object) -> str:
    if isinstance(value, str):
        return "text that cannot be printed" if value else "empty text"
    return f"an object of type {type(value).__name__}"
