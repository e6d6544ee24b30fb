"""Draws waits by matplotlib: a line for each worker, a mark for each attempt, an axis of seconds."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from labkit.show.style import OKABE_ITO, PIXELS_PER_INCH, SMALLEST_POINTS, TITLE_POINTS, Theme, figure_style
from labkit.show.tables import wrapped
from labkit.show.waits import Waits

WIDTH, EDGE, LABEL, LANE, HEAD, FOOT = 13.3, 0.3, 3.6, 0.5, 0.85, 0.85
"""Inches; the width is that of a projected page."""
LABEL_LETTERS = 30
ROOM = 1.04
"""The axis goes on for a little behind the last mark."""


def draw_waits(shown: Waits) -> Figure:
    """Draw attempts in time on a new figure, as high as it has lines."""
    with figure_style(shown.dark) as look:
        height = HEAD + LANE * len(shown.lines) + FOOT
        figure = Figure(figsize=(WIDTH, height), dpi=PIXELS_PER_INCH)
        figure.text(EDGE / WIDTH, 1 - EDGE / height, shown.title, size=TITLE_POINTS, weight="bold", va="top")
        axes = figure.add_axes(
            (LABEL / WIDTH, FOOT / height, (WIDTH - LABEL - 2 * EDGE) / WIDTH, LANE * len(shown.lines) / height)
        )
        _frame(axes, shown, look)
        for lane, times in enumerate(shown.lines.values()):
            axes.plot([times[0], times[-1]], [lane, lane], color=look.rule, lw=3, zorder=1)
            axes.scatter(times, [lane] * len(times), s=170, color=look.accent, ec=look.paper, lw=1.5, zorder=3)
        if shown.until is not None:
            _budget(axes, shown.until, look)
        return figure


def _frame(axes: Any, shown: Waits, look: Theme) -> None:
    last = max([time for times in shown.lines.values() for time in times] + [shown.until or 0.0, 1.0])
    axes.set_xlim(-0.02 * last, ROOM * last)
    axes.set_ylim(len(shown.lines) - 0.5, -0.5)
    labels = ["\n".join(wrapped(name, LABEL_LETTERS)) for name in shown.lines]
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=look.rule, lw=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("seconds", size=SMALLEST_POINTS)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _budget(axes: Any, until: float, look: Theme) -> None:
    colour = OKABE_ITO["orange"] if look.name == "dark" else OKABE_ITO["vermillion"]
    axes.axvline(until, color=colour, lw=3, ls="--", zorder=2)
    axes.annotate(
        "the budget ends",
        (until, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right" if 2 * until > axes.get_xlim()[1] else "left",
        va="bottom",
        size=SMALLEST_POINTS,
    )
