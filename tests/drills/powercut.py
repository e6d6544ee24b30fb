"""A power cut after any file operation: a run is recorded with strace, and every prefix of it is put on a new disk.

The disk of this model promises no more than POSIX does:

- What was written to a file is there for certain once that file was synced. Of what came later, each 512-byte sector
  and each change of length may be there or not, by itself. A sector is never half there, and a write damages no
  byte beside it (SQLite's "powersafe overwrite").
- A name that was created, removed or changed is so for certain once its folder was synced; before, either may be.
- Shared memory is gone.
"""

import argparse
import json
import os
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drills.programs import TESTS, folder
from labkit.database import Database
from labkit.errors import LabError
from labkit.exchange import Request
from labkit.records import Announcement, PlannedOperation
from labkit.remote import LEDGER, Capabilities, RemoteService
from labkit.seams import ManualClock
from labkit.store import SCHEMA, TaskStore

SECTOR_BYTES = 512
PAGES_BEFORE_CHECKPOINT = 25
CALLS = "openat,close,pwrite64,write,ftruncate,fsync,fdatasync,unlink,rename"
KEYS = Capabilities(idempotency_keys=True)
FILE = "file.sqlite"


# The run that is recorded


def play(path: Path, synchronous: Any, level: str, ledger: bool, changes: int) -> None:
    """Make changes, and acknowledge each on file descriptor 1."""
    schema = LEDGER if ledger else SCHEMA
    database = Database(path, schema, synchronous)
    connection = database.connection()
    connection.execute(f"PRAGMA wal_autocheckpoint = {PAGES_BEFORE_CHECKPOINT}")
    if level:
        connection.execute(f"PRAGMA synchronous = {level}")
    acknowledgements = send(database, changes) if ledger else work(database, changes)
    for said in acknowledgements:
        os.write(1, f"{json.dumps(said)}\n".encode())
    database.close()


def work(database: Database, changes: int) -> Iterator[tuple[object, ...]]:
    store, refund = TaskStore(database, ManualClock()), PlannedOperation("refund", "payments", {"text": "x" * 500})
    for number in range(changes // 4):
        task = store.enqueue(f"task-{number}", (refund,))
        yield task.id, "enqueue", 1
        news = Announcement("news", {"text": "x" * 40 * number})
        if number % 2:  # in two commits
            progress = store.begin(task, "worker-1")
            assert progress.lease is not None
            yield task.id, "intend", progress.lease.version
            store.advance(progress.lease, f"{task.id}/refund", "ref", news)
            yield task.id, "checkpoint", progress.lease.version + 1
            yield task.id, "succeed", progress.lease.version + 2
            continue
        lease = store.claim(task, "worker-1")
        yield task.id, "claim", lease.version
        lease, _ = store.intend(lease, f"{task.id}/refund")
        yield task.id, "intend", lease.version
        lease = store.checkpoint(lease, f"{task.id}/refund", "ref", news)
        yield task.id, "checkpoint", lease.version


def send(database: Database, changes: int) -> Iterator[tuple[object, ...]]:
    service = RemoteService(database, "payments", KEYS, ManualClock())
    for number in range(changes):
        operation = f"task-{number}/refund"
        yield operation, service.handle(Request(operation, f"{operation}#1", '{"amount": 40}', operation)).reference


# The recording


@dataclass(frozen=True)
class Step:
    """One operation: `open` (of a new file), `write`, `truncate`, `sync`, `sync names`, `unlink`, `say`."""

    kind: str
    name: str = ""
    at: int = 0
    data: bytes = b""


def record(path: Path, *arguments: object) -> list[Step]:
    """Let strace watch a run on `path`, and read from its log what was done to the files in that folder."""
    log = path.parent.parent / "strace.log"
    watch = ["strace", "-xx", "-s", "10000000", "-e", f"trace={CALLS}", "-o", str(log)]
    program = [sys.executable, "-m", "drills.powercut", "--play", str(path), *map(str, arguments)]
    there = set(os.listdir(path.parent))
    subprocess.run([*watch, *program], cwd=TESTS, check=True, stdout=subprocess.DEVNULL, timeout=300)
    with log.open(encoding="ascii") as lines:
        return list(steps(lines, str(path.parent), there))


CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+)")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


