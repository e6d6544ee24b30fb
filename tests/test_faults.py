"""What breaks under a store or a ledger gives an error with a name, or harms nothing: a quick sample of every line of
docs/faults.md. The drills go on for longer."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from drills import disks, flipping, interrupting
from drills.programs import run
from stage import FIRST, FOREVER, ID, PLAN, Stage

from labkit import errors, opening
from labkit.database import Database
from labkit.deciding import Answer
from labkit.errors import (
    ConditionUnmet,
    InvalidInput,
    NotALabFile,
    OutcomeUnknown,
    StaleToken,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreDiskError,
    StoreError,
    StoreFull,
    StoreMoved,
    StoreNotFound,
    StoreReadOnly,
)
from labkit.exchange import Refusal, Request
from labkit.records import Outcome, PlannedOperation
from labkit.remote import LEDGER, Capabilities, RemoteService
from labkit.seams import ManualClock
from labkit.states import State
from labkit.store import SCHEMA, TaskStore
from labkit.wire import Remote

POSIX = pytest.mark.skipif(os.name != "posix", reason="signals, forks, mounts and open files that can be deleted")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="strace and preloaded libraries are used as on Linux")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "faults.md"
PINNED: dict[str, set[str]] = {}
Errors = tuple[type[errors.LabError], ...]


def fault(line: str, *named: type[errors.LabError]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Say which line of the page a test is about, and which errors it expects; it takes them as `named`."""
    PINNED.setdefault(line, set()).update(one.__name__ for one in named)
    if not named:
        return lambda test: test
    return pytest.mark.parametrize("named", [named], ids=["-".join(one.__name__ for one in named)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.sqlite"


@pytest.fixture(params=[False, True], ids=["store", "ledger"])
def ledger(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


Opened = TaskStore | RemoteService


def open_file(path: Path, ledger: bool = False) -> Opened:
    return RemoteService(path, "payments", flipping.CAN, ManualClock()) if ledger else TaskStore(path, ManualClock())


def write(opened: Opened, name: str) -> None:
    if isinstance(opened, TaskStore):
        opened.enqueue(name, PLAN)
    else:
        opened.handle(Request(name, f"{name}#1", "{}", name))


def write_much(opened: Opened) -> None:
    for number in range(1000):
        write(opened, f"{number:0150}")


def names(opened: Opened) -> list[str]:
    return [task.id for task in opened.tasks()] if isinstance(opened, TaskStore) else sorted(opened.effects())


def filled(path: Path, ledger: bool = False, tasks: int = 3) -> list[str]:
    with open_file(path, ledger) as opened:
        for number in range(tasks):
            write(opened, f"task-{number}")
        return names(opened)


def crashed(path: Path, ledger: bool = False) -> list[str]:
    """Leave the files as a crash leaves them, the changes still in the log."""
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    with open_file(elsewhere / path.name, ledger) as opened:
        for number in range(3):
            write(opened, f"task-{number}")
        for file in elsewhere.iterdir():
            shutil.copy(file, path.parent)
        return names(opened)


def beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def in_rollback_mode(path: Path, ledger: bool = False) -> None:
    open_file(path, ledger).close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)


# Processes that die, and processes that crowd


@POSIX
@fault("a process is killed at any moment")
@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_was_acknowledged_outlives_a_kill_and_every_lease_runs_out(seed: int, ledger: bool) -> None:
    seen = run("killing", "--kills", 20, "--seed", seed, *["--ledger"] * ledger, seconds=120)
    assert seen["kills"] == 20
    assert seen["acknowledged"] > 20
    assert ledger or seen["leases taken over"] > 0


@POSIX
@fault("many workers at once")
def test_eight_processes_claim_each_task_once_and_none_is_turned_away() -> None:
    seen = run("claiming", "--processes", 8, "--tasks", 160, seconds=120)
    assert (seen["claimed"], seen["claimed once"], seen["lost"], seen["errors"]) == (160, 160, 0, [])


@POSIX
@fault("many workers at once")
def test_eight_processes_with_the_same_keys_have_one_effect_a_key_and_hear_the_same() -> None:
    seen = run("claiming", "--ledger", "--processes", 8, "--tasks", 20, seconds=120)
    assert (seen["effects"], seen["most effects of one key"], seen["told the same"], seen["errors"]) == (
        20,
        1,
        True,
        [],
    )


@fault("many workers at once")
def test_a_busy_file_is_asked_again_after_milliseconds_and_anything_else_is_passed_on(path: Path) -> None:
    """SQLite's own waiting comes to look every 100 ms only, and whoever has just let go is faster."""
    filled(path)
    asked = 0

    def ask() -> int:
        nonlocal asked
        asked += 1
        if asked == 20:
            holder.execute("COMMIT")
        if asked == 30:
            other.execute("SELECT * FROM nowhere")
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        return asked

    with closing(sqlite3.connect(path, isolation_level=None)) as holder, closing(sqlite3.connect(path)) as other:
        other.isolation_level = None
        other.execute("PRAGMA busy_timeout = 0")
        holder.execute("BEGIN IMMEDIATE")
        assert opening.patiently(ask) == 20
        asked = 29
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            opening.patiently(ask)
    with open_file(path) as store:
        assert store._db.connection().execute("PRAGMA busy_timeout").fetchone() == (20,)


@fault("another program keeps a write transaction open", StoreBusy)
def test_a_file_that_stays_locked_is_busy_and_free_again_after_it(
    path: Path, ledger: bool, named: Errors, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"`StoreBusy` after {opening.PATIENCE_SECONDS:g} s" in PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(opening, "PATIENCE_SECONDS", 0.0)
    before = filled(path, ledger)
    with open_file(path, ledger) as opened, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(named):
            write(opened, "new")
        other.execute("COMMIT")
        assert names(opened) == before
        write(opened, "new")


# Power


STRACE = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed: no run can be recorded")
QUICK = ("--changes", 16, "--share", 0.04, "--halves", 1)


@LINUX
@STRACE
@fault("the power fails")
@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_power_cut_takes_no_acknowledged_change_and_leaves_the_file_sound(journal: str, ledger: bool) -> None:
    seen = run("powercut", *QUICK, "--journal", journal, *["--ledger"] * ledger, seconds=120)
    assert (seen["lost"], seen["broken"], seen["acknowledged"]) == (0, 0, 16)
    assert seen["kept"] == 3 * seen["prefixes"] > 0


@LINUX
@STRACE
@fault("the power fails")
def test_with_less_synchronising_a_power_cut_is_seen_to_take_changes_or_the_whole_file() -> None:
    """The control: the model of the disk can lose things. With NORMAL the file stays sound, with OFF it need not."""
    normal = run("powercut", *QUICK, "--synchronous", "NORMAL", seconds=120)
    assert normal["lost"] > 0
    assert normal["broken"] == 0
    off = run("powercut", *QUICK, "--synchronous", "OFF", "--journal", "delete", seconds=120)
    assert off["lost"] + off["broken"] > 0


@LINUX
@STRACE
@fault("no write-ahead log is possible here")
def test_a_rollback_journal_that_is_synced_only_fully_can_come_back_and_undo_what_was_acknowledged() -> None:
    """So the store asks for EXTRA there: https://www.sqlite.org/pragma.html#pragma_synchronous."""
    seen = run("powercut", *QUICK, "--journal", "delete", "--level", "FULL", seconds=120)
    assert seen["lost"] > 0
    assert seen["broken"] == 0


# Disks


@POSIX
@pytest.mark.skipif(not disks.can_mount(), reason="only root may mount a small disk")
@fault("the disk is full", StoreFull)
def test_a_full_disk_is_said_to_be_full_loses_nothing_and_the_same_store_goes_on_with_room(
    ledger: bool, named: Errors
) -> None:
    seen = run("disks", "full", *["--ledger"] * ledger, before=("unshare", "-m"), seconds=120)
    assert seen["filling"] in kinds(named)
    assert seen["lost"] == 0
    assert {first for first, _ in seen["creating"].values()} <= {"ok"} | kinds(named)
    assert seen["creating"]["4096"][0] in kinds(named)
    assert {then for _, then in seen["creating"].values()} == {"ok"}


@fault("the disk is full", StoreFull)
def test_a_file_that_cannot_grow_is_full_and_the_transaction_is_gone(path: Path, ledger: bool, named: Errors) -> None:
    before = filled(path, ledger)
    with open_file(path, ledger) as opened:
        connection = opened._db.connection()
        connection.execute("PRAGMA max_page_count = 1")
        with pytest.raises(named):
            write_much(opened)
        connection.execute("PRAGMA max_page_count = 4294967294")
        kept = names(opened)
        assert set(before) < set(kept)
        write(opened, "new")
        assert len(names(opened)) == len(kept) + 1


@POSIX
@fault("a quota or a limit on file sizes is met", StoreDiskError)
def test_a_write_that_fails_is_a_disk_error_and_nothing_acknowledged_is_lost(ledger: bool, named: Errors) -> None:
    seen = run("disks", "limited", *["--ledger"] * ledger, seconds=120)
    assert seen["filling"] in kinds(named)
    assert seen["lost"] <= 0


@POSIX
@fault("the file or its folder may not be written", StoreReadOnly)
def test_what_may_not_be_written_is_read_only(ledger: bool, named: Errors) -> None:
    seen = run("disks", "forbidden", *["--ledger"] * ledger, seconds=120)
    assert {seen["file"], seen["folder"]} == kinds(named)


UNREACHABLE = "the file may not be read, or the folder is missing"


@POSIX
@fault(UNREACHABLE, StoreNotFound)
def test_what_may_not_be_read_or_has_no_folder_is_not_found(ledger: bool, named: Errors) -> None:
    seen = run("disks", "forbidden", *["--ledger"] * ledger, seconds=120)
    assert {seen["reading"], seen["missing folder"]} == kinds(named)


@POSIX
@pytest.mark.skipif(not disks.can_mount(), reason="only root may mount a disk read-only")
@fault("the disk is mounted read-only", StoreReadOnly, StoreNotFound)
def test_on_a_disk_mounted_read_only_a_file_is_read_only_and_none_is_created(ledger: bool, named: Errors) -> None:
    seen = run("disks", "read_only", *["--ledger"] * ledger, before=("unshare", "-m"), seconds=120)
    assert seen == {"file.sqlite": "StoreReadOnly", "with log.sqlite": "StoreReadOnly", "new.sqlite": "StoreNotFound"}
    assert set(seen.values()) == kinds(named)


@POSIX
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@fault("the file or its folder may not be written", StoreReadOnly)
def test_a_file_that_was_made_writable_again_opens(path: Path, ledger: bool, named: Errors) -> None:
    before = filled(path, ledger)
    path.chmod(0o444)
    with pytest.raises(named):
        open_file(path, ledger)
    path.chmod(0o644)
    with open_file(path, ledger) as again:
        assert names(again) == before


@POSIX
@fault(UNREACHABLE, StoreNotFound)
@pytest.mark.parametrize("where", ["x" * 260, "y" * 5000 + "/tasks.sqlite"], ids=["long name", "long path"])
def test_a_name_that_no_disk_takes_is_not_found(where: str, tmp_path: Path, ledger: bool, named: Errors) -> None:
    with pytest.raises(named):
        open_file(tmp_path / where, ledger)


@POSIX
@fault(UNREACHABLE, StoreNotFound)
def test_in_a_working_folder_that_was_deleted_no_file_is_found(tmp_path: Path, ledger: bool, named: Errors) -> None:
    script = f"""
import os, shutil
from labkit import RemoteService, TaskStore
from labkit.errors import StoreNotFound
os.chdir({str(tmp_path)!r})
shutil.rmtree({str(tmp_path)!r})
try:
    {'RemoteService("tasks.sqlite", "payments")' if ledger else 'TaskStore("tasks.sqlite")'}
except StoreNotFound as error:
    print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert {done.stdout.strip()} == kinds(named), done.stderr


@dataclass
class OddPath(os.PathLike[Any]):
    """Says it is a path, and is none."""

    name: Any

    def __fspath__(self) -> Any:
        return self.name


@pytest.mark.parametrize(
    "odd", ["", ":memory:", "a\0b", "\ud800", b"bytes", 5, None, OddPath(b"a"), OddPath("a\0b"), OddPath(5)], ids=repr
)
def test_what_is_no_path_is_invalid(odd: Any, ledger: bool) -> None:
    with pytest.raises(InvalidInput, match="the path of a file"):
        open_file(odd, ledger)


def kinds(named: Errors) -> set[str]:
    return {one.__name__ for one in named}


# Files that are not what they should be


@fault("the file is no database", StoreCorrupt)
@pytest.mark.parametrize("content", [b"hello", b"SQLite format 2\0" * 300, b"\0" * 8192, b"\xff" * 5000], ids=range(4))
def test_what_is_no_database_is_named_and_left_as_it_was(
    content: bytes, path: Path, ledger: bool, named: Errors
) -> None:
    path.write_bytes(content)
    with pytest.raises(named):
        open_file(path, ledger)
    assert path.read_bytes() == content


@fault("the file is empty", StoreCorrupt)
def test_an_empty_file_is_a_new_one_unless_its_log_lies_beside_it(path: Path, ledger: bool, named: Errors) -> None:
    path.touch()
    open_file(path, ledger).close()
    path.unlink()
    crashed(path, ledger)
    os.truncate(path, 0)
    log = beside(path, "-wal").read_bytes()
    with pytest.raises(named, match="the file is empty, and yet"):
        open_file(path, ledger)
    assert beside(path, "-wal").read_bytes() == log


NOT_OURS = "the file is another program's, or of another lab schema"


@fault(NOT_OURS, NotALabFile)
@pytest.mark.parametrize(
    "statement",
    [
        "PRAGMA application_id = 7",
        "PRAGMA user_version = 0",
        "PRAGMA user_version = 99",
        "DROP VIEW in_doubt",
        "DROP INDEX tasks_due",
        "DROP TRIGGER events_are_not_changed",
        "ALTER TABLE tasks ADD COLUMN colour TEXT",
    ],
)
def test_a_file_of_another_program_or_schema_is_named_and_left_as_it_was(
    statement: str, path: Path, named: Errors
) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)
        db.commit()
    before = path.read_bytes()
    with pytest.raises(named):
        open_file(path)
    assert path.read_bytes() == before


@fault(NOT_OURS, NotALabFile)
def test_a_store_and_a_ledger_do_not_take_each_other_s_files(path: Path, ledger: bool, named: Errors) -> None:
    filled(path, ledger)
    with pytest.raises(named):
        open_file(path, not ledger)
    with open_file(path, ledger) as opened:
        assert len(names(opened)) == 3


def test_what_others_add_to_a_file_of_ours_is_no_damage(path: Path) -> None:
    before = filled(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE INDEX mine ON tasks (kind)")
    with open_file(path) as store:
        assert names(store) == before


@fault("the file was cut short", StoreCorrupt)
def test_a_file_cut_anywhere_is_named(path: Path, ledger: bool, named: Errors) -> None:
    filled(path, ledger, tasks=60)
    whole = path.read_bytes()
    for length in (2, 15, 16, 99, 100, 512, 4095, 4096, 4097, 8192, len(whole) // 2, len(whole) - 4096):
        path.write_bytes(whole[:length])
        with pytest.raises(named):
            open_file(path, ledger)
        assert path.read_bytes() == whole[:length]


@fault("bits have flipped on the disk", StoreCorrupt, NotALabFile, StoreReadOnly)
def test_flipped_bits_are_named_or_not_noticed(ledger: bool, named: Errors) -> None:
    seen = flipping.flip(40, 1, ledger)
    assert set(seen) <= kinds(named) | {"not noticed"}
    assert seen["StoreCorrupt"] > 10


@fault("bits have flipped on the disk", StoreReadOnly)
def test_a_format_that_only_newer_programs_may_write_can_still_be_read(path: Path, named: Errors) -> None:
    filled(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:18] + bytes([whole[18] + 1]) + whole[19:])
    with TaskStore(path) as store:
        assert store.tasks()
        with pytest.raises(named):
            store.enqueue("task-99", ())


@fault("bits have flipped on the disk", StoreCorrupt)
@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE tasks SET state = 'runnjng'", "CHECK constraint failed in tasks"),
        (
            "UPDATE operations SET task_id = 'nobody' WHERE name = 'send_email' AND task_id = 'task-0'",
            "a row of operations belongs to a row of tasks that is not there",
        ),
        ("UPDATE operations SET request = '{\"amount\": 40'", "a row that cannot be read"),
        ("UPDATE operations SET request = cast(x'7b22ff227d' AS TEXT)", "Could not decode to UTF-8"),
        ("UPDATE events SET detail = 'none'", "a row that cannot be read"),
    ],
)
def test_a_row_that_cannot_be_is_damage(statement: str, found: str, path: Path, named: Errors) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        db.execute("DROP TRIGGER events_are_not_changed")
        db.execute(statement)
        db.execute(trigger_of_events())
        db.commit()
    with pytest.raises(named, match=re.escape(found)):
        read_everything(path)


def read_everything(path: Path) -> None:
    with TaskStore(path) as store:
        for task in store.tasks():
            store.history(task.id)


def trigger_of_events() -> str:
    return next(sql for name, sql in SCHEMA.objects if name == "events_are_not_changed")


HEADS: dict[str, Callable[[bytes], bytes]] = {
    "a schema that is no text": lambda head: head.replace(b"viewin_doubt", b"viewin\xffdoubt").replace(
        b"CREATE VIEW in_doubt", b"CREATE VIEX in_doubt"
    ),
    "a format of the future": lambda head: head[:44] + (9).to_bytes(4, "big") + head[48:],
}


@fault("bits have flipped on the disk", StoreCorrupt)
@pytest.mark.parametrize("harm", HEADS)
def test_a_head_that_sqlite_itself_has_no_name_for_is_damage(harm: str, path: Path, named: Errors) -> None:
    filled(path)
    damaged = HEADS[harm](path.read_bytes())
    assert damaged != path.read_bytes()
    path.write_bytes(damaged)
    with pytest.raises(named):
        open_file(path)


@fault("bits have flipped on the disk", StoreCorrupt)
def test_a_large_file_is_opened_at_once_and_its_damage_shows_where_it_is_met(
    path: Path, named: Errors, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"up to {opening.EXAMINED_BYTES >> 20} MB" in PAGE.read_text(encoding="utf-8")
    filled(path, tasks=60)
    monkeypatch.setattr(opening, "EXAMINED_BYTES", path.stat().st_size - 1)
    with closing(sqlite3.connect(path)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'operations'").fetchone()
    content = bytearray(path.read_bytes())
    content[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
    path.write_bytes(content)
    with open_file(path) as store, pytest.raises(named):
        names(store)


@fault("bits have flipped on the disk")
def test_another_plausible_value_is_believed(path: Path) -> None:
    filled(path)
    path.write_bytes(path.read_bytes().replace(b'{"amount": 40}', b'{"amount": 90}'))
    with open_file(path) as store:
        assert isinstance(store, TaskStore)
        assert store.get("task-0").operations[0].request == {"amount": 90}


# The files beside it


LOG = "after a crash the `-wal` file is removed, cut or overwritten"


@fault(LOG)
@pytest.mark.parametrize("harm", ["removed", "cut", "emptied", "overwritten", "kept"])
def test_without_its_log_a_file_is_sound_and_lacks_what_was_in_it(harm: str, path: Path, ledger: bool) -> None:
    before = crashed(path, ledger)
    log = beside(path, "-wal")
    if harm == "removed":
        log.unlink()
    elif harm != "kept":
        cut = {"cut": log.read_bytes()[:9000], "emptied": b"", "overwritten": b"\xa5" * 40_000}
        log.write_bytes(cut[harm])
    with open_file(path, ledger) as opened:
        assert names(opened) == (before if harm == "kept" else [])
        write(opened, "new")


@fault("after a crash the `-shm` file is removed or overwritten")
@pytest.mark.parametrize("content", [None, b"", b"\xa5" * 32768])
def test_shared_memory_is_built_anew(content: bytes | None, path: Path, ledger: bool) -> None:
    before = crashed(path, ledger)
    beside(path, "-shm").unlink()
    if content is not None:
        beside(path, "-shm").write_bytes(content)
    with open_file(path, ledger) as opened:
        assert names(opened) == before


MOVED = "the file, its folder, `-wal` or `-shm` is deleted or replaced while in use"
HARMS: dict[str, Callable[[Path], object]] = {
    "deleted": lambda path: path.unlink(),
    "replaced": lambda path: (filled(path.with_name("other")), path.with_name("other").replace(path)),
    "emptied": lambda path: os.truncate(path, 0),
    "moved away": lambda path: path.rename(path.with_name("other")),
    "folder removed": lambda path: shutil.rmtree(path.parent),
    "folder moved away": lambda path: path.parent.rename(path.parent.with_name("other")),
    "log deleted": lambda path: beside(path, "-wal").unlink(),
    "log replaced": lambda path: (beside(path, "-wal").unlink(), beside(path, "-wal").touch()),
    "shared memory deleted": lambda path: beside(path, "-shm").unlink(),
}


@POSIX
@fault(MOVED, StoreMoved)
@pytest.mark.parametrize("harm", HARMS)
def test_a_file_that_was_taken_away_is_noticed_before_anything_more_is_written(
    harm: str, tmp_path: Path, ledger: bool, named: Errors
) -> None:
    """SQLite would go on, and what it wrote would be gone with the last process that has the file open."""
    path = tmp_path / "home" / "file.sqlite"
    path.parent.mkdir()
    filled(path, ledger)
    with open_file(path, ledger) as opened:
        write(opened, "last")
        HARMS[harm](path)
        for call in (lambda: write(opened, "new"), lambda: names(opened)):
            with pytest.raises(named):
                call()


@POSIX
@fault(MOVED, StoreMoved)
def test_in_rollback_mode_a_file_that_was_taken_away_is_noticed_too(path: Path, ledger: bool, named: Errors) -> None:
    in_rollback_mode(path, ledger)
    with open_file(path, ledger) as opened:
        write(opened, "last")
        path.unlink()
        with pytest.raises(named):
            write(opened, "new")


@POSIX
@fault(MOVED, StoreMoved)
def test_in_rollback_mode_even_a_file_that_is_taken_away_in_the_middle_is_noticed(path: Path, named: Errors) -> None:
    def take_away() -> None:
        with store._db.write() as db:
            path.unlink()
            db.execute("DELETE FROM messages")
            db.execute("INSERT INTO tasks (id, kind) VALUES ('task-1', 'refund')")

    in_rollback_mode(path)
    with open_file(path) as store, pytest.raises(named):
        take_away()


@POSIX
@fault(MOVED, StoreMoved)
def test_a_file_that_is_taken_away_while_it_is_opened_is_noticed(
    path: Path, ledger: bool, named: Errors, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_and_lose(*arguments: Any, **more: Any) -> tuple[sqlite3.Connection, str]:
        found = opening.open_file(*arguments, **more)
        beside(path, "-wal").unlink()
        return found

    monkeypatch.setattr("labkit.database.open_file", open_and_lose)
    with pytest.raises(named):
        open_file(path, ledger)


@POSIX
@fault(MOVED, StoreMoved)
def test_another_thread_does_not_open_what_lies_at_the_place_now(path: Path, ledger: bool, named: Errors) -> None:
    filled(path, ledger)
    with open_file(path, ledger) as opened:
        path.unlink()
        open_file(path, ledger).close()
        assert isinstance(in_thread(lambda: write(opened, "new")), named)
    with open_file(path, ledger) as opened:
        assert names(opened) == []


@POSIX
@fault(MOVED, StoreMoved)
def test_a_log_that_another_process_removed_because_our_locks_were_dropped_is_noticed(
    path: Path, named: Errors
) -> None:
    """Closing any handle on a file drops this process's locks on it, so somebody else may think the file unused."""
    before = filled(path)
    with open_file(path) as store:
        path.read_bytes()
        program = "import sys; from labkit import TaskStore; TaskStore(sys.argv[1]).close()"
        subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=60)
        assert not beside(path, "-wal").exists(), "it took itself for the last user"
        with pytest.raises(named):
            write(store, "new")
    with open_file(path) as store:
        assert names(store) == before


def in_thread(call: Callable[[], object]) -> object:
    found: list[object] = []

    def work() -> None:
        try:
            found.append(call())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0]


@fault("a folder lies in the place of `-wal`", StoreNotFound, StoreDiskError)
def test_a_folder_in_the_place_of_the_log_is_named(path: Path, ledger: bool, named: Errors) -> None:
    beside(path, "-wal").mkdir()
    with pytest.raises(named):
        open_file(path, ledger)
    beside(path, "-wal").rmdir()
    before = filled(path, ledger)
    beside(path, "-wal").mkdir()
    with pytest.raises(named):
        open_file(path, ledger)
    beside(path, "-wal").rmdir()
    with open_file(path, ledger) as opened:
        assert names(opened) == before


# No write-ahead log


NO_LOG = "no write-ahead log is possible here"
NO_SHARED_MEMORY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
void *mmap64(void *at, size_t length, int rights, int flags, int file, off_t offset) {
    static void *(*real)(void *, size_t, int, int, int, off_t);
    char link[64], name[4096];
    if (!real) real = dlsym(RTLD_NEXT, "mmap64");
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length_of_name = file < 0 ? -1 : readlink(link, name, sizeof name);
    if (length_of_name > 4 && !memcmp(name + length_of_name - 4, "-shm", 4)) {
        errno = ENODEV;
        return MAP_FAILED;
    }
    return real(at, length, rights, flags, file, offset);
}
void *mmap(void *at, size_t length, int rights, int flags, int file, off_t offset) {
    return mmap64(at, length, rights, flags, file, offset);
}
"""
USE = """
import sys
from labkit import PlannedOperation, TaskStore
for name in sys.argv[2:]:
    with TaskStore(sys.argv[1]) as store, TaskStore(sys.argv[1]) as other:
        store.enqueue(name, [PlannedOperation("refund", "payments", {})])
        (level,) = store._db.connection().execute("PRAGMA synchronous").fetchone()
        print(store.journal_mode, level, len(other.tasks()))
"""


@pytest.fixture(scope="module")
def no_shared_memory(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which, as on some network homes, files cannot be mapped into shared memory."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to make such a folder's behaviour with")
    source = tmp_path_factory.mktemp("no_shared_memory") / "no_shared_memory.c"
    source.write_text(NO_SHARED_MEMORY, encoding="ascii")
    library = source.with_suffix(".so")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, timeout=60)
    return {**os.environ, "LD_PRELOAD": str(library)}


@LINUX
@fault(NO_LOG)
def test_where_no_memory_can_be_shared_a_new_file_gets_a_rollback_journal(
    path: Path, no_shared_memory: dict[str, str]
) -> None:
    command = [sys.executable, "-c", USE, str(path), "task-1", "task-2"]
    done = subprocess.run(command, env=no_shared_memory, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["delete 3 1", "delete 3 2"], done.stderr
    with open_file(path) as store:
        assert isinstance(store, TaskStore)
        assert (store.journal_mode, names(store)) == ("delete", ["task-1", "task-2"])


@LINUX
@fault(NO_LOG)
def test_a_file_with_a_log_that_was_carried_to_such_a_place_is_used_without_one(
    path: Path, no_shared_memory: dict[str, str]
) -> None:
    assert crashed(path) == ["task-0", "task-1", "task-2"]
    command = [sys.executable, "-c", USE, str(path), "task-3", "task-4"]
    done = subprocess.run(command, env=no_shared_memory, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["delete 3 4", "delete 3 5"], done.stderr


@POSIX
@fault(NO_LOG)
def test_where_sqlite_refuses_a_log_a_rollback_journal_is_used_and_synced_harder(
    path: Path, ledger: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(path: str) -> sqlite3.Connection:
        uri = f"{Path(path).as_uri()}?vfs=unix-dotfile"  # knows no shared memory
        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)

    monkeypatch.setattr(opening, "_connect", connect)
    database = Database(path, LEDGER if ledger else SCHEMA)
    assert database.journal_mode == "delete"
    assert database.connection().execute("PRAGMA synchronous").fetchone() == (3,)
    database.close()


@fault(NO_LOG)
@pytest.mark.parametrize("writing", [False, True], ids=["read", "write"])
def test_in_rollback_mode_readers_and_writers_wait_for_each_other(
    writing: bool, path: Path, ledger: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_rollback_mode(path, ledger)
    with open_file(path, ledger) as opened, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN" if writing else "BEGIN EXCLUSIVE")
        other.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        monkeypatch.setattr("time.sleep", lambda seconds: other.in_transaction and other.execute("COMMIT"))
        write(opened, "new") if writing else opened._db.read().__enter__()


@fault("the working folder changes")
def test_a_store_stays_with_its_file_when_the_working_folder_changes(
    path: Path, ledger: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    with open_file(Path(path.name), ledger) as opened:
        write(opened, "here")
        (path.parent / "elsewhere").mkdir()
        monkeypatch.chdir(path.parent / "elsewhere")
        assert in_thread(lambda: write(opened, "there")) is None
        assert names(opened) == ["here", "there"]
    assert list((path.parent / "elsewhere").iterdir()) == []


# Clocks


@fault("the clock jumps ahead", StaleToken)
def test_when_the_clock_jumps_ahead_leases_run_out_early_and_their_holders_are_told(
    stage: Stage, named: Errors
) -> None:
    holder = stage.sent()
    stage.clock.advance(1e6)
    other = stage.store.take_over(stage.task, "worker-2")
    assert other.state is State.UNCERTAIN
    with pytest.raises(named):
        stage.store.checkpoint(holder, FIRST, "payments-1")
    assert stage.task.in_doubt is not None


@fault("the clock jumps ahead")
def test_when_the_clock_jumps_ahead_an_approval_expires_early_and_a_doubt_never_does(stage: Stage) -> None:
    task = stage.awaiting_approval()
    stage.clock.advance(1e6)
    assert stage.store.expire(task) is State.FAILED


def back(stage: Stage, seconds: float) -> None:
    stage.clock.reset(stage.clock.now() - seconds)


@fault("the clock jumps back")
def test_when_the_clock_jumps_back_leases_and_waits_last_longer_and_work_goes_on(stage: Stage) -> None:
    lease = stage.refused_once()
    back(stage, 500)
    assert stage.store.claim_next("worker-2") is None
    lease = stage.store.renew(lease)
    assert lease.expires_at == 1030, "never for less"
    lease, _ = stage.store.intend(lease, FIRST)
    stage.store.checkpoint(lease, FIRST, "payments-1")
    stage.clock.advance(530)
    assert stage.store.claim_next("worker-2") is not None


@fault("the clock jumps back", ConditionUnmet)
def test_an_age_below_zero_does_not_prove_that_a_key_is_remembered(stage: Stage, named: Errors) -> None:
    """The sending may be older than the key's memory: its age is unknown, so a person is asked."""
    lease = stage.uncertain()
    back(stage, 1)
    with pytest.raises(named, match="age -1"):
        stage.store.intend(lease, FIRST, key_memory_seconds=FOREVER)
    assert stage.store.ask(lease, "the clock jumped", 60) is State.AWAITING_CONFIRMATION


@fault("the clock jumps back")
def test_a_ledger_s_keys_are_remembered_for_longer_when_its_clock_jumps_back(path: Path) -> None:
    clock = ManualClock(1000)
    with RemoteService(path, "payments", Capabilities(idempotency_keys=True, key_ttl_seconds=10), clock) as service:
        request = Request(FIRST, "r", "{}", "key")
        service.handle(request)
        clock.reset(0)
        assert service.handle(request).replayed
        assert service.effects() == {FIRST: 1}


@fault("two workers' clocks differ", StaleToken)
def test_of_two_workers_whose_clocks_differ_the_one_ahead_takes_over_and_the_other_is_told(
    stage: Stage, tmp_path: Path, named: Errors
) -> None:
    holder = stage.running()
    with TaskStore(tmp_path / "tasks.sqlite", ManualClock(1000 + 3600)) as ahead:
        lease = ahead.claim_next("worker-2")
        assert lease is not None
        for _ in range(2):
            with pytest.raises(named):
                stage.store.intend(holder, FIRST)
        lease, _ = ahead.intend(lease, FIRST)
        ahead.checkpoint(lease, FIRST, "payments-1")
    assert stage.store.claim_next("worker-1") is None, "by our clock it is held for another hour"
    tokens = [line.token for line in stage.store.history(ID)]
    assert tokens == sorted(tokens)


FAR = "a lease reaches far into the future"


@fault(FAR, InvalidInput)
def test_no_lease_reaches_further_than_a_day(stage: Stage, named: Errors) -> None:
    with pytest.raises(named, match="lease_seconds"):
        stage.store.claim(stage.queued(), "worker-1", 86_401)


@fault(FAR)
def test_a_lease_written_by_a_wrong_clock_is_ended_by_hand_without_touching_a_newer_one(
    stage: Stage, tmp_path: Path
) -> None:
    (statement,) = re.findall(r"`(UPDATE tasks SET lease[^`]*)`", PAGE.read_text(encoding="utf-8"))
    task = stage.queued()
    with TaskStore(tmp_path / "tasks.sqlite", ManualClock(1e9)) as wrong:
        lease = wrong.claim(task, "worker-1")
    assert stage.store.claim_next("worker-2") is None
    assert stage.sql(f"{statement} RETURNING id", ID, lease.token - 1) == []
    assert stage.sql(f"{statement} RETURNING id", ID, lease.token) == [(ID,)]
    taken = stage.store.claim_next("worker-2")
    assert taken is not None
    assert taken.token == lease.token + 1


# Threads, forks, interrupts


@fault("a call comes from another thread")
def test_a_call_from_another_thread_is_served(path: Path, ledger: bool) -> None:
    with open_file(path, ledger) as opened:
        assert in_thread(lambda: write(opened, "task-1")) is None
        assert names(opened) == ["task-1"]


FORK = """
import os, sys
from labkit import TaskStore
from labkit.errors import StoreClosed
store = TaskStore(sys.argv[1])
store.enqueue("before", [])
journal = sys.argv[1] + "-journal"
with store._db.write() as db:
    db.execute("INSERT INTO tasks (id, kind) VALUES ('during', 'refund')")
    child = os.fork()
    if not child:
        try:
            store.tasks()
        except StoreClosed as error:
            print(error.found, flush=True)
            store.close()
            if store.journal_mode == "wal":
                sys.exit(0)  # all objects are destroyed, connections among them
            os._exit(0)
    there = os.path.exists(journal)
    assert os.waitpid(child, 0)[1] == 0
    assert os.path.exists(journal) == there == (store.journal_mode == "delete")
store.enqueue("after", [])
print([task.id for task in store.tasks()])
"""


@POSIX
@fault("the process forks with a store open", StoreClosed)
@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_child_is_told_that_the_store_is_its_parent_s_which_goes_on(mode: str, path: Path, named: Errors) -> None:
    if mode == "delete":
        in_rollback_mode(path)
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines() == ["opened by another process", "['after', 'before', 'during']"], done.stderr
    with open_file(path) as store:
        assert names(store) == ["after", "before", "during"]


@fault("the store is closed while another thread uses it", StoreClosed)
def test_a_store_closed_under_another_thread_rolls_back_and_says_so(path: Path, ledger: bool, named: Errors) -> None:
    filled(path, ledger)
    opened = open_file(path, ledger)
    inside, closed = threading.Event(), threading.Event()

    def use() -> None:
        with opened._db.write() as db:
            db.execute(f"DELETE FROM {'requests' if ledger else 'messages'}")
            inside.set()
            closed.wait()
            db.execute("SELECT 1")

    def close() -> None:
        inside.wait()
        opened.close()
        closed.set()

    closing_thread = threading.Thread(target=close)
    closing_thread.start()
    assert isinstance(in_thread(use), named)
    closing_thread.join()
    with open_file(path, ledger) as again:
        assert len(names(again)) == 3


MANY_THREADS = """
import sys, threading, time
from labkit import PlannedOperation, RemoteService, TaskStore
from labkit.errors import StoreClosed
from labkit.exchange import Request

path, ledger, said = sys.argv[1], sys.argv[2] == "ledger", []
plan = [PlannedOperation("refund", "payments", {})]


def work(name):
    try:
        for n in range(1_000_000):
            if ledger:
                opened.handle(Request(f"{name}-{n}", "r", "{}"))
            else:
                opened.enqueue(f"{name}-{n}", plan)
                opened.claim_next(name)
                opened.tasks()
    except StoreClosed:
        said.append("StoreClosed")


for turn in range(5):
    opened = RemoteService(path, "payments") if ledger else TaskStore(path)
    threads = [threading.Thread(target=work, args=(f"{turn}-{n}",)) for n in range(4)]
    with opened:
        for thread in threads:
            thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join(30)
assert said == ["StoreClosed"] * 20, said
"""


@fault("the store is closed while another thread uses it")
def test_closing_under_many_busy_threads_ends_their_calls_and_not_the_process(path: Path, ledger: bool) -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", MANY_THREADS, str(path), "ledger" if ledger else "store"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@fault("the store is closed while another thread uses it")
def test_closing_does_not_wait_for_ever_for_a_thread_that_stays_in_its_call(path: Path, ledger: bool) -> None:
    opened = open_file(path, ledger)
    inside, closed = threading.Event(), threading.Event()
    seen: list[BaseException] = []

    def use() -> None:
        try:
            with opened._db.write() as db:
                inside.set()
                closed.wait()
                db.execute("SELECT 1")
        except StoreClosed as error:
            seen.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    inside.wait()
    opened.close()
    closed.set()
    thread.join()
    assert opened._db._opened == {}, "its owner has closed it"


@fault("a call comes in the middle of a call on the same file", StoreClosed)
def test_a_gate_that_touches_its_own_ledger_breaks_the_call_and_leaves_nothing_half_done(
    path: Path, named: Errors
) -> None:
    def gate(request: Request) -> Refusal | None:
        service.effects()
        return None

    with RemoteService(path, "payments", clock=ManualClock(), gate=gate) as service:
        with pytest.raises(named, match="in the middle of a call"):
            service.handle(Request(FIRST, "r-1", "{}"))
        assert (service.effects(), service.requests()) == ({}, [])


INTERRUPT = "an interrupt in the middle of a call"


@fault(INTERRUPT)
@pytest.mark.parametrize("name", interrupting.STEPS)
def test_an_interrupt_leaves_all_or_nothing_and_the_store_goes_on(name: str) -> None:
    seen = interrupting.interrupt_everywhere(name, stride=13)  # Python 3.13 tells of far fewer bytecodes
    assert seen["interrupts"] >= 2
    assert seen["locked until the next call"] == 0


@POSIX
@fault(INTERRUPT)
def test_an_interrupt_by_a_signal_leaves_a_task_at_one_of_its_steps() -> None:
    seen = run("interrupting", "--times", 60, seconds=120)
    assert seen["interrupts"] == 60


@fault(INTERRUPT)
def test_a_transaction_that_an_interrupt_left_open_is_nobody_s_and_does_not_lock_the_file_for_ever(
    path: Path, ledger: bool
) -> None:
    before = filled(path, ledger)
    with open_file(path, ledger) as opened:
        connection = opened._db.connection()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"DELETE FROM {'requests' if ledger else 'messages'}")
        assert names(opened) == before
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")


