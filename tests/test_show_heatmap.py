"""The heatmap: a colour and a sign for every verdict, text that can be read from the last row, and a text twin."""

import base64
import subprocess
import sys
from dataclasses import replace
from functools import cache

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from labkit.explore.exploration import Exploration
from labkit.explore.matrix import CAPABILITIES, PAUSES, Cell, MatrixSetting, PauseCell, TwoCrashes
from labkit.policies import POLICIES
from labkit.runs import Verdict
from labkit.show.heatmap import CODES, NEVER, heatmap, initials, pause_heatmap, two_crash_heatmap
from labkit.show.heatmap_figure import WIDTH
from labkit.show.style import DARK, LIGHT, contrast, verdict_mark

POINTS = (
    "none",
    "start worker-1",
    "claim task-1",
    "say task-1",
    "intend task-1/refund",
    "send task-1/refund",
    "lose_track task-1/refund",
    "query task-1/refund",
    "settle task-1/refund",
    "ask task-1",
    "checkpoint task-1/refund",
    "succeed task-1",
)
VERDICTS = list(Verdict)


def made_up(late=False, forgotten=False, points=POINTS, capabilities=CAPABILITIES, policies=POLICIES):
    """Cells in every colour; `say` is reached by one policy only."""
    return [
        Cell(point, capability, late, forgotten, policy, VERDICTS[(row + column) % 6], None)
        for row, point in enumerate(points)
        for capability in capabilities
        for column, policy in enumerate(policies)
        if policy == "replay_transcript" or not point.startswith("say")
    ]


FULL = heatmap(made_up())
SLEEPY = pause_heatmap(
    PauseCell(pause, capability, policy, VERDICTS[(row + column) % 6], None)
    for row, pause in enumerate(PAUSES)
    for capability in CAPABILITIES
    for column, policy in enumerate(POLICIES)
)
SMALL = heatmap(made_up(points=POINTS[:1], capabilities=["key"], policies=["same_key"]))
GAPS = heatmap(made_up(points=POINTS[2:5], capabilities=["neither", "key"]))
MAPS = {"full": FULL, "pauses": SLEEPY, "small": SMALL, "gaps": GAPS}
PAGES = [("full", False), ("pauses", False), ("pauses", True), ("gaps", True), ("small", True)]

SMALL_TEXT = """\
One crash: nothing arrives late, keys are remembered

        key
       sk qf
send   ok 2x
ask    ?? ..

ok exactly once   cl stopped clean   ?? needs a person   st stuck   LO lost   2x duplicated   .. never gets there
sk same_key   qf query_first"""


@cache
def drawn(name, dark):
    """A figure, and its texts with the room they take; drawing takes a while."""
    figure = replace(MAPS[name], dark=dark).figure()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    return figure, [(text, text.get_window_extent(canvas.get_renderer())) for text in texts]


def words_of(name):
    return [text.get_text() for text, _ in drawn(name, False)[1]]


def boxes_of(figure):
    return [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]


@pytest.fixture(params=MAPS, ids=str)
def shown(request):
    return MAPS[request.param]


@pytest.mark.parametrize(("name", "dark"), PAGES)
def test_no_text_is_cut_and_no_two_texts_overlap(name, dark):
    figure, extents = drawn(name, dark)
    width, height = figure.get_size_inches() * figure.dpi
    for number, (text, box) in enumerate(extents):
        assert box.x0 >= 0 <= box.y0, text
        assert box.x1 <= width, text
        assert box.y1 <= height, text
        others = [other.get_text() for other, extent in extents[number + 1 :] if box.overlaps(extent)]
        assert others == [], f"{text.get_text()!r} overlaps {others}"


@pytest.mark.parametrize(("name", "dark"), PAGES)
def test_text_has_14_points_or_more_and_stands_on_the_page_of_its_theme(name, dark):
    figure, extents = drawn(name, dark)
    assert min(text.get_fontsize() for text, _ in extents) >= 14
    assert to_hex(figure.get_facecolor()).upper() == (DARK if dark else LIGHT).paper
    width, height = figure.get_size_inches()
    assert width == WIDTH
    assert height <= 9.5, "it fits a projected page, or nearly"


