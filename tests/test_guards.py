"""Every condition of every edge: unmet alone it refuses the change, truthfully, and nothing else would have."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from edges import (
    APPLIED,
    BY_LEASE,
    CALLS,
    DECLINE,
    NOT_APPLIED,
    TAKEN,
    Call,
    Held,
    Key,
    cancel_requested,
    key_of,
    later,
)
from stage import APPROVAL_PLAN, FIRST, FOREVER, ID, PLAN, SECOND, Stage, company, lease_of

from labkit.errors import ConditionUnmet, InvalidInput, StaleToken, StaleVersion
from labkit.guards import GUARDS, update_sql
from labkit.records import Lease, Outcome
from labkit.retries import Budget, Category
from labkit.seams import ManualClock
from labkit.states import TRANSITIONS, Condition, Event, State, Transition
from labkit.store import TaskStore

C, E, S = Condition, Event, State
WAITING = State.AWAITING_CONFIRMATION


class LetThrough(BaseException):
    """The change was made though a condition is unmet: its guard is missing."""


class Disarmed(TaskStore):
    """A store that can lose one guard of one edge, and can be handed parameters that its methods never pass on."""

    missing: tuple[Transition, Condition] | None = None
    smuggled: dict[str, Any] | None = None

    def _update(self, db: Any, event: Event, params: dict[str, Any], sets: str) -> Any:
        params |= self.smuggled or {}
        if self.missing is not None:
            edge, condition = self.missing
            weaker = replace(edge, requires=tuple(one for one in edge.requires if one is not condition))
            if db.execute(update_sql(weaker, sets), params).fetchall():
                raise LetThrough
        return super()._update(db, event, params, sets)


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[Disarmed]:
    with Disarmed(tmp_path / "tasks.sqlite", clock, synchronous="OFF") as opened:
        company(opened)
        yield opened


class Violation(NamedTuple):
    """A scene in which exactly one condition of an edge is unmet, and the call that would take the edge.

    `found` is what the refusal reports; `instead` is the state to which another edge of the same event leads;
    `implied_by` says why no public call can bring the scene about, where the scene had to write rows by hand.
    """

    scene: Callable[[Stage], Held]
    call: Call
    found: str = ""
    instead: State | None = None
    implied_by: str = ""


def fire(method: str, *arguments: object, **more: object) -> Call:
    return lambda store, held: getattr(store, method)(held, *arguments, **more)


def behind(stage: Stage, held: Held, statement: str, *values: object) -> Any:
    """Write a row behind the store's back, then show the hold as it is."""
    stage.sql(statement, *values)
    return held


def sent_by_hand(stage: Stage, held: Held) -> Any:
    return behind(stage, held, "INSERT INTO attempts VALUES (?, 9, 'by hand', 1, 1000.0, NULL)", SECOND)


def lost_after_cancel(stage: Stage) -> Any:
    return cancel_requested(stage, stage.uncertain())


def waiting_after_cancel(stage: Stage) -> Any:
    return cancel_requested(stage, stage.awaiting_doubt())


def unchanged(stage: Stage, held: Held) -> Any:
    return held


def smuggling(stage: Stage, held: Held, **params: Any) -> Any:
    assert isinstance(stage.store, Disarmed)
    stage.store.smuggled = params
    return held


def undo_in_doubt(stage: Stage) -> Lease:
    lease, _ = stage.store.intend(stage.undoing(), f"{FIRST}/undo")
    return stage.store.lose_track(lease, f"{FIRST}/undo")


def other_in_doubt(stage: Stage) -> Lease:
    """Another task whose operation is in doubt: it is not ours to send."""
    lease = stage.store.claim(stage.store.enqueue("task-2", PLAN), "worker-2")
    return stage.store.lose_track(stage.store.intend(lease, OTHER)[0], OTHER)


OTHER = "task-2/refund"
INTEND_NOW = fire("intend", FIRST, last_outcome=Outcome.NOT_SENT)
RESEND = fire("intend", FIRST, key_memory_seconds=FOREVER)
RETRY = fire("retry_later", FIRST, Outcome.NOT_SENT, Category.TRANSIENT, 1007.0)
IN_DOUBT, HAND_IN_DOUBT = f"{FIRST} in doubt", f"{SECOND} in doubt"
CANCEL_FOUND, NO_CANCEL_FOUND = "cancel_requested 1, direction do", "cancel_requested 0, direction do"
ONE_ATTEMPT = Budget(1, 3600.0)
WITHOUT_DOUBT = "only a task with nothing in doubt comes into this state, and here nothing is sent"

