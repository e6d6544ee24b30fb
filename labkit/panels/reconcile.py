"""The panel of the reconcile notebook: the smallest schedule that breaks a policy, or the counts that show it holds."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import replace

from labkit.explore.choices import CRASH, PAUSE
from labkit.explore.exploration import Exploration
from labkit.explore.matrix import MatrixSetting, matrix, pause_axis
from labkit.explore.search import explore
from labkit.panels.base import Action, Panel, choice, panel, picture_html
from labkit.remote import Capabilities
from labkit.show.exploration import show
from labkit.show.heatmap import heatmap, pause_heatmap

INVITATION = (
    "<p>One refund, and nobody to ask. The explorer tries every schedule with up to two surprises, the smallest "
    "first. Choose, then press a button.</p>"
)
WORKING = "<p>A few hundred schedules are tried: a second or two …</p>"
POLICY_NAMES = ("query_first", "query_then_ask", "ask_person", "by_capability", "blind_replay", "assume_done")
REMOTE_KINDS: Mapping[str, Capabilities] = {
    "status query": Capabilities(status_query=True),
    "status query and fencing": Capabilities(status_query=True, fencing_tokens=True),
    "key": Capabilities(idempotency_keys=True),
    "neither": Capabilities(),
}
FAULTS: Mapping[str, frozenset[str]] = {
    "crashes alone": frozenset({CRASH}),
    "crashes and late delivery": frozenset({CRASH, "late"}),
    "crashes and a paused sender": frozenset({CRASH, PAUSE}),
    "crashes, late delivery, a paused sender": frozenset({CRASH, PAUSE, "late"}),
}
SURPRISES = 2


def search(policy: str, payments: Capabilities, faults: frozenset[str]) -> Exploration:
    """Explore one refund under a policy: up to the smallest failure, or to the bound."""
    scenario = replace(MatrixSetting("query", policy).scenario(faults), remotes={"payments": payments})
    return explore(scenario, SURPRISES)


def reconcile_panel() -> Panel:
    """Return a panel that searches for the smallest failing schedule, or shows this lesson's part of the matrix."""
    policies, kinds, faults = (
        choice("policy", POLICY_NAMES),
        choice("the remote", REMOTE_KINDS),
        choice("faults", FAULTS),
    )

    def find() -> str:
        found = search(policies.value, kinds.value, faults.value)
        if found.failure is not None:  # the picture says it all
            return picture_html(show(found), show(found, dark=True))
        counts = html.escape(str(replace(show(found).table, title="")))
        return f"<p><b>{html.escape(found.summary)}.</b></p><pre>{counts}</pre>"

    def draw() -> str:
        late, policies_shown = "late" in faults.value, POLICY_NAMES[:4]
        cells = matrix(policies=policies_shown, late_delivery=(late,), key_forgotten=(False,))
        drawn = picture_html(heatmap(cells, late), heatmap(cells, late, dark=True))
        if PAUSE not in faults.value:
            return drawn
        paused = pause_axis(policies=policies_shown)
        return drawn + picture_html(pause_heatmap(paused), pause_heatmap(paused, dark=True))

    actions = [
        Action("find the smallest failure", "Explore all schedules with up to two surprises.", find),
        Action("draw the matrix", "One crash at every point, for four policies and four remotes.", draw),
    ]
    return panel("reconcile", actions, INVITATION, WORKING, [policies, kinds, faults])