def signs_of(name, dark):
    """Fill, ink and sign of every cell, the legend's included."""
    found = []
    figure, extents = drawn(name, dark)
    middles = [(text, (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2) for text, box in extents]
    for patch in boxes_of(figure):
        area = patch.get_window_extent()
        (inside,) = [text for text, x, y in middles if area.x0 < x < area.x1 and area.y0 < y < area.y1]
        found.append((to_hex(patch.get_facecolor()).upper(), inside.get_color(), inside.get_text()))
    return found


@pytest.mark.parametrize(("name", "dark"), PAGES)
def test_every_cell_has_the_colour_and_the_sign_of_its_verdict_and_both_can_be_told_apart(name, dark):
    look, shown, found = DARK if dark else LIGHT, MAPS[name], signs_of(name, dark)
    signs = ((verdict, verdict_mark(verdict)) for verdict in Verdict)
    marks = {(mark.fill.upper(), mark.ink, mark.sign): verdict for verdict, mark in signs}
    drawn_verdicts = [marks[one] for one in found if one in marks]
    gaps = [one for one in found if one not in marks]
    for verdict in Verdict:
        in_cells = list(shown.verdicts.values()).count(verdict)
        assert drawn_verdicts.count(verdict) == in_cells + 1, "each cell, and the legend"
    missing = len(shown.rows) * len(shown.groups) * len(shown.columns) - len(shown.verdicts)
    assert len(gaps) == (missing + 1 if missing else 0)
    assert set(gaps) <= {(look.card, look.quiet, "·")}
    assert all(contrast(fill, ink) >= 4.5 for fill, ink, _ in set(found))
    assert len({sign for _, _, sign in found}) == len(Verdict) + bool(missing), "no two verdicts share a sign"


def test_the_picture_names_rows_remotes_policies_and_verdicts():
    words = words_of("full")
    for name in (*FULL.rows, *FULL.groups, *(str(verdict) for verdict in Verdict), NEVER, FULL.title):
        assert words.count(name) == 1 + (name == "query"), name  # a remote that can be queried, and that crossing
    assert all(words.count(policy) == len(FULL.groups) for policy in POLICIES)
    assert NEVER not in words_of("pauses")


def test_rows_stand_in_the_order_in_which_a_worker_comes_to_them_and_policies_in_the_labs():
    shuffled = heatmap(sorted(made_up(), key=lambda cell: (cell.policy, cell.crash_point)))
    assert list(shuffled.rows) == [point.partition(" ")[0] for point in POINTS]
    assert list(shuffled.columns) == list(POLICIES)


def test_only_the_asked_position_of_the_switches_is_shown():
    late_ones = made_up(late=True, points=POINTS[:3])
    cells = [*made_up(), *(replace(one, verdict=Verdict.LOST) for one in late_ones)]
    cells += [replace(one, key_forgotten=True, verdict=Verdict.STUCK) for one in cells]
    late = heatmap(cells, late_delivery=True)
    assert len(late.rows) == 3
    assert set(late.verdicts.values()) == {Verdict.LOST}
    assert "the first sending arrives late" in late.title
    assert heatmap(cells).verdicts == heatmap(made_up()).verdicts
    assert set(heatmap(cells, key_forgotten=True).verdicts.values()) == {Verdict.STUCK}
    assert "soon forgotten" in heatmap(cells, key_forgotten=True).title


def test_the_text_twin_of_a_small_map_reads_like_this():
    cells = [
        Cell("ask task-1", "key", False, False, "same_key", Verdict.NEEDS_A_PERSON, None),
        Cell("send task-1/refund", "key", False, False, "query_first", Verdict.DUPLICATED, None),
        Cell("send task-1/refund", "key", False, False, "same_key", Verdict.EXACTLY_ONCE, None),
    ]
    assert str(heatmap(cells)) == SMALL_TEXT


def test_the_text_twin_says_the_verdict_of_every_cell(shown):
    count = len(shown.groups) * len(shown.columns)
    cells_of = (line.split()[-count:] for line in shown.table.splitlines()[4:])
    letters = [cells for cells in cells_of if len(cells) == count and set(cells) <= {*CODES.values(), ".."}]
    assert len(letters) == len(shown.rows)
    places = [(group, column) for group in shown.groups for column in shown.columns]
    for row, cells in zip(shown.rows, letters, strict=True):
        said = dict(zip(places, cells, strict=True))
        for group, column in places:
            verdict = shown.verdicts.get((row, group, column))
            assert said[group, column] == (".." if verdict is None else CODES[verdict])


def test_the_text_twin_is_ascii_narrow_and_without_trailing_blanks(shown):
    assert shown.text.isascii()
    assert max(map(len, shown.text.splitlines())) <= 120
    assert all(line == line.rstrip() for line in shown.text.splitlines())


def test_two_letters_tell_policies_apart_and_codes_tell_verdicts_apart():
    assert len({initials(policy) for policy in POLICIES}) == len(POLICIES)
    assert len(set(CODES.values())) == len(Verdict) == len(CODES)


def test_two_crashes_show_the_worst_that_a_policy_came_to():
    counts = {"exactly once": 30, "lost": 1, "needs a person": 4}
    found = Exploration(MatrixSetting("key", "same_key").scenario(), 2, 35, 1, counts, {"crash": 60})
    shown = two_crash_heatmap([TwoCrashes("key", "same_key", found)])
    assert list(shown.verdicts.values()) == [Verdict.LOST]


def test_a_display_has_picture_text_and_alt_text_and_nothing_else():
    data, details = SLEEPY._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png"}
    assert data["text/plain"] == SLEEPY.text
    png = base64.b64decode(data["image/png"])
    assert png.startswith(b"\x89PNG")
    assert details["image/png"]["alt"] == SLEEPY.alt
    assert details["image/png"]["width"] == int.from_bytes(png[16:20]) // 2
    assert "3 rows, 4 remotes, 8 policies" in SLEEPY.alt
    assert f"{list(SLEEPY.verdicts.values()).count(Verdict.LOST)} lost" in SLEEPY.alt


def test_the_same_cells_give_the_same_picture_and_light_and_dark_differ():
    assert SMALL.png() == replace(SMALL).png()
    assert SMALL.png() != replace(SMALL, dark=True).png()


def test_the_text_needs_no_matplotlib_and_the_picture_no_pyplot():
    code = (
        "import sys\n"
        "from labkit.explore.matrix import Cell\n"
        "from labkit.runs import Verdict\n"
        "from labkit.show.heatmap import heatmap\n"
        "shown = heatmap([Cell('none', 'key', False, False, 'same_key', Verdict.LOST, None)])\n"
        "assert 'LO' in str(shown) and 'matplotlib' not in sys.modules\n"
        "shown.png()\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
