"""Predictions, hints, and checks that neither raise nor hang, whatever an answer does."""

import _thread
import json
import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest
from strays import strays

import labkit.policies
from labkit.course import CheckResult, check, compare, hint, journal, story, why
from labkit.course.child import GRACE_SECONDS, LIFE_SECONDS
from labkit.course.lessons import EXERCISES, exercise
from labkit.course.story import StoryStep
from labkit.course.submission import PARCEL_FILE, Submission, Unfit, in_words
from labkit.course.trials import Trial
from labkit.course.verdicts import table_html
from labkit.errors import InvalidInput
from labkit.policies import POLICIES
from labkit.runs import Verdict
from labkit.show.tables import TextTable
from labkit.store import TaskStore
from labkit.worker import Worker

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as functions of a notebook's cells travel

ENDED = "Its process ended before the check did: os._exit, or a crash of Python itself?"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files during a test, and the current one: what is left there was left behind."""
    folder = tmp_path / "temporary files"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.chdir(folder)
    return folder


def operation_id(operation_id: str, attempt: int) -> str:
    return operation_id


def stub(operation_id: str, attempt: int) -> str:
    raise NotImplementedError("change this line")


NOT_YET = 'exercise 0.1: not attempted yet\nFor a hint: from labkit.course import hint; hint("0.1")'

# --- predictions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prediction", "observed", "line"),
    [
        (None, 2, "No prediction yet: write one above, then run again."),
        (2, 2, "predicted: 2; observed: 2; as predicted"),
        ("2", 2, "predicted: 2; observed: 2; as predicted"),
        (1, 2, "predicted: 1; observed: 2; a surprise"),
        (0, 0, "predicted: 0; observed: 0; as predicted"),
        (" Exactly Once", Verdict.EXACTLY_ONCE, "predicted:  Exactly Once; observed: exactly once; as predicted"),
        ("lost", Verdict.DUPLICATED, "predicted: lost; observed: duplicated; a surprise"),
        ("once", 1, "predicted: once, which is no number"),
        ("never", 2, "predicted: never; observed: 2; a surprise"),
        ("ever", 29, "predicted: ever; observed: 29; a surprise"),
    ],
)
def test_a_prediction_is_printed_beside_the_observation(
    capsys: pytest.CaptureFixture[str], prediction: object, observed: object, line: str
):
    compare(prediction, observed)
    assert capsys.readouterr().out == line + "\n"


def test_a_prediction_that_cannot_be_meant_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    compare("once", 1, "00: refunds")
    compare("perhaps", Verdict.LOST, "00: verdict")
    assert journal.entries("prediction") == []


def prints(operation_id: str, attempt: int) -> str:
    print("asked for", operation_id)
    print("<b>attempt</b>", attempt, file=sys.stdout)
    return operation_id


def test_what_an_answer_prints_is_shown_as_far_as_there_is_room():
    result = check("0.1", prints)
    lines = str(result).splitlines()
    place = lines.index("What it printed first:")
    assert lines[place + 1 : place + 3] == ["  asked for task-1/refund", "  <b>attempt</b> 1"]
    assert len(lines) == place + 9
    assert result.passed
    assert "&lt;b&gt;attempt" in result._repr_mimebundle_()["text/html"]


# --- hints ------------------------------------------------------------------------------------------


def test_hints_come_in_order_and_the_last_one_again_and_again(capsys: pytest.CaptureFixture[str]):
    hints = exercise("0.1").hints
    assert len(set(hints)) == 3
    for number in (1, 2, 3, 3, 3):
        hint("0.1")
        assert capsys.readouterr().out == f"hint {number} of 3: {hints[number - 1]}\n"


def test_an_exercise_is_found_by_its_number_without_quotes_too(capsys: pytest.CaptureFixture[str]):
    hint(4.1)
    assert capsys.readouterr().out.startswith("hint 1 of 3: Two tables change")
    assert exercise(4.1) is exercise("4.1")
    assert check(4.1, any_stub).number == "4.1"
    why(4.1, "")
    assert capsys.readouterr().out == "why 4.1: not answered yet\n"


@pytest.mark.parametrize("ask", [hint, exercise, lambda number: check(number, operation_id)])
def test_an_unknown_exercise_is_refused_with_the_numbers_of_those_that_exist(ask: Callable[[str], object]):
    with pytest.raises(InvalidInput, match=r"one of the exercises 0\.1.*found '9\.9'"):
        ask("9.9")


@pytest.mark.parametrize("number", EXERCISES)
def test_the_stub_of_every_exercise_is_not_attempted_and_scores_nothing(number: str):
    result = check(number, any_stub, 60)
    advice = f'For a hint: from labkit.course import hint; hint("{number}")'
    assert str(result) == f"exercise {number}: not attempted yet\n{advice}"
    assert (result.attempted, result.score(1)) == (False, 0.0)


def any_stub(*args: object, **kwargs: object) -> None:
    raise NotImplementedError("change this line")


def test_every_exercise_has_a_title_and_three_hints_that_do_not_hold_code():
    for number, found in EXERCISES.items():
        assert found.number == number
        assert found.title
        assert all(found.hints)


# --- what a check says ------------------------------------------------------------------------------


def test_the_stub_is_not_attempted_yet_and_scores_nothing():
    result = check("0.1", stub)
    assert str(result) == NOT_YET
    assert (result.attempted, result.passed, result.schedules, result.score(3)) == (False, False, 0, 0.0)
    with pytest.raises(AssertionError, match=r"^exercise 0\.1: not attempted yet\n"):
        result.require()


def test_a_pass_states_what_was_shown_within_which_bounds():
    result = check("0.1", operation_id)
    assert str(result).splitlines() == [
        "exercise 0.1: passed.",
        "Shown: 3 refunds, run without a crash and with one at each of 13 crash points; the next worker",
        "is a new process; the ledger has each refund once.",
    ]
    assert result.trial is not None
    assert (result.schedules, result.trial.faults) == (14, {"crash": 13})
    assert result.score(3) == 3.0


def test_a_failure_shows_the_smallest_run_in_three_views_the_law_and_a_hint():
    result = check("0.1", lambda operation_id, attempt: f"{operation_id}/{attempt}")
    assert str(result).splitlines() == [
        "exercise 0.1: not passed.",
        "The smallest run that breaks it has one crash, after send task-1/refund:",
        "",
        "crossing              key  the worker believes       the database says    the ledger shows",
        "--------------------  ---  ------------------------  -------------------  -------------------",
        "worker-1 starts",
        "claim task-1               running v2, token 1       running, pending     nothing yet",
        'intend task-1/refund       about to send, attempt 1  running, in doubt    "',
        'send task-1/refund    A    applied: payments-1       "                    refund 1x',
        '!! worker-1 dies                                     "                    "',
        "worker-2 starts",
        'take_over task-1           uncertain v4, token 2     uncertain, in doubt  "',
        'intend task-1/refund       about to send, attempt 2  "                    "',
        'send task-1/refund    B    applied: payments-2       "                    refund 2x  <- WRONG',
        'settle task-1/refund       applied (key)             queued, done         "',
        'claim task-1               running v7, token 3       running, done        "',
        'succeed task-1             succeeded v8, token 3     succeeded, done      "',
        "",
        "The law that broke, no_second_effect: No operation has two effects. The ledger shows 2 of",
        "task-1/refund.",
        "A hint: Compare the keys of its sendings: the remote can only recognise what is the same.",
        'For more hints: from labkit.course import hint; hint("0.1")',
    ]
    assert result.schedules == 4


def test_an_answer_that_fails_without_a_crash_is_told_so_and_shown_who_had_its_key():
    result = check("0.1", lambda operation_id, attempt: "refund")
    assert str(result).splitlines() == [
        "exercise 0.1: not passed.",
        "It fails even without a crash:",
        "",
        "crossing                  key  the worker believes         the database says  the ledger shows",
        "------------------------  ---  --------------------------  -----------------  ----------------",
        "worker-1 starts",
        "",
        "... 2 more ...",
        "",
        "send task-1/refund        A    applied: payments-1         running, in doubt  task-1/refund 1x",
        "",
        "... 2 more ...",
        "",
        "claim task-2                   running v2, token 1         running, pending   task-2/refund 0x",
        "",
        'intend task-2/refund           about to send, attempt 1    running, in doubt  "',
        "",
        'send task-2/refund        A    applied before: payments-1  "                  "',
        "",
        "checkpoint task-2/refund       result on record            running, done      task-2/refund 0x",
        f"{'<- WRONG':>86}",
        "",
        "The law that broke, success_means_done: Every refund has its effect once. On record",
        "task-2/refund is done; the ledger shows none of it.",
        "A hint: The remote has met this key before, on another operation. Which operations may share a",
        "key?",
        'For more hints: from labkit.course import hint; hint("0.1")',
    ]
    assert result.schedules == 1


def test_a_random_answer_is_answered_with_the_same_words_every_time():
    assert len({str(check("0.1", lambda operation_id, attempt: secrets.token_hex())) for _ in range(2)}) == 1


def test_a_notebook_shows_the_stub_as_text_alone_and_everything_else_as_html_too():
    assert CheckResult("0.1", False)._repr_mimebundle_() == {"text/plain": NOT_YET}
    shown = CheckResult("0.1", True, Trial(True, 1, shown=("nothing <b>at all</b>",)))._repr_mimebundle_()
    assert shown["text/plain"] == "exercise 0.1: passed.\nShown: nothing <b>at all</b>."
    assert "<li>nothing &lt;b&gt;at all&lt;/b&gt;.</li>" in shown["text/html"]


def test_a_failure_in_html_has_the_story_the_law_and_the_hint_with_a_students_words_escaped():
    html = check("2.1", claims_nothing)._repr_mimebundle_()["text/html"]
    for words in ("not passed", "<th scope=", "one_says_yes", "<b>A hint:</b>", "SELECT &#x27;&lt;b&gt;&#x27;"):
        assert words in html
    assert "'<b>'" not in html


def test_a_hint_in_html_sets_as_code_what_stands_between_backticks():
    trial = Trial(False, 1, run="it", law="says_so", broke="A `<b>` is there.", hint="Use `with db:`.")
    html = CheckResult("2.1", True, trial)._repr_mimebundle_()["text/html"]
    assert "A <code>&lt;b&gt;</code> is there." in html
    assert "Use <code>with db:</code>." in html


def test_names_and_marks_in_a_table_of_html_are_kept_on_one_line():
    table = TextTable(("who", "what"), (("worker-12 (lab)", "send task-1/refund  !! crash"), ("-", "2x  <- WRONG")))
    counts = (("cancelled v5, token 1", "task-1/voucher/undo 1x"), ("attempt 2", "task-1 queued v1"))
    html = table_html(table) + table_html(TextTable(("believes", "says"), counts))
    names = ("worker-12 (lab)", "task-1/refund", "!! crash", "&lt;- WRONG")
    for whole in (*names, "cancelled v5", "token 1", "task-1/voucher/undo 1x", "attempt 2", "task-1 queued v1"):
        assert f'white-space: nowrap">{whole}</span>' in html


def test_the_cell_that_is_wrong_stands_out_by_its_weight_and_a_bar_beside_the_word():
    (wrong,) = re.findall(r'<td style="([^"]*)"[^>]*>2x', table_html(TextTable(("a", "b"), (("1x", "2x  <- WRONG"),))))
    assert "font-weight: 700" in wrong
    assert "box-shadow: inset 4px" in wrong
    assert table_html(TextTable(("a",), (("1x",),))).count("font-weight") == 0


def test_the_name_of_an_operation_is_kept_on_one_line_in_a_sentence_too():
    trial = Trial(False, 1, run="it", law="says_so", broke="The ledger shows 2 of task-1/refund.", hint="Look.")
    html = CheckResult("2.1", True, trial)._repr_mimebundle_()["text/html"]
    assert 'nowrap">task-1/refund</span>.' in html


def claims_nothing(db: Any, task_id: str, expected_version: int) -> bool:
    db.execute("SELECT '<b>'")
    return False


def test_faults_that_happened_are_counted():
    result = check("3.2", finishes)
    assert result.passed, result
    assert set(result.faults) == {"crash", "pause", "switch"}
    assert result.schedules > 20


def finishes(db: Any, task_id: str, token: int) -> bool:
    with db:
        sql = (
            "UPDATE tasks SET state = 'succeeded', version = version + 1, lease_owner = NULL, lease_expires_at = NULL "
            "WHERE id = ? AND state = 'running' AND lease_token = ?"
        )
        return bool(db.execute(sql, (task_id, token)).rowcount)


def test_a_check_of_a_usual_answer_takes_less_than_five_seconds_of_the_processor():
    """By the clock on the wall it takes longer on a busy machine; of child processes only Windows does not tell."""
    started = os.times()
    assert check("0.1", operation_id).passed
    took = [now - then for now, then in zip(os.times()[:4], started[:4], strict=True)]
    assert sum(took) < 5, took


def test_a_check_works_on_another_thread():
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(check, "0.1", operation_id).result().passed


# --- hostile answers --------------------------------------------------------------------------------


def loop(operation_id: str, attempt: int) -> str:
    while True:
        pass


def loop_that_swallows_interrupts(operation_id: str, attempt: int) -> str:
    while True:
        try:
            time.sleep(60)
        except BaseException:  # noqa: BLE001, RUF100
            continue


def recursion(operation_id: str, attempt: int) -> str:
    return recursion(operation_id, attempt)


def exit_by_sys(operation_id: str, attempt: int) -> str:
    sys.exit(0)


def exit_by_os(operation_id: str, attempt: int) -> str:
    os._exit(0)


def kill_myself(operation_id: str, attempt: int) -> str:
    os.kill(os.getpid(), 9)
    return operation_id


def interrupt(operation_id: str, attempt: int) -> str:
    raise KeyboardInterrupt


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


def raise_what_cannot_speak(operation_id: str, attempt: int) -> str:
    raise Mute


def raise_an_address(operation_id: str, attempt: int) -> str:
    raise ValueError(f"{object()} and\n  more")


def return_an_object(operation_id: str, attempt: int) -> Any:
    return object()


async def return_a_coroutine(operation_id: str, attempt: int) -> str:
    return operation_id


ASKED = "Asked for the key of task-1/refund, attempt 1, it"


@pytest.mark.parametrize(
    ("answer", "seconds", "trouble"),
    [
        (loop, 1, "It was still running after 1 seconds: a loop that never ends?"),
        (loop_that_swallows_interrupts, 1, "It was still running after 1 seconds: a loop that never ends?"),
        (recursion, 10, f"{ASKED} raised RecursionError: maximum recursion depth exceeded."),
        (exit_by_sys, 10, f"{ASKED} called sys.exit."),
        (exit_by_os, 10, ENDED),
        (kill_myself, 10, ENDED),
        (interrupt, 10, "It raised KeyboardInterrupt."),
        (raise_what_cannot_speak, 10, f"{ASKED} raised Mute."),
        (raise_an_address, 10, f"{ASKED} raised ValueError: <object object> and more."),
        (return_an_object, 10, f"{ASKED} returned an object of type object. A key is text, and not empty."),
        (return_a_coroutine, 10, f"{ASKED} returned an object of type coroutine. A key is text, and not empty."),
        (None, 10, "The answer must be the function itself, without brackets behind its name."),
        ("task-1/refund", 10, "The answer must be the function itself, without brackets behind its name."),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_hostile_answer_gets_a_clear_message_in_time_and_leaves_nothing(
    place: Path, capfd: pytest.CaptureFixture[str], answer: Any, seconds: float, trouble: str
):
    started = time.monotonic()
    result = check("0.1", answer, seconds)
    assert result.trouble == trouble
    assert (result.attempted, result.passed) == (True, False)
    first, *told, last = str(result).splitlines()
    assert (first, " ".join(told)) == ("exercise 0.1: not passed.", result.trouble)
    assert last == 'For a hint: from labkit.course import hint; hint("0.1")'
    assert time.monotonic() - started < 60  # killed, and not waited for
    assert strays() == []
    assert list(place.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def spin(*_: Any) -> None:
    while True:
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="a run is not timed there: the check's own limit ends it")
@pytest.mark.parametrize("number", ["2.1", "9.2", "10.1c"])
def test_an_endless_run_is_told_long_before_the_seconds_of_its_exercise_are_up(place: Path, number: str):
    result = check(number, spin)
    assert result.trouble.endswith("one run went on for 7 seconds: a loop that never ends?")
    assert (result.attempted, result.passed) == (True, False)


@pytest.mark.skipif(sys.platform == "win32", reason="a run is not timed there: the check's own limit ends it")
def test_an_endless_run_of_an_answer_that_has_kept_something_is_told_once_and_not_waited_for_again(place: Path):
    notes = ["of an earlier cell"]

    def spins(*_: Any) -> None:
        notes.append("of this one")
        while True:
            pass

    assert check("2.1", spins).trouble.endswith("one run went on for 7 seconds: a loop that never ends?")


def print_megabytes(operation_id: str, attempt: int) -> str:
    for stream in (sys.stdout, sys.stderr):
        print("x" * 3_000_000, file=stream)
        os.write(stream.fileno(), b"x" * 3_000_000)
    return operation_id


def close_the_streams(operation_id: str, attempt: int) -> str:
    if not sys.stdout.closed:
        sys.stdout.close()
        sys.stderr.close()
        os.closerange(0, 3)
    return operation_id


def start_a_thread_that_never_ends(operation_id: str, attempt: int) -> str:
    threading.Thread(target=threading.Event().wait).start()
    return operation_id


def litter(operation_id: str, attempt: int) -> str:
    import tempfile

    tempfile.mkdtemp()
    return operation_id


def break_labkit(operation_id: str, attempt: int) -> str:
    import labkit.policies
    import labkit.store

    labkit.store.TaskStore.claim = None  # type: ignore[method-assign,assignment]
    labkit.policies.POLICIES.clear()  # type: ignore[attr-defined]
    json.dumps = None  # type: ignore[assignment]
    return operation_id


@pytest.mark.parametrize(
    "answer",
    [print_megabytes, close_the_streams, start_a_thread_that_never_ends, litter],
    ids=lambda answer: answer.__name__,
)
def test_a_strange_answer_that_is_right_passes_and_leaves_nothing(
    place: Path, capfd: pytest.CaptureFixture[str], answer: Any
):
    assert check("0.1", answer).passed
    assert strays() == []
    assert list(place.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_a_run_without_an_end_is_told_in_few_lines_and_soon(monkeypatch: pytest.MonkeyPatch):
    tables: list[int] = []

    def counted(steps: Sequence[StoryStep], kept: int, *more: Any) -> TextTable:
        tables.append(kept)
        return as_table(steps, kept, *more)

    as_table = story._table
    monkeypatch.setattr(story, "_table", counted)
    table = story.story_of([StoryStep("worker-1", f"SELECT {number}", "", "queued v1", {}) for number in range(2_000)])
    assert len(str(table).splitlines()) <= story.MAX_LINES
    assert len(tables) <= story.MAX_LINES  # each takes as long as the whole run is long


def test_a_search_that_is_slow_says_so_and_is_not_called_a_loop(monkeypatch: pytest.MonkeyPatch):
    """Here without a process that is killed after some seconds: how far it comes by then is up to the machine."""
    monkeypatch.setattr(time, "sleep", time.sleep)  # the search puts another in its place

    class Slow:
        seconds = 0.1

        def run(self, hunts: Any) -> Any:
            assert 0 < hunts.seconds < self.seconds  # of the check's own, so that there is time left to say it
            return hunts(finishes_late)

    with pytest.raises(Unfit) as unfit:
        exercise("6.1").trial(Slow())  # type: ignore[arg-type]
    assert re.fullmatch(
        r"one worker at a time: after \d+ runs the time was up, and no law was broken so far\. Is the machine busy, or "
        r"does each run go on and on\? check\(…, seconds=60\) waits longer\.",
        str(unfit.value),
    )


def finishes_late(task_id: str, store: Any, remote: Any) -> None:
    until = time.monotonic() + 0.1
    while time.monotonic() < until:
        pass
    Worker(store, {"payments": remote}, POLICIES["query_then_ask"], talks=False).run(task_id)


def test_of_many_tasks_only_those_that_have_changed_are_shown_again():
    tasks = [f"task-{number} queued v1" for number in range(story.MANY_TASKS + 1)]
    changed = ["task-0 running v2", *tasks[1:]]
    rows = story.story_of(
        [
            StoryStep("worker-1", name, "", "\n".join(seen), {})
            for name, seen in zip("ab", (tasks, changed), strict=True)
        ]
    ).rows
    assert [row[3] for row in rows] == ["\n".join(tasks), "task-0 running v2"]


def test_half_a_letter_in_an_answer_neither_raises_nor_reaches_the_journal():
    result = check("1.1", lambda: [("\ud800", "queued", "running", "")])
    assert not result.passed
    str(result).encode()
    assert journal.note("why", "0.1\ud800", answer="\ud800")
    assert journal.entries("why")[-1].data == {"answer": "?"}


def test_a_worker_that_sleeps_lets_the_others_move_and_costs_no_time():
    def claim(db: Any, task_id: str, expected_version: int) -> bool:
        time.sleep(1_000_000)
        sql = (
            "UPDATE tasks SET state = 'running', version = version + 1, lease_token = lease_token + 1, "
            "lease_expires_at = 30 WHERE id = ? AND version = ? AND state = 'queued'"
        )
        with db:
            return bool(db.execute(sql, (task_id, expected_version)).rowcount)

    assert check("2.1", claim).passed


def test_an_answer_that_breaks_labkit_breaks_it_for_itself_alone():
    assert check("0.1", break_labkit).passed  # the key is right, and the runs are played out of its reach
    assert callable(TaskStore.claim)
    assert callable(json.dumps)
    assert labkit.policies.POLICIES
    assert check("0.1", operation_id).passed


@pytest.mark.skipif(sys.platform == "win32", reason="Windows knows no groups of processes")
@pytest.mark.parametrize("seconds", [2, 10], ids=["in a loop", "and returns"])
def test_a_process_that_an_answer_has_started_ends_with_the_check(tmp_path: Path, seconds: int):
    noted = tmp_path / "pid"

    def answer(operation_id: str, attempt: int) -> str:
        if not noted.exists():
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            noted.write_text(str(child.pid))
        while seconds == 2:
            pass
        return operation_id

    assert check("0.1", answer, seconds).passed == (seconds == 10)
    pid = int(noted.read_text())
    deadline = time.monotonic() + 60
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline


def test_an_interrupted_check_leaves_nothing(place: Path):
    timer = threading.Timer(0.5, _thread.interrupt_main)  # as the stop button of a notebook does
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        check("0.1", loop)
    timer.join()
    assert strays() == []
    assert list(place.iterdir()) == []


def test_a_process_whose_check_is_gone_ends_by_itself(tmp_path: Path):
    job = cloudpickle.dumps(lambda answer: answer("", 0))
    parcel = cloudpickle.dumps((sys.path, 1, 0.1 - GRACE_SECONDS, job, cloudpickle.dumps(loop)))
    (tmp_path / PARCEL_FILE).write_bytes(parcel)
    orphan = subprocess.Popen([sys.executable, "-m", "labkit.course.child", str(tmp_path)])
    try:
        assert orphan.wait(30) == 1
    finally:
        orphan.kill()


class Sticky:
    def __reduce__(self) -> Any:
        raise ZeroDivisionError("no")


@pytest.mark.parametrize(
    ("held", "why"),
    [(threading.Lock(), "TypeError: cannot pickle"), (Sticky(), "ZeroDivisionError: no"), (iter([]).__next__, "")],
    ids=["lock", "refuses", "iterator"],
)
def test_a_closure_over_what_cannot_travel_is_told_so(held: Any, why: str):
    result = check("0.1", lambda operation_id, attempt: str(held))
    assert result.trouble.startswith(f"It holds something that cannot travel to another process: {why}") or not why
    assert not result.passed


def test_an_answer_from_a_module_of_the_students_own_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "my_own_keys.py").write_text("def key(operation_id, attempt):\n    return operation_id\n")
    monkeypatch.syspath_prepend(tmp_path)
    import my_own_keys  # type: ignore[import-not-found]

    assert check("0.1", my_own_keys.key).passed
    (tmp_path / "my_own_keys.py").unlink()
    trouble = check("0.1", my_own_keys.key).trouble
    gone = "ModuleNotFoundError: No module named 'my_own_keys'"
    assert trouble == f"It cannot be made again in the check's own process: {gone}."


NOTEBOOK = """\
import functools
from labkit.course import check

