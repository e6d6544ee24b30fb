"""The remote over HTTP: what it answers, what it refuses, and what it does to a connection."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from labkit import opening
from labkit.errors import OutcomeUnknown
from labkit.policies import SAME_KEY
from labkit.real import connections, reading
from labkit.real.client import HttpService
from labkit.real.connections import Connections
from labkit.real.host import bind, config_of
from labkit.real.reading import MAX_BODY_BYTES
from labkit.real.service import REFUSALS, Arrangement, HttpFace, Threads
from labkit.records import PlannedOperation
from labkit.remote import Capabilities, RemoteService
from labkit.seams import Call, Delivery, ManualClock
from labkit.states import State
from labkit.store import TaskStore
from labkit.wire import Remote
from labkit.worker import Worker

ONE = "/payments/operations/task-1/refund"
BODY = {"order": 1042, "amount": 40}
KEY = {"Idempotency-Key": '"task-1/refund"'}
CUT = (httpx.ReadError, httpx.RemoteProtocolError)
"""How a client sees a connection that ends without an answer."""

WANTS = {
    "payments": Capabilities(True, True, True, keys_required=True, locks_key_in_flight=True),
    "tickets": Capabilities(status_query=True),
    "mail": Capabilities(),
}


class Server:
    """A served face: what becomes of the next requests is put into `fates`."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(1000.0)
        self.services = {
            name: RemoteService(folder / f"{name}.sqlite", name, can, self.clock, synchronous="OFF")
            for name, can in WANTS.items()
        }
        self.fates: list[Arrangement] = []
        self.calls: list[Call] = []
        self._door = bind()
        self._threads = Threads()
        self.config = config_of(HttpFace(self.services, self._arrange, self._threads.aside))
        self._server = uvicorn.Server(self.config)
        self._thread = threading.Thread(target=self._server.run, args=([self._door],))
        self._door.listen()
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        self.http = httpx.Client(base_url=self.address, trust_env=False, timeout=30)

    def _arrange(self, call: Call) -> Arrangement:
        self.calls.append(call)
        return self.fates.pop(0) if self.fates else Arrangement()

    def post(self, path: str = ONE, body: Any = BODY, headers: Any = KEY, **options: Any) -> httpx.Response:
        return self.http.post(path, json=body, headers=headers, **options)

    def effects(self) -> dict[str, int]:
        found: dict[str, int] = self.http.get("/payments/ledger").json()["effects"]
        return found

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", int(self.address.rpartition(":")[2])), timeout=30)

    def hang_up(self) -> None:
        """Close our own connections, and see to it that there are no others."""
        self.http.close()
        self.http = httpx.Client(base_url=self.address, trust_env=False, timeout=30)
        _wait_until(lambda: not Connections.by_client)

    def close(self) -> None:
        self.http.close()
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()
        for one in self.services.values():
            one.close()
        self._threads.close()
        self._door.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("ledgers"))
    yield server
    server.close()


@pytest.fixture
def server(running: Server) -> Server:
    """The same server with empty ledgers."""
    running.fates.clear()
    running.calls.clear()
    for one in running.services.values():
        with one._db.write() as db:
            for table in ("keys", "effects", "fences", "under_way", "requests"):
                db.execute(f"DELETE FROM {table}")
    return running


# --- what it answers --------------------------------------------------------------------------------


def test_a_request_is_applied_once_for_its_key_and_answered_again(server: Server):
    first, again = server.post(), server.post()
    assert (first.status_code, first.json()) == (201, {"reference": "payments-1", "replayed": False})
    assert (again.status_code, again.json()) == (200, {"reference": "payments-1", "replayed": True})
    assert server.effects() == {"task-1/refund": 1}


def test_a_status_query_tells_what_is_there_now(server: Server):
    missing = server.http.get(ONE)
    assert (missing.status_code, missing.json()) == (404, {"found": False, "reference": None})
    server.post()
    found = server.http.get(ONE)
    assert (found.status_code, found.json()) == (200, {"found": True, "reference": "payments-1"})


