"""The report on a course: what it tells of any journal, that it is safe, always the same, and never half written."""

import errno
import json
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import mistune
import pytest
from courses import begin, finish, labs_own_capsule, note_capsule

from labkit.cli import main
from labkit.course import Report, journal, report, why
from labkit.course.lessons import EXERCISES
from labkit.course.questions import QUESTIONS
from labkit.course.report import HTML_FILE, MARKDOWN_FILE
from labkit.course.report_markdown import fenced, inline
from labkit.show.diagram import NoRenderer

UNTOUCHED = f"a report of 0 of {len(EXERCISES)} exercises: recovery-report.html and recovery-report.md"
VOID = {"meta", "img", "br", "link"}
EVIL = (
    "</pre></blockquote></details><script>alert(1)</script> ``` ~~~ ````` | a | <b onclick=x> &amp; [x](y) **b**\n# H"
)


class Page(HTMLParser):
    """A page as its elements: tags with their attributes, and all the text inside each element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[int] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(len(self.found) - 1)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.found[self.open.pop()][0] == tag

    def handle_data(self, data: str) -> None:
        for number in self.open:
            self.texts[number] += data

    def all(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.found if tag in tags]

    def text_of(self, tag: str) -> list[str]:
        return [text for (found, _), text in zip(self.found, self.texts, strict=True) if found == tag]


def faults(page: Page) -> list[str]:
    """Say what is wrong with a page for those who cannot see it, and what of it would reach out."""
    wrong = [f"no lang in {one}" for one in page.all("html") if one.get("lang") != "en"]
    headings = [int(tag[1]) for tag, _ in page.found if re.fullmatch("h[1-6]", tag)]
    wrong += [
        f"h{one} after h{before}" for before, one in zip([0, *headings], headings, strict=False) if one > before + 1
    ]
    wrong += ["not one h1"] if headings.count(1) != 1 else []
    wrong += [f"an empty {tag}" for tag in ("h1", "h2", "h3", "th", "caption") for one in page.text_of(tag) if not one]
    wrong += [f"no scope: {one}" for one in page.all("th") if one.get("scope") not in {"col", "row"}]
    wrong += [f"no alt: {one}" for one in page.all("img") if not one.get("alt")]
    wrong += [f"no name: {one}" for one in page.all("svg") if one.get("role") != "img" or not one.get("aria-label")]
    ids = Counter(one["id"] for _, one in page.found if "id" in one)
    wrong += [f"id twice: {name}" for name, count in ids.items() if count > 1]
    wrong += [f"an active {tag}" for tag, _ in page.found if tag in {"script", "iframe", "object", "form", "link"}]
    for tag, attributes in page.found:
        wrong += [f"{tag} {name}" for name in attributes if name.startswith("on")]
        wrong += [f"{tag} to {one}" for one in (attributes.get("href"), attributes.get("src")) if not _inside(one)]
    return wrong


def _inside(address: str | None) -> bool:
    return address is None or address.startswith(("#", "data:image/png;base64,"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Report]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_HOME", str(tmp_path_factory.mktemp("finished")))
        finish()
        yield report()


def html(written: Report) -> str:
    return written.html.read_text(encoding="utf-8")


def markdown(written: Report) -> str:
    return written.markdown.read_text(encoding="utf-8")


def rendered(text: str) -> Page:
    """The Markdown as a page, with raw HTML let through: what of a student's text is markup would be seen."""
    made = mistune.create_markdown(escape=False, plugins=["table"])(text)
    assert isinstance(made, str)
    return Page(made)


# --- what it tells ----------------------------------------------------------------------------------


