"""A student's journal on a disk that is full, limited or may only be read; the mounts are those of `disks`."""

import argparse
import contextlib
import io
import json
import os
import subprocess
import tempfile
from pathlib import Path

from drills.disks import NOBODY, mount
from labkit.course import check, compare, journal, report, why


def key(operation_id: str, attempt: int) -> str:
    return operation_id


def said(checked: bool = True) -> list[str]:
    """What all that writes a journal has printed, as lines; that any of it raises is what a test would see."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        compare(1, 1, "00: refunds")
        why("0.1", "because")
        assert not checked or check("0.1", key).passed
        print(report())
    return told.getvalue().splitlines()


def kept() -> int | None:
    """How many lines the journal has, as a report counts them; None where it cannot be read."""
    with contextlib.suppress(journal.StoreError):
        return len(journal.entries())
    return None


def full(home: Path) -> dict[str, object]:
    mount(home, "size=256k")
    journal.note("why", "0.1", answer="before")
    filler = home / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    found = {"said": said(), "kept": kept()}
    filler.unlink()
    result = found | {"then": journal.note("why", "0.1", answer="after"), "at last": kept()}
    subprocess.run(["umount", home], check=True)
    return result


def limited(home: Path) -> dict[str, object]:
    import resource  # Windows has none

    journal.note("why", "0.1", answer="before")
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    found = {"said": said(checked=False), "kept": kept()}
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return found | {"then": journal.note("why", "0.1", answer="after"), "at last": kept()}


def read_only(home: Path) -> dict[str, object]:
    mount(home, "size=4m")
    journal.note("why", "0.1", answer="before")
    mount(home, "remount", "ro")
    result = {"said": said(), "kept": kept()}
    subprocess.run(["umount", home], check=True)
    return result


def forbidden(home: Path) -> dict[str, object]:
    """As a user without rights: root may write everywhere."""
    journal.note("why", "0.1", answer="before")
    report()
    home.as_uri()  # as `report` does there: some Pythons load what that takes now, and from where nobody may read
    home.chmod(0o555)
    if os.getuid() == 0:
        os.seteuid(NOBODY)
    found = {"said": said(checked=False), "kept": kept()}
    if os.getuid() == 0:
        os.seteuid(0)
    home.chmod(0o755)
    return dict(found)


SCENES = {"full": full, "limited": limited, "read_only": read_only, "forbidden": forbidden}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scene", choices=sorted(SCENES))
    scene = SCENES[parser.parse_args().scene]
    with tempfile.TemporaryDirectory(prefix="recovery-lab-") as name:
        os.chmod(name, 0o755)
        os.environ["LABKIT_HOME"] = name
        print(json.dumps(scene(Path(name))))


if __name__ == "__main__":
    main()
