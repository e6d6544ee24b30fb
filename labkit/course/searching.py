"""Trying an answer by search: the explorer looks for the smallest run that breaks it, in a process of its own."""

from __future__ import annotations

import inspect
import pickle
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any
from weakref import WeakKeyDictionary

import cloudpickle
from greenlet import getcurrent, greenlet

from labkit.course.endings import Errors, ending
from labkit.course.hearing import NotAllowed
from labkit.course.story import Step, story_of
from labkit.course.submission import NotAttempted, Submission, Unfit, shortened
from labkit.course.trials import Trial
from labkit.explore.capsule import capsule_of
from labkit.explore.choices import Schedule, ScheduleMismatch
from labkit.explore.exploration import told
from labkit.explore.lives import sleep_here
from labkit.explore.scenario import Played, Scenario
from labkit.explore.search import explore
from labkit.explore.sqlworld import SqlWorld
from labkit.explore.world import TaskWorld
from labkit.runs import Moment, Run, database_view

SHARE_OF_SECONDS = 0.8
"""Of those of a check: a search that is slow ends by itself and says so, before it is taken for one without an end."""

NOT_THE_SAME = (
    "the same run went another way when it was played again. Does what your code does hang on random numbers, on the "
    "machine's clock, or on what a module keeps in memory?"
)

NOT_ALLOWED = "not allowed  <- WRONG"
TOO_SLOW = (
    "after {:,} runs the time was up, and no law was broken so far. Is the machine busy, or does each run go on and "
    "on? check(…, seconds=60) waits longer."
)
Answer = Callable[..., Any]


@dataclass(frozen=True)
class Setting:
    """One situation in which an answer is tried.

    Args:
        title: for people, such as `two workers want one task`.
        scenario: makes it of the answer; a function of an importable module.
        surprises: the bound of the search.
        hints: where to look here, by the name of the law that broke; others are the search's.
    """

    title: str
    scenario: Callable[[Answer], Scenario]
    surprises: int = 2
    hints: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Search:
    """Tries an answer in every setting, one after the other, until one breaks it.

    Args:
        settings: the easiest first.
        hints: where to look, by the name of the law that broke.
    """

    settings: tuple[Setting, ...]
    hints: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, submission: Submission) -> Trial:
        """Try an answer.

        Raises:
            NotAttempted: it is the stub.
            Unfit: it could not be tried to the end.
        """
        found: list[dict[str, Any]] = submission.run(
            partial(hunt, self.settings, SHARE_OF_SECONDS * submission.seconds)
        )
        happened = sum((Counter(one["happened"]) for one in found), Counter[str]())
        tried, last = sum(one["schedules"] for one in found), found[-1]
        if last["failure"] is not None:
            return self._broken(tried, dict(happened), last)
        if last["trouble"]:
            raise Unfit(f"{last['title']}: {last['trouble']}")
        shown = (*(f"{one['title']}: {one['summary']}" for one in found), f"what happened in them: {told(happened)}")
        return Trial(True, tried, dict(happened), shown)

    def _broken(self, tried: int, happened: dict[str, int], found: dict[str, Any]) -> Trial:
        failure = found["failure"]
        steps = [Step(**one) for one in failure["steps"]]
        return Trial(
            False,
            tried,
            happened,
            run=f"{found['title']}: {_which(failure['surprises'])}",
            story=story_of(steps, failure["remotes"], failure["real"]),
            law=failure["law"],
            broke=f"{failure['states']} Here: {failure['how']}",
            hint=self._hint(found["title"], failure["law"]),
            capsule=failure["capsule"],
        )

    def _hint(self, title: str, law: str) -> str:
        here = next(one.hints for one in self.settings if one.title == title)
        return here.get(law) or self.hints.get(law, "")


def _which(surprises: Sequence[str]) -> str:
    if not surprises:
        return "it fails even in the quiet run, without any surprise"
    many = "1 surprise" if len(surprises) == 1 else f"{len(surprises)} surprises"
    return f"the smallest run that breaks it has {many} ({', '.join(surprises)})"


