"""One SQLite file with care: durable, identified, shared by threads and processes, and errors that say what to do."""

import multiprocessing
import os
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from labkit import opening
from labkit.database import Database, Schema
from labkit.errors import (
    InvalidInput,
    LabError,
    NotALabFile,
    SimulatedCrash,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreNotFound,
    StoreReadOnly,
)
from labkit.opening import _statements
from labkit.remote import LEDGER
from labkit.store import SCHEMA, TaskStore

POSIX = pytest.mark.skipif(os.name != "posix", reason="forking and file modes are POSIX")
FORKS = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # under pytest-xdist, which has threads
INSERT = "INSERT INTO tasks (id, kind) VALUES (?, 'refund')"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.sqlite"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    opened = Database(path, SCHEMA)
    yield opened
    opened.close()


def pragma(database: Database, name: str) -> object:
    with database.read() as db:
        return db.execute(f"PRAGMA {name}").fetchone()[0]


def count(path: Path) -> int:
    reader = sqlite3.connect(path)
    (rows,) = reader.execute("SELECT count(*) FROM tasks").fetchone()
    reader.close()
    return int(rows)


# What a file is


def test_a_new_file_is_durable_and_says_whose_it_is(database: Database) -> None:
    assert database.journal_mode == pragma(database, "journal_mode") == "wal"
    assert pragma(database, "synchronous") == 2  # FULL
    assert pragma(database, "foreign_keys") == 1
    assert pragma(database, "application_id") == SCHEMA.application_id
    assert pragma(database, "user_version") == SCHEMA.version


@pytest.mark.parametrize(("synchronous", "number"), [("FULL", 2), ("NORMAL", 1), ("OFF", 0)])
def test_how_durable_it_is_can_be_chosen_and_is_read_back(synchronous: Any, number: int, path: Path) -> None:
    with TaskStore(path, synchronous=synchronous) as store:
        assert store.journal_mode == "wal"
        assert pragma(store._db, "synchronous") == number


@pytest.mark.parametrize("synchronous", ["full", "EXTRA", "", "FULL; DROP TABLE tasks", None])
def test_another_word_for_durability_is_no_input(synchronous: Any, path: Path) -> None:
    with pytest.raises(InvalidInput, match="FULL, NORMAL or OFF"):
        Database(path, SCHEMA, synchronous)
    assert not path.exists()


@pytest.mark.parametrize("path", [":memory:", "", Path(":memory:")])
def test_memory_is_refused_since_it_dies_with_its_process(path: str | Path) -> None:
    with pytest.raises(InvalidInput, match="the path of a file"):
        Database(path, SCHEMA)


def test_the_two_schemas_of_the_lab_do_not_take_each_other_s_files(path: Path) -> None:
    Database(path, LEDGER).close()
    with pytest.raises(NotALabFile, match="a database of another program"):
        Database(path, SCHEMA)


