"""What runs against what: one class a contender, each with an untimed `ready` and a timed `run`."""

import sqlite3
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Protocol

from labkit.database import Database, Synchronous
from labkit.records import PlannedOperation
from labkit.seams import ManualClock
from labkit.store import SCHEMA, TaskStore

REQUEST = {"order": "A-1001", "amount_cents": 4200}
LEVELS = ("OFF", "NORMAL", "FULL", "EXTRA")


class Contender(Protocol):
    """One process's part in a benchmark, on files in `folder`; `number` counts the processes from 1."""

    def __init__(self, folder: Path, number: int) -> None: ...

    def ready(self, cycles: int) -> None:
        """Prepare so many cycles, outside the measured time."""

    def run(self, cycles: int) -> None:
        """Run them."""

    def durability(self) -> str:
        """What the file's own connection says of its settings."""


def settings_of(db: sqlite3.Connection) -> str:
    (mode,), (level,) = db.execute("PRAGMA journal_mode").fetchone(), db.execute("PRAGMA synchronous").fetchone()
    return f"{mode} {LEVELS[level]}"


def planned(steps: int) -> list[PlannedOperation]:
    return [PlannedOperation(f"refund-{step}", "payments", REQUEST) for step in range(1, steps + 1)]


class Cycle:
    """Claim, intend, checkpoint, finish: four commits. The tasks are in the queue already."""

    steps = 1
    level: Synchronous = "FULL"

    def __init__(self, folder: Path, number: int) -> None:
        self.database = Database(folder / "tasks.sqlite", SCHEMA, self.level)
        self.store = TaskStore(self.database)
        self.ids = (f"task-{number}-{n:07}" for n in count(1))

    def ready(self, cycles: int) -> None:
        for _ in range(cycles):
            self.store.enqueue(next(self.ids), planned(self.steps))

    def run(self, cycles: int) -> None:
        for _ in range(cycles):
            cycle(self.store, self.steps)

    def durability(self) -> str:
        return settings_of(self.database.connection())


class CycleAtNormal(Cycle):
    """The same where a power cut may take the last changes."""

    level = "NORMAL"


class EnqueueAndCycle(Cycle):
    """The same with putting the task into the queue: five commits."""

    def ready(self, cycles: int) -> None:
        pass

    def run(self, cycles: int) -> None:
        for _ in range(cycles):
            self.store.enqueue(next(self.ids), planned(self.steps))
            cycle(self.store, self.steps)


class EnqueueAndThreeSteps(EnqueueAndCycle):
    """A task of three operations, each with its intent and its checkpoint: nine commits."""

    steps = 3


class EnqueueAndShared(EnqueueAndCycle):
    """Three commits: the task; its claim with the intent; the result with the end."""

    def run(self, cycles: int) -> None:
        for _ in range(cycles):
            self.store.enqueue(next(self.ids), planned(self.steps))
            shared_cycle(self.store)


class EnqueueAndSharedThreeSteps(EnqueueAndShared):
    """A task of three operations: five commits."""

    steps = 3


def shared_cycle(store: TaskStore) -> None:
    progress = next(filter(None, (store.begin_next("worker-1") for _ in range(1000))))
    while progress.lease is not None:
        assert progress.operation_id is not None, "nothing stops this task"
        assert progress.attempt is not None
        progress = store.advance(progress.lease, progress.operation_id, progress.attempt.request_id)


def cycle(store: TaskStore, steps: int = 1) -> None:
    # None: another process took ours, and its own is due by a later clock reading than this one.
    lease = next(filter(None, (store.claim_next("worker-1") for _ in range(1000))))
    for step in range(1, steps + 1):
        operation = f"{lease.task_id}/refund-{step}"
        lease, attempt = store.intend(lease, operation)
        lease = store.checkpoint(lease, operation, attempt.request_id)
    store.succeed(lease)


class RawCommits:
    """As many commits as a cycle has, each of one small row: what the disk and SQLite allow at these settings."""

    commits = 4

    def __init__(self, folder: Path, number: int) -> None:
        self.number = number
        self.db = sqlite3.connect(folder / "raw.sqlite", isolation_level=None, timeout=30)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.execute("CREATE TABLE IF NOT EXISTS counters (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)")
        self.db.execute("INSERT OR IGNORE INTO counters VALUES (?, 0)", (number,))

    def ready(self, cycles: int) -> None:
        pass

    def run(self, cycles: int) -> None:
        for _ in range(cycles * self.commits):
            self.db.execute("BEGIN IMMEDIATE")
            self.db.execute("UPDATE counters SET n = n + 1 WHERE id = ?", (self.number,))
            self.db.execute("COMMIT")

    def durability(self) -> str:
        return settings_of(self.db)


class SameStatements:
    """The statements of a cycle, recorded once and played again by plain sqlite3: the cycle without its Python."""

    def __init__(self, folder: Path, number: int) -> None:
        clock = ManualClock(1000.0)
        self.database = Database(folder / "tasks.sqlite", SCHEMA)
        self.store = TaskStore(self.database, clock)
        self.db = self.database.connection()
        self.ids = (f"task-{number}-{n:07}" for n in count(1))
        self.waiting: list[str] = []
        self.ready(1)
        spoken: list[str] = []
        self.db.set_trace_callback(spoken.append)
        cycle(self.store)
        self.db.set_trace_callback(None)
        recorded = self.waiting.pop()
        # A trigger's statements come as comments. In a text, the id becomes a parameter between two halves.
        self.statements = [sql.replace(recorded, "' || :id || '") for sql in spoken if not sql.startswith("--")]

    def ready(self, cycles: int) -> None:
        for task_id in self._fresh(cycles):
            self.store.enqueue(task_id, planned(1))
            self.waiting.append(task_id)

    def _fresh(self, cycles: int) -> Iterator[str]:
        return (next(self.ids) for _ in range(cycles))

    def run(self, cycles: int) -> None:
        execute = self.db.execute
        for _ in range(cycles):
            params = {"id": self.waiting.pop(0)}
            for sql in self.statements:
                execute(sql, params).fetchall()
        (left,) = execute("SELECT count(*) FROM tasks WHERE state <> 'succeeded'").fetchone()
        assert left == len(self.waiting), f"{left} tasks left, not {len(self.waiting)}: the replay changed nothing"

    def durability(self) -> str:
        return settings_of(self.db)
