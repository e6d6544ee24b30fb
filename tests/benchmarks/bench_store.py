"""How fast the store is: `python tests/benchmarks/bench_store.py`, or `make bench`, which installs the others first.

A durable cycle of the store beside raw commits, queues and durable-execution engines at the same durability; claims
among many tasks, the size of the file, opening and importing. All in interleaved rounds, each contender in a process
of its own. Figures of this machine at this moment, beside the goals they should reach; nothing is asserted.
"""

import os
import platform
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from bench_import import starts
from contenders import cycle, planned
from crews import Crew, NotAvailable, syncs_a_cycle

from labkit.explore.warm import SHARED_MEMORY
from labkit.opening import Synchronous
from labkit.store import TaskStore

ROUNDS = 21
"""Many and short: what a sync costs can change tenfold from one second to the next."""
COUNTED_CYCLES = 40
SIZES = (1_000, 100_000, 1_000_000)
CLAIMS = 12
GROWTH_TASKS = 500
OPENINGS = 11


EXPLAINED = f"""Medians of {ROUNDS} rounds, each in an order of its own, with the quartiles behind them.
syncs: fsync and fdatasync a cycle, counted by strace. ms: a cycle on the wall, in one process. cpu ms: its processor
time, all threads; the system's own for a sync is in it. Ours / this: how many times as fast the store is.
syncs | cpu: what that ratio would be if nothing but syncs took time, and if nothing but the processor did. A cycle
costs its syncs times the price of one, and its processor time; so a slow disk brings the ratio near the first, and no
sync at all near the second. What a sync costs differs between disks and moments: compare within a block only.
"""


@dataclass(frozen=True)
class Line:
    """A contender, and with whom the store's line `beside` is compared.

    Args:
        label: for people.
        contender: module and class.
        cycles: of one round and process.
        beside: the labels of ours that are compared with it, each in a line.
        goal: how many times as fast ours should be.
        by_syncs: compare syncs a second, not cycles a second.
        most_processes: how many can share the files.
    """

    label: str
    contender: str
    cycles: int
    beside: tuple[str, ...] = ()
    goal: float | None = None
    by_syncs: bool = False
    most_processes: int = 2


CYCLE = "store: claim, intend, checkpoint, finish"
NORMAL = "store: the same, synchronous=NORMAL"
ONE_STEP = "store: enqueue + the cycle"
THREE_STEPS = "store: enqueue + 3 operations"
SHARED = "store: enqueue + the cycle, 3 commits"
SHARED_STEPS = "store: enqueue + 3 operations, 5 commits"
LINES = (
    Line(CYCLE, "contenders:Cycle", 12),
    Line(NORMAL, "contenders:CycleAtNormal", 12),
    Line(ONE_STEP, "contenders:EnqueueAndCycle", 12),
    Line(SHARED, "contenders:EnqueueAndShared", 12),
    Line(THREE_STEPS, "contenders:EnqueueAndThreeSteps", 6),
    Line(SHARED_STEPS, "contenders:EnqueueAndSharedThreeSteps", 6),
    Line("raw: 4 commits of one small row", "contenders:RawCommits", 12, (CYCLE,), 0.85),
    Line("the cycle's statements, plain sqlite3", "contenders:SameStatements", 12, (CYCLE,), most_processes=1),
    Line("huey: enqueue, dequeue, result", "queues:Huey", 12, (CYCLE, SHARED), 0.9, by_syncs=True),
    Line("persist-queue: put, get, ack", "queues:PersistQueue", 12, (CYCLE, SHARED), 0.9, by_syncs=True),
    Line("litequeue: put, pop, done", "queues:LiteQueue", 12, (CYCLE, SHARED), by_syncs=True),
    Line("litequeue, as it comes", "queues:LiteQueueAsItComes", 12, (NORMAL,)),
    Line("DBOS: workflow of 1 step", "engines:Dbos", 6, (ONE_STEP, SHARED), 5.0),
    Line("DBOS: workflow of 3 steps", "engines:DbosThreeSteps", 4, (THREE_STEPS, SHARED_STEPS)),
    Line("DBOS: 1 step, its own journal mode", "engines:DbosRollback", 4, (ONE_STEP, SHARED)),
    Line("LangGraph: 1 node", "engines:LangGraph", 4, (ONE_STEP, SHARED)),
    Line("LangGraph: 3 nodes", "engines:LangGraphThreeNodes", 4, (THREE_STEPS, SHARED_STEPS), 4.0),
)


def show(
    what: str,
    settings: str = "",
    syncs: str = "",
    wall: str = "",
    processor: str = "",
    figures: str = "",
    ours: str = "",
    bounds: str = "",
    goal: str = "",
) -> None:
    cost = f"{syncs:>5} {wall:>7} {processor:>7}"
    print(f"{what:42} {settings:12} {cost}  {figures:31} {ours:23} {bounds:14} {goal}".rstrip(), flush=True)


