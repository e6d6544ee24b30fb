"""Exercise 4.2: a worker dies behind every crossing, and what the database says is compared with predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from labkit.course.scenes import after_crash_at, crossings
from labkit.course.submission import Submission, Unfit, shortened, told_by
from labkit.course.trials import WIDTH, Trial
from labkit.show.tables import TextTable

MAX_TOLD = 40
GAPS = ("start", "claim", "intend", "send", "checkpoint", "succeed")


@cache
def gaps() -> Mapping[str, str]:
    """What the database says after a crash right behind each crossing of a refund by the lab's worker."""
    found = {}
    for name in crossings(1):
        task = after_crash_at(name, 1).task
        found[name.partition(" ")[0]] = f"{task.state}: {task.operations[0].standing}"
    return found


def told_gaps(answer: Callable[[], Any]) -> dict[str, str]:
    """Ask an answer for its predictions.

    Raises:
        Unfit: it raised something, or returned no such dict.
    """
    told = told_by(answer)
    if not isinstance(told, dict) or set(told) != set(GAPS):
        found = (
            f"keys {shortened(', '.join(sorted(map(str, told))))}" if isinstance(told, dict) else type(told).__name__
        )
        raise Unfit(f"It must return a dict of texts with the keys {', '.join(GAPS)}; found: {found}.")
    for gap in GAPS:
        if not isinstance(told[gap], str):
            kind = type(told[gap]).__name__
            raise Unfit(f'Of {gap} it says something of type {kind}; text such as "queued: pending" is wanted.')
    return {gap: _in_one_style(told[gap]) for gap in GAPS}


def _in_one_style(told: str) -> str:
    state, colon, standing = shortened(told.lower(), MAX_TOLD).partition(":")
    return f"{state.strip()}{colon} {standing.replace('_', ' ').strip()}".strip()


def try_gaps(submission: Submission) -> Trial:
    """Crash a worker at every gap and compare what the database says with what was predicted."""
    told, seen = submission.run(told_gaps), gaps()
    wrong = [gap for gap in GAPS if told[gap] != seen[gap]]
    crashes = {"crash": len(GAPS)}
    if not wrong:
        return Trial(True, len(GAPS), crashes, (f"a crash behind each of {len(GAPS)} crossings, each as predicted",))
    first = wrong[0]
    right = [(gap, told[gap], seen[gap], "") for gap in GAPS[: GAPS.index(first)]]
    rows = (*right, (first, told[first], "another thing", "<- WRONG"))
    return Trial(
        False,
        len(GAPS),
        crashes,
        run=f"{len(wrong)} of {len(GAPS)} crashes left something else behind, the first one behind: {first}",
        story=TextTable(("crash behind", "predicted", "the database says", ""), rows, width=WIDTH),
        law="as_predicted",
        broke=f"The database says what was committed, and nothing else. Behind {first} that is not {told[first]}.",
        hint=HINT_BY_GAP[first],
    )


HINT_BY_GAP = {
    "start": "The worker has done nothing yet; who has written the task's first row?",
    "claim": "A claim is committed, and says nothing about the refund.",
    "intend": "An intent without a result: what is such an operation called?",
    "send": "Sending writes into the ledger of somebody else. What of that can our database know?",
    "checkpoint": "The result is on record. Has the task ended?",
    "succeed": "The last transaction has happened.",
}
