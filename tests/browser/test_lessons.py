"""The panels of the lessons as a student meets them: choices, a button, and what they show."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from conftest import Lab, open_and_run, outputs, run_cell

PLAYS = [
    ("04_crash.ipynb", "crash_panel()", {"policy": "same_key"}, "crash and recover", "exactly once"),
    ("05_replay.ipynb", "keys_panel()", {"the remote": "ignores keys"}, "crash and send again", "duplicated"),
    (
        "06_reconcile.ipynb",
        "reconcile_panel()",
        {"faults": "crashes and a paused sender"},
        "find the smallest failure",
        "schedule 6 (1 worker with up to 2 surprises) breaks a law",
    ),
    ("07_retry.ipynb", "retry_panel()", {"the error": "Refused, transient"}, "what now?", "retry in 1 s"),
    (
        "08_outbox.ipynb",
        "outbox_panel()",
        {"order": "commit first", "crash": "after the first step"},
        "end the task",
        "WRONG: the task has succeeded, and nobody will ever hear of it",
    ),
    (
        "09_compensation.ipynb",
        "undo_panel()",
        {"policy": "same_key", "Ada cancels after": "checkpoint task-1/refund"},
        "cancel, then undo",
        "stopped clean",
    ),
    (
        "10_lab.ipynb",
        "console_panel()",
        {"payments": "same_key", "mail": "ask_person"},
        "put workers to work",
        "needs a person",
    ),
]
DRAWN = "shown => shown.tagName === 'TABLE' || (shown.complete && shown.naturalWidth > 500)"


@pytest.mark.parametrize(("notebook", "panel", "chosen", "button", "says"), PLAYS, ids=[one[0] for one in PLAYS])
def test_all_cells_run_and_the_panel_plays_what_is_chosen(
    page: Page, lab: Lab, notebook: str, panel: str, chosen: dict[str, str], button: str, says: str
) -> None:
    open_and_run(page, lab, notebook)
    assert "error" not in [output["output_type"] for output in outputs(page)]
    assert not [one for one in outputs(page) if one.get("name") == "stderr"]

    run_cell(page, panel)
    for label, option in chosen.items():
        page.get_by_label(label, exact=True).select_option(label=option)
    page.get_by_role("button", name=button).click()
    shown = page.locator(".labkit-shown")
    expect(shown).to_contain_text(says, timeout=60_000)
    assert shown.locator("img:visible, table:visible").first.evaluate(DRAWN)
    expect(page.get_by_role("button", name=button)).to_be_enabled()
