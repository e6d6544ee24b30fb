"""Code that goes where the explorer cannot follow is told so in plain words, whatever it makes of that itself."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import pytest

from labkit.errors import InvalidInput
from labkit.explore import BenchScenario, Exploration, SqlScenario, TaskScenario, explore
from labkit.explore.row_laws import named, no_worker_breaks
from labkit.explore.sql_programs import claim_by_condition, claiming, nobody_is_turned_away, queue_task
from labkit.packing import StaysHere, packed
from labkit.store import TaskStore
from labkit.wire import Remote

USE = "use the connection or store that the function is given"
LOST_SIGHT = f"which the explorer cannot follow: {USE}"
SECOND = f"worker-1 ended with SecondConnection: worker-1 opened a second connection, {LOST_SIGHT}"
TAKE = "UPDATE tasks SET state = 'running', lease_owner = 'me', lease_token = 1, lease_expires_at = 30"


def first_failure(program: Callable[..., Any], surprises: int = 0) -> tuple[str, str]:
    failure = explore(claiming(program), surprises).failure
    assert failure is not None
    return failure.law, failure.how


def own_file(db: Any) -> str:
    return str(db.execute("PRAGMA database_list").fetchone()[2])


# A second connection to the run's own file.


def by_path(db: Any, name: str) -> str:
    with closing(sqlite3.connect(own_file(db))) as other, other:
        other.execute(TAKE)
    return "task-1"


def by_a_class(db: Any, name: str) -> str:
    with closing(sqlite3.Connection(own_file(db))) as other, other:
        other.execute(TAKE)
    return "task-1"


def by_a_uri(db: Any, name: str) -> Any:
    uri = f"file:{quote(own_file(db))}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as other:
        return other.execute("SELECT id FROM tasks").fetchone()[0]


def by_a_link(db: Any, name: str) -> str:
    file = Path(own_file(db))
    link = file.with_name("another-name.sqlite")
    link.unlink(missing_ok=True)
    link.hardlink_to(file)
    with closing(sqlite3.connect(link)) as other, other:
        other.execute(TAKE)
    return "task-1"


def in_secret(db: Any, name: str) -> str | None:
    with suppress(Exception):
        by_path(db, name)
    return claim_by_condition(db, name)


def in_a_thread(db: Any, name: str) -> str | None:
    path = own_file(db)

    def other() -> None:
        with suppress(Exception):
            sqlite3.connect(path)

    thread = Thread(target=other)
    thread.start()
    thread.join()
    return claim_by_condition(db, name)


@pytest.mark.parametrize("program", [by_path, by_a_class, by_a_uri, by_a_link, in_secret, in_a_thread])
def test_a_second_connection_to_the_run_s_own_file_is_told(program: Callable[..., Any]) -> None:
    assert first_failure(program) == ("no_worker_breaks", SECOND)


def attached_elsewhere(db: Any, name: str) -> str | None:
    with closing(sqlite3.connect(":memory:")) as other:
        other.execute("ATTACH ? AS run", (own_file(db),))
        with other:
            other.execute("UPDATE run.tasks SET kind = 'mine'")
    return claim_by_condition(db, name)


def another_process(db: Any, name: str) -> str | None:
    code = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute(sys.argv[2]); db.commit()"
    subprocess.run([sys.executable, "-c", code, own_file(db), "UPDATE tasks SET kind = 'mine'"], check=True)
    return claim_by_condition(db, name)


@pytest.mark.parametrize("program", [attached_elsewhere, another_process])
def test_a_change_by_any_other_way_is_told(program: Callable[..., Any]) -> None:
    told = f"worker-1 ended with SecondConnection: worker-1 changed the file by another connection, {LOST_SIGHT}"
    assert first_failure(program) == ("no_worker_breaks", told)


def attached_here(db: Any, name: str) -> None:
    db.execute("ATTACH ? AS again", (own_file(db),))


def test_attach_is_refused() -> None:
    law, how = first_failure(attached_here)
    assert (law, how.partition(";")[0]) == (
        "no_worker_breaks",
        "worker-1 ended with SideDoor: ATTACH is not followed by the explorer",
    )


def files_of_its_own(db: Any, name: str) -> str | None:
    with closing(sqlite3.connect(":memory:")) as other, other:
        other.execute("CREATE TABLE notes (text)")
    db.execute("ANALYZE temp")
    return claim_by_condition(db, name)


def test_a_file_of_one_s_own_is_nobody_else_s_business() -> None:
    assert explore(claiming(files_of_its_own), 2).passed


def counted_by_nobody(db: Any, bench: Any) -> None:
    db.execute("CREATE TEMP TABLE seen (id)")
    with db:
        db.execute("INSERT INTO seen SELECT id FROM tasks")
    db.execute("PRAGMA optimize")
    with db:
        db.execute("UPDATE tasks SET kind = kind")
    db.execute("ANALYZE")


@pytest.mark.parametrize("kind", [SqlScenario, BenchScenario])
def test_what_a_worker_commits_by_its_own_connection_is_no_other_s(kind: Any) -> None:
    more = {"due": None} if kind is BenchScenario else {}
    allowed = frozenset({"switch", "crash"})
    shown = explore(kind(counted_by_nobody, queue_task, named(no_worker_breaks), 2, allowed, **more), 1)
    assert shown.passed, shown


def test_a_scenario_without_a_law_about_errors_does_not_let_it_pass() -> None:
    failure = explore(SqlScenario(by_path, queue_task, {}, 1), 0).failure
    assert failure is not None
    assert (failure.law, failure.how) == ("followed", SECOND)


# Event loops, and what another worker was given.

LOOP = "worker-1 ended with InEventLoop: worker-1 runs its code in an event loop (asyncio): "


def in_a_loop(db: Any, name: str) -> str | None:
    async def claim() -> str | None:
        return claim_by_condition(db, name)

    return asyncio.run(claim())


def loop_over_the_store(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
    async def look() -> None:
        store.get(task_id)

    asyncio.run(look())


def test_an_event_loop_is_told_with_what_to_do() -> None:
    law, how = first_failure(in_a_loop)
    assert (law, how.startswith(LOOP), how.rpartition("; ")[2]) == (
        "no_worker_breaks",
        True,
        "write the steps without async, await and asyncio.run",
    )
    found = explore(TaskScenario(loop_over_the_store), 0).failure
    assert found is not None
    assert (found.law, found.how) == ("no_worker_breaks", how)


def test_it_is_told_in_the_same_words_where_a_loop_is_running_as_in_a_notebook() -> None:
    async def cell() -> Exploration:
        shown = explore(claiming(in_a_loop), 0)
        assert asyncio.get_running_loop() is here, "and it is put back"
        return shown

    loop = asyncio.new_event_loop()
    here = loop
    try:
        shown = loop.run_until_complete(cell())
    finally:
        loop.close()
    assert str(shown) == str(explore(claiming(in_a_loop), 0))


KEPT: list[Any] = []


def keeps_its_store(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
    KEPT.append(store)
    KEPT[0].get(task_id)


def keeps_its_connection(db: Any, name: str) -> str | None:
    KEPT.append(db)
    return claim_by_condition(KEPT[0], name)


def test_a_store_that_another_worker_was_given_is_told_as_that() -> None:
    KEPT.clear()
    failure = explore(TaskScenario(keeps_its_store), 0).failure
    assert failure is not None
    assert failure.how == (
        "worker-2 ended with NotItsOwn: worker-2 uses a store, connection or remote that worker-1 was given, and has "
        "kept outside the function: each worker is a process of its own; use what the function is given"
    )


@pytest.mark.parametrize("surprises", ["switch", "crash switch"])
def test_also_where_the_other_worker_is_dead(surprises: str) -> None:
    KEPT.clear()
    laws = named(nobody_is_turned_away, no_worker_breaks)
    failure = explore(SqlScenario(keeps_its_connection, queue_task, laws, 2, frozenset(surprises.split())), 1).failure
    assert failure is not None
    assert "worker-2 uses a store, connection or remote that worker-1 was given" in failure.how


def test_a_program_that_holds_an_open_store_is_told_to_use_the_one_it_is_given(tmp_path: Path) -> None:
    with TaskStore(tmp_path / "mine.sqlite") as mine:

        def program(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
            mine.get(task_id)

        says = r"an open store \(mine.sqlite\) .*: use the store that the function is given"
        with pytest.raises(InvalidInput, match=says):
            explore(program)
        with pytest.raises(StaysHere, match=says):
            packed(program)


def test_a_program_that_names_a_store_of_its_module_is_refused(tmp_path: Path) -> None:
    with TaskStore(tmp_path / "mine.sqlite") as mine:
        globals()["MINE"] = mine
        try:
            with pytest.raises(InvalidInput, match="uses the store it is given, found 'one that uses MINE, a store"):
                explore(uses_its_module_s_store)
        finally:
            del globals()["MINE"]


def uses_its_module_s_store(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
    MINE.get(task_id)  # type: ignore[name-defined]  # noqa: F821


# Errors of SQL are told in SQLite's own words.


def test_an_error_in_the_sql_is_the_program_s_own_and_no_lock() -> None:
    def misspelt(db: Any, name: str) -> None:
        db.execute("SELECT idd FROM tasks")

    told = "worker-1 ended with OperationalError: no such column: idd"
    assert first_failure(misspelt) == ("no_worker_breaks", told)


def test_whoever_is_turned_away_is_told_what_sqlite_says() -> None:
    def deferred(db: Any, name: str) -> None:
        db.isolation_level = None
        db.execute("BEGIN")
        db.execute("SELECT state FROM tasks").fetchone()
        db.execute("UPDATE tasks SET attempts = attempts + 1")
        db.execute("COMMIT")

    assert first_failure(deferred, 1) == ("nobody_is_turned_away", "worker-1 is told at once: database is locked")


def test_a_sound_program_is_followed_to_the_end() -> None:
    assert explore(claiming(claim_by_condition), 2).passed
