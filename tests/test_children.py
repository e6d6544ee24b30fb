"""Child processes: they end with their parent, say what went wrong, and leave nothing; nobody else is signalled."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from strays import strays, wait_until_stopped

from labkit.desk import TASK_ID, TASKS_FILE, Desk
from labkit.real import stage as stage_module
from labkit.real.children import CAN_STOP, KILLED, Child, ChildFailed, Start, module, python
from labkit.real.drill import drill, setting_of
from labkit.real.stage import Stage
from labkit.real.warm import CAN_FORK, ForkServer
from labkit.real.worker import ORPHANED
from labkit.scratch import sweep
from labkit.seams import Call, Delivery, ManualClock, Point

PATIENCE = 60.0
ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
STOPS = pytest.mark.skipif(not CAN_STOP, reason="this system cannot stop a process")
FORKS = pytest.mark.skipif(not CAN_FORK, reason="this system cannot fork")


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process, thread or file is left, however a test ends."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    before = strays(), threading.active_count()
    yield
    assert (strays(), threading.active_count()) == before
    assert list(place.iterdir()) == []


@pytest.fixture(params=["new", pytest.param("forked", marks=FORKS)])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Both ways to start a worker process."""
    if request.param == "new":
        yield python(*module("worker"))
        return
    server = ForkServer()
    yield server.start
    server.close()


def first_order(folder: Path, **changes: Any) -> dict[str, Any]:
    order = {
        "now": 1.0,
        "name": "worker-1",
        "task": TASK_ID,
        "tasks": str(folder / TASKS_FILE),
        "program": {"policy": "same_key"},
        "assumptions": {},
        "lease_seconds": 30.0,
        "remotes": {},
        "synchronous": "OFF",
    }
    return order | changes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Desk(tmp_path, ManualClock()) as desk:
        desk.queue()
    return tmp_path


# --- a child ----------------------------------------------------------------------------------------


def test_a_child_is_told_and_heard_line_by_line_until_it_ends():
    child = Child("echo", python("-c", ECHO))
    child.tell({"a": "ü"})
    assert child.must_hear(PATIENCE) == {"a": "ü"}
    child._stdin.close()
    assert child.hear(PATIENCE) is None
    assert child.hear(PATIENCE) is None
    assert child.wait() == 0
    child.tell({"too": "late"})
    child.close()
    child.close()


def test_a_child_that_gives_no_sign_is_ended_in_a_bounded_time():
    child = Child("sleeper", python("-c", "import time; time.sleep(1000)"))
    with pytest.raises(ChildFailed, match=r"sleeper gave no sign within 0.05 s and was ended; it said: nothing"):
        child.hear(0.05)
    assert child.wait() != 0


def test_a_child_that_cannot_start_says_why():
    child = Child("nobody", python("-c", "raise SystemExit('there is no such thing')"))
    with pytest.raises(ChildFailed) as caught:
        child.must_hear(PATIENCE)
    child.close()
    assert (caught.value.exit_code, caught.value.said) == (1, "there is no such thing")
    assert str(caught.value) == "nobody ended with exit code 1; it said: there is no such thing"


def test_half_a_line_of_a_killed_child_is_no_answer():
    child = Child("half", python("-c", "import os; os.write(1, b'{\"a\"'); os._exit(7)"))
    assert child.hear(PATIENCE) is None
    assert child.wait() == 7
    child.close()


def test_a_program_that_is_not_there_leaves_nothing_open():
    def start(errors: Any) -> Any:
        raise FileNotFoundError("no such program")

    with pytest.raises(FileNotFoundError):
        Child("nobody", start)


# --- a worker process -------------------------------------------------------------------------------


def test_a_worker_reports_each_crossing_and_kills_itself_when_told_to(start: Start, folder: Path):
    child = Child("worker-1", start)
    child.tell(first_order(folder))
    assert child.must_hear(PATIENCE) == {"crossed": ["start", "worker-1", "nothing yet"]}
    child.tell({"now": 2.0})
    assert child.must_hear(PATIENCE) == {"crossed": ["claim", "task-1", "running v2, token 1"]}
    child.tell({"die": True})
    assert child.hear(PATIENCE) is None
    assert child.wait() == (9 if sys.platform == "win32" else -9)
    child.close()


