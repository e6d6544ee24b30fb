"""Programs to be broken: each differs from a sound one in one thing, and none of them is used for anything else."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from labkit.deciding import Answer
from labkit.errors import ChangeRefused, NotSent, OutcomeUnknown, Refused, RemoteError
from labkit.exchange import Receipt, Standing
from labkit.policies import QUERY_THEN_ASK, Ask, Decision, Doubt, Policy, Resend, Settle
from labkit.programs import Program
from labkit.records import Lease
from labkit.states import HELD_STATES, State
from labkit.store import TaskStore
from labkit.values import Json
from labkit.wire import Remote
from labkit.worker import Worker

HEARTBEATS = 1_000
"""A bound; the world ends a run long before."""


def following(policy: Policy) -> Program:
    """Return the lab's own worker under a policy that need not be one of the lab's."""

    def run(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> State:
        return Worker(store, remotes, policy, talks=False).run(task_id)

    run.__name__ = policy.name
    return run


def _acquire(task_id: str, store: TaskStore) -> Lease | None:
    task = store.get(task_id)
    with suppress(ChangeRefused):
        if task.state is State.QUEUED:
            return store.claim(task, "worker")
        if task.state in HELD_STATES:
            return store.take_over(task, "worker")
    return None


def heartbeat_without_progress(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
    """Hang before the first sending, while a heartbeat renews the lease for ever."""
    lease = _acquire(task_id, store)
    operation = store.get(task_id).next_operation
    if lease is None or operation is None:
        return
    lease, _ = store.intend(lease, operation.id)
    for _ in range(HEARTBEATS):
        store.clock.sleep(10.0)
        lease = store.renew(lease)


def claims_for_ever(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
    """Claim queued tasks only: what a dead worker has claimed stays with it."""
    if store.get(task_id).state is State.QUEUED:
        Worker(store, remotes, QUERY_THEN_ASK, talks=False).run(task_id)


def send_then_intend(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
    """Send first and write it down afterwards: a crash between the two leaves no trace of the sending."""
    lease = _acquire(task_id, store)
    while lease is not None and (operation := store.get(task_id).next_operation) is not None:
        receipt = remotes[operation.remote].send(operation.id, operation.request, operation.id)
        lease, _ = store.intend(lease, operation.id)
        lease = store.checkpoint(lease, operation.id, receipt.reference)
    if lease is not None:
        store.succeed(lease)


def one_checkpoint_for_all(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
    """Make every call first and record all of them at the end: a late failure runs the early calls again."""
    lease = _acquire(task_id, store)
    if lease is None:
        return
    operations = store.get(task_id).current
    receipts = [remotes[one.remote].send(one.id, one.request, one.id) for one in operations]
    for operation, receipt in zip(operations, receipts, strict=True):
        lease, _ = store.intend(lease, operation.id)
        lease = store.checkpoint(lease, operation.id, receipt.reference)
    store.succeed(lease)


def answered_at_once(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
    """Ask a person about every doubt, who looks once and says "not applied" if nothing is there yet."""
    worker = Worker(store, remotes, QUERY_THEN_ASK, talks=False)
    worker.run(task_id)
    task = store.get(task_id)
    if task.state is State.AWAITING_CONFIRMATION and task.in_doubt is not None:
        with suppress(RemoteError, ChangeRefused):
            found = remotes[task.in_doubt.remote].query(task.in_doubt.id).found
            store.answer(task, Answer.APPLIED if found else Answer.NOT_APPLIED, "Ada")
            worker.run(task_id)


class MisreportingRemote(Remote):
    """A client that reports an answer of the remote as something else; see its two kinds."""

    def __init__(self, wire: Remote) -> None:
        self._wire, self.name, self.capabilities = wire, wire.name, wire.capabilities

    def send(
        self, operation_id: str, body: Json, request_id: str, key: str | None = None, token: int | None = None
    ) -> Receipt:
        """As the wire's, misreported."""
        try:
            return self._wire.send(operation_id, body, request_id, key, token)
        except RemoteError as error:
            raise self.report(error) from error

    def query(self, operation_id: str, token: int | None = None) -> Standing:
        """As the wire's."""
        return self._wire.query(operation_id, token)

    def report(self, error: RemoteError) -> RemoteError:
        """What the caller is told."""
        return error


class TimeoutIsFailure(MisreportingRemote):
    """Reports a time-out as "not done"."""

    def report(self, error: RemoteError) -> RemoteError:
        """A time-out becomes "not sent"."""
        unknown = isinstance(error, OutcomeUnknown)
        return NotSent(error.remote, error.operation_id, error.reason) if unknown else error


class EveryRefusalIsTransient(MisreportingRemote):
    """Reports every refusal as one that a repetition helps."""

    def report(self, error: RemoteError) -> RemoteError:
        """A refusal becomes "try again"."""
        refused = isinstance(error, Refused)
        return Refused(error.remote, error.operation_id, error.reason, "transient", 503) if refused else error


def misreported(policy: Policy, client: type[MisreportingRemote]) -> Program:
    """Return the lab's own worker under a policy, with a client that misreports."""

    def run(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> Any:
        wires = {name: client(wire) for name, wire in remotes.items()}
        return Worker(store, wires, policy, talks=False).run(task_id)

    run.__name__ = client.__name__
    return run


def _resend(doubt: Doubt) -> Decision:
    return Resend(float("inf")) if doubt.may_resend else Ask("no resend can follow")


def _not_found_is_final(name: str, with_token: bool) -> Policy:
    def decide(doubt: Doubt) -> Decision:
        try:
            standing = doubt.remote.query(doubt.operation.id, doubt.token if with_token else None)
        except RemoteError:
            return Ask("the status query gave no answer")
        return Settle(standing.found, "status query", standing.reference)

    return Policy(name, decide, lambda *_: None)


KEY_PER_CALL = Policy("key_per_call", _resend, lambda operation_id, call_id: f"{operation_id}/{call_id}")
"""A new key for every call, as if that were what "unique" means."""

KEY_PER_TASK = Policy("key_per_task", _resend, lambda operation_id, _: operation_id.partition("/")[0])
"""One key for all operations of a task: the second one comes with another body."""

KEY_OF_WHAT_IS_UNDONE = Policy("key_of_what_is_undone", _resend, lambda name, _: name.removesuffix("/undo"))
"""The undo goes out under the key of what it should undo."""

UNFENCED_NOT_FOUND = _not_found_is_final("unfenced_not_found", with_token=False)
"""Believes "not found" though it has handed the remote no token."""

FENCED_NOT_FOUND = _not_found_is_final("fenced_not_found", with_token=True)
"""Hands over its token and believes "not found", whatever else the remote's manual says."""
