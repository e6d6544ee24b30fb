"""The scheduler: workers are greenlets, and at every crossing it is decided who goes on and what goes wrong.

The quiet run goes on with the running worker; when that ends or blocks, with the lowest ready one; when all are idle,
the clock jumps to the next due time. A dead worker's handles are dead: whatever its `finally` and `except` do, they
change nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from greenlet import getcurrent

from labkit.errors import SimulatedCrash
from labkit.explore.choices import (
    ARRIVE,
    CANCEL,
    CLOCK,
    CLOCKS,
    CRASH,
    GO_ON,
    PAUSE,
    SWITCH,
    SWITCHED,
    Choices,
    ScheduleMismatch,
    kind_of,
)
from labkit.explore.lives import START, Life, RunTooLong, WorkerStatus
from labkit.seams import Call, Delivery, ManualClock, Point

MAX_CROSSINGS = 2_000
FAULTS_OF_THE_WIRE = (Delivery.REFUSED, Delivery.REQUEST_LOST, Delivery.RESPONSE_LOST, Delivery.LATE)


class WorldEvents:
    """What the scheduler asks of a world, and tells it; this one has no remotes, leases or people."""

    def crossed(self, life: Life, point: Point) -> None:
        """A worker has come to a crossing."""

    def crashed(self, life: Life) -> None:
        """A worker dies now."""

    def paused(self, life: Life) -> None:
        """A worker falls asleep now."""

    def calling(self, life: Life, call: Call) -> None:
        """A worker is about to make a call, which has not left yet."""

    def committed(self, life: Life) -> None:
        """A worker's own SQL has just been committed."""

    def ended(self, life: Life) -> None:
        """A worker has come to its end, by an error or without one."""

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
        self.current: Life | None = None
        """Whose code runs now, or ran last."""

        self.greenlet = getcurrent()
        self.counts = dict.fromkeys((CRASH, PAUSE, SWITCHED, CANCEL, ARRIVE, CLOCK, *FAULTS_OF_THE_WIRE), 0)
        self.sent: Counter[str] = Counter()
        self._crossings = 0
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
            if current is None or current.status is not WorkerStatus.READY:
                current = self._lowest_ready()
            if current is None:
                return
            self.current = current
            current.resume()
            if self._aborted is not None:
                raise self._aborted
            if current.status is WorkerStatus.ENDED:
                self.world.ended(current)
            if current.status is not WorkerStatus.BLOCKED:
                self._unblock(current)

    def wake(self, statuses: Iterable[WorkerStatus], until: float) -> bool:
        """Make those ready whose time has come by `until`; tells whether there were any."""
        woken = [life for life in self.lives if life.status in statuses and life.wakes_at <= until]
        for life in woken:
            life.status = WorkerStatus.READY
        return bool(woken)

    def may_start(self) -> bool:
        """Whether a fresh worker may come: not where one that came just now sleeps on what there is to do."""
        now = self.clock.now()
        return not any(life.status is WorkerStatus.SLEEPING and life.started_at == now for life in self.lives)

    def no_more_surprises(self) -> None:
        """From here on everything is quiet."""
        self.allowed, self._wire = frozenset(), ()

    def close(self) -> None:
        """Unwind every worker that is still in the middle of something."""
        try:
            for life in self.lives:
                life.drop()
        except BaseException:
            for life in self.lives:
                life.keep_standing()
            raise

    def _lowest_ready(self) -> Life | None:
        ready = next((life for life in self.lives if life.status is WorkerStatus.READY), None)
        if ready is None and any(life.status is WorkerStatus.BLOCKED for life in self.lives):
            return self._first_to_move()
        return ready

    def _first_to_move(self) -> Life:
        """All wait, and somebody for a lock: what comes first, the end of a sleep or that of a busy time-out?"""
        waiting = [
            life
            for life in self.lives
            if life.status in (WorkerStatus.BLOCKED, WorkerStatus.SLEEPING, WorkerStatus.PAUSED)
        ]
        first = min(waiting, key=lambda life: (life.wakes_at, life.status is WorkerStatus.BLOCKED))
        self.clock.advance(first.wakes_at - self.clock.now())
        first.timed_out = first.status is WorkerStatus.BLOCKED
        first.status = WorkerStatus.READY
        return first

    def _unblock(self, mover: Life) -> None:
        for life in self.lives:
            if life is not mover and life.status is WorkerStatus.BLOCKED:
                life.status = WorkerStatus.READY

    def at_crossing(self, life: Life, point: Point) -> None:
        """Choose what happens in the gap after `point`."""
        self._crossings += 1
        if self._crossings > MAX_CROSSINGS:
            self.abort(life, RunTooLong(f"more than {MAX_CROSSINGS:,} crossings, the last one at {point.name}"))
        chosen = self._choose(life, point.name, self._seen(life, point))
        if chosen == GO_ON:
            return
        self.counts[kind_of(chosen)] += 1
        if chosen == CRASH:
            self.world.crashed(life)
            life.end()
            raise SimulatedCrash(f"{life.name} dies after: {point.name}")
        if chosen in CLOCKS:
            life.clock_off_seconds = CLOCKS[chosen]
        elif chosen == CANCEL:
            self.world.cancel()
        elif chosen == ARRIVE:
            self.world.arrive()
        elif chosen == PAUSE:
            life.status, life.wakes_at = WorkerStatus.PAUSED, self.world.pause_ends_at()
            self.world.paused(life)
            life.hand_over()
        else:
            self._next = next(other for other in self.lives if other.name == chosen.removeprefix(SWITCH))
            self._next.status = WorkerStatus.READY
            life.hand_over()

    def _seen(self, life: Life, point: Point) -> tuple[str, ...]:
        """Let the world see a crossing, and ask what can happen there; an error of the world is not the program's."""
        try:
            self.world.crossed(life, point)
            return self._options(life, point)
        except Exception as error:
            self.abort(life, error)

    def at_call(self, life: Life, call: Call) -> Delivery:
        """Choose what the wire does with a call."""
        if call.action == "send":
            self.sent[call.operation_id] += 1
        self._about_to_call(life, call)
        options = ("delivered", *self._wire) if call.action == "send" else ("delivered", *self._query_faults())
        chosen = Delivery(self._choose(life, f"wire: {call.action} {call.operation_id}", options))
        if chosen is not Delivery.DELIVERED:
            self.counts[chosen] += 1
        return chosen

    def _about_to_call(self, life: Life, call: Call) -> None:
        try:
            self.world.calling(life, call)
        except Exception as error:
            self.abort(life, error)

    def _choose(self, life: Life, point: str, options: tuple[str, ...]) -> str:
        try:
            return self.choices.choose(life.name, point, options)
        except ScheduleMismatch as mismatch:
            self.abort(life, mismatch)

    def abort(self, life: Life, error: Exception) -> NoReturn:
        """End the run: the program must not get to see an error that is not its own."""
        self._aborted = error
        life.end()
        raise SimulatedCrash(str(error))

    def _query_faults(self) -> tuple[str, ...]:
        """A query changes nothing, so its caller sees one fault only: no answer."""
        return ("response_lost",) if "response_lost" in self.allowed else ()

    def _can_go_on(self, life: Life) -> bool:
        slept_enough = life.status is WorkerStatus.PAUSED and life.wakes_at <= self.clock.now()
        return life.status is WorkerStatus.READY or slept_enough

    def _options(self, life: Life, point: Point) -> tuple[str, ...]:
        options = [GO_ON]
        if CRASH in self.allowed:
            options.append(CRASH)
        if SWITCHED in self.allowed:
            options += [SWITCH + other.name for other in self.lives if other is not life and self._can_go_on(other)]
        if PAUSE in self.allowed and self.world.can_pause(life):
            options.append(PAUSE)
        if CANCEL in self.allowed and self.world.can_cancel():
            options.append(CANCEL)
        if ARRIVE in self.allowed and self.world.can_arrive():
            options.append(ARRIVE)
        if CLOCK in self.allowed and point.action == START:
            options += CLOCKS
        return tuple(options)
