"""Changes in one commit: what `begin`, `begin_next` and `advance` save, and what they must not give up."""

from dataclasses import replace
from pathlib import Path

import pytest
from plays import THREE
from plays import Stage as Play
from stage import APPROVAL_PLAN, FIRST, ID, PLAN, SECOND, Stage, company, lease_of

from labkit.errors import ConditionUnmet, InvalidInput, SimulatedCrash, StaleToken, StaleVersion, WrongState
from labkit.policies import ASK_PERSON, BY_CAPABILITY
from labkit.records import Announcement, Progress
from labkit.remote import Capabilities
from labkit.runs import Verdict
from labkit.seams import ManualClock, Point
from labkit.states import Direction, State
from labkit.store import TaskStore


def history(stage: Stage) -> list[str]:
    return [entry.event for entry in stage.store.history(ID)]


def begun(stage: Stage, worker: str = "worker-1") -> Progress:
    progress = stage.store.begin_next(worker)
    assert progress is not None
    return progress


def advanced(stage: Stage, progress: Progress, reference: str = "payments-1") -> Progress:
    assert progress.lease is not None
    assert progress.operation_id is not None
    return stage.store.advance(progress.lease, progress.operation_id, reference)


# What is shared


@pytest.mark.parametrize("by", ["begin", "begin_next"])
def test_a_claim_and_the_first_intent_are_on_record_with_one_commit(by: str, stage: Stage) -> None:
    task = stage.queued()
    progress = stage.store.begin(task, "worker-1", 20.0) if by == "begin" else begun(stage)
    assert history(stage) == ["enqueue", "claim", "intend"]
    assert (progress.state, progress.operation_id) == (State.RUNNING, FIRST)
    assert progress.attempt == stage.task.operations[0].attempts[0]
    assert progress.lease == lease_of(stage.task)
    assert stage.task.lease_expires_at == 1000.0 + (20.0 if by == "begin" else 30.0)
    assert stage.task.attempts == 1


def test_a_result_and_the_next_intent_and_the_last_result_and_the_end_are_on_record_with_one_commit_each(
    stage: Stage,
) -> None:
    company(stage.store)  # what follows is this task's own matter
    stage.queued()
    second = advanced(stage, begun(stage))
    assert (stage.task.step, second.operation_id, stage.task.operations[0].result_ref) == (1, SECOND, "payments-1")
    assert second.attempt == stage.task.operations[1].attempts[0]
    assert advanced(stage, second, "mail-1") == Progress(State.SUCCEEDED, None, None, None)
    assert history(stage) == ["enqueue", "claim", "intend", "checkpoint", "intend", "checkpoint", "succeed"]


def test_undoing_goes_the_same_way_to_its_own_end(stage: Stage) -> None:
    company(stage.store)
    stage.store.compensate(stage.failed(), "Ada")
    progress = begun(stage)
    assert progress.operation_id == f"{FIRST}/undo"
    assert advanced(stage, progress, "payments-2").state is State.COMPENSATED


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_task_of_n_operations_takes_n_plus_two_commits(steps: int, tmp_path: Path) -> None:
    with TaskStore(tmp_path / "tasks.sqlite", ManualClock(), synchronous="OFF") as store:
        spoken: list[str] = []
        store._db.connection().set_trace_callback(spoken.append)
        store.enqueue(ID, [replace(PLAN[0], name=f"step-{n}") for n in range(steps)])
        progress = store.begin_next("worker-1")
        while progress is not None and progress.lease is not None and progress.operation_id is not None:
            progress = store.advance(progress.lease, progress.operation_id, "done")
        writes = [place for place, sql in enumerate(spoken) if sql == "BEGIN IMMEDIATE"]
        assert len(writes) == steps + 2
        assert store.get(ID).state is State.SUCCEEDED


def test_a_worker_can_die_only_behind_the_commit_and_learns_of_both_changes_there(tmp_path: Path) -> None:
    crossed: list[Point] = []
    with TaskStore(tmp_path / "tasks.sqlite", ManualClock(), crossed.append, synchronous="OFF") as store:
        stage = Stage(store, ManualClock())
        stage.queued()
        advanced(stage, advanced(stage, begun(stage)), "mail-1")
    assert [(point.name, point.learned) for point in crossed[1:]] == [
        (f"intend {FIRST}", "running v2, token 1; about to send, attempt 1"),
        (f"intend {SECOND}", "result on record; about to send, attempt 1"),
        (f"succeed {ID}", "result on record; succeeded v7, token 1"),
    ]


# What is not given up


def test_an_intent_that_is_refused_leaves_the_change_before_it_on_record(stage: Stage) -> None:
    stage.queued(APPROVAL_PLAN)
    progress = begun(stage)
    assert (progress.operation_id, progress.attempt, stage.task.attempts) == (None, None, 0)
    assert history(stage) == ["enqueue", "claim"]
    assert progress.lease is not None
    with pytest.raises(ConditionUnmet, match="not approved"):
        stage.store.intend(progress.lease, FIRST)


