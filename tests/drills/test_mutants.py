"""Every guard of the store's SQL taken away, one at a time: a test fails, or a line below says why none can."""

import json
import sys

import pytest

from drills.judging import TESTS_OF
from drills.mutating import SCHEMAS, mutants
from drills.programs import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")

SURVIVORS = {
    **dict.fromkeys(
        (
            "acquiring.py _CANDIDATES CLAIM: without ORDER BY next_run_at , id",
            "acquiring.py _CANDIDATES TAKE_OVER: without ORDER BY lease_expires_at , id",
            "outbox.py undelivered: without ORDER BY seq",
            "remote.py effects: without ORDER BY operation_id",
            "remote.py requests: without ORDER BY seq",
            "store.py _OPERATIONS: without ORDER BY direction , position",
            "store.py _ATTEMPTS: without ORDER BY direction , position , n",
            "store.py _same_task: without ORDER BY position",
            "store.py history: without ORDER BY seq",
            "store.py transcript: without ORDER BY n",
        ),
        "the index that SQLite takes has the rows in this order; only the clause promises it",
    ),
    **dict.fromkeys(
        (
            "acquiring.py _CANDIDATES CLAIM: without LIMIT 1",
            "acquiring.py _CANDIDATES TAKE_OVER: without LIMIT 1",
        ),
        "only the first row is read; the clause says so to a reader",
    ),
    **dict.fromkeys(
        (
            "guards.py GUARDS NO_CANCEL: without AND direction = 'do'",
            "guards.py GUARDS CANCEL_REQUESTED: without AND direction = 'do'",
            "holding.py _WHAT_FOLLOWS: without AND direction = 'do'",
        ),
        "compensating clears the request and an undo cannot be cancelled: a second line of defence",
    ),
    **dict.fromkeys(
        (
            "schema.sql tasks_due: without AND NOT ( cancel_requested AND direction = 'do' )",
            "schema.sql tasks_due: without state = 'queued' AND",
            "schema.sql tasks_held: without WHERE state IN ( 'running' , 'uncertain' )",
            "schema.sql outbox_undelivered: without WHERE delivered_at IS NULL",
        ),
        "an index of more rows finds the same ones, only slower",
    ),
    **dict.fromkeys(
        (
            "schema.sql attempts.operation_id: without NOT NULL",
            "schema.sql attempts.n: without NOT NULL",
            "schema.sql messages.task_id: without NOT NULL",
            "schema.sql messages.n: without NOT NULL",
        ),
        "the primary key of a table WITHOUT ROWID cannot be NULL; the words say so to a reader",
    ),
    "guards.py GUARDS STOP_WANTED: without ( :answer = 'declined' OR cancel_requested ) AND": (
        "the edge tried before takes every answer that is neither declined nor stopped: a second line of defence"
    ),
    "store.py overdue: without state = 'awaiting_confirmation' AND": (
        "each edge out of that state clears the deadline: a second line of defence"
    ),
    "opening.py _objects: without WHERE sql IS NOT NULL": (
        "what has no SQL are SQLite's own indexes, which nobody can drop"
    ),
}
"""By key, why no test can tell the mutant from the original: it is equivalent, or a second line of defence."""

SAMPLE = (
    "acquiring.py _CANDIDATES CLAIM: without AND NOT ( cancel_requested AND direction = 'do' )",
    "holding.py NONE_APPLIED: without AND outcome IS NULL",
    "schema.sql outbox.message_id: without UNIQUE",
    "remote.py _answer_by_key: without WHERE first_used_at + ? <= ?",
)
ALL = {one.key: one for one in mutants()}


def test_every_file_with_sql_has_mutants_and_every_line_above_is_one_of_them() -> None:
    assert {one.file for one in ALL.values()} >= {*SCHEMAS, *TESTS_OF}
    assert set(SURVIVORS) | set(SAMPLE) <= set(ALL)


def test_without_one_of_these_guards_a_test_fails() -> None:
    assert run("judging", *SAMPLE) == dict.fromkeys(SAMPLE, "killed")


@pytest.mark.drill
def test_without_any_guard_a_test_fails_or_a_line_above_says_why_none_can() -> None:
    verdicts = run("judging", seconds=7200.0)
    as_it_is = {key: verdicts.pop(key) for key in [*verdicts] if key not in ALL}
    assert as_it_is == dict.fromkeys({one.file for one in ALL.values()}, "survived")
    killed = {key for key, found in verdicts.items() if found == "killed"}
    survived = {key for key, found in verdicts.items() if found == "survived"}
    seen = {"mutants": len(ALL), "killed": len(killed), "survivors explained": len(survived & set(SURVIVORS))}
    print(f"guards: {json.dumps(seen)}")
    assert not {key: verdicts[key][-1000:] for key in set(ALL) - killed - survived}, "mutants that are no SQL"
    assert not [str(ALL[key]) for key in survived - set(SURVIVORS)], "guards that no test misses"
    assert not [str(ALL[key]) for key in killed & set(SURVIVORS)], "explained as survivors, and yet a test fails"
