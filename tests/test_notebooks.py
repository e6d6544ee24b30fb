"""Every notebook is fit to be read, run, compared by nbval, and shown on the web. Each rule is itself tried below."""

import ast
import builtins
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import nbformat
import pytest
import refresh
from answers import SAMPLES

from labkit.course import CheckResult
from labkit.course.journal import NO_PREDICTION

TESTS = Path(__file__).resolve().parent
NOTEBOOKS = TESTS.parent / "notebooks"
LESSONS = sorted(NOTEBOOKS.glob("*.ipynb"))
IGNORED = "nbval-ignore-output"
PROJECTED = 100
"""Characters of a line of code that a projector shows without scrolling sideways; see notebooks/.ruff.toml."""

HIDING_TAGS = {"hide-input", "hide-cell", "hide-output", "remove-input", "remove-cell", "remove-output"}
NOT_OUR_WORDS = re.compile(
    r"idempoten(ce|cy) tokens?|dedup(lication)? keys?|request keys?|lock tokens?|exactly[- ]once delivery|crashpoints?"
    r"|dead letters?|sagas?|side[- ]effects?",
    re.IGNORECASE,
)
ONE_MACHINE = re.compile(
    r"(?<![\w.<])/(root|home|Users|tmp|var|usr|private)/\w|\b[A-Z]:\\|\bat 0x[0-9a-f]+|<\w[^>\n]* object\b"
    r"|\bpid\b|Traceback|\b\d\d:\d\d:\d\d\b",
    re.IGNORECASE,
)
CHECK = re.compile(r"""\bcheck\(["'](\d+\.\d+[a-z]?)["']""")
WRITTEN = re.compile(r"""^why\(["']""", re.MULTILINE)
SHOWS_HTML = re.compile(rf"{CHECK.pattern}|^report\(\)$", re.MULTILINE)
PREDICTION = re.compile(r"^prediction = None\b", re.MULTILINE)
ABOUT = re.compile(r"""compare\(prediction, .+, ["'](\d\d: [^"']+)["']\)""", re.DOTALL)
WALK = "= walk("
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

Notebook = nbformat.NotebookNode
Cell = nbformat.NotebookNode


def code_cells(notebook: Notebook) -> list[Cell]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def prose_cells(notebook: Notebook) -> list[Cell]:
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def outputs(notebook: Notebook) -> Iterator[tuple[Cell, Notebook]]:
    return ((cell, output) for cell in code_cells(notebook) for output in cell.outputs)


def words(cell: Cell) -> int:
    return len(re.findall(r"\w[\w'’.,-]*", re.sub(r"<[^>]+>|\]\([^)]*\)", " ", cell.source)))


def headings(notebook: Notebook) -> list[tuple[int, str]]:
    prose = "\n".join(re.sub(r"```.*?```", "", cell.source, flags=re.DOTALL) for cell in prose_cells(notebook))
    return [(len(marks), title) for marks, title in re.findall(r"^(#+) (.+)$", prose, re.MULTILINE)]


def texts(cell: Cell) -> list[tuple[str, str]]:
    """What a cell shows as text, in order."""
    return [(one.output_type, one.get("text") or one.get("data", {}).get("text/plain", "")) for one in cell.outputs]


def shown(cell: Cell) -> str:
    return "".join(text for _, text in texts(cell))


# --- the rules: each takes a notebook and its folder, and yields what is wrong with it ---------------


def rule_size(notebook: Notebook, folder: Path) -> Iterator[str]:
    walks = sum(WALK in cell.source for cell in code_cells(notebook))  # a gallery takes three cells a case
    if not 25 <= len(notebook.cells) <= max(40, 3 * walks + 11):
        yield f"{len(notebook.cells)} cells; 25 to 40 are wanted"
    for cell in prose_cells(notebook):
        if words(cell) > 100:
            yield f"{cell.id}: {words(cell)} words of prose"
    for cell in code_cells(notebook):
        if len(cell.source.splitlines()) > 20:
            yield f"{cell.id}: {len(cell.source.splitlines())} lines of code"
    if not 15 <= median(map(words, prose_cells(notebook))) <= 45:
        yield "a typical prose cell has 15 to 45 words"


