"""Lesson 03: a lease frees a task, and a fencing token shuts its old holder out."""

from __future__ import annotations

from functools import partial
from typing import Any

from labkit.course.calling import in_turn, refused
from labkit.course.exercises import Exercise
from labkit.course.hints import (
    FITS,
    LEFT_OPEN,
    LOOKED,
    NEW_TOKEN,
    NOT_SAID,
    NOTHING_ELSE,
    READ_THEN_WROTE,
    TABLES,
    TOKEN,
    VERSION,
    WHOSE,
    YES_OR_NO,
    of_errors,
)
from labkit.course.laws import (
    LEASE_SECONDS,
    asked,
    changes_only,
    given_back,
    granted,
    keeps_to_the_tables,
    lease_as_asked,
    leaves_nothing_open,
    leaves_others_alone,
    raises_nothing,
    says_token_or_none,
    says_yes_or_no,
    tokens_only_grow,
    what_fits_is_granted,
    yes_means,
)
from labkit.course.lessons.claim import SURPRISES
from labkit.course.rows import OTHER, RUNNING, TASK, all_but, named_after, put_down
from labkit.course.searching import Answer, Search, Setting
from labkit.explore.bench import Bench
from labkit.explore.benchworld import BenchScenario
from labkit.explore.lives import lab_works
from labkit.explore.row_laws import (
    CLAIM_LAWS,
    WORKER_LAWS,
    every_change_has_its_version,
    every_holder_has_a_new_token,
    named,
    no_worker_breaks,
    only_the_current_token,
    says_what_it_did,
    tells_its_token,
)
from labkit.explore.scenario import Scenario
from labkit.states import State

WORKED_SECONDS = 10.0
RENEW = "UPDATE tasks SET lease_expires_at = ? WHERE id = ? AND lease_token = ? AND lease_expires_at > ?"
LONGER_SECONDS, LONG_GONE_SECONDS = 45.0, 100.0
LAST_TOKEN = 1_000
"""Larger than times and versions: a token is the next one after this, and nothing else."""

NOT_RUNNING = tuple(map(named_after, all_but(State.RUNNING)))
ACQUIRE = (
    "UPDATE tasks SET state = 'running', version = version + 1, lease_owner = :name, "
    "lease_token = lease_token + 1, lease_expires_at = :now + 30 "
    "WHERE id = 'task-1' AND (state = 'queued' OR (state = 'running' AND lease_expires_at <= :now)) "
    "RETURNING lease_token"
)


def acquired(db: Any, bench: Bench) -> int | None:
    """Acquire the task as the lab's own worker does, and return the token."""
    with lab_works(), db:
        row = db.execute(ACQUIRE, {"name": bench.name, "now": bench.now()}).fetchone()
    return None if row is None else int(row[0])


TAKING_LAWS = (
    leaves_nothing_open,
    leaves_others_alone,
    only_the_current_token,
    every_holder_has_a_new_token,
    lease_as_asked,
    tells_its_token,
    every_change_has_its_version,
)
ENDING_LAWS = (
    every_change_has_its_version,
    given_back,
    changes_only("state", "version", "lease_owner", "lease_expires_at"),
)
ON_THEIR_WAY = "UPDATE tasks SET step = 4, attempts = 2, cancel_requested = 1"
TAKES_ONLY = changes_only("lease_owner", "lease_expires_at", "lease_token", "version")


def executor_gone(answer: Answer) -> Scenario:
    """The holder has died. One worker comes a second before its lease runs out, two come when it has."""

    def takes_over(db: Any, bench: Bench) -> Any:
        bench.sleep(LEASE_SECONDS - 1 if bench.name == "worker-1" else LEASE_SECONDS)
        return asked(db, bench, answer, TASK, bench.name, bench.now(), LEASE_SECONDS)

    def prepare(db: Any) -> None:
        db.executemany(RUNNING, [(TASK, 2), (OTHER, 2)])
        db.execute("UPDATE tasks SET step = 1, attempts = 1, lease_token = ?", (LAST_TOKEN,))

    laws = named(*TAKING_LAWS, TAKES_ONLY, *CLAIM_LAWS, raises_nothing, says_token_or_none)
    return BenchScenario(takes_over, prepare, laws, 3, SURPRISES, due=None, shows=("lease_token",))


