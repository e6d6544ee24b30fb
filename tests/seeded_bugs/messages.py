"""Announcing, reopening and undoing, in plain SQL."""

from functools import partial
from typing import Any

from labkit.explore.bench import Bench, outbox_due, tasks_due
from labkit.explore.benchworld import BenchScenario
from labkit.explore.message_laws import OUTBOX_LAWS
from labkit.explore.row_laws import WORKER_LAWS, named
from labkit.remote import Capabilities

from .bug import Bug
from .claims import queue
from .leases import BY_TOKEN, FINISH, acquire, finish

POST = """
INSERT INTO outbox (message_id, task_id, topic, payload, created_at) VALUES (:id || '@done', :id, 'done', '{}', :now)"""
WAITING = "SELECT seq, message_id FROM outbox WHERE delivered_at IS NULL ORDER BY seq"
MARK = "UPDATE outbox SET deliveries = deliveries + 1, delivered_at = ? WHERE seq = ?"
DONE = FINISH.format(version="version = version + 1") + BY_TOKEN


def due(db: Any) -> float | None:
    times = [at for at in (tasks_due(db), outbox_due(db)) if at is not None]
    return min(times, default=None)


def scenario(program: Any, prepare: Any = queue, workers: int = 1, surprises: str = "crash") -> BenchScenario:
    allowed = frozenset(surprises.split())
    return BenchScenario(program, prepare, named(*WORKER_LAWS, *OUTBOX_LAWS), workers, allowed, due=due)


def relay(db: Any, bench: Bench) -> None:
    for seq, message_id in db.execute(WAITING).fetchall():
        bench.publish(message_id)
        with db:
            db.execute(MARK, (bench.now(), seq))


def announce(db: Any, bench: Bench, relay: Any = relay, one_transaction: bool = True) -> None:
    """Ends the task and announces it, then delivers what waits."""
    held = acquire(db, bench)
    if held is not None and one_transaction:
        with db:
            if db.execute(DONE, {"token": held[0]}).rowcount:
                db.execute(POST, {"id": "task-1", "now": bench.now()})
    elif held is not None:
        finish(db, held[0])
        with db:
            db.execute(POST, {"id": "task-1", "now": bench.now()})
    relay(db, bench)


def mark_then_publish(db: Any, bench: Bench) -> None:
    for seq, message_id in db.execute(WAITING).fetchall():
        with db:
            db.execute(MARK, (bench.now(), seq))
        bench.publish(message_id)


def delete_then_publish(db: Any, bench: Bench) -> None:
    with db:
        waiting = db.execute("DELETE FROM outbox WHERE delivered_at IS NULL RETURNING message_id").fetchall()
    for (message_id,) in waiting:
        bench.publish(message_id)


def id_by_delivery(db: Any, bench: Bench) -> None:
    for seq, message_id in db.execute(WAITING).fetchall():
        bench.publish(f"{message_id} by {bench.name}")
        with db:
            db.execute(MARK, (bench.now(), seq))


def mark_whatever_waits(db: Any, bench: Bench) -> None:
    for _, message_id in db.execute(WAITING).fetchall():
        bench.publish(message_id)
    with db:
        db.execute("UPDATE outbox SET delivered_at = ? WHERE delivered_at IS NULL", (bench.now(),))


def two_tasks(db: Any) -> None:
    db.execute("INSERT INTO tasks (id, kind) VALUES ('task-1', 'refund'), ('task-2', 'refund')")


def post_and_relay(db: Any, bench: Bench, relay: Any) -> None:
    """Each worker has a task of its own; whoever comes later only delivers."""
    task_id = bench.name.replace("worker", "task")
    with db:
        sql = "UPDATE tasks SET state = 'running', version = 2, lease_token = 1, lease_expires_at = 30 WHERE id = ?"
        mine = db.execute(sql, (task_id,)).rowcount
    if mine:
        with db:
            sql = "UPDATE tasks SET state = 'succeeded', version = 3, lease_expires_at = NULL WHERE id = ?"
            db.execute(sql, (task_id,))
            db.execute(POST, {"id": task_id, "now": bench.now()})
    relay(db, bench)


def failed(db: Any) -> None:
    db.execute("INSERT INTO tasks (id, kind, state) VALUES ('task-1', 'refund', 'failed')")


