"""Exercise 0.1: try a rule for idempotency keys at every crash point of two refunds at one remote."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labkit.agent import REMOTES, plan
from labkit.course.trials import Trial
from labkit.errors import InvalidInput, SimulatedCrash
from labkit.policies import SAME_KEY, Policy
from labkit.remote import RemoteService
from labkit.seams import Boundary, ManualClock, Point, crash_at, no_boundary
from labkit.states import State
from labkit.store import TaskStore
from labkit.wire import Remote
from labkit.worker import Worker

ORDERS = {"task-1": 1042, "task-2": 1043}
"""Two orders of the same worth, refunded at the same remote: a key that serves for both loses one of them."""


def try_key(key_for: Callable[..., Any]) -> Trial:
    """Run two refunds quietly, then once for each crash point, each time with a key by `key_for`.

    Args:
        key_for: takes an operation id and the number of the attempt (from 1), returns the key.

    Raises:
        InvalidInput: it returned something that is no key.
    """
    points: list[str] = []
    tried, crashes = 0, 0
    broke, story = _play(key_for, lambda point: points.append(point.name))
    for point in ["", *points]:
        if point:
            broke, story = _play(key_for, crash_at(point))
            crashes += 1
        tried += 1
        if broke:
            return Trial(False, tried, {"crash": crashes}, broke, tuple(story))
    shown = f"two refunds, quietly and with a crash at each of {crashes} crash points: every ledger shows one each"
    return Trial(True, tried, {"crash": crashes}, shown=shown)


def _play(key_for: Callable[..., Any], boundary: Boundary) -> tuple[str, list[str]]:
    """Play both refunds, a second worker taking over after a crash; return what broke, and the story."""
    clock, story = ManualClock(), list[str]()
    with tempfile.TemporaryDirectory(prefix="recovery-lab-", ignore_cleanup_errors=True) as folder:
        service = RemoteService(
            Path(folder, "payments.sqlite"), "payments", REMOTES["payments"], clock, synchronous="OFF"
        )
        with service, TaskStore(Path(folder, "tasks.sqlite"), clock, synchronous="OFF") as store:
            for task_id, order in ORDERS.items():
                store.enqueue(task_id, plan(order)[:1])
            for name in ("worker-1", "worker-2"):
                cross = _telling(story, name, boundary if name == "worker-1" else no_boundary)
                try:
                    _work(key_for, Path(folder), clock, service, name, cross)
                except SimulatedCrash:
                    story.append(f"{name} dies here")
                clock.advance(60)
            return _broken(store, service), story


def _work(
    key_for: Callable[..., Any], folder: Path, clock: ManualClock, service: RemoteService, name: str, cross: Boundary
) -> None:
    def key(operation_id: str, call_id: str) -> str | None:
        answer = key_for(operation_id, int(call_id.removeprefix("call-")))
        if not isinstance(answer, str) or not answer:
            raise InvalidInput("a key: text that is not empty", answer)
        return answer

    policy = Policy("yours", SAME_KEY.decide, key)
    with TaskStore(folder / "tasks.sqlite", clock, cross, synchronous="OFF") as store:
        worker = Worker(store, {"payments": Remote(service, boundary=cross)}, policy, name, talks=False)
        for task_id in ORDERS:
            worker.run(task_id)


def _telling(story: list[str], name: str, then: Boundary) -> Boundary:
    def cross(point: Point) -> None:
        story.append(f"{name}: {point.name}: {point.learned}")
        then(point)

    return cross


def _broken(store: TaskStore, service: RemoteService) -> str:
    effects = service.effects()
    for task_id in ORDERS:
        count = effects.get(f"{task_id}/refund", 0)
        if count > 1:
            return f"no operation has two effects, but the ledger shows {count} of {task_id}/refund"
    for task_id in ORDERS:
        if store.get(task_id).state is not State.SUCCEEDED or effects.get(f"{task_id}/refund", 0) != 1:
            told = [answer for operation_id, _, answer in service.requests() if operation_id == f"{task_id}/refund"]
            return f"a refund has its effect once, but {task_id}/refund has none; payments said: {told[-1]}"
    return ""
