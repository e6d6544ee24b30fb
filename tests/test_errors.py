"""The error tree: it is as drawn, its leaves carry fields, and they travel between processes."""

import inspect
import pickle
import re

import pytest

from labkit import errors
from labkit.errors import (
    ChangeRefused,
    ConditionUnmet,
    InvalidInput,
    LabError,
    NotALabFile,
    NotSent,
    OutcomeUnknown,
    Refused,
    RemoteError,
    SimulatedCrash,
    StaleToken,
    StaleVersion,
    StoreBusy,
    StoreError,
    TaskExists,
    UnknownTask,
    WrongState,
)
from labkit.states import Condition

CHANGES = [ChangeRefused("claim", "task-1", "version 1", "version 2 (running)")] + [
    kind("claim", "task-1", 1, "2") for kind in (UnknownTask, TaskExists, WrongState, StaleVersion, StaleToken)
]
ERRORS: list[LabError] = [
    *CHANGES,
    ConditionUnmet("claim", "task-1", Condition.DUE, "next_run_at 5, now 1", Condition.DUE),
    *(kind("tasks.sqlite", "database is locked", "SQLITE_BUSY") for kind in StoreError.__subclasses__()),
    NotSent("payments", "task-1/refund", "connection refused"),
    OutcomeUnknown("payments", "task-1/refund", "time-out"),
    Refused("payments", "task-1/refund", "slow down", "transient", 429, 2.5),
    InvalidInput("a finite number", float("inf")),
]


def drawn() -> dict[str, str]:
    """Each class of the drawing in the module's docstring, with the class that it hangs on."""
    parents: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^([ │├└─]*)([A-Z]\w+)(?: |$)", line)
        if match is None or not line.startswith("    "):
            continue
        depth, name = len(match[1]), match[2]
        path = [(at, one) for at, one in path if at < depth]
        parents[name] = path[-1][1] if path else ""
        path.append((depth, name))
    return parents


def test_the_drawing_shows_every_error_and_what_it_hangs_on() -> None:
    classes = {
        name: kind for name, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__
    }
    tree = drawn()
    assert set(tree) == set(classes)
    for name, parent in tree.items():
        if parent:
            assert classes[name].__bases__[0] is classes[parent]
    assert [name for name, parent in tree.items() if not parent] == ["LabError", "SimulatedCrash"]


def test_every_leaf_is_tried_here() -> None:
    def leaves(kind: type[LabError]) -> set[type[LabError]]:
        below = kind.__subclasses__()
        return {kind} if not below else {leaf for one in below for leaf in leaves(one)}

    here = {leaf for leaf in leaves(LabError) if leaf.__module__ == errors.__name__}
    assert here <= {type(error) for error in ERRORS}


@pytest.mark.parametrize("error", ERRORS, ids=lambda one: type(one).__name__)
def test_an_error_travels_to_another_process_with_text_and_fields(error: LabError) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        copy = pickle.loads(pickle.dumps(error, protocol))
        assert type(copy) is type(error)
        assert (str(copy), vars(copy)) == (str(error), vars(error))


def test_a_simulated_crash_travels_and_no_broad_handler_survives_it() -> None:
    copy = pickle.loads(pickle.dumps(SimulatedCrash("the worker dies")))
    assert str(copy) == "the worker dies"
    assert not isinstance(copy, Exception)


def test_a_refusal_carries_what_was_expected_and_what_was_found() -> None:
    error = CHANGES[0]
    assert (error.event, error.task_id, error.expected, error.found) == (
        "claim",
        "task-1",
        "version 1",
        "version 2 (running)",
    )
    assert str(error) == "claim task-1 refused: expected version 1, found version 2 (running)"


def test_a_store_error_says_what_to_do() -> None:
    error = StoreBusy("tasks.sqlite", "database is locked", "SQLITE_BUSY")
    assert (error.path, error.found, error.code) == ("tasks.sqlite", "database is locked", "SQLITE_BUSY")
    assert str(error) == f"tasks.sqlite: database is locked. What to do: {error.advice}."


@pytest.mark.parametrize("kind", StoreError.__subclasses__(), ids=lambda one: one.__name__)
def test_every_store_error_has_advice_of_its_own(kind: type[StoreError]) -> None:
    assert kind.advice != StoreError.advice
    assert kind.advice[0].islower()
    assert not kind.advice.endswith(".")


def test_not_sent_and_outcome_unknown_are_siblings() -> None:
    """A handler for the one must never catch the other: only after the first is it safe to send again."""
    assert NotSent.__bases__ == OutcomeUnknown.__bases__ == Refused.__bases__ == (RemoteError,)


def test_invalid_input_is_a_value_error_too() -> None:
    with pytest.raises(ValueError, match="expected 1 or more, found 0"):
        raise InvalidInput("1 or more", 0)


def test_another_program_s_file_and_a_damaged_one_are_told_apart() -> None:
    assert not issubclass(NotALabFile, errors.StoreCorrupt)