def test_the_file_of_another_program_is_left_byte_for_byte_as_it_was(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(NotALabFile) as refused:
        TaskStore(path)
    assert refused.value.found == "a database of another program (application id 0)"
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_an_empty_database_of_another_program_is_not_taken_either(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("PRAGMA application_id = 7")
    other.close()
    with pytest.raises(NotALabFile, match="application id 7"):
        TaskStore(path)


@pytest.mark.parametrize(("version", "age"), [(0, "an older"), (2, "a newer")])
def test_another_version_of_the_schema_is_named(version: int, age: str, path: Path) -> None:
    TaskStore(path).close()
    raw = sqlite3.connect(path)
    raw.execute(f"PRAGMA user_version = {version}")
    raw.close()
    with pytest.raises(NotALabFile) as refused:
        TaskStore(path)
    assert refused.value.found == f"{age} lab schema, version {version} (this lab reads version 1)"


def test_an_empty_file_is_a_new_one(path: Path) -> None:
    path.touch()
    with TaskStore(path) as store:
        assert store.tasks() == []


@pytest.mark.parametrize("content", [b"this is no database, though it is long enough to be one\n" * 90, b"\x00" * 4096])
def test_what_is_no_database_is_said_to_be_damaged(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt) as damaged:
        TaskStore(path)
    assert damaged.value.path == path.name
    assert path.read_bytes() == content


def test_a_file_damaged_in_the_middle_is_said_to_be_damaged(path: Path) -> None:
    with TaskStore(path, synchronous="OFF") as store:
        for number in range(200):
            store.enqueue(f"task-{number}", ())
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt), TaskStore(path) as store:
        store.tasks()


def test_a_missing_folder_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFound, match="check that the folder exists"):
        TaskStore(tmp_path / "missing" / "tasks.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFound):
        TaskStore(tmp_path)


def test_odd_paths_are_only_paths(tmp_path: Path) -> None:
    names = ["mit Leerzeichen.db", "ä'\".db", "file:x?mode=memory", "100%.db"]
    for name in names if os.name == "posix" else names[:1]:
        with TaskStore(tmp_path / name) as store:
            store.enqueue("task-1", ())
        assert (tmp_path / name).is_file()


def test_an_error_names_the_file_and_not_the_machine_s_folders(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFound) as missing:
        TaskStore(tmp_path / "missing" / "tasks.sqlite")
    assert str(tmp_path) not in str(missing.value)


def test_the_schema_is_cut_into_whole_statements() -> None:
    statements = list(_statements(SCHEMA.sql))
    assert "".join(statements).split() == SCHEMA.sql.split()
    assert all(sqlite3.complete_statement(one) for one in statements)


# Transactions


@pytest.mark.parametrize("death", [ValueError("a bug"), KeyboardInterrupt(), SimulatedCrash("dies"), SystemExit(1)])
def test_whatever_ends_the_block_early_rolls_all_of_it_back(
    death: BaseException, database: Database, path: Path
) -> None:
    with pytest.raises(type(death)), database.write() as db:  # noqa: PT012
        db.execute(INSERT, ("task-1",))
        raise death
    assert count(path) == 0
    with database.write() as db:
        db.execute(INSERT, ("task-2",))
    assert count(path) == 1


def test_a_bug_in_a_statement_stays_a_bug_and_rolls_back(database: Database, path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"), database.write() as db:  # noqa: PT012
        db.execute(INSERT, ("task-1",))
        db.execute("SELECT * FROM nowhere")
    assert count(path) == 0


def test_a_reader_sees_one_snapshot_while_others_write(database: Database, path: Path) -> None:
    with database.read() as db:
        assert db.execute("SELECT count(*) FROM tasks").fetchone() == (0,)
        writer = sqlite3.connect(path)
        writer.execute(INSERT, ("task-1",))
        writer.commit()
        writer.close()
        assert db.execute("SELECT count(*) FROM tasks").fetchone() == (0,)
    assert count(path) == 1


def test_a_writer_sees_what_was_written_before_it_took_the_lock(database: Database, path: Path) -> None:
    """With a deferred transaction this would fail at once, as `SQLITE_BUSY_SNAPSHOT`, whatever the time-out."""
    with database.write() as db:
        assert db.in_transaction
        other = sqlite3.connect(path, timeout=0)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute(INSERT, ("task-1",))
        other.close()


# SQLite's errors as ours


@pytest.fixture
def impatient(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setattr(opening, "PATIENCE_SECONDS", 0.0)
    return database


def test_a_file_that_another_writer_holds_is_busy(impatient: Database, path: Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy) as busy, impatient.write():
        pass
    assert (busy.value.path, busy.value.code) == (path.name, "SQLITE_BUSY")
    holder.execute("COMMIT")
    holder.close()
    with impatient.write() as db:
        db.execute(INSERT, ("task-1",))
    assert count(path) == 1


def test_a_store_waits_for_its_turn(database: Database, path: Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.05, holder.execute, ("COMMIT",))
    release.start()
    with database.write() as db:
        db.execute(INSERT, ("task-1",))
    release.join()
    holder.close()
    assert count(path) == 1


def test_where_there_is_no_wal_a_reader_too_can_find_the_file_busy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback journal, as on network homes, locks readers out while somebody commits."""
    TaskStore(path).close()
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA journal_mode = DELETE")
    raw.close()
    monkeypatch.setattr(opening, "PATIENCE_SECONDS", 0.0)
    with TaskStore(path) as store:
        assert store.journal_mode == "delete"
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        calls: list[Callable[[], object]] = [
            store.tasks,
            store.overdue,
            store.undelivered,
            lambda: store.get("task-1"),
            lambda: store.history("task-1"),
            lambda: store.transcript("task-1"),
            lambda: store.claim_next("worker-1"),
            lambda: store.enqueue("task-1", ()),
        ]
        for call in calls:
            with pytest.raises(StoreBusy):
                call()
        holder.close()


def test_a_full_disk_rolls_back_and_says_so(database: Database, path: Path) -> None:
    connection = database.connection()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(StoreFull) as full, database.write() as db:  # noqa: PT012
        db.execute(INSERT, ("task-1",))
        db.execute(INSERT, ("x" * 100_000,))
    assert full.value.code == "SQLITE_FULL"
    assert count(path) == 0
    connection.execute("PRAGMA max_page_count = 4294967294")
    with database.write() as db:
        db.execute(INSERT, ("task-1",))
    assert count(path) == 1


def test_a_connection_that_may_not_write_is_read_only(database: Database) -> None:
    database.connection().execute("PRAGMA query_only = ON")
    with pytest.raises(StoreReadOnly) as refused, database.write() as db:
        db.execute(INSERT, ("task-1",))
    assert refused.value.code == "SQLITE_READONLY"
    with database.read() as db:
        assert db.execute("SELECT count(*) FROM tasks").fetchone() == (0,)


def as_somebody_else(path: Path, answer: Connection) -> None:
    """Open and write as a user without rights, and tell what came of it: root may write everywhere."""
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    try:
        with TaskStore(path) as store:
            store.enqueue("task-1", ())
        answer.send("written")
    except LabError as error:
        answer.send(type(error).__name__)


@POSIX
@FORKS
@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "found"),
    [(0o444, 0o777, "StoreReadOnly"), (0o666, 0o555, "StoreReadOnly"), (0o000, 0o777, "StoreNotFound")],
    ids=["file read-only", "folder read-only", "file not readable"],
)
def test_what_may_not_be_written_is_said_by_kind(file_mode: int, folder_mode: int, found: str) -> None:
    """In a folder that may not be written, SQLite cannot create its -wal and -shm files."""
    with tempfile.TemporaryDirectory() as name:  # not pytest's own folder, which is closed to others
        folder = Path(name)
        TaskStore(folder / "tasks.sqlite").close()
        (folder / "tasks.sqlite").chmod(file_mode)
        folder.chmod(folder_mode)
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(
            target=as_somebody_else, args=(folder / "tasks.sqlite", there)
        )
        child.start()
        child.join()
        folder.chmod(0o777)
        assert here.poll()
        assert here.recv() == found


def test_an_error_without_a_kind_of_ours_is_passed_on(database: Database) -> None:
    with pytest.raises(sqlite3.IntegrityError), database.write() as db:
        db.execute("INSERT INTO tasks (id, kind, state) VALUES ('task-1', 'refund', 'odd')")
    with pytest.raises(sqlite3.ProgrammingError), database.read() as db:
        db.execute("SELECT ?", ())
    assert issubclass(StoreBusy, StoreError)


# Threads and processes


def in_thread(work: Callable[[], object]) -> object:
    """Do some work in a thread of its own and hand back its result or its error."""
    results: list[object] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


def test_each_thread_has_a_connection_of_its_own_and_keeps_it(database: Database) -> None:
    mine = database.connection()
    theirs = in_thread(lambda: (database.connection(), database.connection()))
    assert isinstance(theirs, tuple)
    assert theirs[0] is theirs[1] is not mine
    assert database.connection() is mine


def test_threads_write_to_the_same_file_side_by_side(database: Database, path: Path) -> None:
    def write(number: int) -> None:
        for turn in range(10):
            with database.write() as db:
                db.execute(INSERT, (f"task-{number}-{turn}",))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(path) == 40


def test_the_connections_of_ended_threads_are_closed_in_time(database: Database) -> None:
    """Widgets may call from ever new threads; open files are few."""
    connections = [in_thread(database.connection) for _ in range(20)]
    assert len(database._opened) <= 2
    assert all(isinstance(one, sqlite3.Connection) for one in connections)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connections[0].execute("SELECT 1")  # type: ignore[attr-defined]


def test_after_closing_every_call_in_every_thread_says_closed(path: Path) -> None:
    store = TaskStore(path)
    store.enqueue("task-1", ())
    store.close()
    for call in (store.tasks, lambda: store.claim_next("w"), lambda: store.request_cancel("task-1", "Ada")):
        with pytest.raises(StoreClosed, match="closed"):
            call()
        assert isinstance(in_thread(call), StoreClosed)
    path.unlink()


def test_closing_in_the_middle_of_another_thread_s_transaction_rolls_it_back_and_says_closed(
    database: Database, path: Path
) -> None:
    def write() -> None:
        with database.write() as db:
            db.execute(INSERT, ("task-1",))
            inside.set()
            closed.wait()
            db.execute(INSERT, ("task-2",))

    inside, closed = threading.Event(), threading.Event()

    def close() -> None:
        inside.wait()
        database.close()
        closed.set()

    closer = threading.Thread(target=close)
    closer.start()
    assert isinstance(in_thread(write), StoreClosed)
    closer.join()
    assert count(path) == 0


def use_after_fork(store: TaskStore, answer: Connection) -> None:
    try:
        store.tasks()
    except StoreClosed as error:
        answer.send(error.found)
    store.close()


@POSIX
@FORKS
def test_a_store_does_not_cross_a_fork_and_its_parent_goes_on_undisturbed(path: Path) -> None:
    with TaskStore(path) as store:
        here, there = multiprocessing.Pipe()
        with store._db.write() as db:
            db.execute(INSERT, ("task-1",))
            child = multiprocessing.get_context("fork").Process(target=use_after_fork, args=(store, there))
            child.start()
            child.join()
        assert here.recv() == "opened by another process"
        assert [task.id for task in store.tasks()] == ["task-1"]


def create(path: Path) -> str:
    try:
        with TaskStore(path) as store:
            store.enqueue("task-1", ())
            return store.journal_mode
    except BaseException as error:
        return repr(error)


def test_eight_threads_that_create_the_same_file_at_once_all_succeed(tmp_path: Path) -> None:
    results: list[str] = []
    start = threading.Barrier(8)

    def run(turn: int) -> None:
        start.wait()
        results.append(create(tmp_path / f"{turn}.sqlite"))

    for turn in range(5):
        threads = [threading.Thread(target=run, args=(turn,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == ["wal"] * 40


def create_in_step(folder: Path, start: Any, answer: Any) -> None:
    for turn in range(10):
        start.wait()
        answer.put(create(folder / f"{turn}.sqlite"))


@FORKS
def test_four_processes_that_create_the_same_file_at_once_all_succeed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    start, answers = context.Barrier(4), context.SimpleQueue()
    processes = [context.Process(target=create_in_step, args=(tmp_path, start, answers)) for _ in range(4)]
    for process in processes:
        process.start()
    assert [answers.get() for _ in range(40)] == ["wal"] * 40
    for process in processes:
        process.join()


def test_what_another_process_wrote_is_there_after_it_was_killed(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=write_and_die, args=(path,))
    process.start()
    process.join()
    assert process.exitcode == 9
    with TaskStore(path) as store:
        assert [task.id for task in store.tasks()] == ["task-1"]


def write_and_die(path: Path) -> None:
    store = TaskStore(path)
    store.enqueue("task-1", ())
    with store._db.write() as db:
        db.execute(INSERT, ("task-2",))
        os._exit(9)


def test_a_schema_is_a_file_of_the_package_and_two_numbers() -> None:
    assert Schema("schema.sql", 1, 2).sql == SCHEMA.sql