def try_again(db: Any, bench: Bench, guard: str) -> None:
    """A button: "try the failed task again". It is queued, and carried out."""
    (state,) = db.execute("SELECT state FROM tasks WHERE id = 'task-1'").fetchone()
    if state == "failed":
        with db:
            db.execute(f"UPDATE tasks SET state = 'queued', version = version + 1 WHERE id = 'task-1' {guard}")
    held = acquire(db, bench)
    if held is not None:
        finish(db, held[0])


def button(guard: str) -> BenchScenario:
    program = partial(try_again, guard=guard)
    return BenchScenario(program, failed, named(*WORKER_LAWS), 2, frozenset({"switch"}))


def two_done(db: Any) -> None:
    db.execute("INSERT INTO tasks (id, kind, direction) VALUES ('task-1', 'refund', 'undo')")
    for position, name in enumerate(("refund", "update_ticket", "send_email")):
        done = ("done", f"desk-{position + 1}") if position < 2 else ("pending", None)
        row = (f"task-1/{name}", name, position, *done)
        db.execute(
            "INSERT INTO operations (operation_id, task_id, name, position, remote, request, status, result_ref) "
            "VALUES (?, 'task-1', ?, ?, 'desk', '{}', ?, ?)",
            row,
        )
        if position < 2:
            undo = "INSERT INTO operations (operation_id, task_id, name, position, direction, remote, request) "
            db.execute(
                undo + "VALUES (?, 'task-1', ?, ?, 'undo', 'desk', '{}')", (f"{row[0]}/undo", name, 1 - position)
            )


def undo(db: Any, bench: Bench, where: str = "status = 'done'", order: str = "DESC", recorded: bool = True) -> None:
    """Undoes what is done, each undo under a key of its own, and records each one."""
    held = acquire(db, bench)
    if held is None:
        return
    query = f"SELECT operation_id FROM operations WHERE direction = 'do' AND {where} ORDER BY position {order}"
    for (operation,) in db.execute(query).fetchall():
        key = f"{operation}/undo" if recorded else f"{operation}/undo by {bench.name}"
        reference = bench.remotes["desk"].send(f"{operation}/undo", {}, key, key).reference
        with db:
            sql = "UPDATE operations SET status = 'done', result_ref = ? WHERE operation_id = ?"
            db.execute(sql, (reference, f"{operation}/undo"))
    with db:
        db.execute(
            "UPDATE tasks SET state = 'compensated', version = version + 1, lease_owner = NULL, "
            "lease_expires_at = NULL WHERE id = 'task-1' AND state = 'running' AND lease_token = ?",
            (held[0],),
        )


def undoing(**how: Any) -> BenchScenario:
    done = (("desk", "task-1/refund"), ("desk", "task-1/update_ticket"))
    can = {"desk": Capabilities(idempotency_keys=True)}
    laws, allowed = named(*WORKER_LAWS), frozenset({"crash", "pause", "response_lost"})
    return BenchScenario(partial(undo, **how), two_done, laws, 1, allowed, remotes=can, applied=done)


def with_relay(relay: Any) -> BenchScenario:
    return scenario(partial(announce, relay=relay))


def by_two(relay: Any) -> BenchScenario:
    return scenario(partial(post_and_relay, relay=relay), two_tasks, 2, "switch")


ANNOUNCED, UNDONE = scenario(announce), undoing()
LOST = "every_message_is_handed_over"
BUGS = (
    Bug(
        "outbox outside the transaction",
        "every_end_is_announced",
        1,
        scenario(partial(announce, one_transaction=False)),
        ANNOUNCED,
    ),
    Bug("message marked before it is published", LOST, 1, with_relay(mark_then_publish), ANNOUNCED),
    Bug("message deleted before it is published", LOST, 1, with_relay(delete_then_publish), ANNOUNCED),
    Bug(
        "message with a new id at each delivery", "every_message_keeps_its_id", 0, with_relay(id_by_delivery), ANNOUNCED
    ),
    Bug("messages marked that were not published", LOST, 2, by_two(mark_whatever_waits), by_two(relay)),
    Bug("final state reopened", "final_is_final", 1, button(""), button("AND state = 'failed'")),
    Bug("undo in the wrong order", "undone_in_order", 0, undoing(order="ASC"), UNDONE),
    Bug("undo of a step never done", "undone_in_order", 0, undoing(where="TRUE"), UNDONE),
    Bug("undo with a new key each time", "no_second_effect", 1, undoing(recorded=False), UNDONE),
)
