"""The `recovery-lab` command: `open` and `doctor`."""

import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from labkit.cli import COMMANDS, build_parser, checks, doctor, lab, main
from labkit.cli.checks import Check


@pytest.fixture
def notebooks(tmp_path: Path) -> Path:
    folder = tmp_path / "Prüf stand" / "notebooks"
    (folder / "instructor").mkdir(parents=True)
    for name in (
        lab.START,
        "01_states.ipynb",
        "03_lease.ipynb",
        "03_lease_more.ipynb",
        "instructor/04 key.ipynb",
    ):
        (folder / name).touch()
    return folder


class Starts:
    """Stands in for JupyterLab: records what would be started, and ends with a code of its own."""

    def __init__(self) -> None:
        self.command: list[str] = []
        self.environ: dict[str, str] = {}

    def __call__(self, command: Sequence[str], environ: Mapping[str, str]) -> int:
        self.command, self.environ = list(command), dict(environ)
        return 7


def run_cli(*arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from labkit.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        encoding="ascii",
    )


# --- the command itself -----------------------------------------------------------------------------


def test_each_command_has_help(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert all(f"\n    {command.name} " in text and command.help in text for command in COMMANDS)


def test_the_version_is_the_installed_one(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"recovery-lab {checks.version_of('recovery-lab')}\n"


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        main(["dcotor"])
    assert end.value.code == 2
    assert "invalid choice: 'dcotor'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "notebook", "port"),
    [([], None, None), (["--port", "9000"], None, 9000), (["open", "03"], "03", None)],
)
def test_open_is_what_runs_without_a_command(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], notebook: str | None, port: int | None
):
    asked: list[object] = []
    monkeypatch.setattr(lab, "open_lab", lambda *a, **k: asked.append((a, k)) or 5)
    assert main(arguments) == 5
    assert asked == [((notebook,), {"port": port, "browser": True})]


@pytest.mark.parametrize("port", ["-5", "70000", "99999999999", "8888.5", "http"])
@pytest.mark.parametrize("command", ["open", "serve"])
def test_a_port_that_cannot_be_is_refused(capsys: pytest.CaptureFixture[str], command: str, port: str):
    with pytest.raises(SystemExit) as end:
        main([command, "--port", port])
    assert end.value.code == 2
    told = f"argument --port: expected a whole number from 0 to 65535, found '{port}'\n"
    assert capsys.readouterr().err.endswith(told)
    assert build_parser().parse_args([command, "--port", "65535"]).port == 65_535


def test_ctrl_c_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(lab, "open_lab", interrupted)
    assert main(["open"]) == 130