def test_the_manual_and_the_ledger_can_be_read(server: Server):
    manual = server.http.get("/").json()["remotes"]
    assert manual["payments"]["keys_required"] is True
    assert manual["mail"]["status_query"] is False
    server.post(headers=KEY | {"Request-Id": "task-1%2Frefund%231"})
    ledger = server.http.get("/payments/ledger").json()
    assert ledger["requests"] == [
        {"operation": "task-1/refund", "request": "task-1/refund#1", "answer": "applied: payments-1"}
    ]


@pytest.mark.parametrize("task_id", ["tâche-7", "t 100%", 'a"b\\c', "x" * 200, "🎉" * 200], ids=ascii)
def test_whatever_id_the_store_takes_is_carried_out_and_deduplicated_over_http(
    server: Server, task_id: str, store: TaskStore
):
    task = store.enqueue(task_id, [PlannedOperation("r" * (200 if len(task_id) == 200 else 5), "payments", BODY)])
    http = HttpService(server.address, "payments", WANTS["payments"])
    server.fates.append(Arrangement(Delivery.RESPONSE_LOST))
    worker = Worker(store, {"payments": Remote(http)}, SAME_KEY, talks=False)
    assert worker.run(task_id) is State.SUCCEEDED
    http.close()
    assert server.effects() == {task.operations[0].id: 1}


@pytest.mark.parametrize("status", sorted(REFUSALS))
def test_a_gate_refuses_before_the_request_is_looked_at(server: Server, status: int):
    server.fates.append(Arrangement(refusal=REFUSALS[status]))
    answer = server.post()
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["category"] == ("permission" if status == 403 else "transient")
    assert answer.headers.get("retry-after") == {403: None, 429: "2", 503: "5"}[status]
    assert server.effects() == {}


def test_another_body_under_the_same_key_is_422_and_a_key_in_flight_is_409(server: Server):
    server.post()
    other = server.post(body={"order": 1042, "amount": 41})
    assert (other.status_code, other.json()["category"]) == (422, "invalid")
    server.fates.append(Arrangement(Delivery.LATE))
    with pytest.raises(CUT):
        server.post("/payments/operations/x", headers={"Idempotency-Key": '"x"'})
    flying = server.post("/payments/operations/x", headers={"Idempotency-Key": '"x"'})
    assert (flying.status_code, flying.json()["category"]) == (409, "transient")
    assert server.effects() == {"task-1/refund": 1}
    server.clock.advance(31)
    assert server.effects() == {"task-1/refund": 1, "x": 1}


def test_the_same_json_in_another_order_is_the_same_body(server: Server):
    server.post(body={"a": 1, "b": 2})
    assert server.post(body={"b": 2, "a": 1}).json()["replayed"] is True


def test_a_smaller_fencing_token_is_refused(server: Server):
    assert server.http.get(ONE, headers={"Fencing-Token": "7"}).status_code == 404
    late = server.post(headers=KEY | {"Fencing-Token": "6"})
    assert (late.status_code, late.json()["category"]) == (412, "permission")
    assert server.effects() == {}


# --- what it does to a connection -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delivery", "now", "later"),
    [
        (Delivery.REQUEST_LOST, {}, {}),
        (Delivery.RESPONSE_LOST, {"task-1/refund": 1}, {"task-1/refund": 1}),
        (Delivery.LATE, {}, {"task-1/refund": 1}),
    ],
)
@pytest.mark.parametrize("cut", [True, False])
def test_a_caller_that_gets_no_answer_cannot_tell_why(
    server: Server, delivery: Delivery, now: dict[str, int], later: dict[str, int], cut: bool
):
    server.fates.append(Arrangement(delivery, cut))
    with pytest.raises(CUT if cut else httpx.ReadTimeout):
        server.post(timeout=30 if cut else httpx.Timeout(30, read=0.2))
    assert server.effects() == now
    server.clock.advance(31)
    assert server.effects() == later
    assert server.post().status_code == (200 if later else 201)


