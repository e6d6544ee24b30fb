"""Runs programs on real connections in real threads, in the order in which the explorer ran their statements."""

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from spies import Itself

Notes = dict[str, list[Any]]
Program = Callable[[Any, list[Any]], None]
"""Does something with a connection, and notes what it sees."""

REAL_TIMEOUT_SECONDS = 5.0
PATIENCE_SECONDS = 30.0
INTO_THE_WAIT_SECONDS = 0.05


class What(Enum):
    RUN = "runs to its end"
    WAIT = "begins, and waits for a lock"
    GET = "gets the lock it waits for, and ends"


@dataclass(frozen=True)
class Turn:
    worker: str
    what: What


def noting(program: Program, notes: Notes, name: str, db: Any) -> None:
    mine = notes.setdefault(name, [])
    try:
        program(db, mine)
    except (sqlite3.Error, ValueError) as error:
        mine.append((type(error).__name__, str(error)))


@dataclass
class Recorder(Itself):
    """A program for the explorer that notes what it sees, and the order in which statements were tried."""

    program: Program
    notes: Notes = field(default_factory=dict)
    tries: list[tuple[str, int]] = field(default_factory=list)
    statements: int = 0

    def begin(self) -> None:
        self.notes, self.tries, self.statements = {}, [], 0

    def __call__(self, db: Any, name: str) -> None:
        db.statement = partial(self._statement, db, name)
        try:
            noting(self.program, self.notes, name, db)
        finally:
            del db.statement

    def _statement(self, db: Any, name: str, sql: str, run: Callable[[], Any]) -> Any:
        self.statements += 1
        number = self.statements

        def tried() -> Any:
            self.tries.append((name, number))
            return run()

        return type(db).statement(db, sql, tried)

    def turns(self) -> list[Turn]:
        """Every first and last try of a statement."""
        found = []
        for place, (name, number) in enumerate(self.tries):
            again = (name, number) in self.tries[place + 1 :]
            before = (name, number) in self.tries[:place]
            if not (before and again):
                found.append(Turn(name, What.WAIT if again else What.GET if before else What.RUN))
        return found


class Stage:
    """Lets threads try their statements one at a time, in a given order."""

    def __init__(self, turns: list[Turn]) -> None:
        self._turns, self._next = turns, 0
        self._moved = threading.Condition()

    def try_statement(self, worker: str, run: Callable[[], Any]) -> Any:
        """Wait for one's turn, then run; who is to wait for a lock lets others go on meanwhile."""
        turn = self._turn_of(worker)
        if turn.what is What.WAIT:
            threading.Timer(INTO_THE_WAIT_SECONDS, self._over).start()
        try:
            return run()
        finally:
            if turn.what is What.WAIT:
                assert self._turn_of(worker).what is What.GET
            self._over()

    def _turn_of(self, worker: str) -> Turn:
        with self._moved:
            here = self._moved.wait_for(lambda: self._turns[self._next].worker == worker, PATIENCE_SECONDS)
            assert here, f"{worker} waits in vain for its turn"
            return self._turns[self._next]

    def _over(self) -> None:
        with self._moved:
            self._next += 1
            self._moved.notify_all()


class StagedCursor(sqlite3.Cursor):
    def execute(self, *args: Any) -> Any:
        db: Any = self.connection
        return db.stage.try_statement(db.name, lambda: sqlite3.Cursor.execute(self, *args))


class StagedConnection(sqlite3.Connection):
    """A real connection whose statements wait for their turn, and for nothing else but SQLite."""

    stage: Stage
    name: str

    @classmethod
    def open(cls, path: Path, name: str, stage: Stage) -> "StagedConnection":
        db = sqlite3.connect(path, timeout=REAL_TIMEOUT_SECONDS, factory=cls)
        db.stage, db.name = stage, name
        return db

    def cursor(self, *_: Any) -> Any:
        return super().cursor(StagedCursor)

    def execute(self, *args: Any) -> Any:
        return self.cursor().execute(*args)

    def commit(self) -> None:
        if self.in_transaction:
            self.stage.try_statement(self.name, super().commit)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        if kind is None:
            self.commit()
        else:
            self.rollback()
        return False


def in_threads(program: Program, turns: list[Turn], path: Path, workers: int) -> Notes:
    """Run the program on real connections, each in a thread of its own, in the order of `turns`."""
    notes: Notes = {}
    stage = Stage(turns)

    def live(name: str) -> None:
        db = StagedConnection.open(path, name, stage)
        try:
            noting(program, notes, name, db)
        finally:
            db.rollback()
            db.close()

    threads = [threading.Thread(target=live, args=(f"worker-{number + 1}",)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    return notes
