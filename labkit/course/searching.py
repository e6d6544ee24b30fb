"""Trying an answer by search: the explorer looks for the smallest run that breaks it, in a process of its own."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import update_wrapper
from itertools import dropwhile, takewhile
from typing import Any

from labkit.course.hints import EVERYWHERE, LOOKED
from labkit.course.story import BEFORE, StoryStep, story_of
from labkit.course.submission import NotAttempted, Submission, Unfit
from labkit.course.trials import Trial
from labkit.course.watching import failure_of
from labkit.explore.exploration import Exploration, told
from labkit.explore.lives import sleep_here, worker_here
from labkit.explore.scenario import Scenario
from labkit.explore.search import explore

SHARE_OF_SECONDS = 0.8
"""Of those of a check: a search that is slow ends by itself and says so, before it is taken for one without an end."""

RUN_SECONDS = 7.0
"""Of a single run, which takes hundredths of a second. A loop that looks at the world is ended by its bounds before."""

LATE_RUN = f"stopped after {RUN_SECONDS:g} seconds in the middle of a run"
ENDLESS = f"one run went on for {RUN_SECONDS:g} seconds: a loop that never ends?"
NOT_THE_SAME = (
    "the same run went another way when it was played again. Does what your code does hang on random numbers, on the "
    "machine's clock, or on what a module keeps in memory?"
)

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
        hints: where to look here, by the name of the law that broke, or that and words of how: `law: words`; others
            are the search's.
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
        hints: where to look, as in a setting.
    """

    settings: tuple[Setting, ...]
    hints: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, submission: Submission) -> Trial:
        """Try an answer.

        Raises:
            NotAttempted: it is the stub.
            Unfit: it could not be tried to the end.
        """
        found: list[dict[str, Any]] = submission.run(Hunt(self.settings, SHARE_OF_SECONDS * submission.seconds))
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
        steps = [StoryStep(**one) for one in failure["steps"]]
        return Trial(
            False,
            tried,
            happened,
            run=f"{found['title']}: {_which(failure['surprises'])}",
            story=story_of(steps, failure["remotes"], failure["real"]),
            law=failure["law"],
            broke=f"{failure['states']} Here: {failure['how']}",
            hint=self._hint(found["title"], failure["law"], f"{failure['how']} {_clue(steps, failure['how'])}"),
            capsule=failure["capsule"],
        )

    def _hint(self, title: str, law: str, how: str) -> str:
        here = next(one.hints for one in self.settings if one.title == title)
        own = {**self.hints, **here}
        hints = (*own.items(), *EVERYWHERE.items())
        closer = (hint for name, hint in hints if name.startswith(f"{law}: ") and name[len(law) + 2 :] in how)
        return next(closer, "") or own.get(law) or EVERYWHERE.get(law, "")


def _clue(steps: Sequence[StoryStep], how: str) -> str:
    """`LOOKED` where the worker that broke the law read right before it wrote, and was not the only one to write."""
    wrong = next((number for number, step in enumerate(steps) if step.broken), len(steps))
    workers = [step.worker for step in steps[:wrong]]
    named = how.partition(" ")[0]
    who = named if named in workers else next(reversed(workers), "")  # else whoever has moved last
    own = [step.point for step in steps[:wrong] if step.worker == who]
    statements = [point.removeprefix(BEFORE).partition(" ")[0] for point in takewhile(_is_sql, reversed(own))]
    before = list(dropwhile(lambda word: word in ("COMMIT", "UPDATE"), statements))
    return LOOKED if before[:1] == ["SELECT"] and "UPDATE" in statements else ""


def _is_sql(point: str) -> bool:
    return point.startswith(BEFORE) and point.removeprefix(BEFORE).partition(" ")[0].isupper()


def _which(surprises: Sequence[str]) -> str:
    if not surprises:
        return "it fails even in the quiet run, without any surprise"
    many = "1 surprise" if len(surprises) == 1 else f"{len(surprises)} surprises"
    return f"the smallest run that breaks it has {many} ({', '.join(surprises)})"


_SPENT: list[float] = []
"""Seconds of this process that a look at the quiet run has taken; they are those of the search."""

_ENDLESS: list[str] = []
"""The title of the setting whose quiet run was seen not to end."""


@dataclass(frozen=True)
class Hunt:
    """The search on its way to a process of its own; for the arguments see `hunt`."""

    settings: Sequence[Setting]
    seconds: float

    def __call__(self, answer: Answer) -> list[dict[str, Any]]:
        """Search every setting until one breaks the answer.

        Raises:
            Unfit: the quiet run does not end.
        """
        if _ENDLESS:
            raise Unfit(f"{_ENDLESS[0]}: {ENDLESS}")
        return hunt(self.settings, max(0.0, self.seconds - sum(_SPENT)), answer)

    def goes_well(self, answer: Answer) -> bool:
        """Whether the quiet run of the first setting keeps every law."""
        began = time.monotonic()
        found = explore(self.settings[0].scenario(answer), 0, max_run_seconds=RUN_SECONDS)
        _SPENT.append(time.monotonic() - began)
        if found.cut_short.startswith("stopped after"):
            _ENDLESS.append(self.settings[0].title)
        return found.failure is None


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
    _sleep_on_the_clock_of_the_run()
    for setting in settings:
        _STUBS.clear()
        scenario = setting.scenario(_Noticing(answer))
        left = max(0.0, deadline - time.monotonic())
        shown = explore(scenario, setting.surprises, max_seconds=left, max_run_seconds=RUN_SECONDS)
        if _STUBS and not shown.passed:
            raise NotAttempted
        found.append({"title": setting.title, **_told_of(shown, scenario, answer)})
        if not shown.passed:
            break
    return found


def _told_of(shown: Exploration, scenario: Scenario, answer: Answer) -> dict[str, Any]:
    """What the search of one setting came to, as JSON."""
    failure = None if shown.failure is None else failure_of(scenario, shown.failure.schedule, answer)
    trouble = "" if shown.passed or failure else f"{shown.summary}."
    if shown.cut_short.startswith("stopped after"):
        trouble = ENDLESS if shown.cut_short.startswith(LATE_RUN) else TOO_SLOW.format(shown.schedules)
    if "not the same on every run" in trouble or (shown.failure is not None and failure is None):
        trouble = NOT_THE_SAME
    return {
        "summary": shown.summary if scenario.allowed else "the quiet run keeps every law",
        "schedules": shown.schedules,
        "happened": dict(shown.happened),
        "failure": failure,
        "trouble": trouble,
    }


def _sleep_on_the_clock_of_the_run() -> None:
    """Let `time.sleep` in a worker hand over to the others: nobody could move while the whole process sleeps."""
    really = time.sleep

    def sleep(seconds: Any) -> None:
        if not sleep_here(seconds):
            really(seconds)

    time.sleep = sleep


_STUBS: list[str] = []
"""Which workers have reached a stub; here, beside all that is given to each life anew."""


class _Noticing:
    """An answer; each life has its own, as a process would, and the same numbers are drawn at random in every run."""

    def __init__(self, answer: Answer) -> None:
        self._answer, self._begun = answer, False
        update_wrapper(self, answer)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._begun:
            self._begun = True
            random.seed(worker_here())
        try:
            return self._answer(*args, **kwargs)
        except NotImplementedError:
            _STUBS.append(worker_here())
            raise
