"""Draws a timeline by matplotlib: a block for as long as a view says the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch
from matplotlib.textpath import text_to_path

from labkit.runs import Run
from labkit.show.style import (
    FONT,
    OKABE_ITO,
    PIXELS_PER_INCH,
    SMALLEST_POINTS,
    TITLE_POINTS,
    Mark,
    Theme,
    figure_style,
    ink_on,
    state_mark,
    verdict_mark,
)
from labkit.show.timeline import VIEWS, WRONG, Row, rows_of

WIDTH = 13.3
"""The width of a projected page. All lengths here are inches, and y goes down."""

EDGE, GAP, PAD, BAR = 0.3, 0.14, 0.11, 0.38
WHERE, CLOCK = 3.2, 1.0
LANES = (2.95, 3.2, 2.93)
STARTS = tuple(EDGE + WHERE + GAP + sum(LANES[:lane]) + GAP * lane for lane in range(3))
LINE, TITLE_LINE = 0.27, 0.4
BASE = 0.72
"""Where the baseline of a line is, as a part of its height."""

BADGE, BADGE_HEIGHT = 3.2, 0.55
FAULT = OKABE_ITO["orange"]
TO_THE_EDGE: dict[str, Any] = {"solid_capstyle": "butt"}
"""Of lines that end where boxes do, and not half their width behind them."""

WRONG_MARK = Mark(OKABE_ITO["vermillion"], ink_on(OKABE_ITO["vermillion"]), "")


@dataclass(frozen=True)
class Line:
    """A line of text that fits its place."""

    text: str
    bold: bool = False


@dataclass(frozen=True)
class Block:
    """What one view says from row `first` to row `last`, both counted from 0; `mark` is the bar at its left."""

    lane: int
    first: int
    last: int
    lines: tuple[Line, ...]
    mark: Mark | None

    @property
    def wrong(self) -> bool:
        """Whether it shows what must not be."""
        return self.mark is WRONG_MARK


def draw_run(run: Run, dark: bool = False, search: str = "", broke: str = "") -> Figure:
    """Draw the three views of a run on a new figure, as high as the run is long.

    Args:
        run: the run.
        dark: for a dark page.
        search: what the search came to that has found it; empty for none.
        broke: the law that it breaks, and how; it is marked as what must not be.
    """
    rows = rows_of(run)
    wheres = [_where(row) for row in rows]
    faults = [_lines(f"⚡ {row.fault}", WHERE - BAR - 2 * PAD, bold=True) if row.fault else [] for row in rows]
    blocks = _blocks(rows)
    title = fitted(run.title, WIDTH - 2 * EDGE - BADGE - GAP, TITLE_POINTS, bold=True)
    heads = [_lines(view, lane - PAD, bold=True) for view, lane in zip(VIEWS, LANES, strict=True)]
    found = _lines(search, WIDTH - 2 * EDGE) if search else []
    wrong = _lines(f"{WRONG}{broke}", WIDTH - 2 * EDGE - 2 * PAD, bold=True) if broke else []
    found_from = EDGE + max(len(title) * TITLE_LINE, BADGE_HEIGHT) + GAP
    wrong_from = found_from + len(found) * LINE + (GAP / 2 if found else 0)
    lanes_from = wrong_from + (len(wrong) * LINE + PAD if wrong else 0) + GAP
    rows_from = lanes_from + max(map(len, heads)) * LINE + GAP
    counts = [len(where) + len(fault) for where, fault in zip(wheres, faults, strict=True)]
    tops = _tops(rows_from, counts, blocks)
    with figure_style(dark) as look:
        paper = _Paper(tops[-1] + EDGE - GAP, look)
        for number, line in enumerate(title):
            paper.write(EDGE, EDGE + 0.05 + number * TITLE_LINE, line, TITLE_POINTS, bold=True, height=TITLE_LINE)
        paper.badge(verdict_mark(run.verdict), run.verdict)
        paper.lines(EDGE, found_from, found)
        if wrong:
            paper.box(EDGE, wrong_from, WIDTH - 2 * EDGE, len(wrong) * LINE + PAD, WRONG_MARK.fill, ec=look.ink, lw=1)
            paper.lines(EDGE + PAD, wrong_from + PAD / 2, wrong, colour=WRONG_MARK.ink)
        for lane, head in enumerate(heads):
            paper.lines(STARTS[lane], lanes_from, head)
        for number, row in enumerate(rows):
            paper.where(row, wheres[number], faults[number], tops[number], tops[number + 1])
        for block in blocks:
            paper.block(block, tops[block.first], tops[block.last + 1] - GAP)
    return paper.figure


def fitted(text: str, room: float, points: float = SMALLEST_POINTS, bold: bool = False) -> list[str]:
    """Break text into lines that fit.

    Args:
        text: one paragraph.
        room: inches that a line may take.
        points: the font size.
        bold: the weight.
    """
    font = FontProperties(family=FONT, size=points, weight="bold" if bold else "normal")

    def fits(line: str) -> bool:
        width: float = text_to_path.get_text_width_height_descent(line, font, ismath=False)[0]
        return width / 72 <= room * 0.97  # pixels round it up a little

    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".strip()
        if fits(joined):
            lines[-1] = joined
            continue
        lines += [""] if lines[-1] else []
        for letter in word:
            if lines[-1] and not fits(lines[-1] + letter):
                lines.append("")
            lines[-1] += letter
    return lines


def _where(row: Row) -> list[Line]:
    worker = _lines(row.worker, WHERE - BAR - CLOCK, bold=True)
    return [*worker, *_lines(row.point, WHERE - BAR)] if row.point else worker


def _blocks(rows: tuple[Row, ...]) -> list[Block]:
    blocks = []
    for lane in range(len(VIEWS)):
        starts = [number for number, row in enumerate(rows) if row.views[lane] is not None]
        for first, after in zip(starts, [*starts[1:], len(rows)], strict=True):
            said = rows[first].views[lane] or ()
            mark = _mark(rows[first], lane, said)
            room = LANES[lane] - 2 * PAD - (BAR if mark else 0)
            lines = [line for text in said for line in _lines(text, room, _loud(text, lane, said))]
            blocks += [Block(lane, first, after - 1, tuple(lines), mark)] if lines else []
    return blocks


def _loud(text: str, lane: int, said: tuple[str, ...]) -> bool:
    return text.startswith(WRONG) or (lane == 1 and text == said[0])


def _lines(text: str, room: float, bold: bool = False) -> list[Line]:
    return [Line(line, bold) for line in fitted(text, room, bold=bold)]


def _mark(row: Row, lane: int, said: tuple[str, ...]) -> Mark | None:
    if lane == 1:
        return None if row.state is None else state_mark(row.state)
    return WRONG_MARK if lane == 2 and any(line.startswith(WRONG) for line in said) else None


def _tops(start: float, counts: list[int], blocks: list[Block]) -> list[float]:
    """The upper end of each row, and the end of the last one; each block gets the room its lines need."""
    heights = [count * LINE + 2 * PAD + GAP for count in counts]
    for block in sorted(blocks, key=lambda block: block.last):
        room = sum(heights[block.first : block.last + 1])
        heights[block.last] += max(0.0, len(block.lines) * LINE + 2 * PAD + GAP - room)
    return [start + sum(heights[:number]) for number in range(len(heights) + 1)]


class _Paper:
    """A page in inches, y down."""

    def __init__(self, height: float, look: Theme) -> None:
        self.look = look
        self.figure = Figure(figsize=(WIDTH, height), dpi=PIXELS_PER_INCH)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, WIDTH), ylim=(height, 0))
        self.axes.set_axis_off()

    def write(
        self,
        x: float,
        y: float,
        text: str,
        points: float = SMALLEST_POINTS,
        *,
        bold: bool = False,
        colour: str = "",
        height: float = LINE,
        align: str = "left",
    ) -> None:
        font: dict[str, Any] = {
            "size": points,
            "weight": "bold" if bold else "normal",
            "color": colour or self.look.ink,
        }
        self.axes.text(x, y + height * BASE, text, ha=align, va="baseline", zorder=3, **font)

    def lines(self, x: float, y: float, lines: Sequence[Line], colour: str = "") -> None:
        for number, line in enumerate(lines):
            self.write(x, y + number * LINE, line.text, bold=line.bold, colour=colour)

    def box(self, x: float, y: float, width: float, height: float, fill: str, **look: Any) -> None:
        corner = "round,pad=0,rounding_size=0.07"
        shown: dict[str, Any] = {"ec": "none", "zorder": 1} | look
        self.axes.add_patch(FancyBboxPatch((x, y), width, height, corner, fc=fill, **shown))

    def badge(self, mark: Mark, words: str) -> None:
        x, height = WIDTH - EDGE - BADGE, BADGE_HEIGHT
        self.box(x, EDGE, BADGE, height, mark.fill, ec=self.look.ink, lw=2)
        font: dict[str, Any] = {"size": TITLE_POINTS, "weight": "bold", "color": mark.ink}
        middle: dict[str, Any] = {"ha": "center", "va": "center"}
        self.axes.text(x + BADGE / 2, EDGE + height / 2, f"{mark.sign} {words}", zorder=3, **middle, **font)

    def where(self, row: Row, lines: list[Line], fault: list[Line], top: float, bottom: float) -> None:
        if row.switched:
            whole = [EDGE, WIDTH - EDGE]
            self.axes.plot(whole, [top - GAP / 2] * 2, color=self.look.quiet, lw=2, zorder=0, **TO_THE_EDGE)
        self.write(EDGE + BAR - PAD, top + PAD, row.number, colour=self.look.quiet, align="right")
        self.write(EDGE + WHERE, top + PAD, row.clock, colour=self.look.quiet, align="right")
        self.lines(EDGE + BAR, top + PAD, lines)
        if fault:
            under, height = top + PAD + len(lines) * LINE + GAP / 4, len(fault) * LINE
            self.box(EDGE + BAR, under, WHERE - BAR, height, FAULT, ec=self.look.ink, lw=1)
            self.lines(EDGE + BAR + PAD, under, fault, colour=ink_on(FAULT))
        if row.died:
            memory = [EDGE, STARTS[0] + LANES[0]]
            self.axes.plot(memory, [bottom - GAP / 2] * 2, color=FAULT, lw=6, zorder=0.5, **TO_THE_EDGE)

    def block(self, block: Block, top: float, bottom: float) -> None:
        x, width = STARTS[block.lane], LANES[block.lane]
        fill, ink = (WRONG_MARK.fill, WRONG_MARK.ink) if block.wrong else (self.look.card, self.look.ink)
        self.box(x, top, width, bottom - top, fill, ec=self.look.ink if block.wrong else self.look.rule, lw=1)
        if block.mark:
            hatch = {"hatch": "////", "ec": block.mark.ink, "lw": 0} if block.wrong else {}
            self.box(x, top, BAR, bottom - top, block.mark.fill, zorder=2, **hatch)
            self.write(x + BAR / 2, top + PAD, block.mark.sign, bold=True, colour=block.mark.ink, align="center")
        self.lines(x + (BAR if block.mark else 0) + PAD, top + PAD, block.lines, colour=ink)
