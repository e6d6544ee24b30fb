"""What trying an answer came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from labkit.show.tables import TextTable

WIDTH = 102
"""Characters a line of a story."""


@dataclass(frozen=True)
class Trial:
    """The result of trying one answer.

    Args:
        passed: nothing broke.
        tried: how many runs there were.
        faults: how many faults of each kind really happened in them.
        shown: what a pass has shown, within which bounds: a sentence for each situation.
        run: which run is the smallest failing one, in a sentence; empty where none failed.
        story: that run in its three views.
        law: the name of the law that it broke.
        broke: that law in words, and what can be seen of it.
        hint: where to look.
        capsule: that run as JSON, where it can be played again.
        picture: something to look at, whether or not it passed; None for nothing.
    """

    passed: bool
    tried: int
    faults: dict[str, int] = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    run: str = ""
    story: TextTable | None = None
    law: str = ""
    broke: str = ""
    hint: str = ""
    capsule: str = ""
    picture: Any = None
