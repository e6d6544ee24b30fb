"""The simulated world: real SQLite files, one clock, remotes that outlive workers, and whoever starts the next one."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.agent import REMOTES, plan
from labkit.changes import Assumptions
from labkit.database import Database
from labkit.deciding import Answer
from labkit.explore.choices import Choices, Schedule, Step, Surprise
from labkit.explore.laws import LAWS, Law, Record, broken
from labkit.explore.scheduler import Life, RunTooLong, Scheduler, Status, WorldEvents
from labkit.records import PlannedOperation, Task
from labkit.remote import LEDGER, Capabilities, RemoteService
from labkit.retries import Budget
from labkit.runs import Moment, Run, database_view
from labkit.seams import Clock, ManualClock, Point
from labkit.states import ENDED_STATES, Direction, State
from labkit.store import SCHEMA, TaskStore
from labkit.wire import Remote

TASK_ID = "task-1"
MAX_LAPS = 60
SHARED_MEMORY = Path("/dev/shm")
ONE_WORKER = frozenset({"crash", "refused", "request_lost", "response_lost", "late"})
ALL_SURPRISES = ONE_WORKER | {"pause", "switch"}

Program = Callable[[str, TaskStore, Mapping[str, Remote]], Any]
"""A worker's code: it is given a task's id, a store and the remotes by name."""


@dataclass(frozen=True)
class TaskScenario:
    """What is explored: a recovery program, the task it works on, the remotes, and what may go wrong.

    Args:
        program: the workers' code; it is started again for as long as the task can be worked on.
        operations: the task's external writes.
        remotes: the capabilities of each remote, by name.
        workers: how many are there from the start.
        allowed: the kinds of surprise that may happen.
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

    def open(self) -> TaskWorld:
        """Return a world in which schedules of this scenario can be played, one after the other."""
        return TaskWorld(self)


@dataclass(frozen=True)
class Played:
    """One run as the search sees it.

    Args:
        schedule: its surprises.
        steps: every choice, with its options.
        verdict: what it came to.
        law: the first law it broke, and
        how: in a sentence; both empty where it kept them all.
        counts: how many of each fault really happened.
    """

    schedule: Schedule
    steps: tuple[Step, ...]
    verdict: str
    law: str
    how: str
    counts: Mapping[str, int]

    def children(self) -> list[Schedule]:
        """All schedules with one surprise more, behind the last one: so a search meets each schedule once."""
        behind = self.schedule[-1].place + 1 if self.schedule else 0
        return [
            (*self.schedule, Surprise(place, choice))
            for place in range(behind, len(self.steps))
            for choice in self.steps[place].options[1:]
        ]


class LifeDatabase(Database):
    """The world's warm connection in the hands of one worker; dead with it."""

    def __init__(self, warm: Database, life: Life) -> None:
        self.path, self.schema, self.synchronous = warm.path, warm.schema, warm.synchronous
        self.journal_mode = warm.journal_mode
        self._warm, self._life = warm, life

    def connection(self) -> Any:
        """The warm connection, for as long as the worker is alive."""
        self._life.check_alive()
        return self._warm.connection()

    def close(self) -> None:
        """The world closes it."""


class LifeClock:
    """The run's clock as one worker reads it."""

    def __init__(self, clock: Clock, life: Life) -> None:
        self._clock, self._life = clock, life

    def now(self) -> float:
        """Seconds of the run's clock."""
        return self._clock.now()

    def sleep(self, seconds: float) -> None:
        """Hand over until so many seconds have passed."""
        self._life.wait_until(self._clock.now() + max(0.0, seconds))


class Files:
    """A folder of SQLite files in shared memory where there is one, with rows that can be put back."""

    def __init__(self) -> None:
        self.folder = Path(
            tempfile.mkdtemp(prefix="recovery-lab-", dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None)
        )
        self._remove = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def close(self) -> None:
        """Remove the folder."""
        self._remove()


