"""One look for all pictures: colours by name, signs beside them, sizes, a light and a dark theme.

Colours are the set of Okabe and Ito (https://jfly.uni-koeln.de/color/), safe for all common kinds of colour
blindness, and never the only sign: names, shapes, line widths and hatches say the same.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from labkit.runs import Verdict
from labkit.states import ENDED_STATES, FINAL_STATES, State

OKABE_ITO: Mapping[str, str] = MappingProxyType(
    {
        "black": "#000000",
        "orange": "#E69F00",
        "sky blue": "#56B4E9",
        "bluish green": "#009E73",
        "yellow": "#F0E442",
        "blue": "#0072B2",
        "vermillion": "#D55E00",
        "reddish purple": "#CC79A7",
    }
)
"""The eight colours by their names, as six-digit hex: Graphviz draws three-digit ones black."""

GREY = "#AAAAAA"
"""For what is over without a result; no hue, so it cannot be mistaken for one of the eight."""

PIXELS_PER_INCH = 96
SHARPNESS = 2
"""Pixels of a picture for each CSS pixel, so that it stays sharp on a dense screen."""

SMALLEST_POINTS = 14.0
TITLE_POINTS = 20.0
FONT = "DejaVu Sans"
"""Comes with matplotlib, so lines break alike on every machine; it has every sign used here."""


@dataclass(frozen=True)
class Mark:
    """How one state or verdict looks: fill and ink as six-digit hex, a sign, an outline.

    `outline` is `single`, `double` (final) or `dashed` (ended, but not final).
    """

    fill: str
    ink: str
    sign: str
    outline: str = "single"


@dataclass(frozen=True)
class Theme:
    """The colours around the marks, as six-digit hex.

    Args:
        paper: the background; always drawn, so that a stored picture is legible on any page.
        ink: text and lines.
        quiet: text that may be skipped; still 4.5:1 against `paper` and `card`.
        card: the background of a label.
        rule: thin lines between cells.
        accent, accent_ink: the fill and the text of what has just happened.
    """

    name: str
    paper: str
    ink: str
    quiet: str
    card: str
    rule: str
    accent: str
    accent_ink: str


LIGHT = Theme("light", "#FFFFFF", "#1A1A1A", "#595959", "#F0F0F0", "#C8C8C8", OKABE_ITO["blue"], "#FFFFFF")
DARK = Theme("dark", "#161616", "#F5F5F5", "#B4B4B4", "#303030", "#5A5A5A", OKABE_ITO["yellow"], "#000000")


def theme(dark: bool = False) -> Theme:
    """The theme for a light or a dark page."""
    return DARK if dark else LIGHT


def luminance(colour: str) -> float:
    """Relative luminance of `#RRGGBB`, from 0 (black) to 1 (white), as WCAG 2.2 defines it."""
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, 1 to 21; WCAG 2.2 level AA asks for 4.5 for text."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def ink_on(fill: str) -> str:
    """Black or white, whichever is the easier to read on `fill`."""
    return max(("#000000", "#FFFFFF"), key=lambda ink: contrast(ink, fill))


def _outline(state: State) -> str:
    if state in FINAL_STATES:
        return "double"
    return "dashed" if state in ENDED_STATES else "single"


_STATES = {
    State.QUEUED: (OKABE_ITO["sky blue"], "○"),
    State.RUNNING: (OKABE_ITO["blue"], "▶"),
    State.UNCERTAIN: (OKABE_ITO["orange"], "?"),
    State.AWAITING_CONFIRMATION: (OKABE_ITO["yellow"], "…"),
    State.SUCCEEDED: (OKABE_ITO["bluish green"], "✓"),
    State.FAILED: (OKABE_ITO["vermillion"], "✗"),
    State.CANCELLED: (GREY, "■"),
    State.COMPENSATED: (OKABE_ITO["reddish purple"], "↺"),
}

_VERDICTS = {
    Verdict.EXACTLY_ONCE: (OKABE_ITO["bluish green"], "✓"),
    Verdict.STOPPED_CLEAN: (OKABE_ITO["sky blue"], "■"),
    Verdict.NEEDS_A_PERSON: (OKABE_ITO["yellow"], "?"),
    Verdict.STUCK: (OKABE_ITO["orange"], "…"),
    Verdict.LOST: (OKABE_ITO["reddish purple"], "○"),
    Verdict.DUPLICATED: (OKABE_ITO["vermillion"], "✗"),
}


def state_mark(state: State) -> Mark:
    """How a state looks in every picture."""
    fill, sign = _STATES[state]
    return Mark(fill, ink_on(fill), sign, _outline(state))


def verdict_mark(verdict: Verdict) -> Mark:
    """How a verdict looks in every picture."""
    fill, sign = _VERDICTS[verdict]
    return Mark(fill, ink_on(fill), sign)


def figure_rc(dark: bool = False) -> dict[str, Any]:
    """Matplotlib settings of a figure in this look, for `matplotlib.rc_context`."""
    look = theme(dark)
    return {
        "font.family": [FONT],
        "font.size": SMALLEST_POINTS,
        "axes.titlesize": TITLE_POINTS,
        "axes.labelsize": SMALLEST_POINTS,
        "xtick.labelsize": SMALLEST_POINTS,
        "ytick.labelsize": SMALLEST_POINTS,
        "legend.fontsize": SMALLEST_POINTS,
        "figure.facecolor": look.paper,
        "savefig.facecolor": look.paper,
        "axes.facecolor": look.paper,
        "axes.edgecolor": look.ink,
        "axes.labelcolor": look.ink,
        "text.color": look.ink,
        "xtick.color": look.ink,
        "ytick.color": look.ink,
        "hatch.linewidth": 1.5,
        "text.parse_math": False,
        "text.usetex": False,
    }


@contextmanager
def figure_style(dark: bool = False) -> Iterator[Theme]:
    """Draw in this look inside a `with` block; matplotlib's global settings come back afterwards."""
    import matplotlib

    settings: Any = figure_rc(dark)
    with matplotlib.rc_context(settings):
        yield theme(dark)


def slim(png: bytes) -> bytes:
    """Rewrite a picture with 128 colours: the eye sees no difference, and notebooks stay a third of the size."""
    from PIL import Image

    written = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        palette = picture.convert("RGB").quantize(128, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        palette.save(written, "PNG")
    return written.getvalue()


def mimebundle(
    text: str, png: bytes | None = None, alt: str = "", width_pixels: int | None = None
) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Data and metadata of a display: `text/plain`, and `image/png` where there is a picture; nothing else.

    Args:
        text: the text twin.
        png: the picture, or None where it could not be drawn.
        alt: what the picture shows, in a sentence or two; nbconvert writes it into the page.
        width_pixels: CSS pixels at natural size; the picture may have more of its own.

    Returns:
        What IPython expects of `_repr_mimebundle_`.
    """
    if png is None:
        return {"text/plain": text}, {}
    details: dict[str, Any] = {"alt": alt}
    if width_pixels is not None:
        details["width"] = width_pixels
    return {"text/plain": text, "image/png": base64.b64encode(png).decode("ascii")}, {"image/png": details}
