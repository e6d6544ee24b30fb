"""The student's journal: what it keeps, over restarts, and what it does where it cannot be written."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.course import check, compare, journal, why
from labkit.errors import InvalidInput, StoreError


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
        "why 0.1: your journal cannot be written, so this is kept in the notebook alone",
    ]
    assert err == ""


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_damaged_one_is_put_aside_and_a_new_one_begun(home: Path, content: bytes):
    home.mkdir(parents=True)
    (home / journal.FILE).write_bytes(content)
    why("0.1", "because")
    assert [data["answer"] for _, _, data in kept()] == ["because"]
    (aside,) = home.glob("*.damaged-*")
    assert aside.read_bytes() == content


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
