"""What a worker may do about doubts: it records what it knows, and asks a person last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from labkit.course.hearing import Heard, NotAllowed
from labkit.course.submission import shortened
from labkit.errors import Refused, RemoteError, UnknownTask
from labkit.exchange import Receipt, Refusal, Standing
from labkit.explore.laws import LAWS, Law, intends_before_it_sends
from labkit.explore.record import Record
from labkit.records import Operation
from labkit.remote import Capabilities
from labkit.seams import Call
from labkit.states import Event, State
from labkit.store import TaskStore
from labkit.values import Json
from labkit.wire import Remote


@dataclass
class Tried:
    """What one worker has tried of each operation in doubt, by its id.

    Args:
        found: what the remote said last when it was asked; False where no answer came.
        again: what the store has let it send once more, and
        resent: what it then did send under a key.
        keyed: all that it has sent under a key.
        references: all that remotes have given it, beside the operation.
    """

    found: dict[str, bool] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)
    resent: set[str] = field(default_factory=set)
    keyed: set[str] = field(default_factory=set)
    references: set[tuple[str, str | None]] = field(default_factory=set)


Gate = Callable[[Operation], Refusal | None]
"""Refuses what is sent of an operation; None lets it in."""


def opens(operation: Operation) -> None:
    """Let everything in."""


class _AsksLast:
    """A store in which only that is in doubt which its worker cannot know, and where a person is asked last."""

    def __init__(
        self, store: TaskStore, remotes: Mapping[str, Remote], tried: Tried, heard: Heard, strict: bool
    ) -> None:
        self._store, self._remotes, self._tried, self._heard, self._strict = store, remotes, tried, heard, strict
        self.to_its_end = heard.to_its_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def intend(self, lease: Any, operation_id: str, *args: Any, **kwargs: Any) -> Any:
        """Put an intent on record, as `TaskStore.intend` does."""
        in_doubt = lease.state is State.UNCERTAIN
        lease, attempt = self._store.intend(lease, operation_id, *args, **kwargs)
        self._heard.intended(operation_id, attempt)
        if in_doubt:
            self._tried.again.add(operation_id)
        return lease, attempt

    def checkpoint(self, lease: Any, operation_id: str, reference: str, *args: Any, **kwargs: Any) -> Any:
        """Record a result, as `TaskStore.checkpoint` does."""
        self._must_be_told("checkpoint", operation_id, reference)
        return self._store.checkpoint(lease, operation_id, reference, *args, **kwargs)

    def advance(self, lease: Any, operation_id: str, reference: str, *args: Any, **kwargs: Any) -> Any:
        """Record a result and what follows, as `TaskStore.advance` does."""
        self._must_be_told("advance", operation_id, reference)
        return self._store.advance(lease, operation_id, reference, *args, **kwargs)

    def _must_be_told(self, call: str, operation_id: str, reference: object) -> None:
        if isinstance(reference, str) and (operation_id, reference) not in self._tried.references:
            how = f"puts {shortened(reference)} on record for {operation_id}, which no remote has answered"
            self._heard.stop(keeps_the_result.__name__, f"{call} {operation_id}", how)

    def lose_track(self, lease: Any, operation_id: str) -> Any:
        """Put on record that no answer came, as `TaskStore.lose_track` does."""
        self._heard.must_doubt(f"lose_track {operation_id}", "loses track of", lease.task_id, operation_id)
        return self._store.lose_track(lease, operation_id)

    def ask(self, lease: Any, *args: Any, **kwargs: Any) -> Any:
        """Ask a person, as `TaskStore.ask` does."""
        doubt = self._store.get(lease.task_id).in_doubt
        if doubt is not None:
            call, asks = f"ask {lease.task_id}", "asks a person about"
            self._heard.must_doubt(call, asks, lease.task_id, doubt.id)
            needless = self._needless(lease, doubt)
            if needless:
                self._heard.stop(asks_only_when_it_must.__name__, call, f"{asks} {doubt.id}, {needless}")
        return self._store.ask(lease, *args, **kwargs)

    def _needless(self, lease: Any, doubt: Operation) -> str:
        can, tried = self._remotes[doubt.remote].capabilities, self._tried
        if can.status_query and doubt.id not in tried.found:
            return "and the remote was not asked before"
        if can.idempotency_keys and doubt.id not in tried.resent and self._may_resend(lease, doubt, can):
            return "and it was not sent again under its key, which the remote remembers"
        return "which the remote says it has applied" if tried.found.get(doubt.id) else ""

    def _may_resend(self, lease: Any, doubt: Operation, can: Capabilities) -> bool:
        """Whether the store would let it be sent again, by what the remote remembers and by its budget."""
        task, now = self._store.get(lease.task_id), self._store.clock.now()
        age = now - min(one.sent_at for one in doubt.attempts if one.outcome is None)
        begun = now if task.first_attempt_at is None else task.first_attempt_at
        budget = task.attempts < task.max_attempts and now - begun < task.max_seconds
        return budget and 0 <= age < can.key_ttl_seconds - self._store.assumptions.longest_under_way_seconds

    def settle(
        self, held: Any, operation_id: str, applied: bool, source: str, reference: str | None = None, **kwargs: Any
    ) -> Any:
        """Settle a doubt, as `TaskStore.settle` does."""
        how = ""
        if applied and (operation_id, reference) not in self._tried.references:
            how = f"as applied with {reference}, which no remote has answered"
        elif not applied and not self._heard.not_applied(self._store.get(operation_id.partition("/")[0]), operation_id):
            how = "as not applied, and nobody had said so"
        elif isinstance(source, str):
            how = self._misnamed(operation_id, source)
        if self._strict and how:
            law = settles_by_what_was_said.__name__
            self._heard.stop(law, f"settle {operation_id}", f"settles {operation_id} {how}")
        return self._store.settle(held, operation_id, applied, source, reference, **kwargs)

    def _misnamed(self, operation_id: str, source: str) -> str:
        """What is wrong with a source that names a query or a key; any other words say what they like."""
        was = {"query": operation_id in self._tried.found, "key": operation_id in self._tried.keyed}
        never = {"query": "the remote was never asked", "key": "it was not sent under a key"}
        named = [what for what in was if what in source.lower()]
        if not named or any(was[what] for what in named):
            return ""
        return f"by {shortened(source)}, and {never[named[0]]}"


class _Overheard(Remote):
    """A wire whose answers are remembered; perhaps one to a remote that refuses."""

    def __init__(self, remote: Remote, store: TaskStore, tried: Tried, heard: Heard, gate: Gate, in_vain: bool) -> None:
        vars(self).update(vars(remote))
        self._store, self._tried, self._heard, self._gate, self._in_vain = store, tried, heard, gate, in_vain

    def query(self, operation_id: str, token: int | None = None) -> Standing:
        """Ask the remote, as `Remote.query` does."""
        if not (self._in_vain or self.capabilities.status_query):
            how = f"asks {self.name} about {operation_id}, and {self.name} has no status query"
            self._heard.stop(asks_only_who_can_tell.__name__, f"query {operation_id}", how)
        self._tried.found.setdefault(operation_id, False)  # asked, and perhaps without an answer
        standing = super().query(operation_id, token)
        self._tried.found[operation_id] = standing.found
        self._tried.references.add((operation_id, standing.reference))
        return standing

    def send(
        self, operation_id: str, body: Json, request_id: str, key: str | None = None, token: int | None = None
    ) -> Receipt:
        """Send, as `Remote.send` does."""
        refusal = self._refusal(operation_id)
        if key is not None:
            self._tried.keyed.add(operation_id)
            self._tried.resent.update({operation_id} & self._tried.again)
        try:
            if refusal is not None:
                return self._refused(operation_id, request_id, refusal)
            receipt = super().send(operation_id, body, request_id, key, token)
        except RemoteError as error:
            self._heard.told(operation_id, error)
            raise
        self._heard.told(operation_id, receipt)
        self._tried.references.add((operation_id, receipt.reference))
        return receipt

    def _refusal(self, operation_id: str) -> Refusal | None:
        try:
            task = self._store.get(operation_id.partition("/")[0])
        except UnknownTask:
            return None
        for operation in task.operations:
            if operation.id == operation_id:
                return self._gate(operation)
        return None

    def _refused(self, operation_id: str, request_id: str, why: Refusal) -> Receipt:
        def refuse() -> Receipt:
            raise Refused(self.name, operation_id, why.reason, why.category, why.status, why.retry_after_seconds)

        return self._call(Call(self.name, "send", operation_id, request_id), refuse, lambda: None)


def listening(
    store: TaskStore,
    remotes: Mapping[str, Remote],
    gate: Gate = opens,
    strict: bool = False,
    in_vain: bool = True,
) -> tuple[_AsksLast, Mapping[str, Remote]]:
    """Return the store and the remotes as one worker is given them: what no law allows is an error there.

    Args:
        store: the task store.
        remotes: the wires, by name.
        gate: what the remotes refuse.
        strict: nor may a doubt be settled otherwise than by what was said.
        in_vain: a remote that has no status query may be asked all the same.
    """
    tried = Tried()
    heard = Heard(store.get)
    wires = {name: _Overheard(remote, store, tried, heard, gate, in_vain) for name, remote in remotes.items()}
    return _AsksLast(store, remotes, tried, heard, strict), wires


def _stopped_by(law: str, record: Record) -> str:
    stops = ((worker, error) for worker, error in record.errors if isinstance(error, NotAllowed))
    return next((f"{worker} {error}" for worker, error in stops if error.law == law), "")


def records_what_it_knows(record: Record) -> str:
    """What a worker has learned of its sending it puts on record; in doubt is only what it cannot know."""
    return _stopped_by("records_what_it_knows", record)


def keeps_the_result(record: Record) -> str:
    """The result on record is the one that the remote has answered with."""
    return _stopped_by("keeps_the_result", record)


def asks_only_when_it_must(record: Record) -> str:
    """A person is asked only where nothing else can tell: no record of the remote, and no resend under a key."""
    return _stopped_by("asks_only_when_it_must", record)


def settles_by_what_was_said(record: Record) -> str:
    """A doubt is settled by what a remote has said, and as it has said it."""
    return _stopped_by("settles_by_what_was_said", record)


def asks_only_who_can_tell(record: Record) -> str:
    """A remote that has no status query is not asked: it cannot tell."""
    return _stopped_by("asks_only_who_can_tell", record)


def waits_before_it_tries_again(record: Record) -> str:
    """What was not applied is tried again later, not at once."""
    for entry in record.history:
        if entry.event == Event.RETRY_LATER and entry.detail["next_run_at"] <= entry.at:
            return f"at {entry.at:g} s it was put off until {entry.detail['next_run_at']:g} s"
    return ""


ASKING_LAWS: Mapping[str, Law] = {
    law.__name__: law
    for law in (
        intends_before_it_sends,
        records_what_it_knows,
        keeps_the_result,
        asks_only_who_can_tell,
        asks_only_when_it_must,
        waits_before_it_tries_again,
    )
} | dict(LAWS)
"""The laws of the task store, and before them those of doubts: what is none is not called one, and nobody is asked
needlessly."""

STRICT_LAWS: Mapping[str, Law] = {settles_by_what_was_said.__name__: settles_by_what_was_said, **ASKING_LAWS}
"""And that no doubt is settled by what nobody has said."""
