"""`recovery-lab doctor`: look at this machine, report what was found, and say what to do about it."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Final

from labkit.cli import checks
from labkit.cli.checks import Check
from labkit.cli.lab import LabNotFoundError, find_notebooks, notebook_places

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome", "firefox", "msedge")
DRAWS_DIAGRAMS: Final = "graphviz-pure"  # judged by what it draws, not by its version: `dot` will do as well


def run_doctor(*, as_json: bool = False, found: Sequence[Check] | None = None) -> int:
    """Print every check and return 0 unless one that the lab needs has failed, else 1.

    Args:
        as_json: print one JSON object instead of lines.
        found: what to report; default: look at this machine.
    """
    found = examine() if found is None else found
    well = all(check.ok for check in found if check.required)
    if as_json:
        print(json.dumps({"ok": well, "checks": [asdict(check) for check in found]}, indent=2))
    else:
        print(report(found))
        print("\nAll that the lab needs is here." if well else "\nThe lab needs what is marked 'mend'.")
    return 0 if well else 1


def report(found: Sequence[Check]) -> str:
    """Return the checks as aligned lines: ok, note (the lab works without it) or mend; advice below."""
    width = max((len(check.name) for check in found), default=0)
    lines = []
    for check in found:
        mark = "ok" if check.ok else "mend" if check.required else "note"
        lines.append(f"{mark:<5} {check.name:<{width}}  {check.found}")
        if not check.ok:
            lines.append(f"{'':<5} {'':<{width}}  -> {check.advice}")
    return "\n".join(lines)


def examine() -> list[Check]:
    """Look at this machine and return all checks, in the order in which a student would need them."""
    kernel = kernel_python()
    folder = lab_folder()
    return [
        checks.check_python(sys.version_info[:3]),
        *(checks.check_package(name, checks.version_of(name), least) for name, least in needed_packages()),
        checks.check_package("nbval", checks.version_of("nbval"), (0, 11), required=False),
        checks.check_kernel(kernel),
        checks.check_widgets(widgets_in(kernel), checks.version_of("jupyterlab-widgets")),
        checks.check_renderer(renderers()),
        checks.check_sqlite(sqlite3.sqlite_version_info),
        checks.check_sqlite_features(),
        checks.check_lab_folder(folder),
        checks.check_jupyter_folder(jupyter_folder()),
        checks.check_wal(folder or Path.cwd()),
        checks.check_browser(find_browser()),
    ]


def lab_folder() -> Path | None:
    """Return the folder of the notebooks, or None where there is none."""
    try:
        return find_notebooks(notebook_places())
    except LabNotFoundError:
        return None


def needed_packages(requirements: Iterable[str] | None = None) -> list[tuple[str, tuple[int, ...]]]:
    """Return the packages the lab cannot do without, each with its oldest version.

    Args:
        requirements: lines such as `ipywidgets>=8.1`; default: the installed lab's own. Lines with a marker,
            which an extra adds, are passed over.
    """
    lines = (metadata.requires("recovery-lab") or []) if requirements is None else requirements
    parsed = (re.fullmatch(r"([\w.-]+)>=([\d.]+)", line.replace(" ", "")) for line in lines)
    return [(line[1], checks.numbers(line[2])) for line in parsed if line and line[1] != DRAWS_DIAGRAMS]


def kernel_python() -> str | None:
    """Return the program that notebooks of kernel `python3` run in, as Jupyter resolves it, or None."""
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    except ImportError:
        return None
    try:
        program = str(KernelSpecManager().get_kernel_spec("python3").argv[0])
    except NoSuchKernel:
        return None
    return sys.executable if re.fullmatch(r"python(3(\.\d+)?)?", program) else shutil.which(program)


def widgets_in(program: str | None) -> str | None:
    """Return the version of ipywidgets that a kernel's own Python imports, or None."""
    if program is None:
        return None
    ask = [program, "-c", "import ipywidgets; print(ipywidgets.__version__)"]
    try:
        answer = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def renderers() -> list[str]:
    """Return the programs that may draw diagrams: graphviz-pure beside this Python, then `dot` on PATH."""
    beside = shutil.which("graphviz-pure", path=sysconfig.get_path("scripts"))
    return [program for program in (beside, shutil.which("dot")) if program]


def jupyter_folder() -> Path:
    """Return the folder in which Jupyter keeps track of running servers and kernels."""
    try:
        from jupyter_core.paths import jupyter_runtime_dir
    except ImportError:
        return Path.home()
    return Path(jupyter_runtime_dir())


def find_browser() -> str | None:
    """Return a browser on this machine, or None."""
    if sys.platform in {"darwin", "win32"}:
        return "the system's own"
    return next(filter(None, map(shutil.which, BROWSERS)), None)
