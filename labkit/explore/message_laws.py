"""The laws for messages of an outbox, read off the log of commits and hand-overs; see `labkit.explore.row_laws`."""

from __future__ import annotations

from collections.abc import Iterator

from labkit.explore.journal import Changed, Handed
from labkit.explore.row_laws import moves_of, rows_of
from labkit.explore.sqlworld import SqlLaw, SqlRun
from labkit.states import ENDED_STATES


def every_end_is_announced(run: SqlRun) -> str:
    """Of every task that has ended a message tells, written for a consumer."""
    told = {row["task_id"] for row in rows_of(run, "outbox")}
    for _, _, after in moves_of(run):
        if after["state"] in ENDED_STATES and after["id"] not in told:
            return f"{after['id']} is {after['state']}, and no message says so"
    return ""


def every_message_is_handed_over(run: SqlRun) -> str:
    """Every message reaches its consumer, at least once."""
    handed = {one.message_id for one in run.log if isinstance(one, Handed)}
    lost = sorted({row["message_id"] for row in rows_of(run, "outbox")} - handed)
    return f"{lost[0]} never reached its consumer" if lost else ""


def every_message_keeps_its_id(run: SqlRun) -> str:
    """A message goes by its id in the outbox: however often it is delivered, its consumer can know it again."""
    known = {row["message_id"] for row in rows_of(run, "outbox")}
    for one in run.log:
        if isinstance(one, Handed) and one.message_id not in known:
            return f"{one.worker} handed over {one.message_id}, which the outbox does not know"
    return ""


def told_once_committed(run: SqlRun) -> str:
    """A message is handed over only once the change that it announces is committed."""
    known: set[str] = set()
    for one in run.log:
        if isinstance(one, Changed) and one.table == "outbox" and one.after is not None:
            known.add(one.after["message_id"])
        elif isinstance(one, Handed) and one.message_id not in known:
            return f"{one.worker} handed over {one.message_id}, and no commit had put it into the outbox"
    return ""


def told_in_order(run: SqlRun) -> str:
    """The messages of a task first reach the consumer in the order of its changes; later deliveries may repeat some."""
    written: dict[str, list[str]] = {}
    handed: set[str] = set()
    for one in run.log:
        if isinstance(one, Changed) and one.table == "outbox" and one.before is None and one.after is not None:
            written.setdefault(one.after["task_id"], []).append(one.after["message_id"])
        elif isinstance(one, Handed):
            for before in _before(written, one.message_id):
                if before not in handed:
                    return f"{one.worker} handed over {one.message_id} before {before}"
            handed.add(one.message_id)
    return ""


def _before(written: dict[str, list[str]], message_id: str) -> Iterator[str]:
    for messages in written.values():
        if message_id in messages:
            yield from messages[: messages.index(message_id)]


OUTBOX_LAWS: tuple[SqlLaw, ...] = (every_end_is_announced, every_message_keeps_its_id, every_message_is_handed_over)
"""For workers that announce the end of a task by an outbox."""

RELAY_LAWS: tuple[SqlLaw, ...] = (told_once_committed, *OUTBOX_LAWS, told_in_order)
"""For workers and relays of the store's own outbox: what is promised of every message."""
