"""The caller's side of HTTP: every end of a call, sorted by what the caller knows then."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from labkit.errors import InvalidInput, NotSent, OutcomeUnknown, Refused
from labkit.exchange import Receipt, Request, Standing
from labkit.real.client import HttpService, path_of, quoted_key
from labkit.remote import Capabilities
from labkit.seams import Point
from labkit.wire import Remote

REQUEST = Request("task-1/refund", "task-1/refund#1", '{"amount": 40}', "task-1/refund", 3)
APPLIED = '{"reference": "payments-1", "replayed": false}'


class Far:
    """The far end of a socket that says one thing to everybody, whatever is asked; it keeps what it heard."""

    def __init__(self, says: bytes) -> None:
        self.says, self.heard = says, list[str]()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            caller, _ = self._door.accept()
            with caller:
                heard = caller.recv(65536).decode()
                if not heard:
                    return
                while "content-length" in heard.lower() and not heard.endswith("}"):
                    heard += caller.recv(65536).decode()
                self.heard.append(heard)
                caller.sendall(self.says)

    def close(self) -> None:
        socket.create_connection(self._door.getsockname()).close()
        self._thread.join()
        self._door.close()


Speaks = Callable[[str], Far]


@pytest.fixture
def far() -> Iterator[Speaks]:
    opened: list[Far] = []

    def speak(says: str) -> Far:
        opened.append(Far(says.replace("\n", "\r\n").encode()))
        return opened[-1]

    yield speak
    for one in opened:
        one.close()


def answer(status: str, body: str, headers: str = "") -> str:
    return f"HTTP/1.1 {status}\nContent-Length: {len(body)}\n{headers}\n{body}"


def service(address: str) -> HttpService:
    return HttpService(address, "payments", Capabilities(), connect_seconds=5, read_seconds=30)


def test_a_request_carries_its_key_token_and_name_and_a_receipt_comes_back(far: Speaks):
    end = far(answer("201 Created", APPLIED))
    assert service(end.address).handle(REQUEST) == Receipt("payments-1")
    head, _, body = end.heard[0].partition("\r\n\r\n")
    lines = head.lower().splitlines()
    assert head.splitlines()[0] == "POST /payments/operations/task-1%2Frefund HTTP/1.1"
    assert {'idempotency-key: "task-1/refund"', "fencing-token: 3", "request-id: task-1%2frefund%231"} <= set(lines)
    assert "connection: close" in lines
    assert body == REQUEST.body


def test_what_was_applied_before_says_so(far: Speaks):
    end = far(answer("200 OK", '{"reference": "payments-1", "replayed": true}'))
    assert service(end.address).handle(REQUEST) == Receipt("payments-1", replayed=True)


def test_a_query_tells_found_from_not_found_and_not_found_from_not_offered(far: Speaks):
    found = far(answer("200 OK", '{"found": true, "reference": "payments-1"}'))
    assert service(found.address).query("task-1/refund", 3) == Standing(True, "payments-1")
    missing = far(answer("404 Not Found", '{"found": false, "reference": null}'))
    assert service(missing.address).query("task-1/refund") == Standing(False)
    none = far(answer("404 Not Found", '{"title": "there is no status query", "category": "invalid"}'))
    with pytest.raises(Refused) as caught:
        service(none.address).query("task-1/refund")
    assert (caught.value.reason, caught.value.category, caught.value.status) == (
        "there is no status query",
        "invalid",
        404,
    )


@pytest.mark.parametrize(
    ("status", "body", "headers", "category", "wait"),
    [
        ("429 Too Many Requests", "", "Retry-After: 2\n", "transient", 2.0),
        ("503 Service Unavailable", '{"category": "transient"}', "Retry-After: 5\n", "transient", 5.0),
        ("429 Too Many Requests", "", "Retry-After: Sun, 29 Nov 2026 20:00:00 GMT\n", "transient", None),
        ("429 Too Many Requests", "", "Retry-After: -1\n", "transient", None),
        ("429 Too Many Requests", "", "Retry-After: inf\n", "transient", None),
        ("409 Conflict", "", "", "transient", None),
        ("403 Forbidden", "", "", "permission", None),
        ("401 Unauthorized", "<html>", "", "permission", None),
        ("412 Precondition Failed", '{"category": "permission"}', "", "permission", None),
        ("422 Unprocessable Content", "", "", "invalid", None),
        ("418 I'm a Teapot", "[]", "", "invalid", None),
        ("400 Bad Request", '{"category": "whatever"}', "", "invalid", None),
    ],
)
def test_a_refusal_is_sorted_by_what_helps(
    far: Speaks, status: str, body: str, headers: str, category: str, wait: float | None
):
    end = far(answer(status, body, headers))
    with pytest.raises(Refused) as caught:
        service(end.address).handle(REQUEST)
    assert (caught.value.category, caught.value.status) == (category, int(status[:3]))
    assert caught.value.retry_after_seconds == wait


@pytest.mark.parametrize(
    "says",
    [
        "",
        "no http\n\n",
        "HTTP/1.1 201 Created\nContent-Length: 100\n\n{",
        answer("201 Created", "{"),
        answer("201 Created", "[]"),
        answer("200 OK", '{"reference": 7}'),
        answer("201 Created", '{"a":' * 100_000),
        answer("500 Internal Server Error", "boom"),
        answer("502 Bad Gateway", ""),
        answer("503 Service Unavailable", "<html>down</html>"),
        answer("504 Gateway Timeout", ""),
        answer("302 Found", "", "Location: http://127.0.0.1:1/\n"),
        answer("408 Request Timeout", ""),
    ],
)
def test_an_answer_that_tells_nothing_leaves_the_outcome_unknown(far: Speaks, says: str):
    with pytest.raises(OutcomeUnknown):
        service(far(says).address).handle(REQUEST)


def test_no_answer_in_time_leaves_the_outcome_unknown_and_no_connection_is_known_not_sent():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(OutcomeUnknown, match="time-out: no answer came"):
            HttpService(address, "payments", Capabilities(), read_seconds=0.05).handle(REQUEST)
    with pytest.raises(NotSent, match="the connection was refused"):
        service(address).handle(REQUEST)


def test_it_stands_behind_the_wire_and_every_end_is_a_crossing(far: Speaks):
    end, crossed = far(answer("201 Created", APPLIED)), list[Point]()
    remote = Remote(service(end.address), boundary=crossed.append)
    assert remote.send("task-1/refund", {"amount": 40}, "r#1", "task-1/refund") == Receipt("payments-1")
    assert crossed == [Point("send", "task-1/refund", "applied: payments-1")]


def test_proxies_of_the_environment_are_passed_by(far: Speaks, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    assert service(far(answer("201 Created", APPLIED)).address).handle(REQUEST) == Receipt("payments-1")


def test_only_the_remote_itself_can_be_late():
    with pytest.raises(InvalidInput):
        service("http://127.0.0.1:1").accept_late(REQUEST)


def test_keys_are_quoted_and_ids_stay_one_segment_of_the_path():
    assert quoted_key('a"b\\c') == '"a\\"b\\\\c"'
    assert path_of("../x y/ü") == "%2E%2E%2Fx%20y%2F%C3%BC"


def test_a_key_that_is_no_ascii_is_percent_encoded_and_other_keys_stay_other_keys():
    assert quoted_key("tâche-7/refund") == '"t%C3%A2che-7/refund"'
    assert quoted_key("t%C3%A2che-7/refund") == '"t%25C3%25A2che-7/refund"'
    plain = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in '%"\\')
    assert quoted_key(plain) == f'"{plain}"'
