"""What may be kept of a value from outside: JSON, names, seconds and words of a list."""

import json
from typing import Any

import pytest

from labkit.errors import InvalidInput
from labkit.records import Outcome
from labkit.values import MAX_LEVELS, checked_name, checked_seconds, known, to_json


def test_json_is_written_with_sorted_keys_and_only_for_objects() -> None:
    assert to_json({"b": [1, None], "a": "ä"}) == '{"a": "ä", "b": [1, null]}'
    for value in ([1], "text", 1, None, True):
        with pytest.raises(InvalidInput, match="a JSON object"):
            to_json(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object, "\ud800", b"x", 1j], ids=ascii)
def test_what_json_cannot_say_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="a value that JSON can hold"):
        to_json({"value": value})


def test_deep_nesting_is_refused_and_no_crash() -> None:
    value: dict[str, Any] = {}
    for _ in range(100_000):
        value = {"in": value}
    with pytest.raises(InvalidInput, match="a value that JSON can hold"):
        to_json(value)


def test_a_hundred_levels_are_kept_and_one_more_is_refused_however_wide_the_value_is() -> None:
    wide = {"lists": [[]] * 1000, "text": "[{" * 1000}
    deep: object = 1
    for _ in range(MAX_LEVELS - 1):
        deep = [deep]
    assert json.loads(to_json({"deep": deep, **wide})) == {"deep": deep, **wide}
    with pytest.raises(InvalidInput, match="100 levels"):
        to_json({"deep": [deep]})


@pytest.mark.parametrize("value", ["a", "x" * 200, "ä💶", "a b", "'\"/\\", " "])
def test_printable_text_is_a_name(value: str) -> None:
    assert checked_name("name", value) == value


@pytest.mark.parametrize("value", ["", "x" * 201, "\x00", "a\tb", "\u202e", "\ud800", None, 1, b"a"], ids=ascii)
def test_anything_else_is_no_name(value: object) -> None:
    with pytest.raises(InvalidInput, match="name: 1 to 200 printable characters"):
        checked_name("name", value)


@pytest.mark.parametrize(("value", "seconds"), [(0, 0.0), (5, 5.0), (0.25, 0.25), (1.7e308, 1.7e308)])
def test_a_finite_number_is_a_span_of_seconds(value: float, seconds: float) -> None:
    found = checked_seconds("wait", value)
    assert found == seconds
    assert type(found) is float


@pytest.mark.parametrize(
    "value", [-1, float("nan"), float("inf"), True, "1", None, 10**400, -(10**400), 1j], ids=lambda one: repr(one)[:6]
)
def test_anything_else_is_no_span_of_seconds(value: object) -> None:
    with pytest.raises(InvalidInput, match="wait: a finite number of seconds, 0 or more"):
        checked_seconds("wait", value)


def test_a_span_that_may_be_endless_counts_as_the_longest_there_is() -> None:
    for value in (float("inf"), 10**400):
        assert checked_seconds("memory", value, most=float("inf")) == 1.7976931348623157e308


def test_a_member_is_found_by_its_word_and_an_unknown_word_is_told_all_that_exist() -> None:
    assert known(Outcome, "refused") is Outcome.REFUSED
    with pytest.raises(InvalidInput) as refused:
        known(Outcome, "lost")
    assert refused.value.expected == "one of applied, not_sent, refused, not_applied"
    assert refused.value.found == "lost"
