"""The panel of the replay notebook: a rule for keys, a remote, and one crash after the refund was sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from labkit.desk import TASK_ID
from labkit.explore.contrasts import REFUND_AND_VOUCHER
from labkit.explore.wrong_turns import KEY_PER_CALL, KEY_PER_TASK
from labkit.panels.base import Action, Panel, choice, panel, run_html
from labkit.panels.plays import crash_and_recover
from labkit.policies import SAME_KEY, Policy
from labkit.remote import Capabilities
from labkit.runs import Run

INVITATION = (
    "<p>The task: refund 40 euros, then a voucher of 5, both at the same remote. Worker-1 dies right after the refund "
    "was sent; worker-2 sends again. Choose, then press the button.</p>"
)
WORKING = "<p>One worker dies and the next one sends again …</p>"
CRASH_POINT = f"send {TASK_ID}/refund"
RULES: Mapping[str, Policy] = {
    "one per operation": SAME_KEY,
    "one per attempt": KEY_PER_CALL,
    "one per task": KEY_PER_TASK,
}
KINDS: Mapping[str, Capabilities] = {
    "honours keys": Capabilities(idempotency_keys=True),
    "ignores keys": Capabilities(idempotency_keys=True, keys_ignored=True),
    "forgets keys after 20 s": Capabilities(idempotency_keys=True, key_ttl_seconds=20.0),
}


def resend(rule: Policy, payments: Capabilities) -> Run:
    """Play the crash under a rule for keys at one kind of remote."""
    return crash_and_recover(rule, CRASH_POINT, REFUND_AND_VOUCHER, {"payments": payments})


def keys_panel(play: Callable[[Policy, Capabilities], Run] = resend) -> Panel:
    """Return a panel that sends again under a chosen rule for keys, at a chosen kind of remote.

    Args:
        play: plays one run, as `resend` does.
    """
    rules, kinds = choice("key", RULES), choice("the remote", KINDS)

    def send_again() -> str:
        run = play(rules.value, kinds.value)
        return run_html(replace(run, title=f"keys: {rules.label}; the remote {kinds.label}; after: {CRASH_POINT}"))

    action = Action("crash and send again", "Send the refund again.", send_again)
    return panel("keys", [action], INVITATION, WORKING, [rules, kinds])