# Names and payloads


ODD = "odd names and payloads"
NAMES = ["O'Brien; DROP TABLE tasks; --", '"quoted"', "💶🦆", "%s {0} :id ?1", "a" * 200]


@fault(ODD)
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_odd_names_and_payloads_are_kept_as_they_are(name: str, path: Path) -> None:
    body: dict[str, Any] = {name: [name, {"deep": name}], "nul": "a\0b", "big": "x" * 10_000_000}
    for _ in range(90):
        body = {"in": body}
    with TaskStore(path, synchronous="OFF") as store:
        store.enqueue(name, (PlannedOperation(name, name, body),))
        assert store.get(name).operations[0].request == body
    with RemoteService(path.with_name("ledger"), "payments", synchronous="OFF") as service:
        Remote(service).send(name, body, name, name)
        assert service.effects() == {name: 1}


def nested(levels: int) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for _ in range(levels):
        body = {"in": [body]}
    return body


CALLS: dict[str, Callable[[Stage, Any], object]] = {
    "get": lambda s, odd: s.store.get(odd),
    "history": lambda s, odd: s.store.history(odd),
    "transcript": lambda s, odd: s.store.transcript(odd),
    "say to": lambda s, odd: s.store.say(odd, "user", {}),
    "request_cancel": lambda s, odd: s.store.request_cancel(odd, "Ada"),
    "undelivered": lambda s, odd: s.store.undelivered(odd),
    "intend": lambda s, odd: s.store.intend(s.running(), odd),
    "checkpoint": lambda s, odd: s.store.checkpoint(s.sent(), FIRST, odd),
    "lose_track": lambda s, odd: s.store.lose_track(s.sent(), odd),
    "settle by": lambda s, odd: s.store.settle(s.uncertain(), FIRST, True, odd, "ref"),
    "settle with": lambda s, odd: s.store.settle(s.uncertain(), FIRST, True, "query", odd),
    "ask": lambda s, odd: s.store.ask(s.uncertain(), odd, 60),
    "fail": lambda s, odd: s.store.fail(s.sent(), "invalid", odd, Outcome.REFUSED),  # type: ignore[arg-type]
}


