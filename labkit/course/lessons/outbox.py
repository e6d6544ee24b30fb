"""Lesson 08: a change and its message are one transaction; messages are delivered at least once."""

from __future__ import annotations

from typing import Any

from labkit.course.exercises import Exercise
from labkit.course.laws import OTHER, TASK, refusals, yes_means
from labkit.course.lessons.claim import ENDED, NOT_SAID, RUNNING
from labkit.course.lessons.lease import TOKEN, VERSION, acquired
from labkit.course.searching import Answer, Search, Setting
from labkit.explore.bench import Bench, outbox_due
from labkit.explore.benchworld import BenchScenario
from labkit.explore.journal import Changed, Handed
from labkit.explore.row_laws import (
    WORKER_LAWS,
    every_end_is_announced,
    every_message_is_handed_over,
    every_message_keeps_its_id,
    named,
    no_worker_breaks,
)
from labkit.explore.scenario import Scenario
from labkit.explore.sqlworld import SqlRun
from labkit.states import ENDED_STATES, State

WORKED_SECONDS = 10.0
MESSAGES = ("m1", "m2", "m3")


def message(task_id: str) -> dict[str, Any]:
    """The message that a task has succeeded, as an answer is given it."""
    return {"message_id": f"{task_id}/succeeded", "topic": "task.succeeded", "payload": "{}", "created_at": 0.0}


def announces_only_what_happened(run: SqlRun) -> str:
    """A message tells only of a change that is committed with it."""
    states = {
        one.after["id"]: one.after["state"]
        for one in run.log
        if isinstance(one, Changed) and one.table == "tasks" and one.after is not None and not one.commit
    }
    for commit in sorted({one.commit for one in run.log if isinstance(one, Changed) and one.commit}):
        changes = [one for one in run.log if isinstance(one, Changed) and one.commit == commit and one.after]
        states |= {one.after["id"]: one.after["state"] for one in changes if one.table == "tasks" and one.after}
        for one in changes:
            if one.table == "outbox" and one.after is not None and states.get(one.after["task_id"]) not in ENDED_STATES:
                task_id = one.after["task_id"]
                return f"{one.worker} announces that {task_id} has succeeded, which is {states.get(task_id)}"
    return ""


def ends_and_tells(answer: Answer) -> Scenario:
    """A worker acquires, works for a while, ends the task and announces it; it may die or sleep anywhere."""

    def works(db: Any, bench: Bench) -> None:
        token = acquired(db, bench)
        if token is not None:
            bench.sleep(WORKED_SECONDS)
            bench.say("finish", answer(db, TASK, token, message(TASK)))

    def prepare(db: Any) -> None:
        db.execute("INSERT INTO tasks (id, kind) VALUES (?, 'refund')", (TASK,))

    announced = (announces_only_what_happened, every_end_is_announced)
    laws = named(no_worker_breaks, *announced, *WORKER_LAWS, yes_means("finish", State.SUCCEEDED))
    return BenchScenario(works, prepare, laws, 1, frozenset({"crash", "pause"}))


def not_mine(answer: Answer) -> Scenario:
    """Tokens that are not current, and tasks that nobody holds: neither a change nor a message."""

    def works(db: Any, bench: Bench) -> Any:
        told = [answer(db, TASK, token, message(TASK)) for token in (0, 2)]
        states = ("queued", "failed", "succeeded")
        return any([*told, *(answer(db, f"task-{state}", 1, message(f"task-{state}")) for state in states)])

    def prepare(db: Any) -> None:
        db.executemany(RUNNING, [(TASK, 2), (OTHER, 2)])
        db.executemany(ENDED, [(f"task-{state}", state) for state in ("queued", "failed", "succeeded")])

    return BenchScenario(works, prepare, {**refusals(), "no_message": no_message}, 1, frozenset(), due=None)


def no_message(run: SqlRun) -> str:
    """Where nothing has changed, nothing is announced."""
    (count,) = run.db.execute("SELECT count(*) FROM outbox").fetchone()
    return f"{count} messages stand in the outbox" if count else ""


def delivering(answer: Answer) -> Scenario:
    """Relays that may die anywhere carry three waiting messages to their consumer."""

    def relays(db: Any, bench: Bench) -> Any:
        return answer(db, bench.publish)

    laws = named(*DELIVERED, in_order, counts)
    return BenchScenario(relays, _waiting, laws, 1, frozenset({"crash", "switch"}), due=outbox_due)