def test_after_a_cancel_a_result_is_recorded_and_nothing_more_begun_or_ended(stage: Stage) -> None:
    stage.queued()
    first = begun(stage)
    stage.store.request_cancel(ID, "Ada")
    second = advanced(stage, first)
    assert (second.state, second.operation_id, stage.task.step) == (State.RUNNING, None, 1)
    assert second.lease is not None
    assert stage.store.cancel(second.lease) is State.CANCELLED


def test_a_cancel_before_the_last_result_leaves_the_end_to_the_holder(stage: Stage) -> None:
    stage.queued(PLAN[:1])
    first = begun(stage)
    stage.store.request_cancel(ID, "Ada")
    last = advanced(stage, first)
    assert (last.state, history(stage)[-1]) == (State.RUNNING, "checkpoint")


def test_what_is_in_doubt_comes_without_anything_to_send(stage: Stage) -> None:
    stage.sent()
    stage.clock.advance(31)
    progress = begun(stage, "worker-2")
    assert (progress.state, progress.operation_id) == (State.UNCERTAIN, None)
    assert history(stage) == ["enqueue", "claim", "intend", "take_over"]


@pytest.mark.parametrize(("way", "event"), [("first_done", "intend"), ("all_done", "succeed")])
def test_what_a_dead_worker_left_between_two_operations_goes_on_at_once(way: str, event: str, stage: Stage) -> None:
    getattr(stage, way)()
    stage.clock.advance(31)
    begun(stage, "worker-2")
    assert history(stage)[-2:] == ["take_over", event]


def test_with_nothing_to_do_there_is_no_progress(stage: Stage) -> None:
    assert stage.store.begin_next("worker-1") is None
    stage.running()
    assert stage.store.begin_next("worker-2") is None


def test_of_two_workers_that_read_the_same_version_one_begins(stage: Stage) -> None:
    task = stage.queued()
    stage.store.begin(task, "worker-1")
    before = stage.rows()
    with pytest.raises(StaleVersion):
        stage.store.begin(task, "worker-2")
    assert stage.rows() == before


def test_a_lease_that_was_lost_advances_nothing(stage: Stage) -> None:
    stage.queued()
    first = begun(stage)
    stage.clock.advance(31)
    stage.store.take_over(stage.task, "worker-2")
    before = stage.rows()
    with pytest.raises(StaleToken):
        advanced(stage, first)
    assert stage.rows() == before


@pytest.mark.parametrize("way", ["running", "first_done", "uncertain"])
def test_without_an_open_intent_nothing_is_recorded_and_nothing_follows(way: str, stage: Stage) -> None:
    lease = getattr(stage, way)()
    before = stage.rows()
    with pytest.raises((ConditionUnmet, WrongState)):
        stage.store.advance(lease, SECOND, "mail-1")
    assert stage.rows() == before


def test_an_announcement_goes_with_the_result_that_it_announces(stage: Stage) -> None:
    stage.queued()
    first = begun(stage)
    assert first.lease is not None
    before = stage.rows()
    with pytest.raises(InvalidInput):
        stage.store.advance(first.lease, FIRST, "payments-1", Announcement("", {}))
    assert stage.rows() == before
    stage.store.advance(first.lease, FIRST, "payments-1", Announcement("refunded", {"order": 1042}))
    assert [message.topic for message in stage.store.undelivered()] == ["refunded"]


# A worker that shares commits


def test_it_crosses_fewer_gaps_and_comes_to_the_same(tmp_path: Path) -> None:
    play = Play(tmp_path, Capabilities(idempotency_keys=True))
    try:
        apart, shared = (play.play(BY_CAPABILITY, THREE, worker={"shares_commits": one}) for one in (False, True))
    finally:
        play.close()
    assert (apart.verdict, shared.verdict) == (Verdict.EXACTLY_ONCE, Verdict.EXACTLY_ONCE)
    (crossed,) = shared.lives
    assert crossed == (*(f"{action} {one.name}" for one in THREE for action in ("intend", "send")), "succeed")


def test_a_remote_that_it_does_not_know_leaves_nothing_claimed_and_nothing_in_doubt(tmp_path: Path) -> None:
    play = Play(tmp_path, Capabilities())
    try:
        task = play.enqueue([THREE[0], replace(THREE[1], remote="fax")])
        with pytest.raises(KeyError):
            play.worker(ASK_PERSON, shares_commits=True).run(task.id)
        assert play.store.get(task.id) == task
        assert task.direction is Direction.DO
    finally:
        play.close()


def test_a_crash_behind_a_shared_commit_leaves_what_it_intended_in_doubt(tmp_path: Path) -> None:
    play = Play(tmp_path, Capabilities())
    try:
        task = play.enqueue(THREE)

        def die(point: Point) -> None:
            if point.name == f"intend {task.id}/update_ticket":
                raise SimulatedCrash("here")

        play.boundary = die
        with pytest.raises(SimulatedCrash):
            play.worker(ASK_PERSON, shares_commits=True).run(task.id)
        left = play.store.get(task.id)
        assert left.operations[0].result_ref == "payments-1"
        assert left.in_doubt is not None
        assert left.in_doubt.name == "update_ticket"
    finally:
        play.close()
