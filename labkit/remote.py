"""Somebody else's system: a fake remote whose own ledger outlives every worker.

Idempotency keys follow the IETF draft "The Idempotency-Key HTTP Header Field"
(https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any

from labkit.database import Database, Schema, Synchronous, opened
from labkit.errors import InvalidInput, Refused, StoreCorrupt
from labkit.exchange import Receipt, Refusal, Request, Standing, checked_token
from labkit.seams import Clock, SystemClock, reading
from labkit.values import checked_id, checked_name, checked_seconds

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


Gate = Callable[[Request], Refusal | None]
"""Decides about a request before it is looked at; None lets it in."""

KEY_REUSED = Refusal("the same key came with another body", "invalid", 422)
_FENCED = Refusal("a newer fencing token has been seen", "permission", 412)


class RemoteService:
    """A remote system that applies requests and keeps the books.

    Args:
        path: its ledger's file, created where it is missing; or one that is open already.
        name: such as `payments`; references read `payments-1`.
        capabilities: what it can do.
        clock: seconds for its own times.
        gate: refuses requests before they are looked at, as an overloaded or forbidding service does; None: never.
        late_by_seconds: how much later a late request is applied.
        synchronous: as for the task store.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Database,
        name: str,
        capabilities: Capabilities | None = None,
        clock: Clock | None = None,
        gate: Gate | None = None,
        late_by_seconds: float = 30.0,
        synchronous: Synchronous = "FULL",
    ) -> None:
        self.name = checked_name("remote", name)
        self.capabilities = capabilities or Capabilities()
        self.clock = clock or SystemClock()
        self.late_by_seconds = checked_seconds("late_by_seconds", late_by_seconds)
        self._gate = gate
        self._db = opened(path, LEDGER, synchronous)

    def handle(self, request: Request) -> Receipt:
        """Apply a request that has arrived, once per key where keys are honoured.

        Raises:
            Refused: it applied nothing for this request, and says why.
        """
        with self._db.write() as db:
            now = self._arrive(db)
            answer = self._decide(db, request, now)
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
            Refused: it offers no status query, or it has seen a larger token.
        """
        checked_id("operation id", operation_id)
        checked_token(token)
        if not self.capabilities.status_query:
            raise self._refused(operation_id, Refusal("there is no status query", "invalid", 404))
        with self._db.write() as db:
            now = self._arrive(db)
            fenced_off = self._fenced_off(db, operation_id, token)
            (first,) = db.execute(
                "SELECT min(effect_id) FROM effects WHERE operation_id = ? AND applied_at <= ?",
                (operation_id, now - self.capabilities.query_lag_seconds),
            ).fetchone()
        if fenced_off:
            raise self._refused(operation_id, _FENCED)
        return Standing(first is not None, None if first is None else self._reference(first))

    def accept_late(self, request: Request) -> None:
        """Take in a request whose caller sees a time-out, to be applied `late_by_seconds` from now."""
        with self._db.write() as db:
            db.execute(
                "INSERT INTO under_way (operation_id, request_id, body, key, token, arrives_at) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (*astuple(request), reading(self.clock) + self.late_by_seconds),
            )

    def arrivals(self) -> list[float]:
        """List when late requests will arrive, in seconds of the clock, the next one first."""
        query = "SELECT arrives_at FROM under_way ORDER BY arrives_at"
        with self._db.read() as db:
            return [at for (at,) in db.execute(query).fetchall()]

    def deliver_late(self) -> int:
        """Let every late request arrive now, whatever the clock says, and return how many there were.

        A key that would be forgotten by the time of their arrival is still remembered now: to see that, move the clock.
        """
        with self._db.write() as db:
            (waiting,) = db.execute("SELECT count(*) FROM under_way").fetchone()
            self._arrive(db, due=float("inf"))
        return int(waiting)

    def effects(self) -> dict[str, int]:
        """Count the effects of each operation. For people and checks: a worker must never decide by it."""
        with self._db.write() as db:
            self._arrive(db)
            query = "SELECT operation_id, count(*) FROM effects GROUP BY operation_id ORDER BY operation_id"
            return dict(db.execute(query).fetchall())

    def requests(self) -> list[tuple[str, str, str]]:
        """List what arrived, in order: operation id, request id, and what the sender was told."""
        with self._db.write() as db:
            self._arrive(db)
            return db.execute("SELECT operation_id, request_id, answer FROM requests ORDER BY seq").fetchall()

    def close(self) -> None:
        """Close the ledger. A repeated call is harmless."""
        self._db.close()

    def __enter__(self) -> RemoteService:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _arrive(self, db: sqlite3.Connection, due: float | None = None) -> float:
        """Let late requests arrive, each at its own time and not at the time of this look; return the time now."""
        now = reading(self.clock)
        query = (
            "DELETE FROM under_way WHERE arrives_at <= ? "
            "RETURNING arrives_at, seq, operation_id, request_id, body, key, token"
        )
        for arrives_at, _, *fields in sorted(db.execute(query, (now if due is None else due,)).fetchall()):
            self._decide(db, self._as_it_was(fields), min(arrives_at, now), late=True)
        return now

    def _as_it_was(self, fields: list[Any]) -> Request:
        try:
            return Request(*fields)
        except InvalidInput as error:
            raise StoreCorrupt(self._db.path.name, f"a late request that cannot be read: {error}") from error

    def _decide(self, db: sqlite3.Connection, request: Request, now: float, late: bool = False) -> Receipt | Refusal:
        answer = self._answer(db, request, now, late)
        told = f"refused: {answer.reason}" if isinstance(answer, Refusal) else str(answer)
        db.execute(
            "INSERT INTO requests (operation_id, request_id, key, answer, at) VALUES (?, ?, ?, ?, ?)",
            (request.operation_id, request.request_id, request.key, told, now),
        )
        return answer

    def _answer(self, db: sqlite3.Connection, request: Request, now: float, late: bool) -> Receipt | Refusal:
        refusal = None if self._gate is None else self._gate(request)
        if refusal is not None:
            return refusal
        if self._fenced_off(db, request.operation_id, request.token):
            return _FENCED
        can = self.capabilities
        if can.keys_required and request.key is None:
            return Refusal("an Idempotency-Key is required", "invalid", 400)
        by_key = can.idempotency_keys and not can.keys_ignored and request.key is not None
        before = self._answer_by_key(db, request, now, late) if by_key else None
        if before is not None:
            return before
        (effect_id,) = db.execute(
            "INSERT INTO effects (operation_id, request_id, body, applied_at) VALUES (?, ?, ?, ?) RETURNING effect_id",
            (request.operation_id, request.request_id, request.body, now),
        ).fetchone()
        if by_key:
            db.execute("INSERT INTO keys VALUES (?, ?, ?, ?)", (request.key, request.body, effect_id, now))
        return Receipt(self._reference(effect_id))

    def _answer_by_key(
        self, db: sqlite3.Connection, request: Request, now: float, late: bool
    ) -> Receipt | Refusal | None:
        db.execute("DELETE FROM keys WHERE first_used_at + ? <= ?", (self.capabilities.key_ttl_seconds, now))
        seen = db.execute("SELECT body, effect_id FROM keys WHERE key = ?", (request.key,)).fetchone()
        if seen is not None and seen[0] != request.body:
            return KEY_REUSED
        if seen is not None:
            return Receipt(self._reference(seen[1]), replayed=True)
        in_flight = db.execute("SELECT 1 FROM under_way WHERE key = ?", (request.key,)).fetchone() is not None
        if self.capabilities.locks_key_in_flight and in_flight and not late:
            return Refusal("a request with this key is in flight", "transient", 409)
        return None

    def _fenced_off(self, db: sqlite3.Connection, operation_id: str, token: int | None) -> bool:
        if not self.capabilities.fencing_tokens or token is None:
            return False
        (largest,) = db.execute(
            "INSERT INTO fences VALUES (?, ?) ON CONFLICT (operation_id) "
            "DO UPDATE SET token = max(token, excluded.token) RETURNING token",
            (operation_id, token),
        ).fetchone()
        return bool(token < largest)

    def _reference(self, effect_id: int) -> str:
        return f"{self.name}-{effect_id}"

    def _refused(self, operation_id: str, why: Refusal) -> Refused:
        return Refused(self.name, operation_id, *astuple(why))
