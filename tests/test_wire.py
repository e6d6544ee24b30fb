"""The wire: what each delivery does to the ledger, what the caller can know, and when it can die."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from labkit.errors import (
    InvalidInput,
    NotSent,
    OutcomeUnknown,
    Refused,
    RemoteError,
    SimulatedCrash,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFull,
)
from labkit.exchange import Receipt, Refusal, Request, Standing
from labkit.remote import Capabilities, RemoteService
from labkit.seams import Call, Delivery, ManualClock, Network, Point, scripted
from labkit.wire import Remote

REFUND = "task-1/refund"
Make = Callable[..., RemoteService]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    services: list[RemoteService] = []

    def service(gate: Any = None, **can: Any) -> RemoteService:
        made = RemoteService(tmp_path / "p.sqlite", "payments", Capabilities(**can), ManualClock(), gate, 30.0, "OFF")
        services.append(made)
        return made

    yield service
    for one in services:
        one.close()


def outcome(call: Callable[[], Receipt | Standing]) -> tuple[str, str]:
    try:
        return "answer", str(call())
    except RemoteError as error:
        return type(error).__name__, error.reason


TIME_OUT = ("OutcomeUnknown", "time-out: no answer came")
SENT = {
    Delivery.DELIVERED: (("answer", "applied: payments-1"), {REFUND: 1}, {REFUND: 1}),
    Delivery.REFUSED: (("NotSent", "the connection was refused"), {}, {}),
    Delivery.REQUEST_LOST: (TIME_OUT, {}, {}),
    Delivery.RESPONSE_LOST: (TIME_OUT, {REFUND: 1}, {REFUND: 1}),
    Delivery.LATE: (TIME_OUT, {}, {REFUND: 1}),
}


def test_every_delivery_is_covered_here() -> None:
    assert set(SENT) == set(QUERIED) == set(Delivery)


@pytest.mark.parametrize("delivery", Delivery)
def test_what_a_caller_sees_of_a_send_and_what_the_ledger_shows_at_once_and_in_the_end(
    make: Make, delivery: Delivery
) -> None:
    service = make()
    seen, at_once, in_the_end = SENT[delivery]
    assert outcome(lambda: Remote(service, scripted(delivery)).send(REFUND, {}, "r-1")) == seen
    assert service.effects() == at_once
    service.deliver_late()
    assert service.effects() == in_the_end


QUERIED = {
    Delivery.DELIVERED: ("answer", "found: payments-1"),
    Delivery.REFUSED: ("NotSent", "the connection was refused"),
    Delivery.REQUEST_LOST: TIME_OUT,
    Delivery.RESPONSE_LOST: TIME_OUT,
    Delivery.LATE: TIME_OUT,
}


@pytest.mark.parametrize("delivery", Delivery)
def test_what_a_caller_sees_of_a_query_which_never_has_an_effect(make: Make, delivery: Delivery) -> None:
    service = make(status_query=True)
    Remote(service).send(REFUND, {}, "r-1")
    assert outcome(lambda: Remote(service, scripted(delivery)).query(REFUND)) == QUERIED[delivery]
    assert service.deliver_late() == 0
    assert service.effects() == {REFUND: 1}


@pytest.mark.parametrize("fault", [Delivery.REQUEST_LOST, Delivery.LATE])
def test_a_lost_answer_and_a_lost_or_late_request_look_the_same_to_the_caller(make: Make, fault: Delivery) -> None:
    service = make()

    def seen(delivery: Delivery) -> tuple[str, str]:
        return outcome(lambda: Remote(service, scripted(delivery)).send(REFUND, {}, "r-1"))

    assert seen(Delivery.RESPONSE_LOST) == seen(fault)


@pytest.mark.parametrize("action", ["send", "query"])
def test_a_lost_answer_hides_a_refusal_too(make: Make, action: str) -> None:
    service = make(gate=lambda request: Refusal("not allowed", "permission", 403))
    remote = Remote(service, scripted(Delivery.RESPONSE_LOST, Delivery.DELIVERED))

    def call() -> Receipt | Standing:
        return remote.send(REFUND, {}, "r-1") if action == "send" else remote.query(REFUND)

    assert outcome(call) == TIME_OUT
    assert outcome(call)[0] == "Refused"


def test_a_query_whose_answer_is_lost_has_fenced_all_the_same(make: Make) -> None:
    service = make(status_query=True, fencing_tokens=True)
    with pytest.raises(OutcomeUnknown):
        Remote(service, scripted(Delivery.RESPONSE_LOST)).query(REFUND, token=2)
    with pytest.raises(Refused):
        Remote(service).send(REFUND, {}, "r-1", token=1)


def test_a_request_travels_whole_and_its_body_as_json_with_sorted_keys(make: Make) -> None:
    arrived: list[Request] = []
    service = make(gate=lambda request: arrived.append(request))
    Remote(service).send(REFUND, {"b": 1, "a": "ä"}, "r-1", key="k", token=7)
    assert arrived == [Request(REFUND, "r-1", '{"a": "ä", "b": 1}', "k", 7)]


def test_the_network_is_asked_once_a_call_and_sees_which_one_it_is(make: Make) -> None:
    calls: list[Call] = []

    def network(call: Call) -> Delivery:
        calls.append(call)
        return Delivery.DELIVERED

    remote = Remote(make(status_query=True), network)
    remote.send(REFUND, {}, "r-1")
    remote.query(REFUND)
    assert calls == [Call("payments", "send", REFUND, "r-1"), Call("payments", "query", REFUND, "")]


@pytest.mark.parametrize("delivery", Delivery)
@pytest.mark.parametrize("action", ["send", "query"])
def test_the_boundary_is_crossed_once_a_call_after_its_effect_and_before_the_caller_learns_of_it(
    make: Make, delivery: Delivery, action: str
) -> None:
    service, crossed = make(status_query=True), []
    late = delivery is Delivery.LATE and action == "send"

    def boundary(point: Point) -> None:
        crossed.append((point, service.effects()))

    remote = Remote(service, scripted(delivery), boundary)

    def call() -> Receipt | Standing:
        return remote.send(REFUND, {}, "r-1") if action == "send" else remote.query(REFUND)

    _, text = outcome(call)
    ((point, effects),) = crossed
    assert point == Point(action, REFUND, text)
    assert effects == service.effects()
    assert service.deliver_late() == int(late)


def test_a_refusal_crosses_the_boundary_too(make: Make) -> None:
    points: list[Point] = []
    with pytest.raises(Refused):
        Remote(make(), boundary=points.append).query(REFUND)
    assert points == [Point("query", REFUND, "there is no status query")]


@pytest.mark.parametrize("delivery", Delivery)
def test_a_worker_that_dies_at_the_boundary_learns_nothing_and_the_effect_stands(
    make: Make, delivery: Delivery
) -> None:
    service = make()

    def die(point: Point) -> None:
        raise SimulatedCrash(point.name)

    with pytest.raises(SimulatedCrash, match=f"send {REFUND}"):
        Remote(service, scripted(delivery), die).send(REFUND, {}, "r-1")
    service.deliver_late()
    assert service.effects() == SENT[delivery][2]


@pytest.mark.parametrize("delivery", [Delivery.DELIVERED, Delivery.RESPONSE_LOST])
@pytest.mark.parametrize("death", [SimulatedCrash, KeyboardInterrupt])
def test_a_death_inside_the_remote_passes_untouched_and_the_ledger_keeps_nothing_of_it(
    make: Make, death: type[BaseException], delivery: Delivery
) -> None:
    error, crossed = death("here"), []

    def gate(request: Request) -> Refusal | None:
        raise error

    service = make(gate=gate)
    with pytest.raises(death) as caught:
        Remote(service, scripted(delivery), crossed.append).send(REFUND, {}, "r-1")
    assert caught.value is error
    assert crossed == []
    assert service.effects() == {}
    assert service.requests() == []


@pytest.mark.parametrize("error", [StoreFull, StoreBusy])
def test_a_remote_that_breaks_down_over_a_request_tells_its_caller_nothing(make: Make, error: type[StoreError]) -> None:
    crossed: list[Point] = []

    def gate(request: Request) -> Refusal | None:
        raise error("payments.sqlite", "disk I/O error")

    with pytest.raises(OutcomeUnknown, match="no answer came"):
        Remote(make(gate=gate), boundary=crossed.append).send(REFUND, {}, "r-1")
    assert [point.name for point in crossed] == [f"send {REFUND}"]


def test_a_remote_whose_ledger_was_closed_is_a_mistake_of_the_program_and_not_a_fault_of_the_wire(make: Make) -> None:
    service, crossed = make(), []
    service.close()
    with pytest.raises(StoreClosed):
        Remote(service, boundary=crossed.append).send(REFUND, {}, "r-1")
    assert crossed == []


@pytest.mark.parametrize("body", [[1], "text", None, {"n": float("nan")}, {"x": object()}])
def test_a_body_that_is_no_json_object_never_reaches_the_wire(make: Make, body: Any) -> None:
    asked: list[Call] = []

    def network(call: Call) -> Delivery:
        asked.append(call)
        return Delivery.DELIVERED

    with pytest.raises(InvalidInput):
        Remote(make(), network).send(REFUND, body, "r-1")
    assert asked == []


def test_a_network_that_says_a_deliverys_name_is_understood_and_anything_else_is_refused(make: Make) -> None:
    service = make()
    with pytest.raises(NotSent):
        Remote(service, lambda call: "refused").send(REFUND, {}, "r-1")  # type: ignore[arg-type, return-value]
    odd: list[Network] = [lambda call: None, lambda call: "lost", lambda call: True]  # type: ignore[list-item, return-value]
    for network in odd:
        with pytest.raises(InvalidInput):
            Remote(service, network).send(REFUND, {}, "r-1")
    assert service.effects() == {}


def test_a_remote_shows_its_services_name_and_capabilities(make: Make) -> None:
    service = make(status_query=True)
    remote = Remote(service)
    assert (remote.name, remote.capabilities) == ("payments", Capabilities(status_query=True))
