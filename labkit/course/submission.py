"""A student's answer, and the processes of its own in which it runs: whatever it does there, the notebook goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from labkit.errors import LabError
from labkit.packing import CannotTravel, packed
from labkit.scratch import Scratch

PARCEL_FILE, ANSWER_FILE = "parcel", "answer.json"
MAX_WORDS = 200
MAX_LOOKED_AT = 2_000
MAX_TOLD = 1_000
"""What is told beyond that is not looked at: a generator need not end."""


class NotAttempted(LabError):
    """The answer is still the untouched stub."""


class Unfit(LabError):
    """The answer cannot be tried to the end; the text says why, to the student."""


class Submission:
    """An answer on its way to be tried.

    `printed` is the beginning of what it has printed there; `gone` says what it was not given of the notebook's memory.

    Args:
        answer: the student's function.
        seconds: how long all of its processes together may take.

    Raises:
        Unfit: it is no function, or cannot travel to another process.
    """

    def __init__(self, answer: Callable[..., Any], seconds: float) -> None:
        if not callable(answer):
            raise Unfit("The answer must be the function itself, without brackets behind its name.")
        try:
            self._answer = packed(answer)
        except CannotTravel as error:
            raise Unfit(f"{error}.") from None
        except Exception as error:  # whatever a student's object does when it is pickled
            raise Unfit(f"It holds something that cannot travel to another process: {in_words(error)}.") from None
        self.seconds, self.printed, self.gone = seconds, "", ""
        self._deadline = time.monotonic() + seconds

    def run(self, job: Callable[[Callable[..., Any]], Any], life: int = 1) -> Any:
        """Call `job(answer)` in a new process and return its result, which JSON can hold.

        Args:
            job: a function of an importable module; it may raise `Unfit` with words for the student.
            life: which start of the worker this is, counted from 1. As after a real restart, memory is empty, strings
                hash differently, and the clocks have gone on.

        Raises:
            NotAttempted: the answer raised `NotImplementedError`.
            Unfit: it raised something else, ended its process, or took too long.
        """
        with Scratch() as folder:
            left = max(0.0, self._deadline - time.monotonic())
            parcel = packed((sys.path, life, left, packed(job), self._answer))
            (folder / PARCEL_FILE).write_bytes(parcel)
            self._run_child(folder, life, left)
            found = _read(folder / ANSWER_FILE)
        self.printed = self.printed or str(found.get("printed", ""))
        self.gone = self.gone or str(found.get("gone", ""))
        if found.get("stub"):
            raise NotAttempted
        if "trouble" in found:
            raise Unfit(found["trouble"])
        return found["value"]

    def _run_child(self, folder: Path, life: int, seconds: float) -> None:
        """Run the process to its end and leave none behind; its files go into `folder`."""
        places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
        process = subprocess.Popen(
            [sys.executable, "-m", "labkit.course.child", folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | places | {"PYTHONHASHSEED": str(life)},
            start_new_session=True,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Unfit(f"It was still running after {self.seconds:g} seconds: a loop that never ends?") from None
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process, and where the system knows groups of processes all that it has started."""
    if sys.platform == "win32":
        process.kill()
    else:
        with suppress(OSError):  # all have ended
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        return {"trouble": "Its process ended before the check did: os._exit, or a crash of Python itself?"}
    return found


def what_it_did(error: BaseException) -> str:
    """Say how a student's code ended, as the rest of a sentence."""
    return "called sys.exit" if isinstance(error, SystemExit) else f"raised {in_words(error)}"


def in_words(error: BaseException) -> str:
    """Say an error's kind and text in one line that is the same on every run."""
    kind = type(error).__name__
    try:
        text = str(error)
    except Exception:  # an error of the student's own making may not even be able to say what it is
        return kind
    short = shortened(text)
    return f"{kind}: {short}" if short else kind


def shortened(text: str, length: int = MAX_WORDS) -> str:
    """Make of any text one line of bounded length, without addresses, modules' files and signs not to be printed."""
    text = re.sub(r" at 0x[0-9A-Fa-f]+", "", " ".join(text[:MAX_LOOKED_AT].split()))
    text = re.sub(r"(<module '[^']*') from '[^']*'>", r"\1>", text)
    text = "".join(sign if sign.isprintable() else "?" for sign in text)
    return text if len(text) <= length else f"{text[:length]} …"


def told_by(ask: Callable[[], Any], asked: str = "It") -> Any:
    """Call a student's function and return what it tells.

    Args:
        ask: calls it.
        asked: how the sentence about it begins.

    Raises:
        Unfit: it raised something, or returned nothing.
    """
    try:
        told = ask()
    except NotImplementedError:
        raise
    except Unfit:
        raise
    except (Exception, SystemExit) as error:  # whatever a student's code raises is an answer to the check
        raise Unfit(f"{asked} {what_it_did(error)}.") from None
    if told is None:
        raise Unfit(f"{asked} returned None (is a return missing?).")
    return told


def told_many(ask: Callable[[], Any], asked: str = "It") -> list[Any]:
    """Call a student's function and return all that it tells, one after the other.

    Raises:
        Unfit: it raised something, or what it returned is no list and nothing like one.
    """

    def listed() -> list[Any] | None:
        told = ask()
        if isinstance(told, str | bytes) or not isinstance(told, Iterable | None):
            raise Unfit(f"{asked} returned an object of type {type(told).__name__}, where a list is wanted.")
        return told if told is None else list(islice(told, MAX_TOLD))

    told: list[Any] = told_by(listed, asked)
    return told