VIOLATIONS: dict[tuple[Key, Condition], Violation] = {
    ((E.CLAIM, S.QUEUED, S.RUNNING), C.DUE): Violation(
        lambda s: s.queued(next_run_at=1000.5), CALLS[E.CLAIM], "next_run_at 1000.5, now 1000.0"
    ),
    ((E.CLAIM, S.QUEUED, S.RUNNING), C.NO_CANCEL): Violation(
        lambda s: cancel_requested(s, s.queued()), CALLS[E.CLAIM], CANCEL_FOUND
    ),
    ((E.TAKE_OVER, S.RUNNING, S.RUNNING), C.LEASE_EXPIRED): Violation(
        lambda s: later(s, s.running(), 29.5), CALLS[E.TAKE_OVER], "held by worker-1 until 1030.0"
    ),
    ((E.TAKE_OVER, S.RUNNING, S.RUNNING), C.NOTHING_IN_DOUBT): Violation(
        lambda s: later(s, s.sent(), 30), CALLS[E.TAKE_OVER], instead=S.UNCERTAIN
    ),
    ((E.TAKE_OVER, S.RUNNING, S.UNCERTAIN), C.LEASE_EXPIRED): Violation(
        lambda s: later(s, s.sent(), 29.5), CALLS[E.TAKE_OVER], "held by worker-1 until 1030.0"
    ),
    ((E.TAKE_OVER, S.RUNNING, S.UNCERTAIN), C.SOMETHING_IN_DOUBT): Violation(
        lambda s: later(s, s.running(), 30), CALLS[E.TAKE_OVER], instead=S.RUNNING
    ),
    ((E.TAKE_OVER, S.UNCERTAIN, S.UNCERTAIN), C.LEASE_EXPIRED): Violation(
        lambda s: later(s, s.uncertain(), 29.5), CALLS[E.TAKE_OVER], "held by worker-1 until 1030.0"
    ),
    **{
        ((E.RENEW, state, state), C.LEASE_LIVE): Violation(
            lambda s, state=state: later(s, s.in_state(state), 30) and lease_of(s.task),
            CALLS[E.RENEW],
            "it expired at 1030.0",
        )
        for state in (S.RUNNING, S.UNCERTAIN)
    },
    ((E.INTEND, S.RUNNING, S.RUNNING), C.NEXT_OPERATION): Violation(
        lambda s: s.running(), fire("intend", SECOND), f"next is {FIRST}"
    ),
    ((E.INTEND, S.RUNNING, S.RUNNING), C.NOTHING_IN_DOUBT): Violation(
        lambda s: s.sent(), fire("intend", FIRST), IN_DOUBT
    ),
    ((E.INTEND, S.RUNNING, S.RUNNING), C.NO_CANCEL): Violation(
        lambda s: cancel_requested(s, s.running()), CALLS[E.INTEND], CANCEL_FOUND
    ),
    ((E.INTEND, S.RUNNING, S.RUNNING), C.APPROVED): Violation(
        lambda s: s.running(APPROVAL_PLAN), CALLS[E.INTEND], f"{FIRST} not approved"
    ),
    ((E.INTEND, S.RUNNING, S.RUNNING), C.ATTEMPTS_LEFT): Violation(
        lambda s: s.sent(budget=ONE_ATTEMPT), INTEND_NOW, "1 of 1 attempts, 0.0 of 3600.0 seconds"
    ),
    ((E.INTEND, S.RUNNING, S.RUNNING), C.TIME_LEFT): Violation(
        lambda s: later(s, s.refused_once(max_seconds=10), 10) and lease_of(s.task),
        CALLS[E.INTEND],
        "1 of 5 attempts, 10.0 of 10.0 seconds",
    ),
    ((E.INTEND, S.UNCERTAIN, S.UNCERTAIN), C.THIS_IN_DOUBT): Violation(
        lambda s: other_in_doubt(s) and s.uncertain(),
        fire("intend", OTHER, key_memory_seconds=FOREVER),
        IN_DOUBT,
    ),
    ((E.INTEND, S.UNCERTAIN, S.UNCERTAIN), C.KEY_OUTLIVES): Violation(
        lambda s: later(s, s.uncertain(), 7) and lease_of(s.task),
        fire("intend", FIRST, key_memory_seconds=7 + 60 + 60),
        "age 7.0, key memory 127.0",
    ),
    ((E.INTEND, S.UNCERTAIN, S.UNCERTAIN), C.ATTEMPTS_LEFT): Violation(
        lambda s: s.uncertain(budget=ONE_ATTEMPT), RESEND, "1 of 1 attempts, 0.0 of 3600.0 seconds"
    ),
    ((E.INTEND, S.UNCERTAIN, S.UNCERTAIN), C.TIME_LEFT): Violation(
        lambda s: later(s, s.uncertain(budget=Budget(5, 10)), 10) and lease_of(s.task),
        RESEND,
        "1 of 5 attempts, 10.0 of 10.0 seconds",
    ),
    ((E.CHECKPOINT, S.RUNNING, S.RUNNING), C.INTENT_ON_RECORD): Violation(
        lambda s: s.running(), CALLS[E.CHECKPOINT], f"no open intent for {FIRST}"
    ),
    ((E.CHECKPOINT, S.RUNNING, S.RUNNING), C.RESULT_AT_HAND): Violation(
        lambda s: s.sent(), fire("checkpoint", FIRST, ""), "no reference"
    ),
    ((E.RETRY_LATER, S.RUNNING, S.QUEUED), C.NOTHING_IN_DOUBT): Violation(
        lambda s: s.sent(), fire("retry_later", SECOND, Outcome.NOT_SENT, Category.TRANSIENT, 1007.0), IN_DOUBT
    ),
    ((E.RETRY_LATER, S.RUNNING, S.QUEUED), C.TRANSIENT): Violation(
        lambda s: s.sent(), fire("retry_later", FIRST, Outcome.REFUSED, Category.INVALID, 1007.0), "invalid"
    ),
    ((E.RETRY_LATER, S.RUNNING, S.QUEUED), C.ATTEMPTS_LEFT): Violation(
        lambda s: s.sent(budget=ONE_ATTEMPT), RETRY, "1 of 1 attempts, 7.0 of 3600.0 seconds"
    ),
    ((E.RETRY_LATER, S.RUNNING, S.QUEUED), C.TIME_LEFT): Violation(
        lambda s: s.sent(budget=Budget(5, 7)), RETRY, "1 of 5 attempts, 7.0 of 7.0 seconds"
    ),
    ((E.LOSE_TRACK, S.RUNNING, S.UNCERTAIN), C.THIS_IN_DOUBT): Violation(
        lambda s: s.running(), CALLS[E.LOSE_TRACK], "nothing in doubt"
    ),
    **{
        ((E.SETTLE, S.UNCERTAIN, target), condition): violation
        for target, scene in ((S.QUEUED, lambda s: s.uncertain()), (S.CANCELLED, lost_after_cancel))
        for condition, violation in (
            (C.THIS_IN_DOUBT, Violation(scene, fire("settle", SECOND, True, "status query", "mail-1"), IN_DOUBT)),
            (C.EVIDENCE, Violation(scene, fire("settle", FIRST, False, ""), "source '', reference ''")),
        )
    },
    ((E.SETTLE, S.UNCERTAIN, S.QUEUED), C.NO_CANCEL): Violation(
        lost_after_cancel, CALLS[E.SETTLE], instead=S.CANCELLED
    ),
    ((E.SETTLE, S.UNCERTAIN, S.CANCELLED), C.CANCEL_REQUESTED): Violation(
        lambda s: s.uncertain(), CALLS[E.SETTLE], instead=S.QUEUED
    ),
    ((E.SETTLE, WAITING, WAITING), C.THIS_IN_DOUBT): Violation(
        lambda s: s.awaiting_doubt(), fire("settle", SECOND, True, "status query", "mail-1"), IN_DOUBT
    ),
    ((E.SETTLE, WAITING, WAITING), C.EVIDENCE): Violation(
        lambda s: s.awaiting_doubt(), fire("settle", FIRST, True, "status query"), "source 'status query', reference ''"
    ),
    ((E.SETTLE, WAITING, WAITING), C.SAYS_APPLIED): Violation(
        lambda s: s.awaiting_doubt(), fire("settle", FIRST, False, "status query"), "not applied"
    ),
    ((E.ASK, S.UNCERTAIN, WAITING), C.NO_PROOF): Violation(lambda s: s.uncertain(), fire("ask", "", 60), "no reason"),
    ((E.ASK, S.RUNNING, WAITING), C.APPROVAL_WANTED): Violation(
        lambda s: s.running(), CALLS[E.ASK], "no approval wanted"
    ),
    ((E.ASK, S.RUNNING, WAITING), C.NOTHING_IN_DOUBT): Violation(
        lambda s: sent_by_hand(s, s.running(APPROVAL_PLAN)),
        CALLS[E.ASK],
        HAND_IN_DOUBT,
        implied_by="an operation that wants approval is not sent before it has it, and it comes before all others",
    ),
    **{
        ((E.ANSWER, WAITING, target), condition): violation
        for target, before in ((S.QUEUED, unchanged), (S.CANCELLED, cancel_requested))
        for condition, violation in (
            (
                C.ANSWER_SIGNED,
                Violation(
                    lambda s, before=before: smuggling(s, before(s, s.awaiting_approval()), who=""),
                    CALLS[E.ANSWER],
                    "nobody",
                    implied_by="`answer` checks the name first and raises `InvalidInput`",
                ),
            ),
            (
                C.ANSWER_FITS,
                Violation(
                    lambda s, before=before: before(s, s.awaiting_doubt()), CALLS[E.ANSWER], f"approved with {IN_DOUBT}"
                ),
            ),
            (
                C.NOT_UNDER_WAY,
                Violation(
                    lambda s, before=before: later(s, before(s, s.awaiting_doubt()), 119.5),
                    NOT_APPLIED,
                    "under way until 1120.0, now 1119.5",
                ),
            ),
        )
    },
    ((E.ANSWER, WAITING, S.QUEUED), C.NOT_DECLINED): Violation(
        lambda s: s.settled_late(undo=True), DECLINE, "declined"
    ),
    ((E.ANSWER, WAITING, S.QUEUED), C.NO_CANCEL): Violation(waiting_after_cancel, APPLIED, instead=S.CANCELLED),
    ((E.ANSWER, WAITING, S.CANCELLED), C.STOP_WANTED): Violation(
        lambda s: s.awaiting_approval(), CALLS[E.ANSWER], instead=S.QUEUED
    ),
    ((E.EXPIRE, WAITING, S.FAILED), C.APPROVAL_OVERDUE): Violation(
        lambda s: later(s, s.awaiting_approval(), 59.5),
        CALLS[E.EXPIRE],
        "awaiting approval until 1060.0, now 1059.5",
    ),
    ((E.EXPIRE, WAITING, S.FAILED), C.NOTHING_IN_DOUBT): Violation(
        lambda s: sent_by_hand(s, later(s, s.awaiting_approval(), 60)),
        CALLS[E.EXPIRE],
        HAND_IN_DOUBT,
        implied_by=WITHOUT_DOUBT,
    ),
    **{
        ((E.REQUEST_CANCEL, state, state), C.DOING): Violation(scene, CALLS[E.REQUEST_CANCEL], "direction undo")
        for state, scene in (
            (S.QUEUED, lambda s: s.store.compensate(s.failed(), "Ada") and s.task),
            (S.RUNNING, lambda s: s.undoing()),
            (S.UNCERTAIN, undo_in_doubt),
            (WAITING, lambda s: s.settled_late(undo=True)),
        )
    },
    **{
        ((E.CANCEL, state, S.CANCELLED), C.CANCEL_REQUESTED): Violation(scene, CALLS[E.CANCEL], NO_CANCEL_FOUND)
        for state, scene in (
            (S.QUEUED, lambda s: s.queued()),
            (WAITING, lambda s: s.awaiting_approval()),
            (S.RUNNING, lambda s: s.running()),
        )
    },
    ((E.CANCEL, S.QUEUED, S.CANCELLED), C.NOTHING_IN_DOUBT): Violation(
        lambda s: sent_by_hand(s, cancel_requested(s, s.queued())),
        CALLS[E.CANCEL],
        HAND_IN_DOUBT,
        implied_by=WITHOUT_DOUBT,
    ),
    ((E.CANCEL, WAITING, S.CANCELLED), C.NOTHING_IN_DOUBT): Violation(waiting_after_cancel, CALLS[E.CANCEL], IN_DOUBT),
    ((E.CANCEL, S.RUNNING, S.CANCELLED), C.NOTHING_IN_DOUBT): Violation(
        lambda s: cancel_requested(s, s.sent()), CALLS[E.CANCEL], IN_DOUBT
    ),
    ((E.SUCCEED, S.RUNNING, S.SUCCEEDED), C.DOING): Violation(
        lambda s: s.all_undone(), CALLS[E.SUCCEED], "direction undo"
    ),
    ((E.SUCCEED, S.RUNNING, S.SUCCEEDED), C.ALL_DONE): Violation(
        lambda s: s.first_done(), CALLS[E.SUCCEED], f"{SECOND} without a result"
    ),
    ((E.FAIL, S.RUNNING, S.FAILED), C.HOPELESS): Violation(
        lambda s: s.refused_once(),
        fire("fail", Category.TRANSIENT),
        "transient after 1 of 5 attempts, 0.0 of 3600.0 seconds",
    ),
    ((E.FAIL, S.RUNNING, S.FAILED), C.NOTHING_IN_DOUBT): Violation(lambda s: s.sent(), CALLS[E.FAIL], IN_DOUBT),
    **{
        ((E.COMPENSATE, state, S.QUEUED), C.SOMETHING_TO_UNDO): Violation(scene, CALLS[E.COMPENSATE], "nothing to undo")
        for state, scene in (
            (S.FAILED, lambda s: s.store.fail(s.running(), Category.INVALID) and s.task),
            (S.CANCELLED, lambda s: s.store.cancel(cancel_requested(s, s.running())) and s.task),
        )
    },
    **{
        ((E.COMPENSATE, state, S.QUEUED), C.NOTHING_IN_DOUBT): Violation(
            lambda s, state=state: sent_by_hand(s, s.in_state(state)),
            CALLS[E.COMPENSATE],
            HAND_IN_DOUBT,
            implied_by=WITHOUT_DOUBT,
        )
        for state in (S.FAILED, S.CANCELLED)
    },
    ((E.COMPENSATED, S.RUNNING, S.COMPENSATED), C.UNDOING): Violation(
        lambda s: s.all_done(), CALLS[E.COMPENSATED], "direction do"
    ),
    ((E.COMPENSATED, S.RUNNING, S.COMPENSATED), C.ALL_UNDONE): Violation(
        lambda s: s.undoing(), CALLS[E.COMPENSATED], f"{FIRST}/undo without a result"
    ),
}

