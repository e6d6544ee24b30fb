"""`recovery-lab serve`: the lab's remotes over HTTP, for any other program."""

from __future__ import annotations

import errno
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import uvicorn

from labkit.agent import REMOTES
from labkit.cli.ending import in_words
from labkit.errors import InvalidInput, LabError
from labkit.real.host import bind, config_of
from labkit.real.service import REFUSALS, Arrange, Arrangement, HttpFace, Threads
from labkit.remote import RemoteService
from labkit.scratch import Scratch
from labkit.seams import Call, Delivery

STRICT = {**REMOTES, "payments": replace(REMOTES["payments"], keys_required=True, locks_key_in_flight=True)}
"""The agent's three remotes; payments insists on a key, and says so while a request with it is under way."""

FAULTS = (Delivery.REQUEST_LOST, Delivery.RESPONSE_LOST, Delivery.LATE, *map(str, REFUSALS))


class Server(uvicorn.Server):
    """A server that a closed terminal ends as Ctrl-C does.

    Its handler raises nothing: in the middle of an answer, uvicorn takes whatever is raised for an error of the
    application, and goes on.
    """

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture what uvicorn does, and SIGHUP where it ends a process; what came is raised again in the end."""
        hangup = getattr(signal, "SIGHUP", None)
        with super().capture_signals():
            here = threading.current_thread() is threading.main_thread()
            if hangup is None or not here or signal.getsignal(hangup) is signal.SIG_IGN:  # ignored under `nohup`
                yield
                return
            before = signal.signal(hangup, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(hangup, before)


def run_serve(
    port: int = 0,
    folder: Path | None = None,
    faults: Sequence[str] = (),
    seed: int = 1,
    late_by_seconds: float = 30.0,
    run: Callable[[uvicorn.Server, list[socket.socket]], None] = uvicorn.Server.run,
) -> int:
    """Serve until Ctrl-C, on the loopback alone.

    Args:
        port: 0 lets the system choose a free one.
        folder: keeps the ledgers, made where it is missing; None: a temporary folder, removed in the end.
        faults: each `KIND=RATE`, a kind of `FAULTS` and its share of the requests.
        seed: of the draws.
        late_by_seconds: how much later a late request is applied.
        run: runs the server.

    Returns:
        0, or 2 where it could not begin.
    """
    with ExitStack() as ends:
        try:
            rates = rates_of(faults)
            door = ends.enter_context(_door(port))
            where = ends.enter_context(Scratch()) if folder is None else _made(folder)
            threads = ends.enter_context(closing(Threads()))  # closed after the ledgers, which free it
            services = {
                name: ends.enter_context(
                    RemoteService(where / f"{name}.sqlite", name, can, late_by_seconds=late_by_seconds)
                )
                for name, can in STRICT.items()
            }
        except (LabError, OSError) as error:
            print(f"This went wrong: {in_words(error)}")
            return 2
        door.listen()  # so that whoever reads the address next is not turned away
        print(f"http://127.0.0.1:{door.getsockname()[1]}")
        print(f"serves {', '.join(services)} on this machine alone; Ctrl-C ends it", flush=True)
        run(Server(config_of(HttpFace(services, drawn(rates, seed), threads.aside))), [door])
    return 0


def _door(port: int) -> socket.socket:
    """Return a socket bound to a port.

    Raises:
        InvalidInput: somebody else has it, or it may not be had; the error says what to do.
    """
    try:
        return bind(port)
    except (OSError, OverflowError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        why = "in use by another program" if taken else in_words(error)
        raise InvalidInput("a port that is free (without --port the system chooses one)", f"{port}: {why}") from error


def _made(folder: Path) -> Path:
    """Return a folder, made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def rates_of(faults: Sequence[str], kinds: Sequence[str] = FAULTS) -> Mapping[str, float]:
    """Read `KIND=RATE` words.

    Args:
        faults: the words.
        kinds: those that can be meant.

    Raises:
        InvalidInput: a kind or a rate cannot be meant, or the rates add up to more than 1.
    """
    rates: dict[str, float] = {}
    for word in faults:
        kind, _, rate = word.partition("=")
        try:
            rates[kind] = float(rate)
        except ValueError:
            rates[kind] = -1.0
    if not set(rates) <= set(kinds) or not all(0 <= rate <= 1 for rate in rates.values()) or sum(rates.values()) > 1:
        raise InvalidInput(f"KIND=RATE, a kind of {', '.join(kinds)}, rates of at most 1 together", " ".join(faults))
    return rates


def drawn(rates: Mapping[str, float], seed: int) -> Arrange:
    """Return what becomes of each request, the same draws for the same seed."""
    draws = random.Random(seed)

    def arrange(call: Call) -> Arrangement:
        left, cut = draws.random(), draws.random() < 0.5
        for kind, rate in rates.items():
            left -= rate
            if left < 0:
                if kind.isdigit():
                    return Arrangement(refusal=REFUSALS[int(kind)])
                return Arrangement(Delivery(kind), cut)
        return Arrangement()

    return arrange
