"""The scheduler: workers are greenlets, and at every crossing it is decided who goes on and what goes wrong.

The quiet run goes on with the running worker; when that ends or blocks, with the lowest ready one; when all are idle,
the clock jumps to the next due time. A dead worker's handles are dead: whatever its `finally` and `except` do, they
change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any, NoReturn

from greenlet import getcurrent, greenlet

from labkit.errors import SimulatedCrash
from labkit.explore.choices import ARRIVE, CANCEL, CRASH, GO_ON, PAUSE, SWITCH, Choices, ScheduleMismatch, is_switch
from labkit.seams import Call, Delivery, ManualClock, Point

MAX_CROSSINGS = 2_000
FAULTS_OF_THE_WIRE = (Delivery.REFUSED, Delivery.REQUEST_LOST, Delivery.RESPONSE_LOST, Delivery.LATE)


class RunTooLong(Exception):
    """A run crossed more often than a run may: a loop in the program that no budget bounds."""


class Status(Enum):
    """Where a worker stands."""

    READY = auto()
    BLOCKED = auto()
    """Waits for a lock that another holds."""
    SLEEPING = auto()
    """Waits for a time."""
    PAUSED = auto()
    """Asleep without knowing it, until its lease has run out and all others are idle."""
    ENDED = auto()
    DEAD = auto()


class Life:
    """One worker from its start to its end or death.

    Args:
        name: such as `worker-1`.
        program: what it runs; its only argument is this life.
    """

    def __init__(self, name: str, program: Callable[[Life], Any], hub: Scheduler) -> None:
        self.name = name
        self.status = Status.READY
        self.wakes_at = 0.0
        self.result: Any = None
        self.error: BaseException | None = None
        self.hub = hub
        self._program = program
        self._greenlet = greenlet(self._live, hub.greenlet)

    @property
    def alive(self) -> bool:
        """Whether its handles still work."""
        return self.status is not Status.DEAD

    def _live(self, *_: Any) -> None:
        try:
            self.result = self._program(self)
        except SimulatedCrash:
            pass
        except (Exception, SystemExit) as error:
            self.error = error
        if self.alive:
            self.status = Status.ENDED

    def resume(self) -> None:
        """Let it go on until it hands over."""
        self._greenlet.switch()

    def hand_over(self) -> None:
        """Called in the worker: give control to the scheduler; a worker that died meanwhile goes no further."""
        self.check_alive()
        self.hub.greenlet.switch()
        self.check_alive()

    @property
    def ended(self) -> bool:
        """Whether it came to its end and returned something."""
        return self.status is Status.ENDED and self.error is None

    def check_alive(self) -> None:
        """Raise `SimulatedCrash` in a dead worker."""
        if not self.alive:
            raise SimulatedCrash(f"{self.name} is dead")

    def die(self) -> None:
        """End it on the spot: its handles go dead first, then its code unwinds against them."""
        self.status = Status.DEAD
        if self._greenlet:
            self._greenlet.throw(SimulatedCrash(f"{self.name} dies"))

    def drop(self) -> None:
        """Unwind what is left of it after a run, without letting it change anything."""
        if self._greenlet:
            self.die()

    def cross(self, point: Point) -> None:
        """The boundary of its store and remotes: hand over at a crossing."""
        self.check_alive()
        self.hub.at_crossing(self, point)

    def deliver(self, call: Call) -> Delivery:
        """The network of its remotes: let the scheduler choose what the wire does."""
        self.check_alive()
        return self.hub.at_call(self, call)

    def wait_until(self, time: float) -> None:
        """Sleep by the run's clock."""
        self.status, self.wakes_at = Status.SLEEPING, time
        self.hand_over()

    def block(self) -> None:
        """Wait until another worker has moved."""
        self.status = Status.BLOCKED
        self.hand_over()


class WorldEvents:
    """What the scheduler asks of a world, and tells it; this one has no remotes, leases or people."""

    def crossed(self, life: Life, point: Point) -> None:
        """A worker has come to a crossing."""

    def crashed(self, life: Life) -> None:
        """A worker dies now."""

    def deadlock(self, blocked: list[Life]) -> None:
        """Everybody waits for somebody: what a busy time-out ends in the real world."""
        raise RunTooLong("all workers wait for each other")

    def can_pause(self, life: Life) -> bool:
        """Whether a pause of this worker now can outlast a lease."""
        return False

    def pause_ends_at(self) -> float:
        """When a worker that falls asleep now wakes: when its lease has run out."""
        return 0.0

    def can_cancel(self) -> bool:
        """Whether a cancel can be requested now."""
        return False

    def cancel(self) -> None:
        """Somebody requests a cancel."""

    def can_arrive(self) -> bool:
        """Whether a late request is under way."""
        return False

    def arrive(self) -> None:
        """Every late request arrives."""


