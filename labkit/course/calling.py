"""Calls that one worker makes one after the other: situations that several exercises on plain SQL share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from labkit.course.laws import (
    asked,
    each_call_says_what_it_did,
    first_yes,
    granted,
    keeps_to_the_tables,
    leaves_nothing_open,
    leaves_others_alone,
    raises_nothing,
    refusals,
    says_yes_or_no,
    what_fits_is_granted,
)
from labkit.course.searching import Answer
from labkit.explore.bench import Bench
from labkit.explore.benchworld import BenchScenario
from labkit.explore.row_laws import named
from labkit.explore.scenario import Scenario
from labkit.explore.sqlworld import SqlLaw

Prepare = Callable[[Any], None]
Call = tuple[Any, ...]
"""The arguments of a call, without the connection."""


def refused(prepare: Prepare, calls: Iterable[Call], kind: SqlLaw, answer: Answer) -> Scenario:
    """Nothing fits what these calls ask for; `kind` is the law about what they return."""

    def calling(db: Any, bench: Bench) -> Any:
        return first_yes(asked(db, bench, answer, *call) for call in calls)

    return BenchScenario(calling, prepare, refusals(kind), 1, frozenset(), due=None)


def in_turn(prepare: Prepare, calls: Iterable[tuple[bool, Call]], more: Iterable[SqlLaw], answer: Answer) -> Scenario:
    """With each call goes whether it must be granted; `more` are the laws beside those about what it does and says."""

    def calling(db: Any, bench: Bench) -> None:
        for fits, call in calls:
            (granted if fits else asked)(db, bench, answer, *call)

    first = (leaves_nothing_open, leaves_others_alone, keeps_to_the_tables, raises_nothing)
    laws = named(*first, each_call_says_what_it_did, what_fits_is_granted, *more, says_yes_or_no)
    return BenchScenario(calling, prepare, laws, 1, frozenset(), due=None)
