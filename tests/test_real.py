"""Drills: real worker processes, really killed; and that the simulated world comes to the same as the real one."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from strays import strays

from labkit.agent import REMOTES
from labkit.desk import TASK_ID, Desk
from labkit.errors import InvalidInput, SimulatedCrash
from labkit.exchange import Refusal
from labkit.explore.programs import LabWorker
from labkit.explore.world import TaskScenario
from labkit.policies import POLICIES
from labkit.real.drill import MOMENTS_FILE, DrillFailed, drill
from labkit.real.kills import kill_at_random
from labkit.real.service import REFUSALS
from labkit.real.setting import Fate
from labkit.real.stage import Stage
from labkit.recorder import Recorder, read_moments, with_faults
from labkit.records import Task
from labkit.retries import Category
from labkit.runs import Run, Verdict
from labkit.scratch import Scratch
from labkit.seams import Call, Delivery, ManualClock, crash_at, no_boundary, scripted
from labkit.states import State
from labkit.store import TaskStore
from labkit.wire import Remote
from labkit.worker import Worker

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
def stage() -> Iterator[Stage]:
    """Processes that start fast, for many drills."""
    with Stage() as opened:
        yield opened


@pytest.fixture(scope="module")
def real_runs(stage: Stage) -> dict[tuple[str, str], Run]:
    return {case: drill(*case, lease_seconds=LEASE, stage=stage) for case in REAL_CASES}


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


# --- a drill ----------------------------------------------------------------------------------------


def test_a_quiet_drill_crosses_every_point_once_and_ends_exactly_once(stage: Stage):
    run = drill("same_key", [], stage=stage)
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
    real_runs: dict[tuple[str, str], Run], policy: str, point: str
):
    assert_ended_as_it_must(real_runs[policy, point], policy, point)


@pytest.mark.parametrize(("policy", "point"), REAL_CASES)
def test_the_simulated_and_the_real_world_agree_in_every_moment_row_and_effect(
    real_runs: dict[tuple[str, str], Run], tmp_path: Path, policy: str, point: str
):
    real, made_up = real_runs[policy, point], simulated(tmp_path, policy, [point])
    assert real.verdict is made_up.verdict
    assert real.effects == made_up.effects
    assert timeless(real.task) == timeless(made_up.task)
    assert real == replace(made_up, task=real.task)


def test_where_the_remote_honours_keys_the_same_key_survives_a_kill_at_every_crossing(tmp_path: Path, stage: Stage):
    points = [moment.point for moment in drill("same_key", [], steps=1, stage=stage).moments]
    assert len(points) == 6
    for place, point in enumerate(points):
        folder = tmp_path / str(place)
        folder.mkdir()
        assert simulated(folder, "same_key", [point], steps=1).verdict is Verdict.EXACTLY_ONCE


def test_one_worker_after_the_other_can_be_killed_and_the_same_key_still_pays_once(stage: Stage):
    send = "send task-1/refund"
    run = drill("same_key", [send, send, "take_over task-1", send], steps=1, lease_seconds=LEASE, stage=stage)
    crashes = [(moment.worker, moment.point) for moment in run.moments if moment.fault == "crash"]
    assert crashes == [("worker-1", send), ("worker-2", send), ("worker-3", "take_over task-1"), ("worker-4", send)]
    assert run.moments[-1].worker == "worker-5"
    assert run.effects == (("task-1/refund", 1),)
    assert run.verdict is Verdict.EXACTLY_ONCE
    assert len(run.task.operations[0].attempts) == 4


def test_each_kill_costs_blind_replay_one_more_refund(stage: Stage):
    send = "send task-1/refund"
    run = drill("blind_replay", [send, send], steps=1, lease_seconds=LEASE, stage=stage)
    assert run.effects == (("task-1/refund", 3),)


def test_a_drill_tells_the_same_lines_every_time(stage: Stage):
    told: list[list[str]] = [[], []]
    for lines in told:
        drill("same_key", steps=1, tell=lines.append, lease_seconds=LEASE, stage=stage)
    assert told[0] == told[1]
    assert told[0] == [
        "worker-1 is killed after: send task-1/refund",
        "worker-2 carries the task as far as it goes: succeeded",
    ]


def test_a_drill_shows_no_times_for_they_would_differ_from_run_to_run(stage: Stage):
    assert {moment.at for moment in drill("same_key", [], steps=1, stage=stage).moments} == {None}


def test_a_drill_touches_neither_this_process_nor_its_threads_nor_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    before = os.getpid(), threading.active_count(), dict(os.environ), strays()
    drill("blind_replay", steps=1, lease_seconds=LEASE)
    assert (os.getpid(), threading.active_count(), dict(os.environ), strays()) == before
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.parametrize("crash_at", ["send task-1/refund", "nowhere"])
def test_a_service_that_stays_has_closed_its_ledgers_before_their_folder_is_removed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, crash_at: str
):
    service, seen = psutil.Process(stage._service._process.pid), list[list[str]]()

    class Watched(Scratch):
        def close(self) -> None:
            seen.append([one.path for one in service.open_files() if self.folder in Path(one.path).parents])
            super().close()

    monkeypatch.setattr("labkit.real.drill.Scratch", Watched)
    with nullcontext() if crash_at.startswith("send") else pytest.raises(DrillFailed):
        drill("same_key", crash_at, steps=1, lease_seconds=LEASE, stage=stage)
    kill_at_random("same_key", 1, steps=1, stage=stage)
    assert len(seen) > 1
    assert not any(seen)


def test_a_paused_worker_sends_after_another_has_taken_its_task_and_only_a_key_helps(stage: Stage):
    told: list[str] = []
    pause = "intend task-1/refund"
    options: dict[str, Any] = {"steps": 1, "pause_at": pause, "lease_seconds": LEASE, "stage": stage}
    run = drill("query_first", [], tell=told.append, **options)
    assert run.effects == (("task-1/refund", 2),)
    assert [(moment.worker, moment.point) for moment in run.moments if moment.fault == "pause"] == [("worker-1", pause)]
    assert (run.moments[-1].worker, run.moments[-1].point) == ("worker-1", "send task-1/refund")
    assert told == [
        "worker-1 falls asleep after: intend task-1/refund",
        "worker-2 carries the task as far as it goes: succeeded",
        "worker-1 wakes, and is turned away: StaleToken",
    ]
    assert run.title == "query_first, paused after: intend task-1/refund"
    assert drill("same_key", [], **options).effects == (("task-1/refund", 1),)


@pytest.mark.parametrize("delivery", [one for one in Delivery if one is not Delivery.DELIVERED])
def test_a_drill_plays_every_fault_of_the_wire_on_a_real_socket_and_one_key_has_one_effect(
    stage: Stage, delivery: Delivery
):
    # the wait after a fault is real: a second, or none after an answer that came too late
    run = drill("same_key", [], steps=1, network=scripted(delivery), stage=stage, lease_seconds=30.0)
    assert [moment.fault for moment in run.moments if moment.fault] == [delivery.replace("_", " ")]
    assert run.effects == (("task-1/refund", 1),)
    assert run.verdict is Verdict.EXACTLY_ONCE


def test_a_drill_is_judged_once_late_requests_have_arrived(stage: Stage):
    told: list[str] = []
    run = drill("blind_replay", [], steps=1, network=scripted(Delivery.LATE), tell=told.append, stage=stage)
    assert run.effects == (("task-1/refund", 2),)
    assert run.verdict is Verdict.DUPLICATED
    assert [moment.ledger for moment in run.moments[-2:]] == [(("task-1/refund", 1),), (("task-1/refund", 2),)]
    assert told == [
        "worker-1 carries the task as far as it goes: succeeded",
        "what was late arrives: 1 request",
        "worker-2 looks at the task once more: succeeded",
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_after_a_late_delivery_a_drill_comes_to_what_the_simulation_comes_to(stage: Stage, policy: str):
    scenario = TaskScenario(LabWorker(policy), remotes=REMOTES, person=False, late_by_seconds=30.0)
    world = scenario.open()
    try:
        schedules = [one for one in world.play(()).children() if one[0].choice == Delivery.LATE]
        (made_up,) = [world.watch(one, "")[1] for one in schedules if one[0].point.endswith("send task-1/refund")]
    finally:
        world.close()
    run = drill(policy, [], steps=1, network=scripted(Delivery.LATE), stage=stage)
    assert (run.verdict, run.effects, run.task.state) == (made_up.verdict, made_up.effects, made_up.task.state)


def test_a_task_that_a_worker_leaves_lying_is_looked_at_once_more_and_by_nobody_for_ever(stage: Stage):
    def in_two_lives(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> str:
        task = store.get(task_id)
        if task.state == "queued":
            return f"{store.claim(task, 'mine').state}, and leaves"
        return store.fail(store.take_over(task, "mine"), Category.INVALID)

    def again_and_again(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> str:
        return store.claim(store.get(task_id), "mine").state

    told: list[str] = []
    assert drill(in_two_lives, [], tell=told.append, stage=stage).verdict is Verdict.STOPPED_CLEAN
    assert drill(again_and_again, [], tell=told.append, stage=stage).verdict is Verdict.STUCK
    assert told == [
        "worker-1 carries the task as far as it goes: running, and leaves",
        "worker-2 looks at the task once more: failed",
        "worker-1 carries the task as far as it goes: running",
        "worker-2 is turned away: WrongState",
    ]


@pytest.mark.parametrize("place", ["another remote", "another name"])
def test_effects_at_other_remotes_and_under_other_names_count_in_both_worlds(stage: Stage, place: str):
    def astray(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> str:
        if store.get(task_id).state == "queued":
            name = f"{task_id}/refund" if place == "another remote" else "bonus"
            remotes["tickets"].send(name, {"order": 1042}, "request-1")
        return Worker(store, remotes, POLICIES["by_capability"], "mine").run(task_id)

    world = TaskScenario(astray, remotes=REMOTES).open()
    try:
        _, made_up = world.watch((), "")
    finally:
        world.close()
    run, tally = drill(astray, [], steps=1, stage=stage), kill_at_random(astray, 3, steps=1, stage=stage)
    expected = Verdict.DUPLICATED if place == "another remote" else Verdict.LOST
    assert (run.verdict, run.effects) == (made_up.verdict, made_up.effects)
    assert run.verdict is expected
    assert set(tally.verdicts) <= {Verdict.LOST, Verdict.DUPLICATED}


@pytest.mark.parametrize("status", [429, 503])
def test_a_remote_that_is_busy_is_sent_to_again_once_it_has_said_and_applies_it_once(stage: Stage, status: int):
    sent: list[float] = []

    def network(call: Call) -> Fate:
        sent.append(time.monotonic())
        return Refusal("busy", "transient", status, 1.0) if len(sent) == 1 else Delivery.DELIVERED

    run = drill("same_key", [], steps=1, network=network, stage=stage)
    assert next(moment.believes for moment in run.moments if moment.point.startswith("send")) == "busy"
    assert sent[1] - sent[0] >= 1.0
    assert len(sent) == 2
    assert run.effects == (("task-1/refund", 1),)
    assert run.verdict is Verdict.EXACTLY_ONCE


def test_a_refused_query_settles_nothing_and_a_person_is_asked(stage: Stage):
    def network(call: Call) -> Fate:
        return REFUSALS[429] if call.action == "query" else Delivery.RESPONSE_LOST

    run = drill("query_then_ask", [], steps=1, network=network, stage=stage)
    assert run.verdict is Verdict.NEEDS_A_PERSON
    assert run.effects == (("task-1/refund", 1),)


def test_a_remote_that_forbids_a_call_is_not_asked_again_and_the_task_fails_clean(stage: Stage):
    calls: list[Call] = []

    def network(call: Call) -> Fate:
        calls.append(call)
        return REFUSALS[403]

    run = drill("same_key", [], steps=1, network=network, stage=stage)
    assert (len(calls), run.task.state, run.verdict) == (1, State.FAILED, Verdict.STOPPED_CLEAN)
    assert run.effects == ()


def test_a_function_of_this_session_is_drilled_like_a_policy_and_what_it_prints_goes_nowhere(
    stage: Stage, capfd: pytest.CaptureFixture[str]
):
    def twice(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> str:
        print("noise")
        for number in range(2):
            remotes["payments"].send(f"{task_id}/refund", {"order": 1042}, f"request-{number}")
        return store.fail(store.claim(store.get(task_id), "mine"), Category.INVALID)

    run = drill(twice, [], steps=1, stage=stage)
    assert run.effects == (("task-1/refund", 2),)
    assert run.title == "twice, not killed"
    assert capfd.readouterr() == ("", "")


# --- what goes wrong --------------------------------------------------------------------------------


def test_an_unknown_policy_is_refused_with_the_names_of_those_that_exist():
    with pytest.raises(InvalidInput, match=r"blind_replay.*same_key.*found 'hope'"):
        drill("hope")


class ByName:
    """What many a wrapper written in C is: it travels as its name alone."""

    __name__, __module__ = "mine", "__main__"

    def __call__(self, *_: object) -> None: ...

    def __reduce__(self) -> str:
        return self.__name__


def test_a_function_that_cannot_travel_is_refused_with_what_to_do(stage: Stage):
    with pytest.raises(InvalidInput, match=r"can travel .*mine is a function in a wrapper .*write it as a plain func"):
        drill(ByName(), stage=stage)
    lock = threading.Lock()
    with pytest.raises(InvalidInput, match=r"can travel .*<lambda>: TypeError: cannot pickle"):
        drill(lambda *_: lock, stage=stage)


CACHED = """\
import functools
from labkit.real.drill import drill
from labkit.worker import Worker
from labkit.policies import POLICIES

