"""Laws of the exercises in plain SQL, beside those of `labkit.explore.row_laws`: what one call must do and say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labkit.explore.bench import acquires
from labkit.explore.journal import Changed, Said
from labkit.explore.row_laws import CLAIM_LAWS, changes_of, moves_of, named, says_what_it_did
from labkit.explore.sqlworld import SqlLaw, SqlRun
from labkit.states import State

TASK, OTHER = "task-1", "task-2"
LEASE_SECONDS = 30.0


def must_be_refused(run: SqlRun) -> str:
    """What must be refused is refused, and changes nothing."""
    for change in (*changes_of(run, "tasks"), *changes_of(run, "operations")):
        return f"{change.worker} changed {_name(change)}"
    told = sorted(name for name, result in run.results.items() if result)
    return f"{told[0]} is told {run.results[told[0]]}, and has changed nothing" if told else ""


def leaves_others_alone(run: SqlRun) -> str:
    """Only the task that is meant is changed, and only its operations."""
    for change in (*changes_of(run, "tasks"), *changes_of(run, "operations")):
        if _name(change).partition("/")[0] != TASK:
            return f"{change.worker} changed {_name(change)}"
    return ""


def _name(change: Changed) -> str:
    row = change.after or change.before or {}
    return str(row.get("operation_id") or row.get("id"))


def lease_as_asked(run: SqlRun) -> str:
    """Whoever acquires a task is its owner on record, for as long as was asked for from now on."""
    for change, _, after in moves_of(run):
        if not acquires(change):
            continue
        if after["lease_owner"] != change.worker:
            return f"{change.worker} acquired {after['id']}, and its owner on record is {after['lease_owner']}"
        if after["lease_expires_at"] != change.at + LEASE_SECONDS:
            until, wanted = after["lease_expires_at"], change.at + LEASE_SECONDS
            return f"{change.worker} acquired {after['id']} until {until:g}, where {wanted:g} was asked for"
    return ""


def yes_means(what: str, state: State) -> SqlLaw:
    """Make the law that a worker is told yes exactly where it has brought the task into a state."""

    def says_so(run: SqlRun) -> str:
        brought = {one.worker for one, _, after in moves_of(run) if after["state"] == state and one.becomes("state")}
        for name, said in _answers(run, what):
            if bool(said) != (name in brought):
                did = "did" if name in brought else "did not do"
                return f"{name} is told {said}, and {did} it"
        return ""

    says_so.__doc__ = f"A worker is told yes exactly where its call has made the task {state}."
    return says_so


def checkpoint_says_so(run: SqlRun) -> str:
    """A worker is told yes exactly where its call has recorded the result."""
    recorded = {(one.worker, _name(one)) for one in changes_of(run, "operations") if one.becomes("status")}
    for name, pair in _answers(run, "checkpoint"):
        operation_id, said = pair
        if bool(said) != ((name, operation_id) in recorded):
            did = "a result" if (name, operation_id) in recorded else "no result"
            return f"{name} is told {said}, and has recorded {did} for {operation_id}"
    return ""


def committed_when_told(run: SqlRun) -> str:
    """What a worker is told has happened is committed by then."""
    for name, pair in _answers(run, "open"):
        return f"{name} is told {pair[1]} for {pair[0]}, and nothing is committed yet"
    return ""


def keeps_the_result(run: SqlRun) -> str:
    """The result on record is the one that the remote has answered with."""
    told = {pair for _, pair in _answers(run, "reference")}
    for change in changes_of(run, "operations"):
        if change.after is not None and change.after["status"] == "done":
            operation_id, found = change.after["operation_id"], change.after["result_ref"]
            if (operation_id, found) not in told:
                return f"{change.worker} put {found} on record for {operation_id}, which nobody was told"
    return ""


def _answers(run: SqlRun, what: str) -> list[tuple[str, Any]]:
    return [(one.worker, one.value) for one in run.log if isinstance(one, Said) and one.what == what]


def one_call(*more: SqlLaw) -> Mapping[str, SqlLaw]:
    """The laws of a function that tries one change and says whether it was granted."""
    return named(*CLAIM_LAWS, leaves_others_alone, *more)


def refusals() -> Mapping[str, SqlLaw]:
    """The laws of a call that must be refused."""
    return named(must_be_refused, says_what_it_did)
