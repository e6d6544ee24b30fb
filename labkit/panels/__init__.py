"""Interactive panels, one a file; imported by notebooks alone."""

from labkit.panels.first_crash import first_crash_panel

__all__ = ["first_crash_panel"]
