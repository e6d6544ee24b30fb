"""Somebody else's system over HTTP: a Starlette app over `RemoteService`, with deliveries that are real on the socket.

Idempotency keys follow the IETF draft "The Idempotency-Key HTTP Header Field"
(https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/); refusals are problem details (RFC 9457).
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from labkit import exchange
from labkit.errors import InvalidInput, NotSent, OutcomeUnknown, Refused
from labkit.real.reading import bad, body_of, key_of, name_of, token_of
from labkit.records import checked_id, to_json
from labkit.remote import RemoteService
from labkit.seams import Call, Delivery
from labkit.wire import Remote

HOLD_SECONDS = 60.0


@dataclass(frozen=True)
class Arrangement:
    """What becomes of one request.

    Args:
        delivery: what the wire does with it.
        cut: where no answer comes, the connection is cut at once; else the caller waits until it has no more patience.
        refusal: handed out by the service before it looks at the request; None: it looks.
    """

    delivery: Delivery = Delivery.DELIVERED
    cut: bool = True
    refusal: exchange.Refusal | None = None


REFUSALS: Mapping[int, exchange.Refusal] = {
    403: exchange.Refusal("this account may not do that", "permission", 403),
    429: exchange.Refusal("too many requests", "transient", 429, 2.0),
    503: exchange.Refusal("down for maintenance", "transient", 503, 5.0),
}
"""What a gate can say, by its status."""

Arrange = Callable[[Call], Arrangement]


class Connections(H11Protocol):
    """uvicorn's protocol, which also remembers each open connection: an app has no other way to cut one."""

    by_client: ClassVar[dict[tuple[str, int], asyncio.Transport]] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Remember it."""
        super().connection_made(transport)
        if self.client is not None:
            self.by_client[self.client] = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        super().connection_lost(exc)
        if self.client is not None:
            self.by_client.pop(self.client, None)


class NoAnswer(Response):
    """Nothing is said: the connection is cut now, or once its caller has waited in vain."""

    def __init__(self, cut: bool) -> None:
        super().__init__()
        self._cut = cut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for the end of the connection, and see to it that it comes."""
        transport = Connections.by_client.get(tuple(scope["client"] or ()))
        if self._cut and transport is not None:
            transport.abort()
        try:
            async with asyncio.timeout(HOLD_SECONDS):
                while (await receive())["type"] != "http.disconnect":
                    pass
        except TimeoutError:
            if transport is not None:
                transport.abort()
            await receive()


class Face:
    """The HTTP face of some remotes.

    Args:
        services: the remotes by name; whoever holds this mapping may change it.
        arrange: says what becomes of each request; it is asked once for each that can be read.
    """

    def __init__(self, services: Mapping[str, RemoteService], arrange: Arrange) -> None:
        self._services, self._arrange = services, arrange
        self._unnamed = 0

    def app(self) -> Starlette:
        """Return the app; it answers under this machine's own names only."""
        one = "/{remote}/operations/{operation_id:path}"
        routes = [
            Route("/", self._manual, methods=["GET"]),
            Route("/{remote}/ledger", self._ledger, methods=["GET"]),
            Route(one, self._send, methods=["POST"]),
            Route(one, self._query, methods=["GET"]),
        ]
        hosts = Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"], www_redirect=False)
        return Starlette(routes=routes, middleware=[hosts], exception_handlers={HTTPException: _problem})

    async def _send(self, request: Request) -> Response:
        service, operation_id = self._addressed(request)
        headers = (name_of(request, self._next_name()), key_of(request), token_of(request))
        try:
            body = await body_of(request)
        except ClientDisconnect:
            return NoAnswer(cut=True)
        asked = exchange.Request(operation_id, headers[0], to_json(body), *headers[1:])
        call = Call(service.name, "send", operation_id, asked.request_id)

        def send(remote: Remote) -> Response:
            receipt = remote.send(operation_id, body, *headers)
            return JSONResponse(dataclasses.asdict(receipt), 200 if receipt.replayed else 201)

        return self._deliver(service, call, send)

    async def _query(self, request: Request) -> Response:
        service, operation_id = self._addressed(request)
        token = token_of(request)

        def query(remote: Remote) -> Response:
            standing = remote.query(operation_id, token)
            return JSONResponse(dataclasses.asdict(standing), 200 if standing.found else 404)

        return self._deliver(service, Call(service.name, "query", operation_id, ""), query)

    def _deliver(self, service: RemoteService, call: Call, act: Callable[[Remote], Response]) -> Response:
        """Do with a request what has been arranged for it, and let its caller see just that."""
        arranged = self._arrange(call)
        if arranged.refusal is not None:
            return _refusal(arranged.refusal)
        try:
            return act(Remote(service, network=lambda _: arranged.delivery))
        except Refused as refused:
            why = (refused.reason, refused.category, refused.status, refused.retry_after_seconds)
            return _refusal(exchange.Refusal(*why))
        except (NotSent, OutcomeUnknown):
            return NoAnswer(arranged.cut)

    async def _manual(self, request: Request) -> Response:
        remotes = {name: dataclasses.asdict(service.capabilities) for name, service in self._services.items()}
        return JSONResponse({"remotes": remotes})

    async def _ledger(self, request: Request) -> Response:
        """The ledger, for people: a worker must never decide by it."""
        service = self._service(request)
        requests = [dict(zip(("operation", "request", "answer"), row, strict=True)) for row in service.requests()]
        return JSONResponse({"effects": service.effects(), "requests": requests})

    def _service(self, request: Request) -> RemoteService:
        found = self._services.get(request.path_params["remote"])
        if found is None:
            raise HTTPException(404, f"no such remote; there are: {', '.join(self._services)}")
        return found

    def _addressed(self, request: Request) -> tuple[RemoteService, str]:
        try:
            return self._service(request), checked_id("operation id", request.path_params["operation_id"])
        except InvalidInput as error:
            bad(error.expected)

    def _next_name(self) -> str:
        self._unnamed += 1
        return f"request-{self._unnamed}"


def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code in (408, 413):
        headers["Connection"] = "close"  # the rest of the body is not read
    return _refusal(exchange.Refusal(str(error.detail), "invalid", error.status_code), headers)


def _refusal(why: exchange.Refusal, headers: Mapping[str, str] | None = None) -> Response:
    wait = {} if why.retry_after_seconds is None else {"Retry-After": str(math.ceil(why.retry_after_seconds))}
    fields = {"title": why.reason, "status": why.status, "category": why.category}
    sent = {**(headers or {}), **wait}
    return JSONResponse(fields, why.status, sent, media_type="application/problem+json")
