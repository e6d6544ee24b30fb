"""`recovery-lab matrix`: what becomes of one refund, by crash point, remote and policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

from labkit.explore.matrix import Cell, PauseCell, TwoCrashes, matrix, pause_axis, two_crashes
from labkit.show.heatmap import heatmap, pause_heatmap, two_crash_heatmap

INTRO = """\
One refund at one remote; one worker alive at a time; nobody to ask.
Down: the crossing after which the worker dies, then another carries on. Across: what the remote can do, and the policy.
"""


def run_matrix(
    as_json: bool = False,
    play: Callable[..., tuple[Cell, ...]] = matrix,
    pause: Callable[[], tuple[PauseCell, ...]] = pause_axis,
    twice: Callable[[], tuple[TwoCrashes, ...]] = two_crashes,
) -> int:
    """Play the matrix and print it: as tables, each as soon as it is played, or as JSON for programs.

    Args:
        as_json: print a list of cells and nothing else.
        play: plays cells, as `matrix` does.
        pause: plays the pause axis.
        twice: plays all runs with up to two crashes.
    """
    if as_json:
        print(json.dumps([_plain(cell) for cell in play()], indent=1))
        return 0
    print(INTRO)
    for late, forgotten in product((False, True), repeat=2):
        shown = heatmap(play(late_delivery=[late], key_forgotten=[forgotten]), late, forgotten)
        print(f"{shown.table}\n", flush=True)
    print(f"{pause_heatmap(pause()).table}\n", flush=True)
    print(f"{two_crash_heatmap(twice()).table}\n\n{shown.legend}")
    return 0


def _plain(cell: Cell) -> dict[str, Any]:
    return {**vars(cell), "capsule": json.loads(cell.capsule.to_json())}
