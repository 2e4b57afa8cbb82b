"""A result as the last line of a cell in real JupyterLab: verdict and table, styled, in light and dark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest

from conftest import BrowserThread
from jupyterlab_server import jupyterlab

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LIMIT_MS = 90_000
CELL = """import buildcompare as bc
bc.compare(bc.read_params("params/v11.1.0-rc2.yaml"))"""
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
LUMINANCE = """element => {
  const parts = getComputedStyle(element).color.match(/[0-9.]+/g).map(Number);
  return (0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]) / 255;
}"""


@pytest.fixture
def laboratory(tmp_path: Path, project: Path) -> Iterator[str]:
    """The address of a JupyterLab in its light theme, with a notebook of one cell."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("params", "data"):
        (folder / name).symlink_to(project / name)
    notebook: Any = nbformat.from_dict(  # type: ignore[no-untyped-call]
        {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
            "cells": [
                {"cell_type": "code", "id": "a", "metadata": {}, "source": CELL, "execution_count": None, "outputs": []}
            ],
        }
    )
    nbformat.write(notebook, folder / "one.ipynb")  # type: ignore[no-untyped-call]
    settings = {
        "@jupyterlab/apputils-extension/themes": {"theme": THEMES["light"], "adaptive-theme": False},
        "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    }
    with jupyterlab(folder, tmp_path / "home", settings) as url:
        yield url


def test_a_result_shows_verdict_and_table(laboratory: str, browser: BrowserThread, tmp_path: Path) -> None:
    seen: dict[str, dict[str, Any]] = {}
    shots = Path(os.environ.get("BUILDCOMPARE_SCREENSHOTS") or tmp_path)

    def by_hand(browser: Browser) -> None:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        try:
            page = context.new_page()
            page.set_default_timeout(LIMIT_MS)
            page.goto(f"{laboratory}/lab/tree/one.ipynb")
            page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()  # before, a run would be lost
            page.get_by_role("menuitem", name="Run", exact=True).click()
            page.get_by_text("Run All Cells", exact=True).click()
            verdict = page.locator(".jp-OutputArea .buildcompare .verdict")
            verdict.wait_for()
            for theme, name in THEMES.items():
                if theme != "light":
                    page.get_by_role("menuitem", name="Settings", exact=True).click()
                    page.get_by_text("Theme", exact=True).hover()
                    page.get_by_text(name, exact=True).click()
                page.locator(f"body[data-jp-theme-name='{name}']").wait_for(state="attached")
                page.screenshot(path=shots / f"result-{theme}.png")
                seen[theme] = {
                    "verdict": verdict.inner_text(),
                    "border": verdict.evaluate("element => getComputedStyle(element).borderLeftWidth"),
                    "ink": verdict.evaluate(LUMINANCE),
                    "rows": page.locator(".jp-OutputArea .buildcompare table.headline tbody tr").count(),
                }
        finally:
            context.close()

    browser.run(by_hand)
    assert list(seen) == ["light", "dark"]
    for theme, shown in seen.items():
        assert "." in shown["verdict"]
        assert shown["rows"] == 2
        assert shown["border"] == "6px"
        assert (shown["ink"] > 0.5) == (theme == "dark")
