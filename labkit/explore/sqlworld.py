"""The simulated world of plain SQL: a function over a connection, scheduled statement by statement."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from labkit.database import Database
from labkit.explore.choices import CRASH, SWITCHED, Schedule
from labkit.explore.journal import Changed, Journal, Logged
from labkit.explore.lives import Life
from labkit.explore.memory import Fresh
from labkit.explore.outside import SecondConnection
from labkit.explore.scenario import Played, checked_allowed, checked_program, checked_workers
from labkit.explore.scheduler import Scheduler
from labkit.explore.simulation import SimulatedWorld
from labkit.explore.traced import TracedConnection, connect
from labkit.explore.warm import Rows
from labkit.runs import Moment, database_view
from labkit.seams import Point
from labkit.store import SCHEMA, TaskStore

SqlProgram = Callable[[Any, Any], Any]
"""A worker's code: it is given a sqlite3 connection and the worker's name."""


@dataclass(frozen=True)
class SqlRun:
    """A finished run of plain SQL, for its laws.

    Args:
        db: an untraced connection to the file as it is now; to be read only.
        results: what each worker's function returned, by worker; a worker that died or raised is not among them.
        errors: what workers raised; like results in the order in which they were started.
        dead: the workers that were killed.
        log: the rows as they were at the start, then every row that a commit has changed, and who did it.
    """

    db: Any
    results: Mapping[str, Any]
    errors: Mapping[str, BaseException]
    dead: frozenset[str]
    log: Sequence[Logged] = ()


SqlLaw = Callable[[SqlRun], str]


@dataclass(frozen=True)
class SqlScenario:
    """What is explored: one function, run once by each worker on the lab's own schema.

    Args:
        program: the function; each worker has its own, see `labkit.explore.memory`.
        prepare: fills the tables; is given a plain connection.
        laws: what must hold after each run.
        workers: how many run it.
        allowed: the kinds of surprise that may happen: `switch`, `crash`.
        outside: reads what another system holds that stands beside these tables, as pairs of name and count.
    """

    program: SqlProgram
    prepare: Callable[[Any], None]
    laws: Mapping[str, SqlLaw]
    workers: int = 2
    allowed: frozenset[str] = field(default_factory=lambda: frozenset({"switch"}))
    outside: Callable[[Any], tuple[tuple[str, int], ...]] | None = field(default=None, kw_only=True)

    KINDS: ClassVar[frozenset[str]] = frozenset({SWITCHED, CRASH})

    def __post_init__(self) -> None:
        checked_program(self.program, "a connection and the worker's name, or its bench")
        checked_workers(self.workers)
        object.__setattr__(self, "allowed", checked_allowed(self.allowed, self.KINDS))

    def open(self, folder: Path | None = None) -> SqlWorld:
        """Return a world in which schedules of this scenario can be played, one after the other; see `Files`."""
        return SqlWorld(self, folder)


class SqlWorld(SimulatedWorld):
    """Plays schedules of a `SqlScenario` on one warm file with a warm connection for each worker."""

    scenario: SqlScenario

    def __init__(self, scenario: SqlScenario, folder: Path | None = None) -> None:
        self._program = Fresh(scenario.program)  # before any file is open: it may refuse
        super().__init__(scenario, folder)
        self._path = self._files.folder / "tasks.sqlite"
        self._warm = Database(self._path, SCHEMA, "OFF")
        self._db = self._warm.connection()
        scenario.prepare(self._db)
        self._rows = [Rows(self._warm)]
        self._journal = Journal(self._db)
        self._connections: list[TracedConnection] = []
        self._kept: list[tuple[frozenset[str], int]] = []

    def close(self) -> None:
        """Close and remove the files."""
        for db in self._connections:
            sqlite3.Connection.close(db)
        self._warm.close()
        super().close()

    def _begin(self) -> None:
        super()._begin()
        self._journal.begin()
        self._version = self._data_version()

    def _judged(self, schedule: Schedule, hub: Scheduler, trouble: str) -> Played:
        law, how = ("bounded", trouble) if trouble else self._broken()
        return Played(schedule, tuple(hub.choices.steps), "broken" if law else "kept", law, how, hub.counts)

    def watch(self, schedule: Schedule, title: str) -> tuple[Played, tuple[Moment, ...]]:
        """Play a schedule and keep what there was to see at every crossing."""
        self._kept = []
        played, moments = self._watched(schedule)
        since = _since([played.law in kept for kept, _ in self._kept])
        if since is not None and self._kept[since][1] == self._kept[since - 1][1]:
            since = None  # not by a commit: what the database says is not what is wrong
        return played, tuple(replace(one, broken=place == since) for place, one in enumerate(moments))

    def crossed(self, life: Life, point: Point) -> None:
        """Keep also which laws are kept so far, and how many changes there are, if somebody watches."""
        self._check_followed(life)
        super().crossed(life, point)
        if self._moments is not None:
            run = self.record()
            kept = frozenset(name for name, law in self.scenario.laws.items() if not law(run))
            self._kept.append((kept, sum(isinstance(one, Changed) for one in run.log)))

    def record(self) -> SqlRun:
        """All that is known of the run just played."""
        lives = self._hub.lives
        return SqlRun(
            self._db,
            {life.name: life.result for life in lives if life.ended},
            {life.name: life.error for life in lives if life.error is not None},
            frozenset(life.name for life in lives if not life.alive),
            tuple(self._journal.log),
        )

    def _live(self, life: Life) -> Any:
        db = self._connect(life)
        try:
            result = self._program()(db, self._given(life))
            db.check_followed()
        finally:
            self._check_followed(life)
            if life.alive:  # its process ends, whatever it has left open
                db.end_of_life()
        life.cross(Point("end", life.name, self._told(life, result)))
        return result

    def _told(self, life: Life, result: object) -> str:
        """What a worker tells in the end."""
        return f"returns {in_words(result)}".strip()

    def _given(self, life: Life) -> Any:
        """What the program is given beside its connection."""
        return life.name

    def _connect(self, life: Life) -> TracedConnection:
        """A connection that no other worker of this run has had."""
        while len(self._connections) < _number(life):
            self._connections.append(connect(self._path))
        db = self._connections[_number(life) - 1]
        db.life = life
        return db

    def _in_transaction(self, life: Life | None = None) -> bool:
        """Whether a worker, or anybody, has a transaction open."""
        asked = self._connections if life is None else self._connections[_number(life) - 1 : _number(life)]
        return any(db.in_transaction for db in asked)

    def _end(self) -> None:
        for place, db in enumerate(self._connections):
            db.end_of_life()
            if db.changed:
                sqlite3.Connection.close(db)
                self._connections[place] = connect(self._path)

    def _broken(self) -> tuple[str, str]:
        run = self.record()
        for name, law in self.scenario.laws.items():
            how = law(run)
            if how:
                return name, how
        return self._followed()

    def crashed(self, life: Life) -> None:
        """The operating system takes a dead process's locks and what it had not committed."""
        if _number(life) <= len(self._connections):
            self._connections[_number(life) - 1].end_of_life()

    def committed(self, life: Life) -> None:
        """Put down what the commit has changed."""
        self._put_down(life)

    def _put_down(self, life: Life) -> list[Changed]:
        self._version = self._data_version()
        return self._journal.committed(life.name, life.now())

    def _data_version(self) -> int:
        """Another number after each commit of anybody's: https://www.sqlite.org/pragma.html#pragma_data_version."""
        (version,) = self._db.execute("PRAGMA data_version").fetchone()
        return int(version)

    def _check_followed(self, life: Life) -> None:
        """Notice what was committed past the connections of this run, such as by another program."""
        if self._data_version() != self._version:
            self._version = self._data_version()
            life.misused = life.misused or SecondConnection(life.name, "changed the file by another connection")

    def _ledger(self) -> tuple[tuple[str, int], ...]:
        return () if self.scenario.outside is None else self.scenario.outside(self._db)

    def _view(self) -> str:
        tasks = TaskStore(self._warm, self.clock).tasks()
        return "\n".join(f"{task.id} {database_view(task)}" if tasks[1:] else database_view(task) for task in tasks)


def in_words(result: object) -> str:
    """A plain value as it is printed; nothing of others, which may be told in another way on every run."""
    return str(result) if result is None or isinstance(result, bool | int | float | str) else ""


def _since(kept: Sequence[bool]) -> int | None:
    """The place from which on nothing is kept; None where that is the whole, or nothing."""
    first = len(kept)
    while first and not kept[first - 1]:
        first -= 1
    return first if 0 < first < len(kept) else None


def _number(life: Life) -> int:
    return int(life.name.rpartition("-")[2])
