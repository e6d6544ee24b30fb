"""Somebody else's system: each capability, its fine print, and what its ledger shows."""

from __future__ import annotations

import ast
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import labkit
from labkit.errors import InvalidInput, NotALabFile, Refused, StoreClosed
from labkit.exchange import Receipt, Refusal, Request, Standing
from labkit.remote import Capabilities, Gate, RemoteService
from labkit.seams import ManualClock

REFUND = "task-1/refund"
Open = Callable[..., RemoteService]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def opened(tmp_path: Path, clock: ManualClock) -> Iterator[Open]:
    services: list[RemoteService] = []

    def open_service(gate: Gate | None = None, late_by_seconds: float = 30.0, **can: object) -> RemoteService:
        path = tmp_path / "payments.sqlite"
        capabilities = Capabilities(**can)  # type: ignore[arg-type]
        services.append(RemoteService(path, "payments", capabilities, clock, gate, late_by_seconds, "OFF"))
        return services[-1]

    yield open_service
    for service in services:
        service.close()


def asking(
    number: int = 1, key: str | None = None, token: int | None = None, body: str = "{}", operation: str = REFUND
) -> Request:
    return Request(operation, f"{operation}#{number}", body, key, token)


def refusal_of(call: Callable[[], object]) -> tuple[str, int]:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.category, caught.value.status


def told(service: RemoteService) -> list[str]:
    return [answer for _, _, answer in service.requests()]


# References and the ledger


def test_every_effect_has_a_reference_of_its_own_counted_from_1_over_all_operations(opened: Open) -> None:
    service = opened()
    assert [service.handle(asking(n, operation=op)).reference for n, op in enumerate("aba", start=1)] == [
        "payments-1",
        "payments-2",
        "payments-3",
    ]
    assert service.effects() == {"a": 2, "b": 1}


def test_without_keys_the_same_request_twice_is_two_effects(opened: Open) -> None:
    service = opened()
    assert service.handle(asking(1, "k")) == Receipt("payments-1")
    assert service.handle(asking(1, "k")) == Receipt("payments-2")
    assert service.effects() == {REFUND: 2}


def test_the_list_of_requests_tells_what_each_sender_was_told_in_order(opened: Open) -> None:
    service = opened(idempotency_keys=True)
    service.handle(asking(1, "k"))
    service.handle(asking(2, "k"))
    refusal_of(lambda: service.handle(asking(3, "k", body='{"other": 1}')))
    assert service.requests() == [
        (REFUND, f"{REFUND}#1", "applied: payments-1"),
        (REFUND, f"{REFUND}#2", "applied before: payments-1"),
        (REFUND, f"{REFUND}#3", "refused: the same key came with another body"),
    ]


def test_the_ledger_outlives_the_service_with_its_effects_keys_fences_and_late_requests(
    opened: Open, clock: ManualClock
) -> None:
    first = opened(idempotency_keys=True, fencing_tokens=True)
    first.handle(asking(1, "k", token=5))
    first.accept_late(asking(1, "late", operation="task-1/late"))
    first.close()
    with pytest.raises(StoreClosed):
        first.effects()
    again = opened(idempotency_keys=True, fencing_tokens=True)
    assert again.effects() == {REFUND: 1}
    assert again.handle(asking(2, "k", token=5)) == Receipt("payments-1", replayed=True)
    assert refusal_of(lambda: again.handle(asking(3, "k", token=4))) == ("permission", 412)
    clock.advance(30)
    assert again.effects() == {REFUND: 1, "task-1/late": 1}
    assert again.handle(asking(4, "new")).reference == "payments-3"


def test_a_reference_is_not_given_out_again_after_the_file_was_reopened(opened: Open) -> None:
    with opened() as service:
        service.handle(asking(1))
    with pytest.raises(StoreClosed):
        service.effects()
    assert opened().handle(asking(2)).reference == "payments-2"


def test_a_ledger_is_not_taken_for_a_task_store_and_the_other_way_round(tmp_path: Path) -> None:
    labkit.TaskStore(tmp_path / "tasks.sqlite").close()
    with pytest.raises(NotALabFile):
        RemoteService(tmp_path / "tasks.sqlite", "payments")


# Keys


def test_one_key_means_one_effect_and_every_later_answer_is_the_first_one_marked_replayed(opened: Open) -> None:
    service = opened(idempotency_keys=True)
    answers = [service.handle(asking(n, "k")) for n in (1, 2, 3)]
    assert answers == [Receipt("payments-1"), *[Receipt("payments-1", replayed=True)] * 2]
    assert service.effects() == {REFUND: 1}