def lives(code: str) -> list[str]:
    """A command line that runs the command `open` with `code` in the place of what it does."""
    start = "import sys; from labkit.cli import lab, main\ndef open_lab(*_, **__):\n"
    body = "".join(f"    {line}\n" for line in code.splitlines())
    return [sys.executable, "-c", f"{start}{body}    return 0\nlab.open_lab = open_lab\nsys.exit(main(['open']))"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("swallowed", [False, True])
def test_a_signal_that_ends_a_command_lets_it_tidy_up(name: str, swallowed: bool):
    number = getattr(signal, name)
    hears = "except KeyboardInterrupt" if swallowed else "finally"  # a search that is interrupted says how far it got
    code = f"import os\ntry:\n    os.kill(os.getpid(), {int(number)})\n{hears}:\n    print('tidy')"
    done = subprocess.run(lives(code), capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("tidy\n", "", 128 + number)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_a_signal_that_was_to_be_ignored_is():
    tells = "import os, signal\nos.kill(os.getpid(), signal.SIGHUP)\nprint('on and on')"
    ignores = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    command = lives(tells)
    done = subprocess.run([*command[:2], ignores + command[2]], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("on and on\n", 0)


@pytest.mark.skipif(sys.platform == "win32", reason="a shell closes the outputs")
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_command_whose_output_was_closed_does_its_work(tmp_path: Path, closed: str):
    place = tmp_path / "did"
    code = (
        f"import sys\nopen({str(place)!r}, 'w').write('all')\nprint('told', flush=True)\nprint('told', file=sys.stderr)"
    )
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *lives(code)], capture_output=True, text=True)
    assert (done.stderr.replace("told\n", ""), done.returncode, place.read_text()) == ("", 0, "all")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("flushed", [True, False])
def test_an_output_that_takes_nothing_more_is_said_in_a_line(flushed: bool):
    with open("/dev/full", "w") as full:
        done = subprocess.run(lives(f"print('told', flush={flushed})"), stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.stderr, done.returncode) == (f"This went wrong: {os.strerror(errno.ENOSPC)}\n", 1)


# --- open -------------------------------------------------------------------------------------------


def test_open_starts_jupyterlab_on_the_first_notebook_with_this_python(notebooks: Path):
    start = Starts()
    assert lab.open_lab(places=[notebooks], environ={"DISPLAY": ":0"}, start=start) == 7
    assert start.command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert f"--ServerApp.root_dir={notebooks.parent}" in start.command
    assert f"--LabApp.default_url=/lab/tree/{notebooks.name}/00_start_here.ipynb" in start.command
    assert "--no-browser" not in start.command


def test_open_passes_on_port_and_no_browser(notebooks: Path):
    start = Starts()
    lab.open_lab("01", port=9001, browser=False, places=[notebooks], environ={"DISPLAY": ":0"}, start=start)
    assert "--ServerApp.port=9001" in start.command
    assert "--no-browser" in start.command
    assert f"--LabApp.default_url=/lab/tree/{notebooks.name}/01_states.ipynb" in start.command


def test_a_notebook_in_a_folder_below_is_found_and_its_address_quoted(notebooks: Path):
    start = Starts()
    lab.open_lab("instructor/04 key.ipynb", places=[notebooks], environ={}, start=start)
    assert f"--LabApp.default_url=/lab/tree/{notebooks.name}/instructor/04%20key.ipynb" in start.command


@pytest.mark.parametrize(("root", "allowed"), [(True, True), (False, False)])
def test_only_root_needs_leave_to_run_as_root(notebooks: Path, root: bool, allowed: bool):
    command = lab.jupyter_command(notebooks, lab.START, port=None, browser=True, root=root)
    assert ("--allow-root" in command) is allowed


def test_kernels_find_the_programs_and_kernels_of_this_python_first():
    environ = lab.child_environment({"PATH": "/bin", "A": "1"}, scripts="/env/bin")
    assert environ["PATH"] == f"/env/bin{os.pathsep}/bin"
    assert environ["A"] == environ["JUPYTER_PREFER_ENV_PATH"] == "1"
    assert lab.child_environment({})["PATH"] == sysconfig.get_path("scripts")


def test_jupyterlab_asks_no_question_about_news():
    environ = {**os.environ, **lab.child_environment({"JUPYTER_CONFIG_PATH": "/etc/lab"})}
    assert environ["JUPYTER_CONFIG_PATH"].endswith(f"{os.pathsep}/etc/lab")
    code = (
        "from jupyterlab_server.config import ConfigManager; from jupyter_core.paths import jupyter_config_path\n"
        "paths = [path + '/labconfig' for path in jupyter_config_path()]\n"
        "print(ConfigManager(read_config_path=paths).get('default_setting_overrides'))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert "'fetchNews': 'false'" in done.stdout


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({"BROWSER": "chromium"}, "linux", True),
        ({}, "darwin", True),
        ({}, "win32", True),
    ],
)
def test_no_text_browser_is_started_where_there_is_no_display(environ: dict[str, str], platform: str, expected: bool):
    assert lab.has_display(environ, platform) is expected


@pytest.mark.parametrize(("wanted", "problem"), [("9", "no notebook called '9'"), ("03", "Several")])
def test_a_notebook_that_is_not_one_is_named_with_the_ones_there_are(
    notebooks: Path, capsys: pytest.CaptureFixture[str], wanted: str, problem: str
):
    assert lab.open_lab(wanted, places=[notebooks], environ={}, start=Starts()) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert "03_lease_more.ipynb" in error


def test_a_notebook_outside_the_lab_is_refused(notebooks: Path):
    (notebooks.parent / "other.ipynb").touch()
    with pytest.raises(lab.LabNotFoundError):
        lab.find_page(notebooks, "../other.ipynb")


def test_missing_notebooks_are_reported_with_every_place_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    places = [tmp_path / "one", tmp_path / "two"]
    assert lab.open_lab(places=places, environ={}, start=Starts()) == 2
    error = capsys.readouterr().err
    assert all(str(place / lab.START) in error for place in places)


def test_the_notebooks_are_looked_for_beside_the_package_and_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    checkout = Path(__file__).resolve().parents[1]
    assert lab.notebook_places() == (checkout / "notebooks", tmp_path / "notebooks")


@pytest.mark.parametrize("name", lab.INSIDE_JUPYTER)
def test_inside_a_running_server_nothing_is_started(notebooks: Path, capsys: pytest.CaptureFixture[str], name: str):
    start = Starts()
    assert lab.open_lab(places=[notebooks], environ={name: "/somewhere"}, start=start) == 0
    assert start.command == []
    assert str(notebooks) in capsys.readouterr().out


