"""The caller's side of HTTP: every way in which a call can end, sorted by what the caller knows then."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import quote

import httpx

from labkit.errors import InvalidInput, NotSent, OutcomeUnknown, Refused
from labkit.exchange import Receipt, Request, Standing
from labkit.remote import Capabilities

CONNECT_SECONDS = 5.0
READ_SECONDS = 10.0
MAX_REASON = 500
_ASCII = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""Printable ASCII but the percent sign."""
_CATEGORIES = {401: "permission", 403: "permission", 409: "transient", 425: "transient", 429: "transient"}
_LOST = "time-out: no answer came"


class HttpService:
    """A remote system behind HTTP; it stands where a `RemoteService` would, at the far end of a `wire.Remote`.

    Every call has a connection of its own: on one that is kept, "refused" could not be told from "cut".

    Args:
        address: such as `http://127.0.0.1:8001`.
        name: the remote's name, the first part of its paths.
        capabilities: what it can do, by its manual.
        connect_seconds: how long to wait for a connection; after that, known not sent.
        read_seconds: how long to wait for an answer; after that, nobody knows.
    """

    def __init__(
        self,
        address: str,
        name: str,
        capabilities: Capabilities,
        connect_seconds: float = CONNECT_SECONDS,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        self.address, self.name, self.capabilities = address, name, capabilities
        self.connect_seconds, self.read_seconds = connect_seconds, read_seconds
        # There is no TLS on this machine's own loopback, and reading its certificates would be most of a call's time.
        self._http = httpx.Client(
            trust_env=False, verify=False, limits=httpx.Limits(max_connections=1, max_keepalive_connections=0)
        )

    def handle(self, request: Request) -> Receipt:
        """Send a request and wait for its answer.

        Raises:
            NotSent: no connection came about.
            OutcomeUnknown: it may have left, and no answer came that can be read.
            Refused: the remote answered no.
        """
        headers = {"Content-Type": "application/json", "Request-Id": quote(request.request_id, safe="")}
        if request.key is not None:
            headers["Idempotency-Key"] = quoted_key(request.key)
        answer = self._call("POST", request.operation_id, request.token, headers, request.body)
        fields = self._fields(answer, request.operation_id)
        if not answer.is_success:
            self._refuse(answer, fields, request.operation_id)
        reference = fields.get("reference")
        if not isinstance(reference, str):
            raise OutcomeUnknown(self.name, request.operation_id, "an answer came that cannot be read")
        return Receipt(reference, fields.get("replayed") is True)

    def accept_late(self, request: Request) -> None:
        """Only the remote itself can apply something late."""
        raise InvalidInput("deliveries that the service behind HTTP makes", "late")

    def query(self, operation_id: str, token: int | None = None) -> Standing:
        """Ask whether an operation has been applied; errors as for `handle`."""
        answer = self._call("GET", operation_id, token, {}, None)
        fields = self._fields(answer, operation_id)
        if not isinstance(fields.get("found"), bool):
            self._refuse(answer, fields, operation_id)
        reference = fields.get("reference")
        return Standing(fields["found"], reference if isinstance(reference, str) else None)

    def close(self) -> None:
        """Close what is open."""
        self._http.close()

    def _call(
        self, method: str, operation_id: str, token: int | None, headers: Mapping[str, str], body: str | None
    ) -> httpx.Response:
        """Make one call, and sort its end without an answer by what can be known."""
        url = f"{self.address}/{quote(self.name, safe='')}/operations/{path_of(operation_id)}"
        sent = {**headers, "Connection": "close"} | ({} if token is None else {"Fencing-Token": str(token)})
        patience = httpx.Timeout(self.read_seconds, connect=self.connect_seconds)
        try:
            content = None if body is None else body.encode()
            return self._http.request(method, url, headers=sent, content=content, timeout=patience)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise NotSent(self.name, operation_id, "the connection was refused") from error
        except httpx.TimeoutException as error:
            raise OutcomeUnknown(self.name, operation_id, _LOST) from error
        except httpx.RequestError as error:
            raise OutcomeUnknown(self.name, operation_id, "the connection was cut: no answer came") from error

    def _fields(self, answer: httpx.Response, operation_id: str) -> dict[str, Any]:
        """The answer's JSON object; an empty one where there is none."""
        try:
            fields = json.loads(answer.content)
        except (ValueError, RecursionError):
            return {}
        return fields if isinstance(fields, dict) else {}

    def _refuse(self, answer: httpx.Response, fields: Mapping[str, Any], operation_id: str) -> NoReturn:
        """Raise what a refusal means. A 5xx that does not say so itself tells nothing: it may come from in between."""
        status, category = answer.status_code, fields.get("category")
        known = category if category in ("transient", "permission", "invalid") else None
        if known is None and 400 <= status < 500 and status != 408:
            known = _CATEGORIES.get(status, "invalid")
        if known is None:
            raise OutcomeUnknown(self.name, operation_id, f"status {status}, which tells nothing")
        reason = str(fields.get("title") or answer.reason_phrase)[:MAX_REASON]
        raise Refused(self.name, operation_id, reason, known, status, _seconds(answer.headers.get("Retry-After")))


def quoted_key(key: str) -> str:
    """Write an idempotency key as the draft wants it: a structured field's String (RFC 8941, section 3.3.3).

    Such a string is ASCII. What is not is percent-encoded, and so is the percent sign: other keys stay other keys.
    """
    key = quote(key, safe=_ASCII)
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def path_of(operation_id: str) -> str:
    """Write an operation id as one segment of a path: clients resolve dots and slashes before they send."""
    return quote(operation_id, safe="").replace(".", "%2E")


def _seconds(text: str | None) -> float | None:
    """Read Retry-After where it is a number of seconds."""
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
