"""An interrupt and the end of the time are meant for the search, whatever the explored code does with them.

Code can catch every exception. What does not go by itself is left where it stands, for good, and the search goes on at
its scheduler. Only a statement that SQLite is in the middle of cannot be left so.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

from labkit.explore.lives import STOP, OutOfTime, leave_here, worker_here

GRACE_SECONDS = 1.0
"""So much longer than it may a search can take: by then it has come to the end of a run, unless that has none."""

AGAIN_SECONDS = 0.1
CALLED_BY_SQLITE = frozenset({"labkit.explore.traced", "labkit.explore.cursors"})


class Interrupt:
    """Hears of a Ctrl-C, and of the end of the time, while code of any kind is running.

    Where it cannot listen (on another thread, where somebody else handles the signal, for the time also on Windows) it
    changes nothing.

    Args:
        seconds: from when on it is time to stop; None: never.
        run_seconds: the same for each single run; the first has begun.
    """

    def __init__(self, seconds: float | None = None, run_seconds: float | None = None) -> None:
        self._ends_at = math.inf if seconds is None else time.monotonic() + seconds + GRACE_SECONDS
        self._run_seconds = run_seconds
        self._came = self._listens = self._times = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, self._heard)
                self._listens = True
            if (self._ends_at < math.inf or self._run_seconds is not None) and _is_free():
                self._ring(self._left())
        return self

    def _left(self) -> float:
        """Seconds until the search is late, or the run that begins now."""
        left = max(self._ends_at - time.monotonic(), AGAIN_SECONDS)
        return left if self._run_seconds is None else min(left, self._run_seconds)

    def next_run(self) -> None:
        """The next run begins: it has the seconds of a run, as each had before it."""
        if self._times and self._run_seconds is not None:
            self._ring(self._left())

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        if self._times or _is_free():
            self._ring(AGAIN_SECONDS)
            self._stop(KeyboardInterrupt(), frame)
        STOP[:] = [KeyboardInterrupt()]  # nobody looks again
        self._stop(STOP[0], frame)

    def _late(self, number: int, frame: FrameType | None) -> None:
        where = " in the middle of a run" + (" (a loop that never ends?)" if worker_here() else "")
        of_the_run = None if time.monotonic() >= self._ends_at else self._run_seconds
        self._stop(STOP[0] if STOP else OutOfTime(where, of_the_run), frame)

    def _stop(self, error: BaseException, frame: FrameType | None) -> None:
        """Raise an error; where one was raised before, to no avail, leave the code that is running."""
        again, STOP[:] = bool(STOP), [error]
        if _is_in_a_statement(frame):
            if _is_ours(frame):
                return  # until it has come back from SQLite
        elif again:
            leave_here(error)
        raise error

    def _ring(self, seconds: float) -> None:
        if not self._times:
            self._before = signal.signal(signal.SIGALRM, self._late)
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
        self._times = True

    def check(self) -> None:
        """Raise what came and did not get through."""
        if self._came:
            raise KeyboardInterrupt
        if STOP:
            raise STOP[0]

    def close(self) -> None:
        """No more of the time: the search is over, and whatever comes behind it takes as long as it takes."""
        if self._times:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._before)
            self._times = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self._listens:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        STOP.clear()


def _is_free() -> bool:
    """Whether nobody uses the system's alarm, where there is one; a forked process finds its parent's handler there."""
    if not hasattr(signal, "setitimer"):
        return False
    handler = signal.getsignal(signal.SIGALRM)
    ours = getattr(handler, "__func__", None) is Interrupt._late
    return (ours or handler is signal.SIG_DFL) and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def _is_in_a_statement(frame: FrameType | None) -> bool:
    """Whether SQLite may be what has called this code: then it is in the middle of a statement, and must come back."""
    while frame is not None and not _is_ours(frame):
        frame = frame.f_back
    return frame is not None and frame.f_globals["__name__"] in CALLED_BY_SQLITE


def _is_ours(frame: FrameType | None) -> bool:
    return frame is not None and str(frame.f_globals.get("__name__")).startswith("labkit.")
