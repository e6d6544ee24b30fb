"""The panel of the lease: move the clock, let the old holder wake, with its name checked and with its token."""

from __future__ import annotations

import html
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from labkit.agent import plan
from labkit.panels.base import Panel, moves_panel, table_html, wrong
from labkit.scratch import Scratch
from labkit.seams import ManualClock
from labkit.show.style import OKABE_ITO
from labkit.store import TaskStore

LEASE_SECONDS = 30
TICK_SECONDS = 10
NAME = "agent"
"""Both workers are called so: a name says who somebody is, not which acquisition this is."""

CHECKS: Mapping[str, str] = {
    "the name is checked": "lease_owner = :name",
    "the token is checked": "lease_token = :token",
}
WAIT = f"{TICK_SECONDS} seconds pass"
MOVES: Mapping[str, str] = {
    WAIT: "The clock goes on.",
    "worker-1 renews": "The first holder asks for 30 seconds more.",
    "worker-2 takes over": "Another worker takes the task, if its lease has run out.",
    "worker-1 finishes": "The first holder, asleep until now, writes that the task has succeeded.",
    "worker-2 finishes": "The second holder writes that the task has succeeded.",
    "worker-1 sends": "The first holder sends the refund.",
    "worker-2 sends": "The second holder sends the refund.",
}
_TAKE_OVER = """
UPDATE tasks SET lease_owner = :name, lease_token = lease_token + 1, lease_expires_at = :now + :seconds,
    version = version + 1
WHERE state = 'running' AND lease_expires_at <= :now RETURNING lease_token"""
_RENEW = """
UPDATE tasks SET lease_expires_at = :now + :seconds
WHERE state = 'running' AND lease_expires_at > :now AND """
_FINISH = """
UPDATE tasks SET state = 'succeeded', lease_owner = NULL, lease_expires_at = NULL, version = version + 1
WHERE state = 'running' AND """


@dataclass
class LeaseDesk:
    """A task under one of the two checks, on real SQLite; worker-1 has claimed it at 0 seconds.

    Args:
        db: the database.
        check: what a holder's change asks for, in SQL.
        tokens: the token that each worker holds.
        leases: who had a lease from when until when, in seconds.
        sent: how often the remote's ledger shows the refund.
    """

    db: sqlite3.Connection
    check: str
    tokens: dict[str, int] = field(default_factory=lambda: {"worker-1": 1})
    leases: list[tuple[str, float, float]] = field(default_factory=lambda: [("worker-1", 0.0, float(LEASE_SECONDS))])
    sent: int = 0

    def do(self, move: str, now: float) -> str:
        """Carry out a move and return HTML that says what became of it."""
        worker, _, what = move.partition(" ")
        if worker not in self.tokens and what != "takes over":
            return f"{worker} holds nothing yet"
        if what == "takes over":
            return self._take_over(worker, now)
        if what == "sends":
            self.sent += 1
            return "applied; nobody asked our database" if self.sent == 1 else wrong("applied once more")
        return self._change(worker, what, now)

    def _take_over(self, worker: str, now: float) -> str:
        row = self.db.execute(_TAKE_OVER, {"name": NAME, "now": now, "seconds": LEASE_SECONDS}).fetchone()
        if row is None:
            return "0 rows changed: no lease has run out"
        self.tokens[worker] = row[0]
        self.leases.append((worker, now, now + LEASE_SECONDS))
        return f"1 row changed: token {row[0]}"

    def _change(self, worker: str, what: str, now: float) -> str:
        token = self.tokens[worker]
        (current,) = self.db.execute("SELECT lease_token FROM tasks").fetchone()
        given = {"name": NAME, "token": token, "now": now, "seconds": LEASE_SECONDS}
        changed = self.db.execute((_RENEW if what == "renews" else _FINISH) + self.check, given).rowcount
        if not changed:
            return "0 rows changed: refused"
        if token != current:
            return wrong(f"1 row changed under token {token}; the current one is {current}")
        if what == "renews":
            holder, start, _ = self.leases[-1]
            self.leases[-1] = (holder, start, now + LEASE_SECONDS)
        else:  # whoever finishes gives the lease back
            holder, start, until = self.leases[-1]
            self.leases[-1] = (holder, start, min(until, now))
        return "1 row changed"

    def row(self) -> str:
        """What the row says."""
        state, version, token, until = self.db.execute(
            "SELECT state, version, lease_token, lease_expires_at FROM tasks"
        ).fetchone()
        lease = "no lease" if until is None else f"lease until {until:g} s"
        return f"{state} v{version}, last token {token}, {lease}"


