"""Real worker processes, really killed; and that the simulated world comes to the same as the real one."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from strays import strays

from labkit.desk import TASK_ID, Desk
from labkit.errors import InvalidInput, SimulatedCrash
from labkit.policies import POLICIES
from labkit.real.drill import DrillFailed, drill
from labkit.real.worker import KILLED, MOMENTS_FILE, deadly
from labkit.recorder import Recorder, read_moments, with_faults
from labkit.records import Task
from labkit.runs import Run, Verdict
from labkit.seams import ManualClock, Point, crash_at, no_boundary
from labkit.states import State

LEASE = 0.01  # the first worker is dead before its lease runs out, or soon after: nobody else is there to notice
CROSSINGS = (
    "start worker-1",
    "claim task-1",
    "intend task-1/refund",
    "send task-1/refund",
    "checkpoint task-1/refund",
    "intend task-1/update_ticket",
    "send task-1/update_ticket",
    "checkpoint task-1/update_ticket",
    "intend task-1/send_email",
    "send task-1/send_email",
    "checkpoint task-1/send_email",
    "succeed task-1",
)
NOT_EXACTLY_ONCE = {
    ("blind_replay", "send task-1/refund"): Verdict.DUPLICATED,
    ("blind_replay", "send task-1/update_ticket"): Verdict.DUPLICATED,
    ("blind_replay", "send task-1/send_email"): Verdict.DUPLICATED,
    # tickets and mail honour no keys, so there the same key is as good as none
    ("same_key", "send task-1/update_ticket"): Verdict.DUPLICATED,
    ("same_key", "send task-1/send_email"): Verdict.DUPLICATED,
    # tickets can tell what they have, but not what is still under way; mail can tell nothing
    ("by_capability", "intend task-1/update_ticket"): Verdict.NEEDS_A_PERSON,
    ("by_capability", "intend task-1/send_email"): Verdict.NEEDS_A_PERSON,
    ("by_capability", "send task-1/send_email"): Verdict.NEEDS_A_PERSON,
}
TRIED = ("blind_replay", "same_key", "by_capability")
CASES = [(policy, point) for policy in TRIED for point in CROSSINGS]
REAL_CASES = sorted({*NOT_EXACTLY_ONCE, *((TRIED[place % 3], point) for place, point in enumerate(CROSSINGS))})
"""A sample, for processes take their time: every crossing, every policy, and all that do not end exactly once."""


@pytest.fixture(scope="module")
def real_runs() -> Iterator[dict[tuple[str, str], Future[Run]]]:
    """Drills, several at a time, each on a thread of its own."""
    with ThreadPoolExecutor(4) as pool:
        yield {case: pool.submit(drill, *case, lease_seconds=LEASE) for case in REAL_CASES}


def simulated(folder: Path, policy: str, crashes: Sequence[str], steps: int = 3) -> Run:
    """The drill again, with the same worker and files, but in this process: a manual clock, and crashes that raise."""
    clock, fatal = ManualClock(), set()
    with Desk(folder, clock, synchronous="OFF") as desk:
        desk.queue(steps=steps)
    for life, crash in enumerate([*crashes, None], start=1):
        name = f"worker-{life}"
        recorder = Recorder(folder / MOMENTS_FILE, name, timed=False)
        boundary = no_boundary if crash is None else crash_at(crash)
        with Desk(folder, clock, boundary, recorder=recorder, synchronous="OFF") as desk, suppress(SimulatedCrash):
            desk.start(name)
            desk.worker(POLICIES[policy], name).run(TASK_ID)
        if crash is not None:
            fatal.add(len(read_moments(folder / MOMENTS_FILE)))
        clock.advance(60)
    with Desk(folder, clock, synchronous="OFF") as desk:
        moments = with_faults(read_moments(folder / MOMENTS_FILE), fatal, "crash")
        title = f"{policy}, killed after: {', '.join(crashes)}"
        return Run(title, moments, desk.store.get(TASK_ID), tuple(desk.effects().items()), desk.verdict())


def timeless(task: Task) -> Task:
    """The task without its times: those of the real world are the machine's."""
    operations = tuple(
        replace(operation, attempts=tuple(replace(attempt, sent_at=0.0) for attempt in operation.attempts))
        for operation in task.operations
    )
    gone = {"lease_expires_at": None, "first_attempt_at": None, "awaiting_until": None}
    return replace(task, operations=operations, next_run_at=0.0, created_at=0.0, **gone)


def worker(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "labkit.real.worker", str(folder), "--policy", "same_key", *options]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=30)


# --- a drill ----------------------------------------------------------------------------------------


def test_a_quiet_drill_crosses_every_point_once_and_ends_exactly_once():
    run = drill("same_key", [])
    assert tuple(moment.point for moment in run.moments) == CROSSINGS
    assert run.verdict is Verdict.EXACTLY_ONCE
    assert [moment.fault for moment in run.moments] == [""] * len(CROSSINGS)
    assert run.title == "same_key, not killed"


