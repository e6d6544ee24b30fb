"""`recovery-lab drill`: somebody's own recovery code against real kills."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from labkit.cli.serve import drawn, rates_of
from labkit.errors import LabError
from labkit.policies import POLICIES
from labkit.real.kills import BAD, Found, Tally, kill_at_random
from labkit.real.service import Arrange
from labkit.real.setting import Fate, Fates
from labkit.seams import Call

MOST_SHOWN = 3


def network_of(arrange: Arrange) -> Fates:
    """Return what becomes of each call of a drill, as a service would arrange it."""

    def network(call: Call) -> Fate:
        arranged = arrange(call)
        return arranged.refusal or arranged.delivery

    return network


def run_drill(
    program: str,
    kills: int,
    seed: int,
    steps: int,
    faults: Sequence[str] = (),
    play: Callable[..., Tally] = kill_at_random,
) -> int:
    """Kill a program's workers again and again, and tell what the ledgers show.

    Args:
        program: a file that defines `recover(task_id, store, remotes)`, or the name of one of the lab's policies.
        kills: how many.
        seed: of the draws.
        steps: how many of the three operations.
        faults: what becomes of calls beside that, as for `recovery-lab serve`.
        play: plays the runs, as `kill_at_random` does.

    Returns:
        0 if no work was lost, doubled or stuck, 1 if some was, 2 if the drill could not be held.
    """
    shown = 0

    def tell(found: Found) -> None:
        nonlocal shown
        if found.verdict in BAD and shown < MOST_SHOWN:
            shown += 1
            print(f"  {found}", flush=True)

    print(f"{program}: workers are real processes, the remotes are behind HTTP, and every kill is one.", flush=True)
    try:
        network = network_of(drawn(rates_of(faults), seed))
        tally = play(program if program in POLICIES else Path(program), kills, seed, steps, network=network, tell=tell)
    except LabError as error:
        print(f"This went wrong: {error}")
        return 2
    print(tally)
    if tally.bad:
        print(f"In {len(tally.bad)} of {len(tally.runs)} runs work was lost, doubled or stuck.")
    else:
        print("No effect was lost or doubled, and nothing is stuck. That holds for these kills; no number proves it.")
    return 1 if tally.bad else 0
