"""Code that never ends is stopped by the end of the time and by Ctrl-C, whatever it catches; then all goes on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from greenlet import GreenletExit

from labkit.explore import TaskScenario, explore, interrupt
from labkit.explore.scenario import Scenario
from labkit.explore.sql_programs import claim_by_condition, claiming
from labkit.store import TaskStore
from labkit.wire import Remote

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no alarm")
SECONDS = 0.3


def turn() -> None:
    """A lap of a loop that touches nothing of the world."""
    sum(range(99))


def loop(db: Any, name: str) -> None:
    while True:
        turn()


def catch_everything(db: Any, name: str) -> None:
    while True:
        try:
            while True:
                turn()
        except BaseException:
            turn()


def catch_it_once(db: Any, name: str) -> str | None:
    """Goes on as if nothing had happened: its run must not count, for it has seen what is not of its world."""
    try:
        while True:
            turn()
    except BaseException as error:
        raise LookupError("mine") from error


def catch_it_and_use_a_handle(db: Any, name: str) -> None:
    while True:
        try:
            while True:
                turn()
        except BaseException:
            with pytest.raises(BaseException):  # noqa: B017, PT011
                db.execute("SELECT 1")


def after_its_death(db: Any, name: str) -> None:
    try:
        claim_by_condition(db, name)
    except BaseException:
        catch_everything(db, name)


def sleep_on(db: Any, name: str) -> None:
    while True:
        try:
            time.sleep(60)
        except BaseException:
            turn()


def in_a_function_of_sqlite(db: Any, name: str) -> None:
    def endless() -> int:
        while True:
            turn()

    db.create_function("endless", 0, endless)
    db.execute("SELECT endless()").fetchone()


def between_statements(db: Any, name: str) -> None:
    while True:
        with db:
            for _ in range(10):
                db.execute("SELECT 1").fetchone()
        db.in_transaction  # noqa: B018


def never_to_be_collected(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
    while True:
        try:
            while True:
                turn()
        except GreenletExit:
            turn()


def endless_law(run: Any) -> str:
    while True:
        turn()


def crashing(program: Callable[..., Any]) -> Scenario:
    return replace(claiming(program), allowed=frozenset({"crash", "switch"}))


ENDLESS: Mapping[str, Scenario] = {
    "loop": claiming(loop),
    "catch everything": claiming(catch_everything),
    "catch it once": claiming(catch_it_once),
    "catch it and use a handle": claiming(catch_it_and_use_a_handle),
    "after its death": crashing(after_its_death),
    "sleep": claiming(sleep_on),
    "in a function of SQLite": claiming(in_a_function_of_sqlite),
    "catch GreenletExit": TaskScenario(never_to_be_collected),
    "law": replace(claiming(claim_by_condition), laws={"endless_law": endless_law}),
}
every_kind = pytest.mark.parametrize("kind", ENDLESS)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "GRACE_SECONDS", 0.1)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert explore(claiming(claim_by_condition), 1).passed, "the next search is as ever"


@every_kind
def test_the_end_of_the_time_stops_what_never_ends(kind: str) -> None:
    with within(10):
        shown = explore(ENDLESS[kind], 1, max_seconds=SECONDS)
    assert shown.cut_short.startswith(f"stopped after {SECONDS:g} seconds")
    assert shown.summary.startswith("NOT EXHAUSTIVE")
    assert (shown.passed, shown.failure) == (False, None)


@pytest.mark.parametrize(("kind", "guess"), [("loop", " (a loop that never ends?)"), ("law", "")])
def test_it_says_where_the_search_was_stopped(kind: str, guess: str) -> None:
    seconds = 3.0  # by then a world is open, on a busy machine too
    assert explore(ENDLESS[kind], 1, max_seconds=seconds).cut_short == (
        f"stopped after 3 seconds in the middle of a run{guess}"
    )


@every_kind
def test_a_run_that_never_ends_is_told_before_the_time_of_the_search_is_up(kind: str) -> None:
    with within(10):
        shown = explore(ENDLESS[kind], 1, max_seconds=100.0, max_run_seconds=1.0)
    assert shown.cut_short.startswith("stopped after 1 seconds in the middle of a run")
    assert (shown.passed, shown.failure) == (False, None)


def test_each_run_has_its_own_seconds() -> None:
    def slowly(run: Any) -> str:
        time.sleep(0.05)
        return ""

    many = replace(claiming(claim_by_condition), laws={"slowly": slowly})
    assert explore(many, 3, max_run_seconds=1.0).passed, "33 runs, which take more than a second together"
    assert explore(many, 1, max_run_seconds=0.02).cut_short.startswith("stopped after 0.02 seconds")


@every_kind
def test_ctrl_c_stops_what_never_ends(kind: str) -> None:
    timer = threading.Timer(SECONDS, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with within(10):
            shown = explore(ENDLESS[kind], 1)
    finally:
        timer.join()
    assert (shown.cut_short, shown.passed, shown.failure) == ("interrupted", False, None)


def test_a_loop_over_sql_is_bounded_without_any_clock() -> None:
    failure = explore(claiming(between_statements), 0).failure
    assert failure is not None
    assert failure.law == "bounded"


UNWOUND: list[str] = []


def tidy(db: Any, name: str) -> None:
    try:
        while True:
            turn()
    finally:
        UNWOUND.append(name)


def test_code_that_lets_it_through_is_unwound() -> None:
    UNWOUND.clear()
    with within(10):
        explore(claiming(tidy), 1, max_seconds=SECONDS)
    assert UNWOUND == ["worker-1"]


def test_whoever_uses_the_alarm_keeps_it_and_ctrl_c_still_works() -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    timer = threading.Timer(SECONDS, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        shown = explore(claiming(catch_everything), 1, max_seconds=0.1)
        assert shown.cut_short == "interrupted"
        assert signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL
    finally:
        timer.join()
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("method", sorted({"fork", "spawn"} & set(multiprocessing.get_all_start_methods())))
def test_the_processes_of_a_pool_stop_too(method: str) -> None:
    with within(30), ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
        shown = explore(claiming(catch_everything), 1, executor=pool, max_seconds=SECONDS)
        assert shown.cut_short.startswith(f"stopped after {SECONDS:g} seconds")
        assert explore(claiming(claim_by_condition), 1, executor=pool, max_seconds=60).passed


def test_on_another_thread_a_search_ends_between_two_runs() -> None:
    with ThreadPoolExecutor(1) as pool:
        shown = pool.submit(explore, claiming(claim_by_condition), None, max_seconds=0.0).result()
    assert shown.cut_short == "stopped after 0 seconds"
