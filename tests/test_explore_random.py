"""Random schedules: each replays to the same run, comes once, and agrees with a plain model of task and remotes."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from seeded_bugs.claims import compare_and_set, naive
from seeded_bugs.claims import scenario as claiming
from seeded_bugs.effects import asks_in_doubt, effect_before_intent
from seeded_bugs.effects import scenario as sending

from labkit.agent import REMOTES, plan
from labkit.explore.benchworld import BenchWorld
from labkit.explore.choices import ARRIVE, CANCEL, CLOCK, Schedule, Step, Surprise
from labkit.explore.programs import LabWorker
from labkit.explore.scenario import Played
from labkit.explore.search import explore
from labkit.explore.sql_programs import work_and_finish_by_clock, working
from labkit.explore.world import ALL_SURPRISES, TaskScenario, TaskWorld
from labkit.records import Entry, Task
from labkit.states import FINAL_STATES, UNVERSIONED_EVENTS, Direction, Event, State

EVERYTHING = ALL_SURPRISES | {CANCEL, ARRIVE}
THREE = TaskScenario(LabWorker("by_capability"), tuple(plan()), REMOTES, workers=2, allowed=EVERYTHING, compensate=True)
WRONG = TaskScenario(LabWorker("blind_replay"), tuple(plan()), REMOTES, workers=2, allowed=EVERYTHING)
SQL = sending(effect_before_intent, "crash", "pause", "switch", "response_lost", "late", workers=2)
SCENARIOS = {
    "three operations": THREE,
    "blind replay": WRONG,
    "plain SQL": SQL,
    "claim": claiming(naive, "switch", "crash"),
    "clocks that are off": replace(THREE, allowed=EVERYTHING | {CLOCK}),
    "plain SQL, clocks that are off": working(work_and_finish_by_clock),
}
random_walks = given(st.lists(st.integers(0, 10**6), max_size=6))
random = {"deadline": None, "derandomize": True, "suppress_health_check": [HealthCheck.function_scoped_fixture]}
World = TaskWorld | BenchWorld


@contextmanager
def opened(name: str) -> Iterator[World]:
    world: World = SCENARIOS[name].open()
    try:
        yield world
    finally:
        world.close()


def walked(world: World, walk: Sequence[int]) -> Schedule:
    """Take one surprise after the other, each drawn from all that are on offer behind the one before."""
    schedule: Schedule = ()
    for number in walk:
        children = world.play(schedule).children()
        if not children:
            break
        schedule = children[number % len(children)]
    return schedule


def everything_in(world: World) -> list[Any]:
    """Every row of the store and of the remotes' ledgers."""
    found: list[Any] = []
    for database in [world._warm, *(service._db for service in world.services.values())]:
        db = database.connection()
        names = db.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1"
        )
        found += [(name, db.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall()) for (name,) in names.fetchall()]
    return found


@pytest.fixture(scope="module", params=list(SCENARIOS))
def two_worlds(request: pytest.FixtureRequest) -> Iterator[tuple[World, World]]:
    with opened(request.param) as one, opened(request.param) as other:
        yield one, other


@settings(max_examples=25, **random)
@random_walks
def test_a_list_of_choices_replays_to_the_same_run_in_this_world_and_in_another(
    two_worlds: tuple[World, World], walk: list[int]
) -> None:
    one, other = two_worlds
    schedule = walked(one, walk)
    first, rows = one.play(schedule), everything_in(one)
    other.play(walked(other, walk[:1]))
    for world in (one, other):
        assert world.play(schedule) == first
        assert everything_in(world) == rows
    assert [first.steps[one.place].chosen for one in schedule] == [one.choice for one in schedule]
    assert sum(step.chosen != step.options[0] for step in first.steps) == len(schedule)


class Visits:
    """A scenario that writes down which schedules are played."""

    def __init__(self, scenario: Any) -> None:
        self.scenario, self.visited = scenario, list[Schedule]()
        self.program, self.laws = scenario.program, scenario.laws
        self.workers, self.allowed = scenario.workers, scenario.allowed

    def open(self, folder: Path | None = None) -> Any:
        world = self.scenario.open(folder)
        play = world.play

        def noted(schedule: Schedule) -> Played:
            self.visited.append(schedule)
            played: Played = play(schedule)
            return played

        world.play = noted
        return world


def all_schedules(scenario: Any, surprises: int) -> Counter[Schedule]:
    """Every set of surprises that a run can have, found by trying every option at every step of every run."""
    found: Counter[Schedule] = Counter()
    world = scenario.open()

    def explore_from(schedule: Schedule) -> None:
        found[schedule] += 1
        steps = world.play(schedule).steps
        chosen = {place: step.chosen for place, step in enumerate(steps) if step.chosen != step.options[0]}
        assert {one.place: one.choice for one in schedule} == chosen
        if len(schedule) < surprises:
            for child in children_of(schedule, steps):
                explore_from(child)

    try:
        explore_from(())
    finally:
        world.close()
    return found


def children_of(schedule: Schedule, steps: Sequence[Step]) -> Iterator[Schedule]:
    behind = schedule[-1].place if schedule else -1
    for place, step in enumerate(steps):
        if place > behind:
            yield from ((*schedule, Surprise(place, option)) for option in step.options if option != step.options[0])


