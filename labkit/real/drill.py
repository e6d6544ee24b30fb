"""A drill: start a worker process, let it be killed, start the next one, until the task is at rest."""

from __future__ import annotations

import subprocess
import sys
import tempfile
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
    """A worker process ended in a way that the drill did not ask for.

    Fields: `worker`; `crash_at`, None where it was to live; `exit_code`, None where it had to be ended; `said`.
    """

    def __init__(self, worker: str, crash_at: str | None, exit_code: int | None, said: str) -> None:
        self.worker, self.crash_at, self.exit_code, self.said = worker, crash_at, exit_code, said.strip()
        asked = "was to end by itself" if crash_at is None else f"was to be killed after {crash_at!r}"
        ends = {None: "was still running and had to be ended", 0: "never came past that point: it ended"}
        found = ends.get(exit_code, f"ended with exit code {exit_code}")
        super().__init__(f"{worker} {asked}, but {found}; it said: {self.said or 'nothing'}")


def drill(
    policy: str,
    crash_at: str | Sequence[str] = SEND_REFUND,
    steps: int = 3,
    tell: Callable[[str], None] = lambda line: None,
    *,
    lease_seconds: float = LEASE_SECONDS,
    life_seconds: float = LIFE_SECONDS,
) -> Run:
    """Play one task with real processes on real files in a temporary folder, and remove the folder.

    Args:
        policy: the name of the recovery policy.
        crash_at: where the first worker is killed; or a list, one point for each life of a worker.
        steps: how many of the task's three operations to plan.
        tell: told in a line what happens, as it happens.
        lease_seconds: how long a worker holds the task; the next one starts when that has run out.
        life_seconds: how long a worker process may take.

    Returns:
        The run: its moments, the task as it ended, the effects in the ledgers, and the verdict.

    Raises:
        InvalidInput: the policy or the number of steps cannot be meant.
        DrillFailed: a worker did not start, survived its crash point, or did not end in time.
    """
    if policy not in POLICIES:
        raise InvalidInput(f"one of {', '.join(POLICIES)}", policy)
    crashes = [crash_at] if isinstance(crash_at, str) else list(crash_at)
    title = f"{policy}, killed after: {', '.join(crashes)}" if crashes else f"{policy}, not killed"
    options = ["--policy", policy, "--lease-seconds", str(lease_seconds)]
    with tempfile.TemporaryDirectory(prefix="recovery-lab-", ignore_cleanup_errors=True) as name, Desk(name) as desk:
        desk.queue(steps=steps)
        fatal = set()
        for life, crash in enumerate(crashes, start=1):
            _run_worker(desk.folder, f"worker-{life}", options, crash, life_seconds)
            tell(f"worker-{life} is killed after: {crash}")
            fatal.add(len(read_moments(desk.folder / MOMENTS_FILE)))
            _wait_for_lease(desk)
        last = f"worker-{len(crashes) + 1}"
        tell(
            f"{last} carries the task as far as it goes: {_run_worker(desk.folder, last, options, None, life_seconds)}"
        )
        moments = with_faults(read_moments(desk.folder / MOMENTS_FILE), fatal, "crash")
        return Run(title, moments, desk.store.get(TASK_ID), tuple(desk.effects().items()), desk.verdict())


def _run_worker(folder: Path, name: str, options: Sequence[str], crash_at: str | None, seconds: float) -> str:
    """Run one worker process to the end that is asked for, and return what it said.

    Raises:
        DrillFailed: it ended in another way, or not within `seconds`; then it has been ended.
    """
    command = [sys.executable, "-m", "labkit.real.worker", str(folder), "--name", name, *options]
    try:
        done = subprocess.run(
            command if crash_at is None else [*command, f"--crash-at={crash_at}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DrillFailed(name, crash_at, None, "") from None
    if done.returncode not in ({0} if crash_at is None else KILLED):
        raise DrillFailed(name, crash_at, done.returncode, done.stdout)
    return done.stdout.strip()


def _wait_for_lease(desk: Desk) -> None:
    """A dead worker still holds its lease; nobody may take the task over before it has run out."""
    task = desk.store.get(TASK_ID)
    if task.state in HELD_STATES and task.lease_expires_at is not None:
        desk.clock.sleep(task.lease_expires_at - desk.clock.now())
