"""A scenario's set-up as data: all that is needed to build it again, short of code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labkit.changes import Assumptions
from labkit.errors import InvalidInput
from labkit.explore.choices import SURPRISES
from labkit.explore.fields import Fields, flat_from_json, flat_to_json, plain
from labkit.explore.laws import LAWS
from labkit.explore.programs import LabWorker
from labkit.explore.scenario import Scenario
from labkit.explore.world import TaskScenario
from labkit.policies import POLICIES
from labkit.programs import Program, label_of
from labkit.records import PlannedOperation
from labkit.remote import Capabilities
from labkit.retries import Budget
from labkit.values import Json

MAX_WORKERS = 8
MAX_OPERATIONS = 20
MAX_LAWS = 50
TASK, CODE = "task", "code"
"""A scenario that can be built again, given its program; and any other, such as plain SQL over rows of its own."""


def setup_of(scenario: Scenario) -> Json:
    """Write a scenario's set-up as JSON; a student's own program, and laws of its own, leave only their names."""
    shared: Json = {
        "program": _program_to_json(scenario.program),
        "workers": scenario.workers,
        "allowed": sorted(scenario.allowed),
    }
    if scenario.laws != LAWS:
        shared["laws"] = [plain(name) for name in scenario.laws]
    if not isinstance(scenario, TaskScenario):
        return {"kind": CODE, **shared}
    return {
        "kind": TASK,
        **shared,
        "operations": [_operation_to_json(one) for one in scenario.operations],
        "remotes": {name: flat_to_json(can) for name, can in scenario.remotes.items()},
        "person": scenario.person,
        "compensate": scenario.compensate,
        "budget": flat_to_json(scenario.budget),
        "assumptions": flat_to_json(scenario.assumptions),
        "late_by_seconds": scenario.late_by_seconds,
    }


def checked_setup(data: object) -> Json:
    """Return foreign data if it is a set-up, every part of the right type and within bounds.

    Raises:
        BadCapsule: naming the part that is not.
    """
    setup = Fields(data, "setup")
    if setup.take("kind") == CODE:
        _shared(setup)
        setup.end()
    else:
        _task_scenario(data, _nothing)
    assert isinstance(data, dict), "checked by Fields"
    return data


def scenario_from(setup: Json, program: Program | None = None) -> TaskScenario:
    """Build a scenario again.

    Args:
        setup: from `setup_of` or `checked_setup`.
        program: the code, where the set-up has only a label for it.

    Raises:
        InvalidInput: code is needed that a set-up cannot hold.
    """
    if setup["kind"] == CODE:
        raise InvalidInput("the scenario itself, for its rows and laws are code", "none")
    strange = [name for name in setup.get("laws", ()) if name not in LAWS]
    if strange:
        raise InvalidInput(f"the scenario itself, for the law {strange[0]!r} is code", "none")
    policy = setup["program"].get("policy")
    if program is None and policy is None:
        raise InvalidInput(f"the program {setup['program']['label']!r}, or a scenario with it", "none")
    return _task_scenario(setup, LabWorker(policy) if program is None else program)


def _task_scenario(data: object, program: Program) -> TaskScenario:
    setup = Fields(data, "setup")
    kind = setup.take("kind")
    if kind != TASK:
        setup.refuse("kind", f"{TASK!r} or {CODE!r}", kind)
    workers, allowed, laws = _shared(setup)
    remotes = _remotes(setup.take("remotes"))
    scenario = TaskScenario(
        program,
        tuple(_operation(one, remotes) for one in setup.items("operations", 1, MAX_OPERATIONS)),
        remotes,
        workers,
        allowed,
        setup.flag("person"),
        setup.flag("compensate"),
        flat_from_json(Budget, setup.take("budget"), "setup, budget"),
        flat_from_json(Assumptions, setup.take("assumptions"), "setup, assumptions"),
        setup.seconds("late_by_seconds"),
        {name: LAWS[name] for name in laws if name in LAWS},
    )
    setup.end()
    return scenario


def _shared(setup: Fields) -> tuple[int, frozenset[str], list[str]]:
    program = Fields(setup.take("program"), "setup, program")
    if "policy" in program.names():
        policy = program.text("policy")
        if policy not in POLICIES:
            program.refuse("policy", f"one of {', '.join(POLICIES)}", policy)
    else:
        program.text("label")
    program.end()
    allowed = setup.items("allowed", 0, len(SURPRISES))
    if not all(isinstance(one, str) and one in SURPRISES for one in allowed):
        setup.refuse("allowed", f"some of {', '.join(sorted(SURPRISES))}", allowed)
    laws = setup.items("laws", 0, MAX_LAWS) if "laws" in setup.names() else list(LAWS)
    if not all(isinstance(name, str) and name.isprintable() for name in laws):
        setup.refuse("laws", "names", laws)
    return setup.whole("workers", 1, MAX_WORKERS), frozenset(allowed), laws


def _remotes(data: object) -> Mapping[str, Capabilities]:
    remotes = Fields(data, "setup, remotes")
    if not 1 <= len(remotes.names()) <= MAX_OPERATIONS:
        remotes.refuse("remotes", f"1 to {MAX_OPERATIONS}", len(remotes.names()))
    return {name: flat_from_json(Capabilities, remotes.take(name), f"remote {name}") for name in remotes.names()}


def _operation_to_json(one: PlannedOperation) -> Json:
    written: Json = {"name": one.name, "remote": one.remote, "request": one.request}
    if one.undo_request is not None:
        written["undo_request"] = one.undo_request
    return written | ({"needs_approval": True} if one.needs_approval else {})


def _operation(data: object, remotes: Mapping[str, Capabilities]) -> PlannedOperation:
    fields = Fields(data, "operation")
    name, remote, request = fields.text("name"), fields.text("remote"), fields.json("request")
    if remote not in remotes:
        fields.refuse("remote", f"one of {', '.join(remotes)}", remote)
    undo_request = fields.json("undo_request") if "undo_request" in fields.names() else None
    needs_approval = fields.flag("needs_approval") if "needs_approval" in fields.names() else False
    fields.end()
    return PlannedOperation(name, remote, request, undo_request, needs_approval)


def _program_to_json(program: Any) -> Json:
    return {"policy": program.policy} if isinstance(program, LabWorker) else {"label": plain(label_of(program))}


def _nothing(*_: Any) -> None:
    """Stands in for a program while its set-up is checked."""