def test_two_keys_are_two_effects_even_for_the_same_operation_and_body(opened: Open) -> None:
    service = opened(idempotency_keys=True)
    service.handle(asking(1, "call-1"))
    assert not service.handle(asking(2, "call-2")).replayed
    assert service.effects() == {REFUND: 2}


@pytest.mark.parametrize(("age", "replayed", "effects"), [(99.999, True, 1), (100.0, False, 2)])
def test_a_key_is_remembered_until_just_before_its_time_and_forgotten_exactly_at_it(
    opened: Open, clock: ManualClock, age: float, replayed: bool, effects: int
) -> None:
    service = opened(idempotency_keys=True, key_ttl_seconds=100.0)
    service.handle(asking(1, "k"))
    clock.advance(age)
    assert service.handle(asking(2, "k")).replayed is replayed
    assert service.effects() == {REFUND: effects}


def test_a_keys_time_counts_from_its_first_use_and_a_replay_does_not_prolong_it(
    opened: Open, clock: ManualClock
) -> None:
    service = opened(idempotency_keys=True, key_ttl_seconds=100.0)
    service.handle(asking(1, "k"))
    clock.advance(60)
    assert service.handle(asking(2, "k")).replayed
    clock.advance(40)
    assert not service.handle(asking(3, "k")).replayed


def test_the_same_key_with_another_body_is_refused_as_invalid_and_the_ledger_is_untouched(opened: Open) -> None:
    service = opened(idempotency_keys=True)
    service.handle(asking(1, "k", body='{"amount": 40}'))
    assert refusal_of(lambda: service.handle(asking(2, "k", body='{"amount": 41}'))) == ("invalid", 422)
    assert service.effects() == {REFUND: 1}
    assert service.handle(asking(3, "k", body='{"amount": 40}')).replayed


def test_a_key_in_flight_is_refused_as_transient_and_replays_once_the_first_has_arrived(
    opened: Open, clock: ManualClock
) -> None:
    service = opened(idempotency_keys=True, locks_key_in_flight=True)
    service.accept_late(asking(1, "k"))
    assert refusal_of(lambda: service.handle(asking(2, "k"))) == ("transient", 409)
    assert service.effects() == {}
    clock.advance(30)
    assert service.handle(asking(3, "k")) == Receipt("payments-1", replayed=True)
    assert service.effects() == {REFUND: 1}


def test_another_key_is_not_held_up_by_one_in_flight(opened: Open) -> None:
    service = opened(idempotency_keys=True, locks_key_in_flight=True)
    service.accept_late(asking(1, "k"))
    assert service.handle(asking(2, "other")).reference == "payments-1"


def test_without_the_lock_a_second_sending_overtakes_the_one_in_flight_which_then_replays(opened: Open) -> None:
    service = opened(idempotency_keys=True)
    service.accept_late(asking(1, "k"))
    assert service.handle(asking(2, "k")) == Receipt("payments-1")
    assert service.deliver_late() == 1
    assert told(service) == ["applied: payments-1", "applied before: payments-1"]
    assert service.effects() == {REFUND: 1}


def test_where_a_key_is_required_a_request_without_one_is_refused_as_invalid(opened: Open) -> None:
    service = opened(idempotency_keys=True, keys_required=True)
    assert refusal_of(lambda: service.handle(asking(1))) == ("invalid", 400)
    assert service.effects() == {}
    assert service.handle(asking(2, "k")) == Receipt("payments-1")


def test_where_a_key_is_not_required_a_request_without_one_is_applied_each_time(opened: Open) -> None:
    service = opened(idempotency_keys=True)
    service.handle(asking(1))
    service.handle(asking(2))
    assert service.effects() == {REFUND: 2}


def test_a_remote_that_takes_keys_and_ignores_them_doubles(opened: Open) -> None:
    service = opened(idempotency_keys=True, keys_ignored=True)
    assert [service.handle(asking(n, "k")).replayed for n in (1, 2)] == [False, False]
    assert service.effects() == {REFUND: 2}


@pytest.mark.parametrize("fine_print", ["keys_required", "keys_ignored", "locks_key_in_flight"])
def test_fine_print_about_keys_is_refused_where_there_are_no_keys(fine_print: str) -> None:
    with pytest.raises(InvalidInput):
        Capabilities(**{fine_print: True})
    Capabilities(idempotency_keys=True, **{fine_print: True})


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan"), True, "10"])
@pytest.mark.parametrize("name", ["key_ttl_seconds", "query_lag_seconds"])
def test_times_in_the_fine_print_are_finite_numbers_of_0_or_more(name: str, seconds: object) -> None:
    with pytest.raises(InvalidInput):
        Capabilities(**{name: seconds})  # type: ignore[arg-type]


