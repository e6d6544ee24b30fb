"""What all pictures drawn by matplotlib share: PNG at the right size, and a display with a text twin and alt text."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from labkit.show.style import PIXELS_PER_INCH, SHARPNESS, figure_style, mimebundle, slim

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Picture(ABC):
    """A picture to look at: `figure()` draws it, `text` is its twin, `alt` a sentence for who cannot see it."""

    dark: bool

    @property
    @abstractmethod
    def text(self) -> str:
        """The same in words."""

    @property
    @abstractmethod
    def alt(self) -> str:
        """What the picture shows, in a sentence or two."""

    @abstractmethod
    def figure(self) -> Figure:
        """Draw the picture on a figure of its own; no pyplot state is touched."""

    def __str__(self) -> str:
        return self.text

    def png(self) -> bytes:
        """The picture at twice its natural size in CSS pixels."""
        written = io.BytesIO()
        with figure_style(self.dark):
            self.figure().savefig(written, format="png", dpi=PIXELS_PER_INCH * SHARPNESS)
        return slim(written.getvalue())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        png = self.png()
        return mimebundle(self.text, png, self.alt, int.from_bytes(png[16:20]) // SHARPNESS)