def holder_renews(answer: Answer) -> Scenario:
    """The holder looks at its clock in time and renews late; another worker comes just then."""

    def works(db: Any, bench: Bench) -> Any:
        if bench.name != "worker-1":
            bench.sleep(LEASE_SECONDS)
            return asked(db, bench, answer, TASK, bench.name, bench.now(), LEASE_SECONDS)
        token = acquired(db, bench)
        bench.sleep(LEASE_SECONDS - 1)
        now = bench.now()
        bench.sleep(1)
        with db:
            db.execute(RENEW, (now + LEASE_SECONDS, TASK, token, now))
        return token

    def prepare(db: Any) -> None:
        db.execute("INSERT INTO tasks (id, kind) VALUES (?, 'refund')", (TASK,))

    laws = named(*TAKING_LAWS, says_what_it_did, raises_nothing, says_token_or_none)
    return BenchScenario(works, prepare, laws, 2, frozenset({"switch"}), due=None, shows=("lease_token",))


def long_gone(answer: Answer) -> Scenario:
    """The lease ran out long before somebody looks, who has its holder's name: the new one counts from then."""

    def takes_over(db: Any, bench: Bench) -> Any:
        bench.sleep(LONG_GONE_SECONDS)
        return granted(db, bench, answer, TASK, bench.name, bench.now(), LEASE_SECONDS)

    def prepare(db: Any) -> None:
        db.executemany(RUNNING, [(TASK, 2), (OTHER, 2)])
        db.execute("UPDATE tasks SET lease_owner = 'worker-1'")

    laws = named(*TAKING_LAWS, what_fits_is_granted, raises_nothing, says_token_or_none)
    return BenchScenario(takes_over, prepare, laws, 1, frozenset(), due=None)


def taken_again(answer: Answer) -> Scenario:
    """One worker takes a task over and may sleep through its lease; another comes when that has run out."""

    def takes_over(db: Any, bench: Bench) -> Any:
        bench.sleep(LEASE_SECONDS if bench.name == "worker-1" else LEASE_SECONDS + LONGER_SECONDS)
        return granted(db, bench, answer, OTHER, bench.name, bench.now(), LONGER_SECONDS)

    def prepare(db: Any) -> None:
        db.executemany(RUNNING, [(TASK, 2), (OTHER, 2)])

    laws = named(*TAKING_LAWS, what_fits_is_granted, says_what_it_did, raises_nothing, says_token_or_none)
    return BenchScenario(takes_over, prepare, laws, 2, frozenset({"pause"}), due=None, shows=("lease_token",))


def zombie(answer: Answer) -> Scenario:
    """A worker acquires, works for a while, and finishes; it may sleep through the end of its lease."""

    def finishes(db: Any, bench: Bench) -> None:
        token = acquired(db, bench)
        if token is not None:
            bench.sleep(WORKED_SECONDS)
            bench.say("finish", asked(db, bench, answer, TASK, token))

    def prepare(db: Any) -> None:
        db.execute("INSERT INTO tasks (id, kind) VALUES (?, 'refund')", (TASK,))

    finishing = (keeps_to_the_tables, no_worker_breaks, raises_nothing, leaves_nothing_open, tokens_only_grow)
    laws = named(*finishing, *WORKER_LAWS, yes_means("finish", State.SUCCEEDED), says_yes_or_no)
    return BenchScenario(finishes, prepare, laws, 1, frozenset({"crash", "pause", "switch"}), shows=("lease_token",))


WHOEVER = (
    "Whoever held it, and however long ago it ran out: only state and lease_expires_at count. A worker that is started "
    "again may have its old name."
)

NOT_TO_BE_TAKEN = [
    (name, "worker-1", LEASE_SECONDS, LEASE_SECONDS) for name in (*NOT_RUNNING, "task-that-is-not-there")
]
WRONG_TOKENS = [*((TASK, token) for token in (0, 2, 7)), *((name, 1) for name in NOT_RUNNING)]
both_held = partial(put_down, RUNNING, [(TASK, 2), (OTHER, 2)])
"""Two tasks are held under tokens of the same value; others do not run."""

