"""A worker as a process of its own: `python -m labkit.real.worker`, led by its parent over a pipe.

The first line on stdin is an order, JSON: what to run, and where. From then on the process reports every crossing,
every remote call and every wait on stdout, and goes on when told to; told to die, it kills itself. When stdin ends, for
its parent has gone away, it ends too, whatever it is doing.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any, NoReturn

from labkit.changes import Assumptions
from labkit.policies import POLICIES
from labkit.programs import Program
from labkit.real.client import HttpService
from labkit.real.programs import program_from
from labkit.real.signals import leave_to_the_parent
from labkit.remote import Capabilities
from labkit.seams import Call, Delivery, ManualClock, Point
from labkit.store import TaskStore
from labkit.wire import Remote
from labkit.worker import Worker

ORPHANED = 3
"""The exit code of a worker whose parent has gone away."""


class ParentLink:
    """The pipe to the parent, and all that a worker is told over it.

    Args:
        orders: where the parent writes.
        reports: where it reads.
    """

    def __init__(self, orders: IO[bytes], reports: IO[bytes]) -> None:
        self.clock = ManualClock()
        self.services: dict[str, HttpService] = {}
        self._reports = reports
        self._told: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(orders,), daemon=True).start()

    def _read(self, orders: IO[bytes]) -> None:
        with suppress(OSError, ValueError):
            for line in orders:
                self._told.put(json.loads(line))
        os._exit(ORPHANED)

    def first(self) -> dict[str, Any]:
        """The first order."""
        return self._told.get()

    def report(self, **what: Any) -> dict[str, Any]:
        """Tell the parent where this worker stands, and wait to be told to go on, or die."""
        self.say(**what)
        told = self._told.get()
        if told.get("die"):
            die()
        self.clock.reset(told["now"])
        return told

    def say(self, **what: Any) -> None:
        """Tell the parent something that it need not answer."""
        try:
            self._reports.write(json.dumps(what).encode() + b"\n")
            self._reports.flush()
        except OSError:
            os._exit(ORPHANED)

    def cross(self, point: Point) -> None:
        """The boundary of store and remotes."""
        self.report(crossed=[point.action, point.subject, point.learned])

    def call(self, call: Call) -> Delivery:
        """The network: the parent arranges with the service what becomes of a call, and says how to make it."""
        told = self.report(calls=[call.remote, call.action, call.operation_id, call.request_id])
        service = self.services[call.remote]
        service.address, service.read_seconds = told["address"], told["read_seconds"]
        return Delivery.DELIVERED

    def now(self) -> float:
        """The parent's clock, as last told."""
        return self.clock.now()

    def sleep(self, seconds: float) -> None:
        """Wait until the parent says that the time has come."""
        self.report(sleeps=max(0.0, seconds))


def die() -> NoReturn:
    """Kill this process. SIGKILL cannot be caught: no `finally`, no `atexit`, no flush.

    On Windows `os.kill` with this number is TerminateProcess (https://docs.python.org/3/library/os.html#os.kill).
    """
    os.kill(os.getpid(), getattr(signal, "SIGKILL", 9))
    raise AssertionError("nobody survives that")


def live(parent: ParentLink, order: Mapping[str, Any]) -> None:
    """Live one life as ordered, from the first crossing to the last report."""
    parent.clock.reset(order["now"])
    try:
        program = _program(order)
        assumptions = Assumptions(**order["assumptions"])
        store = TaskStore(order["tasks"], parent, parent.cross, assumptions, order["synchronous"])
        for remote, can in order["remotes"].items():
            parent.services[remote] = HttpService("", remote, Capabilities(**can))
    except BaseException as error:  # somebody's code runs here already: that of the file's own
        parent.say(failed=f"{type(error).__name__}: {error}")
        return
    remotes = {remote: Remote(far, parent.call, parent.cross) for remote, far in parent.services.items()}
    try:
        parent.cross(Point("start", order["name"], "nothing yet"))
        result = program(order["task"], store, remotes)
    except BaseException as error:  # whatever a program raises is an answer to whoever leads it
        parent.say(raised=_portable(error), type=type(error).__name__, text=str(error))
    else:
        parent.say(ended=str(result))


def _program(order: Mapping[str, Any]) -> Program:
    """The program that is ordered: the lab's own worker by one policy, or somebody's code."""
    if "policy" not in order["program"]:
        return program_from(order["program"])
    policy = POLICIES[order["program"]["policy"]]
    called, lease_seconds, talks = order["name"], order["lease_seconds"], policy.name == "replay_transcript"

    def run(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> Any:
        return Worker(store, remotes, policy, called, lease_seconds, talks=talks).run(task_id)

    return run


def _portable(error: BaseException) -> str | None:
    """The error for another process, or None where it cannot travel."""
    try:
        written = pickle.dumps(error)
        pickle.loads(written)
    except Exception:  # whatever an error does when it is pickled
        return None
    return base64.b64encode(written).decode()


def main() -> int:
    """Live one life. What the program prints goes to stderr, for stdout is the parent's."""
    if sys.stdin.isatty():
        print(__doc__, file=sys.stderr)
        return 2
    orders, reports = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    parent = ParentLink(orders, reports)
    live(parent, parent.first())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of the program's own end with it


if __name__ == "__main__":
    leave_to_the_parent()
    raise SystemExit(main())
