"""Lesson 01: a task's state is a row, its changes are a table, and the model's context follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from labkit.course.exercises import Exercise
from labkit.course.scenes import Scene, after_crash_at, crossings, scene
from labkit.course.submission import Submission, Unfit, what_it_did
from labkit.course.trials import WIDTH, Trial
from labkit.desk import Desk
from labkit.show.diagram import state_diagram
from labkit.show.tables import TextTable
from labkit.states import ENDED_STATES, Condition, State, Transition, up_to_lesson

LESSON = 1
ROUTINE = frozenset(
    {
        Condition.TOKEN,
        Condition.VERSION,
        Condition.DOING,
        Condition.NO_CANCEL,
        Condition.NOTHING_IN_DOUBT,
        Condition.ANSWER_SIGNED,
        Condition.ANSWER_FITS,
        Condition.NOT_UNDER_WAY,
    }
)
"""Conditions that many edges share; an answer need not give them."""

ARROWS = tuple(edge for edge in up_to_lesson(LESSON) if edge.source is not edge.target)
"""The edges between two of the six states of a plain task."""

Told = tuple[str, str, str, str]


def told_edges(answer: Callable[[], Any]) -> list[Told]:
    """Ask an answer for its edges.

    Raises:
        Unfit: it raised something, or returned no list of four texts each.
    """
    try:
        told = list(answer())
    except NotImplementedError:
        raise
    except (Exception, SystemExit) as error:  # whatever a student's code raises is an answer to the check
        raise Unfit(f"It {what_it_did(error)}.") from None
    edges = []
    for number, one in enumerate(told, start=1):
        if not isinstance(one, tuple | list) or len(one) != 4 or not all(isinstance(part, str) for part in one):
            raise Unfit(f"Edge {number} is no tuple of four texts (event, source, target, condition).")
        event, source, target, condition = (" ".join(str.__str__(part).split()) for part in one)
        edges.append((event, source, target, condition))
    return edges


def try_edges(submission: Submission) -> Trial:
    """Compare a student's edges with the table, one by one."""
    told = [(one[0], one[1], one[2], one[3]) for one in submission.run(told_edges)]
    picture = state_diagram(edges=_known(told), conditions=True)
    wrong = _wrong_edges(told)
    if not wrong:
        shown = f"{len(ARROWS)} edges between six states, as in the table of transitions"
        return Trial(True, len(told), shown=(shown,), picture=picture)
    rows = tuple((" ".join(key), what) for key, what, _, _ in wrong)
    key, what, law, hint = wrong[0]
    return Trial(
        False,
        len(told),
        run=f"{len(wrong)} of {len(ARROWS)} edges and of yours do not agree, the first one: {' '.join(key)}",
        story=TextTable(("edge", "what the table says"), rows, width=WIDTH),
        law=law,
        broke=f"{LAWS[law]} {' '.join(key)}: {what}.",
        hint=hint,
        picture=picture,
    )


LAWS = {
    "no_edge_is_missing": "Every edge between two of the six states is there.",
    "only_edges_of_the_table": "A state changes only along an edge of the table.",
    "conditions_of_the_edge": "An edge is taken only where its conditions hold.",
    "each_edge_once": "There is one edge for each event, source and target.",
}


def _wrong_edges(told: Sequence[Told]) -> list[tuple[tuple[str, str, str], str, str, str]]:
    """Each edge that does not agree: its event and ends, what the table says, the law, a hint."""
    found = []
    table = {(str(edge.event), str(edge.source), str(edge.target)): edge for edge in ARROWS}
    counts = Counter((event, source, target) for event, source, target, _ in told)
    for event, source, target, condition in told:
        key = (event, source, target)
        if key not in table:
            found.append((key, "no such edge", "only_edges_of_the_table", _why_not(key)))
        elif counts[key] > 1:
            found.append((key, "it is there twice", "each_edge_once", "Join conditions by a semicolon."))
        elif complaint := _wrong_condition(condition, table[key]):
            found.append((key, complaint, "conditions_of_the_edge", "The text table above has the words."))
    missing = [key for key in table if key not in counts]
    hint = "Go through the states one by one: what can happen to a task there?"
    return found + [(key, "it is missing", "no_edge_is_missing", hint) for key in missing]


def _why_not(key: tuple[str, str, str]) -> str:
    _, source, target = key
    if source == target:
        return "Only arrows from one state to another are asked for."
    if source in {str(state) for state in ENDED_STATES}:
        return f"A task that is {source} has ended; in a plain task nothing leads out of that."
    return "Read the text table above: which event leads from where to where?"


def _wrong_condition(condition: str, edge: Transition) -> str:
    given = {part.strip() for part in condition.split(";") if part.strip()}
    foreign = sorted(given - {str(one) for one in edge.requires})
    if foreign:
        return f"it does not ask for: {foreign[0]}"
    own = [str(one) for one in edge.requires if one not in ROUTINE]
    return "" if given & set(own) else f"what sets it apart is missing: {' or '.join(own)}"


