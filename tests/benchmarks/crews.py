"""Contenders in processes of their own, told by pipe what to do; and their syncs counted where strace is at hand."""

import importlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

MARK = "mark-for-strace"


class Took(NamedTuple):
    """How long one command took: on the wall, and on the processors, all processes together."""

    seconds: float
    processor_seconds: float


class NotAvailable(Exception):
    """This contender cannot run here; the text says why."""


class Crew:
    """One to several processes that run one contender on the same files."""

    def __init__(
        self, contender: str, processes: int = 1, place: Path | None = None, strace: Path | None = None
    ) -> None:
        self._stack = ExitStack()
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=place)))
        self._processes: list[subprocess.Popen[str]] = []
        self.durability = ""
        prefix = ["strace", "-f", "-y", "-e", "trace=fsync,fdatasync", "-o", str(strace)] if strace else []
        try:
            for number in range(1, processes + 1):  # one after the other: the first makes the tables
                command = [*prefix, sys.executable, __file__, contender, str(self.folder), str(number)]
                with (self.folder / f"errors-{number}.txt").open("w") as errors:
                    self._processes.append(
                        subprocess.Popen(command, stdin=-1, stdout=-1, stderr=errors, text=True, encoding="utf-8")
                    )
                self.durability = self._answer(self._processes[-1])
        except BaseException:
            self.close()
            raise

    def tell(self, command: str, cycles: int) -> Took:
        """Have all processes do this at once, and wait until the last is done."""
        began = time.perf_counter()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{command} {cycles}\n")
            process.stdin.flush()
        spent = sum(float(self._answer(process)) for process in self._processes)
        return Took(time.perf_counter() - began, spent)

    def _answer(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        verdict, _, text = process.stdout.readline().rstrip("\n").partition(" ")
        if verdict != "ok":
            raise NotAvailable(text or "its process ended")
        return text

    def run(self, cycles: int) -> Took:
        """Run so many cycles in each process, prepared before the time is taken."""
        self.tell("ready", cycles)
        return self.tell("run", cycles)

    def fill_logs(self) -> None:
        """Let each write-ahead log reach its full size now: as long as it grows, a disk takes longer over a sync."""
        for log in self.folder.glob("*-wal"):
            with closing(sqlite3.connect(str(log).removesuffix("-wal"), isolation_level=None, timeout=30)) as db:
                db.execute("CREATE TABLE filler (page BLOB)")
                db.execute(
                    "WITH RECURSIVE pages (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM pages WHERE n < 1100) "
                    "INSERT INTO filler SELECT zeroblob(4000) FROM pages"
                )
                db.execute("DROP TABLE filler")

    def close(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        self._stack.close()


def syncs_a_cycle(contender: str, cycles: int) -> float | None:
    """Count fsync and fdatasync of one process, those of WAL checkpoints included; None where nothing can count."""
    if shutil.which("strace") is None:
        return None
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "calls.txt"
        try:
            crew = Crew(contender, strace=log)
        except NotAvailable:  # a process may not be traced here
            return None
        try:
            crew.tell("run_marked", cycles)
        finally:
            crew.close()
        calls = [line for line in log.read_text(errors="replace").splitlines() if re.search(r"f(data)?sync\(", line)]
    marks = [place for place, line in enumerate(calls) if MARK in line]
    return (marks[1] - marks[0] - 1) / cycles if len(marks) == 2 else None


def _serve(contender: str, folder: str, number: str) -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no answer
    try:
        module, _, name = contender.partition(":")
        worker = getattr(importlib.import_module(module), name)(Path(folder), int(number))
        print("ok", worker.durability(), file=answers, flush=True)
        for line in sys.stdin:
            command, cycles = line.split()
            began = time.process_time()
            if command == "run_marked":
                worker.ready(int(cycles))
                _mark(folder)
                worker.run(int(cycles))
                _mark(folder)
            else:
                getattr(worker, command)(int(cycles))
            print("ok", time.process_time() - began, file=answers, flush=True)
    except Exception as error:
        said = " ".join(str(error).split())[:80]
        print("failed", f"{type(error).__name__}: {said}", file=answers, flush=True)
        raise
    finally:
        answers.flush()
        os._exit(0)  # engines have threads that would be waited for


def _mark(folder: str) -> None:
    with open(Path(folder) / MARK, "w") as file:
        os.fsync(file.fileno())


if __name__ == "__main__":
    _serve(*sys.argv[1:])
