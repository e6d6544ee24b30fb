"""Runs a drill as a program of its own: its forks have no threads to trip over, and what hangs is ended with it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
SHARED_MEMORY = Path("/dev/shm")


def run(module: str, *arguments: object, seconds: float = 900.0, before: tuple[str, ...] = ()) -> dict[str, Any]:
    """Run `python -m drills.<module>` and return what it printed as JSON.

    Args:
        module: the drill.
        arguments: for its command line.
        seconds: a kill switch, not a result.
        before: a command that is given the program to run.
    """
    command = [*before, sys.executable, "-m", f"drills.{module}", *map(str, arguments)]
    with subprocess.Popen(
        command, cwd=TESTS, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as program:
        try:
            said, trouble = program.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            said, trouble = program.communicate()
            raise AssertionError(f"{module} was still running after {seconds} s: {said}{trouble}") from None
    assert program.returncode == 0, f"{module} ended with {program.returncode}: {said}{trouble}"
    result = json.loads(said.splitlines()[-1])
    assert isinstance(result, dict)
    return result


def folder() -> Path | None:
    """Where many small files are written quickest; None for the usual place."""
    return SHARED_MEMORY if SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK) else None
