"""The timeline of a run: three views, faults and verdict, without a word cut or overlapping."""

import base64
import subprocess
import sys
from dataclasses import replace

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text

from labkit.records import Operation, Status, Task
from labkit.runs import Moment, Run, Verdict
from labkit.show.style import DARK, LIGHT, OKABE_ITO, verdict_mark
from labkit.show.timeline import VIEWS, rows_of, timeline
from labkit.show.timeline_figure import EDGE, LANES, STARTS, WHERE, WIDTH, fitted
from labkit.states import Direction, State

NAMES = {"refund": "payments", "update_ticket": "tickets", "send_email": "mail"}
PENDING = "refund pending, update_ticket pending, send_email pending"
IN_DOUBT = PENDING.replace("refund pending", "refund in doubt")
DONE = PENDING.replace("refund pending", "refund done")


def ended(state=State.SUCCEEDED, version=9, done=3):
    operations = tuple(
        Operation(
            id=f"task-1/{name}",
            name=name,
            position=position,
            direction=Direction.DO,
            remote=remote,
            request={},
            undo_request=None,
            needs_approval=False,
            approved_by=None,
            status=Status.DONE if position < done else Status.PENDING,
            result_ref=f"{remote}-1" if position < done else None,
            result_source="response" if position < done else None,
        )
        for position, (name, remote) in enumerate(NAMES.items())
    )
    return Task(
        id="task-1",
        kind="refund",
        state=state,
        version=version,
        direction=Direction.DO,
        step=done,
        lease_owner=None,
        lease_token=2,
        lease_expires_at=None,
        attempts=0,
        max_attempts=5,
        first_attempt_at=None,
        max_seconds=3600.0,
        next_run_at=0.0,
        awaiting_for=None,
        awaiting_until=None,
        error_category=None,
        cancel_requested=False,
        created_at=0.0,
        operations=operations,
    )


def effects(**counts):
    return tuple((f"task-1/{name}", count) for name, count in sorted(counts.items()))


def moments(*lines):
    return tuple(Moment(number, *line) for number, line in enumerate(lines, start=1))