def rule_headings(notebook: Notebook, folder: Path) -> Iterator[str]:
    levels = [level for level, _ in headings(notebook)]
    if levels.count(1) != 1 or levels[0] != 1:
        yield "one heading of level 1, and it comes first"
    for before, after in pairwise(levels):
        if after > before + 1:
            yield f"a heading of level {after} below one of level {before}"


def rule_first_and_last_cell(notebook: Notebook, folder: Path) -> Iterator[str]:
    first, last = notebook.cells[0], notebook.cells[-1]
    for what, pattern in {
        "a title": r"^# ",
        "its question": r"\*\*The question:\*\*[^?]+\?",
        "minutes of reading": r"Reading: \d+ minutes",
        "minutes of exercise": r"Exercises?: \d+ minutes",
        "what to know before": r"You (need|know)",
    }.items():
        if first.cell_type != "markdown" or not re.search(pattern, first.source, re.MULTILINE):
            yield f"the first cell has {what}"
    if last.cell_type != "markdown" or not re.match(r"#+ Where to go next", last.source):
        yield "the last cell says where to go next"


def rule_outputs_are_stored(notebook: Notebook, folder: Path) -> Iterator[str]:
    counts = [cell.execution_count for cell in code_cells(notebook)]
    if counts != list(range(1, len(counts) + 1)):
        yield f"execution counts {counts}"
    for cell in code_cells(notebook):
        if must_show(cell.source) and not cell.outputs:
            yield f"{cell.id}: no output"


def must_show(source: str) -> bool:
    """Whether code prints outside of a function, or ends with a call whose value is shown."""
    steps = [step for step in ast.parse(source).body if not isinstance(step, ast.FunctionDef | ast.ClassDef)]
    calls = {ast.unparse(one.func) for step in steps for one in ast.walk(step) if isinstance(one, ast.Call)}
    last = steps[-1].value if steps and isinstance(steps[-1], ast.Expr) else None
    return bool(calls & {"print", "compare", "hint"}) or (
        isinstance(last, ast.Call) and isinstance(last.func, ast.Name)
    )


def rule_outputs_are_text_and_png(notebook: Notebook, folder: Path) -> Iterator[str]:
    if "widgets" in notebook.metadata:
        yield "widgets in the metadata"
    for cell, output in outputs(notebook):
        others = set(output.get("data", ())) - {"text/plain", "image/png"}
        if others:
            yield f"{cell.id}: shows {', '.join(sorted(others))}"
        if output.output_type == "error":
            yield f"{cell.id}: shows an error"
        if output.get("name") == "stderr":
            yield f"{cell.id}: writes to stderr"


def rule_outputs_are_the_same_everywhere(notebook: Notebook, folder: Path) -> Iterator[str]:
    for cell in code_cells(notebook):
        for found in ONE_MACHINE.finditer(shown(cell)):
            yield f"{cell.id}: {found[0]!r} belongs to one machine or one run"


def rule_pictures_have_words(notebook: Notebook, folder: Path) -> Iterator[str]:
    for cell, output in outputs(notebook):
        if "image/png" in output.get("data", {}):
            if len(output.metadata.get("image/png", {}).get("alt", "")) < 20:
                yield f"{cell.id}: a picture without alt text"
            if len(output.data.get("text/plain", "").splitlines()) < 3:
                yield f"{cell.id}: a picture without a text twin"


def rule_ids(notebook: Notebook, folder: Path) -> Iterator[str]:
    for name, count in Counter(cell.get("id") for cell in notebook.cells).items():
        if count > 1 or not name:
            yield f"the cell id {name!r} is there {count} times"


