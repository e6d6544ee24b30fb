"""Lesson 01: a task's state is a row, its changes are a table, and the model's context follows from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labkit.course.context_trials import try_context
from labkit.course.exercises import Exercise
from labkit.course.submission import Submission, Unfit, shortened, told_many
from labkit.course.trials import WIDTH, Trial
from labkit.show.diagram import state_diagram
from labkit.show.tables import TextTable
from labkit.states import ENDED_STATES, Condition, Transition, up_to_lesson

LESSON, MAX_NAME, MAX_SHOWN = 1, 30, 20
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
    told = told_many(answer)
    edges = []
    for number, one in enumerate(told, start=1):
        if not isinstance(one, tuple | list) or len(one) != 4 or not all(isinstance(part, str) for part in one):
            raise Unfit(f"Edge {number} is no tuple of four texts (event, source, target, condition).")
        event, source, target, condition = (shortened(str.__str__(part)) for part in one)
        edges.append((_name(event), _name(source), _name(target), condition))
    return edges


def _name(told: str) -> str:
    return shortened(told.lower().replace(" ", "_"), MAX_NAME)


def try_edges(submission: Submission) -> Trial:
    """Compare a student's edges with the table, one by one."""
    told = [(one[0], one[1], one[2], one[3]) for one in submission.run(told_edges)]
    picture = state_diagram(edges=_known(told), conditions=False)
    wrong = _wrong_edges(told)
    if not wrong:
        shown = f"{len(ARROWS)} edges between six states, as in the table of transitions"
        return Trial(True, len(told), shown=(shown,), picture=picture)
    rows = tuple((" ".join(key), what) for key, what, _, _ in wrong[:MAX_SHOWN])
    key, what, law, hint = wrong[0]
    return Trial(
        False,
        len(told),
        run=f"{len(wrong)} {'edge does' if len(wrong) == 1 else 'edges do'} not agree with the table",
        story=TextTable(("edge", "what the table says"), rows, width=WIDTH),
        law=law,
        broke=f"{LAWS[law]} The first of yours, {' '.join(key)}: {what}.",
        hint=hint,
        picture=picture,
    )


LEAVE_OUT = "Leave one of the two out: they are the same."
WORDS = "The text table above has the words; several are joined by semicolons."
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
    given: dict[tuple[str, str, str], list[str]] = {}
    for event, source, target, condition in told:
        given.setdefault((event, source, target), []).append(condition)
    for key, conditions in given.items():
        if key not in table:
            loop = any((edge.event, edge.source, edge.target) == key for edge in up_to_lesson(LESSON))
            what = "an edge of the table, but it stays in its state" if loop else "no such edge"
            found.append((key, what, "only_edges_of_the_table", _why_not(key)))
        elif conditions[1:]:
            what = "it is there twice" if len(conditions) == 2 else f"it is there {len(conditions)} times"
            alike = len({*conditions}) == 1
            found.append((key, what, "each_edge_once", LEAVE_OUT if alike else "Join conditions by a semicolon."))
        elif complaint := _wrong_condition(conditions[0], table[key]):
            found.append((key, complaint, "conditions_of_the_edge", WORDS))
    missing = [key for key in table if key not in given]
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
    given = {_words(part) for part in condition.split(";") if part.strip()}
    asked = {_words(one): str(one) for one in edge.requires}
    foreign = sorted(given - set(asked))
    if foreign:
        return _instead(foreign[0], asked)
    own = [str(one) for one in edge.requires if one not in ROUTINE]
    return "" if given & set(map(_words, own)) else f"what sets it apart is missing: {' or '.join(own)}"


def _instead(words: str, asked: Mapping[str, str]) -> str:
    """What to say to words that are no condition of the edge: they may be a part of one, or several at once."""
    several = [whole for known, whole in asked.items() if _is_in(known, words)]
    if several[1:]:
        return f"join conditions by a semicolon: {'; '.join(several)}"
    part = [whole for known, whole in asked.items() if _is_in(words, known)]
    meant = (part + several)[:1]
    return f"the table puts it so: {meant[0]}" if meant else f"it does not ask for: {words}"


def _is_in(part: str, whole: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(part)}(?!\w)", whole) is not None


def _words(condition: str) -> str:
    """A condition without capitals and without its direction: a plain task knows one only."""
    return condition.strip().lower().removesuffix(" (direction do)")


def _known(told: Sequence[Told]) -> tuple[Transition, ...]:
    wanted = {(event, source, target) for event, source, target, _ in told}
    return tuple(edge for edge in ARROWS if (edge.event, edge.source, edge.target) in wanted)


EXERCISES = (
    Exercise(
        "1.1",
        "the edges of a plain task",
        try_edges,
        (
            "Ten arrows lead from one of the six states to another. From which states does none lead away?",
            "claim, ask, answer (two of them), expire, cancel (three of them), succeed, fail.",
            'Such as ("claim", "queued", "running", "due (next_run_at <= now)"): print the table of lesson 1 and take '
            "from each row a condition that says when this may happen, not one that stands in nearly every row.",
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