def assert_ended_as_it_must(run: Run, policy: str, point: str) -> None:
    assert run.verdict is NOT_EXACTLY_ONCE.get((policy, point), Verdict.EXACTLY_ONCE)
    crashes = [moment for moment in run.moments if moment.fault == "crash"]
    assert [(moment.worker, moment.point) for moment in crashes] == [("worker-1", point)]
    doubled = {name for name, count in run.effects if count > 1}
    assert doubled == ({point.removeprefix("send ")} if run.verdict is Verdict.DUPLICATED else set())


@pytest.mark.parametrize(("policy", "point"), CASES)
def test_a_crash_at_any_crossing_ends_as_the_policy_and_the_remotes_allow(tmp_path: Path, policy: str, point: str):
    assert_ended_as_it_must(simulated(tmp_path, policy, [point]), policy, point)


@pytest.mark.parametrize(("policy", "point"), REAL_CASES)
def test_a_real_kill_ends_as_the_policy_and_the_remotes_allow(
    real_runs: dict[tuple[str, str], Future[Run]], policy: str, point: str
):
    assert_ended_as_it_must(real_runs[policy, point].result(), policy, point)


@pytest.mark.parametrize(("policy", "point"), REAL_CASES)
def test_the_simulated_and_the_real_world_agree_in_every_moment_row_and_effect(
    real_runs: dict[tuple[str, str], Future[Run]], tmp_path: Path, policy: str, point: str
):
    real, made_up = real_runs[policy, point].result(), simulated(tmp_path, policy, [point])
    assert real.verdict is made_up.verdict
    assert real.effects == made_up.effects
    assert timeless(real.task) == timeless(made_up.task)
    assert real == replace(made_up, task=real.task)


def test_where_the_remote_honours_keys_the_same_key_survives_a_kill_at_every_crossing(tmp_path: Path):
    points = [moment.point for moment in drill("same_key", [], steps=1).moments]
    assert len(points) == 6
    for place, point in enumerate(points):
        folder = tmp_path / str(place)
        folder.mkdir()
        assert simulated(folder, "same_key", [point], steps=1).verdict is Verdict.EXACTLY_ONCE


def test_one_worker_after_the_other_can_be_killed_and_the_same_key_still_pays_once():
    send = "send task-1/refund"
    run = drill("same_key", [send, send, "take_over task-1", send], steps=1, lease_seconds=LEASE)
    crashes = [(moment.worker, moment.point) for moment in run.moments if moment.fault == "crash"]
    assert crashes == [("worker-1", send), ("worker-2", send), ("worker-3", "take_over task-1"), ("worker-4", send)]
    assert run.moments[-1].worker == "worker-5"
    assert run.effects == (("task-1/refund", 1),)
    assert run.verdict is Verdict.EXACTLY_ONCE
    assert len(run.task.operations[0].attempts) == 4


def test_each_kill_costs_blind_replay_one_more_refund():
    send = "send task-1/refund"
    run = drill("blind_replay", [send, send], steps=1, lease_seconds=LEASE)
    assert run.effects == (("task-1/refund", 3),)


def test_a_drill_tells_the_same_lines_every_time():
    told: list[list[str]] = [[], []]
    for lines in told:
        drill("same_key", steps=1, tell=lines.append, lease_seconds=LEASE)
    assert told[0] == told[1]
    assert told[0] == [
        "worker-1 is killed after: send task-1/refund",
        "worker-2 carries the task as far as it goes: succeeded",
    ]


def test_a_drill_shows_no_times_for_they_would_differ_from_run_to_run():
    assert {moment.at for moment in drill("same_key", [], steps=1).moments} == {None}


def test_a_drill_touches_neither_this_process_nor_its_threads_nor_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    before = os.getpid(), threading.active_count(), dict(os.environ)
    drill("blind_replay", steps=1, lease_seconds=LEASE)
    assert (os.getpid(), threading.active_count(), dict(os.environ)) == before
    assert list(tmp_path.iterdir()) == []
    assert strays() == []


def test_a_drill_of_another_thread_works_in_a_strange_place_and_leaves_nothing_after_success_or_failure(
    tmp_path: Path,
):
    place = tmp_path / "Prüf stand — 試験"
    place.mkdir()
    script = tmp_path / "script.py"
    script.write_text(
        "import tempfile, threading\n"
        "from labkit.real.drill import DrillFailed, drill\n"
        "def play():\n"
        "    print(drill('same_key', steps=1).verdict)\n"
        "    for options in ({'crash_at': 'nowhere'}, {'life_seconds': 0.01}):\n"
        "        try:\n"
        "            drill('same_key', steps=1, **options)\n"
        "        except DrillFailed as failed:\n"
        "            print('failed', failed.exit_code)\n"
        "thread = threading.Thread(target=play)\n"
        "thread.start()\n"
        "thread.join()\n"
        "print(ascii(tempfile.gettempdir()))\n",
        encoding="utf-8",
    )
    environ = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(place))
    done = subprocess.run([sys.executable, script], env=environ, capture_output=True, encoding="utf-8", timeout=60)
    assert done.stdout.splitlines() == ["exactly once", "failed 0", "failed None", ascii(str(place))]
    assert done.stderr == ""
    assert list(place.iterdir()) == []


