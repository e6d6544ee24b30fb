"""SIGKILL at random moments: writers that acknowledge each change over a pipe, and a check of all that they said."""

import argparse
import json
import os
import random
import signal
import sqlite3
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import cycle
from pathlib import Path

from drills.programs import folder
from labkit.database import Database
from labkit.errors import StaleToken
from labkit.exchange import Request
from labkit.records import Announcement, Lease, Outcome, PlannedOperation, Task
from labkit.remote import Capabilities, RemoteService
from labkit.retries import Budget, Category
from labkit.seams import ManualClock
from labkit.states import HELD_STATES, TRANSITIONS, UNVERSIONED_EVENTS, Event, State
from labkit.store import SCHEMA, TaskStore

LEASE_SECONDS = 0.02
LONGEST_LIFE_SECONDS = 0.05
ROUNDS_IN_ONE_FILE = 10
KEYS = Capabilities(idempotency_keys=True, status_query=True)
PLAN = (
    PlannedOperation("refund", "payments", {"amount": 40}, undo_request={"amount": -40}),
    PlannedOperation("send_email", "mail", {"text": "We have refunded 40 euros." * 40}),
)
EDGES = {(edge.event, edge.source, edge.target) for edge in TRANSITIONS}
Acknowledge = Callable[..., None]
Writer = Callable[[Path, str, random.Random, Acknowledge], None]


# Writers


def work(path: Path, worker: str, draw: random.Random, acknowledge: Acknowledge) -> None:
    """Claim, intend, checkpoint and finish tasks for as long as nobody kills us, now and then in shared commits."""
    with TaskStore(path) as store:
        for number in range(100_000):
            lease, sending = acquired(store, worker, draw.random() < 0.5)
            if lease is None:
                task = store.enqueue(f"{worker}-{number}", PLAN, budget=Budget(1_000_000, 1e9))
                acknowledge(task.id, "enqueue", 1, 0)
                continue
            acknowledge(lease.task_id, None, lease.version, lease.token)
            with suppress(StaleToken):  # we were slow, and somebody took over
                if lease.state is State.UNCERTAIN:
                    settle(store, lease, draw, acknowledge)
                else:
                    finish(store, lease, sending, draw, acknowledge)


def acquired(store: TaskStore, worker: str, shares: bool) -> tuple[Lease | None, str | None]:
    """The lease of a task, if there is one to be had, and what it is to send, if that is intended already."""
    if not shares:
        return store.claim_next(worker, LEASE_SECONDS), None
    progress = store.begin_next(worker, LEASE_SECONDS)
    return (None, None) if progress is None else (progress.lease, progress.operation_id)


def settle(store: TaskStore, lease: Lease, draw: random.Random, acknowledge: Acknowledge) -> None:
    doubt = store.get(lease.task_id).in_doubt
    if doubt is None:  # somebody was faster
        return
    store.settle(lease, doubt.id, draw.random() < 0.5, "status query", "found")
    acknowledge(lease.task_id, "settle", lease.version + 1, lease.token)


def finish(store: TaskStore, lease: Lease, sending: str | None, draw: random.Random, acknowledge: Acknowledge) -> None:
    """Carry a task as far as its dice fall: done, put off, failed or in doubt."""
    task = store.get(lease.task_id)
    for operation in task.current[task.step :]:
        if operation.id != sending:
            lease, _ = store.intend(lease, operation.id)
            acknowledge(lease.task_id, "intend", lease.version, lease.token)
        fate = draw.random()
        if fate < 0.1:
            lease = store.lose_track(lease, operation.id)
            acknowledge(lease.task_id, "lose_track", lease.version, lease.token)
            return settle(store, lease, draw, acknowledge)
        if fate < 0.15:
            store.fail(lease, Category.INVALID, operation.id, Outcome.REFUSED)
            return acknowledge(lease.task_id, "fail", lease.version + 1, lease.token)
        if fate < 0.25:
            store.retry_later(lease, operation.id, Outcome.NOT_SENT, Category.TRANSIENT, store.clock.now())
            return acknowledge(lease.task_id, "retry_later", lease.version + 1, lease.token)
        news = Announcement("news", {"text": "x" * draw.randrange(3000)})
        if draw.random() < 0.5:
            progress = store.advance(lease, operation.id, "ref", news)
            acknowledge(lease.task_id, "checkpoint", lease.version + 1, lease.token)
            if progress.lease is None:
                return acknowledge(lease.task_id, "succeed", lease.version + 2, lease.token)
            lease, sending = progress.lease, progress.operation_id
            acknowledge(lease.task_id, "intend", lease.version, lease.token)
            continue
        lease = store.checkpoint(lease, operation.id, "ref", news)
        acknowledge(lease.task_id, "checkpoint", lease.version, lease.token)
    store.succeed(lease)
    return acknowledge(lease.task_id, "succeed", lease.version + 1, lease.token)


def serve(path: Path, worker: str, draw: random.Random, acknowledge: Acknowledge) -> None:
    """Handle requests at a remote, each key sent by several, and some of them late."""
    with RemoteService(path, "payments", KEYS, late_by_seconds=0.0) as service:
        for number in range(100_000):
            operation = f"task-{draw.randrange(200)}/refund"
            request = Request(operation, f"{operation}#{worker}-{number}", "{}", operation)
            if draw.random() < 0.2:
                service.accept_late(request)
                acknowledge(operation, None)
            else:
                acknowledge(operation, service.handle(request).reference)


# Killing


