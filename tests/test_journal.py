"""The student's journal: what it keeps, over restarts, and what it does where it cannot be written."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from drills import disks
from drills.programs import run

from labkit import opening
from labkit.course import check, compare, journal, report, why
from labkit.database import Database
from labkit.errors import InvalidInput, StoreCorrupt, StoreError

LOST = "not kept in your journal"
ELSEWHERE = "What to do: set LABKIT_HOME to a folder that can be written."


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "of" / "mine"))
    return tmp_path / "of" / "mine"


def kept(kind: str | None = None) -> list[tuple[str, str, dict[str, object]]]:
    return [(one.kind, one.name, one.data) for one in journal.entries(kind)]


def key(operation_id: str, attempt: int) -> str:
    return operation_id


def key_per_attempt(operation_id: str, attempt: int) -> str:
    return f"{operation_id}{attempt}"


def stub(operation_id: str, attempt: int) -> str:
    raise NotImplementedError


def test_there_is_nothing_in_it_before_anything_was_done(home: Path):
    assert journal.entries() == []
    assert not home.exists()


def test_a_prediction_is_kept_beside_what_was_observed(home: Path):
    compare(None, 2, "00: refunds")
    compare(" 2", 2, "00: refunds")
    compare("lost", "duplicated", "00: verdict")
    assert kept() == [
        ("prediction", "00: refunds", {"predicted": " 2", "observed": "2", "right": True}),
        ("prediction", "00: verdict", {"predicted": "lost", "observed": "duplicated", "right": False}),
    ]


def test_numbers_are_compared_by_value(home: Path, capsys: pytest.CaptureFixture[str]):
    compare(15.0, "15", "07: when the fifth attempt begins")
    assert capsys.readouterr().out == "predicted: 15.0; observed: 15; as predicted\n"
    assert [data["right"] for _, _, data in kept()] == [True]


def test_of_a_verdict_only_another_verdict_is_a_prediction(home: Path, capsys: pytest.CaptureFixture[str]):
    compare("dupplicated", "duplicated", "10: everything back to the queue")
    assert capsys.readouterr().out == (
        "predicted: dupplicated, which is none of these: exactly once, stopped clean, needs a person, stuck, lost, "
        "duplicated\n"
    )
    compare("Stopped clean", "duplicated", "10: everything back to the queue")
    assert [data["predicted"] for _, _, data in kept()] == ["Stopped clean"]


def test_a_question_that_nobody_asks_is_not_answered(home: Path, capsys: pytest.CaptureFixture[str]):
    why("10.9", "x")
    assert capsys.readouterr().out.startswith("why 10.9: there is no such question; there are 0.1, 1.1, ")
    assert kept() == []


def test_a_check_is_kept_with_what_it_says_and_an_untouched_stub_is_not(home: Path):
    check("0.1", stub)
    results = [check("0.1", key_per_attempt), check("0.1", key)]
    assert [(name, data["passed"], data["says"]) for _, name, data in kept("check")] == [
        ("0.1", False, str(results[0])),
        ("0.1", True, str(results[1])),
    ]


def claim_by_looking(db: sqlite3.Connection, task_id: str, version: int) -> bool:
    if db.execute("SELECT version FROM tasks WHERE id = ?", (task_id,)).fetchone() != (version,):
        return False
    with db:
        db.execute(
            "UPDATE tasks SET state = 'running', version = version + 1, lease_token = lease_token + 1, "
            "lease_expires_at = 30 WHERE id = ?",
            (task_id,),
        )
    return True


def test_a_failure_met_is_kept_as_a_capsule(home: Path):
    assert not check("2.1", claim_by_looking).passed
    ((_, _, data),) = kept("check")
    capsule = json.loads(str(data["capsule"]))
    assert (capsule["law"], len(capsule["surprises"])) == ("one_says_yes", 1)


def test_why_is_kept_once_it_is_answered(home: Path, capsys: pytest.CaptureFixture[str]):
    why("0.1", "  ")
    why("0.1", " It would look new.\n")
    assert capsys.readouterr().out == "why 0.1: not answered yet\nwhy 0.1: in your journal now\n"
    assert kept() == [("why", "0.1", {"answer": "It would look new."})]


def test_it_outlives_the_process(home: Path):
    code = "from labkit.course import why; why('0.1', 'first')"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    why("0.1", "second")
    assert [data["answer"] for _, _, data in kept()] == ["first", "second"]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no such file modes")
def test_where_it_cannot_be_written_the_lesson_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "file" / "below"))
    compare(1, 2, "00: refunds")
    why("0.1", "because")
    assert check("0.1", key).passed
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "predicted: 1; observed: 2; a surprise",
        *[f"{LOST}: it cannot be opened. {ELSEWHERE}"] * 3,
    ]
    assert err == ""


POSIX = pytest.mark.skipif(os.name != "posix", reason="limits and mounts")
MOUNTS = pytest.mark.skipif(not disks.can_mount(), reason="only root may mount a small disk")
FULL = f"{LOST}: the disk is full. What to do: make room, and run this again."


@MOUNTS
def test_on_a_full_disk_each_line_lost_is_told_what_was_kept_is_read_and_with_room_it_goes_on():
    seen = run("journaling", "full", before=("unshare", "-m"), seconds=120)
    assert seen["said"][:-1] == ["predicted: 1; observed: 1; as predicted", FULL, FULL, FULL]
    assert seen["said"][-1].startswith("The report cannot be written into ")
    assert (seen["kept"], seen["then"], seen["at last"]) == (1, True, 2)


@POSIX
def test_under_a_limit_each_line_lost_is_told_and_what_was_kept_is_read():
    seen = run("journaling", "limited", seconds=120)
    assert seen["said"][:-1] == ["predicted: 1; observed: 1; as predicted", FULL, FULL]
    assert (seen["kept"], seen["then"], seen["at last"]) == (1, True, 2)


@MOUNTS
def test_on_a_disk_mounted_read_only_what_was_kept_is_read():
    seen = run("journaling", "read_only", before=("unshare", "-m"), seconds=120)
    assert seen["said"][1:-1] == [f"{LOST}: it may only be read. {ELSEWHERE}"] * 3
    assert seen["kept"] == 1


@POSIX
def test_in_a_folder_that_may_only_be_read_what_was_kept_is_read():
    seen = run("journaling", "forbidden", seconds=120)
    assert seen["said"][1:-1] == [f"{LOST}: it may only be read. {ELSEWHERE}"] * 2
    assert seen["said"][-1].startswith("The report cannot be written into ")
    assert seen["kept"] == 1


def test_processes_that_write_and_read_at_once_lose_nothing(home: Path):
    code = """
