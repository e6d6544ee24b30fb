"""Every condition of the table of transitions in SQL: the WHERE clause of the change, and the words of a refusal.

A change is one UPDATE for each edge of its event, `WHERE` state and all conditions hold; the row count is the verdict.
Where no row was changed, the same conditions are read one by one to say which did not hold.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from labkit.errors import ChangeRefused, ConditionUnmet, StaleToken, StaleVersion, UnknownTask, WrongState
from labkit.states import HELD_STATES, UNVERSIONED_EVENTS, Condition, Event, State, Transition, edges_of


class Guard(NamedTuple):
    """One condition: `sql` must be true of the row of `tasks`; `found` is an SQL text of what is there instead."""

    sql: str
    found: str


_DOUBTS = "(SELECT group_concat(operation_id, ', ') || ' in doubt' FROM in_doubt WHERE task_id = :id)"
_ANY_DOUBT = "EXISTS (SELECT 1 FROM in_doubt WHERE task_id = :id)"
_THIS_DOUBT = "EXISTS (SELECT 1 FROM in_doubt WHERE task_id = :id AND operation_id = :operation_id)"
_NEXT = "(SELECT operation_id FROM next_operation WHERE task_id = :id)"
_UNAPPROVED = "EXISTS (SELECT 1 FROM next_operation WHERE task_id = :id AND needs_approval AND approved_by IS NULL)"
_SPENT = "(attempts >= max_attempts OR :earliest - first_attempt_at >= max_seconds)"
_BUDGET = (
    "attempts || ' of ' || max_attempts || ' attempts, ' || (:earliest - coalesce(first_attempt_at, :earliest)) "
    "|| ' of ' || max_seconds || ' seconds'"
)
_AGE = ":now - (SELECT first_sent_at FROM in_doubt WHERE operation_id = :operation_id)"
_STILL = "(SELECT last_sent_at FROM in_doubt WHERE task_id = :id) + :longest_delivery + :longest_pause"
_CANCEL = "'cancel_requested ' || cancel_requested || ', direction ' || direction"
_REVERSIBLE = """EXISTS (
    SELECT 1 FROM operations AS o WHERE o.task_id = :id AND o.status = 'done'
    AND o.undo_request IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM operations AS u WHERE u.operation_id = o.operation_id || '/undo' AND u.status = 'done'))"""

GUARDS: Mapping[Condition, Guard] = {
    Condition.TOKEN: Guard("lease_token = :token", "lease_token"),
    Condition.VERSION: Guard("version = :version", "version"),
    Condition.DUE: Guard("next_run_at <= :now", "'next_run_at ' || next_run_at || ', now ' || :now"),
    Condition.NO_CANCEL: Guard("NOT (cancel_requested AND direction = 'do')", _CANCEL),
    Condition.CANCEL_REQUESTED: Guard("cancel_requested AND direction = 'do'", _CANCEL),
    Condition.DOING: Guard("direction = 'do'", "'direction ' || direction"),
    Condition.UNDOING: Guard("direction = 'undo'", "'direction ' || direction"),
    Condition.LEASE_LIVE: Guard("lease_expires_at > :now", "'it expired at ' || lease_expires_at"),
    Condition.LEASE_EXPIRED: Guard(
        "lease_expires_at <= :now", "'held by ' || lease_owner || ' until ' || lease_expires_at"
    ),
    Condition.NOTHING_IN_DOUBT: Guard(f"NOT {_ANY_DOUBT}", _DOUBTS),
    Condition.SOMETHING_IN_DOUBT: Guard(_ANY_DOUBT, "'nothing in doubt'"),
    Condition.THIS_IN_DOUBT: Guard(_THIS_DOUBT, f"coalesce({_DOUBTS}, 'nothing in doubt')"),
    Condition.NEXT_OPERATION: Guard(f":operation_id = {_NEXT}", f"'next is ' || coalesce({_NEXT}, 'none')"),
    Condition.INTENT_ON_RECORD: Guard(_THIS_DOUBT, "'no open intent for ' || :operation_id"),
    Condition.RESULT_AT_HAND: Guard("length(:reference) > 0", "'no reference'"),
    Condition.ATTEMPTS_LEFT: Guard("attempts < max_attempts", _BUDGET),
    Condition.TIME_LEFT: Guard("coalesce(:earliest - first_attempt_at < max_seconds, TRUE)", _BUDGET),
    Condition.TRANSIENT: Guard(":category = 'transient'", ":category"),
    Condition.HOPELESS: Guard(
        f":category IN ('permission', 'invalid') OR {_SPENT}", f":category || ' after ' || {_BUDGET}"
    ),
    Condition.KEY_OUTLIVES: Guard(
        # below 0 is no age: a clock jumped
        f"{_AGE} >= 0 AND {_AGE} + :longest_delivery + :longest_pause < :key_memory",
        f"coalesce('age ' || ({_AGE}) || ', key memory ' || :key_memory, 'no key memory')",
    ),
    Condition.EVIDENCE: Guard(
        "length(:source) > 0 AND (NOT :applied OR length(:reference) > 0)",
        "'source ''' || coalesce(:source, '') || ''', reference ''' || coalesce(:reference, '') || ''''",
    ),
    Condition.SAYS_APPLIED: Guard(":applied", "'not applied'"),
    Condition.NO_PROOF: Guard("length(:reason) > 0", "'no reason'"),
    Condition.APPROVAL_WANTED: Guard(_UNAPPROVED, "'no approval wanted'"),
    Condition.APPROVED: Guard(f"NOT {_UNAPPROVED}", f"{_NEXT} || ' not approved'"),
    Condition.ANSWER_SIGNED: Guard("length(:who) > 0", "'nobody'"),
    Condition.ANSWER_FITS: Guard(
        f"CASE WHEN {_ANY_DOUBT} THEN :answer IN ('applied', 'not_applied') "
        "ELSE :answer IN ('approved', 'declined') END",
        f":answer || ' with ' || coalesce({_DOUBTS}, 'nothing in doubt')",
    ),
    Condition.NOT_DECLINED: Guard(":answer <> 'declined'", ":answer"),
    Condition.NOT_UNDER_WAY: Guard(
        f":answer <> 'not_applied' OR {_STILL} <= :now", f"'under way until ' || ({_STILL}) || ', now ' || :now"
    ),
    Condition.STOP_WANTED: Guard("(:answer = 'declined' OR cancel_requested) AND direction = 'do'", _CANCEL),
    Condition.APPROVAL_OVERDUE: Guard(
        "awaiting_for = 'approval' AND awaiting_until <= :now",
        "'awaiting ' || awaiting_for || ' until ' || awaiting_until || ', now ' || :now",
    ),
    Condition.ALL_DONE: Guard(f"{_NEXT} IS NULL", f"{_NEXT} || ' without a result'"),
    Condition.ALL_UNDONE: Guard(f"{_NEXT} IS NULL", f"{_NEXT} || ' without a result'"),
    Condition.SOMETHING_TO_UNDO: Guard(_REVERSIBLE, "'nothing to undo'"),
}


@cache
def updates(event: Event, sets: str) -> tuple[tuple[Transition, str], ...]:
    """Every edge of an event, in the order in which the store tries them, with its conditional UPDATE."""
    return tuple((edge, update_sql(edge, sets)) for edge in edges_of(event))


def update_sql(edge: Transition, sets: str) -> str:
    """Return the conditional UPDATE of one edge; `sets` are its further assignments."""
    assignments = [] if edge.source is edge.target else [f"state = '{edge.target}'"]
    if edge.event not in UNVERSIONED_EVENTS:
        assignments.append("version = version + 1")
    if edge.source in HELD_STATES and edge.target not in HELD_STATES:
        assignments.append("lease_owner = NULL, lease_expires_at = NULL")
    if edge.source is State.AWAITING_CONFIRMATION and edge.target is not edge.source:
        assignments.append("awaiting_for = NULL, awaiting_until = NULL")
    if sets:
        assignments.append(sets)
    guards = "".join(f"\n  AND ({GUARDS[condition].sql})" for condition in edge.requires)
    return (
        f"UPDATE tasks SET {', '.join(assignments)}\n"
        f"WHERE id = :id AND state = '{edge.source}'{guards}\n"
        "RETURNING version, lease_token, lease_expires_at"
    )


def refusal(db: sqlite3.Connection, event: Event, params: Mapping[str, Any]) -> ChangeRefused:
    """Say why no edge of `event` changed the task: the first of token, version, state, conditions that fails."""
    task_id = params["id"]
    row = db.execute("SELECT state FROM tasks WHERE id = ?", (task_id,)).fetchone()
    if row is None:
        return UnknownTask(event, task_id, "a task of that id", "none")
    edges = edges_of(event)
    here = [edge for edge in edges if edge.source == row[0]]
    shared = [one for one in (here or edges)[0].requires if all(one in edge.requires for edge in here or edges)]
    if params["token"] is not None:  # whoever shows a lease and has lost it learns that first
        shared.append(Condition.TOKEN)
    for condition, kind in ((Condition.TOKEN, StaleToken), (Condition.VERSION, StaleVersion)):
        name = condition.name.lower()
        if condition in shared and not (reading := _read(db, condition, params)).holds:
            expected = "none" if params[name] is None else params[name]
            return kind(event, task_id, f"{name} {expected}", f"{name} {reading.found} ({row[0]})")
    if not here:
        sources = " or ".join(dict.fromkeys(edge.source for edge in edges))
        return WrongState(event, task_id, sources, row[0])
    for condition in (*shared, *here[0].requires):
        reading = _read(db, condition, params)
        if not reading.holds:
            return ConditionUnmet(event, task_id, condition, reading.found, condition)
    raise AssertionError(f"{event} {task_id} was refused though every condition holds")


class _Reading(NamedTuple):
    holds: bool
    found: str


def _read(db: sqlite3.Connection, condition: Condition, params: Mapping[str, Any]) -> _Reading:
    guard = GUARDS[condition]
    query = f"SELECT coalesce({guard.sql}, FALSE), {guard.found} FROM tasks WHERE id = :id"
    holds, found = db.execute(query, params).fetchone()
    return _Reading(bool(holds), str(found))