@fault(ODD, InvalidInput)
@pytest.mark.parametrize("odd", ["\ud800", {"a": 1}, 2**70], ids=["lone surrogate", "dict", "huge"])
@pytest.mark.parametrize("call", CALLS)
def test_what_cannot_be_stored_is_invalid_and_nothing_is_written(
    call: str, odd: object, stage: Stage, named: Errors
) -> None:
    with pytest.raises((*named, errors.ChangeRefused) if call in ("intend", "lose_track", "fail") else named) as found:
        CALLS[call](stage, odd)
    assert isinstance(found.value, named), found.value
    with stage.store._db.read() as db:
        assert db.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM operations WHERE status = 'done'").fetchone() == (0,)


@fault(ODD, InvalidInput)
@pytest.mark.parametrize(
    "body", [{"a": "\ud800"}, {"a": float("nan")}, {"a": {1}}, nested(60), nested(100_000)], ids=range(5)
)
def test_what_json_cannot_say_is_invalid_and_never_reaches_store_or_ledger(
    body: dict[str, Any], stage: Stage, path: Path, named: Errors
) -> None:
    with pytest.raises(named):
        stage.queued((PlannedOperation("refund", "payments", body),))
    assert stage.store.tasks() == []
    with RemoteService(path.with_name("ledger"), "payments", synchronous="OFF") as service:
        with pytest.raises(named):
            Remote(service).send("refund", body, "r-1")
        assert service.requests() == []


