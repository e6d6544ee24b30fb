"""How a command ends: whatever ends it, it tidies up, and nobody gets a traceback for what others did to it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

FAILED, INTERRUPTED, PIPE_CLOSED = 1, 130, 141
"""Exit codes; for a signal they are 128 and its number, as shells have it."""

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""What `kill` sends, and a terminal that is closed. By default they end a process where it stands."""


def carried_out(run: Callable[[], int]) -> int:
    """Run a command, and return its exit code.

    Args:
        run: the command. A signal that ends it comes as `KeyboardInterrupt`, so that it tidies up.
    """
    _fill_closed_streams()
    with _signals_that_end() as heard:
        code = _carried_out(run)
    return 128 + heard[0] if heard else code


def _carried_out(run: Callable[[], int]) -> int:
    try:
        try:
            return run()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as head, has seen enough
        _drop_what_cannot_be_written()
        return PIPE_CLOSED
    except OSError as error:
        _drop_what_cannot_be_written()
        with suppress(OSError):
            print(f"This went wrong: {in_words(error)}", file=sys.stderr)
        return FAILED


def in_words(error: BaseException) -> str:
    """Return what an error says, without the number that the system has for it."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def _fill_closed_streams() -> None:
    """Where an output was closed by whoever started us, write to nowhere; no file may come to have its number."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for as long as the process lives


def _drop_what_cannot_be_written() -> None:
    """Python flushes once more in the end, and would complain again."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):  # it is no file at all
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _signals_that_end() -> Iterator[list[int]]:
    """Let the signals of `ENDING` interrupt the block as Ctrl-C does; yield a list for the one that comes."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if not heard:  # a second one would only interrupt the tidying up
            heard.append(number)
            raise KeyboardInterrupt

    here = threading.current_thread() is threading.main_thread()
    ours = [one for one in ENDING if here and signal.getsignal(one) is signal.SIG_DFL]  # `nohup` has it ignored
    for one in ours:
        signal.signal(one, hear)
    try:
        yield heard
    finally:
        for one in ours:
            signal.signal(one, signal.SIG_DFL)
