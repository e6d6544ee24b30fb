"""Foreign data taken apart field by field: whatever is missing, left over or of another type is refused.

Nothing in it is executed, evaluated or looked up as a name of code.
"""

from __future__ import annotations

import dataclasses
import json
import reprlib
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from labkit.errors import InvalidInput
from labkit.values import Json, checked_seconds, to_json

T = TypeVar("T")
LONGEST_SECONDS = 1e9
"""About thirty years; longer times are no set-up, and sums of them would lose their fractions."""

MOST = 1_000_000_000
LONGEST_TEXT = 500


class BadCapsule(InvalidInput):
    """A capsule that cannot be read. Fields: `expected`, `found`; nothing in it was run."""

    def __init__(self, expected: str, found: object) -> None:
        self.expected, self.found = expected, found
        Exception.__init__(self, f"a capsule: expected {expected}, found {reprlib.repr(found)}")


class Fields:
    """The fields of one JSON object; each must be taken once, and `end` refuses what is left.

    Args:
        data: the object, from anywhere.
        where: what it is, for errors.
    """

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, dict):
            raise BadCapsule(f"{where}: a JSON object", data)
        self.where, self._left = where, dict(data)

    def take(self, name: str) -> Any:
        """Return a field as it is."""
        if name not in self._left:
            raise BadCapsule(f"{self.where} with a field {name!r}", sorted(self._left))
        return self._left.pop(name)

    def names(self) -> list[str]:
        """The fields that have not been taken yet, in their order."""
        return list(self._left)

    def end(self) -> None:
        """Refuse fields that nobody has taken."""
        if self._left:
            raise BadCapsule(f"{self.where} without further fields", sorted(self._left))

    def refuse(self, name: str, expected: str, found: object) -> NoReturn:
        """Raise for one field."""
        raise BadCapsule(f"{self.where}, {name}: {expected}", found)

    def checked(self, name: str, check: Callable[[Any], T]) -> T:
        """Take a field through a check of the lab's own that raises `InvalidInput`."""
        value = self.take(name)
        try:
            return check(value)
        except InvalidInput as error:
            raise BadCapsule(f"{self.where}, {error.expected}", value) from None

    def text(self, name: str) -> str:
        """Take text as `plain` leaves it."""
        value = self.take(name)
        if not isinstance(value, str) or value != plain(value):
            self.refuse(name, f"1 to {LONGEST_TEXT} printable characters", value)
        return value

    def whole(self, name: str, least: int, most: int) -> int:
        """Take a whole number."""
        value = self.take(name)
        if type(value) is not int or not least <= value <= most:
            self.refuse(name, f"a whole number from {least} to {most}", value)
        return value

    def seconds(self, name: str) -> float:
        """Take a time in seconds."""
        return self.checked(name, lambda value: checked_seconds(name, value, most=LONGEST_SECONDS))

    def flag(self, name: str) -> bool:
        """Take true or false."""
        value = self.take(name)
        return value if isinstance(value, bool) else self.refuse(name, "true or false", value)

    def items(self, name: str, least: int, most: int) -> list[Any]:
        """Take a list of so many items."""
        value = self.take(name)
        if not isinstance(value, list) or not least <= len(value) <= most:
            self.refuse(name, f"a list of {least} to {most} items", value)
        return value

    def json(self, name: str) -> Json:
        """Take a JSON object that is passed on as it is."""
        value = self.take(name)
        self.checked_json(name, value)
        return dict(value)

    def checked_json(self, name: str, value: object) -> None:
        """Refuse what is no JSON object."""
        try:
            to_json(value)
        except InvalidInput as error:
            self.refuse(name, error.expected, value)


def plain(text: str) -> str:
    """Text of one printable line: no control character gets to a terminal, and no half of a pair into a file."""
    line = " ".join(text.split())[:LONGEST_TEXT].rstrip()
    return "".join(one if one.isprintable() else "?" for one in line) or "?"


def flat_to_json(value: Any) -> Json:
    """The fields of a flat dataclass that differ from their defaults."""
    return {
        field.name: getattr(value, field.name)
        for field in dataclasses.fields(value)
        if getattr(value, field.name) != field.default
    }


def flat_from_json(kind: Callable[..., T], data: object, where: str) -> T:
    """Build a flat dataclass whose fields all have defaults: flags, whole numbers or seconds.

    Raises:
        BadCapsule: a field is unknown or of another type, or the dataclass itself refuses them.
    """
    fields, values = Fields(data, where), dict[str, Any]()
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name in fields.names():
            if isinstance(field.default, bool):
                values[field.name] = fields.flag(field.name)
            elif isinstance(field.default, int):
                values[field.name] = fields.whole(field.name, 0, MOST)
            else:
                values[field.name] = fields.seconds(field.name)
    fields.end()
    try:
        return kind(**values)
    except InvalidInput as error:
        raise BadCapsule(f"{where}: {error.expected}", data) from None


def parse(text: str, most_bytes: int) -> Any:
    """Read JSON strictly: bounded in size, no NaN or infinity, no name twice in an object.

    Raises:
        BadCapsule: for anything else, and for what no decoder should be asked to swallow.
    """
    if not isinstance(text, str):
        raise BadCapsule("text", type(text).__name__)
    if len(text) > most_bytes or len(text.encode("utf-8", "surrogatepass")) > most_bytes:
        raise BadCapsule(f"at most {most_bytes:,} bytes", f"{len(text):,} characters")
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_name_twice)
    except BadCapsule:
        raise
    except RecursionError:
        raise BadCapsule("JSON of no great depth", text) from None
    except ValueError:  # not JSON, or a number of thousands of digits
        raise BadCapsule("JSON", text) from None


def _no_constant(name: str) -> NoReturn:
    raise BadCapsule("finite numbers", name)


def _no_name_twice(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadCapsule("each name once in an object", [name for name, _ in pairs])
    return found
