"""One life after the other in this process: simulated crashes, cancels and lost replies, as panels show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from labkit.agent import REMOTES, plan
from labkit.desk import TASK_ID, Desk
from labkit.errors import ConditionUnmet, SimulatedCrash
from labkit.policies import Policy
from labkit.recorder import Recorder, read_moments, with_faults
from labkit.records import PlannedOperation
from labkit.remote import Capabilities
from labkit.runs import Run, Verdict
from labkit.scratch import Scratch
from labkit.seams import (
    Boundary,
    Call,
    Delivery,
    ManualClock,
    Network,
    Point,
    crash_at,
    no_boundary,
    reliable,
)

WAIT_SECONDS = 60.0
"""Longer than the dead worker's lease, and than a late request takes."""
MOST_LIVES = 10
NOBODY = "nobody dies"
"""The crash point of a worker that lives."""


class Lives:
    """Workers that carry one task, one after the other, on files in a temporary folder.

    Args:
        operations: the task's external writes.
        remotes: the capabilities of each remote, by name.
    """

    def __init__(
        self,
        operations: Sequence[PlannedOperation] = tuple(plan()),
        remotes: Mapping[str, Capabilities] = REMOTES,
    ) -> None:
        self._clock, self._remotes, self._born = ManualClock(), remotes, 0
        self._faults: dict[int, str] = {}
        self._scratch = Scratch()
        self._moments = Path(self._scratch.folder, "moments.jsonl")
        with self._desk() as desk:
            desk.store.enqueue(TASK_ID, operations)

    def live(self, policy: Policy, boundary: Boundary = no_boundary, network: Network = reliable) -> bool:
        """Let the next worker carry the task as far as it goes, and wait until its lease has run out.

        Returns:
            Whether it died.
        """
        self._born += 1
        name, died = f"worker-{self._born}", False
        with self._desk(boundary, network, Recorder(self._moments, name)) as desk:
            try:
                desk.start(name)
                desk.worker(policy, name).run(TASK_ID)
            except SimulatedCrash:
                self._mark("crash")
                died = True
        self._clock.advance(WAIT_SECONDS)
        return died

    def until_at_rest(self, policy: Policy, boundary: Boundary = no_boundary, network: Network = reliable) -> None:
        """Let one worker after the other go on, until nothing is left to do."""
        for _ in range(MOST_LIVES):
            if not self.live(policy, boundary, network) and self._verdict() is not Verdict.STUCK:
                return

    def cancelling(self, point_name: str) -> Boundary:
        """Return a boundary at which Ada wants the task stopped, at the first crossing of that name."""

        def boundary(point: Point) -> None:
            if point.name == point_name and "cancel" not in self._faults.values():
                with self._desk() as desk:
                    desk.store.request_cancel(TASK_ID, "Ada")
                self._mark("cancel")

        return boundary

    def undo(self) -> bool:
        """Let Ada ask for what was done to be undone; False where there is nothing that can be."""
        with suppress(ConditionUnmet), self._desk() as desk:
            desk.store.compensate(desk.store.get(TASK_ID), "Ada")
            return True
        return False

    def run(self, title: str) -> Run:
        """All that was seen so far."""
        with self._desk() as desk:
            task, effects, verdict = desk.store.get(TASK_ID), tuple(desk.effects().items()), desk.verdict()
        moments = read_moments(self._moments)
        for number, fault in self._faults.items():
            moments = with_faults(moments, {number}, fault)
        return Run(title, moments, task, effects, verdict)

    def close(self) -> None:
        """Remove the files."""
        self._scratch.close()

    def __enter__(self) -> Lives:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _desk(
        self, boundary: Boundary = no_boundary, network: Network = reliable, recorder: Recorder | None = None
    ) -> Desk:
        return Desk(self._scratch.folder, self._clock, boundary, network, self._remotes, recorder, synchronous="OFF")

    def _mark(self, fault: str) -> None:
        self._faults[len(read_moments(self._moments))] = fault

    def _verdict(self) -> Verdict:
        with self._desk() as desk:
            return desk.verdict()


def dying(crash_point: str) -> Boundary:
    """Return a boundary at which a worker dies, or one for the worker that lives."""
    return no_boundary if crash_point == NOBODY else crash_at(crash_point)


def first_sending(operation_id: str, delivery: Delivery) -> Network:
    """Return a network that does this to the first sending of one operation, and delivers all else."""
    met: list[Call] = []

    def network(call: Call) -> Delivery:
        if met or (call.action, call.operation_id) != ("send", operation_id):
            return Delivery.DELIVERED
        met.append(call)
        return delivery

    return network


def crash_and_recover(
    policy: Policy,
    crash_point: str,
    operations: Sequence[PlannedOperation] = tuple(plan()),
    remotes: Mapping[str, Capabilities] = REMOTES,
) -> Run:
    """Let one worker die behind a crossing and the next one carry the task as far as it goes.

    Args:
        policy: the recovery policy of both.
        crash_point: the crossing's name, such as `send task-1/refund`.
        operations: the task's external writes.
        remotes: the capabilities of each remote, by name.
    """
    with Lives(operations, remotes) as lives:
        lives.live(policy, crash_at(crash_point))
        lives.live(policy)
        return lives.run(f"{policy.name}, killed after: {crash_point}")
