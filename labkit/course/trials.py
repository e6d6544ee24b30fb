"""What trying an answer came to."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Trial:
    """The result of trying one answer.

    Args:
        passed: nothing broke.
        tried: how many runs there were.
        faults: how many faults of each kind really happened in them.
        shown: what a pass has shown, within which bounds.
        run: which run is the smallest failing one, in a sentence; empty where none failed.
        story: that run in its three views, as lines of text.
        broke: the law that it broke, and what can be seen of that.
        hint: where to look.
    """

    passed: bool
    tried: int
    faults: dict[str, int] = field(default_factory=dict)
    shown: str = ""
    run: str = ""
    story: tuple[str, ...] = ()
    broke: str = ""
    hint: str = ""
