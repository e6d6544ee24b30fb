"""A drill: start a service and a worker process, let the worker be killed, start the next one, until the task rests.

Before it is judged every late request has arrived, and a worker has looked at the task once more without any fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from labkit.desk import TASK_ID, TASKS_FILE, Desk
from labkit.errors import ChangeRefused, InvalidInput, LabError, SimulatedCrash
from labkit.policies import POLICIES
from labkit.programs import Program, label_of
from labkit.real.children import ChildFailed
from labkit.real.clocks import ShiftedClock
from labkit.real.setting import Fate, Fates, Setting
from labkit.real.stage import LIFE_SECONDS, Stage
from labkit.recorder import Recorder, read_moments, with_faults
from labkit.runs import Run, effects_of, judge
from labkit.scratch import Scratch
from labkit.seams import Call, Clock, Delivery, Point, reliable
from labkit.states import HELD_STATES, State

LEASE_SECONDS = 0.5
MOST_LIVES = 100
MOMENTS_FILE = "moments.jsonl"
SEND_REFUND = f"send {TASK_ID}/refund"
CAN_GO_ON = HELD_STATES | {State.QUEUED}
"""In these a worker finds something to do, now or once a lease has run out."""


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
    clock = ShiftedClock()
    with ExitStack() as ends:
        desk = ends.enter_context(desk_in_a_folder(steps, clock))
        stage = stage or ends.enter_context(Stage())
        ends.callback(stage.leave)
        stage.open(setting_of(desk, policy, lease_seconds), clock)
        play = _Play(desk, clock, stage, network, life_seconds, tell)
        play.until_it_rests(crashes, pause_at)
        play.recover_quietly()
        return play.run(f"{label_of(policy)}, {_faults(crashes, pause_at)}")


@contextmanager
def desk_in_a_folder(steps: int, clock: Clock | None = None) -> Iterator[Desk]:
    """Yield a desk with a queued task in a temporary folder, which is removed in the end."""
    with Scratch() as folder, Desk(folder, clock) as desk:
        desk.queue(steps=steps)
        yield desk


def effects_at(desk: Desk) -> dict[str, int]:
    """Count the effects of each operation over all ledgers. Nobody else is there: whatever they show is the task's."""
    return dict(sorted(effects_of(one.effects() for one in desk.services.values()).items()))


def setting_of(desk: Desk, program: str | Path | Program, lease_seconds: float, task_id: str = TASK_ID) -> Setting:
    """Return the setting of a worker process at a desk."""
    ledgers = {name: (desk.folder / f"{name}.sqlite", one.capabilities) for name, one in desk.services.items()}
    return Setting(desk.folder / TASKS_FILE, task_id, program, ledgers, lease_seconds=lease_seconds)


def _faults(crashes: Sequence[str], pause_at: str | None) -> str:
    told = [f"killed after: {', '.join(crashes)}"] if crashes else []
    told += [] if pause_at is None else [f"paused after: {pause_at}"]
    return "; ".join(told) or "not killed"


@dataclass
class _Play:
    """One drill in play."""

    desk: Desk
    clock: ShiftedClock
    stage: Stage
    network: Fates
    life_seconds: float
    tell: Callable[[str], None]
    crashed: set[int] = field(default_factory=set)
    paused: set[int] = field(default_factory=set)
    lives: int = 0
    quiet: bool = False
    """Nothing goes wrong any more."""

    def until_it_rests(self, crashes: Sequence[str], pause_at: str | None) -> None:
        """Start worker after worker: those that are killed, the one that is not, and one for each later retry."""
        for crash in crashes:
            self.live(crash, None)
        self.live(None, pause_at)
        while self.lives < MOST_LIVES and self.waits_for_a_retry():
            self.live(None, None)

    def recover_quietly(self) -> None:
        """Let late requests arrive. If any did, or the task can be gone on with, a worker looks at it once more."""
        self.stage.settle()
        arrived = self.let_late_requests_arrive()
        if not arrived and self.desk.store.get(TASK_ID).state not in CAN_GO_ON:
            return
        self.quiet, self.network = True, reliable
        self.clock.skip(self.seconds_of_lease())  # nobody is alive who could notice
        self.until_it_rests([], None)
        self.stage.settle()

    def let_late_requests_arrive(self) -> int:
        """Move the clock on to the last of them, and tell how many there were."""
        arrivals = [at for service in self.desk.services.values() for at in service.arrivals()]
        if arrivals:
            self.clock.skip(max(arrivals) - self.clock.now())
            effects_at(self.desk)  # a look at a ledger lets in what is due
            self.tell(f"what was late arrives: {len(arrivals)} request{'s' * (len(arrivals) > 1)}")
        return len(arrivals)

    def run(self, title: str) -> Run:
        """What there was to see, and what the task has come to."""
        moments = with_faults(read_moments(self.desk.folder / MOMENTS_FILE), self.crashed, "crash")
        moments = with_faults(moments, self.paused, "pause")
        task, effects = self.desk.store.get(TASK_ID), effects_at(self.desk)
        return Run(title, moments, task, tuple(effects.items()), judge(task, effects))

    def live(self, crash_at: str | None, pause_at: str | None) -> None:
        """Lead the next worker to the end that is asked for.

        Raises:
            DrillFailed: it ended in another way, or not in time.
            ChildFailed: the service has ended.
        """
        self.lives += 1
        name = f"worker-{self.lives}"
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
        turned_away = life.slept or (self.quiet and isinstance(ended, ChangeRefused))
        if isinstance(ended, BaseException) and not turned_away:
            raise DrillFailed(name, crash_at, 1, f"{type(ended).__name__}: {ended}")
        if crash_at is not None:
            raise DrillFailed(name, crash_at, 0, str(ended))
        if isinstance(ended, BaseException):
            self.tell(f"{name} {'wakes, and ' * life.slept}is turned away: {type(ended).__name__}")
        else:
            what = "looks at the task once more" if self.quiet else "carries the task as far as it goes"
            self.tell(f"{name} {what}: {ended}")
        return None

    def moments(self) -> int:
        """How many moments are on record."""
        return len(read_moments(self.desk.folder / MOMENTS_FILE))

    def wait_for_lease(self) -> None:
        """Nobody may take a task over before its lease has run out, whatever has become of its holder."""
        self.clock.sleep(self.seconds_of_lease())

    def seconds_of_lease(self) -> float:
        """How long the task is still held; 0 or less where it is not."""
        task = self.desk.store.get(TASK_ID)
        if task.state not in HELD_STATES or task.lease_expires_at is None:
            return 0.0
        return task.lease_expires_at - self.clock.now()

    def waits_for_a_retry(self) -> bool:
        """Whether the task is to be tried again later; then, wait until it is due."""
        task = self.desk.store.get(TASK_ID)
        seconds = task.next_run_at - self.clock.now()
        if task.state is not State.QUEUED or seconds <= 0:
            return False
        self.clock.sleep(seconds)
        return True

    def sleep_through(self, name: str, point: str) -> None:
        """Let a worker sleep until its lease has run out and the next worker has carried on."""
        self.stage.pause(name)
        self.paused.add(self.moments())
        self.tell(f"{name} falls asleep after: {point}")
        self.wait_for_lease()
        self.live(None, None)


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
            recorder.note(point, desk.store.get(TASK_ID), effects_at(desk), desk.clock.now(), delivery)
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
