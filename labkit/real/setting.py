"""What a worker process is set up with, who decides what happens to it, and how it ends with an error."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from labkit.changes import Assumptions
from labkit.database import Synchronous
from labkit.errors import LabError
from labkit.exchange import Refusal
from labkit.programs import Program
from labkit.remote import Capabilities
from labkit.seams import Call, Delivery, Point

Fate = Delivery | Refusal
"""What becomes of a call: what the wire does with it, or what the remote says before it looks at it."""

Fates = Callable[[Call], Fate]
"""Decides that; every network does."""


class WorkerRaised(LabError):
    """A worker's program raised an error that cannot travel between processes. Fields: `type`, `text`."""

    def __init__(self, type: str, text: str) -> None:
        self.type, self.text = type, text
        super().__init__(f"{type}: {text}")


class Actor(Protocol):
    """Who decides what happens to a worker process."""

    @property
    def name(self) -> str:
        """Such as `worker-1`."""

    def cross(self, point: Point) -> None:
        """The worker has come to a crossing; `SimulatedCrash` kills it there."""

    def deliver(self, call: Call) -> Fate:
        """The worker is about to make a call: say what becomes of it."""

    def now(self) -> float:
        """The worker's own clock, in seconds."""

    def sleep(self, seconds: float) -> None:
        """The worker wants to wait: come back when so many seconds have passed."""


@dataclass(frozen=True)
class Setting:
    """Where a worker process works, and as what.

    Args:
        tasks: the file of the task store.
        task_id: the task.
        program: a policy's name, a file, a cell's source, or a function.
        remotes: by name its ledger's file, and what it can do.
        assumptions: as for the task store.
        lease_seconds: how long it holds the task.
        late_by_seconds: how much later than sent a late request is applied.
        synchronous: of all files.
    """

    tasks: Path
    task_id: str
    program: str | Path | Program
    remotes: Mapping[str, tuple[Path, Capabilities]]
    assumptions: Assumptions = field(default_factory=Assumptions)
    lease_seconds: float = 30.0
    late_by_seconds: float = 30.0
    synchronous: Synchronous = "FULL"


def error_of(said: Mapping[str, Any]) -> BaseException:
    """Return the error that a worker process reports."""
    if said["raised"] is None:
        return WorkerRaised(said["type"], said["text"])
    error = pickle.loads(base64.b64decode(said["raised"]))
    return error if isinstance(error, BaseException) else WorkerRaised(said["type"], said["text"])
