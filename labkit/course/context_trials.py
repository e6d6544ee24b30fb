"""Exercise 1.2: an obedient model reads the messages that an answer makes of the rows, at every crash point."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

from labkit.agent import plan
from labkit.course.scenes import Scene, after_crash_at, crossings, scene
from labkit.course.submission import Submission, Unfit, shortened, told_many, what_it_did
from labkit.course.trials import WIDTH, Trial
from labkit.desk import Desk
from labkit.records import Outcome
from labkit.retries import Category
from labkit.show.tables import TextTable
from labkit.states import ENDED_STATES, State


@cache
def scenes() -> tuple[Scene, ...]:
    """What a model may have to go on from: every crash point of the whole task, and tasks that were stopped or wait."""

    def held(desk: Desk) -> None:
        desk.queue()
        desk.store.request_cancel("task-1", "Ada")

    def cancelled(desk: Desk) -> None:
        held(desk)
        desk.store.cancel(desk.store.get("task-1"))

    def failed(desk: Desk) -> None:
        lease, _ = desk.store.intend(desk.store.claim(desk.queue(), "worker-1"), "task-1/refund")
        desk.store.fail(lease, Category.PERMISSION, "task-1/refund", Outcome.REFUSED)

    def asked(desk: Desk) -> None:
        first, *others = plan()
        task = desk.store.enqueue("task-1", [replace(first, needs_approval=True), *others])
        desk.store.ask(desk.store.claim(task, "worker-1"), "refund wants approval", 3600)

    def asked_and_held(desk: Desk) -> None:
        asked(desk)
        desk.store.request_cancel("task-1", "Ada")

    def in_doubt_and_held(desk: Desk) -> None:
        lease, _ = desk.store.intend(desk.store.claim(desk.queue(), "worker-1"), "task-1/refund")
        desk.store.lose_track(lease, "task-1/refund")
        desk.store.request_cancel("task-1", "Ada")

    def done_and_held(desk: Desk) -> None:
        lease, _ = desk.store.intend(desk.store.claim(desk.queue(steps=1), "worker-1"), "task-1/refund")
        desk.store.checkpoint(lease, "task-1/refund", "payments-1")
        desk.store.request_cancel("task-1", "Ada")

    def of_another_name(desk: Desk) -> None:
        desk.store.enqueue("task-20", plan()[:2])

    crashes = [after_crash_at(name, 3) for name in crossings(3)]
    situations = {
        "after a cancel was requested": held,
        "after the task was cancelled": cancelled,
        "after the task failed": failed,
        "while a person is asked to approve the refund": asked,
        "while a person is asked, and a cancel was requested": asked_and_held,
        "while the refund is in doubt, and a cancel was requested": in_doubt_and_held,
        "when all is done, and a cancel was requested": done_and_held,
    }
    others = [scene(title, prepare) for title, prepare in situations.items()]
    return (*crashes, *others, scene("before another task begins", of_another_name, "task-20"))


def what_is_next(found: Scene) -> str:
    """How the last message must begin."""
    task = found.task
    if task.in_doubt is not None or task.state is State.AWAITING_CONFIRMATION:
        return "Wait"
    if task.state in ENDED_STATES or task.next_operation is None:
        return "Nothing"
    return "Stop" if task.cancel_requested else f"Next: {task.next_operation.name}"


MAX_SHOWN, MAX_MESSAGES = 80, 8
Messages = list[dict[str, str]]
Rows = list[tuple[dict[str, Any], list[dict[str, Any]]]]


def told_messages(rows: Rows, answer: Callable[..., Any]) -> list[Messages]:
    """Ask an answer for the messages of every scene.

    Raises:
        Unfit: it raised something, or returned something that is no list of messages.
    """
    told = []
    for task, operations in rows:
        try:
            ask = partial(answer, dict(task), [dict(one) for one in operations])
            messages = told_many(ask, f"With the task {task['state']} it")
            told.append([{"role": str(one["role"]), "text": str(one["text"])} for one in messages])
        except (NotImplementedError, Unfit):
            raise
        except (Exception, SystemExit) as error:  # whatever a student's code raises is an answer to the check
            raise Unfit(
                f"A list of messages with role and text is wanted; with the task {task['state']} it "
                f"{what_it_did(error)}."
            ) from None
    return told


def try_context(submission: Submission) -> Trial:
    """Let an obedient model read a student's messages at every crash point, and see what it calls then."""
    found = scenes()
    rows = [(one.task_row, one.operation_rows) for one in found]
    turned = [(one.task_row, one.operation_rows[::-1]) for one in found]
    told, again = submission.run(partial(told_messages, rows)), submission.run(partial(told_messages, turned), 2)
    crashes = sum(one.title.startswith("after a crash") for one in found)
    for number, (one, messages, turned_messages) in enumerate(zip(found, told, again, strict=True), start=1):
        wrong = _wrong_messages(one, messages, turned_messages)
        if wrong is not None:
            return _not_understood(one, messages, number, min(number, crashes), wrong)
    shown = f"{crashes} crash points of three operations, and {len(found) - crashes} tasks that were stopped or wait"
    return Trial(True, len(found), {"crash": crashes}, (f"{shown}: the model does what is next, and nothing twice",))


