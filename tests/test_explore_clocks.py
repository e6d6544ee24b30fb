"""Clocks that are off: one worker's clock, for its whole life, by more than a lease."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from spies import Seen

from labkit.explore.bench import Bench
from labkit.explore.benchworld import BenchScenario
from labkit.explore.capsule import Capsule
from labkit.explore.choices import CLOCK, CLOCKS, SURPRISES, Surprise
from labkit.explore.contrasts import CONTRASTS
from labkit.explore.journal import Changed
from labkit.explore.programs import LabWorker
from labkit.explore.replay import replay
from labkit.explore.row_laws import named, only_the_current_token
from labkit.explore.search import explore
from labkit.explore.sql_programs import queue_task, work_and_finish_by_token, working
from labkit.explore.world import ALL_SURPRISES, ONE_WORKER, TaskScenario
from labkit.policies import QUERY_FIRST
from labkit.remote import Capabilities
from labkit.show.exploration import show
from labkit.store import TaskStore
from labkit.values import Json
from labkit.wire import Remote
from labkit.worker import Worker

FAST, SLOW = CLOCKS
LEASE_SECONDS, LONGEST_PAUSE_SECONDS = 30.0, 60.0
QUERY = {"payments": Capabilities(status_query=True)}


class SlowToSend(Remote):
    """A wire on which each request waits ten seconds before it leaves."""

    def __init__(self, wire: Remote, store: TaskStore) -> None:
        self._wire, self._store, self.name, self.capabilities = wire, store, wire.name, wire.capabilities

    def send(self, operation_id: str, body: Json, *more: Any) -> Any:
        self._store.clock.sleep(10.0)
        return self._wire.send(operation_id, body, *more)

    def query(self, *asked: Any) -> Any:
        return self._wire.query(*asked)


def alone_under_its_lease(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
    """Count on it that whoever held the lease before is dead, so that what is not found will not come any more."""
    wires = {name: SlowToSend(wire, store) for name, wire in remotes.items()}
    Worker(store, wires, QUERY_FIRST, talks=False).run(task_id)


ALONE = TaskScenario(alone_under_its_lease, remotes=QUERY, workers=2, allowed=frozenset({CLOCK, "crash"}))


def chosen(*surprises: tuple[int, str]) -> tuple[Surprise, ...]:
    return tuple(Surprise(place, choice) for place, choice in surprises)


# What the surprise is.


def test_a_clock_can_be_off_by_more_than_a_lease_and_less_than_the_longest_pause() -> None:
    assert [LEASE_SECONDS < abs(seconds) < LONGEST_PAUSE_SECONDS for seconds in CLOCKS.values()] == [True, True]
    assert sorted(seconds > 0 for seconds in CLOCKS.values()) == [False, True]


def test_clocks_are_right_unless_a_scenario_asks_for_others_by_name() -> None:
    assert CLOCK in SURPRISES
    assert CLOCK not in ALL_SURPRISES | ONE_WORKER
    with closing(TaskScenario(LabWorker("by_capability")).open()) as world:
        assert not [step for step in world.play(()).steps if set(step.options) & set(CLOCKS)]


@pytest.mark.parametrize(
    "scenario", [replace(ALONE, program=LabWorker("by_capability")), working(work_and_finish_by_token)]
)
def test_a_clock_is_off_from_the_start_of_a_life_or_never(scenario: TaskScenario | BenchScenario) -> None:
    with closing(scenario.open()) as world:
        steps = world.play(()).steps
        for step in steps[:-1]:
            starts = step.point == f"start {step.worker}"
            assert (set(CLOCKS) <= set(step.options)) == (starts and step.worker != "worker-3"), step
    assert sum(step.point.startswith("start") for step in steps) == 3


def read_clocks(off: tuple[tuple[int, str], ...]) -> list[tuple[str, float, float]]:
    """What each of two workers reads on its clock, before and after a sleep of ten seconds."""
    read: list[tuple[str, float, float]] = Seen()

    def program(db: Any, bench: Bench) -> None:
        before = bench.now()
        bench.sleep(10.0)
        read.append((bench.name, before, bench.now()))

    scenario = BenchScenario(program, queue_task, {}, 2, frozenset({CLOCK}), due=None)
    with closing(scenario.open()) as world:
        world.play(chosen(*off))
    return read


def test_only_that_worker_s_clock_is_off_and_runs_as_fast_as_any_other() -> None:
    assert read_clocks(()) == [("worker-1", 0.0, 10.0), ("worker-2", 0.0, 10.0)]
    assert read_clocks(((0, FAST),)) == [("worker-1", 45.0, 55.0), ("worker-2", 0.0, 10.0)]
    assert read_clocks(((1, SLOW),)) == [("worker-1", 0.0, 10.0), ("worker-2", -45.0, -35.0)]


def test_the_worker_after_it_has_a_clock_that_is_right() -> None:
    scenario = replace(ALONE, program=LabWorker("by_capability"), workers=1)
    with closing(scenario.open()) as world:
        played = world.play(chosen((0, FAST), (1, "crash")))
        history = world.store.history("task-1")
    assert [(one.event, one.at) for one in history[1:3]] == [("claim", 45.0), ("take_over", 75.0)]
    assert (played.counts[CLOCK], played.verdict) == (1, "exactly once")


def test_a_slow_clock_finds_nothing_due_yet_and_another_worker_does_it() -> None:
    scenario = replace(ALONE, program=LabWorker("by_capability"), workers=1)
    with closing(scenario.open()) as world:
        played = world.play(chosen((0, SLOW)))
        claims = [(step.worker, step.point) for step in played.steps if step.point == "claim task-1"]
    assert claims == [("worker-2", "claim task-1")]
    assert played.verdict == "exactly once"


# Who it breaks.


def test_whoever_counts_on_being_alone_under_a_lease_is_broken_by_one_clock() -> None:
    assert explore(replace(ALONE, allowed=frozenset({"crash"})), 3).passed, "with clocks that are right it holds"
    shown = explore(ALONE, 2)
    assert shown.failure is not None
    assert shown.failure.law == "no_second_effect"
    assert [one.choice for one in shown.failure.schedule] in ([FAST], [SLOW])


def test_whoever_finishes_by_the_time_and_not_by_the_token_is_broken_by_one_clock() -> None:
    broken = CONTRASTS["clock"].broken
    assert isinstance(broken, BenchScenario)
    failure = explore(broken, 3).failure
    assert failure is not None
    assert (failure.law, len(failure.schedule)) == ("finished_by_the_holder", 1)
    with_right_clocks = explore(replace(broken, allowed=frozenset({"crash"})), 3)
    assert with_right_clocks.passed, with_right_clocks


def test_a_person_who_is_told_of_a_sending_in_the_future_waits_for_longer() -> None:
    """A fast clock dates the attempt; "not applied" counts only so long after that date."""
    lost = replace(ALONE, program=LabWorker("ask_person"), workers=1, allowed=frozenset({CLOCK, "request_lost"}))
    with closing(lost.open()) as world:
        places = [step.point for step in world.play(()).steps]
        played = world.play(chosen((0, FAST), (places.index("wire: send task-1/refund"), "request_lost")))
        history = world.store.history("task-1")
    assert played.verdict == "exactly once", played.how
    (answered,) = [one.at for one in history if one.event == "answer"]
    assert answered == 45.0 + 120.0


def test_a_take_over_is_judged_by_the_clock_of_whoever_takes_over() -> None:
    scenario = replace(working(work_and_finish_by_token), laws=named(only_the_current_token))
    assert explore(scenario, 2).passed
    with closing(scenario.open()) as world:
        world.play(chosen((3, FAST)))
        taken = [one.at for one in world.record().log if isinstance(one, Changed) and one.worker == "worker-2"]
    assert taken[0] == 45.0


# How it is told.


@pytest.fixture(scope="module", params=["task store", "plain SQL"])
def broken(request: pytest.FixtureRequest) -> Iterator[Any]:
    return ALONE if request.param == "task store" else CONTRASTS["clock"].broken


def test_a_clock_that_is_off_is_counted_and_named_in_text_and_pictures(broken: Any) -> None:
    shown = explore(broken, 1)
    assert shown.happened[CLOCK] >= 1
    assert "clock" in str(shown)
    assert "that are off" in str(shown) or "that is off" in str(shown)
    assert "!! clock 45 s " in str(show(shown))


def test_where_no_clock_was_off_though_it_was_allowed_the_result_says_so() -> None:
    shown = explore(ALONE, 0)
    assert not shown.passed
    assert "clocks that are off" in shown.summary


def test_a_capsule_with_a_clock_is_read_back_and_replays_to_the_same_failure(broken: Any) -> None:
    capsule = explore(broken, 2).capsule
    assert capsule is not None
    again = Capsule.from_json(capsule.to_json())
    assert again == capsule
    assert again.setup["allowed"] == sorted(broken.allowed)
    played = replay(again, broken)
    assert (played.played.law, played.played.how) == (capsule.law, capsule.how)
    assert any(moment.fault in CLOCKS for moment in played.moments)
