"""All that is known of a finished run of the task store, for the laws: its record, the ledgers, and what was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from labkit.database import Database
from labkit.records import Entry, Operation, Task
from labkit.runs import Verdict, judge


@dataclass(frozen=True)
class Booked:
    """One effect as it stands in a ledger: at which remote, of which operation, with which body (JSON text)."""

    remote: str
    operation_id: str
    body: str


def booked(remote: str, ledger: Database) -> list[Booked]:
    """Every effect of a ledger, in order."""
    with ledger.read() as db:
        rows = db.execute("SELECT operation_id, body FROM effects ORDER BY effect_id").fetchall()
    return [Booked(remote, *row) for row in rows]


@dataclass(frozen=True)
class Stranger:
    """A change that asked for a lease, made by a worker that did not hold the task.

    Args:
        worker: who made it, whatever it calls itself.
        event: which change.
        version: the task's version after it.
        holder: the worker that had acquired the task last.
    """

    worker: str
    event: str
    version: int
    holder: str


@dataclass(frozen=True)
class Record:
    """All that is known of a finished run.

    Args:
        task: as last read, with operations and attempts.
        history: the task's events, in order.
        effects: how often each operation id stands in the remotes' ledgers, all together.
        errors: how workers ended that ended with an error, as pairs of worker and error.
        sent: how often each operation id was put on the wire, whatever became of it.
        undo_asked: how often a person asked for what is done to be undone.
        booked: every effect, as it stands in its ledger.
        refused: what remotes have refused to workers that were told so, as pairs of operation id and category.
        unintended: what was sent with no intent of it on record, as pairs of worker and operation id.
        strangers: changes under a lease by workers that did not have it.
    """

    task: Task
    history: Sequence[Entry]
    effects: Mapping[str, int]
    errors: Sequence[tuple[str, BaseException]] = ()
    sent: Mapping[str, int] = field(default_factory=dict)
    undo_asked: int = 0
    booked: Sequence[Booked] = ()
    refused: frozenset[tuple[str, str]] = frozenset()
    unintended: Sequence[tuple[str, str]] = ()
    strangers: Sequence[Stranger] = ()

    @cached_property
    def verdict(self) -> Verdict:
        """What the run came to. An effect at another remote than its operation's is not the one that was wanted."""
        verdict, misplaced = judge(self.task, self.effects), self.misplaced
        if not misplaced or verdict is Verdict.DUPLICATED:
            return verdict
        own = {name: count for name, count in self.effects.items() if all(name != one.id for one, _ in misplaced)}
        return judge(self.task, own | {f"{one.id} at {remote}": 1 for one, remote in misplaced})

    @cached_property
    def misplaced(self) -> list[tuple[Operation, str]]:
        """The operations that stand in the ledger of another remote than their own, and of which."""
        operations = {one.id: one for one in self.task.operations}
        found = ((operations.get(one.operation_id), one.remote) for one in self.booked)
        return [(one, remote) for one, remote in found if one is not None and one.remote != remote]
