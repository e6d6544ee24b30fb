"""Text tables: aligned, ASCII, the same everywhere."""

from dataclasses import replace

import pytest

from labkit.errors import InvalidInput
from labkit.records import Attempt, Operation, Outcome, Status, Task
from labkit.show.tables import TextTable, column_widths, ledger_table, task_table, transition_table, wrapped
from labkit.states import TRANSITIONS, Direction, State, up_to_lesson

LESSONS = [*range(11), None]


def operation(name="refund", position=0, **changes):
    plain = Operation(
        id=f"task-1/{name}",
        name=name,
        position=position,
        direction=Direction.DO,
        remote="payments",
        request={},
        undo_request=None,
        needs_approval=False,
        approved_by=None,
        status=Status.PENDING,
        result_ref=None,
        result_source=None,
    )
    return replace(plain, **changes)


def task(*operations, **changes):
    plain = Task(
        id="task-1",
        kind="refund",
        state=State.QUEUED,
        version=1,
        direction=Direction.DO,
        step=0,
        lease_owner=None,
        lease_token=0,
        lease_expires_at=None,
        attempts=0,
        max_attempts=5,
        first_attempt_at=None,
        max_seconds=3600.0,
        next_run_at=100.0,
        awaiting_for=None,
        awaiting_until=None,
        error_category=None,
        cancel_requested=False,
        created_at=100.0,
        operations=operations,
    )
    return replace(plain, **changes)


DOUBTFUL = operation(
    attempts=(
        Attempt(1, "task-1/refund#1", 1, 100.0, Outcome.NOT_SENT),
        Attempt(2, "task-1/refund#2", 1, 101.5, None),
    )
)
DONE = operation(
    "update_ticket", 1, remote="tickets", status=Status.DONE, result_ref="tickets-1", result_source="response"
)


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_transition_table_has_one_row_for_each_edge_that_a_lesson_has_shown(lesson):
    edges = TRANSITIONS if lesson is None else up_to_lesson(lesson)
    assert transition_table(lesson).rows == tuple(
        (
            edge.event,
            f"{edge.source} (stays)" if edge.source == edge.target else f"{edge.source} -> {edge.target}",
            "; ".join(edge.requires),
            edge.effect,
        )
        for edge in edges
    )


def test_the_first_lesson_reads_like_this():
    assert str(transition_table(0)) == FIRST_LESSON


FIRST_LESSON = """\
event       from -> to            condition                                        also
----------  --------------------  -----------------------------------------------  -----------------
claim       queued -> running     version matches; due (next_run_at <= now); no    new token
                                  cancel requested (direction do)

intend      running (stays)       token matches; version matches; the next         one more attempt
                                  operation without a result; nothing in doubt;
                                  no cancel requested (direction do); approved
                                  where the step wants it; attempts left; time
                                  left

checkpoint  running (stays)       token matches; version matches; intent on        result + step,
                                  record; result at hand                           budgets anew

succeed     running -> succeeded  token matches; version matches; direction do;
                                  every operation has a result"""


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("lesson", LESSONS)
def test_no_line_is_too_long_or_ends_in_blanks_or_leaves_ascii(lesson, width):
    text = str(transition_table(lesson, width))
    assert text.isascii()
    lines = text.split("\n")
    assert max(map(len, lines)) <= width
    assert [line for line in lines if line != line.rstrip()] == []


def test_a_display_is_the_printed_text_and_nothing_else():
    table = transition_table(0)
    assert table._repr_mimebundle_() == {"text/plain": str(table)}


def test_columns_are_aligned_and_a_line_break_in_a_cell_is_kept():
    table = TextTable(("a", "b"), (("one\ntwo", "x"), ("three", "y")), title="above", notes=("below",))
    assert str(table).split("\n") == [
        "above", "", "a      b", "-----  -", "one    x", "two", "", "three  y", "", "below",
    ]  # fmt: skip


def test_words_are_broken_only_where_nothing_else_helps():
    rows = (("short words that can be wrapped", "one_very_long_identifier"),)
    assert column_widths(rows, 40) == [14, 24]
    assert column_widths(rows, 24) == [7, 15]


def test_a_table_without_text_to_spare_may_be_too_long_but_comes_out():
    assert column_widths((("a" * 9, "b" * 9),), 3) == [8, 8]


def test_wrapping_keeps_line_breaks_and_empty_lines():
    assert wrapped("one two\n\nthree", 5) == ["one", "two", "", "three"]


def test_wrapping_does_not_part_seconds_from_their_number():
    assert wrapped("token 1, at 10 s)", 14) == ["token 1, at", "10 s)"]
    assert wrapped("2 shops", 6) == ["2", "shops"]


def test_a_row_with_another_number_of_cells_is_refused():
    with pytest.raises(InvalidInput):
        TextTable(("a", "b"), (("1",),))


def test_a_task_table_shows_every_attempt_and_what_is_known_of_it():
    held = {"lease_owner": "worker-1", "lease_token": 1, "lease_expires_at": 130.0, "attempts": 2}
    text = str(task_table(task(DOUBTFUL, DONE, state=State.RUNNING, version=4, **held)))
    assert text.split("\n") == [
        "task-1 (refund): running, version 4, step 0",
        "lease: worker-1, token 1, expires at 30 s",
        "attempts: 2 of 5; time: 3600 s an operation",
        "",
        "operation             remote    stands    attempts                             result",
        "--------------------  --------  --------  -----------------------------------  ---------------------",
        "task-1/refund         payments  in doubt  #1: not sent (token 1, at 0 s)       -",
        "                                          #2: outcome unknown (token 1, at",
        "                                          1.5 s)",
        "",
        "task-1/update_ticket  tickets   done      -                                    tickets-1 (by",
        "                                                                               response)",
    ]


def test_a_task_table_names_what_holds_the_task_up():
    waiting = {"awaiting_for": "doubt", "awaiting_until": 160.0, "error_category": "unconfirmed"}
    text = str(task_table(task(state=State.AWAITING_CONFIRMATION, cancel_requested=True, next_run_at=105.0, **waiting)))
    assert "awaiting_confirmation, version 1, step 0; cancel requested" in text
    assert "waits for a person: doubt, overdue at 60 s" in text
    assert "last error: unconfirmed" in text
    assert "due: at 5 s" in text
    assert "lease: nobody (last token 0)" in text


def test_a_task_table_tells_undoing_from_doing_and_shows_approvals():
    undo = operation("undo-refund", direction=Direction.UNDO, needs_approval=True)
    approved = operation("send_email", needs_approval=True, approved_by="ann")
    text = str(task_table(task(undo, approved, direction=Direction.UNDO)))
    assert "queued, undoing" in text
    assert "task-1/undo-refund (undo)" in text
    assert "pending, wants approval" in text
    assert "pending, approved by ann" in text


def test_a_doubled_effect_is_called_wrong_in_the_ledger_and_a_single_one_is_not():
    table = ledger_table({"task-1/refund": 2, "task-1/send_email": 0, "task-1/update_ticket": 1})
    assert table.rows == (
        ("task-1/refund", "2", "WRONG: it happened 2 times"),
        ("task-1/send_email", "0", "not there"),
        ("task-1/update_ticket", "1", "once"),
    )


def test_a_ledger_may_come_as_pairs_in_any_order_and_may_be_empty():
    assert ledger_table([("b", 1), ("a", 1)]).rows == ledger_table({"a": 1, "b": 1}).rows
    assert ledger_table({}).rows == (("(no effects)", "0", ""),)
