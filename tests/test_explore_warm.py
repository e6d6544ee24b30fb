"""What a world keeps warm: nothing of it outlives the world, and it fails in the same words as the real thing."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from labkit.agent import plan
from labkit.database import Database
from labkit.explore.warm import Files, Known, Rows, WarmDatabase
from labkit.remote import LEDGER
from labkit.store import SCHEMA, TaskStore


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[WarmDatabase]:
    database = WarmDatabase(tmp_path / "warm.sqlite", SCHEMA)
    yield database
    database.close()


def test_a_folder_lies_within_another_one_where_that_exists(tmp_path: Path):
    inside, elsewhere = Files(tmp_path), Files(tmp_path / "on another machine")
    assert inside.folder.parent == tmp_path
    assert tmp_path not in elsewhere.folder.parents
    for files in (inside, elsewhere):
        assert files.folder.is_dir()
        files.close()
        files.close()
        assert not files.folder.exists()


def test_a_folder_lies_where_temporary_files_are_said_to_belong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    memory, told = tmp_path / "memory", tmp_path / "told"
    memory.mkdir()
    told.mkdir()
    monkeypatch.setattr("labkit.explore.warm.SHARED_MEMORY", memory)
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("TMPDIR", raising=False)
    assert Files().folder.parent == memory
    monkeypatch.setenv("TMPDIR", str(told))
    assert Files().folder.parent == told


def test_a_folder_that_nobody_closed_goes_with_its_owner(tmp_path: Path):
    folder = Files(tmp_path).folder
    assert not folder.exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_does_not_remove_its_parent_s_folder(tmp_path: Path):
    files = Files(tmp_path)
    child = os.fork()
    if child == 0:
        files.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert files.folder.is_dir()
    files.close()


def test_a_transaction_is_committed_whole_or_not_at_all(warm: WarmDatabase):
    with warm.write() as db:
        db.execute("INSERT INTO tasks (id, kind) VALUES ('task-1', 'refund')")
    with pytest.raises(KeyboardInterrupt), warm.write() as db:  # noqa: PT012
        db.execute("DELETE FROM tasks")
        raise KeyboardInterrupt
    with warm.read() as db:
        assert db.execute("SELECT count(*) FROM tasks").fetchone() == (1,)
    assert not warm.connection().in_transaction


def what_is_raised(database: Database, sql: str, *values: Any) -> tuple[type[BaseException], str]:
    with pytest.raises(Exception) as caught, database.write() as db:  # noqa: PT011
        db.execute(sql, values)
    return caught.type, str(caught.value)


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("SELECT * FROM nowhere", ()),
        ("SELECT ?", (2**70,)),
        ("SELECT ?", ("\ud800",)),
        ("SELECT ?", ()),
        ("SELECT ?", (object(),)),
        ("INSERT INTO tasks (id, kind, state) VALUES ('task-1', 'refund', 'lost')", ()),
        ("INSERT INTO operations (operation_id, task_id) VALUES ('task-1/refund', 'nobody')", ()),
    ],
)
def test_an_error_is_told_as_the_real_database_tells_it(warm: WarmDatabase, tmp_path: Path, sql: str, values: Any):
    real = Database(tmp_path / "warm.sqlite.real", SCHEMA, "OFF")
    try:
        kind, text = what_is_raised(real, sql, *values)
        assert what_is_raised(warm, sql, *values)[0] is kind
        assert what_is_raised(warm, sql, *values)[1].replace("warm.sqlite", "") == text.replace("warm.sqlite.real", "")
    finally:
        real.close()


def test_a_row_that_cannot_be_read_is_called_damage_here_too(warm: WarmDatabase, tmp_path: Path):
    store = TaskStore(warm)
    store.enqueue("task-1", plan())
    warm.connection().execute("UPDATE operations SET request = '{'")
    with pytest.raises(Exception, match="cannot be read") as told:
        store.get("task-1")
    assert told.type.__name__ == "StoreCorrupt"


def test_a_file_of_the_world_s_own_is_wal_and_lets_nobody_else_in(warm: WarmDatabase):
    assert warm.journal_mode == "wal"
    with warm.write() as db:
        db.execute("INSERT INTO tasks (id, kind) VALUES ('task-1', 'refund')")
    other = sqlite3.connect(warm.path, timeout=0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("SELECT * FROM tasks").fetchone()
    other.close()


def test_rows_are_put_back_as_they_were(tmp_path: Path):
    ledger = WarmDatabase(tmp_path / "ledger.sqlite", LEDGER)
    rows, add = (
        Rows(ledger),
        "INSERT INTO effects (operation_id, request_id, body, applied_at) VALUES ('a', 'a#1', '{}', 0)",
    )
    for _ in range(2):
        with ledger.write() as db:
            assert db.execute(f"{add} RETURNING effect_id").fetchone() == (1,)
        rows.put_back()
        assert ledger.connection().execute("SELECT count(*) FROM effects").fetchone() == (0,)
    ledger.close()


def test_what_is_known_is_read_again_only_after_a_change(warm: WarmDatabase):
    reads: list[int] = []

    def count() -> int:
        reads.append(1)
        (number,) = warm.connection().execute("SELECT count(*) FROM tasks").fetchone()
        return int(number)

    known = Known(warm, count)
    assert (known(), known(), len(reads)) == (0, 0, 1)
    with warm.write() as db:
        db.execute("INSERT INTO tasks (id, kind) VALUES ('task-1', 'refund')")
    assert (known(), known(), len(reads)) == (1, 1, 2)
