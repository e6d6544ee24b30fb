"""Leases and fencing tokens, in plain SQL: acquire, work, renew or give back, finish."""

from functools import partial
from typing import Any

from labkit.explore.bench import Bench
from labkit.explore.benchworld import BenchScenario
from labkit.explore.row_laws import WORKER_LAWS, named

from .bug import Bug
from .claims import queue

ACQUIRE = """
UPDATE tasks SET state = 'running', version = version + 1, lease_owner = :who, lease_token = {token},
    lease_expires_at = {until}, attempts = attempts + 1
WHERE id = 'task-1' AND (state = 'queued' AND next_run_at <= :now OR state = 'running' AND {expired})
RETURNING lease_token, attempts"""
FINISH = """
UPDATE tasks SET state = 'succeeded', {version}, lease_owner = NULL, lease_expires_at = NULL
WHERE id = 'task-1' AND state = 'running'"""
RENEW = "UPDATE tasks SET lease_expires_at = :now + 60 WHERE id = 'task-1' AND state = 'running'"
GIVE_BACK = """
UPDATE tasks SET state = 'queued', version = version + 1, lease_owner = NULL, lease_expires_at = NULL,
    next_run_at = :now + 60
WHERE id = 'task-1' AND state = 'running'"""
BY_TOKEN = " AND lease_token = :token"


def acquire(
    db: Any,
    bench: Bench,
    token: str = "lease_token + 1",
    until: str = ":now + 30",
    expired: str = "lease_expires_at <= :now",
) -> Any:
    with db:
        sql = ACQUIRE.format(token=token, until=until, expired=expired)
        return db.execute(sql, {"who": bench.name, "now": bench.now()}).fetchone()


def finish(db: Any, token: int, guard: str = BY_TOKEN, version: str = "version = version + 1") -> None:
    with db:
        db.execute(FINISH.format(version=version) + guard, {"token": token})


def work(db: Any, bench: Bench, guard: str = BY_TOKEN, version: str = "version = version + 1", **how: str) -> None:
    held = acquire(db, bench, **how)
    if held is not None:
        bench.sleep(10)
        finish(db, held[0], guard, version)


def long_work(db: Any, bench: Bench, guard: str = BY_TOKEN) -> None:
    held = acquire(db, bench)
    if held is not None:
        bench.sleep(20)
        with db:
            db.execute(RENEW + guard, {"now": bench.now(), "token": held[0]})
        bench.sleep(20)
        finish(db, held[0])


def second_try(db: Any, bench: Bench, guard: str = BY_TOKEN) -> None:
    held = acquire(db, bench)
    if held is None:
        return
    bench.sleep(10)
    if held[1] == 1:
        with db:
            db.execute(GIVE_BACK + guard, {"now": bench.now(), "token": held[0]})
    else:
        finish(db, held[0])


def by_name(db: Any, bench: Bench) -> None:
    with db:
        sql = ACQUIRE.format(token="lease_token + 1", until=":now + 30", expired="lease_expires_at <= :now")
        held = db.execute(sql, {"who": "desk", "now": bench.now()}).fetchone()
    if held is not None:
        bench.sleep(10)
        finish(db, held[0], " AND lease_owner = 'desk'")


def check_then_act(db: Any, bench: Bench) -> None:
    held = acquire(db, bench)
    if held is None:
        return
    bench.sleep(10)
    (token,) = db.execute("SELECT lease_token FROM tasks WHERE id = 'task-1'").fetchone()
    if token == held[0]:
        finish(db, token, "")


def scenario(program: Any, *surprises: str, workers: int = 1) -> BenchScenario:
    allowed = frozenset(surprises or ("crash", "pause", "switch"))
    return BenchScenario(program, queue, named(*WORKER_LAWS), workers, allowed)


TOKEN = "only_the_current_token"
WORK = scenario(work)
BUGS = (
    Bug("token not checked on finish", TOKEN, 1, scenario(partial(work, guard="")), WORK),
    Bug("token not checked on renew", TOKEN, 1, scenario(partial(long_work, guard="")), scenario(long_work)),
    Bug("token not checked on giving back", TOKEN, 1, scenario(partial(second_try, guard="")), scenario(second_try)),
    Bug("token that is the worker's name", TOKEN, 1, scenario(by_name), WORK),
    Bug("token checked in Python, not in the UPDATE", TOKEN, 1, scenario(check_then_act), WORK),
    Bug(
        "take-over without a new token",
        "every_holder_has_a_new_token",
        1,
        scenario(partial(work, token="max(lease_token, 1)")),
        WORK,
    ),
    Bug("take-over before the lease has run out", TOKEN, 0, scenario(partial(work, expired="TRUE"), workers=2), WORK),
    Bug("lease never expires", "settled_in_the_end", 1, scenario(partial(work, until="9e999")), WORK),
    Bug(
        "version not counted up",
        "every_change_has_its_version",
        0,
        scenario(partial(work, version="version = version")),
        WORK,
    ),
)
