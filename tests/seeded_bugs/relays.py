"""Workers that share a queue by `claim_next`, and relays of the store's own outbox."""

from typing import Any

from labkit.explore.bench import Bench
from labkit.explore.store_programs import DONE, SUCCEEDED, deliver, relaying, work, working
from labkit.records import Lease
from labkit.states import State
from labkit.store import TaskStore

from .bug import Bug


def collect_then_publish(store: TaskStore, bench: Bench) -> None:
    """To the store a message is delivered once `publish` returns; here it only lies in a list by then."""
    batch: list[Any] = []
    store.relay(batch.append)
    for message in batch:
        bench.publish(message.id)


def own_tasks_only(store: TaskStore, bench: Bench) -> None:
    """Passes over what others have done, for they will tell that themselves; a dead one tells nothing."""
    mine = {task.id for task in store.tasks() for one in store.history(task.id) if one.worker == bench.name}
    store.relay(lambda message: bench.publish(message.id) if message.task_id in mine else None)


def newest_first(store: TaskStore, bench: Bench) -> None:
    for message in reversed(store.undelivered()):
        bench.publish(message.id)
    store.relay(lambda message: None)


def one_at_a_time(store: TaskStore, bench: Bench) -> None:
    """A right one: whatever waits, message by message."""
    while store.relay(lambda message: bench.publish(message.id), limit=1):
        pass


def send(store: TaskStore, bench: Bench, lease: Lease, key: Any = None) -> tuple[Lease, str, str]:
    (operation,) = store.get(lease.task_id).operations
    memory = 1e6 if lease.state is State.UNCERTAIN else None
    lease, attempt = store.intend(lease, operation.id, key_memory_seconds=memory)
    key = operation.id if key is None else key(attempt)
    sent = bench.remotes["payments"].send(operation.id, operation.request, attempt.request_id, key)
    return lease, operation.id, sent.reference


def finish(store: TaskStore, bench: Bench, lease: Lease, key: Any = None, fast: bool = False) -> None:
    """Carry a task; `fast` publishes each message itself at once, and leaves to the relay what it has not come to."""

    def told(version: int) -> None:
        if fast:
            bench.publish(f"{lease.task_id}@{version}")

    if store.get(lease.task_id).operations[0].result_ref is None:
        lease, operation_id, reference = send(store, bench, lease, key)
        if lease.state is State.UNCERTAIN:
            store.settle(lease, operation_id, True, "key", reference, DONE)
            return told(lease.version + 1)
        lease = store.checkpoint(lease, operation_id, reference, DONE)
        told(lease.version)
    store.succeed(lease, SUCCEEDED)
    return told(lease.version + 1)


def fast_path(store: TaskStore, bench: Bench, lease: Lease) -> None:
    finish(store, bench, lease, fast=True)


def key_per_attempt(store: TaskStore, bench: Bench, lease: Lease) -> None:
    finish(store, bench, lease, key=lambda attempt: attempt.request_id)


def publish_then_succeed(store: TaskStore, bench: Bench, lease: Lease) -> None:
    """Tells of the end before it is on record, in the order of the outbox: a worker that lost its lease tells too."""
    if store.get(lease.task_id).operations[0].result_ref is None:
        return finish(store, bench, lease)
    deliver(store, bench)
    bench.publish(f"{lease.task_id}@{lease.version + 1}")
    store.succeed(lease, SUCCEEDED)
    return None


RIGHT = relaying(work)
LOST = "every_message_is_handed_over"
BUGS = (
    Bug("messages collected, marked, then published", LOST, 1, relaying(working(relay=collect_then_publish)), RIGHT),
    Bug("relay that passes over others' messages", LOST, 1, relaying(working(relay=own_tasks_only)), RIGHT),
    Bug("relay of the newest first", "told_in_order", 0, relaying(working(relay=newest_first)), RIGHT),
    Bug("messages published past the relay", "told_in_order", 2, relaying(working(carry=fast_path)), RIGHT),
    Bug(
        "end published before it",
        "told_once_committed",
        1,
        relaying(working(carry=publish_then_succeed)),
        RIGHT,
    ),
    Bug("key of the attempt", "no_second_effect", 1, relaying(working(carry=key_per_attempt)), RIGHT),
)
