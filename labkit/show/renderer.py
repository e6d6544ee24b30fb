"""Finding a Graphviz program that runs, and running it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from graphviz.backend import dot_command
from graphviz.backend.execute import ExecutableNotFound, run_check

from labkit.errors import LabError

RUN_SECONDS = 30.0
"""A kill switch; a drawing takes well under a second."""

_FAILURES = (ExecutableNotFound, OSError, subprocess.SubprocessError)


class NoRenderer(LabError):
    """No Graphviz program could draw; the text twin says the same as the picture."""


@dataclass(frozen=True)
class Renderer:
    """A Graphviz program: `graphviz-pure` or `dot`; `text` with no command where neither runs."""

    name: str
    command: str | None
    version: str


TEXT_ONLY = Renderer("text", None, "")


class Hint:
    """A hint that is given once."""

    def __init__(self, text: str) -> None:
        self._text = text

    def take(self) -> str:
        """The text the first time, an empty string afterwards."""
        text, self._text = self._text, ""
        return text


def renderer(candidates: Iterable[str] | None = None) -> Renderer:
    """Find the program that draws: the first candidate that runs.

    Args:
        candidates: paths of programs to try. By default: what `graphviz.backend.dot_command.DOT_BINARY`
            was set to; `graphviz-pure` beside this Python, as a kernel's PATH may lack that folder;
            `graphviz-pure` and `dot` on PATH.

    Returns:
        The program with its version line, or `TEXT_ONLY`.
    """
    for command in _installed() if candidates is None else candidates:
        try:
            answer = _run([command, "-V"])
        except _FAILURES:
            continue
        version = (answer.stderr or answer.stdout).decode(errors="replace").strip()
        return Renderer(Path(command).stem, command, version)
    return TEXT_ONLY


def draw(source: str, options: Iterable[str], program: Renderer | None = None) -> bytes:
    """Draw a graph.

    Args:
        source: the graph in the DOT language.
        options: of the command line, such as `-Tpng`.
        program: what draws; by default the first that `renderer()` finds.

    Returns:
        What the program wrote.

    Raises:
        NoRenderer: where there is no program, or it fails.
    """
    chosen = program or renderer()
    if chosen.command is None:
        raise NoRenderer("no Graphviz program was found")
    try:
        return bytes(_run([chosen.command, "-Kdot", *options], source.encode("utf-8")).stdout)
    except _FAILURES as error:
        raise NoRenderer(f"{chosen.name} could not draw ({type(error).__name__})") from error


def _run(command: list[str], sent: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    # `run_check` opens no console window on Windows; quiet, as some fonts make Graphviz warn on stderr.
    done: subprocess.CompletedProcess[bytes]
    done = run_check(command, input=sent, capture_output=True, quiet=True, timeout=RUN_SECONDS)
    return done


def _installed() -> Iterator[str]:
    chosen = str(dot_command.DOT_BINARY)
    user = sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))
    folders = [str(Path(sys.executable).parent), sysconfig.get_path("scripts"), user]
    searches = [("graphviz-pure", os.pathsep.join(folders)), ("graphviz-pure", None), ("dot", None)]
    for name, path in searches if chosen == "dot" else [(chosen, None), *searches]:
        found = shutil.which(name, path=path)
        if found:
            yield found