# Status queries


def test_a_status_query_finds_what_was_applied_with_its_reference_and_nothing_else(opened: Open) -> None:
    service = opened(status_query=True)
    assert service.query(REFUND) == Standing(False)
    service.handle(asking(1))
    assert service.query(REFUND) == Standing(True, "payments-1")
    assert service.query("task-2/refund") == Standing(False)


def test_a_query_finds_the_first_of_two_effects(opened: Open) -> None:
    service = opened(status_query=True)
    service.handle(asking(1))
    service.handle(asking(2))
    assert service.query(REFUND) == Standing(True, "payments-1")


@pytest.mark.parametrize(("age", "found"), [(0.0, False), (9.999, False), (10.0, True)])
def test_a_lagging_query_sees_an_effect_from_exactly_the_lag_on(
    opened: Open, clock: ManualClock, age: float, found: bool
) -> None:
    service = opened(status_query=True, query_lag_seconds=10.0)
    service.handle(asking(1))
    clock.advance(age)
    assert service.query(REFUND).found is found


def test_a_remote_without_a_status_query_refuses_one_with_404(opened: Open) -> None:
    service = opened()
    service.handle(asking(1))
    assert refusal_of(lambda: service.query(REFUND)) == ("invalid", 404)


def test_answers_read_as_people_would_say_them() -> None:
    answers = (Receipt("payments-1"), Receipt("payments-1", True), Standing(True, "payments-1"), Standing(False))
    assert list(map(str, answers)) == [
        "applied: payments-1",
        "applied before: payments-1",
        "found: payments-1",
        "not found",
    ]


# Fencing tokens


def test_a_smaller_token_is_refused_and_an_equal_or_larger_one_let_in(opened: Open) -> None:
    service = opened(fencing_tokens=True)
    service.handle(asking(1, token=2))
    assert refusal_of(lambda: service.handle(asking(2, token=1))) == ("permission", 412)
    service.handle(asking(3, token=2))
    service.handle(asking(4, token=3))
    assert refusal_of(lambda: service.handle(asking(5, token=2))) == ("permission", 412)
    assert service.effects() == {REFUND: 3}


def test_tokens_are_compared_for_each_operation_by_itself(opened: Open) -> None:
    service = opened(fencing_tokens=True)
    service.handle(asking(1, token=9))
    service.handle(asking(1, token=1, operation="task-1/refund/undo"))
    assert service.effects() == {REFUND: 1, "task-1/refund/undo": 1}


def test_a_request_without_a_token_passes_the_fence(opened: Open) -> None:
    service = opened(fencing_tokens=True)
    service.handle(asking(1, token=9))
    service.handle(asking(2))
    assert service.effects() == {REFUND: 2}


def test_a_remote_without_fencing_takes_no_notice_of_tokens(opened: Open) -> None:
    service = opened(status_query=True)
    service.query(REFUND, token=9)
    service.handle(asking(1, token=9))
    service.handle(asking(2, token=1))
    assert service.effects() == {REFUND: 2}


def test_a_query_with_a_token_shuts_out_every_smaller_one_from_then_on(opened: Open) -> None:
    service = opened(fencing_tokens=True, status_query=True)
    assert service.query(REFUND, token=2) == Standing(False)
    assert refusal_of(lambda: service.handle(asking(1, token=1))) == ("permission", 412)
    assert refusal_of(lambda: service.query(REFUND, token=1)) == ("permission", 412)
    assert service.query(REFUND) == Standing(False)
    service.handle(asking(2, token=2))
    assert service.query(REFUND, token=2) == Standing(True, "payments-1")


def test_a_fence_beats_a_key_that_is_remembered(opened: Open) -> None:
    service = opened(fencing_tokens=True, idempotency_keys=True)
    service.handle(asking(1, "k", token=2))
    assert refusal_of(lambda: service.handle(asking(2, "k", token=1))) == ("permission", 412)
    assert service.handle(asking(3, "k", token=3)).replayed


