"""What a run's log tells of the calls of the function that is tried."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from labkit.explore.bench import SAID
from labkit.explore.journal import Changed, Said
from labkit.explore.sqlworld import SqlRun

CALL = "call"
"""What a worker says with the arguments of a call that it begins."""


@dataclass
class AnswerCall:
    """One call of the answer: what it was given, what its worker has changed until it was told something, and that."""

    worker: str
    args: tuple[Any, ...]
    changes: list[Changed] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)


def calls_of(run: SqlRun) -> list[AnswerCall]:
    """Every call of the function that is tried, in the order in which they began."""
    calls: list[AnswerCall] = []
    under_way: dict[str, AnswerCall] = {}
    for one in run.log:
        if isinstance(one, Said) and one.what == CALL:
            calls.append(AnswerCall(one.worker, one.value))
            under_way[one.worker] = calls[-1]
        elif isinstance(one, Said) and one.what == SAID and one.worker in under_way:
            under_way.pop(one.worker).told.append(one.value)
        elif isinstance(one, Changed) and one.worker in under_way and one.table in ("tasks", "operations"):
            under_way[one.worker].changes.append(one)
    return calls


def name_of(change: Changed) -> str:
    """The id of the row that was changed."""
    row = change.after or change.before or {}
    return str(row.get("operation_id") or row.get("id"))
