"""How fast the explorer is: `python tests/benchmarks/bench_explore.py`, or `make bench`. Unix only, for it forks.

Each program is explored on one core, beside three other ways to try the same program, in the same interleaved rounds:
a fresh set of files for every schedule, Hypothesis' stateful testing, and worker processes that are really killed.
Then the same search on a pool of two processes. Wall-clock figures of this machine at this moment; printed, and
asserted nowhere.
"""

import os
import signal
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from rounds import Contender, report

from labkit.agent import plan
from labkit.database import Database
from labkit.desk import TASK_ID, Desk
from labkit.errors import SimulatedCrash
from labkit.explore.choices import Schedule
from labkit.explore.matrix import TwoCrashes, matrix, two_crashes
from labkit.explore.programs import LabWorker
from labkit.explore.scenario import Scenario, World
from labkit.explore.search import explore
from labkit.explore.sql_programs import claim_by_condition, claiming, queue_task
from labkit.explore.warm import SHARED_MEMORY
from labkit.explore.world import TaskScenario
from labkit.policies import BY_CAPABILITY
from labkit.real.drill import drill
from labkit.runs import Verdict
from labkit.seams import Boundary, Delivery, ManualClock, Network, Point, no_boundary, reliable
from labkit.store import SCHEMA

ROUNDS = 7
LEASE_SECONDS = 30.0
LONG_SEARCH = 4_000
POOL_ROUNDS = 3
EXPLORER = "explorer, one core"
CALLS_AT_RANDOM, STATEMENTS_AT_RANDOM = (
    "Hypothesis, stateful, up to 2 faults",
    "Hypothesis, stateful, up to 4 statements",
)
KILLED_IN_MEMORY, KILLED_ON_DISK = "fork and SIGKILL, files in memory", "fork and SIGKILL, files on disk"
ONE_PROCESS = "one process"
GOALS = {CALLS_AT_RANDOM: 3, STATEMENTS_AT_RANDOM: 3, KILLED_IN_MEMORY: 15, KILLED_ON_DISK: 15, ONE_PROCESS: 1.6}
"""How many times as fast the explorer should be; the pool, as one process."""

FRESH = "the same, fresh files for each schedule"
BEFORE_COMMIT = 4
"""The statements of a claim, counted from 1: SELECT, BEGIN, UPDATE, COMMIT."""


@contextmanager
def folder(in_memory: bool = True) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if in_memory and SHARED_MEMORY.is_dir() else None) as name:
        yield Path(name)


# --- the explorer, warm and with fresh files ------------------------------------------------------------


def explored(scenario: Scenario, schedules: int) -> int:
    return explore(scenario, max_schedules=schedules).schedules


def first_schedules(scenario: Scenario, schedules: int) -> list[Schedule]:
    """The schedules that a search would run first, near enough: the quiet one and those with one or two surprises."""
    world = scenario.open()
    try:
        return list(islice(_breadth_first(world), schedules))
    finally:
        world.close()


def _breadth_first(world: World) -> Iterator[Schedule]:
    level: list[Schedule] = [()]
    while level:
        deeper: list[Schedule] = []
        for schedule in level:
            yield schedule
            deeper += world.play(schedule).children()
        level = deeper


def fresh(scenario: Scenario, schedules: list[Schedule]) -> int:
    for schedule in schedules:
        world = scenario.open()
        try:
            world.play(schedule)
        finally:
            world.close()
    return len(schedules)


# --- Hypothesis ---------------------------------------------------------------------------------------


def stateful(machine: type[RuleBasedStateMachine], examples: int, steps: int) -> int:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            database=None,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    return examples


