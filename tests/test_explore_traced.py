"""The traced connection does what sqlite3 does, lets others in before every statement, and has no side doors."""

import itertools
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from spies import Seen
from sqlite_in_turns import Notes, Program, Recorder, in_threads

from labkit.database import Database
from labkit.explore.choices import Schedule, Surprise
from labkit.explore.doors import SideDoor
from labkit.explore.journal import Changed, Logged
from labkit.explore.scenario import Played
from labkit.explore.search import explore
from labkit.explore.sqlworld import SqlScenario, SqlWorld
from labkit.store import SCHEMA

BY_THREE = "UPDATE tasks SET attempts = attempts + 1"
Worker = Callable[[Any, str], Any]


def three_tasks(db: Any) -> None:
    db.execute("INSERT INTO tasks (id, kind) VALUES ('task-1', 'refund'), ('task-2', 'refund'), ('task-3', 'mail')")


def world_of(program: Worker, workers: int = 1, *allowed: str) -> SqlWorld:
    return SqlScenario(program, three_tasks, {}, workers, frozenset(allowed or ("switch", "crash"))).open()


@dataclass(frozen=True)
class Outcome:
    """What a run came to; `attempts` are those of the three tasks in the end."""

    results: Mapping[str, Any]
    errors: Mapping[str, BaseException]
    dead: frozenset[str]
    log: Sequence[Logged]
    attempts: list[int]


def play(program: Worker, workers: int = 1, schedule: Schedule = ()) -> tuple[Played, Outcome]:
    world = world_of(program, workers)
    try:
        played, run = world.play(schedule), world.record()
        attempts = [count for (count,) in run.db.execute("SELECT attempts FROM tasks ORDER BY id")]
        return played, Outcome(run.results, run.errors, run.dead, run.log, attempts)
    finally:
        world.close()


def points(played: Played) -> list[str]:
    return [step.point.removeprefix("before ") for step in played.steps]


# What a program sees, alone: each note must be what sqlite3 itself gives.


def executes(db: Any, notes: list[Any]) -> None:
    cursor = db.execute("SELECT id FROM tasks WHERE kind = ? ORDER BY id", ("refund",))
    notes += [cursor.fetchone(), cursor.fetchone(), cursor.fetchone(), cursor.rowcount, cursor.description[0][0]]
    updated = db.execute(BY_THREE)
    notes += [updated.rowcount, db.in_transaction, db.total_changes]
    db.commit()
    notes += [db.in_transaction, db.execute("SELECT sum(attempts) FROM tasks").fetchone()]


def uses_cursors(db: Any, notes: list[Any]) -> None:
    cursor = db.cursor()
    notes.append(cursor.execute("SELECT id FROM tasks ORDER BY id") is cursor)
    notes += [next(cursor), cursor.fetchmany(1), cursor.fetchall(), cursor.fetchone(), cursor.connection is db]
    cursor.arraysize = 2
    notes.append(cursor.execute("SELECT id FROM tasks ORDER BY id").fetchmany())
    notes.append(list(cursor.execute("SELECT id FROM tasks ORDER BY id DESC")))
    notes.append(list(cursor.execute("SELECT count(*) FROM tasks")))
    cursor.execute(
        "INSERT INTO outbox (message_id, task_id, topic, payload, created_at) VALUES ('m', 'task-1', '', '', 0)"
    )
    notes += [cursor.lastrowid, cursor.rowcount]
    cursor.close()
    cursor.execute("SELECT 1")


def executes_many(db: Any, notes: list[Any]) -> None:
    sql = "UPDATE tasks SET attempts = ? WHERE id = ?"
    cursor = db.executemany(sql, ((number, f"task-{number}") for number in range(1, 5)))
    notes += [cursor.rowcount, db.in_transaction]
    db.rollback()
    notes.append(db.execute("SELECT sum(attempts) FROM tasks").fetchone())
    notes += [db.executemany(sql, []).rowcount, db.in_transaction]
    db.rollback()
    db.isolation_level = None
    notes += [db.cursor().executemany(sql, [(5, "task-1"), (6, "task-2")]).rowcount, db.in_transaction]
    notes.append(db.execute("SELECT sum(attempts) FROM tasks").fetchone())
    ids = db.execute("SELECT 7, id FROM tasks")
    notes.append(db.executemany(sql, ids).rowcount)
    db.executemany("SELECT ?", [(1,)])


