"""`recovery-lab demo`: one crash with real processes, recovered in two ways, told in a few lines."""

from __future__ import annotations

from collections.abc import Callable

from labkit.errors import LabError
from labkit.real.drill import SEND_REFUND, drill
from labkit.runs import Run, Verdict

EXPECTED = (
    ("blind_replay", "after the crash the next worker sends the refund again", Verdict.DUPLICATED),
    ("same_key", "the next worker sends it again under the same idempotency key", Verdict.EXACTLY_ONCE),
)


def run_demo(play: Callable[..., Run] = drill) -> int:
    """Kill a worker between a refund and its record, recover in two ways, and show what the ledgers say.

    Args:
        play: plays one run, as `drill` does.

    Returns:
        0 if blind replay ended `duplicated` and the same key `exactly once`, each after a real kill; else 1.
    """
    print('The task: "refund order 1042 and tell the customer". Every worker is a process of its own.')
    as_expected = [_as_expected(play, *case) for case in EXPECTED]
    print()
    if all(as_expected):
        print("Same crash, same database, same remotes. The difference is one line: the key of the request.")
        return 0
    print("This is not what this demo is meant to show. 'recovery-lab doctor' may tell why.")
    return 1


def _as_expected(play: Callable[..., Run], policy: str, story: str, expected: Verdict) -> bool:
    print(f"\n{policy}: {story}")
    try:
        run = play(policy, SEND_REFUND, tell=lambda line: print(f"  {line}", flush=True))
    except LabError as error:
        print(f"  this went wrong: {error}")
        return False
    for line in ledger_lines(run):
        print(f"  {line}")
    print(f"  verdict: {run.verdict}")
    return run.verdict is expected and sum(moment.fault == "crash" for moment in run.moments) == 1


def ledger_lines(run: Run) -> list[str]:
    """Say what the remotes' ledgers show, a line an operation: how often each really happened."""
    counts, times = dict(run.effects), {0: "never", 1: "once", 2: "twice"}
    lines = []
    for operation in run.task.operations:
        count = counts.get(operation.id, 0)
        often = times.get(count, f"{count} times")
        lines.append(f"the ledger of {operation.remote + ':':<10}{operation.id} happened {often}")
    return lines
