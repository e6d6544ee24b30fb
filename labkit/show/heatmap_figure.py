"""Draws a heatmap by matplotlib: a coloured cell with a sign for every verdict, and a legend."""

from __future__ import annotations

from itertools import product
from typing import Any

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.textpath import text_to_path

from labkit.runs import Verdict
from labkit.show.heatmap import NEVER, Heatmap
from labkit.show.style import (
    FONT,
    PIXELS_PER_INCH,
    SMALLEST_POINTS,
    TITLE_POINTS,
    Theme,
    figure_style,
    verdict_mark,
)
from labkit.show.tables import wrapped

EDGE, GAP, CELL, LABEL, LINE = 0.3, 0.16, 0.36, 1.75, 0.28
WIDEST_CELL = 0.8
WIDTH = 13.3
"""The width of a projected page. All lengths of the picture are inches, and y goes down."""


def draw_heatmap(shown: Heatmap) -> Figure:
    """Draw verdicts in a grid on a new figure, as high as it has rows."""
    with figure_style(shown.dark) as look:
        return _Paper(shown, look).figure


def _wide(text: str) -> float:
    font = FontProperties(family=FONT, size=SMALLEST_POINTS)
    width: float = text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]
    return width / 72


class _Paper:
    """A page in inches, y down."""

    def __init__(self, shown: Heatmap, look: Theme) -> None:
        self.shown, self.look = shown, look
        self.labels = [wrapped(row, 18) for row in shown.rows]
        heads = EDGE + 0.64 + LINE + max(map(_wide, shown.columns), default=0.0)
        self.tops = [heads]
        for label in self.labels:
            self.tops.append(self.tops[-1] + max(CELL, len(label) * LINE + 0.08))
        height = self.tops[-1] + GAP + 2 * (CELL + 0.06) + EDGE
        self.figure = Figure(figsize=(WIDTH, height), dpi=PIXELS_PER_INCH)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, WIDTH), ylim=(height, 0))
        self.axes.set_axis_off()
        self.margin = EDGE + (LABEL if max(map(len, shown.rows), default=0) <= 12 else 2.3)
        self.write(EDGE, EDGE + 0.2, shown.title, size=TITLE_POINTS, weight="bold")
        for row, label in enumerate(self.labels):
            first = (self.tops[row] + self.tops[row + 1] - (len(label) - 1) * LINE) / 2
            for number, line in enumerate(label):
                self.write(EDGE, first + number * LINE + 0.07, line, va="baseline")
        self.groups()
        self.legend()

    def write(self, x: float, y: float, text: str, **font: Any) -> None:
        look: dict[str, Any] = {"size": SMALLEST_POINTS, "color": self.look.ink, "ha": "left", "va": "center"}
        self.axes.text(x, y, text, **(look | font))

    def groups(self) -> None:
        """Draw the cells of every group, and the names above them."""
        shown, count = self.shown, max(len(self.shown.groups), 1)
        wide = (WIDTH - EDGE - self.margin - GAP * (count - 1)) / count
        step = min(wide / max(len(shown.columns), 1), WIDEST_CELL)
        wide = step * len(shown.columns)
        for number, group in enumerate(shown.groups):
            start = self.margin + number * (wide + GAP)
            self.write(start + wide / 2, EDGE + 0.62, group, ha="center", weight="bold")
            for place, column in enumerate(shown.columns):
                x = start + (place + 0.5) * step
                self.write(x, self.tops[0] - 0.08, column, ha="center", va="bottom", rotation=90)
            for (row, label), (place, column) in product(enumerate(shown.rows), enumerate(shown.columns)):
                x, y, height = start + place * step, self.tops[row], self.tops[row + 1] - self.tops[row]
                self.cell(x, y, step, height, shown.verdicts.get((label, group, column)))

    def cell(self, x: float, y: float, width: float, height: float, verdict: Verdict | None) -> None:
        mark = None if verdict is None else verdict_mark(verdict)
        fill, ink, sign = (mark.fill, mark.ink, mark.sign) if mark else (self.look.card, self.look.quiet, "·")
        self.axes.add_artist(Rectangle((x, y), width, height, fc=fill, ec=self.look.paper, lw=2))
        self.write(x + width / 2, y + height / 2, sign, ha="center", color=ink, weight="bold")

    def legend(self) -> None:
        """Draw every verdict with its sign and its name."""
        entries: list[tuple[Verdict | None, str]] = [(one, one.value) for one in Verdict]
        entries += [(None, NEVER)] if self.shown.has_gaps else []
        top = self.tops[-1] + GAP + 0.06
        for number, (verdict, name) in enumerate(entries):
            x, y = EDGE + (number % 4) * 3.15, top + (number // 4) * (CELL + 0.06)
            self.cell(x, y, CELL, CELL, verdict)
            self.write(x + CELL + 0.12, y + CELL / 2 + 0.07, name, va="baseline")
