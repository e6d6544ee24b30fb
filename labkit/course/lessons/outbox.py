"""Lesson 08: a change and its message are one transaction; messages are delivered at least once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labkit.course.calling import in_turn
from labkit.course.exercises import Exercise
from labkit.course.hints import (
    BREAKS,
    FITS,
    GUARDS,
    LEFT_OPEN,
    NOT_SAID,
    NOTHING_ELSE,
    TOKEN,
    VERSION,
    WHOSE,
    YES_OR_NO,
    of_errors,
)
from labkit.course.laws import (
    asked,
    first_yes,
    keeps_to_the_tables,
    leaves_nothing_open,
    must_be_refused,
    raises_nothing,
    refusals,
    says_yes_or_no,
    tokens_only_grow,
    yes_means,
)
from labkit.course.lessons.crash import FINISH
from labkit.course.lessons.lease import ENDING_LAWS, ON_THEIR_WAY, acquired
from labkit.course.outbox_laws import (
    announced_as_given,
    announces_only_what_happened,
    both_or_neither,
    every_end_has_its_message,
    message,
    messages_stay,
    no_message,
)
from labkit.course.relays import WAITING, delivering, many_wait, refused_once, two_relays, written_meanwhile
from labkit.course.rows import OTHER, RUNNING, TASK, all_but, in_state, named_after
from labkit.course.searching import Answer, Search, Setting
from labkit.explore.bench import Bench
from labkit.explore.benchworld import BenchScenario
from labkit.explore.message_laws import every_end_is_announced
from labkit.explore.row_laws import WORKER_LAWS, named, no_worker_breaks, says_what_it_did
from labkit.explore.scenario import Scenario
from labkit.states import State

WORKED_SECONDS = 10.0


def ends_and_tells(answer: Answer) -> Scenario:
    """A worker acquires, works for a while, ends the task and announces it; it may die or sleep anywhere."""

    def works(db: Any, bench: Bench) -> None:
        token = acquired(db, bench)
        if token is not None:
            bench.sleep(WORKED_SECONDS)
            bench.say("finish", asked(db, bench, answer, TASK, token, message(TASK)))

    def prepare(db: Any) -> None:
        db.execute("INSERT INTO tasks (id, kind) VALUES (?, 'refund')", (TASK,))

    calling = (keeps_to_the_tables, no_worker_breaks, raises_nothing, leaves_nothing_open, tokens_only_grow)
    announced = (every_end_is_announced, announced_as_given)
    told = (yes_means("finish", State.SUCCEEDED), says_yes_or_no)
    laws = named(announces_only_what_happened, *calling, *announced, *WORKER_LAWS, *told)
    return BenchScenario(works, prepare, laws, 1, frozenset({"crash", "pause"}))


def another_task(answer: Answer) -> Scenario:
    """Two tasks are held under tokens of the same value, and messages of both were written before."""

    def prepare(db: Any) -> None:
        db.executemany(RUNNING.replace(", 1, 30)", ", 2, 30)"), [(TASK, 2), (OTHER, 2)])
        db.execute(ON_THEIR_WAY)
        db.executemany(WAITING, [(f"{task_id}/begun", task_id, 0) for task_id in (TASK, OTHER)])

    calls = [(True, (task_id, 2, message(task_id))) for task_id in (OTHER, TASK)]
    laws = (announced_as_given, every_end_has_its_message, messages_stay, *ENDING_LAWS)
    return in_turn(prepare, calls, laws, answer)


def refused_by_the_outbox(answer: Answer) -> Scenario:
    """The id of the message is taken, by another task's: the outbox refuses it, and so the task must not end."""

    def works(db: Any, bench: Bench) -> Any:
        return asked(db, bench, answer, TASK, 1, message(TASK))

    def prepare(db: Any) -> None:
        db.executemany(RUNNING, [(TASK, 2), (OTHER, 2)])
        db.execute(WAITING, (message(TASK)["message_id"], OTHER, 0))

    laws = named(both_or_neither, leaves_nothing_open, says_what_it_did, says_yes_or_no)
    return BenchScenario(works, prepare, laws, 1, frozenset(), due=None)


def ended_before(answer: Answer) -> Scenario:
    """The task has ended under this very token, and its message is there; the outbox may refuse it, with an error."""

    def works(db: Any, bench: Bench) -> Any:
        return asked(db, bench, answer, OTHER, 1, message(OTHER))

    def prepare(db: Any) -> None:
        db.executemany(RUNNING, [(TASK, 2), (OTHER, 2)])
        db.execute(FINISH, (OTHER, 1))
        db.execute(WAITING, (message(OTHER)["message_id"], OTHER, 0))

    laws = named(messages_stay, must_be_refused, leaves_nothing_open, says_yes_or_no)
    return BenchScenario(works, prepare, laws, 1, frozenset(), due=None)


def not_mine(answer: Answer) -> Scenario:
    """Tokens that are not current, and tasks that nobody holds: neither a change nor a message."""

    def works(db: Any, bench: Bench) -> Any:
        calls = [(TASK, token) for token in (0, 2)] + [(named_after(state), 1) for state in all_but(State.RUNNING)]
        return first_yes(asked(db, bench, answer, *call, message(call[0])) for call in calls)

    def prepare(db: Any) -> None:
        db.executemany(RUNNING, [(TASK, 2), (OTHER, 2)])
        in_state(db, all_but(State.RUNNING))

    return BenchScenario(works, prepare, {**refusals(), "no_message": no_message}, 1, frozenset(), due=None)


