"""Temporary folders that go with their process, even one that is killed: a later one removes what the dead have left.

Whoever makes a folder holds a lock on a file in it for as long as the folder is in use. The system takes every lock
from a process that ends, however it ends, so a folder whose lock can be had is nobody's. Folders without that file,
those of other users and those of other machines that share a disk are left alone. Where a system has no such locks
(Windows), nothing is swept: what a killed process leaves lies among the temporary files until somebody tidies them up.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
import stat
import tempfile
import weakref
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

CAN_LOCK = find_spec("fcntl") is not None
if CAN_LOCK:
    import fcntl

PREFIX = "recovery-lab-"
LOCK = "in-use"


class Scratch:
    """A temporary folder of this process, removed when it is closed, or at the latest with its owner.

    Args:
        place: where it is made; None: where temporary files belong.
    """

    def __init__(self, place: Path | None = None) -> None:
        place = Path(tempfile.gettempdir()) if place is None else place
        _sweep_once(place)
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        self._remove = weakref.finalize(self, _remove, self.folder, _lock(self.folder), os.getpid())

    def close(self) -> None:
        """Remove the folder. A repeated call is harmless."""
        self._remove()

    def __enter__(self) -> Path:
        return self.folder

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def sweep(place: Path) -> None:
    """Remove the folders of processes that have ended without doing so themselves."""
    for folder in place.glob(f"{PREFIX}*") if CAN_LOCK else ():
        with suppress(OSError):  # held, not ours to look at, or gone
            _remove_if_nobody_s(folder)


_sweep_once = functools.cache(sweep)


def _machine() -> bytes:
    """Where locks are taken: on a disk that machines share, one may not see those of another."""
    return platform.node().encode("utf-8", "surrogateescape")


def _lock(folder: Path) -> int | None:
    """Put a lock into a new folder, held already; None where the system or the disk has none."""
    if not CAN_LOCK:
        return None
    new = folder / f"{LOCK}.new"
    file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(file, _machine())
        new.rename(folder / LOCK)  # only now: nobody ever sees it free while its owner is alive
    except OSError:
        os.close(file)
        new.unlink(missing_ok=True)
        return None
    return file


def _remove_if_nobody_s(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return
    file = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        if os.read(file, 1_000) == _machine():
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _clear(folder)
    finally:
        os.close(file)


def _remove(folder: Path, lock: int | None, process: int) -> None:
    """Remove a folder of this process; a forked child that ends has no business with its parent's."""
    if os.getpid() == process:
        _clear(folder)
        if lock is not None:
            os.close(lock)


def _clear(folder: Path) -> None:
    """Remove a folder, its lock last: what cannot be removed yet, for somebody still writes there, is found again."""
    with suppress(OSError):
        for one in folder.iterdir():
            if one.is_dir() and not one.is_symlink():
                shutil.rmtree(one, ignore_errors=True)
            elif one.name != LOCK:
                with suppress(OSError):
                    one.unlink()
        if {one.name for one in folder.iterdir()} <= {LOCK}:
            shutil.rmtree(folder, ignore_errors=True)
