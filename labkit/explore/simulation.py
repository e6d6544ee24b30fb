"""What all simulated worlds do: play a schedule, go on until nobody has anything left to do, and be watched."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit.explore.choices import Choices, Schedule, Step
from labkit.explore.lives import Life, RunTooLong, WorkerStatus
from labkit.explore.outside import Unfollowed, connections_watched
from labkit.explore.scenario import Played, Scenario
from labkit.explore.scheduler import Scheduler, WorldEvents
from labkit.explore.warm import Files, Rows
from labkit.runs import Moment
from labkit.seams import ManualClock, Point

MAX_LAPS = 60
WIRE, BEFORE = "wire: ", "before "


class SimulatedWorld(WorldEvents):
    """Plays schedules of a scenario on warm files, one clock for all.

    Args:
        scenario: what is played.
        folder: see `Files`.
    """

    def __init__(self, scenario: Scenario, folder: Path | None) -> None:
        self.scenario = scenario
        self.clock = ManualClock()
        self._files = Files(folder)
        self._rows: list[Rows] = []
        self._moments: list[Moment] | None = None
        self._places: list[int] = []
        self.ends: list[tuple[int, str, BaseException]] = []
        """Of a run that was watched: behind how many moments a worker ended with an error, which worker, and which."""

        self.by_the_lab: set[int] = set()
        """Of a run that was watched: the numbers of the moments that are the lab's own work; see `lab_works`."""

        self._hub: Scheduler

    def close(self) -> None:
        """Close and remove the files."""
        self._files.close()

    def play(self, schedule: Schedule) -> Played:
        """Run the scenario once, with these surprises.

        Raises:
            ScheduleMismatch: a surprise is not on offer at its place.
        """
        self._begin()
        hub = self._hub = Scheduler(Choices(schedule), self.scenario.allowed, self.clock, self)
        trouble = ""
        with self._watched_for_others(hub):
            try:
                for _ in range(self.scenario.workers):
                    hub.start(self._live)
                self._run(hub)
            except RunTooLong as error:
                trouble = str(error)
            finally:
                hub.close()
                self._end()
        hub.choices.check_used_up()
        return self._judged(schedule, hub, trouble)

    def _watched_for_others(self, hub: Scheduler) -> AbstractContextManager[None]:
        """For as long as a run goes on, nobody else may open its files."""
        return connections_watched(self._files.folder, hub)

    def _begin(self) -> None:
        for rows in self._rows:
            rows.put_back()
        self.clock.reset()

    def _end(self) -> None:
        """Every worker of the run is gone, however it ended."""

    def _live(self, life: Life) -> Any:
        """One worker's life, from its first handle to what it returns."""
        raise NotImplementedError

    def _judged(self, schedule: Schedule, hub: Scheduler, trouble: str) -> Played:
        """What the run came to; `trouble` says what it did too often, if anything."""
        raise NotImplementedError

    def _followed(self) -> tuple[str, str]:
        """What a run has broken that kept all laws of its scenario, but went where the explorer cannot follow."""
        for life in self._hub.lives:
            if isinstance(life.error, Unfollowed):
                return "followed", f"{life.name} ended with {type(life.error).__name__}: {life.error}"
        return "", ""

    # When a run is over.

    def _run(self, hub: Scheduler) -> None:
        hub.run()

    def _until_idle(self, hub: Scheduler) -> None:
        """Run until nobody has anything left to do."""
        hub.run()
        for _ in range(MAX_LAPS):
            if not self._next_lap(hub):
                break
            hub.run()

    def _next_lap(self, hub: Scheduler) -> bool:
        """All are idle: start, wake or wait for whoever can go on next; tells whether there is anybody."""
        now, due = self.clock.now(), self._due()
        if hub.wake({WorkerStatus.SLEEPING}, now):
            return True
        if due is not None and due <= now and hub.may_start():
            hub.start(self._live)
            return True
        if hub.wake({WorkerStatus.PAUSED}, now):
            return True
        waiting = [life.wakes_at for life in hub.lives if life.status in (WorkerStatus.SLEEPING, WorkerStatus.PAUSED)]
        waiting += self._under_way()
        waiting += [] if due is None else [due]
        following = min((at for at in waiting if at > now), default=None)
        if following is None:
            return self._nobody_left()
        self.clock.advance(following - now)
        self._time_has_passed()
        return True

    def _due(self) -> float | None:
        """From when on a fresh worker would find something to do; None where it never would."""
        return None

    def _under_way(self) -> list[float]:
        """When late requests arrive."""
        return []

    def _time_has_passed(self) -> None:
        """The clock has jumped."""

    def _nobody_left(self) -> bool:
        """No worker can go on by itself; tells whether somebody else has changed that."""
        return False

    # What there is to see.

    def crossed(self, life: Life, point: Point) -> None:
        """Keep the three views, if somebody watches."""
        if self._moments is not None:
            number, seen = len(self._moments) + 1, (point.name, point.learned, self._view(), self._ledger())
            self._moments.append(Moment(number, self.clock.now(), life.name, *seen))
            if life.lab_works:
                self.by_the_lab.add(number)
            self._places.append(len(self._hub.choices.steps))

    def ended(self, life: Life) -> None:
        """Keep how a worker ended, if somebody watches."""
        if self._moments is not None and life.error is not None:
            self.ends.append((len(self._moments), life.name, life.error))

    def last_look(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        """What database and ledgers say at the end of the run just played, when all that was late has arrived."""
        return self._view(), self._ledger()

    def _view(self) -> str:
        """What the database says."""
        return ""

    def _ledger(self) -> tuple[tuple[str, int], ...]:
        """Effects on record at the remotes."""
        return ()

    def _watched(self, schedule: Schedule) -> tuple[Played, tuple[Moment, ...]]:
        """Play a schedule and keep what there was to see at every crossing."""
        self._moments, self._places, self.ends, self.by_the_lab = [], [], [], set()
        try:
            played = self.play(schedule)
            return played, with_surprises(self._moments, self._places, played.steps)
        finally:
            self._moments = None


def with_surprises(moments: Sequence[Moment], places: Sequence[int], steps: Sequence[Step]) -> tuple[Moment, ...]:
    """Mark each moment with what was chosen there, and on the wire in the call that led to it or was about to be made.

    Args:
        moments: one a crossing.
        places: where the choice of each crossing stands among `steps`, counted from 0.
        steps: every choice of the run; it may have ended before the last crossing's was made.
    """
    marked = []
    for moment, place in zip(moments, places, strict=True):
        call = place + 1 if moment.point.startswith(BEFORE) else place - 1
        near = [] if moment.point.startswith("end ") else [*steps[max(call, 0) : max(call, 0) + 1]]
        wire = [step for step in near if step.point.startswith(WIRE)]
        chosen = [step.chosen for step in (*wire, *steps[place : place + 1]) if step.chosen != step.options[0]]
        marked.append(replace(moment, fault=", ".join(one.replace("_", " ") for one in chosen)))
    return tuple(marked)
