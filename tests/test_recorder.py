"""Moments outlive the worker that wrote them, in order and as they were."""

import json
from pathlib import Path

from labkit.desk import TASK_ID, Desk
from labkit.recorder import Recorder, read_moments, with_faults
from labkit.records import Task
from labkit.runs import Moment
from labkit.seams import Delivery, ManualClock, Point


def task_of(folder: Path, clock: ManualClock) -> Task:
    with Desk(folder, clock, synchronous="OFF") as desk:
        return desk.queue(steps=1)


def test_a_run_that_has_not_begun_has_no_moments(tmp_path: Path):
    assert read_moments(tmp_path / "moments.jsonl") == ()


def test_what_is_noted_is_read_as_it_was(tmp_path: Path):
    task, file = task_of(tmp_path, ManualClock(100.0)), tmp_path / "moments.jsonl"
    recorder = Recorder(file, "worker-1")
    effects = {"task-1/refund": 2, "task-1/extra": 1}
    recorder.note(Point("start", "worker-1", "nothing yet"), task, {}, 100.0)
    recorder.note(Point("send", "task-1/refund", "time-out — „nichts“"), task, effects, 103.5, Delivery.RESPONSE_LOST)
    assert read_moments(file) == (
        Moment(1, 0.0, "worker-1", "start worker-1", "nothing yet", "queued v1: refund pending", ()),
        Moment(
            2,
            3.5,
            "worker-1",
            "send task-1/refund",
            "time-out — „nichts“",
            "queued v1: refund pending",
            (("task-1/extra", 1), ("task-1/refund", 2)),
            "response lost",
        ),
    )


def test_the_next_worker_goes_on_counting_in_the_same_file(tmp_path: Path):
    task, file = task_of(tmp_path, ManualClock()), tmp_path / "moments.jsonl"
    for name in ("worker-1", "worker-1", "worker-2"):
        Recorder(file, name).note(Point("start", name), task, {}, 0.0)
    assert [(moment.number, moment.worker) for moment in read_moments(file)] == [
        (1, "worker-1"),
        (2, "worker-1"),
        (3, "worker-2"),
    ]


def test_a_moment_is_in_the_file_as_one_line_before_the_worker_goes_on(tmp_path: Path):
    task, file = task_of(tmp_path, ManualClock()), tmp_path / "moments.jsonl"
    recorder = Recorder(file, "worker-1")
    for count in (1, 2):
        recorder.note(Point("start", "worker-1", "two\nlines"), task, {}, 0.0)
        assert file.read_text(encoding="utf-8").count("\n") == count
        assert json.loads(file.read_text(encoding="utf-8").splitlines()[-1])["number"] == count


def test_without_times_no_moment_has_one(tmp_path: Path):
    clock = ManualClock()
    task = task_of(tmp_path, clock)
    Recorder(tmp_path / "moments.jsonl", "worker-1", timed=False).note(Point("start", "worker-1"), task, {}, 5.0)
    assert [moment.at for moment in read_moments(tmp_path / "moments.jsonl")] == [None]


def test_every_delivery_but_the_usual_one_is_a_fault_in_words(tmp_path: Path):
    task, file = task_of(tmp_path, ManualClock()), tmp_path / "moments.jsonl"
    for delivery in Delivery:
        Recorder(file, "worker-1").note(Point("send", "task-1/refund"), task, {}, 0.0, delivery)
    faults = dict(zip(Delivery, (moment.fault for moment in read_moments(file)), strict=True))
    assert faults == {
        Delivery.DELIVERED: "",
        Delivery.REFUSED: "refused",
        Delivery.REQUEST_LOST: "request lost",
        Delivery.RESPONSE_LOST: "response lost",
        Delivery.LATE: "late",
    }


def test_who_watches_from_outside_marks_the_moments_of_death_and_no_others():
    moments = tuple(Moment(number, None, "worker-1", f"start {TASK_ID}", "", "", (), "late") for number in (1, 2, 3))
    marked = with_faults(moments, {2}, "crash")
    assert [moment.fault for moment in marked] == ["late", "crash", "late"]
    assert [moment.fault for moment in moments] == ["late", "late", "late"]
    assert with_faults(moments, set(), "crash") == moments
