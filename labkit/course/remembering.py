"""What an answer keeps in the memory of its process: gone when that dies, however full it is in the notebook."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import update_wrapper
from types import CodeType, FunctionType
from typing import Any

from labkit.packing import is_found_by_name, packed

Answer = Callable[..., Any]
Container = dict[Any, Any] | list[Any] | set[Any]
_FILLED: set[str] = set()
"""What the trial that is looked at has filled; here, beside all that is given to each life anew."""


_BROKE: list[LookupError] = []
"""What it missed there."""


def as_in_a_new_process(answer: Answer, goes_well: Callable[[Answer], bool]) -> tuple[Answer, list[str]]:
    """Take away what an earlier call in the notebook has left in an answer's memory.

    Lists and dictionaries beside a function may be tables that it needs, or notes that it takes. A note is what the
    function fills by itself: begun empty, a trial goes well all the same, and leaves something there.

    Args:
        answer: a student's function, as it came from the notebook.
        goes_well: tries a function, and tells whether it went well.

    Returns:
        The function without its notes, and what it keeps them in.
    """
    filled = [name for name, kept in containers_of(answer) if kept]
    notes = [name for name in filled if _fills(answer, name, goes_well)]
    return (_without(answer, notes) if notes else answer), notes


def gone(notes: list[str]) -> str:
    """Say in a sentence, its full stop aside, what dies with a process; empty where there is nothing."""
    if not notes:
        return ""
    return f"What it keeps in {' and '.join(notes)} is gone with its process, so it began without"


def containers_of(answer: Answer) -> Iterator[tuple[str, Container]]:
    """The lists, dictionaries and sets that a function refers to, or functions beside it do; with their names.

    What belongs to a module that a new process imports is not among them: it is new there.
    """
    waiting, seen = [answer], {id(answer)}
    while waiting:
        one = waiting.pop()
        for name, value in () if _is_imported(one) else _referred(one):
            if id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, dict | list | set):
                yield name, value
            elif isinstance(value, FunctionType):
                waiting.append(value)


def _is_imported(answer: Answer) -> bool:
    return isinstance(answer, FunctionType) and is_found_by_name(answer)


def _referred(answer: Answer) -> Iterator[tuple[str, Any]]:
    code = getattr(answer, "__code__", None)
    if not isinstance(answer, FunctionType) or code is None:
        return
    for name in sorted(_names_in(code)):
        if name in answer.__globals__ and not name.startswith("__"):
            yield name, answer.__globals__[name]
    for name, cell in zip(code.co_freevars, answer.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # nothing in it yet
            continue


def _names_in(code: CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


def _without(answer: Answer, names: list[str]) -> Answer:
    fresh: Answer = pickle.loads(packed(answer))
    for name, container in containers_of(fresh):
        if name in names:
            container.clear()
    return fresh


def _fills(answer: Answer, name: str, goes_well: Callable[[Answer], bool]) -> bool:
    _FILLED.clear()
    _BROKE.clear()
    try:
        return goes_well(_Looking(_without(answer, [name]), name)) and name in _FILLED
    except (Exception, SystemExit):  # it needs what was there, or is wrong in any case
        return False


class _Looking:
    """An answer; when it has been called it is looked at what it keeps."""

    def __init__(self, answer: Answer, name: str) -> None:
        self._answer, self._name = answer, name
        update_wrapper(self, answer)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _BROKE:  # it needs what was there: do not try again and again
            raise _BROKE[0]
        try:
            return self._answer(*args, **kwargs)
        except LookupError as error:
            _BROKE.append(error)
            raise
        finally:
            _FILLED.update(name for name, kept in containers_of(self._answer) if name == self._name and kept)
