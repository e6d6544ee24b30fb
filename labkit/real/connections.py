"""Connections to a service: all that are open are known, none is waited for without an end, and one can be cut."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

HOLD_SECONDS = 60.0
"""How long a caller that is to get no answer may wait for it."""

HEAD_SECONDS = 10.0
"""How long a request's first line and headers may take. Who sends half of them would hold a connection for ever, and
there are only so many: https://en.wikipedia.org/wiki/Slowloris_(cyber_attack)."""


MOST_CONNECTIONS = 512


def most_connections() -> int:
    """How many may be open at a time: ledgers and others need files of this process too."""
    try:
        from resource import RLIMIT_NOFILE, getrlimit
    except ImportError:  # Windows has no such limit
        return MOST_CONNECTIONS
    files, _ = getrlimit(RLIMIT_NOFILE)
    return min(MOST_CONNECTIONS, files // 2) if files > 0 else MOST_CONNECTIONS


class Connections(H11Protocol):
    """uvicorn's protocol, which also remembers each open connection: an app has no other way to cut one."""

    by_client: ClassVar[dict[tuple[str, int], asyncio.Transport]] = {}
    idle: ClassVar[dict[Connections, None]] = {}
    """Those on which no request is being answered, the one that has been so for longest first."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Remember it."""
        super().connection_made(transport)
        if self.client is not None:
            self.by_client[self.client] = transport
        self._watch_the_head()
        if len(self.by_client) > most_connections():  # somebody opens them and lets them be: those go first
            next(iter(self.idle)).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take it in; more of a head does not buy more time for the rest."""
        super().data_received(data)
        self._watch_the_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        super().connection_lost(exc)
        self._stop_watching()
        if self.client is not None:
            self.by_client.pop(self.client, None)

    def _watch_the_head(self) -> None:
        """Have the connection cut unless a request is being answered soon. Between requests uvicorn watches, too."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_watching()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)
            self.idle[self] = None

    def _stop_watching(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
            del self.idle[self]


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
