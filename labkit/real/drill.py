"""A drill: start a worker process, let it be killed, start the next one, until the task is at rest."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from labkit.desk import TASK_ID, Desk
from labkit.errors import InvalidInput, LabError
from labkit.policies import POLICIES
from labkit.real.worker import KILLED, MOMENTS_FILE
from labkit.recorder import read_moments, with_faults
from labkit.runs import Run
from labkit.states import HELD_STATES

LEASE_SECONDS = 0.5
LIFE_SECONDS = 60.0
SEND_REFUND = f"send {TASK_ID}/refund"


class DrillFailed(LabError):
    """A worker process ended in a way that the drill did not ask for. Fields: `exit_code`, `said`."""

    def __init__(self, exit_code: int | None, said: str) -> None:
        self.exit_code, self.said = exit_code, said
        super().__init__(f"the worker process ended with {exit_code}: {said.strip() or 'it said nothing'}")


def drill(
    policy: str,
    crash_at: str | Sequence[str] = SEND_REFUND,
    steps: int = 3,
    tell: Callable[[str], None] = lambda line: None,
) -> Run:
    """Play one task with real processes on real files in a temporary folder, and remove the folder.

    Args:
        policy: the name of the recovery policy.
        crash_at: where the first worker is killed; or a list, one point for each life of a worker.
        steps: how many of the task's three operations to plan.
        tell: told in a line what happens, as it happens.

    Returns:
        The run: its moments, the task as it ended, the effects in the ledgers, and the verdict.

    Raises:
        InvalidInput: the policy is not known.
        DrillFailed: a worker did not start, survived its crash point, or did not end in time.
    """
    if policy not in POLICIES:
        raise InvalidInput(f"one of {', '.join(POLICIES)}", policy)
    crashes = [crash_at] if isinstance(crash_at, str) else list(crash_at)
    with tempfile.TemporaryDirectory(prefix="recovery-lab-", ignore_cleanup_errors=True) as name:
        with Desk(name) as desk:
            desk.queue(steps=steps)
            fatal = _live(desk, policy, crashes, tell)
            moments = with_faults(read_moments(desk.folder / MOMENTS_FILE), fatal, "crash")
            effects = tuple(sorted(desk.effects().items()))
            title = f"{policy}, killed after: {', '.join(crashes)}" if crashes else f"{policy}, not killed"
            return Run(title, moments, desk.store.get(TASK_ID), effects, desk.verdict())


def _live(desk: Desk, policy: str, crashes: Sequence[str], tell: Callable[[str], None]) -> frozenset[int]:
    """Let one worker live after the other, and return the numbers of the moments in which they were killed."""
    fatal = set()
    for life, crash in enumerate([*crashes, None], start=1):
        name = f"worker-{life}"
        exit_code, said = _run_worker(desk.folder, policy, name, crash)
        if exit_code not in (KILLED if crash else {0}):
            raise DrillFailed(exit_code, said)
        if crash is None:
            tell(f"{name} carries the task as far as it goes: {said.strip()}")
            break
        tell(f"{name} is killed after: {crash}")
        fatal.add(len(read_moments(desk.folder / MOMENTS_FILE)))
        _wait_for_lease(desk)
    return frozenset(fatal)


def _run_worker(folder: Path, policy: str, name: str, crash_at: str | None) -> tuple[int | None, str]:
    """Run one worker process to its end, and return its exit code and what it said; None where it had to be ended."""
    options = ["--policy", policy, "--name", name, "--lease-seconds", str(LEASE_SECONDS)]
    crash = ["--crash-at", crash_at] if crash_at else []
    command = [sys.executable, "-m", "labkit.real.worker", str(folder), *options, *crash]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=LIFE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"nothing for {LIFE_SECONDS:g} seconds"
    return done.returncode, done.stdout


def _wait_for_lease(desk: Desk) -> None:
    """A dead worker still holds its lease; nobody may take the task over before it has run out."""
    task = desk.store.get(TASK_ID)
    if task.state in HELD_STATES and task.lease_expires_at is not None:
        time.sleep(max(0.0, task.lease_expires_at - desk.clock.now()))
