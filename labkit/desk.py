"""The support desk as a folder: the task store and the ledgers of three remotes, each a file of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from labkit.agent import REMOTES, open_conversation, plan
from labkit.database import Synchronous
from labkit.errors import InvalidInput
from labkit.policies import Policy
from labkit.recorder import Recorder
from labkit.records import Task
from labkit.remote import Capabilities, RemoteService
from labkit.runs import Verdict, effects_of, judge
from labkit.seams import Boundary, Call, Clock, Delivery, Network, Point, SystemClock, no_boundary, reliable
from labkit.store import TaskStore
from labkit.wire import Remote
from labkit.worker import Worker

TASK_ID = "task-1"
TASKS_FILE = "tasks.sqlite"


class Desk:
    """One worker's view of the support desk, in one folder.

    Args:
        folder: where the files lie or are created; it must exist.
        clock: seconds, for the store and the remotes.
        boundary: called after each durable write and each remote call.
        network: what the wire does with each remote call.
        remotes: the capabilities of each remote, by name.
        recorder: writes the three views down at every crossing.
        synchronous: as for the task store, and for the ledgers too.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        clock: Clock | None = None,
        boundary: Boundary = no_boundary,
        network: Network = reliable,
        remotes: Mapping[str, Capabilities] = REMOTES,
        recorder: Recorder | None = None,
        synchronous: Synchronous = "FULL",
    ) -> None:
        self.folder, self.clock = Path(folder), clock or SystemClock()
        self._boundary, self._network, self._recorder = boundary, network, recorder
        self._delivery = Delivery.DELIVERED
        self.services: dict[str, RemoteService] = {}
        with ExitStack() as files:
            store = TaskStore(self.folder / TASKS_FILE, self.clock, self._cross, synchronous=synchronous)
            self.store = files.enter_context(store)
            for name, capabilities in remotes.items():
                file = self.folder / f"{name}.sqlite"
                service = RemoteService(file, name, capabilities, self.clock, synchronous=synchronous)
                self.services[name] = files.enter_context(service)
            self._files = files.pop_all()

    def queue(self, order: int = 1042, steps: int = 3, task_id: str = TASK_ID) -> Task:
        """Queue a task: refund an order and tell the customer, or the first `steps` of that."""
        planned = plan(order)
        if steps not in range(1, len(planned) + 1):
            raise InvalidInput(f"steps: 1 to {len(planned)}", steps)
        task = self.store.enqueue(task_id, planned[:steps])
        open_conversation(self.store, task_id, order)
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
        """Count the effects of each operation of the task over all ledgers."""
        counts = effects_of(service.effects() for service in self.services.values())
        return {name: count for name, count in sorted(counts.items()) if name.startswith(f"{TASK_ID}/")}

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
        self._files.close()

    def __enter__(self) -> Desk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
