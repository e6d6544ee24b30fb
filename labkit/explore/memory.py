"""What a program keeps in memory dies with its worker: each one is given a program that remembers nothing.

A process that is started again loads its code anew. In one process the same function would serve all lives, and what
it has put into a list or a dictionary beside it would outlive a crash that it cannot outlive.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from types import FunctionType
from typing import Any, Generic, TypeVar

from labkit.errors import InvalidInput
from labkit.explore.programs import LabWorker
from labkit.packing import is_found_by_name, packed
from labkit.store import TaskStore

P = TypeVar("P", bound=Callable[..., Any])


class Fresh(Generic[P]):
    """Gives out a program, once for each life.

    What can be imported by its name stays as it is, and so does the lab's own worker. All others are given anew, with
    all that they hold and refer to, as they are when this object is made: functions of a notebook, closures, lambdas,
    objects that can be called.

    Args:
        program: what workers run.

    Raises:
        InvalidInput: it holds something that cannot be given anew.
    """

    def __init__(self, program: P) -> None:
        self._program = program
        if isinstance(program, FunctionType):
            _check_stores(program)
        self._parcel = None if _stays(program) else parcel_of(program)

    def __call__(self) -> P:
        """The program for one life."""
        if self._parcel is None:
            return self._program
        found: P = unpacked(self._parcel)
        return found


def _check_stores(program: FunctionType) -> None:
    """Refuse a function that names a store which somebody else has opened: the task of the run is not in there."""
    for name in program.__code__.co_names:
        if isinstance(program.__globals__.get(name), TaskStore):
            raise InvalidInput("a program that uses the store it is given", f"one that uses {name}, a store of its own")


def parcel_of(program: Callable[..., Any]) -> bytes:
    """Write down a program with all that it holds.

    Raises:
        InvalidInput: it holds something that cannot be written down.
    """
    try:
        return packed(program)
    except Exception as error:  # whatever an object does when it is pickled
        wanted = "a program that each worker can have for itself, as a process that is started again would"
        raise InvalidInput(wanted, f"one that holds what cannot be copied: {error}") from None


def unpacked(parcel: bytes) -> Any:
    """Read a program again: classes of a notebook, too, come anew, and those of the session stay as they are."""
    return _Unpickler(io.BytesIO(parcel)).load()


def _stays(program: Callable[..., Any]) -> bool:
    plain = isinstance(program, FunctionType) and is_found_by_name(program)
    return plain or isinstance(program, LabWorker)


class _Unpickler(pickle.Unpickler):
    """Cloudpickle finds a class that it has written down itself, and would set all its attributes back."""

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if name in ("_make_skeleton_class", "_make_skeleton_enum"):
            return lambda *args: found(*args[:-2], None, args[-1])  # the last but one says which class it was
        return found
