"""What people call a program, in both worlds."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from labkit.explore.programs import LabWorker
from labkit.programs import label_of, policy_of


def mine() -> None:
    """A program of one's own."""


@pytest.mark.parametrize(
    ("program", "label", "policy"),
    [
        ("same_key", "same_key", "same_key"),
        (LabWorker("same_key"), "same_key", "same_key"),
        (Path("folder") / "mine.py", "mine.py", None),
        ("def recover(*_):\n    pass\n", "a cell", None),
        ("hope", "hope", None),
        (mine, "mine", None),
        (partial(mine), "partial", None),
    ],
)
def test_a_program_is_called_by_its_policy_its_file_or_its_function(program: Any, label: str, policy: str | None):
    assert (label_of(program), policy_of(program)) == (label, policy)