STALE = {C.TOKEN: StaleToken, C.VERSION: StaleVersion}


def older(held: Held, condition: Condition) -> Held:
    """The same hold, one token or one version behind."""
    if condition is C.VERSION:
        return replace(held, version=held.version - 1)
    assert isinstance(held, Lease)
    return replace(held, token=held.token - 1)


def violation_of(edge: Transition, condition: Condition) -> Violation:
    """The scene for a condition; an old token and an old version are made from the scene in which the edge is taken."""
    if condition in STALE:
        return Violation(lambda stage: older(TAKEN[key_of(edge)](stage), condition), CALLS[edge.event])
    return VIOLATIONS[key_of(edge), condition]


CONDITIONS = [
    pytest.param(edge, condition, id=f"{edge.event}-{edge.source}-{edge.target}-{condition.name}")
    for edge in TRANSITIONS
    for condition in edge.requires
]


def test_there_is_a_scene_for_every_condition_of_every_edge_and_for_no_other() -> None:
    wanted = {(key_of(edge), one) for edge in TRANSITIONS for one in edge.requires if one not in STALE}
    assert set(VIOLATIONS) == wanted


def test_every_condition_has_a_guard() -> None:
    assert set(GUARDS) == set(Condition)


@pytest.mark.parametrize(("edge", "condition"), CONDITIONS)
def test_an_unmet_condition_is_refused_with_expected_and_found_and_every_row_stays(
    edge: Transition, condition: Condition, stage: Stage
) -> None:
    violation = violation_of(edge, condition)
    held = violation.scene(stage)
    task, before = stage.task, stage.rows()
    assert task.state is edge.source
    if violation.instead is not None:
        violation.call(stage.store, held)
        assert stage.task.state is violation.instead is not edge.target
        return
    with pytest.raises(STALE.get(condition, ConditionUnmet)) as refused:
        violation.call(stage.store, held)
    error = refused.value
    assert (error.event, error.task_id) == (edge.event, ID)
    assert str(error) == f"{edge.event} {ID} refused: expected {error.expected}, found {error.found}"
    if isinstance(error, ConditionUnmet):
        assert error.condition is condition
        assert (error.expected, error.found) == (condition, violation.found)
    else:
        name, row = ("token", task.lease_token) if condition is C.TOKEN else ("version", task.version)
        assert (error.expected, error.found) == (f"{name} {getattr(held, name)}", f"{name} {row} ({task.state})")
    assert stage.rows() == before


