"""A sample of `make conformance`: simulated runs and real ones come to the same, row by row."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

import conformance
import psutil
import pytest
from conformance import Case, cells_of, differences, drawn
from strays import strays, wait_until_stopped

from labkit.agent import plan
from labkit.errors import InvalidInput
from labkit.explore import Capsule, SqlScenario, replay
from labkit.explore.matrix import PAUSED, matrix, pause_axis
from labkit.explore.matrix import MatrixSetting as Cells
from labkit.explore.programs import LabWorker
from labkit.explore.sql_programs import claim_by_reading, claiming
from labkit.explore.world import TaskScenario
from labkit.policies import ASSUME_DONE
from labkit.real.children import CAN_STOP, ChildFailed
from labkit.real.setting import Setting
from labkit.real.stage import Stage
from labkit.runs import Verdict
from labkit.seams import Clock
from labkit.store import TaskStore
from labkit.wire import Remote
from labkit.worker import Worker

SETTINGS = (
    Cells("both", "by_capability", late_delivery=True),
    Cells("key", "same_key", late_delivery=True, key_forgotten=True),
    Cells("neither", "blind_replay"),
    Cells("query", "query_then_ask", late_delivery=True),
    Cells("neither", "replay_transcript"),
)
SAMPLE, DRAWN = 60, 25
SEND = "send task-1/refund"


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(held=conformance.HELD) as opened:
        yield opened


@pytest.mark.skipif(not CAN_STOP, reason="a sleeper that is not stopped would be another thing")
def test_sixty_runs_are_the_same_with_real_processes(stage: Stage, capsys: pytest.CaptureFixture[str]):
    cases = [case for setting in SETTINGS for case in cells_of(setting)][: SAMPLE - DRAWN]
    cases += islice(drawn(2), SAMPLE - len(cases))
    assert conformance.compare(cases, stage, "a sample"), capsys.readouterr().out
    assert f"a sample: compared {SAMPLE}, equal {SAMPLE}, " in capsys.readouterr().out


def test_a_difference_is_noticed_and_named(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    case = next(one for one in cells_of(SETTINGS[0]) if one.title == SEND)
    opened = type(stage).open
    monkeypatch.setattr(
        type(stage), "open", lambda self, setting, clock: opened(self, replace(setting, late_by_seconds=5.0), clock)
    )
    _, found = differences(case, stage)
    assert "remote-1.sqlite: effects" in found
    assert not conformance.compare([case], stage, "spoilt")


def test_an_effect_in_another_ledger_is_noticed_though_the_sums_agree(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    opened = type(stage).open

    def swapped(self: Stage, setting: Setting, clock: Clock) -> None:
        mail, tickets = setting.remotes["mail"], setting.remotes["tickets"]
        files = {"mail": (tickets[0], mail[1]), "tickets": (mail[0], tickets[1])}
        opened(self, replace(setting, remotes={**setting.remotes, **files}), clock)

    case = Case("three operations", TaskScenario(LabWorker("same_key"), tuple(plan())), ())
    assert differences(case, stage)[1] == []
    monkeypatch.setattr(type(stage), "open", swapped)
    seen, found = differences(case, stage)
    assert all(count == 1 for _, count in seen.run.effects)
    assert (seen.played.law, seen.run.verdict) == ("effect_at_its_own_remote", Verdict.LOST)
    assert {"remote-2.sqlite: effects", "remote-3.sqlite: effects"} <= set(found)


def test_nothing_compared_is_not_equal(stage: Stage):
    assert not conformance.compare([], stage, "nothing")


# --- a capsule --------------------------------------------------------------------------------------


def capsule() -> Capsule:
    (cell,) = [one for one in matrix(["neither"], ["blind_replay"], [False], [False]) if one.crash_point == SEND]
    return cell.capsule


def test_a_found_failure_is_played_again_with_real_processes():
    found = replay(capsule(), real=True)
    assert found.breaks
    assert str(found) == str(replay(capsule()))
    assert found.run is not None
    assert found.run.verdict is Verdict.DUPLICATED
    assert found.run == replay(capsule()).run


def test_code_of_ones_own_is_played_in_the_capsules_set_up():
    def mine(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> str:
        return Worker(store, remotes, ASSUME_DONE, talks=False).run(task_id)

    real, made_up = replay(capsule(), mine, real=True), replay(capsule(), mine)
    assert str(real) == str(made_up)
    assert real.run == made_up.run
    assert real.run != replay(capsule()).run


@pytest.mark.skipif(not CAN_STOP, reason="this system cannot stop a process")
def test_a_sleeper_of_the_explorer_is_a_process_that_is_stopped(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    (cell,) = [one for one in pause_axis(["key"], ["same_key"]) if one.pause == PAUSED]
    stopped: list[str] = []
    pause = Stage.pause

    def watched(self: Stage, name: str) -> None:
        pause(self, name)
        wait_until_stopped(psutil.Process(self._lives[name]._process.pid))
        stopped.append(name)

    monkeypatch.setattr(Stage, "pause", watched)
    assert conformance.compare([conformance.case_of(cell)], stage, "one pause")
    assert stopped == ["worker-1"]


@pytest.mark.parametrize("end", [KeyboardInterrupt, ChildFailed("worker-1", 1, "", "broke")])
def test_a_replay_that_is_interrupted_or_fails_leaves_no_process_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: BaseException
):
    def arrange(self: Stage, *call: object) -> None:
        raise end

    monkeypatch.setattr(Stage, "_arrange", arrange)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = strays(), threading.active_count()
    with pytest.raises((KeyboardInterrupt, ChildFailed)):
        replay(capsule(), real=True)
    assert (strays(), threading.active_count()) == before
    assert list(tmp_path.iterdir()) == []


def test_plain_sql_has_no_processes_to_be_played_with():
    scenario = claiming(claim_by_reading)
    assert isinstance(scenario, SqlScenario)
    with pytest.raises(InvalidInput, match="a scenario of tasks"):
        replay(capsule(), scenario, real=True)