def executes_a_script(db: Any, notes: list[Any]) -> None:
    db.execute(BY_THREE)
    notes.append(db.in_transaction)
    script = (
        f"BEGIN; {BY_THREE}; -- a comment; with a semicolon\n SELECT ';' FROM tasks; {BY_THREE}; COMMIT; {BY_THREE}"
    )
    notes += [
        db.executescript(script).fetchall(),
        db.in_transaction,
        db.execute("SELECT attempts FROM tasks").fetchall(),
    ]
    db.executescript(f"BEGIN IMMEDIATE; {BY_THREE};")
    notes.append(db.in_transaction)
    db.executescript("ROLLBACK; /* nothing */ ; ")
    notes.append(db.execute("SELECT attempts FROM tasks").fetchall())
    db.executescript(f"{BY_THREE}; SELECT nonsense")


def uses_with(db: Any, notes: list[Any]) -> None:
    with db as same:
        notes.append(same is db)
        db.execute(BY_THREE)
        with db:
            db.execute(BY_THREE)
        notes.append(db.in_transaction)
        db.execute(BY_THREE)
    notes += [db.in_transaction, db.execute("SELECT attempts FROM tasks").fetchall()]
    try:
        with db:
            db.execute(BY_THREE)
            raise ZeroDivisionError
    except ZeroDivisionError:
        notes += [db.in_transaction, db.execute("SELECT attempts FROM tasks").fetchall()]
    with db:
        db.execute("UPDATE tasks SET state = 'nowhere'")


def changes_isolation(db: Any, notes: list[Any]) -> None:
    notes.append(db.isolation_level)
    db.execute(BY_THREE)
    db.isolation_level = None
    notes += [db.isolation_level, db.in_transaction]
    db.rollback()
    db.execute(BY_THREE)
    notes.append(db.in_transaction)
    db.execute("BEGIN IMMEDIATE")
    db.execute(BY_THREE)
    db.execute("SAVEPOINT here")
    db.execute(BY_THREE)
    db.execute("ROLLBACK TO here")
    db.execute("END")
    notes.append(db.execute("SELECT attempts FROM tasks").fetchall())
    db.isolation_level = "EXCLUSIVE"
    db.execute(BY_THREE)
    notes += [db.isolation_level, db.in_transaction]
    db.rollback()
    db.isolation_level = "WHENEVER"


def sets_factories(db: Any, notes: list[Any]) -> None:
    db.row_factory = sqlite3.Row
    row = db.execute("SELECT id, kind FROM tasks ORDER BY id").fetchone()
    notes += [row["id"], row.keys(), tuple(row)]
    db.row_factory = lambda cursor, row: dict(zip([one[0] for one in cursor.description], row, strict=True))
    notes.append(db.execute("SELECT id, attempts FROM tasks ORDER BY id").fetchall())
    db.row_factory, db.text_factory = None, bytes
    notes.append(db.execute("SELECT id FROM tasks ORDER BY id").fetchone())
    db.create_function("twice", 1, lambda number: 2 * number)
    notes.append(db.execute("SELECT twice(21)").fetchone())
    notes.append(db.execute("PRAGMA foreign_keys").fetchone())


def closes(db: Any, notes: list[Any]) -> None:
    cursor = db.execute(BY_THREE)
    db.close()
    db.close()
    for use in (db.commit, db.rollback, db.cursor, cursor.fetchone, lambda: db.execute("SELECT 1")):
        try:
            use()
        except sqlite3.ProgrammingError as error:
            notes.append(str(error))


