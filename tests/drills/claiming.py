"""Many processes at once after the same tasks, or at a remote with the same keys: each once, and nobody turned away."""

import argparse
import json
import multiprocessing
import tempfile
import time
from collections import Counter
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from labkit.errors import LabError
from labkit.exchange import Request
from labkit.remote import Capabilities, RemoteService
from labkit.store import TaskStore

KEYS = Capabilities(idempotency_keys=True)
Answers = Any  # a SimpleQueue of what was got, the longest wait, and the errors


def claim(path: Path, worker: str, tasks: int, start: Barrier, answers: Answers) -> None:
    """Claim until nothing is left; tell what was got, the longest wait, and every error."""
    got, longest, errors = [], 0.0, []
    with TaskStore(path) as store:
        start.wait()
        for _ in range(tasks + 1):
            asked = time.monotonic()
            try:
                lease = store.claim_next(worker, 3600)
            except LabError as error:
                errors.append(type(error).__name__)
                continue
            finally:
                longest = max(longest, time.monotonic() - asked)
            if lease is None:
                break
            got.append(lease.task_id)
    answers.put((got, longest, errors))


def send(path: Path, worker: str, tasks: int, start: Barrier, answers: Answers) -> None:
    """Send a request for each operation under its key; tell the references in order."""
    got, longest, errors = [], 0.0, []
    with RemoteService(path, "payments", KEYS) as service:
        start.wait()
        for number in range(tasks):
            asked, operation = time.monotonic(), f"task-{number}/refund"
            try:
                got.append(service.handle(Request(operation, f"{operation}#{worker}", "{}", operation)).reference)
            except LabError as error:
                errors.append(type(error).__name__)
            longest = max(longest, time.monotonic() - asked)
    answers.put((got, longest, errors))


def crowd(path: Path, ledger: bool, processes: int, tasks: int) -> list[tuple[list[str], float, list[str]]]:
    context = multiprocessing.get_context("fork")
    start, answers = context.Barrier(processes), context.SimpleQueue()
    workers = [
        context.Process(target=send if ledger else claim, args=(path, f"worker-{number}", tasks, start, answers))
        for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    told = [answers.get() for _ in workers]
    for worker in workers:
        worker.join()
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--ledger", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recovery-lab-") as name:
        path = Path(name) / "file.sqlite"
        ids = [f"task-{number:05}" for number in range(options.tasks)]
        if not options.ledger:
            with TaskStore(path, synchronous="OFF") as store:
                for task_id in ids:
                    store.enqueue(task_id, ())
        began = time.monotonic()
        told = crowd(path, options.ledger, options.processes, options.tasks)
        took = time.monotonic() - began
        counts = Counter(one for got, _, _ in told for one in got)
        result: dict[str, Any] = {
            "processes": options.processes,
            "errors": sorted(error for _, _, errors in told for error in errors),
            "longest wait in seconds": round(max(longest for _, longest, _ in told), 2),
            "seconds": round(took, 1),
        }
        if options.ledger:
            with RemoteService(path, "payments", KEYS) as service:
                result |= {
                    "effects": len(service.effects()),
                    "most effects of one key": max(service.effects().values()),
                }
            result["told the same"] = len({tuple(got) for got, _, _ in told}) == 1
        else:
            smallest = min(len(got) for got, _, _ in told)
            result |= {
                "claimed": sum(counts.values()),
                "claimed once": sum(count == 1 for count in counts.values()),
                "lost": len(set(ids) - set(counts)),
                "share of the slowest": round(smallest * options.processes / options.tasks, 2),
            }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
