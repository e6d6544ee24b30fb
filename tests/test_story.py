"""A failing run as a table: what is left out of a long one, and what never is."""

from labkit.course.story import MAX_LINES, Step, story_of


def steps(count: int, *faults: int) -> list[Step]:
    return [
        Step("worker-1", f"step {number}", "same", "same", {"task-1/refund": 1}, "crash" if number in faults else "")
        for number in range(count)
    ]


def test_a_short_run_is_shown_whole_with_ditto_marks():
    table = story_of(steps(3))
    assert table.rows == (
        ("worker-1", "step 0", "same", "same", "refund 1x"),
        ('"', "step 1", '"', '"', '"'),
        ('"', "step 2", '"', '"', '"'),
    )


def test_a_long_run_is_cut_and_keeps_its_ends_and_its_surprises():
    table = story_of(steps(200, 90, 150))
    assert len(str(table).splitlines()) <= MAX_LINES
    shown = [row[1] for row in table.rows]
    for number in (0, 91, 151, 199):
        assert f"step {number}" in shown
    assert "step 90  !! crash" in shown
    left_out = [int(text.split()[1]) for text in shown if text.startswith("...")]
    assert sum(left_out) + len(shown) - len(left_out) == 200


def test_no_ditto_mark_points_at_what_was_left_out():
    table = story_of(steps(200, 90))
    for before, row in zip(table.rows, table.rows[1:], strict=False):
        if before[1].startswith("..."):
            assert '"' not in row


def test_an_effect_too_many_is_marked():
    assert story_of([Step("worker-1", "send", "", "", {"task-1/refund": 2})]).rows[0][-1] == "refund 2x  <- WRONG"


def test_without_any_effect_the_ledger_has_a_line_and_no_column():
    table = story_of([Step("worker-1", "claim", "", "queued v1", {})])
    assert "the ledger shows" not in table.headers
    assert table.notes == ("(What the ledger shows: nothing, from first to last.)",)
