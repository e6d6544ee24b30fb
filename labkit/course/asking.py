"""What a worker may do about doubts: it records what it knows, and asks a person last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from labkit.course.hearing import Heard, NotAllowed
from labkit.errors import Refused, RemoteError, UnknownTask
from labkit.exchange import Receipt, Refusal, Standing
from labkit.explore.laws import LAWS, Law, Record
from labkit.records import Json, Operation
from labkit.seams import Call
from labkit.states import Event
from labkit.store import TaskStore
from labkit.wire import Remote

Tried = dict[str, bool]
"""What this worker has tried of each operation in doubt, and whether the remote has said that it is applied."""

Gate = Callable[[Operation], Refusal | None]
"""Refuses what is sent of an operation; None lets it in."""


def opens(operation: Operation) -> None:
    """Let everything in."""


class _AsksLast:
    """A store in which only that is in doubt which its worker cannot know, and where a person is asked last."""

    def __init__(self, store: TaskStore, remotes: Mapping[str, Remote], tried: Tried, heard: Heard) -> None:
        self._store, self._remotes, self._tried, self._heard = store, remotes, tried, heard
        self.to_its_end = heard.to_its_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def intend(self, lease: Any, operation_id: str, *args: Any, **kwargs: Any) -> Any:
        """Put an intent on record, as `TaskStore.intend` does."""
        lease, attempt = self._store.intend(lease, operation_id, *args, **kwargs)
        self._heard.intended(operation_id, attempt)
        return lease, attempt

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
            law, can = asks_only_when_it_must.__name__, self._remotes[doubt.remote].capabilities
            if doubt.id not in self._tried and (can.status_query or can.idempotency_keys):
                self._heard.stop(law, call, f"{asks} {doubt.id}, and the remote was not asked before")
            if self._tried.get(doubt.id):
                self._heard.stop(law, call, f"{asks} {doubt.id}, which the remote says it has applied")
        return self._store.ask(lease, *args, **kwargs)


class _Overheard(Remote):
    """A wire whose answers are remembered; perhaps one to a remote that refuses."""

    def __init__(self, remote: Remote, store: TaskStore, tried: Tried, heard: Heard, gate: Gate) -> None:
        vars(self).update(vars(remote))
        self._store, self._tried, self._heard, self._gate = store, tried, heard, gate

    def query(self, operation_id: str, token: int | None = None) -> Standing:
        """Ask the remote, as `Remote.query` does."""
        self._tried.setdefault(operation_id, False)  # asked, and perhaps without an answer
        standing = super().query(operation_id, token)
        self._tried[operation_id] = standing.found
        return standing

    def send(
        self, operation_id: str, body: Json, request_id: str, key: str | None = None, token: int | None = None
    ) -> Receipt:
        """Send, as `Remote.send` does."""
        refusal = self._refusal(operation_id)
        if key is not None and self.capabilities.idempotency_keys:
            self._tried.setdefault(operation_id, False)
        try:
            if refusal is not None:
                return self._refused(operation_id, request_id, refusal)
            receipt = super().send(operation_id, body, request_id, key, token)
        except RemoteError as error:
            self._heard.told(operation_id, error)
            raise
        self._heard.told(operation_id, receipt)
        return receipt

    def _refusal(self, operation_id: str) -> Refusal | None:
        try:
            task = self._store.get(operation_id.partition("/")[0])
        except UnknownTask:
            return None
        for operation in task.operations:
            if operation.id == operation_id:
                if not operation.attempts:
                    law = intends_before_it_sends.__name__
                    how = f"sends {operation_id}, and no intent of that is on record"
                    self._heard.stop(law, f"send {operation_id}", how)
                return self._gate(operation)
        return None

    def _refused(self, operation_id: str, request_id: str, why: Refusal) -> Receipt:
        def refuse() -> Receipt:
            raise Refused(self.name, operation_id, why.reason, why.category, why.status, why.retry_after_seconds)

        return self._call(Call(self.name, "send", operation_id, request_id), refuse, lambda: None)


def listening(
    store: TaskStore, remotes: Mapping[str, Remote], gate: Gate = opens
) -> tuple[_AsksLast, Mapping[str, Remote]]:
    """Return the store and the remotes as one worker is given them: what no law allows is an error there.

    Args:
        store: the task store.
        remotes: the wires, by name.
        gate: what the remotes refuse.
    """
    tried: Tried = {}
    heard = Heard(store.get)
    wires = {name: _Overheard(remote, store, tried, heard, gate) for name, remote in remotes.items()}
    return _AsksLast(store, remotes, tried, heard), wires


def _stopped_by(law: str, record: Record) -> str:
    stops = ((worker, error) for worker, error in record.errors if isinstance(error, NotAllowed))
    return next((f"{worker} {error}" for worker, error in stops if error.law == law), "")


def intends_before_it_sends(record: Record) -> str:
    """An operation is sent only once its intent is on record."""
    return _stopped_by("intends_before_it_sends", record)


def records_what_it_knows(record: Record) -> str:
    """What a worker has learned of its sending it puts on record; in doubt is only what it cannot know."""
    return _stopped_by("records_what_it_knows", record)


def asks_only_when_it_must(record: Record) -> str:
    """A person is asked only where the remote was asked first and could not tell."""
    return _stopped_by("asks_only_when_it_must", record)


def waits_before_it_tries_again(record: Record) -> str:
    """What was not applied is tried again later, not at once."""
    for entry in record.history:
        if entry.event == Event.RETRY_LATER and entry.detail["next_run_at"] <= entry.at:
            return f"at {entry.at:g} s it was put off until {entry.detail['next_run_at']:g} s"
    return ""


ASKING_LAWS: Mapping[str, Law] = {
    law.__name__: law
    for law in (intends_before_it_sends, records_what_it_knows, asks_only_when_it_must, waits_before_it_tries_again)
} | dict(LAWS)
"""The laws of the task store, and before them those of doubts: what is none is not called one, and nobody is asked
needlessly."""
