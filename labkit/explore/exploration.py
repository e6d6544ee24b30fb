"""What a search has shown, in words: which schedules, within which bounds, and what really happened in them."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from labkit.explore.capsule import Capsule, capsule_of
from labkit.explore.replay import Replay, replay
from labkit.explore.scenario import Played, Scenario
from labkit.runs import Verdict

COUNTED: Mapping[str, tuple[str, str]] = {
    "crash": ("crash", "crashes"),
    "take_over": ("take-over", "take-overs"),
    "refused": ("refused call", "refused calls"),
    "request_lost": ("lost request", "lost requests"),
    "response_lost": ("lost reply", "lost replies"),
    "late": ("late delivery", "late deliveries"),
    "pause": ("pause", "pauses"),
    "switch": ("switch of workers", "switches of workers"),
    "cancel": ("cancel", "cancels"),
    "clock": ("clock that is off", "clocks that are off"),
    "late request arrives": ("early arrival", "early arrivals"),
}
"""What can happen in a run, one and many of it, in the order in which it is told."""


SHOW = "labkit.show.exploration:show"
"""Who shows a search in a notebook. Looked up by name when it is shown: no explorer needs pictures."""


@dataclass(frozen=True)
class Exploration:
    """What a search has shown.

    Args:
        scenario: what was explored.
        surprises: the bound; None where there was none.
        schedules: how many were run, up to the first failure or to the end.
        broken: how many of them broke a law.
        verdicts: how many of them came to what.
        happened: how many faults of each kind really happened in them.
        failure: the first run that broke a law, so one with the fewest surprises and switches; None where none did.
        complete: every schedule within the bound was run.
        cut_short: why not, where neither that nor the first failure was the end of the search.
    """

    scenario: Scenario = field(repr=False, compare=False)
    surprises: int | None
    schedules: int
    broken: int
    verdicts: Mapping[str, int]
    happened: Mapping[str, int]
    failure: Played | None = None
    complete: bool = True
    cut_short: str = ""

    @property
    def passed(self) -> bool:
        """Whether every schedule within the bound was run and kept every law, and something did go wrong in some."""
        return self.failure is None and self.complete and (bool(self.happened) or not self.scenario.allowed)

    @property
    def capsule(self) -> Capsule | None:
        """The failure as a capsule; None where there was none."""
        return None if self.failure is None else capsule_of(self.scenario, self.failure)

    def replay(self) -> Replay | None:
        """Play the failure again and keep the three views; None where there was none."""
        capsule = self.capsule
        return None if capsule is None else replay(capsule, self.scenario)

    @property
    def scope(self) -> str:
        """The bounds: `2 workers with up to 2 surprises`."""
        workers = _many(self.scenario.workers, "worker", "workers")
        if self.surprises is None:
            return f"{workers} with any number of surprises"
        return f"{workers} with {'up to ' if self.surprises else ''}{_many(self.surprises, 'surprise', 'surprises')}"

    @property
    def summary(self) -> str:
        """One sentence: what was shown within which bounds, or what broke."""
        ran, keep = _many(self.schedules, "schedule", "schedules"), "keeps" if self.schedules == 1 else "keep"
        if self.cut_short:
            kept = f"{self.broken:,} of them broke a law" if self.broken else "no law broken so far"
            return f"NOT EXHAUSTIVE: {self.cut_short}; {ran} of {self.scope} run, {kept}"
        if self.failure is not None:
            return self._failed(ran)
        if not self.passed:
            allowed = ", ".join(named(kind) for kind in COUNTED if kind in self.scenario.allowed)
            return f"NOTHING SHOWN: no fault happened in the {ran} of {self.scope}, though allowed: {allowed}"
        return f"all {ran} of {self.scope} {keep} every law"

    def _failed(self, ran: str) -> str:
        assert self.failure is not None, "asked only where there is one"
        if self.complete:
            return f"{self.broken:,} of all {ran} of {self.scope} {'breaks' if self.broken == 1 else 'break'} a law"
        if not self.failure.schedule:
            return "the quiet run breaks a law, without any surprise"
        return f"schedule {self.schedules:,} ({self.scope}) breaks a law, and no smaller one does"

    @property
    def never(self) -> tuple[str, ...]:
        """The kinds of surprise that were allowed and that no schedule of the whole search has seen."""
        if self.failure is not None and not self.complete:
            return ()
        return tuple(kind for kind in COUNTED if kind in self.scenario.allowed and not self.happened.get(kind))

    def __str__(self) -> str:
        lines = [self.summary]
        if self.failure is not None:
            lines.append(f"the smallest failure: {self.failure.law}: {self.failure.how}")
            lines += [f"  {one}" for one in self.failure.schedule]
        came_to = (f"{self.verdicts[verdict]:,} {verdict}" for verdict in in_order(self.verdicts, tuple(Verdict)))
        lines.append("verdicts: " + (", ".join(came_to) or "none"))
        lines.append("what happened in them: " + told(self.happened))
        if self.never:
            lines.append("allowed, but it never happened: " + ", ".join(named(kind) for kind in self.never))
        return "\n".join(lines)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return pkgutil.resolve_name(SHOW)(self)._repr_mimebundle_(include, exclude)


def told(happened: Mapping[str, int]) -> str:
    """What really happened, in words: `30 crashes, 12 lost replies`."""
    counts = (_many(happened[kind], *COUNTED.get(kind, (kind, kind))) for kind in in_order(happened, COUNTED))
    return ", ".join(counts) or "nothing out of the ordinary"


def in_order(counts: Mapping[str, int], order: Iterable[str]) -> list[str]:
    """The names that count for something: those of `order` first, then the others by name."""
    known = [name for name in order if counts.get(name)]
    return known + sorted(name for name in counts if counts[name] and name not in known)


def named(kind: str) -> str:
    """What people call many surprises of a kind: `late deliveries`."""
    return COUNTED.get(kind, (kind, kind))[1]


def _many(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
