"""Lesson 04: a checkpoint is one transaction, and a crash falls into a gap between two."""

from __future__ import annotations

from typing import Any

from labkit.course.exercises import Exercise
from labkit.course.gap_trials import try_gaps
from labkit.course.hints import LEFT_OPEN, NOT_SAID, NOTHING_ELSE, RAISES, TOKEN, VERSION, YES_OR_NO
from labkit.course.laws import (
    asked,
    changes_only,
    checkpoint_says_so,
    first_yes,
    keeps_the_result,
    leaves_nothing_open,
    must_be_refused,
    one_call,
    raises_nothing,
    says_yes_or_no,
    tokens_only_grow,
)
from labkit.course.lessons.lease import acquired
from labkit.course.rows import OTHER, RUNNING, TASK, in_state, named_after
from labkit.course.searching import Answer, Search, Setting
from labkit.explore.bench import Bench
from labkit.explore.benchworld import BenchScenario
from labkit.explore.row_laws import (
    WORKER_LAWS,
    every_change_has_its_version,
    named,
    no_worker_breaks,
    result_and_step_in_one_commit,
)
from labkit.explore.scenario import Scenario
from labkit.remote import Capabilities
from labkit.states import State

OPERATIONS = ("refund", "shipping")
OPERATION = (
    "INSERT INTO operations (operation_id, task_id, name, position, remote, request) "
    "VALUES (:task || '/' || :name, :task, :name, :position, 'payments', '{}')"
)
FINISH = (
    "UPDATE tasks SET state = 'succeeded', version = version + 1, lease_owner = NULL, lease_expires_at = NULL "
    "WHERE id = ? AND state = 'running' AND lease_token = ?"
)
PENDING = "SELECT operation_id FROM operations WHERE task_id = ? AND status = 'pending' ORDER BY position"
CHECKPOINTED = ("step", "version", "attempts", "first_attempt_at", "next_run_at", "error_category", "lease_expires_at")
"""What a checkpoint may write into a task's row; the lab's own starts the budgets anew, and one may renew the lease."""

NOT_RUNNING = (State.QUEUED, State.UNCERTAIN, State.SUCCEEDED, State.CANCELLED)
SENDING_SECONDS = 10.0


def _with_operations(db: Any, *tasks: str) -> None:
    for task in tasks:
        rows = [{"task": task, "name": name, "position": place} for place, name in enumerate(OPERATIONS)]
        db.executemany(OPERATION, rows)


def works_through(answer: Answer) -> Scenario:
    """A worker sends both operations under their keys and records each result; it may die or sleep anywhere."""

    def works(db: Any, bench: Bench) -> None:
        token = acquired(db, bench)
        if token is None:
            return
        for (operation_id,) in db.execute(PENDING, (TASK,)).fetchall():
            bench.sleep(SENDING_SECONDS)
            receipt = bench.remotes["payments"].send(operation_id, {}, f"{operation_id}#{token}", operation_id)
            bench.say("reference", (operation_id, receipt.reference))
            said = asked(db, bench, answer, TASK, token, operation_id, receipt.reference)
            bench.say("checkpoint", (operation_id, said))
            if not said:
                return
        with db:
            db.execute(FINISH, (TASK, token))

    def prepare(db: Any) -> None:
        db.execute("INSERT INTO tasks (id, kind) VALUES (?, 'refund')", (TASK,))
        _with_operations(db, TASK)

    laws = named(
        no_worker_breaks,
        raises_nothing,
        leaves_nothing_open,
        tokens_only_grow,
        result_and_step_in_one_commit,
        keeps_the_result,
        *WORKER_LAWS,
        checkpoint_says_so,
        says_yes_or_no,
    )
    keys = {"payments": Capabilities(idempotency_keys=True)}
    return BenchScenario(works, prepare, laws, 1, frozenset({"crash", "pause"}), remotes=keys)


