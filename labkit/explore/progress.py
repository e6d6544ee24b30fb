"""A search's progress, only where it is asked for, and never on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

TELL_EVERY = 50


class ProgressBar:
    """Shows how far a search is.

    Args:
        bar: draw a bar.
        tell: told how many schedules were run, and how many are known so far.
    """

    def __init__(self, bar: bool, tell: Callable[[int, int], None] | None) -> None:
        self._tell = tell
        self._bar: Any = None
        if bar:
            from tqdm.auto import tqdm  # loads the notebook's widgets in a notebook

            self._bar = tqdm(unit=" schedules", file=sys.stdout, dynamic_ncols=True)

    def step(self, run: int, known: int) -> None:
        """One more schedule was run."""
        if run % TELL_EVERY and run != known:
            return
        if self._tell is not None:
            self._tell(run, known)
        if self._bar is not None:
            self._bar.total = known
            self._bar.update(run - self._bar.n)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