class Rows:
    """The rows of a database as they are now, to be put back before each run."""

    def __init__(self, database: Database) -> None:
        db = self._db = database.connection()
        db.execute("DROP TRIGGER IF EXISTS events_are_not_deleted")  # rows are put back by deleting them
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid")]
        self._tables = {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in names}
        self._seen = self._mark()

    def _mark(self) -> tuple[int, int]:
        """Changes by this connection and by others: https://www.sqlite.org/pragma.html#pragma_data_version."""
        (others,) = self._db.execute("PRAGMA data_version").fetchone()
        return self._db.total_changes, others

    def put_back(self) -> None:
        """Let the tables hold what they held when this object was made."""
        db = self._db
        if db.in_transaction:
            db.rollback()
        if self._mark() == self._seen:
            return
        db.execute("BEGIN IMMEDIATE")
        for name in reversed(self._tables):
            db.execute(f"DELETE FROM {name}")
        for name, rows in self._tables.items():
            if rows:
                db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        db.execute("COMMIT")
        self._seen = self._mark()


class TaskWorld(WorldEvents):
    """Plays schedules of a `TaskScenario` on warm files."""

    def __init__(self, scenario: TaskScenario) -> None:
        self.scenario = scenario
        self._files = Files()
        self.clock = ManualClock()
        self._warm = Database(self._files.folder / "tasks.sqlite", SCHEMA, "OFF")
        self.store = TaskStore(self._warm, self.clock, assumptions=scenario.assumptions)
        ledgers = {name: Database(self._files.folder / f"{name}.sqlite", LEDGER, "OFF") for name in scenario.remotes}
        self.services = {
            name: RemoteService(ledgers[name], name, capabilities, self.clock, late_by_seconds=scenario.late_by_seconds)
            for name, capabilities in scenario.remotes.items()
        }
        self.store.enqueue(TASK_ID, scenario.operations, budget=scenario.budget)
        self._rows = [Rows(database) for database in (self._warm, *ledgers.values())]
        self._moments: list[Moment] | None = None
        self._fault = ""

    def close(self) -> None:
        """Close and remove the files."""
        self.store.close()
        for service in self.services.values():
            service.close()
        self._files.close()

    def play(self, schedule: Schedule) -> Played:
        """Run the scenario once, with these surprises.

        Raises:
            ScheduleMismatch: a surprise is not on offer at its place.
        """
        for rows in self._rows:
            rows.put_back()
        self.clock.reset()
        hub = self._hub = Scheduler(Choices(schedule), self.scenario.allowed, self.clock, self)
        trouble = ""
        try:
            for _ in range(self.scenario.workers):
                hub.start(self._live)
            laps = 0
            hub.run()
            while self._next_lap(hub) and laps < MAX_LAPS:
                laps += 1
                hub.run()
        except RunTooLong as error:
            trouble = str(error)
        finally:
            hub.close()
        hub.choices.check_used_up()
        record = self.record()
        law, how = ("bounded", trouble) if trouble else broken(record, self.scenario.laws)
        counts = {**hub.counts, "take_over": sum(entry.event == "take_over" for entry in record.history)}
        return Played(schedule, tuple(hub.choices.steps), record.verdict, law, how, counts)

    def watch(self, schedule: Schedule, title: str) -> tuple[Played, Run]:
        """Play a schedule and keep the three views at every crossing."""
        self._moments = []
        try:
            played = self.play(schedule)
            record = self.record()
            effects = tuple(sorted(record.effects.items()))
            return played, Run(title, tuple(self._moments), record.task, effects, record.verdict)
        finally:
            self._moments = None

    def record(self) -> Record:
        """All that is known of the run just played."""
        errors = tuple((life.name, life.error) for life in self._hub.lives if life.error is not None)
        return Record(self.store.get(TASK_ID), self.store.history(TASK_ID), self._effects(), errors)

    def _effects(self) -> dict[str, int]:
        return {name: count for service in self.services.values() for name, count in service.effects().items()}

    def _live(self, life: Life) -> Any:
        life.cross(Point("start", life.name, "nothing yet"))
        store = TaskStore(
            LifeDatabase(self._warm, life), LifeClock(self.clock, life), life.cross, self.scenario.assumptions
        )
        remotes = {
            name: Remote(service, network=life.deliver, boundary=life.cross) for name, service in self.services.items()
        }
        return self.scenario.program(TASK_ID, store, remotes)

    def _next_lap(self, hub: Scheduler) -> bool:
        """All are idle: start, wake or wait for whoever can go on next; tells whether there is anybody."""
        now = self.clock.now()
        task = self.store.get(TASK_ID)
        if hub.wake({Status.SLEEPING}, now):
            return True
        if _workable(task, now):
            hub.start(self._live)
            return True
        if hub.wake({Status.PAUSED}, now):
            return True
        due = self._next_due(hub, task)
        if due is not None:
            self.clock.advance(due - now)  # late requests arrive when their remote is touched next
            return True
        return self._person_acts(task)

    def _next_due(self, hub: Scheduler, task: Task) -> float | None:
        waiting = [life.wakes_at for life in hub.lives if life.status in (Status.SLEEPING, Status.PAUSED)]
        if task.state is State.QUEUED:
            waiting.append(task.next_run_at)
        if task.lease_expires_at is not None:
            waiting.append(task.lease_expires_at)
        waiting += [at for service in self.services.values() for at in service.arrivals()]
        return min((at for at in waiting if at > self.clock.now()), default=None)

    def _person_acts(self, task: Task) -> bool:
        """What a truthful, patient person does: look into the ledger and answer; ask for what is done to be undone."""
        if self.scenario.person and task.state is State.AWAITING_CONFIRMATION:
            if task.in_doubt is None:
                self.store.answer(task, Answer.APPROVED, "Ada")
                return True
            self.clock.advance(self.scenario.assumptions.longest_under_way_seconds)
            applied = self._effects().get(task.in_doubt.id, 0) > 0
            self.store.answer(task, Answer.APPLIED if applied else Answer.NOT_APPLIED, "Ada")
            return True
        stopped = task.direction is Direction.DO and task.state in (State.FAILED, State.CANCELLED)
        reversible = any(one.undo_request is not None and one.status == "done" for one in task.operations)
        if self.scenario.compensate and stopped and reversible:
            self.store.compensate(task, "Ada")
            return True
        return False

    def crossed(self, life: Life, point: Point) -> None:
        """Keep the three views, if somebody watches."""
        if self._moments is not None:
            fault, self._fault = self._fault, ""
            view, ledger = database_view(self.store.get(TASK_ID)), tuple(sorted(self._effects().items()))
            number = len(self._moments) + 1
            moment = Moment(number, self.clock.now(), life.name, point.name, point.learned, view, ledger, fault)
            self._moments.append(moment)

    def _lease(self) -> tuple[str | None, float | None]:
        query = "SELECT lease_owner, lease_expires_at FROM tasks WHERE id = ?"
        owner, until = self._warm.connection().execute(query, (TASK_ID,)).fetchone()
        return owner, until

    def can_pause(self, life: Life) -> bool:
        """A worker that holds the lease can sleep through its end."""
        return self._lease()[0] == life.name

    def pause_ends_at(self) -> float:
        """When the lease runs out."""
        until = self._lease()[1]
        assert until is not None, "only a holder is paused"
        return until

    def can_cancel(self) -> bool:
        """A task that has not ended can be cancelled, once, while it goes forward."""
        task = self.store.get(TASK_ID)
        return not task.cancel_requested and task.direction is Direction.DO and task.state not in ENDED_STATES

    def cancel(self) -> None:
        """Somebody wants the task stopped."""
        self.store.request_cancel(TASK_ID, "Ada")

    def can_arrive(self) -> bool:
        """Whether any remote has a late request coming."""
        return any(service.arrivals() for service in self.services.values())

    def arrive(self) -> None:
        """Let every late request arrive."""
        for service in self.services.values():
            service.deliver_late()


def _workable(task: Task, now: float) -> bool:
    if task.state is State.QUEUED:
        return task.next_run_at <= now
    return task.lease_expires_at is not None and task.lease_expires_at <= now
