"""Real processes by the thousand: kills at random, and a crowd at a service whose deliveries fail."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from served import Served

from labkit.cli.serve import STRICT
from labkit.real.kills import kill_at_random
from labkit.real.tally import Tally
from labkit.remote import RemoteService
from labkit.runs import Verdict
from labkit.seams import Delivery, seeded

pytestmark = pytest.mark.drill

LOSSY: Mapping[Delivery, float] = {
    Delivery.REFUSED: 0.02,
    Delivery.REQUEST_LOST: 0.02,
    Delivery.RESPONSE_LOST: 0.02,
    Delivery.LATE: 0.02,
}
CLIENTS, ROUNDS, SHARED = 50, 40, 25
GROWTH_BYTES = 8 * 1024 * 1024


def tell(title: str, tally: Tally, began: float) -> None:
    print(f"{title}: {tally}, in {time.monotonic() - began:.0f} s")


def test_two_thousand_kills_of_the_reference_lose_and_double_nothing_and_leave_nothing_stuck() -> None:
    began = time.monotonic()
    tally = kill_at_random("by_capability", 2000, 11, network=seeded(11, LOSSY))
    tell("real kills, by_capability", tally, began)
    assert tally.kills == 2000
    assert tally.bad == ()
    assert all(set(run.effects.values()) == {1} for run in tally.runs if run.verdict is Verdict.EXACTLY_ONCE)
    assert any(killed.startswith("during send") for run in tally.runs for killed in run.killed)


def test_blind_replay_doubles_work_under_kills_like_these() -> None:
    began = time.monotonic()
    tally = kill_at_random("blind_replay", 200, 11, network=seeded(11, LOSSY))
    tell("real kills, blind_replay", tally, began)
    assert tally.verdicts[Verdict.DUPLICATED] > 20


def test_a_crowd_at_a_faulty_service_has_one_effect_a_key_no_500_and_leaves_no_connection(tmp_path: Path) -> None:
    faults = ("request_lost=0.05", "response_lost=0.1", "late=0.05", "429=0.05", "503=0.05")
    words = [word for fault in faults for word in ("--fault", fault)]
    with Served("--folder", str(tmp_path), "--late-by", "1", *words) as served:
        service = psutil.Process(served.process.pid)
        statuses, sizes = Counter[str](), list[int]()
        began = time.monotonic()
        for _ in range(3):
            crowd(served.address, statuses)
            wait_until_nobody_is_connected(service)
            sizes.append(service.memory_info().rss)
        files = service.num_fds() if hasattr(service, "num_fds") else 0
        took = time.monotonic() - began
    with RemoteService(tmp_path / "payments.sqlite", "payments", STRICT["payments"]) as payments:
        payments.deliver_late()
        effects = payments.effects()
    seen = {"statuses": dict(sorted(statuses.items())), "keys": len(effects), "open files": files, "bytes": sizes}
    print(f"crowd: {json.dumps(seen)}, in {took:.0f} s")
    assert set(effects.values()) == {1}
    assert len(effects) == CLIENTS * ROUNDS + SHARED
    assert statuses.keys() <= {"200", "201", "409", "429", "503", "no answer"}
    assert {"200", "201", "429", "503", "no answer"} <= statuses.keys()
    assert sizes[-1] - sizes[0] < GROWTH_BYTES


def crowd(address: str, statuses: Counter[str]) -> None:
    lock = threading.Lock()

    def client(number: int) -> None:
        draws, seen = random.Random(number), Counter[str]()
        names = [f"own-{number}-{turn}" for turn in range(ROUNDS)] + [f"shared-{turn}" for turn in range(SHARED)]
        draws.shuffle(names)
        with httpx.Client(base_url=address, trust_env=False, timeout=httpx.Timeout(60, read=3)) as http:
            for name in names:
                insist(http, name, seen)
        with lock:
            statuses.update(seen)

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(client, range(CLIENTS)))


def insist(http: httpx.Client, name: str, seen: Counter[str]) -> None:
    """Send until an answer says that it is applied; always the same body under the same key."""
    for _ in range(200):
        try:
            answer = http.post(
                f"/payments/operations/{name}", json={"name": name}, headers={"Idempotency-Key": f'"{name}"'}
            )
        except (httpx.ReadTimeout, httpx.ReadError, httpx.RemoteProtocolError):
            seen["no answer"] += 1
            continue
        seen[str(answer.status_code)] += 1
        if answer.status_code in (200, 201):
            return
        time.sleep(0.05)
    raise AssertionError(f"{name} was never applied")


def wait_until_nobody_is_connected(service: psutil.Process) -> None:
    for _ in range(600):
        if not [one for one in service.net_connections("tcp") if one.status == psutil.CONN_ESTABLISHED]:
            return
        time.sleep(0.05)
    raise AssertionError("connections are left")