@pytest.mark.parametrize(("edge", "condition"), CONDITIONS)
def test_without_its_guard_the_same_change_would_be_made(edge: Transition, condition: Condition, stage: Stage) -> None:
    violation = violation_of(edge, condition)
    held = violation.scene(stage)
    assert isinstance(stage.store, Disarmed)
    stage.store.missing = (edge, condition)
    with pytest.raises(LetThrough):
        violation.call(stage.store, held)


def test_only_these_conditions_follow_from_others_and_guard_against_rows_written_by_hand() -> None:
    implied = {
        (*key, condition.name): violation.implied_by
        for (key, condition), violation in VIOLATIONS.items()
        if violation.implied_by
    }
    assert sorted(implied) == [
        ("answer", "awaiting_confirmation", "cancelled", "ANSWER_SIGNED"),
        ("answer", "awaiting_confirmation", "queued", "ANSWER_SIGNED"),
        ("ask", "running", "awaiting_confirmation", "NOTHING_IN_DOUBT"),
        ("cancel", "queued", "cancelled", "NOTHING_IN_DOUBT"),
        ("compensate", "cancelled", "queued", "NOTHING_IN_DOUBT"),
        ("compensate", "failed", "queued", "NOTHING_IN_DOUBT"),
        ("expire", "awaiting_confirmation", "failed", "NOTHING_IN_DOUBT"),
    ]