ODD_TEXTS = {"lone surrogate": "\ud800", "dict": {"a": 1}, "int": 5, "NUL": "a\0b", "line break": "a\nb", "nothing": ""}


@fault(ODD, InvalidInput)
@pytest.mark.parametrize("odd", [*ODD_TEXTS.values(), None], ids=[*ODD_TEXTS, "none"])
def test_a_request_that_a_ledger_cannot_store_is_invalid_and_has_no_effect(odd: Any, path: Path, named: Errors) -> None:
    with RemoteService(path, "payments", flipping.CAN, synchronous="OFF") as service:
        remote = Remote(service)
        calls: list[Callable[[], object]] = [
            lambda: remote.send(odd, {}, "r"),
            lambda: remote.send("a", {}, odd),
            lambda: remote.query(odd),
            lambda: service.query(odd),
            lambda: Request(odd, "r", "{}"),
            lambda: Request("a", odd, "{}"),
        ]
        if odd is not None:  # which stands for no key
            calls.append(lambda: remote.send("a", {}, "r", odd))
        for call in calls:
            with pytest.raises(named):
                call()
        assert (service.effects(), service.arrivals(), service.requests()) == ({}, [], [])


@fault(ODD, InvalidInput)
@pytest.mark.parametrize("token", [True, -1, 2**63, 1.0, "1"], ids=str)
def test_a_fencing_token_is_a_whole_number_of_64_bits(token: Any, path: Path, named: Errors) -> None:
    with RemoteService(path, "payments", flipping.CAN, synchronous="OFF") as service:
        for call in (lambda: Remote(service).send("a", {}, "r", token=token), lambda: service.query("a", token)):
            with pytest.raises(named, match="a fencing token"):
                call()


