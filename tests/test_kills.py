"""Many real kills at random, and the command that lets a student hold such a drill."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from strays import strays

from labkit.cli import main
from labkit.cli.drill import KINDS, MEANING, network_of, run_drill
from labkit.cli.serve import drawn
from labkit.errors import InvalidInput
from labkit.real.children import ChildFailed
from labkit.real.kills import kill_at_random
from labkit.real.service import REFUSALS
from labkit.real.setting import Fates
from labkit.real.stage import Stage
from labkit.real.tally import Found, Tally
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
    with pytest.raises(InvalidInput, match=r"a readable file of Python, found 'nowhere.py: No such file"):
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
        "stopped clean; killed: during send x, after y; E: no; and 1 error more",
    ]
    assert tally.bad == runs[:1]


def test_of_the_errors_of_a_run_the_first_of_each_kind_are_shown():
    errors = ("E: 1", "E: 2", "F: 1", "G: 1", "H: 1", "H: 1", "H: 2")
    assert str(Found((), Verdict.STUCK, {}, errors)) == "stuck; killed: never; E: 1; F: 1; G: 1; and 4 errors more"
    assert str(Found((), Verdict.STUCK, {}, ("E: 1", "E: 1"))) == "stuck; killed: never; E: 1; and 1 error more"


SHARES_A_KEY = """\
def recover(task_id, store, remotes):
    task = store.get(task_id)
    lease = store.claim(task, "mine") if task.state == "queued" else store.take_over(task, "mine")
    for operation in store.get(task_id).current:
        if operation.result_ref is None:
            memory = remotes[operation.remote].capabilities.key_ttl_seconds
            lease, attempt = store.intend(lease, operation.id, key_memory_seconds=memory)
            receipt = remotes[operation.remote].send(operation.id, operation.request, attempt.request_id, "my key")
            lease = store.checkpoint(lease, operation.id, receipt.reference)
    return store.succeed(lease)
"""


def test_a_key_that_several_operations_share_is_found_out(stage: Stage, capsys: pytest.CaptureFixture[str]):
    tally = kill_at_random(SHARES_A_KEY, 2, 5, steps=1, stage=stage)
    assert [run.confused > 0 for run in tally.runs[:2]] == [False, True]
    assert "a key came with another body" in str(tally.confused[0])
    assert run_drill("same_key", 1, 1, 1, play=lambda *a, **k: tally) == 1
    found, runs = len(tally.confused), len(tally.runs)
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"Warning: in {found} of {runs} runs a key came with another body. Each operation needs a key of its own, and "
        "under it the same request every time."
    )
    own = kill_at_random(SHARES_A_KEY.replace('"my key"', "operation.id"), 2, 5, steps=1, stage=stage)
    assert own.confused == ()
    assert own.verdicts[Verdict.EXACTLY_ONCE] > 0


def test_tasks_that_share_their_ledgers_are_judged_each_by_its_own_effects(stage: Stage):
    tally = kill_at_random("same_key", 1, 5, steps=1, stage=stage)
    assert [dict(run.effects) for run in tally.runs[:2]] == [{"task-1/refund": 1}, {"task-2/refund": 1}]


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
    ended = lines.index(next(line for line in lines if line.startswith("12 kills in ")))
    assert lines[ended].endswith("They ended:")
    assert any(line.strip().endswith("duplicated: the ledgers show an effect more than once") for line in lines[ended:])
    assert "work was lost, doubled or stuck" in lines[-1]
    assert strays() == before


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("to_all", [True, False])
def test_a_drill_that_is_told_to_end_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, to_all: bool
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code = "import sys; from labkit.cli import main; sys.exit(main(['drill', 'same_key', '--kills', '1000']))"
    pipe, number, before = subprocess.PIPE, getattr(signal, name), strays()
    command = [sys.executable, "-c", code]
    drill = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    assert drill.stdout is not None
    assert drill.stdout.readline().startswith("same_key: workers are real processes")
    (os.killpg if to_all else os.kill)(drill.pid, number)
    _, said = drill.communicate(timeout=60)
    assert (said, drill.returncode) == ("", 128 + number)
    assert list(tmp_path.iterdir()) == []
    assert strays() == before


def test_the_command_lets_calls_be_refused_too(capsys: pytest.CaptureFixture[str]):
    asked: list[Fates] = []

    def play(*arguments: object, network: Fates, **options: object) -> Tally:
        asked.append(network)
        return Tally(())

    assert run_drill("same_key", 1, 1, 1, ["503=1"], play=play) == 0
    assert run_drill("same_key", 1, 1, 1, ["late=1"], play=play) == 0
    assert run_drill("same_key", 1, 1, 1, play=play) == 0
    assert run_drill("same_key", 1, 1, 1, ["refused=1"], play=play) == 0
    call = Call("payments", "send", "x", "x#1")
    assert [network(call) for network in asked] == [REFUSALS[503], Delivery.LATE, Delivery.DELIVERED, Delivery.REFUSED]
    capsys.readouterr()
    assert main(["drill", "same_key", "--fault", "hope=1"]) == 2
    kinds = ", ".join(KINDS)
    assert kinds == "refused, request_lost, response_lost, late, 403, 429, 503"
    assert kinds in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["drill", "--help"])
    assert f"Kinds: {kinds} " in " ".join(capsys.readouterr().out.split()) + " "


def test_refusals_under_kills_cost_the_reference_nothing(stage: Stage):
    network = network_of(drawn({"429": 0.1, "503": 0.1}, 5))
    tally = kill_at_random("by_capability", 6, 5, network=network, stage=stage)
    assert set(tally.verdicts) <= {Verdict.EXACTLY_ONCE, Verdict.STOPPED_CLEAN}


GIVES_UP = """\
from labkit.retries import Category

