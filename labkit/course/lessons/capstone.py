"""Lesson 10: the whole task, over remotes of three kinds; and a law of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from labkit.agent import REMOTES, plan
from labkit.course.asking import ASKING_LAWS, STRICT_LAWS, Gate, listening, opens
from labkit.course.catching import Catch
from labkit.course.exercises import Exercise
from labkit.course.lessons.reconcile import HINTS, INVALID, REFUSED_FOR_GOOD, SAID, finds_it_invalid, forbids
from labkit.course.searching import Answer, Search, Setting
from labkit.course.second_task import LOSING_LAWS, SHARED, TITLE, TwoTasks, due_first
from labkit.exchange import Refusal
from labkit.explore.laws import Law, the_work_is_done
from labkit.explore.record import Record
from labkit.explore.scenario import Scenario
from labkit.explore.world import ALL_SURPRISES, ONE_WORKER, TaskScenario
from labkit.programs import Program
from labkit.records import Operation, Outcome, PlannedOperation
from labkit.remote import Capabilities
from labkit.states import Event
from labkit.store import TaskStore
from labkit.wire import Remote

STEPS: Mapping[str, tuple[int, str]] = {
    "10.1a": (1, "payments alone"),
    "10.1b": (2, "payments and tickets"),
    "10.1c": (3, "payments, tickets and mail"),
}


SHORT_MEMORY_SECONDS = 10.0
"""Of a remote that forgets a key before a dead worker's lease has run out."""

BUSY_SECONDS = 120.0
BUSY = Refusal("overloaded", "transient", 503, BUSY_SECONDS)
VOUCHER = PlannedOperation("voucher", "payments", plan()[0].request)
"""A second operation at payments, whose body looks like the refund's."""


def carrying(steps: int, workers: int, allowed: frozenset[str], answer: Answer) -> TaskScenario:
    """Workers carry the first `steps` operations of the task, each new one by the same function."""
    operations = tuple(plan()[:steps])
    remotes: dict[str, Capabilities] = {one.remote: REMOTES[one.remote] for one in operations}
    return TaskScenario(_carries(answer), operations, remotes, workers, allowed, laws=ASKING_LAWS)


def forgetful(steps: int, answer: Answer) -> Scenario:
    """The same at a remote that soon forgets a key, and says so."""
    carried = carrying(steps, 1, ONE_WORKER, answer)
    can = replace(REMOTES["payments"], key_ttl_seconds=SHORT_MEMORY_SECONDS)
    return replace(carried, remotes={**carried.remotes, "payments": can})


def settling(steps: int, answer: Answer) -> Scenario:
    """The same, and a doubt must be settled by what was said."""
    return replace(carrying(steps, 1, ONE_WORKER, answer), program=_carries(answer, strict=True), laws=STRICT_LAWS)


def two_tasks(steps: int, answer: Answer) -> Scenario:
    """Two tasks look alike; where there is more than one operation, the second has two at payments."""
    carried = carrying(steps, 1, frozenset(), answer)
    second = (carried.operations[0], VOUCHER, *carried.operations[1:]) if steps > 1 else carried.operations

    def carries(task_id: str, store: TaskStore, wires: Mapping[str, Remote]) -> Any:
        return carried.program(due_first(task_id, store), store, wires)

    return TwoTasks(carries, carried.operations, carried.remotes, 1, frozenset(), laws=ASKING_LAWS, second=second)


def cancelled(steps: int, answer: Answer) -> Scenario:
    """Ada may cancel, and a worker may die or hear no answer."""
    return carrying(steps, 1, frozenset({"cancel", "crash", "response_lost"}), answer)


def busy_once(operation: Operation) -> Refusal | None:
    """Refuse the first attempt, and say when to come again."""
    return BUSY if len(operation.attempts) == 1 else None