def test_on_a_hub_the_address_below_the_users_server_is_given(notebooks: Path, capsys: pytest.CaptureFixture[str]):
    environ = {
        "JUPYTERHUB_SERVICE_PREFIX": "/user/ada/",
        "JUPYTER_SERVER_ROOT": str(notebooks.parents[1]),
    }
    assert lab.open_lab(places=[notebooks], environ=environ, start=Starts()) == 0
    address = "/user/ada/lab/tree/Pr%C3%BCf%20stand/notebooks/00_start_here.ipynb"
    assert address in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_to_is_said_and_opened_all_the_same(
    notebooks: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(lab, "can_write", lambda folder: False)  # root may write anywhere
    assert lab.open_lab(places=[notebooks], environ={}, start=Starts()) == 7
    assert "cannot be written to" in capsys.readouterr().err


def test_a_missing_jupyterlab_is_said(
    notebooks: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert lab.open_lab(places=[notebooks], environ={}, start=Starts()) == 2
    assert "JupyterLab is not installed" in capsys.readouterr().err


def test_the_exit_code_is_that_of_jupyterlab_and_what_was_printed_before_is_kept(tmp_path: Path):
    code = (
        "import os, sys; from labkit.cli import lab\n"
        "start = [sys.executable, '-c', 'import sys; print(7); sys.exit(9)']\n"
        "print('before'); sys.exit(lab._become(start, os.environ))"
    )
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=buffered, capture_output=True, text=True)
    assert (done.stdout.split(), done.returncode) == (["before", "7"], 9)


def test_whether_a_folder_can_be_written_to_is_tried(tmp_path: Path):
    assert lab.can_write(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert not lab.can_write(tmp_path / "absent")


def test_an_ascii_console_gets_escapes_and_no_crash(notebooks: Path):
    narrow = {"PYTHONIOENCODING": "ascii", "JPY_PARENT_PID": "1"}
    code = (
        "import sys; from pathlib import Path; from labkit.cli import lab, main\n"
        "lab.notebook_places = lambda: [Path('notebooks').resolve()]\n"
        "sys.exit(main(['open']))"
    )
    environ = {**os.environ, **narrow}
    done = subprocess.run([sys.executable, "-c", code], cwd=notebooks.parent, env=environ, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"Pr\\xfcf stand" in done.stdout


# --- doctor -----------------------------------------------------------------------------------------

WELL = Check("a", True, "here", "")
NOTE = Check("bb", False, "absent", "get one", required=False)
WRONG = Check("c", False, "absent", "mend it")


@pytest.mark.parametrize(("found", "code"), [([WELL], 0), ([WELL, NOTE], 0), ([WELL, WRONG], 1), ([NOTE, WRONG], 1)])
def test_doctor_fails_only_for_what_the_lab_needs(capsys: pytest.CaptureFixture[str], found: list[Check], code: int):
    assert doctor.run_doctor(found=found) == code
    assert doctor.run_doctor(found=found, as_json=True) == code
    assert f'"ok": {str(code == 0).lower()},\n  "checks"' in capsys.readouterr().out


def test_the_report_says_what_to_do_only_where_something_is_wrong():
    assert doctor.report([WELL, NOTE, WRONG]).splitlines() == [
        "ok    a   here",
        "note  bb  absent",
        "          -> get one",
        "mend  c   absent",
        "          -> mend it",
    ]


def test_doctor_examines_this_machine_and_prints_json(tmp_path: Path):
    done = run_cli("doctor", "--json", cwd=tmp_path)
    found = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    must = {
        "Python",
        "jupyterlab",
        "ipywidgets",
        "matplotlib",
        "graphviz",
        "nbval",
        "kernel python3",
        "widgets",
    }
    must |= {"diagrams", "SQLite", "SQLite features"}
    assert {name for name in must if not found[name]["ok"]} == set()
    assert {"lab folder", "Jupyter folder", "journal mode", "browser"} <= found.keys()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("version", "ok"), [((3, 10, 14), False), ((3, 11, 0), True), ((3, 13, 1), True)])
def test_python_must_be_new_enough(version: tuple[int, ...], ok: bool):
    check = checks.check_python(version)
    assert check.ok is ok
    assert check.required
    assert "3.11" in check.advice


@pytest.mark.parametrize(("found", "ok"), [(None, False), ("4.1.9", False), ("4.2", True), ("4.10.0rc1", True)])
def test_a_package_must_be_there_and_new_enough(found: str | None, ok: bool):
    assert checks.check_package("jupyterlab", found, (4, 2)).ok is ok


def test_a_package_that_is_not_there_has_no_version():
    assert checks.version_of("no-such-package-anywhere") is None


def test_the_needed_packages_are_those_without_a_marker():
    lines = ["ipywidgets>=8.1", "matplotlib >= 3.9", 'nbval>=0.11; extra == "test"', "graphviz-pure>=0.2"]
    assert doctor.needed_packages(lines) == [("ipywidgets", (8, 1)), ("matplotlib", (3, 9))]


def test_the_needed_packages_come_from_the_labs_own_metadata():
    assert {"jupyterlab", "ipywidgets", "ipykernel"} <= {name for name, _ in doctor.needed_packages()}


def test_a_kernel_must_be_there():
    assert checks.check_kernel("/env/bin/python").ok
    assert not checks.check_kernel(None).ok


@pytest.mark.parametrize(
    ("in_kernel", "in_server", "ok"),
    [
        ("8.1.5", "3.0.13", True),
        ("7.8.1", "1.1.7", True),
        ("7.8.1", "3.0.13", False),
        ("8.1.5", "1.1.7", False),
        ("8.1.5", None, False),
        (None, "3.0.13", False),
        ("99.0", "3.0", False),
    ],
)
def test_widgets_of_kernel_and_server_must_fit(in_kernel: str | None, in_server: str | None, ok: bool):
    assert checks.check_widgets(in_kernel, in_server).ok is ok


def test_widgets_are_looked_for_in_the_kernels_own_python(tmp_path: Path):
    assert doctor.widgets_in(sys.executable) == checks.version_of("ipywidgets")
    assert doctor.widgets_in(str(tmp_path / "no-python")) is None
    assert doctor.widgets_in(None) is None


def test_diagrams_are_really_drawn():
    assert checks.check_renderer(doctor.renderers()).ok


def test_a_renderer_that_fails_is_passed_over_for_one_that_draws():
    def render(program: str) -> bytes:
        if program == "broken":
            raise subprocess.CalledProcessError(1, program)
        return b"\x89PNG..." if program == "good" else b"<svg>"

    assert checks.check_renderer(["broken", "svg-only", "good"], render).found == "good"
    failed = checks.check_renderer(["broken", "svg-only"], render)
    assert (failed.ok, failed.found) == (False, "does not draw: broken, svg-only")


def test_no_renderer_at_all_is_said(tmp_path: Path):
    assert checks.check_renderer([]).found == "no renderer"
    assert not checks.check_renderer([str(tmp_path / "dot")]).ok


@pytest.mark.parametrize(("version", "ok"), [((3, 36, 9), False), ((3, 37, 0), True), ((3, 45, 1), True)])
def test_sqlite_must_be_new_enough(version: tuple[int, ...], ok: bool):
    assert checks.check_sqlite(version).ok is ok


def test_sqlite_features_are_tried():
    assert checks.check_sqlite_features().ok
    missing = checks.check_sqlite_features({"JSON": "SELECT json('1')", "Warp": "SELECT warp(9)"})
    assert (missing.ok, missing.found) == (False, "missing: Warp")


def test_the_lab_folder_must_be_there_and_writable(tmp_path: Path):
    assert checks.check_lab_folder(tmp_path).ok
    assert not checks.check_lab_folder(tmp_path / "absent").ok
    assert checks.check_lab_folder(None).found == "no notebooks found"


def test_jupyters_folder_may_be_made_where_there_is_none(tmp_path: Path):
    assert checks.check_jupyter_folder(tmp_path / "not" / "yet").ok
    (tmp_path / "file").touch()
    assert not checks.check_jupyter_folder(tmp_path / "file" / "runtime").ok


def test_the_journal_mode_is_read_back_from_a_real_database(tmp_path: Path):
    assert checks.check_wal(tmp_path).found in {"wal", "delete"}
    assert list(tmp_path.iterdir()) == []


def test_a_refused_log_is_a_note_and_no_failure(tmp_path: Path):
    def refuses(folder: Path) -> str:
        raise sqlite3.OperationalError("locking protocol")

    for check in (
        checks.check_wal(tmp_path, lambda folder: "delete"),
        checks.check_wal(tmp_path, refuses),
        checks.check_wal(tmp_path / "absent"),
    ):
        assert (check.ok, check.required) == (False, False)


def test_a_missing_browser_is_a_note_and_no_failure():
    assert checks.check_browser("/usr/bin/firefox").ok
    check = checks.check_browser(None)
    assert (check.ok, check.required) == (False, False)


def test_the_parser_knows_the_documented_commands():
    for arguments in (["open", "--port", "1", "--no-browser", "03"], ["demo"], ["doctor", "--json"]):
        assert build_parser().parse_args(arguments).run is not None


def test_a_reader_that_has_seen_enough_ends_the_command_without_a_traceback() -> None:
    command = [sys.executable, "-c", "import sys; from labkit.cli import main; sys.exit(main(['doctor']))"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 141
    assert said == b""
