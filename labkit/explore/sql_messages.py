"""More pairs of plain SQL programs: announcing a change, stopping, and undoing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from labkit.explore.sql_programs import queue_task, sql_scenario
from labkit.explore.sqlworld import SqlProgram, SqlRun, SqlScenario

# Announcing a change. `bus` stands for the message broker: somebody else's system, with commits of its own.

_SUCCEED = "UPDATE tasks SET state = 'succeeded' WHERE state = 'queued'"
_POST = """
INSERT INTO outbox (message_id, task_id, topic, payload, created_at)
VALUES ('task-1@2', 'task-1', 'succeeded', '{}', 0)"""
_WAITING = "SELECT message_id FROM outbox WHERE delivered_at IS NULL ORDER BY seq"
_DELIVERED = "UPDATE outbox SET delivered_at = 0 WHERE message_id = ?"


def _with_bus(db: Any) -> None:
    queue_task(db)
    db.execute("CREATE TABLE bus (message_id TEXT NOT NULL)")


def change_then_publish(db: Any, name: str) -> None:
    """Commit the change, then tell the broker: a crash between the two, and nobody ever hears of it."""
    with db:
        changed = db.execute(_SUCCEED).rowcount
    if changed:
        with db:
            db.execute("INSERT INTO bus VALUES ('task-1@2')")


def change_with_outbox(db: Any, name: str) -> None:
    """Write the message in the transaction of the change, and relay whatever waits."""
    with db:
        if db.execute(_SUCCEED).rowcount:
            db.execute(_POST)
    for (message_id,) in db.execute(_WAITING).fetchall():
        with db:
            db.execute("INSERT INTO bus VALUES (?)", (message_id,))
        with db:
            db.execute(_DELIVERED, (message_id,))


def _on_the_bus(db: Any) -> tuple[tuple[str, int], ...]:
    return tuple(db.execute("SELECT message_id, count(*) FROM bus GROUP BY message_id ORDER BY message_id").fetchall())


def every_change_is_announced(run: SqlRun) -> str:
    """Of every change a message was delivered, or one waits to be."""
    (changed,) = run.db.execute("SELECT count(*) FROM tasks WHERE state = 'succeeded'").fetchone()
    query = "SELECT message_id FROM bus UNION SELECT message_id FROM outbox WHERE delivered_at IS NULL"
    return (
        "task-1 succeeded, and nobody will ever hear of it" if changed > len(run.db.execute(query).fetchall()) else ""
    )


def announcing(program: SqlProgram) -> SqlScenario:
    """Two workers that end a task and announce it."""
    scenario = sql_scenario(program, _with_bus, every_change_is_announced, "crash", "switch")
    return replace(scenario, outside=_on_the_bus)


# Consuming what is delivered at least once. `mails` is what a subscriber does about a message.


def _with_waiting_message(db: Any) -> None:
    queue_task(db)
    db.execute(_POST)
    db.execute("CREATE TABLE inbox (message_id TEXT PRIMARY KEY)")
    db.execute("CREATE TABLE mails (message_id TEXT NOT NULL)")


def _relay(db: Any, seen_before: bool) -> None:
    for (message_id,) in db.execute(_WAITING).fetchall():
        with db:
            note = "INSERT INTO inbox VALUES (?) ON CONFLICT (message_id) DO NOTHING"
            if not seen_before or db.execute(note, (message_id,)).rowcount:
                db.execute("INSERT INTO mails VALUES (?)", (message_id,))
        with db:
            db.execute(_DELIVERED, (message_id,))


def consume_each_message_once(db: Any, name: str) -> None:
    """Note the message's id in the transaction of what is done about it; a known id is passed over."""
    _relay(db, seen_before=True)


def consume_each_delivery(db: Any, name: str) -> None:
    """Act on every delivery: a relay that dies before it has marked a message delivers it again."""
    _relay(db, seen_before=False)


