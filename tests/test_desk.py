"""The desk: one task, its store and its remotes' ledgers in one folder."""

import os
from pathlib import Path

import pytest

from labkit.desk import TASK_ID, Desk
from labkit.errors import InvalidInput, NotALabFile, SimulatedCrash, StoreClosed, StoreNotFound
from labkit.policies import BLIND_REPLAY, POLICIES, REPLAY_TRANSCRIPT, SAME_KEY
from labkit.recorder import Recorder, read_moments
from labkit.remote import Capabilities
from labkit.runs import Verdict
from labkit.seams import Delivery, ManualClock, crash_at, scripted
from labkit.states import State


def play(desk: Desk, policy: str = "same_key", name: str = "worker-1") -> State:
    return desk.worker(POLICIES[policy], name).run(TASK_ID)


def test_a_desk_is_a_folder_with_one_file_for_the_tasks_and_one_for_each_remote(tmp_path: Path):
    with Desk(tmp_path, ManualClock()) as desk:
        desk.queue()
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "mail.sqlite",
        "payments.sqlite",
        "tasks.sqlite",
        "tickets.sqlite",
    ]


def test_the_task_is_the_same_when_it_is_queued_again(tmp_path: Path):
    with Desk(tmp_path, ManualClock()) as desk:
        assert desk.queue(order=1042) == desk.queue(order=1042)
        assert [one.name for one in desk.store.get(TASK_ID).operations] == ["refund", "update_ticket", "send_email"]
        assert desk.store.get(TASK_ID).operations[0].request["order"] == 1042


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_first_steps_of_the_task_can_be_queued_alone(tmp_path: Path, steps: int):
    with Desk(tmp_path, ManualClock()) as desk:
        assert len(desk.queue(steps=steps).operations) == steps
        assert play(desk) is State.SUCCEEDED
        assert sum(desk.effects().values()) == steps
        assert desk.verdict() is Verdict.EXACTLY_ONCE


@pytest.mark.parametrize("steps", [0, 4, -1])
def test_a_number_of_steps_that_is_not_in_the_plan_is_refused(tmp_path: Path, steps: int):
    with Desk(tmp_path, ManualClock()) as desk, pytest.raises(InvalidInput, match="steps: 1 to 3"):
        desk.queue(steps=steps)


def test_a_desk_that_is_opened_again_goes_on_where_the_last_one_left_off(tmp_path: Path):
    clock = ManualClock()
    with Desk(tmp_path, clock, crash_at("send task-1/refund")) as desk:
        desk.queue(steps=1)
        with pytest.raises(SimulatedCrash):
            play(desk)
        assert desk.effects() == {"task-1/refund": 1}
    clock.advance(60)
    with Desk(tmp_path, clock) as desk:
        assert play(desk, name="worker-2") is State.SUCCEEDED
        assert (desk.verdict(), desk.effects()) == (Verdict.EXACTLY_ONCE, {"task-1/refund": 1})


def test_a_doubled_effect_is_counted_and_called_duplicated(tmp_path: Path):
    clock = ManualClock()
    with Desk(tmp_path, clock, network=scripted(Delivery.RESPONSE_LOST)) as desk:
        desk.queue(steps=1)
        play(desk, "blind_replay")
        assert (desk.verdict(), desk.effects()) == (Verdict.DUPLICATED, {"task-1/refund": 2})


def test_effects_of_one_operation_at_two_remotes_add_up(tmp_path: Path):
    with Desk(tmp_path, ManualClock()) as desk:
        desk.queue(steps=1)
        play(desk)
        wires = desk.worker(SAME_KEY).remotes
        wires["mail"].send("task-1/refund", {"sent": "astray"}, "task-1/refund#9")
        assert (desk.effects(), desk.verdict()) == ({"task-1/refund": 2}, Verdict.DUPLICATED)


def test_the_work_of_another_task_is_no_effect_of_this_one(tmp_path: Path):
    with Desk(tmp_path, ManualClock()) as desk:
        desk.queue(steps=1)
        play(desk)
        desk.worker(SAME_KEY).remotes["payments"].send("task-2/refund", {"order": 1043}, "task-2/refund#1")
        assert (desk.effects(), desk.verdict()) == ({"task-1/refund": 1}, Verdict.EXACTLY_ONCE)


