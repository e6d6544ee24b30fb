"""The store as a whole: queueing, reading, history, transcript, outbox, crash points, and its tables in plain SQL."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from stage import FIRST, ID, LEASE_SECONDS, PLAN, SECOND, Stage

from labkit.acquiring import _CANDIDATES
from labkit.database import Database
from labkit.errors import InvalidInput, SimulatedCrash, StaleVersion, TaskExists, UnknownTask
from labkit.records import Announcement, Message, OutboxMessage, Outcome, PlannedOperation, Task
from labkit.remote import LEDGER, RemoteService
from labkit.retries import Budget, Category
from labkit.seams import ManualClock, Point, crash_at
from labkit.states import Direction, Event, State
from labkit.store import SCHEMA, TaskStore

# Queueing


def test_a_task_is_queued_with_all_that_later_workers_need(stage: Stage) -> None:
    task = stage.queued(kind="refund order", budget=Budget(3, 60), next_run_at=1005)
    assert (task.id, task.kind, task.state, task.version, task.direction) == (
        ID,
        "refund order",
        State.QUEUED,
        1,
        Direction.DO,
    )
    assert (task.max_attempts, task.max_seconds, task.next_run_at, task.created_at) == (3, 60.0, 1005.0, 1000.0)
    assert [(one.id, one.remote, one.request, one.undo_request) for one in task.operations] == [
        (FIRST, "payments", {"amount": 40}, {"amount": -40}),
        (SECOND, "mail", {"text": "We have refunded 40 euros."}, None),
    ]
    (line,) = stage.store.history(ID)
    assert (line.event, line.source, line.target, line.version, line.token) == ("enqueue", None, "queued", 1, 0)


def test_queueing_the_same_task_again_is_harmless_whatever_has_become_of_it(stage: Stage) -> None:
    lease = stage.running()
    before = stage.rows()
    assert stage.queued(budget=Budget(9, 9), next_run_at=1).version == lease.version
    assert stage.rows() == before


def test_queueing_again_after_compensation_still_finds_the_same_task(stage: Stage) -> None:
    task = stage.compensated()
    assert stage.queued() == task


@pytest.mark.parametrize(
    ("plan", "kind"),
    [
        (PLAN[:1], "refund"),
        (PLAN[::-1], "refund"),
        ((PlannedOperation("refund", "payments", {"amount": 41}, {"amount": -40}), PLAN[1]), "refund"),
        ((PlannedOperation("refund", "payments", {"amount": 40}), PLAN[1]), "refund"),
        ((PlannedOperation("refund", "tickets", {"amount": 40}, {"amount": -40}), PLAN[1]), "refund"),
        ((PlannedOperation("refund", "payments", {"amount": 40}, {"amount": -40}, True), PLAN[1]), "refund"),
        (PLAN, "another kind"),
    ],
)
def test_another_task_under_the_same_id_is_refused(plan: tuple[PlannedOperation, ...], kind: str, stage: Stage) -> None:
    stage.queued()
    before = stage.rows()
    with pytest.raises(TaskExists) as refused:
        stage.queued(plan, kind=kind)
    assert (refused.value.event, refused.value.task_id) == ("enqueue", ID)
    assert refused.value.found == "refund ['refund', 'send_email']"
    assert stage.rows() == before


BAD_NAMES: list[object] = ["", "a\x00b", "two\nlines", "\ud800", "x" * 201, None, 7, b"bytes"]


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda one: ascii(one)[:12])
def test_what_cannot_name_anything_is_refused_and_nothing_is_written(name: Any, stage: Stage) -> None:
    before = stage.rows()
    for call in (
        lambda: stage.store.enqueue(name, PLAN),
        lambda: stage.queued(kind=name),
        lambda: stage.queued((PlannedOperation(name, "payments", {}),)),
        lambda: stage.queued((PlannedOperation("refund", name, {}),)),
    ):
        with pytest.raises(InvalidInput, match="1 to 200 printable characters"):
            call()
    assert stage.rows() == before


ODD_NAMES = ["O'Brien \"; DROP TABLE tasks; --", "rückerstattung 💶", "%s {} :id ?1 [a] `b`", "x" * 200, " ", "#@:\\"]


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_odd_names_are_only_names(name: str, stage: Stage) -> None:
    plan = (PlannedOperation(name, name, {name: name}, {name: name}),)
    lease = stage.store.claim(stage.store.enqueue(name, plan, kind=name), name)
    operation = f"{name}/{name}"
    lease, attempt = stage.store.intend(lease, operation)
    lease = stage.store.checkpoint(lease, operation, name, Announcement(name, {name: name}))
    stage.store.fail(lease, Category.INVALID)
    stage.store.compensate(stage.store.get(name), name)
    task = stage.store.get(name)
    assert (task.id, task.kind, task.operations[0].name, task.operations[0].result_ref) == (name, name, name, name)
    assert (attempt.request_id, task.operations[1].id) == (f"{operation}#1", f"{operation}/undo")
    assert stage.store.undelivered()[0].payload == {name: name}
    assert stage.store.history(name)[-1].detail == {"who": name}


@pytest.mark.parametrize("operations", ["refund", 5, None, {"refund": 1}, ["refund"], [("refund", "payments", {})]])
def test_a_plan_is_a_list_of_planned_operations(operations: object, stage: Stage) -> None:
    with pytest.raises(InvalidInput, match="a list of PlannedOperation"):
        stage.store.enqueue(ID, operations)  # type: ignore[arg-type]
    assert stage.store.tasks() == []


@pytest.mark.parametrize("wanted", ["no", 1, None])
def test_an_approval_is_needed_or_not(wanted: object, stage: Stage) -> None:
    with pytest.raises(InvalidInput, match="needs_approval: True or False"):
        stage.queued((PlannedOperation("refund", "payments", {}, needs_approval=wanted),))  # type: ignore[arg-type]
    assert stage.store.tasks() == []


def test_a_file_that_is_open_with_other_tables_is_no_store_and_no_ledger(tmp_path: Path) -> None:
    tasks = Database(tmp_path / "tasks.sqlite", SCHEMA, "OFF")
    ledger = Database(tmp_path / "ledger.sqlite", LEDGER, "OFF")
    with pytest.raises(InvalidInput, match=r"schema\.sql, found .*ledger\.sql"):
        TaskStore(ledger)
    with pytest.raises(InvalidInput, match=r"ledger\.sql, found .*schema\.sql"):
        RemoteService(tasks, "payments")
    tasks.close()
    ledger.close()


def test_names_of_operations_are_unique_within_a_task_only(stage: Stage) -> None:
    with pytest.raises(InvalidInput, match="operation names unique within the task"):
        stage.queued((PLAN[0], PLAN[0]))
    stage.store.enqueue("task-1", PLAN)
    stage.store.enqueue("task-2", PLAN)
    assert [task.id for task in stage.store.tasks()] == ["task-1", "task-2"]


@pytest.mark.parametrize(
    "request_body",
    [{"a": float("nan")}, {"a": float("inf")}, {"a": {1, 2}}, {"a": "\ud800"}, {("a",): 1}, ["list"], "text", None],
    ids=ascii,
)
def test_a_request_that_json_cannot_hold_is_refused(request_body: Any, stage: Stage) -> None:
    before = stage.rows()
    for operation in (
        PlannedOperation("refund", "payments", request_body),
        PlannedOperation("refund", "payments", {}, undo_request=request_body or [1]),
    ):
        with pytest.raises(InvalidInput):
            stage.queued((operation,))
    assert stage.rows() == before


def test_a_request_that_contains_itself_is_refused(stage: Stage) -> None:
    loop: dict[str, Any] = {}
    loop["again"] = loop
    with pytest.raises(InvalidInput, match="a value that JSON can hold"):
        stage.queued((PlannedOperation("refund", "payments", loop),))


def test_ten_megabytes_are_no_trouble(stage: Stage) -> None:
    text = "ä€💶x" * 1_000_000
    stage.queued((PlannedOperation("refund", "payments", {"text": text}),))
    assert stage.task.operations[0].request == {"text": text}
    lease, _ = stage.store.intend(stage.store.claim(stage.task, "worker-1"), FIRST)
    stage.store.checkpoint(lease, FIRST, text, Announcement("refunded", {"text": text}))
    assert stage.task.operations[0].result_ref == text


@pytest.mark.parametrize("at", [float("nan"), float("inf"), "now", True])
def test_a_task_is_due_at_a_finite_number(at: Any, stage: Stage) -> None:
    with pytest.raises(InvalidInput, match="next_run_at"):
        stage.queued(next_run_at=at)


# Reading


def test_a_task_that_does_not_exist_is_unknown(stage: Stage) -> None:
    for call in (lambda: stage.store.get("nobody"), lambda: stage.store.say("nobody", "user", {})):
        with pytest.raises(UnknownTask) as refused:
            call()
        assert (refused.value.task_id, refused.value.found) == ("nobody", "none")
    assert stage.store.history("nobody") == []
    assert stage.store.transcript("nobody") == []


def test_every_way_of_reading_a_task_gives_the_same_whole_task(stage: Stage) -> None:
    """A reading without its operations would hide a doubt."""
    task = stage.awaiting_doubt()
    stage.clock.advance(60)
    assert stage.store.tasks() == stage.store.tasks(State.AWAITING_CONFIRMATION) == stage.store.overdue() == [task]
    assert task.in_doubt is task.operations[0]
    assert stage.store.tasks(State.QUEUED) == []


def test_tasks_come_by_id_in_whatever_order_they_were_queued(stage: Stage) -> None:
    for task_id in ("b", "c", "a"):
        stage.store.enqueue(task_id, PLAN)
    assert [task.id for task in stage.store.tasks()] == ["a", "b", "c"]
    assert [task.id for task in stage.store.tasks(State.QUEUED)] == ["a", "b", "c"]


def test_tasks_of_a_state_that_does_not_exist_are_no_input(stage: Stage) -> None:
    with pytest.raises(InvalidInput, match="one of queued, running"):
        stage.store.tasks("done")  # type: ignore[arg-type]


def test_a_second_store_on_the_same_file_sees_every_change_at_once(stage: Stage, tmp_path: Path) -> None:
    with TaskStore(tmp_path / "tasks.sqlite", stage.clock) as other:
        task = stage.queued()
        assert other.get(ID) == task
        other.claim(task, "worker-2")
        assert stage.task.state is State.RUNNING


# History and transcript


def test_history_is_append_only(stage: Stage) -> None:
    stage.succeeded()
    before = stage.rows()
    for statement in ("UPDATE events SET detail = '{}' WHERE seq = 1", "DELETE FROM events"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            stage.sql(statement)
    assert stage.rows() == before


def test_history_tells_a_run_line_by_line(stage: Stage) -> None:
    stage.succeeded()
    assert [(line.event, line.source, line.target, line.version, line.worker) for line in stage.store.history(ID)] == [
        ("enqueue", None, "queued", 1, None),
        ("claim", "queued", "running", 2, "worker-1"),
        ("intend", "running", "running", 3, "worker-1"),
        ("checkpoint", "running", "running", 4, "worker-1"),
        ("intend", "running", "running", 5, "worker-1"),
        ("checkpoint", "running", "running", 6, "worker-1"),
        ("succeed", "running", "succeeded", 7, "worker-1"),
    ]


def test_who_asked_for_a_cancel_is_the_person_and_not_the_holder(stage: Stage) -> None:
    stage.running()
    stage.store.request_cancel(ID, "Ada")
    line = stage.store.history(ID)[-1]
    assert (line.worker, line.detail) == (None, {"who": "Ada"})


def test_the_transcript_is_numbered_and_kept_apart_from_state(stage: Stage) -> None:
    stage.queued()
    before = stage.rows()
    said = [stage.store.say(ID, role, {"text": role}) for role in ("user", "assistant")]
    assert (
        said
        == stage.store.transcript(ID)
        == [Message(1, "user", {"text": "user"}), Message(2, "assistant", {"text": "assistant"})]
    )
    after = stage.rows()
    assert {name for name in after if after[name] != before[name]} == {"messages"}


def test_each_task_s_transcript_is_numbered_by_itself(stage: Stage) -> None:
    for task_id in (ID, "task-2"):
        stage.store.enqueue(task_id, PLAN)
        assert [stage.store.say(task_id, "user", {}).number for _ in range(2)] == [1, 2]


@pytest.mark.parametrize(("role", "content"), [("", {}), ("user", {"x": float("nan")}), ("user", "text")])
def test_a_line_of_the_transcript_has_a_role_and_a_json_object(role: str, content: Any, stage: Stage) -> None:
    stage.queued()
    with pytest.raises(InvalidInput):
        stage.store.say(ID, role, content)
    assert stage.store.transcript(ID) == []


# Outbox


def announced(stage: Stage) -> list[str]:
    """Two messages on their way."""
    lease = stage.store.checkpoint(stage.sent(), FIRST, "payments-1", Announcement("refunded", {"n": 1}))
    stage.store.fail(lease, Category.INVALID, announce=Announcement("failed", {"n": 2}))
    return [message.id for message in stage.store.undelivered()]


ANNOUNCING: dict[str, Callable[[Stage, Announcement], object]] = {
    "checkpoint": lambda s, a: s.store.checkpoint(s.sent(), FIRST, "payments-1", a),
    "settle": lambda s, a: s.store.settle(s.uncertain(), FIRST, True, "status query", "payments-1", a),
    "ask": lambda s, a: s.store.ask(s.uncertain(), "the outcome is unknown", 60, a),
    "expire": lambda s, a: (s.awaiting_approval(), s.clock.advance(60), s.store.expire(s.task, a)),
    "cancel": lambda s, a: (s.queued(), s.store.request_cancel(ID, "Ada"), s.store.cancel(s.task, a)),
    "succeed": lambda s, a: s.store.succeed(s.all_done(), a),
    "fail": lambda s, a: s.store.fail(s.running(), Category.INVALID, announce=a),
    "compensated": lambda s, a: s.store.compensated(s.all_undone(), a),
}


@pytest.mark.parametrize("event", ANNOUNCING)
def test_a_message_is_written_in_the_transaction_of_its_change(event: str, stage: Stage) -> None:
    ANNOUNCING[event](stage, Announcement("news", {"n": 1}))
    line = stage.store.history(ID)[-1]
    assert line.event == event
    assert stage.store.undelivered() == [
        OutboxMessage(f"{ID}@{line.version}", ID, "news", {"n": 1}, stage.clock.now(), 0, None)
    ]


def test_a_message_is_rolled_back_with_its_change(stage: Stage) -> None:
    lease = stage.sent()
    stage.sql("CREATE TRIGGER broken BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'broken'); END")
    with pytest.raises(sqlite3.IntegrityError):
        stage.store.checkpoint(lease, FIRST, "payments-1", Announcement("refunded", {}))
    assert stage.store.undelivered() == []


def test_messages_are_delivered_in_the_order_of_their_changes_and_only_once_on_a_quiet_day(stage: Stage) -> None:
    ids = announced(stage)
    seen: list[str] = []
    assert stage.store.relay(lambda message: seen.append(message.id)) == 2
    assert seen == ids == [f"{ID}@4", f"{ID}@5"]
    assert stage.store.relay(lambda message: seen.append(message.id)) == 0
    assert stage.store.undelivered() == []
    rows = stage.sql("SELECT deliveries, delivered_at FROM outbox ORDER BY seq")
    assert rows == [(1, 1000.0), (1, 1000.0)]


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_a_relay_hands_over_as_many_as_it_was_told(limit: int, stage: Stage) -> None:
    ids = announced(stage)
    seen: list[str] = []
    assert stage.store.relay(lambda message: seen.append(message.id), limit) == min(limit, 2)
    assert seen == ids[:limit]
    assert [message.id for message in stage.store.undelivered()] == ids[limit:]


def test_a_crash_between_handing_over_and_marking_delivers_that_message_again_under_its_id(
    stage: Stage, tmp_path: Path
) -> None:
    ids = announced(stage)
    seen: list[OutboxMessage] = []
    dying = TaskStore(tmp_path / "tasks.sqlite", stage.clock, crash_at(f"publish {ids[0]}"))
    with pytest.raises(SimulatedCrash), dying:
        dying.relay(seen.append)
    assert stage.store.relay(seen.append) == 2
    assert [message.id for message in seen] == [ids[0], *ids]
    assert seen[0] == seen[1]


def test_a_crash_after_marking_delivers_no_message_again(stage: Stage, tmp_path: Path) -> None:
    ids = announced(stage)
    seen: list[str] = []
    dying = TaskStore(tmp_path / "tasks.sqlite", stage.clock, crash_at(f"mark_delivered {ids[0]}"))
    with pytest.raises(SimulatedCrash), dying:
        dying.relay(lambda message: seen.append(message.id))
    assert stage.store.relay(lambda message: seen.append(message.id)) == 1
    assert seen == ids


def test_a_message_that_cannot_be_handed_over_stays_and_so_do_those_behind_it(stage: Stage) -> None:
    ids = announced(stage)

    def broken(message: OutboxMessage) -> None:
        raise ConnectionError(message.id)

    with pytest.raises(ConnectionError, match=ids[0]):
        stage.store.relay(broken)
    assert [message.id for message in stage.store.undelivered()] == ids


def test_two_relays_at_once_deliver_twice_and_the_first_time_stays_on_record(stage: Stage) -> None:
    announced(stage)

    def meanwhile(message: OutboxMessage) -> None:
        if not seen:
            seen.append(message.id)
            stage.store.relay(lambda other: seen.append(other.id))
            stage.clock.advance(1)

    seen: list[str] = []
    stage.store.relay(meanwhile)
    assert seen == [f"{ID}@4", f"{ID}@4", f"{ID}@5"]
    assert stage.sql("SELECT deliveries, delivered_at FROM outbox ORDER BY seq") == [(2, 1000.0), (2, 1000.0)]


# Crash points


def test_after_each_durable_write_and_never_before_it_comes_a_crossing(tmp_path: Path, clock: ManualClock) -> None:
    crossed: list[tuple[str, str]] = []

    def boundary(point: Point) -> None:
        with sqlite3.connect(tmp_path / "tasks.sqlite") as reader:
            lines = reader.execute("SELECT event, detail FROM events ORDER BY seq").fetchall()
        reader.close()
        crossed.append((point.name, point.learned))
        if point.action in set(Event):
            assert lines[-1][0] == point.action, "the change is committed when the world is let in"

    with TaskStore(tmp_path / "tasks.sqlite", clock, boundary, synchronous="OFF") as store:
        stage = Stage(store, clock)
        lease = stage.refused_once()
        with pytest.raises(StaleVersion):
            store.fail(replace(store.renew(lease), version=1), Category.INVALID)
        store.say(ID, "user", {})
        store.checkpoint(store.intend(lease, FIRST)[0], FIRST, "payments-1", Announcement("refunded", {}))
        store.relay(lambda message: None)
    assert crossed == [
        (f"enqueue {ID}", "queued v1, token 0"),
        (f"claim {ID}", "running v2, token 1"),
        (f"intend {FIRST}", "about to send, attempt 1"),
        (f"retry_later {FIRST}", "again at 1000"),
        (f"claim {ID}", "running v5, token 2"),
        (f"renew {ID}", "running v5, token 2"),
        (f"say {ID}", "transcript has 1 lines"),
        (f"intend {FIRST}", "about to send, attempt 2"),
        (f"checkpoint {FIRST}", "result on record"),
        (f"publish {ID}@7", "handed over"),
        (f"mark_delivered {ID}@7", "marked"),
    ]


@pytest.mark.parametrize("name", [f"enqueue {ID}", f"claim {ID}", f"intend {FIRST}", f"checkpoint {FIRST}"])
def test_a_worker_that_dies_at_a_crossing_leaves_the_write_before_it_whole(
    name: str, tmp_path: Path, clock: ManualClock
) -> None:
    with pytest.raises(SimulatedCrash), TaskStore(tmp_path / "t.sqlite", clock, crash_at(name)) as store:
        Stage(store, clock).all_done()
    with TaskStore(tmp_path / "t.sqlite", clock) as store:
        assert store.history(ID)[-1].event == name.split()[0]
        assert store.get(ID).version == len(store.history(ID))


# The tables in plain SQL, as notebooks show them


@pytest.fixture
def plain(store: TaskStore, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A connection as a student opens one, with sqlite3's own transactions, to a file that the store made."""
    connection = sqlite3.connect(tmp_path / "tasks.sqlite")
    yield connection
    connection.close()


