"""Lesson 06: an operation in doubt is settled by the remote's record, or by a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from labkit.course.asking import ASKING_LAWS, listening
from labkit.course.exercises import Exercise
from labkit.course.searching import Answer, Search, Setting
from labkit.explore.scenario import Scenario
from labkit.explore.world import ALL_SURPRISES, TaskScenario
from labkit.remote import Capabilities
from labkit.store import TaskStore
from labkit.wire import Remote

QUERY, NEITHER = Capabilities(status_query=True), Capabilities()


def recovering(can: Capabilities, workers: int, allowed: frozenset[str], answer: Answer) -> Scenario:
    """Workers carry one refund as far as it can go, each new one by the same function."""

    def recovers(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
        asking, overheard = listening(store, remotes)
        answer(task_id, asking, overheard["payments"])

    return TaskScenario(recovers, remotes={"payments": can}, workers=workers, allowed=allowed, laws=ASKING_LAWS)


def one_worker_at_a_time(can: Capabilities) -> Callable[[Answer], Scenario]:
    """One worker after the other, and whatever can go wrong with it and with the wire."""
    return partial(recovering, can, 1, ALL_SURPRISES - {"switch"})


def two_at_once(can: Capabilities) -> Callable[[Answer], Scenario]:
    """Two workers from the start."""
    return partial(recovering, can, 2, ALL_SURPRISES)


HINTS = {
    "no_second_effect": "It was sent again although it may have been applied: a time-out is no answer, "
    "and 'not found' is no proof while something can be under way.",
    "success_means_done": "On record it is done, and the remote knows nothing of it. What was the evidence?",
    "record_and_ledger_agree": "Record and ledger differ. Was something settled on a guess?",
    "settled_in_the_end": "The task is left lying. What must the next worker do about a task in this state?",
    "asks_only_when_it_must": "Ask the remote first: if its record says applied, nobody need be asked.",
    "no_worker_breaks": "It ended by an error of its own. What can the store and the wire raise there?",
    "within_budget": "Every sending is an intent, and intents count.",
    "bounded": "It goes round and round. What must change before another round makes sense?",
}

EXERCISES = (
    Exercise(
        "6.1",
        "recover by a status query",
        Search(
            (
                Setting("one worker at a time", one_worker_at_a_time(QUERY), 2),
                Setting("two workers at once", two_at_once(QUERY), 2),
            ),
            HINTS,
        ),
        (
            "In which of the states can you find the task? For each: what is known, and what may you do?",
            "uncertain: remote.query(operation_id). Found: settle with its reference. Not found, or no answer: ask.",
            "queued: claim; running or uncertain: take_over. Then, running: intend, send; OutcomeUnknown: lose_track "
            "and go on as uncertain; NotSent: retry_later. uncertain: query; found: settle(lease, id, True, 'status "
            "query', reference), then start over; else ask(lease, reason, seconds). All operations done: succeed.",
        ),
    ),
    Exercise(
        "6.2",
        "recover with neither keys nor a query",
        Search(
            (
                Setting("one worker at a time", one_worker_at_a_time(NEITHER), 2),
                Setting("two workers at once", two_at_once(NEITHER), 2),
            ),
            HINTS,
        ),
        (
            "Who knows whether the request had an effect? Not you, and this remote does not tell.",
            "As in 6.1, but in doubt there is one thing only that you may do.",
            "uncertain: store.ask(lease, 'sent, and no answer came', 3600). Never send it again.",
        ),
    ),
)