def test_of_an_untouched_course_it_says_the_same_everywhere(home: Path):
    written = report()
    assert (str(written), written._repr_mimebundle_()) == (UNTOUCHED, {"text/plain": UNTOUCHED})
    assert (written.html, written.markdown) == (home / HTML_FILE, home / MARKDOWN_FILE)
    assert sorted(one.name for one in home.iterdir()) == [HTML_FILE, MARKDOWN_FILE]
    for text in (html(written), markdown(written)):
        assert str(home) not in text
        assert "Last entry of the journal: none yet" in text
        assert text.count("not attempted") == len(EXERCISES)
        assert "0 a surprise" not in text
        assert re.search(r"\b20\d\d-\d\d", text) is None
    assert faults(Page(html(written))) == []


def test_an_empty_journal_is_as_good_as_none(home: Path):
    journal.note("prediction", "x", predicted="1", observed="1", right=True)
    with sqlite3.connect(home / journal.FILE) as db:
        db.execute("DELETE FROM entries")
    db.close()
    assert str(report()) == UNTOUCHED


def test_a_half_finished_course_is_told_as_far_as_it_goes(home: Path, tmp_path: Path):
    begin()
    written = report(tmp_path / "a new folder" / "within")
    assert str(written).startswith(f"a report of 2 of {len(EXERCISES)} exercises, 1 passed: ")
    assert str(written.html.resolve()) in written._repr_mimebundle_()["text/html"]
    text = markdown(written)
    assert "- **0.1** one refund, whatever happens: ✔ passed\n    - 3 refunds, run without a crash" in text
    assert "- **2.1** claim a task: ✘ not passed\n    - one\\_says\\_yes: " in text
    assert "| 00: refunds after a blind replay | 1 | 2 | ! a surprise |" in text
    assert "| 00: refunds under the same key | 1 | 1 | ✔ as predicted |" in text
    assert "```text\nWith the attempt in it,\n\nthe remote sees two requests.\n```" in text
    assert "## The trade-off (10.2)\n\nNot written yet." in text
    page = Page(html(written))
    assert faults(page) == []
    assert page.text_of("blockquote") == ["With the attempt in it,\n\nthe remote sees two requests."]
    assert {"who", "is about to", "the worker believes", "the database says"} <= set(page.text_of("th"))


def test_a_finished_course_has_every_part(finished: Report):
    assert (finished.attempted, finished.passed, finished.exercises) == (len(EXERCISES),) * 3
    page, text = Page(html(finished)), markdown(finished)
    assert faults(page) == []
    for part in (html(finished), text):
        assert "not attempted" not in part
        assert "all 1,234 schedules of 2 workers with up to 2 surprises keep every law" in part
        assert "Keys where the remote takes them, a query where it answers, else a person." in part
        assert all(f"Because of {number}." in part for number in EXERCISES)
    assert [one for one in page.text_of("summary") if "JSON" in one]
    headings = rendered(text).text_of("h3")
    assert [one.partition(":")[0] for one in headings][:2] == [
        "0.1 one refund, whatever happens",
        "1.1 the edges of a plain task",
    ]
    assert page.text_of("h3") == headings


def test_the_last_check_counts_and_that_an_earlier_one_passed_is_told(home: Path):
    journal.note("check", "2.1", passed=True, says="p", capsule="", shown=["shown once"])
    journal.note("check", "2.1", passed=False, says="f", capsule="", trouble="It raised KeyError: 3.")
    written = report()
    assert (written.attempted, written.passed) == (1, 1)
    assert f"1 of {len(EXERCISES)} exercises attempted, 1 passed, 1 of them not with the last answer." in markdown(
        written
    )
    assert "✘ not passed\n    - It raised KeyError: 3.\n    - An earlier answer passed." in markdown(written)
    assert "### 2.1 claim a task: not tried to the end\n\nMet once on " in markdown(written)


def test_a_failure_met_again_and_a_prediction_made_again_are_told_once(home: Path):
    for _ in range(3):
        journal.note("check", "2.1", passed=False, says="the same", capsule="", trouble="It raised KeyError: 3.")
        journal.note("prediction", "a question", predicted="1", observed="2", right=False)
    journal.note("prediction", "a question", predicted="2", observed="2", right=True)
    text = markdown(report())
    assert text.count("### 2.1 claim a task") == 1
    assert "\nMet 3 times, first on " in text
    assert [line for line in text.splitlines() if line.startswith("| a question")] == [
        "| a question | 1 | 2 | ! a surprise |",
        "| a question | 2 | 2 | ✔ as predicted |",
    ]


