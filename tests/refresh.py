"""Run every notebook from top to bottom and rewrite its stored outputs: `make refresh`.

What a run leaves behind that is not the same on the next one (time stamps, ids of widget views) is taken out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
CELL_SECONDS = 60


def refreshed(notebook: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    """Execute a notebook in `folder` and return it with fresh outputs, ready to be stored."""
    client = NotebookClient(
        notebook, timeout=CELL_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return cleaned(notebook)


def cleaned(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Take out what differs from run to run, and what belongs to one machine."""
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            if "data" in output:
                output.data.pop(WIDGET_VIEW, None)
    return notebook


def main(names: Sequence[str]) -> int:
    """Refresh the named notebooks, or all."""
    paths = [Path(name).resolve() for name in names] or sorted(NOTEBOOKS.rglob("*.ipynb"))
    for path in paths:
        if ".ipynb_checkpoints" in path.parts:
            continue
        notebook = nbformat.read(path, as_version=4)
        nbformat.write(refreshed(notebook, path.parent), path)
        print(f"refreshed {path.name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
