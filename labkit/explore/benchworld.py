"""The simulated world of a worker written in plain SQL that is started again until there is nothing left to do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from labkit.changes import Assumptions
from labkit.errors import ChangeRefused, RemoteError
from labkit.exchange import Request
from labkit.explore.bench import SAID, Bench, BenchRun, Due, acquires, outbox_due, tasks_due
from labkit.explore.choices import CLOCK, SURPRISES
from labkit.explore.journal import WIRE, Applied, Handed, Said
from labkit.explore.lives import START, Life
from labkit.explore.record import Record, booked
from labkit.explore.scheduler import Scheduler
from labkit.explore.sqlworld import SqlScenario, SqlWorld, in_words
from labkit.explore.warm import Rows, WarmDatabase
from labkit.remote import LEDGER, Capabilities, RemoteService
from labkit.runs import effects_of
from labkit.seams import Point
from labkit.states import ENDED_STATES
from labkit.store import TaskStore
from labkit.values import checked_seconds

MANY_MESSAGES = 8
"""Of more than these a view shows the first ones and the last."""

SAME_ERRORS = 3
"""After so many workers in a row that ended by the same bug nobody comes any more."""

_ENDED = ", ".join(f"'{state}'" for state in sorted(ENDED_STATES))
_CANCELLABLE = f"direction = 'do' AND NOT cancel_requested AND state NOT IN ({_ENDED})"


@dataclass(frozen=True)
class BenchScenario(SqlScenario):
    """What is explored: a worker written in plain SQL, started again for as long as it is due.

    Its program is given a connection and a `Bench`. Surprises of every kind can be allowed.

    Args:
        due: when a fresh worker has something to do; None: nobody comes after the first workers.
        remotes: the capabilities of each remote, by name.
        applied: what stands in their ledgers from the start, as pairs of remote and operation id.
        assumptions: the bounds that the world keeps to.
        late_by_seconds: how much later than sent a late request arrives.
        shows: columns of a task that are told beside its state and version, such as `step`.
    """

    due: Due | None = tasks_due
    remotes: Mapping[str, Capabilities] = field(default_factory=dict)
    applied: tuple[tuple[str, str], ...] = ()
    assumptions: Assumptions = field(default_factory=Assumptions)
    late_by_seconds: float = 45.0
    shows: tuple[str, ...] = ()

    KINDS: ClassVar[frozenset[str]] = SURPRISES

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_seconds("late_by_seconds", self.late_by_seconds)

    def open(self, folder: Path | None = None) -> BenchWorld:
        """Return a world in which schedules of this scenario can be played, one after the other; see `Files`."""
        return BenchWorld(self, folder)


class BenchWorld(SqlWorld):
    """Plays schedules of a `BenchScenario`."""

    scenario: BenchScenario

    def __init__(self, scenario: BenchScenario, folder: Path | None = None) -> None:
        super().__init__(scenario, folder)
        self.store = TaskStore(self._warm, self.clock, assumptions=scenario.assumptions)
        self.services: dict[str, RemoteService] = {}
        self._ledgers: dict[str, WarmDatabase] = {}
        for number, (name, capabilities) in enumerate(scenario.remotes.items(), start=1):
            ledger = WarmDatabase(self._files.folder / f"remote-{number}.sqlite", LEDGER)
            late = scenario.late_by_seconds
            self._ledgers[name] = ledger
            self.services[name] = RemoteService(ledger, name, capabilities, self.clock, late_by_seconds=late)
            for remote, operation_id in scenario.applied:
                if remote == name:
                    self.services[name].handle(Request(operation_id, f"{operation_id}#1", "{}"))
            self._rows.append(Rows(ledger))
        self._holders: dict[str, Life] = {}
        self._seen = self._effects()

    def close(self) -> None:
        """Close and remove the files."""
        for service in self.services.values():
            service.close()
        super().close()

    def _begin(self) -> None:
        super()._begin()
        self._holders.clear()
        self._seen = self._effects()

    def _live(self, life: Life) -> Any:
        if CLOCK in self.scenario.allowed:  # it is read before the first statement
            life.cross(Point(START, life.name, "nothing yet"))
        return super()._live(life)

    def _given(self, life: Life) -> Bench:
        return Bench(life, self)

    def _told(self, life: Life, result: object) -> str:
        """What a worker tells in the end, or what it was told last by the function that is tried."""
        log = reversed(self._journal.log)
        said = next((one for one in log if isinstance(one, Said) and (one.worker, one.what) == (life.name, SAID)), None)
        if isinstance(result, Capabilities):
            return f"returns keys: {result.idempotency_keys}, query: {result.status_query}"
        if result is not None or said is None:
            return super()._told(life, result)
        return f"the call returned {in_words(said.value)}".removesuffix(" returned ")

    def _run(self, hub: Scheduler) -> None:
        """Run until nothing is left to do; then once more, without surprises: starting again must change nothing."""
        self._until_idle(hub)
        if self.scenario.due is not None:
            hub.no_more_surprises()
            hub.start(self._live)
            hub.run()

    def _due(self) -> float | None:
        return None if self.scenario.due is None or self._hopeless() else self.scenario.due(self._db)

    def _hopeless(self) -> bool:
        """Whether the last workers have all ended by the same bug, which breaks a law of this scenario already."""
        errors = [life.error for life in self._hub.lives[-SAME_ERRORS:]]
        kinds = {type(error).__qualname__ for error in errors}  # a class of a notebook is another one in every life
        if "no_worker_breaks" not in self.scenario.laws or len(errors) < SAME_ERRORS or len(kinds) > 1:
            return False
        return not isinstance(errors[0], ChangeRefused | RemoteError | None)

    def _under_way(self) -> list[float]:
        return [at for service in self.services.values() for at in service.arrivals()]

    def _time_has_passed(self) -> None:
        """Late requests whose time has come arrive."""
        self._note_effects(WIRE)

    def record(self) -> BenchRun:
        """All that is known of the run just played."""
        run, effects = super().record(), self._effects()
        errors = tuple(run.errors.items())
        found = [one for name, ledger in self._ledgers.items() for one in booked(name, ledger)]
        records = {
            task.id: Record(task, self.store.history(task.id), _of(task.id, effects), errors, booked=found)
            for task in self.store.tasks()
        }
        before = tuple(operation_id for _, operation_id in self.scenario.applied)
        return BenchRun(run.db, run.results, run.errors, run.dead, run.log, effects, before, records)

    def _view(self) -> str:
        """What the database says to those whose work it is: of relays the messages, of others the tasks."""
        if self.scenario.due is not outbox_due:
            return self._of_tasks()
        rows = self._db.execute("SELECT delivered_at IS NOT NULL, message_id FROM outbox ORDER BY seq").fetchall()
        marked, waiting = ([name for at, name in rows if at == done] for done in (True, False))
        told = [f"{_in_short(marked)} marked"] if marked else []
        told += [f"{_in_short(waiting)} wait{'' if waiting[1:] else 's'}"] if waiting else []
        return "; ".join(told) or "no message"

    def _of_tasks(self) -> str:
        """Each task as ever, with those columns that this scenario is about."""
        view = super()._view()
        for column in self.scenario.shows:
            values = self._db.execute(f"SELECT state || ' v' || version, {column} FROM tasks ORDER BY id").fetchall()
            lines = zip(view.splitlines(), values, strict=True)
            told = column.removeprefix("lease_")
            view = "\n".join(line.replace(head, f"{head}, {told} {value}", 1) for line, (head, value) in lines)
        return view

    def _effects(self) -> dict[str, int]:
        return effects_of(service.effects() for service in self.services.values())

    def _ledger(self) -> tuple[tuple[str, int], ...]:
        return tuple(sorted(self._effects().items()))

    def _note_effects(self, worker: str) -> None:
        before, self._seen = self._seen, self._effects()
        for operation_id, count in sorted(self._seen.items()):
            for _ in range(count - before.get(operation_id, 0)):
                self._journal.log.append(Applied(self.clock.now(), worker, operation_id))

    def called(self, life: Life) -> None:
        """A worker has called a remote: put down what that has brought about."""
        self._note_effects(life.name)

    def handed(self, life: Life, message_id: str) -> None:
        """A worker has handed a message to its consumer."""
        self._journal.log.append(Handed(self.clock.now(), life.name, message_id))

    def said(self, life: Life, what: str, value: Any) -> None:
        """A worker has said what it believes."""
        self._journal.log.append(Said(self.clock.now(), life.name, what, value))

    def committed(self, life: Life) -> None:
        """Put down what the commit has changed, and who holds a task now, whatever it calls itself."""
        for change in self._put_down(life):
            if change.table == "tasks" and change.after is not None and acquires(change):
                self._holders[change.after["id"]] = life

    def _leases_of(self, life: Life) -> list[float]:
        held = "SELECT id, lease_expires_at FROM tasks WHERE lease_expires_at > ?"
        rows = self._db.execute(held, (self.clock.now(),)).fetchall()
        return [until for task_id, until in rows if self._holders.get(task_id) is life and not math.isinf(until)]

    def can_pause(self, life: Life) -> bool:
        """A holder can sleep through the end of its lease; not in a transaction, which is a lock and no lease."""
        return not self._in_transaction(life) and bool(self._leases_of(life))

    def pause_ends_at(self) -> float:
        """When the last lease of whoever falls asleep has run out."""
        (until,) = self._db.execute("SELECT max(lease_expires_at) FROM tasks WHERE lease_expires_at < 9e999").fetchone()
        return float(until)

    def can_cancel(self) -> bool:
        """A task that has not ended can be cancelled, once, while it goes forward and nobody holds the write lock."""
        query = f"SELECT 1 FROM tasks WHERE {_CANCELLABLE}"
        return not self._in_transaction() and self._db.execute(query).fetchone() is not None

    def cancel(self) -> None:
        """Somebody wants every task stopped."""
        self._db.execute(f"UPDATE tasks SET cancel_requested = 1 WHERE {_CANCELLABLE}")
        self._journal.committed("Ada", self.clock.now())

    def can_arrive(self) -> bool:
        """Whether any remote has a late request coming."""
        return any(service.arrivals() for service in self.services.values())

    def arrive(self) -> None:
        """Let every late request arrive."""
        for service in self.services.values():
            service.deliver_late()
        self._note_effects(WIRE)


def _in_short(names: list[str]) -> str:
    """Names in a list; of very many the first ones and the last."""
    shown = names if len(names) <= MANY_MESSAGES else [*names[:3], f"... {len(names) - 4} more ...", names[-1]]
    return ", ".join(shown)


def _of(task_id: str, effects: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in effects.items() if name.partition("/")[0] == task_id}
