"""The panel of the first notebook: one crash, recovered in two ways, with real processes."""

from __future__ import annotations

from labkit.panels.base import Action, Panel, panel, run_html
from labkit.real.drill import SEND_REFUND, drill


def first_crash_panel() -> Panel:
    """Return a panel with two buttons: crash and replay blindly, crash and resume with the same key."""

    def play(policy: str) -> str:
        return run_html(drill(policy, SEND_REFUND, steps=1))

    return panel(
        "first crash",
        [
            Action("crash and replay", "The next worker sends the refund again.", lambda: play("blind_replay")),
            Action(
                "crash and resume with the same key",
                "The next worker sends it again under the key of the first sending.",
                lambda: play("same_key"),
            ),
        ],
        "<p>Press a button. Each one starts a worker, kills it after the refund, and starts the next one.</p>",
    )
