"""What stays itself wherever a program that holds it is copied: for tests that look into programs."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class Itself:
    """Every copy of this is this: each worker has a program of its own, and all of them tell the same test."""

    _known: ClassVar[WeakValueDictionary[int, Itself]] = WeakValueDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        self._known[id(self)] = self
        return _itself, (id(self),)


def _itself(number: int) -> Itself:
    return Itself._known[number]


class Seen(Itself, list[T]):
    """What a test hears from its program."""
