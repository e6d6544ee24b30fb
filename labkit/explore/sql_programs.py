"""Pairs of plain SQL programs for the explorer: each pair differs in one thing, and one of the two is broken by it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from labkit.explore.bench import Bench
from labkit.explore.benchworld import BenchScenario
from labkit.explore.row_laws import named, no_worker_breaks
from labkit.explore.sqlworld import SqlLaw, SqlProgram, SqlRun, SqlScenario
from labkit.opening import primary_code

_CLAIM = """
UPDATE tasks SET state = 'running', version = version + 1, lease_owner = ?, lease_token = lease_token + 1,
    lease_expires_at = 30
WHERE id = ?"""


def queue_task(db: Any) -> None:
    """Put one task into the table."""
    db.execute("INSERT INTO tasks (id, kind) VALUES ('task-1', 'refund')")


def sql_scenario(program: SqlProgram, prepare: Any, law: SqlLaw, *allowed: str, workers: int = 2) -> SqlScenario:
    """Return a scenario on the lab's own tables whose workers must also never be turned away, nor end by a bug."""
    return SqlScenario(program, prepare, _laws(law), workers, frozenset(allowed))


def _laws(law: SqlLaw) -> Mapping[str, SqlLaw]:
    return named(law, nobody_is_turned_away, no_worker_breaks)


def nobody_is_turned_away(run: SqlRun) -> str:
    """No worker ends because SQLite tells it that somebody else has the lock."""
    for name, error in run.errors.items():
        if primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return f"{name} is told at once: {error}"
    return ""


# Claiming a task.


def claim_by_condition(db: Any, name: str) -> str | None:
    """Let the UPDATE itself say what must still hold; the row count is the answer."""
    row = db.execute("SELECT id, version FROM tasks WHERE state = 'queued'").fetchone()
    if row is None:
        return None
    with db:
        claimed = db.execute(f"{_CLAIM} AND state = 'queued' AND version = ?", (name, *row)).rowcount
    return row[0] if claimed else None


def claim_by_reading(db: Any, name: str) -> str | None:
    """Look whether it is queued, then take it: what was seen need not hold any more."""
    row = db.execute("SELECT id FROM tasks WHERE state = 'queued'").fetchone()
    if row is None:
        return None
    with db:
        db.execute(_CLAIM, (name, *row))
    return str(row[0])


def one_owner(run: SqlRun) -> str:
    """A task is claimed by one worker."""
    owners = [name for name, task in run.results.items() if task is not None]
    return f"{' and '.join(owners)} both hold task-1" if len(owners) > 1 else ""


def claiming(program: SqlProgram) -> SqlScenario:
    """Two workers, one queued task."""
    return sql_scenario(program, queue_task, one_owner, "switch")


# Reading, then writing, in one transaction.


def _spend_one(db: Any, begin: str) -> None:
    db.isolation_level = None
    db.execute(begin)
    (attempts,) = db.execute("SELECT attempts FROM tasks").fetchone()
    db.execute("UPDATE tasks SET attempts = ?", (attempts + 1,))
    db.execute("COMMIT")


def read_and_write_immediate(db: Any, name: str) -> None:
    """Ask for the write lock before reading: whoever comes second waits."""
    _spend_one(db, "BEGIN IMMEDIATE")


def read_and_write_deferred(db: Any, name: str) -> None:
    """Read first, and want to write on what was read: a snapshot that is too old is refused at once."""
    _spend_one(db, "BEGIN")


def every_attempt_counts(run: SqlRun) -> str:
    """Each worker that came to its end has counted one attempt."""
    (attempts,) = run.db.execute("SELECT attempts FROM tasks").fetchone()
    done = len(run.results)
    return "" if attempts == done else f"{attempts} attempts counted, of {done}"


def counting(program: SqlProgram) -> SqlScenario:
    """Two workers that count an attempt each."""
    return sql_scenario(program, queue_task, every_attempt_counts, "switch")


# Finishing under a lease that has run out: its expiry lies at 0, so anybody may take over at once.

_TAKE = """
UPDATE tasks SET state = 'running', lease_owner = 'agent', lease_token = lease_token + 1, lease_expires_at = 0
WHERE state = 'queued' OR lease_expires_at <= 0
RETURNING lease_token"""
_FINISH = """
UPDATE tasks SET state = 'succeeded', lease_owner = NULL, lease_expires_at = NULL
WHERE state = 'running' AND """
_FINISHED = """
INSERT INTO events (task_id, at, event, target, version, token, worker)
SELECT id, 0, 'succeed', 'succeeded', 1, ?, ? FROM tasks"""


