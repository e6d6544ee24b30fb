"""The person whom the worlds let answer: truthful, and patient enough."""

from pathlib import Path

import pytest
from stage import APPROVAL_PLAN, FIRST, Stage

from labkit.person import answer_truthfully
from labkit.seams import ManualClock
from labkit.states import State
from labkit.store import TaskStore


@pytest.fixture
def stage(tmp_path: Path):
    clock = ManualClock(1000.0)
    with TaskStore(tmp_path / "tasks.sqlite", clock) as store:
        yield Stage(store, clock)


def test_what_wants_approval_is_approved_at_once(stage: Stage):
    task = stage.awaiting_approval()
    answer_truthfully(stage.store, task, stage.clock, lambda one: pytest.fail("nothing is in doubt"))
    assert (stage.task.state, stage.task.operations[0].approved_by) == (State.QUEUED, "Ada")
    assert stage.clock.now() == 1000.0
    assert APPROVAL_PLAN[0].needs_approval


@pytest.mark.parametrize(("happened", "standing"), [(True, "done"), (False, "pending")])
def test_a_doubt_is_answered_by_the_ledger_once_nothing_can_be_under_way(stage: Stage, happened: bool, standing: str):
    task, looked = stage.awaiting_doubt(), list[float]()

    def look(operation: object) -> bool:
        looked.append(stage.clock.now())
        return happened

    stage.clock.reset(900.0)  # the worker that has sent it was ahead
    answer_truthfully(stage.store, task, stage.clock, look)
    assert looked == [1000.0 + stage.store.assumptions.longest_under_way_seconds]
    assert {one.id: one.standing for one in stage.task.operations}[FIRST] == standing
