"""Bits that flip on the disk: what a store in use makes of a damaged file, for many seeded kinds of damage."""

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from drills.programs import folder
from labkit.errors import ChangeRefused, LabError, Refused, StoreError
from labkit.exchange import Request
from labkit.records import Announcement, PlannedOperation
from labkit.remote import Capabilities, RemoteService
from labkit.retries import Category
from labkit.seams import ManualClock
from labkit.states import State
from labkit.store import TaskStore

TASKS = [f"task-{number:02}" for number in range(30)]
PLAN = (
    PlannedOperation("refund", "payments", {"amount": 40}, undo_request={"amount": -40}),
    PlannedOperation("send_email", "mail", {"text": "We have refunded 40 euros."}),
)
CAN = Capabilities(idempotency_keys=True, status_query=True, fencing_tokens=True)
PAGE_BYTES = 4096


def store_with_all_kinds_of_rows(path: Path) -> bytes:
    with TaskStore(path, ManualClock(1000), synchronous="OFF") as store:
        for task_id in TASKS:
            store.enqueue(task_id, PLAN)
            store.say(task_id, "user", {"text": "hello"})
        for number in range(25):
            lease = store.claim_next("worker-1")
            assert lease is not None
            refund, mail = (f"{lease.task_id}/{one.name}" for one in PLAN)
            lease, _ = store.intend(lease, refund)
            if number % 5 == 0:
                continue
            if number % 5 == 1:
                store.lose_track(lease, refund)
                continue
            lease = store.checkpoint(lease, refund, "payments-1", Announcement("refunded", {"amount": 40}))
            if number % 5 == 2:
                store.fail(lease, Category.INVALID)
            elif number % 5 == 3:
                lease, _ = store.intend(lease, mail)
                store.succeed(store.checkpoint(lease, mail, "mail-1"))
    return path.read_bytes()


def use_store(path: Path) -> None:
    """Read everything, and do everything that a worker does."""
    with TaskStore(path, ManualClock(2000), synchronous="OFF") as store:
        store.tasks(), store.overdue(), store.undelivered()
        for task_id in TASKS:
            with suppress(ChangeRefused):
                store.get(task_id), store.history(task_id), store.transcript(task_id)
        store.relay(lambda message: None)
        store.enqueue("new", PLAN)
        for _ in range(40):
            lease = store.claim_next("worker-2")
            if lease is None:
                break
            with suppress(ChangeRefused):
                task = store.get(lease.task_id)
                upcoming = task.in_doubt or task.next_operation
                if upcoming is None:
                    store.succeed(lease)
                elif lease.state is State.UNCERTAIN:
                    store.settle(lease, upcoming.id, True, "status query", "ref")
                else:
                    lease, _ = store.intend(lease, upcoming.id)
                    store.checkpoint(lease, upcoming.id, "ref")


def ledger_with_all_kinds_of_rows(path: Path) -> bytes:
    with RemoteService(path, "payments", CAN, ManualClock(1000), synchronous="OFF") as service:
        for number, task_id in enumerate(TASKS * 3):
            request = Request(f"{task_id}/refund", f"{task_id}#{number}", '{"amount": 40}', task_id, number)
            service.accept_late(request) if number % 4 == 0 else service.handle(request)
    return path.read_bytes()


def use_ledger(path: Path) -> None:
    """Read everything, and do everything that a caller can ask for."""
    with RemoteService(path, "payments", CAN, ManualClock(2000), synchronous="OFF") as service:
        service.effects(), service.requests(), service.arrivals()
        for task_id in TASKS:
            with suppress(Refused):
                service.query(f"{task_id}/refund", 500)
            with suppress(Refused):
                service.handle(Request(f"{task_id}/refund", f"{task_id}#again", '{"amount": 40}', task_id, 1000))
        service.deliver_late()


def damaged(sound: bytes, draw: random.Random) -> bytes:
    """Flip one bit or some, often in the head of a page, where its structure is."""
    content = bytearray(sound)
    for _ in range(draw.choice([1, 1, 1, 3, 8])):
        page, place = draw.randrange(len(content) // PAGE_BYTES), draw.randrange(PAGE_BYTES)
        place = place if draw.random() < 0.7 else place % 120
        content[page * PAGE_BYTES + place] ^= 1 << draw.randrange(8)
    return bytes(content)


def flip(times: int, seed: int, ledger: bool) -> Counter[str]:
    """Damage a file `times` over, use it, and count by outcome; anything but an error of the lab is passed on."""
    prepare: Callable[[Path], bytes] = ledger_with_all_kinds_of_rows if ledger else store_with_all_kinds_of_rows
    use = use_ledger if ledger else use_store
    draw, seen = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="recovery-lab-", dir=folder()) as name:
        path = Path(name) / "file.sqlite"
        sound = prepare(path)
        for _ in range(times):
            path.write_bytes(damaged(sound, draw))
            try:
                use(path)
            except StoreError as error:
                seen[type(error).__name__] += 1
            except LabError as error:
                raise AssertionError(f"no name for damage: {error!r}") from error
            else:
                seen["not noticed"] += 1
            for end in ("-wal", "-shm", "-journal"):
                Path(f"{path}{end}").unlink(missing_ok=True)
    return seen
