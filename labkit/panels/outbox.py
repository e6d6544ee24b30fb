"""The panel of the outbox: choose an order of change and message, and a crash, and see who has heard of what."""

from __future__ import annotations

import html
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from labkit.agent import plan
from labkit.panels.base import Action, Panel, choice, panel, table_html, wrong
from labkit.scratch import Scratch
from labkit.seams import ManualClock
from labkit.store import TaskStore

INVITATION = (
    "<p>A worker ends task-1 and tells another system. Choose how it does that and where it dies, and press the "
    "button.</p>"
)
CRASHES: Mapping[str, int] = {"nowhere": 0, "after the first step": 1, "after the second step": 2}
NEXT_WORKER, CANCEL = "the next worker comes", "Ada cancels the task"
CAREFUL, CARELESS = "knows each message by its id", "acts on every delivery"
MESSAGE = "task-1/succeeded"

_SUCCEED = """
UPDATE tasks SET state = 'succeeded', version = version + 1, lease_owner = NULL, lease_expires_at = NULL
WHERE state = 'running'"""
_CANCEL = _SUCCEED.replace("succeeded", "cancelled")
_POST = """
INSERT INTO outbox (message_id, task_id, topic, payload, created_at) VALUES (?, 'task-1', 'task.succeeded', '{}', 0)"""


@dataclass
class Office:
    """The store with its outbox, and a consumer in another system.

    Args:
        db: the store's database.
        careful: the consumer passes over a message whose id it has seen.
        received: how often a message was handed to it.
        acted: how often it acted on one.
        story: who did what, and what the store, the outbox and the consumer say then.
    """

    db: sqlite3.Connection
    careful: bool = True
    received: int = 0
    acted: int = 0
    story: list[tuple[str, ...]] = field(default_factory=list)

    def change(self, sql: str = _SUCCEED) -> str:
        """Commit the end of the task alone."""
        with self.db:
            changed = self.db.execute(sql).rowcount
        return "the change is committed" if changed else "0 rows changed: the task has ended"

    def change_and_post(self) -> str:
        """Commit the end of the task and its message together."""
        with self.db:
            if not self.db.execute(_SUCCEED).rowcount:
                return "0 rows changed: the task has ended"
            self.db.execute(_POST, (MESSAGE,))
        return "change and message are committed"

    def publish(self) -> str:
        """Hand the message to the consumer."""
        self.received += 1
        if self.careful and self.received > 1:
            return "the message is handed over; the consumer knows it"
        self.acted += 1
        return "the message is handed over; the consumer acts"

    def mark(self) -> str:
        """Mark the message as delivered."""
        with self.db:
            self.db.execute("UPDATE outbox SET delivered_at = 0")
        return "the message is marked as delivered"

    @property
    def state(self) -> str:
        """What the store says of the task."""
        return str(self.db.execute("SELECT state FROM tasks").fetchone()[0])

    @property
    def waiting(self) -> int:
        """How many messages wait in the outbox."""
        return int(self.db.execute("SELECT count(*) FROM outbox WHERE delivered_at IS NULL").fetchone()[0])

    def tell(self, who: str, what: str) -> None:
        """Add a line to the story."""
        (posted,) = self.db.execute("SELECT count(*) FROM outbox").fetchone()
        outbox = ("waiting" if self.waiting else "delivered") if posted else "empty"
        consumer = f"received {self.received} &times;, acted {self.acted} &times;"
        self.story.append((who, html.escape(what), self.state, outbox, consumer))


Step = tuple[str, Callable[[Office], str]]
"""Who takes it, and what it does."""
ORDERS: Mapping[str, Sequence[Step]] = {
    "publish first": (("worker", Office.publish), ("worker", Office.change)),
    "commit first": (("worker", Office.change), ("worker", Office.publish)),
    "outbox": (("worker", Office.change_and_post), ("relay", Office.publish), ("relay", Office.mark)),
}


@dataclass(frozen=True)
class OutboxPlay:
    """What it has come to: the story, the task's state, and how often the message waits, was received and acted on."""

    story: tuple[tuple[str, ...], ...]
    state: str
    waiting: int
    received: int
    acted: int

    @property
    def verdict(self) -> str:
        """One sentence of HTML."""
        if self.acted > 1:
            return wrong("the consumer acted twice on one change")
        if self.acted and self.state != "succeeded":
            return wrong("the consumer acted on a success that never happened")
        if self.state == "succeeded" and not self.acted + self.waiting:
            return wrong("the task has succeeded, and nobody will ever hear of it")
        return f"<b>The task is {self.state}, and the consumer acted {self.acted} &times;: they agree</b>"


def play(order: str, crash_after: int, then: str, consumer: str) -> OutboxPlay:
    """Play one ending of a task.

    Args:
        order: a name in `ORDERS`.
        crash_after: the number of the step behind which everything dies; 0 for none.
        then: who comes next, `NEXT_WORKER` or `CANCEL`.
        consumer: `CAREFUL` or `CARELESS`.
    """
    with Scratch() as folder:
        path = Path(folder, "tasks.sqlite")
        with TaskStore(path, ManualClock(), synchronous="OFF") as store:
            store.claim(store.enqueue("task-1", plan()[:1]), "worker-1")
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA synchronous = OFF")  # nothing here outlives the press
            office, steps = Office(db, consumer == CAREFUL), ORDERS[order]
            for who, step in steps[: crash_after or len(steps)]:
                office.tell(f"{who}-1", step(office))
            if crash_after:
                office.tell("", "!! crash: worker and relay die")
                _go_on(office, steps, then)
            return OutboxPlay(tuple(office.story), office.state, office.waiting, office.received, office.acted)


def _go_on(office: Office, steps: Sequence[Step], then: str) -> None:
    """Let the next processes start from what is on record."""
    if then == CANCEL:
        office.tell("Ada", office.change(_CANCEL))
    elif office.state != "running":
        office.tell("worker-2", "the task has ended: nothing to do")
    for who, step in steps:
        if office.waiting if who == "relay" else office.state == "running":
            office.tell(f"{who}-2", step(office))


def show(order: str, crash_after: int, then: str, consumer: str) -> str:
    """Show as HTML what `play` comes to."""
    played = play(order, crash_after, then, consumer)
    rows = [(str(number), *line) for number, line in enumerate(played.story, start=1)]
    headers = ("#", "who", "what happens", "the store says", "the outbox", "the consumer")
    return f"<p>{played.verdict}.</p>{table_html(headers, rows)}"


def outbox_panel() -> Panel:
    """Return a panel that ends a task and announces it, with a crash in between."""
    order, crash = choice("order", list(ORDERS)), choice("crash", CRASHES)
    then, consumer = choice("after the crash", (NEXT_WORKER, CANCEL)), choice("the consumer", (CAREFUL, CARELESS))
    chosen = (order, crash, then, consumer)
    action = Action("end the task", "Play it.", lambda: show(*(one.value for one in chosen)))
    return panel("outbox", [action], INVITATION, choices=chosen)
