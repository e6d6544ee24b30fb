"""Laws of the exercises on the outbox: a message tells of what happened, and reaches its consumer."""

from __future__ import annotations

from typing import Any

from labkit.course.laws import in_short
from labkit.explore.journal import Changed, Handed, Said
from labkit.explore.row_laws import changes_of, moves_of
from labkit.explore.sqlworld import SqlRun
from labkit.states import ENDED_STATES

MESSAGES = ("m1", "m3", "m2")
"""As they were written: an order that neither their ids nor their times tell."""


def message(task_id: str) -> dict[str, Any]:
    """The message that a task has succeeded, as an answer is given it."""
    return {
        "message_id": f"{task_id}/succeeded",
        "topic": "task.succeeded",
        "payload": '{"order": 1042}',
        "created_at": 1.5,
    }


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


def announced_as_given(run: SqlRun) -> str:
    """The outbox holds the message as it was given, under its own id and that of its task, once."""
    called = [one.value[0] for one in run.log if isinstance(one, Said) and one.what == "call"]
    for one in run.log:
        if isinstance(one, Changed) and one.table == "outbox" and one.after is not None:
            task_id = one.after["task_id"]
            if task_id not in called:
                return f"{one.worker} wrote a message whose task_id is {task_id}, not {called[-1]}"
            for name, given in message(task_id).items():
                if one.after[name] != given:
                    return f"{one.worker} wrote a message whose {name} is {in_short(one.after[name])}, not {given}"
    return ""


def both_or_neither(run: SqlRun) -> str:
    """The task ends and its message is written, or neither happens; nobody else's message is touched."""
    for change in changes_of(run, "outbox"):
        if change.before is not None:
            gone = "deleted" if change.after is None else "changed"
            return (
                f"{change.worker} has {gone} the message of {change.before['task_id']}, {change.before['message_id']}"
            )
    for change, _, after in moves_of(run):
        return f"{change.worker} made {after['id']} {after['state']}, and its message was refused: that id is taken"
    return ""


def no_message(run: SqlRun) -> str:
    """Where nothing has changed, nothing is announced."""
    (count,) = run.db.execute("SELECT count(*) FROM outbox").fetchone()
    many = "1 message stands" if count == 1 else f"{count} messages stand"
    return f"{many} in the outbox" if count else ""


def in_order(run: SqlRun) -> str:
    """Messages come for the first time in the order in which they were written."""
    first = list(dict.fromkeys(one.message_id for one in run.log if isinstance(one, Handed)))
    known = [name for name in MESSAGES if name in first]
    if [name for name in first if name in known] == known:
        return ""
    return f"written as {', '.join(MESSAGES)}, they came as {', '.join(first)}"


def leaves_none_waiting(run: SqlRun) -> str:
    """A relay that returns has handed over every message that waited when it was called."""
    handed: set[str] = set()
    for one in run.log:
        if isinstance(one, Handed):
            handed.add(one.message_id)
        elif isinstance(one, Said) and one.what == "said":
            left = [name for name in MESSAGES if name not in handed]
            if left:
                return f"{one.worker} returns, and {left[0]} still waits"
    return ""


def marked(run: SqlRun) -> str:
    """In the end every message is on record as delivered."""
    query = "SELECT message_id FROM outbox WHERE delivered_at IS NULL ORDER BY seq"
    waiting = [name for (name,) in run.db.execute(query)]
    return f"{waiting[0]} still waits" if waiting else ""


def none_is_deleted(run: SqlRun) -> str:
    """A message stays in the outbox, marked, once it was handed over."""
    for change in changes_of(run, "outbox"):
        if change.after is None and change.before is not None:
            return f"{change.worker} has deleted {change.before['message_id']}"
    return ""


def counts(run: SqlRun) -> str:
    """A relay says how many messages it has handed over."""
    for name, told in run.results.items():
        handed = sum(one.worker == name for one in run.log if isinstance(one, Handed))
        if type(told) is not int or told != handed:
            return f"{name} says {in_short(told)}, and has handed over {handed}"
    return ""
