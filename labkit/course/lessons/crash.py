"""Lesson 04: a checkpoint is one transaction, and a crash falls into a gap between two."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from labkit.course.calling import in_turn, refused
from labkit.course.exercises import Exercise
from labkit.course.gap_trials import try_gaps
from labkit.course.hints import (
    FITS,
    LEFT_OPEN,
    LOOKED,
    NOT_SAID,
    NOTHING_ELSE,
    READ_THEN_WROTE,
    TOKEN,
    VERSION,
    WHOSE,
    YES_OR_NO,
    of_errors,
)
from labkit.course.laws import (
    asked,
    changes_only,
    checkpoint_says_so,
    keeps_the_result,
    keeps_to_the_tables,
    leaves_nothing_open,
    raises_nothing,
    says_yes_or_no,
    tokens_only_grow,
)
from labkit.course.lessons.lease import acquired
from labkit.course.rows import OTHER, RUNNING, TASK, all_but, in_state, named_after
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
CHECKPOINTED = ("step", "version", "lease_expires_at")
"""What may change in a task's row: one may renew the lease. Nothing was spent of its budgets, so to start them anew, as
the lab's own checkpoint does, changes nothing here."""

NOT_RUNNING = tuple(map(named_after, all_but(State.RUNNING)))
SENDING_SECONDS = 10.0
TOKEN_TOO = ("lease_token",)


def _with_operations(db: Any, names: Sequence[str], *tasks: str) -> None:
    for task in tasks:
        rows = [{"task": task, "name": name, "position": place} for place, name in enumerate(names)]
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
        _with_operations(db, OPERATIONS, TASK)

    laws = named(
        keeps_to_the_tables,
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
    return BenchScenario(works, prepare, laws, 1, frozenset({"crash", "pause"}), remotes=keys, shows=TOKEN_TOO)


def both_held(db: Any) -> None:
    """Two tasks are held under tokens of the same value, and one has a result; somebody wants both stopped."""
    db.executemany(RUNNING, [(TASK, 4), (OTHER, 4)])
    _with_operations(db, OPERATIONS, TASK, OTHER)
    done = "UPDATE operations SET status = 'done', result_ref = 'payments-1' WHERE operation_id = ?"
    db.execute(done, (f"{TASK}/refund",))
    db.execute("UPDATE tasks SET step = 1 WHERE id = ?", (TASK,))
    db.execute("UPDATE tasks SET cancel_requested = 1")


def none_runs(db: Any) -> None:
    """A task in every state but running."""
    in_state(db, all_but(State.RUNNING))
    _with_operations(db, OPERATIONS[:1], *NOT_RUNNING)


FITTING = (True, (OTHER, 1, f"{OTHER}/refund", "payments-1"))
NOT_FITTING = [
    *((TASK, token, f"{TASK}/shipping", "payments-9") for token in (0, 2)),
    *((TASK, 1, name, "payments-9") for name in (f"{TASK}/refund", f"{OTHER}/shipping", f"{TASK}/not-there")),
]
NOT_HELD = [(name, 1, f"{name}/refund", "payments-9") for name in NOT_RUNNING]
CHECKPOINT_LAWS = (every_change_has_its_version, result_and_step_in_one_commit, changes_only(*CHECKPOINTED))
others_beside = partial(in_turn, both_held, [FITTING], CHECKPOINT_LAWS)
does_not_fit = partial(refused, both_held, NOT_FITTING, says_yes_or_no)
not_running = partial(refused, none_runs, NOT_HELD, says_yes_or_no)

EXERCISES = (
    Exercise(
        "4.1",
        "a checkpoint",
        Search(
            (
                Setting("a worker that may die or sleep anywhere", works_through),
                Setting("another task beside it", others_beside),
                Setting("what does not fit", does_not_fit),
                Setting("tasks that do not run", not_running),
            ),
            {
                **of_errors(),
                "result_and_step_in_one_commit": "Both or neither: a crash can fall between two transactions, and an "
                "UPDATE can change no row at all. How many have you, and do you look?",
                f"result_and_step_in_one_commit: {LOOKED}": READ_THEN_WROTE,
                "only_the_current_token": TOKEN,
                f"only_the_current_token: {LOOKED}": READ_THEN_WROTE,
                "must_be_refused": "What must hold before anything is written: state, token, this task's own "
                "operation, no result yet? And a `return` within `with db:` commits what was written before it.",
                "every_change_has_its_version": VERSION,
                "checkpoint_says_so": NOT_SAID,
                "leaves_nothing_open": LEFT_OPEN,
                "nothing_else_changes": NOTHING_ELSE,
                "says_what_it_did": NOT_SAID,
                "each_call_says_what_it_did": NOT_SAID,
                "keeps_to_the_tables": "A CHECK in schema.sql says: an operation has a result_ref exactly where it is "
                "done.",
                "what_fits_is_granted": FITS,
                "says_yes_or_no": YES_OR_NO,
                "keeps_the_result": "The result is the remote's own reference; keep it as it is.",
                "settled_in_the_end": "The work never ends. Is the change committed, and does it match the rows?",
                "leaves_others_alone": WHOSE,
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
