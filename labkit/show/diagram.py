"""The state diagram, drawn from the one table of transitions by Graphviz.

States are boxes. Events are cards: on the line they take, or inside the box of a state they do not leave.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from html import escape
from typing import Any

import graphviz

from labkit.errors import InvalidInput
from labkit.show.renderer import Hint, NoRenderer, Renderer, draw, renderer
from labkit.show.style import (
    PIXELS_PER_INCH,
    SHARPNESS,
    SMALLEST_POINTS,
    TITLE_POINTS,
    Theme,
    mimebundle,
    slim,
    state_mark,
    theme,
)
from labkit.show.tables import WIDTH, wrapped
from labkit.states import ENDED_STATES, FINAL_STATES, TRANSITIONS, State, Transition, up_to_lesson
from labkit.values import known

__all__ = ["Diagram", "NoRenderer", "Renderer", "renderer", "state_diagram"]

EVENT_POINTS = 16
CARD_COLUMNS = 28
BARE = 'border="0" cellpadding="3"'
STEPS = {state: number for number, state in enumerate(State)}
HINT = Hint("(No picture: no Graphviz found; `pip install graphviz-pure` brings it. The text says it too.)")

Last = Transition | tuple[str, str, str]


@dataclass(frozen=True)
class Diagram:
    """A state diagram: `dot` is its source, `text` its text twin, `alt` a sentence for who cannot see it.

    `renderer` draws it, or the first that is found; where there is none, `hint` is added to the text, once.
    """

    dot: str
    text: str
    alt: str
    renderer: Renderer | None = None
    hint: Hint = field(default=HINT, compare=False, repr=False)

    def __str__(self) -> str:
        return self.text

    def png(self) -> bytes:
        """The picture at twice its natural size in CSS pixels. Raises `NoRenderer` where nothing can draw."""
        return slim(draw(self.dot, ["-Tpng", f"-Gdpi={PIXELS_PER_INCH * SHARPNESS}"], self.renderer))

    def svg(self) -> str:
        """One `<svg>` element for a panel, with the alt text. Raises `NoRenderer` where nothing can draw."""
        drawn = draw(self.dot, ["-Tsvg"], self.renderer).decode("utf-8")
        start = drawn.index("<svg")
        return f'<svg role="img" aria-label="{escape(self.alt)}"' + drawn[start + len("<svg") :].rstrip()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        try:
            png = self.png()
        except NoRenderer:
            hint = self.hint.take()
            return mimebundle(f"{self.text}\n\n{hint}" if hint else self.text)
        return mimebundle(self.text, png, self.alt, int.from_bytes(png[16:20]) // SHARPNESS)


def state_diagram(
    lesson: int | None = None,
    current: State | str | None = None,
    last: Last | None = None,
    dark: bool = False,
    conditions: bool | None = None,
    renderer: Renderer | None = None,
    edges: Collection[Transition] | None = None,
) -> Diagram:
    """Draw the table of transitions, with the current state and the last event marked.

    Args:
        lesson: show what the notebooks up to this number have shown; None shows everything.
        current: the state to mark as the present one; drawn even where the lesson has not shown it.
        last: the edge just taken, or its event, source and target; drawn even where the lesson has not.
        dark: for a dark page.
        conditions: write each edge's conditions on its card; by default only in the picture of lesson 0, as
            the whole table takes a page of small cards. The text twin leaves them out where this is False.
        renderer: the program that draws; by default the first that `renderer()` finds.
        edges: these alone, of the table, in place of those of a lesson.

    Raises:
        InvalidInput: where `current` is no state, or `last` no edge of the table.
    """
    now = None if current is None else known(State, current)
    taken = None if last is None else _edge(last)
    shown = edges if edges is not None else TRANSITIONS if lesson is None else up_to_lesson(lesson)
    drawn = tuple(edge for edge in TRANSITIONS if edge in shown or edge == taken)
    present = {State.QUEUED, now, *(end for edge in drawn for end in (edge.source, edge.target))}
    states = tuple(state for state in State if state in present)
    wordy = lesson == 0 if conditions is None else conditions
    drawing = _Drawing(drawn, states, now, taken, theme(dark), wordy, conditions is not False)
    alt = f"State diagram of {len(states)} states and {len(drawn)} transitions."
    alt += f" Now: {now}." if now else ""
    alt += f" Last event: {taken.event}, from {taken.source} to {taken.target}." if taken else ""
    return Diagram(drawing.dot(), drawing.text(), alt, renderer)


def _edge(last: Last) -> Transition:
    wanted = (last.event, last.source, last.target) if isinstance(last, Transition) else tuple(last)
    for edge in TRANSITIONS:
        if (edge.event, edge.source, edge.target) == wanted:
            return edge
    raise InvalidInput("an edge of the table of transitions", last)


@dataclass(frozen=True)
class _Drawing:
    edges: tuple[Transition, ...]
    states: tuple[State, ...]
    current: State | None
    taken: Transition | None
    look: Theme
    conditions: bool
    told: bool
    """Whether the text has the conditions."""

    def between(self, source: State, target: State) -> list[Transition]:
        return [edge for edge in self.edges if (edge.source, edge.target) == (source, target)]

    def text(self) -> str:
        lines = []
        for state in self.states:
            lines += ["", self._headline(state)]
            for edge in (edge for edge in self.edges if edge.source is state):
                mark = "last>" if edge == self.taken else ""
                lines.append(f"{mark:>6} {edge.event:<14} -> {edge.target}")
                conditions = wrapped(f"if {edge.condition}", WIDTH - 11) if self.told else ()
                lines += [" " * 11 + line for line in conditions]
        return "\n".join(lines[1:])

    def _headline(self, state: State) -> str:
        words = [word for word in ("start" if state is State.QUEUED else "", _end(state)) if word]
        words += ["NOW"] if state is self.current else []
        return f"[{state}]" + (f"  ({', '.join(words)})" if words else "")

    def dot(self) -> str:
        graph = graphviz.Digraph("states")
        graph.attr(rankdir="LR", bgcolor=self.look.paper, pad="0.25", nodesep="0.3", ranksep="0.35")
        words = {"fontname": "Arial", "fontsize": f"{SMALLEST_POINTS:g}", "fontcolor": self.look.ink}
        graph.attr("node", shape="box", color=self.look.ink, penwidth="2", **words)
        graph.attr("edge", color=self.look.ink, penwidth="2", **words)
        dot = {"shape": "circle", "width": "0.2", "style": "filled", "fillcolor": self.look.ink}
        graph.node("start", label="", tooltip="start", **dot)
        graph.edge("start", State.QUEUED.value)
        for state in self.states:
            self._box(graph, state)
        for source in self.states:
            for target in self.states:
                if source is not target:
                    self._line(graph, source, target)
        return str(graph.source)

    def _box(self, graph: graphviz.Digraph, state: State) -> None:
        mark, stays = state_mark(state), self.between(state, state)
        now = state is self.current
        words = [word for word in ("now" if now else "", _end(state)) if word]
        title = _font(state, TITLE_POINTS, mark.ink, bold=True)
        title += f"<br/>{_font(', '.join(words), SMALLEST_POINTS, mark.ink)}" if words else ""
        cells = [title, self._card(stays)] if stays else [title]
        graph.node(
            state.value,
            label=f"<{_table(cells, BARE, 'center')}>",
            style="rounded,filled" + (",dashed" if mark.outline == "dashed" else ""),
            fillcolor=mark.fill,
            peripheries="2" if mark.outline == "double" else "1",
            penwidth="7" if now else "2",
            tooltip="\\n".join([state, *map(_sentence, stays)]),
        )

    def _line(self, graph: graphviz.Digraph, source: State, target: State) -> None:
        edges = self.between(source, target)
        if not edges:
            return
        card, width = f"{source} -> {target}", {}
        if self.taken in edges:
            width = {"penwidth": "6", "color": self.look.accent}
        hover = "\\n".join(map(_sentence, edges))
        graph.node(card, label=f"<{self._card(edges)}>", shape="plain", tooltip=hover)
        if STEPS[target] > STEPS[source]:
            graph.edge(source.value, card, dir="none", **width)
            graph.edge(card, target.value, **width)
        else:  # drawn from its end, so that its card lies between the two and not beyond them
            graph.edge(target.value, card, dir="back", **width)
            graph.edge(card, source.value, dir="none", **width)

    def _card(self, edges: list[Transition]) -> str:
        cells = []
        for edge in edges:
            taken = edge == self.taken
            ink = self.look.accent_ink if taken else self.look.ink
            listed = _listed(edge) if self.conditions else []
            lines = [_font(f"last: {edge.event}" if taken else edge.event, EVENT_POINTS, ink, bold=True)]
            lines += [_font(line, SMALLEST_POINTS, ink) for line in listed]
            cell = "".join(f'{line}<br align="left"/>' for line in lines)
            cells.append(_rounded([cell], self.look.accent, self.look.accent) if taken else cell)
        return _rounded(cells, self.look.card, self.look.quiet)


def _listed(edge: Transition) -> list[str]:
    lines = []
    for condition in edge.requires:
        whole = re.sub(r"\(.*?\)", lambda found: found[0].replace(" ", "\u00a0"), condition)
        first, *rest = wrapped(whole, CARD_COLUMNS)
        lines += [f"· {first}", *(f"\u2002{line}" for line in rest)]
    return lines


def _end(state: State) -> str:
    if state in FINAL_STATES:
        return "final"
    return "ended" if state in ENDED_STATES else ""


def _sentence(edge: Transition) -> str:
    return f"{edge.event}: {edge.condition}"


def _font(text: str, points: float, colour: str, bold: bool = False) -> str:
    inner = f"<b>{escape(text)}</b>" if bold else escape(text)
    return f'<font point-size="{points:g}" color="{colour}">{inner}</font>'


def _rounded(cells: list[str], fill: str, line: str) -> str:
    return _table(cells, f'style="rounded" border="1" color="{line}" bgcolor="{fill}" cellpadding="4"', "left")


def _table(cells: list[str], look: str, align: str) -> str:
    rows = "".join(f'<tr><td align="{align}" balign="{align}">{cell}</td></tr>' for cell in cells)
    return f'<table {look} cellborder="0" cellspacing="0">{rows}</table>'
