"""The state diagram: the picture and its text twin say exactly what the table of transitions says."""

import base64
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest
from graphviz.backend import dot_command

from labkit.errors import InvalidInput, LabError
from labkit.show.diagram import Diagram, NoRenderer, Renderer, renderer, state_diagram
from labkit.show.renderer import TEXT_ONLY, Hint, draw
from labkit.show.style import DARK, LIGHT
from labkit.states import FINAL_STATES, TRANSITIONS, State, Transition, up_to_lesson

LESSONS = [*range(11), None]
LOSE_TRACK = ("lose_track", "running", "uncertain")
PNG = b"\x89PNG\r\n\x1a\n"


def edges_of(lesson: int | None) -> tuple[Transition, ...]:
    return TRANSITIONS if lesson is None else up_to_lesson(lesson)


def graphviz_pure() -> Renderer:
    found = renderer()
    assert found.name == "graphviz-pure", f"the dependencies bring graphviz-pure, but {found} was found"
    return found


def debian_dot() -> Renderer:
    command = shutil.which("dot")
    if command is None:
        pytest.skip("no `dot` on PATH: the system's Graphviz is not installed")
    found = renderer([command])
    assert found.command == command
    return found


@pytest.fixture(params=[graphviz_pure, debian_dot], ids=lambda make: make.__name__)
def program(request):
    return request.param()


def parse_dot(dot: str) -> dict[str, dict[str, str]]:
    """Attributes of each node of the source, by its name."""
    nodes = {}
    for line in dot.split("\n"):
        found = re.fullmatch(r'\t("[^"]+"|\w+) \[(.*)\]', line)
        if found and found[1] not in ("node", "edge", "graph"):
            quoted = re.findall(r'(\w+)=(<<.*?>>|"(?:[^"\\]|\\.)*"|[^\s\]]+)(?= |$)', found[2])
            nodes[found[1].strip('"')] = {name: value[1:-1] if value[0] in '<"' else value for name, value in quoted}
    return nodes


def connections(dot: str) -> set[tuple[str, str]]:
    """The pairs that an arrow leads between, by way of their card."""
    halves = re.findall(r'^\t("[^"]+"|\w+) -> ("[^"]+"|\w+)(?: \[(.*)\])?$', dot, re.MULTILINE)
    found = {"into": {}, "out of": {}}
    for tail, head, attributes in halves:
        tail, head = tail.strip('"'), head.strip('"')
        if "dir=none" in attributes:
            card, state = (head, tail) if " -> " in head else (tail, head)
            found["into"][card] = state
        elif "dir=back" in attributes:
            found["out of"][head] = tail
        elif tail != "start":
            found["out of"][tail] = head
    assert found["into"].keys() == found["out of"].keys()
    return {(found["into"][card], found["out of"][card]) for card in found["into"]}


def events_in(label: str) -> list[str]:
    return re.findall(r"<b>([^<]*)</b>", label)


