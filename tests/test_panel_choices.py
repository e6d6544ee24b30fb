"""Panels with choices, without a browser: what is chosen is played, and shown as a picture with a text twin."""

import base64
import html
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import ipywidgets as widgets
import pytest
from PIL import Image

from labkit.desk import Desk
from labkit.panels import crash_panel, keys_panel, reconcile_panel
from labkit.panels.base import TEXT, Action, Panel, choice, panel, picture_html, run_html
from labkit.panels.crash import CRASH_POINTS, simulated
from labkit.panels.keys import KINDS, RULES, resend
from labkit.panels.reconcile import FAULTS, POLICY_NAMES, REMOTE_KINDS, search
from labkit.policies import ASK_PERSON, POLICIES
from labkit.real.drill import drill
from labkit.runs import Run
from labkit.seams import ManualClock
from labkit.show.tables import TextTable


@pytest.fixture(autouse=True)
def silent(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """A panel shows what it has to say; it prints nothing."""
    yield
    assert capfd.readouterr() == ("", "")


@pytest.fixture(scope="module")
def short() -> Run:
    """Two moments of a run: drawing a picture takes its time."""
    run = simulated("blind_replay", "send task-1/refund")
    return replace(run, moments=run.moments[:2])


def buttons(box: Panel) -> list[widgets.Button]:
    return [one for one in box.children[0].children if isinstance(one, widgets.Button)]


def choices(box: Panel) -> list[widgets.Dropdown]:
    return [one for one in box.children[0].children if isinstance(one, widgets.Dropdown)]


def shown(box: Panel) -> str:
    return str(box.children[1].value).removeprefix(f'<div style="{TEXT}">').removesuffix("</div>")


# --- choices ----------------------------------------------------------------------------------------


def test_a_choice_stands_for_what_its_option_is_mapped_to_and_begins_with_the_first():
    mapped, named = choice("world", {"ours": 1, "theirs": 2}), choice("policy", ["a", "b"])
    assert (mapped.description, mapped.tooltip, mapped.value) == ("world", "world", 1)
    assert (named.value, named.options) == ("a", ("a", "b"))


def test_a_label_is_nearer_to_its_own_choice_than_to_the_one_before():
    _, right, _, left = (int(side.removesuffix("px")) for side in choice("policy", ["a"]).layout.margin.split())
    assert right > 4 * left


def test_choices_are_read_when_a_button_is_pressed_disabled_while_it_works_and_back_after_an_error():
    asked, seen = choice("policy", ["a", "b"]), []

    def work() -> str:
        seen.append((asked.value, asked.disabled))
        raise ValueError("no")

    box = panel("a test", [Action("go", "go on", work)], "", "", [asked])
    assert choices(box) == [asked]
    for value in ("b", "a"):
        asked.value = value
        buttons(box)[0].click()
        assert not asked.disabled
    assert seen == [("b", True), ("a", True)]


def test_a_panel_with_choices_names_them_where_widgets_cannot_be_shown():
    box = panel("a test", [Action("go", "go on", str)], "", "", [choice("policy", ["a"]), choice("world", ["b"])])
    assert box.said == "A panel with the choices 'policy', 'world' and the button 'go'; run this cell to use it."


def test_what_has_no_picture_is_shown_as_text_and_not_read_as_html():
    table = TextTable(("<b>",), (("a & b",),))
    assert picture_html(table, table) == f"<pre>{html.escape(str(table))}</pre>"


def test_a_run_is_shown_by_a_picture_for_a_light_page_and_another_for_a_dark_one(short: Run):
    pictures = re.findall(r'class="labkit-(\w+)"><img [^>]*base64,([^"]+)"', run_html(short))
    assert [page for page, _ in pictures] == ["light", "dark"]
    light, dark = (Image.open(io.BytesIO(base64.b64decode(png))).convert("L").getpixel((0, 0)) for _, png in pictures)
    assert light > 250
    assert dark < 50
    assert run_html(short).count("<pre>") == 1


# --- any crash ----------------------------------------------------------------------------------------


def test_the_crash_points_on_offer_are_all_crossings_of_a_quiet_run(tmp_path: Any):
    crossed: list[str] = []
    with Desk(tmp_path, ManualClock(), boundary=lambda point: crossed.append(point.name), synchronous="OFF") as desk:
        desk.queue()
        crossed.clear()
        desk.start("worker-1")
        desk.worker(ASK_PERSON).run("task-1")
    assert tuple(crossed) == CRASH_POINTS


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_simulated_crash_happens_at_the_point_that_was_chosen_and_worker_2_goes_on(point: str):
    run = simulated("same_key", point)
    assert [(one.worker, one.point) for one in run.moments if one.fault] == [("worker-1", point)]
    assert run.moments[-1].worker == "worker-2"
    assert run.title == f"same_key, killed after: {point}"


def test_the_crash_panel_plays_what_is_chosen_in_the_world_that_is_chosen(short: Run):
    played: list[Any] = []

    def world(name: str) -> Callable[[str, str], Run]:
        def play(policy: str, point: str) -> Run:
            played.append((name, policy, point))
            return short

        return play

    box = crash_panel({"here": world("here"), "there": world("there")})
    policy, point, where = choices(box)
    assert (policy.options, point.options) == (tuple(POLICIES), CRASH_POINTS)
    buttons(box)[0].click()
    policy.value, point.value, where.label = "same_key", "succeed task-1", "there"
    buttons(box)[0].click()
    assert played == [("here", "blind_replay", "send task-1/refund"), ("there", "same_key", "succeed task-1")]
    assert shown(box) == run_html(short)


def test_the_crash_panel_offers_a_simulated_and_a_real_world():
    assert dict(choices(crash_panel())[2].options) == {"simulated": simulated, "real processes": drill}


# --- keys ---------------------------------------------------------------------------------------------

AT_THE_REMOTES = {
    "one per operation": ("exactly once", "duplicated", "duplicated"),
    "one per attempt": ("duplicated", "duplicated", "duplicated"),
    "one per task": ("stopped clean", "duplicated", "duplicated"),
}
"""What each rule for keys comes to at a remote that honours keys, ignores them, forgets them."""


@pytest.mark.parametrize("rule", RULES)
def test_only_one_key_an_operation_at_a_remote_that_honours_keys_is_exactly_once(rule: str):
    assert tuple(resend(RULES[rule], kind).verdict for kind in KINDS.values()) == AT_THE_REMOTES[rule]


def test_one_key_for_a_task_costs_it_the_voucher():
    run = resend(RULES["one per task"], KINDS["honours keys"])
    assert (run.task.state, run.task.error_category, run.effects) == ("failed", "invalid", (("task-1/refund", 1),))


def test_the_keys_panel_plays_the_rule_and_the_remote_that_are_chosen(short: Run):
    played: list[Any] = []
    box = keys_panel(lambda rule, kind: played.append((rule, kind)) or short)  # type: ignore[func-returns-value]
    rule, kind = choices(box)
    rule.label, kind.label = "one per attempt", "ignores keys"
    buttons(box)[0].click()
    assert played == [(RULES["one per attempt"], KINDS["ignores keys"])]
    title = "keys: one per attempt; the remote ignores keys; after: send task-1/refund"
    assert shown(box) == run_html(replace(short, title=title))


# --- reconcile ----------------------------------------------------------------------------------------


def test_query_first_at_a_query_is_broken_by_a_late_delivery_and_by_a_pause_and_by_nothing_else():
    found = [search("query_first", REMOTE_KINDS["status query"], faults) for faults in FAULTS.values()]
    assert [one.passed for one in found] == [True, False, False, False]
    smallest = [[step.choice for step in one.failure.schedule] for one in found if one.failure is not None]
    assert smallest == [["late"], ["pause"], ["pause"]]


@pytest.mark.parametrize("policy", ["query_then_ask", "ask_person", "by_capability"])
@pytest.mark.parametrize("kind", REMOTE_KINDS)
def test_policies_that_ask_keep_every_law_at_every_remote_under_every_fault(policy: str, kind: str):
    found = search(policy, REMOTE_KINDS[kind], FAULTS["crashes, late delivery, a paused sender"])
    assert found.passed, found
    asks = found.verdicts.get("needs a person", 0)
    assert (asks == 0) == ((policy, kind) == ("by_capability", "key"))


def test_the_reconcile_panel_shows_a_pass_with_its_counts_and_the_smallest_failure_as_a_picture():
    box = reconcile_panel()
    policy, kind, faults = choices(box)
    assert (policy.options, kind.label, faults.label) == (POLICY_NAMES, "status query", "crashes alone")
    find = buttons(box)[0]
    find.click()
    assert shown(box).startswith("<p><b>all 37 schedules of 1 worker with up to 2 surprises keep every law.</b></p>")
    assert shown(box).count("all 37 schedules") == 1
    assert "<img" not in shown(box)
    faults.label = "crashes and late delivery"
    find.click()
    assert "The smallest failure. no_second_effect: task-1/refund stands 2 times in the ledger\n" in html.unescape(
        shown(box)
    )
    assert shown(box).count("alt=") == shown(box).count("Broken: no_second_effect: task-1/refund stands 2 times") == 2
    assert "query_first: late" in shown(box)


@pytest.mark.parametrize(
    ("faults", "titles"),
    [
        ("crashes alone", ["One crash: nothing arrives late, keys are remembered"]),
        ("crashes and late delivery", ["One crash: the first sending arrives late, keys are remembered"]),
        (
            "crashes, late delivery, a paused sender",
            [
                "One crash: the first sending arrives late, keys are remembered",
                "A paused sender: nothing crashes, nothing arrives late",
            ],
        ),
    ],
)
def test_the_reconcile_panel_draws_the_matrix_for_the_chosen_faults(faults: str, titles: list[str]):
    box = reconcile_panel()
    choices(box)[2].label = faults
    buttons(box)[1].click()
    assert re.findall("<pre>(.*)", shown(box)) == titles
    assert shown(box).count("<img") == 2 * len(titles)
