"""`recovery-lab drill`: somebody's own recovery code against real kills."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from labkit.cli.serve import FAULTS, drawn, rates_of
from labkit.errors import LabError
from labkit.policies import POLICIES
from labkit.real.kills import kill_at_random
from labkit.real.service import Arrange
from labkit.real.setting import Fate, Fates
from labkit.real.tally import BAD, Found, Tally
from labkit.runs import Verdict
from labkit.seams import Call, Delivery

MOST_SHOWN = 3
KINDS = (Delivery.REFUSED, *FAULTS)
"""What a drill can do to calls: a connection can be refused here too, for the drill leads the caller."""

MEANING: Mapping[Verdict, str] = {
    Verdict.EXACTLY_ONCE: "the task succeeded, and the ledgers show each effect once",
    Verdict.STOPPED_CLEAN: "the task ended unfinished; record and ledgers agree on what was done",
    Verdict.NEEDS_A_PERSON: "the task still waits for a person's answer",
    Verdict.STUCK: "the task did not come to an end",
    Verdict.LOST: "record and ledgers disagree on what was done",
    Verdict.DUPLICATED: "the ledgers show an effect more than once",
}
CLEAN = "No effect was lost or doubled, and nothing is stuck. That holds for these kills; no number proves it."


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
        faults: what becomes of calls beside that, each `KIND=RATE`, a kind of `KINDS` and its share of the calls.
        play: plays the runs, as `kill_at_random` does.

    Returns:
        0 if all is well; 1 if work was lost, doubled, stuck or given up without a reason, or requests shared a key; 2
        if no drill could be held.
    """
    told = _Told(f"{program}: workers are real processes, the remotes are behind HTTP, and every kill is one.")
    try:
        network = network_of(drawn(rates_of(faults, KINDS), seed))
        what = program if program in POLICIES else Path(program)
        tally = play(what, kills, seed, steps, network=network, tell=told.of_run, began=told.that_it_began)
    except LabError as error:
        print(f"This went wrong: {error}")
        return 2
    print("\n".join(lines_of(tally)))
    return 1 if tally.bad or tally.given_up or tally.confused else 0


class _Told:
    """Tells what this is, once it is under way, and the first runs that are not as they should be, as they end."""

    def __init__(self, title: str) -> None:
        self._title, self._left = title, MOST_SHOWN

    def that_it_began(self) -> None:
        if self._title:
            print(self._title, flush=True)
            self._title = ""

    def of_run(self, found: Found) -> None:
        if self._left and (found.verdict in BAD or found.given_up or found.confused):
            self._left -= 1
            print(f"  {found}", flush=True)


def lines_of(tally: Tally) -> list[str]:
    """Say how many runs ended how, and what that is worth."""
    lines = [f"{counted(tally.kills, 'kill')} in {counted(len(tally.runs), 'run')}. They ended:"]
    lines += [f"{count:>6}  {verdict}: {MEANING[verdict]}" for verdict, count in tally.verdicts.items()]
    runs = counted(len(tally.runs), "run")
    if tally.asked:
        waited = "the task waited for a person, who answered truthfully; without one it would wait still"
        lines.append(f"In {len(tally.asked)} of {runs} {waited}.")
    if tally.bad:
        lines.append(f"In {len(tally.bad)} of {runs} work was lost, doubled or stuck.")
    if tally.given_up:
        lines.append(
            f"Warning: in {len(tally.given_up)} of {runs} the program gave the task up, though nobody cancelled it "
            "and no remote refused anything."
        )
    if tally.confused:
        lines.append(
            f"Warning: in {len(tally.confused)} of {runs} a key came with another body. Each operation needs a key of "
            "its own, and under it the same request every time."
        )
    if not tally.bad and not tally.given_up and not tally.confused:
        lines.append(CLEAN)
    return lines


def counted(count: int, what: str) -> str:
    """Write a number of things: 1 run, 2 runs."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