@fault(ODD, InvalidInput)
@pytest.mark.parametrize("odd", [{"a": 1}, 5, "a\0b"], ids=["dict", "int", "NUL"])
def test_a_reference_a_source_and_a_reason_are_text_without_nul(odd: Any, stage: Stage, named: Errors) -> None:
    sent = stage.sent()
    for call in (
        lambda: stage.store.checkpoint(sent, FIRST, odd),
        lambda: stage.store.advance(sent, FIRST, odd),
    ):
        with pytest.raises(named, match="reference"):
            call()
    lost = stage.store.lose_track(sent, FIRST)
    before = stage.rows()
    for call in (
        lambda: stage.store.settle(lost, FIRST, True, "query", odd),
        lambda: stage.store.settle(lost, FIRST, True, odd, "payments-1"),
        lambda: stage.store.ask(lost, odd, 60),
    ):
        with pytest.raises(named, match="text without NUL"):
            call()
    assert stage.rows() == before


class OddClock(ManualClock):
    """Tells what no clock should tell."""

    told: Any = None

    def now(self) -> Any:
        return self.told if self.told is not None else super().now()


@fault(ODD, InvalidInput)
@pytest.mark.parametrize("told", [float("nan"), float("inf"), "noon"], ids=str)
def test_a_clock_that_tells_no_time_is_refused_and_nothing_is_written(told: Any, path: Path, named: Errors) -> None:
    clock = OddClock()
    with TaskStore(path, clock, synchronous="OFF") as store:
        stage = Stage(store, clock)
        lease, before = stage.running(), stage.rows()
        clock.told = told
        for call in (
            lambda: store.enqueue("task-2", PLAN),
            lambda: store.intend(lease, FIRST),
            lambda: store.claim_next("worker-2"),
            store.overdue,
        ):
            with pytest.raises(named, match="a clock that tells"):
                call()
        assert stage.rows() == before
    with RemoteService(path.with_name("ledger"), "payments", clock=clock, synchronous="OFF") as service:
        for request in (service.handle, service.accept_late):
            with pytest.raises(named, match="a clock that tells"):
                request(Request("a", "r", "{}"))


