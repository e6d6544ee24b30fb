"""Waits drawn: every attempt has a mark at its time, text that can be read, and a text twin."""

import base64
from functools import cache

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.text import Text

from labkit.show.style import DARK, LIGHT, theme
from labkit.show.waits import Waits
from labkit.show.waits_figure import WIDTH

LINES = {"in step: worker-1": (0.0, 1.0, 3.0, 7.0), "with jitter: worker-1": (0.0, 0.26, 2.0), "one attempt": (0.0,)}
TEXT = """\
Two workers

                       attempts begin at, in seconds  waits between them
---------------------  -----------------------------  ------------------
in step: worker-1      0, 1, 3, 7                     1, 2, 4
with jitter: worker-1  0, 0.3, 2                      0.3, 1.7
one attempt            0                              -"""
SHOWN = {
    "plain": Waits("Two workers", LINES),
    "late budget": Waits("Two workers", LINES, 9.0),
    "early budget": Waits("Two workers, one of them for a very long time", LINES, 2.5),
    "one line": Waits("One", {"a name that is much too long to stand on a single line": (0.0, 500.0)}, 600.0),
}
PAGES = [(name, dark) for name in SHOWN for dark in (False, True)]


@cache
def drawn(name: str, dark: bool):
    """A figure, and its texts with the room they take; drawing takes a while."""
    one = SHOWN[name]
    figure = Waits(one.title, one.lines, one.until, dark).figure()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    axis = figure.axes[0].xaxis
    low, high = axis.get_view_interval()
    unseen = {tick.label1 for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high}
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible() and text not in unseen]
    return figure, [(text, text.get_window_extent(canvas.get_renderer())) for text in texts]


@pytest.mark.parametrize(("name", "dark"), PAGES)
def test_no_text_is_cut_and_no_two_texts_overlap(name: str, dark: bool):
    figure, extents = drawn(name, dark)
    width, height = figure.get_size_inches() * figure.dpi
    for number, (text, box) in enumerate(extents):
        assert box.x0 >= 0 <= box.y0, text
        assert box.x1 <= width, text
        assert box.y1 <= height, text
        others = [other.get_text() for other, extent in extents[number + 1 :] if box.overlaps(extent)]
        assert others == [], f"{text.get_text()!r} overlaps {others}"


@pytest.mark.parametrize(("name", "dark"), PAGES)
def test_text_has_14_points_or_more_and_stands_on_the_page_of_its_theme(name: str, dark: bool):
    figure, extents = drawn(name, dark)
    assert min(text.get_fontsize() for text, _ in extents) >= 14
    assert to_hex(figure.get_facecolor()).upper() == (DARK if dark else LIGHT).paper
    assert figure.get_size_inches()[0] == WIDTH


@pytest.mark.parametrize("dark", [False, True])
def test_every_attempt_has_a_mark_at_its_time_on_the_line_of_its_worker(dark: bool):
    marks = [one for one in drawn("plain", dark)[0].axes[0].collections if isinstance(one, PathCollection)]
    assert [[tuple(place) for place in one.get_offsets()] for one in marks] == [
        [(time, lane) for time in times] for lane, times in enumerate(LINES.values())
    ]
    assert {to_hex(one.get_facecolor()[0]).upper() for one in marks} == {theme(dark).accent}


def test_the_end_of_the_budget_is_a_dashed_line_with_its_name_and_is_there_only_where_it_is_given():
    def ends(name: str) -> list[float]:
        return [line.get_xdata()[0] for line in drawn(name, False)[0].axes[0].lines if line.get_linestyle() == "--"]

    assert (ends("plain"), ends("late budget"), ends("early budget")) == ([], [9.0], [2.5])
    named = [text.get_text() for text, _ in drawn("late budget", False)[1]]
    assert "the budget ends" in named
    assert "the budget ends" not in [text.get_text() for text, _ in drawn("plain", False)[1]]


def test_the_text_twin_and_the_alt_text_say_when_every_attempt_begins():
    assert str(SHOWN["plain"]) == TEXT
    assert str(SHOWN["late budget"]) == f"{TEXT}\n\nthe budget of time ends at 9 s"
    assert SHOWN["late budget"].alt == (
        "Attempts on a line of time, in seconds: Two workers. in step: worker-1: 0, 1, 3, 7; with jitter: worker-1: "
        "0, 0.3, 2; one attempt: 0. The budget of time ends at 9."
    )


def test_a_notebook_is_given_text_and_a_picture_and_nothing_else():
    data, details = SHOWN["one line"]._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png"}
    assert data["text/plain"] == SHOWN["one line"].text
    png = base64.b64decode(data["image/png"])
    assert png.startswith(b"\x89PNG")
    assert details["image/png"] == {"alt": SHOWN["one line"].alt, "width": int.from_bytes(png[16:20]) // 2}
