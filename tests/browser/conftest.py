"""A real JupyterLab and a real browser. Without a browser these tests skip; in CI that is a failure."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
TOKEN = "lab"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
START_SECONDS = 60


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab: its address, and the folder of notebooks that it serves."""

    url: str
    folder: Path


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        reason = f"no browser found (looked for {', '.join(BROWSERS)})"
        if os.environ.get("CI"):
            pytest.fail(f"{reason}; in CI this is a failure")
        pytest.skip(reason)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab") / "notebooks"
    shutil.copytree(NOTEBOOKS, folder, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    shutil.copy(NOTEBOOKS.parent / "README.md", folder.parent)
    runtime = tmp_path_factory.mktemp("runtime")
    config = runtime / "config" / "jupyter_server_config.json"
    config.parent.mkdir()
    config.write_text(
        json.dumps({"LabApp": {"expose_app_in_browser": True}, "IdentityProvider": {"token": TOKEN}}), encoding="utf-8"
    )
    places = f"[pathlib.Path({str(folder)!r})]"
    start = f"import pathlib; from labkit.cli.lab import open_lab; open_lab(browser=False, places={places})"
    command = [sys.executable, "-c", start]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "JPY"))}
    environ |= {"JUPYTER_RUNTIME_DIR": str(runtime), "JUPYTER_CONFIG_DIR": str(config.parent)}
    log = (runtime / "log.txt").open("w")
    server = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield Lab(_address(server, runtime), folder)
    finally:
        server.terminate()
        server.wait(timeout=20)
        log.close()


def _address(server: subprocess.Popen[bytes], runtime: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        for info in runtime.glob("jpserver-*.json"):
            return str(json.loads(info.read_text(encoding="utf-8"))["url"])
        time.sleep(0.1)
    pytest.fail(f"JupyterLab did not start:\n{(runtime / 'log.txt').read_text(encoding='utf-8')}")


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(60_000)
    yield page
    page.close()


def open_and_run(page: Page, lab: Lab, notebook: str) -> None:
    """Open a notebook in JupyterLab, run all its cells and wait until they have run."""
    page.goto(f"{lab.url}lab/tree/{lab.folder.name}/{notebook}?reset&token={TOKEN}")
    page.wait_for_function("() => window.jupyterapp !== undefined")
    page.evaluate(
        """async () => {
            const app = window.jupyterapp;
            await app.restored;
            while (!app.shell.currentWidget?.sessionContext) await new Promise(done => setTimeout(done, 100));
            await app.shell.currentWidget.sessionContext.ready;
            await app.shell.currentWidget.context.ready;
            await app.commands.execute('notebook:run-all-cells');
        }"""
    )


def run_cell(page: Page, containing: str) -> None:
    """Go to the cell with this source text, run it again and wait until it has run."""
    page.evaluate(
        """async text => {
            const app = window.jupyterapp;
            const notebook = app.shell.currentWidget.content;
            notebook.activeCellIndex = notebook.widgets.findIndex(cell => cell.model.sharedModel.source.includes(text));
            await notebook.scrollToItem(notebook.activeCellIndex);
            await app.commands.execute('notebook:run-cell');
        }""",
        containing,
    )


def outputs(page: Page) -> list[dict[str, object]]:
    """The outputs of the open notebook's code cells, as JupyterLab holds them."""
    found: list[dict[str, object]] = page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.content.model.toJSON().cells.flatMap(cell => cell.outputs ?? [])"
    )
    return found
