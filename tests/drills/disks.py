"""Disks that are full, read-only or forbidden. Mounts need root, and lie in a mount namespace that ends with them."""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from labkit.errors import LabError
from labkit.exchange import Request
from labkit.records import PlannedOperation
from labkit.remote import Capabilities, RemoteService
from labkit.store import TaskStore

KEYS = Capabilities(idempotency_keys=True)
LETTER = PlannedOperation("send_email", "mail", {"text": "x" * 4000})
SIZES_BYTES = [size * 4096 for size in (1, 2, 4, 10, 20, 30, 36)]
NOBODY = 65534


def outcome(call: Callable[[], object]) -> str:
    """The name of the lab's error, or `ok`; no other error is caught."""
    try:
        call()
    except LabError as error:
        return type(error).__name__
    return "ok"


def use(path: Path, ledger: bool) -> Callable[[], object]:
    def run() -> None:
        if ledger:
            with RemoteService(path, "payments", KEYS) as service:
                service.handle(Request("new", "new#1", "{}", "new"))
        else:
            with TaskStore(path) as store:
                store.enqueue("new", (LETTER,))

    return run


class Filling:
    """Writes to a file until something stops it, and keeps count of what was acknowledged."""

    def __init__(self, path: Path, ledger: bool) -> None:
        self.opened = RemoteService(path, "payments", KEYS) if ledger else TaskStore(path)
        self.acknowledged = 0

    def add(self) -> None:
        name = f"task-{self.acknowledged:04}"
        if isinstance(self.opened, TaskStore):
            self.opened.enqueue(name, (LETTER,))
        else:
            self.opened.handle(Request(name, f"{name}#1", json.dumps(LETTER.request), name))
        self.acknowledged += 1

    def fill(self, most: int = 10_000) -> str:
        for _ in range(most):
            found = outcome(self.add)
            if found != "ok":
                return found
        raise AssertionError("nothing stopped it")

    def kept(self) -> int:
        return len(self.opened.tasks()) if isinstance(self.opened, TaskStore) else len(self.opened.effects())


def mount(folder: Path, *options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", folder], check=True)


def full(folder: Path, ledger: bool) -> dict[str, object]:
    """A small disk: creating a file on it, filling it, and going on once there is room."""
    found = {}
    for size in SIZES_BYTES:
        mount(folder, f"size={size}")
        first = outcome(use(folder / "file.sqlite", ledger))
        mount(folder, "remount", "size=4m")
        found[size] = [first, outcome(use(folder / "file.sqlite", ledger))]
        subprocess.run(["umount", folder], check=True)
    mount(folder, "size=1m")
    filling = Filling(folder / "file.sqlite", ledger)
    stopped, kept = filling.fill(), None if ledger else filling.kept()
    mount(folder, "remount", "size=4m")
    assert kept in (None, filling.acknowledged), "reading goes on"
    filling.add()
    filling.opened.close()
    again = Filling(folder / "file.sqlite", ledger)
    result = {"creating": found, "filling": stopped, "lost": filling.acknowledged - again.kept()}
    again.opened.close()
    subprocess.run(["umount", folder], check=True)
    return result


def limited(folder: Path, ledger: bool) -> dict[str, object]:
    """A limit on the length of files, as a quota: SQLite only hears that a write failed."""
    import resource  # Windows has none

    filling = Filling(folder / "file.sqlite", ledger)
    filling.add()
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    stopped = filling.fill()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    filling.add()
    filling.opened.close()
    again = Filling(folder / "file.sqlite", ledger)
    lost = filling.acknowledged - again.kept()
    again.opened.close()
    return {"filling": stopped, "lost": lost}


def read_only(folder: Path, ledger: bool) -> dict[str, object]:
    mount(folder, "size=4m")
    use(folder / "file.sqlite", ledger)()
    use(folder / "with log.sqlite", ledger)()
    for end in ("-wal", "-shm"):
        (folder / f"with log.sqlite{end}").touch()
    mount(folder, "remount", "ro")
    found = {name: outcome(use(folder / name, ledger)) for name in ("file.sqlite", "with log.sqlite", "new.sqlite")}
    subprocess.run(["umount", folder], check=True)
    return found


def forbidden(folder: Path, ledger: bool) -> dict[str, object]:
    """As a user without rights: root may write everywhere."""
    modes = {"file": (0o444, 0o777), "folder": (0o666, 0o555), "reading": (0o000, 0o777)}
    for name, (file_mode, folder_mode) in modes.items():
        home = folder / name
        home.mkdir()
        use(home / "file.sqlite", ledger)()
        (home / "file.sqlite").chmod(file_mode)
        home.chmod(folder_mode)
    folder.chmod(0o755)
    if os.getuid() == 0:
        os.seteuid(NOBODY)
    found = {name: outcome(use(folder / name / "file.sqlite", ledger)) for name in modes}
    found["missing folder"] = outcome(use(folder / "missing" / "file.sqlite", ledger))
    if os.getuid() == 0:
        os.seteuid(0)
    return dict(found)


SCENES = {"full": full, "limited": limited, "read_only": read_only, "forbidden": forbidden}


def can_mount() -> bool:
    """Whether this user may mount in a namespace of its own."""
    if shutil.which("unshare") is None or os.getuid() != 0:
        return False
    return subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scene", choices=sorted(SCENES))
    parser.add_argument("--ledger", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recovery-lab-") as name:
        print(json.dumps(SCENES[options.scene](Path(name), options.ledger)))


if __name__ == "__main__":
    main()
