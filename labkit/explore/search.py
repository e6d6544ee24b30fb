"""The search: every schedule of a scenario up to a bound of surprises, the smallest first."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Any, Protocol

import cloudpickle

from labkit.explore.choices import Schedule, Surprise, order_of
from labkit.explore.world import Played


class World(Protocol):
    """Where schedules are played."""

    def play(self, schedule: Schedule) -> Played:
        """Run once, with these surprises."""

    def close(self) -> None:
        """Remove what it made."""


class Scenario(Protocol):
    """What is explored."""

    def open(self) -> World:
        """Return a fresh world."""


@dataclass(frozen=True)
class Exploration:
    """What a search has shown.

    Args:
        surprises: the bound; None where there was none.
        schedules: how many were run, up to the first failure or to the end.
        verdicts: how many of them came to what.
        happened: how many faults of each kind really happened in them.
        failure: the first run that broke a law, so one with the fewest surprises and switches; None where none did.
        cut_short: why the search ended before its bound; empty where it did not.
    """

    surprises: int | None
    schedules: int
    verdicts: Mapping[str, int]
    happened: Mapping[str, int]
    failure: Played | None = None
    cut_short: str = ""

    @property
    def passed(self) -> bool:
        """Whether every schedule within the bound was run and kept every law."""
        return self.failure is None and not self.cut_short

    def __str__(self) -> str:
        bound = "any number of surprises" if self.surprises is None else f"up to {self.surprises} surprises"
        lines = []
        if self.cut_short:
            lines.append(f"NOT EXHAUSTIVE: {self.cut_short}, after {self.schedules:,} schedules with {bound}")
        elif self.failure is None:
            lines.append(f"all {self.schedules:,} schedules with {bound} keep every law")
        else:
            lines.append(f"schedule {self.schedules:,} breaks a law: {self.failure.law}: {self.failure.how}")
            lines += [f"  surprise at step {one.place}: {where(self.failure, one)}" for one in self.failure.schedule]
        lines.append("verdicts: " + _counted(self.verdicts))
        lines.append("what happened in them: " + (_counted(self.happened) or "nothing out of the ordinary"))
        return "\n".join(lines)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": str(self)}


def where(played: Played, surprise: Surprise) -> str:
    """Say in words where a surprise happened: worker, point and what."""
    step = played.steps[surprise.place]
    return f"{step.worker}, {step.point}: {surprise.choice}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in sorted(counts.items()) if count)


def explore(
    scenario: Scenario,
    surprises: int | None = 2,
    max_schedules: int = 1_000_000,
    go_on: bool = False,
    executor: Executor | None = None,
    chunk: int = 100,
    tell: Callable[[int, int], None] | None = None,
) -> Exploration:
    """Run every schedule with no surprise, then with one, and so on.

    Args:
        scenario: what is explored.
        surprises: the bound; None runs every schedule there is.
        max_schedules: the search is cut short there.
        go_on: count the verdicts of all schedules instead of ending at the first that breaks a law.
        executor: spreads the search; the result is the same, in the same order.
        chunk: how many schedules are handed to the executor at a time.
        tell: told after each chunk how many schedules were run, and how many are known so far.

    Returns:
        What was shown. A KeyboardInterrupt ends the search with what it has.
    """
    found = _Found(surprises, go_on, max_schedules)
    runner: _Runner = _Here(scenario) if executor is None else _Spread(scenario, executor)
    try:
        level: list[Schedule] = [()]
        for depth in _depths(surprises):
            deeper = surprises is None or depth < surprises
            next_level: list[Schedule] = []
            for batch, children in runner.run(level, deeper, chunk):
                next_level += children
                if not found.add(batch):
                    return found.result()
                if tell is not None:
                    tell(found.schedules, found.schedules + len(next_level))
            if not next_level:
                break
            level = sorted(next_level, key=order_of)
    except KeyboardInterrupt:
        found.cut_short = "interrupted"
    finally:
        runner.close()
    return found.result()


def _depths(surprises: int | None) -> Iterator[int]:
    depth = 0
    while surprises is None or depth <= surprises:
        yield depth
        depth += 1


class _Found:
    """Adds up what was run, in the order of the search."""

    def __init__(self, surprises: int | None, go_on: bool, max_schedules: int) -> None:
        self.surprises, self.go_on, self.max_schedules = surprises, go_on, max_schedules
        self.schedules, self.cut_short = 0, ""
        self.failure: Played | None = None
        self.verdicts: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()

    def add(self, batch: Iterable[Played]) -> bool:
        """Count a batch; tells whether the search should go on."""
        for played in batch:
            if self.schedules >= self.max_schedules:
                self.cut_short = f"more than {self.max_schedules:,} schedules"
                return False
            self.schedules += 1
            self.verdicts[played.verdict] += 1
            self.happened.update(played.counts)
            if played.law and self.failure is None:
                self.failure = played
                if not self.go_on:
                    return False
        return True

    def result(self) -> Exploration:
        """What the search has shown so far."""
        happened = {name: count for name, count in self.happened.items() if count}
        return Exploration(self.surprises, self.schedules, dict(self.verdicts), happened, self.failure, self.cut_short)


Batch = tuple[list[Played], list[Schedule]]


def _run_batch(world: World, schedules: Sequence[Schedule], deeper: bool) -> Batch:
    """Play schedules in order; return the runs, with their steps where they broke a law, and all their children."""
    runs, children = [], list[Schedule]()
    for schedule in schedules:
        played = world.play(schedule)
        if deeper:
            children += played.children()
        runs.append(played if played.law else replace(played, steps=()))
    return runs, children


def _run_parcel(parcel: bytes, schedules: Sequence[Schedule], deeper: bool) -> Batch:
    """The same in another process, in a world of its own."""
    world: World = cloudpickle.loads(parcel).open()
    try:
        return _run_batch(world, schedules, deeper)
    finally:
        world.close()


class _Runner(Protocol):
    def run(self, level: Sequence[Schedule], deeper: bool, chunk: int) -> Iterator[Batch]: ...

    def close(self) -> None: ...


class _Here:
    """Plays one schedule after the other in one warm world."""

    def __init__(self, scenario: Scenario) -> None:
        self._world = scenario.open()

    def run(self, level: Sequence[Schedule], deeper: bool, chunk: int) -> Iterator[Batch]:
        for schedules in _chunks(level, chunk):
            yield _run_batch(self._world, schedules, deeper)

    def close(self) -> None:
        self._world.close()


class _Spread:
    """Hands batches to an executor, a few ahead, and takes the results in order."""

    AHEAD = 16

    def __init__(self, scenario: Scenario, executor: Executor) -> None:
        self._parcel, self._executor = cloudpickle.dumps(scenario), executor
        self._waiting: deque[Future[Batch]] = deque()

    def run(self, level: Sequence[Schedule], deeper: bool, chunk: int) -> Iterator[Batch]:
        batches = _chunks(level, chunk)
        for schedules in batches:
            self._waiting.append(self._executor.submit(_run_parcel, self._parcel, schedules, deeper))
            if len(self._waiting) >= self.AHEAD:
                yield self._waiting.popleft().result()
        while self._waiting:
            yield self._waiting.popleft().result()

    def close(self) -> None:
        for future in self._waiting:
            future.cancel()


def _chunks(level: Sequence[Schedule], size: int) -> Iterator[Sequence[Schedule]]:
    for start in range(0, len(level), size):
        yield level[start : start + size]
