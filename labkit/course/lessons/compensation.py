"""Lesson 09: cancelling stops, compensating makes up, and undo is work of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import permutations, product
from typing import Any

from labkit.agent import plan
from labkit.course.asking import STRICT_LAWS, listening
from labkit.course.exercises import Exercise
from labkit.course.lessons.reconcile import HINTS, SAID
from labkit.course.searching import Answer, Search, Setting
from labkit.course.second_task import LOSING_LAWS, SHARED, TITLE, TwoTasks, due_first
from labkit.course.submission import Submission, Unfit, shortened, told_many
from labkit.course.trials import WIDTH, Trial
from labkit.explore.laws import LAWS
from labkit.explore.lives import lab_works
from labkit.explore.scenario import Scenario
from labkit.explore.world import TaskScenario
from labkit.policies import BY_CAPABILITY
from labkit.remote import Capabilities
from labkit.show.tables import TextTable
from labkit.states import Direction
from labkit.store import TaskStore
from labkit.wire import Remote
from labkit.worker import Worker

Row = dict[str, Any]
MAX_ID = 40
NAMES = ("refund", "update_ticket", "send_email")
ELSEWHERE = ("order", "send_parcel", "book")
BOTH = Capabilities(idempotency_keys=True, status_query=True)


def situations() -> list[list[Row]]:
    """Operations as they may stand when somebody wants them undone, in the order of their rows."""
    found = []
    standings = ("done", "pending", "in doubt")
    for standing in product(standings, repeat=3):
        if standing != tuple(sorted(standing, key=("done", "in doubt", "pending").index)):
            continue  # one after the other: nothing is done behind what is not
        if standing.count("in doubt") > 1:
            continue
        for order in permutations(range(3)):
            found.append([_row(place, standing[place]) for place in order])
    for order in permutations(range(3)):
        found.append([_row_elsewhere(place) for place in order])
    return found


def _row(place: int, standing: str) -> Row:
    return {
        "operation_id": f"task-1/{NAMES[place]}",
        "name": NAMES[place],
        "position": place,
        "status": "done" if standing == "done" else "pending",
        "in_doubt": int(standing == "in doubt"),
        "undo_request": plan()[place].undo_request,
    }


def _row_elsewhere(place: int) -> Row:
    """What is done of another task, whose operations have other names and places; its second cannot be undone."""
    name = ELSEWHERE[place]
    undo_request = None if place == 1 else {"undo": name}
    row = _row(place, "done") | {"operation_id": f"task-20/{name}", "name": name, "position": 3 * place + 2}
    return row | {"undo_request": undo_request}


def right_plan(operations: list[Row]) -> list[tuple[str, Row | None]]:
    """What must be done to make up for what was done; nothing while anything is in doubt."""
    if any(one["in_doubt"] for one in operations):
        return []
    done = sorted((one for one in operations if one["status"] == "done"), key=lambda one: -one["position"])
    return [(f"{one['operation_id']}/undo", one["undo_request"]) for one in done]


def told_plans(answer: Callable[[list[Row]], Any]) -> list[list[tuple[str, Row | None]]]:
    """Ask an answer for its plan in every situation.

    Raises:
        Unfit: it raised something, or returned no list of pairs.
    """
    told = []
    for operations in situations():
        asked = f"With {_standing(operations)} it"
        found = told_many(partial(answer, [dict(one) for one in operations]), asked)
        for one in found:
            if not isinstance(one, tuple | list) or len(one) != 2 or not isinstance(one[0], str):
                raise Unfit(f"{asked} returned something else than pairs (operation id, request or None).")
        told.append([(shortened(str.__str__(one[0]), MAX_ID), one[1]) for one in found])
    return told


def try_plans(submission: Submission) -> Trial:
    """Compare a student's plan with the right one in every situation, the fewest operations first."""
    every = situations()
    told = [[(one[0], one[1]) for one in plan] for plan in submission.run(told_plans)]
    cases = sorted(zip(every, told, strict=True), key=lambda case: len(right_plan(case[0])))
    for tried, (operations, found) in enumerate(cases, start=1):
        broken = _wrong_plan(operations, found)
        if broken is not None:
            law, how = broken
            row = (_standing(operations).replace(", ", "\n"), _listed(found), _listed(right_plan(operations)))
            return Trial(
                False,
                tried,
                run=f"with {_standing(operations)}",
                story=TextTable(("the database says", "your plan", "right"), (row,), width=WIDTH),
                law=law,
                broke=f"{PLAN_LAWS[law]} {how}",
                hint=PLAN_HINTS[law],
            )
    return Trial(True, len(every), shown=(f"{len(every)} situations of three operations, in every order of the rows",))


