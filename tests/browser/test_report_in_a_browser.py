"""The report as it is looked at: on a screen, on a phone, in the dark and on A4, and by those who cannot see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from courses import finish
from playwright.sync_api import Browser, Page

from labkit.course import Report, journal, report

PHONE, SCREEN = 380, 1300
LONG = "x" * 20_000
RUN_AXE = "async () => (await axe.run()).violations.map(one => [one.id, one.nodes.map(node => node.html)])"
TOO_WIDE = """() => [document.documentElement, ...document.querySelectorAll('body *')]
    .filter(one => !one.closest('svg, .scroll, .unseen') && one.getBoundingClientRect().right > innerWidth + 1)
    .map(one => one.outerHTML.slice(0, 200))"""
STYLES = "([name, rule]) => [...document.querySelectorAll(name)].map(one => getComputedStyle(one)[rule])"
CUT = """() => [...document.querySelectorAll('body *')]
    .filter(one => !one.closest('svg, .unseen') && one.getClientRects().length && one.scrollWidth > one.clientWidth + 1
        && getComputedStyle(one).display !== 'inline')
    .map(one => one.outerHTML.slice(0, 200))"""


@dataclass(frozen=True)
class Course:
    """A course and its report."""

    name: str
    report: Report


@pytest.fixture(scope="module", params=["untouched", "finished"])
def course(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Course]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_HOME", str(tmp_path_factory.mktemp(request.param)))
        if request.param == "finished":
            finish()
            story = {"headers": ["a", "b"], "rows": [[LONG, "c"], ["c", LONG]], "notes": []}
            long = dict.fromkeys(("run", "law", "broke", "predicted", "observed", "answer", "capsule"), LONG)
            for kind in journal.KINDS:
                journal.note(kind, f"11.1{LONG}", passed=False, story=story, **long)
            journal.note("check", "7.1", passed=False, says=LONG, trouble=LONG, capsule="")
        yield Course(request.param, report())


def opened(browser: Browser, course: Course, width: int, scheme: Any) -> Page:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(course.report.html.as_uri())
    page.evaluate("() => document.querySelectorAll('details').forEach(one => one.open = true)")
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, SCREEN])
def test_axe_has_nothing_to_say_and_nothing_is_too_wide(browser: Browser, course: Course, width: int, scheme: str):
    page = opened(browser, course, width, scheme)
    page.evaluate(AXE_SCRIPT)
    assert page.evaluate(RUN_AXE) == []
    assert page.evaluate(TOO_WIDE) == []
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    page.close()


def test_on_paper_nothing_is_cut(browser: Browser, course: Course, tmp_path: Path):
    page = opened(browser, course, round((210 - 2 * 14) / 25.4 * 96), "light")
    page.emulate_media(media="print")
    assert page.evaluate(CUT) == []
    written = page.pdf(path=tmp_path / "report.pdf", prefer_css_page_size=True)
    assert written.startswith(b"%PDF-")
    page.close()


def test_on_paper_a_question_and_its_answer_and_the_lines_of_a_sentence_keep_together(browser: Browser, course: Course):
    page = opened(browser, course, SCREEN, "light")
    page.emulate_media(media="print")
    for name, rule in (("h3 + .quiet", "breakAfter"), ("article > p", "breakInside")):
        styles = page.evaluate(STYLES, [name, rule])
        assert set(styles) == ({"avoid"} if course.name == "finished" else set())
    page.close()


def test_a_dark_page_has_the_dark_picture_and_paper_the_light_one(browser: Browser, course: Course):
    page = opened(browser, course, SCREEN, "dark")
    day, night = page.locator("figure .day"), page.locator("figure .night")
    assert (day.is_visible(), night.is_visible()) == (False, True)
    page.emulate_media(media="print", color_scheme="dark")
    assert (day.is_visible(), night.is_visible()) == (True, False)
    page.close()