def rule_exercises(notebook: Notebook, folder: Path) -> Iterator[str]:
    numbers = [number for cell in code_cells(notebook) for number in CHECK.findall(cell.source)]
    titles = [found[1] for _, title in headings(notebook) if (found := re.match(r"Exercise (\d+\.\d+[a-z]?)\b", title))]
    if sorted(numbers) != sorted(set(titles)) or len(titles) != len(set(titles)):
        yield f"checks of {numbers} below headings of exercises {titles}"
    for place, cell in enumerate(notebook.cells):
        found = CHECK.search(cell.source) if cell.cell_type == "code" else None
        if found is None:
            continue
        around = [*[None] * 2, *notebook.cells, None][place : place + 4]
        number, (question, stub, _, why) = found[1], around
        if question is None or f"Exercise {number}" not in question.source:
            yield f"{number}: its question stands two cells above its check"
        elif not re.search(r"(?<!★)★{1,3}(?!★)[^★]*\b\d+ minutes", question.source):
            yield f"{number}: its question has one to three ★ and minutes"
        if stub is None or stub.cell_type != "code" or "raise NotImplementedError" not in stub.source:
            yield f"{number}: its stub stands above its check and raises NotImplementedError"
        if cell.metadata.get("editable") is not False or cell.metadata.get("deletable") is not False:
            yield f"{number}: its check is read-only"
        if why is None or not re.match(rf'why\("{re.escape(number)}", ""\)', why.source):
            yield f"{number}: a why line follows"
        if shown(cell) != str(CheckResult(number, False)):
            yield f"{number}: the stored check says 'not attempted yet'"


def rule_code_is_plain(notebook: Notebook, folder: Path) -> Iterator[str]:
    for cell in code_cells(notebook):
        if re.search(r"^\s*from \S+ import \*", cell.source, re.MULTILINE):
            yield f"{cell.id}: a star import"
        if re.search(r"^\s*[%!]", cell.source, re.MULTILINE):
            yield f"{cell.id}: a line that is no Python"
    for cell in notebook.cells:
        hidden = cell.metadata.get("jupyter", {}).keys() & {"source_hidden", "outputs_hidden"}
        if hidden or cell.metadata.get("collapsed") or HIDING_TAGS & set(cell.metadata.get("tags", ())):
            yield f"{cell.id}: hidden"


def rule_code_fits_a_projector(notebook: Notebook, folder: Path) -> Iterator[str]:
    for cell in code_cells(notebook):
        for line in cell.source.splitlines():
            if len(line) > PROJECTED:
                yield f"{cell.id}: a line of {len(line)} characters"


def rule_an_exercise_stands_alone(notebook: Notebook, folder: Path) -> Iterator[str]:
    """Who starts a kernel anew and runs the cells of one exercise alone meets no NameError."""
    cells = code_cells(notebook)
    for place, cell in enumerate(cells):
        if CHECK.search(cell.source):
            together = cells[max(place - 1, 0) : place + 2]
        elif WRITTEN.search(cell.source) and not (place and CHECK.search(cells[place - 1].source)):
            together = [cell]
        else:
            continue
        for name in sorted(unknown_names("\n".join(one.source for one in together))):
            yield f"{cell.id}: {name} is not known to who runs this exercise alone"


def unknown_names(source: str) -> set[str]:
    """The names that code reads and makes nowhere: neither its own nor Python's."""
    used: set[str] = set()
    made = set(dir(builtins))
    for one in ast.walk(ast.parse(source)):
        if isinstance(one, ast.Name):
            (used if isinstance(one.ctx, ast.Load) else made).add(one.id)
        elif isinstance(one, ast.FunctionDef | ast.ClassDef):
            made.add(one.name)
        elif isinstance(one, ast.arg):
            made.add(one.arg)
        elif isinstance(one, ast.alias):
            made.add(one.asname or one.name)
    return used - made


