"""A worker's life: a greenlet that hands over at every crossing, and whose handles die with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, NoReturn, Protocol

from greenlet import GreenletExit, getcurrent, greenlet

from labkit.errors import SimulatedCrash
from labkit.explore.outside import InEventLoop, NotItsOwn, NotItsThread, Unfollowed, loop_put_aside, running_loop
from labkit.seams import Call, Delivery, ManualClock, Point

START = "start"
"""The action of a life's first crossing."""

MAX_TOUCHES = 20_000
"""How often code may use its handles between two crossings: a loop that waits for others without waiting is a bug."""

MAX_NAPS = 15
"""How often code may call `time.sleep` in one life: three such workers stay below the laps of a run."""

MAX_CLINGING = 100
"""How often a dead worker's code is told that it is dead. Code that will not hear of it is left where it stands."""

_CLINGING: list[greenlet] = []
"""Those that were left so: collecting one as garbage would set it going again."""


STOP: list[BaseException] = []
"""Why the search has to stop, once it has: so every use of a handle tells."""


class OutOfTime(BaseException):
    """The search has used up its seconds, or one run those of a run.

    Args:
        where: it was stopped, if not between two runs.
        run_seconds: those of a run, where it is that which has used them up.
    """

    def __init__(self, where: str = "", run_seconds: float | None = None) -> None:
        super().__init__(where)
        self.where, self.run_seconds = where, run_seconds


class RunTooLong(Exception):
    """A run did more than a run may: a loop in the program that no budget bounds."""


class WorkerStatus(Enum):
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


class Commits(Protocol):
    """Who is told of commits: the world."""

    def committed(self, life: Life) -> None:
        """A worker's own SQL has just been committed."""


class Hub(Protocol):
    """Where lives hand over to each other: the scheduler."""

    greenlet: greenlet
    clock: ManualClock

    @property
    def world(self) -> Commits:
        """Who is told of commits."""

    def at_crossing(self, life: Life, point: Point) -> None:
        """Choose what happens in the gap after `point`."""

    def at_call(self, life: Life, call: Call) -> Delivery:
        """Choose what the wire does with a call."""

    def abort(self, life: Life, error: Exception) -> NoReturn:
        """End the run: the program must not get to see an error that is not its own."""


class _LifeGreenlet(greenlet):
    """Where a life runs, and whose it is."""

    life: Life


def sleep_here(seconds: float) -> bool:
    """Let time pass on the run's clock where a worker's code is what asks; tells whether it was."""
    here = getcurrent()
    if isinstance(here, _LifeGreenlet) and here.life.alive:
        here.life.nap(seconds)
        return True
    return False


def worker_here() -> str:
    """The name of the worker whose code this runs in; empty where it is nobody's."""
    here = getcurrent()
    return here.life.name if isinstance(here, _LifeGreenlet) else ""


def leave_here(error: BaseException) -> None:
    """Where a worker's code is what runs, give its scheduler an error and never come back; return where it is not."""
    life: greenlet | None = getcurrent()
    while life is not None and not isinstance(life, _LifeGreenlet):
        life = life.parent
    if life is not None:
        _CLINGING.append(getcurrent())
        _CLINGING.append(life)
        life.life.hub.greenlet.throw(error)


@contextmanager
def lab_works() -> Iterator[None]:
    """Tell what a worker does meanwhile as the lab's own work, where the code on trial is somebody else's."""
    here = getcurrent()
    if not isinstance(here, _LifeGreenlet):
        yield
        return
    here.life.lab_works = True
    try:
        yield
    finally:
        here.life.lab_works = False


