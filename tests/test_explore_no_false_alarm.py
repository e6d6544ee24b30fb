"""Right programs pass: every schedule of them keeps every law, whatever crashes, gets lost or late, or falls asleep.

What is known to be right must not be called wrong. Here all remotes are tried with up to two surprises; three are for
`make drill`.
"""

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest

from labkit.agent import REMOTES, plan
from labkit.explore.choices import ARRIVE, CANCEL, CLOCK
from labkit.explore.exploration import Exploration
from labkit.explore.programs import LabWorker
from labkit.explore.search import explore
from labkit.explore.store_programs import relaying, work
from labkit.explore.world import ALL_SURPRISES, TaskScenario
from labkit.policies import POLICIES
from labkit.remote import Capabilities
from labkit.retries import Budget
from labkit.states import State
from labkit.store import TaskStore
from labkit.wire import Remote
from labkit.worker import Worker

EVERYTHING = ALL_SURPRISES | {CANCEL, ARRIVE}
CAPABILITIES: Mapping[str, Capabilities] = {
    "neither": Capabilities(),
    "key": Capabilities(idempotency_keys=True),
    "query": Capabilities(status_query=True),
    "both": Capabilities(idempotency_keys=True, status_query=True),
    "query, fencing": Capabilities(status_query=True, fencing_tokens=True),
    "key, fencing": Capabilities(idempotency_keys=True, fencing_tokens=True),
    "all": Capabilities(idempotency_keys=True, status_query=True, fencing_tokens=True),
    "key soon forgotten": Capabilities(idempotency_keys=True, key_ttl_seconds=130.0),
    "key in flight refused": Capabilities(idempotency_keys=True, locks_key_in_flight=True),
    "query that lags, fencing": Capabilities(status_query=True, fencing_tokens=True, query_lag_seconds=60.0),
}
RIGHT: Mapping[str, tuple[str, ...]] = {
    "neither": ("ask_person",),
    "key": ("same_key", "ask_person"),
    "query": ("query_then_ask", "ask_person"),
    "both": ("same_key", "query_then_ask"),
}
"""The policies that are right besides `by_capability`, which is right everywhere."""

ONE = TaskScenario(LabWorker("by_capability"), workers=2, allowed=EVERYTHING, compensate=True)
THREE = replace(ONE, operations=tuple(plan()), remotes=REMOTES)
everywhere = pytest.mark.parametrize("can", CAPABILITIES)
rightly = pytest.mark.parametrize(
    ("can", "policy"), [(can, policy) for can, policies in RIGHT.items() for policy in policies]
)


def one_at(can: str, policy: str = "by_capability") -> TaskScenario:
    return replace(ONE, program=LabWorker(policy), remotes={"payments": CAPABILITIES[can]})


def assert_no_alarm(shown: Exploration, schedules: int | None = None) -> None:
    print(shown)
    assert shown.passed, shown
    assert set(shown.verdicts) == {"exactly once", "stopped clean"}
    happened = {"crash", "pause", "switch", "cancel", "refused", "request_lost", "response_lost", "late", "take_over"}
    assert happened <= set(shown.happened), "a result is not green for want of faults"
    if schedules is not None:
        assert shown.schedules == schedules


@everywhere
def test_one_operation_at_a_remote_of_each_kind_raises_no_alarm(can: str) -> None:
    shown = explore(replace(one_at(can), allowed=EVERYTHING | {CLOCK}), 2)
    assert_no_alarm(shown)
    assert shown.happened[CLOCK] > 100


@pytest.mark.drill
@everywhere
def test_a_clock_that_is_off_raises_no_alarm_with_three_surprises(can: str) -> None:
    assert_no_alarm(explore(replace(one_at(can), allowed=EVERYTHING | {CLOCK}), 3))


def test_three_operations_at_three_remotes_raise_no_alarm() -> None:
    shown = explore(replace(THREE, allowed=EVERYTHING | {CLOCK}), 2)
    assert_no_alarm(shown)
    assert shown.happened[CLOCK] > 100


def sharing(task_id: str, store: TaskStore, remotes: Mapping[str, Remote], name: str = "worker-1") -> State:
    worker = Worker(store, remotes, POLICIES["by_capability"], name, talks=False, shares_commits=True)
    return worker.run(task_id)


@everywhere
def test_a_worker_that_shares_commits_raises_no_alarm(can: str) -> None:
    assert_no_alarm(explore(replace(one_at(can), program=sharing), 2))


def test_three_operations_raise_no_alarm_with_shared_commits() -> None:
    assert_no_alarm(explore(replace(THREE, program=sharing), 2))


@rightly
def test_a_policy_that_is_right_for_its_remote_raises_no_alarm(can: str, policy: str) -> None:
    assert_no_alarm(explore(one_at(can, policy), 2))


def three_at(can: str, policy: str) -> TaskScenario:
    return replace(THREE, program=LabWorker(policy), remotes=dict.fromkeys(REMOTES, CAPABILITIES[can]))


@pytest.mark.parametrize(("can", "policy"), [(can, policies[0]) for can, policies in RIGHT.items()])
def test_three_operations_at_remotes_of_one_kind_raise_no_alarm(can: str, policy: str) -> None:
    assert_no_alarm(explore(three_at(can, policy), 2))


@pytest.mark.drill
@pytest.mark.parametrize(
    ("can", "policy"), [(can, policy) for can, policies in RIGHT.items() for policy in policies[1:]]
)
def test_nor_do_they_under_other_policies_that_are_right(can: str, policy: str) -> None:
    assert_no_alarm(explore(three_at(can, policy), 2))


@pytest.mark.parametrize("budget", [Budget(max_attempts=1), Budget(max_attempts=2), Budget(max_seconds=50.0)])
def test_a_tight_budget_raises_no_alarm(budget: Budget) -> None:
    shown = explore(replace(THREE, budget=budget, workers=1), 2)
    assert shown.passed, shown


def test_where_nobody_answers_a_run_ends_with_a_person_s_turn_and_raises_no_alarm() -> None:
    shown = explore(replace(one_at("neither"), person=False), 1)
    assert shown.passed, shown
    assert set(shown.verdicts) == {"exactly once", "stopped clean", "needs a person"}


def test_workers_that_share_a_queue_and_a_relay_beside_them_raise_no_alarm() -> None:
    shown = explore(relaying(), 2)
    print(shown)
    assert shown.passed, shown
    assert shown.schedules == 1_422
    assert all(shown.happened[kind] > 100 for kind in ("crash", "pause", "switch"))


def test_they_raise_none_either_where_calls_get_lost_and_late_and_clocks_are_off() -> None:
    shown = explore(relaying(work, *ALL_SURPRISES, CLOCK), 1)
    assert shown.passed, shown
    assert set(shown.happened) == {*ALL_SURPRISES, CLOCK}


@pytest.mark.drill
@pytest.mark.parametrize("compensate", [False, True])
@pytest.mark.parametrize("can", CAPABILITIES)
def test_one_operation_raises_no_alarm_with_three_surprises(can: str, compensate: bool) -> None:
    assert_no_alarm(explore(replace(one_at(can), compensate=compensate), 3))


@pytest.mark.drill
@rightly
def test_a_policy_that_is_right_for_its_remote_raises_no_alarm_with_three_surprises(can: str, policy: str) -> None:
    assert_no_alarm(explore(one_at(can, policy), 3))


@pytest.mark.drill
def test_three_operations_at_three_remotes_raise_no_alarm_with_three_surprises() -> None:
    with ProcessPoolExecutor() as executor:
        assert_no_alarm(explore(THREE, 3, executor=executor), schedules=50_377)