def rule_predictions(notebook: Notebook, folder: Path) -> Iterator[str]:
    open_since = None
    for cell in notebook.cells:
        if cell.cell_type == "code" and PREDICTION.search(cell.source):
            if open_since:
                yield f"{open_since}: a prediction that is compared with nothing"
            open_since = cell.id
        elif cell.cell_type == "code" and WALK in cell.source and "compare(prediction," not in cell.source:
            yield f"{cell.id}: a case that nobody is asked to predict"
        elif cell.cell_type == "code" and "compare(prediction," in cell.source:
            if not open_since:
                yield f"{cell.id}: compares a prediction that nobody was asked for"
            elif NO_PREDICTION not in shown(cell):
                yield f"{cell.id}: stored with a prediction"
            if not ABOUT.search(cell.source):
                yield f"{cell.id}: says what was asked, beginning with the notebook's number"
            open_since = None
    if open_since:
        yield f"{open_since}: a prediction that is compared with nothing"


def rule_recap(notebook: Notebook, folder: Path) -> Iterator[str]:
    asked = [cell for cell in prose_cells(notebook) if "<details>" in cell.source]
    if [re.findall(r"^\*\*(\d)\. .+\?\*\*$", cell.source, re.MULTILINE) for cell in asked] != [["1"], ["2"], ["3"]]:
        yield "the recap asks questions 1 to 3"
    for cell in asked:
        options = re.findall(r"^<details><summary>(\w)\) .+?</summary>(.*)</details>$", cell.source, re.MULTILINE)
        if [letter for letter, _ in options] != ["a", "b", "c"] or cell.source.count("<details>") != 3:
            yield f"{cell.id}: options a, b and c, a line each"
        if any(not re.match(r"(Yes|No)\. .{10}", reason) for _, reason in options):
            yield f"{cell.id}: every option has a reason"
        if sum(reason.startswith("Yes.") for _, reason in options) != 1:
            yield f"{cell.id}: one option is right"


def rule_links(notebook: Notebook, folder: Path) -> Iterator[str]:
    for cell in prose_cells(notebook):
        for target in LINK.findall(cell.source):
            if re.match(r"https://|#", target):
                continue
            name, _, place = target.partition("#")
            if not (folder / name).exists():
                yield f"{cell.id}: {target} is not there"
            elif place and f'<a id="{place}"></a>' not in (folder / name).read_text(encoding="utf-8"):
                yield f"{cell.id}: {target} is a heading for the web alone: JupyterLab does not put it in small letters"


def rule_vocabulary(notebook: Notebook, folder: Path) -> Iterator[str]:
    for cell in notebook.cells:
        for found in NOT_OUR_WORDS.finditer(cell.source):
            yield f"{cell.id}: {found[0]!r} is not a word of the lab"


def rule_few_outputs_are_ignored(notebook: Notebook, folder: Path) -> Iterator[str]:
    ignored = sum(IGNORED in cell.metadata.get("tags", ()) for cell in notebook.cells)
    if ignored * 10 > len(code_cells(notebook)):
        yield f"{ignored} cells whose output nobody compares"


def rule_stored_as_refresh_leaves_it(notebook: Notebook, folder: Path) -> Iterator[str]:
    if refresh.cleaned(deepcopy(notebook)) != notebook:
        yield "not as `make refresh` stores it"


