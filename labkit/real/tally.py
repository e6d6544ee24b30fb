"""What came of many real kills: each run, and how many of them ended how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from labkit.runs import Verdict

MOST_ERRORS_SHOWN = 3
BAD = (Verdict.STUCK, Verdict.LOST, Verdict.DUPLICATED)


@dataclass(frozen=True)
class Found:
    """One run.

    Args:
        killed: where its workers were killed.
        verdict: what it came to.
        effects: how often each operation is in the ledgers.
        errors: those that workers ended with.
        refusals: how many calls were refused, by a remote or on the way to it.
        asked: how often a person was asked, and answered.
        confused: how many requests came under a key that had come with another body before.
    """

    killed: tuple[str, ...]
    verdict: Verdict
    effects: Mapping[str, int]
    errors: tuple[str, ...] = ()
    refusals: int = 0
    asked: int = 0
    confused: int = 0

    @property
    def given_up(self) -> bool:
        """Whether the program stopped the task for no reason that is known: here no person ever stops one."""
        return self.verdict is Verdict.STOPPED_CLEAN and self.refusals == 0

    def __str__(self) -> str:
        lines = [f"{self.verdict}; killed: {', '.join(self.killed) or 'never'}"]
        lines += [f"{name} happened {count} times" for name, count in self.effects.items() if count != 1]
        lines += ["a key came with another body"] if self.confused else []
        return "; ".join([*lines, *self._errors()])

    def _errors(self) -> list[str]:
        """The first error of each kind, and how many there are beside: a stuck program has dozens, much alike."""
        by_kind: dict[str, str] = {}
        for error in self.errors:
            by_kind.setdefault(error.partition(":")[0], error)
        shown = list(by_kind.values())[:MOST_ERRORS_SHOWN]
        left = len(self.errors) - len(shown)
        return [*shown, f"and {left} error{'s' * (left > 1)} more"] if left else shown


@dataclass(frozen=True)
class Tally:
    """Many runs."""

    runs: tuple[Found, ...]

    @property
    def kills(self) -> int:
        """How many workers were really killed."""
        return sum(len(run.killed) for run in self.runs)

    @property
    def verdicts(self) -> Mapping[Verdict, int]:
        """How many runs came to each verdict, the best first."""
        counts = Counter(run.verdict for run in self.runs)
        return {verdict: counts[verdict] for verdict in Verdict if counts[verdict]}

    @property
    def bad(self) -> tuple[Found, ...]:
        """The runs in which work was lost, doubled or got stuck."""
        return tuple(run for run in self.runs if run.verdict in BAD)

    @property
    def given_up(self) -> tuple[Found, ...]:
        """The runs in which the program stopped the task, though no person and no remote had refused anything."""
        return tuple(run for run in self.runs if run.given_up)

    @property
    def confused(self) -> tuple[Found, ...]:
        """The runs in which other requests had the same key."""
        return tuple(run for run in self.runs if run.confused)

    @property
    def asked(self) -> tuple[Found, ...]:
        """The runs in which a person was asked."""
        return tuple(run for run in self.runs if run.asked)

    def __str__(self) -> str:
        told = ", ".join(f"{verdict}: {count}" for verdict, count in self.verdicts.items())
        return f"{self.kills} kills in {len(self.runs)} runs; {told}"
