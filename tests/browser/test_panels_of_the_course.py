"""The panels of notebooks 01 to 03 as a student meets them: pressed, in a browser, on a light and on a dark page."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from conftest import Lab, open_and_run, outputs, run_cell


def run_and_press(page: Page, lab: Lab, notebook: str, panel: str, labels: list[str]) -> Locator:
    """Run all cells, press buttons of the panel one after the other, and return what it shows."""
    open_and_run(page, lab, notebook)
    assert outputs(page), "the notebook has outputs"
    assert not [one for one in outputs(page) if one["output_type"] == "error" or one.get("name") == "stderr"]
    run_cell(page, panel)
    shown = page.locator(".labkit-shown")
    for number, label in enumerate(labels):
        page.get_by_role("button", name=label, exact=True).click()
        expect(shown.locator("li, tbody tr").nth(number)).to_be_attached()
    return shown


def test_the_diagram_of_the_states_follows_the_presses_and_the_theme_of_the_page(page: Page, lab: Lab) -> None:
    shown = run_and_press(page, lab, "01_states.ipynb", "states_panel()", ["succeed", "claim"])
    expect(shown).to_contain_text("claim: queued -> running, version 2")
    expect(shown).to_contain_text("succeed is refused: no arrow of that name leaves queued")
    for theme, seen, hidden in (
        ("JupyterLab Light", ".labkit-light", ".labkit-dark"),
        ("JupyterLab Dark", ".labkit-dark", ".labkit-light"),
    ):
        page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
        expect(shown.locator(f"{seen} svg")).to_be_visible()
        expect(shown.locator(f"{hidden} svg")).to_be_hidden()


@pytest.mark.parametrize(
    ("notebook", "panel", "labels", "told"),
    [
        (
            "02_claim.ipynb",
            "claim_panel()",
            [f"worker-{number}: next statement" for number in (1, 2, 1, 2)],
            "WRONG: worker-1 and worker-2 both hold task-1",
        ),
        (
            "03_lease.ipynb",
            "lease_panel()",
            [*["10 seconds pass"] * 3, "worker-2 takes over", "worker-1 finishes"],
            "WRONG: 1 row changed under token 1",
        ),
    ],
)
def test_a_panel_shows_what_was_pressed(
    page: Page, lab: Lab, notebook: str, panel: str, labels: list[str], told: str
) -> None:
    expect(run_and_press(page, lab, notebook, panel, labels)).to_contain_text(told)