QUIET = Run(
    "The quiet run",
    moments(
        (0.0, "worker-1", "claim task-1", "running v2, token 1", f"running v2: {PENDING}", ()),
        (0.0, "worker-1", "intend task-1/refund", "about to send, attempt 1", f"running v3: {IN_DOUBT}", ()),
        (0.5, "worker-1", "send task-1/refund", "applied", f"running v3: {IN_DOUBT}", effects(refund=1)),
        (0.5, "worker-1", "checkpoint task-1/refund", "result on record", f"running v4: {DONE}", effects(refund=1)),
    ),
    ended(),
    effects(refund=1, update_ticket=1, send_email=1),
    Verdict.EXACTLY_ONCE,
)
SENT = ("send task-1/refund", "applied: payments-1", f"running v3: {IN_DOUBT}", effects(refund=1), "crash")
UNANSWERED = ("send task-1/refund", "no answer", f"running v7: {IN_DOUBT}", effects(refund=2), "response lost")
TWICE = effects(refund=2, update_ticket=1)
DOUBLED = Run(
    "Blind replay: the worker crashes between the refund and its record, and the next one sends it again",
    moments(
        (0.0, "worker-1", "start worker-1", "nothing yet", f"queued v1: {PENDING}", ()),
        (0.0, "worker-1", "claim task-1", "running v2, token 1", f"running v2: {PENDING}", ()),
        (0.0, "worker-1", "intend task-1/refund", "about to send, attempt 1", f"running v3: {IN_DOUBT}", ()),
        (0.0, "worker-1", *SENT),
        (30.0, "worker-2", "start worker-2", "nothing yet", f"running v3: {IN_DOUBT}", effects(refund=1)),
        (30.0, "worker-2", "take_over task-1", "uncertain v4", f"uncertain v4: {IN_DOUBT}", effects(refund=1)),
        (30.0, "worker-2", "settle task-1/refund", "not applied (assumed)", f"queued v5: {PENDING}", effects(refund=1)),
        (30.0, "worker-2", "claim task-1", "running v6, token 3", f"running v6: {PENDING}", effects(refund=1)),
        (30.0, "worker-2", "intend task-1/refund", "attempt 2", f"running v7: {IN_DOUBT}", effects(refund=1)),
        (30.0, "worker-2", *UNANSWERED),
        (35.0, "worker-2", "checkpoint task-1/refund", "result on record", f"running v8: {DONE}", effects(refund=2)),
        (35.0, "worker-2", "intend task-1/update_ticket", "attempt 1", f"running v9: {DONE}", effects(refund=2)),
        (35.0, "worker-2", "send task-1/update_ticket", "applied: tickets-1", f"running v9: {DONE}", TWICE),
        (35.0, "worker-2", "checkpoint task-1/update_ticket", "on record", f"awaiting_confirmation v10: {DONE}", TWICE),
    ),
    ended(),
    effects(refund=2, update_ticket=1, send_email=1),
    Verdict.DUPLICATED,
)  # fmt: skip
LONG_WORD = "x" * 90
UNGAINLY = replace(
    DOUBLED,
    title=f"$5 at {LONG_WORD} costs $6",
    moments=tuple(
        replace(
            moment,
            worker="a-worker-with-a-long-name-99",
            at=86400.5,
            point=f"send {LONG_WORD}",
            believes=f"$a_b$ {LONG_WORD} " * 3,
        )
        for moment in DOUBLED.moments[:3]
    ),
)
LOST = replace(QUIET, title="Assume done", effects=effects(update_ticket=1, send_email=1), verdict=Verdict.LOST)
EMPTY = Run("Nothing has happened", (), ended(State.QUEUED, 1, 0), (), Verdict.STUCK)
RUNS = {"quiet": QUIET, "doubled": DOUBLED, "ungainly": UNGAINLY, "lost": LOST, "empty": EMPTY}


def drawn_texts(figure):
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    return [(text, text.get_window_extent(canvas.get_renderer())) for text in texts]


def words_of(figure):
    return " ".join(text.get_text() for text in figure.findobj(Text))


def blocks_of(figure):
    return [patch for patch in figure.findobj(FancyBboxPatch) if patch.get_height() > 0.3]


@pytest.fixture(params=RUNS, ids=str)
def run(request):
    return RUNS[request.param]


@pytest.mark.parametrize("dark", [False, True])
def test_no_text_is_cut_and_no_two_texts_overlap(run, dark):
    figure = timeline(run, dark).figure()
    extents = drawn_texts(figure)
    assert len(extents) > 5
    width, height = figure.get_size_inches() * figure.dpi
    for text, box in extents:
        assert box.x0 >= 0 <= box.y0, text
        assert box.x1 <= width, text
        assert box.y1 <= height, text
    for number, (text, box) in enumerate(extents):
        others = [other.get_text() for other, extent in extents[number + 1 :] if box.overlaps(extent)]
        assert others == [], f"{text.get_text()!r} overlaps {others}"


def test_every_text_stays_in_its_column_and_in_its_block(run):
    figure = timeline(run).figure()
    columns = [(EDGE, EDGE + WHERE), *((start, start + lane) for start, lane in zip(STARTS, LANES, strict=True))]
    heads = (*fitted(run.title, WIDTH, 20), run.title, run.verdict)
    for text, box in drawn_texts(figure):
        left, right = box.x0 / figure.dpi, box.x1 / figure.dpi
        if text.get_fontsize() > 14 or text.get_text() in heads:
            continue
        assert any(low - 0.01 <= left and right <= high + 0.01 for low, high in columns), text
    boxes = [patch.get_window_extent() for patch in blocks_of(figure)]
    for text, box in drawn_texts(figure):
        for block in boxes:
            if block.overlaps(box):
                assert block.y0 <= box.y0 <= box.y1 <= block.y1, f"{text} leaves its block"


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_14_points_or_more_and_stands_on_the_page_of_its_theme(run, dark):
    figure = timeline(run, dark).figure()
    assert min(text.get_fontsize() for text, _ in drawn_texts(figure)) >= 14
    assert to_hex(figure.get_facecolor()).upper() == (DARK if dark else LIGHT).paper


