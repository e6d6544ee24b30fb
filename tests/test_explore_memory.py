"""What a program keeps in memory dies with its worker, as it does with a process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from spies import Seen

from labkit.course import searching
from labkit.course.remembering import as_in_a_new_process, containers_of, gone
from labkit.errors import InvalidInput, OutcomeUnknown
from labkit.explore import LabWorker, TaskScenario, explore
from labkit.explore.benchworld import BenchScenario
from labkit.explore.memory import Fresh
from labkit.explore.row_laws import WORKER_LAWS, named
from labkit.explore.sqlworld import SqlScenario
from labkit.remote import Capabilities
from labkit.states import HELD_STATES, State
from labkit.store import TaskStore
from labkit.wire import Remote

KEYS = {"payments": Capabilities(idempotency_keys=True)}
NOTEBOOK = """
KEYS = {}

class Book:
    kept = {}

def recover(task_id, store, remotes):
    sends(task_id, store, remotes, KEYS)

def recover_by_class(task_id, store, remotes):
    sends(task_id, store, remotes, Book.kept)
"""


def sends(task_id: str, store: TaskStore, remotes: Mapping[str, Remote], keys: dict[str, str]) -> None:
    """Recover under the key in memory; where there is none, under a new one."""
    task = store.get(task_id)
    if task.state is State.QUEUED:
        lease = store.claim(task, "me")
    elif task.state in HELD_STATES:
        lease = store.take_over(task, "me")
    else:
        return
    operation = store.get(task_id).next_operation
    if operation is None:
        store.succeed(lease)
        return
    key = keys.setdefault(operation.id, f"{operation.id} at {lease.token}")
    memory = 1e9 if operation.in_doubt else None
    lease, attempt = store.intend(lease, operation.id, key_memory_seconds=memory)
    try:
        receipt = remotes[operation.remote].send(operation.id, operation.request, attempt.request_id, key)
    except OutcomeUnknown:
        store.lose_track(lease, operation.id)
        return
    if operation.in_doubt:
        store.settle(lease, operation.id, True, "key", receipt.reference)
        sends(task_id, store, remotes, keys)
    else:
        store.succeed(store.checkpoint(lease, operation.id, receipt.reference))


def of_a_notebook(name: str) -> Any:
    """A function as a cell defines it: found in no module."""
    found: dict[str, Any] = {"__name__": "__main__", "sends": sends}
    exec(NOTEBOOK, found)
    return found[name]


def in_a_closure() -> Any:
    keys: dict[str, str] = {}
    return lambda task_id, store, remotes: sends(task_id, store, remotes, keys)


class Remembers:
    """An object that can be called, and keeps what it has used."""

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}

    def __call__(self, task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
        sends(task_id, store, remotes, self.keys)


@pytest.mark.parametrize(
    "program",
    [
        of_a_notebook("recover"),
        of_a_notebook("recover_by_class"),
        in_a_closure(),
        Remembers(),
        partial(sends, keys=dict[str, str]()),
    ],
    ids=["a global", "a class", "a closure", "an object", "a partial"],
)
def test_a_key_that_is_kept_in_memory_is_gone_with_its_worker(program: Any) -> None:
    failure = explore(TaskScenario(program, remotes=KEYS, allowed=frozenset({"crash"})), 1).failure
    assert failure is not None
    assert failure.law == "no_second_effect"
    assert failure.schedule[0].point == "send task-1/refund"


def test_the_functions_of_a_session_stay_as_they_are() -> None:
    program = of_a_notebook("recover_by_class")
    explore(TaskScenario(program, remotes=KEYS, allowed=frozenset()), 0)
    assert program.__globals__["Book"].kept == {}
    assert program.__globals__["KEYS"] == {}


def test_a_worker_of_plain_sql_begins_without_memory_too() -> None:
    told: list[int] = Seen()
    calls: list[int] = []

    def counts(db: Any, who: Any) -> None:
        calls.append(1)
        told.append(len(calls))

    explore(SqlScenario(counts, lambda db: None, {}, 3, frozenset()), 0)
    assert told == [1, 1, 1]
    explore(BenchScenario(counts, lambda db: None, {}, 2, frozenset(), due=None), 0)
    assert told == [1, 1, 1, 1, 1]


def test_what_can_be_imported_stays_one_and_so_does_the_labs_worker() -> None:
    worker = LabWorker("same_key")
    assert Fresh(worker)() is worker
    assert Fresh(sends)() is sends
    assert Fresh(in_a_closure())() is not in_a_closure()


def test_a_program_that_cannot_be_given_anew_is_refused_in_words() -> None:
    lock = threading.Lock()

    def program(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
        with lock:
            pass

    with pytest.raises(InvalidInput, match=r"a program that each worker can have for itself.*cannot be copied: "):
        explore(TaskScenario(program))


def test_a_worker_with_an_error_of_the_notebook_is_not_started_for_ever() -> None:
    starts: list[int] = Seen()
    found: dict[str, Any] = {"__name__": "__main__", "starts": starts}
    exec("class Gone(Exception): pass\ndef works(db, bench):\n    starts.append(1)\n    raise Gone('no')\n", found)
    queue = "INSERT INTO tasks (id, kind) VALUES ('task-1', 'refund')"
    scenario = BenchScenario(found["works"], lambda db: db.execute(queue), named(*WORKER_LAWS), 1, frozenset())
    failure = explore(scenario, 0).failure
    assert failure is not None
    assert (failure.law, failure.how) == ("no_worker_breaks", "worker-1 ended with Gone: no")
    assert len(starts) < 6


# What an earlier call in the notebook has left behind.


def scenario_of(answer: Callable[..., Any]) -> TaskScenario:
    def works(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
        answer(task_id, store, remotes)

    return TaskScenario(works, remotes=KEYS, allowed=frozenset({"crash"}))


HUNT = searching.Hunt((searching.Setting("a worker that dies", scenario_of, 1),), 60.0)


def filled(**more: Any) -> Any:
    program = of_a_notebook("recover")
    program.__globals__["KEYS"].update({"task-1/refund": "a key of before"}, **more)
    return program


def test_notes_of_an_earlier_call_are_taken_away_and_the_fault_is_found() -> None:
    assert explore(scenario_of(filled()), 1).passed, "the key is there in every life"
    answer, notes = as_in_a_new_process(filled(), HUNT.goes_well)
    assert notes == ["KEYS"]
    assert gone(notes) == "What it keeps in KEYS is gone with its process, so it began without"
    failure = explore(scenario_of(answer), 1).failure
    assert failure is not None
    assert failure.law == "no_second_effect"


KEPT_IN_A_CELL = """
from uuid import uuid4
from labkit.course import check