def _take_and_finish(db: Any, name: str, guard: str) -> None:
    with db:
        taken = db.execute(_TAKE).fetchone()
    if taken is None:
        return
    with db:
        if db.execute(_FINISH + guard, {"token": taken[0]}).rowcount:
            db.execute(_FINISHED, (taken[0], name))


def finish_by_token(db: Any, name: str) -> None:
    """Finish only under the token of one's own acquisition."""
    _take_and_finish(db, name, "lease_token = :token")


def finish_by_name(db: Any, name: str) -> None:
    """Finish if the task is held by "agent": every worker is called so, and takes its successor's lease for its own."""
    _take_and_finish(db, name, "lease_owner = 'agent' AND :token > 0")


def finished_by_the_holder(run: SqlRun) -> str:
    """A task is finished by the worker that acquired it last."""
    query = "SELECT worker, token, lease_token FROM events JOIN tasks ON tasks.id = task_id WHERE token <> lease_token"
    for worker, token, current in run.db.execute(query):
        return f"{worker} finished task-1 under token {token}, while token {current} was the current one"
    return ""


def finishing(program: SqlProgram) -> SqlScenario:
    """Two workers, one task, and a lease that runs out at once."""
    return sql_scenario(program, queue_task, finished_by_the_holder, "switch")


# Working under a lease of 30 seconds, by a clock that may be off.

_HOLD = """
UPDATE tasks SET state = 'running', lease_owner = :name, lease_token = lease_token + 1, lease_expires_at = :now + 30
WHERE state = 'queued' OR (state = 'running' AND lease_expires_at <= :now)
RETURNING lease_token, lease_expires_at"""


def _work_and_finish(db: Any, bench: Bench, guard: str) -> None:
    with db:
        held = db.execute(_HOLD, {"name": bench.name, "now": bench.now()}).fetchone()
    if held is None:
        return
    bench.sleep(10)
    with db:
        if db.execute(_FINISH + guard, {"token": held[0], "until": held[1], "now": bench.now()}).rowcount:
            db.execute(_FINISHED, (held[0], bench.name))


def work_and_finish_by_token(db: Any, bench: Bench) -> None:
    """Finish only under the token of one's own acquisition, whatever the time is."""
    _work_and_finish(db, bench, "lease_token = :token")


def work_and_finish_by_clock(db: Any, bench: Bench) -> None:
    """Finish while one's own clock says that the lease has not run out: another's clock may say that it has."""
    _work_and_finish(db, bench, ":now < :until")


def working(program: SqlProgram) -> BenchScenario:
    """Two workers, one task that takes them ten seconds, and clocks that can be off."""
    laws = _laws(finished_by_the_holder)
    return BenchScenario(program, queue_task, laws, 2, frozenset({"clock", "crash", "switch"}))


# A checkpoint: the result of an operation, and the step of its task.

_RESULT = "UPDATE operations SET status = 'done', result_ref = 'payments-1'"
_STEP = "UPDATE tasks SET step = step + 1"


def _queue_refund(db: Any) -> None:
    queue_task(db)
    db.execute(
        "INSERT INTO operations (operation_id, task_id, name, position, remote, request) "
        "VALUES ('task-1/refund', 'task-1', 'refund', 0, 'payments', '{}')"
    )


def checkpoint_in_one_transaction(db: Any, name: str) -> None:
    """Write result and step together."""
    with db:
        db.execute(_RESULT)
        db.execute(_STEP)


def checkpoint_in_two_transactions(db: Any, name: str) -> None:
    """Write the result, then the step."""
    with db:
        db.execute(_RESULT)
    with db:
        db.execute(_STEP)


def step_and_results_agree(run: SqlRun) -> str:
    """The step counts the operations that have a result."""
    (step,) = run.db.execute("SELECT step FROM tasks").fetchone()
    (done,) = run.db.execute("SELECT count(*) FROM operations WHERE status = 'done'").fetchone()
    return "" if step == done else f"results on record: {done}, but step {step}"


def checkpointing(program: SqlProgram) -> SqlScenario:
    """One worker records one result."""
    return sql_scenario(program, _queue_refund, step_and_results_agree, "crash", workers=1)