def life(writer: Writer, path: Path, worker: str, draw: random.Random) -> tuple[int, int]:
    """Fork a writer; returns its process id, and the end of the pipe on which it acknowledges."""
    listen, speak = os.pipe()
    process = os.fork()
    if process:
        os.close(speak)
        return process, listen
    try:
        os.close(listen)
        writer(path, worker, draw, lambda *said: os.write(speak, f"{json.dumps(said)}\n".encode()) and None)
    except BaseException:
        os.write(speak, f"{json.dumps(['trouble', traceback.format_exc()])}\n".encode())
    os._exit(1)


def killed(lives: list[tuple[int, int]], draw: random.Random, within: float) -> Iterator[tuple[object, ...]]:
    """Kill each writer at a moment of its own, and return all that they had acknowledged until then."""
    for process, _ in lives:
        time.sleep(draw.uniform(0, within))
        os.kill(process, signal.SIGKILL)
    for process, listen in lives:
        os.waitpid(process, 0)
        with open(listen, encoding="utf-8") as pipe:
            said = pipe.read()
        for line in said.splitlines(keepends=True):
            if line.endswith("\n"):  # the last one may have been cut short
                words = tuple(json.loads(line))
                assert words[0] != "trouble", words[1]
                yield words


# What must hold after it


def sound(path: Path) -> None:
    with closing(sqlite3.connect(path, timeout=30)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []


def check_store(path: Path, said: list[tuple[object, ...]], seen: Counter[str]) -> None:
    """No change that was acknowledged is missing, each history is a chain, and every lease runs out."""
    sound(path)
    later = ManualClock(time.time() + LEASE_SECONDS)
    with TaskStore(path, later) as store:
        histories = {task.id: store.history(task.id) for task in store.tasks()}
        written = {(one.task_id, one.event, one.version, one.token) for lines in histories.values() for one in lines}
        steps = {(task_id, version, token) for task_id, _, version, token in written}
        for task_id, event, version, token in said:
            where = steps if event is None else written
            assert ((task_id, version, token) if event is None else (task_id, event, version, token)) in where
        for task in store.tasks():
            check_chain(task, store)
            seen["in doubt"] += task.in_doubt is not None
            if task.state in HELD_STATES:
                seen["leases taken over"] += 1
                lease = store.take_over(task, "heir", 0)
                assert lease.token == task.lease_token + 1


def check_chain(task: Task, store: TaskStore) -> None:
    """A history without a gap, which leads to the task as it stands, and results where it says so."""
    first, *lines = store.history(task.id)
    assert (first.event, first.target, first.version) == ("enqueue", State.QUEUED, 1)
    before = first
    for line in lines:
        assert (Event(line.event), State(str(line.source)), State(line.target)) in EDGES
        assert line.source == before.target
        assert line.version == before.version + (line.event not in UNVERSIONED_EVENTS)
        assert line.token == before.token + (line.event in (Event.CLAIM, Event.TAKE_OVER))
        before = line
    assert (before.target, before.version, before.token) == (task.state, task.version, task.lease_token)
    done = [one.event == "checkpoint" or bool(one.detail.get("applied")) for one in lines]
    assert sum(done) == task.step == sum(one.result_ref is not None for one in task.operations)


def check_ledger(path: Path, said: list[tuple[object, ...]], seen: Counter[str]) -> None:
    """Each key has one effect, and whoever was answered has been told its reference."""
    sound(path)
    with RemoteService(path, "payments", KEYS) as service:
        service.deliver_late()
        effects = service.effects()
        assert set(effects.values()) <= {1}
        for operation in {str(operation) for operation, _ in said}:
            again = service.handle(Request(operation, "check", "{}", operation))
            assert again.replayed
            assert {reference for one, reference in said if one == operation} <= {None, again.reference}
        with service._db.read() as db:
            assert (
                db.execute("SELECT count(*) FROM effects").fetchone()
                == db.execute("SELECT count(*) FROM keys JOIN effects USING (effect_id)").fetchone()
            )


# The drill


def new_file(path: Path, mode: str, ledger: bool) -> None:
    """Leave it to the writers to create the file; or create it with a rollback journal, as on network homes."""
    if mode == "wal":
        return
    if ledger:
        RemoteService(path, "payments").close()
    else:
        Database(path, SCHEMA).close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ledger", action="store_true")
    options = parser.parse_args()
    draw, seen, kills, modes = random.Random(options.seed), Counter[str](), 0, cycle(["wal", "delete"])
    writer, check = (serve, check_ledger) if options.ledger else (work, check_store)
    while kills < options.kills:
        mode = next(modes)
        with tempfile.TemporaryDirectory(prefix="recovery-lab-", dir=folder()) as name:
            path, all_said = Path(name) / "file.sqlite", list[tuple[object, ...]]()
            new_file(path, mode, options.ledger)
            for turn in range(ROUNDS_IN_ONE_FILE):
                lives = [
                    life(writer, path, f"{turn}-{number}", random.Random(draw.random()))
                    for number in range(options.writers)
                ]
                all_said += killed(lives, draw, LONGEST_LIFE_SECONDS)
                kills += len(lives)
                seen["logs left"] += any(one.stat().st_size > 0 for one in Path(name).glob("*-wal"))
                seen["hot journals left"] += Path(f"{path}-journal").exists()
                check(path, all_said, seen)
                if kills >= options.kills:
                    break
            seen["acknowledged"] += len(all_said)
            seen[f"files in {mode} mode"] += 1
    print(json.dumps({"kills": kills, **seen}))


if __name__ == "__main__":
    main()