def test_a_pending_job_is_claimed_once_by_the_version_that_was_read(plain: sqlite3.Connection, stage: Stage) -> None:
    with plain:
        plain.execute("INSERT INTO tasks (id, kind) VALUES ('job-7', 'refund')")
    claim = (
        "UPDATE tasks SET state = 'running', version = version + 1, lease_owner = ?, "
        "lease_token = lease_token + 1, lease_expires_at = ? WHERE id = ? AND state = 'queued' AND version = ?"
    )
    (version,) = plain.execute("SELECT version FROM tasks WHERE id = 'job-7'").fetchone()
    with plain:
        assert plain.execute(claim, ("worker-1", 1030, "job-7", version)).rowcount == 1
    with plain:
        assert plain.execute(claim, ("worker-2", 1030, "job-7", version)).rowcount == 0
    row = plain.execute("SELECT state, version, lease_owner FROM tasks").fetchone()
    assert row == ("running", 2, "worker-1")
    assert stage.store.get("job-7").lease_owner == "worker-1"


def test_the_duplicate_claim_of_a_queued_task_has_a_row_count_of_0(plain: sqlite3.Connection) -> None:
    plain.execute("INSERT INTO tasks (id, kind, state) VALUES ('task-7', 'refund', 'queued')")
    claim = "UPDATE tasks SET state = 'running', lease_expires_at = 30 WHERE id = 'task-7' AND state = 'queued'"
    assert [plain.execute(claim).rowcount for _ in range(2)] == [1, 0]
    plain.commit()


