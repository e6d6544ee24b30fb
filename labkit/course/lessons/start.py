"""Lesson 00: one refund, whatever happens."""

from __future__ import annotations

from typing import Any

from labkit.course.exercises import Exercise
from labkit.course.key_trials import KeyTrial
from labkit.course.keys import Asking, KeyedSending
from labkit.course.searching import Answer


def by_operation_id(answer: Answer, sending: KeyedSending) -> Any:
    """Call an answer as this exercise says."""
    return answer(sending.operation_id, sending.attempt)


EXERCISES = (
    Exercise(
        "0.1",
        "one refund, whatever happens",
        KeyTrial(
            Asking(
                by_operation_id,
                ("operation_id", "attempt"),
                {
                    "one_key_at_any_time": "The operation is the same on every attempt: no number of an attempt may "
                    "change its key.",
                    "a_key_for_each_operation": "Names of operations may begin or end alike: it takes all of the id.",
                },
            )
        ),
        (
            "Call your function for two attempts at one operation, then for two operations. What must be equal?",
            "The operation is the same on every attempt; which of the two arguments says so?",
            "Return operation_id alone: a new attempt, a clock or a random number must not get into the key.",
        ),
    ),
)
