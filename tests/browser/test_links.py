"""Links between pages lead to the heading that they name, in JupyterLab as on the web."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from conftest import Lab, open_and_run


def test_the_link_to_the_glossary_shows_the_glossary(page: Page, lab: Lab) -> None:
    open_and_run(page, lab, "00_start_here.ipynb")
    page.evaluate(
        """async () => {
            const notebook = window.jupyterapp.shell.currentWidget.content;
            await notebook.scrollToItem(notebook.widgets.length - 1);
        }"""
    )
    page.get_by_role("link", name="glossary").click()
    heading = page.locator(".jp-MarkdownViewer").get_by_role("heading", name="Words")
    expect(heading).to_be_in_viewport()