def test_a_late_request_under_a_smaller_token_is_refused_when_it_arrives(opened: Open, clock: ManualClock) -> None:
    service = opened(fencing_tokens=True, status_query=True)
    service.accept_late(asking(1, token=1))
    assert service.query(REFUND, token=2) == Standing(False)
    clock.advance(30)
    assert service.effects() == {}
    assert told(service) == ["refused: a newer fencing token has been seen"]


def test_a_late_request_under_the_token_of_the_query_is_let_in_so_not_found_was_not_final(
    opened: Open, clock: ManualClock
) -> None:
    service = opened(fencing_tokens=True, status_query=True)
    service.accept_late(asking(1, token=2))
    assert service.query(REFUND, token=2) == Standing(False)
    clock.advance(30)
    assert service.effects() == {REFUND: 1}


def test_a_refused_query_undoes_nothing_that_arrived_with_it(opened: Open, clock: ManualClock) -> None:
    service = opened(fencing_tokens=True, status_query=True)
    service.query(REFUND, token=2)
    service.accept_late(asking(1, operation="task-1/other"))
    clock.advance(30)
    refusal_of(lambda: service.query(REFUND, token=1))
    with sqlite3.connect(service._db.path) as ledger:
        assert ledger.execute("SELECT operation_id FROM effects").fetchall() == [("task-1/other",)]
    ledger.close()


# Gates


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal("too many requests", "transient", 429, 7.0),
        Refusal("overloaded", "transient", 503, 30.0),
        Refusal("not allowed", "permission", 403),
    ],
)
def test_a_gates_refusal_reaches_the_sender_whole_is_on_record_and_applies_nothing(
    opened: Open, refusal: Refusal
) -> None:
    service = opened(gate=lambda request: refusal, idempotency_keys=True)
    with pytest.raises(Refused) as caught:
        service.handle(asking(1, "k"))
    error = caught.value
    assert (error.remote, error.operation_id) == ("payments", REFUND)
    found = Refusal(error.reason, error.category, error.status, error.retry_after_seconds)
    assert found == refusal
    assert service.effects() == {}
    assert told(service) == [f"refused: {refusal.reason}"]


def test_a_key_refused_at_the_gate_is_not_used_up(opened: Open) -> None:
    busy = [Refusal("overloaded", "transient", 503)]
    service = opened(gate=lambda request: busy.pop() if busy else None, idempotency_keys=True)
    refusal_of(lambda: service.handle(asking(1, "k", body='{"first": 1}')))
    assert service.handle(asking(2, "k", body='{"second": 2}')) == Receipt("payments-1")


def test_the_gate_looks_at_each_request_late_ones_included(opened: Open) -> None:
    seen: list[str] = []

    def gate(request: Request) -> Refusal | None:
        seen.append(request.request_id)
        return Refusal("closed", "transient", 503) if request.request_id.endswith("#2") else None

    service = opened(gate=gate)
    service.handle(asking(1))
    service.accept_late(asking(2))
    assert service.deliver_late() == 1
    assert seen == [f"{REFUND}#1", f"{REFUND}#2"]
    assert told(service) == ["applied: payments-1", "refused: closed"]
    assert service.effects() == {REFUND: 1}


# Late requests


@pytest.mark.parametrize(("age", "effects"), [(29.999, {}), (30.0, {REFUND: 1})])
@pytest.mark.parametrize("look", ["effects", "requests", "query", "handle"])
def test_a_late_request_is_applied_from_its_time_on_at_the_next_look_of_any_kind(
    opened: Open, clock: ManualClock, age: float, effects: dict[str, int], look: str
) -> None:
    service = opened(status_query=True)
    service.accept_late(asking(1))
    clock.advance(age)
    looks: dict[str, Callable[[], object]] = {
        "effects": service.effects,
        "requests": service.requests,
        "query": lambda: service.query(REFUND),
        "handle": lambda: service.handle(asking(1, operation="task-1/other")),
    }
    looks[look]()
    with sqlite3.connect(service._db.path) as ledger:
        found = ledger.execute("SELECT operation_id, count(*) FROM effects GROUP BY operation_id").fetchall()
    ledger.close()
    assert {one: count for one, count in found if one == REFUND} == effects


def test_how_late_is_late_is_the_services_own_number(opened: Open, clock: ManualClock) -> None:
    service = opened(late_by_seconds=5.0)
    service.accept_late(asking(1))
    clock.advance(5)
    assert service.effects() == {REFUND: 1}


def test_not_found_and_then_applied_is_what_late_delivery_does_to_a_query(opened: Open, clock: ManualClock) -> None:
    service = opened(status_query=True)
    service.accept_late(asking(1))
    assert service.query(REFUND) == Standing(False)
    clock.advance(30)
    assert service.query(REFUND) == Standing(True, "payments-1")