PLAN_LAWS = {
    "nothing_in_doubt": "While anything is in doubt, nothing is undone.",
    "only_what_was_done": "Only what was done is undone, and all of it is on the list.",
    "undone_in_order": "Last done, first undone.",
    "own_operation_id": "An undo is an operation of its own, with an id of its own.",
    "what_cannot_be_undone": "What cannot be undone stands on the list without a request.",
}
PLAN_HINTS = {
    "nothing_in_doubt": "Settle first: what may yet turn out done would be left out.",
    "only_what_was_done": "Which status has an operation that happened?",
    "undone_in_order": "Sort by position, backwards; rows come in any order.",
    "own_operation_id": "The operation's own id is taken, and so is its key: put /undo behind operation_id (not name).",
    "what_cannot_be_undone": "What cannot be undone goes on the list too, with None for its request.",
}


def _wrong_plan(operations: list[Row], found: list[tuple[str, Row | None]]) -> tuple[str, str] | None:
    right = right_plan(operations)
    if found == right:
        return None
    if found and any(one["in_doubt"] for one in operations):
        return "nothing_in_doubt", f"{found[0][0]} is planned all the same."
    ids = [one["operation_id"] for one in operations]
    strange = next((name for name, _ in found if _undone(name) not in ids), None)
    if strange is not None:
        return "own_operation_id", f"{strange} is planned; {ids[0]}/undo is such an id."
    left_out = [name for name, request in right if request is None and name not in dict(found)]
    if left_out and found == [one for one in right if one[1] is not None]:
        return "what_cannot_be_undone", f"{left_out[0]} is not on it."
    if sorted(_undone(name) for name, _ in found) != sorted(_undone(name) for name, _ in right):
        return "only_what_was_done", f"{len(found)} are planned, and {len(right)} were done."
    if [_undone(name) for name, _ in found] != [_undone(name) for name, _ in right]:
        return "undone_in_order", f"{found[0][0]} comes first."
    own = next((name for (name, _), (wanted, _) in zip(found, right, strict=True) if name != wanted), None)
    if own is not None:
        return "own_operation_id", f"{own} is planned; {_undone(own)}/undo is its id."
    name, request = next(one for one, wanted in zip(found, right, strict=True) if one != wanted)
    return "what_cannot_be_undone", f"{name} has the request {shortened(repr(request))}."


def _undone(operation_id: str) -> str:
    return "/".join(operation_id.split("/")[:2])


def _standing(operations: list[Row]) -> str:
    words = ("in doubt" if one["in_doubt"] else one["status"] for one in operations)
    return ", ".join(f"{one['name']} {word}" for one, word in zip(operations, words, strict=True))


def _listed(pairs: list[tuple[str, Row | None]]) -> str:
    return "\n".join(f"{name}: {'None' if request is None else 'a request'}" for name, request in pairs) or "nothing"


