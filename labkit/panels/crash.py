"""The panel of the crash notebook: choose a policy and a crash point, and see what is left in the three views."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from labkit.agent import plan
from labkit.desk import TASK_ID
from labkit.panels.base import Action, Panel, choice, panel, run_html
from labkit.panels.plays import crash_and_recover
from labkit.policies import POLICIES
from labkit.real.drill import SEND_REFUND, drill
from labkit.runs import Run

INVITATION = "<p>Choose, then press the button. Worker-1 dies at the crash point; worker-2 goes on by the policy.</p>"
WORKING = "<p>One worker dies and the next one starts: up to a few seconds …</p>"
ON_EACH = ("intend", "send", "checkpoint")
CRASH_POINTS = (
    "start worker-1",
    f"claim {TASK_ID}",
    *(f"{action} {TASK_ID}/{operation.name}" for operation in plan() for action in ON_EACH),
    f"succeed {TASK_ID}",
)
"""Every crossing of a quiet run of the support desk's task, in order."""


def simulated(policy: str, crash_point: str) -> Run:
    """Play a crash in this process, on a manual clock."""
    return crash_and_recover(POLICIES[policy], crash_point)


WORLDS: Mapping[str, Callable[[str, str], Run]] = {"simulated": simulated, "real processes": drill}


def crash_panel(worlds: Mapping[str, Callable[[str, str], Run]] = WORLDS) -> Panel:
    """Return a panel that plays one crash of the three-operation task.

    Args:
        worlds: what plays a run, given a policy and a crash point, by the name of the world.
    """
    policies = choice("policy", list(POLICIES))
    points = choice("worker-1 dies after", CRASH_POINTS)
    where = choice("world", worlds)
    policies.value, points.value = "blind_replay", SEND_REFUND

    def play() -> str:
        return run_html(where.value(policies.value, points.value))

    action = Action("crash and recover", "Let worker-1 die there, and worker-2 go on.", play)
    return panel("crash", [action], INVITATION, WORKING, [policies, points, where])