def spread(figures: list[float], unit: str, digits: int = 0) -> str:
    lower, median, upper = statistics.quantiles(figures, n=4, method="inclusive")
    return f"{median:,.{digits}f} {unit} ({lower:,.{digits}f} to {upper:,.{digits}f})"


def times(first: list[float], second: list[float], weight: float = 1.0) -> str:
    """How many times as fast the first is, round by round."""
    return spread([weight * one / other for one, other in zip(first, second, strict=True)], "x", 2)


# --- cycles ---------------------------------------------------------------------------------------------


@dataclass
class Measured:
    """What came of one line."""

    line: Line
    crew: Crew | None = None
    trouble: str = ""
    rates: list[float] = field(default_factory=list)
    wall_ms: list[float] = field(default_factory=list)
    processor_ms: list[float] = field(default_factory=list)

    def round(self, processes: int, warming_up: bool) -> None:
        if self.crew is None:
            return
        try:
            took = self.crew.run(self.line.cycles)
        except NotAvailable as error:
            self.crew, self.trouble = None, str(error)
            return
        if not warming_up:
            cycles = processes * self.line.cycles
            self.rates.append(cycles / took.seconds)
            self.wall_ms.append(1000 * took.seconds / self.line.cycles)
            self.processor_ms.append(1000 * took.processor_seconds / cycles)


def measured(line: Line, processes: int, place: Path | None, stack: ExitStack) -> Measured:
    try:
        crew = Crew(line.contender, processes, place)
    except NotAvailable as error:
        return Measured(line, trouble=str(error))
    stack.callback(crew.close)
    crew.fill_logs()
    return Measured(line, crew)


def cycles(title: str, processes: int, syncs: dict[str, float | None], place: Path | None = None) -> None:
    """Measure all lines; where the files are in memory, the goals do not apply, for they are for durable cycles."""
    print(f"\n-- cycles, {title}")
    with ExitStack() as stack:
        all_of_them = [measured(line, processes, place, stack) for line in LINES if processes <= line.most_processes]
        for number in range(ROUNDS + 1):
            for one in random.Random(number).sample(all_of_them, len(all_of_them)):
                one.round(processes, warming_up=number == 0)
        by_label = {one.line.label: one for one in all_of_them}
        for one in all_of_them:
            if one.crew is None:
                show(one.line.label, figures=f"not available: {one.trouble}")
            else:
                ours = [by_label[label] for label in one.line.beside if by_label[label].crew is not None]
                show_cycle(one, ours, one.crew.durability, syncs, place is None)


def show_cycle(
    one: Measured, ours: list[Measured], durability: str, syncs: dict[str, float | None], durable: bool
) -> None:
    here = syncs.get(one.line.label)
    beside = [compared(one, other, syncs, durable) for other in ours] or [("", "", "")]
    counted = "?" if here is None else f"{here:.1f}"
    wall, processor = (f"{statistics.median(figures):.2f}" for figures in (one.wall_ms, one.processor_ms))
    show(one.line.label, durability, counted, wall, processor, spread(one.rates, "/s"), *beside[0])
    for other, figures in zip(ours[1:], beside[1:], strict=True):
        show(f"  beside {other.line.label.removeprefix('store: ')}", "", "", "", "", "", *figures)


def compared(one: Measured, ours: Measured, syncs: dict[str, float | None], durable: bool) -> tuple[str, str, str]:
    """How many times as fast ours is, what that would be by syncs and by the processor alone, and the goal."""
    line, here, there = one.line, syncs.get(one.line.label), syncs.get(ours.line.label)
    goal = "" if line.goal is None or not durable else f">= {line.goal:g}"
    weight = 1.0
    if line.by_syncs and here and there:
        weight = there / here
        goal += " by syncs"
    elif line.by_syncs:
        goal += " by cycles (syncs were not counted)"
    by_syncs = f"{weight * here / there:.2f}" if here is not None and there else "?"
    by_processor = weight * statistics.median(one.processor_ms) / statistics.median(ours.processor_ms)
    return times(ours.rates, one.rates, weight), f"{by_syncs} | {by_processor:.2f}", goal.strip()


def count_syncs() -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for line in LINES:
        try:
            found[line.label] = syncs_a_cycle(line.contender, COUNTED_CYCLES)
        except NotAvailable:
            found[line.label] = None
    return found


# --- many tasks -----------------------------------------------------------------------------------------


def filled(path: Path, tasks: int) -> None:
    """Put queued tasks of one operation each into a new file, in one transaction of plain SQL."""
    TaskStore(path, synchronous="OFF").close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute(
            "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?) "
            "INSERT INTO tasks (id, kind) SELECT printf('task-%07d', n), 'refund' FROM numbers",
            (tasks,),
        )
        db.execute(
            "INSERT INTO operations (operation_id, task_id, name, position, remote, request) "
            "SELECT id || '/refund-1', id, 'refund-1', 0, 'payments', '{}' FROM tasks ORDER BY id"
        )


