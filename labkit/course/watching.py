"""Plays a failing schedule once more, and keeps what there was to see: the steps of its story."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from labkit.course.endings import Errors, ending
from labkit.course.hearing import NotAllowed
from labkit.course.story import StoryStep
from labkit.course.submission import shortened
from labkit.explore.capsule import capsule_of
from labkit.explore.choices import Schedule, ScheduleMismatch
from labkit.explore.scenario import Played, Scenario
from labkit.explore.simulation import SimulatedWorld
from labkit.explore.sqlworld import SqlWorld
from labkit.explore.world import TaskWorld
from labkit.runs import Moment, Run

NOT_ALLOWED = "not allowed"
STOPPED = "  <- WRONG"
"""Behind what a worker believes that did what no law lets it do."""

THE_WIRE, ARRIVES = "the wire", "the late request arrives"


def failure_of(scenario: Scenario, schedule: Schedule, answer: Callable[..., Any]) -> dict[str, Any] | None:
    """Play the smallest failing schedule once more and keep what there was to see; None where it fails no more."""
    try:
        played, steps, errors = _watched(scenario, schedule)
    except ScheduleMismatch:
        return None
    if not played.law:
        return None
    law = scenario.laws.get(played.law)
    return {
        "law": played.law,
        "states": "Every run ends." if law is None else _sentence(law),
        "how": f"{shortened(played.how).removesuffix('.')}.{ending(played, errors, answer)}",
        "surprises": [one.choice.replace("_", " ") for one in schedule],
        "steps": [vars(step) for step in _until_stopped(steps, played)],
        "remotes": bool(getattr(scenario, "remotes", None)),
        "real": [operation_id for _, operation_id in getattr(scenario, "applied", ())],
        "capsule": capsule_of(scenario, played).to_json(),
    }


def as_steps(scenario: Scenario, schedule: Schedule) -> list[StoryStep]:
    """Play a schedule and return what there was to see at every crossing, and at the end."""
    return _watched(scenario, schedule)[1]


def _watched(scenario: Scenario, schedule: Schedule) -> tuple[Played, list[StoryStep], Errors]:
    with closing(scenario.open()) as world:
        played, seen = world.watch(schedule, "")
        moments = seen.moments if isinstance(seen, Run) else seen
        lab = world.by_the_lab if isinstance(world, SimulatedWorld) else set()
        steps = [replace(_step(moment), lab=moment.number in lab) for moment in moments]
        if isinstance(world, SimulatedWorld):
            database, ledger = world.last_look()
            steps = _with_ends([*steps, StoryStep("", "the end", "", database, dict(ledger))], world.ends)
        if isinstance(seen, Run):
            steps = _with_arrivals(steps)
        errors = world.record().errors if isinstance(world, TaskWorld | SqlWorld) else ()
        return played, steps, tuple(errors.items() if isinstance(errors, Mapping) else errors)


def _with_ends(steps: list[StoryStep], ends: Sequence[tuple[int, str, BaseException]]) -> list[StoryStep]:
    """Add a step wherever a worker ended with an error; what was not allowed is told as the call that it was."""
    told = list(steps)
    for place, worker, error in reversed(ends):
        before = steps[max(place - 1, 0)] if steps else StoryStep("", "", "", "", {})
        point = (error.call if isinstance(error, NotAllowed) else "") or f"end {worker}"
        believes = shortened(f"{type(error).__name__}: {error}")
        if isinstance(error, NotAllowed):
            own = type(error.__cause__).__name__ if error.__cause__ is not None else NOT_ALLOWED
            believes = f"{own}{STOPPED}"
        told.insert(place, StoryStep(worker, point, believes, before.database, before.ledger))
    return told


def _with_arrivals(steps: list[StoryStep]) -> list[StoryStep]:
    """Add a step wherever something came to stand in a ledger though nobody was sending: it was under way."""
    told: list[StoryStep] = []
    for step in steps:
        if told and step.ledger != told[-1].ledger and not step.point.startswith("send "):
            told.append(StoryStep(THE_WIRE, ARRIVES, "", told[-1].database, step.ledger))
        told.append(step)
    return told


def _until_stopped(steps: list[StoryStep], played: Played) -> list[StoryStep]:
    """The steps up to what was not allowed, by the worker that the law is about if it names one: the rest explains
    nothing."""
    worker = played.how.partition(" ")[0]
    stops = {n: one.worker for n, one in enumerate(steps, start=1) if one.believes.endswith(STOPPED)}
    named = any(one.worker == worker for one in steps)
    return steps[: next((n for n, who in stops.items() if who == worker or not named), None)]


def _step(moment: Moment) -> StoryStep:
    return StoryStep(
        moment.worker, moment.point, moment.believes, moment.database, dict(moment.ledger), moment.fault, moment.broken
    )


def _sentence(law: Callable[..., str]) -> str:
    return (inspect.getdoc(law) or law.__name__).split("\n")[0]
