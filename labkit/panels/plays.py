"""One life after the other in this process: a simulated crash, then the next worker, as panels show them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from labkit.agent import REMOTES, plan
from labkit.desk import TASK_ID, Desk
from labkit.errors import SimulatedCrash
from labkit.policies import Policy
from labkit.recorder import Recorder, read_moments, with_faults
from labkit.records import PlannedOperation
from labkit.remote import Capabilities
from labkit.runs import Run
from labkit.seams import ManualClock, crash_at, no_boundary

WAIT_SECONDS = 60.0
"""Longer than the dead worker's lease."""


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
    clock = ManualClock()
    with tempfile.TemporaryDirectory(prefix="recovery-lab-", ignore_cleanup_errors=True) as name:
        folder, fatal = Path(name), 0
        file = folder / "moments.jsonl"
        with Desk(folder, clock, remotes=remotes, synchronous="OFF") as desk:
            desk.store.enqueue(TASK_ID, operations)
        for worker, boundary in (("worker-1", crash_at(crash_point)), ("worker-2", no_boundary)):
            recorder = Recorder(file, worker)
            with Desk(folder, clock, boundary, remotes=remotes, recorder=recorder, synchronous="OFF") as desk:
                with suppress(SimulatedCrash):
                    desk.start(worker)
                    desk.worker(policy, worker).run(TASK_ID)
                fatal = fatal or len(read_moments(file))
                clock.advance(WAIT_SECONDS)
                task, effects, verdict = desk.store.get(TASK_ID), tuple(desk.effects().items()), desk.verdict()
        moments = with_faults(read_moments(file), {fatal}, "crash")
        return Run(f"{policy.name}, killed after: {crash_point}", moments, task, effects, verdict)