def words_in(label: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", label)).replace("·", " ").split())


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_picture_has_exactly_the_edges_of_the_table(lesson):
    dot = state_diagram(lesson).dot
    drawn = []
    for name, attributes in parse_dot(dot).items():
        source, _, target = name.partition(" -> ")
        events = events_in(attributes["label"])
        drawn += [(event, source, target or source) for event in (events if target else events[1:])]
    assert sorted(drawn) == sorted((edge.event, edge.source, edge.target) for edge in edges_of(lesson))
    between = {(edge.source, edge.target) for edge in edges_of(lesson) if edge.source is not edge.target}
    assert connections(dot) == between


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_text_twin_has_exactly_the_edges_and_conditions_of_the_table(lesson):
    listed, source = [], ""
    for line in state_diagram(lesson).text.split("\n"):
        if line.startswith("["):
            source = line[1 : line.index("]")]
        elif " -> " in line[:30]:
            event, _, target = line[6:].strip().partition(" -> ")
            listed.append([event.strip(), source, target, ""])
        elif line:
            listed[-1][3] = f"{listed[-1][3]} {line.strip()}".strip()
    table = [[edge.event, edge.source, edge.target, f"if {edge.condition}"] for edge in edges_of(lesson)]
    assert sorted(listed) == sorted(table)


def test_the_text_twin_of_the_first_lesson_reads_like_this():
    text = state_diagram(0, current="running", last=("claim", "queued", "running")).text
    assert text == FIRST_LESSON
    assert text.isascii()


FIRST_LESSON = """\
[queued]  (start)
 last> claim          -> running
           if version matches; due (next_run_at <= now); no cancel requested (direction do)

[running]  (NOW)
       intend         -> running
           if token matches; version matches; the next operation without a result; nothing in doubt;
           no cancel requested (direction do); approved where the step wants it; attempts left; time
           left
       checkpoint     -> running
           if token matches; version matches; intent on record; result at hand
       succeed        -> succeeded
           if token matches; version matches; direction do; every operation has a result

[succeeded]  (final)"""


@pytest.mark.parametrize("lesson", [0, 1, None])
def test_every_condition_stands_on_its_card_where_they_are_asked_for(lesson):
    nodes = parse_dot(state_diagram(lesson, conditions=True).dot)
    for edge in edges_of(lesson):
        name = edge.source.value if edge.source is edge.target else f"{edge.source} -> {edge.target}"
        cards = nodes[name]["label"].split(f"<b>{edge.event}</b>")
        assert len(cards) == 2
        assert words_in(cards[1].split("<b>")[0]) == " ".join(edge.requires)


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_condition_is_in_a_tooltip_even_where_cards_are_short(lesson):
    nodes = parse_dot(state_diagram(lesson, conditions=False).dot)
    for edge in edges_of(lesson):
        name = edge.source.value if edge.source is edge.target else f"{edge.source} -> {edge.target}"
        assert f"{edge.event}: {edge.condition}" in nodes[name]["tooltip"].split("\\n")
        assert edge.condition not in words_in(nodes[name]["label"])


def test_the_first_lesson_has_three_states_and_the_next_one_six():
    states = [{name for name in parse_dot(state_diagram(lesson).dot) if name in set(State)} for lesson in (0, 1)]
    assert states[0] == {"queued", "running", "succeeded"}
    assert states[1] == states[0] | {"awaiting_confirmation", "failed", "cancelled"}


def test_final_states_are_double_ringed_ended_ones_dashed_and_the_rest_neither():
    nodes = parse_dot(state_diagram().dot)
    assert {name for name in State if nodes[name]["peripheries"] == "2"} == FINAL_STATES
    assert {name for name in State if "dashed" in nodes[name]["style"]} == {State.FAILED, State.CANCELLED}
    assert all("final" in words_in(nodes[state]["label"]) for state in FINAL_STATES)
    assert "ended" in words_in(nodes["failed"]["label"])


def test_a_start_arrow_leads_into_queued():
    assert "\tstart -> queued\n" in state_diagram(0).dot


@pytest.mark.parametrize("state", State)
def test_the_current_state_and_no_other_has_a_thick_outline_and_the_word_now(state):
    diagram = state_diagram(current=state)
    nodes = parse_dot(diagram.dot)
    assert [name for name in State if nodes[name]["penwidth"] != "2"] == [state]
    assert [name for name in State if re.search(r"\bnow\b", words_in(nodes[name]["label"]))] == [state]
    assert re.findall(r"^\[(\w+)\].*NOW", diagram.text, re.MULTILINE) == [state]


@pytest.mark.parametrize("edge", TRANSITIONS, ids=lambda edge: f"{edge.event}-{edge.source}-{edge.target}")
def test_the_last_edge_and_no_other_is_marked_by_word_fill_and_width(edge):
    diagram = state_diagram(last=edge, dark=True)
    nodes = parse_dot(diagram.dot)
    name = edge.source.value if edge.source is edge.target else f"{edge.source} -> {edge.target}"
    marked = {node: events_in(value["label"]) for node, value in nodes.items() if "last: " in value["label"]}
    assert list(marked) == [name]
    assert marked[name].count(f"last: {edge.event}") == 1
    assert [node for node, value in nodes.items() if f'bgcolor="{DARK.accent}"' in value["label"]] == [name]
    thick = [line for line in diagram.dot.split("\n") if "penwidth=6" in line]
    assert len(thick) == (0 if edge.source is edge.target else 2)
    assert all(f'"{name}"' in line and DARK.accent in line for line in thick)
    assert len(re.findall(r"^ last> ", diagram.text, re.MULTILINE)) == 1


def test_the_last_edge_may_be_named_by_its_event_and_ends():
    edge = next(edge for edge in TRANSITIONS if (edge.event, edge.source, edge.target) == LOSE_TRACK)
    assert state_diagram(last=LOSE_TRACK) == state_diagram(last=edge)


def test_event_and_ends_name_an_edge_uniquely():
    assert len({(edge.event, edge.source, edge.target) for edge in TRANSITIONS}) == len(TRANSITIONS)


def test_what_is_no_edge_or_no_state_is_refused():
    with pytest.raises(InvalidInput):
        state_diagram(last=("claim", "succeeded", "running"))
    with pytest.raises(InvalidInput):
        state_diagram(current="done")


def test_a_live_state_and_edge_are_drawn_even_before_their_lesson():
    diagram = state_diagram(0, current=State.UNCERTAIN, last=LOSE_TRACK)
    assert "[uncertain]  (NOW)" in diagram.text
    assert " last> lose_track" in diagram.text
    assert "running -> uncertain" in parse_dot(diagram.dot)


@pytest.mark.parametrize("dark", [False, True])
def test_colours_have_six_digits_and_text_has_14_points_or_more(dark):
    dot = state_diagram(current="queued", last=LOSE_TRACK, dark=dark, conditions=True).dot
    colours = set(re.findall(r"(?<!&)#[0-9A-Za-z]+", dot))
    assert {colour for colour in colours if not re.fullmatch(r"#[0-9A-F]{6}", colour)} == set()
    assert (DARK if dark else LIGHT).paper in colours
    assert min(float(size) for size in re.findall(r'(?:fontsize|point-size)="?([\d.]+)', dot)) >= 14


def test_the_same_diagram_comes_out_every_time():
    assert state_diagram(6, current="running") == state_diagram(6, current="running")


@pytest.mark.parametrize("lesson", [0, 1, None])
@pytest.mark.parametrize("conditions", [False, True])
def test_boxes_and_cards_do_not_overlap_and_lie_within_the_page(program, lesson, conditions):
    dot = state_diagram(lesson, current="running", last=TRANSITIONS[0], conditions=conditions).dot
    boxes, page = {}, (0.0, 0.0)
    for line in draw(dot, ["-Tplain"], program).decode().split("\n"):
        found = re.match(r'(graph|node) ("[^"]+"|\S+) (.*)', line)
        if found and found[1] == "graph":
            page = tuple(float(size) for size in found[3].split())
        elif found:
            x, y, width, height = (float(number) for number in found[3].split()[:4])
            boxes[found[2]] = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    assert len(boxes) > 5
    for name, (left, low, right, high) in boxes.items():
        assert -0.01 <= left <= right <= page[0] + 0.01, name
        assert -0.01 <= low <= high <= page[1] + 0.01, name
        for other, (left2, low2, right2, high2) in boxes.items():
            apart = right <= left2 or right2 <= left or high <= low2 or high2 <= low
            assert name == other or apart, f"{name} overlaps {other}"


@pytest.mark.parametrize(("lesson", "widest", "highest"), [(0, 1400, 500), (1, 1500, 500), (None, 2000, 1000)])
def test_pictures_have_a_sane_size(program, lesson, widest, highest):
    png = state_diagram(lesson, current="running", renderer=program).png()
    assert png.startswith(PNG)
    width, height = int.from_bytes(png[16:20]) // 2, int.from_bytes(png[20:24]) // 2
    assert widest * 0.8 <= width <= widest
    assert highest * 0.7 <= height <= highest


def test_a_panel_gets_one_svg_element_with_alt_text_and_every_event(program):
    diagram = state_diagram(current="running", renderer=program)
    root = ElementTree.fromstring(diagram.svg())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("aria-label") == diagram.alt
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    for edge in TRANSITIONS:
        assert edge.event in texts


def test_a_display_has_picture_text_and_alt_text_and_nothing_else(program):
    diagram = state_diagram(0, current="running", last=TRANSITIONS[0], renderer=program)
    data, metadata = diagram._repr_mimebundle_()
    assert data.keys() == {"text/plain", "image/png"}
    assert data["text/plain"] == diagram.text == str(diagram)
    png = base64.b64decode(data["image/png"])
    assert png == diagram.png()
    alt = "State diagram of 3 states and 4 transitions. Now: running. Last event: claim, from queued to running."
    assert metadata == {"image/png": {"alt": alt, "width": int.from_bytes(png[16:20]) // 2}}


def lost(diagram: Diagram) -> Diagram:
    return replace(diagram, hint=Hint("get one"))


@pytest.mark.parametrize(
    "nothing", [TEXT_ONLY, Renderer("dot", "/nowhere/dot", "9"), Renderer("dot", sys.executable, "9")]
)
def test_without_a_program_that_draws_there_is_the_text_and_one_hint(nothing):
    diagram = lost(state_diagram(0, renderer=nothing))
    assert diagram._repr_mimebundle_() == ({"text/plain": f"{diagram.text}\n\nget one"}, {})
    assert diagram._repr_mimebundle_() == ({"text/plain": diagram.text}, {})
    assert str(diagram) == diagram.text


def test_the_hint_is_one_for_all_diagrams_and_names_the_remedy():
    code = """
from labkit.show.diagram import state_diagram
from labkit.show.renderer import TEXT_ONLY
texts = [state_diagram(n, renderer=TEXT_ONLY)._repr_mimebundle_()[0]["text/plain"] for n in (0, 1)]
print([text.count("pip install graphviz-pure") for text in texts])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[1, 0]\n", "")


def test_asking_for_a_picture_that_nothing_can_draw_raises_an_error_of_the_lab():
    diagram = state_diagram(0, renderer=TEXT_ONLY)
    for ask in (diagram.png, diagram.svg):
        with pytest.raises(NoRenderer) as caught:
            ask()
        assert isinstance(caught.value, LabError)


def test_the_first_candidate_that_runs_is_the_renderer(tmp_path):
    pure = graphviz_pure()
    assert renderer([]) == TEXT_ONLY
    assert renderer([str(tmp_path / "missing"), str(tmp_path)]) == TEXT_ONLY
    assert renderer([str(tmp_path / "missing"), pure.command]) == pure
    assert "Graphviz" in pure.version


def test_graphviz_pure_is_found_beside_python_with_an_empty_path():
    code = "from labkit.show.diagram import renderer; print(renderer().name)"
    environment = {"PATH": "", "SYSTEMROOT": "C:\\Windows"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "graphviz-pure"


def test_a_program_chosen_for_the_graphviz_package_comes_first(tmp_path, monkeypatch):
    chosen = tmp_path / Path(graphviz_pure().command).name.replace("graphviz-pure", "mine")
    shutil.copy(graphviz_pure().command, chosen)
    monkeypatch.setattr(dot_command, "DOT_BINARY", chosen)
    assert renderer().name == "mine"


def test_the_text_twin_leaves_conditions_out_where_the_picture_is_told_to():
    assert "if version matches" in state_diagram(lesson=1).text
    assert "if " not in state_diagram(lesson=1, conditions=False).text
    assert "claim          -> running" in state_diagram(lesson=1, conditions=False).text
