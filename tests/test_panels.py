"""Panels without a browser: what their buttons do, show and leave behind."""

import base64
import html
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import ipywidgets as widgets
import pytest
from ipywidgets.widgets.widget import _instances

from labkit.errors import StaleVersion
from labkit.panels import claim, claim_panel, first_crash_panel, lease, lease_panel, states, states_panel
from labkit.panels.base import TEXT, Action, Panel, light_and_dark, moves_panel, panel, run_html, wrong
from labkit.real.drill import drill
from labkit.runs import Run
from labkit.show.diagram import Diagram, NoRenderer
from labkit.show.style import DARK, LIGHT
from labkit.show.timeline import timeline
from labkit.states import up_to_lesson


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
    return str(box.children[1].value).removeprefix(f'<div style="{TEXT}">').removesuffix("</div>")


def test_a_panel_invites_with_its_buttons_ready():
    box = make(lambda: "one", lambda: "two")
    assert shown(box) == "<p>Press one.</p>"
    assert [(button.description, button.tooltip, button.disabled) for button in buttons(box)] == [
        ("button 1", "tooltip 1", False),
        ("button 2", "tooltip 2", False),
    ]


def test_all_that_a_panel_says_has_one_size_of_letters_whichever_panel_it_is():
    box = make(lambda: "<p>one</p>")
    assert box.children[1].value == f'<div style="{TEXT}"><p>Press one.</p></div>'
    buttons(box)[0].click()
    assert box.children[1].value == f'<div style="{TEXT}"><p>one</p></div>'


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


# --- panels in which one press builds on those before ------------------------------------------------


def press(box: Panel, *labels: str) -> str:
    for label in labels:
        next(button for button in buttons(box) if button.description == label).click()
    return shown(box)


def moves(show: Callable[[Any], str] = lambda made: " ".join(made) or "nothing") -> Panel:
    return moves_panel("moves", {"left": "Goes left.", "right": "Goes right."}, show)


def test_presses_add_up_and_can_be_taken_back_one_by_one_or_all():
    box = moves()
    assert shown(box) == "nothing"
    assert press(box, "left", "right", "right") == "left right right"
    assert press(box, "step back") == "left right"
    assert press(box, "left") == "left right left"
    assert press(box, "start again") == "nothing"
    assert press(box, "step back") == "nothing"
    assert [button.tooltip for button in buttons(box)][:2] == ["Goes left.", "Goes right."]


def test_a_move_that_raises_is_shown_and_not_kept():
    def show(made: Any) -> str:
        if "right" in made:
            raise ValueError("no way")
        return " ".join(made)

    box = moves(show)
    assert "ValueError: no way" in press(box, "left", "right")
    assert press(box, "left") == "left left"


def test_a_light_and_a_dark_picture_are_told_apart_by_the_theme_of_the_page():
    html_text = light_and_dark("day", "night")
    style, rest = html_text.split("</style>")
    assert rest == '<div class="labkit-light">day</div><div class="labkit-dark">night</div>'
    rules = dict(re.findall(r"([^{}>]+?) \{display: (\w+)\}", style))
    assert rules == {
        '.labkit-dark, [data-jp-theme-light="false"] .labkit-light': "none",
        ' [data-jp-theme-light="false"] .labkit-dark': "block",
    }


def test_what_must_not_be_is_marked_by_a_sign_and_a_word_and_is_not_read_as_html():
    assert "✗ WRONG: 1 &lt; 2<" in wrong("1 < 2")


# --- the states -------------------------------------------------------------------------------------

APPROVAL = ("claim", "intend", "checkpoint", "ask")
WALKS = (
    (*APPROVAL, "answer: approved", "claim", "intend", "checkpoint", "succeed"),
    (*APPROVAL, "answer: declined"),
    (*APPROVAL, states.WAIT, "expire"),
    (*APPROVAL, "request_cancel", "cancel"),
    ("request_cancel", "cancel"),
    ("claim", "request_cancel", "cancel"),
    ("claim", "fail"),
)


