"""Sample answers to the exercises: right ones in several styles, and wrong ones with what the check must say to each.

One module an exercise: its name is `exercise_` and the number, with an underscore for the dot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

AnyFunction = Callable[..., Any]


@dataclass(frozen=True)
class Sample:
    """One answer; `says` are the lines or parts of lines by which the check must refuse it, none for a right one."""

    number: str
    function: AnyFunction
    says: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.number} {self.function.__name__}"


SAMPLES: list[Sample] = []


def right(number: str) -> Callable[[AnyFunction], AnyFunction]:
    """Note a function as a right answer."""
    return wrong(number)


def wrong(number: str, *says: str) -> Callable[[AnyFunction], AnyFunction]:
    """Note a function as an answer that the check must refuse with these words."""

    def note(function: AnyFunction) -> AnyFunction:
        SAMPLES.append(Sample(number, function, says))
        return function

    return note


MODULES = [import_module(f"{__name__}.{file.stem}") for file in sorted(Path(__file__).parent.glob("exercise_*.py"))]
