"""The simulated world of plain SQL: a function over a connection, scheduled statement by statement."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from labkit.database import Database
from labkit.explore.choices import Choices, Schedule
from labkit.explore.scheduler import Life, RunTooLong, Scheduler, WorldEvents
from labkit.explore.traced import TracedConnection, connect
from labkit.explore.world import Files, Played, Rows
from labkit.seams import ManualClock, Point
from labkit.store import SCHEMA

SqlProgram = Callable[[TracedConnection, str], Any]
"""A worker's code: it is given a connection and the worker's name."""


@dataclass(frozen=True)
class SqlRun:
    """A finished run of plain SQL, for its laws.

    Args:
        db: an untraced connection to the file as it is now; to be read only.
        results: what each worker's function returned, by worker; a worker that died or raised is not among them.
        errors: what workers raised.
        dead: the workers that were killed.
    """

    db: Any
    results: Mapping[str, Any]
    errors: Mapping[str, BaseException]
    dead: frozenset[str]


SqlLaw = Callable[[SqlRun], str]


@dataclass(frozen=True)
class SqlScenario:
    """What is explored: one function, run once by each worker on the lab's own schema.

    Args:
        program: the function.
        prepare: fills the tables; is given a plain connection.
        laws: what must hold after each run.
        workers: how many run it.
        allowed: the kinds of surprise that may happen: `switch`, `crash`.
    """

    program: SqlProgram
    prepare: Callable[[Any], None]
    laws: Mapping[str, SqlLaw]
    workers: int = 2
    allowed: frozenset[str] = field(default_factory=lambda: frozenset({"switch"}))

    def open(self) -> SqlWorld:
        """Return a world in which schedules of this scenario can be played, one after the other."""
        return SqlWorld(self)


class SqlWorld(WorldEvents):
    """Plays schedules of a `SqlScenario` on one warm file with a warm connection for each worker."""

    def __init__(self, scenario: SqlScenario) -> None:
        self.scenario = scenario
        self._files = Files()
        path = self._files.folder / "tasks.sqlite"
        self._warm = Database(path, SCHEMA, "OFF")
        self._db = self._warm.connection()
        scenario.prepare(self._db)
        self._rows = Rows(self._warm)
        self._connections = [connect(path) for _ in range(scenario.workers)]
        self._hub: Scheduler

    def close(self) -> None:
        """Close and remove the files."""
        for db in self._connections:
            sqlite3.Connection.close(db)
        self._warm.close()
        self._files.close()

    def play(self, schedule: Schedule) -> Played:
        """Run every worker's function once, with these surprises.

        Raises:
            ScheduleMismatch: a surprise is not on offer at its place.
        """
        self._rows.put_back()
        hub = self._hub = Scheduler(Choices(schedule), self.scenario.allowed, ManualClock(), self)
        trouble = ""
        try:
            for db in self._connections:
                hub.start(partial(self._live, db=db))
            hub.run()
        except RunTooLong as error:
            trouble = str(error)
        finally:
            hub.close()
            for db in self._connections:
                db.end_of_life()
        hub.choices.check_used_up()
        law, how = ("bounded", trouble) if trouble else self._broken(hub)
        return Played(schedule, tuple(hub.choices.steps), "broken" if law else "kept", law, how, hub.counts)

    def _live(self, life: Life, db: TracedConnection) -> Any:
        db.life = life
        result = self.scenario.program(db, life.name)
        life.cross(Point("end", life.name))
        return result

    def _broken(self, hub: Scheduler) -> tuple[str, str]:
        run = SqlRun(
            self._db,
            {life.name: life.result for life in hub.lives if life.ended},
            {life.name: life.error for life in hub.lives if life.error is not None},
            frozenset(life.name for life in hub.lives if not life.alive),
        )
        for name, law in self.scenario.laws.items():
            how = law(run)
            if how:
                return name, how
        return "", ""

    def crashed(self, life: Life) -> None:
        """The operating system takes a dead process's locks and what it had not committed."""
        self._connections[int(life.name.rpartition("-")[2]) - 1].end_of_life()

    def deadlock(self, blocked: list[Life]) -> None:
        """All wait for each other: the busy time-out of the first one runs out."""
        self._hub.time_out(blocked[0])