def test_a_worker_whose_parent_has_gone_away_ends_itself(start: Start, folder: Path):
    child = Child("worker-1", start)
    child.tell(first_order(folder))
    child.must_hear(PATIENCE)
    child._stdin.close()
    assert child.hear(PATIENCE) is None
    assert child.wait() == ORPHANED
    child.close()


def test_a_worker_that_is_busy_with_something_endless_ends_with_its_parent_all_the_same(start: Start, folder: Path):
    source = "def recover(task_id, store, remotes):\n    while True:\n        pass\n"
    child = Child("worker-1", start)
    child.tell(first_order(folder, program={"source": source, "file": "busy.py", "folder": None}))
    child.must_hear(PATIENCE)
    child.tell({"now": 2.0})
    child._stdin.close()
    assert child.hear(PATIENCE) is None
    assert child.wait() == ORPHANED
    child.close()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tasks": "nowhere/tasks.sqlite"}, "StoreNotFound: tasks.sqlite: unable to open database file"),
        ({"program": {"source": "1 +", "file": "mine.py", "folder": None}}, "SyntaxError: "),
        (
            {"program": {"source": "x = 1", "file": "mine.py", "folder": None}},
            "InvalidInput: expected a function called rec",
        ),
        ({"program": {"source": "raise SystemExit(3)", "file": "mine.py", "folder": None}}, "SystemExit: 3"),
        ({"program": {"pickle": "bm8gcGlja2xl"}}, "UnpicklingError: "),
        ({"program": {"policy": "hope"}}, "KeyError: 'hope'"),
        ({"assumptions": {"hope": 1}}, "TypeError: "),
    ],
)
def test_a_bad_start_is_told_in_a_line(folder: Path, changes: dict[str, Any], said: str):
    child = Child("worker-1", python(*module("worker")))
    child.tell(first_order(folder, **changes))
    assert child.must_hear(PATIENCE)["failed"].startswith(said)
    assert child.wait() == 0
    child.close()


def test_what_a_program_prints_and_reads_is_kept_from_the_pipes(start: Start, folder: Path):
    source = (
        "import os, subprocess, sys\n"
        "def recover(task_id, store, remotes):\n"
        "    print('printed')\n"
        "    os.write(1, b'written\\n')\n"
        "    subprocess.run([sys.executable, '-c', 'print(0)'])\n"
        "    return repr(sys.stdin.read() if sys.stdin.isatty() else os.read(0, 10))\n"
    )
    child = Child("worker-1", start)
    child.tell(first_order(folder, program={"source": source, "file": "mine.py", "folder": None}))
    child.must_hear(PATIENCE)
    child.tell({"now": 2.0})
    assert child.must_hear(PATIENCE) == {"ended": "b''"}
    assert child.wait() == 0
    child.close()
    assert {"printed", "written", "0"} <= set(child.said.split())


def test_a_file_that_imports_from_its_own_folder_and_an_error_that_cannot_travel(start: Start, folder: Path):
    (folder / "helper.py").write_text("class Odd(Exception):\n    pass\n")
    source = "import helper\ndef recover(task_id, store, remotes):\n    raise helper.Odd(lambda: 0)\n"
    order = {"source": source, "file": "mine.py", "folder": str(folder)}
    child = Child("worker-1", start)
    child.tell(first_order(folder, program=order))
    child.must_hear(PATIENCE)
    child.tell({"now": 2.0})
    raised = child.must_hear(PATIENCE)
    child.close()
    assert (raised["raised"], raised["type"]) == (None, "Odd")


@STOPS
def test_a_stopped_worker_sleeps_until_it_is_woken_and_can_be_ended_asleep(start: Start, folder: Path):
    child = Child("worker-1", start)
    child.tell(first_order(folder))
    child.must_hear(PATIENCE)
    child.stop()
    wait_until_stopped(psutil.Process(child._process.pid))
    child.tell({"now": 2.0})
    with pytest.raises(ChildFailed, match="gave no sign"):
        child.hear(0.05)


# --- only our own -----------------------------------------------------------------------------------


@FORKS
def test_a_fork_server_signals_nobody_but_its_own_living_children():
    server = ForkServer()
    child = Child("worker-1", server.start)
    child.close()
    hit: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: hit.append(number))
    try:
        for pid in (os.getpid(), child._process.pid, server._process.pid):
            assert server.ask("signal", pid, int(signal.SIGUSR1)) == "done"
        assert server._process.poll() is None
        server.close()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert hit == []