from labkit.course import journal
for number in range(25):
    assert journal.note("why", "0.1", answer=str(number))
    assert journal.entries()"""
    writers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [one.wait(60) for one in writers] == [0, 0, 0]
    answers = Counter(data["answer"] for _, _, data in kept())
    assert answers == {str(number): 3 for number in range(25)}


def test_while_another_program_keeps_it_locked_a_line_lost_is_told_and_reading_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    why("0.1", "before")
    monkeypatch.setattr(opening, "PATIENCE_SECONDS", 0.0)
    with closing(sqlite3.connect(home / journal.FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        why("0.1", "meanwhile")
        assert len(kept()) == 1
    told = f"{LOST}: another program keeps it locked. What to do: close that program, and run this again."
    assert capsys.readouterr().out.splitlines()[1:] == [told]


def test_one_of_a_newer_version_is_left_as_it_is_and_the_line_lost_is_told(
    home: Path, capsys: pytest.CaptureFixture[str]
):
    why("0.1", "before")
    with closing(sqlite3.connect(home / journal.FILE)) as db:
        db.execute("ALTER TABLE entries ADD COLUMN course TEXT")
        db.execute("PRAGMA user_version = 2")
    before = (home / journal.FILE).read_bytes()
    why("0.1", "because")
    compare(1, 1, "00: refunds")
    newer = (
        "it is a newer lab schema, version 2 (this lab reads version 1). What to do: set LABKIT_HOME to another folder"
    )
    told = f"{LOST}: {newer}; this one is left as it is."
    assert capsys.readouterr().out.splitlines()[1:] == [told, "predicted: 1; observed: 1; as predicted", told]
    assert newer in str(report(home / "report"))
    assert (home / journal.FILE).read_bytes() == before


def test_once_it_was_deleted_a_new_one_is_begun(home: Path):
    for what in (home / journal.FILE, home):
        why("0.1", "before")
        shutil.rmtree(what) if what.is_dir() else what.unlink()
        why("0.1", "after")
        assert [data["answer"] for _, _, data in kept()] == ["after"]


@pytest.mark.skipif(os.name == "nt", reason="Windows deletes no open file")
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_line_whose_file_is_deleted_in_the_middle_is_written_once_more(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], times: int, when: str
):
    left = iter(range(times))

    class Deleted(Database):
        @contextmanager
        def write(self) -> Iterator[sqlite3.Connection]:
            if when == "before" and next(left, None) is not None:
                shutil.rmtree(home)
            with super().write() as db:
                yield db
            if when == "after" and next(left, None) is not None:
                shutil.rmtree(home)

    monkeypatch.setattr(journal, "Database", Deleted)
    why("0.1", "because")
    told = f"{LOST}: it was deleted while in use. What to do: run this again."
    assert capsys.readouterr().out.splitlines() == ["why 0.1: in your journal now" if times == 1 else told]
    assert [data["answer"] for _, _, data in kept()] == ["because"] * (times == 1)


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_damaged_one_is_put_aside_and_a_new_one_begun(home: Path, content: bytes, capsys: pytest.CaptureFixture[str]):
    home.mkdir(parents=True)
    (home / journal.FILE).write_bytes(content)
    why("0.1", "because")
    assert [data["answer"] for _, _, data in kept()] == ["because"]
    (aside,) = home.glob("*.damaged-*")
    assert aside.read_bytes() == content
    assert capsys.readouterr().out.splitlines() == [
        f"your journal was damaged: a new one is begun, and the old one lies beside it as {aside.name}",
        "why 0.1: in your journal now",
    ]


def test_of_several_damaged_ones_each_is_kept_with_its_log(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("time.time", lambda: 7.0)
    home.mkdir(parents=True)
    for content in (b"", b"hello"):
        (home / journal.FILE).write_bytes(content)
        if not content:
            (home / f"{journal.FILE}-wal").write_bytes(b"what can still be saved")
        why("0.1", "because")
    aside = {one.name.removeprefix(journal.FILE): one.read_bytes() for one in home.glob("*.damaged-*")}
    log = b"what can still be saved"
    assert aside == {".damaged-7": b"", ".damaged-7-wal": log, ".damaged-8": b"hello"}


def test_what_another_kernel_has_put_aside_is_not_put_aside_again(home: Path, monkeypatch: pytest.MonkeyPatch):
    home.mkdir(parents=True)
    path = home / journal.FILE
    path.write_bytes(b"hello")

    class Late(Database):
        def __init__(self, *args: Any) -> None:
            try:
                super().__init__(*args)
            except StoreCorrupt:
                path.rename(home / "aside")  # the other kernel is faster, and begins a new one
                Database(path, journal.JOURNAL).close()
                raise

    monkeypatch.setattr(journal, "Database", Late)
    why("0.1", "because")
    assert [data["answer"] for _, _, data in kept()] == ["because"]
    assert sorted(one.name for one in home.iterdir()) == ["aside", journal.FILE]


def test_another_programs_database_is_left_as_it_is(home: Path):
    home.mkdir(parents=True)
    with sqlite3.connect(home / journal.FILE) as db:
        db.execute("CREATE TABLE theirs (a)")
    db.close()
    before = (home / journal.FILE).read_bytes()
    assert not journal.note("why", "0.1", answer="because")
    with pytest.raises(StoreError):
        journal.entries()
    assert (home / journal.FILE).read_bytes() == before


def test_texts_are_cut_before_they_fill_the_disk(home: Path):
    why("0.1", "x" * 1_000_000)
    assert len(str(kept()[0][2]["answer"])) == journal.MAX_TEXT


def test_half_a_character_in_a_students_text_is_kept_as_a_question_mark(home: Path):
    assert journal.note("check", "\udc80", says="a\ud800", story={"rows": [["\ud800b"], ("x" * 30_000,)]})
    kind, name, data = kept()[0]
    assert (kind, name, data["says"]) == ("check", "?", "a?")
    assert data["story"] == {"rows": [["?b"], ["x" * journal.MAX_TEXT]]}


def test_an_unknown_kind_is_refused(home: Path):
    with pytest.raises(InvalidInput, match="a kind of entry: prediction, check, why"):
        journal.note("diary", "0.1")


def test_without_labkit_home_it_lies_in_the_folder_for_a_users_data(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LABKIT_HOME")
    assert journal.home().is_absolute()
    assert "recovery-lab" in str(journal.home())
