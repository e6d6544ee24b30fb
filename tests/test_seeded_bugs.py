"""The explorer finds every seeded bug, by its law and with the fewest surprises, and no bug in the mended twins."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from seeded_bugs import BUGS, Bug
from seeded_bugs.claims import TAKE, compare_and_set, naive, scenario

from labkit.explore.bench import Bench
from labkit.explore.choices import Schedule, order_of
from labkit.explore.exploration import Exploration
from labkit.explore.scenario import Scenario
from labkit.explore.search import explore

every_bug = pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "_"))


@every_bug
def test_a_seeded_bug_is_caught_by_its_law_with_the_fewest_surprises(bug: Bug) -> None:
    failure = explore(bug.broken, bug.surprises).failure
    assert failure is not None, f"not found with {bug.surprises} surprises"
    assert (failure.law, len(failure.schedule)) == (bug.law, bug.surprises), failure.how


@every_bug
def test_the_mended_twin_passes_with_more_surprises_than_the_bug_needs(bug: Bug) -> None:
    shown = passes(Mended(bug.mended), 2)
    assert shown.failure is None, shown
    assert shown.passed, shown
    assert shown.surprises is not None
    assert shown.surprises >= bug.surprises


class Mended:
    """A scenario that many bugs share, so that it is explored once."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    def __hash__(self) -> int:
        return id(self.scenario)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mended) and self.scenario is other.scenario


@cache
def passes(mended: Mended, surprises: int) -> Exploration:
    return explore(mended.scenario, surprises)


def test_there_are_many_bugs_and_most_of_them_need_a_surprise() -> None:
    names = [bug.name for bug in BUGS]
    assert len(set(names)) == len(names) >= 25
    assert sum(bug.surprises > 0 for bug in BUGS) >= 15


def failures_of(scenario: Scenario) -> list[Schedule]:
    """Play every schedule there is, in an order of its own, and return those that break a law."""
    world, waiting, failures = scenario.open(), [()], list[Schedule]()
    try:
        while waiting:
            played = world.play(waiting.pop())
            waiting += played.children()
            if played.law:
                failures.append(played.schedule)
    finally:
        world.close()
    return failures


def test_the_race_is_found_with_the_fewest_surprises_and_switches_that_any_failing_schedule_has() -> None:
    race = scenario(naive, "switch", "crash")
    failing, found = [order_of(schedule) for schedule in failures_of(race)], explore(race, None).failure
    assert found is not None
    assert order_of(found.schedule) == min(failing)
    assert len(failing) > 1


def version_one(db: Any, bench: Bench) -> bool:
    """The claim alone: everybody has read version 1."""
    with db:
        claimed = db.execute(f"{TAKE} AND state = 'queued' AND version = 1", (bench.name,))
    return bool(claimed.rowcount == 1)


@pytest.mark.parametrize(
    ("program", "workers", "surprises", "schedules"),
    [
        (compare_and_set, 2, ("switch",), 66),
        (compare_and_set, 2, ("crash",), 21),
        (compare_and_set, 2, ("switch", "crash"), 299),
        (compare_and_set, 3, ("crash",), 81),
        (version_one, 3, ("switch",), 1_622),
        pytest.param(compare_and_set, 3, ("switch",), 22_366, marks=pytest.mark.drill),
        pytest.param(version_one, 3, ("switch", "crash"), 7_619, marks=pytest.mark.drill),
        pytest.param(compare_and_set, 3, ("switch", "crash"), 100_745, marks=pytest.mark.drill),
    ],
)
def test_compare_and_set_passes_every_schedule_there_is(
    program: Callable[..., Any], workers: int, surprises: tuple[str, ...], schedules: int
) -> None:
    shown = explore(scenario(program, *surprises, workers=workers), None)
    print(shown)
    assert shown.passed, shown
    assert shown.schedules == schedules
    assert set(shown.happened) == set(surprises)
