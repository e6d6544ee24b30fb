"""The seams: crash points, networks and clocks, each plain and each the same on every run."""

from __future__ import annotations

import random

import pytest

from labkit.errors import InvalidInput, SimulatedCrash
from labkit.seams import (
    Call,
    Delivery,
    ManualClock,
    Point,
    SystemClock,
    crash_at,
    no_boundary,
    reliable,
    scripted,
    seeded,
)

SEND = Point("send", "task-1/refund")
CALL = Call("payments", "send", "task-1/refund", "r-1")


def crossings_until_death(occurrence: int, crossings: int) -> list[int]:
    boundary, deaths = crash_at(SEND.name, occurrence), []
    for number in range(1, crossings + 1):
        try:
            boundary(SEND)
        except SimulatedCrash:
            deaths.append(number)
    return deaths


@pytest.mark.parametrize("occurrence", [1, 2, 5])
def test_a_crash_comes_at_its_occurrence_counted_from_1_and_only_once(occurrence: int) -> None:
    assert crossings_until_death(occurrence, 10) == [occurrence]


def test_only_crossings_of_that_name_count_whatever_was_learned_there() -> None:
    boundary = crash_at("send task-1/refund", 2)
    boundary(Point("send", "task-1/refund", "applied: payments-1"))
    for other in (Point("query", "task-1/refund"), Point("send", "task-1/refund/undo"), Point("send", "task-1")):
        boundary(other)
    with pytest.raises(SimulatedCrash, match="send task-1/refund"):
        boundary(Point("send", "task-1/refund", "time-out"))


@pytest.mark.parametrize("occurrence", [0, -1])
def test_a_crash_at_no_occurrence_cannot_be_meant(occurrence: int) -> None:
    with pytest.raises(InvalidInput):
        crash_at(SEND.name, occurrence)


def test_a_simulated_crash_outlives_a_broad_handler() -> None:
    survived: list[Exception] = []

    def careful() -> None:
        try:
            crash_at(SEND.name)(SEND)
        except Exception as error:
            survived.append(error)

    with pytest.raises(SimulatedCrash):
        careful()
    assert survived == []


def test_the_plain_seams_do_nothing_and_deliver_everything() -> None:
    no_boundary(SEND)
    assert reliable(CALL) is Delivery.DELIVERED


def test_a_scripted_network_plays_its_script_and_then_delivers() -> None:
    network = scripted(Delivery.LATE, Delivery.DELIVERED, Delivery.REFUSED)
    assert [network(CALL) for _ in range(5)] == ["late", "delivered", "refused", "delivered", "delivered"]


def test_two_scripted_networks_share_nothing() -> None:
    first, second = scripted(Delivery.LATE), scripted(Delivery.LATE)
    assert first(CALL) is second(CALL) is Delivery.LATE


def draws(seed: int, rates: dict[Delivery, float], number: int = 2000) -> list[Delivery]:
    network = seeded(seed, rates)
    return [network(CALL) for _ in range(number)]


RATES = {Delivery.LATE: 0.1, Delivery.RESPONSE_LOST: 0.3, Delivery.REFUSED: 0.2}


def test_a_seeded_network_draws_the_same_for_the_same_seed_and_other_things_for_another() -> None:
    assert draws(7, RATES) == draws(7, RATES)
    assert draws(7, RATES) != draws(8, RATES)


def test_a_seeded_networks_draws_do_not_depend_on_the_order_in_which_rates_are_written() -> None:
    assert draws(7, RATES) == draws(7, dict(reversed(RATES.items())))


def test_a_seeded_network_keeps_away_from_the_random_module_that_students_use() -> None:
    random.seed(1)
    expected = random.random()
    random.seed(1)
    draws(7, RATES, 10)
    assert random.random() == expected


def test_faults_come_about_as_often_as_their_rates_say() -> None:
    found = draws(1, RATES)
    for fault, rate in RATES.items():
        assert abs(found.count(fault) / len(found) - rate) < 0.04
    assert Delivery.REQUEST_LOST not in found


def test_rates_that_add_up_to_1_leave_nothing_delivered() -> None:
    rates = {delivery: 0.25 for delivery in Delivery if delivery is not Delivery.DELIVERED}
    assert Delivery.DELIVERED not in draws(1, rates)


def test_rates_that_add_up_to_1_are_taken_even_where_rounding_adds_them_up_to_more() -> None:
    rates = {Delivery.LATE: 0.33, Delivery.REFUSED: 0.56, Delivery.REQUEST_LOST: 0.11}
    late, refused, lost = rates.values()
    assert late + refused + lost > 1
    assert Delivery.DELIVERED not in draws(1, rates)


def test_no_rates_or_rates_of_0_deliver_everything_and_a_rate_for_delivery_itself_may_be_named() -> None:
    assert set(draws(1, {})) == set(draws(1, {Delivery.LATE: 0.0})) == {Delivery.DELIVERED}
    assert set(draws(1, dict.fromkeys(Delivery, 0.2))) == set(Delivery)


@pytest.mark.parametrize(
    "rates",
    [
        {Delivery.LATE: -0.1},
        {Delivery.LATE: 1.1},
        {Delivery.LATE: 0.6, Delivery.REFUSED: 0.6},
        {Delivery.LATE: float("nan")},
        {"lost": 0.1},
        {Delivery.LATE: "x"},
    ],
)
def test_rates_that_cannot_be_meant_are_refused(rates: dict[Delivery, float]) -> None:
    with pytest.raises(InvalidInput):
        seeded(1, rates)


def test_a_manual_clock_moves_only_when_told_to_and_never_back() -> None:
    clock = ManualClock(100.0)
    assert clock.now() == clock.now() == 100.0
    clock.sleep(2.5)
    clock.advance(0.5)
    clock.sleep(-50)
    assert clock.now() == 103.0


@pytest.mark.parametrize("start", [float("nan"), float("inf"), True, "0"], ids=str)
def test_a_manual_clock_begins_at_a_finite_number_of_seconds(start: object) -> None:
    with pytest.raises(InvalidInput, match="a finite number of seconds"):
        ManualClock(start)  # type: ignore[arg-type]


@pytest.mark.parametrize("script", [("lost",), (Delivery.LATE, 3), (None,)], ids=str)
def test_a_script_of_something_else_than_deliveries_is_refused_before_the_first_call(script: object) -> None:
    with pytest.raises(InvalidInput, match="one of delivered, refused, request_lost, response_lost, late"):
        scripted(*script)  # type: ignore[misc]


def test_a_manual_clock_begins_at_0_and_can_begin_again_for_another_run() -> None:
    clock = ManualClock()
    assert clock.now() == 0.0
    clock.advance(5)
    clock.reset()
    assert clock.now() == 0.0
    clock.reset(7)
    assert clock.now() == 7.0


def test_a_system_clock_tells_seconds_since_1970_and_does_not_wait_for_a_time_that_is_past() -> None:
    clock = SystemClock()
    before = clock.now()
    clock.sleep(-1.0)
    clock.sleep(0.0)
    assert 1_700_000_000 < before <= clock.now() < before + 60


def test_a_points_name_is_its_action_and_subject_and_not_what_was_learned() -> None:
    assert Point("send", "task-1/refund", "time-out").name == Point("send", "task-1/refund").name == SEND.name