def makes_mistakes(db: Any, notes: list[Any]) -> None:
    for sql, args in (
        ("SELECT nonsense", ()),
        ("SELECT ?", ()),
        ("SELECT 1; SELECT 2", ()),
        ("INSERT INTO tasks (id, kind) VALUES ('task-1', '')", ()),
        ("UPDATE tasks SET state = 'nowhere'", ()),
        ("", ()),
        ("-- nothing", ()),
    ):
        try:
            notes.append(db.execute(sql, args).fetchall())
        except (sqlite3.Error, sqlite3.Warning) as error:
            notes.append((type(error).__name__, str(error), db.in_transaction))


def returns_rows_of_changes(db: Any, notes: list[Any]) -> None:
    with db:
        notes.append(db.execute(f"{BY_THREE} RETURNING id, attempts").fetchall())
    with db:
        notes.append(db.execute(f"{BY_THREE} WHERE id = 'task-1' RETURNING attempts").fetchone())
    notes.append(db.in_transaction)
    with db:
        db.execute(f"{BY_THREE} RETURNING id")  # its rows are left unread
    notes.append(db.execute("SELECT attempts FROM tasks").fetchall())


ALONE = [
    executes,
    uses_cursors,
    executes_many,
    executes_a_script,
    uses_with,
    changes_isolation,
    sets_factories,
    closes,
    makes_mistakes,
    returns_rows_of_changes,
]


def real_file(folder: Path) -> Path:
    path = folder / "tasks.sqlite"
    database = Database(path, SCHEMA, "OFF")
    three_tasks(database.connection())
    database.close()
    return path


@pytest.mark.parametrize("program", ALONE, ids=lambda program: program.__name__)
def test_alone_a_traced_connection_gives_what_sqlite3_gives(program: Program, tmp_path: Path) -> None:
    recorder, real = Recorder(program), list[Any]()
    traced, _ = play(recorder)
    path = real_file(tmp_path)
    db = sqlite3.connect(path)
    db.execute("PRAGMA foreign_keys = ON")
    try:
        program(db, real)
    except (sqlite3.Error, ValueError) as error:
        real.append((type(error).__name__, str(error)))
    finally:
        db.close()
    assert recorder.notes["worker-1"] == real
    assert not traced.law
    assert len(real) > 3


# Crossings.


def test_others_come_in_before_every_statement_and_every_commit() -> None:
    def program(db: Any, name: str) -> None:
        with db:
            db.execute(BY_THREE)
            db.executemany("UPDATE tasks SET step = ? WHERE id = ?", [(1, "task-1"), (2, "task-2")])
        db.executescript("UPDATE tasks SET step = 3; SELECT 1")
        for _ in db.cursor().execute("SELECT id FROM tasks"):
            pass
        db.rollback()

    assert points(play(program)[0]) == [
        BY_THREE,
        "UPDATE tasks SET step = ? WHERE id = ?",
        "COMMIT",
        "UPDATE tasks SET step = 3;",
        "SELECT 1",
        "SELECT id FROM tasks",
        "end worker-1",
    ]


def test_others_come_in_before_each_row_of_executemany_where_each_row_is_a_transaction() -> None:
    def program(db: Any, name: str) -> None:
        db.isolation_level = None
        db.executemany("UPDATE tasks SET attempts = ? WHERE id = ?", [(1, "task-1"), (2, "task-2")])

    played, run = play(program)
    assert points(played)[:-1] == ["UPDATE tasks SET attempts = ? WHERE id = ?"] * 2
    assert len({one.commit for one in run.log if isinstance(one, Changed)}) == 3, "two commits, and the start"


def test_setting_isolation_level_to_none_commits_and_others_come_in_before() -> None:
    def program(db: Any, name: str) -> None:
        db.execute(BY_THREE)
        db.isolation_level = None

    played, run = play(program)
    assert points(played) == [BY_THREE, "COMMIT", "end worker-1"]
    assert run.attempts == [1, 1, 1]


