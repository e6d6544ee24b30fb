"""Somebody else's system: a fake remote with its own ledger, and the wire on which it is called.

`RemoteService` is the system: its SQLite file outlives every worker. `Remote` is the caller's end of the wire, where
requests and answers get lost. Idempotency keys follow the IETF draft "The Idempotency-Key HTTP Header Field"
(https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from labkit.database import Database, Schema, Synchronous
from labkit.errors import InvalidInput, NotSent, OutcomeUnknown, Refused, RemoteError
from labkit.records import Json, checked_name, checked_seconds, to_json
from labkit.seams import Boundary, Call, Clock, Delivery, Network, Point, SystemClock, no_boundary, reliable

Answer = TypeVar("Answer", "Receipt", "Standing")
LEDGER = Schema("ledger.sql", application_id=0x4C414252, version=1)


@dataclass(frozen=True)
class Capabilities:
    """What a remote can do, and its fine print.

    Args:
        idempotency_keys: a request with a key that was seen before is answered again, not applied again.
        status_query: it tells by operation id whether it has applied something.
        fencing_tokens: it refuses a token smaller than the largest it has seen for the operation.
        key_ttl_seconds: how long it remembers a key, counted from the key's first use.
        keys_required: a request without a key is refused.
        keys_ignored: it takes keys, as its manual says, and pays no heed to them.
        locks_key_in_flight: while a request is worked on, another with its key is refused.
        query_lag_seconds: a status query does not see effects younger than this.
    """

    idempotency_keys: bool = False
    status_query: bool = False
    fencing_tokens: bool = False
    key_ttl_seconds: float = 86_400.0
    keys_required: bool = False
    keys_ignored: bool = False
    locks_key_in_flight: bool = False
    query_lag_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not self.idempotency_keys and (self.keys_required or self.keys_ignored or self.locks_key_in_flight):
            raise InvalidInput("fine print about keys only where there are idempotency keys", self)
        checked_seconds("key_ttl_seconds", self.key_ttl_seconds)
        checked_seconds("query_lag_seconds", self.query_lag_seconds)


@dataclass(frozen=True)
class Request:
    """One request on the wire; `body` is JSON text."""

    operation_id: str
    request_id: str
    body: str
    key: str | None = None
    token: int | None = None


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


Gate = Callable[[Request], Refusal | None]


def open_gate(request: Request) -> Refusal | None:
    """Refuse nothing."""
    return None


class RemoteService:
    """A remote system that applies requests and keeps the books.

    Args:
        path: its ledger's file; created where it is missing.
        name: such as `payments`; references read `payments-1`.
        capabilities: what it can do.
        clock: seconds for its own times.
        gate: refuses requests before they are looked at, as an overloaded or forbidding service does.
        late_by_seconds: how much later a late request is applied.
        synchronous: as for the task store.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str,
        capabilities: Capabilities | None = None,
        clock: Clock | None = None,
        gate: Gate = open_gate,
        late_by_seconds: float = 30.0,
        synchronous: Synchronous = "FULL",
    ) -> None:
        self.name = checked_name("remote", name)
        self.capabilities = capabilities or Capabilities()
        self.clock = clock or SystemClock()
        self.late_by_seconds = checked_seconds("late_by_seconds", late_by_seconds)
        self._gate = gate
        self._db = Database(path, LEDGER, synchronous)

    def handle(self, request: Request) -> Receipt:
        """Apply a request that has arrived, once per key where keys are honoured.

        Raises:
            Refused: it applied nothing for this request, and says why.
        """
        with self._db.write() as db:
            self._arrive(db, self.clock.now())
            answer = self._decide(db, request, self.clock.now())
            self._note(db, request, answer)
        if isinstance(answer, Refusal):
            raise self._refused(request.operation_id, answer)
        return answer

    def query(self, operation_id: str, token: int | None = None) -> Standing:
        """Tell whether an operation has been applied.

        Args:
            operation_id: the caller's own reference.
            token: a fencing token; where the remote honours them, it refuses smaller ones from now on, and only then
                is "not found" final.

        Raises:
            Refused: it offers no status query.
        """
        if not self.capabilities.status_query:
            raise self._refused(operation_id, Refusal("there is no status query", "invalid", 404))
        now = self.clock.now()
        with self._db.write() as db:
            self._arrive(db, now)
            if self._fenced_off(db, operation_id, token):
                raise self._refused(operation_id, _FENCED)
            row = db.execute(
                "SELECT min(effect_id) FROM effects WHERE operation_id = ? AND applied_at <= ?",
                (operation_id, now - self.capabilities.query_lag_seconds),
            ).fetchone()
        return Standing(row[0] is not None, None if row[0] is None else f"{self.name}-{row[0]}")

    def accept_late(self, request: Request) -> None:
        """Take in a request whose caller sees a time-out, to be applied `late_by_seconds` from now."""
        with self._db.write() as db:
            db.execute(
                "INSERT INTO under_way (operation_id, request_id, body, key, token, arrives_at) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (
                    request.operation_id,
                    request.request_id,
                    request.body,
                    request.key,
                    request.token,
                    self.clock.now() + self.late_by_seconds,
                ),
            )

    def deliver_late(self) -> int:
        """Let every late request arrive now, whatever the clock says; returns how many there were."""
        with self._db.write() as db:
            return self._arrive(db, float("inf"))

    def effects(self) -> dict[str, int]:
        """Count the effects of each operation. For people and checks: a worker must never decide by it."""
        with self._db.read() as db:
            query = "SELECT operation_id, count(*) FROM effects GROUP BY operation_id ORDER BY operation_id"
            return dict(db.execute(query).fetchall())

    def requests(self) -> list[tuple[str, str, str]]:
        """List what arrived, in order: operation id, request id, and what the sender was told."""
        with self._db.read() as db:
            return db.execute("SELECT operation_id, request_id, answer FROM requests ORDER BY seq").fetchall()

    def client(self, network: Network = reliable, boundary: Boundary = no_boundary) -> Remote:
        """Return a caller's end of the wire to this service."""
        return Remote(self, network, boundary)

    def close(self) -> None:
        """Close the ledger. A repeated call is harmless."""
        self._db.close()

    def __enter__(self) -> RemoteService:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _arrive(self, db: sqlite3.Connection, now: float) -> int:
        query = "DELETE FROM under_way WHERE arrives_at <= ? RETURNING seq, operation_id, request_id, body, key, token"
        late = sorted(db.execute(query, (now,)).fetchall())
        for _, *fields in late:
            operation_id, request_id, body, key, token = fields
            request = Request(operation_id, request_id, body, key, token)
            self._note(db, request, self._decide(db, request, self.clock.now()))
        return len(late)

    def _decide(self, db: sqlite3.Connection, request: Request, now: float) -> Receipt | Refusal:
        refusal = self._gate(request)
        if refusal is not None:
            return refusal
        if self._fenced_off(db, request.operation_id, request.token):
            return _FENCED
        keys = self.capabilities.idempotency_keys
        if keys and request.key is None and self.capabilities.keys_required:
            return Refusal("an Idempotency-Key is required", "invalid", 400)
        if not keys or request.key is None or self.capabilities.keys_ignored:
            return self._apply(db, request, now)
        return self._decide_by_key(db, request, request.key, now)

    def _decide_by_key(self, db: sqlite3.Connection, request: Request, key: str, now: float) -> Receipt | Refusal:
        db.execute("DELETE FROM keys WHERE first_used_at + ? <= ?", (self.capabilities.key_ttl_seconds, now))
        seen = db.execute("SELECT body, effect_id FROM keys WHERE key = ?", (key,)).fetchone()
        if seen is not None and seen[0] != request.body:
            return Refusal("the same key came with another body", "invalid", 422)
        if seen is not None:
            return Receipt(f"{self.name}-{seen[1]}", replayed=True)
        if self.capabilities.locks_key_in_flight:
            busy = db.execute("SELECT 1 FROM under_way WHERE key = ?", (key,)).fetchone()
            if busy is not None:
                return Refusal("a request with this key is in flight", "transient", 409)
        receipt = self._apply(db, request, now)
        effect_id = int(receipt.reference.rpartition("-")[2])
        db.execute("INSERT INTO keys VALUES (?, ?, ?, ?)", (key, request.body, effect_id, now))
        return receipt

    def _apply(self, db: sqlite3.Connection, request: Request, now: float) -> Receipt:
        row = db.execute(
            "INSERT INTO effects (operation_id, request_id, body, applied_at) VALUES (?, ?, ?, ?)",
            (request.operation_id, request.request_id, request.body, now),
        )
        return Receipt(f"{self.name}-{row.lastrowid}")

    def _fenced_off(self, db: sqlite3.Connection, operation_id: str, token: int | None) -> bool:
        if not self.capabilities.fencing_tokens or token is None:
            return False
        db.execute(
            "INSERT INTO fences VALUES (?, ?) ON CONFLICT (operation_id) "
            "DO UPDATE SET token = max(token, excluded.token)",
            (operation_id, token),
        )
        (largest,) = db.execute("SELECT token FROM fences WHERE operation_id = ?", (operation_id,)).fetchone()
        return bool(token < largest)

    def _note(self, db: sqlite3.Connection, request: Request, answer: Receipt | Refusal) -> None:
        told = f"refused: {answer.reason}" if isinstance(answer, Refusal) else str(answer)
        db.execute(
            "INSERT INTO requests (operation_id, request_id, key, answer, at) VALUES (?, ?, ?, ?, ?)",
            (request.operation_id, request.request_id, request.key, told, self.clock.now()),
        )

    def _refused(self, operation_id: str, why: Refusal) -> Refused:
        return Refused(self.name, operation_id, why.reason, why.category, why.status, why.retry_after_seconds)