def recover(task_id, store, remotes):
    task = store.get(task_id)
    lease = store.claim(task, "mine") if task.state == "queued" else store.take_over(task, "mine")
    return store.fail(lease, Category.INVALID)
"""


def test_a_program_that_gives_every_task_up_does_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "mine.py"
    file.write_text(GIVES_UP)
    assert main(["drill", str(file), "--kills", "2", "--seed", "2"]) == 1
    lines = capsys.readouterr().out.splitlines()
    runs = int(re.fullmatch(r"2 kills in (\d+) runs?\. They ended:", lines[-3])[1])  # type: ignore[index]
    assert lines[1].startswith("  stopped clean; killed: ")
    assert lines[-2].strip() == f"{runs}  stopped clean: {MEANING[Verdict.STOPPED_CLEAN]}"
    assert lines[-1] == (
        f"Warning: in {runs} of {runs} run{'s' * (runs > 1)} the program gave the task up, though nobody cancelled it "
        "and no remote refused anything."
    )


@pytest.mark.parametrize(
    "network",
    [lambda call: REFUSALS[403], lambda call: Delivery.REFUSED],
    ids=["forbidden", "no connection"],
)
def test_a_task_that_fails_for_what_the_drill_refused_is_not_given_up(stage: Stage, network: Fates):
    tally = kill_at_random("by_capability", 1, 5, steps=1, network=network, stage=stage)
    assert set(tally.verdicts) == {Verdict.STOPPED_CLEAN}
    assert all(run.refusals for run in tally.runs)
    assert tally.given_up == ()
    assert run_drill("by_capability", 1, 1, 1, play=lambda *a, **k: tally) == 0


def test_what_a_remote_itself_refuses_is_a_reason_to_stop_too(stage: Stage):
    source = GIVES_UP.replace(
        "    return",
        """\
    operation = store.get(task_id).operations[0]
    for number in (1, 2):
        try:
            remotes["payments"].send("bonus", {"number": number}, f"request-{number}", "one key")
        except Exception:
            pass
    return""",
    )
    tally = kill_at_random(source, 1, 5, steps=1, stage=stage)
    assert all(run.refusals for run in tally.runs if not run.killed)
    assert tally.given_up == ()


def test_the_command_says_how_many_runs_ended_how(capsys: pytest.CaptureFixture[str]):
    ends = [*Verdict, Verdict.LOST, Verdict.EXACTLY_ONCE]
    tally = Tally(tuple(Found((), verdict, {}, refusals=1) for verdict in ends))
    assert run_drill("same_key", 1, 1, 1, play=lambda *a, **k: tally) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "0 kills in 8 runs. They ended:"
    counts = {Verdict.EXACTLY_ONCE: 2, Verdict.LOST: 2}
    assert lines[1:7] == [f"{counts.get(one, 1):>6}  {one}: {MEANING[one]}" for one in Verdict]
    assert lines[7:] == ["In 4 of 8 runs work was lost, doubled or stuck."]


def test_the_command_says_that_a_person_has_answered(stage: Stage, capsys: pytest.CaptureFixture[str]):
    network = network_of(drawn({"response_lost": 1.0}, 5))
    tally = kill_at_random("ask_person", 1, 5, steps=1, network=network, stage=stage)
    assert all(run.asked for run in tally.runs)
    assert run_drill("ask_person", 1, 1, 1, play=lambda *a, **k: tally) == 0
    runs = len(tally.runs)
    assert capsys.readouterr().out.splitlines()[-2] == (
        f"In {runs} of {runs} runs the task waited for a person, who answered truthfully; without one it would wait "
        "still."
    )


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            "def make(a): ...\ndef rec(a): ...\n",
            "expected a function called recover, or one function alone, that takes (task_id, store, remotes), "
            "found '{file}: make, rec'",
        ),
        ("def fib(n): ...\n", "expected a function that takes (task_id, store, remotes), found 'fib(n)'"),
        (
            "def recover(a, *, b): ...\n",
            "expected a function that takes (task_id, store, remotes), found 'recover(a, *, b)'",
        ),
        ("def recover(:\n", "SyntaxError: invalid syntax (mine.py, line 1)"),
    ],
    ids=["which", "another kind", "too few", "no Python"],
)
def test_a_file_that_is_no_program_is_said_before_anything_is_promised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, told: str
):
    file = tmp_path / "mine.py"
    file.write_text(source)
    assert main(["drill", str(file), "--kills", "1"]) == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("This went wrong: worker-1 did not start; it said: ")
    assert line.endswith(told.format(file=file))


def test_the_command_says_what_a_clean_result_is_worth(capsys: pytest.CaptureFixture[str]):
    clean = Tally((Found((), Verdict.NEEDS_A_PERSON, {}),))
    assert run_drill("same_key", 1, 1, 1, play=lambda *a, **k: clean) == 0
    assert capsys.readouterr().out.endswith("That holds for these kills; no number proves it.\n")


def test_the_command_tells_in_a_line_what_went_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    def fails(*arguments: object, **options: object) -> Tally:
        raise ChildFailed("worker-1", 0, "SyntaxError: no", "did not start")

    assert run_drill("mine.py", 1, 1, 1, play=fails) == 2
    assert capsys.readouterr().out == "This went wrong: worker-1 did not start; it said: SyntaxError: no\n"
    assert main(["drill", str(tmp_path / "nowhere.py")]) == 2
    assert capsys.readouterr().out.startswith("This went wrong: expected a readable file of Python")
