"""The support-desk agent: what it plans, what it says, and how its context is rebuilt from state.

Its model is scripted and seeded: no network, no key, and the same words on every run. It writes a transcript of tool
calls. The transcript is kept apart from task state on purpose: reading on in it after a crash makes a new tool call
with a new id, and so doubles the effect even where the remote honours keys.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from labkit.records import Message, Operation, PlannedOperation, Task
from labkit.remote import Capabilities
from labkit.states import ENDED_STATES, Direction, State
from labkit.store import TaskStore
from labkit.values import Json

REMOTES: Mapping[str, Capabilities] = {
    "payments": Capabilities(idempotency_keys=True, status_query=True),
    "tickets": Capabilities(status_query=True),
    "mail": Capabilities(),
}
"""Three remotes, on purpose of three kinds: keys and query, query only, neither."""

_OPENINGS = (
    "I will refund the order and tell the customer.",
    "Refund first, then the ticket, then a mail to the customer.",
    "I take care of this: money back, ticket closed, customer told.",
)


def plan(order: int = 1042, amount: int = 40) -> list[PlannedOperation]:
    """Plan "refund the order and tell the customer": three operations at three remotes.

    Args:
        order: the order's number.
        amount: in whole euros.
    """
    return [
        PlannedOperation(
            "refund",
            "payments",
            {"order": order, "amount": amount, "do": "refund"},
            undo_request={"order": order, "amount": amount, "do": "charge"},
        ),
        PlannedOperation(
            "update_ticket",
            "tickets",
            {"order": order, "status": "refunded"},
            undo_request={"order": order, "status": "open"},
        ),
        PlannedOperation("send_email", "mail", {"order": order, "text": f"We have refunded {amount} euros."}),
    ]


def open_conversation(store: TaskStore, task_id: str, order: int = 1042, seed: int = 0) -> None:
    """Write the first two lines of the transcript: what the user asks, and what the scripted model says to it."""
    store.say(task_id, "user", {"text": f"Refund order {order} and tell the customer."})
    store.say(task_id, "assistant", {"text": random.Random(seed).choice(_OPENINGS)})


def tool_call(store: TaskStore, task_id: str, operation: Operation) -> str:
    """Write the model's next tool call into the transcript, and return its id: the next unused `call-<n>`."""
    number = 1 + sum("tool_call" in message.content for message in store.transcript(task_id))
    call_id = f"call-{number}"
    store.say(task_id, "assistant", {"tool_call": operation.name, "call_id": call_id, "input": operation.request})
    return call_id


def tool_result(store: TaskStore, task_id: str, call_id: str, reference: str) -> None:
    """Write a tool's result into the transcript."""
    store.say(task_id, "tool", {"call_id": call_id, "result": reference})


def context_from(task: Task) -> list[Message]:
    """Rebuild the model's context from task state, never from the transcript.

    Args:
        task: as `TaskStore.get` reads it, with its operations.

    Returns:
        Messages numbered from 1: what the task is, one line a finished or doubtful operation, and what comes next.
    """
    goal = "Make up for what was done" if task.direction is Direction.UNDO else "Carry out"
    lines: list[tuple[str, Json]] = [("system", {"text": f"{goal}: {task.kind}, {task.id}. Go by these facts."})]
    for operation in task.operations:
        if operation.in_doubt:
            fact = "was sent and its outcome is unknown; it is being settled, do not call it"
        elif operation.result_ref is not None:
            fact = f"is done, reference {operation.result_ref}"
        elif operation.status == "cannot_be_undone":
            fact = "cannot be done; that is on record"
        else:
            continue
        lines.append(("tool", {"operation": operation.id, "text": f"{operation.name} {fact}."}))
    lines.append(("user", {"text": _what_is_next(task)}))
    return [Message(number, role, content) for number, (role, content) in enumerate(lines, start=1)]


def _what_is_next(task: Task) -> str:
    if task.state is State.AWAITING_CONFIRMATION:
        return "Wait: a person has been asked."
    if task.in_doubt is not None:
        return f"Wait: {task.in_doubt.name} is being settled."
    if task.state in ENDED_STATES:
        return f"Nothing: the task is {task.state}."
    if task.cancel_requested and task.direction is Direction.DO:
        return "Stop: a cancel was requested. Begin nothing new."
    upcoming = task.next_operation
    return f"Next: {upcoming.name}." if upcoming is not None else "Nothing is left to do."