def test_the_schema_can_be_read_and_used_on_its_own() -> None:
    db = sqlite3.connect(":memory:")
    db.executescript(files("labkit").joinpath("schema.sql").read_text(encoding="utf-8"))
    db.execute("INSERT INTO tasks (id, kind) VALUES ('job-7', 'refund')")
    assert db.execute("SELECT state, version, direction, step, attempts FROM tasks").fetchall() == [
        ("queued", 1, "do", 0, 0)
    ]
    db.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tasks SET state = 'done'",
        "UPDATE tasks SET state = 'running'",
        "UPDATE tasks SET lease_expires_at = 5",
        "UPDATE tasks SET state = 'awaiting_confirmation'",
        "UPDATE tasks SET awaiting_for = 'doubt'",
        "UPDATE tasks SET direction = 'back'",
        "UPDATE tasks SET cancel_requested = 2",
        "UPDATE tasks SET error_category = 'odd'",
        "UPDATE tasks SET version = 'two'",
        "UPDATE tasks SET id = NULL",
        "UPDATE operations SET status = 'done'",
        "UPDATE operations SET result_ref = 'payments-1'",
        "UPDATE operations SET status = 'lost'",
        "UPDATE operations SET position = 0",
        "UPDATE operations SET task_id = 'nobody'",
        "UPDATE attempts SET outcome = 'lost'",
        "DELETE FROM tasks",
    ],
)
def test_the_tables_refuse_what_cannot_be(statement: str, stage: Stage) -> None:
    stage.store.retry_later(stage.sent(), FIRST, Outcome.NOT_SENT, Category.TRANSIENT, 0)
    before = stage.rows()
    with pytest.raises((sqlite3.IntegrityError, InvalidInput)):
        stage.sql(statement)
    assert stage.rows() == before