def comes_when_it_was_told(record: Record) -> str:
    """What a remote refuses for now, with Retry-After, is not tried again before that time."""
    for entry in record.history:
        if entry.event == Event.RETRY_LATER and entry.detail["next_run_at"] < entry.at + BUSY_SECONDS:
            seconds = entry.detail["next_run_at"] - entry.at
            return f"Retry-After was {BUSY_SECONDS:g} s, and it was put off for {seconds:g} s"
    return ""


def refusing(steps: int, gate: Gate, answer: Answer) -> Scenario:
    """The last remote turns requests away."""
    last = plan()[steps - 1].remote

    def at_the_last(operation: Operation) -> Refusal | None:
        return gate(operation) if operation.remote == last else None

    own = (refused_is_on_record, *FOLLOWS[gate])
    laws = {**{law.__name__: law for law in own}, **ASKING_LAWS}
    return replace(carrying(steps, 1, frozenset(), answer), program=_carries(answer, at_the_last), laws=laws)


def refused_is_on_record(record: Record) -> str:
    """What a remote has refused is on record as refused, not as never sent."""
    wrong = next((one for one in record.task.operations[-1].attempts if one.outcome == Outcome.NOT_SENT), None)
    return "" if wrong is None else f"{wrong.request_id} is on record as {wrong.outcome}, and the remote refused it"


FOLLOWS: Mapping[Gate, tuple[Law, ...]] = {
    busy_once: (comes_when_it_was_told, the_work_is_done),
    **{gate: (law,) for gate, law in REFUSED_FOR_GOOD.items()},
}
"""What must come of it that a remote refuses."""


def _carries(answer: Answer, gate: Gate = opens, strict: bool = False) -> Program:
    def carries(task_id: str, store: TaskStore, wires: Mapping[str, Remote]) -> Any:
        asking, overheard = listening(store, wires, gate, strict)
        with asking.to_its_end():
            return answer(task_id, asking, overheard)

    return carries


def _search(steps: int, *more: Setting) -> Search:
    return Search(
        (
            Setting("one worker at a time", partial(carrying, steps, 1, ALL_SURPRISES - {"switch"}), 2),
            Setting(TITLE, partial(two_tasks, steps), 0, dict.fromkeys(LOSING_LAWS, SHARED)),
            *more,
            Setting("two workers at once", partial(carrying, steps, 2, ALL_SURPRISES), 2),
            Setting(
                f"payments remembers a key for {SHORT_MEMORY_SECONDS:g} s", partial(forgetful, steps), 1, FORGOTTEN
            ),
            Setting("what settles a doubt", partial(settling, steps), 1),
            Setting("a remote that is overloaded once", partial(refusing, steps, busy_once), 0),
            Setting("a remote that forbids it", partial(refusing, steps, forbids), 0),
            Setting(INVALID, partial(refusing, steps, finds_it_invalid), 0),
        ),
        {
            **HINTS,
            "comes_when_it_was_told": "next_move knows the remote's wish, retry_after_seconds of the Refused: put the "
            "task off until move.at.",
            "settles_by_what_was_said": SAID,
            "refused_is_on_record": "NotSent and Refused are two errors, and two outcomes: not_sent and refused.",
        },
    )


FORGOTTEN = {
    "no_second_effect": "A key that the remote has forgotten is a new one. How long does this remote remember? Its "
    "capabilities say so, and intend wants to know.",
}
CANCELLED = {
    "settled_in_the_end": "Ada has asked for a cancel, so claim and intend are refused (no cancel requested). Who ends "
    "the task? store.cancel, with the lease, or with the task where it is queued.",
    "bounded": "Ada has asked for a cancel, so claim and intend are refused, again and again. See store.cancel.",
}
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
            ".key_ttl_seconds), send(..., key=id), settle(lease, id, True, 'key', reference). On ConditionUnmet: "
            "query; not found: ask. NotSent and Refused while running: as next_move says, retry_later or fail.",
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
        _search(3, Setting("a person who cancels", partial(cancelled, 3), 2, CANCELLED)),
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