class Life:
    """One worker from its start to its end or death.

    Args:
        name: such as `worker-1`.
        program: what it runs; its only argument is this life.
        hub: where it hands over.
    """

    def __init__(self, name: str, program: Callable[[Life], Any], hub: Hub) -> None:
        self.name = name
        self.status = WorkerStatus.READY
        self.wakes_at = 0.0
        self.timed_out = False
        self.clock_off_seconds = 0.0
        self.result: Any = None
        self.error: BaseException | None = None
        self.misused: Unfollowed | None = None
        """How its code has gone where the explorer cannot follow; told as its end, whatever the code makes of it."""

        self.hub = hub
        self.lab_works = False
        self.started_at = hub.clock.now()
        self._program = program
        self._touches = self._naps = 0
        self._greenlet = _LifeGreenlet(self._live, hub.greenlet)
        self._greenlet.life = self

    @property
    def alive(self) -> bool:
        """Whether its handles still work."""
        return self.status is not WorkerStatus.DEAD

    @property
    def ended(self) -> bool:
        """Whether it came to its end and returned something."""
        return self.status is WorkerStatus.ENDED and self.error is None

    def _live(self, *_: Any) -> None:
        try:
            result = self._program(self)
        except (KeyboardInterrupt, OutOfTime, GreenletExit):
            raise
        except BaseException as error:  # whatever a program raises is its own affair; once dead, nobody hears of it
            if self.alive:
                self.error = error
        else:
            self.result = result if self.alive else None
        if self.alive:
            self.error = self.misused or self.error
            self.status = WorkerStatus.ENDED

    def resume(self) -> None:
        """Let it go on until it hands over."""
        with loop_put_aside():
            self._greenlet.switch()

    def hand_over(self) -> None:
        """Called in the worker: give control to the scheduler; a worker that died meanwhile goes no further."""
        self.check_alive()
        self.hub.greenlet.switch()
        self.check_alive()

    def check_alive(self) -> None:
        """Called whenever a handle is used: raise `SimulatedCrash` in a dead worker, and bound the uses.

        Raises:
            Unfollowed: it is used where the explorer cannot follow; see `labkit.explore.outside`.
        """
        self._touches += 1
        here = getcurrent()
        if here is not self._greenlet and isinstance(here, _LifeGreenlet):
            here.life.misused = NotItsOwn(here.life.name, self.name)
            raise here.life.misused
        if not self.alive:
            if self._touches > MAX_CLINGING and here is self._greenlet:
                self._leave()
            raise SimulatedCrash(f"{self.name} is dead")
        if STOP:
            if self._touches > MAX_CLINGING:
                leave_here(STOP[0])
            raise STOP[0]
        if here is not self._greenlet:
            self.misused = NotItsThread(self.name)
        elif self.misused is None and running_loop() is not None:
            self.misused = InEventLoop(self.name)
        if self.misused is not None:
            raise self.misused
        if self._touches > MAX_TOUCHES:
            self.hub.abort(self, RunTooLong(f"more than {MAX_TOUCHES:,} looks at the world between two crossings"))

    def _leave(self) -> NoReturn:
        """A dead worker's code catches everything and goes on: never come back to it."""
        _CLINGING.append(self._greenlet)
        while True:
            self.hub.greenlet.switch()

    def end(self) -> None:
        """Called in the worker: its handles go dead; whatever its code does from here on changes nothing."""
        self.status, self._touches = WorkerStatus.DEAD, 0

    def drop(self) -> None:
        """Unwind what is left of it after a run, against dead handles."""
        if self._greenlet and self._greenlet not in _CLINGING:
            self.end()
            self._greenlet.throw(SimulatedCrash(f"{self.name} is dead"))

    def keep_standing(self) -> None:
        """Leave what is left of it where it stands: unwinding it has no end."""
        if self._greenlet and self._greenlet not in _CLINGING:
            _CLINGING.append(self._greenlet)

    def cross(self, point: Point) -> None:
        """The boundary of its store and remotes: hand over at a crossing."""
        self.check_alive()
        self._touches = 0
        self.hub.at_crossing(self, point)

    def deliver(self, call: Call) -> Delivery:
        """The network of its remotes: let the scheduler choose what the wire does."""
        self.check_alive()
        return self.hub.at_call(self, call)

    def now(self) -> float:
        """Its own clock, which can be off: seconds of the run's clock, as far as this worker can tell."""
        self.check_alive()
        return self.hub.clock.now() + self.clock_off_seconds

    def sleep(self, seconds: float) -> None:
        """Hand over until so many seconds have passed; however far a clock is off, it runs as fast as any other."""
        self.check_alive()
        self.status, self.wakes_at = WorkerStatus.SLEEPING, self.hub.clock.now() + max(0.0, seconds)
        self.hand_over()

    def nap(self, seconds: float) -> None:
        """Sleep as a program does that looks again and again; a run ends before one that waits for ever."""
        self._naps += 1
        if self._naps > MAX_NAPS:
            self.hub.abort(self, RunTooLong(f"{self.name} sleeps and looks again, more than {MAX_NAPS} times"))
        self.sleep(seconds)

    def block(self, until: float) -> bool:
        """Wait until another worker has moved, or until a time; tells whether the time came first."""
        self.check_alive()
        self.status, self.wakes_at, self.timed_out = WorkerStatus.BLOCKED, until, False
        self.hand_over()
        return self.timed_out
