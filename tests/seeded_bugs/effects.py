"""Effects at a remote, in plain SQL: intent, sending, result; and what a crash leaves between them."""

from functools import partial
from typing import Any

from labkit.explore.bench import Bench
from labkit.explore.benchworld import BenchScenario
from labkit.explore.row_laws import WORKER_LAWS, named
from labkit.remote import Capabilities

from .bug import Bug
from .leases import acquire, finish

OPERATIONS = ("refund", "voucher")
INTEND = """
INSERT INTO attempts (operation_id, n, request_id, token, sent_at)
SELECT :operation, 1, :operation || '#1', :token, :now FROM tasks
WHERE id = 'task-1' AND state = 'running' AND lease_token = :token"""
RESULT = "UPDATE operations SET status = 'done', result_ref = ? WHERE operation_id = ?"
STEP = "UPDATE tasks SET step = step + 1, version = version + 1 WHERE id = 'task-1' AND lease_token = ?"
ASK = """
UPDATE tasks SET state = 'awaiting_confirmation', awaiting_for = 'doubt', version = version + 1, lease_owner = NULL,
    lease_expires_at = NULL
WHERE id = 'task-1' AND state = 'running' AND lease_token = ?"""
STOP = """
UPDATE tasks SET state = 'cancelled', version = version + 1, lease_owner = NULL, lease_expires_at = NULL
WHERE id = 'task-1' AND state = 'running' AND lease_token = ?"""
NEXT = "SELECT operation_id, status FROM operations WHERE task_id = 'task-1' ORDER BY position"


def queue(db: Any, count: int = 1) -> None:
    db.execute("INSERT INTO tasks (id, kind) VALUES ('task-1', 'refund')")
    for position, name in enumerate(OPERATIONS[:count]):
        db.execute(
            "INSERT INTO operations (operation_id, task_id, name, position, remote, request) "
            "VALUES (?, 'task-1', ?, ?, 'payments', '{}')",
            (f"task-1/{name}", name, position),
        )


def scenario(program: Any, *surprises: str, operations: int = 1, keys: bool = False, workers: int = 1) -> BenchScenario:
    allowed = frozenset(surprises or ("crash", "pause", "request_lost", "response_lost", "late"))
    prepare = partial(queue, count=operations)
    remotes = {"payments": Capabilities(idempotency_keys=keys)}
    return BenchScenario(program, prepare, named(*WORKER_LAWS), workers, allowed, remotes=remotes)


def send(bench: Bench, operation: str, key: str | None = None) -> str:
    return bench.remotes["payments"].send(operation, {}, f"{operation}#1", key).reference


def pending(db: Any) -> list[str]:
    return [operation for operation, status in db.execute(NEXT).fetchall() if status == "pending"]


def intend(db: Any, bench: Bench, operation: str, token: int, guard: str = "") -> bool:
    with db:
        found = {"operation": operation, "token": token, "now": bench.now()}
        return bool(db.execute(INTEND + guard, found).rowcount)


def record(db: Any, operation: str, reference: str, token: int) -> None:
    with db:
        if db.execute(STEP, (token,)).rowcount:
            db.execute(RESULT, (reference, operation))


def in_doubt(db: Any) -> bool:
    return db.execute("SELECT 1 FROM in_doubt").fetchone() is not None


def asks_in_doubt(db: Any, bench: Bench) -> None:
    """Right where the remote can do nothing: intent, sending, result; and a person where an intent has no result."""
    held = acquire(db, bench)
    if held is None:
        return
    for operation in pending(db):
        if in_doubt(db):
            with db:
                db.execute(ASK, (held[0],))
            return
        if not intend(db, bench, operation, held[0]):
            return
        record(db, operation, send(bench, operation), held[0])
    finish(db, held[0])


def effect_before_intent(db: Any, bench: Bench) -> None:
    held = acquire(db, bench)
    if held is None:
        return
    for operation in pending(db):
        reference = send(bench, operation)
        intend(db, bench, operation, held[0])
        record(db, operation, reference, held[0])
    finish(db, held[0])


def effect_in_the_transaction(db: Any, bench: Bench) -> None:
    held = acquire(db, bench)
    if held is None:
        return
    for operation in pending(db):
        with db:
            intend_now = {"operation": operation, "token": held[0], "now": bench.now()}
            if db.execute(INTEND, intend_now).rowcount:
                db.execute(STEP, held[:1])
                db.execute(RESULT, (send(bench, operation), operation))
    finish(db, held[0])