def compensating(allowed: frozenset[str], answer: Answer, strict: bool = False) -> TaskScenario:
    """The lab's worker carries out the task; once a person wants it undone, a student's function takes over.

    Where it is `strict`, what goes on record must be what was said.
    """

    def works(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> Any:
        if store.get(task_id).direction is Direction.UNDO:
            return answer(task_id, *(listening(store, remotes, strict=True) if strict else (store, remotes)))
        with lab_works():
            return Worker(store, remotes, BY_CAPABILITY, talks=False).run(task_id)

    operations = tuple(plan()[:2])
    remotes = {one.remote: BOTH for one in operations}
    laws = STRICT_LAWS if strict else LAWS
    return TaskScenario(works, operations, remotes, allowed=allowed, compensate=True, laws=laws)


def forgetful(answer: Answer) -> Scenario:
    """The same at remotes that soon forget a key, and say so."""
    can = replace(BOTH, key_ttl_seconds=SHORT_MEMORY_SECONDS)
    carried = compensating(FORGETTING, answer)
    return replace(carried, remotes=dict.fromkeys(carried.remotes, can))


def two_tasks(answer: Answer) -> Scenario:
    """Two tasks are to be undone, each with two operations at one remote."""

    def works(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> Any:
        return answer(due_first(task_id, store), store, remotes)

    refund = plan()[0]
    twice = (refund, replace(refund, name="voucher"))
    return TwoTasks(works, twice, {refund.remote: BOTH}, 1, frozenset(), laws=LAWS, second=twice, undo=True)


SHORT_MEMORY_SECONDS = 10.0
FORGETTING = frozenset({"cancel", "late"})
UNDOING = frozenset({"cancel", "crash"})
LOSING = frozenset({"cancel", "refused", "request_lost", "response_lost", "late"})
DOUBTING = frozenset({"cancel", "response_lost"})

FORGOTTEN = {
    "no_second_effect": "A key that the remote has forgotten is a new one. How long does this remote remember? Its "
    "capabilities say so, and intend wants to know.",
    "settled_in_the_end": "The store lets nothing be sent again that the remote may have forgotten (ConditionUnmet). "
    "Who can tell then? See ask.",
}

EXERCISES = (
    Exercise(
        "9.1",
        "a plan for undoing",
        try_plans,
        (
            "Which operations are on the list, and in which order? What of one that cannot be undone?",
            "Done ones, sorted by position backwards, each as (operation_id + '/undo', undo_request).",
            "if any(one['in_doubt'] ...): return []; done = sorted(those that are done, key=position, reverse=True); "
            "return [(one['operation_id'] + '/undo', one['undo_request']) for one in done].",
        ),
    ),
    Exercise(
        "9.2",
        "compensate, crash or no crash",
        Search(
            (
                Setting("a cancel, and workers that die", partial(compensating, UNDOING), 2),
                Setting("a cancel, and a wire that loses", partial(compensating, LOSING), 2),
                Setting("what goes on record", partial(compensating, DOUBTING, strict=True), 2),
                Setting(f"remotes that remember a key for {SHORT_MEMORY_SECONDS:g} s", forgetful, 2, FORGOTTEN),
                Setting(TITLE, two_tasks, 0, dict.fromkeys(LOSING_LAWS, SHARED)),
            ),
            {
                **HINTS,
                "settles_by_what_was_said": SAID,
                "undone_in_order": "Take task.next_operation: the plan is in its order already.",
                "no_second_effect": "The same undo was sent twice. Its own operation id is its key: was it sent along?",
                "settled_in_the_end": "The task is left lying. What must the next worker do about this state? Has the "
                "remote refused something, and why? When all is undone, compensated ends the task.",
                "a_cancel_reverses_nothing": "Only a person asks for what is done to be undone.",
            },
        ),
        (
            "An undo is an operation like any other: intent, sending under its own key, checkpoint; it can crash too.",
            "queued: claim; running or uncertain: take_over. In doubt: intend again and send under the same key, "
            "then settle. Nothing left: store.compensated(lease).",
            "Loop: operation = store.get(task_id).next_operation; None: compensated. intend, remotes[operation.remote]"
            ".send(operation.id, operation.request, attempt.request_id, operation.id), checkpoint. OutcomeUnknown: "
            "lose_track, then intend(lease, id, key_memory_seconds=remotes[operation.remote].capabilities"
            ".key_ttl_seconds), send, settle(lease, id, True, 'key', receipt.reference). Where that intend is refused "
            "(ConditionUnmet): ask(lease, reason, 3600).",
        ),
        seconds=30.0,
    ),
)
