"""Choices: everything that can go differently in a run, and the list of them that fixes one run completely.

The first option of every choice is the quiet one. Any other is a surprise. A `Schedule` holds the surprises alone: at
every other place the quiet option is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from labkit.errors import LabError

GO_ON = "go on"
CRASH = "crash"
PAUSE = "pause"
CANCEL = "cancel"
ARRIVE = "late request arrives"
SWITCH = "switch to "
"""Followed by the worker that goes on instead."""

SWITCHED = "switch"

CLOCK = "clock"
CLOCKS: Mapping[str, float] = {"clock 45 s fast": 45.0, "clock 45 s slow": -45.0}
"""By how many seconds a worker's clock can be off for its whole life: more than a lease (30), less than the longest
pause (60)."""

SURPRISES = frozenset(
    {CRASH, PAUSE, CANCEL, ARRIVE, CLOCK, SWITCHED, "refused", "request_lost", "response_lost", "late"}
)
"""The kinds of surprise that a scenario can allow; the last four are what the wire does with a call."""


def kind_of(choice: str) -> str:
    """Return the kind of surprise, as scenarios allow it, of a choice other than the quiet one."""
    if choice.startswith(SWITCH):
        return SWITCHED
    return CLOCK if choice in CLOCKS else choice


@dataclass(frozen=True, slots=True)
class Surprise:
    """One departure from the quiet run: at which place (from 0), and what happens there.

    `worker` and `point` say who is expected at that place, and at which crossing or call; empty for anybody, anywhere.
    """

    place: int
    choice: str
    worker: str = field(default="", compare=False)
    point: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"step {self.place + 1}: {self.what}"

    @property
    def what(self) -> str:
        """Who, where and what, as far as it is known: `worker-1, send task-1/refund: crash`."""
        where = ", ".join(filter(None, (self.worker, self.point)))
        return f"{where}: {self.choice}" if where else self.choice


Schedule = tuple[Surprise, ...]


def order_of(schedule: Schedule) -> tuple[int, int, tuple[int, ...]]:
    """Where a schedule stands in the search: by surprises, then switches among them, then their places."""
    switches = sum(kind_of(surprise.choice) == SWITCHED for surprise in schedule)
    return len(schedule), switches, tuple(surprise.place for surprise in schedule)


class ScheduleMismatch(LabError):
    """A schedule does not fit the run: another worker, another point or another choice at that place.

    Fields: `place`, counted from 0 (people count steps from 1), what was `expected` and what was `found`.
    """

    def __init__(self, place: int, expected: str, found: str) -> None:
        self.place, self.expected, self.found = place, expected, found
        super().__init__(f"step {place + 1} differs: expected {expected}; found {found}")


@dataclass(frozen=True, slots=True)
class Step:
    """One choice as it was made.

    Args:
        worker: who had come to it.
        point: the crossing or the call, such as `send task-1/refund`.
        options: what could happen, the quiet option first.
        chosen: what did.
    """

    worker: str
    point: str
    options: tuple[str, ...]
    chosen: str


class Choices:
    """Makes the choices of one run by a schedule, and keeps every step."""

    def __init__(self, schedule: Schedule) -> None:
        self._by_place = {surprise.place: surprise for surprise in schedule}
        self._last = max(self._by_place, default=-1)
        self.steps: list[Step] = []

    def choose(self, worker: str, point: str, options: tuple[str, ...]) -> str:
        """Return the option that the schedule names for this place, or the quiet one.

        Raises:
            ScheduleMismatch: the named option is not among `options`, or somebody or something else is expected.
        """
        surprise = self._by_place.get(len(self.steps))
        chosen = options[0]
        if surprise is not None:
            chosen = surprise.choice
            fits = surprise.worker in ("", worker) and surprise.point in ("", point)
            if not fits or chosen not in options:
                raise ScheduleMismatch(surprise.place, surprise.what, f"{worker}, {point}: {', '.join(options)}")
        self.steps.append(Step(worker, point, options, chosen))
        return chosen

    def check_used_up(self) -> None:
        """Raise `ScheduleMismatch` if the run ended before the last surprise of the schedule."""
        if self._last >= len(self.steps):
            end = f"the run ends after step {len(self.steps)}"
            raise ScheduleMismatch(self._last, self._by_place[self._last].what, end)
