"""Lesson 02: a claim is a conditional UPDATE on state and version."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from labkit.course.exercises import Exercise
from labkit.course.hints import (
    BOTH_YES,
    GUARDS,
    LEFT_OPEN,
    NOT_SAID,
    NOTHING_ELSE,
    RAISES,
    THIS_CALL,
    VERSION,
    YES_OR_NO,
)
from labkit.course.laws import (
    asked,
    changes_only,
    first_yes,
    in_short,
    leaves_nothing_open,
    leaves_others_alone,
    one_call,
    raises_nothing,
    refusals,
    says_yes_or_no,
)
from labkit.course.rows import OTHER, QUEUED, RUNNING, TASK, all_but, in_state, named_after
from labkit.course.searching import Answer, Search, Setting
from labkit.explore.bench import Bench
from labkit.explore.benchworld import BenchScenario
from labkit.explore.journal import Changed, Said
from labkit.explore.row_laws import (
    decides_by_what_it_read,
    every_change_has_its_version,
    moves_of,
    named,
    no_worker_breaks,
    only_the_current_token,
    says_what_it_did,
)
from labkit.explore.scenario import Scenario
from labkit.explore.sqlworld import SqlRun
from labkit.states import State

STALE_VERSIONS = (1, 2, 4)
INTERRUPTED_SECONDS = 10.0
SURPRISES = frozenset({"switch", "crash"})


def two_want_one(answer: Answer) -> Scenario:
    """Two workers claim the one queued task; another task is queued beside it."""

    def claims(db: Any, bench: Bench) -> Any:
        return asked(db, bench, answer, TASK, 1)

    def prepare(db: Any) -> None:
        db.executemany(QUEUED, [(TASK, 1), (OTHER, 1)])

    laws = one_call(only_the_current_token, every_change_has_its_version, claims_at_once)
    return BenchScenario(claims, prepare, laws, 2, SURPRISES, due=None)


def claims_at_once(run: SqlRun) -> str:
    """A claim is one change: in one commit the task is running, and all that belongs to it is there."""
    for change, _, after in moves_of(run):
        if not change.becomes("state") or after["lease_expires_at"] is None:
            return f"{change.worker} changed {after['id']}, and it was still {after['state']} after that commit"
    return ""


def several_calls(sql: str, calls: Sequence[tuple[str, int]], answer: Answer) -> Scenario:
    """One worker calls several times, for the tasks and versions of `calls`; `sql` has put two tasks down."""

    def goes_on(db: Any, bench: Bench) -> None:
        for task_id, version in calls:
            bench.say("this call", (task_id, asked(db, bench, answer, task_id, version)))

    def prepare(db: Any) -> None:
        db.executemany(sql, [(TASK, 1), (OTHER, 1)])

    laws = named(leaves_nothing_open, raises_nothing, each_call_says_what_it_did, says_yes_or_no)
    return BenchScenario(goes_on, prepare, laws, 1, frozenset(), due=None)


def each_call_says_what_it_did(run: SqlRun) -> str:
    """Of several calls by one worker each says what this very call did."""
    changed: set[str] = set()
    for one in run.log:
        if isinstance(one, Changed) and one.commit and one.after is not None:
            changed.add(one.after["id"])
        elif isinstance(one, Said) and one.what == "this call":
            task_id, said = one.value
            if bool(said) != (task_id in changed):
                did = "changed it" if task_id in changed else "did nothing"
                return f"{one.worker} called for {task_id} and is told {in_short(said)}, and this call {did}"
            changed.clear()
    return ""


def stale_version(answer: Answer) -> Scenario:
    """The task was claimed and queued again since it was read; and a version that it never had."""

    def claims(db: Any, bench: Bench) -> Any:
        return first_yes(asked(db, bench, answer, TASK, version) for version in STALE_VERSIONS)

    def prepare(db: Any) -> None:
        db.execute(QUEUED, (TASK, 3))

    return BenchScenario(claims, prepare, refusals(), 1, frozenset(), due=None)


def not_queued(answer: Answer) -> Scenario:
    """The version is right, and the task is not queued."""

    def claims(db: Any, bench: Bench) -> Any:
        return first_yes(asked(db, bench, answer, named_after(state), 2) for state in all_but(State.QUEUED))

    def prepare(db: Any) -> None:
        in_state(db, all_but(State.QUEUED))

    return BenchScenario(claims, prepare, refusals(), 1, frozenset(), due=None)


def two_interrupted(answer: Answer) -> Scenario:
    """Two workers have read the same version; both were interrupted, and now both want to go on."""

    def goes_on(db: Any, bench: Bench) -> Any:
        (seen,) = db.execute("SELECT version FROM tasks WHERE id = ?", (TASK,)).fetchone()
        bench.say("read", seen)
        bench.sleep(INTERRUPTED_SECONDS)
        return asked(db, bench, answer, TASK, seen)

    def prepare(db: Any) -> None:
        db.executemany(RUNNING, [(TASK, 2), (OTHER, 2)])
        db.execute("UPDATE tasks SET step = 4")

    laws = named(
        leaves_nothing_open,
        leaves_others_alone,
        decides_by_what_it_read,
        says_what_it_did,
        every_change_has_its_version,
        one_step_each,
        changes_only("step", "version"),
        no_worker_breaks,
        raises_nothing,
        says_yes_or_no,
    )
    return BenchScenario(goes_on, prepare, laws, 2, SURPRISES, due=None)


def one_step_each(run: SqlRun) -> str:
    """With every change the step grows by one."""
    for change, before, after in moves_of(run):
        if after["step"] != before["step"] + 1:
            return f"{change.worker} took {after['id']} from step {before['step']} to {after['step']}"
    return ""


def moved_on(answer: Answer) -> Scenario:
    """While the worker was interrupted others have taken the task on."""

    def goes_on(db: Any, bench: Bench) -> Any:
        return first_yes(asked(db, bench, answer, TASK, version) for version in (2, 4, 6))

    def prepare(db: Any) -> None:
        db.execute(RUNNING, (TASK, 5))

    return BenchScenario(goes_on, prepare, refusals(), 1, frozenset(), due=None)


def no_longer_running(answer: Answer) -> Scenario:
    """The version is right, and the task does not run."""

    def goes_on(db: Any, bench: Bench) -> Any:
        return first_yes(asked(db, bench, answer, named_after(state), 2) for state in all_but(State.RUNNING))

    def prepare(db: Any) -> None:
        in_state(db, all_but(State.RUNNING))

    return BenchScenario(goes_on, prepare, refusals(), 1, frozenset(), due=None)


EXERCISES = (
    Exercise(
        "2.1",
        "claim a task",
        Search(
            (
                Setting("two workers want one task", two_want_one, 3),
                Setting(
                    "one worker calls three times", partial(several_calls, QUEUED, ((TASK, 1), (TASK, 1), (OTHER, 1)))
                ),
                Setting("versions that do not fit", stale_version),
                Setting("a task that is not queued", not_queued),
            ),
            {
                "leaves_nothing_open": LEFT_OPEN,
                "no_worker_breaks": RAISES,
                "raises_nothing": RAISES,
                "claims_at_once": "A crash falls between two commits. State, version and lease belong into one UPDATE.",
                "each_call_says_what_it_did": THIS_CALL,
                "one_says_yes": BOTH_YES,
                "only_the_current_token": BOTH_YES,
                "says_what_it_did": NOT_SAID,
                "says_yes_or_no": YES_OR_NO,
                "must_be_refused": GUARDS,
                "leaves_others_alone": "Which row does your UPDATE mean?",
                "every_change_has_its_version": VERSION,
            },
        ),
        (
            "Two workers can both read `queued` before either of them writes. What could the UPDATE itself ask?",
            "UPDATE tasks SET ... WHERE id = ? AND version = ? AND state = 'queued': how many rows did it change?",
            "`with db: changed = db.execute(sql, (task_id, expected_version))`, and then return changed.rowcount == 1.",
        ),
    ),
    Exercise(
        "2.2",
        "back from an interruption",
        Search(
            (
                Setting("two workers were interrupted at the same version", two_interrupted, 3),
                Setting(
                    "one worker calls three times", partial(several_calls, RUNNING, ((TASK, 1), (TASK, 1), (TASK, 2)))
                ),
                Setting("the task has moved on", moved_on),
                Setting("a task that does not run", no_longer_running),
            ),
            {
                "leaves_nothing_open": LEFT_OPEN,
                "no_worker_breaks": RAISES,
                "raises_nothing": RAISES,
                "each_call_says_what_it_did": THIS_CALL,
                "decides_by_what_it_read": "You saw one version; write only onto that one. Do not read again.",
                "says_what_it_did": NOT_SAID,
                "says_yes_or_no": YES_OR_NO,
                "must_be_refused": GUARDS,
                "leaves_others_alone": "Which row does your UPDATE mean?",
                "every_change_has_its_version": VERSION,
                "one_step_each": "SET step = step + 1: whatever the step was, it is one more.",
                "nothing_else_changes": NOTHING_ELSE,
            },
        ),
        (
            "What you know is as old as `seen_version`. What must be true of the row now?",
            "A second SELECT does not help: the row can change after it too. Compare inside the UPDATE.",
            "UPDATE tasks SET step = step + 1, version = version + 1 "
            "WHERE id = ? AND version = ? AND state = 'running'; then the row count.",
        ),
    ),
)
