"""What all panels share: buttons that work once at a time, errors that are shown, and one live panel a name."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets

from labkit.runs import Run
from labkit.show.timeline import timeline


@dataclass(frozen=True)
class Action:
    """One button: what stands on it, what it is for, and what it does; it returns the HTML to show."""

    label: str
    tooltip: str
    run: Callable[[], str]


class Panel(widgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """A box of widgets; `said` is shown where widgets cannot be."""

    said = ""

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        return bundle | {"text/plain": self.said}

    def shut(self) -> None:
        """Close the panel and all that is in it, and nothing else (`close_all` of ipywidgets closes every widget)."""
        inside: list[Any] = [self]
        for widget in inside:
            inside.extend(getattr(widget, "children", ()))
            inside.extend(getattr(widget, part) for part in ("layout", "style") if hasattr(widget, part))
        for widget in inside:
            widget.close()


_live: dict[str, Panel] = {}


def panel(name: str, actions: Sequence[Action], invitation: str, working: str) -> Panel:
    """Build a panel of buttons over a place for what they show.

    Args:
        name: one panel of a name is alive at a time; building it again closes the one before.
        actions: the buttons.
        invitation: HTML to show before any button was pressed.
        working: HTML to show while an action works.

    While an action works all buttons are disabled; they come back even after an error, and the error is shown.
    """
    shown = widgets.HTML(invitation)
    shown.add_class("labkit-shown")
    buttons = [
        widgets.Button(description=action.label, tooltip=action.tooltip, layout=widgets.Layout(width="auto"))
        for action in actions
    ]

    def press(action: Action) -> None:
        for button in buttons:
            button.disabled = True
        shown.value = working
        try:
            shown.value = action.run()
        except KeyboardInterrupt:
            shown.value = "<p>Interrupted.</p>"
        except Exception as error:  # a handler's error belongs to the eyes of who pressed the button
            shown.value = f"<p><b>This went wrong:</b> {html.escape(f'{type(error).__name__}: {error}')}</p>"
        finally:
            for button in buttons:
                button.disabled = False

    for button, action in zip(buttons, actions, strict=True):
        button.on_click(lambda _, action=action: press(action))
    box = Panel([widgets.HBox(buttons, layout=widgets.Layout(flex_flow="row wrap")), shown])
    labels = ", ".join(repr(action.label) for action in actions)
    box.said = f"A panel with the buttons {labels}; run this cell to use it."
    if name in _live:
        _live.pop(name).shut()
    _live[name] = box
    return box


def run_html(run: Run) -> str:
    """Show a run as HTML: its verdict, what the ledgers show, and its timeline as a picture with a text twin."""
    effects = "; ".join(f"<code>{html.escape(name)}</code> happened {count} &times;" for name, count in run.effects)
    data, details = timeline(run)._repr_mimebundle_()
    shown = {"alt": "", "width": ""} | details.get("image/png", {})
    picture = (
        f'<img style="max-width: 100%" width="{shown["width"]}" alt="{html.escape(str(shown["alt"]), quote=True)}" '
        f'src="data:image/png;base64,{data["image/png"]}">'
    )
    return (
        f"<p><b>{html.escape(run.title)}: {run.verdict}</b>. The remote ledger shows: {effects or 'nothing'}.</p>"
        f"{picture if 'image/png' in data else ''}"
        f"<details><summary>The same as text</summary><pre>{html.escape(data['text/plain'])}</pre></details>"
    )
