"""The matrix against an oracle that reasons from the facts, and what the lab says about the whole of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

import pytest

from labkit.cli import main
from labkit.cli.matrix import run_matrix
from labkit.errors import InvalidInput
from labkit.explore import replay
from labkit.explore.capsule import KEPT
from labkit.explore.matrix import (
    CAPABILITIES,
    FORGETFUL_SECONDS,
    HANGS,
    LATE_BY_SECONDS,
    NO_CRASH,
    PAUSED,
    PAUSED_AND_CANCELLED,
    PAUSES,
    Cell,
    MatrixSetting,
    PauseCell,
    TwoCrashes,
    matrix,
    pause_axis,
    two_crashes,
)
from labkit.policies import POLICIES
from labkit.runs import Verdict

ONCE, CLEAN, PERSON = Verdict.EXACTLY_ONCE, Verdict.STOPPED_CLEAN, Verdict.NEEDS_A_PERSON
STUCK, LOST, DOUBLED = Verdict.STUCK, Verdict.LOST, Verdict.DUPLICATED
HARMFUL = {STUCK, LOST, DOUBLED}
NEVER_ASKING = ("assume_done", "blind_replay", "replay_transcript", "same_key", "query_first")
RESENDING = ("blind_replay", "replay_transcript", "same_key", "query_first")
LEASE, LONGEST_DELIVERY = 30.0, 60.0


@pytest.fixture(scope="module")
def cells() -> tuple[Cell, ...]:
    return matrix()


@pytest.fixture(scope="module")
def pauses() -> tuple[PauseCell, ...]:
    return pause_axis()


@pytest.fixture(scope="module")
def pairs() -> tuple[TwoCrashes, ...]:
    return two_crashes()


# The oracle: what must come of one refund, told from what became of the first request when somebody decides about it.


def first_request(crash: str, late: bool) -> str:
    """`answered`, `never` sent, applied `before` the decision or arriving `after` it."""
    if crash in ("intend", "say"):  # the intent is on record, and the sender dead; whoever sends then sends late too
        return "never, then after" if late else "never"
    if late:
        return "after"
    return "before" if crash == "send" else "answered"


def expected(crash: str, capability: str, late: bool, forgotten: bool, policy: str) -> Verdict:
    happened = first_request(crash, late)
    if happened == "answered":
        return ONCE
    key = capability in ("key", "both") and not forgotten
    seen = capability in ("query", "both") and happened == "before"
    if policy == "assume_done":
        return LOST if happened.startswith("never") else ONCE
    if policy in ("ask_person", "query_then_ask", "by_capability"):
        proved = (seen and policy != "ask_person") or (key and policy == "by_capability")
        return ONCE if proved else PERSON
    # the others send again, unless a query has found it; that has one effect if nothing else arrives, or under one key
    return (
        ONCE if happened == "never" or (seen and policy == "query_first") or (key and policy == "same_key") else DOUBLED
    )


def row(cell: Cell) -> str:
    return cell.crash_point.partition(" ")[0]


def test_every_cell_comes_to_what_the_facts_say(cells: tuple[Cell, ...]) -> None:
    assert len(cells) > 900
    for cell in cells:
        where = (row(cell), cell.capability, cell.late_delivery, cell.key_forgotten, cell.policy)
        assert cell.verdict is expected(*where), where


def test_late_is_adversarial_and_within_the_longest_delivery() -> None:
    assert LEASE + FORGETFUL_SECONDS < LATE_BY_SECONDS <= LONGEST_DELIVERY
    assert FORGETFUL_SECONDS < LEASE
    scenario = MatrixSetting("key", "same_key", key_forgotten=True).scenario()
    assert LATE_BY_SECONDS == scenario.late_by_seconds <= scenario.assumptions.longest_delivery_seconds
    assert scenario.remotes["payments"].key_ttl_seconds == FORGETFUL_SECONDS, "the manual says so"
    assert (scenario.workers, scenario.person) == (1, False)


def test_the_worker_dies_at_every_crossing_it_comes_to(cells: tuple[Cell, ...]) -> None:
    def points(policy: str, late: bool) -> list[str]:
        return [
            cell.crash_point
            for cell in cells
            if (cell.policy, cell.capability, cell.late_delivery, cell.key_forgotten) == (policy, "query", late, False)
        ]

    first, send = ["none", "start worker-1", "claim task-1"], ["intend task-1/refund", "send task-1/refund"]
    assert points("same_key", False) == [*first, *send, "checkpoint task-1/refund", "succeed task-1"]
    lost = [*first, *send, "lose_track task-1/refund"]
    assert points("query_then_ask", True) == [*lost, "query task-1/refund", "ask task-1"]
    assert points("assume_done", True) == [*lost, "settle task-1/refund", "succeed task-1"]
    assert "say task-1" in points("replay_transcript", False)


def test_the_schedule_of_a_cell_has_the_crash_and_the_late_delivery_that_it_is_named_for(
    cells: tuple[Cell, ...],
) -> None:
    for cell in cells:
        surprises = [(one.point, one.choice) for one in cell.capsule.surprises]
        crash = [] if cell.crash_point == NO_CRASH else [(cell.crash_point, "crash")]
        sent = row(cell) != "intend" or cell.verdict not in (Verdict.LOST, Verdict.NEEDS_A_PERSON)
        late = [("wire: send task-1/refund", "late")] if cell.late_delivery and sent else []
        assert sorted(surprises) == sorted(crash + late), cell


def test_with_neither_capability_no_policy_is_safe_without_a_person(cells: tuple[Cell, ...]) -> None:
    for policy in POLICIES:
        came_to = {cell.verdict for cell in cells if (cell.capability, cell.policy) == ("neither", policy)}
        assert came_to & (HARMFUL | {PERSON}), policy
        assert bool(came_to & HARMFUL) == (policy in NEVER_ASKING)


def test_a_query_that_resends_is_safe_only_where_nothing_arrives_late_and_no_sender_was_paused(
    cells: tuple[Cell, ...], pauses: tuple[PauseCell, ...]
) -> None:
    def harm(late: bool) -> set[Verdict]:
        queried = (cell for cell in cells if cell.policy == "query_first" and cell.capability in ("query", "both"))
        return {cell.verdict for cell in queried if cell.late_delivery == late} & HARMFUL

    assert harm(late=False) == set()
    assert harm(late=True) == {DOUBLED}
    slept = {one.verdict for one in pauses if one.policy == "query_first" and one.pause == PAUSED}
    assert slept == {DOUBLED}


def test_of_the_policies_that_never_ask_only_the_same_key_is_safe_and_only_while_it_is_remembered(
    cells: tuple[Cell, ...],
) -> None:
    def safe(policy: str, forgotten: bool) -> bool:
        keyed = (cell for cell in cells if cell.capability in ("key", "both") and cell.policy == policy)
        return not {cell.verdict for cell in keyed if cell.key_forgotten == forgotten} & HARMFUL

    assert [policy for policy in NEVER_ASKING if safe(policy, forgotten=False)] == ["same_key"]
    assert [policy for policy in NEVER_ASKING if safe(policy, forgotten=True)] == []


def test_by_capability_never_doubles_loses_or_gets_stuck(
    cells: tuple[Cell, ...], pauses: tuple[PauseCell, ...], pairs: tuple[TwoCrashes, ...]
) -> None:
    assert {cell.verdict for cell in cells if cell.policy == "by_capability"} == {ONCE, PERSON}
    assert {one.worst for one in pairs if one.policy == "by_capability"} == {ONCE, PERSON}
    slept = {one.verdict for one in pauses if one.policy == "by_capability" and one.pause != HANGS}
    assert slept == {ONCE, PERSON, CLEAN}


def test_a_forgotten_key_changes_nothing_at_a_remote_without_keys(cells: tuple[Cell, ...]) -> None:
    def of(forgotten: bool) -> Iterable[tuple[object, ...]]:
        for cell in cells:
            if cell.capability in ("neither", "query") and cell.key_forgotten == forgotten:
                yield cell.crash_point, cell.capability, cell.late_delivery, cell.policy, cell.verdict

    assert list(of(True)) == list(of(False))


# The pause axis.


def test_every_cell_of_the_pause_axis_comes_to_what_the_facts_say(pauses: tuple[PauseCell, ...]) -> None:
    assert len(pauses) == len(PAUSES) * len(CAPABILITIES) * len(POLICIES)
    for one in pauses:
        # a sender that wakes after the decision is a request that arrives after it, to a remote with a good memory
        verdict = expected("send", one.capability, True, False, one.policy)
        if one.pause == HANGS:
            verdict = STUCK  # nobody may take over, whatever they would do
        elif one.pause == PAUSED_AND_CANCELLED:
            settled_as_not_done = verdict is DOUBLED and one.policy != "same_key"
            verdict = LOST if settled_as_not_done else CLEAN if verdict is ONCE else verdict
        assert one.verdict is verdict, one


def test_matrix_and_pause_axis_together_know_all_six_verdicts(
    cells: tuple[Cell, ...], pauses: tuple[PauseCell, ...]
) -> None:
    assert {cell.verdict for cell in cells} | {one.verdict for one in pauses} == set(Verdict)
    assert {one.verdict for one in pauses if one.pause == PAUSED_AND_CANCELLED} >= {CLEAN, LOST}
    assert {one.verdict for one in pauses if one.pause == HANGS} == {STUCK}


# Two crashes.


def test_all_runs_with_two_crashes_are_played_for_every_remote_and_policy(pairs: tuple[TwoCrashes, ...]) -> None:
    assert [(one.capability, one.policy) for one in pairs] == [(can, name) for can in CAPABILITIES for name in POLICIES]
    for one in pairs:
        assert one.found.complete
        assert one.found.happened["crash"] > one.found.schedules, "more than one a run on the average"
        assert one.found.happened["take_over"] > 10
        assert one.found.schedules == sum(one.found.verdicts.values())


def test_with_two_crashes_and_nothing_late_the_worst_is_what_one_crash_comes_to(
    pairs: tuple[TwoCrashes, ...],
) -> None:
    order = list(Verdict)
    for one in pairs:
        verdicts = [expected(crash, one.capability, False, False, one.policy) for crash in ("none", "intend", "send")]
        assert one.worst is max(verdicts, key=order.index), (one.capability, one.policy)


# Capsules, output, input.


def test_every_cell_has_a_capsule_that_plays_it_again(cells: tuple[Cell, ...]) -> None:
    assert all((cell.capsule.law != KEPT) == (cell.verdict in HARMFUL) for cell in cells)
    for cell in cells[::40]:
        again = replay(type(cell.capsule).from_json(cell.capsule.to_json()))
        assert again.played.verdict == cell.verdict
        assert again.breaks == (cell.verdict in HARMFUL)


def test_the_same_cells_come_out_every_time(cells: tuple[Cell, ...]) -> None:
    again = matrix(["both"], ["same_key", "query_first"], late_delivery=[True], key_forgotten=[True])
    wanted = [one for one in cells if (one.capability, one.late_delivery, one.key_forgotten) == ("both", True, True)]
    assert list(again) == [one for one in wanted if one.policy in ("same_key", "query_first")]


@pytest.mark.parametrize("wrong", [{"capabilities": ["keys"]}, {"policies": ["hope"]}])
def test_a_name_that_does_not_exist_is_refused_with_those_that_do(wrong: dict[str, list[str]]) -> None:
    with pytest.raises(InvalidInput, match=r"neither, key, query, both|assume_done, blind_replay"):
        matrix(**wrong)


def test_the_command_prints_a_list_of_cells_with_these_keys(
    cells: tuple[Cell, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_matrix(as_json=True, play=lambda: cells) == 0
    printed = json.loads(capsys.readouterr().out)
    assert len(printed) == len(cells)
    keys = ["crash_point", "capability", "late_delivery", "key_forgotten", "policy", "verdict", "capsule"]
    assert all(list(one) == keys for one in printed)
    assert Counter(one["verdict"] for one in printed) == Counter(str(cell.verdict) for cell in cells)
    broken = next(one for one in printed if one["verdict"] == "duplicated")
    assert broken["capsule"]["law"] == "no_second_effect"
    assert all(one["capsule"]["law"] == KEPT for one in printed if one["verdict"] == "exactly once")


def test_the_command_prints_tables_that_fit_a_wide_console_with_a_legend(
    cells: tuple[Cell, ...],
    pauses: tuple[PauseCell, ...],
    pairs: tuple[TwoCrashes, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def play(late_delivery: list[bool], key_forgotten: list[bool]) -> tuple[Cell, ...]:
        wanted = (late_delivery, key_forgotten)
        return tuple(one for one in cells if ([one.late_delivery], [one.key_forgotten]) == wanted)

    assert run_matrix(play=play, pause=lambda: pauses, twice=lambda: pairs) == 0
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert max(map(len, printed.splitlines())) <= 120
    assert printed.count("One crash: ") == 4
    assert "A paused sender" in printed
    assert "Up to two crashes" in printed
    assert all(f" {verdict}" in printed for verdict in Verdict)
    assert all(f" {policy}" in printed for policy in POLICIES)


@pytest.mark.parametrize("arguments", [["matrix"], ["matrix", "--json"]])
def test_the_command_is_on_the_command_line(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr("labkit.cli.matrix.run_matrix", lambda as_json: asked.append(as_json) or 0)
    assert main(arguments) == 0
    assert asked == ["--json" in arguments]
