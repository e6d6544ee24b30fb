"""The real world's stage: a service process, the worker processes that call it, and whoever leads them.

A worker process reports each crossing, call and wait, and goes on when told to. Who decides what happens there is an
`Actor`: a drill with its crash points, or a life of the explorer, whose every choice then happens to a real process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from types import TracebackType
from typing import Any

from labkit.errors import SimulatedCrash
from labkit.real.children import KILLED, START_SECONDS, Child, ChildFailed, Order, module, python
from labkit.real.programs import order_of
from labkit.real.setting import Actor, Fate, Setting, error_of
from labkit.real.warm import CAN_FORK, ForkServer
from labkit.seams import Call, Clock, Delivery, Point

LIFE_SECONDS = 60.0
PATIENT_SECONDS = 30.0
"""How long a caller waits for an answer that will come: a kill switch, no result hangs on it."""

IMPATIENT_SECONDS = 0.1
"""How long it waits for one that will not."""

ANSWERLESS = frozenset({Delivery.REQUEST_LOST, Delivery.RESPONSE_LOST, Delivery.LATE})


class Stage:
    """A service process and its workers.

    Args:
        warm: fork worker processes from one that has loaded everything, where the system can; False: each starts anew.
        held: of the callers that get no answer, every so manieth waits in vain, the others are cut off; 1: all wait.
    """

    def __init__(self, warm: bool = True, held: int = 1) -> None:
        self._held, self._arranged, self._awaited = held, 0, 0
        self._lives: dict[str, Child] = {}
        with ExitStack() as ends:
            self._service = Child("the service", python(*module("host")))
            ends.callback(self._service.close)
            self._start = python(*module("worker"))
            if warm and CAN_FORK:
                server = ForkServer()
                ends.callback(server.close)
                self._start = server.start
            ready = self._service.must_hear(START_SECONDS)
            self._ends = ends.pop_all()
        self.address = f"http://127.0.0.1:{ready['port']}"
        self._closed_door = f"http://127.0.0.1:{ready['closed_port']}"

    def open(self, setting: Setting, clock: Clock) -> None:
        """Let the service keep the ledgers of a setting, and no others.

        Args:
            setting: where workers work from now on.
            clock: what the service goes by.

        Raises:
            ChildFailed: it cannot.
        """
        self._setting, self._program, self._clock = setting, order_of(setting.program), clock
        ledgers = {name: [str(file), asdict(can)] for name, (file, can) in setting.remotes.items()}
        late, synchronous = setting.late_by_seconds, setting.synchronous
        self._ask("open", ledgers=ledgers, late_by_seconds=late, now=clock.now(), synchronous=synchronous)

    def live(
        self,
        actor: Actor,
        fatal: Callable[[], float | None] = lambda: None,
        seconds: float = LIFE_SECONDS,
    ) -> str | BaseException:
        """Start a worker process, and lead it to its end.

        Args:
            actor: decides what happens to it.
            fatal: asked after each order: in how many seconds it is to be killed from outside; None: not now.
            seconds: how long it may give no sign.

        Returns:
            What its program returned, as text; or the error that it raised.

        Raises:
            SimulatedCrash: the actor or `fatal` had it killed; it is dead.
            ChildFailed: it did not start, ended in another way, or gave no sign for too long.
        """
        with self._child(actor.name) as child:
            child.tell(self._first_order(actor.name, actor.now()))
            while True:
                said = child.must_hear(seconds)
                self._await_service()
                if "failed" in said:
                    raise ChildFailed(actor.name, child.wait(), said["failed"], "did not start")
                if "ended" in said:
                    return str(said["ended"])
                if "raised" in said:
                    return error_of(said)
                try:
                    told = self._act(actor, said)
                except SimulatedCrash:
                    self._let_die(child)
                    raise
                child.go_on()
                child.tell({"now": actor.now()} | told)
                self._perhaps_kill(child, fatal())

    def pause(self, name: str) -> None:
        """Put a worker to sleep without its knowledge; it wakes when it is told to go on."""
        self._lives[name].stop()

    def settle(self) -> None:
        """Wait until nothing that was sent is under way any more, but for late requests."""
        self._awaited = 0
        self._ask("settle")

    def leave(self) -> None:
        """Let the service close its ledgers: Windows removes no file that somebody has open."""
        with suppress(ChildFailed):  # it has ended, and with it all that it had open
            self._ask("leave")

    def close(self) -> None:
        """End every process of the stage."""
        with self._ends as ends:
            for child in self._lives.values():
                ends.callback(child.close)

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _child(self, name: str) -> Iterator[Child]:
        child = self._lives[name] = Child(name, self._start)
        try:
            yield child
        finally:
            child.close()
            del self._lives[name]

    def _first_order(self, name: str, now: float) -> Order:
        setting = self._setting
        return {
            "now": now,
            "name": name,
            "task": setting.task_id,
            "tasks": str(setting.tasks),
            "program": self._program,
            "assumptions": asdict(setting.assumptions),
            "lease_seconds": setting.lease_seconds,
            "remotes": {remote: asdict(can) for remote, (_, can) in setting.remotes.items()},
            "synchronous": setting.synchronous,
        }

    def _act(self, actor: Actor, said: Order) -> Order:
        """Let the actor decide, and return what the worker is told beside the time."""
        if "crossed" in said:
            actor.cross(Point(*said["crossed"]))
            return {}
        if "sleeps" in said:
            actor.sleep(said["sleeps"])
            return {}
        call = Call(*said["calls"])
        return self._arrange(call, actor.deliver(call))

    def _arrange(self, call: Call, fate: Fate) -> Order:
        """Arrange with the service what becomes of a call, and return how the worker is to make it."""
        delivery, refusal = (fate, None) if isinstance(fate, Delivery) else (Delivery.DELIVERED, asdict(fate))
        if delivery is Delivery.REFUSED:
            return {"address": self._closed_door, "read_seconds": PATIENT_SECONDS}
        self._arranged += 1
        cut = delivery in ANSWERLESS and self._arranged % self._held != 0
        where, now = [call.remote, call.action, call.operation_id], self._clock.now()
        self._ask("arrange", number=self._arranged, call=where, delivery=delivery, cut=cut, refusal=refusal, now=now)
        self._awaited = self._arranged
        in_vain = delivery in ANSWERLESS and not cut
        return {"address": self.address, "read_seconds": IMPATIENT_SECONDS if in_vain else PATIENT_SECONDS}

    def _await_service(self) -> None:
        """A caller may have lost patience before the service has read its request: wait for that."""
        while self._awaited:
            said = self._service.must_hear(LIFE_SECONDS)
            if said.get("dealt_with") == self._awaited:
                self._awaited = 0

    def _ask(self, do: str, **order: Any) -> None:
        self._service.tell({"do": do, **order})
        while (said := self._service.must_hear(LIFE_SECONDS)).get("done") != do:
            pass  # news of a request whose sender has been killed
        if "trouble" in said:
            raise ChildFailed("the service", None, said["trouble"], f"could not {do}")

    def _let_die(self, child: Child) -> None:
        """Let a worker kill itself where it stands."""
        child.go_on()
        child.tell({"die": True})
        code = child.wait()
        if code not in KILLED:
            raise ChildFailed(child.name, code, child.said, f"was to be killed, but ended with exit code {code}")

    def _perhaps_kill(self, child: Child, seconds: float | None) -> None:
        if seconds is not None:
            time.sleep(seconds)
            child.kill()
            child.wait()
            self._awaited = 0
            raise SimulatedCrash(f"{child.name} is killed from outside")
