"""The map of the course says what the notebooks say, in the README too."""

import re
from pathlib import Path

import nbformat
import pytest

from labkit.course import course_map
from labkit.course.lessons import EXERCISES
from labkit.course.outline import OUTLINE, SHORT_MINUTES, Lesson
from labkit.course.questions import QUESTIONS, TITLES

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def notebook(lesson: Lesson) -> nbformat.NotebookNode:
    return nbformat.read(ROOT / "notebooks" / f"{lesson.file}.ipynb", as_version=4)


def test_every_notebook_is_on_the_map_once():
    assert sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb")) == [lesson.file for lesson in OUTLINE]


@pytest.mark.parametrize("lesson", OUTLINE, ids=lambda lesson: lesson.file)
def test_minutes_and_needs_are_those_of_the_first_cell(lesson: Lesson):
    first = notebook(lesson).cells[0].source
    minutes = re.search(r"Reading: (\d+) minutes\. Exercises?: (\d+) minutes\.", first)
    assert minutes is not None
    assert (int(minutes[1]), int(minutes[2])) == (lesson.reading, lesson.exercises)
    needs = re.findall(r"\]\((\d\d)_\w+\.ipynb\)", first)
    assert ", ".join(needs) == lesson.needs


@pytest.mark.parametrize("lesson", OUTLINE, ids=lambda lesson: lesson.file)
def test_exercise_minutes_are_those_of_its_exercises(lesson: Lesson):
    asked = [
        int(found[1])
        for cell in notebook(lesson).cells
        if cell.cell_type == "markdown" and (found := re.search(r"★ · (\d+) minutes", cell.source))
    ]
    assert sum(asked) == lesson.exercises


def test_the_readme_shows_the_same_map():
    rows = [
        f"| [{one.file}](notebooks/{one.file}.ipynb) | {one.teaches} | {one.reading} | {one.exercises} "
        f"| {one.needs or '-'} | {'*' if one.short else ''} |"
        for one in OUTLINE
    ]
    assert "\n".join(rows) in README


def test_the_short_path_begins_at_the_beginning_and_leaves_out_nothing_that_it_needs():
    short = [one for one in OUTLINE if one.short]
    assert [one.number for one in short] == ["00", "02", "04", "05", "06"]
    assert {one.needs for one in short[1:]} <= {one.number for one in short}


def test_every_exercise_belongs_to_a_notebook_of_the_map():
    numbers = {int(one.number) for one in OUTLINE if one.exercises}
    assert {int(number.partition(".")[0]) for number in EXERCISES} == numbers


def test_every_why_of_the_notebooks_is_a_question_of_the_report_in_the_same_words():
    asked = [
        found.groups()
        for lesson in OUTLINE
        for cell in notebook(lesson).cells
        for found in re.finditer(r'^why\("([^"]+)", ""\)  # in your words: (.*)$', cell.source, re.MULTILINE)
    ]
    assert sorted(asked) == sorted(QUESTIONS.items())
    assert set(QUESTIONS) == {*EXERCISES, *TITLES}


def test_the_map_is_shown_as_text_with_a_star_for_the_two_hour_path():
    lines = str(course_map()).splitlines()
    assert sum(line.rstrip().endswith("*") for line in lines) == 5
    assert len(lines) == len(OUTLINE) + 5


def test_the_two_hours_are_the_reading_and_the_first_exercise_of_each_of_the_first_two_notebooks():
    lessons = [lesson for lesson in OUTLINE if lesson.short]
    minutes = sum(one.reading for one in lessons)
    for one in lessons[:2]:
        cells = (cell.source for cell in notebook(one).cells if cell.cell_type == "markdown")
        first = next(found for source in cells if (found := re.search(r"★ · (\d+) minutes", source)))
        minutes += int(first[1])
    assert minutes == SHORT_MINUTES == 120
    assert f"with the first exercise of the first two: {SHORT_MINUTES} minutes." in README
