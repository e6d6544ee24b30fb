"""Replays a capsule step by step: the same surprises again, with the three views at every crossing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from labkit.errors import InvalidInput
from labkit.explore.capsule import KEPT, Capsule
from labkit.explore.fields import plain
from labkit.explore.processes import ProcessWorld
from labkit.explore.scenario import Played, Scenario, World
from labkit.explore.setup import scenario_from
from labkit.explore.world import TaskScenario
from labkit.programs import Program, label_of
from labkit.runs import Moment, Run


@dataclass(frozen=True)
class Replay:
    """A capsule played again.

    Iterating over it goes through the run step by step: one moment, with the state of things, after the other.

    Args:
        capsule: what was replayed.
        played: the choices, and what the run came to this time.
        moments: the run, crossing by crossing.
        run: the same as the pictures want it; None for plain SQL, which has no task of its own and no ledger.
    """

    capsule: Capsule
    played: Played
    moments: tuple[Moment, ...] = field(repr=False)
    run: Run | None = field(repr=False)

    @property
    def breaks(self) -> bool:
        """Whether the run breaks a law this time too."""
        return bool(self.played.law)

    def __iter__(self) -> Iterator[Moment]:
        return iter(self.moments)

    def __len__(self) -> int:
        return len(self.moments)

    def __str__(self) -> str:
        law, how = plain(self.played.law), plain(self.played.how)
        if not self.breaks and self.capsule.law == KEPT:
            return f"this run keeps every law; it came to: {self.played.verdict}"
        if not self.breaks:
            return f"this run no longer breaks a law; it came to: {self.played.verdict}"
        if law == self.capsule.law:
            return f"this run breaks the law again: {law}: {how}"
        if self.capsule.law == KEPT:
            return f"this run breaks {law} now, and broke none before: {how}"
        return f"this run breaks {law} now, and {self.capsule.law} no longer: {how}"


def replay(capsule: Capsule, code: Scenario | Program | None = None, real: bool = False) -> Replay:
    """Play a capsule's run again.

    Args:
        capsule: see `Capsule.from_json`.
        code: what a capsule cannot hold. None for the lab's own worker; else a program to be run in the capsule's
            set-up, or a whole scenario, whose own set-up then counts.
        real: with real processes, really killed and stopped, that call a service over HTTP; a few seconds.

    Returns:
        The run; it says whether it still breaks a law.

    Raises:
        ScheduleMismatch: the run does not fit the capsule any more; it names the first step that differs.
        InvalidInput: code is needed; or processes are, for a scenario of plain SQL.
    """
    scenario = code if isinstance(code, Scenario) else scenario_from(capsule.setup, code)
    if real and not isinstance(scenario, TaskScenario):
        raise InvalidInput("a scenario of tasks: only those are played with real processes", label_of(scenario.program))
    world: World = ProcessWorld(scenario) if real and isinstance(scenario, TaskScenario) else scenario.open()
    surprises = ", ".join(one.choice.replace("_", " ") for one in capsule.surprises) or "no surprise"
    try:
        played, seen = world.watch(capsule.surprises, f"{label_of(scenario.program)}: {surprises}")
    finally:
        world.close()
    if isinstance(seen, Run):
        return Replay(capsule, played, seen.moments, seen)
    return Replay(capsule, played, seen, None)
