"""A worker as a process of its own: `python -m labkit.real.worker`. It can kill itself at a named crash point."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from labkit.desk import TASK_ID, TASKS_FILE, Desk
from labkit.errors import LabError, SimulatedCrash
from labkit.policies import POLICIES
from labkit.recorder import Recorder
from labkit.seams import Boundary, Point, crash_at, no_boundary

MOMENTS_FILE = "moments.jsonl"
KILLED = frozenset({-9, 9})
"""Exit codes of a killed process: minus the signal, or on Windows the code given to TerminateProcess."""


def deadly(boundary: Boundary) -> Boundary:
    """Return a boundary that really kills this process wherever `boundary` simulates a crash.

    SIGKILL cannot be caught: no `finally`, no `atexit`, no flush. On Windows `os.kill` with this number is
    TerminateProcess (https://docs.python.org/3/library/os.html#os.kill).
    """

    def cross(point: Point) -> None:
        try:
            boundary(point)
        except SimulatedCrash:
            os.kill(os.getpid(), getattr(signal, "SIGKILL", 9))

    return cross


def main(argv: Sequence[str] | None = None) -> int:
    """Run one worker over the desk in a folder until the task is at rest; print the task's state then.

    Returns:
        0, or 1 after an error of the lab, told in a line; it exits with 2 where the arguments cannot be meant.
    """
    parser = argparse.ArgumentParser(prog="python -m labkit.real.worker", description=__doc__)
    parser.add_argument("folder", type=Path, help="the desk's folder")
    parser.add_argument("--policy", required=True, choices=sorted(POLICIES))
    parser.add_argument("--name", default="worker-1")
    parser.add_argument("--lease-seconds", type=float, default=30.0)
    parser.add_argument("--crash-at", metavar="POINT", help="such as 'send task-1/refund'")
    options = parser.parse_args(argv)
    if not (options.folder / TASKS_FILE).is_file():
        parser.error(f"expected the folder of a desk, found no {TASKS_FILE} in {str(options.folder)!r}")
    boundary = no_boundary if options.crash_at is None else deadly(crash_at(options.crash_at))
    recorder = Recorder(options.folder / MOMENTS_FILE, options.name, timed=False)
    try:
        with Desk(options.folder, boundary=boundary, recorder=recorder) as desk:
            desk.start(options.name)
            print(desk.worker(POLICIES[options.policy], options.name, options.lease_seconds).run(TASK_ID))
    except LabError as error:
        print(f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