@fault(ODD, InvalidInput)
def test_arguments_of_another_type_are_named_and_nothing_is_written(stage: Stage, named: Errors) -> None:
    sent = stage.sent()
    before = stage.rows()
    for call in (
        lambda: stage.store.enqueue("task-2", PLAN, budget="x"),  # type: ignore[arg-type]
        lambda: stage.store.checkpoint(sent, FIRST, "r", True),  # type: ignore[arg-type]
        lambda: stage.store.answer(None, Answer.APPLIED, "Ada"),  # type: ignore[arg-type]
        lambda: stage.store.cancel(None),  # type: ignore[arg-type]
        lambda: stage.store.intend(5, FIRST),  # type: ignore[arg-type]
    ):
        with pytest.raises(named):
            call()
    assert stage.rows() == before


@fault(ODD, InvalidInput)
def test_more_than_sqlite_holds_is_invalid(path: Path, named: Errors) -> None:
    with TaskStore(path, synchronous="OFF") as store:
        store._db.connection().setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
        with pytest.raises(named):
            store.enqueue("task-1", (PlannedOperation("refund", "payments", {"text": "x" * 200_000}),))
        assert store.tasks() == []


# A remote that breaks


@fault("a remote's own ledger fails", OutcomeUnknown)
def test_a_remote_that_breaks_down_tells_its_caller_nothing(path: Path, named: Errors) -> None:
    with RemoteService(path, "payments", flipping.CAN, synchronous="OFF") as service:
        service._db.connection().execute("PRAGMA query_only = ON")
        remote = Remote(service)
        for call in (lambda: remote.send(FIRST, {}, "r-1"), lambda: remote.query(FIRST)):
            with pytest.raises(named, match="broke down"):
                call()


# The page


def lines() -> dict[str, tuple[str, str]]:
    table = PAGE.read_text(encoding="utf-8").split("\n## ")[0]
    rows = [
        [cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines() if row.startswith("| ")
    ]
    return {row[0].removeprefix("| "): (row[1], row[2].removesuffix(" |")) for row in rows[1:]}


def test_the_page_has_a_line_for_every_fault_that_is_tried_here_and_no_other() -> None:
    assert list(lines()) == list(dict.fromkeys([*lines(), *PINNED]))
    assert set(lines()) == set(PINNED)


@pytest.mark.parametrize("line", lines())
def test_each_line_of_the_page_names_the_errors_that_its_tests_expect_and_says_what_to_do(line: str) -> None:
    gets, do = lines()[line]
    named = {word for word in re.findall(r"`(\w+)`", gets) if hasattr(errors, word)}
    assert named == PINNED[line]
    assert do.endswith(".")


def test_every_error_of_a_file_has_a_line_on_the_page() -> None:
    assert {one.__name__ for one in StoreError.__subclasses__()} <= set().union(*PINNED.values())
