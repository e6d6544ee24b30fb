"""Exercises the other way round: a student's law must accept the right programs and catch the wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from labkit.agent import REMOTES, plan
from labkit.course.searching import as_steps
from labkit.course.story import Step, story_of
from labkit.course.submission import NotAttempted, Submission, Unfit, what_it_did
from labkit.course.trials import Trial
from labkit.explore.laws import LAWS, Record
from labkit.explore.programs import LabWorker
from labkit.explore.search import explore
from labkit.explore.world import TaskScenario
from labkit.remote import Capabilities

ALLOWED = frozenset({"crash", "response_lost", "late", "cancel"})
NEITHER = {name: Capabilities() for name in REMOTES}
QUERY = {name: Capabilities(status_query=True) for name in REMOTES}


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
)


def _program(one: Program) -> Callable[..., Any]:
    return _leaves_doubts if one.policy == "leaves_doubts" else LabWorker(one.policy)


def _leaves_doubts(task_id: str, store: Any, remotes: Any) -> Any:
    """Work as the lab's worker does, and let go of what is in doubt."""
    if store.get(task_id).in_doubt is None:
        LabWorker("by_capability")(task_id, store, remotes)


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
        return Trial(
            False,
            found["schedules"],
            found["happened"],
            run=found["run"],
            story=story_of([Step(**step) for step in found["steps"]]),
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
    totals: dict[str, Any] = {"schedules": 0, "happened": {}, "broke": "", "run": "", "steps": [], "hint": ""}
    for program in (*RIGHT, *WRONG):
        scenario = _scenario(program, {"yours": _asking(law)})
        shown = explore(scenario, 1)
        totals["schedules"] += shown.schedules
        for kind, count in shown.happened.items():
            totals["happened"][kind] = totals["happened"].get(kind, 0) + count
        if program in RIGHT and shown.failure is not None:
            return totals | _seen(scenario, shown.failure.schedule, "accepts_the_right", f"{program.title} is refused")
        if program in WRONG and shown.failure is None:
            slipped = _scenario(program, LAWS)
            failure = explore(slipped, 1).failure
            assert failure is not None, "a wrong program breaks a law of the lab"
            run = f"{program.title} slips through; the lab's own law against it is {failure.law}: {failure.how}"
            return totals | _seen(slipped, failure.schedule, "catches_the_wrong", run)
    return totals


def _scenario(program: Program, laws: Mapping[str, Callable[[Record], str]]) -> TaskScenario:
    operations = tuple(plan()[:1])
    return TaskScenario(
        _program(program), operations, program.remotes, allowed=ALLOWED, person=program.person, laws=laws
    )


def _asking(law: Callable[[FinishedRun], Any]) -> Callable[[Record], str]:
    def asked(record: Record) -> str:
        statuses = {one.id: str(one.status) for one in record.task.operations}
        run = FinishedRun(str(record.task.state), MappingProxyType(statuses), MappingProxyType(dict(record.effects)))
        try:
            said = law(run)
        except NotImplementedError:
            raise NotAttempted from None
        except (Exception, SystemExit) as error:  # whatever a student's code raises is an answer to the check
            raise Unfit(f"Asked about a run that ended {run.state}, it {what_it_did(error)}.") from None
        if not isinstance(said, bool):
            raise Unfit(
                f"Asked about a run that ended {run.state}, it returned {type(said).__name__}, not True or False."
            )
        return "" if said else "refused"

    return asked


def _seen(scenario: TaskScenario, schedule: Any, broke: str, run: str) -> dict[str, Any]:
    hint = (
        "A run may end well, end stopped, or wait for a person: look at the state before you refuse."
        if broke == "accepts_the_right"
        else "Compare, for each operation, what the record says with how often it stands in the ledger."
    )
    return {"broke": broke, "run": run, "hint": hint, "steps": [vars(one) for one in as_steps(scenario, schedule)]}
