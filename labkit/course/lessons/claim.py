"""Lesson 02: a claim is a conditional UPDATE on state and version."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from labkit.course.calling import in_turn, refused
from labkit.course.exercises import Exercise
from labkit.course.hints import (
    BOTH_YES,
    FITS,
    GUARDS,
    LEFT_OPEN,
    NEW_TOKEN,
    NOT_SAID,
    NOTHING_ELSE,
    TABLES,
    THIS_CALL,
    VERSION,
    WHOSE,
    YES_OR_NO,
    of_errors,
)
from labkit.course.laws import (
    asked,
    changes_only,
    leaves_nothing_open,
    leaves_others_alone,
    one_call,
    raises_nothing,
    says_yes_or_no,
)
from labkit.course.rows import OTHER, QUEUED, RUNNING, TASK, all_but, named_after, put_down
from labkit.course.searching import Answer, Search, Setting
from labkit.explore.bench import Bench
from labkit.explore.benchworld import BenchScenario
from labkit.explore.row_laws import (
    decides_by_what_it_read,
    every_change_has_its_version,
    every_holder_has_a_new_token,
    moves_of,
    named,
    no_worker_breaks,
    only_the_current_token,
    says_what_it_did,
)
from labkit.explore.scenario import Scenario
from labkit.explore.sqlworld import SqlLaw, SqlRun
from labkit.states import State

INTERRUPTED_SECONDS = 10.0
SURPRISES = frozenset({"switch", "crash"})
TAKES_ONLY = changes_only("state", "version", "lease_owner", "lease_token", "lease_expires_at")


def two_want_one(answer: Answer) -> Scenario:
    """Two workers claim the one queued task; another task is queued beside it."""

    def claims(db: Any, bench: Bench) -> Any:
        return asked(db, bench, answer, TASK, 1)

    def prepare(db: Any) -> None:
        db.executemany(QUEUED, [(TASK, 1), (OTHER, 1)])

    laws = one_call(
        only_the_current_token, every_holder_has_a_new_token, every_change_has_its_version, claims_at_once, TAKES_ONLY
    )
    return BenchScenario(claims, prepare, laws, 2, SURPRISES, due=None)


def claims_at_once(run: SqlRun) -> str:
    """A claim is one change: in one commit the task is running, and all that belongs to it is there."""
    for change, _, after in moves_of(run):
        if not change.becomes("state") or after["lease_expires_at"] is None:
            return f"{change.worker} changed {after['id']}, and it was still {after['state']} after that commit"
    return ""


def three_calls(sql: str, third: tuple[str, int], *more: SqlLaw) -> Callable[[Answer], Scenario]:
    """Two tasks stand at one version. The second call comes too late; the third fits again."""
    calls = ((True, (OTHER, 3)), (False, (OTHER, 3)), (True, third))
    return partial(in_turn, partial(put_down, sql, [(TASK, 3), (OTHER, 3)], ()), calls, more)


def not_at_that(sql: str, version: int, others: Iterable[int]) -> Callable[[Answer], Scenario]:
    """The task stands at a version, and is asked for at others: it has moved on, or has never been there."""
    return partial(
        refused, partial(put_down, sql, [(TASK, version)], ()), [(TASK, one) for one in others], says_yes_or_no
    )


def in_another_state(state: State) -> Callable[[Answer], Scenario]:
    """The version is right, and the task is in another state."""
    calls = [(named_after(one), 2) for one in all_but(state)]
    return partial(refused, partial(put_down, QUEUED, (), all_but(state)), calls, says_yes_or_no)


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
        every_change_has_its_version,
        one_step_each,
        decides_by_what_it_read,
        says_what_it_did,
        somebody_goes_on,
        changes_only("step", "version"),
        no_worker_breaks,
        raises_nothing,
        says_yes_or_no,
    )
    return BenchScenario(goes_on, prepare, laws, 2, SURPRISES, due=None, shows=("step",))


def somebody_goes_on(run: SqlRun) -> str:
    """Of those who have seen the version as it stands, one goes on."""
    return "" if any(run.results.values()) or run.dead or run.errors else "nobody goes on: all were told no"


def one_step_each(run: SqlRun) -> str:
    """With every change the step grows by one."""
    for change, before, after in moves_of(run):
        if after["step"] != before["step"] + 1:
            return f"{change.worker} took {after['id']} from step {before['step']} to {after['step']}"
    return ""


HINTS = {
    "leaves_nothing_open": LEFT_OPEN,
    **of_errors(),
    "each_call_says_what_it_did": THIS_CALL,
    "what_fits_is_granted": FITS,
    "says_what_it_did": NOT_SAID,
    "says_yes_or_no": YES_OR_NO,
    "must_be_refused": GUARDS,
    "leaves_others_alone": WHOSE,
    "every_change_has_its_version": VERSION,
}

EXERCISES = (
    Exercise(
        "2.1",
        "claim a task",
        Search(
            (
                Setting("two workers want one task", two_want_one, 3),
                Setting("one worker calls three times", three_calls(QUEUED, (TASK, 3), every_holder_has_a_new_token)),
                Setting("versions that do not fit", not_at_that(QUEUED, 3, (1, 2, 4))),
                Setting("a task that is not queued", in_another_state(State.QUEUED)),
            ),
            HINTS
            | {
                "claims_at_once": "A crash falls between two commits. State, version and lease belong into one UPDATE.",
                "one_says_yes": BOTH_YES,
                "every_holder_has_a_new_token": NEW_TOKEN,
                "tokens_only_grow": NEW_TOKEN,
                "only_the_current_token": BOTH_YES,
                "keeps_to_the_tables": TABLES,
                "nothing_else_changes": NOTHING_ELSE,
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
                Setting("one worker calls three times", three_calls(RUNNING, (OTHER, 4), one_step_each)),
                Setting("the task has moved on", not_at_that(RUNNING, 5, (2, 4, 6))),
                Setting("a task that does not run", in_another_state(State.RUNNING)),
            ),
            HINTS
            | {
                "decides_by_what_it_read": "You saw one version; write only onto that one. Do not read again.",
                "somebody_goes_on": WHOSE,
                "one_step_each": "SET step = step + 1: whatever the step was, it is one more.",
                "every_change_has_its_version": "Step and version change in one UPDATE, with a comma between them: "
                "others notice a change by its version, and AND would make one value of both.",
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
