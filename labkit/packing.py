"""Functions on their way to another process: those of a notebook travel by value, cached ones too.

`cloudpickle` sends a function of a notebook as its code. What `functools.lru_cache` and other wrappers written in C
make of one is by default sent as a mere name, which means nothing over there.
"""

from __future__ import annotations

import functools
import io
import sys
import types
from collections.abc import Callable
from typing import Any

import cloudpickle

from labkit.database import Database
from labkit.errors import LabError

HERE_ONLY = ("__main__", "__mp_main__")
"""What a notebook or script is called as a module, in its own process alone."""

_Cached = type(functools.lru_cache(lambda: None))


class CannotTravel(LabError):
    """A wrapped function has no way into another process. Fields: `name`; `wrapper`, its type."""

    def __init__(self, name: str, wrapper: str) -> None:
        self.name, self.wrapper = name, wrapper
        super().__init__(
            f"{name} is a function in a wrapper ({wrapper}) that cannot be sent to another process: "
            "write it as a plain function, without the wrapper"
        )


class StaysHere(LabError):
    """An open database cannot be copied: it belongs to the process that opened it. Field: `file`, its name."""

    def __init__(self, file: str) -> None:
        self.file = file
        super().__init__(
            f"an open store ({file}) cannot be given to another process: use the store that the function is given"
        )


def packed(thing: object) -> bytes:
    """Return a thing as bytes of which `pickle.loads` makes it again, in any process that has the same modules.

    A cache travels empty.

    Raises:
        CannotTravel: it holds a wrapped function that would arrive as a name only.
        StaysHere: it holds an open store or ledger.
        Exception: whatever an object does when it is pickled.
    """
    written = io.BytesIO()
    _Packer(written).dump(thing)
    return written.getvalue()


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Database):
            raise StaysHere(obj.path.name)
        if isinstance(obj, _Cached) and not is_found_by_name(obj):
            sizes = obj.cache_parameters()
            return _cached, (obj.__wrapped__, sizes["maxsize"], sizes["typed"])
        if _is_wrapped_here(obj) and isinstance(obj.__reduce_ex__(self.proto), str):
            raise CannotTravel(str(getattr(obj, "__name__", "it")), type(obj).__name__)
        return super().reducer_override(obj)


def _cached(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize, typed)(function)


def _is_wrapped_here(obj: Any) -> bool:
    plain = isinstance(obj, type | types.FunctionType)
    return not plain and callable(obj) and getattr(obj, "__module__", None) in HERE_ONLY


def is_found_by_name(obj: Any) -> bool:
    """Whether another process comes to the same by importing its module."""
    if obj.__module__ in HERE_ONLY:
        return False
    found: Any = sys.modules.get(obj.__module__)
    for name in obj.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is obj
