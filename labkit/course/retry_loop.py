"""A retry loop as it is often written, its facts in memory, played through a crash at every gap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

MAX_ATTEMPTS, MAX_SECONDS, WAIT_SECONDS = 3, 100.0, 30.0
BEGINS_AT = 100.0
RESTARTS_SECONDS = (5.0, 75.0)
"""How long after a crash the next process starts: before and after the next attempt is due."""
FACTS = ("attempts", "first_attempt_at", "next_run_at", "cancel_requested")
"""What the loop must know to keep its bounds, named as the columns of `tasks` that can hold it."""

COLUMNS = (*FACTS, "lease_token", "result_ref", "state")
"""Those among which an answer chooses."""

LAWS = {
    "within_attempts": f"No operation is sent more than {MAX_ATTEMPTS} times.",
    "within_time": f"No attempt begins {MAX_SECONDS:g} seconds after the first one, or later.",
    "waits": f"Between two attempts lie at least {WAIT_SECONDS:g} seconds.",
    "cancel_holds": "Once a cancel is requested, no attempt begins.",
}


@dataclass
class Loop:
    """One run: the remote refuses every attempt, the process dies once, and the next one goes on.

    Args:
        stored: which of `FACTS` stand in the database, and so are there after the crash.
        crash_after: the number of the attempt behind which the process dies; 0 for none.
        cancel_after: the number of the attempt behind which a person asks to stop; 0 for none.
        restart_seconds: how long after the crash the next process starts.
    """

    stored: frozenset[str]
    crash_after: int = 0
    cancel_after: int = 0
    restart_seconds: float = RESTARTS_SECONDS[0]
    now: float = BEGINS_AT
    facts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(FACTS, 0.0))
    sent_at: list[float] = field(default_factory=list)
    story: list[tuple[str, str, str, str]] = field(default_factory=list)
    cancelled_at: int = 0

    def play(self) -> tuple[str, str] | None:
        """Run to the end; return the law that broke and how, or None."""
        for process in ("process-1", "process-2"):
            for what in self._attempts():
                if process == "process-1" and len(self.sent_at) == self.cancel_after:
                    self.facts["cancel_requested"], self.cancelled_at = 1.0, len(self.sent_at)
                    what += ", and Ada asks to stop"
                self._tell(process, what)
                if process == "process-1" and len(self.sent_at) == self.crash_after:
                    break
            else:
                break
            self._tell(process, "!! crash")
            self.facts = {name: value if name in self.stored else 0.0 for name, value in self.facts.items()}
            self.now += self.restart_seconds
        return self._broken()

    def _attempts(self) -> Iterator[str]:
        while self.facts["attempts"] < MAX_ATTEMPTS and not self.facts["cancel_requested"]:
            self.now = max(self.now, self.facts["next_run_at"])
            begun = self.facts["first_attempt_at"] or self.now
            if self.now - begun >= MAX_SECONDS:
                return
            self.facts |= {"attempts": self.facts["attempts"] + 1, "first_attempt_at": begun}
            self.sent_at.append(self.now)
            self.facts["next_run_at"] = self.now + WAIT_SECONDS
            yield f"attempt {self.facts['attempts']:g}: refused"

    def _tell(self, process: str, what: str) -> None:
        row = ", ".join(f"{name} {self.facts[name]:g}" for name in FACTS if name in self.stored)
        self.story.append((f"{process} at {self.now:g} s", what, row or "nothing of it", str(len(self.sent_at))))

    def _broken(self) -> tuple[str, str] | None:
        sent = self.sent_at
        if self.cancelled_at and len(sent) > self.cancelled_at:
            return "cancel_holds", f"attempt {self.cancelled_at + 1} began after the cancel"
        gaps = [later - earlier for earlier, later in pairwise(sent)]
        if any(gap < WAIT_SECONDS for gap in gaps):
            return "waits", f"only {min(gaps):g} seconds lie between two attempts"
        if len(sent) > MAX_ATTEMPTS:
            return "within_attempts", f"it was sent {len(sent)} times"
        if sent and sent[-1] - sent[0] >= MAX_SECONDS:
            return "within_time", f"an attempt began {sent[-1] - sent[0]:g} seconds after the first one"
        return None


def runs(stored: frozenset[str]) -> Iterator[Loop]:
    """Every run: no crash, and one behind each attempt, followed soon or late, without and with a cancel before it."""
    yield Loop(stored)
    for crash_after in range(1, MAX_ATTEMPTS + 1):
        for restart_seconds in RESTARTS_SECONDS:
            yield Loop(stored, crash_after, 0, restart_seconds)
            yield Loop(stored, crash_after, crash_after, restart_seconds)
