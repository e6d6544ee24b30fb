"""Task queues on SQLite, each put through its own whole cycle; what they promise differs, and the table says so."""

import json
from pathlib import Path

from contenders import REQUEST, settings_of


class Huey:
    """Enqueue, dequeue and run, store the result."""

    def __init__(self, folder: Path, number: int) -> None:
        from huey import SqliteHuey

        self.huey = SqliteHuey(filename=str(folder / "huey.sqlite"), fsync=True, timeout=30)
        self.refund = self.huey.task()(refund)

    def ready(self, cycles: int) -> None:
        pass

    def run(self, cycles: int) -> None:
        for _ in range(cycles):
            self.refund(REQUEST)
            assert self.huey.execute(self.huey.dequeue()) == "reference", "a result to store"

    def durability(self) -> str:
        return settings_of(self.huey.storage.conn)


def refund(request: dict[str, object]) -> str:
    return "reference"


class PersistQueue:
    """Put, get, acknowledge. Two processes may get the same item; that is not held against it here."""

    def __init__(self, folder: Path, number: int) -> None:
        from persistqueue import SQLiteAckQueue

        self.queue = SQLiteAckQueue(str(folder), auto_commit=True, timeout=30)

    def ready(self, cycles: int) -> None:
        pass

    def run(self, cycles: int) -> None:
        for _ in range(cycles):
            self.queue.put(REQUEST)
            self.queue.ack(self.queue.get())

    def durability(self) -> str:
        return settings_of(self.queue._putter)


class LiteQueue:
    """Put, pop, done. It asks for synchronous = NORMAL; here it gets FULL."""

    level = "FULL"

    def __init__(self, folder: Path, number: int) -> None:
        from litequeue import LiteQueue as Queue

        self.queue = Queue(str(folder / "lite.sqlite"), timeout=30)
        self.queue.conn.execute(f"PRAGMA synchronous = {self.level}")

    def ready(self, cycles: int) -> None:
        pass

    def run(self, cycles: int) -> None:
        for _ in range(cycles):
            self.queue.put(json.dumps(REQUEST))
            self.queue.done(self.queue.pop().message_id)

    def durability(self) -> str:
        return settings_of(self.queue.conn)


class LiteQueueAsItComes(LiteQueue):
    """The same with its own setting."""

    level = "NORMAL"