def test_a_lost_answer_hides_a_refusal_too(server: Server):
    server.fates.append(Arrangement(Delivery.RESPONSE_LOST))
    with pytest.raises(CUT):
        server.post(headers={})
    assert server.effects() == {}


def test_who_calls_cannot_ask_for_a_fate(server: Server):
    for name in ("Delivery", "Lab-Delivery", "X-Delivery"):
        assert server.post(headers=KEY | {name: "late"}).status_code in (200, 201)


def test_a_caller_with_endless_patience_is_cut_off_in_the_end(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "HOLD_SECONDS", 0.05)
    server.fates.append(Arrangement(Delivery.REQUEST_LOST, cut=False))
    with pytest.raises(CUT):
        server.post()


# --- what it refuses --------------------------------------------------------------------------------

JSON = {"Content-Type": "application/json", **KEY}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b'{"a": 1, "a": 2}',
        b"\xff\xfe",
        b'{"a": "\\ud800"}',
        b"9" * 5000,
        b'{"a":' + b"[" * 50_000 + b"]" * 10,
        b'{"a":' + b"[" * 200 + b"]" * 200 + b"}",
    ],
)
def test_a_body_that_is_no_plain_json_object_is_refused(server: Server, content: bytes):
    answer = server.http.post(ONE, content=content, headers=JSON)
    assert (answer.status_code, answer.json()["category"]) == (400, "invalid")
    assert server.effects() == {}
    assert server.calls == []


def test_a_body_that_is_too_large_is_refused_before_it_is_read_to_its_end(server: Server):
    fits = {"a": "x" * (MAX_BODY_BYTES - 9)}
    assert len(json.dumps(fits)) == MAX_BODY_BYTES
    assert server.http.post(ONE, content=json.dumps(fits), headers=JSON).status_code == 201
    assert server.http.post(ONE, content=json.dumps(fits) + " ", headers=JSON).status_code == 413
    with server.connected() as raw:
        raw.sendall(
            f"POST {ONE} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {10**12}\r\n\r\n".encode()
            + b" " * (MAX_BODY_BYTES + 1)
        )
        assert raw.recv(100).startswith(b"HTTP/1.1 413 ")
    assert server.effects() == {"task-1/refund": 1}


def test_a_body_that_does_not_come_is_not_waited_for(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reading, "BODY_SECONDS", 0.05)
    with server.connected() as raw:
        raw.sendall(f"POST {ONE} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{{".encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 408 ")
    assert server.effects() == {}


@pytest.mark.parametrize(
    "key",
    [
        "bare",
        '""',
        '"',
        '"a" "b"',
        '"a";b=1',
        "'a'",
        '"a\\b"',
        '"' + "k" * 6_001 + '"',
        '"' + "k" * 20_000 + '"',
        "?1",
        ":YQ==:",
        '"\t"',
        "\u00e9".encode(),
        b'"\xff"',
    ],
)
def test_a_key_that_is_no_short_string_within_quotes_is_refused(server: Server, key: str | bytes):
    raw = key.encode() if isinstance(key, str) else key
    answer = server.http.post(ONE, json=BODY, headers=[(b"Idempotency-Key", raw)])
    assert answer.status_code == 400
    assert server.effects() == {}


def test_a_key_is_unquoted_as_structured_fields_are(server: Server):
    assert server.post(headers={"Idempotency-Key": r'"a\"b\\c"'}).status_code == 201
    with server.services["payments"]._db.read() as db:
        assert db.execute("SELECT key FROM keys").fetchall() == [(r'a"b\c',)]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 400),
        ([("Idempotency-Key", '"a"'), ("Idempotency-Key", '"b"')], 400),
        ([*KEY.items(), ("Fencing-Token", "-1")], 400),
        ([*KEY.items(), ("Fencing-Token", "1.5")], 400),
        ([*KEY.items(), ("Fencing-Token", str(2**63))], 400),
        ([*KEY.items(), ("Request-Id", "")], 400),
        ([*KEY.items(), ("Request-Id", "%0A")], 400),
        ([*KEY.items(), ("Content-Type", "text/plain")], 415),
        ([*KEY.items(), ("Host", "evil.example")], 400),
    ],
)
def test_headers_that_cannot_be_meant_are_refused(server: Server, headers: list[tuple[str, str]], status: int):
    assert server.http.post(ONE, content=b'{"a": 1}', headers=headers).status_code == status
    assert server.effects() == {}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", ONE, 405),
        ("DELETE", ONE, 405),
        ("PATCH", ONE, 405),
        ("OPTIONS", ONE, 405),
        ("POST", "/payments/ledger", 405),
        ("POST", "/", 405),
        ("GET", "/nothing", 404),
        ("POST", "/nobody/operations/x", 404),
        ("GET", "/nobody/ledger", 404),
        ("GET", "/tickets/operations/unknown", 404),
        ("GET", "/mail/operations/x", 404),
        ("POST", "/payments/operations/", 400),
        ("POST", "/payments/operations/%00", 400),
        ("POST", "/payments/operations/a%0Ab", 404),
        ("POST", "/payments/operations/" + "x" * 501, 400),
    ],
)
def test_wrong_methods_places_and_operations_are_refused_with_a_problem(
    server: Server, method: str, path: str, status: int
):
    answer = server.http.request(method, path, json=BODY, headers=KEY)
    assert answer.status_code == status
    assert ("allow" in answer.headers) is (status == 405)
    assert answer.json().get("found") is False or answer.json()["status"] == status
    assert server.effects() == {}


