"""Exercises the other way round: a student's law must accept the right programs and catch the wrong ones."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from labkit.agent import REMOTES, plan
from labkit.course.story import StoryStep, story_of
from labkit.course.submission import NotAttempted, Submission, Unfit, told_by
from labkit.course.trials import Trial
from labkit.course.watching import as_steps
from labkit.errors import RemoteError
from labkit.explore.choices import Schedule
from labkit.explore.laws import LAWS
from labkit.explore.programs import LabWorker
from labkit.explore.record import Record
from labkit.explore.search import explore
from labkit.explore.world import TaskScenario
from labkit.remote import Capabilities
from labkit.retries import Category
from labkit.states import HELD_STATES, State

ALLOWED = frozenset({"crash", "response_lost", "late", "cancel"})
NEITHER = {name: Capabilities() for name in REMOTES}
QUERY = {name: Capabilities(status_query=True) for name in REMOTES}
LINE_WIDTH = 96


@dataclass(frozen=True)
class FinishedRun:
    """A finished run as a student's law sees it.

    Args:
        state: the task's last state.
        operations: each operation's id, and what the record says of it: `done`, `pending`, `cannot_be_undone`.
        effects: how often each operation id stands in the remotes' ledgers.
    """

    state: str
    operations: Mapping[str, str]
    effects: Mapping[str, int]


@dataclass(frozen=True)
class Program:
    """A program on trial: the right ones keep every law, the wrong ones break one."""

    title: str
    policy: str
    remotes: Mapping[str, Capabilities]
    person: bool = True


RIGHT = (
    Program("the worker that goes by capability", "by_capability", REMOTES),
    Program("the worker that asks a person", "ask_person", NEITHER),
    Program("the worker that asks, where nobody answers", "ask_person", NEITHER, person=False),
)
WRONG = (
    Program("one that sends again without a key", "blind_replay", NEITHER),
    Program("one that reads on in its transcript", "replay_transcript", REMOTES),
    Program("one that takes what is in doubt for done", "assume_done", NEITHER),
    Program("one that takes 'not found' for a proof", "query_first", QUERY),
    Program("one that never settles a doubt", "leaves_doubts", REMOTES),
    Program("one that calls a time-out a failure", "gives_up", NEITHER),
    Program("one that sends once more before it asks", "sends_and_asks", NEITHER, person=False),
    Program("one that leaves alone what was put back", "only_once", NEITHER),
)


def _program(one: Program) -> Callable[..., Any]:
    return OWN.get(one.policy) or LabWorker(one.policy)


def _gives_up(task_id: str, store: Any, remotes: Any) -> Any:
    """Work as the lab's worker does, and take what is in doubt for not applied, and the task for failed."""
    task = store.get(task_id)
    if task.in_doubt is not None and task.state in HELD_STATES:
        lease = store.take_over(task, "hasty")
        store.settle(lease, task.in_doubt.id, False, "no answer came")
        store.fail(store.claim(store.get(task_id), "hasty"), Category.INVALID)
    elif task.in_doubt is None:
        LabWorker("ask_person")(task_id, store, remotes)


def _sends_and_asks(task_id: str, store: Any, remotes: Any) -> Any:
    """Work as the worker that asks does, and send what is in doubt once more before that."""
    task = store.get(task_id)
    if task.in_doubt is not None and task.state in HELD_STATES:
        doubt = task.in_doubt
        with suppress(RemoteError):
            remotes[doubt.remote].send(doubt.id, doubt.request, f"{doubt.id}#again")
    LabWorker("ask_person")(task_id, store, remotes)


def _only_once(task_id: str, store: Any, remotes: Any) -> Any:
    """Work as the worker that asks does, and never take up a task again that was put back."""
    task = store.get(task_id)
    if task.state is not State.QUEUED or task.lease_token == 0:
        LabWorker("ask_person")(task_id, store, remotes)


def _leaves_doubts(task_id: str, store: Any, remotes: Any) -> Any:
    """Work as the lab's worker does, and let go of what is in doubt."""
    if store.get(task_id).in_doubt is None:
        LabWorker("by_capability")(task_id, store, remotes)


OWN: Mapping[str, Callable[..., Any]] = {
    "leaves_doubts": _leaves_doubts,
    "gives_up": _gives_up,
    "sends_and_asks": _sends_and_asks,
    "only_once": _only_once,
}


