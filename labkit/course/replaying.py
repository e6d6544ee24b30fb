"""The run of a capsule as a picture, where the lab alone can play it again."""

from __future__ import annotations

from labkit.errors import LabError
from labkit.explore.capsule import Capsule
from labkit.explore.replay import replay
from labkit.show.timeline import Timeline, timeline


def timeline_of(capsule: str) -> Timeline | None:
    """Play a capsule of the lab's own worker again and return its timeline.

    Args:
        capsule: JSON from anywhere; nothing in it is executed.

    Returns:
        None where there is nothing to play, or it takes code that a capsule cannot hold.
    """
    try:
        run = replay(Capsule.from_json(capsule)).run
    except LabError:
        return None
    return None if run is None else timeline(run)
