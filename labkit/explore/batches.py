"""Where schedules are run: here in one warm world, or spread over an executor in batches, with the same outcome.

A batch opens a world of its own and removes it, all within one folder of the search, which the search itself removes in
the end: so nothing stays behind a process that was killed.
"""

from __future__ import annotations

import pickle
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from labkit.errors import LabError
from labkit.explore.choices import Schedule, ScheduleMismatch
from labkit.explore.interrupt import Interrupt
from labkit.explore.lives import OutOfTime
from labkit.explore.scenario import Played, Scenario, World
from labkit.explore.warm import Files
from labkit.packing import packed

Seen = tuple[Played, Sequence[Schedule]]
"""A run, with its steps where it broke a law, and the schedules with one surprise more."""

Batch = tuple[list[Seen], ScheduleMismatch | None]
"""Runs in order, and why there are no more of them."""

SMALLEST, LARGEST, BATCHES_A_LEVEL = 20, 400, 32
"""A batch pays for opening a world, about as much as for ten schedules; a level ends with some workers idle."""

AHEAD = 64
LOOK_EVERY_SECONDS = 0.5
GRACE_SECONDS = 5.0


class CutOff(Exception):
    """A batch has not run all of its schedules, and no run of it says why."""


class BatchFailed(LabError):
    """A batch ended with an error that cannot travel from its process to this one as it is."""


class Runner(Protocol):
    """Runs the schedules of one level after the other."""

    def run(self, level: Sequence[Schedule], deeper: bool) -> Iterator[Seen]:
        """Run schedules in order; with their children if the search goes deeper."""

    def close(self) -> None:
        """End what is still running, and remove every file."""


class Here:
    """Runs one schedule after the other in one warm world.

    Args:
        scenario: what is explored.
        deadline: on the monotonic clock; None for no limit.
    """

    def __init__(self, scenario: Scenario, deadline: float | None) -> None:
        self._world, self._deadline = scenario.open(), deadline

    def run(self, level: Sequence[Schedule], deeper: bool) -> Iterator[Seen]:
        """See `Runner`."""
        for schedule in level:
            if self._deadline is not None and time.monotonic() >= self._deadline:
                raise OutOfTime
            yield _seen(self._world, schedule, deeper)

    def close(self) -> None:
        """See `Runner`."""
        self._world.close()


class Spread:
    """Hands batches to an executor, some ahead, and takes their results in order.

    Args:
        scenario: what is explored; it travels as `labkit.packing` says.
        executor: any executor; it is not shut down.
        deadline: on the monotonic clock; None for no limit.
        go_on: a batch does not end at the first run that breaks a law.
    """

    def __init__(self, scenario: Scenario, executor: Executor, deadline: float | None, go_on: bool) -> None:
        self._parcel, self._executor, self._deadline, self._go_on = (
            packed(scenario),
            executor,
            deadline,
            go_on,
        )
        self._files = Files()
        _flag(self._files.folder).touch()
        self._waiting: deque[tuple[Future[Batch], int]] = deque()

    def run(self, level: Sequence[Schedule], deeper: bool) -> Iterator[Seen]:
        """See `Runner`."""
        size = min(max(len(level) // BATCHES_A_LEVEL, SMALLEST), LARGEST)
        folder = str(self._files.folder)
        for start in range(0, len(level), size):
            batch = level[start : start + size]
            left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            sent = (self._parcel, pickle.dumps(batch), deeper, self._go_on, folder, left)
            self._waiting.append((self._executor.submit(run_batch, *sent), len(batch)))
            if len(self._waiting) >= AHEAD:
                yield from self._next()
        while self._waiting:
            yield from self._next()

    def _next(self) -> Iterator[Seen]:
        first, size = self._waiting[0]
        while not first.done():
            if self._deadline is not None and time.monotonic() >= self._deadline:
                raise OutOfTime
            wait([first], LOOK_EVERY_SECONDS)  # never for long: some systems let nothing interrupt a wait
        self._waiting.popleft()
        seen, mismatch = first.result()
        yield from seen
        if mismatch is not None:
            raise mismatch
        if len(seen) < size:  # the folder is gone, and with it the flag: somebody has tidied up
            raise CutOff

    def close(self) -> None:
        """See `Runner`. Batches under way see that the flag is gone, and end after their present schedule."""
        try:
            _flag(self._files.folder).unlink(missing_ok=True)
            wait([future for future, _ in self._waiting if not future.cancel()], GRACE_SECONDS)
        finally:
            self._files.close()


def run_batch(
    parcel: bytes, schedules: bytes, deeper: bool, go_on: bool, folder: str, seconds: float | None = None
) -> Batch:
    """Run a batch in a world of its own, wherever this is called; for executors.

    Args:
        parcel: the scenario, pickled.
        schedules: a list of them, pickled.
        deeper: return children too.
        go_on: do not end at the first run that breaks a law.
        folder: of the search; on another machine there is none.
        seconds: how long it may take; None: for ever.
    """
    try:
        with Interrupt(seconds) as interrupt:
            return _run_batch(pickle.loads(parcel), pickle.loads(schedules), deeper, go_on, Path(folder), interrupt)
    except Exception as error:
        trouble = error
        if not _travels(error):
            trouble = BatchFailed(f"{type(error).__name__}: {error}")
            trouble.add_note(traceback.format_exc())
    raise trouble  # here, where nothing that cannot travel hangs on it


def _run_batch(
    scenario: Scenario,
    schedules: Sequence[Schedule],
    deeper: bool,
    go_on: bool,
    folder: Path,
    interrupt: Interrupt,
) -> Batch:
    runs: list[Seen] = []
    flag, is_here = _flag(folder), folder.is_dir()
    world = scenario.open(folder if is_here else None)
    try:
        for schedule in schedules:
            if is_here and not flag.exists():
                break
            played, children = _seen(world, schedule, deeper)
            interrupt.check()
            runs.append((played if played.law else replace(played, steps=()), children))
            if played.law and not go_on:
                break
    except ScheduleMismatch as mismatch:
        return runs, mismatch
    except OutOfTime:  # the search knows that by itself
        return runs, None
    finally:
        interrupt.close()
        world.close()
    return runs, None


def _seen(world: World, schedule: Schedule, deeper: bool) -> Seen:
    played = world.play(schedule)
    return played, played.children() if deeper else ()


def _flag(folder: Path) -> Path:
    """There for as long as the search goes on."""
    return folder / "searching"


def _travels(error: Exception) -> bool:
    """Whether an error can be pickled and unpickled: one that cannot would take the whole pool down."""
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:  # whatever its own code does then
        return False