@dataclass(frozen=True)
class LeasePlay:
    """What the moves have come to under one check: what became of each (HTML), the row, the ledger, the leases."""

    said: tuple[str, ...]
    row: str
    sent: int
    leases: tuple[tuple[str, float, float], ...]


def play(moves: Sequence[str], check: str) -> LeasePlay:
    """Play all moves on a fresh task that worker-1 has claimed at 0 seconds for 30 seconds."""
    with Scratch() as folder:
        path, now = Path(folder, "tasks.sqlite"), 0.0
        with TaskStore(path, ManualClock(), synchronous="OFF") as store:
            store.claim(store.enqueue("task-1", plan()[:1]), NAME, LEASE_SECONDS)
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = OFF")  # nothing here outlives the press
            desk, said = LeaseDesk(db, check), []
            for move in moves:
                now += TICK_SECONDS if move == WAIT else 0
                said.append(f"it is {now:g} s" if move == WAIT else desk.do(move, now))
            return LeasePlay(tuple(said), desk.row(), desk.sent, tuple(desk.leases))


def show(moves: Sequence[str]) -> str:
    """Show the moves with what each check makes of them, below the leases as bars in time."""
    played = {title: play(moves, check) for title, check in CHECKS.items()}
    now = TICK_SECONDS * sum(move == WAIT for move in moves)
    said = zip(moves, *(one.said for one in played.values()), strict=True)
    rows = [(str(number), _unbroken(move), *told) for number, (move, *told) in enumerate(said, start=1)]
    rows.append(
        ("", f"<b>{_unbroken('the row says')}</b>", *(f"<b>{html.escape(one.row)}</b>" for one in played.values()))
    )
    rows.append(("", f"<b>{_unbroken('the ledger shows')}</b>", *(_ledger(one.sent) for one in played.values())))
    start = "worker-1 has claimed task-1 at 0 s, for 30 s, and fell asleep. Both workers are called “agent”."
    *_, by_token = played.values()
    return (
        f"<p>{start} <b>It is {now} s.</b></p>{_bars(by_token.leases, now)}"
        f"{table_html(('#', 'what happens', *played), rows)}"
    )


def _unbroken(words: str) -> str:
    return f'<span style="white-space: nowrap">{html.escape(words)}</span>'


def _ledger(sent: int) -> str:
    told = f"refund {sent} times"
    return wrong(told) if sent > 1 else f"<b>{'refund once' if sent else 'nothing'}</b>"


WIDTH, LANE, LEFT = 720, 34, 96
COLOURS = {"worker-1": OKABE_ITO["sky blue"], "worker-2": OKABE_ITO["orange"]}


def _bars(leases: Sequence[tuple[str, float, float]], now: float) -> str:
    """Each lease as a bar in time, a lane a worker, and a line for the present moment."""
    last = max(60.0, now + TICK_SECONDS, *(until for _, _, until in leases))
    scale = (WIDTH - LEFT - 40) / last
    parts = []
    for worker, start, until in leases:
        y = 4 + LANE * list(COLOURS).index(worker)
        x, wide = LEFT + start * scale, (until - start) * scale
        parts.append(f'<rect x="{x:.0f}" y="{y}" width="{wide:.0f}" height="26" rx="4" fill="{COLOURS[worker]}"/>')
        parts.append(f'<text x="{x + 8:.0f}" y="{y + 18}" fill="#000000">{start:g} to {until:g} s</text>')
    names = "".join(f'<text x="0" y="{22 + LANE * lane}">{worker}</text>' for lane, worker in enumerate(COLOURS))
    x = LEFT + now * scale
    line = f'<line x1="{x:.0f}" x2="{x:.0f}" y1="0" y2="{2 * LANE}" stroke="currentColor" stroke-width="3"/>'
    told = f'<text x="{x:.0f}" y="{2 * LANE + 16}" text-anchor="middle">now</text>'
    alt = "; ".join(f"{worker} holds a lease from {start:g} to {until:g} s" for worker, start, until in leases)
    return (
        f'<svg role="img" aria-label="Leases: {alt}; now {now:g} s" viewBox="0 0 {WIDTH} {2 * LANE + 22}" '
        f'width="{WIDTH}" style="max-width: 100%; height: auto; font-size: 15px" fill="currentColor">'
        f"{names}{''.join(parts)}{line}{told}</svg>"
    )


def lease_panel() -> Panel:
    """Return a panel that moves the clock and lets two workers act, under both checks at once."""
    return moves_panel("lease", MOVES, show)