AGAIN = "What was done before is not done by this call: its UPDATE has changed no row."
ONE_COMMIT = "A crash can fall between two commits. Is the message in the transaction of the change?"
MEANWHILE = "Mark what was published, by its message_id, and nothing else: others have written since."
ORDER = "Which comes first, publish or the mark? Try a crash between the two, for both orders."
REFUSED = (
    "publish raised: what did you do with that? Where it raises, neither mark that message nor publish the next one."
)
REFUSES: Mapping[str, str] = dict.fromkeys(("every_message_is_handed_over", "in_order", "marked", "counts"), REFUSED)

EXERCISES = (
    Exercise(
        "8.1",
        "change and announce",
        Search(
            (
                Setting("a worker that may die or sleep anywhere", ends_and_tells),
                Setting("two tasks, one after the other", another_task),
                Setting("a message that the outbox refuses", refused_by_the_outbox),
                Setting("a task that has ended, and said so", ended_before, 0, {"must_be_refused": AGAIN}),
                Setting("what is not its own", not_mine),
            ),
            {
                **of_errors(),
                "leaves_nothing_open": LEFT_OPEN,
                "tokens_only_grow": "Clear owner and expiry, and keep the token.",
                "announced_as_given": "Write each field of the message as it came to you, and the id of this task. "
                "Consumers know a message again by its id.",
                "every_end_is_announced": ONE_COMMIT,
                "every_end_has_its_message": "The message goes with the task that this call is for, whatever stands in "
                "the outbox already.",
                "messages_stay": "What the outbox held before is not this call's to change.",
                "given_back": "lease_owner = NULL, lease_expires_at = NULL; the token stays as it is.",
                "nothing_else_changes": NOTHING_ELSE,
                "leaves_others_alone": WHOSE,
                "what_fits_is_granted": f"{FITS} Whose row is it?",
                "each_call_says_what_it_did": NOT_SAID,
                "announces_only_what_happened": "Did this UPDATE change a row? Its row count says whether there is "
                "anything to announce; and a crash can fall between two commits.",
                "both_or_neither": "The INSERT is refused, and what of the UPDATE? Let the error out of the `with "
                "db:`: that rolls both back.",
                "no_message": "The row count of the UPDATE says whether there is anything to announce.",
                "must_be_refused": f"{GUARDS} The token alone is not enough: it stays when the task has ended.",
                "only_the_current_token": TOKEN,
                "every_change_has_its_version": VERSION,
                "says_so": NOT_SAID,
                "says_yes_or_no": YES_OR_NO,
                "says_what_it_did": "True only where this call has changed the task: that its message is known already "
                "says nothing about that.",
                "settled_in_the_end": "The task never ends. Does your UPDATE match the row, and is it committed?",
                "keeps_to_the_tables": "The outbox takes each message_id once; and an ended task has no lease.",
                "no_worker_breaks": BREAKS,
            },
        ),
        (
            "Two rows: the task's and the message's. What does a crash between two commits leave?",
            "In one `with db:`: the UPDATE of exercise 3.2, and, if it changed a row, an INSERT INTO outbox.",
            "INSERT INTO outbox (message_id, task_id, topic, payload, created_at) VALUES (...) in the same `with db:`, "
            "after changed.rowcount == 1.",
        ),
    ),
    Exercise(
        "8.2",
        "a relay",
        Search(
            (
                Setting("relays that may die anywhere", delivering),
                Setting("two relays at once", two_relays),
                Setting("many messages", many_wait, 0),
                Setting(
                    "a message written meanwhile", written_meanwhile, hints={"every_message_is_handed_over": MEANWHILE}
                ),
                Setting("a consumer that refuses once", refused_once, hints=REFUSES),
            ),
            {
                "leaves_nothing_open": LEFT_OPEN,
                "every_message_is_handed_over": ORDER,
                "every_message_keeps_its_id": "Publish the message_id as it stands: the consumer knows it by that.",
                "in_order": "Rows come in no order of their own, and ids and times need not grow: ORDER BY seq.",
                "leaves_none_waiting": "One call hands over all that waits, one message after the other.",
                "marked": "What was handed over is marked: delivered_at. Is that committed? Does a later call find it?",
                "none_is_deleted": "Mark it, and leave the row where it is: what was said to whom is history too.",
                "only_the_mark_changes": "UPDATE outbox SET delivered_at = 0: nothing else of the row.",
                "none_comes_again": "It was marked before this call began: WHERE delivered_at IS NULL.",
                "counts": "Return the number of messages that you have published.",
                "no_worker_breaks": "Is a SELECT still being read when you write? Others wrote since: fetchall first.",
            },
        ),
        (
            "At least once means: rather twice than never. Which of publish and mark comes first, then?",
            "SELECT message_id FROM outbox WHERE delivered_at IS NULL ORDER BY seq; for each: publish, then mark.",
            "for (message_id,) in rows: publish(message_id); with db: UPDATE outbox SET delivered_at = 0 WHERE "
            "message_id = ?. Return len(rows).",
        ),
    ),
)