def test_no_line_reaches_beyond_the_boxes():
    lines = timeline(DOUBLED).figure().axes[0].get_lines()
    assert len(lines) > 1
    assert {line.get_solid_capstyle() for line in lines} == {"butt"}


def test_fourteen_moments_fit_a_page_that_can_be_scrolled_in_one_go():
    width, height = timeline(DOUBLED).figure().get_size_inches()
    assert width == WIDTH
    assert height <= 18


def test_the_text_twin_of_a_short_run_reads_like_this():
    assert str(timeline(QUIET)) == QUIET_TEXT
    assert timeline(QUIET).text.isascii()


QUIET_TEXT = """\
The quiet run
verdict: exactly once

#  who, where                what the worker believes  what the database says  what the remote ledger shows
-  ------------------------  ------------------------  ----------------------  ----------------------------
1  worker-1 at 0 s           running v2, token 1       running v2              nothing yet
   claim task-1                                        refund pending
                                                       update_ticket pending
                                                       send_email pending

2  worker-1                  about to send, attempt 1  running v3              "
   intend task-1/refund                                refund in doubt

3  worker-1 at 0.5 s         applied                   "                       refund 1x
   send task-1/refund

4  worker-1                  result on record          running v4              "
   checkpoint task-1/refund                            refund done

   the end                                             succeeded v9            refund 1x
                                                       update_ticket done      send_email 1x
                                                       send_email done         update_ticket 1x"""


def test_the_text_twin_is_ascii_narrow_and_without_trailing_blanks(run):
    text = timeline(replace(run, title="A run")).text
    assert text.isascii()
    assert max(map(len, text.split("\n"))) <= 112
    assert [line for line in text.split("\n") if line != line.rstrip()] == []


def test_only_what_has_changed_is_said_again():
    rows = rows_of(DOUBLED)
    assert rows[1].views == (("running v2, token 1",), ("running v2",), None)
    assert rows[2].views == (("about to send, attempt 1",), ("running v3", "refund in doubt"), None)
    assert rows[3].views == (("applied: payments-1",), None, ("refund 1×",))
    assert [row.clock for row in rows[:6]] == ["0 s", "", "", "", "30 s", ""]


def test_a_view_that_says_the_same_is_a_ditto_mark_in_the_text():
    crash = next(line for line in timeline(DOUBLED).text.split("\n") if line.startswith("4 "))
    assert crash.split()[2:] == ["applied:", "payments-1", '"', "refund", "1x"]


def test_no_belief_outlives_its_worker():
    again = replace(QUIET.moments[1], number=2, believes=QUIET.moments[0].believes)
    assert rows_of(replace(QUIET, moments=(QUIET.moments[0], again)))[1].views[0] is None
    for change in ({"fault": "crash"}, {"worker": "worker-0"}):
        first = replace(QUIET.moments[0], **change)
        assert rows_of(replace(QUIET, moments=(first, again)))[1].views[0] == (again.believes,)


def test_the_last_row_shows_how_task_and_ledgers_ended():
    last = rows_of(QUIET)[-1]
    assert last.worker == "the end"
    assert last.views == (
        (),
        ("succeeded v9", "update_ticket done", "send_email done"),
        ("refund 1×", "send_email 1×", "update_ticket 1×"),
    )


def test_a_doubled_effect_is_wrong_in_text_and_picture_and_a_single_one_is_not():
    for run, count in ((QUIET, 0), (DOUBLED, 3)):
        figure = timeline(run).figure()
        hatched = [patch for patch in blocks_of(figure) if patch.get_hatch()]
        filled = [patch for patch in blocks_of(figure) if patch.get_width() == LANES[2]]
        red = [patch for patch in filled if to_hex(patch.get_facecolor()).upper() == OKABE_ITO["vermillion"]]
        assert len(hatched) == len(red) == count
        assert timeline(run).text.count("<- WRONG") == count
        assert ("✗ refund 2×" in words_of(figure)) == bool(count)


