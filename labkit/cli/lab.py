"""`recovery-lab open`: find the notebooks and start JupyterLab on them, or say where they are."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

START: Final = "00_start_here.ipynb"

# Any of these is set by a Jupyter server for its terminals and kernels, or by a hub for a user's server.
INSIDE_JUPYTER: Final = (
    "JUPYTERHUB_SERVICE_PREFIX",
    "JPY_PARENT_PID",
    "JUPYTER_SERVER_ROOT",
    "JUPYTER_SERVER_URL",
)

# Defaults for JupyterLab's own settings: no question about news over the notebook, and no call home.
SETTINGS: Final = Path(__file__).resolve().parent / "jupyter"

Start = Callable[[Sequence[str], Mapping[str, str]], int]


class LabNotFoundError(Exception):
    """The notebooks, or the one asked for, were not found; the text says where they were looked for."""


def open_lab(
    notebook: str | None = None,
    *,
    port: int | None = None,
    browser: bool = True,
    places: Sequence[Path] | None = None,
    environ: Mapping[str, str] | None = None,
    start: Start | None = None,
) -> int:
    """Open one notebook in JupyterLab, or inside a running Jupyter server print where it is.

    Args:
        notebook: a file name in the notebooks folder, or the beginning of one; default: the first notebook.
        port: the port to try first.
        browser: whether JupyterLab may open a browser window.
        places: folders that may be the notebooks folder; default: see `notebook_places`.
        environ: the environment to read and to pass on; default: this process's.
        start: runs a command with an environment and returns its exit code; default: this process becomes it.

    Returns:
        JupyterLab's exit code; 0 where a server is running already; 2 where nothing can be started.
    """
    environ = os.environ if environ is None else environ
    try:
        folder = find_notebooks(notebook_places() if places is None else places)
        page = find_page(folder, notebook)
    except LabNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    if any(environ.get(name) for name in INSIDE_JUPYTER):
        print(_where_to_look(folder, page, environ))
        return 0
    if not _can_start(folder):
        return 2
    command = jupyter_command(folder, page, port=port, browser=browser and has_display(environ))
    return (start or _become)(command, child_environment(environ))


def _can_start(folder: Path) -> bool:
    """Return whether JupyterLab is here to be started; say what is missing, or cannot be kept."""
    if importlib.util.find_spec("jupyterlab") is None:
        print(f"JupyterLab is not installed for {sys.executable}.", file=sys.stderr)
        print("In the lab's folder: pip install -r requirements.lock -e .", file=sys.stderr)
        return False
    if not can_write(folder):
        print(f"Note: {folder} cannot be written to; use a copy of the lab to keep your answers.", file=sys.stderr)
    return True


def notebook_places() -> tuple[Path, ...]:
    """Return the folders that may hold the notebooks: beside the package (a checkout), or in this folder."""
    beside_package = Path(__file__).resolve().parents[2] / "notebooks"
    return tuple(dict.fromkeys((beside_package, Path.cwd() / "notebooks")))


def find_notebooks(places: Sequence[Path]) -> Path:
    """Return the first of `places` that holds the first notebook.

    Raises:
        LabNotFoundError: none does.
    """
    for place in places:
        if (place / START).is_file():
            return place
    looked = "\n".join(f"  {place / START}" for place in places)
    raise LabNotFoundError(
        f"The notebooks were not found. Looked for:\n{looked}\n"
        "They are not part of the installed package. Run recovery-lab in the lab's folder,"
        " or install that folder with: pip install -e ."
    )


def find_page(folder: Path, notebook: str | None) -> str:
    """Return the path of one notebook relative to `folder`, with forward slashes.

    Args:
        folder: the notebooks folder.
        notebook: a path relative to it, or the beginning of a file name that only one notebook has.

    Raises:
        LabNotFoundError: no notebook is called that, or several are.
    """
    wanted = START if notebook is None else notebook.replace("\\", "/")
    if (folder / wanted).is_file() and (folder / wanted).resolve().is_relative_to(folder.resolve()):
        return wanted
    pages = sorted(page.name for page in folder.glob("*.ipynb"))
    found = [page for page in pages if page.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    problem = "Several notebooks begin with" if found else "There is no notebook called"
    raise LabNotFoundError(f"{problem} {wanted!r}. There are:\n" + "\n".join(f"  {page}" for page in found or pages))


def jupyter_command(folder: Path, page: str, *, port: int | None, browser: bool, root: bool | None = None) -> list[str]:
    """Return the command line that starts JupyterLab with this very Python.

    Args:
        folder: the notebooks folder; the one it lies in becomes the server's root, so that links to the code open.
        page: the notebook to show, relative to it.
        port: the port to try first, or None for JupyterLab's own.
        browser: whether to open a browser window.
        root: whether the user is root, whom Jupyter turns away unless told; default: find out.
    """
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder.parent}"]
    command.append(f"--LabApp.default_url=/lab/tree/{quote(f'{folder.name}/{page}')}")
    if port is not None:
        command.append(f"--ServerApp.port={port}")
    if not browser:
        command.append("--no-browser")
    if _is_root() if root is None else root:
        command.append("--allow-root")
    return command


def child_environment(environ: Mapping[str, str], scripts: str | None = None) -> dict[str, str]:
    """Return `environ` for JupyterLab and its kernels: programs and kernels of this Python come first.

    An environment that was never activated is not on PATH, so a kernel would not find what pip put there.
    """
    scripts = sysconfig.get_path("scripts") if scripts is None else scripts
    first = {"PATH": scripts, "JUPYTER_CONFIG_PATH": str(SETTINGS)}
    joined = {name: os.pathsep.join(filter(None, [place, environ.get(name)])) for name, place in first.items()}
    return {"JUPYTER_PREFER_ENV_PATH": "1", **environ, **joined}


def has_display(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Return whether a browser window can open: where it cannot, Jupyter may start a text browser."""
    if not platform.startswith("linux"):
        return True
    return any(environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def can_write(folder: Path) -> bool:
    """Return whether a file can be made in `folder`, by making one: permission bits alone do not tell."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _where_to_look(folder: Path, page: str, environ: Mapping[str, str]) -> str:
    lines = ["Jupyter is running here already, so nothing is started.", f"The notebooks are in {folder}"]
    server_root = environ.get("JUPYTER_SERVER_ROOT")
    if server_root and folder.is_relative_to(server_root):
        inside = (folder / page).relative_to(server_root).as_posix()
        lines.append(f"In the file browser, open {inside}")
        prefix = environ.get("JUPYTERHUB_SERVICE_PREFIX")
        if prefix:
            lines.append(f"or go to {prefix.rstrip('/')}/lab/tree/{quote(inside)}")
    else:
        lines.append(f"Open {page} there; it begins with what this is about.")
    return "\n".join(lines)


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _become(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Let JupyterLab take this process's place, so that signals and the exit code are its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.execve(command[0], list(command), environ)
    process = subprocess.Popen(command, env=environ)  # Windows has no exec that the console waits for
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # the console sends Ctrl-C to JupyterLab too, which asks before it stops
