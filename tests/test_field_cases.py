"""Cases from the field: the explorer breaks what was reported, and passes what was mended."""

from __future__ import annotations

import re

import pytest

from labkit.explore import explore
from labkit.explore.exploration import Exploration
from labkit.explore.field_cases import FIELD_CASES, FieldCase

FEWEST = {
    "microsoft/agent-framework#3938": 1,
    "square/square-mcp-server#31": 1,
    "Medical-Software-Foundation/canvas#243": 0,
    "aegra/aegra#547": 2,
    "younong/hermescopy#278": 1,
    "SamSaffron/term-llm#732": 1,
    "FairladyZ625/harness-anything#1003": 1,
    "wormforce/sustech-cli#6": 1,
    "eclipse-dirigible/dirigible#6816": 1,
    "jentic/jentic-one#529": 1,
    "kent8192/reinhardt-web#738": 1,
    "ModelsLab/modelq#18": 0,
}
"""How many surprises break each case, at the least."""

SMALLEST = {
    "microsoft/agent-framework#3938": ["wire: send task-1/update_ticket: refused"],
    "square/square-mcp-server#31": ["wire: send task-1/refund: response_lost"],
    "younong/hermescopy#278": ["claim task-1: crash"],
    "SamSaffron/term-llm#732": ["send task-1/refund: crash"],
    "FairladyZ625/harness-anything#1003": ["wire: send task-1/refund: response_lost"],
    "wormforce/sustech-cli#6": ["wire: send task-1/refund: late"],
}
"""What goes wrong in the smallest schedule, where that is the point of the story."""


_tried: dict[tuple[int, int], Exploration] = {}


def mended(case: FieldCase) -> Exploration:
    """Several cases are mended by the same scenario: it is explored once."""
    same = (id(case.mended), case.surprises)
    if same not in _tried:
        _tried[same] = case.try_mended()
    return _tried[same]


def test_every_case_names_its_public_source() -> None:
    assert list(FIELD_CASES) == list(FEWEST)
    for source, case in FIELD_CASES.items():
        repository, number = re.fullmatch(r"([\w-]+/[\w-]+)#(\d+)", source).groups()  # type: ignore[union-attr]
        assert case.source == source
        assert re.fullmatch(f"https://github.com/{repository}/(issues|pull)/{number}", case.url)


def test_every_case_tells_its_story_in_a_few_plain_words() -> None:
    titles = [case.title for case in FIELD_CASES.values()]
    assert len(set(titles)) == len(titles)
    for case in FIELD_CASES.values():
        assert len(case.title) <= 45
        assert 8 <= len(case.what_went_wrong.split()) <= 60
        assert case.what_went_wrong.endswith(".")
        assert case.shows
        assert f"{case.title}{case.what_went_wrong}{case.shows}".isascii()


@pytest.mark.parametrize("source", FEWEST)
def test_what_was_reported_breaks_by_the_named_law_and_the_fewest_surprises(source: str) -> None:
    case = FIELD_CASES[source]
    found = case.break_it()
    assert found.failure is not None
    assert (found.failure.law, len(found.failure.schedule)) == (case.law, FEWEST[source])
    told = [f"{one.point}: {one.choice}" for one in found.failure.schedule]
    assert told == SMALLEST.get(source, told)
    if FEWEST[source]:
        assert explore(case.broken, surprises=FEWEST[source] - 1).broken == 0


@pytest.mark.parametrize("source", FEWEST)
def test_what_was_mended_keeps_every_law_while_the_same_things_go_wrong(source: str) -> None:
    case = FIELD_CASES[source]
    found = mended(case)
    assert found.passed, found
    assert case.surprises >= max(FEWEST[source], 1)
    assert case.mended.allowed >= case.broken.allowed
    really = {kind for kind in case.broken.allowed if found.happened.get(kind)}
    rare = {"switch"} if case.mended.workers == 1 else set()  # of one worker at a time there is nobody to switch to
    assert really >= case.broken.allowed - rare, found


def test_a_later_failure_repeats_the_first_call_in_the_case_of_one_checkpoint() -> None:
    case = FIELD_CASES["microsoft/agent-framework#3938"]
    again = case.break_it().replay()
    assert again is not None
    assert again.run is not None
    assert dict(again.run.effects)["task-1/refund"] == 2


def test_the_refused_key_of_the_coarse_case_is_one_that_another_operation_took() -> None:
    again = FIELD_CASES["Medical-Software-Foundation/canvas#243"].break_it().replay()
    assert again is not None
    assert again.run is not None
    assert dict(again.run.effects) == {"task-1/refund": 1}
    assert again.run.task.error_category == "invalid"
