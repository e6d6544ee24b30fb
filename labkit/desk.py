"""The support desk as a folder: the task store and the ledgers of three remotes, each a file of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from labkit.agent import REMOTES, open_conversation, plan
from labkit.policies import Policy
from labkit.recorder import Recorder
from labkit.records import Task
from labkit.remote import Capabilities, RemoteService
from labkit.runs import Verdict, judge
from labkit.seams import Boundary, Call, Clock, Delivery, Network, Point, SystemClock, no_boundary, reliable
from labkit.store import TaskStore
from labkit.wire import Remote
from labkit.worker import Worker

TASK_ID = "task-1"


class Desk:
    """One worker's view of the support desk, in one folder.

    Args:
        folder: where the files lie or are created; it must exist.
        clock: seconds, for the store and the remotes.
        boundary: called after each durable write and each remote call.
        network: what the wire does with each remote call.
        remotes: the capabilities of each remote, by name.
        recorder: writes the three views down at every crossing.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        clock: Clock | None = None,
        boundary: Boundary = no_boundary,
        network: Network = reliable,
        remotes: Mapping[str, Capabilities] = REMOTES,
        recorder: Recorder | None = None,
    ) -> None:
        self.folder, self.clock = Path(folder), clock or SystemClock()
        self._boundary, self._network, self._recorder = boundary, network, recorder
        self._delivery = Delivery.DELIVERED
        self.store = TaskStore(self.folder / "tasks.sqlite", self.clock, self._cross)
        self.services = {
            name: RemoteService(self.folder / f"{name}.sqlite", name, capabilities, self.clock)
            for name, capabilities in remotes.items()
        }

    def queue(self, order: int = 1042, steps: int = 3) -> Task:
        """Queue `task-1`: refund an order and tell the customer, or the first `steps` of that."""
        task = self.store.enqueue(TASK_ID, plan(order)[:steps])
        open_conversation(self.store, TASK_ID, order)
        return task

    def worker(self, policy: Policy, name: str = "worker-1", lease_seconds: float = 30.0) -> Worker:
        """Return a worker of this desk; it writes a transcript where its policy goes by one."""
        remotes = {
            remote: Remote(service, network=self._deliver, boundary=self._cross)
            for remote, service in self.services.items()
        }
        worker = Worker(self.store, remotes, policy, name, lease_seconds)
        return replace(worker, talks=policy.name == "replay_transcript")

    def effects(self) -> dict[str, int]:
        """Count the effects of each operation over all ledgers."""
        return {name: count for service in self.services.values() for name, count in service.effects().items()}

    def verdict(self) -> Verdict:
        """Say what the task has come to, by the ledgers."""
        return judge(self.store.get(TASK_ID), self.effects())

    def start(self, name: str) -> None:
        """Cross the first boundary: a worker can die before it has done anything."""
        self._cross(Point("start", name, "nothing yet"))

    def _deliver(self, call: Call) -> Delivery:
        self._delivery = self._network(call)
        return self._delivery

    def _cross(self, point: Point) -> None:
        delivery, self._delivery = self._delivery, Delivery.DELIVERED
        if self._recorder is not None and point.action != "say":
            self._recorder.note(point, self.store.get(TASK_ID), self.effects(), self.clock.now(), delivery)
        self._boundary(point)

    def close(self) -> None:
        """Close every file."""
        self.store.close()
        for service in self.services.values():
            service.close()

    def __enter__(self) -> Desk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
