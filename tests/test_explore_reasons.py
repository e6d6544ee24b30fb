"""Programs that went through as right, or were refused for the wrong reason: each is told by the law that it breaks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labkit.agent import REMOTES, plan
from labkit.errors import InvalidInput, NotSent, OutcomeUnknown, StaleToken
from labkit.explore import BenchScenario, Exploration, LabWorker, SqlScenario, TaskScenario, explore
from labkit.explore.processes import REFUSALS
from labkit.explore.row_laws import CLAIM_LAWS, WORKER_LAWS, named
from labkit.explore.scenario import Scenario
from labkit.explore.sql_programs import queue_task
from labkit.records import Lease, Outcome, PlannedOperation
from labkit.remote import Capabilities, RemoteService
from labkit.retries import Backoff, Budget, Category
from labkit.runs import Verdict
from labkit.seams import ManualClock
from labkit.states import HELD_STATES, State
from labkit.store import TaskStore
from labkit.values import Json
from labkit.wire import Remote

Remotes = Mapping[str, Remote]
KEYS = {"payments": Capabilities(idempotency_keys=True)}
QUIET: frozenset[str] = frozenset()
REFUND = "task-1/refund"


def acquired(task_id: str, store: TaskStore) -> Lease | None:
    task = store.get(task_id)
    if task.state is State.QUEUED:
        return store.claim(task, "me")
    return store.take_over(task, "me") if task.state in HELD_STATES else None


def broken(program: Any, surprises: int = 0, **more: Any) -> tuple[str, str]:
    failure = explore(TaskScenario(program, **({"allowed": QUIET, "remotes": REMOTES} | more)), surprises).failure
    assert failure is not None
    return failure.law, failure.how


# Effects: where, and which.


def sends_to(*names: str, body: Json | None = None) -> Any:
    def program(task_id: str, store: TaskStore, remotes: Remotes) -> None:
        lease = acquired(task_id, store)
        if lease is None:
            return
        (operation,) = store.get(task_id).operations
        lease, attempt = store.intend(lease, operation.id)
        for name in names:
            receipt = remotes[name].send(operation.id, body or operation.request, attempt.request_id)
        store.succeed(store.checkpoint(lease, operation.id, receipt.reference))

    return program


def test_an_operation_at_two_remotes_has_two_effects() -> None:
    assert broken(sends_to("payments", "mail")) == ("no_second_effect", f"{REFUND} stands 2 times in the ledger")
    assert broken(sends_to("mail", "payments")) == ("no_second_effect", f"{REFUND} stands 2 times in the ledger")


def test_an_effect_at_another_remote_is_not_the_one_that_was_wanted() -> None:
    scenario = TaskScenario(sends_to("mail"), remotes=REMOTES, allowed=QUIET)
    found = explore(scenario, 0)
    assert found.failure is not None
    assert found.failure.law == "effect_at_its_own_remote"
    assert found.failure.how == f"{REFUND} stands in the ledger of mail, and is for payments"
    assert found.verdicts == {Verdict.LOST: 1}


def test_an_effect_with_another_body_is_not_what_was_planned() -> None:
    law, how = broken(sends_to("payments", body={"order": 1042, "amount": 400}))
    assert law == "effect_as_planned"
    assert '"amount": 400' in how


# Ends without a cause.


def gives_up(task_id: str, store: TaskStore, remotes: Remotes) -> None:
    lease = acquired(task_id, store)
    if lease is not None:
        store.fail(lease, Category.INVALID)


def calls_it_forbidden(task_id: str, store: TaskStore, remotes: Remotes) -> None:
    lease = acquired(task_id, store)
    if lease is None:
        return
    (operation,) = store.get(task_id).operations
    lease, attempt = store.intend(lease, operation.id)
    try:
        receipt = remotes["payments"].send(operation.id, operation.request, attempt.request_id, operation.id)
    except NotSent:
        store.fail(lease, Category.PERMISSION, operation.id, Outcome.NOT_SENT)
    else:
        store.succeed(store.checkpoint(lease, operation.id, receipt.reference))


def says_there_is_no_time(task_id: str, store: TaskStore, remotes: Remotes) -> None:
    lease = acquired(task_id, store)
    if lease is None:
        return
    (operation,) = store.get(task_id).operations
    lease, attempt = store.intend(lease, operation.id)
    try:
        receipt = remotes["payments"].send(operation.id, operation.request, attempt.request_id, operation.id)
    except NotSent:
        store.fail(lease, Category.TRANSIENT, operation.id, Outcome.NOT_SENT, earliest_retry_at=1e9)
    else:
        store.succeed(store.checkpoint(lease, operation.id, receipt.reference))


NO_CAUSE = "fails_only_for_a_cause"


def test_a_task_does_not_fail_because_its_worker_gives_up() -> None:
    assert broken(gives_up) == (NO_CAUSE, "the task failed, category invalid, and no remote has refused it so")


def test_a_connection_that_is_refused_is_no_want_of_permission() -> None:
    law, how = broken(calls_it_forbidden, 1, allowed={"refused"})
    assert (law, how) == (NO_CAUSE, "the task failed, category permission, and no remote has refused it so")


def test_a_budget_is_spent_by_what_is_on_record() -> None:
    law, how = broken(says_there_is_no_time, 1, allowed={"refused"})
    assert law == NO_CAUSE
    assert how == "the task failed, category transient, after 1 of 5 attempts, and its time was not up"


@pytest.mark.parametrize("budget", [Budget(max_attempts=1), Budget(max_seconds=50.0), Budget(max_seconds=1.0)])
def test_a_spent_budget_is_a_cause(budget: Budget) -> None:
    scenario = TaskScenario(LabWorker("by_capability"), remotes=KEYS, allowed=frozenset({"refused"}), budget=budget)
    assert explore(scenario, 3).passed
    assert Backoff().cap_seconds == 60.0, "so long before its seconds are up a task may fail"


def test_a_refusal_of_the_remote_is_a_cause() -> None:
    picky = {"payments": Capabilities(idempotency_keys=True, keys_required=True)}
    found = explore(TaskScenario(LabWorker("ask_person"), remotes=picky, allowed=frozenset({"crash"})), 1)
    assert found.passed
    assert set(found.verdicts) == {"stopped clean"}


def test_an_approval_that_nobody_gives_is_a_cause() -> None:
    def program(task_id: str, store: TaskStore, remotes: Remotes) -> None:
        task = store.get(task_id)
        if task.state is State.QUEUED:
            LabWorker("same_key")(task_id, store, remotes)
            waits = store.get(task_id)
            store.clock.sleep(90_000.0)
            with suppress(Exception):
                store.expire(waits)

    wanted = (PlannedOperation("refund", "payments", {"order": 1042}, needs_approval=True),)
    found = explore(TaskScenario(program, wanted, KEYS, allowed=QUIET, person=False), 0)
    assert found.failure is None
    assert found.verdicts == {"stopped clean": 1}


# Who holds the task, and what is on record before a sending.


def forges(task_id: str, store: TaskStore, remotes: Remotes) -> None:
    """Told that its lease is lost, read the row and go on under the token that is there."""
    task = store.get(task_id)
    if task.lease_token:
        LabWorker("same_key")(task_id, store, remotes)
        return
    (operation,) = task.operations
    lease = store.claim(task, "me")
    try:
        lease, attempt = store.intend(lease, operation.id)
    except StaleToken:
        task = store.get(task_id)
        if task.state is not State.RUNNING or task.lease_owner is None or task.lease_expires_at is None:
            return
        forged = Lease(task_id, task.lease_owner, task.lease_token, task.version, task.state, task.lease_expires_at)
        lease, attempt = store.intend(forged, operation.id)
    try:
        receipt = remotes["payments"].send(operation.id, operation.request, attempt.request_id, operation.id)
    except OutcomeUnknown:
        store.lose_track(lease, operation.id)
    else:
        store.succeed(store.checkpoint(lease, operation.id, receipt.reference))


def test_a_worker_that_goes_on_under_another_s_token_is_found_out() -> None:
    law, how = broken(forges, 2, allowed={"pause", "switch"}, remotes=KEYS, workers=2)
    assert law == "only_the_current_token"
    assert how == "intend by worker-1 under token 2, which worker-3 had been given"


def sends_first(task_id: str, store: TaskStore, remotes: Remotes) -> None:
    lease = acquired(task_id, store)
    if lease is None:
        return
    (operation,) = store.get(task_id).operations
    receipt = remotes["payments"].send(operation.id, operation.request, operation.id, operation.id)
    lease, _ = store.intend(lease, operation.id)
    store.succeed(store.checkpoint(lease, operation.id, receipt.reference))


def test_what_is_sent_before_its_intent_is_told_also_where_keys_make_it_harmless() -> None:
    law, how = broken(sends_first, remotes=KEYS)
    assert (law, how) == ("intends_before_it_sends", f"worker-1 sends {REFUND}, and no intent of that is on record")


# A bug is told as that.


def divides(task_id: str, store: TaskStore, remotes: Remotes) -> None:
    acquired(task_id, store)
    raise ZeroDivisionError("division by zero")


def test_a_bug_is_told_before_what_it_leaves_behind() -> None:
    assert broken(divides) == ("no_worker_breaks", "worker-1 ended with ZeroDivisionError: division by zero")


def test_a_remote_that_is_not_there_is_told() -> None:
    law, how = broken(LabWorker("same_key"), remotes={"mail": Capabilities()})
    assert (law, how) == ("no_worker_breaks", "worker-1 ended with KeyError: 'payments'")


def test_a_policy_that_does_not_exist_is_refused_at_once() -> None:
    with pytest.raises(InvalidInput, match=r"policy: one of assume_done, blind_replay, .*, found 'same-key'"):
        LabWorker("same-key")


# What a process is refused is known by its reason.


def test_every_reason_of_a_remote_has_its_category(tmp_path: Path) -> None:
    can = Capabilities(
        idempotency_keys=True, fencing_tokens=True, keys_required=True, locks_key_in_flight=True, key_ttl_seconds=60.0
    )
    told: dict[str, str] = {}
    with RemoteService(tmp_path / "ledger.sqlite", "payments", can, ManualClock(), synchronous="OFF") as service:
        remote = Remote(service)
        for body, key, token in (({}, None, 2), ({}, "a", 1), ({}, "a", 2), ({"other": 1}, "a", 2)):
            try:
                remote.send("x", body, "x#1", key, token)
            except Exception as error:
                told[error.reason] = error.category  # type: ignore[attr-defined]
        late = Remote(service, network=lambda call: "late")  # type: ignore[arg-type,return-value]
        for wire in (late, remote):
            try:
                wire.send("y", {}, "y#1", "b", 2)
            except Exception as error:
                told[error.reason] = getattr(error, "category", "")  # type: ignore[attr-defined]
    assert {reason: category for reason, category in told.items() if category} == REFUSALS


# Scenarios that cannot be meant.


def does_nothing(*args: Any) -> None:
    pass


def bench(**more: Any) -> BenchScenario:
    return BenchScenario(**({"program": does_nothing, "prepare": queue_task, "laws": {}} | more))


def sql(**more: Any) -> SqlScenario:
    return SqlScenario(**({"program": does_nothing, "prepare": queue_task, "laws": {}} | more))


def tasks(**more: Any) -> TaskScenario:
    return TaskScenario(**({"program": does_nothing} | more))


@pytest.mark.parametrize("make", [bench, sql, tasks])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"allowed": frozenset({"crash", "crashes"})}, "allowed: a set of kinds out of .*crash.*, found 'crashes'"),
        ({"allowed": "crash"}, "allowed: a set of kinds out of .*, found 'crash'"),
        ({"allowed": frozenset({1})}, "allowed: a set of kinds out of .*, found 1"),
        ({"workers": 0}, "workers: a whole number, 1 or more, found 0"),
        ({"workers": "2"}, "workers: a whole number, 1 or more, found '2'"),
        ({"workers": True}, "workers: a whole number, 1 or more, found True"),
        ({"program": "same_key"}, "program: a plain function of .*, found 'same_key'"),
        ({"program": TaskScenario}, "program: a plain function of "),
    ],
)
def test_a_scenario_that_cannot_be_meant_is_refused(make: Any, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make(**wrong)


@pytest.mark.parametrize("make", [bench, tasks])
def test_how_late_is_late_is_a_number_of_seconds(make: Any) -> None:
    with pytest.raises(InvalidInput, match="late_by_seconds: a finite number of seconds, 0 or more, found nan"):
        make(late_by_seconds=float("nan"))


def test_plain_sql_knows_crashes_and_switches_alone() -> None:
    with pytest.raises(InvalidInput, match="allowed: a set of kinds out of crash, switch, found 'late'"):
        sql(allowed=frozenset({"late"}))


def test_kinds_may_come_in_any_collection() -> None:
    assert tasks(allowed={"crash"}).allowed == tasks(allowed=["crash"]).allowed == frozenset({"crash"})


async def waits(task_id: str, store: TaskStore, remotes: Remotes) -> None:
    pass


def test_a_function_that_does_not_run_when_it_is_called_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"program: a plain function of \(task_id, store, remotes\)"):
        tasks(program=waits)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"max_schedules": "10"}, "max_schedules: a whole number, 1 or more, found '10'"),
        ({"max_schedules": 0}, "max_schedules: a whole number, 1 or more, found 0"),
        ({"max_schedules": 10.0}, "max_schedules: a whole number, 1 or more, found 10.0"),
        ({"max_seconds": float("nan")}, "max_seconds: a finite number of seconds, 0 or more, found nan"),
        ({"max_seconds": "5"}, "max_seconds: a finite number of seconds, 0 or more, found '5'"),
        ({"max_seconds": -1}, "max_seconds: a finite number of seconds, 0 or more, found -1"),
        ({"surprises": True}, "surprises: 0 or more, or None for no bound, found True"),
    ],
)
def test_a_search_that_cannot_be_meant_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        explore(tasks(), **wrong)


def test_a_function_is_explored_as_one_refund() -> None:
    found: Exploration = explore(sends_first, 0)
    assert found.failure is not None
    assert found.failure.law == "intends_before_it_sends"
    assert isinstance(found.scenario, TaskScenario)
    assert explore(LabWorker("by_capability"), 1).passed


@pytest.mark.parametrize("wrong", ["same_key", None, TaskScenario, 3])
def test_what_is_neither_scenario_nor_function_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match=r"expected (a scenario, or a|program: a plain) function of "):
        explore(wrong)


# Plain SQL.


def told_by(scenario: Scenario, surprises: int = 0) -> tuple[str, str]:
    failure = explore(scenario, surprises).failure
    assert failure is not None
    return failure.law, failure.how


def claims_by_ending(db: Any, bench: Any) -> bool:
    with db:
        return bool(db.execute("UPDATE tasks SET state = 'succeeded', version = 2 WHERE state = 'queued'").rowcount)


def deletes(db: Any, bench: Any) -> bool:
    with db:
        return bool(db.execute("DELETE FROM tasks").rowcount)


def test_a_claim_that_ends_the_task_is_none() -> None:
    scenario = bench(program=claims_by_ending, laws=named(*CLAIM_LAWS), due=None, workers=2, allowed=QUIET)
    assert told_by(scenario) == ("only_edges_of_the_table", "worker-1 took task-1 from queued to succeeded")


def test_a_task_that_is_deleted_is_missed() -> None:
    wanted = ("nothing_is_deleted", "worker-1 deleted task-1 from tasks")
    assert told_by(bench(program=deletes, laws=named(*CLAIM_LAWS), due=None, allowed=QUIET)) == wanted
    assert told_by(bench(program=deletes, laws=named(*WORKER_LAWS), workers=1, allowed=QUIET)) == wanted


def test_a_bug_in_plain_sql_is_told_before_what_it_leaves_behind() -> None:
    law, how = told_by(bench(program=divides_too, laws=named(*WORKER_LAWS), workers=1, allowed=QUIET))
    assert (law, how) == ("no_worker_breaks", "worker-1 ended with ZeroDivisionError: division by zero")


def divides_too(db: Any, bench: Any) -> None:
    raise ZeroDivisionError("division by zero")


def test_right_programs_for_three_operations_keep_the_laws_that_were_added() -> None:
    three = TaskScenario(LabWorker("by_capability"), tuple(plan()), REMOTES, workers=2)
    assert explore(three, 1).passed
    assert explore(replace(three, compensate=True, allowed=three.allowed | {"cancel"}), 1).passed
