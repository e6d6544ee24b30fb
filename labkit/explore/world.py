"""The simulated world: real SQLite files, one clock, remotes that outlive workers, and whoever starts the next one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from labkit.agent import REMOTES, plan
from labkit.changes import Assumptions
from labkit.database import Database, Schema
from labkit.explore.choices import Schedule
from labkit.explore.laws import ACQUIRING, LAWS, Law, Record, broken
from labkit.explore.lives import START, Life
from labkit.explore.programs import LabWorker
from labkit.explore.scenario import Played
from labkit.explore.scheduler import Scheduler
from labkit.explore.simulation import SimulatedWorld
from labkit.explore.warm import Known, LifeDatabase, Rows, WarmDatabase
from labkit.person import WHO, answer_truthfully
from labkit.programs import Program
from labkit.records import PlannedOperation, Task
from labkit.remote import LEDGER, Capabilities, RemoteService
from labkit.retries import Budget
from labkit.runs import Run, database_view
from labkit.seams import Point
from labkit.states import ENDED_STATES, Direction, State
from labkit.store import SCHEMA, TaskStore
from labkit.wire import Remote

T = TypeVar("T")
TASK_ID = "task-1"
MAX_UNDO_ASKED = 5
"""A person whose undo failed asks again, and gives up at some time."""

ONE_WORKER = frozenset({"crash", "refused", "request_lost", "response_lost", "late"})
ALL_SURPRISES = ONE_WORKER | {"pause", "switch"}


@dataclass(frozen=True)
class TaskScenario:
    """What is explored: a recovery program, the task it works on, the remotes, and what may go wrong.

    Args:
        program: the workers' code; it is started again for as long as the task can be worked on.
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

    def open(self, folder: Path | None = None) -> TaskWorld:
        """Return a world in which schedules of this scenario can be played, one after the other; see `Files`."""
        return TaskWorld(self, folder)


class _Row(NamedTuple):
    """What is looked at between all crossings. The whole task would be read far too often for it."""

    state: str
    direction: str
    next_run_at: float
    lease_expires_at: float | None
    cancel_requested: int


class TaskWorld(SimulatedWorld):
    """Plays schedules of a `TaskScenario` on warm files."""

    scenario: TaskScenario

    def __init__(self, scenario: TaskScenario, folder: Path | None = None) -> None:
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
        self.store.enqueue(TASK_ID, scenario.operations, budget=scenario.budget)
        self._rows = [self._rows_of(database) for database in (self._warm, *ledgers.values())]
        self._task = self._known(self._warm, partial(self.store.get, TASK_ID))
        self._row = self._known(self._warm, self._read_row)
        self._arrivals = {name: self._known(ledgers[name], service.arrivals) for name, service in self.services.items()}
        self._booked = {name: self._known(ledgers[name], service.effects) for name, service in self.services.items()}
        self._holder: Life | None = None
        self._undo_asked = 0

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
        self._holder, self._undo_asked = None, 0

    def _run(self, hub: Scheduler) -> None:
        """Run until nothing is left to do; then once more, without surprises."""
        self._until_idle(hub)
        hub.no_more_surprises()
        hub.start(self._live)
        self._until_idle(hub)

    def _judged(self, schedule: Schedule, hub: Scheduler, trouble: str) -> Played:
        record = self.record()
        law, how = ("bounded", trouble) if trouble else broken(record, self.scenario.laws)
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
        history, sent = self.store.history(TASK_ID), dict(self._hub.sent)
        return Record(self._task(), history, self._effects(), errors, sent, self._undo_asked)

    def _effects(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, service in self.services.items():  # what is under way may arrive at any time
            found.update(service.effects() if self._arrivals[name]() else self._booked[name]())
        return found

    def _live(self, life: Life) -> Any:
        life.cross(Point(START, life.name, "nothing yet"))
        store = TaskStore(LifeDatabase(self._warm, life), life, life.cross, self.scenario.assumptions)
        remotes = {
            name: Remote(service, network=life.deliver, boundary=life.cross) for name, service in self.services.items()
        }
        program = self.scenario.program
        if isinstance(program, LabWorker):  # others call themselves what they like
            return program(TASK_ID, store, remotes, life.name)
        return program(TASK_ID, store, remotes)

    def _due(self) -> float | None:
        row = self._row()
        return row.next_run_at if row.state == State.QUEUED else row.lease_expires_at

    def _under_way(self) -> list[float]:
        return [at for arrivals in self._arrivals.values() for at in arrivals()]

    def _nobody_left(self) -> bool:
        """What a truthful, patient person does: look into the ledger and answer; ask for what is done to be undone."""
        task = self._task()
        if self.scenario.person and task.state is State.AWAITING_CONFIRMATION:
            answer_truthfully(self.store, task, self.clock, lambda one: self._effects().get(one.id, 0) > 0)
            return True
        stopped = task.state in (State.FAILED, State.CANCELLED) and self._undo_asked < MAX_UNDO_ASKED
        if self.scenario.compensate and stopped and _reversible(task):
            self._undo_asked += 1
            self.store.compensate(task, WHO)
            return True
        return False

    def crossed(self, life: Life, point: Point) -> None:
        """Note who has acquired the task, whatever it calls itself."""
        if point.action in ACQUIRING:
            self._holder = life
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
        return life is self._holder and self._row().lease_expires_at is not None

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
        self.store.request_cancel(TASK_ID, WHO)

    def can_arrive(self) -> bool:
        """Whether any remote has a late request coming."""
        return any(arrivals() for arrivals in self._arrivals.values())

    def arrive(self) -> None:
        """Let every late request arrive."""
        for service in self.services.values():
            service.deliver_late()


def _reversible(task: Task) -> bool:
    """Whether something done can be undone, and is not."""
    done = {one.id for one in task.operations if one.status == "done"}
    return any(
        one.undo_request is not None and one.id in done and f"{one.id}/undo" not in done for one in task.operations
    )
