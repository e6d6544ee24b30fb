"""The search: every schedule once, the smallest first, with the same words wherever it is run."""

import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from math import comb
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from spies import Seen

from labkit.agent import plan
from labkit.errors import InvalidInput
from labkit.explore import Exploration, LabWorker, Played, ScheduleMismatch, Surprise, TaskScenario, explore
from labkit.explore import warm as warm_files
from labkit.explore.batches import BatchFailed, run_batch
from labkit.explore.choices import Choices, Schedule, order_of
from labkit.explore.search import _Level
from labkit.explore.sql_programs import claim_by_condition, claim_by_reading, claiming
from labkit.explore.world import TaskWorld
from labkit.show.exploration import show

CRASH, SWITCH = "crash", "switch to worker-2"


# --- a world without files: a walk of some places, at each of which one can crash or switch -------------------


@dataclass(frozen=True)
class Walk:
    """Breaks its law wherever the surprises `bad` are among a run's; `before` is called before each run."""

    places: int = 4
    bad: Schedule | None = None
    before: Callable[[], None] = field(default=lambda: None)
    point: Callable[[int], str] = "point {}".format
    workers: int = 2
    allowed: frozenset[str] = frozenset({"crash", "switch"})
    laws: dict[str, Any] = field(default_factory=dict)
    stays: bool = False

    @property
    def program(self) -> Callable[..., Any]:
        return self.open

    def open(self, folder: Path | None = None) -> "WalkWorld":
        return WalkWorld(self)


@dataclass
class WalkWorld:
    walk: Walk

    def play(self, schedule: Schedule) -> Played:
        self.walk.before()
        choices = Choices(schedule)
        options = ("go on",) if self.walk.stays else ("go on", CRASH, SWITCH)
        chosen = [choices.choose("worker-1", self.walk.point(place), options) for place in range(self.walk.places)]
        choices.check_used_up()
        broke = self.walk.bad is not None and set(self.walk.bad) <= set(schedule)
        law = ("no_bad_walk", "it went astray") if broke else ("", "")
        counts = {"crash": chosen.count(CRASH), "switch": chosen.count(SWITCH)}
        return Played(schedule, tuple(choices.steps), "broken" if broke else "kept", *law, counts)

    def watch(self, schedule: Schedule, title: str) -> tuple[Played, tuple[()]]:
        return self.play(schedule), ()

    def close(self) -> None:
        pass


def walks(places: int, surprises: int) -> int:
    return sum(comb(places, number) * 2**number for number in range(surprises + 1))


# --- which schedules, in which order ----------------------------------------------------------------------


@pytest.mark.parametrize(("places", "surprises"), [(4, 0), (4, 1), (4, 2), (5, 3), (3, 5)])
def test_every_schedule_up_to_the_bound_is_run(places: int, surprises: int):
    found = explore(Walk(places), surprises)
    assert found.schedules == walks(places, surprises)
    assert found.complete


def test_without_a_bound_every_schedule_there_is_is_run():
    assert explore(Walk(4), None).schedules == 3**4


def test_each_schedule_is_run_once_and_the_smaller_ones_first():
    played: list[Schedule] = []

    class Noting(WalkWorld):
        def play(self, schedule: Schedule) -> Played:
            played.append(schedule)
            return super().play(schedule)

    class NotingWalk(Walk):
        def open(self, folder: Path | None = None) -> WalkWorld:
            return Noting(self)

    explore(NotingWalk(4), 3)
    assert len(set(played)) == len(played) == walks(4, 3)
    assert played == sorted(played, key=order_of)


def test_the_first_failure_has_the_fewest_surprises_and_then_the_fewest_switches():
    two_crashes = (Surprise(0, CRASH), Surprise(3, CRASH))
    found = explore(Walk(4, bad=(Surprise(3, CRASH),)), 2)
    assert found.failure is not None
    assert found.failure.schedule == (Surprise(3, CRASH),)
    found = explore(Walk(4, bad=two_crashes), 3)
    assert found.failure is not None
    assert found.failure.schedule == two_crashes
    assert not found.passed
    assert not found.complete


def test_a_search_ends_at_the_first_failure_unless_told_to_go_on():
    bad = (Surprise(0, CRASH),)
    assert explore(Walk(4, bad=bad), 2).schedules < walks(4, 2)
    found = explore(Walk(4, bad=bad), 2, go_on=True)
    assert found.schedules == walks(4, 2)
    assert found.broken == found.verdicts["broken"] == 1 + 2 * 3
    assert found.failure is not None
    assert found.failure.schedule == bad
    assert not found.passed


