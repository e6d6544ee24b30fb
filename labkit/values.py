"""Values that come from outside, checked before anything is kept of them."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Any, TypeVar

from labkit.errors import InvalidInput

Json = dict[str, Any]
E = TypeVar("E", bound=StrEnum)

MAX_LEVELS = 100
"""Of nesting in stored JSON: what was written at the bottom of a short stack must be readable on a long one."""
_encode = json.JSONEncoder(sort_keys=True, allow_nan=False, ensure_ascii=False).encode
from_json = json.JSONDecoder().decode
"""Read what `to_json` has written."""


def to_json(value: object) -> str:
    """Write a JSON object, keys sorted, so that equal values give equal text.

    Raises:
        InvalidInput: for anything JSON cannot say, NaN and infinities included, and for more than 100 levels.
    """
    try:
        text = _encode(value)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput("a value that JSON can hold", f"{type(value).__name__} ({error})") from None
    if not isinstance(value, dict):
        raise InvalidInput("a JSON object (a dict)", value)
    if text.count("{") + text.count("[") > MAX_LEVELS and _deeper(value, MAX_LEVELS):
        raise InvalidInput(f"a value that JSON can hold in {MAX_LEVELS} levels", type(value).__name__)
    return text


def _deeper(value: object, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return levels < 0 or any(_deeper(one, levels - 1) for one in inner)


MAX_NAME, MAX_ID = 200, 500
"""Characters of a name that somebody gives, and of an id that is put together from such names."""


def checked_name(what: str, value: object, most: int = MAX_NAME) -> str:
    """Return `value` if it can name something: text of 1 to `most` printable characters.

    Raises:
        InvalidInput: for anything else, NUL and line breaks included.
    """
    if not isinstance(value, str) or not 0 < len(value) <= most or not value.isprintable():
        raise InvalidInput(f"{what}: 1 to {most} printable characters", value)
    return value


def checked_id(what: str, value: object) -> str:
    """Return `value` if it can be the id of an operation or a request, or a key: see `checked_name`."""
    return checked_name(what, value, MAX_ID)


def checked_text(what: str, value: str | None) -> str | None:
    """Return `value` if it is None or text without NUL; an empty one is for the guards to judge.

    Raises:
        InvalidInput: for anything else.
    """
    if value is not None and (not isinstance(value, str) or "\0" in value):
        raise InvalidInput(f"{what}: text without NUL", value)
    return value


def checked_seconds(what: str, value: object, least: float = 0.0, most: float = sys.float_info.max) -> float:
    """Return `value` as seconds if it is a number from `least` to `most`, else raise `InvalidInput`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        bounds = f"{least:g} or more" if most >= sys.float_info.max else f"from {least:g} to {most:g}"
        raise InvalidInput(f"{what}: a finite number of seconds, {bounds}", value)
    return float(min(value, sys.float_info.max))


def known(kind: type[E], value: str) -> E:
    """Return the member of `kind` that `value` names, else raise `InvalidInput` naming all that exist."""
    try:
        return kind(value)
    except ValueError:
        names = ", ".join(kind)
        raise InvalidInput(f"one of {names}", value) from None
