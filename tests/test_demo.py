"""`recovery-lab demo`: one crash, recovered in two ways, with real processes."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from labkit.cli.demo import ledger_lines, run_demo
from labkit.real.drill import SEND_REFUND, DrillFailed, drill
from labkit.runs import Moment, Run, Verdict

STORY = """\
The task: "refund order 1042 and tell the customer". Every worker is a process of its own.

blind_replay: after the crash the next worker sends the refund again
  worker-1 is killed after: send task-1/refund
  worker-2 carries the task as far as it goes: succeeded
  the ledger of payments: task-1/refund happened twice
  the ledger of tickets:  task-1/update_ticket happened once
  the ledger of mail:     task-1/send_email happened once
  verdict: duplicated

same_key: the next worker sends it again under the same idempotency key
  worker-1 is killed after: send task-1/refund
  worker-2 carries the task as far as it goes: succeeded
  the ledger of payments: task-1/refund happened once
  the ledger of tickets:  task-1/update_ticket happened once
  the ledger of mail:     task-1/send_email happened once
  verdict: exactly once

Same crash, same database, same remotes. The difference is one line: the key of the request.
"""
NOT_MEANT = "This is not what this demo is meant to show. 'recovery-lab doctor' may tell why."


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return {policy: drill(policy, SEND_REFUND) for policy in ("blind_replay", "same_key")}


def replaying(runs: dict[str, Run], **changes: Callable[[Run], Run]) -> Callable[..., Run]:
    """Stands in for the drill: plays the recorded runs, some of them changed."""

    def play(policy: str, crash_at: str, tell: Callable[[str], None]) -> Run:
        assert crash_at == SEND_REFUND
        return changes.get(policy, lambda run: run)(runs[policy])

    return play


def test_the_command_tells_the_whole_story_and_exits_with_0():
    command = [sys.executable, "-c", "import sys; from labkit.cli import main; sys.exit(main(['demo']))"]
    done = subprocess.run(command, capture_output=True, encoding="ascii", timeout=60)
    assert done.stdout == STORY
    assert (done.returncode, done.stderr) == (0, "")


def test_runs_that_end_as_expected_exit_with_0(runs: dict[str, Run], capsys: pytest.CaptureFixture[str]):
    assert run_demo(replaying(runs)) == 0
    assert NOT_MEANT not in capsys.readouterr().out


def unharmed(run: Run) -> Run:
    return replace(run, moments=tuple(replace(moment, fault="") for moment in run.moments))


@pytest.mark.parametrize(
    "changes",
    [
        {"blind_replay": lambda run: replace(run, verdict=Verdict.EXACTLY_ONCE)},
        {"same_key": lambda run: replace(run, verdict=Verdict.DUPLICATED)},
        {"same_key": unharmed},
        {"same_key": lambda run: replace(run, moments=(*run.moments, Moment(99, None, "", "", "", "", (), "crash")))},
    ],
    ids=["blind replay exactly once", "same key duplicated", "nobody was killed", "two were killed"],
)
def test_a_run_that_ends_in_another_way_exits_with_1(
    runs: dict[str, Run], capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
):
    assert run_demo(replaying(runs, **changes)) == 1
    assert capsys.readouterr().out.splitlines()[-1] == NOT_MEANT


def test_a_drill_that_fails_is_told_in_a_line_and_exits_with_1(capsys: pytest.CaptureFixture[str]):
    def play(policy: str, crash_at: str, tell: Callable[[str], None]) -> Run:
        raise DrillFailed("worker-1", crash_at, 1, "no room")

    assert run_demo(play) == 1
    printed = capsys.readouterr().out.splitlines()
    said = "this went wrong: worker-1 was to be killed after 'send task-1/refund', but ended with exit code 1"
    assert [line for line in printed if "went wrong" in line] == [f"  {said}; it said: no room"] * 2
    assert printed[-1] == NOT_MEANT


def test_the_ledger_lines_count_in_words_and_name_what_never_happened(runs: dict[str, Run]):
    run = replace(runs["same_key"], effects=(("task-1/send_email", 3), ("task-1/update_ticket", 1)))
    assert ledger_lines(run) == [
        "the ledger of payments: task-1/refund happened never",
        "the ledger of tickets:  task-1/update_ticket happened once",
        "the ledger of mail:     task-1/send_email happened 3 times",
    ]