def by_step(db: Any, bench: Bench, one_transaction: bool) -> None:
    """Goes by the task's step, so step and result must not come apart."""
    held = acquire(db, bench)
    if held is None:
        return
    (step,) = db.execute("SELECT step FROM tasks WHERE id = 'task-1'").fetchone()
    for operation, _ in db.execute(NEXT).fetchall()[step:]:
        if in_doubt(db):
            with db:
                db.execute(ASK, (held[0],))
            return
        with db:
            db.execute("DELETE FROM attempts WHERE operation_id = ?", (operation,))
        if not intend(db, bench, operation, held[0]):
            return
        reference = send(bench, operation)
        if one_transaction:
            record(db, operation, reference, held[0])
        else:
            with db:
                db.execute(RESULT, (reference, operation))
            with db:
                db.execute(STEP, (held[0],))
    finish(db, held[0])


def stops(db: Any, bench: Bench, guard: str) -> None:
    """Carries out two operations, and looks for a cancel before each."""
    held = acquire(db, bench)
    if held is None:
        return
    for operation in pending(db):
        (cancelled,) = db.execute("SELECT cancel_requested FROM tasks WHERE id = 'task-1'").fetchone()
        if cancelled or not intend(db, bench, operation, held[0], guard):
            break
        record(db, operation, send(bench, operation, operation), held[0])
    if pending(db):
        with db:
            db.execute(f"{STOP} AND cancel_requested", (held[0],))
    else:
        finish(db, held[0])


def resends_under_its_key(db: Any, bench: Bench) -> None:
    """Right where the remote honours keys: whoever goes on sends again under the operation's own key."""
    held = acquire(db, bench)
    if held is None:
        return
    for operation in pending(db):
        if not in_doubt(db) and not intend(db, bench, operation, held[0]):
            return
        record(db, operation, send(bench, operation, operation), held[0])
    finish(db, held[0])


def result_in_finally(db: Any, bench: Bench) -> None:
    held = acquire(db, bench)
    if held is None:
        return
    for operation in pending(db):
        reference = "nothing yet"
        try:
            reference = send(bench, operation)
        finally:
            record(db, operation, reference, held[0])
    finish(db, held[0])


def gives_back_on_any_error(db: Any, bench: Bench) -> None:
    held = acquire(db, bench, until="9e999")  # "we always give it back"
    if held is None:
        return
    try:
        for operation in pending(db):
            record(db, operation, send(bench, operation, operation), held[0])
        finish(db, held[0])
    except BaseException:
        with db:
            db.execute("UPDATE tasks SET lease_expires_at = 0 WHERE lease_token = ?", (held[0],))
        raise


def tries_until_it_works(db: Any, bench: Bench) -> None:
    held = acquire(db, bench)
    if held is None:
        return
    for operation in pending(db):
        if in_doubt(db):
            with db:
                db.execute(ASK, (held[0],))
            return
        intend(db, bench, operation, held[0])
        while True:
            try:
                reference = send(bench, operation)
                break
            except:  # noqa: E722
                continue
        record(db, operation, reference, held[0])
    finish(db, held[0])


def waits_for_the_other(db: Any, bench: Bench, patience: int) -> None:
    """The second worker waits for the first one to finish, by looking."""
    if bench.name == "worker-1":
        return resends_under_its_key(db, bench)
    for _ in range(patience):
        if db.execute("SELECT 1 FROM tasks WHERE state = 'succeeded'").fetchone():
            return None
        if patience < 100:
            bench.sleep(10)
    return resends_under_its_key(db, bench)


DOUBLED, KEPT = "no_second_effect", scenario(asks_in_doubt)
KEYED = scenario(resends_under_its_key, keys=True)
CANCELLED = partial(scenario, operations=2, keys=True)
BUGS = (
    Bug("effect before intent", DOUBLED, 1, scenario(effect_before_intent), KEPT),
    Bug("effect inside the transaction", DOUBLED, 1, scenario(effect_in_the_transaction), KEPT),
    Bug(
        "result and step in two transactions",
        DOUBLED,
        1,
        scenario(partial(by_step, one_transaction=False), "crash"),
        scenario(partial(by_step, one_transaction=True), "crash"),
    ),
    Bug(
        "cancel looked for before the intent, not in it",
        "no_new_intent_after_a_cancel",
        1,
        CANCELLED(partial(stops, guard=""), "cancel"),
        CANCELLED(partial(stops, guard=" AND NOT cancel_requested"), "cancel"),
    ),
    Bug("work in finally: the result", DOUBLED, 1, scenario(result_in_finally, "crash"), KEPT),
    Bug(
        "work in except BaseException: giving back",
        "settled_in_the_end",
        1,
        scenario(gives_back_on_any_error, "crash", keys=True),
        KEYED,
    ),
    Bug("bare except around a sending, in a loop", DOUBLED, 1, scenario(tries_until_it_works), KEPT),
    Bug(
        "waiting by looking, without end",
        "bounded",
        1,
        scenario(partial(waits_for_the_other, patience=1_000_000), "crash", keys=True, workers=2),
        scenario(partial(waits_for_the_other, patience=5), "crash", keys=True, workers=2),
    ),
)