class Catch:
    """Tries a law on the right programs, then on the wrong ones."""

    def __call__(self, submission: Submission) -> Trial:
        """Try a student's law.

        Raises:
            NotAttempted: it is the stub.
            Unfit: it raised something, or said neither yes nor no.
        """
        found: dict[str, Any] = submission.run(judge_programs)
        shown = f"{len(RIGHT)} right programs accepted in {found['schedules']:,} runs, {len(WRONG)} wrong ones caught"
        if not found["broke"]:
            return Trial(True, found["schedules"], found["happened"], (shown,))
        story = story_of([StoryStep(**step) for step in found["steps"]])
        return Trial(
            False,
            found["schedules"],
            found["happened"],
            run=found["run"],
            story=replace(story, notes=(*story.notes, found["given"])),
            law=found["broke"],
            broke=LAWS_OF_LAWS[found["broke"]],
            hint=found["hint"],
        )


LAWS_OF_LAWS = {
    "accepts_the_right": "A law that refuses a right program would never let anything go out.",
    "catches_the_wrong": "A law that lets a wrong program pass has not been told what must never be.",
}


def judge_programs(law: Callable[[FinishedRun], Any]) -> dict[str, Any]:
    """Explore every program with a student's law; this is what runs in the child process."""
    totals: dict[str, Any] = {
        "schedules": 0,
        "happened": {},
        "broke": "",
        "run": "",
        "steps": [],
        "hint": "",
        "given": "",
    }
    for program in (*RIGHT, *WRONG):
        scenario = _scenario(program, {"yours": _asking(law)})
        shown = explore(scenario, 1)
        totals["schedules"] += shown.schedules
        for kind, count in shown.happened.items():
            totals["happened"][kind] = totals["happened"].get(kind, 0) + count
        if program in RIGHT and shown.failure is not None:
            run = f"{program.title}: your law refuses a run of it"
            return totals | _seen(scenario, shown.failure.schedule, "accepts_the_right", run, LOOK_AT_THE_STATE)
        if program in WRONG and shown.failure is None:
            slipped = _scenario(program, LAWS)
            failure = explore(slipped, 1).failure
            assert failure is not None, "a wrong program breaks a law of the lab"
            run = f"{program.title} slips through; the lab's own law against it is {failure.law}: {failure.how}"
            return totals | _seen(slipped, failure.schedule, "catches_the_wrong", run, HINTS.get(failure.law, COMPARE))
    return totals


def _scenario(program: Program, laws: Mapping[str, Callable[[Record], str]]) -> TaskScenario:
    operations = tuple(plan()[:1])
    return TaskScenario(
        _program(program), operations, program.remotes, allowed=ALLOWED, person=program.person, laws=laws
    )


def finished(record: Record) -> FinishedRun:
    """A run as a law is asked about it."""
    statuses = {one.id: str(one.status) for one in record.task.operations}
    return FinishedRun(str(record.task.state), MappingProxyType(statuses), MappingProxyType(dict(record.effects)))


def _given(scenario: TaskScenario, schedule: Schedule) -> str:
    """What a law was asked about, as it saw it."""
    with closing(scenario.open()) as world:
        world.play(schedule)
        run = finished(world.record())
    saw = f"Your law saw: state {run.state!r}, operations {dict(run.operations)}, effects {dict(run.effects)}."
    return textwrap.fill(saw, LINE_WIDTH, break_long_words=False, break_on_hyphens=False)


def _asking(law: Callable[[FinishedRun], Any]) -> Callable[[Record], str]:
    def asked(record: Record) -> str:
        run = finished(record)
        asked = f"Asked about a run that ended {run.state}, it"
        try:
            said = told_by(partial(law, run), asked)
        except NotImplementedError:
            raise NotAttempted from None
        if not isinstance(said, int):
            raise Unfit(f"{asked} returned {type(said).__name__}, not True or False.")
        return "" if said else "refused"

    return asked


def _seen(scenario: TaskScenario, schedule: Schedule, broke: str, run: str, hint: str) -> dict[str, Any]:
    steps = [vars(one) for one in as_steps(scenario, schedule)]
    return {"broke": broke, "run": run, "hint": hint, "steps": steps, "given": _given(scenario, schedule)}


LOOK_AT_THE_STATE = "A run may end well, end stopped, or wait for a person: look at the state before you refuse."
COMPARE = "Compare, for each operation, what the record says with how often it stands in the ledger."
HINTS = {
    "no_second_effect": "Look at the counts in the ledger, also of a run that waits for a person.",
    "settled_in_the_end": "Look at the state: who goes on with a task that is left queued, running or uncertain?",
}
