"""Panels without a browser: what their buttons do, show and leave behind."""

import base64
import html
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import ipywidgets as widgets
import pytest
from ipywidgets.widgets.widget import _instances

from labkit.panels import first_crash_panel
from labkit.panels.base import Action, Panel, panel, run_html
from labkit.real.drill import drill
from labkit.runs import Run
from labkit.show.timeline import timeline


@pytest.fixture(autouse=True)
def silent(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """A panel shows what it has to say; it prints nothing."""
    yield
    assert capfd.readouterr() == ("", "")


@pytest.fixture(scope="module")
def run() -> Run:
    return drill("blind_replay", steps=1, lease_seconds=0.01)


@pytest.fixture(scope="module")
def short(run: Run) -> Run:
    """Its first two moments: drawing a picture takes its time."""
    return replace(run, moments=run.moments[:2])


def make(*runs: Callable[[], str], name: str = "a test") -> Panel:
    actions = [Action(f"button {number}", f"tooltip {number}", run) for number, run in enumerate(runs, start=1)]
    return panel(name, actions, "<p>Press one.</p>", "<p>Wait.</p>")


def buttons(box: Panel) -> list[widgets.Button]:
    return list(box.children[0].children)


def shown(box: Panel) -> str:
    return str(box.children[1].value)


def test_a_panel_invites_with_its_buttons_ready():
    box = make(lambda: "one", lambda: "two")
    assert shown(box) == "<p>Press one.</p>"
    assert [(button.description, button.tooltip, button.disabled) for button in buttons(box)] == [
        ("button 1", "tooltip 1", False),
        ("button 2", "tooltip 2", False),
    ]


def test_a_button_shows_what_its_own_action_returns():
    box = make(lambda: "one", lambda: "two")
    for number in (1, 0, 1):
        buttons(box)[number].click()
        assert shown(box) == ("one", "two")[number]


def test_while_an_action_works_all_buttons_are_disabled_and_the_panel_says_so():
    seen: list[Any] = []

    def work() -> str:
        seen.append(([button.disabled for button in buttons(box)], shown(box)))
        return "done"

    box = make(work, work)
    buttons(box)[0].click()
    assert seen == [([True, True], "<p>Wait.</p>")]
    assert [button.disabled for button in buttons(box)] == [False, False]


def test_after_an_error_the_buttons_are_back_and_the_error_is_shown_and_not_read_as_html():
    def fail() -> str:
        raise ValueError("<script>alert('no')</script> & so on")

    box = make(fail, lambda: "two")
    buttons(box)[0].click()
    told = "ValueError: &lt;script&gt;alert(&#x27;no&#x27;)&lt;/script&gt; &amp; so on"
    assert shown(box) == f"<p><b>This went wrong:</b> {told}</p>"
    assert [button.disabled for button in buttons(box)] == [False, False]
    buttons(box)[1].click()
    assert shown(box) == "two"


def test_an_interrupt_ends_the_action_and_not_the_panel():
    def interrupted() -> str:
        raise KeyboardInterrupt

    box = make(interrupted)
    buttons(box)[0].click()
    assert shown(box) == "<p>Interrupted.</p>"
    assert [button.disabled for button in buttons(box)] == [False]


def test_building_a_panel_again_closes_the_one_before_and_nothing_else():
    other, mine = widgets.Button(), make(lambda: "", name="another")
    first = make(lambda: "one")
    before = set(_instances)
    second = make(lambda: "two")
    assert first.comm is None
    assert all(button.comm is None for button in buttons(first))
    assert all(one.comm is not None for one in (other, other.style, mine, *buttons(mine), second, *buttons(second)))
    assert len(_instances) == len(before)  # layouts and styles too: rerunning a cell does not pile widgets up
    buttons(second)[0].click()
    assert shown(second) == "two"


def test_where_widgets_cannot_be_shown_a_panel_is_a_sentence_of_ours():
    bundle = make(lambda: "one", lambda: "two")._repr_mimebundle_()
    assert bundle["text/plain"] == "A panel with the buttons 'button 1', 'button 2'; run this cell to use it."
    assert set(bundle) == {"text/plain", "application/vnd.jupyter.widget-view+json"}


# --- a run as HTML ----------------------------------------------------------------------------------


def test_a_run_is_shown_with_its_verdict_its_ledger_its_picture_and_the_same_as_text(run: Run):
    shown = run_html(run)
    assert shown.startswith(
        "<p><b>blind_replay, killed after: send task-1/refund: duplicated</b>. "
        "The remote ledger shows: <code>task-1/refund</code> happened 2 &times;.</p>"
    )
    found = re.search(
        r'<img style="max-width: 100%" width="(\d+)" alt="([^"]+)" src="data:image/png;base64,(.*?)">', shown
    )
    assert found is not None
    assert html.unescape(found[2]) == timeline(run).alt
    png = base64.b64decode(found[3])
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20]) // 2 == int(found[1])  # sharp on a dense screen
    text = re.search(r"<details><summary>The same as text</summary><pre>(.*)</pre></details>$", shown, re.DOTALL)
    assert text is not None
    assert html.unescape(text[1]) == str(timeline(run))


def test_what_a_run_says_is_not_read_as_html(short: Run):
    shown = run_html(replace(short, title="<i>&", effects=(("task-1/<b>", 1),)))
    assert "<i>" not in shown
    assert "<b>task" not in shown
    assert "task-1/<b>" not in shown
    assert "<p><b>&lt;i&gt;&amp;: duplicated</b>" in shown
    assert "<code>task-1/&lt;b&gt;</code> happened 1" in shown


def test_a_run_without_effects_says_that_the_ledger_shows_nothing(short: Run):
    assert "The remote ledger shows: nothing.</p>" in run_html(replace(short, effects=()))


# --- the first crash --------------------------------------------------------------------------------


def test_the_buttons_of_the_first_crash_play_blind_replay_and_the_same_key(short: Run):
    played: list[Any] = []

    def play(policy: str, crash_at: str, steps: int) -> Run:
        played.append((policy, crash_at, steps))
        return short

    box = first_crash_panel(play)
    assert [button.description for button in buttons(box)] == [
        "crash and replay",
        "crash and resume with the same key",
    ]
    for button in buttons(box):
        button.click()
        assert shown(box) == run_html(short)
    assert played == [(policy, "send task-1/refund", 1) for policy in ("blind_replay", "same_key")]


def test_the_first_crash_really_happens():
    box = first_crash_panel()
    buttons(box)[1].click()
    assert "killed after: send task-1/refund: exactly once" in shown(box)
    assert "happened 1 &times;" in shown(box)
