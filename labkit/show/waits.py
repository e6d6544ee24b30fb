"""Attempts in time: a line for each worker, a mark where an attempt begins, and where the budget of time ends.

The text twin says when every attempt begins, and needs no matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from labkit.show.picture import Picture
from labkit.show.tables import TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Waits(Picture):
    """When attempts begin.

    Args:
        title: one line.
        lines: for each worker or plan, when its attempts begin: seconds from 0 on, in order.
        until: when the budget of time ends, in seconds; None where it is not shown.
        dark: for a dark page.
    """

    title: str
    lines: Mapping[str, Sequence[float]]
    until: float | None = None
    dark: bool = False

    @property
    def text(self) -> str:
        """The same as a table: when each attempt begins, and the waits between them, in seconds."""
        rows = tuple(
            (name, _seconds(times), _seconds([later - earlier for earlier, later in pairwise(times)]) or "-")
            for name, times in self.lines.items()
        )
        end = "" if self.until is None else f"\n\nthe budget of time ends at {self.until:g} s"
        table = TextTable(("", "attempts begin at, in seconds", "waits between them"), rows, title=self.title)
        return f"{table}{end}"

    @property
    def alt(self) -> str:
        """What the picture shows, in a sentence or two."""
        said = "; ".join(f"{name}: {_seconds(times)}" for name, times in self.lines.items())
        end = "" if self.until is None else f" The budget of time ends at {self.until:g}."
        return f"Attempts on a line of time, in seconds: {self.title}. {said}.{end}"

    def figure(self) -> Figure:
        """Draw the picture on a figure of its own; no pyplot state is touched."""
        from labkit.show.waits_figure import draw_waits

        return draw_waits(self)


def _seconds(times: Sequence[float]) -> str:
    return ", ".join(f"{round(time, 1):g}" for time in times)
