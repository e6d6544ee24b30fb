"""For tests and notebooks alike: a journal of their own, and kernels that start even where a port is taken."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from typing import Any

import nbval.kernel
import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Let every check, prediction and report of this run go into a folder that goes with it: one's own is kept."""
    folder = tempfile.mkdtemp(prefix="recovery-lab-home-")
    os.environ["LABKIT_HOME"] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    # As for a job in the background, or under nohup; tests interrupt themselves, and what they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    nbval.kernel.start_new_kernel = started_twice_if_need_be(nbval.kernel.start_new_kernel)


def started_twice_if_need_be(start: Callable[..., Any]) -> Callable[..., Any]:
    """Start a kernel once more where it died before its first word.

    Its ports are chosen before it binds them. Of kernels started side by side, one in some hundreds finds one of them
    taken by then, and with it every cell of its notebook would fail.
    """

    def start_new_kernel(*args: Any, **kwargs: Any) -> Any:
        try:
            return start(*args, **kwargs)
        except RuntimeError:
            return start(*args, **kwargs)

    return start_new_kernel
