"""What a caller and a remote say to each other: a request, and the answers to it."""

from __future__ import annotations

from dataclasses import dataclass

from labkit.errors import InvalidInput
from labkit.values import MAX_ID, checked_id, checked_name

LARGEST_TOKEN = 2**63 - 1
MAX_KEY = 12 * MAX_ID
"""Characters of a key: room for any operation id, percent-encoded."""


@dataclass(frozen=True)
class Request:
    """One request on the wire; `body` is JSON text."""

    operation_id: str
    request_id: str
    body: str
    key: str | None = None
    token: int | None = None

    def __post_init__(self) -> None:
        checked_id("operation id", self.operation_id)
        checked_id("request id", self.request_id)
        if self.key is not None:
            checked_name("idempotency key", self.key, MAX_KEY)
        if not isinstance(self.body, str):
            raise InvalidInput("a body of JSON text", self.body)
        checked_token(self.token)


def checked_token(token: int | None) -> int | None:
    """Return `token` if it is None or a fencing token: a whole number of 64 bits, not below 0.

    Raises:
        InvalidInput: for anything else.
    """
    if token is not None and (type(token) is not int or not 0 <= token <= LARGEST_TOKEN):
        raise InvalidInput(f"a fencing token from 0 to {LARGEST_TOKEN}", token)
    return token


@dataclass(frozen=True)
class Receipt:
    """The remote's answer to a request that it applied, or had applied before under the same key."""

    reference: str
    replayed: bool = False

    def __str__(self) -> str:
        return f"{'applied before' if self.replayed else 'applied'}: {self.reference}"


@dataclass(frozen=True)
class Standing:
    """The remote's answer to a status query. "Not found" speaks of now: a request may still be under way."""

    found: bool
    reference: str | None = None

    def __str__(self) -> str:
        return f"found: {self.reference}" if self.found else "not found"


@dataclass(frozen=True)
class Refusal:
    """A refusal that a gate hands out: why, of which category, with which HTTP status, and for how long."""

    reason: str
    category: str
    status: int
    retry_after_seconds: float | None = None