def desk_machine(operations: int) -> type[RuleBasedStateMachine]:
    """Workers that live one after the other, die at some crossing or meet one fault of the wire."""

    class DeskMachine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.folder = tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None)
            self.clock, self.lives = ManualClock(), 0
            self.desk = self.open(no_boundary, reliable)
            self.desk.queue(steps=operations)

        def open(self, boundary: Boundary, network: Network) -> Desk:
            return Desk(self.folder.name, self.clock, boundary, network, synchronous="OFF")

        def live(self, boundary: Boundary, network: Network) -> None:
            self.lives += 1
            self.clock.advance(LEASE_SECONDS)
            with self.open(boundary, network) as desk, suppress(SimulatedCrash):
                desk.worker(BY_CAPABILITY, f"worker-{self.lives}").run(TASK_ID)

        @rule(crossing=st.integers(1, 6 * operations))
        def crash(self, crossing: int) -> None:
            self.live(dies_at(crossing), reliable)

        @rule(delivery=st.sampled_from(list(Delivery)[1:]))
        def fault(self, delivery: Delivery) -> None:
            first = count()
            self.live(no_boundary, lambda call: delivery if next(first) == 0 else Delivery.DELIVERED)

        @invariant()
        def no_effect_is_doubled(self) -> None:
            assert all(times == 1 for times in self.desk.effects().values())

        def teardown(self) -> None:
            self.live(no_boundary, reliable)
            assert self.desk.verdict() is not Verdict.DUPLICATED
            self.desk.close()
            self.folder.cleanup()

    return DeskMachine


def dies_at(crossing: int, die: Callable[[], None] | None = None) -> Boundary:
    numbers = count(1)

    def cross(point: Point) -> None:
        if next(numbers) == crossing:
            if die is not None:
                die()
            raise SimulatedCrash(point.name)

    return cross


class ClaimMachine(RuleBasedStateMachine):
    """The claim taken apart into rules by hand, for Hypothesis cannot step into a function."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None)
        self.database = fresh_tasks(Path(self.folder.name))
        self.connections = [sqlite3.connect(self.database.path, timeout=0) for _ in range(2)]
        self.seen: list[tuple[str, int] | None] = [None, None]
        self.claimed = [0, 0]

    @rule(worker=st.integers(0, 1))
    def read(self, worker: int) -> None:
        query = "SELECT id, version FROM tasks WHERE state = 'queued'"
        self.seen[worker] = self.connections[worker].execute(query).fetchone()

    @precondition(lambda self: any(self.seen))
    @rule(worker=st.integers(0, 1))
    def update(self, worker: int) -> None:
        if self.seen[worker] is not None:
            with self.connections[worker] as db:
                self.claimed[worker] += db.execute(
                    "UPDATE tasks SET state = 'running', version = version + 1, lease_owner = ?, "
                    "lease_token = lease_token + 1, lease_expires_at = 30 "
                    "WHERE id = ? AND state = 'queued' AND version = ?",
                    (f"worker-{worker + 1}", *self.seen[worker]),
                ).rowcount

    @invariant()
    def one_owner(self) -> None:
        assert sum(self.claimed) <= 1

    def teardown(self) -> None:
        for db in self.connections:
            db.close()
        self.database.close()
        self.folder.cleanup()


def fresh_tasks(place: Path) -> Database:
    database = Database(place / "tasks.sqlite", SCHEMA, "OFF")
    queue_task(database.connection())
    return database


# --- processes that are really killed ---------------------------------------------------------------------


def in_a_fork(work: Callable[[], None]) -> None:
    """Run this in a child process and wait for its end, whatever that is."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def kill_me() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def desk_killed(operations: int, runs: int, in_memory: bool) -> int:
    """Each run: a worker killed at some crossing, the next one to carry on, and the verdict.

    In memory nothing is ever waited for; on disk every commit is, as in use.
    """
    for number in range(runs):
        with folder(in_memory) as place:
            with _desk(place, 0.0, in_memory) as desk:
                desk.queue(steps=operations)
            in_a_fork(partial(_desk_life, place, 0.0, in_memory, dies_at(1 + number % (6 * operations), kill_me)))
            in_a_fork(partial(_desk_life, place, LEASE_SECONDS, in_memory))
            with _desk(place, LEASE_SECONDS, in_memory) as desk:
                assert desk.verdict() is not Verdict.DUPLICATED
    return runs


def _desk(place: Path, now: float, in_memory: bool, boundary: Boundary = no_boundary) -> Desk:
    return Desk(place, ManualClock(now), boundary, synchronous="OFF" if in_memory else "FULL")


def _desk_life(place: Path, now: float, in_memory: bool, boundary: Boundary = no_boundary) -> None:
    with _desk(place, now, in_memory, boundary) as desk:
        desk.worker(BY_CAPABILITY).run(TASK_ID)


