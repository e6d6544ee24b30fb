"""The wire on which a remote is called: where requests and answers get lost, and what the caller can know then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, TypeVar

from labkit.errors import NotSent, OutcomeUnknown, Refused, RemoteError, StoreClosed, StoreError
from labkit.exchange import Receipt, Request, Standing, checked_token
from labkit.remote import Capabilities
from labkit.seams import Boundary, Call, Delivery, Network, Point, no_boundary, reliable
from labkit.values import Json, checked_id, known, to_json

Answer = TypeVar("Answer", Receipt, Standing)


class Service(Protocol):
    """The far end of a wire: a `RemoteService`, or what stands for one that is elsewhere."""

    @property
    def name(self) -> str:
        """What operations call it by."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do, by its manual."""

    def handle(self, request: Request) -> Receipt:
        """Apply a request."""

    def accept_late(self, request: Request) -> None:
        """Take in a request that is to be applied later."""

    def query(self, operation_id: str, token: int | None = None) -> Standing:
        """Tell whether an operation has been applied."""


class Remote:
    """A caller's end of the wire.

    Args:
        service: the remote system.
        network: what the wire does with each call.
        boundary: called after each call, whatever came of it: a worker can die before it acts on the answer.
    """

    def __init__(self, service: Service, network: Network = reliable, boundary: Boundary = no_boundary) -> None:
        self._service, self._network, self._boundary = service, network, boundary
        self.name, self.capabilities = service.name, service.capabilities

    def send(
        self, operation_id: str, body: Json, request_id: str, key: str | None = None, token: int | None = None
    ) -> Receipt:
        """Send one request.

        Args:
            operation_id: our own reference for the operation.
            body: JSON.
            request_id: names this sending.
            key: the idempotency key, if one is to be sent.
            token: the fencing token, if one is to be sent.

        Raises:
            NotSent: it did not leave.
            OutcomeUnknown: it left, and no answer came.
            Refused: the remote answered no.
        """
        request = Request(operation_id, request_id, to_json(body), key, token)
        call = Call(self.name, "send", operation_id, request_id)
        return self._call(call, lambda: self._service.handle(request), lambda: self._service.accept_late(request))

    def query(self, operation_id: str, token: int | None = None) -> Standing:
        """Ask whether an operation has been applied; errors as for `send`, and harmless to repeat."""
        call = Call(self.name, "query", checked_id("operation id", operation_id), "")
        checked_token(token)
        return self._call(call, lambda: self._service.query(operation_id, token), lambda: None)

    def _call(self, call: Call, handle: Callable[[], Answer], handle_late: Callable[[], None]) -> Answer:
        delivery = known(Delivery, self._network(call))
        try:
            with self._perhaps_broken(call):
                answer = self._deliver(delivery, call, handle, handle_late)
        except RemoteError as error:
            self._boundary(Point(call.action, call.operation_id, error.reason))
            raise
        self._boundary(Point(call.action, call.operation_id, str(answer)))
        return answer

    @contextmanager
    def _perhaps_broken(self, call: Call) -> Iterator[None]:
        """A remote that breaks down over a request, its disk full, tells its caller nothing."""
        try:
            yield
        except StoreClosed:
            raise
        except StoreError as error:
            raise OutcomeUnknown(self.name, call.operation_id, "the remote broke down: no answer came") from error

    def _deliver(
        self, delivery: Delivery, call: Call, handle: Callable[[], Answer], handle_late: Callable[[], None]
    ) -> Answer:
        if delivery is Delivery.REFUSED:
            raise NotSent(self.name, call.operation_id, "the connection was refused")
        if delivery is Delivery.DELIVERED:
            return handle()
        if delivery is Delivery.LATE:
            handle_late()
        if delivery is Delivery.RESPONSE_LOST:
            with suppress(Refused):  # a lost answer hides a refusal too
                handle()
        raise OutcomeUnknown(self.name, call.operation_id, "time-out: no answer came")
