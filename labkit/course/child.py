"""The process in which an answer is tried: `python -m labkit.course.child`, the answer on standard input."""

from __future__ import annotations

import json
import pickle
import sys
from dataclasses import asdict
from typing import Any

from labkit.course.checks import MARKER, in_words
from labkit.course.exercises import exercise


def main() -> None:
    """Try the answer and write what came of it, as JSON behind a marker, to standard output."""
    number, answer = pickle.load(sys.stdin.buffer)
    found: dict[str, Any] = {"attempted": True, "trial": None, "trouble": ""}
    try:
        found["trial"] = asdict(exercise(number).trial(answer))
    except NotImplementedError:
        found["attempted"] = False
    except Exception as error:  # whatever a student's code raises is an answer to the check
        found["trouble"] = f"It raised {in_words(error)}."
    sys.stdout.flush()
    sys.stdout.buffer.write(MARKER + json.dumps(found).encode())
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
