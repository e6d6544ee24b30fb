"""An interrupt in the middle of a method: at each bytecode of ours, or by a real signal at a random moment."""

import argparse
import contextlib
import json
import random
import signal
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import labkit
from drills.programs import folder
from labkit.deciding import Answer
from labkit.records import Announcement, Outcome, PlannedOperation
from labkit.retries import Category
from labkit.seams import ManualClock
from labkit.store import TaskStore

PLAN = (
    PlannedOperation("refund", "payments", {"amount": 40}, undo_request={"amount": -40}),
    PlannedOperation("send_email", "mail", {"text": "We have refunded 40 euros."}),
)
WATCHED = (str(Path(labkit.__file__).parent), contextlib.__file__)
TABLES = {
    "tasks": "id",
    "operations": "task_id",
    "events": "task_id",
    "outbox": "task_id",
    "messages": "task_id",
}
Step = Callable[[TaskStore, str, Any], Any]
STEPS: dict[str, Step] = {
    "enqueue": lambda store, task, held: store.enqueue(task, PLAN),
    "say": lambda store, task, held: store.say(task, "user", {"text": "hello"}),
    "claim_next": lambda store, task, held: store.claim_next("worker-1"),
    "intend": lambda store, task, held: store.intend(held, f"{task}/refund")[0],
    "lose_track": lambda store, task, held: store.lose_track(held, f"{task}/refund"),
    "settle": lambda store, task, held: store.settle(held, f"{task}/refund", False, "query"),
    "claim": lambda store, task, held: store.claim(store.get(task), "worker-2"),
    "intend again": lambda store, task, held: store.intend(held, f"{task}/refund")[0],
    "retry_later": lambda store, task, held: store.retry_later(
        held, f"{task}/refund", Outcome.REFUSED, Category.TRANSIENT, 1000
    ),
    "claim again": lambda store, task, held: store.claim(store.get(task), "worker-3"),
    "intend a third time": lambda store, task, held: store.intend(held, f"{task}/refund")[0],
    "advance": lambda store, task, held: store.advance(held, f"{task}/refund", "r", Announcement("x", {"a": 1})).lease,
    "checkpoint": lambda store, task, held: store.checkpoint(held, f"{task}/send_email", "m"),
    "fail": lambda store, task, held: store.fail(held, Category.INVALID),
    "relay": lambda store, task, held: store.relay(lambda message: None),
    "compensate": lambda store, task, held: store.compensate(store.get(task), "Ada"),
    "begin the undo": lambda store, task, held: store.begin(store.get(task), "worker-4").lease,
    "lose track of the undo": lambda store, task, held: store.lose_track(held, f"{task}/refund/undo"),
    "ask": lambda store, task, held: store.ask(held, "who knows", 60),
    "answer": lambda store, task, held: store.answer(store.get(task), Answer.APPLIED, "Ada", "r"),
    "begin_next": lambda store, task, held: store.begin_next("worker-5"),
    "get": lambda store, task, held: store.get(task),
}
"""One life of a task: each step is taken in turn, with what the step before it gave."""


