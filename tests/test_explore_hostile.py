"""Hostile answers under the explorer: tried in a process of their own, each gets a clear message and harms nobody."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from labkit.course.submission import Submission, Unfit
from labkit.explore import explore
from labkit.explore.sql_programs import claim_by_condition, claiming
from labkit.policies import BY_CAPABILITY
from labkit.store import TaskStore
from labkit.wire import Remote
from labkit.worker import Worker

SECONDS = 10.0


def explored(answer: Callable[..., Any]) -> str:
    """What a check does in the child: explore the answer, and hand back what was shown."""
    return str(explore(claiming(answer), 2))


def loop(db: Any, name: str) -> str | None:
    while True:
        pass


def loop_over_sql(db: Any, name: str) -> str | None:
    while True:
        db.execute("SELECT version FROM tasks").fetchone()


def loop_that_swallows_everything(db: Any, name: str) -> str | None:
    while True:
        try:
            db.execute("SELECT version FROM tasks").fetchone()
        except BaseException:
            time.sleep(0)


def recurse(db: Any, name: str) -> str | None:
    return recurse(db, name)


def leave(db: Any, name: str) -> str | None:
    sys.exit(3)


def leave_at_once(db: Any, name: str) -> str | None:
    os._exit(3)


def work_in_a_thread(db: Any, name: str) -> str | None:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(claim_by_condition, db, name).result()


def close_the_connection(db: Any, name: str) -> str | None:
    db.close()
    return claim_by_condition(db, name)


def close_the_store(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
    store.close()
    Worker(store, remotes, BY_CAPABILITY).run(task_id)


def close_the_store_while_holding(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
    lease = store.claim(store.get(task_id), "worker-1")
    store.close()
    store.renew(lease)


def work_in_a_with_block(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
    with store:
        Worker(store, remotes, BY_CAPABILITY).run(task_id)


@pytest.mark.parametrize("program", [close_the_store, close_the_store_while_holding])
def test_a_closed_store_is_closed_as_it_really_would_be(program: Callable[..., None]) -> None:
    failure = explore(program, 0).failure
    assert failure is not None
    assert "StoreClosed: tasks.sqlite: closed" in failure.how


def test_a_store_that_is_closed_in_the_end_harms_nobody() -> None:
    assert explore(work_in_a_with_block, 1).passed


def return_nonsense(db: Any, name: str) -> Any:
    claim_by_condition(db, name)
    return object


def outcome(answer: Callable[..., Any], seconds: float = SECONDS) -> str:
    try:
        return str(Submission(answer, seconds).run(explored))
    except Unfit as unfit:
        return str(unfit)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (loop_over_sql, "bounded"),
        (recurse, "RecursionError"),
        (leave, "SystemExit"),
        (leave_at_once, "Its process ended before the check did"),
        (work_in_a_thread, "has started a thread"),
        (close_the_connection, "ProgrammingError"),
        (return_nonsense, "breaks a law"),
    ],
)
def test_a_hostile_answer_gets_a_clear_message(answer: Callable[..., Any], says: str) -> None:
    assert says in outcome(answer)


@pytest.mark.parametrize("answer", [loop, loop_that_swallows_everything])
def test_an_answer_that_never_ends_is_ended(answer: Callable[..., Any]) -> None:
    said = outcome(answer, seconds=3.0)
    assert "It was still running after 3 seconds" in said or "bounded" in said


def test_the_same_check_lets_a_right_answer_pass() -> None:
    assert "keep every law" in outcome(claim_by_condition)
