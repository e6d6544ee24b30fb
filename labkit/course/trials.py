"""What trying an answer came to, as plain data that can leave the process it was tried in."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Trial:
    """The result of trying one answer.

    Args:
        passed: nothing broke.
        tried: how many runs there were.
        faults: how many faults of each kind really happened in them.
        broke: which law the smallest failing run broke, in a sentence; empty where none did.
        story: that run's three views, a line a crossing.
        shown: what a pass has shown, within which bounds.
    """

    passed: bool
    tried: int
    faults: dict[str, int] = field(default_factory=dict)
    broke: str = ""
    story: tuple[str, ...] = ()
    shown: str = ""
