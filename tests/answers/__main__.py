"""Try every sample answer and print what the checks say: `make answers`, or `python -m answers 2.1` in tests/."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from statistics import median

import cloudpickle

from answers import MODULES, SAMPLES, Sample
from labkit.course import check
from labkit.course.lessons import EXERCISES
from labkit.show.tables import TextTable

SECONDS = 300.0


def tried(sample: Sample) -> tuple[bool, int, float]:
    """Check one answer: whether the check says what it must, how many schedules it ran, how many seconds it took."""
    started = time.monotonic()
    result = check(sample.number, sample.function, SECONDS)
    seconds = time.monotonic() - started
    text = " ".join(str(result).splitlines())
    caught = not result.passed and all(words in text for words in sample.says)
    return caught if sample.says else result.passed, result.schedules, seconds


def main(numbers: Sequence[str]) -> int:
    """Print the table; the exit code tells whether every check said what it must."""
    for module in MODULES:
        cloudpickle.register_pickle_by_value(module)  # as functions of a notebook's cells travel
    rows, sound = [], True
    for number in numbers or list(EXERCISES):
        right = [tried(one) for one in SAMPLES if one.number == number and not one.says]
        wrong = [tried(one) for one in SAMPLES if one.number == number and one.says]
        sound &= all(ok for ok, _, _ in (*right, *wrong))
        seconds = [took for _, _, took in (*right, *wrong)]
        passed, caught = (f"{sum(ok for ok, _, _ in of)} of {len(of)}" for of in (right, wrong))
        most = max(schedules for _, schedules, _ in right)
        rows.append((number, passed, caught, f"{most:,}", f"{median(seconds):.1f}", f"{max(seconds):.1f}"))
    headers = ("exercise", "right ones pass", "wrong ones caught", "schedules", "median s", "longest s")
    print(TextTable(headers, tuple(rows)))
    return 0 if sound else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        os.environ["LABKIT_HOME"] = home
        raise SystemExit(main(sys.argv[1:]))
