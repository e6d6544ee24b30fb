"""An interrupt is meant for the search, whatever the explored code does with it."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class Interrupt:
    """Remembers a Ctrl-C that came while code of any kind was running, and that this code may have caught.

    Where it cannot listen (on another thread, or where somebody else handles the signal) it changes nothing.
    """

    def __init__(self) -> None:
        self._came = self._listens = False

    def __enter__(self) -> Interrupt:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._heard)
            self._listens = True
        return self

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if one came and did not get through."""
        if self._came:
            raise KeyboardInterrupt

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listens:
            signal.signal(signal.SIGINT, signal.default_int_handler)