def steps(lines: Iterable[str], home: str, there: set[str]) -> Iterator[Step]:
    """Read the lines of strace; only files in the folder `home` matter, and what is said on descriptor 1."""
    names: dict[int, str] = {}
    known = set(there)
    for line in lines:
        match = CALL.match(line)
        if match is None or int(match[3]) < 0:
            continue
        call, inside, result = match[1], match[2], int(match[3])
        texts = [bytes.fromhex(one.replace("\\x", "")) for one in TEXT.findall(inside)]
        numbers = [int(one) for one in re.findall(r"(?<![\w\\])\d+(?![\w\\])", TEXT.sub('""', inside))]
        if call == "openat":
            name = os.fsdecode(texts[0])
            names.pop(result, None)
            if name == home or os.path.dirname(name) == home:
                names[result] = os.path.basename(name) if name != home else ""
                if "O_CREAT" in inside and names[result] not in known:
                    known.add(names[result])
                    yield Step("open", names[result])
        elif call == "unlink":
            name = os.fsdecode(texts[0])
            if os.path.dirname(name) == home:
                known.discard(os.path.basename(name))
                yield Step("unlink", os.path.basename(name))
        elif call == "rename":
            assert not any(os.path.dirname(os.fsdecode(one)) == home for one in texts), "SQLite renames nothing"
        elif call == "write" and numbers[0] == 1:
            yield Step("say", data=texts[0])
        elif numbers and numbers[0] in names:
            name = names[numbers[0]]
            if call == "close":
                del names[numbers[0]]
            elif call == "pwrite64":
                assert result == len(texts[0])
                yield Step("write", name, numbers[-1], texts[0])
            elif call == "ftruncate":
                yield Step("truncate", name, numbers[1])
            elif call in ("fsync", "fdatasync"):
                yield Step("sync", name) if name else Step("sync names")
            else:
                raise AssertionError(f"not in the model: {line[:200]}")


# The disk


