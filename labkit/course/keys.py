"""Asking an answer for keys, and comparing them side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

from labkit.course.submission import Unfit, shortened, told_by
from labkit.course.trials import WIDTH, Trial
from labkit.show.tables import TextTable
from labkit.values import Json

MAX_KEY = 40
MANY_TASKS = 24
MANY_ATTEMPTS = (*range(2, 13), 100, 1_000)
KEY_LAWS = {
    "one_key_at_any_time": "An operation has one key, on every attempt and on every day.",
    "a_key_for_each_operation": "Two operations never share a key, however much they look alike.",
}


@dataclass(frozen=True)
class KeyedSending:
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


KeyRule = Callable[[Callable[..., Any], KeyedSending], Any]
"""Calls an answer with what its exercise says it is given; a function of an importable module."""


@dataclass(frozen=True)
class Asking:
    """How an exercise asks for a key.

    Args:
        rule: calls the answer.
        given: the names of what it is given, as a table of two sendings shows them.
        hints: where to look, by the name of the law that broke.
    """

    rule: KeyRule
    given: tuple[str, ...]
    hints: Mapping[str, str]


def attempts_at(first: KeyedSending) -> tuple[KeyedSending, ...]:
    """The same operation on its first attempt and on many later ones."""
    return (first, *(replace(first, attempt=number, now=first.now + number) for number in MANY_ATTEMPTS))


def told_keys(rule: KeyRule, sendings: Sequence[KeyedSending], answer: Callable[..., Any]) -> list[str]:
    """Ask an answer for the key of each sending."""
    return [key_of(rule, answer, sending) for sending in sendings]


def look_alikes() -> tuple[KeyedSending, ...]:
    """Sendings that are easily taken for one another.

    The same body in one task, names that begin or end alike or run into each other, the same letters in another order;
    many tasks, of more than one kind: a short key serves for two of them. Of one operation there are many attempts,
    some a day and months later, and one with a body that was read from the database, in another order.
    """
    body = {"customer": "Ada", "amount": 40}
    first = KeyedSending("task-1", "refund", 1, body, 60.0)
    turned = replace(first, request=dict(reversed(body.items())))
    names = ("task-1/refund_again", "task-12/refund", "task-1/2refund", "task-21/refund", "old-task-1/refund")
    more = ("task-1/funder", "job-1/refund", *(f"task-{number}/refund" for number in range(100, 100 + MANY_TASKS)))
    ids = (one.partition("/") for one in (*names, *more))
    others = [replace(first, task_id=task, operation=name) for task, _, name in ids]
    later = [replace(first, attempt=2, now=now) for now in (90_000.0, 9_000_000.0)]
    return (*attempts_at(first), turned, *later, *others)


def side_by_side(keys: Sequence[str], sendings: Sequence[KeyedSending], asking: Asking) -> Trial | None:
    """Compare the keys of sendings, each with each; None where each operation has one, and its own."""
    for (one, key), (other, its) in combinations(zip(sendings, keys, strict=True), 2):
        same = one.operation_id == other.operation_id
        if same != (key == its):
            law = "one_key_at_any_time" if same else "a_key_for_each_operation"
            return _beside((one, key), (other, its), law, asking)
    return None


def _beside(one: tuple[KeyedSending, str], other: tuple[KeyedSending, str], law: str, asking: Asking) -> Trial:
    pair = (one, other)
    bodies = [str(sent.request) for sent, _ in pair]
    given = (name for name in asking.given if name != "request" or bodies[0] != bodies[1])
    headers = (*given, "your key")
    rows = []
    for (sent, key), body in zip(pair, bodies, strict=True):
        told = {
            "request": body,
            "attempt": str(sent.attempt),
            "now": f"{sent.now:g}",
            "your key": shortened(key, MAX_KEY),
        }
        told |= {"task_id": sent.task_id, "operation": sent.operation, "operation_id": sent.operation_id}
        rows.append(tuple(told[header] for header in headers))
    return Trial(
        False,
        0,
        run="two sendings side by side",
        story=TextTable(headers, tuple(rows), width=WIDTH),
        law=law,
        broke=KEY_LAWS[law],
        hint=asking.hints[law],
    )


def key_of(rule: KeyRule, answer: Callable[..., Any], sending: KeyedSending) -> str:
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
