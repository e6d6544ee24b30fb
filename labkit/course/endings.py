"""How workers ended, told where the law that broke does not tell it: an error of one's own is quickly overlooked."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from typing import Any

from labkit.course.hearing import NotAllowed
from labkit.course.submission import shortened
from labkit.errors import ChangeRefused, Refused, RemoteError
from labkit.explore.scenario import Played

Errors = tuple[tuple[str, BaseException], ...]
"""Workers that ended with an error, in their order, each with its error."""

TELLS, LEFT = "no_worker_breaks", "settled_in_the_end"
"""The law whose sentence names the error already, and the one that a refused change can be behind."""


def ending(played: Played, errors: Errors, answer: Callable[..., Any]) -> str:
    """Say with which error a worker ended, and in which line of the student's cell.

    Args:
        played: a run that broke a law.
        errors: how its workers ended.
        answer: the student's function.

    Returns:
        A sentence with a blank before it; empty where there is nothing to add. Refused changes and remotes' errors
        are part of many a sound run, and told only where a task was left lying: what a remote refuses for good, and
        else the last one. What came first is told: the others may have followed from it.
    """
    named = next((error for worker, error in errors if played.how.startswith(f"{worker} ")), None)
    if isinstance(named, NotAllowed) and isinstance(named.__cause__, Exception):
        return _told("It", named.__cause__, answer)
    if played.law == TELLS or isinstance(named, NotAllowed):
        where = "" if named is None else _line(named, answer)
        return f" It happened {where}." if where else ""
    stopped = [(worker, error.__cause__) for worker, error in errors if isinstance(error, NotAllowed)]
    raised = [one for one in errors if not isinstance(one[1], NotAllowed)]
    left = played.law == LEFT
    telling = [one for one in raised if _is_own(one[1]) or (left and _refused_for_good(one[1]))]
    behind = [(worker, error) for worker, error in stopped if error is not None]
    told = (*telling, *behind, *(raised[-1:] if left else ()))
    return next((_told(worker, error, answer) for worker, error in told), "")


def _is_own(error: BaseException) -> bool:
    return not isinstance(error, ChangeRefused | RemoteError)


def _refused_for_good(error: BaseException) -> bool:
    return isinstance(error, Refused) and error.category != "transient"


def _told(who: str, error: BaseException, answer: Callable[..., Any]) -> str:
    where = _line(error, answer)
    text = shortened(str(error)).removesuffix(".")
    return f" {who} ended with {type(error).__name__}{f', {where}' if where else ''}: {text}."


def _line(error: BaseException, answer: Callable[..., Any]) -> str:
    """The line that was reached in the file of the answer; a notebook's cell is a file of its own."""
    code = getattr(inspect.unwrap(answer), "__code__", None)
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if code is not None and frame.f_code.co_filename == code.co_filename]
    return f"in line {lines[-1]} of your cell" if lines else ""
