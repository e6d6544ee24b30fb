"""Claiming a task, in plain SQL: two workers, one task, one transaction each."""

from typing import Any

from labkit.explore.bench import Bench
from labkit.explore.benchworld import BenchScenario
from labkit.explore.row_laws import CLAIM_LAWS, decides_by_what_it_read, named, only_the_current_token

from .bug import Bug

TAKE = """
UPDATE tasks SET state = 'running', version = version + 1, lease_owner = ?, lease_token = lease_token + 1,
    lease_expires_at = 30
WHERE id = 'task-1'"""
LAWS = named(*CLAIM_LAWS, decides_by_what_it_read, only_the_current_token)


def queue(db: Any) -> None:
    db.execute("INSERT INTO tasks (id, kind) VALUES ('task-1', 'refund')")


def scenario(program: Any, *surprises: str, workers: int = 2) -> BenchScenario:
    return BenchScenario(program, queue, LAWS, workers, frozenset(surprises or ("switch",)), due=None)


def version_read(db: Any, bench: Bench) -> int | None:
    row = db.execute("SELECT version FROM tasks WHERE id = 'task-1' AND state = 'queued'").fetchone()
    if row is None:
        return None
    bench.say("read", row[0])
    return int(row[0])


def compare_and_set(db: Any, bench: Bench) -> bool:
    version = version_read(db, bench)
    if version is None:
        return False
    with db:
        claimed = db.execute(f"{TAKE} AND state = 'queued' AND version = ?", (bench.name, version))
    return claimed.rowcount == 1


def naive(db: Any, bench: Bench) -> bool:
    version = version_read(db, bench)
    if version is None:
        return False
    with db:
        db.execute(TAKE, (bench.name,))
    return True


def put_back(db: Any, bench: Bench) -> None:
    with db:
        db.execute(
            "UPDATE tasks SET state = 'queued', version = version + 1, lease_owner = NULL, lease_expires_at = NULL, "
            "next_run_at = 60 WHERE id = 'task-1' AND lease_owner = ?",
            (bench.name,),
        )


def without_version(db: Any, bench: Bench) -> None:
    if version_read(db, bench) is not None:
        with db:
            claimed = db.execute(f"{TAKE} AND state = 'queued'", (bench.name,))
        if claimed.rowcount == 1:
            put_back(db, bench)


def with_version(db: Any, bench: Bench) -> None:
    if compare_and_set(db, bench):
        put_back(db, bench)


def without_state(db: Any, bench: Bench) -> bool:
    (version,) = db.execute("SELECT version FROM tasks WHERE id = 'task-1'").fetchone()
    with db:
        claimed = db.execute(f"{TAKE} AND version = ?", (bench.name, version))
    return bool(claimed.rowcount)


def row_count_ignored(db: Any, bench: Bench) -> bool:
    version = version_read(db, bench)
    if version is None:
        return False
    with db:
        db.execute(f"{TAKE} AND state = 'queued' AND version = ?", (bench.name, version))
    return True


def commit_forgotten(db: Any, bench: Bench) -> bool:
    version = version_read(db, bench)
    claimed = db.execute(f"{TAKE} AND state = 'queued' AND version = ?", (bench.name, version))
    return bool(claimed.rowcount == 1)


def transaction(db: Any, bench: Bench, begin: str, work_seconds: float = 0.0) -> bool:
    db.isolation_level = None
    db.execute(begin)
    (state,) = db.execute("SELECT state FROM tasks WHERE id = 'task-1'").fetchone()
    if state == "queued":
        db.execute(TAKE, (bench.name,))
        if work_seconds:
            bench.sleep(work_seconds)
    db.execute("COMMIT")
    return bool(state == "queued")


def deferred(db: Any, bench: Bench) -> bool:
    return transaction(db, bench, "BEGIN")


def immediate(db: Any, bench: Bench) -> bool:
    return transaction(db, bench, "BEGIN IMMEDIATE")


def held_open(db: Any, bench: Bench) -> bool:
    return transaction(db, bench, "BEGIN IMMEDIATE", work_seconds=10)


def short_wait(db: Any, bench: Bench) -> bool:
    return transaction(db, bench, "BEGIN IMMEDIATE", work_seconds=2)


LAWS_OF_A_STAY = named(decides_by_what_it_read, only_the_current_token)


def stay(program: Any) -> BenchScenario:
    return BenchScenario(program, queue, LAWS_OF_A_STAY, 2, frozenset({"switch"}), due=None)


MENDED = scenario(compare_and_set)
BUGS = (
    Bug("naive claim: read, then write", "one_says_yes", 1, scenario(naive), MENDED),
    Bug("no version check", "decides_by_what_it_read", 1, stay(without_version), stay(with_version)),
    Bug("no state check", "one_says_yes", 0, scenario(without_state), MENDED),
    Bug("row count ignored", "says_what_it_did", 1, scenario(row_count_ignored), MENDED),
    Bug("commit forgotten", "says_what_it_did", 0, scenario(commit_forgotten), MENDED),
    Bug("deferred read-then-write transaction", "no_worker_breaks", 1, scenario(deferred), scenario(immediate)),
    Bug("transaction held open over a wait", "no_worker_breaks", 0, scenario(held_open), scenario(short_wait)),
)
