"""The seams: how a worker meets time, crash points and the wire, each one an argument.

A worker touches the outside in two ways. `boundary(point)` is called in the gap after each durable write and each
remote call: there it can die. `network(call)` says what the wire does with one remote call. The clock stands beside
them. The same store, remote and worker run unchanged with the plain seams of this module, under a scheduler, and in a
process that kills itself.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import fsum, isfinite
from typing import Protocol

from labkit.errors import InvalidInput, SimulatedCrash


class Clock(Protocol):
    """Tells the time in seconds, and waits."""

    def now(self) -> float:
        """Seconds since the clock's own zero."""

    def sleep(self, seconds: float) -> None:
        """Let at least `seconds` pass."""


def reading(clock: Clock) -> float:
    """Read a clock.

    Raises:
        InvalidInput: it tells something else than a finite number of seconds, which no row may hold.
    """
    now = clock.now()
    if not isinstance(now, int | float) or not isfinite(now):
        raise InvalidInput("a clock that tells a finite number of seconds", now)
    return now


class SystemClock:
    """The machine's clock: seconds since 1970, so that it means the same in every process."""

    def now(self) -> float:
        """Seconds since 1970-01-01, UTC."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        time.sleep(max(0.0, seconds))


class ManualClock:
    """A clock that moves only when told to, so that every run prints the same times.

    Args:
        start: its first reading in seconds.
    """

    def __init__(self, start: float = 0.0) -> None:
        self.reset(start)

    def now(self) -> float:
        """The present reading in seconds."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Move ahead by `seconds` at once; a negative wait is none."""
        self._now += max(0.0, seconds)

    advance = sleep

    def reset(self, start: float = 0.0) -> None:
        """Begin again at `start`, for another run."""
        if isinstance(start, bool) or not isinstance(start, int | float) or not isfinite(start):
            raise InvalidInput("a finite number of seconds", start)
        self._now = float(start)


@dataclass(frozen=True)
class Point:
    """One crossing: what was just done, to what, and what the worker learned from it.

    `name`, such as `send task-1/refund`, is the same in every world; crash points are named by it.
    """

    action: str
    subject: str
    learned: str = ""

    @property
    def name(self) -> str:
        """Action and subject as one text."""
        return f"{self.action} {self.subject}"


Boundary = Callable[[Point], None]


def no_boundary(point: Point) -> None:
    """Do nothing at a crossing: the plain world."""


def crash_at(name: str, occurrence: int = 1) -> Boundary:
    """Return a boundary that dies at one crossing, once.

    Args:
        name: the point's name, such as `send task-1/refund`.
        occurrence: the how-manieth crossing of that name, counted from 1.

    Raises:
        SimulatedCrash: out of the returned boundary, at that crossing.
    """
    if occurrence < 1:
        raise InvalidInput("occurrence: 1 or more", occurrence)
    seen = 0

    def boundary(point: Point) -> None:
        nonlocal seen
        if point.name == name:
            seen += 1
            if seen == occurrence:
                raise SimulatedCrash(f"the worker dies after: {name}")

    return boundary


class Delivery(StrEnum):
    """What the wire does with one remote call."""

    DELIVERED = "delivered"
    REFUSED = "refused"
    """Known not sent: the connection was refused."""
    REQUEST_LOST = "request_lost"
    """Never arrives; the caller sees a time-out."""
    RESPONSE_LOST = "response_lost"
    """Applied; the answer is lost, the caller sees a time-out."""
    LATE = "late"
    """The caller sees a time-out, and the request is applied later."""


@dataclass(frozen=True)
class Call:
    """One remote call as the wire sees it: `action` is `send` or `query`."""

    remote: str
    action: str
    operation_id: str
    request_id: str


Network = Callable[[Call], Delivery]


def _known(delivery: Delivery) -> Delivery:
    if delivery not in set(Delivery):
        raise InvalidInput(f"one of {', '.join(Delivery)}", delivery)
    return Delivery(delivery)


def reliable(call: Call) -> Delivery:
    """Deliver every call."""
    return Delivery.DELIVERED


def scripted(*deliveries: Delivery) -> Network:
    """Return a network that treats the first calls as listed, and delivers every later one."""
    script = iter([_known(delivery) for delivery in deliveries])

    def network(call: Call) -> Delivery:
        return next(script, Delivery.DELIVERED)

    return network


def seeded(seed: int, rates: Mapping[Delivery, float]) -> Network:
    """Return a network that draws each call's fate from `rates`, the same draws for the same seed.

    Args:
        seed: any integer.
        rates: the share of each fault, each from 0 to 1 and together at most 1; the rest is delivered.
    """
    numbers = [rate for rate in rates.values() if isinstance(rate, int | float) and rate >= 0]
    if not set(rates) <= set(Delivery) or len(numbers) < len(rates) or fsum(numbers) > 1:
        raise InvalidInput("deliveries with rates of 0 or more that add up to at most 1", dict(rates))
    faults = [delivery for delivery in Delivery if delivery in rates]
    draw = random.Random(seed)

    def network(call: Call) -> Delivery:
        left = draw.random()
        for fault in faults:
            left -= rates[fault]
            if left < 0:
                return fault
        return Delivery.DELIVERED

    return network
