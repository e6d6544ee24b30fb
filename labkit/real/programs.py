"""Programs on their way to a worker process: a policy's name, a file's source, or a function of this session."""

from __future__ import annotations

import base64
import inspect
import pickle
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labkit.errors import InvalidInput
from labkit.policies import POLICIES
from labkit.programs import Program, label_of, policy_of
from labkit.values import Json

MODULE = "recovery"
"""What a file is called as a module."""


def order_of(program: str | Path | Program) -> Json:
    """Write a program down for another process.

    Args:
        program: a policy's name; a file, or the text of a cell, that defines the function `recover`; or the function.

    Raises:
        InvalidInput: there is no such policy or file, or the function cannot travel.
    """
    policy = policy_of(program)
    if policy is not None:
        return {"policy": policy}
    if isinstance(program, str) and "\n" in program:
        return {"source": program, "file": "<cell>", "folder": None}
    if isinstance(program, Path):
        try:
            source = program.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise InvalidInput("a readable file of Python", f"{program}: {why}") from None
        return {"source": source, "file": str(program), "folder": str(program.resolve().parent)}
    if not callable(program):
        raise InvalidInput(f"a function, the path of a file, or one of {', '.join(POLICIES)}", program)
    from labkit.packing import CannotTravel, packed

    wanted = "a function that can travel to another process"
    try:
        written = packed((sys.path, packed(program)))
    except CannotTravel as error:
        raise InvalidInput(wanted, str(error)) from None
    except Exception as error:  # whatever an object does when it is pickled
        raise InvalidInput(wanted, f"{label_of(program)}: {type(error).__name__}: {error}") from None
    return {"pickle": base64.b64encode(written).decode()}


def program_from(order: Mapping[str, Any]) -> Program:
    """Make a program of what `order_of` has written; in the worker process, for this runs somebody's code."""
    if "pickle" in order:
        sys.path[:], written = pickle.loads(base64.b64decode(order["pickle"]))
        return _fitting(pickle.loads(written))
    if order["folder"] is not None:
        sys.path.insert(0, order["folder"])
    made = sys.modules[MODULE] = types.ModuleType(MODULE)
    made.__file__ = order["file"]
    exec(compile(order["source"], order["file"], "exec"), made.__dict__)
    return _fitting(_recover_of(made))


def _recover_of(made: types.ModuleType) -> Program:
    """The function `recover`, or the only one that the file defines."""
    functions = {name: one for name, one in vars(made).items() if inspect.isfunction(one)}
    own = [one for name, one in functions.items() if one.__module__ == MODULE and not name.startswith("_")]
    found = functions.get("recover", own[0] if len(own) == 1 else None)
    if found is None:
        names = ", ".join(sorted(one.__name__ for one in own)) or "none"
        wanted = "a function called recover, or one function alone"
        raise InvalidInput(f"{wanted}, that takes (task_id, store, remotes)", f"{made.__file__}: {names}")
    return found


def _fitting(program: Program) -> Program:
    """The program, which can be called as programs are.

    Raises:
        InvalidInput: it cannot.
    """
    try:
        takes = inspect.signature(program)
    except (TypeError, ValueError):  # it does not tell
        return program
    try:
        takes.bind("task_id", "store", "remotes")
    except TypeError:
        raise InvalidInput("a function that takes (task_id, store, remotes)", f"{label_of(program)}{takes}") from None
    return program
