"""The panel of the outbox: every order of change and message with every crash, and who has heard of what."""

from itertools import product

import pytest

from labkit.panels import outbox_panel
from labkit.panels.base import said
from labkit.panels.outbox import CANCEL, CAREFUL, CARELESS, CRASHES, NEXT_WORKER, ORDERS, play, show

TWICE, UNTRUE, SILENT = (
    "WRONG: the consumer acted twice on one change",
    "WRONG: the consumer acted on a success that never happened",
    "WRONG: the task has succeeded, and nobody will ever hear of it",
)


def test_each_order_goes_wrong_in_its_own_way_and_the_outbox_only_with_a_careless_consumer():
    wrong = {}
    for order, crash, then, consumer in product(ORDERS, CRASHES.values(), (NEXT_WORKER, CANCEL), (CAREFUL, CARELESS)):
        verdict = play(order, crash, then, consumer).verdict
        if "WRONG" in verdict:
            said = next(one for one in (TWICE, UNTRUE, SILENT) if one in verdict)
            wrong.setdefault((order, said), []).append((crash, then, consumer))
    everybody = [CAREFUL, CARELESS]
    assert wrong == {
        ("publish first", TWICE): [(1, NEXT_WORKER, CARELESS)],
        ("publish first", UNTRUE): [(1, CANCEL, one) for one in everybody],
        ("commit first", SILENT): [(1, then, one) for then in (NEXT_WORKER, CANCEL) for one in everybody],
        ("outbox", TWICE): [(2, then, CARELESS) for then in (NEXT_WORKER, CANCEL)],
    }


@pytest.mark.parametrize("order", ORDERS)
def test_without_a_crash_the_message_is_received_once_and_the_task_has_succeeded(order: str):
    played = play(order, 0, CANCEL, CAREFUL)
    assert (played.state, played.waiting, played.received, played.acted) == ("succeeded", 0, 1, 1)
    assert "The task is succeeded, and the consumer acted 1 &times;: they agree" in played.verdict


def test_a_relay_that_dies_before_its_mark_delivers_again_and_the_consumer_knows_the_message():
    played = play("outbox", 2, NEXT_WORKER, CAREFUL)
    assert [line[:2] for line in played.story] == [
        ("worker-1", "change and message are committed"),
        ("relay-1", "the message is handed over; the consumer acts"),
        ("", "!! crash: worker and relay die"),
        ("worker-2", "the task has ended: nothing to do"),
        ("relay-2", "the message is handed over; the consumer knows it"),
        ("relay-2", "the message is marked as delivered"),
    ]
    assert [line[3] for line in played.story] == ["waiting"] * 5 + ["delivered"]


def test_a_cancel_that_comes_too_late_changes_nothing():
    played = play("outbox", 1, CANCEL, CAREFUL)
    assert ("Ada", "0 rows changed: the task has ended") in [line[:2] for line in played.story]
    assert (played.state, played.acted) == ("succeeded", 1)


def test_the_panel_plays_what_is_chosen_and_shows_every_step():
    box = outbox_panel()
    *choices, button = box.children[0].children
    assert [one.description for one in choices] == ["order", "crash", "after the crash", "the consumer"]
    for one, value in zip(choices, ("commit first", 1, NEXT_WORKER, CAREFUL), strict=True):
        one.value = value
    button.click()
    shown = box.children[1].value
    assert shown == said(show("commit first", 1, NEXT_WORKER, CAREFUL))
    assert SILENT in shown
    assert shown.count("<tr>") == 4
    assert "received 0 &times;, acted 0 &times;" in shown
