"""The process in which a service runs: `python -m labkit.real.host`, led by its parent over a pipe.

Each line on stdin is an order, each line on stdout an answer, both JSON. When stdin ends, so does the process. What
becomes of a request is arranged here, and not on the public path: who calls the service cannot ask for its own fate.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import uvicorn

from labkit.errors import LabError
from labkit.exchange import Refusal
from labkit.real.connections import Connections
from labkit.real.service import Arrangement, HttpFace
from labkit.real.signals import leave_to_the_parent
from labkit.remote import Capabilities, RemoteService
from labkit.seams import Call, Delivery, ManualClock

HOST = "127.0.0.1"
SETTLING_ROUNDS = 20
"""How often the loop goes round before nothing that was sent by now can still wait at the door."""

MOST_AT_THE_DOOR = 100
"""How many connections are let in at once, before it is looked at how many there are."""


def bind(port: int = 0) -> socket.socket:
    """Return a socket bound on the loopback to `port`, or to a free one that the system chooses; nobody listens yet."""
    bound = socket.socket()
    try:
        bound.bind((HOST, port))
    except BaseException:
        bound.close()
        raise
    return bound


class ServerOfAParent(uvicorn.Server):
    """A server that leaves signals alone: its parent's pipe says when to stop."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Capture none."""
        return nullcontext()


def config_of(face: HttpFace) -> uvicorn.Config:
    """Return how the face is served: silently, and nothing but HTTP."""
    return uvicorn.Config(
        face.app(),
        http=Connections,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        backlog=MOST_AT_THE_DOOR,
        timeout_graceful_shutdown=1,
    )


class Host:
    """Follows the orders of its parent.

    Args:
        tell: sends an answer.
    """

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self.services: dict[str, RemoteService] = {}
        self._clock, self._tell = ManualClock(), tell
        self._arranged: dict[tuple[str, str, str], tuple[int, Arrangement]] = {}

    def arrange(self, call: Call) -> Arrangement:
        """Say what becomes of a request, and tell the parent that it has come."""
        number, arranged = self._arranged.pop((call.remote, call.action, call.operation_id), (0, Arrangement()))
        if number:  # told once this request has been dealt with: nothing is awaited in between
            asyncio.get_running_loop().call_soon(self._tell, {"dealt_with": number})
        return arranged

    async def follow(self, order: dict[str, Any]) -> None:
        """Carry out one order and answer it."""
        do = order.pop("do")
        known: dict[str, Callable[..., Awaitable[dict[str, Any]]]]
        known = {"open": self._open, "arrange": self._expect, "settle": self._settle, "leave": self._leave}
        try:
            answer = await known[do](**order)
        except (LabError, OSError) as error:
            answer = {"trouble": f"{type(error).__name__}: {error}"}
        self._tell({"done": do} | answer)

    async def _open(
        self, ledgers: dict[str, tuple[str, Any]], late_by_seconds: float, now: float, synchronous: Any
    ) -> dict[str, Any]:
        """Close the ledgers that are open, and open others: by the remote's name its file, and what it can do."""
        self.close()
        self._clock.reset(now)
        for name, (file, can) in ledgers.items():
            self.services[name] = RemoteService(
                file, name, Capabilities(**can), self._clock, None, late_by_seconds, synchronous
            )
        return {}

    async def _expect(
        self, number: int, call: list[str], delivery: str, cut: bool, refusal: dict[str, Any] | None, now: float
    ) -> dict[str, Any]:
        """Set the clock, and remember what becomes of the next such request."""
        self._clock.reset(now)
        remote, action, operation_id = call
        refused = None if refusal is None else Refusal(**refusal)
        self._arranged[remote, action, operation_id] = number, Arrangement(Delivery(delivery), cut, refused)
        return {}

    async def _settle(self) -> dict[str, Any]:
        """Let everything happen that was sent before: nothing of it is under way any more."""
        for _ in range(SETTLING_ROUNDS):
            await asyncio.sleep(0.001)
        self._arranged.clear()
        return {"connections": len(Connections.by_client)}

    async def _leave(self) -> dict[str, Any]:
        """Close the ledgers that are open."""
        self.close()
        return {}

    def close(self) -> None:
        """Close the ledgers."""
        self._arranged.clear()
        for service in self.services.values():
            service.close()
        self.services.clear()


async def serve() -> None:
    """Serve until stdin ends."""
    loop = asyncio.get_running_loop()
    door, closed = bind(), bind()
    host = Host(_tell)
    server = ServerOfAParent(config_of(HttpFace(host.services, host.arrange)))
    running = loop.create_task(server.serve(sockets=[door]))
    while not server.started and not running.done():
        await asyncio.sleep(0.005)
    orders: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    threading.Thread(target=_read, args=(loop, orders), daemon=True).start()
    _tell({"done": "start", "port": door.getsockname()[1], "closed_port": closed.getsockname()[1]})
    while (order := await orders.get()) is not None:
        await host.follow(order)
    host.close()
    os._exit(0)  # at once: open connections and the reading thread are nobody's any more


def _read(loop: asyncio.AbstractEventLoop, orders: asyncio.Queue[dict[str, Any] | None]) -> None:
    """Pass orders on to the loop; the end of the pipe is the last one."""
    with suppress(RuntimeError, OSError, ValueError):  # the loop is gone: so are we
        for line in sys.stdin.buffer:
            loop.call_soon_threadsafe(orders.put_nowait, json.loads(line))
        loop.call_soon_threadsafe(orders.put_nowait, None)


def _tell(answer: dict[str, Any]) -> None:
    with suppress(OSError):  # nobody listens any more: stdin has ended too
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    leave_to_the_parent()
    asyncio.run(serve())