def test_of_failures_that_broke_the_same_law_of_an_exercise_the_first_is_told(home: Path):
    for number in (1, 2, 3):
        broke = {"run": f"run {number}", "law": "one_says_yes", "broke": f"It broke {number}."}
        journal.note("check", "2.1", passed=False, says=f"form {number}", capsule="", **broke)
    text = markdown(report())
    assert text.count("### 2.1 claim a task: one\\_says\\_yes\n\nMet 3 times, first on ") == 1
    assert "**one\\_says\\_yes**: It broke 1." in text
    assert "It broke 2." not in text


def test_answers_stand_below_what_was_asked(home: Path):
    why("2.2", "It must stop.")
    why("10.1", "My first key had a number in it.")
    asked, text = QUESTIONS["2.2"], markdown(report())
    assert f"### 2.2 save progress\n\n{asked}\n\n" in text.replace(EXERCISES["2.2"].title, "save progress")
    assert "### 10.1 your failure cases\n\nthe failure, the gap, and the line that closed it\n\n" in text
    assert asked in html(report())


def test_a_check_noted_by_an_older_version_is_shown_as_it_was_said(home: Path):
    journal.note("check", "2.1", passed=False, says="exercise 2.1: not passed.\n  a   table", capsule="")
    assert "exercise 2.1: not passed.\n  a   table" in Page(html(report())).text_of("pre")
    assert "```text\nexercise 2.1: not passed.\n  a   table\n```" in markdown(report())


def test_the_labs_own_run_is_played_again_as_a_timeline_and_a_students_is_not(home: Path):
    capsule = labs_own_capsule()
    note_capsule(capsule)
    written = report()
    (picture,) = Page(html(written)).all("img")
    assert str(picture["alt"]).startswith("Timeline: blind_replay: ")
    assert "Verdict: duplicated." in str(picture["alt"])
    assert "what the remote ledger shows" in markdown(written)
    assert capsule in Page(html(written)).text_of("pre")
    assert fenced(capsule, "json") in markdown(written)

    setup = json.loads(capsule)
    setup["setup"]["program"] = {"label": "mine"}
    note_capsule(json.dumps(setup), "10.1b")
    note_capsule(capsule[:-40], "10.1c")
    page = Page(html(report()))
    assert len(page.all("img")) == 1
    assert {json.dumps(setup), capsule[:-40]} <= set(page.text_of("pre"))


def test_a_run_too_long_for_a_sheet_of_paper_is_shown_as_text(home: Path, monkeypatch: pytest.MonkeyPatch):
    note_capsule(labs_own_capsule())
    monkeypatch.setattr("labkit.course.report_html.MOST_MOMENTS", 5)
    page = Page(html(report()))
    assert page.all("img") == []
    assert [one for one in page.text_of("pre") if "what the remote ledger shows" in one]


def test_without_a_renderer_the_states_are_told_in_text(home: Path, monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object) -> bytes:
        raise NoRenderer("none")

    assert len(Page(html(report())).all("svg")) == 2
    monkeypatch.setattr("labkit.show.diagram.draw", fails)
    page = Page(html(report()))
    assert page.all("svg") == []
    assert faults(page) == []
    assert page.text_of("pre")[0].startswith("[queued]  (start)\n       claim")


# --- journals that are not as they should be --------------------------------------------------------


def test_a_damaged_journal_is_put_aside_and_the_report_says_so(home: Path):
    home.mkdir()
    (home / journal.FILE).write_bytes(b"no database at all" * 500)
    said = "An earlier journal was damaged and put aside; nothing of it is shown here."
    assert str(report()) == f"{UNTOUCHED}\n{said}"
    assert said in html(report())
    assert said in markdown(report())