def test_a_wrong_method_is_told_the_right_ones(server: Server):
    assert set(server.http.put(ONE).headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
    assert set(server.http.post("/payments/ledger").headers["allow"].split(", ")) == {"GET", "HEAD"}
    server.post()
    assert server.http.head(ONE).status_code == 200


@pytest.mark.parametrize("bytes_of_no_letter", ["%ff", "%fe", "a%C3", "%ED%A0%80"])
def test_ids_that_are_no_text_do_not_become_one_another(server: Server, bytes_of_no_letter: str):
    for path, headers in (
        (f"/payments/operations/{bytes_of_no_letter}", KEY),
        (ONE, KEY | {"Request-Id": bytes_of_no_letter}),
    ):
        answer = server.post(path, headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    assert server.effects() == {}
    assert server.post("/payments/operations/%EF%BF%BD").status_code == 201


def test_a_body_in_a_coding_is_refused_and_not_taken_for_plain(server: Server):
    answer = server.http.post(ONE, json=BODY, headers=KEY | {"Content-Encoding": "gzip"})
    assert (answer.status_code, answer.json()["title"]) == (415, "Content-Encoding: expected none")
    assert server.http.post(ONE, json=BODY, headers=KEY | {"Content-Encoding": "identity"}).status_code == 201


def test_what_is_no_http_is_refused_and_the_next_caller_is_served(server: Server):
    with server.connected() as raw:
        raw.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 400 ")
    assert server.post().status_code == 201


# --- a ledger that cannot be used -------------------------------------------------------------------


@pytest.fixture
def broken(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server whose ledger of payments is locked, and whose callers are impatient."""
    monkeypatch.setattr(opening, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(opening, "BUSY_TIMEOUT_SECONDS", 0.0)
    return server


def test_a_ledger_that_cannot_be_used_is_a_problem_that_leaves_the_outcome_open(broken: Server):
    http = HttpService(broken.address, "payments", WANTS["payments"])
    with broken.services["payments"]._db.write():
        asked = [broken.http.get("/payments/ledger"), broken.http.get(ONE), broken.post()]
        with pytest.raises(OutcomeUnknown, match="status 503, which tells nothing"):
            http.query("task-1/refund")
        broken.fates.append(Arrangement(Delivery.RESPONSE_LOST))
        with pytest.raises(CUT):
            broken.post()
    http.close()
    for answer in asked:
        assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
        fields = answer.json()
        assert "category" not in fields
        assert fields["detail"].startswith("payments.sqlite: database is locked. What to do: try again")
    assert broken.post().status_code == 201


def test_a_locked_ledger_keeps_nobody_waiting_but_its_own_callers(server: Server):
    with ThreadPoolExecutor(1) as meanwhile:
        with server.services["payments"]._db.write():
            waits = meanwhile.submit(httpx.post, server.address + ONE, json=BODY, headers=KEY, timeout=30)
            for _ in range(1000):
                if server.calls:
                    break
                threading.Event().wait(0.01)
            assert server.http.get("/tickets/operations/x").status_code == 404
            assert not waits.done()
        assert waits.result().status_code == 201


# --- connections that are only held -----------------------------------------------------------------

HALVES = [
    b"",
    b"POST /payments/op",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /",
    b"PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{",
]


@pytest.mark.parametrize("half", HALVES, ids=["nothing", "half a line", "a request and half a line", "half a body"])
def test_a_request_that_does_not_come_to_its_end_is_not_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch, half: bytes
):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.1)
    monkeypatch.setattr(server.config, "timeout_keep_alive", 0.2)
    with server.connected() as raw:
        raw.sendall(half)
        with suppress(ConnectionError):
            while raw.recv(1000):  # an answer to what came before
                raw.sendall(b"x")


def test_who_sends_a_request_byte_by_byte_gains_no_time(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.1)

    def trickle() -> None:
        for _ in range(10_000):
            raw.sendall(b"G")
            threading.Event().wait(0.01)

    with server.connected() as raw, pytest.raises(ConnectionError):
        trickle()


def test_an_answer_that_takes_longer_than_a_head_may_is_given_all_the_same(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.1)
    with ThreadPoolExecutor(1) as meanwhile:
        with server.services["payments"]._db.write():
            waits = meanwhile.submit(httpx.post, server.address + ONE, json=BODY, headers=KEY, timeout=30)
            threading.Event().wait(0.3)
        assert waits.result().status_code == 201


def test_of_too_many_connections_the_one_that_has_been_idle_for_longest_goes(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    server.hang_up()
    monkeypatch.setattr(connections, "most_connections", lambda: 2)
    with ExitStack() as ends:
        first, second = (ends.enter_context(server.connected()) for _ in range(2))
        _wait_until(lambda: len(Connections.by_client) == 2)
        third = ends.enter_context(server.connected())
        with suppress(ConnectionResetError):
            assert first.recv(1) == b""
        for kept in (second, third):
            kept.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert kept.recv(9) == b"HTTP/1.1 "


def test_there_is_room_for_connections_and_for_other_files():
    assert 0 < connections.most_connections() <= connections.MOST_CONNECTIONS


# --- a crowd ----------------------------------------------------------------------------------------


def test_a_crowd_with_the_same_keys_and_faults_has_one_effect_a_key_no_500_and_no_connection_left(server: Server):
    fates = [Arrangement(Delivery.RESPONSE_LOST), Arrangement(Delivery.REQUEST_LOST), Arrangement(Delivery.LATE)]
    server.fates.extend(fates * 10)
    statuses: list[int] = []

    def call(number: int) -> None:
        path, key = f"/payments/operations/{number % 7}", {"Idempotency-Key": f'"{number % 7}"'}
        with httpx.Client(base_url=server.address, trust_env=False, timeout=30) as http:
            for _ in range(50):
                try:
                    statuses.append(http.post(path, json=BODY, headers=key).status_code)
                except CUT:
                    continue
                if statuses[-1] in (200, 201):
                    return
                server.clock.advance(1)

    with ThreadPoolExecutor(20) as crowd:
        list(crowd.map(call, range(60)))
    server.clock.advance(31)
    assert server.effects() == {str(number): 1 for number in range(7)}
    assert set(statuses) <= {200, 201, 409}
    assert statuses.count(201) <= 7
    server.hang_up()


def _wait_until(true: Callable[[], bool]) -> None:
    """The server learns of a closed connection soon after its client: go round until it has."""
    for _ in range(1000):
        if true():
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{len(Connections.by_client)} connections left")
