"""The panel of the states: press events on a plain task, and see which arrow it takes or why it is refused."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from labkit.agent import plan
from labkit.deciding import Answer
from labkit.errors import ChangeRefused, ConditionUnmet, WrongState
from labkit.panels.base import Panel, light_and_dark, moves_panel
from labkit.records import Lease, Operation, Task
from labkit.retries import Category
from labkit.scratch import Scratch
from labkit.seams import ManualClock
from labkit.show.diagram import NoRenderer, state_diagram
from labkit.show.tables import arrow, task_table
from labkit.states import TRANSITIONS, Transition
from labkit.store import TaskStore

LESSON = 1
TASK_ID = "task-1"
HOUR_SECONDS = 3600.0
WAIT = "an hour passes"


@dataclass(frozen=True)
class _Hand:
    """What a press has to do with: the store, the task as it is now, and a lease as if we held it."""

    store: TaskStore
    task: Task

    @property
    def lease(self) -> Lease:
        task = self.task
        return Lease(task.id, "you", task.lease_token, task.version, task.state, task.lease_expires_at or 0.0)

    @property
    def operation(self) -> Operation:
        return self.task.next_operation or self.task.operations[-1]


_EVENTS: Mapping[str, tuple[str, Callable[[_Hand], object]]] = {
    "claim": ("A worker takes the task.", lambda you: you.store.claim(you.task, "you")),
    "intend": (
        "It puts on record that it is about to send the next operation.",
        lambda you: you.store.intend(you.lease, you.operation.id),
    ),
    "checkpoint": (
        "It records the result of what it has sent.",
        lambda you: you.store.checkpoint(you.lease, you.operation.id, f"{you.operation.remote}-1"),
    ),
    "ask": (
        "It asks a person for an approval, to be given within an hour.",
        lambda you: you.store.ask(you.lease, f"{you.operation.name} wants approval", HOUR_SECONDS),
    ),
    "answer: approved": ("A person says yes.", lambda you: you.store.answer(you.task, Answer.APPROVED, "you")),
    "answer: declined": ("A person says no.", lambda you: you.store.answer(you.task, Answer.DECLINED, "you")),
    "expire": ("The approval did not come in time.", lambda you: you.store.expire(you.task)),
    "request_cancel": ("Somebody wants it stopped.", lambda you: you.store.request_cancel(you.task.id, "you")),
    "cancel": ("It is stopped.", lambda you: you.store.cancel(you.lease)),
    "succeed": ("It is finished.", lambda you: you.store.succeed(you.lease)),
    "fail": ("It cannot succeed: permission denied.", lambda you: you.store.fail(you.lease, Category.PERMISSION)),
}
MOVES: Mapping[str, str] = {name: tooltip for name, (tooltip, _) in _EVENTS.items()} | {WAIT: "The clock goes on."}


@dataclass(frozen=True)
class Pressed:
    """What a list of presses has come to.

    Args:
        task: as it stands now.
        words: what became of each press.
        last: the edge that the last press took; None where it took none.
    """

    task: Task
    words: tuple[str, ...] = ()
    last: Transition | None = None


def press(moves: Sequence[str]) -> Pressed:
    """Play a task of two operations, of which the second wants approval: one event a move, or an hour's wait."""
    refund, _, mail = plan()
    with Scratch() as folder:
        clock = ManualClock()
        with TaskStore(Path(folder, "tasks.sqlite"), clock, synchronous="OFF") as store:
            found = Pressed(store.enqueue(TASK_ID, [refund, replace(mail, needs_approval=True)]))
            for move in moves:
                if move == WAIT:
                    clock.advance(HOUR_SECONDS)
                    found = Pressed(found.task, (*found.words, f"{WAIT}: it is {clock.now():g} s"))
                else:
                    found = _press(store, found, move)
            return found


def _press(store: TaskStore, before: Pressed, move: str) -> Pressed:
    try:
        _EVENTS[move][1](_Hand(store, before.task))
    except ChangeRefused as refused:
        return Pressed(before.task, (*before.words, f"{move} is refused: {in_words(refused)}"))
    task, entry = store.get(TASK_ID), store.history(TASK_ID)[-1]
    taken = (entry.event, entry.source, entry.target)
    edge = next(edge for edge in TRANSITIONS if (edge.event, edge.source, edge.target) == taken)
    return Pressed(task, (*before.words, f"{move}: {arrow(edge)}, version {task.version}"), edge)


def in_words(refused: ChangeRefused) -> str:
    """Say why a change was refused: what was expected, and what was found."""
    if isinstance(refused, WrongState):
        return f"no arrow of that name leaves {refused.found}; expected {refused.expected}"
    if isinstance(refused, ConditionUnmet):
        return f'the arrow asks for "{refused.condition}"; found: {refused.found}'
    return f"expected {refused.expected}, found {refused.found}"


def show(moves: Sequence[str]) -> str:
    """Show what the presses have come to: in words, as a diagram, and as the database says it."""
    found = press(moves)
    said = found.words[-1] if found.words else "A task is queued. Press an event: an arrow of the diagram, or none."
    numbered = "".join(f"<li>{html.escape(words)}</li>" for words in found.words)
    return (
        f"<p><b>{html.escape(said)}</b></p>{_diagram(found)}"
        f'<pre style="font-size: inherit; line-height: inherit">{html.escape(str(task_table(found.task)))}</pre>'
        f"<details><summary>All presses</summary><ol>{numbered}</ol></details>"
    )


def _diagram(found: Pressed) -> str:
    light, dark = (state_diagram(LESSON, found.task.state, found.last, dark) for dark in (False, True))
    try:
        return light_and_dark(_fitted(light.svg()), _fitted(dark.svg()))
    except NoRenderer:
        return f"<pre>{html.escape(light.text)}</pre>"


def _fitted(svg: str) -> str:
    return svg.replace("<svg ", '<svg style="max-width: 100%; height: auto" ', 1)


def states_panel() -> Panel:
    """Return a panel with a button for each event of a plain task; the diagram shows where it stands."""
    return moves_panel("states", MOVES, show)
