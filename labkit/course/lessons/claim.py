"""Lesson 02: a claim is a conditional UPDATE on state and version."""

from __future__ import annotations

from typing import Any

from labkit.course.exercises import Exercise
from labkit.course.laws import OTHER, TASK, leaves_others_alone, one_call, refusals
from labkit.course.searching import Answer, Search, Setting
from labkit.explore.bench import Bench
from labkit.explore.benchworld import BenchScenario
from labkit.explore.row_laws import (
    decides_by_what_it_read,
    every_change_has_its_version,
    named,
    no_worker_breaks,
    only_the_current_token,
    says_what_it_did,
)
from labkit.explore.scenario import Scenario

QUEUED = "INSERT INTO tasks (id, kind, version) VALUES (?, 'refund', ?)"
RUNNING = (
    "INSERT INTO tasks (id, kind, state, version, lease_owner, lease_token, lease_expires_at) "
    "VALUES (?, 'refund', 'running', ?, 'worker-0', 1, 30)"
)
ENDED = "INSERT INTO tasks (id, kind, state, version, lease_token) VALUES (?, 'refund', ?, 2, 1)"
ENDS = ("succeeded", "failed", "cancelled")
INTERRUPTED_SECONDS = 10.0
SURPRISES = frozenset({"switch", "crash"})


def two_want_one(answer: Answer) -> Scenario:
    """Two workers claim the one queued task; another task is queued beside it."""

    def claims(db: Any, bench: Bench) -> Any:
        return answer(db, TASK, 1)

    def prepare(db: Any) -> None:
        db.executemany(QUEUED, [(TASK, 1), (OTHER, 1)])

    laws = one_call(only_the_current_token, every_change_has_its_version)
    return BenchScenario(claims, prepare, laws, 2, SURPRISES, due=None)


def stale_version(answer: Answer) -> Scenario:
    """The task was claimed and queued again since it was read."""

    def claims(db: Any, bench: Bench) -> Any:
        return answer(db, TASK, 1)

    def prepare(db: Any) -> None:
        db.execute(QUEUED, (TASK, 3))

    return BenchScenario(claims, prepare, refusals(), 1, frozenset(), due=None)


def not_queued(answer: Answer) -> Scenario:
    """The version is right, and the task is not queued."""

    def claims(db: Any, bench: Bench) -> Any:
        return any(answer(db, f"task-{state}", 2) for state in (*ENDS, "running"))

    def prepare(db: Any) -> None:
        db.executemany(ENDED, [(f"task-{state}", state) for state in ENDS])
        db.execute(RUNNING, ("task-running", 2))

    return BenchScenario(claims, prepare, refusals(), 1, frozenset(), due=None)


def two_interrupted(answer: Answer) -> Scenario:
    """Two workers have read the same version; both were interrupted, and now both want to go on."""

    def goes_on(db: Any, bench: Bench) -> Any:
        (seen,) = db.execute("SELECT version FROM tasks WHERE id = ?", (TASK,)).fetchone()
        bench.say("read", seen)
        bench.sleep(INTERRUPTED_SECONDS)
        return answer(db, TASK, seen)

    def prepare(db: Any) -> None:
        db.executemany(RUNNING, [(TASK, 2), (OTHER, 2)])

    laws = named(
        leaves_others_alone,
        decides_by_what_it_read,
        says_what_it_did,
        every_change_has_its_version,
        one_step_each,
        no_worker_breaks,
    )
    return BenchScenario(goes_on, prepare, laws, 2, SURPRISES, due=None)


def one_step_each(run: Any) -> str:
    """The step grows by one for each worker that is told yes."""
    (step,) = run.db.execute("SELECT step FROM tasks WHERE id = ?", (TASK,)).fetchone()
    told = sum(bool(result) for result in run.results.values())
    if told <= step <= told + len(run.dead):
        return ""
    return f"{told} were told yes, and the task is at step {step}"


def moved_on(answer: Answer) -> Scenario:
    """While the worker was interrupted others have taken the task on."""

    def goes_on(db: Any, bench: Bench) -> Any:
        return answer(db, TASK, 2)

    def prepare(db: Any) -> None:
        db.execute(RUNNING, (TASK, 5))

    return BenchScenario(goes_on, prepare, refusals(), 1, frozenset(), due=None)


def no_longer_running(answer: Answer) -> Scenario:
    """The version is right, and the task does not run."""

    def goes_on(db: Any, bench: Bench) -> Any:
        return any(answer(db, f"task-{state}", 2) for state in (*ENDS, "queued"))

    def prepare(db: Any) -> None:
        db.executemany(ENDED, [(f"task-{state}", state) for state in (*ENDS, "queued")])

    return BenchScenario(goes_on, prepare, refusals(), 1, frozenset(), due=None)


BOTH_YES = "Two workers read the same row before either wrote. Put the condition into the UPDATE, not before it."
NOT_SAID = "Return what the UPDATE did: its affected-row count. And is the change committed?"
GUARDS = "Which columns must the WHERE clause compare, beside the id?"

EXERCISES = (
    Exercise(
        "2.1",
        "claim a task",
        Search(
            (
                Setting("two workers want one task", two_want_one, 3),
                Setting("a stale version", stale_version),
                Setting("a task that is not queued", not_queued),
            ),
            {
                "one_says_yes": BOTH_YES,
                "only_the_current_token": BOTH_YES,
                "says_what_it_did": NOT_SAID,
                "must_be_refused": GUARDS,
                "leaves_others_alone": "Which row does your UPDATE mean?",
                "every_change_has_its_version": "Others notice a change by its version.",
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
                Setting("the task has moved on", moved_on),
                Setting("a task that does not run", no_longer_running),
            ),
            {
                "decides_by_what_it_read": "You saw one version; write only onto that one. Do not read again.",
                "says_what_it_did": NOT_SAID,
                "must_be_refused": GUARDS,
                "leaves_others_alone": "Which row does your UPDATE mean?",
                "every_change_has_its_version": "Others notice a change by its version.",
                "one_step_each": NOT_SAID,
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