def hunt(settings: Sequence[Setting], seconds: float, answer: Answer) -> list[dict[str, Any]]:
    """Search every setting until one breaks the answer; this is what runs in the child process.

    Args:
        settings: where the answer is tried.
        seconds: how long; a kill switch.
        answer: the student's function.

    Returns:
        For each setting that was searched what it came to, as JSON.

    Raises:
        NotAttempted: the answer is the stub.
    """
    found = []
    deadline = time.monotonic() + seconds
    parcel = cloudpickle.dumps(answer)
    _sleep_on_the_clock_of_the_run()
    for setting in settings:
        reached: list[bool] = []
        scenario = setting.scenario(_of_each_life(answer, parcel, reached))
        shown = explore(scenario, setting.surprises, max_seconds=max(0.0, deadline - time.monotonic()))
        if reached and not shown.passed:
            raise NotAttempted
        failure = None if shown.failure is None else _failure(scenario, shown.failure.schedule, answer)
        trouble = "" if shown.passed or failure else f"{shown.summary}."
        if shown.cut_short.startswith("stopped after"):
            trouble = TOO_SLOW.format(shown.schedules)
        if "not the same on every run" in trouble or (shown.failure is not None and failure is None):
            trouble = NOT_THE_SAME
        found.append(
            {
                "title": setting.title,
                "summary": shown.summary if scenario.allowed else "the quiet run keeps every law",
                "schedules": shown.schedules,
                "happened": dict(shown.happened),
                "failure": failure,
                "trouble": trouble,
            }
        )
        if not shown.passed:
            break
    return found


def _sleep_on_the_clock_of_the_run() -> None:
    """Let `time.sleep` in a worker hand over to the others: nobody could move while the whole process sleeps."""
    really = time.sleep

    def sleep(seconds: Any) -> None:
        if not sleep_here(seconds):
            really(seconds)

    time.sleep = sleep


def _of_each_life(answer: Answer, parcel: bytes, reached: list[bool]) -> Answer:
    """Give every life a copy of the answer that remembers nothing, as a process of its own would; notice stubs."""
    copies: WeakKeyDictionary[greenlet, Answer] = WeakKeyDictionary()

    @wraps(answer)
    def own(*args: Any, **kwargs: Any) -> Any:
        here = getcurrent()
        if here not in copies:
            random.seed(len(copies))
            copies[here] = pickle.loads(parcel)
        try:
            return copies[here](*args, **kwargs)
        except NotImplementedError:
            reached.append(True)
            raise

    return own


def _failure(scenario: Scenario, schedule: Schedule, answer: Answer) -> dict[str, Any] | None:
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


def as_steps(scenario: Scenario, schedule: Schedule) -> list[Step]:
    """Play a schedule and return what there was to see at every crossing, and at the end."""
    return _watched(scenario, schedule)[1]


def _watched(scenario: Scenario, schedule: Schedule) -> tuple[Played, list[Step], Errors]:
    with closing(scenario.open()) as world:
        played, seen = world.watch(schedule, "")
        moments = seen.moments if isinstance(seen, Run) else seen
        steps = [_step(moment) for moment in moments]
        if isinstance(seen, Run):
            steps = _with_ends(steps, world.ends if isinstance(world, TaskWorld) else [])
            steps.append(Step("", "the end", "", database_view(seen.task), dict(seen.effects)))
        elif isinstance(world, SqlWorld):
            database, ledger = world.last_look()
            steps.append(Step("", "the end", "", database, dict(ledger)))
        errors = world.record().errors if isinstance(world, TaskWorld | SqlWorld) else ()
        return played, steps, tuple(errors.items() if isinstance(errors, Mapping) else errors)


def _with_ends(steps: list[Step], ends: Sequence[tuple[int, str, BaseException]]) -> list[Step]:
    """Add a step wherever a worker ended with an error; what was not allowed is told as the call that it was."""
    told = list(steps)
    for place, worker, error in reversed(ends):
        before = steps[place - 1]
        point = (error.call if isinstance(error, NotAllowed) else "") or f"end {worker}"
        believes = NOT_ALLOWED if isinstance(error, NotAllowed) else type(error).__name__
        told.insert(place, Step(worker, point, believes, before.database, before.ledger))
    return told


def _until_stopped(steps: list[Step], played: Played) -> list[Step]:
    """The steps up to the call that was not allowed, if that is what broke the law: what follows explains nothing."""
    worker = played.how.partition(" ")[0]
    stops = (n for n, one in enumerate(steps, start=1) if one.believes == NOT_ALLOWED and one.worker == worker)
    return steps[: next(stops, None)]


def _step(moment: Moment) -> Step:
    return Step(
        moment.worker, moment.point, moment.believes, moment.database, dict(moment.ledger), moment.fault, moment.broken
    )


def _sentence(law: Callable[..., str]) -> str:
    return (inspect.getdoc(law) or law.__name__).split("\n")[0]