@FORKS
def test_a_fork_server_that_has_ended_is_an_error_and_not_a_wait():
    server = ForkServer()
    server._process.kill()
    server._process.wait()
    with pytest.raises(OSError, match=r".*"):
        Child("worker-1", server.start)
    server.close()


# --- a stage ----------------------------------------------------------------------------------------


class Onlooker:
    """Lets everything happen, and stops at the first crossing of a name to do something."""

    def __init__(self, name: str, at: str, do: Any) -> None:
        self.name, self._at, self._do = name, at, do

    def cross(self, point: Point) -> None:
        if point.name == self._at:
            self._do()

    def deliver(self, call: Call) -> Delivery:
        return Delivery.DELIVERED

    def now(self) -> float:
        return 1.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits here")


def interrupted() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("warm", [False, pytest.param(True, marks=FORKS)])
@pytest.mark.parametrize("at", ["start worker-1", "send task-1/refund", "succeed task-1"])
def test_an_interrupt_in_the_middle_of_a_life_ends_every_process(folder: Path, warm: bool, at: str):
    def play() -> None:
        with Desk(folder) as desk, Stage(warm) as stage:
            stage.open(setting_of(desk, "same_key", 30.0), desk.clock)
            stage.live(Onlooker("worker-1", at, interrupted))

    with pytest.raises(KeyboardInterrupt):
        play()


def test_an_interrupt_of_a_drill_leaves_nothing():
    with pytest.raises(KeyboardInterrupt):
        drill("same_key", steps=1, tell=lambda line: interrupted())


def test_a_service_that_cannot_start_or_open_its_ledgers_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch):
    with Desk(folder) as desk:
        setting = setting_of(desk, "same_key", 30.0)
    lost = {"payments": (Path("nowhere", "x.sqlite"), setting.remotes["payments"][1])}
    with Stage() as stage, pytest.raises(ChildFailed, match="the service could not open; it said: StoreNotFound"):
        stage.open(stage_module.Setting(setting.tasks, TASK_ID, "same_key", lost), ManualClock())
    monkeypatch.setattr(stage_module, "module", lambda name: ["-m", "labkit.real.nothing"])
    with pytest.raises(ChildFailed, match=r"the service ended with exit code 1; it said: .*No module named"):
        Stage()


class Caller(Onlooker):
    """A worker whose first answer is lost, and which waits for it in vain; something is done once it may call."""

    def __init__(self, do: Any, at: str = "", look: Any = None) -> None:
        super().__init__("worker-1", at, look)
        self._calls, self._do_then = 0, do

    def deliver(self, call: Call) -> Delivery:
        self._calls += 1
        return Delivery.RESPONSE_LOST if self._calls == 1 else Delivery.DELIVERED

    def now(self) -> float:
        if self._calls == 1:
            self._calls += 1
            self._do_then()
        return 1.0


@STOPS
def test_a_caller_that_lost_patience_is_held_until_the_service_has_dealt_with_its_request(folder: Path):
    seen: list[dict[str, int]] = []
    with Desk(folder) as desk, Stage() as stage:
        service, hear = stage._service, stage._service.must_hear

        def wake_and_hear(seconds: float) -> dict[str, Any]:
            service.go_on()
            return hear(seconds)

        service.must_hear = wake_and_hear  # type: ignore[method-assign]
        stage.open(setting_of(desk, "same_key", 30.0), desk.clock)
        stage.live(Caller(service.stop, "send task-1/refund", lambda: seen.append(desk.effects())))
    assert seen[0]["task-1/refund"] == 1


