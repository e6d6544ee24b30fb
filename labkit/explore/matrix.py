"""The matrix: crash point x remote capability x policy, one worker alive at a time, one refund, and nobody to ask.

Every cell is one run of the explorer's own world under a schedule: the worker dies at the first crossing of a name.
Two switches make it harder. With late delivery the first sending of all arrives `LATE_BY_SECONDS` later: after the
caller's time-out, after any query or resend that follows, and within the longest delivery. With forgotten keys the
remote remembers a key for `FORGETFUL_SECONDS`, less than a lease, and says so in its manual: a policy that reads the
manual can know. (A remote that forgets sooner than it says, or pays no heed to keys at all, breaks every policy that
trusts its manual; see the row "manual" of `labkit.explore.guarantees`.)

A sender that is paused, not dead, is an axis of its own: `pause_axis`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from labkit.errors import InvalidInput
from labkit.explore.capsule import Capsule, capsule_of
from labkit.explore.choices import CANCEL, CRASH, PAUSE, Schedule, Step, Surprise
from labkit.explore.exploration import Exploration
from labkit.explore.programs import LabWorker
from labkit.explore.scenario import Played
from labkit.explore.search import explore
from labkit.explore.world import TaskScenario, TaskWorld
from labkit.explore.wrong_turns import heartbeat_without_progress
from labkit.policies import POLICIES
from labkit.remote import Capabilities
from labkit.runs import Verdict

CAPABILITIES: Mapping[str, Mapping[str, bool]] = {
    "neither": {},
    "key": {"idempotency_keys": True},
    "query": {"status_query": True},
    "both": {"idempotency_keys": True, "status_query": True},
}
"""What the refund's remote can do, from nothing to both."""

LATE_BY_SECONDS = 55.0
"""Longer than a lease (30) and a forgetful remote's memory after it (20), and within the longest delivery (60)."""

FORGETFUL_SECONDS = 20.0
REMEMBERS_SECONDS = 86_400.0

NO_CRASH = "none"
"""The crash point of the row in which nobody dies."""

PAUSED = "sleeps past its lease, then sends"
PAUSED_AND_CANCELLED = "sleeps past its lease, then sends; cancelled meanwhile"
HANGS = "hangs for ever, its lease renewed by a heartbeat"
PAUSES = (PAUSED, PAUSED_AND_CANCELLED, HANGS)


@dataclass(frozen=True)
class MatrixSetting:
    """What a cell is set up from, its crash point aside.

    Args:
        capability: a name in `CAPABILITIES`.
        policy: a name in `POLICIES`.
        late_delivery: the first sending of all arrives late.
        key_forgotten: the remote remembers keys for less than a lease, and says so.
        pause: one of `PAUSES`, or empty.
    """

    capability: str
    policy: str
    late_delivery: bool = False
    key_forgotten: bool = False
    pause: str = ""

    def __post_init__(self) -> None:
        for what, value, known in (("capability", self.capability, CAPABILITIES), ("policy", self.policy, POLICIES)):
            if value not in known:
                raise InvalidInput(f"{what}: one of {', '.join(known)}", value)

    def scenario(self, allowed: Iterable[str] = (CRASH, PAUSE, CANCEL, "late")) -> TaskScenario:
        """Return the scenario: one refund, one remote, one worker at a time, nobody to ask."""
        memory = FORGETFUL_SECONDS if self.key_forgotten else REMEMBERS_SECONDS
        remote = Capabilities(key_ttl_seconds=memory, **CAPABILITIES[self.capability])
        return TaskScenario(
            heartbeat_without_progress if self.pause == HANGS else LabWorker(self.policy),
            remotes={"payments": remote},
            allowed=frozenset(allowed),
            person=False,
            late_by_seconds=LATE_BY_SECONDS,
        )


@dataclass(frozen=True)
class Cell:
    """One run of the matrix: its set-up, what it came to, and the capsule that replays it."""

    crash_point: str
    capability: str
    late_delivery: bool
    key_forgotten: bool
    policy: str
    verdict: Verdict
    capsule: Capsule


@dataclass(frozen=True)
class PauseCell:
    """One run of the pause axis."""

    pause: str
    capability: str
    policy: str
    verdict: Verdict
    capsule: Capsule


@dataclass(frozen=True)
class TwoCrashes:
    """All runs of one policy at one remote with up to two crashes."""

    capability: str
    policy: str
    found: Exploration

    @property
    def worst(self) -> Verdict:
        """The worst that any of the runs came to."""
        return max(map(Verdict, self.found.verdicts), key=list(Verdict).index)


