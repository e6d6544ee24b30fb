"""Lesson 05: one key for each operation, and a remote that is tried before it is trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from labkit.course.exercises import Exercise
from labkit.course.key_trials import KeyTrial
from labkit.course.keys import Asking, KeyedSending
from labkit.course.laws import in_short
from labkit.course.searching import Answer, Search, Setting
from labkit.errors import NotSent, OutcomeUnknown
from labkit.explore.bench import Bench, BenchRun
from labkit.explore.benchworld import BenchScenario
from labkit.explore.scenario import Scenario
from labkit.remote import Capabilities

REAL = "task-1/refund"
"""An operation of a customer's, long done: no probe may touch it. A story marks no other's effects."""

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


NONE, BOTH = KINDS["neither keys nor a query"], KINDS["both"]
QUIET: frozenset[str] = frozenset()


def by_all(answer: Answer, sending: KeyedSending) -> Any:
    """Call an answer as exercise 5.1 says."""
    return answer(sending.task_id, sending.operation, sending.attempt, sending.request, sending.now)


def probing(can: Capabilities, allowed: frozenset[str], answer: Answer, manual: Capabilities | None = None) -> Scenario:
    """A worker probes a remote once; its manual may say another thing."""

    def probes(db: Any, bench: Bench) -> Any:
        remote = bench.remotes["payments"]
        remote.capabilities = manual or can
        return answer(remote)

    applied = (("payments", REAL),)
    return BenchScenario(probes, _nothing, _laws(can), 1, allowed, None, {"payments": can}, applied)


def _nothing(db: Any) -> None:
    """The task store plays no part."""


def returns_capabilities(run: BenchRun) -> str:
    """A probe that comes to its end returns Capabilities."""
    for name, told in run.results.items():
        if not isinstance(told, Capabilities):
            return f"{name} returned an object of type {type(told).__name__}, not Capabilities"
    return ""


def _tells(what: str, told_of: Callable[[Capabilities], object], true: bool) -> Callable[[BenchRun], str]:
    def says_what_is_true(run: BenchRun) -> str:
        """What a probe says of a remote is true; where it cannot know, it says nothing."""
        for name, told in run.results.items():
            said = told_of(told)
            if said not in (True, False):
                return f"{name} says that the remote {what}: {in_short(said)}, where True or False is wanted"
            if bool(said) != true:
                return f"{name} says that the remote {what}: {bool(said)}; that is not true"
        return ""

    return says_what_is_true


def _laws(can: Capabilities) -> dict[str, Callable[[Any], str]]:
    keys = can.idempotency_keys and not can.keys_ignored
    return {
        "nothing_real_touched": nothing_real_touched,
        "returns_capabilities": returns_capabilities,
        "says_what_keys_do": _tells("honours keys", lambda told: told.idempotency_keys, keys),
        "says_what_a_query_does": _tells("answers a query", lambda told: told.status_query, can.status_query),
        "ends_by_itself": ends_by_itself,
    }


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
        KeyTrial(
            Asking(
                by_all,
                ("task_id", "operation", "attempt", "now", "request"),
                {
                    "one_key_at_any_time": "Neither the attempt nor the time may get into it, nor the order of what is "
                    "in the body.",
                    "a_key_for_each_operation": "Task and name make the operation, and something between them keeps "
                    "them apart.",
                },
            )
        ),
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
                Setting(
                    "a quiet remote with both, which its manual denies", partial(probing, BOTH, QUIET, manual=NONE), 0
                ),
                Setting(
                    "a quiet remote with neither, and a manual that promises both",
                    partial(probing, NONE, QUIET, manual=BOTH),
                    0,
                ),
                *(_setting(f"a wire that loses, and {kind}", can, LOSSES) for kind, can in KINDS.items()),
            ),
            {
                "says_what_keys_do": "A key is honoured if the second sending under it comes back with the first one's "
                "reference. A lost answer proves nothing.",
                "says_what_a_query_does": "Ask for an operation that you know to be there. Found: it answers. Refused: "
                "it has no query. A lost answer proves nothing.",
                "returns_capabilities": "return Capabilities(idempotency_keys=..., status_query=...)",
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
