"""A drill: start a service and a worker process, let the worker be killed, start the next one, until the task rests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from labkit.desk import TASK_ID, TASKS_FILE, Desk
from labkit.errors import InvalidInput, LabError, SimulatedCrash
from labkit.policies import POLICIES
from labkit.real.children import ChildFailed
from labkit.real.programs import Program, label_of
from labkit.real.setting import Fate, Fates, Setting
from labkit.real.stage import LIFE_SECONDS, Stage
from labkit.recorder import Recorder, read_moments, with_faults
from labkit.runs import Run
from labkit.scratch import Scratch
from labkit.seams import Call, Clock, Delivery, Point, reliable
from labkit.states import HELD_STATES, State

LEASE_SECONDS = 0.5
MOST_LIVES = 100
MOMENTS_FILE = "moments.jsonl"
SEND_REFUND = f"send {TASK_ID}/refund"


class DrillFailed(LabError):
    """A worker process ended in a way that the drill did not ask for.

    Fields: `worker`; `crash_at`, None where it was to live; `exit_code`, None where it had to be ended; `said`.
    """

    def __init__(self, worker: str, crash_at: str | None, exit_code: int | None, said: str) -> None:
        self.worker, self.crash_at, self.exit_code, self.said = worker, crash_at, exit_code, said.strip()
        asked = "was to end by itself" if crash_at is None else f"was to be killed after {crash_at!r}"
        ends = {None: "was still running and had to be ended", 0: "never came past that point: it ended"}
        found = ends.get(exit_code, f"ended with exit code {exit_code}")
        super().__init__(f"{worker} {asked}, but {found}; it said: {self.said or 'nothing'}")


def drill(
    policy: str | Path | Program,
    crash_at: str | Sequence[str] = SEND_REFUND,
    steps: int = 3,
    tell: Callable[[str], None] = lambda line: None,
    *,
    pause_at: str | None = None,
    network: Fates = reliable,
    lease_seconds: float = LEASE_SECONDS,
    life_seconds: float = LIFE_SECONDS,
    stage: Stage | None = None,
) -> Run:
    """Play one task with real processes on real files in a temporary folder, and remove the folder.

    Args:
        policy: the name of the recovery policy; or a file or a function of one's own, see `labkit.real.programs`.
        crash_at: where the first worker is killed; or a list, one point for each life of a worker.
        steps: how many of the task's three operations to plan.
        tell: told in a line what happens, as it happens.
        pause_at: where the worker that would come to the end is put to sleep; it wakes once its lease has run out and
            another one has carried on.
        network: what becomes of each remote call: what the wire does with it, or a refusal that the remote hands out.
        lease_seconds: how long a worker of the lab holds the task; the next one starts when that has run out.
        life_seconds: how long a worker process may take.
        stage: processes that are there already; None: some of its own.

    Returns:
        The run: its moments, the task as it ended, the effects in the ledgers, and the verdict.

    Raises:
        InvalidInput: the policy or the number of steps cannot be meant.
        DrillFailed: a worker did not start, survived its crash point, or did not end in time.
        ChildFailed: the service did not start, or has ended.
    """
    if isinstance(policy, str) and "\n" not in policy and policy not in POLICIES:
        raise InvalidInput(f"one of {', '.join(POLICIES)}", policy)
    crashes = [crash_at] if isinstance(crash_at, str) else list(crash_at)
    with ExitStack() as ends:
        desk = ends.enter_context(desk_in_a_folder(steps))
        stage = stage or ends.enter_context(Stage())
        ends.callback(stage.leave)
        stage.open(setting_of(desk, policy, lease_seconds), desk.clock)
        play = _Play(desk, stage, network, life_seconds, tell)
        for life, crash in enumerate(crashes, start=1):
            play.live(f"worker-{life}", crash, None)
        play.live(f"worker-{len(crashes) + 1}", None, pause_at)
        for life in range(len(crashes) + 2, MOST_LIVES):
            if not play.waits_for_a_retry():
                break
            play.live(f"worker-{life}", None, None)
        stage.settle()
        moments = with_faults(read_moments(desk.folder / MOMENTS_FILE), play.crashed, "crash")
        moments = with_faults(moments, play.paused, "pause")
        title = f"{label_of(policy)}, {_faults(crashes, pause_at)}"
        return Run(title, moments, desk.store.get(TASK_ID), tuple(desk.effects().items()), desk.verdict())


@contextmanager
def desk_in_a_folder(steps: int, clock: Clock | None = None) -> Iterator[Desk]:
    """Yield a desk with a queued task in a temporary folder, which is removed in the end."""
    with Scratch() as folder, Desk(folder, clock) as desk:
        desk.queue(steps=steps)
        yield desk


def setting_of(desk: Desk, program: str | Path | Program, lease_seconds: float) -> Setting:
    """Return the setting of a worker process at a desk."""
    ledgers = {name: (desk.folder / f"{name}.sqlite", one.capabilities) for name, one in desk.services.items()}
    return Setting(desk.folder / TASKS_FILE, TASK_ID, program, ledgers, lease_seconds=lease_seconds)


def _faults(crashes: Sequence[str], pause_at: str | None) -> str:
    told = [f"killed after: {', '.join(crashes)}"] if crashes else []
    told += [] if pause_at is None else [f"paused after: {pause_at}"]
    return "; ".join(told) or "not killed"


@dataclass
class _Play:
    """One drill in play."""

    desk: Desk
    stage: Stage
    network: Fates
    life_seconds: float
    tell: Callable[[str], None]
    crashed: set[int] = field(default_factory=set)
    paused: set[int] = field(default_factory=set)

    def live(self, name: str, crash_at: str | None, pause_at: str | None) -> None:
        """Lead one worker to the end that is asked for.

        Raises:
            DrillFailed: it ended in another way, or not in time.
            ChildFailed: the service has ended.
        """
        life = _Life(self, name, crash_at, pause_at, time.monotonic() + self.life_seconds)
        try:
            ended = self.stage.live(life, seconds=self.life_seconds)
        except SimulatedCrash:
            self.crashed.add(self.moments())
            self.tell(f"{name} is killed after: {crash_at}")
            return self.wait_for_lease()
        except ChildFailed as failed:
            if failed.name != name:
                raise  # the service, and none of the worker's doing
            raise DrillFailed(name, crash_at, failed.exit_code, failed.said) from None
        if isinstance(ended, BaseException) and not life.slept:
            raise DrillFailed(name, crash_at, 1, f"{type(ended).__name__}: {ended}")
        if crash_at is not None:
            raise DrillFailed(name, crash_at, 0, str(ended))
        if isinstance(ended, BaseException):
            self.tell(f"{name} wakes, and is turned away: {type(ended).__name__}")
        else:
            self.tell(f"{name} carries the task as far as it goes: {ended}")
        return None

    def moments(self) -> int:
        """How many moments are on record."""
        return len(read_moments(self.desk.folder / MOMENTS_FILE))

    def wait_for_lease(self) -> None:
        """Nobody may take a task over before its lease has run out, whatever has become of its holder."""
        task = self.desk.store.get(TASK_ID)
        if task.state in HELD_STATES and task.lease_expires_at is not None:
            self.desk.clock.sleep(task.lease_expires_at - self.desk.clock.now())

    def waits_for_a_retry(self) -> bool:
        """Whether the task is to be tried again later; then, wait until it is due."""
        task = self.desk.store.get(TASK_ID)
        seconds = task.next_run_at - self.desk.clock.now()
        if task.state is not State.QUEUED or seconds <= 0:
            return False
        self.desk.clock.sleep(seconds)
        return True

    def sleep_through(self, name: str, point: str) -> None:
        """Let a worker sleep until its lease has run out and the next worker has carried on."""
        self.stage.pause(name)
        self.paused.add(self.moments())
        self.tell(f"{name} falls asleep after: {point}")
        self.wait_for_lease()
        self.live(f"worker-{int(name.removeprefix('worker-')) + 1}", None, None)


@dataclass
class _Life:
    """A worker of a drill, and where it is to die or to fall asleep."""

    play: _Play
    name: str
    crash_at: str | None
    pause_at: str | None
    until: float
    slept: bool = False
    delivery: Delivery = Delivery.DELIVERED

    def cross(self, point: Point) -> None:
        """Write the moment down; die or sleep where that is asked for."""
        play, desk = self.play, self.play.desk
        delivery, self.delivery = self.delivery, Delivery.DELIVERED
        if time.monotonic() > self.until:
            raise ChildFailed(self.name, None, "", f"was still running after {play.life_seconds:g} s")
        if point.action != "say":
            recorder = Recorder(desk.folder / MOMENTS_FILE, self.name, timed=False)
            recorder.note(point, desk.store.get(TASK_ID), desk.effects(), desk.clock.now(), delivery)
        if point.name == self.crash_at:
            raise SimulatedCrash(f"{self.name} dies after: {point.name}")
        if point.name == self.pause_at and not self.slept:
            self.slept = True
            play.sleep_through(self.name, point.name)

    def deliver(self, call: Call) -> Fate:
        """Let the drill's network decide."""
        fate = self.play.network(call)
        self.delivery = fate if isinstance(fate, Delivery) else Delivery.DELIVERED
        return fate

    def now(self) -> float:
        """The drill's clock."""
        return self.play.desk.clock.now()

    def sleep(self, seconds: float) -> None:
        """Wait by the drill's clock."""
        self.play.desk.clock.sleep(seconds)