class Remote:
    """A caller's end of the wire.

    Args:
        service: the remote system.
        network: what the wire does with each call.
        boundary: called after each call, whatever came of it: a worker can die before it acts on the answer.
    """

    def __init__(self, service: RemoteService, network: Network, boundary: Boundary) -> None:
        self.name, self._service, self._network, self._boundary = service.name, service, network, boundary
        self.capabilities = service.capabilities

    def send(
        self,
        operation_id: str,
        body: Json,
        request_id: str,
        key: str | None = None,
        token: int | None = None,
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

        def late() -> None:
            self._service.accept_late(request)

        return self._call(
            Call(self.name, "send", operation_id, request_id), lambda: self._service.handle(request), late
        )

    def query(self, operation_id: str, token: int | None = None) -> Standing:
        """Ask whether an operation has been applied; errors as for `send`, and harmless to repeat."""
        call = Call(self.name, "query", operation_id, "")
        return self._call(call, lambda: self._service.query(operation_id, token), lambda: None)

    def _call(self, call: Call, handle: Callable[[], Answer], late: Callable[[], None]) -> Answer:
        delivery = self._network(call)
        try:
            if delivery is Delivery.REFUSED:
                raise NotSent(self.name, call.operation_id, "the connection was refused")
            if delivery is Delivery.LATE:
                late()
            if delivery in (Delivery.LATE, Delivery.REQUEST_LOST):
                raise OutcomeUnknown(self.name, call.operation_id, "time-out: no answer came")
            answer = self._answer(call, handle, lost=delivery is Delivery.RESPONSE_LOST)
        except RemoteError as error:
            self._boundary(Point(call.action, call.operation_id, error.reason))
            raise
        self._boundary(Point(call.action, call.operation_id, str(answer)))
        return answer

    def _answer(self, call: Call, handle: Callable[[], Answer], lost: bool) -> Answer:
        try:
            answer = handle()
        except Refused:
            if not lost:
                raise
        else:
            if not lost:
                return answer
        raise OutcomeUnknown(self.name, call.operation_id, "time-out: no answer came")


_FENCED = Refusal("a newer fencing token has been seen", "permission", 412)