not_running = partial(
    refused, partial(put_down, RUNNING, (), all_but(State.RUNNING)), NOT_TO_BE_TAKEN, says_token_or_none
)
wrong_token = partial(refused, partial(both_held, all_but(State.RUNNING)), WRONG_TOKENS, says_yes_or_no)


def on_their_way(db: Any) -> None:
    """Both have taken steps and attempts, and somebody wants them stopped: work that is done is done all the same."""
    both_held((), db)
    db.execute(ON_THEIR_WAY)


others_beside = partial(in_turn, on_their_way, [(True, (OTHER, 1)), (True, (TASK, 1))], ENDING_LAWS)

EXERCISES = (
    Exercise(
        "3.1",
        "take over from a worker that has gone",
        Search(
            (
                Setting("one worker comes early, two come in time", executor_gone),
                Setting("the holder renews just then", holder_renews),
                Setting("one worker after the other, and the first may sleep", taken_again),
                Setting("a lease that ran out long ago", long_gone, 0, {"what_fits_is_granted": WHOEVER}),
                Setting("tasks that do not run", not_running),
            ),
            {
                **of_errors(),
                "leaves_nothing_open": LEFT_OPEN,
                "one_says_yes": "Whose lease has run out, at the time `now`? Put that into the WHERE clause.",
                "every_holder_has_a_new_token": NEW_TOKEN,
                "only_the_current_token": "Has the lease run out by `now`? Let the UPDATE itself ask: a renewal moves "
                "lease_expires_at, and leaves the version alone.",
                "what_fits_is_granted": FITS,
                "tells_its_token": "Return the token that your UPDATE has written, by RETURNING or by a SELECT in the "
                "same transaction: after the commit somebody else can change it.",
                "says_token_or_none": "Where it is not to be had, return None itself: 0 and False look like tokens.",
                "lease_as_asked": "The owner is `worker`, and the lease ends at now + lease_seconds.",
                "says_what_it_did": NOT_SAID,
                "nothing_else_changes": NOTHING_ELSE,
                "must_be_refused": "Take a running task only. An uncertain one has a lease, too, and is not to be had "
                "here.",
                "every_change_has_its_version": VERSION,
                "leaves_others_alone": WHOSE,
            },
        ),
        (
            "When may you take a task that somebody holds? The database has the time; `now` is yours.",
            "A condition on state and lease_expires_at; a new token is lease_token + 1, and RETURNING tells it.",
            "UPDATE tasks SET lease_owner = ?, lease_expires_at = ?, lease_token = lease_token + 1, "
            "version = version + 1 WHERE id = ? AND state = 'running' AND lease_expires_at <= ? RETURNING lease_token",
        ),
    ),
    Exercise(
        "3.2",
        "finish, if the task is still yours",
        Search(
            (
                Setting("a worker that may be late", zombie),
                Setting("another task beside it", others_beside),
                Setting("tokens and tasks that do not fit", wrong_token),
            ),
            {
                **of_errors(),
                "leaves_nothing_open": LEFT_OPEN,
                "keeps_to_the_tables": TABLES,
                "what_fits_is_granted": FITS,
                "given_back": "lease_owner = NULL, lease_expires_at = NULL; the token stays as it is.",
                "nothing_else_changes": NOTHING_ELSE,
                "tokens_only_grow": "Whoever comes next must get a larger one: clear the lease, and keep the token.",
                "only_the_current_token": TOKEN,
                f"only_the_current_token: {LOOKED}": READ_THEN_WROTE,
                "must_be_refused": "Is it running, and under this token? The WHERE clause must ask for both.",
                "says_what_it_did": NOT_SAID,
                "each_call_says_what_it_did": NOT_SAID,
                "says_so": NOT_SAID,
                "says_yes_or_no": YES_OR_NO,
                "every_change_has_its_version": VERSION,
                "settled_in_the_end": "The task never ends. Does your UPDATE match the row, and is it committed?",
                "leaves_others_alone": WHOSE,
            },
        ),
        (
            "A worker that has slept believes that it still holds the task. What tells the database that it does not?",
            "The token is a number that nobody else was ever given. Compare it in the WHERE clause.",
            "UPDATE tasks SET state = 'succeeded', version = version + 1, lease_owner = NULL, lease_expires_at = NULL "
            "WHERE id = ? AND state = 'running' AND lease_token = ?; then the row count.",
        ),
    ),
)
