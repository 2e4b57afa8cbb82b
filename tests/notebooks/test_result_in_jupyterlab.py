"""A result and a chart as the last lines of cells in real JupyterLab, styled, in light and dark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest

import buildcompare as bc
from buildcompare.comparison.analysis import read_recordings
from buildcompare.results.codes import SIDES
from conftest import BrowserThread
from jupyterlab_server import KEEP_CELLS, QUIET, jupyterlab, page_of, run_all_cells

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PARAMS = "params/v11.1.0-rc2.yaml"
CELLS = (
    f"""import buildcompare as bc
result = bc.compare(bc.read_params("{PARAMS}"))
result""",
    """from buildcompare.figures.curves import graph
view = result.tests()[0]
graph(view, next(row for row in view.result.metrics if row.slug == "p99-api-times"), "p99")""",
    'result.plot("p99-api-times");',
)
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
LUMINANCE = """element => {
  const parts = getComputedStyle(element).color.match(/[0-9.]+/g).map(Number);
  return (0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]) / 255;
}"""


@pytest.fixture
def laboratory(tmp_path: Path, project: Path) -> Iterator[str]:
    """The address of a JupyterLab in its light theme, with a notebook of three cells."""
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
                {
                    "cell_type": "code",
                    "id": f"c{i}",
                    "metadata": {},
                    "source": cell,
                    "execution_count": None,
                    "outputs": [],
                }
                for i, cell in enumerate(CELLS)
            ],
        }
    )
    nbformat.write(notebook, folder / "one.ipynb")  # type: ignore[no-untyped-call]
    theme = {"@jupyterlab/apputils-extension/themes": {"theme": THEMES["light"], "adaptive-theme": False}}
    with jupyterlab(folder, tmp_path / "home", KEEP_CELLS | QUIET | theme) as url:
        yield url


def test_a_result_shows_verdict_and_table_and_a_chart_answers(
    laboratory: str, browser: BrowserThread, tmp_path: Path
) -> None:
    seen: dict[str, dict[str, Any]] = {}
    chart: dict[str, Any] = {}
    shots = Path(os.environ.get("BUILDCOMPARE_SCREENSHOTS") or tmp_path)

    def by_hand(browser: Browser) -> None:
        with page_of(browser, f"{laboratory}/lab/tree/one.ipynb") as page:
            run_all_cells(page, "one")
            verdict = page.locator(".jp-OutputArea .buildcompare .verdict")
            verdict.wait_for()
            page.locator(".jp-OutputArea .jp-RenderedImage img").wait_for()
            page.locator(".jp-OutputArea build-chart").scroll_into_view_if_needed()
            plot = page.locator(".jp-OutputArea build-chart .plot")
            plot.hover()
            chart["minute"] = float(plot.get_attribute("aria-valuenow") or "nan")
            chart["values"] = [page.locator(f"build-chart .of-{side}").inner_text() for side in SIDES]
            page.locator("build-chart build-tools").get_by_label("v11.0.4").uncheck()
            chart["runs"] = page.locator("build-chart path.curve").count()
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
                    "curve": page.locator("build-chart path.curve.new").evaluate("e => getComputedStyle(e).stroke"),
                    "rows": page.locator(".jp-OutputArea .buildcompare table.headline tbody tr").count(),
                }

    browser.run(by_hand)
    assert list(seen) == ["light", "dark"]
    for theme, shown in seen.items():
        assert "." in shown["verdict"]
        assert shown["rows"] == 2
        assert shown["border"] == "6px"
        assert (shown["ink"] > 0.5) == (theme == "dark")
    assert seen["light"]["curve"] != seen["dark"]["curve"]
    assert chart["runs"] == 1
    recordings = read_recordings(bc.read_params(PARAMS))["postgresql_bounded"]
    for side, text in zip(SIDES, chart["values"], strict=True):
        curve = recordings[side][0].curve(recordings[side][0].total("p99-api-times"))
        nearest = curve.iloc[abs(curve.index / 60 - chart["minute"]).argmin()]
        assert text.endswith(" ms")
        assert float(text.split()[-2]) == pytest.approx(1e3 * nearest, rel=1e-3)
