"""Run every notebook from top to bottom and rewrite its stored outputs: `make refresh`.

What a run leaves behind that is not the same on the next one (time stamps, ids of widget views) is taken out.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
CELL_SECONDS = 180
"""A kill switch, longer than any check of an exercise gives itself."""


def refreshed(notebook: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    """Execute a notebook in `folder`, with an empty journal, and return it with fresh outputs, ready to be stored."""
    with tempfile.TemporaryDirectory(prefix="recovery-lab-", ignore_cleanup_errors=True) as home:
        environ = os.environ | {"LABKIT_HOME": home}
        try:
            _execute(notebook, folder, environ)
        except DeadKernelError:  # in the middle of a cell
            raise
        except RuntimeError:  # before the first cell: another program took a port that was chosen for the kernel
            _execute(notebook, folder, environ)
    return cleaned(notebook)


def _execute(notebook: nbformat.NotebookNode, folder: Path, environ: dict[str, str]) -> None:
    client = NotebookClient(
        notebook, timeout=CELL_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    asyncio.run(client.async_execute(env=environ))  # client.execute() would leave its event loop open


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
        if "outputs" in cell:
            cell.outputs = joined(cell.outputs)
    return notebook


def joined(outputs: Sequence[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Join what a cell has printed to one stream: where it was cut depends on how fast the machine was."""
    kept: list[nbformat.NotebookNode] = []
    for output in outputs:
        if kept and output.output_type == kept[-1].output_type == "stream" and output.name == kept[-1].name:
            kept[-1].text += output.text
        else:
            kept.append(output)
    return kept


def main(names: Sequence[str]) -> int:
    """Refresh the named notebooks, or all.

    Raises:
        CellExecutionError: a cell failed; its notebook and those after it are left as they were.
    """
    paths = [Path(name).resolve() for name in names] or sorted(NOTEBOOKS.rglob("*.ipynb"))
    for path in paths:
        if ".ipynb_checkpoints" in path.parts:
            continue
        notebook = refreshed(nbformat.read(path, as_version=4), path.parent)
        text = nbformat.writes(notebook)  # in one piece, so that a full disk or an error leaves the file as it was
        written = path.with_suffix(".new")
        written.write_text(f"{text}\n", encoding="utf-8", newline="\n")
        written.replace(path)
        print(f"refreshed {path.name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
