"""What a service reads from a request, each part of it checked: nothing that is not understood is guessed at."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, NoReturn
from urllib.parse import unquote, unquote_to_bytes

from starlette.exceptions import HTTPException
from starlette.requests import Request

from labkit.errors import InvalidInput
from labkit.exchange import LARGEST_TOKEN, MAX_KEY
from labkit.values import checked_id, to_json

MAX_BODY_BYTES = 64 * 1024
BODY_SECONDS = 10.0
_STRING = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
"""A structured field's String: RFC 8941, section 3.3.3."""


def bad(what: str, status: int = 400) -> NoReturn:
    """Refuse a request that cannot be meant."""
    raise HTTPException(status, what)


def _only(request: Request, header: str) -> str | None:
    values = request.headers.getlist(header)
    if len(values) > 1:
        bad(f"{header}: given {len(values)} times")
    return values[0].strip() if values else None


def operation_of(request: Request) -> str:
    """The operation id in its path. Bytes that are no UTF-8 would all become the same letter, and ids one another's."""
    try:
        unquote_to_bytes(request.scope["raw_path"]).decode()
        return checked_id("operation id", request.path_params["operation_id"])
    except UnicodeDecodeError:
        bad("operation id: expected UTF-8, percent-encoded")
    except InvalidInput as error:
        bad(error.expected)


def key_of(request: Request) -> str | None:
    """Its idempotency key, if it has one."""
    written = _only(request, "Idempotency-Key")
    if written is None:
        return None
    match = _STRING.fullmatch(written)
    key = "" if match is None else re.sub(r"\\(.)", r"\1", match[1])
    if not 0 < len(key) <= MAX_KEY:
        bad(f'Idempotency-Key: expected a string of 1 to {MAX_KEY} characters within quotes, such as "task-1/refund"')
    return key


def token_of(request: Request) -> int | None:
    """Its fencing token, if it has one."""
    written = _only(request, "Fencing-Token")
    if written is None:
        return None
    if re.fullmatch(r"[0-9]{1,19}", written) is None or int(written) > LARGEST_TOKEN:
        bad("Fencing-Token: expected a whole number of 64 bits")
    return int(written)


def name_of(request: Request, otherwise: str) -> str:
    """What it calls itself."""
    written = _only(request, "Request-Id")
    try:
        return otherwise if written is None else checked_id("Request-Id", unquote(written, errors="strict"))
    except UnicodeDecodeError:
        bad("Request-Id: expected UTF-8, percent-encoded")
    except InvalidInput as error:
        bad(error.expected)


async def body_of(request: Request) -> dict[str, Any]:
    """Read a JSON object, bounded in size and time."""
    kind = (_only(request, "Content-Type") or "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        bad("Content-Type: expected application/json", 415)
    if (_only(request, "Content-Encoding") or "identity").lower() != "identity":
        bad("Content-Encoding: expected none", 415)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > MAX_BODY_BYTES:
                    bad(f"a body of at most {MAX_BODY_BYTES:,} bytes", 413)
    except TimeoutError:
        bad("the body did not come in time", 408)
    try:
        found = json.loads(body.decode(), object_pairs_hook=_no_name_twice)
        to_json(found)
    except (ValueError, RecursionError):
        bad("expected a JSON object, each name in it once, and finite numbers")
    assert isinstance(found, dict), "checked by to_json"
    return found


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name twice")
    return found