@dataclass
class Patient:
    """A store on which lives of tasks are lived up to a step, and that step is interrupted."""

    path: Path

    def __post_init__(self) -> None:
        self.store = TaskStore(self.path, ManualClock(1000), synchronous="OFF")
        self.other = sqlite3.connect(self.path, timeout=0, isolation_level=None)
        self.number = 0

    def close(self) -> None:
        self.store.close()
        self.other.close()

    def live_up_to(self, step: str) -> tuple[str, Any]:
        self.number += 1
        task, held = f"task-{self.number:06}", None
        for name, take in STEPS.items():
            if name == step:
                break
            held = take(self.store, task, held)
        return task, held

    def end(self, task: str) -> None:
        """Take the task out of the way of the next one."""
        self.other.execute("PRAGMA foreign_keys = OFF")
        self.other.execute(f"UPDATE tasks SET next_run_at = 9e9 WHERE id = '{task}'")
        self.other.execute("UPDATE outbox SET delivered_at = 0")

    def rows(self, task: str) -> str:
        """All that is on record of a task, its own id aside."""
        found = [
            [row[1:] if table in ("events", "outbox") else row for row in self.other.execute(query)]
            for table, column in TABLES.items()
            for query in [f"SELECT * FROM {table} WHERE {column} = '{task}' ORDER BY 1, 2"]
        ]
        query = f"SELECT * FROM attempts WHERE operation_id LIKE '{task}/%' ORDER BY 1, 2"
        return json.dumps([*found, self.other.execute(query).fetchall()]).replace(task, "task")

    def locked(self) -> bool:
        """Whether somebody else finds the file locked."""
        try:
            self.other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        self.other.execute("ROLLBACK")
        return False


def traced(call: Callable[[], object], at: int) -> bool:
    """Interrupt a call at its `at`-th bytecode in our own code, counted from 1; False where it was over before."""
    left = at

    def enter(frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(WATCHED):
            return None
        frame.f_trace_opcodes = True
        return step

    def step(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if event == "opcode" and frame.f_lineno is not None:  # without a line: a dropped generator, which nobody hears
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return step

    sys._getframe().f_trace_opcodes = True  # Python 3.12 looks for such a frame when tracing begins
    sys.settrace(enter)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def interrupt_everywhere(name: str, stride: int, first: int = 1) -> Counter[str]:
    """Interrupt one step at every `stride`-th bytecode: all or nothing, and the store goes on."""
    seen = Counter[str]()
    with tempfile.TemporaryDirectory(prefix="recovery-lab-", dir=folder()) as place:
        patient, take = Patient(Path(place) / "tasks.sqlite"), STEPS[name]
        task, held = patient.live_up_to(name)
        before = patient.rows(task)
        take(patient.store, task, held)
        after = patient.rows(task)
        patient.end(task)
        for at in range(first, 1_000_000, stride):
            task, held = patient.live_up_to(name)
            hit = traced(lambda task=task, held=held: take(patient.store, task, held), at)  # type: ignore[misc]
            seen["locked until the next call"] += patient.locked()
            patient.store.tasks()
            assert not patient.locked(), f"{name} at {at}: the file stays locked"
            found = patient.rows(task)
            assert found in (before, after), f"{name} at {at}: half of it is there: {found}"
            patient.end(task)
            if not hit:
                assert found == after
                break
            seen["interrupts"] += 1
            seen["changed"] += found == after
        patient.close()
    return seen


def interrupt_by_signal(times: int, seed: int) -> Counter[str]:
    """Live whole lives of tasks, and let the system's timer interrupt them."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    draw, seen = random.Random(seed), Counter[str]()
    signal.signal(signal.SIGALRM, ring)
    with tempfile.TemporaryDirectory(prefix="recovery-lab-", dir=folder()) as place:
        patient = Patient(Path(place) / "tasks.sqlite")
        milestones = {}
        for name in STEPS:
            task, _ = patient.live_up_to(name)
            milestones[patient.rows(task)] = name
            patient.end(task)
        task, _ = patient.live_up_to("")
        milestones[patient.rows(task)] = "all"
        patient.end(task)
        while seen["interrupts"] < times:
            lived = patient.number
            try:
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.0001, 0.005))
                task, _ = patient.live_up_to("")
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                seen["interrupts"] += 1
                seen["locked until the next call"] += patient.locked()
            patient.store.tasks()
            assert not patient.locked()
            if patient.number == lived:  # it rang before the life began
                continue
            task = f"task-{patient.number:06}"
            seen[f"up to {milestones[patient.rows(task)]}"] += 1
            patient.end(task)
        patient.close()
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(json.dumps(interrupt_by_signal(options.times, options.seed)))


if __name__ == "__main__":
    main()