def two_relays(answer: Answer) -> Scenario:
    """Two relays at once."""

    def relays(db: Any, bench: Bench) -> Any:
        return answer(db, bench.publish)

    laws = named(*DELIVERED, counts)
    return BenchScenario(relays, _waiting, laws, 2, frozenset({"crash", "switch"}), due=outbox_due)


def _waiting(db: Any) -> None:
    db.execute("INSERT INTO tasks (id, kind) VALUES (?, 'refund')", (TASK,))
    sql = "INSERT INTO outbox (message_id, task_id, topic, payload, created_at) VALUES (?, ?, 'told', '{}', 0)"
    db.executemany(sql, [(name, TASK) for name in MESSAGES])


def in_order(run: SqlRun) -> str:
    """Messages come for the first time in the order in which they were written."""
    first = list(dict.fromkeys(one.message_id for one in run.log if isinstance(one, Handed)))
    known = [name for name in MESSAGES if name in first]
    return "" if [name for name in first if name in known] == known else f"they came as {', '.join(first)}"


def marked(run: SqlRun) -> str:
    """In the end every message is on record as delivered."""
    query = "SELECT message_id FROM outbox WHERE delivered_at IS NULL ORDER BY seq"
    waiting = [name for (name,) in run.db.execute(query)]
    return f"{waiting[0]} still waits" if waiting else ""


DELIVERED = (no_worker_breaks, every_message_keeps_its_id, every_message_is_handed_over, marked)


def counts(run: SqlRun) -> str:
    """A relay says how many messages it has handed over."""
    for name, told in sorted(run.results.items()):
        handed = sum(one.worker == name for one in run.log if isinstance(one, Handed))
        if told is None or told != handed:
            return f"{name} says {told}, and has handed over {handed}"
    return ""


ONE_COMMIT = "A crash can fall between two commits. Is the message in the transaction of the change?"
ORDER = "Which comes first, publish or the mark? Try a crash between the two, for both orders."

EXERCISES = (
    Exercise(
        "8.1",
        "change and announce",
        Search(
            (
                Setting("a worker that may die or sleep anywhere", ends_and_tells),
                Setting("what is not its own", not_mine),
            ),
            {
                "every_end_is_announced": ONE_COMMIT,
                "announces_only_what_happened": ONE_COMMIT,
                "no_message": "The row count of the UPDATE says whether there is anything to announce.",
                "must_be_refused": TOKEN,
                "only_the_current_token": TOKEN,
                "every_change_has_its_version": VERSION,
                "says_so": NOT_SAID,
                "says_what_it_did": NOT_SAID,
                "settled_in_the_end": "The task never ends. Does your UPDATE match the row, and is it committed?",
                "no_worker_breaks": "The outbox takes each message_id once; and an ended task has no lease.",
            },
        ),
        (
            "Two rows: the task's and the message's. What does a crash between two commits leave?",
            "In one `with db:`: the UPDATE of exercise 3.2, and, if it changed a row, an INSERT INTO outbox.",
            "INSERT INTO outbox (message_id, task_id, topic, payload, created_at) VALUES (...) in the same `with db:`, "
            "after changed.rowcount == 1.",
        ),
    ),
    Exercise(
        "8.2",
        "a relay",
        Search(
            (
                Setting("relays that may die anywhere", delivering),
                Setting("two relays at once", two_relays),
            ),
            {
                "every_message_is_handed_over": ORDER,
                "every_message_keeps_its_id": "Publish the message_id as it stands: the consumer knows it by that.",
                "in_order": "ORDER BY seq.",
                "marked": "What was handed over is marked: delivered_at. Is that committed?",
                "counts": "Return the number of messages that you have published.",
                "no_worker_breaks": "It ended by an error of its own.",
            },
        ),
        (
            "At least once means: rather twice than never. Which of publish and mark comes first, then?",
            "SELECT message_id FROM outbox WHERE delivered_at IS NULL ORDER BY seq; for each: publish, then mark.",
            "for (message_id,) in rows: publish(message_id); with db: UPDATE outbox SET delivered_at = 0 WHERE "
            "message_id = ?. Return len(rows).",
        ),
    ),
)
