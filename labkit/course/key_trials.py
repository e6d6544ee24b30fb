"""Tries a rule for idempotency keys at every crash point of three refunds at one remote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from labkit.agent import REMOTES
from labkit.course.keys import Asking, KeyedSending, KeyRule, key_of, look_alikes, side_by_side, told_keys
from labkit.course.story import WRONG
from labkit.course.submission import Submission
from labkit.course.trials import WIDTH, Trial
from labkit.errors import SimulatedCrash
from labkit.policies import SAME_KEY, Policy
from labkit.records import Operation, PlannedOperation, Task
from labkit.remote import RemoteService
from labkit.retries import Budget
from labkit.scratch import Scratch
from labkit.seams import Boundary, ManualClock, Point, crash_at, no_boundary
from labkit.show.tables import TextTable
from labkit.show.timeline import DITTO
from labkit.states import State
from labkit.store import TaskStore
from labkit.wire import Remote
from labkit.worker import Worker

REFUND = PlannedOperation("refund", "payments", {"customer": "Ada", "amount": 40})
SHIPPING = PlannedOperation("shipping", "payments", {"customer": "Ada", "amount": 5})
PLANS = {"task-1": (REFUND,), "task-2": (REFUND, SHIPPING)}
"""Two tasks refund the same to the same customer, and one of them the shipping too. A key that serves for two of these
operations loses one: silently where the bodies are the same, by a refusal where they are not."""

OPERATIONS = tuple(f"{task_id}/{operation.name}" for task_id, plan in PLANS.items() for operation in plan)
MAX_ATTEMPTS = 3
HEADERS = ("crossing", "key", "the worker believes", "the database says", "the ledger shows")
SAME = "Compare the keys of its sendings: the remote can only recognise what is the same."
SHARED = "The remote has met this key before, on another operation. Which operations may share a key?"

Keys = dict[tuple[str, str, int], str]
"""The key by worker, operation id and number of the attempt."""


@dataclass(frozen=True)
class Crossing:
    """What can be seen at one crossing, of the operation that it is about; `key` is a letter, the same for the same."""

    worker: str
    point: str
    operation_id: str
    key: str
    believes: str
    database: str
    count: int
    dies: bool = False


@dataclass(frozen=True)
class KeyTrial:
    """Tries a rule for keys: both tasks quietly, then once for each crash point; then it compares keys side by side.

    Args:
        asking: how the exercise asks for a key.
    """

    asking: Asking

    def __call__(self, submission: Submission) -> Trial:
        """Ask for all keys, the second worker's in another process, and run with them.

        Raises:
            Unfit: the answer gave no key somewhere.
            NotAttempted: it is the stub.
        """
        keys = {
            (f"worker-{life}", operation_id, attempt): key
            for life in (1, 2)
            for operation_id, attempt, key in submission.run(partial(ask_keys, self.asking.rule, life), life)
        }
        points: list[str] = []
        broken, crashes = _Run(keys, lambda point: points.append(point.name)).trial("", 1), 0
        for tried, point in enumerate(points, start=2):
            if broken is None:
                run = _Run(keys, crash_at(point))
                broken, crashes = run.trial(point, tried), crashes + run.crashes
        if broken is not None:
            return broken
        alike = look_alikes()
        found = side_by_side(submission.run(partial(told_keys, self.asking.rule, alike)), alike, self.asking)
        if found is not None:
            return replace(found, tried=1 + len(points), faults={"crash": crashes})
        bounds = f"{len(OPERATIONS)} refunds, run without a crash and with one at each of {crashes} crash points"
        shown = f"{bounds}; the next worker is a new process; the ledger has each refund once"
        return Trial(True, 1 + len(points), {"crash": crashes}, (shown,))


def ask_keys(rule: KeyRule, life: int, answer: Callable[..., Any]) -> list[tuple[str, int, str]]:
    """Ask an answer for the key of every attempt at every operation.

    Args:
        rule: how the answer is called.
        life: which worker asks, counted from 1; the second one a minute later.
        answer: the student's function.

    Raises:
        Unfit: it raised something, or returned something that is no key.
    """
    keys, now = [], 60.0 * life
    for task_id, plan in PLANS.items():
        for planned in plan:
            for attempt in range(1, MAX_ATTEMPTS + 1):
                now += 0.25
                sending = KeyedSending(task_id, planned.name, attempt, dict(planned.request), now)
                keys.append((sending.operation_id, attempt, key_of(rule, answer, sending)))
    return keys


class _Run:
    """One run of both tasks: the first worker crosses `boundary`, the second goes on where it left off."""

    def __init__(self, keys: Keys, boundary: Boundary) -> None:
        self._keys, self._boundary, self._clock = keys, boundary, ManualClock()
        self._letters: dict[str, str] = {}
        self._letter = ""
        self.crossings: list[Crossing] = []
        self.crashes = 0
        with Scratch() as name:
            self._file, ledger = Path(name, "tasks.sqlite"), Path(name, "payments.sqlite")
            service = RemoteService(ledger, "payments", REMOTES["payments"], self._clock, synchronous="OFF")
            with service, TaskStore(self._file, self._clock, synchronous="OFF") as store:
                self._play(store, service)
                self.tasks = {task_id: store.get(task_id) for task_id in PLANS}
                self.effects = {operation_id: service.effects().get(operation_id, 0) for operation_id in OPERATIONS}

    def _play(self, store: TaskStore, service: RemoteService) -> None:
        for task_id, plan in PLANS.items():
            store.enqueue(task_id, plan, budget=Budget(max_attempts=MAX_ATTEMPTS))
        for name, boundary in (("worker-1", self._boundary), ("worker-2", no_boundary)):
            policy = Policy("yours", SAME_KEY.decide, partial(self._key, name))
            cross = partial(self._cross, name, store, service, boundary)
            with TaskStore(self._file, self._clock, cross, synchronous="OFF") as opened:
                wire = Remote(service, boundary=cross)
                worker = Worker(opened, {"payments": wire}, policy, name, talks=False)
                try:
                    for task_id in PLANS:
                        worker.run(task_id)
                except SimulatedCrash:
                    self.crashes += 1
                    self.crossings.append(replace(self.crossings[-1], point=f"!! {name} dies", believes="", key=""))
            self._clock.advance(60)

    def _key(self, worker: str, operation_id: str, call_id: str) -> str:
        key = self._keys[worker, operation_id, int(call_id.removeprefix("call-"))]
        self._letter = self._letters.setdefault(key, chr(ord("A") + len(self._letters)))
        return key

    def _cross(self, worker: str, store: TaskStore, service: RemoteService, then: Boundary, point: Point) -> None:
        task = store.get(point.subject.partition("/")[0])
        operation = _concerned(task, point.subject)
        key = self._letter if point.action == "send" else ""
        count = service.effects().get(operation.id, 0)
        seen = f"{task.state}, {operation.standing}"
        self.crossings.append(Crossing(worker, point.name, operation.id, key, point.learned, seen, count))
        then(point)

    def trial(self, point: str, tried: int) -> Trial | None:
        """Say what this run broke, if it broke something."""
        found = self._broken()
        if found is None:
            return None
        operation, law, seen, hint = found
        run = (
            f"the smallest run that breaks it has one crash, after {point}"
            if point
            else "it fails even without a crash"
        )
        story = _story(self.crossings, operation.id)
        return Trial(False, tried, {"crash": tried - 1}, (), run, story, law, seen, hint)

    def _broken(self) -> tuple[Operation, str, str, str] | None:
        """The operation that went wrong, the law that broke, its words with what can be seen of it, and a hint."""
        operations = [one for task in self.tasks.values() for one in task.operations]
        for operation in operations:
            count = self.effects[operation.id]
            if count > 1:
                seen = f"The ledger shows {count} of {operation.id}."
                return operation, "no_second_effect", f"No operation has two effects. {seen}", SAME
        for operation in operations:
            if self.effects[operation.id] == 0:
                seen = f"On record {operation.id} is {operation.standing}; the ledger shows none of it."
                return operation, "success_means_done", f"Every refund has its effect once. {seen}", SHARED
        for task in self.tasks.values():
            if task.state is not State.SUCCEEDED:
                seen = f"What can be settled is settled. {task.id} is {task.state}."
                return _concerned(task, ""), "settled_in_the_end", seen, SAME
        return None


def _story(crossings: list[Crossing], operation_id: str) -> TextTable:
    """The three views of one operation as a table, and the sendings that used its keys before."""
    own = [number for number, one in enumerate(crossings) if one.operation_id == operation_id]
    keys = {crossings[number].key for number in own} - {""}
    told = [
        number
        for number, one in enumerate(crossings[: own[-1] + 1])
        if one.operation_id == operation_id or one.dies or one.key in keys
    ]
    shown = [crossings[number] for number in told]
    alone = len({one.operation_id for one in shown}) == 1
    rows: list[tuple[str, ...]] = []
    last = -1
    for number, before, one in zip(told, [None, *shown], shown, strict=False):
        lost = one is shown[-1] and not one.count
        ledger = _counted(one, alone, lost)
        same = before is not None and before.operation_id == one.operation_id
        database = DITTO if same and before and before.database == one.database else one.database
        ledger = DITTO if same and before and before.count == one.count and not lost else ledger
        if before is None or before.worker != one.worker:
            rows.append((f"{one.worker} starts", "", "", "", ""))
        if number > last + 1:
            rows.append((f"... {number - last - 1} more ...", "", "", "", ""))
        last = number
        rows.append((one.point, one.key, one.believes, database, ledger))
    return TextTable(HEADERS, tuple(rows), width=WIDTH)


def _counted(one: Crossing, alone: bool, lost: bool) -> str:
    """What the ledger shows of an operation, by its name `alone` where the table is about no other one."""
    if alone:
        count = f"{one.operation_id.partition('/')[2]} {one.count}x" if one.count else "nothing yet"
        return f"nothing  {WRONG}" if lost else count + (f"  {WRONG}" if one.count > 1 else "")
    wrong = f"\n{WRONG}" if lost or one.count > 1 else ""
    return f"{one.operation_id} {one.count}x{wrong}"


def _concerned(task: Task, subject: str) -> Operation:
    """The operation that a crossing is about: the one named, or the one at which the task stands."""
    named = next((one for one in task.operations if one.id == subject), None)
    return named or task.in_doubt or task.next_operation or task.operations[-1]
