"""The panel of the claim: step two workers by hand through the naive claim and the conditional one, on real SQLite."""

from __future__ import annotations

import html
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from labkit.agent import plan
from labkit.panels.base import Panel, moves_panel, table_html, wrong
from labkit.scratch import Scratch
from labkit.seams import ManualClock
from labkit.store import TaskStore

WORKERS = ("worker-1", "worker-2")
HELD = "I hold task-1"
MOVES: Mapping[str, str] = {
    f"{worker}: next statement": f"Lets {worker} run one statement, and commit it." for worker in WORKERS
}

SIDE_BY_SIDE = "display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 8px 24px"
"""However long a line gets, the second table stays beside the first: cells break their lines."""

Steps = Iterator[str]
"""The statements of a worker, one at a time; each says what the worker has learned from it."""

_TAKE = (
    "UPDATE tasks SET state = 'running', version = version + 1, lease_owner = ?, lease_token = lease_token + 1,"
    " lease_expires_at = 30 WHERE id = ?"
)


def naive(db: sqlite3.Connection, name: str) -> Steps:
    """Look for a queued task, then take it."""
    row = db.execute("SELECT id FROM tasks WHERE state = 'queued'").fetchone()
    if row is None:
        yield "nothing is queued"
        return
    yield "task-1 is queued"
    with db:
        changed = db.execute(_TAKE, (name, *row)).rowcount
    yield f"{changed} row changed: {HELD}"


def conditional(db: sqlite3.Connection, name: str) -> Steps:
    """Look for a queued task, then take it where it is still as it was seen; the row count is the answer."""
    row = db.execute("SELECT id, version FROM tasks WHERE state = 'queued'").fetchone()
    if row is None:
        yield "nothing is queued"
        return
    yield f"task-1 is queued, version {row[1]}"
    with db:
        changed = db.execute(f"{_TAKE} AND state = 'queued' AND version = ?", (name, *row)).rowcount
    yield f"{changed} row changed: {HELD}" if changed else "0 rows changed: somebody was faster"


PROGRAMS: Mapping[str, tuple[str, Callable[[sqlite3.Connection, str], Steps]]] = {
    "look, then take": ("… WHERE id = ?", naive),
    "take it as it was seen": ("… WHERE id = ? AND state = 'queued' AND version = ?", conditional),
}


@dataclass(frozen=True)
class Stepped:
    """What stepping has come to.

    Args:
        steps: who ran a statement, what it learned, and what the row says then.
        holders: the workers that believe they hold the task.
        ended: the workers that were asked for a statement and had none left.
    """

    steps: tuple[tuple[str, str, str], ...]
    holders: tuple[str, ...]
    ended: tuple[str, ...]


def step(program: Callable[[sqlite3.Connection, str], Steps], order: Sequence[str]) -> Stepped:
    """Run two workers on one queued task, a statement a time.

    Args:
        program: the workers' statements.
        order: whose turn it is, step by step.
    """
    with (
        Scratch() as folder,
        ExitStack() as open_,
    ):
        path = Path(folder, "tasks.sqlite")
        with TaskStore(path, ManualClock(), synchronous="OFF") as store:
            store.enqueue("task-1", plan()[:1])
        connections = {worker: open_.enter_context(closing(sqlite3.connect(path))) for worker in WORKERS}
        for db in connections.values():
            db.execute("PRAGMA synchronous = OFF")  # nothing here outlives the press
        running = {worker: program(db, worker) for worker, db in connections.items()}
        steps, ended = [], set()
        for worker in order:
            learned = next(running[worker], None)
            if learned is None:
                ended.add(worker)
                continue
            row = connections[worker].execute("SELECT state, version, lease_owner FROM tasks").fetchone()
            steps.append((worker, learned, f"{row[0]} v{row[1]}, {row[2] or 'nobody'}"))
        for left in running.values():
            left.close()  # type: ignore[attr-defined]  # a generator
    holders = sorted({worker for worker, learned, _ in steps if HELD in learned})
    return Stepped(tuple(steps), tuple(holders), tuple(sorted(ended)))


def show(moves: Sequence[str]) -> str:
    """Show both programs side by side, stepped in the same order."""
    order = [move.partition(":")[0] for move in moves]
    shown = "".join(_side(title, where, step(program, order)) for title, (where, program) in PROGRAMS.items())
    return f'<div style="{SIDE_BY_SIDE}">{shown}</div>'


def _side(title: str, where: str, found: Stepped) -> str:
    rows = [
        (str(number), *(html.escape(learned) if worker == one else "" for one in WORKERS), _whole(row))
        for number, (worker, learned, row) in enumerate(found.steps, start=1)
    ]
    holders = " and ".join(found.holders) or "nobody"
    verdict = wrong(f"{holders} both hold task-1") if len(found.holders) > 1 else f"<b>{holders}</b> holds task-1"
    ended = "".join(f" {worker} has ended: it has no statement left to run." for worker in found.ended)
    return (
        f"<div style='min-width: 0'><p><b>{html.escape(title)}</b><br><code>{html.escape(where)}</code></p>"
        f"{table_html(('#', *map(_whole, WORKERS), 'the row says'), rows)}<p>{verdict}.{ended}</p></div>"
    )


def _whole(words: str) -> str:
    """HTML in which no worker's name is broken at its hyphen."""
    return re.sub(r"worker-\d+", r'<span style="white-space: nowrap">\g<0></span>', html.escape(words))


def claim_panel() -> Panel:
    """Return a panel with a button for each of two workers; every press steps both programs."""
    return moves_panel("claim", MOVES, show)
