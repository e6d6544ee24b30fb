"""What a search has shown, for people: a short table, and the smallest failure step by step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from labkit.explore.exploration import COUNTED, Exploration, in_order, named
from labkit.explore.replay import Replay
from labkit.runs import Moment, Verdict
from labkit.show.style import mimebundle
from labkit.show.tables import TextTable
from labkit.show.timeline import DITTO, TEXT_WIDTH, Timeline

FIRST_SHOWN, LAST_SHOWN = 24, 8
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
        return Timeline(replace(run, moments=moments, title=f"{run.title}{left_out}"), self.dark)

    def __str__(self) -> str:
        if self.failure is None:
            return str(self.table)
        broke = f"The smallest failure. {self.failure.capsule.law}: {self.failure.capsule.how}"
        story = self.timeline.text if self.timeline is not None else str(lanes(self.failure.moments))
        return "\n\n".join((str(self.table), broke, story))

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


def lanes(run: tuple[Moment, ...]) -> TextTable:
    """A run with a column for each worker, and what everybody can see in the database at every step."""
    moments, left_out = shortened(run)
    workers = sorted({moment.worker for moment in moments}, key=lambda name: (len(name), name))
    rows, before = [], ""
    for moment in moments:
        cell = "\n".join(filter(None, (moment.point, f"!! {moment.fault}" if moment.fault else "")))
        here = [cell if worker == moment.worker else "" for worker in workers]
        rows.append((str(moment.number), *here, DITTO if moment.database == before else moment.database))
        before = moment.database
    return TextTable(("#", *workers, "what the database says"), tuple(rows), left_out.strip(), width=TEXT_WIDTH)
