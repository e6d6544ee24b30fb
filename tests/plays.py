"""Plays one task after another through crashes, on real files and a manual clock; used by the tests beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from labkit.agent import plan
from labkit.deciding import Answer
from labkit.errors import SimulatedCrash
from labkit.exchange import Refusal, Request
from labkit.policies import Policy
from labkit.records import PlannedOperation, Task
from labkit.remote import Capabilities, Gate, RemoteService
from labkit.retries import Budget
from labkit.runs import Verdict, judge
from labkit.seams import Boundary, Call, Delivery, ManualClock, Network, Point, reliable
from labkit.states import ENDED_STATES, HELD_STATES, State
from labkit.store import TaskStore
from labkit.wire import Remote
from labkit.worker import Worker

THREE = tuple(plan())
ONE = THREE[:1]
REMOTES = ("payments", "tickets", "mail")
LATE_BY_SECONDS = 45.0
"""Later than a lease lasts: a query at the take-over comes before the late request arrives."""


@dataclass(frozen=True)
class Played:
    """What one play came to: its verdict, the points each life crossed, and whether a person was asked."""

    task: Task
    effects: Mapping[str, int]
    verdict: Verdict
    lives: tuple[tuple[str, ...], ...]
    asked: int


@dataclass
class Stage:
    """A store and three remotes of the same capabilities; every play on it has a task id of its own."""

    folder: Path
    can: Capabilities
    late_by_seconds: float = LATE_BY_SECONDS
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.boundary: Boundary = lambda point: None
        self.network: Network = reliable
        self.gate: Gate = lambda request: None
        self.numbers = 0
        self.store = TaskStore(self.folder / "tasks.sqlite", self.clock, self.cross, synchronous="OFF")
        self.services = {
            name: RemoteService(
                self.folder / f"{name}.sqlite", name, self.can, self.clock, self.look, self.late_by_seconds, "OFF"
            )
            for name in REMOTES
        }
        self.remotes = {
            name: Remote(service, network=lambda call: self.network(call), boundary=self.cross)
            for name, service in self.services.items()
        }

    def cross(self, point: Point) -> None:
        self.boundary(point)

    def look(self, request: Request) -> Refusal | None:
        return self.gate(request)

    def close(self) -> None:
        self.store.close()
        for service in self.services.values():
            service.close()

    def worker(self, policy: Policy, name: str = "worker-1", **options: object) -> Worker:
        talks = policy.name == "replay_transcript"
        return replace(Worker(self.store, self.remotes, policy, name, talks=talks), **options)  # type: ignore[arg-type]

    def effects(self, task_id: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for service in self.services.values():
            found |= {one: count for one, count in service.effects().items() if one.startswith(f"{task_id}/")}
        return found

    def enqueue(self, operations: Sequence[PlannedOperation] = ONE, budget: Budget | None = None) -> Task:
        self.numbers += 1
        return self.store.enqueue(f"task-{self.numbers}", operations, budget=budget)

    def play(
        self,
        policy: Policy,
        operations: Sequence[PlannedOperation] = ONE,
        crashes: Sequence[int | str] = (),
        network: Network = reliable,
        person: bool = False,
        budget: Budget | None = None,
        prepare: Callable[[str], None] = lambda task_id: None,
        worker: Mapping[str, object] | None = None,
    ) -> Played:
        """Queue a task and let one worker live after the other until it is at rest.

        Args:
            crashes: for each life the crossing at which it ends: its number, from 1, or its name without the task id.
            network: of the whole play.
            person: whether somebody answers truthfully, once nothing can be under way any more.
            prepare: called with the task id before the first life.
        """
        task = self.enqueue(operations, budget)
        prepare(task.id)
        self.network = network
        return self.carry_to_rest(task.id, policy, crashes, person, worker)

    def carry_to_rest(
        self,
        task_id: str,
        policy: Policy,
        crashes: Sequence[int | str] = (),
        person: bool = False,
        worker: Mapping[str, object] | None = None,
    ) -> Played:
        lives: list[tuple[str, ...]] = []
        asked = 0
        for _ in range(50):
            task = self.store.get(task_id)
            if task.state in ENDED_STATES:
                break
            if task.state is State.AWAITING_CONFIRMATION:
                asked += 1
                if not person:
                    break
                self.answer(task)
                continue
            due = task.lease_expires_at if task.state in HELD_STATES else task.next_run_at
            assert due is not None
            self.clock.advance(due - self.clock.now())
            crash = crashes[len(lives)] if len(lives) < len(crashes) else None
            one = self.worker(policy, f"worker-{len(lives) + 1}", **(worker or {}))
            lives.append(self.live(one, task_id, crash))
        self.boundary = lambda point: None
        self.clock.advance(self.late_by_seconds)  # whatever is under way arrives, at its own time
        task, effects = self.store.get(task_id), self.effects(task_id)
        return Played(task, effects, judge(task, effects), tuple(lives), asked)

    def live(self, worker: Worker, task_id: str, crash: int | str | None) -> tuple[str, ...]:
        crossed: list[str] = []

        def boundary(point: Point) -> None:
            crossed.append(point.name.replace(f"{task_id}/", "").replace(f" {task_id}", ""))
            if crash in (len(crossed), crossed[-1]):
                raise SimulatedCrash(point.name)

        self.boundary = boundary
        with suppress(SimulatedCrash):
            worker.run(task_id)
        return tuple(crossed)

    def answer(self, task: Task) -> None:
        """Say the truth about the doubt, once nothing can be under way, by looking into the remote's books."""
        assert task.in_doubt is not None
        self.boundary = lambda point: None
        last = max(attempt.sent_at for attempt in task.in_doubt.attempts)
        over = last + self.store.assumptions.longest_under_way_seconds
        self.clock.advance(over - self.clock.now())
        applied = self.effects(task.id).get(task.in_doubt.id, 0) > 0
        self.store.answer(task, Answer.APPLIED if applied else Answer.NOT_APPLIED, "Ada")


def attempts(delivery: Delivery, up_to: int = 1, operation: str = "") -> Network:
    """Treat the first attempts of each operation, or of one, like this; deliver every later one."""

    def network(call: Call) -> Delivery:
        operation_id, _, number = call.request_id.rpartition("#")
        faulty = call.action == "send" and operation_id.endswith(operation) and int(number) <= up_to
        return delivery if faulty else Delivery.DELIVERED

    return network


def every_crash(play: Callable[[Sequence[int]], Played], deaths: int, so_far: tuple[int, ...] = ()) -> Iterator[Played]:
    """Play, then once more for each crossing of the last life, with a death there; and so on, up to so many deaths."""
    played = play(so_far)
    yield played
    if deaths and len(played.lives) > len(so_far):
        for crossing in range(1, len(played.lives[len(so_far)]) + 1):
            yield from every_crash(play, deaths - 1, (*so_far, crossing))
