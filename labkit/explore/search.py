"""The search: every schedule of a scenario up to a bound of surprises, the smallest first."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing, contextmanager

from labkit.errors import InvalidInput
from labkit.explore.batches import CutOff, Here, Runner, Spread
from labkit.explore.choices import Schedule, ScheduleMismatch, order_of
from labkit.explore.exploration import Exploration
from labkit.explore.interrupt import Interrupt
from labkit.explore.lives import OutOfTime
from labkit.explore.progress import ProgressBar
from labkit.explore.scenario import Played, Scenario
from labkit.explore.world import TaskScenario
from labkit.programs import Program
from labkit.values import checked_seconds

MAX_SCHEDULES = 1_000_000


def explore(
    scenario: Scenario | Program,
    surprises: int | None = 2,
    *,
    max_schedules: int = MAX_SCHEDULES,
    max_seconds: float | None = None,
    max_run_seconds: float | None = None,
    go_on: bool = False,
    executor: Executor | None = None,
    progress: bool = False,
    tell: Callable[[int, int], None] | None = None,
) -> Exploration:
    """Run every schedule with no surprise, then with one, and so on.

    Args:
        scenario: what is explored; a function of (task_id, store, remotes) is one refund in a `TaskScenario`.
        surprises: the bound; None runs every schedule there is.
        max_schedules: the search is cut short there.
        max_seconds: a kill switch: the search is cut short then, wherever it is. Never a way to come to a result.
            A program, or a law, that loops for ever is stopped a second later, whatever it catches; see Notes.
        max_run_seconds: the same for each single run, so that one that never ends is told before the whole time is up.
            On one core only: an executor's runs are not timed one by one.
        go_on: count the verdicts of all schedules instead of ending at the first that breaks a law.
        executor: spreads the search over its workers; the result is the same, to the letter.
        progress: show a bar, in the notebook or on standard output.
        tell: told now and then how many schedules were run, and how many are known so far.

    Returns:
        What was shown. Ctrl-C, or the notebook's interrupt, ends the search at once with what it has.

    Raises:
        InvalidInput: an argument cannot be meant.
        Exception: whatever a law or the executor raises; what the explored program raises is part of its run.

    Notes:
        Loops over SQL, calls of the store and `time.sleep` are bounded by themselves. A loop that touches nothing runs
        for as long as `max_seconds` or Ctrl-C let it. Neither reaches into a single call of code in C that never
        returns. Outside the main thread, where a program has set the system's alarm, and on Windows `max_seconds` ends
        a search only between two runs; there a process of its own helps, which can be killed. Checks have one.
    """
    scenario = _scenario_of(scenario)
    _check_bounds(surprises, max_schedules, max_seconds, max_run_seconds)
    found = _Found(scenario, surprises, max_schedules)
    deadline = None if max_seconds is None else time.monotonic() + max_seconds
    with _ends_of_search(found, max_seconds), Interrupt(max_seconds, max_run_seconds) as interrupt:
        runner = _runner(scenario, executor, deadline, go_on)
        with closing(runner), ProgressBar(progress, tell) as shown, closing(interrupt):
            for played, known in _search(runner, found, go_on):
                interrupt.check()
                found.add(played)
                shown.step(found.schedules, known)
                interrupt.next_run()
    return found.result()


def _scenario_of(given: object) -> Scenario:
    if isinstance(given, Scenario) and not isinstance(given, type):
        return given
    if not callable(given):
        raise InvalidInput("a scenario, or a function of (task_id, store, remotes)", given)
    return TaskScenario(given)


def _check_bounds(surprises: object, max_schedules: object, max_seconds: object, max_run_seconds: object) -> None:
    if surprises is not None and not _counts(surprises, 0):
        raise InvalidInput("surprises: 0 or more, or None for no bound", surprises)
    if not _counts(max_schedules, 1):
        raise InvalidInput("max_schedules: a whole number, 1 or more", max_schedules)
    for name, seconds in (("max_seconds", max_seconds), ("max_run_seconds", max_run_seconds)):
        if seconds is not None:
            checked_seconds(name, seconds)


def _counts(number: object, least: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= least


@contextmanager
def _ends_of_search(found: _Found, max_seconds: float | None) -> Iterator[None]:
    """Say why a search ended early."""
    try:
        yield
    except KeyboardInterrupt:
        found.cut_short = "interrupted"
    except OutOfTime as late:
        seconds = max_seconds if late.run_seconds is None else late.run_seconds
        found.cut_short = f"stopped after {seconds:g} seconds{late.where}"
    except CutOff:
        found.cut_short = "the folder of the search was removed while it ran"
    except ScheduleMismatch as mismatch:
        found.cut_short = f"the program is not the same on every run: {mismatch}"


def _runner(scenario: Scenario, executor: Executor | None, deadline: float | None, go_on: bool) -> Runner:
    return Here(scenario, deadline) if executor is None else Spread(scenario, executor, deadline, go_on)


def _search(runner: Runner, found: _Found, go_on: bool) -> Iterator[tuple[Played, int]]:
    """Go through the levels; yield each run and how many schedules are known by then."""
    level: Sequence[Schedule] = [()]
    while level:
        deeper = found.surprises is None or len(level[0]) < found.surprises
        collected = _Level(found.max_schedules)
        for number, (played, children) in enumerate(runner.run(level, deeper), start=1):
            if not found.may_add():
                return
            collected.add(children)
            yield played, found.schedules + 1 + len(level) - number + len(collected.schedules)
            if played.law and not go_on:
                return
        level = collected.in_order()
    found.complete = True


class _Level:
    """The schedules with one surprise more: no more of them than can still be run, the first in the search's order."""

    def __init__(self, keep: int) -> None:
        self.schedules: list[Schedule] = []
        self._keep = keep + 1

    def add(self, children: Sequence[Schedule]) -> None:
        self.schedules += children
        if len(self.schedules) > 2 * self._keep:
            self.schedules = self.in_order()

    def in_order(self) -> list[Schedule]:
        return sorted(self.schedules, key=order_of)[: self._keep]


class _Found:
    """Adds up what was run, in the order of the search."""

    def __init__(self, scenario: Scenario, surprises: int | None, max_schedules: int) -> None:
        self.scenario, self.surprises, self.max_schedules = scenario, surprises, max_schedules
        self.schedules, self.broken, self.complete, self.cut_short = 0, 0, False, ""
        self.failure: Played | None = None
        self.verdicts: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()

    def may_add(self) -> bool:
        """Tell whether another schedule may be run; there is one."""
        if self.schedules < self.max_schedules:
            return True
        self.cut_short = f"stopped at {self.max_schedules:,} schedules"
        return False

    def add(self, played: Played) -> None:
        """Count a run."""
        self.schedules += 1
        self.verdicts[str(played.verdict)] += 1
        self.happened.update({str(kind): count for kind, count in played.counts.items() if count})
        if played.law:
            self.broken += 1
            self.failure = self.failure or played

    def result(self) -> Exploration:
        """What the search has shown so far."""
        return Exploration(
            self.scenario,
            self.surprises,
            self.schedules,
            self.broken,
            dict(self.verdicts),
            dict(self.happened),
            self.failure,
            self.complete and not self.cut_short,
            self.cut_short,
        )