def claims(folder: Path) -> None:
    print(f"\n-- claim_next among so many queued tasks; {CLAIMS} claims a round")
    for size in SIZES:
        began = time.perf_counter()
        filled(folder / f"{size}.sqlite", size)
        took = time.perf_counter() - began
    megabytes = (folder / f"{SIZES[-1]}.sqlite").stat().st_size / 1e6
    print(f"   (the largest file was built in {took:.0f} s: {megabytes:,.0f} MB)")
    opened: dict[int, list[float]] = {size: [] for size in SIZES}
    for level in ("FULL", "OFF"):
        claims_at(folder, level, opened)
    for size in SIZES:
        show(f"opening a store of {size:,}", "wal", figures=spread([s * 1000 for s in opened[size]], "ms", 1))


def claims_at(folder: Path, level: Synchronous, opened: dict[int, list[float]]) -> None:
    with ExitStack() as stack:
        stores: dict[int, TaskStore] = {}
        for size in SIZES:
            began = time.perf_counter()
            stores[size] = stack.enter_context(TaskStore(folder / f"{size}.sqlite", synchronous=level))
            opened[size].append(time.perf_counter() - began)
        rates: dict[int, list[float]] = {size: [] for size in SIZES}
        for number in range(ROUNDS + 1):
            for size, store in stores.items():
                began = time.perf_counter()
                for _ in range(CLAIMS):
                    assert store.claim_next("worker-1") is not None, "more tasks than claims"
                if number:
                    rates[size].append(CLAIMS / (time.perf_counter() - began))
    for size in SIZES:
        slower = times(rates[SIZES[0]], rates[size]) if size != SIZES[0] else ""
        goal = "<= 1.5 (time, beside the first)" if size == SIZES[-1] and level == "FULL" else ""
        show(f"claim_next among {size:,}", f"wal {level}", figures=spread(rates[size], "/s"), ours=slower, goal=goal)


# --- size, opening, importing ---------------------------------------------------------------------------


def growth(folder: Path) -> None:
    print("\n-- growth of the file")
    path = folder / "growth.sqlite"
    sizes: list[int] = []

    def grown(work: Callable[[TaskStore], None]) -> None:
        with TaskStore(path, synchronous="OFF") as store:
            work(store)
        sizes.append(path.stat().st_size)  # the last to close has written the log back

    grown(lambda store: None)
    grown(lambda store: [store.enqueue(f"task-{n:07}", planned(1)) for n in range(GROWTH_TASKS)])
    grown(lambda store: [cycle(store) for _ in range(GROWTH_TASKS)])
    empty, queued, finished = sizes
    show("an empty file", figures=f"{empty:,} bytes")
    show("a queued task of one operation", figures=f"{(queued - empty) / GROWTH_TASKS:,.0f} bytes")
    show("the same finished, history included", figures=f"{(finished - empty) / GROWTH_TASKS:,.0f} bytes")


def small_openings(folder: Path) -> None:
    print("\n-- opening and importing")
    fresh: list[float] = []
    again: list[float] = []
    plain: list[float] = []
    for number in range(OPENINGS + 1):
        path = folder / f"open-{number}.sqlite"
        for figures, work in ((fresh, open_store), (again, open_store), (plain, open_plainly)):
            began = time.perf_counter()
            work(path)
            if number:
                figures.append((time.perf_counter() - began) * 1000)
    show("opening a new file, and closing it", "wal FULL", figures=spread(fresh, "ms", 1))
    show("opening it again", "wal FULL", figures=spread(again, "ms", 1))
    show("plain sqlite3: connect, look, close", figures=spread(plain, "ms", 1))


def open_store(path: Path) -> None:
    TaskStore(path).close()


def open_plainly(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("SELECT count(*) FROM sqlite_schema").fetchone()


def importing() -> None:
    bare, labkit = starts(OPENINGS)
    show("bare start of Python", figures=spread([1000 * one for one in bare], "ms"))
    added = 1000 * (statistics.median(labkit) - statistics.median(bare))
    show("with import labkit", figures=spread([1000 * one for one in labkit], "ms"), ours=f"adds {added:.0f} ms")


def main() -> None:
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores" if hasattr(os, "getloadavg") else "load unknown"
    print(f"Store benchmarks: Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {load}.")
    print(EXPLAINED)
    show("what", "settings", "syncs", "ms", "cpu ms", "median (quartiles)", "ours / this", "syncs | cpu", "goal")
    syncs = count_syncs()
    cycles("one process", 1, syncs)
    cycles("two processes on the same file", 2, syncs)
    if SHARED_MEMORY.is_dir():
        cycles("one process, files in memory: a sync costs nothing, so nothing is durable", 1, syncs, SHARED_MEMORY)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        claims(Path(name))
        growth(Path(name))
        small_openings(Path(name))
    importing()


if __name__ == "__main__":
    main()