def test_a_level_keeps_no_more_than_can_still_be_run_and_the_right_ones():
    schedules = [(Surprise(place, choice),) for place in range(50) for choice in (SWITCH, CRASH)]
    level = _Level(9)
    for schedule in schedules:
        level.add([schedule])
        assert len(level.schedules) <= 21
    assert level.in_order() == sorted(schedules, key=order_of)[:10]


@pytest.mark.parametrize(
    "arguments", [{"surprises": -1}, {"surprises": True}, {"surprises": 1.5}, {"max_schedules": 0}]
)
def test_a_bound_that_cannot_be_meant_is_refused(arguments: dict[str, Any]):
    with pytest.raises(InvalidInput):
        explore(Walk(), **arguments)


# --- what a result says -----------------------------------------------------------------------------------


def test_a_clean_result_states_its_bounds_and_what_happened():
    assert str(explore(Walk(4), 2)) == (
        "all 33 schedules of 2 workers with up to 2 surprises keep every law\n"
        "verdicts: 33 kept\n"
        "what happened in them: 28 crashes, 28 switches of workers"
    )


def test_a_failure_names_the_law_and_each_surprise_with_its_place_counted_from_1():
    found = explore(Walk(4, bad=(Surprise(1, CRASH), Surprise(2, SWITCH))), 2)
    assert str(found) == (
        "schedule 22 (2 workers with up to 2 surprises) breaks a law, and no smaller one does\n"
        "the smallest failure: no_bad_walk: it went astray\n"
        "  step 2: worker-1, point 1: crash\n"
        "  step 3: worker-1, point 2: switch to worker-2\n"
        "verdicts: 1 broken, 21 kept\n"
        "what happened in them: 23 crashes, 11 switches of workers"
    )


def test_a_failure_of_the_quiet_run_is_called_that():
    assert str(explore(Walk(4, bad=()), 2)).splitlines()[0] == "the quiet run breaks a law, without any surprise"


def test_a_search_that_goes_on_counts_its_failures():
    found = explore(Walk(4, bad=(Surprise(0, CRASH),)), 2, go_on=True)
    assert str(found).splitlines()[0] == "7 of all 33 schedules of 2 workers with up to 2 surprises break a law"


def test_no_bound_and_one_worker_are_said_in_words():
    found = explore(Walk(1, workers=1), None)
    assert found.summary == "all 3 schedules of 1 worker with any number of surprises keep every law"
    assert explore(Walk(1), 1).summary == "all 3 schedules of 2 workers with up to 1 surprise keep every law"


def test_a_result_is_never_green_for_want_of_faults():
    found = explore(Walk(4, stays=True), 2)
    assert not found.passed
    assert str(found) == (
        "NOTHING SHOWN: no fault happened in the 1 schedule of 2 workers with up to 2 surprises, "
        "though allowed: crashes, switches of workers\n"
        "verdicts: 1 kept\n"
        "what happened in them: nothing out of the ordinary\n"
        "allowed, but it never happened: crashes, switches of workers"
    )
    assert not explore(Walk(4), 0).passed
    assert explore(Walk(4, stays=True, allowed=frozenset()), 2).passed


def test_a_kind_of_fault_that_never_happened_is_named():
    found = explore(Walk(4, allowed=frozenset({"crash", "late"})), 1)
    assert found.passed
    assert str(found).splitlines()[-1] == "allowed, but it never happened: late deliveries"


def test_in_a_notebook_a_result_shows_its_table_and_the_timeline_of_its_failure():
    found = explore(Walk(2), 1)
    assert found._repr_mimebundle_() == ({"text/plain": str(show(found))}, {})
    broken = explore(TaskScenario(LabWorker("blind_replay")), 1)
    data, details = broken._repr_mimebundle_()
    assert data["text/plain"] == str(show(broken))
    assert data["image/png"].startswith("iVBOR")
    assert "no_second_effect" in details["image/png"]["alt"]


# --- cut short --------------------------------------------------------------------------------------------