# Waiting for locks.


def writes(db: Any, notes: list[Any]) -> None:
    with db:
        notes.append(db.execute(BY_THREE).rowcount)
    notes.append(db.execute("SELECT attempts FROM tasks ORDER BY id").fetchall())


def deferred(db: Any, notes: list[Any]) -> None:
    db.isolation_level = None
    db.execute("BEGIN")
    notes.append(db.execute("SELECT attempts FROM tasks ORDER BY id").fetchall())
    notes.append(db.execute(BY_THREE).rowcount)
    db.execute("COMMIT")


def immediate(db: Any, notes: list[Any]) -> None:
    db.isolation_level = None
    db.execute("BEGIN IMMEDIATE")
    notes.append(db.execute("SELECT attempts FROM tasks ORDER BY id").fetchall())
    notes.append(db.execute(BY_THREE).rowcount)
    db.execute("COMMIT")


def mid_read(db: Any, notes: list[Any]) -> None:
    reading = db.execute("SELECT id, attempts FROM tasks ORDER BY id")
    notes.append(reading.fetchone())
    db.execute(f"{BY_THREE} WHERE id = 'task-3'")
    notes.append(reading.fetchall())
    db.commit()


def after_reading(db: Any, notes: list[Any]) -> None:
    notes.append(db.execute("SELECT attempts FROM tasks ORDER BY id").fetchall())
    with db:
        notes.append(db.execute(f"{BY_THREE} WHERE id = 'task-3'").rowcount)


def reads_in_between(db: Any, notes: list[Any]) -> None:
    with db:
        notes.append(db.execute(f"{BY_THREE} RETURNING attempts").fetchall())
        notes.append(db.execute("SELECT attempts FROM tasks ORDER BY id").fetchall())


def two_transactions(db: Any, notes: list[Any]) -> None:
    with db:
        db.execute(BY_THREE)
    with db:
        db.execute(f"{BY_THREE} WHERE id = 'task-2'")
    notes.append(db.execute("SELECT attempts FROM tasks ORDER BY id").fetchall())


TOGETHER = [writes, deferred, immediate, mid_read, after_reading, reads_in_between]


def schedules_of(world: SqlWorld, surprises: int) -> Iterator[Schedule]:
    level: list[Schedule] = [()]
    for _ in range(surprises + 1):
        children: list[Schedule] = []
        for schedule in level:
            yield schedule
            children += world.play(schedule).children()
        level = children


@pytest.mark.parametrize("program", TOGETHER, ids=lambda program: program.__name__)
def test_together_traced_connections_give_what_real_ones_give_in_the_same_order(
    program: Program, tmp_path: Path
) -> None:
    recorder = Recorder(program)
    world = world_of(recorder, 2, "switch")
    different = set()
    try:
        for number, schedule in enumerate(itertools.islice(schedules_of(world, 2), 12)):
            recorder.begin()
            world.play(schedule)
            traced, turns = recorder.notes, recorder.turns()
            folder = tmp_path / str(number)
            folder.mkdir()
            assert in_threads(program, turns, real_file(folder), 2) == traced, schedule
            different.add(repr(sorted(traced.items())))
    finally:
        world.close()
    assert len(different) > 1 or program is writes, "the order must matter, or nothing is shown"


def outcome(notes: Notes) -> set[str]:
    return {str(note) for mine in notes.values() for note in mine if "locked" in str(note)}


@pytest.mark.parametrize("program", [writes, immediate, after_reading, reads_in_between, two_transactions])
def test_a_first_write_waits_for_the_other_and_is_never_turned_away(program: Program) -> None:
    recorder = Recorder(program)
    world = world_of(recorder, 2, "switch")
    waited = False
    try:
        for schedule in schedules_of(world, 3):
            recorder.begin()
            played = world.play(schedule)
            assert not outcome(recorder.notes), schedule
            assert not played.law
            waited = waited or len(set(recorder.tries)) < len(recorder.tries)
    finally:
        world.close()
    assert waited