@dataclass
class File:
    """What of one file is certain, and what came after its last sync."""

    certain: bytearray = field(default_factory=bytearray)
    later: list[Step] = field(default_factory=list)

    def sync(self) -> None:
        for step in self.later:
            apply(self.certain, step)
        self.later.clear()

    def after_a_cut(self, survives: Any) -> bytes:
        """The file as it may be found: each sector of a later write, and each change of length, by itself."""
        found = bytearray(self.certain)
        for step in self.later:
            if step.kind == "truncate":
                if survives():
                    apply(found, step)
                continue
            start = step.at
            while start < step.at + len(step.data):
                end = min((start // SECTOR_BYTES + 1) * SECTOR_BYTES, step.at + len(step.data))
                if survives():
                    apply(found, Step("write", at=start, data=step.data[start - step.at : end - step.at]))
                start = end
        return bytes(found)


def apply(content: bytearray, step: Step) -> None:
    if step.kind == "truncate":
        del content[step.at :]
        content.extend(bytes(step.at - len(content)))
    else:
        content.extend(bytes(max(0, step.at - len(content))))
        content[step.at : step.at + len(step.data)] = step.data


@dataclass
class Disk:
    """A folder on a disk whose power can be cut."""

    names: dict[str, File] = field(default_factory=dict)
    certain_names: dict[str, File] = field(default_factory=dict)
    later: list[tuple[str, File | None]] = field(default_factory=list)
    said: list[bytes] = field(default_factory=list)

    def do(self, step: Step) -> None:
        if step.kind == "open":
            self.names[step.name] = File()
            self.later.append((step.name, self.names[step.name]))
        elif step.kind == "unlink":
            del self.names[step.name]
            self.later.append((step.name, None))
        elif step.kind == "sync names":
            self.certain_names = dict(self.names)
            self.later.clear()
        elif step.kind == "sync":
            self.names[step.name].sync()
        elif step.kind == "say":
            self.said.append(step.data)
        else:
            self.names[step.name].later.append(step)

    def cut(self, target: Path, survives: Any) -> None:
        """Write into a folder what may be found when the power comes back."""
        names = dict(self.certain_names)
        for name, file in self.later:
            if survives():
                if file is None:
                    names.pop(name, None)
                else:
                    names[name] = file
        for name, file in names.items():
            if not name.endswith("-shm"):
                (target / name).write_bytes(file.after_a_cut(survives))


# The drill


def after_the_cut(target: Path, ledger: bool, said: list[bytes]) -> str:
    """Open what was found as the lab would: is it sound, and is every acknowledged change there?"""
    path = target / FILE
    acknowledged = [tuple(json.loads(line)) for words in said for line in words.splitlines()]
    try:
        if ledger:
            with RemoteService(path, "payments", KEYS) as service:
                effects = service.effects()
                assert set(effects.values()) <= {1}
                kept = all(operation in effects for operation, _ in acknowledged)
        else:
            with TaskStore(path) as store:
                tasks = [task.id for task in store.tasks()]
                kept_ones = {(task, one.event, one.version) for task in tasks for one in store.history(task)}
                kept = all(one in kept_ones for one in acknowledged)
    except LabError:
        return "broken"
    with closing(sqlite3.connect(path)) as db:
        if db.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            return "broken"
    return "kept" if kept else "lost"


def replay(disk: Disk, recorded: list[Step], ledger: bool, share: float, halves: int, seed: int) -> Counter[str]:
    """Cut the power after a share of the steps: nothing unsynced survives, or all of it, or random halves."""
    draw, seen = random.Random(seed), Counter[str](kept=0, lost=0, broken=0)
    for step in [*recorded, None]:
        if draw.random() < share:
            seen["prefixes"] += 1
            chances: list[float] = [0.0, 1.0, *[0.5] * halves]
            for chance in chances:
                with tempfile.TemporaryDirectory(prefix="recovery-lab-", dir=folder()) as name:
                    disk.cut(Path(name), lambda chance=chance: draw.random() < chance)
                    outcome = after_the_cut(Path(name), ledger, disk.said)
                    seen[outcome] += 1
        if step is not None:
            disk.do(step)
    seen["steps"], seen["acknowledged"] = len(recorded), len(disk.said)
    return seen


def prepared(path: Path, journal: str, ledger: bool) -> Disk:
    """An empty disk; or, for a rollback journal, one with a file that has never had another."""
    if journal == "wal":
        return Disk()
    Database(path, LEDGER if ledger else SCHEMA).close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    names = {FILE: File(bytearray(path.read_bytes()))}
    return Disk(dict(names), dict(names))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--play", type=Path)
    parser.add_argument("--synchronous", default="FULL")
    parser.add_argument("--level", default="", help="another PRAGMA synchronous than the store would choose")
    parser.add_argument("--journal", default="wal", choices=["wal", "delete"])
    parser.add_argument("--changes", type=int, default=40)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--halves", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ledger", action="store_true")
    options = parser.parse_args()
    if options.play is not None:
        return play(options.play, options.synchronous, options.level, options.ledger, options.changes)
    with tempfile.TemporaryDirectory(prefix="recovery-lab-") as name:
        home = Path(name) / "home"
        home.mkdir()
        disk = prepared(home / FILE, options.journal, options.ledger)
        ledger = ["--ledger"] if options.ledger else []
        told = ["--synchronous", options.synchronous, "--level", options.level, "--changes", options.changes, *ledger]
        recorded = record(home / FILE, *told)
    print(json.dumps(replay(disk, recorded, options.ledger, options.share, options.halves, options.seed)))
    return None


if __name__ == "__main__":
    main()
