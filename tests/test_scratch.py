"""Temporary folders: they go with their process, those of the dead with the next one, and nobody else's is touched."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from labkit import scratch
from labkit.scratch import CAN_LOCK, LOCK, Scratch, sweep

LOCKS = pytest.mark.skipif(not CAN_LOCK, reason="this system has no locks that end with their process")
HOLDER = """\
import sys
from pathlib import Path
from labkit.scratch import Scratch
with Scratch(Path(sys.argv[1])) as folder:
    (folder / "below").mkdir()
    (folder / "below" / "file").write_text("x" * 100_000)
    print(folder.name, flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(place: Path) -> Iterator[Path]:
    """A process with a folder in use, killed in the end."""
    command = [sys.executable, "-c", HOLDER, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield place / process.stdout.readline().strip()
        finally:
            process.kill()


def test_a_folder_is_there_while_it_is_in_use_and_gone_after_it(tmp_path: Path):
    with Scratch(tmp_path) as folder:
        assert folder.parent == tmp_path
        (folder / "below").mkdir()
        (folder / "below" / "file").touch()
        (folder / "link").symlink_to(tmp_path, target_is_directory=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_already_is_closed_without_a_word(tmp_path: Path):
    with Scratch(tmp_path) as folder:
        shutil.rmtree(folder)


@LOCKS
def test_a_folder_that_is_in_use_is_left_alone_and_swept_once_its_process_has_been_killed(tmp_path: Path):
    with holder(tmp_path) as folder, Scratch(tmp_path) as own:
        for _ in range(2):
            sweep(tmp_path)
            assert (folder / "below" / "file").exists()
            assert own.is_dir()
    assert folder.exists()
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


@LOCKS
def test_the_first_folder_of_a_process_at_a_place_sweeps_it(tmp_path: Path):
    with holder(tmp_path) as left:
        pass
    assert left.exists()
    with Scratch(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]


@LOCKS
def test_what_nobody_has_locked_is_left_alone_whatever_it_is_called(tmp_path: Path):
    with holder(tmp_path) as left:
        pass
    somebody_s = tmp_path / "recovery-lab-main"
    somebody_s.mkdir()
    (somebody_s / "notes").touch()
    (tmp_path / "recovery-lab-file").touch()
    elsewhere = tmp_path / "elsewhere"
    left.rename(elsewhere)
    (tmp_path / "recovery-lab-link").symlink_to(elsewhere, target_is_directory=True)
    linked = tmp_path / "recovery-lab-linked"
    linked.mkdir()
    (linked / LOCK).symlink_to(elsewhere / LOCK)
    before = sorted(tmp_path.rglob("*"))
    sweep(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


@LOCKS
@pytest.mark.parametrize(
    ("owner", "name", "other"), [(os, "getuid", -1), (scratch.platform, "node", "another machine")]
)
def test_what_belongs_to_another_user_or_machine_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, other: object
):
    with holder(tmp_path) as left:
        pass
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, lambda: other)
        sweep(tmp_path)
        assert (left / LOCK).exists()
    sweep(tmp_path)
    assert not left.exists()


@LOCKS
def test_what_cannot_be_removed_yet_keeps_its_lock_and_is_swept_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with holder(tmp_path) as left:
        pass
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda folder, ignore_errors: None)
        sweep(tmp_path)
    assert (left / LOCK).exists()
    sweep(tmp_path)
    assert not left.exists()


def test_a_place_that_is_not_there_has_nothing_to_sweep(tmp_path: Path):
    sweep(tmp_path / "nowhere")


@LOCKS
def test_on_a_disk_without_locks_folders_work_and_are_never_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(file: int, how: int) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr("fcntl.flock", refused)
    with Scratch(tmp_path) as folder:
        assert list(folder.iterdir()) == []
        sweep(tmp_path)
        assert folder.is_dir()
    assert not folder.exists()


def test_on_a_system_without_locks_folders_work_and_nothing_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with holder(tmp_path) as left:
        pass
    monkeypatch.setattr(scratch, "CAN_LOCK", False)
    with Scratch(tmp_path) as folder:
        assert list(folder.iterdir()) == []
        sweep(tmp_path)
    assert not folder.exists()
    assert left.exists()
