"""Every exercise's check accepts right answers of several styles, and refuses each wrong one for its own reason."""

import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import cloudpickle
import pytest
from answers import MODULES, SAMPLES, Sample

from labkit.course import CheckResult, check
from labkit.course.lessons import EXERCISES

MAX_LINES, MAX_WIDTH = 90, 102
PATIENCE_SECONDS = 300.0
RIGHT = [sample for sample in SAMPLES if not sample.says]
WRONG = [sample for sample in SAMPLES if sample.says]


@pytest.fixture(scope="module")
def results() -> Iterator[dict[str, Future[CheckResult]]]:
    for module in MODULES:
        cloudpickle.register_pickle_by_value(module)  # as functions of a notebook's cells travel
    with ThreadPoolExecutor(2) as pool:
        yield {sample.name: pool.submit(check, sample.number, sample.function, PATIENCE_SECONDS) for sample in SAMPLES}


@pytest.mark.parametrize("sample", RIGHT, ids=lambda sample: sample.name)
def test_a_right_answer_passes(results: dict[str, Future[CheckResult]], sample: Sample):
    result = results[sample.name].result()
    assert str(result).startswith(f"exercise {sample.number}: passed.\nShown:")
    assert result.passed
    result.require()
    assert result.score(2) == 2.0


@pytest.mark.parametrize("sample", WRONG, ids=lambda sample: sample.name)
def test_a_wrong_answer_is_refused_for_its_own_reason(results: dict[str, Future[CheckResult]], sample: Sample):
    result = results[sample.name].result()
    lines = str(result).splitlines()
    assert lines[0] == f"exercise {sample.number}: not passed."
    assert [says for says in sample.says if says not in " ".join(lines)] == []
    assert len(lines) <= MAX_LINES
    assert max(map(len, lines)) <= MAX_WIDTH
    assert not result.passed
    assert result.attempted
    assert result.score(2) == 0.0
    with pytest.raises(AssertionError, match="not passed"):
        result.require()


@pytest.mark.parametrize("number", EXERCISES)
def test_every_exercise_has_right_and_wrong_answers_to_be_tried_with(number: str):
    kinds = Counter(bool(sample.says) for sample in SAMPLES if sample.number == number)
    assert kinds[False] >= 2
    assert kinds[True] >= 8


def test_every_module_of_answers_belongs_to_an_exercise():
    assert {module.__name__ for module in MODULES} == {
        f"answers.exercise_{number.replace('.', '_')}" for number in EXERCISES
    }
    assert {sample.number for sample in SAMPLES} == set(EXERCISES)
    assert all(module.__name__ in sys.modules for module in MODULES)
