"""The panel of the first notebook: one crash, recovered in two ways, with real processes."""

from __future__ import annotations

from collections.abc import Callable

from labkit.panels.base import Action, Panel, panel, run_html
from labkit.real.drill import SEND_REFUND, drill
from labkit.runs import Run

INVITATION = "<p>Press a button. Each one starts a worker, kills it after the refund, and starts the next one.</p>"
WORKING = "<p>Two processes are started and one is killed: a few seconds …</p>"


def first_crash_panel(play: Callable[..., Run] = drill) -> Panel:
    """Return a panel with two buttons: crash and replay blindly, crash and resume with the same key.

    Args:
        play: plays one run, as `drill` does.
    """

    def show(policy: str) -> str:
        return run_html(play(policy, SEND_REFUND, steps=1))

    actions = [
        Action("crash and replay", "The next worker sends the refund again.", lambda: show("blind_replay")),
        Action(
            "crash and resume with the same key",
            "The next worker sends it again under the key of the first sending.",
            lambda: show("same_key"),
        ),
    ]
    return panel("first crash", actions, INVITATION, WORKING)