@pytest.mark.parametrize("program", [deferred, mid_read])
def test_a_write_on_what_was_read_is_turned_away_at_once_when_another_has_written(program: Program) -> None:
    recorder = Recorder(program)
    world = world_of(recorder, 2, "switch")
    try:
        told = set()
        for schedule in schedules_of(world, 2):
            recorder.begin()
            world.play(schedule)
            told |= outcome(recorder.notes)
            assert len(set(recorder.tries)) == len(recorder.tries), "nobody waits"
    finally:
        world.close()
    assert told == {"('OperationalError', 'database is locked')"}


def test_a_commit_with_unread_rows_of_a_change_fails_at_once_as_in_sqlite3() -> None:
    def program(db: Any, name: str) -> str:
        db.isolation_level = None
        db.execute("BEGIN")
        rows = db.execute(f"{BY_THREE} RETURNING id")
        try:
            db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            return f"{error}, {len(rows.fetchall())} rows"
        return f"committed, {len(rows.fetchall())} rows"

    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE tasks (id, attempts)")
    db.execute("INSERT INTO tasks VALUES (1, 0), (2, 0), (3, 0)")
    db.commit()
    real = program(db, "")
    db.close()
    assert play(program)[1].results == {"worker-1": real}


def test_workers_that_all_wait_for_one_that_sleeps_are_turned_away_after_the_busy_timeout() -> None:
    def program(db: Any, name: str) -> str:
        try:
            with db:
                db.execute(BY_THREE)
                if name == "worker-1":
                    db.life.sleep(8.0)
        except sqlite3.OperationalError as error:
            return f"{error} at {db.life.hub.clock.now():g} s"
        return f"written at {db.life.hub.clock.now():g} s"

    world = SleepersWake(SqlScenario(program, three_tasks, {}, 3, frozenset({"switch"})))
    try:
        world.play(())
        results = world.record().results
    finally:
        world.close()
    assert results == {
        "worker-1": "written at 8 s",
        "worker-2": "database is locked at 5 s",
        "worker-3": "database is locked at 5 s",
    }


class SleepersWake(SqlWorld):
    """A world in which sleepers wake; plain functions have nothing to sleep with."""

    def _run(self, hub: Any) -> None:
        hub.run()
        while sleepers := [life for life in hub.lives if life.status.name == "SLEEPING"]:
            self.clock.advance(min(life.wakes_at for life in sleepers) - self.clock.now())
            hub.wake({sleepers[0].status}, self.clock.now())
            hub.run()


def test_a_busy_timeout_of_one_s_own_is_waited_out_by_the_run_s_clock() -> None:
    def program(db: Any, name: str) -> float:
        db.execute("PRAGMA busy_timeout = 2500")
        try:
            with db:
                db.execute(BY_THREE)
                if name == "worker-1":
                    db.life.sleep(8.0)
        except sqlite3.OperationalError:
            pass
        return float(db.life.hub.clock.now())

    world = SleepersWake(SqlScenario(program, three_tasks, {}, 2, frozenset({"switch"})))
    try:
        for _ in range(2):
            world.play(())
            assert world.record().results == {"worker-1": 8.0, "worker-2": 2.5}
    finally:
        world.close()


# Death.


def crash_at(program: Worker, place: int, workers: int = 2) -> tuple[Played, Outcome]:
    return play(program, workers, (Surprise(place, "crash"),))


def test_a_dead_worker_leaves_no_lock_and_nothing_uncommitted() -> None:
    def program(db: Any, name: str) -> None:
        with db:
            db.execute(BY_THREE)

    played, run = crash_at(program, 1)
    assert (run.dead, run.errors, run.attempts) == ({"worker-1"}, {}, [1, 1, 1])
    assert [step.worker for step in played.steps] == ["worker-1", "worker-1", *["worker-2"] * 3]


