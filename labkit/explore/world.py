"""The simulated world: real SQLite files, one clock, remotes that outlive workers, and whoever starts the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from labkit.agent import REMOTES, plan
from labkit.changes import Assumptions
from labkit.database import Database, Schema
from labkit.explore.choices import Schedule
from labkit.explore.laws import LAWS, Law, broken
from labkit.explore.lives import START, Life
from labkit.explore.memory import Fresh
from labkit.explore.person import Person
from labkit.explore.programs import LabWorker
from labkit.explore.record import Record, booked
from labkit.explore.scenario import Played, checked_allowed, checked_program, checked_workers
from labkit.explore.scheduler import Scheduler
from labkit.explore.simulation import SimulatedWorld
from labkit.explore.warm import Known, LifeDatabase, Rows, WarmDatabase
from labkit.explore.witness import Witness
from labkit.programs import Program
from labkit.records import PlannedOperation
from labkit.remote import LEDGER, Capabilities, RemoteService
from labkit.retries import Budget
from labkit.runs import Run, database_view, effects_of
from labkit.seams import Call, Point
from labkit.states import ENDED_STATES, Direction, State
from labkit.store import SCHEMA, TaskStore
from labkit.values import checked_seconds
from labkit.wire import Remote

T = TypeVar("T")
TASK_ID = "task-1"
ONE_WORKER = frozenset({"crash", "refused", "request_lost", "response_lost", "late"})
ALL_SURPRISES = ONE_WORKER | {"pause", "switch"}


@dataclass(frozen=True)
class TaskScenario:
    """What is explored: a recovery program, the task it works on, the remotes, and what may go wrong.

    Args:
        program: the workers' code; it is started again for as long as the task can be worked on, and each time without
            what it had in memory: see `labkit.explore.memory`.
        operations: the task's external writes.
        remotes: the capabilities of each remote, by name.
        workers: how many are there from the start.
        allowed: the kinds of surprise that may happen; cancels, early arrivals and clocks only where asked for.
        person: somebody answers truthfully, once nothing can be under way any more.
        compensate: that person also wants done operations undone once the task has failed or was cancelled.
        budget: attempts and seconds for each operation.
        assumptions: the bounds that the world keeps to.
        late_by_seconds: how much later than sent a late request arrives; within the longest delivery.
        laws: what every run must keep.
    """

    program: Program
    operations: tuple[PlannedOperation, ...] = field(default_factory=lambda: tuple(plan()[:1]))
    remotes: Mapping[str, Capabilities] = field(default_factory=lambda: dict(REMOTES))
    workers: int = 1
    allowed: frozenset[str] = ALL_SURPRISES
    person: bool = True
    compensate: bool = False
    budget: Budget = field(default_factory=Budget)
    assumptions: Assumptions = field(default_factory=Assumptions)
    late_by_seconds: float = 45.0
    laws: Mapping[str, Law] = field(default_factory=lambda: dict(LAWS))

    def __post_init__(self) -> None:
        checked_program(self.program, "(task_id, store, remotes)")
        checked_workers(self.workers)
        checked_seconds("late_by_seconds", self.late_by_seconds)
        object.__setattr__(self, "allowed", checked_allowed(self.allowed))

    def open(self, folder: Path | None = None) -> TaskWorld:
        """Return a world in which schedules of this scenario can be played, one after the other; see `Files`."""
        return TaskWorld(self, folder)


class _Row(NamedTuple):
    """What is looked at between all crossings. The whole task would be read far too often for it."""

    state: str
    direction: str
    next_run_at: float
    lease_expires_at: float | None
    lease_token: int
    version: int
    cancel_requested: int


class TaskWorld(SimulatedWorld):
    """Plays schedules of a `TaskScenario` on warm files."""

    scenario: TaskScenario

    def __init__(self, scenario: TaskScenario, folder: Path | None = None) -> None:
        self._program = Fresh(scenario.program)  # before any file is open: it may refuse
        super().__init__(scenario, folder)
        self._warm = self._database("tasks.sqlite", SCHEMA)
        self.store = TaskStore(self._warm, self.clock, assumptions=scenario.assumptions)
        ledgers = {
            name: self._database(f"remote-{number}.sqlite", LEDGER)
            for number, name in enumerate(scenario.remotes, start=1)
        }
        self.services = {
            name: RemoteService(ledgers[name], name, capabilities, self.clock, late_by_seconds=scenario.late_by_seconds)
            for name, capabilities in scenario.remotes.items()
        }
        self._prepare()
        self._rows = [self._rows_of(database) for database in (self._warm, *ledgers.values())]
        self._task = self._known(self._warm, partial(self.store.get, TASK_ID))
        self._row = self._known(self._warm, self._read_row)
        self._arrivals = {name: self._known(ledgers[name], service.arrivals) for name, service in self.services.items()}
        self._booked = {name: self._known(ledgers[name], partial(booked, name, ledgers[name])) for name in ledgers}
        self._new_run()

    def _new_run(self) -> None:
        asked = self.scenario
        self._witness = Witness()
        self._person = Person(self.store, self.clock, self._effects, asked.person, asked.compensate)

    def _prepare(self) -> None:
        """Put down what every run begins with."""
        self.store.enqueue(TASK_ID, self.scenario.operations, budget=self.scenario.budget)

    def _database(self, file: str, schema: Schema) -> Database:
        """Open one of the world's files."""
        return WarmDatabase(self._files.folder / file, schema)

    def _known(self, database: Database, read: Callable[[], T]) -> Callable[[], T]:
        """How something is read that is looked at often."""
        return Known(database, read)

    def _rows_of(self, database: Database) -> Rows:
        """What a file begins each run with."""
        return Rows(database)

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table of every file, by file and table: what two worlds are compared by."""
        return {f"{rows.file}: {table}": found for rows in self._rows for table, found in rows.now().items()}

    def close(self) -> None:
        """Close and remove the files."""
        self.store.close()
        for service in self.services.values():
            service.close()
        super().close()

    def _begin(self) -> None:
        super()._begin()
        self._new_run()

    def _run(self, hub: Scheduler) -> None:
        """Run until nothing is left to do; then once more, without surprises."""
        self._until_idle(hub)
        hub.no_more_surprises()
        hub.start(self._live)
        self._until_idle(hub)

    def _judged(self, schedule: Schedule, hub: Scheduler, trouble: str) -> Played:
        record = self.record()
        law, how = ("bounded", trouble) if trouble else broken(record, self.scenario.laws)
        law, how = (law, how) if law else self._followed()
        counts = {**hub.counts, "take_over": sum(entry.event == "take_over" for entry in record.history)}
        return Played(schedule, tuple(hub.choices.steps), record.verdict, law, how, counts)

    def watch(self, schedule: Schedule, title: str) -> tuple[Played, Run]:
        """Play a schedule and keep the three views at every crossing."""
        played, moments = self._watched(schedule)
        record = self.record()
        return played, Run(title, moments, record.task, self._ledger(), record.verdict)

    def record(self) -> Record:
        """All that is known of the run just played."""
        errors = tuple((life.name, life.error) for life in self._hub.lives if life.error is not None)
        history, effects, seen = self.store.history(TASK_ID), self._effects(), self._witness
        return Record(
            self._task(),
            history,
            effects,
            errors,
            dict(self._hub.sent),
            self._person.undo_asked,
            [one for read in self._booked.values() for one in read()],
            frozenset(seen.refused),
            tuple(seen.unintended),
            tuple(seen.strangers),
        )

    def _effects(self) -> dict[str, int]:
        return effects_of(self._effects_at(name) for name in self.services)

    def _effects_at(self, name: str) -> dict[str, int]:
        if self._arrivals[name]():  # what is under way may arrive at any time
            return self.services[name].effects()
        rows = self._booked[name]()
        return Counter(one.operation_id for one in rows) if rows else {}

    def _live(self, life: Life) -> Any:
        life.cross(Point(START, life.name, "nothing yet"))
        store = TaskStore(LifeDatabase(self._warm, life), life, life.cross, self.scenario.assumptions)
        remotes = {
            name: Remote(service, life.deliver, partial(self._answered, life))
            for name, service in self.services.items()
        }
        program = self._program()
        if isinstance(program, LabWorker):  # others call themselves what they like
            return program(TASK_ID, store, remotes, life.name)
        return program(TASK_ID, store, remotes)

    def _due(self) -> float | None:
        row = self._row()
        return row.next_run_at if row.state == State.QUEUED else row.lease_expires_at

    def _under_way(self) -> list[float]:
        return [at for arrivals in self._arrivals.values() for at in arrivals()]

    def _nobody_left(self) -> bool:
        """There may be something to do for a person."""
        return self._person.acts(self._task())

    def _answered(self, life: Life, point: Point) -> None:
        self._witness.answered(point)
        life.cross(point)

    def calling(self, life: Life, call: Call) -> None:
        """Note what is sent with no intent of it on record."""
        if call.action == "send":
            query = "SELECT 1 FROM attempts WHERE operation_id = ? LIMIT 1"
            if self._warm.connection().execute(query, (call.operation_id,)).fetchone() is None:
                self._witness.unintended.append((life.name, call.operation_id))

    def crossed(self, life: Life, point: Point) -> None:
        """Note who holds the task, and who changes it without doing so."""
        row = self._row()
        self._witness.crossed(life, point, row.lease_token, row.version)
        super().crossed(life, point)

    def _view(self) -> str:
        return database_view(self._task())

    def _ledger(self) -> tuple[tuple[str, int], ...]:
        return tuple(sorted(self._effects().items()))

    def _read_row(self) -> _Row:
        query = f"SELECT {', '.join(_Row._fields)} FROM tasks WHERE id = ?"
        return _Row(*self._warm.connection().execute(query, (TASK_ID,)).fetchone())

    def can_pause(self, life: Life) -> bool:
        """A worker that holds the lease can sleep through its end."""
        return life is self._witness.holder and self._row().lease_expires_at is not None

    def pause_ends_at(self) -> float:
        """When the lease runs out."""
        until = self._row().lease_expires_at
        assert until is not None, "only a holder is paused"
        return until

    def can_cancel(self) -> bool:
        """A task that has not ended can be cancelled, once, while it goes forward."""
        row = self._row()
        return not row.cancel_requested and row.direction == Direction.DO and row.state not in ENDED_STATES

    def cancel(self) -> None:
        """Somebody wants the task stopped."""
        self._person.cancels(TASK_ID)

    def can_arrive(self) -> bool:
        """Whether any remote has a late request coming."""
        return any(arrivals() for arrivals in self._arrivals.values())

    def arrive(self) -> None:
        """Let every late request arrive."""
        for service in self.services.values():
            service.deliver_late()
