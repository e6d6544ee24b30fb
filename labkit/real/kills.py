"""Many real kills at random: a program is killed again and again, and the ledgers say what came of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from labkit.desk import TASK_ID, Desk
from labkit.errors import InvalidInput, SimulatedCrash
from labkit.person import answer_truthfully
from labkit.programs import Program
from labkit.real.clocks import ClockAhead
from labkit.real.drill import desk_in_a_folder, effects_at, setting_of
from labkit.real.programs import order_of
from labkit.real.setting import Fate, Fates
from labkit.real.stage import Stage
from labkit.real.tally import Found, Tally
from labkit.remote import KEY_REUSED
from labkit.runs import judge
from labkit.seams import Call, Delivery, Point, reliable
from labkit.states import ENDED_STATES, HELD_STATES, State

MOST_KILLS_A_RUN = 4
MOST_LIVES = 40
"""Lives of one run: a program that does not come to rest within so many is stuck."""

MOST_STEPS_TO_LIVE = 16
LONGEST_GRACE_SECONDS = 0.02
"""How long after an order a worker may be killed from outside: time enough to be in the middle of anything."""

LEASE_SECONDS = 30.0
TASKS = {TASK_ID: 1042, "task-2": 1043}
"""Carried one after the other over the same ledgers, each with the order that it is about."""


def kill_at_random(
    program: str | Path | Program,
    kills: int = 20,
    seed: int = 1,
    steps: int = 3,
    *,
    network: Fates = reliable,
    tell: Callable[[Found], None] = lambda found: None,
    began: Callable[[], None] = lambda: None,
    stage: Stage | None = None,
) -> Tally:
    """Carry task after task, and kill workers on the way: half of them at a crossing, half somewhere after one.

    Two tasks share their ledgers, so that a key which is not the operation's own is found out. A person answers
    truthfully, once nothing can be under way any more.

    Args:
        program: see `labkit.real.programs.order_of`.
        kills: how many, 1 or more.
        seed: of the draws. Where a kill from outside hits is up to the machine.
        steps: how many of the task's three operations to plan.
        network: what becomes of each call, as for a drill.
        tell: told of each run as it ends.
        began: told of each worker that has started, so that the program can be run.
        stage: processes that are there already; None: some of its own.

    Raises:
        InvalidInput: the program cannot be meant.
        ChildFailed: a worker or the service did not start, or gave no sign for too long.
    """
    if kills < 1:
        raise InvalidInput("kills: 1 or more", kills)
    order_of(program)  # what cannot be meant is said before anything is started
    draws, tally = random.Random(seed), Tally(())
    with ExitStack() as ends:
        stage = stage or ends.enter_context(Stage())
        for _ in range(kills * MOST_LIVES):
            if tally.kills >= kills:
                break
            with desk_in_a_folder(steps, ClockAhead()) as desk, closing_ledgers(stage):
                for task_id, order in TASKS.items():
                    if task_id != TASK_ID:
                        desk.queue(order, steps, task_id)
                    allowed = min(kills - tally.kills, MOST_KILLS_A_RUN)
                    found = _Run(desk, task_id, stage, network, draws, allowed, began).play(program)
                    tally = Tally((*tally.runs, found))
                    tell(found)
    return tally


@contextmanager
def closing_ledgers(stage: Stage) -> Iterator[None]:
    """Let the service close its ledgers in the end, before their folder is removed."""
    try:
        yield
    finally:
        stage.leave()


@dataclass
class _Run:
    """One task on its way through kills."""

    desk: Desk
    task_id: str
    stage: Stage
    network: Fates
    draws: random.Random
    kills: int
    began: Callable[[], None]
    killed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    refusals: int = 0
    asked: int = 0

    def play(self, program: str | Path | Program) -> Found:
        self.stage.open(setting_of(self.desk, program, LEASE_SECONDS, self.task_id), self.desk.clock)
        effects, answers = Counter(effects_at(self.desk)), self._answers()
        for number in range(1, MOST_LIVES + 1):
            self._wait()
            task = self.desk.store.get(self.task_id)
            if task.state is State.AWAITING_CONFIRMATION:
                self._answer()
            elif task.state in ENDED_STATES:
                break
            else:
                self._live(f"worker-{number}")
        self.stage.settle()
        self.desk.clock.sleep(self.desk.store.assumptions.longest_under_way_seconds)
        return self._found(Counter(effects_at(self.desk)) - effects, self._answers() - answers)

    def _found(self, effects: Counter[str], answers: Counter[str]) -> Found:
        """What the run came to; of the effects and the answers, those since it began."""
        verdict = judge(self.desk.store.get(self.task_id), effects)
        refusals = self.refusals + sum(answer.startswith("refused") for answer in answers.elements())
        confused = answers[f"refused: {KEY_REUSED.reason}"]
        return Found(tuple(self.killed), verdict, effects, tuple(self.errors), refusals, self.asked, confused)

    def deliver(self, call: Call) -> Fate:
        """Ask the network, and count what it refuses."""
        fate = self.network(call)
        self.refusals += fate is Delivery.REFUSED or not isinstance(fate, Delivery)
        return fate

    def _answers(self) -> Counter[str]:
        """What the remotes have said, and how often."""
        return Counter(answer for service in self.desk.services.values() for _, _, answer in service.requests())

    def _live(self, name: str) -> None:
        life = _Doomed(name, self, len(self.killed) < self.kills)
        try:
            ended = self.stage.live(life, life.fatal)
        except SimulatedCrash:
            self.killed.append(life.last)
        else:
            if isinstance(ended, BaseException):
                self.errors.append(f"{type(ended).__name__}: {ended}")

    def _wait(self) -> None:
        """Let the time pass until somebody can go on with the task."""
        task, now = self.desk.store.get(self.task_id), self.desk.clock.now()
        if task.state is State.QUEUED:
            self.desk.clock.sleep(task.next_run_at - now)
        if task.state in HELD_STATES and task.lease_expires_at is not None:
            self.desk.clock.sleep(task.lease_expires_at - now)

    def _answer(self) -> None:
        """What a truthful, patient person does, once nothing is on a socket any more."""
        self.stage.settle()
        self.asked += 1
        store, desk = self.desk.store, self.desk
        answer_truthfully(store, store.get(self.task_id), desk.clock, lambda one: effects_at(desk).get(one.id, 0) > 0)


class _Doomed:
    """A worker that is killed after a drawn number of steps, if it lives that long.

    Args:
        name: its own.
        run: where it works.
        mortal: False: it lives.
    """

    def __init__(self, name: str, run: _Run, mortal: bool) -> None:
        self.name, self.last = name, ""
        self._run, self._draws = run, run.draws
        self._left = self._draws.randrange(1, MOST_STEPS_TO_LIVE) if mortal else -1
        self._from_outside = self._draws.random() < 0.5

    def cross(self, point: Point) -> None:
        """One step more; die here, if this is the one."""
        if point.action == "start":
            self._run.began()
        self._step(f"after {point.name}")
        if self._left == 0 and not self._from_outside:
            raise SimulatedCrash(f"{self.name} dies {self.last}")

    def deliver(self, call: Call) -> Fate:
        """One step more."""
        self._step(f"during {call.action} {call.operation_id}")
        return self._run.deliver(call)

    def now(self) -> float:
        """The drill's clock."""
        return self._run.desk.clock.now()

    def sleep(self, seconds: float) -> None:
        """Let the time pass."""
        self._run.desk.clock.sleep(seconds)

    def fatal(self) -> float | None:
        """In how many seconds it is killed from outside, if it is now."""
        if self._left == 0:
            self._left, self.last = -1, self.last.replace("after", "soon after", 1)
            return self._draws.uniform(0.0, LONGEST_GRACE_SECONDS)
        return None

    def _step(self, last: str) -> None:
        if self._left > 0:
            self._left, self.last = self._left - 1, last
