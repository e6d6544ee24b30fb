"""Many real kills at random, and the command that lets a student hold such a drill."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from strays import strays

from labkit.cli import main
from labkit.cli.drill import network_of, run_drill
from labkit.cli.serve import drawn
from labkit.errors import InvalidInput
from labkit.real.children import ChildFailed
from labkit.real.kills import Found, Tally, kill_at_random
from labkit.real.service import REFUSALS
from labkit.real.setting import Fates
from labkit.real.stage import Stage
from labkit.runs import Verdict
from labkit.seams import Call, Delivery, seeded

NAIVE = """\
def recover(task_id, store, remotes):
    task = store.get(task_id)
    if task.state == "queued":
        lease = store.claim(task, "mine")
    else:
        lease = store.take_over(task, "mine")
    for operation in store.get(task_id).current:
        if operation.in_doubt:
            store.settle(lease, operation.id, False, "hope")
            return "again"
        if operation.result_ref is None:
            lease, _ = store.intend(lease, operation.id)
            receipt = remotes[operation.remote].send(operation.id, operation.request, operation.id)
            lease = store.checkpoint(lease, operation.id, receipt.reference)
    return store.succeed(lease)
"""


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage() as opened:
        yield opened


def test_the_reference_loses_and_doubles_nothing_while_workers_are_killed_and_answers_are_lost(stage: Stage):
    told: list[Found] = []
    lossy = seeded(3, {Delivery.REQUEST_LOST: 0.05, Delivery.RESPONSE_LOST: 0.05, Delivery.LATE: 0.05})
    tally = kill_at_random("by_capability", 12, 5, network=lossy, tell=told.append, stage=stage)
    assert tally.kills == 12
    assert tally.bad == ()
    assert tuple(told) == tally.runs
    assert set(tally.verdicts) == {Verdict.EXACTLY_ONCE}
    assert all(set(run.effects.values()) == {1} for run in tally.runs)


def test_blind_replay_doubles_under_the_same_kills(stage: Stage):
    tally = kill_at_random("blind_replay", 20, 5, stage=stage)
    assert tally.verdicts[Verdict.DUPLICATED] > 0
    doubled = tally.bad[0]
    assert "happened 2 times" in str(doubled) or "happened 3 times" in str(doubled)


def test_a_program_that_does_nothing_is_stuck_and_does_not_hang(stage: Stage):
    tally = kill_at_random("def recover(task_id, store, remotes):\n    raise ValueError('no')\n", 1, 1, stage=stage)
    assert tally.verdicts == {Verdict.STUCK: len(tally.runs)}
    assert "ValueError: no" in str(tally.runs[0])


def test_kills_are_one_or_more_and_a_program_can_be_meant(stage: Stage):
    with pytest.raises(InvalidInput, match="kills: 1 or more"):
        kill_at_random("same_key", 0, stage=stage)
    with pytest.raises(InvalidInput, match="a readable file"):
        kill_at_random(Path("nowhere.py"), stage=stage)
    with pytest.raises(InvalidInput, match=r"a function, .* or one of assume_done"):
        kill_at_random("hope", stage=stage)


def test_a_tally_counts_kills_and_verdicts_the_best_first():
    runs = (
        Found(("after claim task-1",), Verdict.DUPLICATED, {"task-1/refund": 2, "task-1/x": 1}),
        Found((), Verdict.EXACTLY_ONCE, {"task-1/refund": 1}),
        Found(("during send x", "after y"), Verdict.STOPPED_CLEAN, {}, ("E: no", "E: no")),
    )
    tally = Tally(runs)
    assert str(tally) == "3 kills in 3 runs; exactly once: 1, stopped clean: 1, duplicated: 1"
    assert [str(run) for run in runs] == [
        "duplicated; killed: after claim task-1; task-1/refund happened 2 times",
        "exactly once; killed: never",
        "stopped clean; killed: during send x, after y; E: no",
    ]
    assert tally.bad == runs[:1]


# --- the command ------------------------------------------------------------------------------------


def test_the_command_drills_a_file_and_shows_how_it_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "mine.py"
    file.write_text(NAIVE)
    before = strays()
    assert main(["drill", str(file), "--kills", "12", "--steps", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{file}: workers are real processes")
    assert lines[1].startswith("  duplicated; killed: ")
    assert "happened 2 times" in lines[1]
    assert lines[-2].startswith("12 kills in ")
    assert "work was lost, doubled or stuck" in lines[-1]
    assert strays() == before


def test_the_command_lets_calls_be_refused_too(capsys: pytest.CaptureFixture[str]):
    asked: list[Fates] = []

    def play(*arguments: object, network: Fates, **options: object) -> Tally:
        asked.append(network)
        return Tally(())

    assert run_drill("same_key", 1, 1, 1, ["503=1"], play=play) == 0
    assert run_drill("same_key", 1, 1, 1, ["late=1"], play=play) == 0
    assert run_drill("same_key", 1, 1, 1, play=play) == 0
    call = Call("payments", "send", "x", "x#1")
    assert [network(call) for network in asked] == [REFUSALS[503], Delivery.LATE, Delivery.DELIVERED]
    assert main(["drill", "same_key", "--fault", "hope=1"]) == 2
    assert "request_lost, response_lost, late, 403, 429, 503" in capsys.readouterr().out


def test_refusals_under_kills_cost_the_reference_nothing(stage: Stage):
    network = network_of(drawn({"429": 0.1, "503": 0.1}, 5))
    tally = kill_at_random("by_capability", 6, 5, network=network, stage=stage)
    assert set(tally.verdicts) <= {Verdict.EXACTLY_ONCE, Verdict.STOPPED_CLEAN}


def test_the_command_says_what_a_clean_result_is_worth(capsys: pytest.CaptureFixture[str]):
    clean = Tally((Found((), Verdict.NEEDS_A_PERSON, {}),))
    assert run_drill("same_key", 1, 1, 1, play=lambda *a, **k: clean) == 0
    assert capsys.readouterr().out.endswith("That holds for these kills; no number proves it.\n")


def test_the_command_tells_in_a_line_what_went_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    def fails(*arguments: object, **options: object) -> Tally:
        raise ChildFailed("worker-1", 0, "SyntaxError: no", "did not start")

    assert run_drill("mine.py", 1, 1, 1, play=fails) == 2
    assert capsys.readouterr().out.endswith("This went wrong: worker-1 did not start; it said: SyntaxError: no\n")
    assert main(["drill", str(tmp_path / "nowhere.py")]) == 2
    assert "This went wrong: expected a readable file of Python" in capsys.readouterr().out