def test_a_dead_worker_s_open_cursor_holds_no_snapshot() -> None:
    def program(db: Any, name: str) -> int:
        if name == "worker-1":
            open_cursors.append(db.execute("SELECT id FROM tasks ORDER BY id"))
            open_cursors[0].fetchone()
            db.execute("SELECT 1")
        db.isolation_level = None
        db.execute(BY_THREE)
        (busy, _, _) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return int(busy)

    open_cursors: list[Any] = Seen()
    _, run = crash_at(program, 1)
    assert run.results == {"worker-2": 0}, "a reader would keep the log from being emptied"


def test_what_a_dead_worker_does_in_finally_with_and_except_changes_nothing() -> None:
    def program(db: Any, name: str) -> None:
        if name != "worker-1":
            return
        cursor = db.cursor()
        try:
            with db:
                db.execute(BY_THREE)
        except BaseException:
            for use in (
                lambda: db.execute(BY_THREE),
                lambda: cursor.execute(BY_THREE),
                lambda: db.executescript(f"{BY_THREE}; COMMIT"),
                db.commit,
                db.rollback,
                db.cursor,
                db.close,
                db.__enter__,
                cursor.fetchall,
                lambda: setattr(db, "isolation_level", None),
            ):
                try:
                    use()
                    survived.append(use)
                except BaseException as error:
                    told.append(type(error).__name__)
            raise ValueError from None
        finally:
            told.append("finally")

    survived: list[Any] = Seen()
    told: list[str] = Seen()
    _, run = crash_at(program, 1)
    assert (run.attempts, run.errors, survived) == ([0, 0, 0], {}, [])
    assert told == [*["SimulatedCrash"] * 10, "finally"]


def test_a_worker_that_ends_with_a_transaction_open_loses_it_and_holds_nobody_up() -> None:
    def program(db: Any, name: str) -> int:
        return int(db.execute(BY_THREE).rowcount)

    _, run = play(program, 2)
    assert (run.results, run.errors, run.attempts) == ({"worker-1": 3, "worker-2": 3}, {}, [0, 0, 0])


# Side doors.


@pytest.mark.parametrize(
    "door",
    [
        lambda db: sqlite3.Cursor(db).execute("SELECT 1").fetchone(),
        lambda db: sqlite3.Cursor(db).execute(BY_THREE),
        lambda db: db.cursor(sqlite3.Cursor),
        lambda db: db.cursor(factory=sqlite3.Cursor),
        lambda db: db.backup(db),
        lambda db: db.blobopen("tasks", "id", 1),
        lambda db: db.serialize(),
        lambda db: db.deserialize(b""),
        lambda db: list(db.iterdump()),
        lambda db: db.set_trace_callback(print),
        lambda db: setattr(db, "autocommit", True),
        lambda db: setattr(db, "autocommit", False),
        lambda db: setattr(db, "autocommit", -1),
        lambda db: getattr(db, "enable_load_extension", db.iterdump)(True),
        lambda db: db.execute("ATTACH ':memory:' AS other"),
        lambda db: db.execute("VACUUM"),
        lambda db: db.execute("CREATE TABLE mine (x)"),
        lambda db: db.execute(" /* mine */ DROP TABLE tasks"),
        lambda db: db.executescript("SELECT 1; ALTER TABLE tasks ADD COLUMN x"),
        lambda db: db.execute("PRAGMA journal_mode = DELETE"),
        lambda db: db.execute("PRAGMA main.locking_mode(EXCLUSIVE)"),
    ],
)
def test_a_side_door_is_refused_and_the_message_says_what_to_use(door: Callable[[Any], Any]) -> None:
    def program(db: Any, name: str) -> None:
        door(db)

    _, run = play(program)
    assert str(run.errors["worker-1"]).endswith(
        "is not followed by the explorer; use execute, cursor(), commit and rollback"
    )


HAS_AUTOCOMMIT = sys.version_info >= (3, 12)


