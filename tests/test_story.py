"""A failing run as a table: what is left out of a long one, and what never is."""

from typing import Any

from labkit import POLICIES, Capabilities, Worker
from labkit.course.story import LAB_NOTE, MAX_LINES, StoryStep, story_of
from labkit.course.watching import as_steps
from labkit.explore import explore
from labkit.explore.sqltext import shown
from labkit.explore.world import TaskScenario


def steps(count: int, *faults: int) -> list[StoryStep]:
    return [
        StoryStep("worker-1", f"step {number}", "same", "same", {"task-1/refund": 1}, fault)
        for number, fault in ((number, "crash" if number in faults else "") for number in range(count))
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
    crossings = [row[1] for row in table.rows]
    for number in (0, 91, 151, 199):
        assert f"step {number}" in crossings
    assert "step 90  !! crash" in crossings
    left_out = [int(text.split()[1]) for text in crossings if text.startswith("...")]
    assert sum(left_out) + len(crossings) - len(left_out) == 200


def test_no_ditto_mark_points_at_what_was_left_out():
    table = story_of(steps(200, 90))
    for before, row in zip(table.rows, table.rows[1:], strict=False):
        if before[1].startswith("..."):
            assert '"' not in row


def test_an_effect_too_many_is_marked():
    assert story_of([StoryStep("worker-1", "send", "", "", {"task-1/refund": 2})]).rows[0][-1] == "refund 2x  <- WRONG"


def test_without_any_effect_the_ledger_has_a_line_and_no_column():
    table = story_of([StoryStep("worker-1", "claim", "", "queued v1", {})])
    assert "the ledger shows" not in table.headers
    assert table.notes == ("(What the ledger shows: nothing, from first to last.)",)
    assert story_of([StoryStep("worker-1", "claim", "", "queued v1", {})], remotes=False).notes == ()


def test_the_row_where_the_database_first_shows_the_broken_law_is_marked_and_never_cut():
    run = [*steps(150), StoryStep("worker-1", "COMMIT", "", "succeeded v4", {}, broken=True), *steps(150)]
    (marked,) = (row for row in story_of(run).rows if "WRONG" in row[3])
    assert marked[1:4] == ("COMMIT", "", "succeeded v4\n<- WRONG")


def test_nothing_is_cut_between_the_last_surprise_and_the_row_where_it_goes_wrong():
    run = [*steps(100, 40, 90), StoryStep("worker-1", "COMMIT", "", "succeeded v4", {}, broken=True), *steps(100)]
    crossings = [row[1] for row in story_of(run).rows]
    first = crossings.index("step 90  !! crash")
    assert crossings[first + 1 : first + 11] == [*(f"step {number}" for number in range(91, 100)), "COMMIT"]
    far = [*steps(200, 10), StoryStep("worker-1", "COMMIT", "", "succeeded v4", {}, broken=True)]
    assert len(str(story_of(far)).splitlines()) <= MAX_LINES


def test_of_many_tasks_the_row_where_it_goes_wrong_shows_those_that_changed():
    states = [f"task-{number} failed v2" for number in range(6)]
    after = [*states[:3], "task-3 running v3", *states[4:]]
    run = [
        StoryStep("w", "UPDATE", "", "\n".join(states), {}),
        StoryStep("w", "end", "", "\n".join(after), {}, broken=True),
    ]
    assert [row[3] for row in story_of(run, remotes=False).rows][1] == "task-3 running v3\n<- WRONG"


def test_a_long_statement_keeps_its_condition():
    sql = "UPDATE tasks SET state = 'running', version = version + 1, lease_owner = ? WHERE id = ? AND version = ?"
    crossing = story_of([StoryStep("worker-1", f"before {shown(sql)}", "", "", {})]).rows[0][1]
    assert crossing == "UPDATE tasks SET state = 'running', version ... WHERE id = ? AND version = ?"
    assert shown(f"{sql} AND {'x' * 99}") == f"UPDATE tasks SET ... WHERE id = ? AND version = ? AND {'x' * 19}..."
    assert shown(f"SELECT {'x' * 99}") == f"SELECT {'x' * 66}..."
    assert shown("SELECT 1\n  WHERE 1") == "SELECT 1 WHERE 1"


def test_the_whole_guard_of_a_claim_and_of_a_holder_can_be_read():
    change = "UPDATE tasks SET state = 'succeeded', version = version + 1, lease_owner = NULL"
    for guard in ("version = ? AND state = 'queued'", "state = 'running' AND lease_token = ?"):
        assert shown(f"{change} WHERE id = ? AND {guard}").endswith(f"... WHERE id = ? AND {guard}")


def test_a_run_that_fits_is_not_cut_however_its_surprises_lie():
    table = story_of(steps(20, 0, 1, 18))
    assert [row[1].split()[1] for row in table.rows] == [str(number) for number in range(20)]


def test_what_is_cut_of_a_long_run_is_nearer_to_its_end():
    crossings = [row[1] for row in story_of(steps(200)).rows]
    (cut,) = (place for place, text in enumerate(crossings) if text.startswith("..."))
    assert cut > len(crossings) / 2


def test_a_single_step_is_never_left_out_for_a_line_that_says_so():
    for gap in (2, 3):
        crossings = [row[1] for row in story_of(steps(200, *range(90, 90 + 4 * gap, gap))).rows]
        assert "... 1 more ..." not in crossings, gap


def test_workers_that_start_in_vain_are_told_as_one():
    starts = [StoryStep(f"worker-{n}", f"start worker-{n}", "nothing yet", "running v2", {}) for n in range(1, 9)]
    table = story_of([*starts, StoryStep("", "the end", "", "running v2", {})])
    assert [row[1] for row in table.rows] == ["start worker-1", "... 7 more start in vain ...", "the end"]


def test_a_start_that_finds_another_database_is_told():
    starts = [StoryStep(f"worker-{n}", f"start worker-{n}", "nothing yet", f"running v{n}", {}) for n in (1, 2)]
    assert len(story_of(starts).rows) == 2


def life(number: int, *points: str) -> list[StoryStep]:
    return [StoryStep(f"worker-{number}", point, "", f"uncertain v{number}", {}) for point in points]


def test_workers_that_do_the_same_again_are_told_as_one():
    lives = [step for number in range(1, 9) for step in life(number, "take_over task-1", "query task-1/refund")]
    table = story_of([*lives, StoryStep("", "the end", "", "uncertain v8", {})])
    assert [row[1] for row in table.rows] == [
        "take_over task-1",
        "query task-1/refund",
        "... 7 more do the same ...",
        "the end",
    ]
    assert table.rows[2][3] == "uncertain v8"


def test_a_worker_that_does_something_else_or_finds_another_ledger_is_told():
    lives = [*life(1, "take_over"), *life(2, "take_over"), *life(3, "query"), *life(4, "query")]
    assert len(story_of(lives).rows) == 4
    sends = [StoryStep(f"worker-{number}", "send", "", "running", {"task-1/refund": number}) for number in range(1, 5)]
    assert len(story_of(sends).rows) == 4


def test_what_is_crossed_before_it_is_done_stands_under_a_heading_that_says_so():
    before = StoryStep("worker-1", "before COMMIT", "changed: 1 row", "queued v1", {})
    assert story_of([before]).headers[1] == "is about to"
    assert story_of([before]).rows[0][1] == "COMMIT"
    assert story_of(steps(1)).headers[1] == "crossing"


def test_what_the_check_itself_does_is_marked_and_explained_below():
    run = [
        StoryStep("worker-1", "before UPDATE", "", "queued v1", {}, lab=True),
        StoryStep("worker-1", "before COMMIT", "", "queued v1", {}, lab=True),
        StoryStep("worker-1", "before INSERT", "", "running v2", {}),
    ]
    table = story_of(run, remotes=False)
    assert [row[0] for row in table.rows] == ["worker-1 (lab)", '"', "worker-1"]
    assert table.notes == (LAB_NOTE,)
    assert story_of(run[2:], remotes=False).notes == ()


def test_of_several_tasks_each_effect_is_told_with_its_task_and_only_the_changed_ones_where_they_are_long():
    pending = "refund pending, update_ticket pending, send_email pending"
    before = f"task-1 queued v1: {pending}\ntask-2 queued v1: {pending}"
    after = f"task-1 queued v1: {pending}\ntask-2 running v2: {pending}"
    table = story_of([StoryStep("a", "start", "", before, {}), StoryStep("a", "send", "", after, {"task-2/refund": 1})])
    assert [row[-1] for row in table.rows] == ["nothing yet", "task-2/refund 1x"]
    assert table.rows[1][3] == f"task-2 running v2: {pending}"


def test_a_request_that_was_under_way_arrives_in_a_row_of_its_own():
    def sends_again(task_id: str, store: Any, remotes: Any) -> None:
        Worker(store, remotes, POLICIES["query_first"], talks=False).run(task_id)

    remotes = {"payments": Capabilities(status_query=True)}
    scenario = TaskScenario(sends_again, remotes=remotes, allowed=frozenset({"late"}))
    failure = explore(scenario, 1).failure
    assert failure is not None
    steps = as_steps(scenario, failure.schedule)
    place = next(place for place, step in enumerate(steps) if step.worker == "the wire")
    assert steps[place].point == "the late request arrives"
    assert (steps[place - 1].ledger, steps[place].ledger) == ({"task-1/refund": 1}, {"task-1/refund": 2})
    assert sum(step.worker == "the wire" for step in steps) == 1
