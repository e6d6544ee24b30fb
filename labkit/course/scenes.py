"""What a crash leaves in the database: the rows, as they lie there for whoever comes next."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from labkit.desk import TASK_ID, TASKS_FILE, Desk
from labkit.errors import SimulatedCrash
from labkit.policies import SAME_KEY
from labkit.records import Task
from labkit.scratch import Scratch
from labkit.seams import Boundary, ManualClock, crash_at, no_boundary

Row = dict[str, Any]
OPERATIONS = """
SELECT operation_id, name, position, status, result_ref,
       operation_id IN (SELECT operation_id FROM in_doubt) AS in_doubt
FROM operations WHERE task_id = ? AND direction = 'do' ORDER BY position DESC"""


@dataclass(frozen=True)
class Scene:
    """A task's rows at one moment, and the same as the store reads it."""

    title: str
    task_row: Row
    operation_rows: list[Row]
    task: Task


def crossings(steps: int) -> list[str]:
    """The names of all crossings of a quiet run of the lab's own worker."""
    names: list[str] = []
    with _desk(lambda point: names.append(point.name)) as desk:
        _work(desk, steps)
    return names


def after_crash_at(name: str, steps: int) -> Scene:
    """Let the lab's own worker die right behind a crossing, and look."""
    with _desk(crash_at(name)) as desk:
        try:
            _work(desk, steps)
        except SimulatedCrash:
            return look(desk, f"after a crash behind: {name}")
    raise AssertionError(f"the worker has not crossed {name}")


def scene(title: str, prepare: Callable[[Desk], object], task_id: str = TASK_ID) -> Scene:
    """Queue and prepare a task on a quiet desk, and look."""
    with _desk(no_boundary) as desk:
        prepare(desk)
        return look(desk, title, task_id)


def look(desk: Desk, title: str, task_id: str = TASK_ID) -> Scene:
    """Read a task's rows as they lie there now; its operations in no helpful order."""
    with closing(sqlite3.connect(desk.folder / TASKS_FILE)) as db:
        db.row_factory = sqlite3.Row
        task = dict(db.execute("SELECT * FROM tasks WHERE id = ?", (task_id,)).fetchone())
        operations = [dict(row) for row in db.execute(OPERATIONS, (task_id,))]
    return Scene(title, task, operations, desk.store.get(task_id))


def _work(desk: Desk, steps: int) -> None:
    desk.queue(steps=steps)
    desk.start("worker-1")
    desk.worker(SAME_KEY, "worker-1").run(TASK_ID)


@contextmanager
def _desk(boundary: Boundary) -> Iterator[Desk]:
    with (
        Scratch() as folder,
        Desk(folder, ManualClock(), boundary, synchronous="OFF") as desk,
    ):
        yield desk
