"""Laws of the exercises on the outbox: a message tells of what happened, and reaches its consumer."""

from __future__ import annotations

from typing import Any

from labkit.course.calls import CALL
from labkit.course.laws import in_short
from labkit.course.rows import TASK
from labkit.explore.bench import SAID
from labkit.explore.journal import Changed, Handed, Said
from labkit.explore.row_laws import changes_of, moves_of
from labkit.explore.sqlworld import SqlRun
from labkit.states import ENDED_STATES

MESSAGES = ("m1", "m3", "m2")
"""As they were written: an order that neither their ids nor their times tell."""

MARK = ("delivered_at", "deliveries")


def message(task_id: str) -> dict[str, Any]:
    """The message that a task has succeeded, as an answer is given it; of each task it is made in another way."""
    first = task_id == TASK
    return {
        "message_id": f"{task_id}/succeeded" if first else f"told-{task_id}",
        "topic": "task.succeeded" if first else "refunds",
        "payload": '{"order": 1042}' if first else '{"order": 2077}',
        "created_at": 1.5 if first else 2.5,
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
    """The outbox holds the message as it was given, under its own id and that of its task, once; it waits there."""
    called = dict[str, str]()
    for one in run.log:
        if isinstance(one, Said) and one.what == CALL:
            called[one.worker] = one.value[0]
        elif isinstance(one, Changed) and one.table == "outbox" and one.commit and not one.before and one.after:
            task_id = called[one.worker]
            if one.after["task_id"] != task_id:
                return f"{one.worker} wrote a message whose task_id is {one.after['task_id']}, not {task_id}"
            for name, given in message(task_id).items():
                if one.after[name] != given:
                    return f"{one.worker} wrote a message whose {name} is {in_short(one.after[name])}, not {given}"
            if one.after["delivered_at"] is not None:
                return f"{one.worker} wrote {one.after['message_id']} as delivered, and nobody will hand it over"
    return ""


def every_end_has_its_message(run: SqlRun) -> str:
    """Of every task that was ended its own message was written."""
    written = {one.after["message_id"] for one in changes_of(run, "outbox") if one.after is not None}
    for change, _, after in moves_of(run):
        if after["state"] in ENDED_STATES and message(after["id"])["message_id"] not in written:
            return f"{change.worker} made {after['id']} {after['state']}, and its message is not there"
    return ""


def messages_stay(run: SqlRun) -> str:
    """What stood in the outbox before stays there as it was."""
    for change in changes_of(run, "outbox"):
        if change.before is not None:
            gone = "deleted" if change.after is None else "changed"
            return (
                f"{change.worker} has {gone} the message of {change.before['task_id']}, {change.before['message_id']}"
            )
    return ""


def both_or_neither(run: SqlRun) -> str:
    """The task ends and its message is written, or neither happens; nobody else's message is touched."""
    if touched := messages_stay(run):
        return touched
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
    written = [name for name, _ in _by_seq(run)]
    if [name for name in first if name in written] == [name for name in written if name in first]:
        return ""
    return f"written as {', '.join(written)}, they came as {', '.join(first)}"


def _by_seq(run: SqlRun) -> list[tuple[str, bool]]:
    """Each message in the outbox in the order in which they were written, and whether it is marked."""
    rows = run.db.execute("SELECT message_id, delivered_at IS NOT NULL FROM outbox ORDER BY seq")
    return [(name, bool(is_marked)) for name, is_marked in rows]


def leaves_none_waiting(run: SqlRun) -> str:
    """A relay that returns has handed over every message that waited when it was called."""
    handed: set[str] = set()
    written = [name for name, _ in _by_seq(run)]
    for one in run.log:
        if isinstance(one, Handed):
            handed.add(one.message_id)
        elif isinstance(one, Said) and one.what == SAID:
            left = [name for name in written if name not in handed]
            if left:
                return f"{one.worker} returns, and {left[0]} still waits"
    return ""


def marked(run: SqlRun) -> str:
    """In the end every message is on record as delivered."""
    waiting = [name for name, is_marked in _by_seq(run) if not is_marked]
    return f"{waiting[0]} still waits" if waiting else ""


def none_is_deleted(run: SqlRun) -> str:
    """A message stays in the outbox, marked, once it was handed over."""
    for change in changes_of(run, "outbox"):
        if change.after is None and change.before is not None:
            return f"{change.worker} has deleted {change.before['message_id']}"
    return ""


def only_the_mark_changes(run: SqlRun) -> str:
    """Of a message only its mark changes, and how often it was delivered."""
    for change in changes_of(run, "outbox"):
        if change.before is not None and change.after is not None:
            others = [name for name in change.after if change.becomes(name) and name not in MARK]
            if others:
                return f"{change.worker} changed {others[0]} of {change.before['message_id']} as well"
    return ""


def none_comes_again(run: SqlRun) -> str:
    """What was marked before a relay was called is not handed over by it."""
    marks, known = set[str](), dict[str, frozenset[str]]()
    for one in run.log:
        if isinstance(one, Changed) and one.table == "outbox" and one.after is not None:
            if one.after["delivered_at"] is not None:
                marks.add(one.after["message_id"])
        elif isinstance(one, Said) and one.what == CALL:
            known[one.worker] = frozenset(marks)
        elif isinstance(one, Handed) and one.message_id in known.get(one.worker, ()):
            return f"{one.worker} handed over {one.message_id}, which was marked before it was called"
    return ""


def counts(run: SqlRun) -> str:
    """A relay says how many messages it has handed over."""
    for name, told in run.results.items():
        handed = sum(one.worker == name for one in run.log if isinstance(one, Handed))
        if type(told) is not int or told != handed:
            return f"{name} says {in_short(told)}, and has handed over {handed}"
    return ""