def _known(told: Sequence[Told]) -> tuple[Transition, ...]:
    wanted = {(event, source, target) for event, source, target, _ in told}
    return tuple(edge for edge in ARROWS if (edge.event, edge.source, edge.target) in wanted)


@cache
def scenes() -> tuple[Scene, ...]:
    """What a model may have to go on from: every crash point of the whole task, and tasks that were stopped."""

    def held(desk: Desk) -> None:
        desk.store.request_cancel("task-1", "Ada")

    def ended(desk: Desk) -> None:
        desk.store.request_cancel("task-1", "Ada")
        desk.store.cancel(desk.store.get("task-1"))

    crashes = [after_crash_at(name, 3) for name in crossings(3)]
    return (*crashes, scene("after a cancel was requested", held), scene("after the task was cancelled", ended))


def what_is_next(found: Scene) -> str:
    """How the last message must begin."""
    task = found.task
    if task.in_doubt is not None or task.state is State.AWAITING_CONFIRMATION:
        return "Wait"
    if task.state in ENDED_STATES or task.next_operation is None:
        return "Nothing"
    return "Stop" if task.cancel_requested else f"Next: {task.next_operation.name}"


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
            messages = list(answer(dict(task), [dict(one) for one in operations]))
            told.append([{"role": str(one["role"]), "text": str(one["text"])} for one in messages])
        except NotImplementedError:
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
    crashes = len(found) - 2
    for number, (one, messages, turned_messages) in enumerate(zip(found, told, again, strict=True), start=1):
        wrong = _wrong_messages(one, messages, turned_messages)
        if wrong is not None:
            return _not_understood(one, messages, number, min(number, crashes), wrong)
    shown = f"{crashes} crash points of three operations and two stopped tasks: the model does what is next"
    return Trial(True, len(found), {"crash": crashes}, (f"{shown}, and nothing twice",))


def _wrong_messages(found: Scene, messages: Messages, turned: Messages) -> tuple[str, str] | None:
    """The law that the messages break, and how; None where they are as they should be."""
    called, wanted = called_by_model(messages), what_is_next(found)
    for operation in found.task.operations:
        if called == operation.name and operation.standing != "pending":
            return "no_second_effect", f"the model calls {called}, which is {operation.standing}"
    law = "says_what_is_next"
    last = messages[-1] if messages else {"role": "", "text": ""}
    if last["role"] != "user" or not last["text"].startswith(wanted):
        return law, f"the last message is {last['role']}: {last['text']!r}; {wanted!r} is what is next"
    if messages[0]["role"] != "system" or found.task.id not in messages[0]["text"]:
        return "names_the_task", f"the first message is {messages[0]['role']}: {messages[0]['text']!r}"
    facts = [one["text"] for one in messages[1:-1] if one["role"] == "tool"]
    known = [one for one in found.task.operations if one.standing in ("done", "in doubt")]
    if len(facts) != len(known) or len(messages) != len(known) + 2:
        return "tells_the_facts", f"{len(known)} operations are done or in doubt, and {len(facts)} messages tell of one"
    for text, operation in zip(facts, known, strict=True):
        word = operation.result_ref or "unknown"
        if operation.name not in text or word not in text:
            return "tells_the_facts", f"{operation.name} is {operation.standing}; {text!r} does not say {word}"
    if messages != turned:
        return "only_from_the_rows", "the same rows in another order, in another process, give other messages"
    return None


def called_by_model(messages: Messages) -> str:
    """What an obedient model calls: what its last message names as next; nothing where that names none."""
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
    said = "\n".join(f"{one['role']}: {one['text']}" for one in messages)
    database = f"{found.task.state} v{found.task.version}" + "".join(
        f"\n{one.name} {one.standing}" for one in found.task.operations
    )
    database += "\ncancel requested" if found.task.cancel_requested else ""
    row = (database, said, called_by_model(messages) or "nothing")
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


EXERCISES = (
    Exercise(
        "1.1",
        "the edges of a plain task",
        try_edges,
        (
            "Ten arrows lead from one of the six states to another. From which states does none lead away?",
            "claim, ask, answer (two of them), expire, cancel (three of them), succeed, fail.",
            'Such as ("claim", "queued", "running", "due (next_run_at <= now)"): print the table of lesson 1 and take '
            "from each row the condition that no other row has.",
        ),
    ),
    Exercise(
        "1.2",
        "the model's context from the rows",
        try_context,
        (
            "Three parts: which task this is, what is known of each operation, what is next.",
            "Sort the operations by position. Done: name and result_ref. In doubt: name and the word unknown.",
            "Last message: Wait if anything is in doubt or the state is awaiting_confirmation; else Nothing if the "
            "task has ended or nothing is pending; else Stop if cancel_requested; else Next: and the first pending.",
        ),
    ),
)