# --- what goes wrong --------------------------------------------------------------------------------


def test_an_unknown_policy_is_refused_with_the_names_of_those_that_exist():
    with pytest.raises(InvalidInput, match=r"blind_replay.*same_key.*found 'hope'"):
        drill("hope")


@pytest.mark.parametrize("steps", [0, -1, 4])
def test_a_number_of_steps_that_the_plan_does_not_have_is_refused(steps: int):
    with pytest.raises(InvalidInput, match=f"steps: 1 to 3, found {steps}"):
        drill("same_key", steps=steps)


@pytest.mark.parametrize("point", ["send task-1/nothing", "", "-x"])
def test_a_worker_that_survives_its_crash_point_fails_the_drill(point: str):
    with pytest.raises(DrillFailed) as caught:
        drill("same_key", point, steps=1)
    failed = caught.value
    assert (failed.worker, failed.crash_at, failed.exit_code, failed.said) == ("worker-1", point, 0, "succeeded")
    asked = f"worker-1 was to be killed after {point!r}"
    assert str(failed) == f"{asked}, but never came past that point: it ended; it said: succeeded"
    assert strays() == []


def test_a_later_worker_that_survives_its_crash_point_is_named():
    points = ["send task-1/refund", "checkpoint task-1/refund"]  # settled by key, the refund needs no checkpoint
    with pytest.raises(DrillFailed, match="worker-2 was to be killed after 'checkpoint task-1/refund'"):
        drill("same_key", points, steps=1, lease_seconds=LEASE)


def test_a_worker_that_does_not_end_in_time_is_ended_and_fails_the_drill():
    with pytest.raises(DrillFailed, match="had to be ended; it said: nothing") as caught:
        drill("same_key", steps=1, life_seconds=0.01)
    assert caught.value.exit_code is None
    assert strays() == []


def test_a_worker_that_ends_with_an_error_fails_the_drill_in_its_own_words():
    with pytest.raises(
        DrillFailed, match="worker-1 was to end by itself, but ended with exit code 1; it said: Invalid"
    ):
        drill("same_key", [], steps=1, lease_seconds=-1.0)


# --- a worker process -------------------------------------------------------------------------------


def test_a_worker_process_dies_by_a_kill_at_the_named_point_and_says_nothing(tmp_path: Path):
    with Desk(tmp_path) as desk:
        desk.queue(steps=1)
        done = worker(tmp_path, "--crash-at", "send task-1/refund")
        assert done.returncode == (9 if sys.platform == "win32" else -9)
        assert done.returncode in KILLED
        assert (done.stdout, done.stderr) == ("", "")
        task = desk.store.get(TASK_ID)
        assert (task.state, task.operations[0].standing) == (State.RUNNING, "in doubt")
        assert desk.effects() == {"task-1/refund": 1}
        assert read_moments(tmp_path / MOMENTS_FILE)[-1].point == "send task-1/refund"


def test_a_worker_process_prints_the_state_that_it_leaves_the_task_in(tmp_path: Path):
    with Desk(tmp_path) as desk:
        desk.queue()
    done = worker(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "succeeded\n", "")


def test_a_worker_process_refuses_a_folder_without_a_desk_and_leaves_it_as_it_was(tmp_path: Path):
    for folder in (tmp_path, tmp_path / "missing"):
        done = worker(folder)
        assert done.returncode == 2
        assert "expected the folder of a desk, found no tasks.sqlite in" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_worker_process_refuses_an_unknown_policy(tmp_path: Path):
    done = worker(tmp_path, "--policy", "hope")
    assert done.returncode == 2
    assert "invalid choice: 'hope'" in done.stderr


def test_a_worker_process_tells_an_error_of_the_lab_in_one_line(tmp_path: Path):
    with Desk(tmp_path):
        pass  # a desk without a task
    done = worker(tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("UnknownTask: ")
    (tmp_path / "tasks.sqlite").write_bytes(b"no database" * 100)
    done = worker(tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("StoreCorrupt: tasks.sqlite: ")
    assert done.stdout.count("\n") == 1


def test_a_deadly_boundary_lets_every_other_point_and_error_through():
    crossed: list[str] = []

    def boundary(point: Point) -> None:
        crossed.append(point.name)
        raise ValueError("not a crash")

    with pytest.raises(ValueError, match="not a crash"):
        deadly(boundary)(Point("send", "task-1/refund"))
    deadly(no_boundary)(Point("send", "task-1/refund"))
    assert crossed == ["send task-1/refund"]
