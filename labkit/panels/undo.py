"""The panel of the compensation notebook: a cancel where you choose, the undo, and a crash within it."""

from __future__ import annotations

from collections.abc import Callable

from labkit.agent import plan
from labkit.desk import TASK_ID
from labkit.panels.base import Action, Panel, choice, panel, run_html
from labkit.panels.crash import CRASH_POINTS, ON_EACH
from labkit.panels.plays import NOBODY, Lives, dying
from labkit.policies import POLICIES
from labkit.runs import Run

INVITATION = (
    "<p>Worker-1 carries out the task. Ada cancels it where you choose, then asks for the undo. Worker-2 dies in it "
    "where you choose; worker-3 goes on by the policy.</p>"
)
WORKING = "<p>One worker is stopped and the next one begins to undo …</p>"
CANCEL_POINTS = CRASH_POINTS[:-1]
"""Every crossing at which the task can still be cancelled."""
UNDO_POINTS = (
    NOBODY,
    "start worker-2",
    f"claim {TASK_ID}",
    *(
        f"{action} {TASK_ID}/{operation.name}/undo"
        for operation in reversed(plan())
        if operation.undo_request is not None
        for action in ON_EACH
    ),
    f"compensated {TASK_ID}",
)
"""Every crossing of a quiet undo, in order."""
AFTER_THE_TICKET, CHARGED_AGAIN = f"checkpoint {TASK_ID}/update_ticket", f"send {TASK_ID}/refund/undo"


def cancel_and_undo(policy: str, cancel_point: str = AFTER_THE_TICKET, crash_point: str = CHARGED_AGAIN) -> Run:
    """Cancel the task at one crossing of worker-1, undo it, and let worker-2 die at a crossing of the undo.

    Args:
        policy: the name of the recovery policy of all workers.
        cancel_point: one of `CANCEL_POINTS`.
        crash_point: one of `UNDO_POINTS`.
    """
    title = f"{policy}, cancelled after: {cancel_point}"
    with Lives() as lives:
        lives.live(POLICIES[policy], lives.cancelling(cancel_point))
        if not lives.undo():
            return lives.run(f"{title}, with nothing to undo")
        died = lives.live(POLICIES[policy], dying(crash_point))
        if died:
            lives.live(POLICIES[policy])
        if died or crash_point == NOBODY:
            return lives.run(f"{title}, undo {f'killed after: {crash_point}' if died else 'not killed'}")
        return lives.run(f"{title}, undo not killed: it never came to {crash_point}")


def undo_panel(play: Callable[[str, str, str], Run] = cancel_and_undo) -> Panel:
    """Return a panel that cancels, undoes, and kills the undo.

    Args:
        play: plays one run, as `cancel_and_undo` does.
    """
    policies = choice("policy", list(POLICIES))
    cancels = choice("Ada cancels after", CANCEL_POINTS)
    crashes = choice("worker-2 dies after", UNDO_POINTS)
    policies.value, cancels.value, crashes.value = "blind_replay", AFTER_THE_TICKET, CHARGED_AGAIN

    def undo() -> str:
        return run_html(play(policies.value, cancels.value, crashes.value))

    action = Action("cancel, then undo", "Stop the task, then make up for what was done.", undo)
    return panel("undo", [action], INVITATION, WORKING, [policies, cancels, crashes])