RULES: dict[str, Callable[[Notebook, Path], Iterator[str]]] = {
    name.removeprefix("rule_"): rule for name, rule in list(globals().items()) if name.startswith("rule_")
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_every_notebook_keeps_every_rule(path: Path, rule: str):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert list(RULES[rule](notebook, path.parent)) == []


def exercise_numbers(notebooks: list[Notebook]) -> list[str]:
    return [number for one in notebooks for cell in code_cells(one) for number in CHECK.findall(cell.source)]


def test_no_exercise_is_there_twice_and_each_has_the_number_of_its_notebook():
    for path in LESSONS:
        numbers = exercise_numbers([nbformat.read(path, as_version=4)])
        assert {number.partition(".")[0] for number in numbers} <= {str(int(path.stem[:2]))}
    every = exercise_numbers([nbformat.read(path, as_version=4) for path in LESSONS])
    assert len(every) == len(set(every))


# --- with right answers every check passes, and all else shows what is stored, in any place ------------


def solved(notebook: Notebook) -> Notebook:
    """Put a right answer in place of every stub."""
    right = {sample.number: sample.function for sample in reversed(SAMPLES) if not sample.says}
    cells = code_cells(notebook)
    for stub, cell in pairwise(cells):
        found = CHECK.search(cell.source)
        if found is not None:
            answer, called = right[found[1]], cell.source.partition(f'"{found[1]}", ')[2].partition(")")[0]
            path = f"import sys\n\nsys.path.insert(0, {str(TESTS)!r})\n"
            stub.source = f"{path}from {answer.__module__} import {answer.__name__} as {called}"
    return notebook


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Notebook]:
    """Every notebook with right answers, executed in a folder of its own."""

    def run(path: Path, folder: Path) -> Notebook:
        return refresh.refreshed(solved(nbformat.read(path, as_version=4)), folder)

    folders = [tmp_path_factory.mktemp("elsewhère") for _ in LESSONS]  # here: pytest makes no folders on two threads
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(LESSONS, pool.map(run, LESSONS, folders), strict=True))


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_with_right_answers_every_check_passes_and_all_else_shows_what_is_stored(
    runs: dict[Path, Notebook], path: Path
):
    stored = refresh.cleaned(nbformat.read(path, as_version=4))
    for kept, executed in zip(code_cells(stored), code_cells(runs[path]), strict=True):
        found = CHECK.search(kept.source)
        if found is not None:
            assert shown(executed).startswith(f"exercise {found[1]}: passed."), shown(executed)
        elif IGNORED not in kept.metadata.get("tags", ()):
            assert texts(executed) == texts(kept), kept.id


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_run_leaves_no_error_and_nothing_on_stderr(runs: dict[Path, Notebook], path: Path):
    shown_elsewhere = runs[path].copy()
    # checks, and the report once there is something in it, show HTML too
    shown_elsewhere.cells = [cell for cell in runs[path].cells if not SHOWS_HTML.search(cell.source)]
    assert list(rule_outputs_are_text_and_png(shown_elsewhere, path.parent)) == []


# --- each rule notices what it is there for -----------------------------------------------------------


def good_notebook() -> Notebook:
    """The smallest notebook that keeps every rule."""
    prose = "These words explain what can be seen in the cell above and what is asked of the one below it."
    question = "**{}. What is it that the ledger shows?**\n\n" + "\n".join(
        f"<details><summary>{letter}) An answer.</summary>{reason}</details>"
        for letter, reason in zip(
            "abc", ("No. It does not do that.", "Yes. It really does.", "No. Not at all."), strict=True
        )
    )
    exercise = f"## Exercise 0.1: a title\n\n★★ · 5 minutes. {prose}"
    title = "# A title\n\n**The question:** what is it?\n\nReading: 9 minutes. Exercise: 5 minutes. You need nothing."
    sources: list[tuple[str, str, str]] = [
        ("title", "", title),
        ("predict", "", f"## Predict\n\n{prose}"),
        ("prediction", "code", "prediction = None  # 0, 1 or 2"),
        ("run", "code", 'compare(prediction, 1, "00: what happens")'),
        *((f"more-{number}", "", prose) for number in range(10)),
        ("deeper", "", f"### Deeper\n\n{prose} [This](./there.txt) and [that](https://example.org) are linked."),
        ("picture", "code", "draw()"),
        ("exercise", "", exercise),
        ("stub", "code", "def answer():\n    raise NotImplementedError"),
        ("check", "code", 'from labkit.course import check, why\n\ncheck("0.1", answer)'),
        ("why", "code", 'why("0.1", "")  # in your words'),
        *((f"recap-{number}", "", question.format(number)) for number in (1, 2, 3)),
        ("one-more", "", prose),
        ("next", "", f"## Where to go next\n\n{prose}"),
    ]
    notebook = nbformat.v4.new_notebook()
    for name, kind, source in sources:
        new = nbformat.v4.new_code_cell if kind else nbformat.v4.new_markdown_cell
        notebook.cells.append(new(source, id=name))
    for count, cell in enumerate(code_cells(notebook), start=1):
        cell.execution_count = count
    result = nbformat.v4.new_output
    data = {"text/plain": "as text\n\na picture", "image/png": "iVBOR"}
    metadata = {"image/png": {"alt": "A picture of this and that."}}
    cell_of(notebook, "picture").outputs = [result("execute_result", data, metadata=metadata, execution_count=3)]
    said = f"{NO_PREDICTION}\n"
    cell_of(notebook, "run").outputs = [result("stream", name="stdout", text=said)]
    not_yet = {"text/plain": str(CheckResult("0.1", False))}
    cell_of(notebook, "check").outputs = [result("execute_result", not_yet, execution_count=5)]
    said = "why 0.1: not answered yet\n"
    cell_of(notebook, "why").outputs = [result("stream", name="stdout", text=said)]
    cell_of(notebook, "check").metadata = nbformat.from_dict({"editable": False, "deletable": False})
    return refresh.cleaned(notebook)


