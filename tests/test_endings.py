"""How workers ended, beside the law that broke."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labkit import Capabilities, RemoteError, State
from labkit.course import check
from labkit.course.endings import ending
from labkit.errors import NotSent, Refused, StaleToken
from labkit.explore.scenario import Played

REFUSED = StaleToken("intend", "task-1", "token 1", "token 2")
UNSENT = NotSent("payments", "task-1/refund", "the connection was refused")


def played(law: str, how: str = "the task is left running") -> Played:
    return Played((), (), "stuck", law, how, {})


def mine() -> None:
    raise KeyError("refund")


def raised(program: Callable[[], None]) -> BaseException:
    try:
        program()
    except KeyError as error:
        return error
    raise AssertionError("it was to raise")


LINE = mine.__code__.co_firstlineno + 1


def test_an_error_of_the_students_own_is_told_with_its_line_whatever_law_broke() -> None:
    errors = (("worker-1", REFUSED), ("worker-2", raised(mine)), ("worker-3", raised(mine)))
    told = f" worker-2 ended with KeyError, in line {LINE} of your cell: 'refund'."
    assert ending(played("settled_in_the_end"), errors, mine) == told
    assert ending(played("no_second_effect"), errors, mine) == told


def test_a_refused_change_is_told_only_where_a_task_was_left_lying() -> None:
    errors = (("worker-1", UNSENT), ("worker-2", REFUSED))
    assert ending(played("settled_in_the_end"), errors, mine).startswith(" worker-2 ended with StaleToken: ")
    assert ending(played("no_second_effect"), errors, mine) == ""
    assert ending(played("settled_in_the_end"), (), mine) == ""


def test_what_a_remote_refuses_for_good_is_told_before_what_came_of_it() -> None:
    refused = Refused("payments", "task-1/refund/undo", "the same key came with another body", "invalid", 422)
    errors = (("worker-1", UNSENT), ("worker-2", refused), ("worker-9", REFUSED))
    assert ending(played("settled_in_the_end"), errors, mine).startswith(" worker-2 ended with Refused: ")
    assert ending(played("no_second_effect"), errors, mine) == ""


def test_what_came_first_is_told_of_a_task_left_lying_and_not_what_followed_from_it() -> None:
    refused = Refused("payments", "task-1/refund/undo", "the same key came with another body", "invalid", 422)
    errors = (("worker-2", refused), ("worker-3", REFUSED), ("worker-9", raised(mine)))
    assert ending(played("settled_in_the_end"), errors, mine).startswith(" worker-2 ended with Refused: ")
    assert ending(played("settled_in_the_end"), errors[::-1], mine).startswith(" worker-9 ended with KeyError, ")


def test_the_law_that_names_the_error_is_told_the_line_of_that_worker_alone() -> None:
    errors = (("worker-1", REFUSED), ("worker-10", KeyError("elsewhere")), ("worker-2", raised(mine)))
    assert ending(played("no_worker_breaks", "worker-2 ended with KeyError: 'refund'"), errors, mine) == (
        f" It happened in line {LINE} of your cell."
    )
    assert ending(played("no_worker_breaks", "worker-10 ended with KeyError"), errors, mine) == ""


def receipt_for_a_reference(task_id: str, store: Any, remotes: Any) -> None:
    task = store.get(task_id)
    lease = store.claim(task, "me") if task.state is State.QUEUED else store.take_over(task, "me")
    operation = task.next_operation
    lease, attempt = store.intend(lease, operation.id)
    receipt = remotes[operation.remote].send(operation.id, operation.request, attempt.request_id, operation.id)
    store.checkpoint(lease, operation.id, receipt)


def test_a_check_says_why_a_task_was_left_lying(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    line = receipt_for_a_reference.__code__.co_firstlineno + 6
    told = " ".join(str(check("9.2", receipt_for_a_reference)).split())
    assert "The law that broke, no_worker_breaks:" in told
    assert "worker-2 ended with InvalidInput: " in told
    assert f"It happened in line {line} of your cell" in told


def asks_at_once(task_id: str, store: Any, remote: Any) -> None:
    lease = store.claim(store.get(task_id), "me")
    lease, _ = store.intend(lease, "task-1/refund")
    store.ask(store.lose_track(lease, "task-1/refund"), "please do it by hand", 60)


def test_the_story_of_a_check_ends_with_the_call_that_is_not_allowed(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    result = check("6.1", asks_at_once)
    assert result.trial is not None
    assert result.trial.story is not None
    assert result.trial.story.rows[-1][1:3] == ("lose_track task-1/refund", "not allowed  <- WRONG")
    line = asks_at_once.__code__.co_firstlineno + 3
    assert result.trial.broke.endswith(f"and has not sent it. It happened in line {line} of your cell.")


def breaks(task_id: str, store: Any, remotes: Any) -> None:
    store.intend(store.claim(store.get(task_id), "me"), "task-1/refund")
    raise KeyError("refund")


def test_the_story_of_a_check_shows_where_a_worker_ended_with_an_error(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    trial = check("10.1a", breaks).trial
    assert trial is not None
    assert trial.story is not None
    ends = [row[2] for row in trial.story.rows if row[1] == "end worker-1"]
    assert ends == ["KeyError: 'refund'"]


def takes_a_lost_answer_for_a_no(remote: Any) -> Capabilities:
    first, second = (remote.send("p/1", {}, f"p-{number}", key="p/1") for number in (1, 2))
    try:
        found = remote.query("p/1").found
    except RemoteError:
        found = False
    return Capabilities(idempotency_keys=first.reference == second.reference, status_query=found)


def test_the_story_of_a_probe_marks_the_call_that_was_lost_and_no_effect_of_its_own(
    tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    result = check("5.2", takes_a_lost_answer_for_a_no)
    assert result.trial is not None
    assert result.trial.story is not None
    assert "Ask for an operation that you know" in result.hint
    assert [row[1] for row in result.trial.story.rows if "!!" in row[1]] == ["query p/1  !! response lost"]
    assert "returns keys: False, query: False" in {row[2] for row in result.trial.story.rows}
    assert "p/1 2x\ntask-1/refund 1x" in {row[4] for row in result.trial.story.rows}
