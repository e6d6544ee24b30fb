"""Colours, signs and themes of all pictures."""

import io
import re
import subprocess
import sys

import matplotlib
import pytest
from matplotlib.colors import to_rgb
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font
from PIL import Image, ImageChops

from labkit.runs import Verdict
from labkit.show.style import (
    DARK,
    FONT,
    GREY,
    LIGHT,
    OKABE_ITO,
    SMALLEST_POINTS,
    contrast,
    figure_rc,
    figure_style,
    ink_on,
    mimebundle,
    slim,
    state_mark,
    theme,
    verdict_mark,
)
from labkit.states import ENDED_STATES, FINAL_STATES, State

WCAG_AA = 4.5
MARKS = [state_mark(state) for state in State] + [verdict_mark(verdict) for verdict in Verdict]


def test_contrast_is_what_wcag_says_it_is():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.005)
    assert contrast("#0072B2", "#0072B2") == 1


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: mark.fill + mark.sign)
def test_text_on_every_fill_is_readable(mark):
    assert contrast(mark.ink, mark.fill) >= WCAG_AA


@pytest.mark.parametrize("fill", OKABE_ITO.values())
def test_ink_is_found_for_every_colour_of_the_set(fill):
    assert contrast(ink_on(fill), fill) >= WCAG_AA


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=lambda look: look.name)
def test_text_of_both_themes_is_readable_on_page_and_card(look):
    for text in (look.ink, look.quiet):
        assert contrast(text, look.paper) >= WCAG_AA
        assert contrast(text, look.card) >= WCAG_AA
    assert contrast(look.accent_ink, look.accent) >= WCAG_AA


def test_themes_are_chosen_by_the_page():
    assert theme() is LIGHT
    assert theme(dark=True) is DARK


def test_every_colour_has_six_digits():
    colours = [mark.fill for mark in MARKS] + [mark.ink for mark in MARKS]
    for look in (LIGHT, DARK):
        colours += [look.paper, look.ink, look.quiet, look.card, look.rule, look.accent, look.accent_ink]
    assert [colour for colour in colours if not re.fullmatch(r"#[0-9A-F]{6}", colour)] == []


def test_fills_are_of_the_okabe_ito_set_or_grey():
    assert {mark.fill for mark in MARKS} <= {*OKABE_ITO.values(), GREY}


@pytest.mark.parametrize(("kind", "mark_of"), [(State, state_mark), (Verdict, verdict_mark)])
def test_no_two_states_or_verdicts_share_a_colour_or_a_sign(kind, mark_of):
    marks = [mark_of(one) for one in kind]
    assert len({mark.fill for mark in marks}) == len(marks)
    assert len({mark.sign for mark in marks}) == len(marks)


def test_final_states_are_double_and_ended_ones_dashed():
    for state in State:
        expected = "double" if state in FINAL_STATES else "dashed" if state in ENDED_STATES else "single"
        assert state_mark(state).outline == expected


def test_the_font_of_figures_has_every_sign():
    font = FT2Font(findfont(FontProperties(family=FONT), fallback_to_default=False))
    signs = [mark.sign for mark in MARKS] + ["⚡", "×", "✗"]
    assert [sign for sign in signs if font.get_char_index(ord(sign)) == 0] == []


def test_no_text_of_a_figure_is_smaller_than_14_points():
    sizes = {key: value for key, value in figure_rc().items() if key.endswith("size")}
    assert len(sizes) == 6
    assert min(sizes.values()) >= SMALLEST_POINTS >= 14


def test_the_figure_style_leaves_global_settings_as_they_were():
    before = dict(matplotlib.rcParams)
    with figure_style(dark=True) as look:
        assert matplotlib.rcParams["figure.facecolor"] == look.paper == DARK.paper
        assert dict(matplotlib.rcParams) != before
    assert dict(matplotlib.rcParams) == before


def test_a_slimmed_picture_is_smaller_and_looks_the_same():
    gradient = Image.linear_gradient("L").resize((600, 600)).convert("RGBA")
    colours = [to_rgb(mark.fill) for mark in MARKS]
    for number, colour in enumerate(colours):
        fill = tuple(round(255 * part) for part in colour)
        gradient.paste(fill, (number * 40, 0, number * 40 + 40, 500))
    written = io.BytesIO()
    gradient.save(written, "PNG")
    with Image.open(io.BytesIO(slim(written.getvalue()))) as slimmed:
        assert slimmed.size == gradient.size
        difference = ImageChops.difference(slimmed.convert("RGB"), gradient.convert("RGB"))
    assert max(high for _, high in difference.getextrema()) <= 8
    assert len(slim(written.getvalue())) < len(written.getvalue())


def test_a_display_has_text_and_picture_and_nothing_else():
    data, metadata = mimebundle("the text", b"png", "the alt text", 640)
    assert data == {"text/plain": "the text", "image/png": "cG5n"}
    assert metadata == {"image/png": {"alt": "the alt text", "width": 640}}
    assert mimebundle("the text") == ({"text/plain": "the text"}, {})


@pytest.mark.parametrize("module", ["style", "tables", "timeline"])
def test_what_prints_text_loads_no_drawing_library(module):
    heavy = "{'matplotlib', 'graphviz', 'numpy', 'PIL'}"
    code = f"import sys, labkit.show.{module}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