def cell_of(notebook: Notebook, name: str) -> Cell:
    return next(cell for cell in notebook.cells if cell.id == name)


def say(name: str, old: str, new: str) -> Callable[[Notebook], None]:
    """A change of a cell's source."""

    def change(notebook: Notebook) -> None:
        cell = cell_of(notebook, name)
        assert old in cell.source
        cell.source = cell.source.replace(old, new)

    return change


def show(name: str, /, **fields: Any) -> Callable[[Notebook], None]:
    """A change of a cell's first output."""

    def change(notebook: Notebook) -> None:
        cell_of(notebook, name).outputs[0].update(nbformat.from_dict(fields))

    return change


def tell(name: str, /, **fields: Any) -> Callable[[Notebook], None]:
    """A change of a cell's metadata."""

    def change(notebook: Notebook) -> None:
        cell_of(notebook, name).metadata.update(nbformat.from_dict(fields))

    return change


def drop(*names: str) -> Callable[[Notebook], None]:
    def change(notebook: Notebook) -> None:
        notebook.cells = [cell for cell in notebook.cells if cell.id not in names]

    return change


def end_with(*more: Cell) -> Callable[[Notebook], None]:
    def change(notebook: Notebook) -> None:
        notebook.cells[-1:-1] = more

    return change


def set_to(name: str, field: str, value: Any) -> Callable[[Notebook], None]:
    def change(notebook: Notebook) -> None:
        cell_of(notebook, name)[field] = value

    return change


