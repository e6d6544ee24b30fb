"""The one table: it is well formed, the store takes every edge of it, and refuses everything that is not in it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from edges import BY_LEASE, CALLS, TAKEN, Held, key_of
from stage import ID, Stage, company, lease_of

from labkit.errors import UnknownTask, WrongState
from labkit.records import Lease, Status, Task
from labkit.seams import ManualClock
from labkit.states import (
    ENDED_STATES,
    FINAL_STATES,
    HELD_STATES,
    TRANSITIONS,
    UNVERSIONED_EVENTS,
    Condition,
    Direction,
    Event,
    State,
    Transition,
    edges_of,
    up_to_lesson,
)
from labkit.store import TaskStore

EDGES = [pytest.param(edge, id=f"{edge.event}-{edge.source}-{edge.target}") for edge in TRANSITIONS]
NO_EDGE = [
    pytest.param(state, event, id=f"{state}-{event}")
    for state in State
    for event in Event
    if all(edge.source is not state for edge in edges_of(event))
]


def right_hold(stage: Stage, event: Event) -> Held:
    """What a caller would show who knows the row: its version, and its token where the event needs one."""
    task = stage.task
    return lease_of(task) if event in BY_LEASE else task


def test_no_edge_is_listed_twice_and_every_event_and_state_occurs() -> None:
    assert len({key_of(edge) for edge in TRANSITIONS}) == len(TRANSITIONS)
    assert {edge.event for edge in TRANSITIONS} == set(Event)
    assert {state for edge in TRANSITIONS for state in (edge.source, edge.target)} == set(State)


def test_every_state_can_be_reached_from_the_queue() -> None:
    reached = {State.QUEUED}
    for _ in State:
        reached |= {edge.target for edge in TRANSITIONS if edge.source in reached}
    assert reached == set(State)


def test_no_edge_leads_out_of_a_final_state_and_only_compensating_out_of_the_other_ended_ones() -> None:
    assert {edge.source for edge in TRANSITIONS}.isdisjoint(FINAL_STATES)
    assert {edge.event for edge in TRANSITIONS if edge.source in ENDED_STATES} == {Event.COMPENSATE}


def test_every_edge_asks_for_the_version_or_leaves_it_as_it_is() -> None:
    for edge in TRANSITIONS:
        assert (Condition.VERSION in edge.requires) is (edge.event not in UNVERSIONED_EVENTS), edge


def test_every_edge_out_of_a_held_state_needs_the_token_save_taking_over_and_asking_for_a_cancel() -> None:
    tokenless = {
        edge.event for edge in TRANSITIONS if edge.source in HELD_STATES and Condition.TOKEN not in edge.requires
    }
    assert tokenless == {Event.TAKE_OVER, Event.REQUEST_CANCEL}


def test_every_condition_is_asked_for_somewhere_and_reads_as_one_line() -> None:
    assert {one for edge in TRANSITIONS for one in edge.requires} == set(Condition)
    assert all(edge.condition == "; ".join(edge.requires) for edge in TRANSITIONS)
    assert len({str(one) for one in Condition}) == len(Condition)


@pytest.mark.parametrize("lesson", range(12))
def test_lessons_add_edges_and_never_take_one_away(lesson: int) -> None:
    shown, before = up_to_lesson(lesson), up_to_lesson(lesson - 1)
    assert set(before) <= set(shown) <= set(TRANSITIONS)
    assert all(edge.lesson <= lesson for edge in shown)


def test_the_first_lesson_shows_three_states_and_the_next_the_six_of_a_plain_task() -> None:
    def shown(lesson: int) -> set[State]:
        return {state for edge in up_to_lesson(lesson) for state in (edge.source, edge.target)}

    assert shown(0) == {State.QUEUED, State.RUNNING, State.SUCCEEDED}
    assert shown(1) == set(State) - {State.UNCERTAIN, State.COMPENSATED}
    assert shown(9) == set(State)


EFFECTS: dict[str, Callable[[Task, Task], bool]] = {
    "new token": lambda before, after: after.lease_token == before.lease_token + 1,
    "keeps its token": lambda before, after: after.lease_token == before.lease_token,
    "version unchanged": lambda before, after: after.version == before.version,
    "one more attempt": lambda before, after: (
        after.attempts == before.attempts + 1
        and [len(one.attempts) for one in after.operations] == [len(before.operations[0].attempts) + 1, 0]
    ),
    "under its own key": lambda before, after: after.in_doubt is not None and before.in_doubt is not None,
    "result + step": lambda before, after: (
        after.step == before.step + 1 == sum(one.status is not Status.PENDING for one in after.current)
    ),
    "budgets anew": lambda before, after: (after.attempts, after.first_attempt_at) == (0, None),
    "sets next_run_at": lambda before, after: after.next_run_at != before.next_run_at,
    "sets awaiting_until": lambda before, after: before.awaiting_until is None and after.awaiting_until is not None,
    "direction undo": lambda before, after: (before.direction, after.direction) == (Direction.DO, Direction.UNDO),
}
"""What each phrase of an edge's `effect` means for the row before and after."""


