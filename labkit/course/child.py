"""The process in which an answer runs: `python -m labkit.course.child FOLDER`."""

from __future__ import annotations

import datetime
import faulthandler
import io
import json
import os
import pickle
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from labkit.course.remembering import as_in_a_new_process, gone
from labkit.course.submission import ANSWER_FILE, PARCEL_FILE, NotAttempted, Unfit, in_words, what_it_did

GRACE_SECONDS = 5.0
MAX_PRINTED = 2_000
"""Characters of what an answer prints that travel back."""

LIFE_SECONDS = 90_061.0
"""A day, an hour, a minute and a second: nothing that is read off a clock is the same in the next life."""


def main(folder: Path) -> None:
    """Do the job that lies in the folder, leave its result there, and end at once, threads or not."""
    paths, life, seconds, job, parcel = pickle.loads((folder / PARCEL_FILE).read_bytes())
    # Whoever started this process may be gone by the time at which it should be ended.
    faulthandler.dump_traceback_later(seconds + GRACE_SECONDS, exit=True, file=os.open(os.devnull, os.O_WRONLY))
    sys.path[:] = paths
    if life > 1:
        _put_clocks_on((life - 1) * LIFE_SECONDS)
    written, dumps = folder / f"{ANSWER_FILE}.new", json.dumps  # the answer may set it to anything
    sys.stdout = printed = _Printed(sys.stdout.buffer)
    result = _result(job, parcel) | {"printed": printed.kept}
    try:
        text = dumps(result, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        text = dumps({"trouble": f"It returned something that cannot travel back to the check: {in_words(error)}."})
    written.write_bytes(text.encode("utf-8", "replace"))  # half a letter can be neither printed nor kept
    written.replace(folder / ANSWER_FILE)
    os._exit(0)


class _Printed(io.TextIOWrapper):
    """Keeps the beginning of what is printed; a search prints the same thousands of times."""

    kept = ""

    def write(self, text: str) -> int:
        """Keep what there is room for."""
        self.kept += str.__str__(text)[: MAX_PRINTED - len(self.kept)]
        return len(text)


def _result(job: Any, parcel: bytes) -> dict[str, Any]:
    try:
        answer = pickle.loads(parcel)
    except BaseException as error:  # of a module that is gone, or of whatever an object does
        return {"trouble": f"It cannot be made again in the check's own process: {in_words(error)}."}
    try:
        job = pickle.loads(job)
        answer, notes = as_in_a_new_process(answer, getattr(job, "goes_well", partial(_goes_well, job)))
        return {"value": job(answer), "gone": gone(notes)}
    except (NotAttempted, NotImplementedError):
        return {"stub": True}
    except Unfit as unfit:
        return {"trouble": str(unfit)}
    except BaseException as error:  # whatever a student's code raises is an answer to the check
        return {"trouble": f"It {what_it_did(error)}."}


def _goes_well(job: Callable[[Any], Any], answer: Any) -> bool:
    job(answer)
    return True


def _put_clocks_on(seconds: float) -> None:
    """Let every clock of the standard library in this process go `seconds` ahead."""
    clocks = {name: getattr(time, name) for name in ("time", "monotonic", "perf_counter")}
    in_ns = {f"{name}_ns": getattr(time, f"{name}_ns") for name in clocks}
    for name, clock in clocks.items():
        setattr(time, name, lambda clock=clock: clock() + seconds)
    for name, clock in in_ns.items():
        setattr(time, name, lambda clock=clock: clock() + int(seconds * 1e9))
    local, universal, told = time.localtime, time.gmtime, time.strftime

    class Date(datetime.date):
        @classmethod
        def today(cls) -> Date:
            return cls.fromtimestamp(time.time())

    class DateTime(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> DateTime:
            return cls.fromtimestamp(time.time(), tz)

        @classmethod
        def utcnow(cls) -> DateTime:
            return cls.now(datetime.UTC).replace(tzinfo=None)

        today = now

    changes: dict[Any, dict[str, Any]] = {
        time: {
            "localtime": lambda at=None: local(time.time() if at is None else at),
            "gmtime": lambda at=None: universal(time.time() if at is None else at),
            "strftime": lambda form, at=None: told(form, time.localtime() if at is None else at),
            "ctime": lambda at=None: time.asctime(time.localtime(at)),
        },
        datetime: {"date": Date, "datetime": DateTime},
    }
    for module, names in changes.items():
        for name, value in names.items():
            setattr(module, name, value)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
