"""What many tests start from: a clock that stands still, a store in a folder of its own, and a stage to act on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from stage import Stage

from labkit.seams import ManualClock
from labkit.store import TaskStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000.0)


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[TaskStore]:
    with TaskStore(tmp_path / "tasks.sqlite", clock, synchronous="OFF") as opened:
        yield opened


@pytest.fixture
def stage(store: TaskStore, clock: ManualClock) -> Stage:
    return Stage(store, clock)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what each drill counted."""
    drills = [
        one for one in terminalreporter.stats.get("passed", []) if "/drills/" in one.nodeid or "drill" in one.keywords
    ]
    for line in [line for one in drills for line in one.capstdout.splitlines()]:
        terminalreporter.write_line(line)
