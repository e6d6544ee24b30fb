"""Interactive panels, one a file; imported by notebooks alone."""

from labkit.panels.claim import claim_panel
from labkit.panels.console import console_panel
from labkit.panels.crash import crash_panel
from labkit.panels.first_crash import first_crash_panel
from labkit.panels.keys import keys_panel
from labkit.panels.lease import lease_panel
from labkit.panels.outbox import outbox_panel
from labkit.panels.reconcile import reconcile_panel
from labkit.panels.retry import retry_panel
from labkit.panels.states import states_panel
from labkit.panels.undo import undo_panel

__all__ = [
    "claim_panel",
    "console_panel",
    "crash_panel",
    "first_crash_panel",
    "keys_panel",
    "lease_panel",
    "outbox_panel",
    "reconcile_panel",
    "retry_panel",
    "states_panel",
    "undo_panel",
]
