"""`make refresh`: a notebook's outputs are rewritten, the same ones on every run."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import nbval.kernel
import pytest
import refresh
from jupyter_client.connect import LocalPortCache
from nbclient.exceptions import CellExecutionError

from labkit.course.journal import entries, note

CELLS = (
    "import os, sys\nprint('one')\nsys.stdout.flush()\nprint('two')",
    "import ipywidgets\nipywidgets.IntSlider()",
    "from labkit.show.diagram import state_diagram\nstate_diagram(lesson=0)",
    "open('beside.txt').read()",
    "print('three')\nprint('four', file=sys.stderr)\nprint('five')",
)

PORTS_OF_A_KERNEL = 5


def written(path: Path, *sources: str) -> Path:
    cells = [nbformat.v4.new_code_cell(source, id=f"cell-{number}") for number, source in enumerate(sources, start=1)]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# A title", id="title"), *cells])
    notebook.metadata["kernelspec"] = {"name": "another", "display_name": "Another", "language": "python"}
    nbformat.write(notebook, path)
    return path


@pytest.fixture(scope="module")
def refreshed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A notebook refreshed twice, and its bytes after each time."""
    path = written(tmp_path_factory.mktemp("notebooks") / "00 prüf.ipynb", *CELLS)
    (path.parent / "beside.txt").write_text("found", encoding="utf-8")
    versions = []
    for _ in range(2):
        assert refresh.main([str(path)]) == 0
        versions.append(path.read_bytes())
    return path, versions


def test_a_second_run_leaves_the_notebook_byte_for_byte_as_it_was(refreshed: tuple[Path, list[bytes]]):
    first, second = refreshed[1]
    assert first == second
    assert first.endswith(b"}\n")
    assert b"\r" not in first


def test_nothing_but_the_notebook_is_left_behind(refreshed: tuple[Path, list[bytes]]):
    assert sorted(file.name for file in refreshed[0].parent.iterdir()) == ["00 prüf.ipynb", "beside.txt"]


def test_outputs_and_execution_counts_are_fresh_and_what_differs_from_run_to_run_is_gone(
    refreshed: tuple[Path, list[bytes]],
):
    notebook = nbformat.read(refreshed[0], as_version=4)
    nbformat.validate(notebook)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.kernelspec == {"display_name": "Python 3", "language": "python", "name": "python3"}
    printed, slider, picture, beside, streams = notebook.cells[1:]
    assert [cell.execution_count for cell in notebook.cells[1:]] == [1, 2, 3, 4, 5]
    assert all(not cell.metadata for cell in notebook.cells)
    assert [output.text for output in printed.outputs] == ["one\ntwo\n"]
    assert [set(output.data) for output in slider.outputs] == [{"text/plain"}]
    assert set(picture.outputs[0].data) == {"text/plain", "image/png"}
    assert beside.outputs[0].data == {"text/plain": "'found'"}  # cells run in the notebook's own folder
    assert {output.name for output in streams.outputs} == {"stdout", "stderr"}


def test_what_the_journal_holds_is_not_seen_and_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "mine"))
    assert note("why", "0.1", answer="mine")
    asks = "from labkit.course.journal import entries, note\nprint(len(entries()), note('why', '0.1', answer='its'))"
    path = written(tmp_path / "one.ipynb", asks)
    refresh.main([str(path)])
    assert nbformat.read(path, as_version=4).cells[1].outputs[0].text == "0 True\n"
    assert [entry.data["answer"] for entry in entries()] == ["mine"]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], list[int]]]:
    """Choose ports for the first kernels that another program has; the list grows by five ports a start."""
    choose, chosen = LocalPortCache.find_available_port, list[int]()

    with socket.create_server(("127.0.0.1", 0)) as server:

        def first(failing: int) -> list[int]:
            def find(cache: LocalPortCache, ip: str) -> int:
                taken = len(chosen) < PORTS_OF_A_KERNEL * failing
                chosen.append(server.getsockname()[1] if taken else choose(cache, ip))
                return chosen[-1]

            monkeypatch.setattr(LocalPortCache, "find_available_port", find)
            return chosen

        yield first


def test_a_kernel_whose_port_is_taken_is_started_once_more(tmp_path: Path, taken: Callable[[int], list[int]]):
    chosen = taken(1)
    path = written(tmp_path / "one.ipynb", "print('there')")
    refresh.main([str(path)])
    assert nbformat.read(path, as_version=4).cells[1].outputs[0].text == "there\n"
    assert len(chosen) == 2 * PORTS_OF_A_KERNEL


def test_a_kernel_that_never_starts_is_an_error_and_the_notebook_stays(
    tmp_path: Path, taken: Callable[[int], list[int]]
):
    chosen = taken(9)
    path = written(tmp_path / "one.ipynb", "print('there')")
    before = path.read_bytes()
    with pytest.raises(RuntimeError, match="Kernel died before replying"):
        refresh.main([str(path)])
    assert path.read_bytes() == before
    assert len(chosen) == 2 * PORTS_OF_A_KERNEL


@pytest.mark.parametrize(("failing", "tried"), [(0, 1), (1, 2)])
def test_under_nbval_too_a_kernel_whose_port_is_taken_is_started_once_more(
    failing: int, tried: int, taken: Callable[[int], list[int]]
):
    chosen = taken(failing)
    manager, client = nbval.kernel.start_new_kernel(kernel_name=nbval.kernel.CURRENT_ENV_KERNEL_NAME)
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    assert len(chosen) == tried * PORTS_OF_A_KERNEL


def test_only_neighbouring_prints_to_the_same_stream_are_joined():
    def stream(name: str, text: str) -> nbformat.NotebookNode:
        return nbformat.v4.new_output("stream", name=name, text=text)

    shown = nbformat.v4.new_output("display_data", data={"text/plain": "x"})
    outputs = [stream("stdout", "a"), stream("stdout", "b"), stream("stderr", "c"), shown, stream("stdout", "d")]
    assert refresh.joined(outputs) == [stream("stdout", "ab"), stream("stderr", "c"), shown, stream("stdout", "d")]
    assert refresh.joined([]) == []


def test_a_cell_that_fails_raises_and_leaves_the_file_as_it_was(tmp_path: Path):
    path = written(tmp_path / "00.ipynb", "print('one')", "1 / 0")
    before = path.read_bytes()
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        refresh.main([str(path)])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_browser_has_stored_is_taken_out():
    notebook = nbformat.from_dict(
        json.loads(
            '{"metadata": {"widgets": {"x": 1}, "toc": {}}, "cells": [{"cell_type": "code", "metadata": '
            '{"execution": {"shell.execute_reply": "12:00"}, "tags": ["nbval-ignore-output"]}, "outputs": []}]}'
        )
    )
    cleaned = refresh.cleaned(notebook)
    assert "widgets" not in cleaned.metadata
    assert "toc" not in cleaned.metadata
    assert cleaned.cells[0].metadata == {"tags": ["nbval-ignore-output"]}
