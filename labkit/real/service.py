"""Somebody else's system over HTTP: a Starlette app over `RemoteService`, with deliveries that are real on the socket.

Idempotency keys follow the IETF draft "The Idempotency-Key HTTP Header Field"
(https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/); refusals are problem details (RFC 9457).
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from labkit import exchange
from labkit.errors import NotSent, OutcomeUnknown, Refused, StoreError
from labkit.real.connections import NoAnswer
from labkit.real.reading import body_of, key_of, name_of, operation_of, token_of
from labkit.remote import RemoteService
from labkit.seams import Call, Delivery
from labkit.values import to_json
from labkit.wire import Remote

MOST_AT_ONCE = 8
"""How many callers of one remote are served, or wait for its ledger, at a time."""


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


Aside = Callable[[RemoteService, Callable[[], Response]], Awaitable[Response]]
"""Has the work of a remote done, wherever that is."""


async def at_once(service: RemoteService, work: Callable[[], Response]) -> Response:
    """Do it here and now: nothing else happens meanwhile."""
    return work()


class Threads:
    """Threads for each remote, so that one whose ledger is locked keeps nobody but its own callers waiting."""

    def __init__(self) -> None:
        self._by_remote: dict[str, ThreadPoolExecutor] = {}

    async def aside(self, service: RemoteService, work: Callable[[], Response]) -> Response:
        """Have it done by a thread of the remote."""
        if service.name not in self._by_remote:
            self._by_remote[service.name] = ThreadPoolExecutor(MOST_AT_ONCE)
        return await asyncio.get_running_loop().run_in_executor(self._by_remote[service.name], work)

    def close(self) -> None:
        """Wait for what is being done; nothing else is begun."""
        for pool in self._by_remote.values():
            pool.shutdown(cancel_futures=True)


class HttpFace:
    """The HTTP face of some remotes.

    Args:
        services: the remotes by name; whoever holds this mapping may change it.
        arrange: says what becomes of each request; it is asked once for each that can be read, in their order.
        aside: has the work of a remote done.
    """

    def __init__(self, services: Mapping[str, RemoteService], arrange: Arrange, aside: Aside = at_once) -> None:
        self._services, self._arrange, self._aside = services, arrange, aside
        self._unnamed = 0

    def app(self) -> Starlette:
        """Return the app; it answers under this machine's own names only."""
        routes = [
            Route("/", self._manual, methods=["GET"]),
            Route("/{remote}/ledger", self._ledger, methods=["GET"]),
            Route("/{remote}/operations/{operation_id:path}", self._operation, methods=["GET", "POST"]),
        ]
        hosts = Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"], www_redirect=False)
        return Starlette(routes=routes, middleware=[hosts], exception_handlers={HTTPException: _problem})

    async def _operation(self, request: Request) -> Response:
        return await (self._send if request.method == "POST" else self._query)(request)

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

        return await self._deliver(service, call, send)

    async def _query(self, request: Request) -> Response:
        service, operation_id = self._addressed(request)
        token = token_of(request)

        def query(remote: Remote) -> Response:
            standing = remote.query(operation_id, token)
            return JSONResponse(dataclasses.asdict(standing), 200 if standing.found else 404)

        return await self._deliver(service, Call(service.name, "query", operation_id, ""), query)

    async def _deliver(self, service: RemoteService, call: Call, act: Callable[[Remote], Response]) -> Response:
        """Do with a request what has been arranged for it, and let its caller see just that."""
        arranged = self._arrange(call)
        if arranged.refusal is not None:
            return _refusal(arranged.refusal)

        def deliver() -> Response:
            try:
                return act(Remote(service, network=lambda _: arranged.delivery))
            except Refused as refused:
                why = (refused.reason, refused.category, refused.status, refused.retry_after_seconds)
                return _refusal(exchange.Refusal(*why))
            except (NotSent, OutcomeUnknown) as error:
                if isinstance(error.__cause__, StoreError) and arranged.delivery is Delivery.DELIVERED:
                    raise error.__cause__ from None
                return NoAnswer(arranged.cut)

        return await self._work(service, deliver)

    async def _work(self, service: RemoteService, work: Callable[[], Response]) -> Response:
        """Have something done to a ledger; where that cannot be used, say so."""
        try:
            return await self._aside(service, work)
        except StoreError as broken:
            return _broken(broken)

    async def _manual(self, request: Request) -> Response:
        remotes = {name: dataclasses.asdict(service.capabilities) for name, service in self._services.items()}
        return JSONResponse({"remotes": remotes})

    async def _ledger(self, request: Request) -> Response:
        """The ledger, for people: a worker must never decide by it."""
        service = self._service(request)

        def read() -> Response:
            requests = [dict(zip(("operation", "request", "answer"), row, strict=True)) for row in service.requests()]
            return JSONResponse({"effects": service.effects(), "requests": requests})

        return await self._work(service, read)

    def _service(self, request: Request) -> RemoteService:
        found = self._services.get(request.path_params["remote"])
        if found is None:
            raise HTTPException(404, f"no such remote; there are: {', '.join(self._services)}")
        return found

    def _addressed(self, request: Request) -> tuple[RemoteService, str]:
        return self._service(request), operation_of(request)

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


def _broken(why: StoreError) -> Response:
    """Without a category: whether anything came of the request is not known."""
    fields = {"title": "the remote cannot use its ledger", "status": 503, "detail": str(why)}
    return JSONResponse(fields, 503, media_type="application/problem+json")