def test_a_lost_effect_is_wrong_at_the_end_where_the_record_says_done():
    assert rows_of(LOST)[-1].views[2] == ("✗ refund 0×, on record: done", "send_email 1×", "update_ticket 1×")
    stopped = replace(QUIET, task=ended(State.CANCELLED, 5, 0), effects=effects(refund=1))
    assert rows_of(stopped)[-1].views[2] == ("✗ refund 1×, on record: pending",)
    going_on = replace(QUIET, task=ended(State.RUNNING, 5, 0), effects=effects(refund=1))
    assert rows_of(going_on)[-1].views[2] is None
    stray = replace(QUIET, effects=(*QUIET.effects, ("task-1/other", 1)))
    assert "✗ other 1×, on record: nothing" in rows_of(stray)[-1].views[2]


def test_faults_stand_where_they_happened():
    text, words = timeline(DOUBLED).text, words_of(timeline(DOUBLED).figure())
    assert text.count("!! ") == words.count("⚡") == 2
    assert "!! crash" in text
    assert "⚡ crash" in words
    assert "⚡ response lost" in words
    assert "⚡" not in words_of(timeline(QUIET).figure())


def test_all_three_views_are_named():
    words = words_of(timeline(QUIET).figure())
    for view in VIEWS:
        assert view in words
        assert view.split()[-1] in timeline(QUIET).text


@pytest.mark.parametrize("verdict", Verdict)
def test_the_verdict_is_a_badge_with_its_own_colour_and_sign(verdict):
    shown = timeline(replace(QUIET, verdict=verdict))
    mark = verdict_mark(verdict)
    figure = shown.figure()
    assert f"{mark.sign} {verdict}" in words_of(figure)
    fills = [to_hex(patch.get_facecolor()).upper() for patch in blocks_of(figure)]
    assert mark.fill in fills
    assert f"\nverdict: {verdict}\n" in shown.text


def test_a_dollar_sign_begins_no_formula():
    figure = timeline(UNGAINLY).figure()
    assert {text.get_parse_math() for text, _ in drawn_texts(figure)} == {False}
    assert "$5 at" in words_of(figure)


def test_a_run_on_the_machine_s_clock_shows_no_times():
    unclocked = replace(QUIET, moments=tuple(replace(moment, at=None) for moment in QUIET.moments))
    assert [row.clock for row in rows_of(unclocked)] == [""] * 5


def test_words_longer_than_a_line_are_broken_and_nothing_is_lost():
    lines = fitted(f"a {LONG_WORD} b", 2.0)
    assert len(lines) > 3
    assert "".join(lines).replace(" ", "") == f"a{LONG_WORD}b"
    assert fitted("", 2.0) == [""]


def test_a_display_has_picture_text_and_alt_text_and_nothing_else():
    shown = timeline(DOUBLED)
    data, metadata = shown._repr_mimebundle_()
    assert data.keys() == {"text/plain", "image/png"}
    assert data["text/plain"] == shown.text == str(shown)
    png = base64.b64decode(data["image/png"])
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert metadata["image/png"]["width"] == int.from_bytes(png[16:20]) // 2 == int(WIDTH * 96)
    alt = metadata["image/png"]["alt"]
    assert "14 moments" in alt
    assert "crash at moment 4, response lost at moment 10" in alt
    assert "Verdict: duplicated." in alt


def test_the_same_run_gives_the_same_picture_and_text():
    assert timeline(QUIET).png() == timeline(QUIET).png()
    assert timeline(QUIET).png() != timeline(QUIET, dark=True).png()
    assert timeline(DOUBLED).text == timeline(DOUBLED).text


def test_drawing_loads_no_pyplot():
    code = "import sys, labkit.show.timeline_figure; print('matplotlib.pyplot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
