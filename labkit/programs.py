"""A worker's code as an argument, and what people call it; the same in the simulated world and in the real one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from labkit.policies import POLICIES
from labkit.store import TaskStore
from labkit.wire import Remote

Program = Callable[[str, TaskStore, Mapping[str, Remote]], Any]
"""A worker's code: it is given a task's id, a store and the remotes by name."""


def policy_of(program: str | Path | Callable[..., Any]) -> str | None:
    """The name of the policy, where a program is the lab's own worker by one of them; else None."""
    name = program if isinstance(program, str) else getattr(program, "policy", None)
    return name if isinstance(name, str) and name in POLICIES else None


def label_of(program: str | Path | Callable[..., Any]) -> str:
    """What people call a program: its policy, its file or its function."""
    policy = policy_of(program)
    if policy is not None:
        return policy
    if isinstance(program, Path):
        return program.name
    if isinstance(program, str):
        return "a cell" if "\n" in program else program
    return str(getattr(program, "__name__", type(program).__name__))
