"""The first notebook as a student meets it: in JupyterLab, in a browser, with its two buttons."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from conftest import Lab, open_and_run, outputs, run_cell

PANEL = "first_crash_panel()"
REPLAY, SAME_KEY = "crash and replay", "crash and resume with the same key"


def test_all_cells_run_and_both_buttons_show_what_the_ledger_shows(page: Page, lab: Lab) -> None:
    open_and_run(page, lab, "00_start_here.ipynb")
    kinds = [output["output_type"] for output in outputs(page)]
    assert kinds, "the notebook has outputs"
    assert "error" not in kinds
    assert not [one for one in outputs(page) if one.get("name") == "stderr"]

    run_cell(page, PANEL)
    shown = page.locator(".labkit-shown")
    expect(shown).to_contain_text("Press a button")
    page.get_by_role("button", name=REPLAY).click()
    expect(shown).to_contain_text("duplicated", timeout=60_000)
    expect(shown).to_contain_text("task-1/refund happened 2 ×")
    page.get_by_role("button", name=SAME_KEY).click()
    expect(shown).to_contain_text("exactly once", timeout=60_000)
    expect(shown).to_contain_text("task-1/refund happened 1 ×")
    expect(shown).not_to_contain_text("duplicated")

    picture = shown.locator("img:visible")
    expect(picture).to_have_attribute("alt", re.compile(r"^Timeline: same_key, .*Verdict: exactly once\.$"))
    twin = shown.locator("pre")
    expect(twin).to_be_hidden()
    shown.get_by_text("The same as text").click()
    expect(twin).to_contain_text("what the remote ledger shows")
    expect(twin).to_be_visible()
    assert picture.evaluate("image => image.complete && image.naturalWidth > 500")
    for name in (REPLAY, SAME_KEY):
        expect(page.get_by_role("button", name=name)).to_be_enabled()


def test_running_the_panel_cell_again_leaves_one_live_panel(page: Page, lab: Lab) -> None:
    open_and_run(page, lab, "00_start_here.ipynb")
    run_cell(page, PANEL)
    run_cell(page, PANEL)
    expect(page.get_by_role("button", name=REPLAY)).to_have_count(1)
    expect(page.locator(".labkit-shown")).to_have_count(1)
    expect(page.get_by_role("button", name=REPLAY)).to_be_enabled()