def test_a_search_cut_short_by_its_schedules_says_so():
    found = explore(Walk(4), 2, max_schedules=10)
    assert (found.schedules, found.passed, found.complete) == (10, False, False)
    assert found.summary == (
        "NOT EXHAUSTIVE: stopped at 10 schedules; "
        "10 schedules of 2 workers with up to 2 surprises run, no law broken so far"
    )
    assert explore(Walk(4), 2, max_schedules=33).passed
    assert not explore(Walk(4), 2, max_schedules=32).passed


def test_a_time_limit_is_a_kill_switch_and_no_result():
    found = explore(Walk(4), 2, max_seconds=0)
    assert found.summary.startswith("NOT EXHAUSTIVE: stopped after 0 seconds; 0 schedules ")
    assert not found.passed


def interrupting(at: int) -> Callable[[], None]:
    runs: list[int] = Seen()

    def interrupt() -> None:
        runs.append(1)
        if len(runs) == at:
            signal.raise_signal(signal.SIGINT)

    return interrupt


def test_an_interrupt_ends_a_search_at_once_with_what_it_has():
    found = explore(Walk(4, before=interrupting(8)), 2)
    assert (found.schedules, found.passed) == (7, False)
    assert found.summary.startswith("NOT EXHAUSTIVE: interrupted; 7 schedules ")


def test_an_interrupt_in_the_middle_of_a_worker_s_code_ends_the_search_and_leaves_no_file(private: Path):
    interrupt = interrupting(20)

    def program(task_id: str, store: Any, remotes: Any) -> None:
        interrupt()
        LabWorker("same_key")(task_id, store, remotes)

    found = explore(TaskScenario(program), 2)
    assert found.cut_short == "interrupted"
    assert 0 < found.schedules < 20
    assert list(private.iterdir()) == []


def test_an_interrupt_that_the_explored_code_catches_ends_the_search_all_the_same():
    interrupt = interrupting(8)

    def deaf() -> None:
        with suppress(BaseException):
            interrupt()

    found = explore(Walk(4, before=deaf), 2)
    assert (found.schedules, found.cut_short) == (7, "interrupted")
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)  # once the search is over, an interrupt is everybody's again


def test_a_search_on_another_thread_leaves_interrupts_alone():
    with ThreadPoolExecutor(1) as executor:
        assert executor.submit(explore, Walk(4), 2).result().passed


def test_a_program_that_is_not_the_same_on_every_run_is_found_out():
    names = iter(f"point {number}" for number in range(1_000))
    found = explore(Walk(4, point=lambda place: next(names)), 2)
    assert not found.passed
    assert found.summary == (
        "NOT EXHAUSTIVE: the program is not the same on every run: "
        "step 1 differs: expected worker-1, point 0: crash; found worker-1, point 4: go on, crash, switch to worker-2; "
        "1 schedule of 2 workers with up to 2 surprises run, no law broken so far"
    )


def test_an_error_of_the_world_is_not_taken_for_the_program_s():
    class Faulty(TaskWorld):
        def crossed(self, life: Any, point: Any) -> None:
            raise ZeroDivisionError("a bug of the lab's own")

    class FaultyScenario(TaskScenario):
        def open(self, folder: Path | None = None) -> TaskWorld:
            return Faulty(self, folder)

    with pytest.raises(ZeroDivisionError, match="a bug of the lab's own"):
        explore(FaultyScenario(LabWorker("same_key")))


# --- progress ---------------------------------------------------------------------------------------------


def test_no_progress_is_shown_unless_asked_for(capsys: pytest.CaptureFixture[str]):
    explore(Walk(4), 2)
    assert capsys.readouterr() == ("", "")


def test_progress_goes_to_standard_output_and_never_to_standard_error(capsys: pytest.CaptureFixture[str]):
    explore(Walk(4), 3, progress=True)
    out, err = capsys.readouterr()
    assert f"{walks(4, 3)}/{walks(4, 3)}" in out
    assert err == ""


def test_whoever_wants_to_know_is_told_how_far_the_search_is():
    told: list[tuple[int, int]] = []
    explore(Walk(6), 3, tell=lambda run, known: told.append((run, known)))
    assert told[-1] == (walks(6, 3), walks(6, 3))
    assert all(run <= known for run, known in told)
    assert [run for run, _ in told] == sorted({run for run, _ in told})


# --- spread over an executor ------------------------------------------------------------------------------


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the shared memory, so that whatever is left in it is this test's."""
    monkeypatch.setattr(warm_files, "SHARED_MEMORY", tmp_path)
    monkeypatch.delenv("TMPDIR", raising=False)
    return tmp_path