def does_not_fit(answer: Answer) -> Scenario:
    """Old tokens, tasks that do not run, an operation that has its result, and one that is another task's."""

    def works(db: Any, bench: Bench) -> Any:
        calls = [(TASK, token, f"{TASK}/shipping") for token in (0, 2)]
        calls += [(TASK, 1, name) for name in (f"{TASK}/refund", f"{OTHER}/shipping", f"{TASK}/not-there")]
        calls += [(name, 1, f"{name}/refund") for name in map(named_after, NOT_RUNNING)]
        return first_yes(asked(db, bench, answer, *call, "payments-9") for call in calls)

    def prepare(db: Any) -> None:
        db.executemany(RUNNING, [(TASK, 4), (OTHER, 4)])
        in_state(db, NOT_RUNNING)
        _with_operations(db, TASK, OTHER)
        for name in map(named_after, NOT_RUNNING):
            db.execute(OPERATION, {"task": name, "name": OPERATIONS[0], "position": 0})
        done = "UPDATE operations SET status = 'done', result_ref = 'payments-1' WHERE operation_id = ?"
        db.execute(done, (f"{TASK}/refund",))
        db.execute("UPDATE tasks SET step = 1 WHERE id = ?", (TASK,))

    return BenchScenario(
        works,
        prepare,
        named(must_be_refused, leaves_nothing_open, raises_nothing, says_yes_or_no),
        1,
        frozenset(),
        due=None,
    )


def others_beside(answer: Answer) -> Scenario:
    """Another task with the same operations is held under a token of the same value."""

    def works(db: Any, bench: Bench) -> Any:
        return asked(db, bench, answer, TASK, 1, f"{TASK}/refund", "payments-1")

    def prepare(db: Any) -> None:
        db.executemany(RUNNING, [(TASK, 2), (OTHER, 2)])
        _with_operations(db, TASK, OTHER)

    laws = one_call(every_change_has_its_version, result_and_step_in_one_commit, changes_only(*CHECKPOINTED))
    return BenchScenario(works, prepare, laws, 1, frozenset(), due=None)


EXERCISES = (
    Exercise(
        "4.1",
        "a checkpoint",
        Search(
            (
                Setting("a worker that may die or sleep anywhere", works_through),
                Setting("what does not fit", does_not_fit),
                Setting("another task beside it", others_beside),
            ),
            {
                "result_and_step_in_one_commit": "Both or neither: a crash can fall between two transactions, and an "
                "UPDATE can change no row at all. How many have you, and do you look?",
                "only_the_current_token": TOKEN,
                "must_be_refused": "What must hold before anything is written: state, token, this task's own "
                "operation, no result yet? And a `return` within `with db:` commits what was written before it.",
                "every_change_has_its_version": VERSION,
                "checkpoint_says_so": NOT_SAID,
                "leaves_nothing_open": LEFT_OPEN,
                "nothing_else_changes": NOTHING_ELSE,
                "no_worker_breaks": RAISES,
                "raises_nothing": RAISES,
                "says_what_it_did": NOT_SAID,
                "says_yes_or_no": YES_OR_NO,
                "keeps_the_result": "The result is the remote's own reference; keep it as it is.",
                "settled_in_the_end": "The work never ends. Is the change committed, and does it match the rows?",
                "leaves_others_alone": "Which rows do your UPDATEs mean?",
                "record_and_ledger_agree": "A result may go on record only where the step does too, and only once.",
            },
        ),
        (
            "Two tables change: the operation's result, the task's step and version. What if you die in between?",
            "One `with db:` around both UPDATEs; the first one asks for state and token, and its row count decides.",
            "with db: UPDATE tasks ... step + 1 ... WHERE id = ? AND state = 'running' AND lease_token = ? AND EXISTS "
            "(SELECT 1 FROM operations WHERE operation_id = ? AND task_id = ? AND status = 'pending'); if that changed "
            "a row, UPDATE operations SET status = 'done', result_ref = ?.",
        ),
    ),
    Exercise(
        "4.2",
        "what does the database say after a crash here?",
        try_gaps,
        (
            "Only what was committed before the crash is there. Go through the transactions one by one.",
            "From `intend` on there is an attempt without a known outcome; a checkpoint ends that.",
            "queued: pending - running: pending - running: in doubt, twice - running: done - succeeded: done.",
        ),
    ),
)