@functools.cache
def policy(name):
    return POLICIES[name]

def mine(task_id, store, remotes):
    return Worker(store, remotes, policy("same_key"), "mine").run(task_id)

print(drill(mine, steps=1, lease_seconds=0.01).verdict)
"""


def test_a_cached_function_of_a_script_is_drilled(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(CACHED)
    done = subprocess.run([sys.executable, script], capture_output=True, encoding="utf-8", timeout=120)
    assert (done.stdout, done.stderr) == ("exactly once\n", "")


@pytest.mark.parametrize("steps", [0, -1, 4])
def test_a_number_of_steps_that_the_plan_does_not_have_is_refused(steps: int):
    with pytest.raises(InvalidInput, match=f"steps: 1 to 3, found {steps}"):
        drill("same_key", steps=steps)


@pytest.mark.parametrize("point", ["send task-1/nothing", "", "-x"])
def test_a_worker_that_survives_its_crash_point_fails_the_drill(stage: Stage, point: str):
    before = strays()
    with pytest.raises(DrillFailed) as caught:
        drill("same_key", point, steps=1, stage=stage)
    failed = caught.value
    assert (failed.worker, failed.crash_at, failed.exit_code, failed.said) == ("worker-1", point, 0, "succeeded")
    asked = f"worker-1 was to be killed after {point!r}"
    assert str(failed) == f"{asked}, but never came past that point: it ended; it said: succeeded"
    assert strays() == before


def test_a_later_worker_that_survives_its_crash_point_is_named(stage: Stage):
    points = ["send task-1/refund", "checkpoint task-1/refund"]  # settled by key, the refund needs no checkpoint
    with pytest.raises(DrillFailed, match="worker-2 was to be killed after 'checkpoint task-1/refund'"):
        drill("same_key", points, steps=1, lease_seconds=LEASE, stage=stage)


def test_a_worker_that_does_not_end_in_time_is_ended_and_fails_the_drill():
    before = strays()
    with pytest.raises(DrillFailed, match="had to be ended; it said: nothing") as caught:
        drill("same_key", steps=1, life_seconds=0.01)
    assert caught.value.exit_code is None
    assert strays() == before


def test_a_worker_that_ends_with_an_error_fails_the_drill_in_its_own_words(stage: Stage):
    with pytest.raises(
        DrillFailed, match="worker-1 was to end by itself, but ended with exit code 1; it said: Invalid"
    ):
        drill("same_key", [], steps=1, lease_seconds=-1.0, stage=stage)