@STOPS
def test_a_service_that_never_deals_with_a_request_is_given_up_in_words(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def fall_asleep() -> None:
        stage._service.stop()
        monkeypatch.setattr(stage_module, "LIFE_SECONDS", 0.05)

    with Desk(folder) as desk, Stage() as stage:
        stage.open(setting_of(desk, "same_key", 30.0), desk.clock)
        with pytest.raises(ChildFailed, match=r"^the service gave no sign within 0.05 s and was ended"):
            stage.live(Caller(fall_asleep))


def test_a_service_that_has_died_is_told_at_once(folder: Path):
    with Desk(folder) as desk, Stage() as stage:
        stage.open(setting_of(desk, "same_key", 30.0), desk.clock)
        with pytest.raises(ChildFailed, match=r"^the service ended with exit code -?\d+; it said: nothing"):
            stage.live(Caller(stage._service.kill))


@pytest.mark.parametrize("call", ["send", "query"])
def test_a_drill_does_not_lay_the_death_of_its_service_at_a_worker_s_door(call: str):
    def network(asked: Call) -> Delivery:
        if asked.action == call:
            stage._service.kill()
        return Delivery.RESPONSE_LOST

    with Stage() as stage, pytest.raises(ChildFailed, match=r"^the service ended with exit code"):
        drill("query_first", [], network=network, stage=stage)


@STOPS
def test_every_process_of_a_parent_that_was_killed_ends_even_one_that_is_stopped_and_its_files_are_swept(
    tmp_path: Path,
):
    script = tmp_path / "parent.py"
    script.write_text(
        "import json, time\n"
        "from labkit.real.drill import drill\n"
        "def tell(line):\n"
        "    print(json.dumps(line), flush=True)\n"
        "    time.sleep(1000)\n"
        "drill('same_key', [], pause_at='claim task-1', tell=tell)\n"
    )
    place = tmp_path / "files"
    place.mkdir()
    environ = os.environ | {"TMPDIR": str(place)}
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, env=environ) as parent:
        try:
            assert parent.stdout is not None
            assert json.loads(parent.stdout.readline()) == "worker-1 falls asleep after: claim task-1"
            below = psutil.Process(parent.pid).children(recursive=True)
            (worker,) = [one for one in below if one.ppid() != parent.pid]
            wait_until_stopped(worker)
        finally:
            parent.kill()
    _, alive = psutil.wait_procs(below, timeout=PATIENCE)
    assert alive == []
    (left,) = place.iterdir()
    sweep(place)
    assert not left.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
@pytest.mark.parametrize("warm", [False, pytest.param(True, marks=FORKS)])
def test_no_child_heeds_a_ctrl_c_that_its_parent_has_caught(folder: Path, warm: bool):
    asked: list[str] = []
    before = psutil.Process().children(recursive=True)  # such as a resource tracker that an earlier test has left

    def interrupt_all() -> None:
        for one in set(psutil.Process().children(recursive=True)) - set(before):
            one.send_signal(signal.SIGINT)
            asked.append(one.name())

    with Desk(folder) as desk, Stage(warm) as stage:
        stage.open(setting_of(desk, "same_key", 30.0), desk.clock)
        life = Onlooker("worker-1", "claim task-1", interrupt_all)
        assert stage.live(life) == "succeeded"
    assert len(asked) == 2 + warm


@pytest.mark.skipif(sys.platform == "win32", reason="no process groups")
def test_ctrl_c_reaches_the_whole_group_and_only_the_parent_heeds_it(tmp_path: Path):
    script = tmp_path / "parent.py"
    script.write_text(
        "import json, time\n"
        "from labkit.real.drill import drill\n"
        "def tell(line):\n"
        "    print(json.dumps(line), flush=True)\n"
        "    time.sleep(1000)\n"
        "drill('same_key', [], pause_at='claim task-1', tell=tell)\n"
    )
    place = tmp_path / "files"
    place.mkdir()
    environ = os.environ | {"TMPDIR": str(place)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, script], env=environ, start_new_session=True, **pipes) as parent:
        try:
            assert json.loads(parent.stdout.readline() or '""').startswith("worker-1 falls asleep")
            below = psutil.Process(parent.pid).children(recursive=True)
            os.killpg(parent.pid, signal.SIGINT)
            _, said = parent.communicate(timeout=PATIENCE)
        finally:
            parent.kill()
    assert parent.returncode == -signal.SIGINT
    assert said.decode().count("Traceback") == 1
    _, alive = psutil.wait_procs(below, timeout=PATIENCE)
    assert alive == []
    assert list(place.iterdir()) == []


@pytest.mark.skipif(not CAN_FORK, reason="there is no fork server")
def test_an_answer_that_an_interrupt_has_left_behind_is_not_taken_for_the_next():
    server = ForkServer()
    child = Child("worker-1", server.start)
    pipe = server._socket

    class Interrupted:
        sendall = staticmethod(pipe.sendall)

        def recv(self, *_: object) -> bytes:
            raise KeyboardInterrupt

    server._socket = Interrupted()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        child.kill()
    server._socket = pipe
    assert child.wait() in KILLED
    child.close()
    server.close()
