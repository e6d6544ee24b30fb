"""Laws of the exercises in plain SQL, beside those of `labkit.explore.row_laws`: what one call must do and say."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from labkit.course.calls import CALL, AnswerCall, calls_of, name_of
from labkit.course.submission import shortened
from labkit.errors import LabError
from labkit.explore.bench import SAID, Bench, acquires
from labkit.explore.journal import Said
from labkit.explore.row_laws import CLAIM_LAWS, changes_of, moves_of, named, says_what_it_did
from labkit.explore.sqlworld import SqlLaw, SqlRun
from labkit.states import State

LEASE_SECONDS = 30.0


class NeverRan(LabError):
    """A call came back with something that never ran."""


def asked(db: Any, bench: Bench, answer: Callable[..., Any], *args: Any) -> Any:
    """Call an answer as the rest of a program would, and put down what it leaves behind on its caller's connection."""
    bench.say(CALL, args)
    said = answer(db, *args)
    if inspect.isawaitable(said) or inspect.isgenerator(said) or inspect.isasyncgen(said) or callable(said):
        raise NeverRan(f"the call came back with a {type(said).__name__}, which has not run: write a plain function")
    if db.closed:
        bench.say("left", "the connection of its caller closed")
    elif db.in_transaction:
        bench.say("left", "a transaction open")
    bench.say(SAID, said)
    return said


def granted(db: Any, bench: Bench, answer: Callable[..., Any], *args: Any) -> Any:
    """Call an answer for something that it must be granted."""
    said = asked(db, bench, answer, *args)
    bench.say("fits", (args, said))
    return said


def first_yes(told: Iterable[Any]) -> Any:
    """Ask until there is a yes, and return that; False where there was none."""
    return next((said for said in told if said), False)


def leaves_nothing_open(run: SqlRun) -> str:
    """When a call returns its transaction has ended, and the connection is there for its caller to go on with."""
    for name, what in _answers(run, "left"):
        return f"{name} has left {what}"
    return ""


def raises_nothing(run: SqlRun) -> str:
    """A call returns what it has to say, also where it is refused; it raises nothing."""
    for name, error in run.errors.items():
        calls = [_who(call) for call in calls_of(run) if call.worker == name]
        return f"{(calls or [name])[-1]} ended with {type(error).__name__}: {error}"
    return ""


def must_be_refused(run: SqlRun) -> str:
    """What must be refused is refused, and changes nothing."""
    for call in calls_of(run):
        if call.changes:
            return f"{_who(call)} changed {name_of(call.changes[0])}"
        if any(call.told):
            return f"{_who(call)} is told {in_short(call.told[0])}, and has changed nothing"
    return ""


def what_fits_is_granted(run: SqlRun) -> str:
    """What is there to be had as it was asked for is granted."""
    for name, (args, said) in _answers(run, "fits"):
        if not said:
            return f"{_who(AnswerCall(name, args))} is told {in_short(said)}, and it was to be had"
    return ""


def each_call_says_what_it_did(run: SqlRun) -> str:
    """Of several calls by one worker each says what this very call did."""
    for call in calls_of(run):
        if call.told and bool(call.told[0]) != bool(call.changes):
            did = f"changed {name_of(call.changes[0])}" if call.changes else "did nothing"
            return f"{_who(call)} is told {in_short(call.told[0])}, and this call {did}"
    return ""


def keeps_to_the_tables(run: SqlRun) -> str:
    """What is written keeps to what the tables themselves ask for."""
    for name, error in run.errors.items():
        if isinstance(error, sqlite3.IntegrityError):
            return f"the database refused what {name} wrote"
    return ""


def leaves_others_alone(run: SqlRun) -> str:
    """Only the task that a call is for is changed, and only its operations."""
    for call in calls_of(run):
        for name in map(name_of, call.changes):
            if name.partition("/")[0] != call.args[0]:
                return f"{_who(call)} changed {name}"
    return ""


def lease_as_asked(run: SqlRun) -> str:
    """Whoever acquires a task is its owner on record, for as long as was asked for from now on."""
    for call in calls_of(run):
        for after in (one.after for one in call.changes if one.after is not None and acquires(one)):
            _, owner, now, seconds = call.args
            if after["lease_owner"] != owner:
                return f"{owner} acquired {after['id']}, and its owner on record is {after['lease_owner']}"
            until, wanted = after["lease_expires_at"], now + seconds
            if until != wanted:
                return f"{owner} acquired {after['id']} until {until:g}, where {wanted:g} was asked for"
    return ""