def test_a_file_of_another_program_is_left_alone_and_the_report_says_so(home: Path):
    home.mkdir()
    with sqlite3.connect(home / journal.FILE) as db:
        db.execute("PRAGMA application_id = 7")
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    before = (home / journal.FILE).read_bytes()
    said = (
        "The journal cannot be read, so nothing of it is shown here: it is a database of another program "
        "(application id 7). What to do: set LABKIT_HOME to another folder; this one is left as it is."
    )
    assert said in str(report())
    assert said in html(report())
    assert (home / journal.FILE).read_bytes() == before


@pytest.mark.parametrize("data", ["{", '"text"', "[" * 100_000])
def test_an_entry_that_nobody_understands_does_not_stop_a_report(home: Path, data: str):
    journal.note("check", "0.1", passed=True, says="", capsule="", shown=["this"])
    with sqlite3.connect(home / journal.FILE) as db:
        db.execute("INSERT INTO entries (at, kind, name, data) VALUES (1e300, 'check', '2.1', ?)", (data,))
    db.close()
    assert faults(Page(html(report()))) == []


@pytest.mark.parametrize("kind", journal.KINDS)
def test_a_field_of_the_wrong_kind_counts_as_not_there(home: Path, kind: str):
    names = ("passed", "says", "capsule", "shown", "story", "law", "run", "predicted", "observed", "right", "answer")
    for value in (None, 3, [], [[1], None], {"rows": [[1], ["a", "b"]], "headers": ["x"]}, {"rows": []}):
        journal.note(kind, "2.1", **dict.fromkeys(names, value))
        journal.note(kind, "", **dict.fromkeys(names, value))
    written = report()
    assert faults(Page(html(written))) == []
    assert (written.attempted, written.passed) == (int(kind == "check"), 0)
    assert "No answer is in the journal yet." in html(written)


# --- a student's text is text -----------------------------------------------------------------------


def test_a_students_text_is_escaped_wherever_it_stands(home: Path):
    story = {"headers": [EVIL, ""], "rows": [[EVIL, "\ud800\x00\x1b[31m"]], "notes": [EVIL]}
    words = dict.fromkeys(
        ("says", "run", "law", "broke", "trouble", "capsule", "predicted", "observed", "answer"), EVIL
    )
    for number in ("2.1", "10.2", EVIL):
        for kind in journal.KINDS:
            journal.note(kind, number, passed=False, story=story, **words)
            journal.note(kind, number, passed=True, shown=[EVIL], **words)
            journal.note(kind, number, passed=False, **words | {"says": f"older {EVIL}", "trouble": "", "law": ""})
    written = report()
    page = Page(html(written))
    assert faults(page) == []
    assert set(page.text_of("blockquote")) == {EVIL}
    assert Counter(page.text_of("pre")) == {EVIL: 6, f"older {EVIL}": 3}
    assert "\x00" not in html(written)

    shown = rendered(markdown(written))
    assert {tag for tag, _ in shown.found} == {
        *("h1", "h2", "h3", "p", "ul", "li", "strong", "pre", "code", "table", "thead", "tbody", "tr", "th", "td"),
        *("details", "summary"),
    }
    assert EVIL + "\n" in shown.text_of("code")
    assert " ".join(EVIL.split()) in shown.text_of("td")
    assert shown.text_of("h1") == ["Recovery Lab: report"]


def test_a_text_of_20000_letters_is_kept_whole_and_a_longer_one_is_cut_wherever_it_stands(home: Path):
    journal.note("why", "0.1", answer="x" * 20_000)
    journal.note("check", "0.1", passed=True, says="", capsule="", shown=["y" * 30_000, "z"])
    assert "x" * 20_000 in Page(html(report())).text_of("blockquote")
    assert Counter(html(report()))["Y"] + Counter(html(report()))["y"] in range(20_000, 29_999)
    assert "x" * 20_000 in markdown(report())


