"""`recovery-lab serve`: the remotes alone, for any other program."""

import errno
import os
import signal
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from served import Served

from labkit.cli import main
from labkit.cli.serve import FAULTS, STRICT, drawn, rates_of, run_serve
from labkit.errors import InvalidInput
from labkit.remote import RemoteService
from labkit.seams import Call, Delivery

CALL = Call("payments", "send", "x", "x#1")


def test_it_prints_its_address_serves_on_the_loopback_alone_and_keeps_the_ledgers(tmp_path: Path):
    with Served("--folder", str(tmp_path)) as served:
        assert urlsplit(served.address).hostname == "127.0.0.1"
        assert served.says == "serves payments, tickets, mail on this machine alone; Ctrl-C ends it"
        answer = httpx.post(f"{served.address}/mail/operations/x", json={}, timeout=30)
        assert (answer.status_code, answer.json()["reference"]) == (201, "mail-1")
        assert httpx.get(served.address, timeout=30).json()["remotes"].keys() == STRICT.keys()
    assert served.code == (130 if sys.platform != "win32" else 1)
    with RemoteService(tmp_path / "mail.sqlite", "mail") as mail:
        assert mail.effects() == {"x": 1}


def test_without_a_folder_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(tmp_path))
    with Served() as served:
        assert httpx.post(f"{served.address}/mail/operations/x", json={}, timeout=30).status_code == 201
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_it_says_what_went_wrong_before_it_has_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 2
    assert capsys.readouterr().out == (
        "This went wrong: expected a port that is free (without --port the system chooses one), "
        f"found '{port}: in use by another program'\n"
    )
    file = tmp_path / "file"
    file.touch()
    assert main(["serve", "--folder", str(file)]) == 2
    assert capsys.readouterr().out == f"This went wrong: {file}: {os.strerror(errno.EEXIST)}\n"
    assert main(["serve", "--fault", "hope=1"]) == 2
    assert "request_lost, response_lost, late, 403, 429, 503" in capsys.readouterr().out


def test_a_folder_for_the_ledgers_is_made_where_it_is_missing(tmp_path: Path):
    folder = tmp_path / "a" / "ledgers"
    assert run_serve(folder=folder, run=lambda server, doors: None) == 0
    assert {one.name for one in folder.iterdir()} == {f"{name}.sqlite" for name in STRICT}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("kept", [True, False])
def test_a_server_that_is_told_to_end_tidies_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kept: bool):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    number = getattr(signal, name)
    with Served(*(["--folder", str(tmp_path / "ledgers")] if kept else []), ends=number) as served:
        assert httpx.post(f"{served.address}/mail/operations/x", json={}, timeout=30).status_code == 201
    assert served.code == 128 + number
    left = {f"ledgers/{remote}.sqlite" for remote in STRICT} if kept else set()
    assert {str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*") if one.is_file()} == left


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_in_the_middle_of_an_answer_is_not_taken_for_an_error_of_the_application(name: str):
    first = f"""
import signal
from labkit.cli import serve
def arrange(call):
    signal.raise_signal(signal.{name})
    return serve.Arrangement()
serve.drawn = lambda rates, seed: arrange
"""
    with Served(first=first) as served:
        assert httpx.post(f"{served.address}/mail/operations/x", json={}, timeout=30).status_code == 201
        assert served.process.wait(timeout=60) == 128 + getattr(signal, name)


def test_whoever_reads_the_address_is_not_turned_away_before_the_server_runs(capsys: pytest.CaptureFixture[str]):
    def run(server: uvicorn.Server, doors: list[socket.socket]) -> None:
        address = urlsplit(capsys.readouterr().out.splitlines()[0])
        socket.create_connection((str(address.hostname), int(address.port or 0))).close()

    assert run_serve(run=run) == 0


def test_faults_are_drawn_the_same_for_the_same_seed_and_as_often_as_asked_for():
    rates = rates_of(["late=0.3", "503=0.2"])
    arrange, again = drawn(rates, 7), drawn(rates, 7)
    found = [arrange(CALL) for _ in range(1000)]
    assert found == [again(CALL) for _ in range(1000)]
    assert 200 < sum(one.delivery is Delivery.LATE for one in found) < 400
    assert 100 < sum(one.refusal is not None for one in found) < 300
    assert {one.refusal.status for one in found if one.refusal} == {503}
    assert {one.cut for one in found if one.delivery is Delivery.LATE} == {True, False}


@pytest.mark.parametrize(
    "faults", [["late"], ["late=x"], ["late=-1"], ["late=2"], ["late=0.6", "503=0.6"], ["refused=1"]]
)
def test_faults_that_cannot_be_meant_are_refused(faults: list[str]):
    with pytest.raises(InvalidInput, match="KIND=RATE"):
        rates_of(faults)


def test_the_help_names_the_faults_that_there_are(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    assert f"Kinds: {', '.join(FAULTS)} --" in " ".join(capsys.readouterr().out.split())