def _wrong_messages(found: Scene, messages: Messages, turned: Messages) -> tuple[str, str] | None:
    """The law that the messages break, and how; None where they are as they should be."""
    called, wanted = called_by_model(messages, _doubtful(found)), what_is_next(found)
    for operation in found.task.operations:
        if called == operation.name and operation.standing != "pending":
            return "no_second_effect", f"the model calls {called}, which is {operation.standing}"
    law = "says_what_is_next"
    last = messages[-1] if messages else {"role": "", "text": ""}
    if last["role"] != "user" or not last["text"].startswith(wanted):
        return (
            law,
            f"the last message is {_quoted(last['role'])}: {_quoted(last['text'])}; {wanted!r} is what is next",
        )
    if messages[0]["role"] != "system" or found.task.id not in messages[0]["text"]:
        return (
            "names_the_task",
            f"the first message is {_quoted(messages[0]['role'])}: {_quoted(messages[0]['text'])}",
        )
    facts = [one["text"] for one in messages[1:-1] if one["role"] == "tool"]
    known = [one for one in found.task.operations if one.standing in ("done", "in doubt")]
    if len(facts) != len(known) or len(messages) != len(known) + 2:
        return "tells_the_facts", f"{len(known)} operations are done or in doubt, and {len(facts)} messages tell of one"
    for text, operation in zip(facts, known, strict=True):
        word = operation.result_ref or "unknown"
        if operation.name not in text or word.lower() not in text.lower():
            return (
                "tells_the_facts",
                f"{operation.name} is {operation.standing}; {_quoted(text)} does not say {word}",
            )
    if messages != turned:
        return "only_from_the_rows", "the same rows in another order, in another process, give other messages"
    return None


def _doubtful(found: Scene) -> str:
    return found.task.in_doubt.name if found.task.in_doubt is not None else ""


def _quoted(text: str) -> str:
    return shortened(repr(text), MAX_SHOWN)


CALL_AGAIN = re.compile(r"\b(call|try|send|do|run|repeat|make)\b[^.;:]*\bagain\b|\b(retry|resend)\b", re.IGNORECASE)
NEGATED = re.compile(r"\b(not|never|no|nobody|without|cannot)\b|n't", re.IGNORECASE)


def told_to_repeat(text: str, name: str) -> bool:
    """Whether a sentence that does not say no tells to call something again."""
    sentences = re.split(r"[.;:\n]", text)
    return name in text and any(CALL_AGAIN.search(one) and not NEGATED.search(one) for one in sentences)


def called_by_model(messages: Messages, doubtful: str = "") -> str:
    """What an obedient model calls.

    Args:
        messages: what it reads.
        doubtful: the name of an operation in doubt, if there is one: it calls that if a message tells it to.

    Returns:
        Else what its last message names as next; nothing where that names none.
    """
    if doubtful and any(told_to_repeat(one["text"], doubtful) for one in messages):
        return doubtful
    head, _, name = (messages[-1]["text"] if messages else "").partition("Next:")
    return name.strip(" .") if not head.strip() else ""


CONTEXT_LAWS = {
    "no_second_effect": "No operation has two effects.",
    "says_what_is_next": "The last message says what is next.",
    "names_the_task": "The first message is the system's and names the task.",
    "tells_the_facts": "A message tells of each operation that is done or in doubt, and of no other.",
    "only_from_the_rows": "The context follows from the rows alone.",
}
CONTEXT_HINTS = {
    "no_second_effect": "An operation with a result, or in doubt, is not to be called again.",
    "says_what_is_next": "Wait, Stop, Nothing, or Next: which of them comes first, and for which rows?",
    "names_the_task": 'Begin with {"role": "system", "text": ...}, and put the id into the text.',
    "tells_the_facts": "One tool message for each operation that is done (its reference) or in doubt (`unknown`).",
    "only_from_the_rows": "Rows come in any order; `position` says which is first. Keep nothing between two calls.",
}


def _not_understood(found: Scene, messages: Messages, tried: int, crashes: int, wrong: tuple[str, str]) -> Trial:
    law, how = wrong
    said = "\n".join(shortened(f"{one['role']}: {one['text']}", MAX_SHOWN) for one in messages[:MAX_MESSAGES])
    database = f"{found.task.state} v{found.task.version}" + "".join(
        f"\n{one.name} {one.standing}" for one in found.task.operations
    )
    database += "\ncancel requested" if found.task.cancel_requested else ""
    row = (database, said, called_by_model(messages, _doubtful(found)) or "nothing")
    headers = ("the database says", "your messages", "the model calls")
    return Trial(
        False,
        tried,
        {"crash": crashes},
        run=f"the first of the situations that goes wrong: {found.title}",
        story=TextTable(headers, (row,), width=WIDTH),
        law=law,
        broke=f"{CONTEXT_LAWS[law]} Here {how}.",
        hint=CONTEXT_HINTS[law],
    )
