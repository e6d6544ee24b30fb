"""Lesson 04: a checkpoint is one transaction, and a crash falls into a gap between two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from labkit.course.exercises import Exercise
from labkit.course.laws import (
    OTHER,
    TASK,
    checkpoint_says_so,
    committed_when_told,
    keeps_the_result,
    must_be_refused,
    one_call,
)
from labkit.course.lessons.claim import NOT_SAID, RUNNING
from labkit.course.lessons.lease import TOKEN, VERSION, acquired
from labkit.course.scenes import after_crash_at, crossings
from labkit.course.searching import Answer, Search, Setting
from labkit.course.submission import Submission, Unfit, what_it_did
from labkit.course.trials import WIDTH, Trial
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
from labkit.show.tables import TextTable

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
            said = answer(db, TASK, token, operation_id, receipt.reference)
            bench.say("open" if db.in_transaction else "checkpoint", (operation_id, said))
            if not said:
                return
        with db:
            db.execute(FINISH, (TASK, token))

    def prepare(db: Any) -> None:
        db.execute("INSERT INTO tasks (id, kind) VALUES (?, 'refund')", (TASK,))
        _with_operations(db, TASK)

    laws = named(
        no_worker_breaks,
        committed_when_told,
        result_and_step_in_one_commit,
        keeps_the_result,
        *WORKER_LAWS,
        checkpoint_says_so,
    )
    keys = {"payments": Capabilities(idempotency_keys=True)}
    return BenchScenario(works, prepare, laws, 1, frozenset({"crash", "pause"}), remotes=keys)


def does_not_fit(answer: Answer) -> Scenario:
    """Old tokens, tasks that nobody holds, and an operation that has its result already."""

    def works(db: Any, bench: Bench) -> Any:
        told = [answer(db, TASK, token, f"{TASK}/shipping", "payments-9") for token in (0, 2)]
        told.append(answer(db, TASK, 1, f"{TASK}/refund", "payments-9"))
        return any([*told, answer(db, "queued", 1, "queued/refund", "payments-9")])

    def prepare(db: Any) -> None:
        db.execute(RUNNING, (TASK, 4))
        db.execute("INSERT INTO tasks (id, kind, version, lease_token) VALUES ('queued', 'refund', 3, 1)")
        _with_operations(db, TASK, "queued")
        done = "UPDATE operations SET status = 'done', result_ref = 'payments-1' WHERE operation_id = ?"
        db.execute(done, (f"{TASK}/refund",))
        db.execute("UPDATE tasks SET step = 1 WHERE id = ?", (TASK,))

    return BenchScenario(works, prepare, named(must_be_refused), 1, frozenset(), due=None)


def others_beside(answer: Answer) -> Scenario:
    """Another task with the same operations is held under a token of the same value."""

    def works(db: Any, bench: Bench) -> Any:
        return answer(db, TASK, 1, f"{TASK}/refund", "payments-1")

    def prepare(db: Any) -> None:
        db.executemany(RUNNING, [(TASK, 2), (OTHER, 2)])
        _with_operations(db, TASK, OTHER)

    laws = one_call(every_change_has_its_version, result_and_step_in_one_commit)
    return BenchScenario(works, prepare, laws, 1, frozenset(), due=None)


GAPS = ("start", "claim", "intend", "send", "checkpoint", "succeed")


@cache
def gaps() -> Mapping[str, str]:
    """What the database says after a crash right behind each crossing of a refund by the lab's worker."""
    found = {}
    for name in crossings(1):
        task = after_crash_at(name, 1).task
        found[name.partition(" ")[0]] = f"{task.state}: {task.operations[0].standing}"
    return found


def told_gaps(answer: Callable[[], Any]) -> dict[str, str]:
    """Ask an answer for its predictions.

    Raises:
        Unfit: it raised something, or returned no such dict.
    """
    try:
        told = answer()
    except NotImplementedError:
        raise
    except (Exception, SystemExit) as error:  # whatever a student's code raises is an answer to the check
        raise Unfit(f"It {what_it_did(error)}.") from None
    if not isinstance(told, dict) or set(told) != set(GAPS) or not all(isinstance(one, str) for one in told.values()):
        found = f"keys {', '.join(sorted(map(str, told)))}" if isinstance(told, dict) else type(told).__name__
        raise Unfit(f"It must return a dict of texts with the keys {', '.join(GAPS)}; found: {found}.")
    return {gap: " ".join(told[gap].lower().split()) for gap in GAPS}


def try_gaps(submission: Submission) -> Trial:
    """Crash a worker at every gap and compare what the database says with what was predicted."""
    told, seen = submission.run(told_gaps), gaps()
    wrong = [gap for gap in GAPS if told[gap] != seen[gap]]
    crashes = {"crash": len(GAPS)}
    if not wrong:
        return Trial(True, len(GAPS), crashes, (f"a crash behind each of {len(GAPS)} crossings, each as predicted",))
    rows = tuple((gap, told[gap], seen[gap], "" if told[gap] == seen[gap] else "<- another") for gap in GAPS)
    return Trial(
        False,
        len(GAPS),
        crashes,
        run=f"{len(wrong)} of {len(GAPS)} crashes left something else behind, the first one behind: {wrong[0]}",
        story=TextTable(("crash behind", "predicted", "the database says", ""), rows, width=WIDTH),
        law="as_predicted",
        broke=f"The database says what was committed, and nothing else. Behind {wrong[0]}: {seen[wrong[0]]}.",
        hint=HINT_BY_GAP[wrong[0]],
    )


HINT_BY_GAP = {
    "start": "The worker has done nothing yet; who has written the task's first row?",
    "claim": "A claim is committed, and says nothing about the refund.",
    "intend": "An intent without a result: what is such an operation called?",
    "send": "Sending writes into the ledger of somebody else. What of that can our database know?",
    "checkpoint": "The result is on record. Has the task ended?",
    "succeed": "The last transaction has happened.",
}

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
                "must_be_refused": "What must hold before anything is written: state, token, no result yet? And a "
                "`return` within `with db:` commits what was written before it.",
                "every_change_has_its_version": VERSION,
                "checkpoint_says_so": NOT_SAID,
                "committed_when_told": "Your transaction is still open when you return. What ends it?",
                "says_what_it_did": NOT_SAID,
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
            "(SELECT 1 FROM operations WHERE operation_id = ? AND status = 'pending'); if it changed one row, UPDATE "
            "operations SET status = 'done', result_ref = ?.",
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