def claim_killed(runs: int) -> int:
    """Each run: a worker killed before one of its statements, and the next one to claim."""
    for number in range(runs):
        with folder() as place:
            fresh_tasks(place).close()
            in_a_fork(partial(_claim_life, place, "worker-1", 1 + number % BEFORE_COMMIT))
            in_a_fork(partial(_claim_life, place, "worker-2", 0))
    return runs


def _claim_life(place: Path, name: str, fatal: int) -> None:
    db = sqlite3.connect(place / "tasks.sqlite")
    numbers = count(1)
    db.set_trace_callback(lambda sql: kill_me() if next(numbers) == fatal else None)
    claim_by_condition(db, name)
    db.close()


def drilled(operations: int) -> int:
    """A run as it is shown in class: processes of their own on a real disk."""
    drill("by_capability", steps=operations, lease_seconds=0.05)
    return 1


# --- the programs ---------------------------------------------------------------------------------------


def explored_often(scenario: Scenario, times: int) -> int:
    return sum(explore(scenario).schedules for _ in range(times))


def store_calls(operations: int, schedules: int) -> dict[str, Contender]:
    scenario = TaskScenario(LabWorker("by_capability"), tuple(plan()[:operations]))
    return {
        EXPLORER: partial(explored, scenario, schedules),
        FRESH: partial(fresh, scenario, first_schedules(scenario, schedules // 3)),
        CALLS_AT_RANDOM: partial(stateful, desk_machine(operations), 20, 2),
        KILLED_IN_MEMORY: partial(desk_killed, operations, 15, in_memory=True),
        KILLED_ON_DISK: partial(desk_killed, operations, 15, in_memory=False),
        "worker processes killed (a drill)": partial(drilled, operations),
    }


def plain_sql() -> dict[str, Contender]:
    scenario = claiming(claim_by_condition)
    return {
        EXPLORER: partial(explored_often, scenario, 20),
        FRESH: partial(fresh, scenario, first_schedules(scenario, 17)),
        STATEMENTS_AT_RANDOM: partial(stateful, ClaimMachine, 20, 4),
        KILLED_IN_MEMORY: partial(claim_killed, 15),
    }


def pool() -> None:
    """The same long search here and on two processes; on a busy machine its processor seconds say more."""
    scenario = TaskScenario(LabWorker("by_capability"), workers=2)
    search = partial(explore, scenario, 3, max_schedules=LONG_SEARCH)
    began, children = time.process_time(), os.times().children_user + os.times().children_system
    search()
    here = time.process_time() - began
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        contenders: dict[str, Contender] = {
            "pool of two processes": lambda: search(executor=executor).schedules,
            ONE_PROCESS: lambda: search().schedules,
        }
        report(f"a search of {LONG_SEARCH:,} schedules", contenders, POOL_ROUNDS, GOALS)
    spent = os.times().children_user + os.times().children_system - children
    there = spent / (POOL_ROUNDS + 1)
    print(f"  processor seconds a search: one process {here:.1f}; the pool {there:.1f}, its start included")


def tables() -> None:
    """What a user waits for: the matrix of all policies, remotes and crash points, and every pair of crashes."""
    print(f"\nwhole tables, one core ({POOL_ROUNDS} rounds)")
    for name, count_runs in (("matrix", lambda: len(matrix())), ("two crashes", lambda: _runs(two_crashes()))):
        seconds = []
        for _ in range(POOL_ROUNDS):
            began = time.perf_counter()
            runs = count_runs()
            seconds.append(time.perf_counter() - began)
        print(
            f"  {name}: {runs:,} runs in {statistics.median(seconds):.1f} s ({min(seconds):.1f} to {max(seconds):.1f})"
        )


def _runs(found: tuple[TwoCrashes, ...]) -> int:
    return sum(one.found.schedules for one in found)


def main() -> None:
    report("store calls, one operation", store_calls(1, 218), ROUNDS, GOALS)
    report("store calls, three operations", store_calls(3, 150), ROUNDS, GOALS)
    report("plain SQL, compare-and-set claim", plain_sql(), ROUNDS, GOALS)
    tables()
    pool()


if __name__ == "__main__":
    main()