def test_deliver_late_lets_all_arrive_at_once_and_counts_them(opened: Open) -> None:
    service = opened()
    for number in (1, 2):
        service.accept_late(asking(number))
    assert service.effects() == {}
    assert service.deliver_late() == 2
    assert service.deliver_late() == 0
    assert service.effects() == {REFUND: 2}


def test_the_times_of_late_requests_are_known_until_they_have_arrived(opened: Open, clock: ManualClock) -> None:
    service = opened(late_by_seconds=30.0)
    assert service.arrivals() == []
    service.accept_late(asking(1))
    service.late_by_seconds = 10.0
    service.accept_late(asking(2))
    assert service.arrivals() == [10.0, 30.0]
    clock.advance(10)
    service.effects()
    assert service.arrivals() == [30.0]


def test_late_requests_arrive_in_the_order_of_their_times(opened: Open, clock: ManualClock) -> None:
    service = opened(late_by_seconds=30.0)
    service.accept_late(asking(1))
    service.late_by_seconds = 10.0
    service.accept_late(asking(2))
    clock.advance(60)
    assert [request_id for _, request_id, _ in service.requests()] == [f"{REFUND}#2", f"{REFUND}#1"]


def test_a_late_request_is_applied_at_its_own_time_and_not_at_the_time_of_the_look(
    opened: Open, clock: ManualClock
) -> None:
    service = opened(status_query=True, query_lag_seconds=10.0)
    service.accept_late(asking(1))
    clock.advance(40)  # arrived at 30, so the lag is over
    assert service.query(REFUND).found


def test_a_late_requests_key_is_remembered_from_its_arrival_on(opened: Open, clock: ManualClock) -> None:
    service = opened(idempotency_keys=True, key_ttl_seconds=100.0)
    service.accept_late(asking(1, "k"))
    clock.advance(129)  # nobody looked when it arrived at 30
    assert service.handle(asking(2, "k")).replayed
    clock.advance(1)
    assert not service.handle(asking(3, "k")).replayed
    assert service.effects() == {REFUND: 2}


def test_a_request_so_late_that_its_key_is_forgotten_is_a_second_effect(opened: Open, clock: ManualClock) -> None:
    service = opened(idempotency_keys=True, key_ttl_seconds=20.0)
    service.accept_late(asking(1, "k"))
    service.handle(asking(2, "k"))
    clock.advance(30)
    assert service.effects() == {REFUND: 2}


@pytest.mark.parametrize("locks", [True, False])
def test_two_late_requests_with_one_key_are_one_effect_by_the_first(
    opened: Open, clock: ManualClock, locks: bool
) -> None:
    service = opened(idempotency_keys=True, locks_key_in_flight=locks)
    service.accept_late(asking(1, "k"))
    clock.advance(10)
    service.accept_late(asking(2, "k"))
    clock.advance(20)
    assert told(service) == ["applied: payments-1"]  # the second, still under way, does not hold up the first
    clock.advance(10)
    assert told(service) == ["applied: payments-1", "applied before: payments-1"]
    assert service.effects() == {REFUND: 1}


# Concurrency and who may read the books


@pytest.mark.parametrize(("same_key", "effects"), [(True, 1), (False, 8)])
def test_eight_threads_at_once_have_one_effect_for_each_key(opened: Open, same_key: bool, effects: int) -> None:
    service = opened(idempotency_keys=True)

    def send(number: int) -> Receipt:
        return service.handle(asking(number, "k" if same_key else f"k{number}"))

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(8)))
    assert service.effects() == {REFUND: effects}
    assert sum(not answer.replayed for answer in answers) == effects
    assert len({answer.reference for answer in answers}) == effects


def test_workers_and_policies_use_nothing_of_a_remote_but_send_query_and_capabilities() -> None:
    folder = Path(labkit.__file__).parent
    forbidden = {"RemoteService", "effects", "requests", "deliver_late", "accept_late", "handle", "_service", "sqlite3"}
    used_of_remotes: set[str] = set()
    for name in ("worker.py", "policies.py", "agent.py"):
        tree = ast.parse((folder / name).read_text(encoding="utf-8"))
        used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        used |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        assert not used & forbidden, name
        attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        used_of_remotes |= {node.attr for node in attributes if ast.unparse(node.value) in ("remote", "doubt.remote")}
    assert used_of_remotes == {"send", "query", "capabilities"}