def changes_only(*columns: str) -> SqlLaw:
    """Make the law that the answer changes these columns of a task and no others."""

    def nothing_else_changes(run: SqlRun) -> str:
        for change, _, after in moves_of(run):
            others = sorted(name for name in after if change.becomes(name) and name not in columns)
            if others:
                return f"{change.worker} changed {others[0]} of {after['id']} as well"
        return ""

    nothing_else_changes.__doc__ = f"Of a task only {', '.join(columns[:-1])} and {columns[-1]} change."
    return nothing_else_changes


def tokens_only_grow(run: SqlRun) -> str:
    """A task's token only grows, also when nobody holds the task any more."""
    for change, before, after in moves_of(run):
        if after["lease_token"] < before["lease_token"]:
            return (
                f"{change.worker} put the token of {after['id']} from {before['lease_token']} to {after['lease_token']}"
            )
    return ""


def given_back(run: SqlRun) -> str:
    """A task that has ended has no owner on record; its token stays."""
    for change, before, after in moves_of(run):
        if after["lease_owner"] is not None:
            return f"{change.worker} ended {after['id']}, and {after['lease_owner']} is its owner on record still"
        if after["lease_token"] != before["lease_token"]:
            return f"{change.worker} gave {after['id']} the token {after['lease_token']}, and nobody has it"
    return ""


def yes_means(what: str, state: State) -> SqlLaw:
    """Make the law that a worker is told yes exactly where it has brought the task into a state."""

    def says_so(run: SqlRun) -> str:
        brought = {one.worker for one, _, after in moves_of(run) if after["state"] == state and one.becomes("state")}
        for name, said in _answers(run, what):
            if bool(said) != (name in brought):
                did = "did" if name in brought else "did not do"
                return f"{name} is told {in_short(said)}, and {did} it"
        return ""

    says_so.__doc__ = f"A worker is told yes exactly where its call has made the task {state}."
    return says_so


def checkpoint_says_so(run: SqlRun) -> str:
    """A worker is told yes exactly where its call has recorded the result."""
    recorded = {(one.worker, name_of(one)) for one in changes_of(run, "operations") if one.becomes("status")}
    for name, pair in _answers(run, "checkpoint"):
        operation_id, said = pair
        if bool(said) != ((name, operation_id) in recorded):
            did = "a result" if (name, operation_id) in recorded else "no result"
            return f"{name} is told {in_short(said)}, and has recorded {did} for {operation_id}"
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


def says_yes_or_no(run: SqlRun) -> str:
    """A call returns True or False (a count of 1 or 0 will do), and nothing else that Python takes for one of them."""
    return _misfit(run, lambda said: isinstance(said, int) and said in (0, 1), "True or False")


def says_token_or_none(run: SqlRun) -> str:
    """A call returns the new token, a whole number above zero, or None."""
    return _misfit(run, lambda said: said is None or (type(said) is int and said > 0), "a token or None")


def _misfit(run: SqlRun, fits: Callable[[Any], bool], wanted: str) -> str:
    for call in calls_of(run):
        for said in call.told:
            if not fits(said):
                returned = shortened(repr(said)) if isinstance(said, str) else in_short(said)
                return f"{_who(call)} returned {returned}, where {wanted} is wanted"
    return ""


def in_short(said: object) -> str:
    """What a call has said, in few words that are the same on every run."""
    plain = said is None or isinstance(said, bool | int | float | str | tuple)
    return shortened(str(said)) if plain else f"an object of type {type(said).__name__}"


def _who(call: AnswerCall) -> str:
    return f"{call.worker}, called with ({', '.join(map(in_short, call.args))}),"


def _answers(run: SqlRun, what: str) -> list[tuple[str, Any]]:
    return [(one.worker, one.value) for one in run.log if isinstance(one, Said) and one.what == what]


def one_call(*more: SqlLaw) -> Mapping[str, SqlLaw]:
    """The laws of a function that tries one change and says whether it was granted."""
    first = (leaves_nothing_open, leaves_others_alone, keeps_to_the_tables)
    return named(*first, *CLAIM_LAWS, raises_nothing, tokens_only_grow, *more, says_yes_or_no)


def refusals(kind: SqlLaw = says_yes_or_no) -> Mapping[str, SqlLaw]:
    """The laws of a call that must be refused; `kind` is the one about what it returns."""
    return named(must_be_refused, leaves_nothing_open, raises_nothing, says_what_it_did, kind)