@contextmanager
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(3) as executor:
        yield executor


@contextmanager
def processes(method: str) -> Iterator[Executor]:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} on this system")
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as executor:
        yield executor
    assert multiprocessing.active_children() == []


@contextmanager
def dask() -> Iterator[Executor]:
    distributed = pytest.importorskip("distributed")
    silent = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with distributed.LocalCluster(**silent) as cluster, distributed.Client(cluster) as client:
        yield client.get_executor()


EXECUTORS = {
    "threads": threads,
    "fork": partial(processes, "fork"),
    "spawn": partial(processes, "spawn"),
    "dask": dask,
}
TWO_OPERATIONS = tuple(plan()[:2])
SEARCHES: dict[str, Callable[..., Exploration]] = {
    "all keep the laws": partial(explore, TaskScenario(LabWorker("same_key"), allowed=frozenset({"crash", "late"})), 2),
    "one breaks a law": partial(explore, TaskScenario(LabWorker("assume_done"), TWO_OPERATIONS), 3),
    "it goes on": partial(explore, TaskScenario(LabWorker("assume_done")), 2, go_on=True, max_schedules=60),
    "plain SQL": partial(explore, claiming(claim_by_reading), 3),
    "a walk": partial(explore, Walk(6, bad=(Surprise(1, SWITCH), Surprise(4, SWITCH), Surprise(5, CRASH))), 4),
}


@cache
def found_here(name: str) -> Exploration:
    return SEARCHES[name]()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("kind", EXECUTORS)
def test_an_executor_changes_nothing_about_a_result(kind: str, private: Path):
    with EXECUTORS[kind]() as executor:
        for name, search in SEARCHES.items():
            here, spread = found_here(name), search(executor=executor)
            assert str(spread) == str(here), name
            assert spread == here, name
            assert spread.failure == here.failure, name
            assert spread.capsule == here.capsule, name
    assert list(private.iterdir()) == []


def raising(error: Callable[[], BaseException]) -> Callable[[], None]:
    def fail() -> None:
        raise error()

    return fail


