"""Signals to a whole group of processes, such as Ctrl-C: they are for the parent, which ends its children itself."""

from __future__ import annotations

import signal

FOR_THE_PARENT = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def leave_to_the_parent() -> None:
    """Pay these signals no heed; this process ends with its parent.

    They are caught and not ignored: what is ignored stays so in the programs that somebody's code starts from here.
    """
    for one in FOR_THE_PARENT:
        signal.signal(one, lambda number, frame: None)