KEYS = {}

def operation_id(operation_id, attempt):
    return KEYS.setdefault(operation_id, f"{operation_id} {uuid4()}")

for name in ("task-1/refund", "task-2/refund", "task-1/update_ticket", "task-1/send_email"):
    operation_id(name, 1)
print(check("0.1", operation_id, seconds=60))
"""


def test_a_check_says_what_it_has_taken_away(tmp_path: Path) -> None:
    script = tmp_path / "notebook.py"
    script.write_text(KEPT_IN_A_CELL)
    environment = os.environ | {"LABKIT_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, script], capture_output=True, encoding="utf-8", timeout=120, env=environment)
    assert done.stderr == ""
    assert done.stdout.startswith("exercise 0.1: not passed."), done.stdout
    told = " ".join(done.stdout.split())
    assert "What it keeps in KEYS is gone with its process, so it began without." in told


def test_an_answer_that_a_trial_cannot_do_without_its_tables_keeps_them() -> None:
    found: dict[str, Any] = {"__name__": "__main__"}
    exec("NAMES = {1: 'a'}\ndef answer(number):\n    NAMES[2] = 'b'\n    return NAMES[number]\n", found)

    def goes_well(answer: Callable[..., Any]) -> bool:
        return answer(1) == "a"

    assert as_in_a_new_process(found["answer"], goes_well) == (found["answer"], [])
    assert as_in_a_new_process(found["answer"], lambda answer: answer(2) == "b")[1] == ["NAMES"]


def test_tables_that_an_answer_needs_stay() -> None:
    found: dict[str, Any] = {"__name__": "__main__", "LabWorker": LabWorker, "NOTES": []}
    source = (
        "POLICIES = {'payments': 'same_key'}\n"
        "def recover(task_id, store, remotes):\n"
        "    name = POLICIES['payments']\n"
        "    return LabWorker(name)(task_id, store, remotes)\n"
    )
    exec(source, found)
    assert [name for name, _ in containers_of(found["recover"])] == ["POLICIES"]
    assert as_in_a_new_process(found["recover"], HUNT.goes_well) == (found["recover"], [])
    assert gone([]) == ""


TABLE_OF_A_MODULE = [("claim", "queued")]


def reads_its_module() -> list[tuple[str, str]]:
    return TABLE_OF_A_MODULE


def test_what_a_module_holds_stays_as_its_import_has_made_it() -> None:
    for answer in (reads_its_module, lambda: reads_its_module()):
        assert as_in_a_new_process(answer, lambda tried: bool(tried())) == (answer, [])
    assert TABLE_OF_A_MODULE == [("claim", "queued")]


def test_notes_are_found_behind_helpers_and_in_closures() -> None:
    notes: list[int] = []

    def helps() -> None:
        notes.append(1)

    def answer() -> Callable[[], None]:
        return lambda: helps()

    assert [name for name, _ in containers_of(answer)] == ["notes"]
    assert [name for name, _ in containers_of(cloudpickle.loads(cloudpickle.dumps(answer)))] == ["notes"]


def test_an_answer_that_is_no_plain_function_keeps_nothing_that_is_known() -> None:
    assert list(containers_of(partial(sends, keys={"a": "b"}))) == []
