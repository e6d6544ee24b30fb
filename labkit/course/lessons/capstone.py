"""Lesson 10: the whole task, over remotes of three kinds; and a law of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from labkit.agent import REMOTES, plan
from labkit.course.asking import ASKING_LAWS, listening
from labkit.course.catching import Catch
from labkit.course.exercises import Exercise
from labkit.course.lessons.reconcile import HINTS
from labkit.course.searching import Answer, Search, Setting
from labkit.explore.scenario import Scenario
from labkit.explore.world import ALL_SURPRISES, TaskScenario
from labkit.remote import Capabilities
from labkit.store import TaskStore
from labkit.wire import Remote

STEPS: Mapping[str, tuple[int, str]] = {
    "10.1a": (1, "payments alone"),
    "10.1b": (2, "payments and tickets"),
    "10.1c": (3, "payments, tickets and mail"),
}


def carrying(steps: int, workers: int, allowed: frozenset[str], answer: Answer) -> Scenario:
    """Workers carry the first `steps` operations of the task, each new one by the same function."""
    operations = tuple(plan()[:steps])
    remotes: dict[str, Capabilities] = {one.remote: REMOTES[one.remote] for one in operations}

    def carries(task_id: str, store: TaskStore, wires: Mapping[str, Remote]) -> Any:
        return answer(task_id, *listening(store, wires))

    return TaskScenario(carries, operations, remotes, workers, allowed, laws=ASKING_LAWS)


def _search(steps: int) -> Search:
    return Search(
        (
            Setting("one worker at a time", partial(carrying, steps, 1, ALL_SURPRISES - {"switch"}), 2),
            Setting("two workers at once", partial(carrying, steps, 2, ALL_SURPRISES), 2),
        ),
        HINTS,
    )


TALL = "Look at operation.remote: what can that remote do? remotes[name].capabilities says."

EXERCISES = (
    Exercise(
        "10.1a",
        f"recover the agent: {STEPS['10.1a'][1]}",
        _search(1),
        (
            "Payments takes keys and answers a query. In doubt, two ways are open: which one is the shorter?",
            "uncertain: intend again (key_memory_seconds says how long the remote remembers) and send under the same "
            "key; an answer settles it. If that is refused by the store, query; if that finds nothing, ask.",
            "Start from your answer to 6.1. In doubt: intend(lease, id, key_memory_seconds=remote.capabilities"
            ".key_ttl_seconds), send(..., key=id), settle(lease, id, True, 'key', reference). On ConditionUnmet: ask.",
        ),
    ),
    Exercise(
        "10.1b",
        f"recover the agent: {STEPS['10.1b'][1]}",
        _search(2),
        (
            TALL,
            "Tickets answers a query and takes no keys: found settles, not found is for a person.",
            "By capability: idempotency_keys: resend under the key; else status_query: query, then ask; else: ask.",
        ),
        seconds=60.0,
    ),
    Exercise(
        "10.1c",
        f"recover the agent: {STEPS['10.1c'][1]}",
        _search(3),
        (
            TALL,
            "Mail does neither: in doubt there is one thing only that you may do.",
            "By capability: idempotency_keys: resend under the key; else status_query: query, then ask; else: ask.",
        ),
        seconds=120.0,
    ),
    Exercise(
        "10.3",
        "catch the bug: a law of your own",
        Catch(),
        (
            "Accept what is right: a run may also end stopped, or with a person asked. What must never be?",
            "Two effects of one operation; an ended task whose record and ledger differ; a task left lying.",
            "Refuse if any count in run.effects is above 1; if run.state is queued, running or uncertain; if the task "
            "has ended and for some operation (status == 'done') != (effects.get(operation_id, 0) == 1).",
        ),
    ),
)
