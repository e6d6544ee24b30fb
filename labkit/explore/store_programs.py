"""Workers that share a queue of tasks by `claim_next`, the relay of their outbox beside them, and the laws for both."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from labkit.explore.bench import Bench
from labkit.explore.message_laws import RELAY_LAWS
from labkit.explore.row_laws import WORKER_LAWS, named
from labkit.explore.storeworld import StoreProgram, StoreScenario, work_due
from labkit.records import Announcement, Lease
from labkit.remote import Capabilities
from labkit.states import State
from labkit.store import TaskStore

TASKS = ("task-1", "task-2")
DONE, SUCCEEDED = Announcement("done", {}), Announcement("succeeded", {})
Relay = Callable[[TaskStore, Bench], None]


def queue_refunds(db: Any) -> None:
    """Two tasks, each with one refund."""
    for task_id in TASKS:
        db.execute("INSERT INTO tasks (id, kind) VALUES (?, 'refund')", (task_id,))
        db.execute(
            "INSERT INTO operations (operation_id, task_id, name, position, remote, request) "
            "VALUES (?, ?, 'refund', 0, 'payments', '{}')",
            (f"{task_id}/refund", task_id),
        )


def deliver(store: TaskStore, bench: Bench) -> None:
    """Relay what waits."""
    store.relay(lambda message: bench.publish(message.id))


def carry(store: TaskStore, bench: Bench, lease: Lease) -> None:
    """Take one task as far as it can go now, under the key of its operation, and announce what was done."""
    for operation in store.get(lease.task_id).operations:
        if operation.result_ref is not None:
            continue
        in_doubt = lease.state is State.UNCERTAIN
        lease, attempt = store.intend(lease, operation.id, key_memory_seconds=math.inf if in_doubt else None)
        sent = bench.remotes[operation.remote].send(operation.id, operation.request, attempt.request_id, operation.id)
        if in_doubt:  # what is settled goes back to the queue
            store.settle(lease, operation.id, True, "key", sent.reference, DONE)
            return
        lease = store.checkpoint(lease, operation.id, sent.reference, DONE)
    store.succeed(lease, SUCCEEDED)


def work(store: TaskStore, bench: Bench, carry: Callable[..., None] = carry, relay: Relay = deliver) -> None:
    """Carry whatever is due, then relay; the second worker is a relay beside the first, and does nothing else."""
    if bench.name != "worker-2":
        while (lease := store.claim_next(bench.name)) is not None:
            carry(store, bench, lease)
    relay(store, bench)


def relaying(program: StoreProgram = work, *allowed: str, workers: int = 2) -> StoreScenario:
    """Two tasks, a worker and a relay beside it, and whoever comes after those that die."""
    kinds = frozenset(allowed or ("crash", "pause", "switch"))
    remotes = {"payments": Capabilities(idempotency_keys=True)}
    laws = named(*RELAY_LAWS, *WORKER_LAWS)
    return StoreScenario(program, queue_refunds, laws, workers, kinds, due=work_due, remotes=remotes)


def working(**parts: Any) -> StoreProgram:
    """The worker of this module with a part of it exchanged: `carry` or `relay`."""
    return partial(work, **parts)