class Awkward(Exception):
    """Cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_an_error_in_another_process_comes_back_as_what_it_is():
    with processes("fork") as executor:
        with pytest.raises(ZeroDivisionError, match="by nought"):
            explore(Walk(before=raising(lambda: ZeroDivisionError("by nought"))), executor=executor)
        with pytest.raises(BatchFailed, match="Awkward: one of a kind"):
            explore(Walk(before=raising(lambda: Awkward("one of a kind"))), executor=executor)
        assert explore(Walk(4), 2, executor=executor).passed


def kill_this_process() -> None:
    os.kill(os.getpid(), getattr(signal, "SIGKILL", 9))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_nothing_is_left_behind_a_pool_process_that_was_killed(private: Path):
    seen = private / "seen"

    def program(task_id: str, store: Any, remotes: Any) -> None:
        seen.write_text(",".join(sorted(path.name for path in private.rglob("*.sqlite"))))
        kill_this_process()

    with processes("fork") as executor, pytest.raises(Exception, match="terminated abruptly"):
        explore(TaskScenario(program), 1, executor=executor)
    assert "tasks.sqlite" in seen.read_text()
    seen.unlink()
    assert list(private.iterdir()) == []


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_an_interrupt_does_not_wait_for_what_others_still_have_to_do(private: Path):
    def interrupt(run: int, known: int) -> None:
        signal.raise_signal(signal.SIGINT)

    scenario = TaskScenario(LabWorker("by_capability"), TWO_OPERATIONS)
    with processes("fork") as executor:
        began = time.monotonic()
        found = explore(scenario, 3, executor=executor, tell=interrupt)
        seconds = time.monotonic() - began
        assert found.cut_short == "interrupted"
        assert 0 < found.schedules < 200
        assert list(private.iterdir()) == []
    assert seconds < 20  # the whole search takes minutes


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_time_limit_holds_for_a_process_that_hangs(private: Path):
    with processes("fork") as executor:
        found = explore(Walk(before=partial(time.sleep, 1.5)), executor=executor, max_seconds=0.1)
        assert found.cut_short == "stopped after 0.1 seconds"
    assert list(private.iterdir()) == []


def batch(walk: Walk, *schedules: Schedule, go_on: bool = False, folder: Path = Path("nowhere")) -> Any:
    return run_batch(cloudpickle.dumps(walk), pickle.dumps(schedules), False, go_on, str(folder))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_once_a_search_is_over_its_batches_end_too(tmp_path: Path):
    tally = tmp_path / "tally"
    with processes("fork") as executor:
        walk = Walk(100, before=partial(_note_and_linger, tally))
        explore(walk, 1, executor=executor, max_seconds=0.5)
    assert len(tally.read_bytes()) < 40  # of 201


def _note_and_linger(tally: Path) -> None:
    with tally.open("ab") as file:
        file.write(b".")
    time.sleep(0.05)


def test_a_batch_ends_once_its_search_is_over(tmp_path: Path):
    flag = tmp_path / "searching"
    flag.touch()
    runs, mismatch = batch(Walk(before=flag.unlink), (), (Surprise(0, CRASH),), folder=tmp_path)
    assert (len(runs), mismatch) == (1, None)


def test_a_search_whose_folder_somebody_removes_does_not_call_itself_complete(
    private: Path, tmp_path_factory: pytest.TempPathFactory
):
    tally = tmp_path_factory.mktemp("tally") / "tally"
    with threads() as executor:
        shown = explore(Walk(100, before=partial(_tidy_up, private, tally)), 1, executor=executor)
    assert not shown.complete
    assert not shown.passed
    assert shown.summary.startswith("NOT EXHAUSTIVE: the folder of the search was removed while it ran")


def _tidy_up(private: Path, tally: Path) -> None:
    with tally.open("ab") as file:
        file.write(b".")
    if tally.stat().st_size == 30:  # in the middle of a batch: they have 1, then 20 schedules each
        for folder in private.iterdir():
            shutil.rmtree(folder, ignore_errors=True)


def test_a_batch_ends_at_its_first_failure_unless_told_to_go_on():
    three = ((), (Surprise(0, CRASH),), (Surprise(1, CRASH),))
    walk = Walk(bad=(Surprise(0, CRASH),))
    assert [bool(played.law) for played, _ in batch(walk, *three)[0]] == [False, True]
    assert [bool(played.law) for played, _ in batch(walk, *three, go_on=True)[0]] == [False, True, False]


def test_a_batch_hands_over_the_runs_before_one_that_differs():
    names = iter(f"point {number}" for number in range(1_000))
    elsewhere = Surprise(0, CRASH, "worker-1", "point 0")
    runs, mismatch = batch(Walk(point=partial(_next_of, list(names))), (), (elsewhere,))
    assert [played.schedule for played, _ in runs] == [()]
    assert (mismatch.place, mismatch.expected) == (0, "worker-1, point 0: crash")


def _next_of(names: list[str], place: int) -> str:
    return names.pop(0)


def test_a_mismatch_travels_with_its_fields():
    there = pickle.loads(pickle.dumps(ScheduleMismatch(4, "this", "that")))
    assert (there.place, there.expected, there.found) == (4, "this", "that")
    assert str(there) == "step 5 differs: expected this; found that"


# --- the same words everywhere ------------------------------------------------------------------------------

TASK_TEXT = """\
schedule 5 (1 worker with up to 2 surprises) breaks a law, and no smaller one does
the smallest failure: success_means_done: the task succeeded, but the ledger shows no task-1/refund
  step 3: worker-1, intend task-1/refund: crash
verdicts: 4 exactly once, 1 lost
what happened in them: 3 crashes, 3 take-overs, 1 pause"""
SQL_TEXT = """\
all 17 schedules of 2 workers with up to 2 surprises keep every law
verdicts: 17 kept
what happened in them: 28 switches of workers"""


def both() -> str:
    task, sql = explore(TaskScenario(LabWorker("assume_done"))), explore(claiming(claim_by_condition))
    assert task.capsule is not None
    return f"{task}\n{task.capsule.to_json()}{sql}"


def test_a_search_gives_the_same_text_twice_and_on_every_python():
    assert both() == both()
    task, _, sql = both().partition("{")
    assert task.strip() == TASK_TEXT
    assert sql.endswith(SQL_TEXT)


@pytest.mark.parametrize("seed", ["1", "20250101"])
def test_a_search_gives_the_same_text_in_another_process_whatever_its_hashes(seed: str):
    code = "import test_explore_search; print(test_explore_search.both())"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == both() + "\n"
