"""What a test has left running, and what it has stopped."""

import threading

import psutil

TRACKER = "multiprocessing.resource_tracker"
"""Python's own helper, started once by whoever spawns processes; it lives as long as its parent."""


def strays() -> list[psutil.Process]:
    """The processes below this one, but for Python's own helper."""
    return [child for child in psutil.Process().children(recursive=True) if not _is_tracker(child)]


def _is_tracker(process: psutil.Process) -> bool:
    try:
        return any(TRACKER in word for word in process.cmdline())
    except psutil.NoSuchProcess:
        return True  # it has just ended


def wait_until_stopped(process: psutil.Process) -> None:
    """A signal takes its time."""
    for _ in range(10_000):
        if process.status() == psutil.STATUS_STOPPED:
            return
        threading.Event().wait(0.001)
    raise AssertionError("it runs on")