def one_mail_a_message(run: SqlRun) -> str:
    """A message has one effect, however often it is delivered."""
    (mails,) = run.db.execute("SELECT count(*) FROM mails").fetchone()
    return f"{mails} mails went out about one message" if mails > 1 else ""


def consuming(program: SqlProgram) -> SqlScenario:
    """Two relays, one waiting message, one subscriber."""
    return sql_scenario(program, _with_waiting_message, one_mail_a_message, "crash", "switch")


# Stopping: worker-1 begins an operation, worker-2 stands for the person who requests a cancel.

_BEGIN = "UPDATE tasks SET attempts = attempts + 1 WHERE id = 'task-1'"
_EVENT = "INSERT INTO events (task_id, at, event, target, version, token) VALUES ('task-1', 0, ?, 'running', 1, 1)"


def _request_cancel(db: Any) -> None:
    with db:
        db.execute("UPDATE tasks SET cancel_requested = 1")
        db.execute(_EVENT, ("request_cancel",))


def begin_by_condition(db: Any, name: str) -> None:
    """Let the UPDATE that records the intent ask whether a cancel is requested."""
    if name != "worker-1":
        return _request_cancel(db)
    with db:
        if db.execute(f"{_BEGIN} AND NOT cancel_requested").rowcount:
            db.execute(_EVENT, ("intend",))
    return None


def begin_by_reading(db: Any, name: str) -> None:
    """Look for a cancel, then record the intent: it may be requested in between."""
    if name != "worker-1":
        return _request_cancel(db)
    (cancelled,) = db.execute("SELECT cancel_requested FROM tasks").fetchone()
    if not cancelled:
        with db:
            db.execute(_BEGIN)
            db.execute(_EVENT, ("intend",))
    return None


def nothing_begins_after_a_cancel(run: SqlRun) -> str:
    """No intent is committed behind a cancel."""
    events = [event for (event,) in run.db.execute("SELECT event FROM events ORDER BY seq")]
    return "an operation was begun after the cancel" if events == ["request_cancel", "intend"] else ""


def stopping(program: SqlProgram) -> SqlScenario:
    """A worker that begins an operation, and a person who cancels."""
    return sql_scenario(program, queue_task, nothing_begins_after_a_cancel, "crash", "switch")


# Undoing two operations, of which the second rests on the first.


def _with_two_done(db: Any) -> None:
    queue_task(db)
    for position, done in enumerate(("refund", "update_ticket")):
        db.execute(
            "INSERT INTO operations (operation_id, task_id, name, position, remote, request, status, result_ref) "
            f"VALUES ('task-1/{done}', 'task-1', '{done}', {position}, 'desk', '{{}}', 'done', 'desk-1')"
        )


def _undo(db: Any, order: str) -> None:
    query = f"SELECT operation_id FROM operations WHERE status = 'done' ORDER BY position {order}"
    for (operation_id,) in db.execute(query).fetchall():
        with db:
            db.execute(
                "UPDATE operations SET status = 'pending', result_ref = NULL WHERE operation_id = ?", (operation_id,)
            )


def undo_last_done_first(db: Any, name: str) -> None:
    """Undo from the end: whatever is left after a crash is a beginning of the plan."""
    _undo(db, "DESC")


def undo_first_done_first(db: Any, name: str) -> None:
    """Undo from the start: a crash leaves a later operation without what it rests on."""
    _undo(db, "ASC")


def what_is_left_is_a_beginning(run: SqlRun) -> str:
    """No operation is left done whose predecessor is undone."""
    left = run.db.execute("SELECT name, status = 'done' FROM operations ORDER BY position").fetchall()
    undone = [name for name, done in left if not done]
    kept = [name for name, done in left[left.index((undone[0], 0)) :] if done] if undone else []
    return f"{kept[0]} is left done, and {undone[0]} before it is undone" if kept else ""


def undoing(program: SqlProgram) -> SqlScenario:
    """One worker that undoes two operations."""
    return sql_scenario(program, _with_two_done, what_is_left_is_a_beginning, "crash", workers=1)