@pytest.mark.parametrize(("event", "index"), [(Event.CLAIM, "tasks_due"), (Event.TAKE_OVER, "tasks_held")])
def test_what_is_due_is_found_by_index_without_reading_or_sorting_all_tasks(
    event: Event, index: str, stage: Stage
) -> None:
    with stage.store._db.read() as db:
        steps = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {_CANDIDATES[event]}", {"now": 0.0})]
    assert len(steps) == 1
    assert steps[0].startswith(f"SEARCH tasks USING INDEX {index} ")


def test_stored_json_is_readable_and_equal_values_give_equal_text(stage: Stage) -> None:
    stage.queued((PlannedOperation("refund", "payments", {"b": "ä", "a": 1}),))
    ((text,),) = stage.sql("SELECT request FROM operations")
    assert text == '{"a": 1, "b": "ä"}' == json.dumps({"a": 1, "b": "ä"}, ensure_ascii=False)


def test_a_closed_store_can_be_closed_again(tmp_path: Path) -> None:
    store = TaskStore(tmp_path / "tasks.sqlite")
    store.close()
    store.close()
    assert not (tmp_path / "tasks.sqlite-wal").exists()


def test_a_lease_lasts_thirty_seconds_unless_said_otherwise(stage: Stage) -> None:
    task: Task = stage.queued()
    assert stage.store.claim(task, "worker-1").expires_at == 1000 + LEASE_SECONDS
