"""What the world sees of a run and no row tells: who really holds the task, and what was said and sent."""

from __future__ import annotations

import sys

from labkit.errors import Refused
from labkit.explore.laws import BY_THE_HOLDER
from labkit.explore.lives import Life
from labkit.explore.record import Stranger
from labkit.seams import Point


class Witness:
    """Sees one run; see the fields of `Record` that are called the same."""

    def __init__(self) -> None:
        self.holder: Life | None = None
        self.refused: set[tuple[str, str]] = set()
        self.unintended: list[tuple[str, str]] = []
        self.strangers: list[Stranger] = []
        self._token = 0

    def crossed(self, life: Life, point: Point, token: int, version: int) -> None:
        """A worker has come to a crossing: a token that was not there before is its own, whatever it calls itself."""
        if token != self._token:
            self.holder, self._token = life, token
        elif life is not self.holder and point.action in BY_THE_HOLDER:
            holder = "nobody" if self.holder is None else self.holder.name
            self.strangers.append(Stranger(life.name, str(point.action), version, holder))

    def answered(self, point: Point) -> None:
        """The wire is about to give a worker an answer, or to raise one: before its program can call it another."""
        error = sys.exception()
        if point.action == "send" and isinstance(error, Refused) and error.reason == point.learned:
            self.refused.add((point.subject, str(error.category)))
