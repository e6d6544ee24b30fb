"""The matrix as a picture: crash points down, remotes and policies across, a colour and a sign for each verdict.

The text twin says the same in two letters a cell, and needs no matplotlib.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit.explore.matrix import Cell, PauseCell, TwoCrashes
from labkit.policies import POLICIES
from labkit.runs import Verdict
from labkit.show.picture import Picture
from labkit.show.tables import wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CODES: Mapping[Verdict, str] = {
    Verdict.EXACTLY_ONCE: "ok",
    Verdict.STOPPED_CLEAN: "cl",
    Verdict.NEEDS_A_PERSON: "??",
    Verdict.STUCK: "st",
    Verdict.LOST: "LO",
    Verdict.DUPLICATED: "2x",
}
"""A verdict in two letters; capitals and figures are the harmful ones."""

NOT_REACHED, NEVER = "..", "never gets there"
TEXT_WIDTH = 118
CROSSINGS = ("none", "start", "claim", "say", "intend", "send", "lose_track", "query", "settle", "ask", "checkpoint")
"""Crash points in the order in which a worker comes to them; any other stands below."""


@dataclass(frozen=True)
class Heatmap(Picture):
    """Verdicts in a grid: rows, and columns in groups.

    Args:
        title: one line.
        rows: labels, from top to bottom.
        groups: labels of the groups, from left to right.
        columns: labels of the columns within each group.
        verdicts: by row, group and column; one that is missing was never reached.
        dark: for a dark page.
    """

    title: str
    rows: tuple[str, ...]
    groups: tuple[str, ...]
    columns: tuple[str, ...]
    verdicts: Mapping[tuple[str, str, str], Verdict]
    dark: bool = False

    @property
    def text(self) -> str:
        """The same in two letters a cell, with a legend."""
        return f"{self.table}\n\n{self.legend}"

    @property
    def table(self) -> str:
        """Title and grid, two letters a cell."""
        wide = 3 * len(self.columns) - 1
        room = max(TEXT_WIDTH - len(self.groups) * (wide + 3), 12)
        labels = [wrapped(row, room) for row in self.rows]
        margin = max((len(line) for lines in labels for line in lines), default=0)
        heads = ((group.center(wide) for group in self.groups), (" ".join(map(initials, self.columns)),) * 9)
        lines = [self.title, ""]
        lines += ["   ".join((" " * margin, *list(head)[: len(self.groups)])).rstrip() for head in heads]
        for row, label in zip(self.rows, labels, strict=True):
            cells = (" ".join(self._code(row, group, column) for column in self.columns) for group in self.groups)
            lines.append("   ".join((label[0].ljust(margin), *cells)))
            lines += label[1:]
        return "\n".join(lines)

    @property
    def legend(self) -> str:
        """What the letters stand for."""
        signs = [f"{code} {verdict}" for verdict, code in CODES.items()]
        signs += [f"{NOT_REACHED} {NEVER}"] if self.has_gaps else []
        policies = [f"{initials(column)} {column}" for column in self.columns]
        return "\n".join(line for entries in (signs, policies) for line in _joined(entries))

    @property
    def alt(self) -> str:
        """What the picture shows, in a sentence or two."""
        found = list(self.verdicts.values())
        counts = ", ".join(f"{found.count(one)} {one}" for one in Verdict if one in found)
        shape = f"{len(self.rows)} rows, {len(self.groups)} remotes, {len(self.columns)} policies"
        return f"Heatmap: {self.title}. {shape}. Verdicts: {counts}."

    def figure(self) -> Figure:
        """Draw the picture on a figure of its own; no pyplot state is touched."""
        from labkit.show.heatmap_figure import draw_heatmap

        return draw_heatmap(self)

    def _code(self, *place: str) -> str:
        row, group, column = place
        verdict = self.verdicts.get((row, group, column))
        return NOT_REACHED if verdict is None else CODES[verdict]

    @property
    def has_gaps(self) -> bool:
        """Whether some row is not reached in some column."""
        return len(self.verdicts) < len(self.rows) * len(self.groups) * len(self.columns)


def _joined(entries: list[str]) -> list[str]:
    """Put entries on lines without breaking one."""
    whole = [entry.replace(" ", "\N{NO-BREAK SPACE}") for entry in entries]
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in wrapped("   ".join(whole), TEXT_WIDTH)]


def initials(policy: str) -> str:
    """A policy's name in two letters: of its first word and of its last."""
    words = policy.split("_")
    return words[0][0] + words[-1][0]


def heatmap(
    cells: Iterable[Cell], late_delivery: bool = False, key_forgotten: bool = False, dark: bool = False
) -> Heatmap:
    """Show the matrix in one position of its two switches.

    Args:
        cells: of `labkit.explore.matrix.matrix`.
        late_delivery: whether the first sending of all arrives late.
        key_forgotten: whether the remote forgets keys before anybody recovers.
        dark: for a dark page.
    """
    shown = [one for one in cells if (one.late_delivery, one.key_forgotten) == (late_delivery, key_forgotten)]
    late = "the first sending arrives late" if late_delivery else "nothing arrives late"
    title = f"One crash: {late}, keys are {'soon forgotten' if key_forgotten else 'remembered'}"
    found = {(_row(one.crash_point), one.capability, one.policy): one.verdict for one in shown}
    return _grid(title, found, dark)


def pause_heatmap(cells: Iterable[PauseCell], dark: bool = False) -> Heatmap:
    """Show the pause axis: a sender that is not dead, and not there."""
    found = {(one.pause, one.capability, one.policy): one.verdict for one in cells}
    return _grid("A paused sender: nothing crashes, nothing arrives late", found, dark)


def two_crash_heatmap(found: Iterable[TwoCrashes], dark: bool = False) -> Heatmap:
    """Show the worst that each policy comes to at each remote with up to two crashes, wherever they are."""
    worst = {("worst of all runs", one.capability, one.policy): one.worst for one in found}
    return _grid("Up to two crashes, anywhere: nothing arrives late, keys are remembered", worst, dark)


def _row(crash_point: str) -> str:
    return crash_point.partition(" ")[0]


def _grid(title: str, found: Mapping[tuple[str, str, str], Verdict], dark: bool) -> Heatmap:
    rows, groups, columns = (tuple(dict.fromkeys(place[axis] for place in found)) for axis in range(3))
    order = {name: number for number, name in enumerate(CROSSINGS)}
    rows = tuple(sorted(rows, key=lambda row: order.get(row, len(order))))
    columns = tuple(policy for policy in POLICIES if policy in columns)
    return Heatmap(title, rows, groups, columns, found, dark)
