"""The outbox: messages written with the changes that they announce, and delivered at least once afterwards."""

from __future__ import annotations

from collections.abc import Callable

from labkit.changes import Changes
from labkit.records import OutboxMessage
from labkit.seams import Point, reading
from labkit.values import from_json


class OutboxChanges(Changes):
    """What a relay does. A message gets into the outbox by the `announce` of a change, and in no other way."""

    def undelivered(self, limit: int = 100) -> list[OutboxMessage]:
        """Read messages on their way, oldest first."""
        query = (
            "SELECT message_id, task_id, topic, payload, created_at, deliveries, delivered_at "
            "FROM outbox WHERE delivered_at IS NULL ORDER BY seq LIMIT ?"
        )
        with self._db.read() as db:
            rows = db.execute(query, (limit,)).fetchall()
            return [OutboxMessage(*(*row[:3], from_json(row[3]), *row[4:])) for row in rows]

    def relay(self, publish: Callable[[OutboxMessage], None], limit: int = 100) -> int:
        """Deliver waiting messages, oldest first; each at least once, by its id at most once for a careful consumer.

        Args:
            publish: hands one message over; where it raises, that message and those behind it stay for the next time.
            limit: how many at the most.

        Returns:
            How many were delivered and marked so. A crash between handing over and marking delivers that one again.
        """
        delivered = 0
        for message in self.undelivered(limit):
            publish(message)
            self._boundary(Point("publish", message.id, "handed over"))
            with self._db.write() as db:
                db.execute(
                    "UPDATE outbox SET deliveries = deliveries + 1, delivered_at = coalesce(delivered_at, ?) "
                    "WHERE message_id = ?",
                    (reading(self.clock), message.id),
                )
            self._boundary(Point("mark_delivered", message.id, "marked"))
            delivered += 1
        return delivered