class Scheduler:
    """Runs workers by a list of choices.

    Args:
        choices: makes the choices.
        allowed: the kinds of surprise that may happen.
        clock: the run's clock; it moves only when all are idle.
        world: what a surprise does to the world; see `WorldEvents`.
    """

    def __init__(self, choices: Choices, allowed: frozenset[str], clock: ManualClock, world: WorldEvents) -> None:
        self.choices, self.allowed, self.clock, self.world = choices, allowed, clock, world
        self.lives: list[Life] = []
        self.greenlet = getcurrent()
        self.counts = dict.fromkeys(("crash", "pause", "switch", "cancel", *FAULTS_OF_THE_WIRE), 0)
        self._crossings = 0
        self._timed_out: set[str] = set()
        self._aborted: Exception | None = None
        self._next: Life | None = None
        self._wire = tuple(delivery for delivery in FAULTS_OF_THE_WIRE if delivery in allowed)

    def start(self, program: Callable[[Life], Any]) -> Life:
        """Add a worker that is ready to run."""
        life = Life(f"worker-{len(self.lives) + 1}", program, self)
        self.lives.append(life)
        return life

    def run(self) -> None:
        """Run until no worker is ready or blocked."""
        current: Life | None = None
        while True:
            current = self._next or current
            self._next = None
            if current is None or current.status is not Status.READY:
                current = self._lowest_ready()
            if current is None:
                return
            current.resume()
            if self._aborted is not None:
                raise self._aborted
            if current.status is not Status.BLOCKED:
                self._unblock(current)

    def wake(self, statuses: Iterable[Status], until: float) -> bool:
        """Make those ready whose time has come by `until`; tells whether there were any."""
        woken = [life for life in self.lives if life.status in statuses and life.wakes_at <= until]
        for life in woken:
            life.status = Status.READY
        return bool(woken)

    def time_out(self, life: Life) -> None:
        """Let a blocked worker's busy time-out run out: it goes on, and its statement fails."""
        self._timed_out.add(life.name)
        life.status = Status.READY

    def waited_out(self, life: Life) -> bool:
        """Whether this worker's busy time-out has just run out."""
        if life.name in self._timed_out:
            self._timed_out.remove(life.name)
            return True
        return False

    def close(self) -> None:
        """Unwind every worker that is still in the middle of something."""
        for life in self.lives:
            life.drop()

    def _lowest_ready(self) -> Life | None:
        ready = next((life for life in self.lives if life.status is Status.READY), None)
        if ready is None and any(life.status is Status.BLOCKED for life in self.lives):
            self.world.deadlock([life for life in self.lives if life.status is Status.BLOCKED])
            return self._lowest_ready()
        return ready

    def _unblock(self, mover: Life) -> None:
        for life in self.lives:
            if life is not mover and life.status is Status.BLOCKED:
                life.status = Status.READY

    def at_crossing(self, life: Life, point: Point) -> None:
        """Choose what happens in the gap after `point`."""
        self._crossings += 1
        if self._crossings > MAX_CROSSINGS:
            self._abort(life, RunTooLong(f"more than {MAX_CROSSINGS} crossings, the last one at {point.name}"))
        self.world.crossed(life, point)
        chosen = self._choose(life, point.name, self._options(life))
        if chosen == GO_ON:
            return
        if chosen == CRASH:
            self.counts["crash"] += 1
            self.world.crashed(life)
            life.status = Status.DEAD
            raise SimulatedCrash(f"{life.name} dies after: {point.name}")
        if chosen == PAUSE:
            self.counts["pause"] += 1
            life.status, life.wakes_at = Status.PAUSED, self.world.pause_ends_at()
        elif chosen == CANCEL:
            self.counts["cancel"] += 1
            self.world.cancel()
            return
        elif chosen == ARRIVE:
            self.world.arrive()
            return
        elif is_switch(chosen):
            self.counts["switch"] += 1
            self._next = next(other for other in self.lives if other.name == chosen.removeprefix(SWITCH))
            self._next.status = Status.READY
        life.hand_over()

    def at_call(self, life: Life, call: Call) -> Delivery:
        """Choose what the wire does with a call."""
        options = ("delivered", *self._wire) if call.action == "send" else ("delivered", *self._query_faults())
        chosen = Delivery(self._choose(life, f"wire: {call.action} {call.operation_id}", options))
        if chosen is not Delivery.DELIVERED:
            self.counts[chosen] += 1
        return chosen

    def _choose(self, life: Life, point: str, options: tuple[str, ...]) -> str:
        try:
            return self.choices.choose(life.name, point, options)
        except ScheduleMismatch as mismatch:
            self._abort(life, mismatch)

    def _abort(self, life: Life, error: Exception) -> NoReturn:
        """End the run: the program must not get to see an error that is not its own."""
        self._aborted = error
        life.status = Status.DEAD
        raise SimulatedCrash(str(error))

    def _query_faults(self) -> tuple[str, ...]:
        """A query changes nothing, so its caller sees one fault only: no answer."""
        return ("response_lost",) if "response_lost" in self.allowed else ()

    def _can_go_on(self, life: Life) -> bool:
        slept_enough = life.status is Status.PAUSED and life.wakes_at <= self.clock.now()
        return life.status is Status.READY or slept_enough

    def _options(self, life: Life) -> tuple[str, ...]:
        options = [GO_ON]
        if CRASH in self.allowed:
            options.append(CRASH)
        if "switch" in self.allowed:
            options += [SWITCH + other.name for other in self.lives if other is not life and self._can_go_on(other)]
        if PAUSE in self.allowed and self.world.can_pause(life):
            options.append(PAUSE)
        if CANCEL in self.allowed and self.world.can_cancel():
            options.append(CANCEL)
        if ARRIVE in self.allowed and self.world.can_arrive():
            options.append(ARRIVE)
        return tuple(options)
