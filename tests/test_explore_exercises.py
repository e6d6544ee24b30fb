"""How answers to exercises are tried: small functions over a plain connection, each right one with its wrong ones.

The functions know nothing of the explorer. A few lines around each of them say what a worker does with it.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from labkit.errors import NotSent
from labkit.explore.bench import SAID, Bench, outbox_due
from labkit.explore.benchworld import BenchScenario
from labkit.explore.message_laws import OUTBOX_LAWS
from labkit.explore.row_laws import (
    CLAIM_LAWS,
    WORKER_LAWS,
    every_holder_has_a_new_token,
    named,
    no_worker_breaks,
    only_the_current_token,
    result_and_step_in_one_commit,
    tells_its_token,
)
from labkit.explore.scenario import Scenario
from labkit.explore.search import explore
from labkit.explore.world import TaskScenario
from labkit.policies import ASK_PERSON, BLIND_REPLAY, QUERY_FIRST, QUERY_THEN_ASK, SAME_KEY
from labkit.remote import Capabilities
from labkit.store import TaskStore
from labkit.wire import Remote
from labkit.worker import Worker

Answer = Callable[..., Any]
TASK = "task-1"
LEASE_SECONDS = 30.0


# claim(db, task_id, expected_version) -> bool


def claim_right(db: Any, task_id: str, expected_version: int) -> bool:
    with db:
        changed = db.execute(
            "UPDATE tasks SET state = 'running', version = version + 1, lease_token = lease_token + 1, "
            "lease_expires_at = 30 WHERE id = ? AND version = ? AND state = 'queued'",
            (task_id, expected_version),
        )
    return bool(changed.rowcount == 1)


def claim_by_looking(db: Any, task_id: str, expected_version: int) -> bool:
    row = db.execute("SELECT version, state FROM tasks WHERE id = ?", (task_id,)).fetchone()
    if row != (expected_version, "queued"):
        return False
    with db:
        db.execute(
            "UPDATE tasks SET state = 'running', version = version + 1, lease_token = lease_token + 1, "
            "lease_expires_at = 30 WHERE id = ?",
            (task_id,),
        )
    return True


def claim_without_commit(db: Any, task_id: str, expected_version: int) -> bool:
    changed = db.execute(
        "UPDATE tasks SET state = 'running', version = version + 1, lease_expires_at = 30 WHERE id = ? AND version = ?",
        (task_id, expected_version),
    )
    return bool(changed.rowcount == 1)


def queued(db: Any) -> None:
    db.execute("INSERT INTO tasks (id, kind) VALUES (?, 'refund')", (TASK,))


def claiming(answer: Answer) -> Scenario:
    def program(db: Any, bench: Bench) -> Any:
        return answer(db, TASK, 1)

    laws = named(*CLAIM_LAWS, only_the_current_token)
    return BenchScenario(program, queued, laws, 2, frozenset({"switch", "crash"}), due=None)


# take_over(db, task_id, worker, now, lease_seconds) -> int | None

TAKE_OVER = """
UPDATE tasks SET lease_owner = ?, version = version + 1, lease_expires_at = ?, lease_token = {token}
WHERE id = ? AND state = 'running' {guard} RETURNING lease_token"""


def take_over_by(
    db: Any,
    task_id: str,
    worker: str,
    now: float,
    lease_seconds: float,
    token: str = "lease_token + 1",
    guard: str = "AND lease_expires_at <= ?",
) -> int | None:
    values = (worker, now + lease_seconds, task_id, now)
    with db:
        sql = TAKE_OVER.format(token=token, guard=guard)
        row = db.execute(sql, values[: sql.count("?")]).fetchone()
    return None if row is None else int(row[0])


def take_over_telling_another_token(*args: Any) -> int | None:
    token = take_over_by(*args)
    return None if token is None else token - 1


def held_by_a_dead_worker(db: Any) -> None:
    db.execute(
        "INSERT INTO tasks (id, kind, state, version, lease_owner, lease_token, lease_expires_at) "
        "VALUES (?, 'refund', 'running', 2, 'worker-0', 1, 30)",
        (TASK,),
    )


def taking_over(answer: Answer) -> Scenario:
    """The first worker comes too early; two more come when the lease has run out."""

    def program(db: Any, bench: Bench) -> Any:
        if bench.name != "worker-1":
            bench.sleep(LEASE_SECONDS)
        return answer(db, TASK, bench.name, bench.now(), LEASE_SECONDS)

    laws = named(*CLAIM_LAWS, only_the_current_token, every_holder_has_a_new_token, tells_its_token)
    allowed = frozenset({"switch", "crash"})
    return BenchScenario(program, held_by_a_dead_worker, laws, 3, allowed, due=lambda db: None)


# finish(db, task_id, token) -> bool


def finish_by(db: Any, task_id: str, token: int, guard: str = "AND lease_token = ?") -> bool:
    values = (task_id, token)
    sql = (
        "UPDATE tasks SET state = 'succeeded', version = version + 1, lease_owner = NULL, lease_expires_at = NULL "
        f"WHERE id = ? AND state = 'running' {guard}"
    )
    with db:
        changed = db.execute(sql, values[: sql.count("?")])
    return bool(changed.rowcount == 1)


def acquired(db: Any, bench: Bench) -> int | None:
    with db:
        sql = (
            "UPDATE tasks SET state = 'running', version = version + 1, lease_owner = :name, "
            "lease_token = lease_token + 1, lease_expires_at = :now + 30 "
            "WHERE state = 'queued' OR (state = 'running' AND lease_expires_at <= :now) RETURNING lease_token"
        )
        row = db.execute(sql, {"name": bench.name, "now": bench.now()}).fetchone()
    return None if row is None else int(row[0])


def finishing(answer: Answer) -> Scenario:
    def program(db: Any, bench: Bench) -> None:
        token = acquired(db, bench)
        if token is not None:
            bench.sleep(10)
            answer(db, TASK, token)

    return BenchScenario(program, queued, named(*WORKER_LAWS), 1, frozenset({"crash", "pause", "switch"}))


# checkpoint(db, task_id, token, operation_id, result) -> bool

RESULT = "UPDATE operations SET status = 'done', result_ref = ? WHERE operation_id = ? AND status = 'pending'"
STEP = "UPDATE tasks SET step = step + 1, version = version + 1 WHERE id = ?"


def checkpoint_right(db: Any, task_id: str, token: int, operation_id: str, result: str) -> bool:
    with db:
        changed = db.execute(f"{STEP} AND lease_token = ? AND state = 'running'", (task_id, token)).rowcount
        if changed:
            db.execute(RESULT, (result, operation_id))
    return bool(changed)


def checkpoint_in_two(db: Any, task_id: str, token: int, operation_id: str, result: str) -> bool:
    with db:
        db.execute(RESULT, (result, operation_id))
    with db:
        return bool(db.execute(f"{STEP} AND lease_token = ?", (task_id, token)).rowcount)


def checkpoint_without_token(db: Any, task_id: str, token: int, operation_id: str, result: str) -> bool:
    with db:
        if db.execute(RESULT, (result, operation_id)).rowcount:
            return bool(db.execute(STEP, (task_id,)).rowcount)
    return False


def one_operation(db: Any) -> None:
    queued(db)
    db.execute(
        "INSERT INTO operations (operation_id, task_id, name, position, remote, request) "
        "VALUES ('task-1/refund', 'task-1', 'refund', 0, 'payments', '{}')"
    )


def checkpointing(answer: Answer) -> Scenario:
    def program(db: Any, bench: Bench) -> None:
        token = acquired(db, bench)
        if token is None:
            return
        for (operation_id,) in db.execute("SELECT operation_id FROM operations WHERE status = 'pending'").fetchall():
            bench.sleep(10)
            receipt = bench.remotes["payments"].send(operation_id, {}, f"{operation_id}#{token}", operation_id)
            answer(db, TASK, token, operation_id, receipt.reference)
        finish_by(db, TASK, token)

    laws = named(*WORKER_LAWS, result_and_step_in_one_commit)
    keys = {"payments": Capabilities(idempotency_keys=True)}
    return BenchScenario(program, one_operation, laws, 1, frozenset({"crash", "pause"}), remotes=keys)


# relay(db, publish) -> int


def relay_right(db: Any, publish: Callable[[str], None]) -> int:
    waiting = db.execute("SELECT message_id FROM outbox WHERE delivered_at IS NULL ORDER BY seq").fetchall()
    for (message_id,) in waiting:
        publish(message_id)
        with db:
            db.execute("UPDATE outbox SET delivered_at = 0 WHERE message_id = ?", (message_id,))
    return len(waiting)


def relay_marking_first(db: Any, publish: Callable[[str], None]) -> int:
    with db:
        waiting = db.execute(
            "UPDATE outbox SET delivered_at = 0 WHERE delivered_at IS NULL RETURNING message_id"
        ).fetchall()
    for (message_id,) in waiting:
        publish(message_id)
    return len(waiting)


def two_messages(db: Any) -> None:
    queued(db)
    for name in ("m1", "m2"):
        sql = "INSERT INTO outbox (message_id, task_id, topic, payload, created_at) VALUES (?, 'task-1', '', '{}', 0)"
        db.execute(sql, (name,))


def relaying(answer: Answer) -> Scenario:
    def program(db: Any, bench: Bench) -> Any:
        return answer(db, bench.publish)

    laws = named(*OUTBOX_LAWS[1:])
    return BenchScenario(program, two_messages, laws, 2, frozenset({"crash", "switch"}), due=outbox_due)


# recover(task_id, store, remote)


def recovering(policy: Any, can: Capabilities) -> Scenario:
    def recover(task_id: str, store: TaskStore, remote: Remote) -> None:
        Worker(store, {remote.name: remote}, policy, talks=False).run(task_id)

    def program(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
        recover(task_id, store, remotes["payments"])

    return TaskScenario(program, remotes={"payments": can})


QUERY, KEYS, NEITHER = Capabilities(status_query=True), Capabilities(idempotency_keys=True), Capabilities()
RIGHT: Mapping[str, Scenario] = {
    "claim": claiming(claim_right),
    "take_over": taking_over(take_over_by),
    "finish": finishing(finish_by),
    "checkpoint": checkpointing(checkpoint_right),
    "relay": relaying(relay_right),
    "recover with a key": recovering(SAME_KEY, KEYS),
    "recover with a query": recovering(QUERY_THEN_ASK, QUERY),
    "recover with neither": recovering(ASK_PERSON, NEITHER),
}
WRONG: Mapping[str, tuple[Scenario, str, int]] = {
    "claim by looking": (claiming(claim_by_looking), "one_says_yes", 1),
    "claim without commit": (claiming(claim_without_commit), "says_what_it_did", 0),
    "take_over too early": (taking_over(partial(take_over_by, guard="")), "one_says_yes", 0),
    "take_over with the old token": (
        taking_over(partial(take_over_by, token="lease_token")),
        "every_holder_has_a_new_token",
        0,
    ),
    "take_over telling another token": (taking_over(take_over_telling_another_token), "tells_its_token", 0),
    "finish without token": (finishing(partial(finish_by, guard="")), "only_the_current_token", 1),
    "checkpoint in two commits": (checkpointing(checkpoint_in_two), "result_and_step_in_one_commit", 0),
    "checkpoint without token": (checkpointing(checkpoint_without_token), "only_the_current_token", 1),
    "relay that marks first": (relaying(relay_marking_first), "every_message_is_handed_over", 1),
    "recover by sending again": (recovering(BLIND_REPLAY, NEITHER), "no_second_effect", 1),
    "recover by believing not found": (recovering(QUERY_FIRST, QUERY), "no_second_effect", 1),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_answer_passes(name: str) -> None:
    shown = explore(RIGHT[name], 2)
    assert shown.passed, shown


@pytest.mark.parametrize("name", ["finish", "checkpoint", "recover with a key", "recover with a query"])
def test_a_right_answer_passes_with_a_clock_that_is_off_too(name: str) -> None:
    right: Any = RIGHT[name]
    shown = explore(replace(right, allowed=right.allowed | {"clock"}), 2)
    assert shown.passed, shown
    assert shown.happened["clock"]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_caught_by_the_law_that_it_breaks(name: str) -> None:
    scenario, law, surprises = WRONG[name]
    failure = explore(scenario, 2).failure
    assert failure is not None
    assert (failure.law, len(failure.schedule)) == (law, surprises), failure.how


def test_the_smallest_failing_run_can_be_shown_with_its_three_views() -> None:
    scenario, *_ = WRONG["checkpoint without token"]
    failure = explore(scenario, 2).failure
    assert failure is not None
    world = scenario.open()
    try:
        played, moments = world.watch(failure.schedule, "checkpoint without token")
    finally:
        world.close()
    assert played == failure
    shown = [(one.worker, one.believes, one.database, dict(one.ledger), one.fault) for one in moments]
    assert shown[0] == ("worker-1", "", "queued v1: refund pending", {}, "")
    assert shown[2] == ("worker-1", "committed", "running v2: refund pending", {}, "pause")
    assert shown[-1] == ("worker-3", "returns None", "succeeded v5: refund done", {"task-1/refund": 1}, "")
    (marked,) = (one for one in moments if one.broken)
    assert (marked.worker, marked.database) == ("worker-1", "running v4: refund done")


@pytest.mark.parametrize(
    ("said", "result", "told"),
    [
        (True, None, "the call returned True"),
        (None, None, "the call returned None"),
        ([1], None, "the call"),
        (True, 5, "returns 5"),
    ],
)
def test_a_worker_that_returns_nothing_of_its_own_tells_what_the_function_that_is_tried_returned(
    said: object, result: object, told: str
) -> None:
    def calls(db: Any, bench: Bench) -> object:
        bench.say(SAID, said)
        return result

    with closing(BenchScenario(calls, lambda db: None, {}, 1, frozenset(), due=None).open()) as world:
        _, moments = world.watch((), "")
    assert moments[-1].believes == told


# workers that break one after the other


def ended_by(error_of: Callable[[int], Exception]) -> tuple[list[str], str]:
    """Who ended by an error, and what the law about them says, where the first worker only lets its lease run out."""

    def breaks(db: Any, task_id: str, token: int) -> None:
        if token > 1:
            raise error_of(token)

    with closing(finishing(breaks).open()) as world:
        world.play(())
        run = world.record()
        return list(run.errors), no_worker_breaks(run)


def test_a_run_ends_once_three_workers_in_a_row_have_ended_by_the_same_bug():
    told = "worker-2 ended with KeyError: 2"
    assert ended_by(KeyError) == (["worker-2", "worker-3", "worker-4"], told)


def test_other_errors_and_refusals_end_no_run_and_workers_are_told_in_the_order_of_their_numbers():
    ended, told = ended_by(lambda token: KeyError(token) if token % 2 else ValueError(token))
    assert (ended, told) == ([f"worker-{number}" for number in range(2, 16)], "worker-2 ended with ValueError: 2")
    ended, told = ended_by(lambda token: NotSent("payments", "task-1/refund", "refused"))
    assert (len(ended), told) == (14, "")


def test_one_result_is_told_as_one() -> None:
    failure = explore(WRONG["checkpoint in two commits"][0], 2).failure
    assert failure is not None
    assert failure.how == "task-1 was at step 0 with 1 result, if only for a while"
