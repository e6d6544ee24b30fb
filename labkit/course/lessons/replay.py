"""Lesson 05: one key for each operation, and a remote that is tried before it is trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations
from typing import Any

from labkit.course.exercises import Exercise
from labkit.course.key_trials import KeyTrial, Sending, key_of
from labkit.course.laws import in_short
from labkit.course.searching import Answer, Search, Setting
from labkit.course.submission import Submission, shortened
from labkit.course.trials import WIDTH, Trial
from labkit.errors import NotSent, OutcomeUnknown
from labkit.explore.bench import Bench, BenchRun
from labkit.explore.benchworld import BenchScenario
from labkit.explore.scenario import Scenario
from labkit.remote import Capabilities
from labkit.show.tables import TextTable

REAL = "task-1/refund"
"""An operation of a customer's, long done: no probe may touch it."""

LOSSES = frozenset({"refused", "request_lost", "response_lost", "late"})
KINDS: Mapping[str, Capabilities] = {
    "neither keys nor a query": Capabilities(),
    "keys": Capabilities(idempotency_keys=True),
    "a query": Capabilities(status_query=True),
    "both": Capabilities(idempotency_keys=True, status_query=True),
    "keys that it takes and ignores": Capabilities(idempotency_keys=True, keys_ignored=True),
    "a query, and keys that it takes and ignores": Capabilities(
        idempotency_keys=True, keys_ignored=True, status_query=True
    ),
}


def by_all(answer: Answer, sending: Sending) -> Any:
    """Call an answer as exercise 5.1 says."""
    return answer(sending.task_id, sending.operation, sending.attempt, sending.request, sending.now)


_REFUND = {"customer": "Ada", "amount": 40}
APART: tuple[Sending, ...] = (
    Sending("task-1", "refund", 1, _REFUND, 60.0),
    Sending("task-1", "refund", 2, _REFUND, 90_000.0),
    Sending("task-1", "refund_again", 1, _REFUND, 60.0),
    Sending("task-12", "refund", 1, _REFUND, 60.0),
    Sending("task-1", "2refund", 1, _REFUND, 60.0),
    Sending("task-21", "refund", 1, _REFUND, 60.0),
)
"""Sendings that are easily taken for one another: the same body in one task, names that run into each other, the same
letters in another order. The first two are of one operation, a day apart."""


def told_keys(answer: Answer) -> list[str]:
    """Ask an answer for the keys of `APART`."""
    return [key_of(by_all, answer, sending) for sending in APART]


def try_keys(submission: Submission) -> Trial:
    """Run with a student's keys, then compare those of operations that are easily taken for one another."""
    trial = KeyTrial(by_all)(submission)
    if not trial.passed:
        return trial
    keys = submission.run(told_keys)
    for (one, key), (other, its) in combinations(zip(APART, keys, strict=True), 2):
        same = one.operation_id == other.operation_id
        if same == (key == its):
            continue
        law = "one_key_at_any_time" if same else "a_key_for_each_operation"
        rows = tuple(
            (sent.task_id, sent.operation, str(sent.attempt), f"{sent.now:g}", shortened(found, MAX_KEY))
            for sent, found in ((one, key), (other, its))
        )
        return Trial(
            False,
            trial.tried,
            trial.faults,
            run="two sendings side by side",
            story=TextTable(("task_id", "operation", "attempt", "now", "your key"), rows, width=WIDTH),
            law=law,
            broke=KEY_LAWS[law],
            hint=KEY_HINTS[law],
        )
    return trial


MAX_KEY = 40
KEY_LAWS = {
    "one_key_at_any_time": "An operation has one key, on every attempt and on every day.",
    "a_key_for_each_operation": "Two operations never share a key, however much they look alike.",
}
KEY_HINTS = {
    "one_key_at_any_time": "Neither the attempt nor the time may get into it.",
    "a_key_for_each_operation": "Task and name make the operation, and something between them keeps them apart.",
}


def probing(can: Capabilities, allowed: frozenset[str], answer: Answer) -> Scenario:
    """A worker probes a remote once."""

    def probes(db: Any, bench: Bench) -> Any:
        return answer(bench.remotes["payments"])

    laws: dict[str, Callable[[Any], str]] = {
        law.__name__: law for law in (nothing_real_touched, _found_out(can), ends_by_itself)
    }
    applied = (("payments", REAL),)
    return BenchScenario(probes, _nothing, laws, 1, allowed, None, {"payments": can}, applied)


def _nothing(db: Any) -> None:
    """The task store plays no part."""


def _found_out(can: Capabilities) -> Callable[[Any], str]:
    truth = (can.idempotency_keys and not can.keys_ignored, can.status_query)

    def says_what_is_true(run: BenchRun) -> str:
        """What a probe says of a remote is true; where it cannot know, it says nothing."""
        for name, told in run.results.items():
            if not isinstance(told, Capabilities):
                return f"{name} returned an object of type {type(told).__name__}, not Capabilities"
            for what, said, true in (
                ("honours keys", told.idempotency_keys, truth[0]),
                ("answers a query", told.status_query, truth[1]),
            ):
                if said not in (True, False):
                    return f"{name} says that the remote {what}: {in_short(said)}, where True or False is wanted"
                if bool(said) != true:
                    return f"{name} says that the remote {what}: {bool(said)}; that is not true"
        return ""

    return says_what_is_true


def nothing_real_touched(run: BenchRun) -> str:
    """A probe sends operations of its own, never one of a customer's."""
    count = run.effects.get(REAL, 0)
    return "" if count == 1 else f"{REAL} has {count} effects now"


def ends_by_itself(run: BenchRun) -> str:
    """A probe ends by itself, or by an error of the wire where an answer was lost."""
    for name, error in run.errors.items():
        if not _of_the_wire(error):
            return f"{name} ended with {type(error).__name__}: {error}"
    return ""


def _of_the_wire(error: BaseException) -> bool:
    return isinstance(error, NotSent | OutcomeUnknown)


def _setting(title: str, can: Capabilities, allowed: frozenset[str]) -> Setting:
    return Setting(title, partial(probing, can, allowed), 1 if allowed else 0)


EXERCISES = (
    Exercise(
        "5.1",
        "the key of an operation",
        try_keys,
        (
            "Of the five arguments, which are the same on every attempt, at every time, in every process?",
            "Which of those tell two refunds of the same amount to the same customer apart?",
            'Task and name together name the operation: return f"{task_id}/{operation}".',
        ),
    ),
    Exercise(
        "5.2",
        "probe a remote before you trust it",
        Search(
            (
                *(_setting(f"a quiet remote with {kind}", can, frozenset()) for kind, can in KINDS.items()),
                *(_setting(f"a wire that loses, and {kind}", can, LOSSES) for kind, can in KINDS.items()),
            ),
            {
                "says_what_is_true": "A key is honoured if the second sending under it comes back with the first one's "
                "reference. A lost answer proves nothing.",
                "nothing_real_touched": "Name operations of your own, such as probe/1.",
                "ends_by_itself": "A remote without a query answers with Refused; that is an answer too.",
            },
        ),
        (
            "Its manual, remote.capabilities, says what it should do. What can you send to see what it does?",
            "Send one operation twice under one key, with two request ids: are there two effects, or one? "
            "Then ask for an operation that you know.",
            "first = remote.send('probe/1', {}, 'r1', key='probe/1'), second the same with 'r2'; keys are honoured if "
            "second.reference == first.reference. The query: try remote.query('probe/1').found, except Refused: False.",
        ),
    ),
)
