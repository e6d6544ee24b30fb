"""What went wrong at which moment of a run: only the list of its choices can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from labkit.explore.choices import Step
from labkit.runs import Moment

WIRE = "wire: "


def with_surprises(moments: Sequence[Moment], places: Sequence[int], steps: Sequence[Step]) -> tuple[Moment, ...]:
    """Mark each moment with what was chosen there, and on the wire in the call that led to it.

    Args:
        moments: one a crossing.
        places: where the choice of each crossing stands among `steps`, counted from 0.
        steps: every choice of the run; it may have ended before the last crossing's was made.
    """
    marked = []
    for moment, place in zip(moments, places, strict=True):
        near = [step for step in steps[max(place - 1, 0) : place] if step.point.startswith(WIRE)]
        chosen = [step.chosen for step in (*near, *steps[place : place + 1]) if step.chosen != step.options[0]]
        marked.append(replace(moment, fault=", ".join(one.replace("_", " ") for one in chosen)))
    return tuple(marked)
