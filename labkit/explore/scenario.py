"""What the search needs to know of a scenario and of the world in which it is played."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from labkit.errors import InvalidInput
from labkit.explore.choices import SURPRISES, Schedule, Step, Surprise
from labkit.runs import Moment, Run


@dataclass(frozen=True)
class Played:
    """One run as the search sees it.

    Args:
        schedule: its surprises.
        steps: every choice, with its options.
        verdict: what it came to.
        law: the first law it broke, and
        how: in a sentence; both empty where it kept them all.
        counts: how many of each fault really happened.
    """

    schedule: Schedule
    steps: tuple[Step, ...]
    verdict: str
    law: str
    how: str
    counts: Mapping[str, int]

    def children(self) -> list[Schedule]:
        """All schedules with one surprise more, behind the last one: so a search meets each schedule once."""
        behind = self.schedule[-1].place + 1 if self.schedule else 0
        return [
            (*self.schedule, Surprise(place, choice, step.worker, step.point))
            for place, step in enumerate(self.steps[behind:], behind)
            for choice in step.options[1:]
        ]


class World(Protocol):
    """Where schedules are played, one after the other."""

    def play(self, schedule: Schedule) -> Played:
        """Run once, with these surprises.

        Raises:
            ScheduleMismatch: a surprise does not fit the run.
        """

    def watch(self, schedule: Schedule, title: str) -> tuple[Played, Run | tuple[Moment, ...]]:
        """The same, and keep what there was to see at every crossing."""

    def close(self) -> None:
        """Remove what it made."""


@runtime_checkable
class Scenario(Protocol):
    """What is explored."""

    @property
    def program(self) -> Callable[..., Any]:
        """The workers' code."""

    @property
    def workers(self) -> int:
        """How many are there from the start."""

    @property
    def allowed(self) -> frozenset[str]:
        """The kinds of surprise that may happen."""

    @property
    def laws(self) -> Mapping[str, Callable[[Any], str]]:
        """What every run must keep, by name."""

    def open(self, folder: Path | None = None) -> World:
        """Return a fresh world, its files within that folder where it exists."""


def checked_program(program: object, given: str) -> None:
    """Refuse what is no function that runs when it is called; `given` says with which arguments.

    Raises:
        InvalidInput: it is none.
    """
    later = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if not callable(program) or isinstance(program, type) or any(kind(program) for kind in later):
        raise InvalidInput(f"program: a plain function of {given}", program)


def checked_workers(workers: object) -> None:
    """Refuse what is no number of workers.

    Raises:
        InvalidInput: it is none.
    """
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InvalidInput("workers: a whole number, 1 or more", workers)


def checked_allowed(allowed: object, kinds: Collection[str] = SURPRISES) -> frozenset[str]:
    """Return the kinds of surprise that may happen: a misspelt one would never happen, and so break nothing.

    Raises:
        InvalidInput: one of them is none of these kinds.
    """
    known = f"allowed: a set of kinds out of {', '.join(sorted(kinds))}"
    if not isinstance(allowed, Collection) or isinstance(allowed, str | bytes | Mapping):
        raise InvalidInput(known, allowed)
    for kind in allowed:
        if not isinstance(kind, str) or kind not in kinds:
            raise InvalidInput(known, kind)
    return frozenset(map(str, allowed))
