"""Holds the simulation against reality: the same runs with greenlets and with processes, compared row by row.

    python tests/conformance.py [--drawn N] [--seed S] [--every N]

The simulated run calls remotes in its own process, and its crashes raise. The real one starts worker processes, kills
and stops them, and calls a service over HTTP that drops, cuts off and delays for real. Both must come to the same
choices, verdict, moments and rows: of the task store and of every ledger, times included.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from labkit.agent import REMOTES, plan
from labkit.explore.choices import ARRIVE, CANCEL, CLOCK, Schedule
from labkit.explore.matrix import CAPABILITIES, HANGS, MatrixSetting, PauseCell, matrix, pause_axis
from labkit.explore.processes import ProcessWorld
from labkit.explore.programs import LabWorker
from labkit.explore.scenario import Played
from labkit.explore.setup import scenario_from
from labkit.explore.world import ALL_SURPRISES, TaskScenario, TaskWorld
from labkit.policies import POLICIES
from labkit.real.stage import Stage
from labkit.remote import Capabilities
from labkit.runs import Moment, Run

CUT, WAITED = "the connection was cut: no answer came", "time-out: no answer came"
"""The one thing that only a real caller can tell apart; it knows no more in one case than in the other."""

HELD = 4
"""Of the callers that get no answer, every so manieth waits in vain; the others are cut off."""


@dataclass(frozen=True)
class Case:
    """One run to be compared."""

    title: str
    scenario: TaskScenario
    schedule: Schedule


@dataclass(frozen=True)
class Seen:
    """All that a run left behind."""

    played: Played
    run: Run
    rows: dict[str, list[tuple[object, ...]]]


def watched(world: TaskWorld, schedule: Schedule) -> Seen:
    try:
        played, run = world.watch(schedule, "a run")
        return Seen(played, run, world.rows())
    finally:
        world.close()


def differences(case: Case, stage: Stage) -> tuple[Seen, list[str]]:
    """Play a case in both worlds; return the real run, and the names of what is not the same."""
    made_up = watched(case.scenario.open(), case.schedule)
    real = watched(ProcessWorld(case.scenario, stage=stage), case.schedule)
    found = [name for name in ("schedule", "steps", "verdict", "law", "how", "counts") if _differs(made_up, real, name)]
    if _told(real.run.moments) != _told(made_up.run.moments):
        found.append("moments")
    if (real.run.task, real.run.effects, real.run.verdict) != (
        made_up.run.task,
        made_up.run.effects,
        made_up.run.verdict,
    ):
        found.append("run")
    tables = dict.fromkeys([*made_up.rows, *real.rows])  # of every ledger its own: effects are never added up here
    return real, found + [table for table in tables if real.rows.get(table) != made_up.rows.get(table)]


def _differs(made_up: Seen, real: Seen, name: str) -> bool:
    return bool(getattr(made_up.played, name) != getattr(real.played, name))


def _told(moments: Iterable[Moment]) -> list[Moment]:
    return [replace(one, believes=WAITED) if one.believes == CUT else one for one in moments]


def cells() -> Iterator[Case]:
    """Every cell of the matrix, and of its axis of pauses all that need no program of their own."""
    for cell in matrix():
        switches = f"{'late, ' * cell.late_delivery}{'forgotten, ' * cell.key_forgotten}"
        title = f"{cell.policy}, {cell.capability}, {switches}{cell.crash_point}"
        yield Case(title, scenario_from(cell.capsule.setup), cell.capsule.surprises)
    for one in pause_axis():
        if one.pause != HANGS:
            yield case_of(one)


def case_of(one: PauseCell) -> Case:
    title = f"{one.policy}, {one.capability}, {one.pause}"
    return Case(title, scenario_from(one.capsule.setup), one.capsule.surprises)


def cells_of(setting: MatrixSetting) -> Iterator[Case]:
    """The cells of one setting."""
    where = ([setting.capability], [setting.policy], [setting.late_delivery], [setting.key_forgotten])
    for cell in matrix(*where):
        yield Case(cell.crash_point, scenario_from(cell.capsule.setup), cell.capsule.surprises)


def drawn(seed: int) -> Iterator[Case]:
    """Runs with two surprises each, of every kind there is, without end."""
    draws = random.Random(seed)
    for capability, policy in _for_ever(draws):
        whole = draws.random() < 0.25
        scenario = TaskScenario(
            LabWorker(policy),
            operations=tuple(plan() if whole else plan()[:1]),
            remotes=REMOTES if whole else {"payments": Capabilities(**CAPABILITIES[capability])},
            workers=draws.choice((1, 1, 2)),
            allowed=ALL_SURPRISES | {CANCEL, ARRIVE, CLOCK},
            person=draws.random() < 0.5,
            compensate=draws.random() < 0.5,
            late_by_seconds=draws.choice((5.0, 45.0, 55.0)),
        )
        schedule = _two_surprises(scenario, draws)
        if schedule is not None:
            kinds = ", ".join(one.choice for one in schedule)
            where = "three operations" if whole else capability
            yield Case(f"{policy}, {where}, {scenario.workers} workers: {kinds}", scenario, schedule)


def _for_ever(draws: random.Random) -> Iterator[tuple[str, str]]:
    pairs = list(product(CAPABILITIES, POLICIES))
    while True:
        draws.shuffle(pairs)
        yield from pairs


def _two_surprises(scenario: TaskScenario, draws: random.Random) -> Schedule | None:
    """Draw one surprise, and a second one behind it; rare kinds are as likely as common ones."""
    world, schedule = scenario.open(), ()
    try:
        for _ in range(2):
            children = world.play(schedule).children()
            if not children:
                return None
            kind = draws.choice(sorted({child[-1].choice for child in children}))
            schedule = draws.choice([child for child in children if child[-1].choice == kind])
        return schedule
    finally:
        world.close()


def compare(cases: Iterable[Case], stage: Stage, title: str) -> bool:
    """Compare cases, print what was counted, and tell whether all were equal."""
    began, compared, equal = time.monotonic(), 0, 0
    verdicts, faults = Counter[str](), Counter[str]()
    for case in cases:
        seen, found = differences(case, stage)
        compared, equal = compared + 1, equal + (not found)
        if found:
            print(f"  DIFFERENT {case.title}: {', '.join(found)}; {[str(one) for one in case.schedule]}", flush=True)
        verdicts[seen.played.verdict] += 1
        faults.update({name: count for name, count in seen.played.counts.items() if count})
    print(f"{title}: compared {compared}, equal {equal}, in {time.monotonic() - began:.0f} s")
    print(f"  they came to: {_counted(verdicts)}")
    print(f"  in them happened: {_counted(faults)}", flush=True)
    return compared == equal > 0


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "nothing"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drawn", type=int, default=400, help="runs with two surprises")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="only every so manieth cell of the matrix")
    options = parser.parse_args()
    runs = drawn(options.seed)
    with Stage(held=HELD) as stage:
        same = [
            compare(list(cells())[:: options.every], stage, "matrix and pauses"),
            compare((next(runs) for _ in range(options.drawn)), stage, f"two surprises, seed {options.seed}"),
        ]
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
