"""A person is asked last: what a worker must have tried before, and the law that says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labkit.exchange import Receipt, Standing
from labkit.explore.laws import LAWS, Law, Record
from labkit.records import Json
from labkit.store import TaskStore
from labkit.wire import Remote

Tried = dict[str, bool]
"""What this worker has tried of each operation in doubt, and whether the remote has said that it is applied."""


class NeedlessQuestion(Exception):
    """A person was asked although the remote could have told."""


class _AsksLast:
    """A store that lets a person be asked only where the remote was tried first, if it can do anything."""

    def __init__(self, store: TaskStore, remotes: Mapping[str, Remote], tried: Tried) -> None:
        self._store, self._remotes, self._tried = store, remotes, tried

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def ask(self, lease: Any, *args: Any, **kwargs: Any) -> Any:
        """Ask a person, as `TaskStore.ask` does."""
        doubt = self._store.get(lease.task_id).in_doubt
        if doubt is not None:
            can = self._remotes[doubt.remote].capabilities
            if doubt.id not in self._tried and (can.status_query or can.idempotency_keys):
                raise NeedlessQuestion(f"a person was asked about {doubt.id}, and the remote was not asked before")
            if self._tried.get(doubt.id):
                raise NeedlessQuestion(f"a person was asked about {doubt.id}, which the remote says it has applied")
        return self._store.ask(lease, *args, **kwargs)


class _Overheard(Remote):
    """A wire whose queries, and sendings under a key, are remembered."""

    def __init__(self, remote: Remote, tried: Tried) -> None:
        vars(self).update(vars(remote))
        self._tried = tried

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
        if key is not None and self.capabilities.idempotency_keys:
            self._tried.setdefault(operation_id, False)
        return super().send(operation_id, body, request_id, key, token)


def listening(store: TaskStore, remotes: Mapping[str, Remote]) -> tuple[Any, Mapping[str, Remote]]:
    """Return the store and the remotes as one worker is given them: a needless question is an error there."""
    tried: Tried = {}
    return _AsksLast(store, remotes, tried), {name: _Overheard(remote, tried) for name, remote in remotes.items()}


def asks_only_when_it_must(record: Record) -> str:
    """A person is asked only where the remote was asked first and could not tell."""
    return next((str(error) for _, error in record.errors if isinstance(error, NeedlessQuestion)), "")


ASKING_LAWS: Mapping[str, Law] = {asks_only_when_it_must.__name__: asks_only_when_it_must, **LAWS}
"""The laws of the task store, and before them that nobody is asked needlessly."""
