"""A seeded bug: a program with one mistake, the law that it must break, and the same program without the mistake."""

from dataclasses import dataclass

from labkit.explore.scenario import Scenario


@dataclass(frozen=True)
class Bug:
    """One mistake.

    Args:
        name: the mistake, in a few words.
        law: the law that catches it.
        surprises: the fewest that it takes.
        broken: the scenario with the mistake.
        mended: the same without it; it keeps every law within the same bound.
    """

    name: str
    law: str
    surprises: int
    broken: Scenario
    mended: Scenario