def test_every_arrow_of_the_lesson_can_be_pressed_and_no_other():
    begun = [walk[:count] for walk in WALKS for count in range(1, len(walk) + 1)]
    taken = {states.press(moves).last for moves in begun} - {None}
    assert taken == set(up_to_lesson(states.LESSON))
    assert {name.partition(":")[0] for name in states.MOVES} - {states.WAIT} == {edge.event for edge in taken}


@pytest.mark.parametrize(
    ("moves", "why"),
    [
        (["succeed"], "succeed is refused: no arrow of that name leaves queued; expected running"),
        (["claim", "claim"], "claim is refused: no arrow of that name leaves running; expected queued"),
        (
            ["claim", "succeed"],
            'succeed is refused: the arrow asks for "every operation has a result"; '
            "found: task-1/refund without a result",
        ),
        (
            ["claim", "intend", "fail"],
            'fail is refused: the arrow asks for "nothing in doubt"; found: task-1/refund in doubt',
        ),
    ],
)
def test_a_refusal_says_what_was_expected_and_found_and_the_task_stays_as_it_was(moves: list[str], why: str):
    before, after = states.press(moves[:-1]), states.press(moves)
    assert after.words == (*before.words, why)
    assert after.task == before.task
    assert after.last is None


def test_a_lost_lease_is_told_by_its_version_and_not_by_a_condition():
    refused = StaleVersion("claim", "task-1", "version 1", "version 2 (queued)")
    assert states.in_words(refused) == "expected version 1, found version 2 (queued)"


def test_the_panel_of_the_states_shows_the_diagram_live_in_both_themes_and_what_the_database_says():
    text = press(states_panel(), "claim")
    assert text.startswith("<p><b>claim: queued -&gt; running, version 2</b></p>")
    pictures = re.findall(r'<svg style="max-width: 100%; height: auto" role="img" aria-label="(.*?)"', text)
    said = "State diagram of 6 states and 15 transitions. Now: running. Last event: claim, from queued to running."
    assert pictures == [said, said]
    light, dark = text.split('<div class="labkit-dark">')
    assert (LIGHT.paper.lower() in light, DARK.paper in light) == (True, False)
    assert DARK.paper in dark
    assert "task-1 (refund): running, version 2, step 0" in text
    assert "<li>claim: queued -&gt; running, version 2</li>" in text


def test_where_nothing_can_draw_the_panel_of_the_states_shows_the_diagram_as_text(monkeypatch: pytest.MonkeyPatch):
    def nothing_draws(diagram: Diagram) -> str:
        raise NoRenderer("none")

    monkeypatch.setattr(Diagram, "svg", nothing_draws)
    text = states.show(["claim"])
    assert "<svg" not in text
    assert " last&gt; claim          -&gt; running" in text


# --- the claim --------------------------------------------------------------------------------------


def test_in_some_order_both_hold_the_task_by_the_naive_claim_and_in_none_by_the_conditional_one():
    orders = list(product(claim.WORKERS, repeat=4))
    naive, conditional = (
        [claim.step(program, order).holders for order in orders] for _, program in claim.PROGRAMS.values()
    )
    assert [order for order, holders in zip(orders, naive, strict=True) if len(holders) > 1] == [
        (first, second, *last)
        for first, second in (claim.WORKERS, claim.WORKERS[::-1])
        for last in (claim.WORKERS, claim.WORKERS[::-1])
    ]
    assert {len(holders) for holders in conditional} == {1}


def test_the_panel_of_the_claim_steps_both_programs_in_the_same_order():
    one, two = claim.MOVES
    text = press(claim_panel(), one, two, one, two)
    naive, conditional = text.split("<b>take it as it was seen</b>")
    assert "WRONG: worker-1 and worker-2 both hold task-1" in naive
    assert 'running v3, <span style="white-space: nowrap">worker-2</span>' in naive
    assert "0 rows changed: somebody was faster" in conditional
    assert "<b>worker-1</b> holds task-1." in conditional
    assert "worker-1 has ended: it has no statement left to run." in press(claim.claim_panel(), one, one, one)
    assert "nothing is queued" in press(claim.claim_panel(), one, one, two)