@pytest.mark.parametrize("edge", EDGES)
def test_the_store_takes_every_edge_and_writes_what_the_table_says(edge: Transition, stage: Stage) -> None:
    held = TAKEN[key_of(edge)](stage)
    before, lines = stage.task, len(stage.store.history(ID))
    assert before.state is edge.source

    result = CALLS[edge.event](stage.store, held)

    after, history = stage.task, stage.store.history(ID)
    assert after.state is edge.target
    assert after.version == before.version + (edge.event not in UNVERSIONED_EVENTS)
    assert after.lease_token == before.lease_token + ("new token" in edge.effect)
    assert (after.lease_owner is not None) is (after.lease_expires_at is not None) is (edge.target in HELD_STATES)
    assert (
        (after.awaiting_for is not None)
        is (after.awaiting_until is not None)
        is (edge.target is State.AWAITING_CONFIRMATION)
    )
    assert len(history) == lines + 1
    line = history[-1]
    assert (line.task_id, line.at, line.event, line.source, line.target, line.version, line.token) == (
        ID,
        stage.clock.now(),
        edge.event,
        edge.source,
        edge.target,
        after.version,
        after.lease_token,
    )
    for phrase in filter(None, edge.effect.split(", ")):
        assert EFFECTS[phrase](before, after), phrase
    lease = result[0] if isinstance(result, tuple) else result
    if isinstance(lease, Lease):
        assert (lease.version, lease.token, lease.state) == (after.version, after.lease_token, after.state)
        assert lease.expires_at == after.lease_expires_at
        assert isinstance(lease.expires_at, float)
    else:
        assert result in (after.state, None)


@pytest.mark.parametrize("edge", EDGES)
def test_an_edge_is_the_same_in_company_and_touches_no_other_task(
    edge: Transition, stage: Stage, tmp_path: Path
) -> None:
    alone_clock = ManualClock(stage.clock.now())
    with TaskStore(tmp_path / "alone.sqlite", alone_clock, synchronous="OFF") as store:
        alone = Stage(store, alone_clock)
        CALLS[edge.event](store, TAKEN[key_of(edge)](alone))
        expected = alone.task

    company(stage.store)
    held = TAKEN[key_of(edge)](stage)
    before = [task for task in stage.store.tasks() if task.id != ID]
    CALLS[edge.event](stage.store, held)
    assert stage.task == expected
    assert [task for task in stage.store.tasks() if task.id != ID] == before


def test_every_edge_has_a_scene_and_every_scene_has_an_edge() -> None:
    assert set(TAKEN) == {key_of(edge) for edge in TRANSITIONS}


def test_every_pair_of_state_and_event_is_either_an_edge_or_tried_below() -> None:
    assert len(NO_EDGE) + len({(edge.source, edge.event) for edge in TRANSITIONS}) == len(State) * len(Event)


@pytest.mark.parametrize(("state", "event"), NO_EDGE)
def test_what_is_not_in_the_table_is_refused_and_leaves_every_row_as_it_was(
    state: State, event: Event, stage: Stage
) -> None:
    stage.in_state(state)
    held, before = right_hold(stage, event), stage.rows()
    with pytest.raises(WrongState) as refused:
        CALLS[event](stage.store, held)
    error = refused.value
    assert (error.event, error.task_id, error.found) == (event, ID, state)
    assert set(str(error.expected).split(" or ")) == {edge.source for edge in edges_of(event)}
    assert str(error) == f"{event} {ID} refused: expected {error.expected}, found {state}"
    assert stage.rows() == before


@pytest.mark.parametrize("event", Event)
def test_an_unknown_task_is_refused_by_every_event(event: Event, stage: Stage) -> None:
    stage.queued()
    held = right_hold(stage, event)
    stranger = replace(held, task_id="task-2") if isinstance(held, Lease) else replace(held, id="task-2")
    before = stage.rows()
    with pytest.raises(UnknownTask) as refused:
        CALLS[event](stage.store, stranger)
    assert (refused.value.event, refused.value.task_id) == (event, "task-2")
    assert (refused.value.expected, refused.value.found) == ("a task of that id", "none")
    assert stage.rows() == before
