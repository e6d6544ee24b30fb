"""What all panels share: choices, buttons that work once at a time, errors that are shown, one live panel a name.

A panel in which one press builds on those before keeps nothing but the list of presses: each press plays them all
again from the start. So it can take one back, it holds no file open, and what it shows depends on nothing else.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import ipywidgets as widgets

from labkit.runs import Run, Verdict
from labkit.show.style import verdict_mark
from labkit.show.timeline import timeline

BACK, AGAIN = "step back", "start again"
TEXT = "font-size: 15px; line-height: 1.4"
NEXT_TO_IT = "2px 18px 2px 2px"
"""Around a choice: a label is nearer to its own choice than to the one before."""

WRONG_MARK = verdict_mark(Verdict.DUPLICATED)


@dataclass(frozen=True)
class Action:
    """One button: what stands on it, what it is for, and what it does; it returns the HTML to show."""

    label: str
    tooltip: str
    run: Callable[[], str]


class Displayed(Protocol):
    """What a notebook can show: text, and mostly a picture."""

    def _repr_mimebundle_(self) -> Any:
        """Data by type, or data and metadata."""


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


def choice(label: str, options: Mapping[str, Any] | Sequence[str]) -> widgets.Dropdown:
    """Build a choice for a panel; its `value` is what is chosen, at first the first option.

    Args:
        label: stands beside it, and is its name for who cannot see it.
        options: what to choose from; a mapping from what is shown to what it stands for, or names that are both.
    """
    shown = list(options.items()) if isinstance(options, Mapping) else list(options)
    layout = widgets.Layout(width="auto", min_width="16em", margin=NEXT_TO_IT)
    look = {"style": {"description_width": "initial"}, "layout": layout}
    return widgets.Dropdown(description=label, tooltip=label, options=shown, **look)


def said(words: str) -> str:
    """What a panel shows, which is HTML, in letters that can be read from the last row."""
    return f'<div style="{TEXT}">{words}</div>'


def panel(
    name: str,
    actions: Sequence[Action],
    invitation: str,
    working: str | None = None,
    choices: Sequence[widgets.Dropdown] = (),
) -> Panel:
    """Build a panel of choices and buttons over a place for what they show.

    Args:
        name: one panel of a name is alive at a time; building it again closes the one before.
        actions: the buttons.
        invitation: HTML to show before any button was pressed.
        working: HTML to show while an action works; None leaves what is shown where it is.
        choices: from `choice`; an action reads what is chosen when its button is pressed.

    While an action works all choices and buttons are disabled; they come back even after an error, and the error is
    shown.
    """
    shown = widgets.HTML(said(invitation))
    shown.add_class("labkit-shown")
    buttons = [
        widgets.Button(description=action.label, tooltip=action.tooltip, layout=widgets.Layout(width="auto"))
        for action in actions
    ]

    def press(action: Action) -> None:
        for control in (*choices, *buttons):
            control.disabled = True
        if working is not None:
            shown.value = said(working)
        try:
            shown.value = said(action.run())
        except KeyboardInterrupt:
            shown.value = said("<p>Interrupted.</p>")
        except Exception as error:  # a handler's error belongs to the eyes of who pressed the button
            told = html.escape(f"{type(error).__name__}: {error}")
            shown.value = said(f"<p><b>This went wrong:</b> {told}</p>")
        finally:
            for control in (*choices, *buttons):
                control.disabled = False

    for button, action in zip(buttons, actions, strict=True):
        button.on_click(lambda _, action=action: press(action))
    box = Panel([widgets.HBox([*choices, *buttons], layout=widgets.Layout(flex_flow="row wrap")), shown])
    labels = ", ".join(repr(action.label) for action in actions)
    asked = f"the choices {', '.join(repr(one.description) for one in choices)} and " if choices else ""
    box.said = f"A panel with {asked}the button{'s' if len(actions) > 1 else ''} {labels}; run this cell to use it."
    if name in _live:
        _live.pop(name).shut()
    _live[name] = box
    return box


def moves_panel(name: str, moves: Mapping[str, str], show: Callable[[Sequence[str]], str]) -> Panel:
    """Build a panel whose buttons make one move each, with one that takes the last back and one that starts again.

    Args:
        name: as for `panel`.
        moves: the label of each button, and what it is for.
        show: plays all moves from the start and returns HTML.
    """
    made: list[str] = []

    def play(new: Sequence[str]) -> str:
        shown = show(new)  # first: a move that raises is not kept
        made[:] = new
        return shown

    def add(move: str) -> str:
        return play((*made, move))

    actions = [Action(move, tooltip, partial(add, move)) for move, tooltip in moves.items()]
    actions.append(Action(BACK, "Takes back the last press.", lambda: play(made[:-1])))
    actions.append(Action(AGAIN, "Takes back every press.", lambda: play(())))
    return panel(name, actions, show(()))


def light_and_dark(light: str, dark: str) -> str:
    """HTML that shows the first on a light page of Jupyter, and the second on a dark one."""
    night = '[data-jp-theme-light="false"]'
    style = f".labkit-dark, {night} .labkit-light {{display: none}} {night} .labkit-dark {{display: block}}"
    return f'<style>{style}</style><div class="labkit-light">{light}</div><div class="labkit-dark">{dark}</div>'


def table_html(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table in the colours of the page; its cells are HTML already."""
    cell = "border: 1px solid; padding: 4px 8px; text-align: left; vertical-align: top"
    head = "".join(f'<th scope="col" style="{cell}">{header}</th>' for header in headers)
    body = "".join("<tr>" + "".join(f'<td style="{cell}">{one}</td>' for one in row) + "</tr>" for row in rows)
    look = f"{TEXT}; border-collapse: collapse; margin: 8px 0"
    return f'<table style="{look}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def wrong(words: str) -> str:
    """Words, not HTML, marked as what must not be: by a sign, the word, and a colour."""
    look = f"background: {WRONG_MARK.fill}; color: {WRONG_MARK.ink}; padding: 0 4px"
    return f'<b style="{look}">{WRONG_MARK.sign} WRONG: {html.escape(words)}</b>'


