"""The panel of the capstone, a worker's console: a policy for each remote, a crash point, and trouble on the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from labkit.agent import REMOTES, plan
from labkit.desk import TASK_ID
from labkit.panels.base import Action, Panel, choice, panel, run_html
from labkit.panels.crash import CRASH_POINTS
from labkit.panels.plays import NOBODY, Lives, dying, first_sending
from labkit.policies import POLICIES, Decision, Doubt, Policy
from labkit.runs import Run
from labkit.seams import Delivery, reliable

INVITATION = (
    "<p>You are on duty: say what a worker does about a doubt at each remote, where worker-1 dies, and what the wire "
    "does to the first sending of one operation. Then press the button.</p>"
)
WORKING = "<p>One worker after the other is at work …</p>"
QUIET = "everything arrives"
WORDS: Mapping[Delivery, str] = {
    Delivery.REFUSED: "is refused",
    Delivery.REQUEST_LOST: "is lost",
    Delivery.RESPONSE_LOST: "is applied, its answer lost",
    Delivery.LATE: "arrives late",
}
TROUBLES: Mapping[str, tuple[str, Delivery] | None] = {
    QUIET: None,
    **{
        f"{operation.name} {words}": (f"{TASK_ID}/{operation.name}", delivery)
        for operation in plan()
        for delivery, words in WORDS.items()
    },
}
"""What the wire may do, by what people call it: the operation, and the fate of its first sending."""
_REMOTE_OF = {f"{TASK_ID}/{operation.name}": operation.remote for operation in plan()}


def mixed(policies: Mapping[str, str]) -> Policy:
    """Return a policy that follows another one at each remote.

    Args:
        policies: names of policies, by the names of the remotes.
    """

    def decide(doubt: Doubt) -> Decision:
        return POLICIES[policies[doubt.remote.name]].decide(doubt)

    def key(operation_id: str, call_id: str) -> str | None:
        return POLICIES[policies[_REMOTE_OF[operation_id]]].key(operation_id, call_id)

    return Policy(", ".join(f"{remote}: {name}" for remote, name in policies.items()), decide, key)


def recover(policies: Mapping[str, str], crash_point: str = NOBODY, trouble: str = QUIET) -> Run:
    """Play the whole task: worker-1 dies at a crossing, and others go on until nothing is left to do.

    Args:
        policies: the name of the policy at each remote.
        crash_point: a crossing's name, or `NOBODY`.
        trouble: one of `TROUBLES`.
    """
    asked = TROUBLES[trouble]
    network, policy = reliable if asked is None else first_sending(*asked), mixed(policies)
    with Lives() as lives:
        lives.until_at_rest(policy, dying(crash_point), network)
        died = crash_point if crash_point == NOBODY else f"killed after: {crash_point}"
        return lives.run(f"{policy.name}; {died}; {trouble}")


def console_panel(play: Callable[[Mapping[str, str], str, str], Run] = recover) -> Panel:
    """Return a panel that plays the capstone's task under a policy for each remote.

    Args:
        play: plays one run, as `recover` does.
    """
    chosen = {remote: choice(remote, list(POLICIES)) for remote in REMOTES}
    points, troubles = choice("worker-1 dies after", (NOBODY, *CRASH_POINTS)), choice("wire", list(TROUBLES))
    for one in chosen.values():
        one.value = "blind_replay"
    points.value = f"send {TASK_ID}/send_email"

    def go() -> str:
        return run_html(play({remote: one.value for remote, one in chosen.items()}, points.value, troubles.value))

    action = Action("put workers to work", "Worker-1 begins; others go on where it is gone.", go)
    return panel("console", [action], INVITATION, WORKING, [*chosen.values(), points, troubles])