@pytest.mark.parametrize("text", ["`", "```", "a ````` b\n``````", "~~~", "", "\n", "> ```\n- ```"])
def test_no_text_ends_its_own_fence(text: str):
    page = rendered(f"{fenced(text)}\n\nafter\n")
    assert [tag for tag, _ in page.found] == ["pre", "code", "p"]
    assert page.text_of("p") == ["after"]
    assert page.text_of("code")[0].strip() == text.strip()


@pytest.mark.parametrize(
    "text", ["a|b", r"\|", "<b>", "*a* _b_ `c`", "[a](b)", "&lt;", "a\n\nb", "![x](y)", "\\", "~~a~~"]
)
def test_a_text_in_a_cell_is_shown_as_it_stands(text: str):
    page = rendered(f"| a | b |\n| --- | --- |\n| {inline(text)} | end |\n")
    assert page.text_of("td") == [" ".join(text.split()), "end"]


# --- writing ----------------------------------------------------------------------------------------


def test_two_reports_of_one_journal_are_the_same_bytes(finished: Report, tmp_path: Path):
    again = report(tmp_path)
    assert again.html.read_bytes() == finished.html.read_bytes()
    assert again.markdown.read_bytes() == finished.markdown.read_bytes()


def test_a_new_report_takes_the_place_of_the_old_one(home: Path):
    before = report()
    journal.note("why", "0.1", answer="new words")
    assert report() == before
    assert "new words" in html(before)
    assert sorted(one.name for one in home.iterdir() if one.suffix in {".html", ".md"}) == [HTML_FILE, MARKDOWN_FILE]


def test_a_folder_that_is_a_file_is_named_with_what_to_do(tmp_path: Path):
    (tmp_path / "taken").write_text("mine")
    told = report(tmp_path / "taken")
    assert str(told).startswith(
        f"The report cannot be written into {tmp_path / 'taken'}: {os.strerror(errno.EEXIST)}. "
    )
    assert "name another folder" in told.unwritten
    assert told._repr_mimebundle_() == {"text/plain": str(told)}
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_full_disk_leaves_the_earlier_report_as_it_was(home: Path, monkeypatch: pytest.MonkeyPatch):
    before = report()
    files = {one: one.read_bytes() for one in home.iterdir()}
    journal.note("why", "0.1", answer="new words")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    calls = iter([None, full])

    def fsync(_: int) -> None:
        if (error := next(calls)) is not None:
            raise error

    monkeypatch.setattr(os, "fsync", fsync)
    assert os.strerror(errno.ENOSPC) in report().unwritten
    assert {one: one.read_bytes() for one in (before.html, before.markdown)} == files
    assert {one.name for one in home.iterdir()} == {HTML_FILE, MARKDOWN_FILE, journal.FILE}


def test_a_name_that_is_taken_by_a_folder_is_said_and_nothing_is_left_behind(tmp_path: Path):
    (tmp_path / HTML_FILE / "mine").mkdir(parents=True)
    assert report(tmp_path).unwritten
    assert [one.name for one in tmp_path.iterdir()] == [HTML_FILE]


def test_the_command_writes_it_and_says_where(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["report"]) == 0
    assert capsys.readouterr().out.splitlines() == [UNTOUCHED, str(home / HTML_FILE), str(home / MARKDOWN_FILE)]
    assert main(["report", str(tmp_path / "here")]) == 0
    assert (tmp_path / "here" / HTML_FILE).exists()


def test_the_command_says_where_it_cannot(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "taken").write_text("mine")
    assert main(["report", str(tmp_path / "taken")]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("The report cannot be written into ")


def test_without_any_home_it_is_written_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def nowhere() -> Path:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr(journal, "home", nowhere)
    monkeypatch.chdir(tmp_path)
    written = report()
    assert "What to do: set LABKIT_HOME to a folder that can be written." in written.trouble
    assert sorted(one.name for one in tmp_path.iterdir()) == [HTML_FILE, MARKDOWN_FILE]
