"""A search as people look at it: a table, and its smallest failure in text and picture."""

import base64
from typing import Any

import pytest

from labkit.explore import LabWorker, TaskScenario, explore
from labkit.explore.contrasts import CONTRASTS
from labkit.explore.sql_programs import claim_by_condition, claim_by_reading, claiming
from labkit.show.exploration import ExplorationView, lanes, show
from labkit.show.timeline import Timeline


@pytest.fixture(scope="module")
def lost() -> ExplorationView:
    return show(explore(TaskScenario(LabWorker("assume_done"))))


def test_a_clean_search_is_a_table_of_what_was_run_and_what_happened():
    view = show(explore(claiming(claim_by_condition)))
    assert str(view) == (
        "all 17 schedules of 2 workers with up to 2 surprises keep every law\n"
        "\n"
        "in the whole search\n"
        "-------------------  --\n"
        "schedules run        17\n"
        "came to: kept        17\n"
        "switches of workers  28"
    )
    assert view._repr_mimebundle_() == ({"text/plain": str(view)}, {})


def test_what_was_allowed_and_never_happened_stands_in_the_table():
    view = show(explore(TaskScenario(LabWorker("same_key"), allowed=frozenset({"crash", "cancel", "late"})), 1))
    rows = dict(view.table.rows)
    assert rows["schedules run"] == f"{view.exploration.schedules:,}"
    assert int(rows["crashes"]) > 0
    assert "pauses" not in rows
    nothing = show(explore(TaskScenario(LabWorker("same_key"), allowed=frozenset({"crash"})), 0))
    assert dict(nothing.table.rows)["crashes"] == "0  <- allowed, but it never happened"
    assert nothing.table.title.startswith("NOTHING SHOWN: ")


def test_verdicts_stand_from_best_to_worst():
    view = show(explore(TaskScenario(LabWorker("query_first")), go_on=True))
    came_to = [name for name, _ in view.table.rows if name.startswith("came to")]
    assert came_to == ["came to: exactly once", "came to: duplicated"]


def test_a_failure_follows_the_table_with_its_law_and_its_three_views(lost: ExplorationView):
    assert lost.failure is not None
    assert lost.failure.run is not None
    table, law, timeline = str(lost).partition(
        "The smallest failure. success_means_done: the task succeeded, but the ledger shows no task-1/refund"
    )
    assert table == f"{lost.table}\n\n"
    assert law
    assert timeline == f"\n\n{Timeline(lost.failure.run).text}"
    assert "refund 0x, on record: done  <- WRONG" in timeline


def test_a_notebook_gets_text_and_a_picture_of_the_failure_and_nothing_else(lost: ExplorationView):
    data, details = lost._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png"}
    assert data["text/plain"] == str(lost)
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert set(details) == {"image/png"}
    assert "crash at moment 3" in details["image/png"]["alt"]


def test_the_picture_of_a_failure_tells_the_law_the_search_and_its_counts(lost: ExplorationView):
    assert lost.timeline is not None
    drawn = " ".join(text.get_text() for text in lost.timeline.figure().axes[0].texts)
    broke = "success_means_done: the task succeeded, but the ledger shows no task-1/refund"
    assert f"✗ {broke}" in drawn
    assert f"{lost.exploration.summary}. In the whole search: schedules run: " in drawn
    assert f"Broken: {broke}." in lost.timeline.alt
    assert lost.timeline.text.startswith(f"{lost.exploration.summary}. In the whole search: ")
    assert f"\nbroken: {broke}\n" in lost.timeline.text


def test_columns_of_workers_leave_room_for_what_everybody_can_see():
    view = show(explore(claiming(claim_by_reading)))
    assert view.failure is not None
    table = str(lanes(view.failure.moments))
    assert table.splitlines()[0].endswith("what the database says")
    assert max(map(len, table.splitlines())) <= 100


def test_plain_sql_stands_in_a_column_for_each_worker():
    view = show(explore(claiming(claim_by_reading)))
    assert view.timeline is None
    assert set(view._repr_mimebundle_()[0]) == {"text/plain"}
    _, _, below = str(view).partition("both hold task-1\n\n")
    header, rule, first, *_ = below.splitlines()
    assert header.split("  ")[0] == "#"
    assert header.index("worker-1") < header.index("worker-2") < header.index("what the database says")
    assert set(rule) == {"-", " "}
    assert first.startswith("1  before SELECT id FROM tasks")
    assert "!! switch to worker-2" in below
    assert len([line for line in below.splitlines() if line[:1].isdigit()]) == len(view.failure or ())


def test_of_a_long_run_the_middle_is_left_out_and_the_gap_is_named():
    def for_ever(task_id: str, store: Any, remotes: Any) -> None:
        lease = store.claim(store.get(task_id), "worker-1", 30.0)
        while True:
            lease = store.renew(lease, 30.0)

    view = show(explore(TaskScenario(for_ever), 0))
    assert view.failure is not None
    assert view.timeline is not None
    whole = len(view.failure.moments)
    assert whole > 200
    assert [moment.number for moment in view.timeline.run.moments] == [*range(1, 25), *range(whole - 7, whole + 1)]
    assert view.timeline.run.title == f"for_ever: no surprise (moments 25 to {whole - 8} left out)"
    assert f"(moments 25 to {whole - 8} left out)" in str(lanes(view.failure.moments))


def test_what_another_system_holds_has_a_column_of_its_own_where_it_is_named():
    found = CONTRASTS["outbox"].fall().replay()
    assert found is not None
    table = lanes(found.moments, "what the bus holds")
    assert table.headers[-1] == "what the bus holds"
    assert [row[-1] for row in table.rows] == ["nothing", *['"'] * (len(table.rows) - 1)]
    assert lanes(found.moments).headers == table.headers[:-1]