WIDGETS = nbformat.from_dict({"application/vnd.jupyter.widget-state+json": {}})
ERROR = nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])
SPLIT = [nbformat.v4.new_output("stream", name="stdout", text=f"{NO_PREDICTION} {number}\n") for number in (1, 2)]
SECOND = 'compare(prediction, 2, "00: more")'
BAD: list[tuple[str, str, Callable[[Notebook], None]]] = [
    ("size", "24 cells", drop("one-more")),
    ("size", "41 cells", end_with(*(nbformat.v4.new_markdown_cell("word " * 20) for _ in range(16)))),
    ("size", "next: 10[0-9] words of prose", say("next", "These", "word " * 81 + "These")),
    ("size", "stub: 22 lines of code", say("stub", "def", "\n" * 20 + "def")),
    ("size", "a typical prose cell", lambda one: [c.update(source="few words") for c in prose_cells(one)[:20]]),
    ("headings", "one heading of level 1", say("predict", "## Predict", "# Predict")),
    ("headings", "one heading of level 1", say("title", "# A title", "A title")),
    ("headings", "level 4 below one of level 2", say("deeper", "### Deeper", "#### Deeper")),
    ("first_and_last_cell", "has a title", say("title", "# A", "A")),
    ("first_and_last_cell", "has its question", say("title", "what is it?", "what it is.")),
    ("first_and_last_cell", "minutes of reading", say("title", "Reading: 9", "Reading: some")),
    ("first_and_last_cell", "minutes of exercise", say("title", "Exercise: 5", "Exercise: some")),
    ("first_and_last_cell", "what to know before", say("title", "You need", "We need")),
    ("first_and_last_cell", "where to go next", drop("next")),
    ("outputs_are_stored", r"execution counts \[1, 2, 7", set_to("picture", "execution_count", 7)),
    ("outputs_are_stored", r"execution counts \[1, None", set_to("run", "execution_count", None)),
    ("outputs_are_stored", "run: no output", set_to("run", "outputs", [])),
    ("outputs_are_stored", "picture: no output", set_to("picture", "outputs", [])),
    ("outputs_are_text_and_png", "widgets in the metadata", lambda one: one.metadata.update(widgets=WIDGETS)),
    ("outputs_are_text_and_png", "shows text/html", show("picture", data={"text/plain": "x", "text/html": "<p>"})),
    ("outputs_are_text_and_png", "shows image/svg", show("picture", data={"image/svg+xml": "<svg/>"})),
    ("outputs_are_text_and_png", "shows application/vnd", show("picture", data={refresh.WIDGET_VIEW: {}})),
    ("outputs_are_text_and_png", "shows an error", set_to("picture", "outputs", [ERROR])),
    ("outputs_are_text_and_png", "writes to stderr", show("run", name="stderr")),
    *(
        ("outputs_are_the_same_everywhere", "belongs to one machine", show("run", text=f"it is {text} here"))
        for text in (
            "/ho" + "me/ada/lab",
            "/tmp/x1",
            "C:\\lab",
            "<labkit.store.TaskStore object",
            "<Worker at 0x7f32>",
            "pid 4711",
            "12:34:56",
            "Traceback (most recent call last)",
        )
    ),
    ("pictures_have_words", "without alt text", show("picture", metadata={})),
    ("pictures_have_words", "without a text twin", show("picture", data={"image/png": "x", "text/plain": "<Figure>"})),
    ("ids", "'why' is there 2 times", set_to("stub", "id", "why")),
    ("exercises", r"checks of \['0.2'\] below headings of exercises \['0.1'\]", say("check", "0.1", "0.2")),
    ("exercises", r"checks of \['0.1a'\] below headings of exercises \['0.1'\]", say("check", "0.1", "0.1a")),
    ("exercises", r"checks of \['0.1'\] below headings of exercises \['0.1a'\]", say("exercise", "0.1", "0.1a")),
    ("exercises", r"below headings of exercises \['0.1', '0.1'\]", say("predict", "Predict", "Exercise 0.1: again")),
    ("exercises", "0.1: its question stands two cells above", drop("exercise")),
    ("exercises", "one to three ★ and minutes", say("exercise", "★★ ", "")),
    ("exercises", "one to three ★ and minutes", say("exercise", "★★", "★★★★")),
    ("exercises", "one to three ★ and minutes", say("exercise", "5 minutes", "soon")),
    ("exercises", "its stub stands above its check", say("stub", "raise NotImplementedError", "pass")),
    ("exercises", "its check is read-only", tell("check", editable=True)),
    ("exercises", "its check is read-only", tell("check", deletable=True)),
    ("exercises", "a why line follows", drop("why")),
    ("exercises", "stored check says 'not attempted yet'", show("check", data={"text/plain": "exercise 0.1: passed"})),
    ("code_fits_a_projector", "run: a line of 101 characters", say("run", "compare(", f"{'#' * 101}\ncompare(")),
    ("an_exercise_stands_alone", "check: check is not known", say("check", "import check, why", "import why")),
    ("an_exercise_stands_alone", "check: why is not known", say("check", "import check, why", "import check")),
    ("an_exercise_stands_alone", "check: sqlite3 is not", say("stub", "answer()", "answer(db: sqlite3.Connection)")),
    ("an_exercise_stands_alone", "picture: why is not known", say("picture", "draw()", 'why("10.2", "")')),
    ("code_is_plain", "run: a star import", say("run", "compare", "from labkit import *\ncompare")),
    ("code_is_plain", "run: a line that is no Python", say("run", "compare", "%matplotlib inline\ncompare")),
    ("code_is_plain", "run: a line that is no Python", say("run", "compare", "if True:\n    !ls\ncompare")),
    ("code_is_plain", "run: hidden", tell("run", jupyter={"source_hidden": True})),
    ("code_is_plain", "run: hidden", tell("run", collapsed=True)),
    ("code_is_plain", "run: hidden", tell("run", tags=["hide-input"])),
    ("predictions", "prediction: a prediction that is compared with nothing", say("run", "prediction,", "1,")),
    ("predictions", "prediction: a prediction that", say("run", "compare(prediction, 1, ", "prediction = None  # (")),
    ("predictions", "picture: a prediction that is compared with", say("picture", "draw()", "prediction = None")),
    (
        "predictions",
        "picture: compares a prediction that nobody",
        say("picture", "draw()", 'compare(prediction, 2, "00: more")'),
    ),
    ("predictions", "picture: a case that nobody is asked", say("picture", "draw()", 'found = walk("a/b#1")')),
    ("predictions", "run: stored with a prediction", show("run", text="predicted: 1; observed: 1; as predicted")),
    ("predictions", "run: says what was asked", say("run", ', "00: what happens"', "")),
    ("predictions", "run: says what was asked", say("run", "00: what", "what")),
    ("recap", "the recap asks questions 1 to 3", drop("recap-2")),
    ("recap", "the recap asks questions 1 to 3", say("recap-2", "shows?", "shows!")),
    ("recap", "recap-1: options a, b and c", say("recap-1", "<summary>b)", "<summary>d)")),
    ("recap", "recap-3: every option has a reason", say("recap-3", "No. Not at all.", "")),
    ("recap", "recap-3: one option is right", say("recap-3", "Yes. It really does.", "No. It really does not.")),
    ("links", "deeper: ./missing.txt is not there", say("deeper", "./there.txt", "./missing.txt")),
    ("links", "deeper: ./there.txt#part is a heading for the web", say("deeper", "./there.txt", "./there.txt#part")),
    ("vocabulary", "'Idempotence token' is not a word of the lab", say("deeper", "These", "Idempotence token these")),
    ("few_outputs_are_ignored", "2 cells", lambda one: [tell(n, tags=[IGNORED])(one) for n in ("run", "why")]),
    ("stored_as_refresh_leaves_it", "not as `make refresh`", tell("run", execution={"iopub.execute_input": "12"})),
    ("stored_as_refresh_leaves_it", "not as `make refresh`", set_to("run", "outputs", SPLIT)),
    ("stored_as_refresh_leaves_it", "not as `make refresh`", lambda one: one.metadata.update(toc={})),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "there.txt").touch()
    return tmp_path