SHOW_A_LEASE = sorted(BY_LEASE | {Event.SETTLE, Event.CANCEL})


@pytest.mark.parametrize("event", SHOW_A_LEASE)
def test_whoever_shows_a_lost_lease_is_told_so_whatever_state_the_task_has_come_to(event: Event, stage: Stage) -> None:
    zombie = stage.running()
    stage.clock.advance(30)
    holder = stage.store.take_over(stage.task, "worker-2")
    stage.store.fail(holder, Category.INVALID)
    before = stage.rows()
    with pytest.raises(StaleToken) as refused:
        CALLS[event](stage.store, zombie)
    assert (refused.value.expected, refused.value.found) == ("token 1", "token 2 (failed)")
    assert stage.rows() == before


def test_a_task_read_is_no_lease(stage: Stage) -> None:
    stage.sent()
    with pytest.raises(StaleToken) as refused:
        stage.store.checkpoint(stage.task, FIRST, "payments-1")  # type: ignore[arg-type]
    assert (refused.value.expected, refused.value.found) == ("token none", "token 1 (running)")


def test_a_task_id_is_no_reading_of_a_task(stage: Stage) -> None:
    stage.queued()
    for call in (stage.store.claim, stage.store.take_over, stage.store.begin):
        with pytest.raises(InvalidInput, match="a task as it was read"):
            call(ID, "worker-2")  # type: ignore[arg-type]


@pytest.mark.parametrize("edge", [pytest.param(edge, id="-".join(key_of(edge))) for edge in TRANSITIONS])
def test_no_guard_reads_a_whole_table(edge: Transition, stage: Stage) -> None:
    statement = update_sql(edge, "step = step")
    values = dict.fromkeys(re.findall(r":(\w+)", statement), 0)
    with stage.store._db.read() as db:
        steps = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    scanned = {step for step in steps if step.startswith("SCAN")}
    assert scanned <= {"SCAN in_doubt", "SCAN next_operation"}, "a view of one task's rows at the most"