@pytest.mark.parametrize("value", [True, False])
def test_a_program_that_is_refused_autocommit_and_goes_on_works_as_before(value: bool) -> None:
    def program(db: Any, name: str) -> Any:
        with pytest.raises(SideDoor, match="autocommit is not followed"):
            db.autocommit = value
        db.execute(BY_THREE)
        opened = db.in_transaction
        db.rollback()
        with db:
            db.execute(f"{BY_THREE} WHERE id = 'task-1'")
        return f"{opened} {getattr(db, 'autocommit', 'none')} {db.isolation_level!r}"

    _, run = play(program)
    assert run.results == {"worker-1": f"True {-1 if HAS_AUTOCOMMIT else 'none'} ''"}
    assert run.attempts == [1, 0, 0], "one change committed, one rolled back"


@pytest.mark.parametrize("value", [True, False])
def test_autocommit_set_behind_the_explorer_s_back_does_not_outlive_the_run(value: bool) -> None:
    def program(db: Any, name: str) -> Any:
        found = getattr(db, "autocommit", "none")
        sqlite3.Connection.autocommit.__set__(db, value)  # type: ignore[attr-defined]
        return found

    world = world_of(program, 1)
    try:
        for _ in range(2):
            world.play(())
            run = world.record()
            if not HAS_AUTOCOMMIT:
                assert "autocommit" in str(run.errors["worker-1"])
            elif value:
                assert run.results == {"worker-1": -1}
            else:
                assert "is not followed by the explorer" in str(run.errors["worker-1"]), "it has begun a transaction"
    finally:
        world.close()


@pytest.mark.parametrize("sql", ["PRAGMA journal_mode", "PRAGMA journal_mode = WAL", "CREATE TEMP TABLE mine (x)"])
def test_what_leaves_the_file_as_it_is_is_no_side_door(sql: str) -> None:
    def program(db: Any, name: str) -> Any:
        return db.execute(sql).fetchall()

    assert not play(program)[1].errors


# From one run to the next.


def test_a_run_starts_with_a_fresh_connection_whatever_the_run_before_has_set() -> None:
    def program(db: Any, name: str) -> Any:
        found = (
            db.isolation_level,
            db.row_factory,
            db.text_factory,
            db.execute("PRAGMA foreign_keys").fetchone(),
            db.execute("PRAGMA cache_size").fetchone(),
            db.execute("SELECT count(*) FROM temp.sqlite_schema").fetchone(),
            getattr(db, "autocommit", None),
            db.in_transaction,
        )
        with pytest.raises(sqlite3.OperationalError, match="no such function"):
            db.execute("SELECT twice(1)")
        db.create_function("twice", 1, lambda number: 2 * number)
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("PRAGMA cache_size = 7")
        db.execute("CREATE TEMP TABLE mine (x)")
        db.execute("PRAGMA query_only = ON")
        db.set_authorizer(lambda *_: sqlite3.SQLITE_OK)
        db.isolation_level, db.row_factory, db.text_factory = None, sqlite3.Row, bytes
        db.execute("BEGIN")
        if name == "worker-2":
            db.close()
        return found

    world = world_of(program, 2)
    try:
        runs = []
        for _ in range(3):
            played = world.play(())
            assert not world.record().errors
            runs.append((played, world.record().results))
    finally:
        world.close()
    assert runs[0] == runs[1] == runs[2]


def test_a_search_over_programs_with_open_cursors_and_half_done_work_leaves_nothing_behind() -> None:
    def program(db: Any, name: str) -> None:
        cursor = db.execute("SELECT id FROM tasks")
        cursor.fetchone()
        db.execute(f"{BY_THREE} WHERE id = 'task-1'")
        cursor.fetchone()
        db.commit()

    scenario = SqlScenario(program, three_tasks, {}, 2, frozenset({"switch", "crash"}))
    first, second = explore(scenario, 3), explore(scenario, 3)
    assert first == second
    assert first.schedules > 100