@pytest.mark.parametrize("rule", RULES)
def test_a_good_notebook_breaks_no_rule(rule: str, folder: Path):
    assert list(RULES[rule](good_notebook(), folder)) == []


@pytest.mark.parametrize(("rule", "complaint", "spoil"), BAD, ids=[f"{rule}: {what}" for rule, what, _ in BAD])
def test_a_rule_notices_what_it_is_there_for(
    rule: str, complaint: str, spoil: Callable[[Notebook], object], folder: Path
):
    notebook = good_notebook()
    spoil(notebook)
    assert re.search(complaint, "\n".join(RULES[rule](notebook, folder)))


def test_every_rule_has_been_seen_to_complain():
    assert {rule for rule, _, _ in BAD} == RULES.keys()


def test_no_prediction_has_the_name_of_another_and_each_has_the_number_of_its_notebook():
    asked = [
        (path.stem[:2], name)
        for path in LESSONS
        for cell in code_cells(nbformat.read(path, as_version=4))
        for name in ABOUT.findall(cell.source)
    ]
    assert [one for one in asked if not one[1].startswith(one[0])] == []
    assert len({name for _, name in asked}) == len(asked) > 0


def test_an_exercise_that_is_there_twice_is_noticed():
    assert exercise_numbers([good_notebook(), good_notebook()]) == ["0.1", "0.1"]