def test_a_worker_that_has_ended_adds_no_more_lines_to_the_panel():
    one = "worker-1: next statement"
    assert press(claim_panel(), *[one] * 3).count("<tr>") == press(claim_panel(), *[one] * 9).count("<tr>") == 6


# --- the lease --------------------------------------------------------------------------------------

NAME, TOKEN = lease.CHECKS.values()
LATE = [lease.WAIT] * 3


def test_nobody_takes_over_before_the_lease_has_run_out_and_one_does_then():
    early = lease.play([*LATE[1:], "worker-2 takes over"], TOKEN)
    assert early.said[-1] == "0 rows changed: no lease has run out"
    late = lease.play([*LATE, "worker-2 takes over"], TOKEN)
    assert late.said[-1] == "1 row changed: token 2"
    assert late.leases == (("worker-1", 0.0, 30.0), ("worker-2", 30.0, 60.0))


def test_a_renewal_moves_the_end_of_a_live_lease_and_of_no_other():
    renewed = lease.play([lease.WAIT, "worker-1 renews", *LATE, "worker-2 takes over"], TOKEN)
    assert renewed.said[1] == "1 row changed"
    assert renewed.said[-1] == "1 row changed: token 2"
    assert renewed.leases[0] == ("worker-1", 0.0, 40.0)
    assert lease.play([*LATE, "worker-1 renews"], TOKEN).said[-1] == "0 rows changed: refused"


@pytest.mark.parametrize("what", ["renews", "finishes"])
def test_a_zombie_is_let_in_by_its_name_and_kept_out_by_its_token(what: str):
    moves = [*LATE, "worker-2 takes over", f"worker-1 {what}"]
    assert "WRONG: 1 row changed under token 1; the current one is 2" in lease.play(moves, NAME).said[-1]
    kept_out = lease.play(moves, TOKEN)
    assert kept_out.said[-1] == "0 rows changed: refused"
    assert kept_out.row == "running v3, last token 2, lease until 60 s"
    assert lease.play([*moves, "worker-2 finishes"], TOKEN).row == "succeeded v4, last token 2, no lease"


def test_a_lease_ends_where_its_holder_finishes():
    finished = lease.play([*LATE, "worker-2 takes over", lease.WAIT, "worker-2 finishes"], TOKEN)
    assert finished.leases == (("worker-1", 0.0, 30.0), ("worker-2", 30.0, 40.0))


def test_no_check_of_ours_keeps_the_ledger_of_the_remote_right():
    for check in (NAME, TOKEN):
        assert lease.play([*LATE, "worker-2 takes over", "worker-1 sends", "worker-2 sends"], check).sent == 2


def test_who_holds_nothing_can_do_nothing():
    assert lease.play(["worker-2 sends"], TOKEN).said == ("worker-2 holds nothing yet",)
    assert lease.play(["worker-2 finishes"], TOKEN).row == "running v2, last token 1, lease until 30 s"


def test_the_panel_of_the_lease_shows_bars_in_time_and_both_checks():
    box = lease_panel()
    text = press(box, *LATE, "worker-2 takes over", "worker-1 sends", "worker-1 finishes")
    alt = "Leases: worker-1 holds a lease from 0 to 30 s; worker-2 holds a lease from 30 to 60 s; now 30 s"
    assert f'aria-label="{alt}"' in text
    assert re.findall(r'<rect x="(\d+)" y="(\d+)" width="(\d+)"', text) == [("96", "4", "292"), ("388", "38", "292")]
    assert "<b>It is 30 s.</b>" in text
    assert text.count("WRONG") == 1
    assert text.count("refund once") == 2
    assert press(box, "worker-2 sends").count("WRONG: refund 2 times") == 2