@functools.{wrapper}
def key(operation_id, attempt):
    return same(operation_id)

@functools.cache
def same(operation_id):
    return operation_id

print(check("0.1", key))
print(check("0.1", lambda operation_id, attempt: key(operation_id, attempt)))
"""


@pytest.mark.parametrize("wrapper", ["cache", "lru_cache", "lru_cache(maxsize=2, typed=True)"])
def test_a_cached_function_of_a_notebook_passes(tmp_path: Path, wrapper: str):
    script = tmp_path / "notebook.py"
    script.write_text(NOTEBOOK.format(wrapper=wrapper))
    done = subprocess.run([sys.executable, script], capture_output=True, encoding="utf-8", timeout=120)
    assert done.stderr == ""
    assert done.stdout.count("exercise 0.1: passed.") == 2, done.stdout


SEARCHED = """\
import functools
from labkit.course import check

@functools.cache
def changes():
    return "state = 'running', version = version + 1, lease_token = lease_token + 1, lease_expires_at = 30"

@functools.lru_cache
def statement(where):
    return f"UPDATE tasks SET {changes()} WHERE {where}"

def claim(db, task_id, expected_version):
    with db:
        sql = statement("id = ? AND version = ? AND state = 'queued'")
        return db.execute(sql, (task_id, expected_version)).rowcount == 1

