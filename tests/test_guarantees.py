"""The table of guarantees: the explorer tries both sides of every claim, and the page says what it found."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from labkit.errors import InvalidInput
from labkit.explore import Exploration, SqlScenario, TaskScenario, explore
from labkit.explore.contrasts import CONTRASTS
from labkit.explore.guarantees import GUARANTEES, Shown, show
from labkit.show.exploration import show as exploration
from labkit.show.guarantees import guarantee_table, page

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guarantees.md"
WRITE = "python -m labkit.show.guarantees docs/guarantees.md"

BREAKS: dict[str, tuple[str, int]] = {
    "claim": ("one_owner", 1),
    "write lock": ("nobody_is_turned_away", 1),
    "token": ("finished_by_the_holder", 2),
    "lease": ("settled_in_the_end", 1),
    "clock": ("finished_by_the_holder", 1),
    "intent": ("no_second_effect", 1),
    "checkpoint": ("step_and_results_agree", 1),
    "checkpoint per operation": ("no_second_effect", 1),
    "operation record": ("no_second_effect", 1),
    "task state": ("no_second_effect", 1),
    "time-out": ("no_second_effect", 1),
    "same key": ("no_second_effect", 1),
    "key scope": ("the_work_is_done", 0),
    "key memory": ("no_second_effect", 1),
    "clock of the sender": ("no_second_effect", 2),
    "manual": ("no_second_effect", 1),
    "found": ("no_second_effect", 1),
    "fence": ("no_second_effect", 2),
    "query lag": ("no_second_effect", 1),
    "patience": ("no_second_effect", 1),
    "categories": ("settled_in_the_end", 0),
    "budget": ("settled_in_the_end", 0),
    "outbox": ("every_change_is_announced", 1),
    "inbox": ("one_mail_a_message", 1),
    "cancel": ("nothing_begins_after_a_cancel", 1),
    "undo order": ("what_is_left_is_a_beginning", 1),
    "undo key": ("record_and_ledger_agree", 1),
}
"""The law that breaks without the assumption, and by how many surprises at the least."""

MUST_HAPPEN = {
    "claim": {"switch"},
    "write lock": {"switch"},
    "token": {"switch"},
    "lease": {"crash", "take_over"},
    "clock": {"clock", "crash", "switch"},
    "intent": {"crash", "take_over", "late"},
    "operation record": {"crash", "take_over"},
    "task state": {"crash", "take_over"},
    "time-out": {"response_lost", "late"},
    "same key": {"crash", "response_lost", "late", "pause", "take_over"},
    "key scope": {"crash", "response_lost"},
    "key memory": {"crash", "late", "pause"},
    "clock of the sender": {"clock", "crash", "pause", "take_over"},
    "manual": {"crash", "response_lost", "late", "pause"},
    "found": {"late", "pause", "crash"},
    "fence": {"late", "late request arrives", "pause", "crash"},
    "query lag": {"crash", "response_lost", "pause"},
    "patience": {"late", "pause"},
    "outbox": {"crash"},
    "inbox": {"crash"},
    "cancel": {"switch"},
    "undo order": {"crash"},
    "undo key": {"cancel", "crash"},
}
"""The faults that the sound side of a claim must have met, for its result to say anything about it."""


@pytest.fixture(scope="module")
def shown() -> dict[str, Shown]:
    return {one.guarantee.name: one for one in show()}


def test_every_pair_of_scenarios_is_told_in_one_row_and_has_an_expectation() -> None:
    assert [one.name for one in GUARANTEES] == list(CONTRASTS) == list(BREAKS)
    for one in GUARANTEES:
        for text in (one.claim, one.assumption, one.dropped):
            assert text.isascii()
            assert text.strip() == text != ""


@pytest.mark.parametrize("name", BREAKS)
def test_with_its_assumption_a_claim_keeps_every_law_while_faults_really_happen(
    shown: dict[str, Shown], name: str
) -> None:
    kept = shown[name].kept
    assert kept.passed
    assert kept.broken == 0
    assert kept.schedules > 1
    assert kept.happened.keys() >= MUST_HAPPEN.get(name, {"crash"}), kept


@pytest.mark.parametrize("name", BREAKS)
def test_without_its_assumption_a_claim_falls_by_this_law_and_by_no_fewer_surprises(
    shown: dict[str, Shown], name: str
) -> None:
    dropped, (law, fewest) = shown[name].dropped, BREAKS[name]
    assert dropped.failure is not None
    assert (dropped.failure.law, len(dropped.failure.schedule)) == (law, fewest)
    assert dropped.broken == 1, "the first that breaks a law ends the search, and it runs the smaller ones first"
    assert shown[name].law == law.replace("_", " ")
    assert len(shown[name].schedule) == fewest


@pytest.mark.parametrize("name", ["token", "clock of the sender", "fence"])
def test_where_two_surprises_are_needed_no_single_one_does_it(name: str) -> None:
    assert explore(CONTRASTS[name].broken, surprises=1).passed


@pytest.mark.parametrize("name", BREAKS)
def test_the_two_sides_of_a_claim_differ_in_little(name: str) -> None:
    sound, broken = CONTRASTS[name].sound, CONTRASTS[name].broken
    assert broken.allowed <= sound.allowed, "the broken side needs no more to go wrong"
    assert list(broken.laws) == list(sound.laws), "both sides are held to the same laws"
    if isinstance(sound, SqlScenario):
        assert isinstance(broken, SqlScenario)
        assert sound.prepare is broken.prepare
        assert sound.program is not broken.program
        return
    assert isinstance(sound, TaskScenario)
    assert isinstance(broken, TaskScenario)
    fields = [field.name for field in dataclasses.fields(TaskScenario) if field.name not in ("laws", "allowed")]
    different = [name for name in fields if getattr(sound, name) != getattr(broken, name)]
    assert len(different) == 1, different


def test_the_fenced_policy_takes_not_found_for_final_only_under_a_larger_token(shown: dict[str, Shown]) -> None:
    """No person is asked in the runs with a take-over: the fence alone settles them."""
    fence = dataclasses.replace(CONTRASTS["fence"].sound, person=False, allowed=frozenset({"crash", "pause"}))
    found = explore(fence, surprises=1, go_on=True)
    assert set(found.verdicts) == {"exactly once"}
    assert found.happened["take_over"] > 3


def test_the_page_is_in_step_with_what_the_explorer_finds(shown: dict[str, Shown]) -> None:
    assert page(shown.values()) == PAGE.read_text(encoding="utf-8"), f"write it anew: {WRITE}"


def test_the_page_has_a_row_for_every_claim_and_says_how_to_read_it() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|", text, re.MULTILINE)
    assert rows == [one.name for one in GUARANTEES]
    assert all(line.count(" | ") == 4 for line in text.splitlines() if line.startswith("| **"))
    assert "surprise" in text.partition("| claim |")[0]


def test_every_result_can_be_printed_on_a_console_that_knows_ascii_only(shown: dict[str, Shown]) -> None:
    for one in shown.values():
        for result in (one.kept, one.dropped):
            assert str(result).isascii()
            assert str(exploration(result)).isascii(), one.guarantee.name
        assert one.dropped.capsule is not None
        assert str(one.dropped.capsule).isascii()
        assert str(one.dropped.replay()).isascii()
    assert str(guarantee_table(shown.values())).isascii()
    assert page(shown.values()).isascii()


def test_a_bar_in_a_cell_does_not_end_it(shown: dict[str, Shown]) -> None:
    claim = dataclasses.replace(shown["lease"].guarantee, claim="one | two")
    (row,) = page([dataclasses.replace(shown["lease"], guarantee=claim)]).splitlines()[-1:]
    assert "| one \\| two |" in row


def test_a_notebook_gets_the_claims_it_names_as_a_text_table(shown: dict[str, Shown]) -> None:
    text = str(guarantee_table([shown["lease"], shown["found"]]))
    assert max(map(len, text.splitlines())) <= 100
    for words in ("claim", "rests on", "with it", "without it", "settles", "task-1:", "schedules"):
        assert words in text


def test_a_claim_whose_broken_side_holds_after_all_is_shown_as_that(shown: dict[str, Shown]) -> None:
    odd: Exploration = shown["lease"].kept
    said = page([dataclasses.replace(shown["lease"], dropped=odd)]).splitlines()[-1]
    assert said.endswith(f"{shown['lease'].guarantee.dropped}: {odd.summary}. |")


def test_only_claims_that_exist_can_be_shown() -> None:
    with pytest.raises(InvalidInput, match="claim, write lock"):
        show(["exactly once, always"])
