"""What `recovery-lab doctor` looks at: one small function a check, trying the thing instead of guessing."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from labkit.cli.lab import can_write

OLDEST_PYTHON: Final = (3, 11)
OLDEST_SQLITE: Final = (3, 37)  # STRICT tables
REINSTALL: Final = "in the lab's folder: pip install -r requirements.lock -e ."

# The labextension that draws widgets follows the kernel's package: major version of ipywidgets to its own.
WIDGET_MAJORS: Final = {7: 1, 8: 3}

SQLITE_FEATURES: Final = {
    "STRICT": "CREATE TABLE t (x INTEGER) STRICT",
    "RETURNING": "INSERT INTO t VALUES (1) RETURNING x",
    "partial index": "CREATE INDEX i ON t (x) WHERE x > 0",
    "JSON": "SELECT json_extract('{\"a\": 1}', '$.a')",
}


@dataclass(frozen=True)
class Check:
    """One thing looked at.

    Args:
        name: what was looked at.
        ok: whether it is well.
        found: what is there.
        advice: what to do where it is not well.
        required: whether the lab cannot do without it.
    """

    name: str
    ok: bool
    found: str
    advice: str
    required: bool = True


def check_python(version: tuple[int, ...]) -> Check:
    """Check that this Python is new enough."""
    needed = dotted(OLDEST_PYTHON)
    return Check("Python", version[:2] >= OLDEST_PYTHON, dotted(version), f"use Python {needed} or newer")


def version_of(name: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_package(name: str, found: str | None, least: tuple[int, ...], *, required: bool = True) -> Check:
    """Check that a package is installed in this Python.

    Args:
        name: what pip calls it.
        found: its installed version, or None.
        least: the oldest version that will do.
        required: whether the lab cannot do without it.
    """
    ok = found is not None and numbers(found) >= least
    use = REINSTALL if required else f"only to check notebooks: pip install {name}"
    return Check(name, ok, found or "not installed", f"{name} {dotted(least)} or newer; {use}", required)


def check_kernel(program: str | None) -> Check:
    """Check that notebooks have a kernel: `program` is its Python, or None."""
    return Check("kernel python3", program is not None, program or "none that can be started", REINSTALL)


def check_widgets(in_kernel: str | None, in_server: str | None) -> Check:
    """Check that panels can work: the kernel has ipywidgets, and the server the extension that fits it.

    Args:
        in_kernel: the version of ipywidgets that the kernel imports, or None.
        in_server: the version of jupyterlab-widgets beside JupyterLab, or None.
    """
    fits = False
    if in_kernel is not None and in_server is not None:
        fits = WIDGET_MAJORS.get(numbers(in_kernel)[0]) == numbers(in_server)[0]
    found = f"ipywidgets {in_kernel or 'missing'} in the kernel, jupyterlab-widgets {in_server or 'missing'}"
    return Check("widgets", fits, found, f"kernel and JupyterLab belong in one environment; {REINSTALL}")


def render_png(program: str) -> bytes:
    """Return a graph of one edge, drawn as PNG by `program`.

    Raises:
        OSError: it cannot be started.
        subprocess.SubprocessError: it failed, or took over a minute.
    """
    edge = b"digraph { queued -> running }"
    return subprocess.run([program, "-Tpng"], input=edge, capture_output=True, timeout=60, check=True).stdout


def check_renderer(programs: Sequence[str], render: Callable[[str], bytes] = render_png) -> Check:
    """Check that one of `programs` really draws a diagram."""
    for program in programs:
        try:
            picture = render(program)
        except (OSError, subprocess.SubprocessError):
            continue
        if picture.startswith(b"\x89PNG"):
            return Check("diagrams", True, program, "")
    found = f"does not draw: {', '.join(programs)}" if programs else "no renderer"
    return Check("diagrams", False, found, f"until then diagrams appear as text; {REINSTALL}")


def check_sqlite(version: tuple[int, ...]) -> Check:
    """Check that the SQLite in this Python is new enough for STRICT tables."""
    advice = f"use a Python with SQLite {dotted(OLDEST_SQLITE)} or newer"
    return Check("SQLite", version >= OLDEST_SQLITE, dotted(version), advice)


def check_sqlite_features(features: Mapping[str, str] = SQLITE_FEATURES) -> Check:
    """Check each feature of SQLite that the lab uses by using it: a build can leave them out."""
    missing = []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for name, statement in features.items():
            try:
                db.execute(statement).fetchall()
            except sqlite3.Error:
                missing.append(name)
    found = f"missing: {', '.join(missing)}" if missing else ", ".join(features)
    return Check("SQLite features", not missing, found, "use a Python built with a complete SQLite")


def check_lab_folder(folder: Path | None) -> Check:
    """Check that the notebooks are there and their folder can be written to."""
    if folder is None:
        return Check("lab folder", False, "no notebooks found", "run this in the lab's folder")
    advice = "what you change cannot be saved; work in a copy of the lab"
    return Check("lab folder", can_write(folder), str(folder), advice)


def check_jupyter_folder(folder: Path) -> Check:
    """Check that Jupyter can write where it keeps its running servers, or make that folder."""
    there = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    advice = "set JUPYTER_RUNTIME_DIR to a folder that you may write to"
    return Check("Jupyter folder", can_write(there), str(folder), advice)


def journal_mode(folder: Path) -> str:
    """Return the journal mode that a new database in `folder` gets when it asks for a write-ahead log.

    Raises:
        OSError: the folder cannot be written to.
        sqlite3.Error: SQLite cannot work there at all.
    """
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix=".doctor-") as scratch,
        closing(sqlite3.connect(Path(scratch) / "lab.sqlite")) as db,
    ):
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE t (x)")
        return str(db.execute("PRAGMA journal_mode").fetchone()[0])


def check_wal(folder: Path, mode_of: Callable[[Path], str] = journal_mode) -> Check:
    """Check whether a database in the lab's folder gets a write-ahead log; network folders refuse it."""
    try:
        mode = mode_of(folder)
    except (OSError, sqlite3.Error) as error:
        mode = f"no database can be made: {type(error).__name__}"
    advice = "the lab then uses a rollback journal, which is slower; a folder on a local disk has WAL"
    return Check("journal mode", mode == "wal", mode, advice, required=False)


def check_browser(program: str | None) -> Check:
    """Check whether a browser is here; without one the lab is used from another machine's."""
    advice = "recovery-lab open --no-browser prints an address for a browser elsewhere"
    return Check("browser", program is not None, program or "none found", advice, required=False)


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: '8.1.5rc1' gives (8, 1, 5)."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else (0,)


def dotted(version: Iterable[int]) -> str:
    """Return numbers as a version: (8, 1) gives '8.1'."""
    return ".".join(map(str, version))
