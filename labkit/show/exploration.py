"""What a search has shown, for people: a short table, and the smallest failure step by step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from labkit.explore.exploration import COUNTED, Exploration, in_order, named
from labkit.explore.replay import Replay
from labkit.runs import Moment, Verdict
from labkit.show.style import mimebundle
from labkit.show.tables import GAP, NARROWEST, TextTable, wrapped
from labkit.show.timeline import DITTO, TEXT_WIDTH, Timeline

NOTHING = "nothing"
FIRST_SHOWN, LAST_SHOWN = 24, 8
LANES_WIDTH, NUMBER_WIDTH = 100, 2
SEEN_BY_ALL = "what the database says"
NEVER = "0  <- allowed, but it never happened"


@dataclass(frozen=True)
class ExplorationView:
    """A search to look at: `str()` of it is the table and the failure in text; a notebook draws the failure too."""

    exploration: Exploration
    failure: Replay | None = None
    dark: bool = False

    @property
    def table(self) -> TextTable:
        """How many schedules there were, what they came to, and what happened in them."""
        found = self.exploration
        rows = [("schedules run", f"{found.schedules:,}")]
        rows += [
            (f"came to: {verdict}", f"{found.verdicts[verdict]:,}")
            for verdict in in_order(found.verdicts, tuple(Verdict))
        ]
        rows += [(named(kind), f"{found.happened[kind]:,}") for kind in in_order(found.happened, COUNTED)]
        rows += [(named(kind), NEVER) for kind in found.never]
        return TextTable(("in the whole search", ""), tuple(rows), title=found.summary, width=TEXT_WIDTH)

    @property
    def timeline(self) -> Timeline | None:
        """The failure in its three views; None where there is none, or where it is plain SQL without them."""
        if self.failure is None or self.failure.run is None:
            return None
        run = self.failure.run
        moments, left_out = shortened(run.moments)
        shown = replace(run, moments=moments, title=f"{run.title}{left_out}")
        counts = "; ".join(f"{name}: {count}" for name, count in self.table.rows)
        return Timeline(shown, self.dark, f"{self.exploration.summary}. In the whole search: {counts}", self.broke)

    @property
    def broke(self) -> str:
        """The law that the failure breaks, and how; empty where there is none."""
        return "" if self.failure is None else f"{self.failure.capsule.law}: {self.failure.capsule.how}"

    def __str__(self) -> str:
        if self.failure is None:
            return str(self.table)
        seen = self.timeline
        story = str(lanes(self.failure.moments)) if seen is None else replace(seen, search="", broke="").text
        return "\n\n".join((str(self.table), f"The smallest failure. {self.broke}", story))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        if self.timeline is None:
            return mimebundle(str(self))
        data, details = self.timeline._repr_mimebundle_()
        return data | {"text/plain": str(self)}, details


def show(exploration: Exploration, dark: bool = False) -> ExplorationView:
    """Show what a search has found; its failure is played once more for that.

    Args:
        exploration: from `labkit.explore.explore`.
        dark: for a dark page.
    """
    return ExplorationView(exploration, exploration.replay(), dark)


def shortened(moments: tuple[Moment, ...]) -> tuple[tuple[Moment, ...], str]:
    """The first and the last moments of a long run, such as one that retries for ever, and words for the others."""
    if len(moments) <= FIRST_SHOWN + LAST_SHOWN:
        return moments, ""
    left_out = f" (moments {FIRST_SHOWN + 1} to {len(moments) - LAST_SHOWN} left out)"
    return moments[:FIRST_SHOWN] + moments[-LAST_SHOWN:], left_out


def lanes(run: tuple[Moment, ...], outside: str = "") -> TextTable:
    """A run with a column for each worker, and what everybody can see in the database at every step.

    Args:
        run: its moments.
        outside: what to call a column for what another system holds; none where it is empty.
    """
    moments, left_out = shortened(run)
    workers = sorted({moment.worker for moment in moments}, key=lambda name: (len(name), name))
    holds = [_holds(moment) for moment in moments] if outside else []
    beside = max(map(len, (outside, *holds)), default=0) + len(GAP) if outside else 0
    room = LANES_WIDTH - len(SEEN_BY_ALL) - NUMBER_WIDTH - len(GAP) * (len(workers) + 1) - beside
    rows, before, held = [], "", ""
    for number, moment in enumerate(moments):
        told = filter(None, (moment.point, f"!! {moment.fault}" if moment.fault else ""))
        cell = "\n".join(line for one in told for line in wrapped(one, max(room // max(len(workers), 1), NARROWEST)))
        here = [cell if worker == moment.worker else "" for worker in workers]
        there = [DITTO if holds[number] == held else holds[number]] if outside else []
        rows.append((str(moment.number), *here, DITTO if moment.database == before else moment.database, *there))
        before, held = moment.database, holds[number] if outside else ""
    headers = ("#", *workers, SEEN_BY_ALL, *([outside] if outside else []))
    return TextTable(headers, tuple(rows), left_out.strip(), width=LANES_WIDTH)


def _holds(moment: Moment) -> str:
    """What the other system holds by then."""
    return ", ".join(f"{name} {count}x" for name, count in moment.ledger) or NOTHING
