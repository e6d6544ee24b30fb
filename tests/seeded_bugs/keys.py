"""Keys, doubts, budgets and stopping: worker programs on the task store, each with one wrong turn."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from labkit.agent import REMOTES, plan
from labkit.errors import ChangeRefused, NotSent, OutcomeUnknown, RemoteError
from labkit.exchange import Receipt
from labkit.explore.choices import CANCEL
from labkit.explore.programs import LabWorker
from labkit.explore.world import TaskScenario
from labkit.policies import SAME_KEY, Policy
from labkit.records import Lease, PlannedOperation
from labkit.remote import Capabilities
from labkit.retries import Budget
from labkit.states import HELD_STATES, State
from labkit.store import TaskStore
from labkit.values import Json
from labkit.wire import Remote
from labkit.worker import Worker

from .bug import Bug

Remotes = Mapping[str, Remote]
NOTHING, KEYS, QUERY = Capabilities(), Capabilities(idempotency_keys=True), Capabilities(status_query=True)


def scenario(program: Any, can: Capabilities, *surprises: str, **more: Any) -> TaskScenario:
    made = TaskScenario(program, remotes={"payments": can}, **more)
    return replace(made, allowed=frozenset(surprises)) if surprises else made


def following(policy: Policy) -> Any:
    def program(task_id: str, store: TaskStore, remotes: Remotes) -> State:
        return Worker(store, remotes, policy, talks=False).run(task_id)

    return program


def by_key(key: Any) -> Any:
    return following(Policy("by_key", SAME_KEY.decide, key))


def key_with_a_time(task_id: str, store: TaskStore, remotes: Remotes) -> State:
    policy = Policy("by_time", SAME_KEY.decide, lambda operation_id, _: f"{operation_id} at {store.clock.now():g}")
    return Worker(store, remotes, policy, talks=False).run(task_id)


def attempts_in_memory(task_id: str, store: TaskStore, remotes: Remotes) -> None:
    lease = acquire(task_id, store)
    if lease is None:
        return
    task = store.get(task_id)
    operation = task.next_operation
    if operation is not None:
        if lease.state is State.RUNNING:
            lease, _ = store.intend(lease, operation.id)
        receipt = None
        for attempt in range(task.max_attempts):
            with suppress(RemoteError):
                request_id = f"{operation.id}#{attempt}"
                receipt = remotes[operation.remote].send(operation.id, operation.request, request_id, operation.id)
                break
        if receipt is None:
            return
        if lease.state is State.UNCERTAIN:
            store.settle(lease, operation.id, True, "key", receipt.reference)
            return
        lease = store.checkpoint(lease, operation.id, receipt.reference)
    store.succeed(lease)


def acquire(task_id: str, store: TaskStore) -> Lease | None:
    task = store.get(task_id)
    with suppress(ChangeRefused):
        if task.state is State.QUEUED:
            return store.claim(task, "desk")
        if task.state in HELD_STATES:
            return store.take_over(task, "desk")
    return None


def undoes_when_cancelled(task_id: str, store: TaskStore, remotes: Remotes) -> None:
    LabWorker("by_capability")(task_id, store, remotes)
    task = store.get(task_id)
    if task.state is State.CANCELLED and any(one.status == "done" for one in task.operations):
        store.compensate(task, "worker")


class TimeoutIsFailure(Remote):
    """A client that reports a time-out as "not done"."""

    def __init__(self, wire: Remote) -> None:
        self._wire, self.name, self.capabilities = wire, wire.name, wire.capabilities

    def send(
        self, operation_id: str, body: Json, request_id: str, key: str | None = None, token: int | None = None
    ) -> Receipt:
        try:
            return self._wire.send(operation_id, body, request_id, key, token)
        except OutcomeUnknown as error:
            raise NotSent(error.remote, error.operation_id, error.reason) from error


def unknown_taken_for_failed(task_id: str, store: TaskStore, remotes: Remotes) -> State:
    clients = {name: TimeoutIsFailure(wire) for name, wire in remotes.items()}
    return LabWorker("ask_person")(task_id, store, clients)


DOUBLED = "no_second_effect"
SAME = {"order": 1042, "amount": 20}
TWO_VOUCHERS = tuple(PlannedOperation(name, "payments", SAME) for name in ("voucher_a", "voucher_b"))
TWO = tuple(plan()[:2])
LAB = {name: LabWorker(name) for name in ("same_key", "ask_person", "query_then_ask", "by_capability")}
KEYED, ASKED = scenario(LAB["same_key"], KEYS), scenario(LAB["ask_person"], NOTHING)
QUERIED = scenario(LAB["query_then_ask"], QUERY)
FORGETFUL = Capabilities(idempotency_keys=True, key_ttl_seconds=20.0)
TIGHT = Budget(max_attempts=2)
STOPPED = TaskScenario(LAB["by_capability"], TWO, REMOTES, allowed=frozenset({CANCEL}))
UNDONE = replace(STOPPED, compensate=True)

BUGS = (
    Bug("key per attempt", DOUBLED, 1, scenario(by_key(lambda name, call: f"{name}/{call}"), KEYS), KEYED),
    Bug("key with a time in it", DOUBLED, 1, scenario(key_with_a_time, KEYS), KEYED),
    Bug(
        "one key for two operations",
        "success_means_done",
        0,
        scenario(by_key(lambda name, _: name.partition("/")[0]), KEYS, operations=TWO_VOUCHERS),
        scenario(LAB["same_key"], KEYS, operations=TWO_VOUCHERS),
    ),
    Bug("resend on unknown, without a key", DOUBLED, 1, scenario(LabWorker("blind_replay"), NOTHING), ASKED),
    Bug(
        "not found taken as proof: late delivery",
        DOUBLED,
        1,
        scenario(LabWorker("query_first"), QUERY, "late"),
        QUERIED,
    ),
    Bug(
        "not found taken as proof: paused sender",
        DOUBLED,
        1,
        scenario(LabWorker("query_first"), QUERY, "pause"),
        QUERIED,
    ),
    Bug("unknown taken for failed", DOUBLED, 1, scenario(unknown_taken_for_failed, NOTHING), ASKED),
    Bug("unknown taken for done", "success_means_done", 1, scenario(LabWorker("assume_done"), NOTHING), ASKED),
    Bug(
        "key trusted for longer than it is remembered",
        DOUBLED,
        1,
        scenario(LAB["same_key"], FORGETFUL),
        scenario(LAB["by_capability"], FORGETFUL),
    ),
    Bug(
        "attempts counted in memory",
        "within_budget",
        2,
        scenario(attempts_in_memory, KEYS, budget=TIGHT),
        scenario(LAB["same_key"], KEYS, budget=TIGHT),
    ),
    Bug(
        "cancel that compensates",
        "a_cancel_reverses_nothing",
        1,
        replace(STOPPED, program=undoes_when_cancelled),
        STOPPED,
    ),
    Bug(
        "undo under the key of what it undoes",
        "settled_in_the_end",
        1,
        replace(UNDONE, program=by_key(lambda name, _: name.removesuffix("/undo"))),
        UNDONE,
    ),
)
