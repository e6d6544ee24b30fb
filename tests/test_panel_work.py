"""The panels of the last lessons, without a browser: a cancel and its undo, and the console of the capstone."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pytest

from labkit.agent import REMOTES
from labkit.desk import Desk
from labkit.panels import console_panel, undo_panel
from labkit.panels.base import TEXT, Panel, run_html
from labkit.panels.console import QUIET, TROUBLES, recover
from labkit.panels.crash import CRASH_POINTS
from labkit.panels.plays import NOBODY, first_sending
from labkit.panels.undo import AFTER_THE_TICKET, CANCEL_POINTS, CHARGED_AGAIN, UNDO_POINTS, cancel_and_undo
from labkit.policies import POLICIES
from labkit.runs import Run, Verdict
from labkit.seams import Call, Delivery, ManualClock

BY_CAPABILITY = dict.fromkeys(REMOTES, "by_capability")
REFUND, CHARGE = "task-1/refund", "task-1/refund/undo"


@pytest.fixture(autouse=True)
def silent(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """A panel shows what it has to say; it prints nothing."""
    yield
    assert capfd.readouterr() == ("", "")


@pytest.fixture(scope="module")
def short() -> Run:
    """Two moments of a run: drawing a picture takes its time."""
    run = recover(BY_CAPABILITY)
    return replace(run, moments=run.moments[:2])


def choices(box: Panel) -> list[widgets.Dropdown]:
    return [one for one in box.children[0].children if isinstance(one, widgets.Dropdown)]


def press(box: Panel) -> str:
    (button,) = (one for one in box.children[0].children if isinstance(one, widgets.Button))
    button.click()
    return str(box.children[1].value).removeprefix(f'<div style="{TEXT}">').removesuffix("</div>")


def faults(run: Run) -> list[tuple[str, str, str]]:
    return [(one.worker, one.point, one.fault) for one in run.moments if one.fault]


# --- cancel, then undo --------------------------------------------------------------------------------


def test_the_undo_points_on_offer_are_all_crossings_of_a_quiet_undo(tmp_path: Path):
    crossed: list[str] = []
    clock = ManualClock()

    def cancel(point: Any) -> None:
        if point.name == AFTER_THE_TICKET:
            desk.store.request_cancel("task-1", "Ada")

    with Desk(tmp_path, clock, boundary=cancel, synchronous="OFF") as desk:
        desk.queue()
        desk.worker(POLICIES["same_key"]).run("task-1")
        desk.store.compensate(desk.store.get("task-1"), "Ada")
    with Desk(tmp_path, clock, boundary=lambda point: crossed.append(point.name), synchronous="OFF") as desk:
        desk.start("worker-2")
        desk.worker(POLICIES["same_key"], "worker-2").run("task-1")
    assert (NOBODY, *crossed) == UNDO_POINTS


@pytest.mark.parametrize("point", CANCEL_POINTS)
def test_wherever_it_is_cancelled_what_was_done_is_undone_and_nothing_else(point: str):
    run = cancel_and_undo("by_capability", point, NOBODY)
    assert faults(run) == [("worker-1", point, "cancel")]
    done = [one.id for one in run.task.operations if one.direction == "do" and one.status == "done"]
    undone = [f"{name}/undo" for name in done if "mail" not in name]
    assert dict(run.effects) == dict.fromkeys((*done, *undone), 1)
    assert run.task.state == ("compensated" if done else "cancelled")
    assert run.verdict is Verdict.STOPPED_CLEAN
    assert run.title.endswith("undo not killed" if done else "with nothing to undo")


@pytest.mark.parametrize("point", UNDO_POINTS[1:])
def test_the_undo_dies_where_it_is_told_to_and_worker_3_goes_on(point: str):
    run = cancel_and_undo("by_capability", AFTER_THE_TICKET, point)
    assert faults(run) == [("worker-1", AFTER_THE_TICKET, "cancel"), ("worker-2", point, "crash")]
    assert run.moments[-1].worker == "worker-3"
    assert run.verdict in (Verdict.STOPPED_CLEAN, Verdict.NEEDS_A_PERSON)
    assert set(dict(run.effects).values()) == {1}


def test_a_mail_that_is_out_cannot_be_undone_and_that_is_on_record():
    run = cancel_and_undo("by_capability", "checkpoint task-1/send_email", NOBODY)
    standings = {one.id: one.standing for one in run.task.current}
    assert standings["task-1/send_email/undo"] == "cannot be undone"
    assert run.task.state == "compensated"


def test_a_blind_replay_charges_twice_and_the_key_of_the_undo_charges_once():
    charged = {policy: dict(cancel_and_undo(policy).effects)[CHARGE] for policy in ("blind_replay", "same_key")}
    assert charged == {"blind_replay": 2, "same_key": 1}


def test_a_crash_point_that_the_undo_never_comes_to_kills_nobody():
    run = cancel_and_undo("same_key", "checkpoint task-1/refund", "send task-1/update_ticket/undo")
    assert faults(run) == [("worker-1", "checkpoint task-1/refund", "cancel")]
    assert run.moments[-1].worker == "worker-2"
    assert run.title.endswith("undo not killed: it never came to send task-1/update_ticket/undo")


def test_the_undo_panel_plays_what_is_chosen(short: Run):
    played: list[Any] = []

    def play(*chosen: str) -> Run:
        played.append(chosen)
        return short

    box = undo_panel(play)
    policy, cancel, crash = choices(box)
    assert (policy.options, cancel.options, crash.options) == (tuple(POLICIES), CANCEL_POINTS, UNDO_POINTS)
    press(box)
    policy.value, cancel.value, crash.value = "same_key", "claim task-1", NOBODY
    assert press(box) == run_html(short)
    assert played == [("blind_replay", AFTER_THE_TICKET, CHARGED_AGAIN), ("same_key", "claim task-1", NOBODY)]


# --- the console --------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [NOBODY, *CRASH_POINTS])
def test_by_capability_at_every_remote_is_safe_at_every_crash_point(point: str):
    run = recover(BY_CAPABILITY, point)
    asks = ("intend task-1/update_ticket", "intend task-1/send_email", "send task-1/send_email")
    assert run.verdict is (Verdict.NEEDS_A_PERSON if point in asks else Verdict.EXACTLY_ONCE)
    assert faults(run) == ([] if point == NOBODY else [("worker-1", point, "crash")])


@pytest.mark.parametrize("trouble", TROUBLES)
def test_by_capability_at_every_remote_is_safe_under_every_trouble(trouble: str):
    run = recover(BY_CAPABILITY, NOBODY, trouble)
    operation, _, what = trouble.partition(" ")
    unknown = operation == "send_email" or (operation == "update_ticket" and "applied" not in what)
    asks = unknown and "refused" not in what
    assert run.verdict is (Verdict.NEEDS_A_PERSON if asks else Verdict.EXACTLY_ONCE)
    asked = TROUBLES[trouble]
    expected = [] if asked is None else [(f"send {asked[0]}", asked[1].replace("_", " "))]
    assert [(point, fault) for _, point, fault in faults(run)] == expected


@pytest.mark.parametrize(
    ("point", "counts"),
    [
        ("send task-1/refund", (1, 1, 1)),
        ("send task-1/update_ticket", (1, 2, 1)),
        ("send task-1/send_email", (1, 1, 1)),
    ],
)
def test_each_remote_has_the_policy_that_was_chosen_for_it(point: str, counts: tuple[int, ...]):
    chosen = {"payments": "same_key", "tickets": "blind_replay", "mail": "ask_person"}
    run = recover(chosen, point)
    names = (REFUND, "task-1/update_ticket", "task-1/send_email")
    assert tuple(dict(run.effects).get(name, 0) for name in names) == counts
    assert all(f"{remote}: {policy}" in run.title for remote, policy in chosen.items())


def test_a_late_request_is_in_the_ledger_in_the_end_and_a_resend_doubles_it():
    chosen = BY_CAPABILITY | {"tickets": "query_first"}
    for trouble, count in (("update_ticket is lost", 1), ("update_ticket arrives late", 2)):
        assert dict(recover(chosen, NOBODY, trouble).effects)["task-1/update_ticket"] == count


def test_only_the_first_sending_of_that_operation_is_in_trouble():
    network = first_sending(REFUND, Delivery.LATE)
    calls = [Call("payments", action, name, "1") for action, name in (("query", REFUND), ("send", CHARGE))]
    calls += [Call("payments", "send", REFUND, str(number)) for number in (1, 2)]
    fates = [Delivery.DELIVERED, Delivery.DELIVERED, Delivery.LATE, Delivery.DELIVERED]
    assert [network(call) for call in calls] == fates


def test_the_console_plays_what_is_chosen(short: Run):
    played: list[Any] = []

    def play(*chosen: Any) -> Run:
        played.append(chosen)
        return short

    box = console_panel(play)
    *remotes, point, wire = choices(box)
    assert [one.description for one in remotes] == list(REMOTES)
    assert (point.options, wire.options) == ((NOBODY, *CRASH_POINTS), tuple(TROUBLES))
    press(box)
    remotes[0].value, point.value, wire.value = "same_key", NOBODY, "refund arrives late"
    assert press(box) == run_html(short)
    blind = dict.fromkeys(REMOTES, "blind_replay")
    assert played == [
        (blind, "send task-1/send_email", QUIET),
        (blind | {"payments": "same_key"}, NOBODY, "refund arrives late"),
    ]