print(check("2.1", claim, seconds=60))
"""


def test_cached_functions_are_there_in_every_life_that_a_search_plays(tmp_path: Path):
    script = tmp_path / "notebook.py"
    script.write_text(SEARCHED)
    done = subprocess.run([sys.executable, script], capture_output=True, encoding="utf-8", timeout=120)
    assert done.stderr == ""
    assert done.stdout.startswith("exercise 2.1: passed."), done.stdout


class ByName:
    """What many a wrapper written in C is: it travels as its name alone."""

    __name__, __module__ = "key", "__main__"

    def __call__(self, operation_id: str, attempt: int) -> str:
        return operation_id

    def __reduce__(self) -> str:
        return self.__name__


def test_a_function_in_a_wrapper_that_cannot_travel_is_told_what_to_do():
    wrapped = ByName()
    for answer in (wrapped, lambda operation_id, attempt: wrapped(operation_id, attempt)):
        assert check("0.1", answer).trouble == (
            "key is a function in a wrapper (ByName) that cannot be sent to another process: "
            "write it as a plain function, without the wrapper."
        )


# --- another life -----------------------------------------------------------------------------------


def read_all_clocks(answer: Callable[..., Any]) -> list[Any]:
    import datetime

    moments = [time.time(), time.time_ns() / 1e9, time.monotonic(), time.perf_counter_ns() / 1e9]
    days = [time.strftime("%x"), time.ctime()[:10], list(time.localtime())[:3], list(time.gmtime())[:3]]
    days += [str(datetime.date.today()), datetime.datetime.now().strftime("%x")]
    days += [str(datetime.datetime.today())[:10], str(datetime.datetime.utcnow())[:10]]
    return [*moments, *days]


def test_in_the_next_life_every_clock_has_gone_on_and_strings_hash_differently():
    submission = Submission(operation_id, 10)
    first, second = submission.run(read_all_clocks, 1), submission.run(read_all_clocks, 2)
    for before, after in zip(first, second, strict=True):
        if isinstance(before, float):
            assert LIFE_SECONDS <= after - before < LIFE_SECONDS + 60
        else:
            assert before != after
    hashes = [submission.run(lambda answer: hash("task-1/refund"), life) for life in (1, 1, 2)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_submission_out_of_time_is_unfit_at_once():
    with pytest.raises(Unfit, match="still running after 0 seconds"):
        Submission(operation_id, 0).run(read_all_clocks)


def test_an_error_is_told_in_one_line_without_addresses():
    assert in_words(ValueError()) == "ValueError"
    assert in_words(ValueError("a\n  b")) == "ValueError: a b"
    assert in_words(ValueError("<x at 0x7fA1>")) == "ValueError: <x>"
    lost = f"no key in <module 'a.b' from '{'/folder' * 30}/b.py'>"
    assert in_words(AttributeError(lost)) == "AttributeError: no key in <module 'a.b'>"
    assert in_words(Mute()) == "Mute"
    assert len(in_words(ValueError("x" * 10_000))) < 220