def test_only_a_policy_that_goes_by_the_transcript_writes_one(tmp_path: Path):
    with Desk(tmp_path, ManualClock()) as desk:
        assert desk.worker(REPLAY_TRANSCRIPT).talks
        assert not any(desk.worker(policy).talks for policy in POLICIES.values() if policy is not REPLAY_TRANSCRIPT)
        desk.queue(steps=1)
        assert len(desk.store.transcript(TASK_ID)) == 2
        play(desk, "replay_transcript")
        assert len(desk.store.transcript(TASK_ID)) == 4


def test_a_worker_can_die_before_it_has_done_anything(tmp_path: Path):
    with Desk(tmp_path, ManualClock(), crash_at("start worker-7")) as desk:
        desk.queue()
        with pytest.raises(SimulatedCrash):
            desk.start("worker-7")
        assert desk.store.get(TASK_ID).state is State.QUEUED


def test_the_recorder_sees_every_crossing_but_those_of_the_transcript(tmp_path: Path):
    clock = ManualClock()
    with Desk(tmp_path, clock) as desk:
        desk.queue(steps=1)
    recorder = Recorder(tmp_path / "moments.jsonl", "worker-1")
    with Desk(tmp_path, clock, recorder=recorder) as desk:
        play(desk, "replay_transcript")
    points = [moment.point for moment in read_moments(tmp_path / "moments.jsonl")]
    assert points == [
        "claim task-1",
        "intend task-1/refund",
        "send task-1/refund",
        "checkpoint task-1/refund",
        "succeed task-1",
    ]


def test_the_recorder_is_told_what_the_wire_did_with_the_call_just_made_and_no_other(tmp_path: Path):
    clock = ManualClock()
    with Desk(tmp_path, clock) as desk:
        desk.queue(steps=1)
    recorder = Recorder(tmp_path / "moments.jsonl", "worker-1")
    with Desk(tmp_path, clock, network=scripted(Delivery.RESPONSE_LOST), recorder=recorder) as desk:
        play(desk)
    faults = [(moment.point, moment.fault) for moment in read_moments(tmp_path / "moments.jsonl") if moment.fault]
    assert faults == [("send task-1/refund", "response lost")]


def test_the_remotes_can_be_chosen(tmp_path: Path):
    clock = ManualClock()
    network = scripted(Delivery.RESPONSE_LOST)
    with Desk(tmp_path, clock, network=network, remotes={"payments": Capabilities()}) as desk:
        desk.queue(steps=1)
        assert play(desk) is State.SUCCEEDED
        assert desk.verdict() is Verdict.DUPLICATED  # a key is of no use at a remote that knows none
        assert list(desk.services) == ["payments"]


def test_a_closed_desk_is_closed_in_all_its_files(tmp_path: Path):
    desk = Desk(tmp_path, ManualClock())
    desk.queue()
    desk.close()
    desk.close()
    for use in (lambda: desk.store.get(TASK_ID), desk.services["mail"].effects):
        with pytest.raises(StoreClosed):
            use()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux to see which files are open")
def test_a_desk_that_cannot_be_opened_leaves_no_file_open(tmp_path: Path):
    with Desk(tmp_path, ManualClock()) as desk:
        desk.queue()
    (tmp_path / "mail.sqlite").write_bytes((tmp_path / "tasks.sqlite").read_bytes())
    with pytest.raises(NotALabFile):
        Desk(tmp_path, ManualClock())
    still_open = [os.readlink(file) for file in Path("/proc/self/fd").iterdir() if file.exists()]
    assert [name for name in still_open if str(tmp_path) in name] == []


def test_a_folder_that_is_missing_is_not_made(tmp_path: Path):
    with pytest.raises(StoreNotFound):
        Desk(tmp_path / "missing", ManualClock())
    assert list(tmp_path.iterdir()) == []


def test_a_desk_tells_the_time_of_the_machine_unless_it_is_given_a_clock(tmp_path: Path):
    with Desk(tmp_path) as desk:
        assert desk.queue().created_at > 1_700_000_000


def test_a_policy_chooses_the_key_and_the_lease_is_as_long_as_asked(tmp_path: Path):
    clock = ManualClock()
    with Desk(tmp_path, clock) as desk:
        task = desk.queue(steps=1)
        lease = desk.worker(BLIND_REPLAY, "Ada", lease_seconds=7).acquire(task)
        assert lease is not None
        assert (lease.worker, lease.expires_at) == ("Ada", 7.0)