@pytest.mark.parametrize("name", ["claim", "plain SQL"])
def test_a_search_visits_each_schedule_once_and_leaves_none_out(name: str) -> None:
    scenario = Visits(
        SCENARIOS[name] if name == "claim" else sending(asks_in_doubt, "crash", "late", "switch", workers=2)
    )
    shown = explore(scenario, 2, go_on=True)
    visited = Counter(scenario.visited)
    assert set(visited.values()) == {1}
    assert shown.schedules == len(visited)
    assert visited == all_schedules(scenario.scenario, 2)
    lengths = [len(schedule) for schedule in scenario.visited]
    assert lengths == sorted(lengths), "the smallest first"


# A plain model of what the lab keeps.


class Model:
    """The task as its history tells it, without a database."""

    def __init__(self, first: Entry, operations: Sequence[str]) -> None:
        assert (first.event, first.source, first.target, first.version) == ("enqueue", None, "queued", 1)
        self.state, self.version, self.token, self.direction = "queued", 1, 0, "do"
        self.attempts, self.cancel_requested = 0, False
        self.planned = list(operations)
        self.done: list[str] = []
        self.sent: Counter[str] = Counter()

    def follow(self, entry: Entry) -> None:
        event, operation = Event(entry.event), str(entry.detail.get("operation", ""))
        assert entry.source == self.state, "each event begins where the one before has ended"
        assert self.state not in FINAL_STATES
        self.state = State(entry.target)
        self.version += event not in UNVERSIONED_EVENTS
        self.token += event in (Event.CLAIM, Event.TAKE_OVER)
        assert (entry.version, entry.token) == (self.version, self.token)
        if event is Event.INTEND:
            self.attempts, self.sent[operation] = self.attempts + 1, self.sent[operation] + 1
        applied = event is Event.CHECKPOINT or entry.detail.get("applied") or entry.detail.get("answer") == "applied"
        if applied:
            assert operation == self.next_operation(), "one after the other"
            self.done.append(operation)
        if applied or event in (Event.ANSWER, Event.COMPENSATE):
            self.attempts = 0
        if event is Event.REQUEST_CANCEL:
            self.cancel_requested = True
        if event is Event.COMPENSATE:
            self.direction, self.cancel_requested = "undo", False

    def next_operation(self) -> str:
        if self.direction == "do":
            return next(name for name in self.planned if name not in self.done)
        reversible = [name for name in self.planned if name in self.done and not name.endswith("send_email")]
        return next(f"{name}/undo" for name in reversed(reversible) if f"{name}/undo" not in self.done)


def effects_of(steps: Sequence[Step]) -> dict[str, int]:
    """What must stand in the ledgers: payments honours keys; at the others every arrival is an effect."""
    arrived: Counter[str] = Counter()
    for step in steps:
        if step.point.startswith("wire: send ") and step.chosen in ("delivered", "response_lost", "late"):
            arrived[step.point.removeprefix("wire: send ")] += 1
    return {name: min(count, 1) if "refund" in name else count for name, count in arrived.items()}


@pytest.fixture(scope="module")
def three() -> Iterator[TaskWorld]:
    world = THREE.open()
    yield world
    world.close()


@settings(max_examples=100, **random)
@random_walks
def test_rows_history_and_ledgers_agree_with_a_plain_model_of_task_and_remotes(
    three: TaskWorld, walk: list[int]
) -> None:
    played = three.play(walked(three, walk))
    record = three.record()
    model = Model(record.history[0], [one.id for one in record.task.operations if one.direction is Direction.DO])
    for entry in record.history[1:]:
        model.follow(entry)
    task = record.task
    assert facts_of(task) == (model.state, model.version, model.token, model.direction, model.cancel_requested)
    assert task.attempts == model.attempts
    assert sorted(one.id for one in task.operations if one.status == "done") == sorted(model.done)
    assert {one.id: len(one.attempts) for one in task.operations if one.attempts} == model.sent
    assert record.effects == effects_of(played.steps)
    assert all(record.sent.get(name, 0) <= count for name, count in model.sent.items()), "on record before it is sent"
    if not played.law:
        assert played.verdict in ("exactly once", "stopped clean")
        assert record.effects == dict.fromkeys(model.done, 1)


def facts_of(task: Task) -> tuple[Any, ...]:
    return task.state, task.version, task.lease_token, task.direction, task.cancel_requested


# The same text, always.

SEARCHES = """
import sys
sys.path.insert(0, "tests")
from test_explore_random import SCENARIOS, text_of
print("".join(map(text_of, SCENARIOS)), end="")
"""


def text_of(name: str) -> str:
    scenario = SCENARIOS[name]
    return f"{name}\n{explore(scenario, 1)}\n{explore(scenario, 1, go_on=True)}\n"


def test_the_same_search_prints_the_same_text_twice_and_in_another_process() -> None:
    here = {name: text_of(name) for name in SCENARIOS}
    assert {name: text_of(name) for name in ("plain SQL", "claim")}.items() <= here.items()
    root, environment = Path(__file__).parent.parent, {**os.environ, "PYTHONHASHSEED": "7"}
    elsewhere = subprocess.run(
        [sys.executable, "-c", SEARCHES], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    assert elsewhere.stdout.encode() == "".join(here.values()).encode()
    assert sum("a law" in text for text in here.values()) >= 3, "some of them have broken a law"


def test_compare_and_set_and_its_race_differ_in_the_text_too() -> None:
    kept, broken = explore(claiming(compare_and_set), 1), explore(claiming(naive), 1)
    assert "keep every law" in str(kept)
    assert "one_says_yes: worker-1 and worker-2 were all told yes" in str(broken)