def matrix(
    capabilities: Iterable[str] = tuple(CAPABILITIES),
    policies: Iterable[str] = tuple(POLICIES),
    late_delivery: Iterable[bool] = (False, True),
    key_forgotten: Iterable[bool] = (False, True),
) -> tuple[Cell, ...]:
    """Play every cell.

    Args:
        capabilities: names in `CAPABILITIES`.
        policies: names in `POLICIES`.
        late_delivery: the positions of that switch.
        key_forgotten: the positions of that switch.

    Returns:
        One cell for each crossing that a run of the setting comes to, and one for the run in which nobody dies. A
        crossing that a policy never comes to has no cell: a crash that did not happen proves nothing.
    """
    switches = tuple(product(late_delivery, key_forgotten))
    settings = (
        MatrixSetting(capability, policy, late, forgotten)
        for (late, forgotten), capability, policy in product(switches, tuple(capabilities), tuple(policies))
    )
    return tuple(cell for setting in settings for cell in _cells(setting))


def pause_axis(
    capabilities: Iterable[str] = tuple(CAPABILITIES), policies: Iterable[str] = tuple(POLICIES)
) -> tuple[PauseCell, ...]:
    """Play every way of pausing at every remote under every policy: a sender that is not dead, and not there.

    Args:
        capabilities: names in `CAPABILITIES`.
        policies: names in `POLICIES`.
    """
    cells = []
    for pause, capability, policy in product(PAUSES, tuple(capabilities), tuple(policies)):
        played, capsule = _paused(MatrixSetting(capability, policy, pause=pause))
        cells.append(PauseCell(pause, capability, policy, Verdict(played.verdict), capsule))
    return tuple(cells)


def two_crashes(
    capabilities: Iterable[str] = tuple(CAPABILITIES), policies: Iterable[str] = tuple(POLICIES)
) -> tuple[TwoCrashes, ...]:
    """Play all runs with up to two crashes, anywhere, at every remote under every policy.

    Args:
        capabilities: names in `CAPABILITIES`.
        policies: names in `POLICIES`.
    """
    return tuple(
        TwoCrashes(capability, policy, explore(MatrixSetting(capability, policy).scenario([CRASH]), 2, go_on=True))
        for capability, policy in product(tuple(capabilities), tuple(policies))
    )


def _cells(setting: MatrixSetting) -> Iterator[Cell]:
    world = setting.scenario((CRASH, "late")).open()
    try:
        late = _first(world.play(()), "wire: send", "late") if setting.late_delivery else ()
        quiet = world.play(late)
        runs = {NO_CRASH: quiet}
        for place, step in enumerate(quiet.steps):
            if CRASH in step.options and step.point not in runs:
                runs[step.point] = _crash(world, late, _surprise(place, step, CRASH))
        for point, played in runs.items():
            assert played.counts[CRASH] == (point != NO_CRASH), "nothing is shown by a crash that did not happen"
            where = (point, setting.capability, setting.late_delivery, setting.key_forgotten, setting.policy)
            yield Cell(*where, Verdict(played.verdict), capsule_of(world.scenario, played))
    finally:
        world.close()


def _crash(world: TaskWorld, late: Schedule, crash: Surprise) -> Played:
    """Play a crash. Where it comes before the first sending, whoever recovers makes that one, and makes it late."""
    if late and crash.place < late[0].place:
        recovered = world.play((crash,))
        return world.play((crash, *_first(recovered, "wire: send", "late")))
    return world.play((*late, crash))


def _paused(setting: MatrixSetting) -> tuple[Played, Capsule]:
    world = setting.scenario((PAUSE, CANCEL)).open()
    try:
        played = world.play(())
        if setting.pause != HANGS:
            played = world.play(_first(played, "intend", PAUSE))
            assert played.counts[PAUSE] == 1, "nothing is shown by a pause that did not happen"
        if setting.pause == PAUSED_AND_CANCELLED:
            played = world.play((*played.schedule, *_first(played, "start worker-2", CANCEL)))
        return played, capsule_of(world.scenario, played)
    finally:
        world.close()


def _first(played: Played, point: str, choice: str) -> Schedule:
    """The first place at which a choice is on offer at a point whose name begins so; none where there is no such."""
    for place, step in enumerate(played.steps):
        if step.point.startswith(point) and choice in step.options:
            return (_surprise(place, step, choice),)
    return ()


def _surprise(place: int, step: Step, choice: str) -> Surprise:
    return Surprise(place, choice, step.worker, step.point)