def run_html(run: Run) -> str:
    """Show a run as HTML: its verdict, what the ledgers show, and its timeline as a picture with a text twin."""
    effects = "; ".join(f"<code>{html.escape(name)}</code> happened {count} &times;" for name, count in run.effects)
    head = f"<p><b>{html.escape(run.title)}: {run.verdict}</b>. The remote ledger shows: {effects or 'nothing'}.</p>"
    return head + picture_html(timeline(run), timeline(run, dark=True))


def picture_html(light: Displayed, dark: Displayed) -> str:
    """Show a picture of `labkit.show` as HTML: the picture for the page's theme, and its text twin to unfold.

    Where it has no picture, its text stands open.

    Args:
        light: for a light page.
        dark: the same for a dark one.
    """
    data, _ = _bundle(light)
    text = f"<pre>{html.escape(data['text/plain'])}</pre>"
    if "image/png" not in data:
        return text
    pictures = light_and_dark(_image(light), _image(dark))
    return f"{pictures}<details><summary>The same as text</summary>{text}</details>"


def _image(shown: Displayed) -> str:
    data, details = _bundle(shown)
    look = {"alt": "", "width": ""} | details.get("image/png", {})
    return (
        f'<img style="max-width: 100%" width="{look["width"]}" alt="{html.escape(str(look["alt"]), quote=True)}" '
        f'src="data:image/png;base64,{data["image/png"]}">'
    )


def _bundle(shown: Displayed) -> tuple[dict[str, str], dict[str, Any]]:
    bundle = shown._repr_mimebundle_()
    return bundle if isinstance(bundle, tuple) else (bundle, {})
