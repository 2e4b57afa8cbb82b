"""The charts of the index in a real browser: what they say is what the ledger holds, and a click opens the report."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ledgers
from buildcompare.comparison import analysis as workbench
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import check_params
from buildcompare.history.ledger import Entry, read_ledger, record
from buildcompare.history.levels import USERS, level_changes, over_releases
from buildcompare.report.index import write_index
from buildcompare.results import dumps
from buildcompare.text.numbers import test_words as words_of
from conftest import BrowserThread
from support import small_params

COUNT, STEP = 40, 18  # comparisons; from this one on the new builds' API times are half as long again
UNITS = {"ms": 1e-3, "s": 1.0, "users": 1.0}


def entry(number: int, **more: Any) -> Entry:
    rng = np.random.default_rng(number)
    tests: list[dict[str, Any]] = []
    for db in ("mysql", "postgresql"):
        users = {side: float(round(9000 * math.exp(rng.normal(0, 0.02)))) for side in ("base", "new")}
        known = {"name": f"{db}_unbounded", "type": "unbounded", "db_engine": db, "supported_users": users}
        if number == 5:  # imported from a table: it knows nothing else
            tests.append(known)
            continue
        bounded = {"name": f"{db}_bounded", "type": "bounded", "db_engine": db}
        for test in (known, bounded):
            level = 0.02 * (1.5 if number >= STEP else 1.0)
            drawn = {side: [level * math.exp(rng.normal(0, 0.03))] for side in ("base", "new")}
            tests.append({**test, "levels_of_runs": {"avg-api-times": drawn, "own": {"base": [1.0], "new": [2.0]}}})
    builds, setup = (f"1.{number}.0", f"1.{number + 1}.0-rc1"), {"Tool": f"<b>{number // 20}</b>"}
    return ledgers.entry(f"v1.{number}", number + 1, builds, tests=tests, setup=setup, **more)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of a ledger."""
    folder = tmp_path_factory.mktemp("charts")
    record(folder / "ledger", [entry(number) for number in range(COUNT)])
    file, _ = write_index(folder / "reports", [folder / "ledger"])
    return file


def opened(browser: BrowserThread, file: Path, task: Callable[[Any], Any], **look: Any) -> Any:
    """`task` on the page once its charts are drawn."""

    def run(page: Any) -> Any:
        page.locator(".levels").first.scroll_into_view_if_needed()  # a chart is drawn when it is seen
        page.locator("build-chart[ready]").first.wait_for()
        return task(page)

    return browser.on_page(file, run, **{"viewport": {"width": 1280, "height": 1000}, **look})


def shown(page: Any) -> Any:
    """The plot of the one chart that is shown."""
    charts = page.locator("figure:not([hidden]) build-chart[ready]")
    charts.first.wait_for()
    assert page.locator(".levels figure:not([hidden])").count() == 1
    return charts.first.locator(".plot")


def read_at(page: Any, part: float) -> tuple[str, list[str]]:
    """Where the pointer is by the chart's words, and the readout of both builds."""
    plot = shown(page)
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + part * box["width"], box["y"] + 90)
    readout = plot.locator("xpath=preceding-sibling::p[1]")
    texts = [readout.locator(part).inner_text() for part in (".of-base", ".of-new", ".difference")]
    return plot.get_attribute("aria-valuetext"), texts


def value(text: str) -> float:
    match = re.search(r"([\d,.]+) (\S+)$", text)
    assert match, text
    return float(match[1].replace(",", "")) * UNITS[match[2]]


def test_a_click_the_enter_key_and_the_table_open_the_report(tmp_path: Path, browser: BrowserThread) -> None:
    checked = check_params(small_params(tmp_path / "data"))
    results = workbench.analyse(checked, workbench.read_recordings(checked)).results
    report = tmp_path / "reports/a #1 report/report.html"
    report.parent.mkdir(parents=True)
    report.write_text("<!doctype html><title>The report</title>")
    (report.parent / "results.json").write_text(dumps(results), "utf-8")
    builds = {side: {"label": f"v1.{i}.0", "version": f"1.{i}.0"} for i, side in enumerate(("base", "new"))}
    record(tmp_path / "ledger", [entry(10), entry(11, **builds), entry(12)])
    file, _ = write_index(tmp_path / "reports", [tmp_path / "ledger"])
    test = next(test for test in results.tests if test.supported_users)
    users, words = test.supported_users, words_of(test.type, test.db_engine)
    assert users

    def place(page: Any, part: float) -> tuple[float, float]:
        box = shown(page).bounding_box()
        return box["x"] + 58 + part * (box["width"] - 68), box["y"] + 90

    def click(page: Any) -> Any:
        page.get_by_label("Test").select_option(words)
        before = page.url
        page.mouse.click(*place(page, 0.1))
        assert page.url == before, "the first has no report"
        said = read_at(page, 0.5)
        page.mouse.click(*place(page, 0.5))
        page.wait_for_url("**/report.html")
        urls = [page.url]
        page.go_back()
        page.get_by_label("Test").select_option(words)
        shown(page).focus()
        for key in ("End", "ArrowLeft", "Enter"):
            page.keyboard.press(key)
        page.wait_for_url("**/report.html")
        page.go_back()
        page.get_by_label("Test").select_option(words)
        shown(page)
        page.get_by_text("Values as a table").locator("visible=true").click()
        links = page.locator("figure:not([hidden]) build-chart .table a")
        urls += links.evaluate_all("links => links.map(a => a.href)")
        return said, urls

    (spoken, texts), urls = opened(browser, file, click, asks=True)
    assert spoken.startswith("small; ")
    assert [value(text) for text in texts[:2]] == pytest.approx([users.base, users.new], rel=5e-4)
    assert urls == [report.as_uri()] * 2

    def tap(page: Any) -> list[str]:
        page.get_by_label("Test").select_option(words)
        shown(page)
        found = []
        for _ in range(2):
            page.touchscreen.tap(*place(page, 0.5))
            page.wait_for_timeout(100)
            found.append(page.url)
        return found

    first, second = opened(browser, file, tap, asks=True, has_touch=True, viewport={"width": 380, "height": 1400})
    assert (first, second) == (file.as_uri(), report.as_uri()), "a finger reads first"


def test_charts_are_read_by_keys_as_tables_and_by_the_pointer(page_file: Path, browser: BrowserThread) -> None:
    def work(page: Any) -> Any:
        plot = shown(page)
        plot.focus()
        spoken = []
        for key in ("End", "ArrowLeft", "Home", "+", "0"):
            page.keyboard.press(key)
            spoken.append(plot.get_attribute("aria-valuetext").partition(";")[0].partition(",")[0])
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        table = plot.locator("xpath=following-sibling::details//table")
        table.locator("tbody tr").first.wait_for()
        rows = table.locator("tbody tr").evaluate_all(
            "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
        )
        page.get_by_label("Metric").select_option("Avg API times")
        page.get_by_label("Test").select_option("Bounded Postgres")
        assert page.get_by_label("Metric").input_value() == "Avg API times", "the choice is kept where it can be"
        return spoken, rows, *read_at(page, 0.8)

    spoken, rows, where, texts = opened(browser, page_file, work)
    assert spoken == ["v1.39", "v1.38", "v1.0", "v1.0", "v1.0"]
    held = read_ledger(page_file.parents[1] / "ledger").entries
    expected = [[each.name, *(f"{level:,.0f}" for level in each.tests[0].levels if level)] for each in held]
    assert [row[:3] for row in rows] == expected
    own = next(each for each in held if each.name == where.partition(";")[0].partition(",")[0])
    levels = next(each for each in own.tests if each.name == "postgresql_bounded").levels_of_runs["avg-api-times"]
    assert [value(text) for text in texts[:2]] == pytest.approx([levels.base[0], levels.new[0]], rel=5e-4)
    assert texts[0].startswith(f"base {own.base.label} ")
    percent = float(texts[2].removesuffix(" %").replace("−", "-"))
    assert percent == pytest.approx(100 * (levels.new[0] / levels.base[0] - 1), abs=0.06)


def test_pictures_stand_without_javascript(page_file: Path, browser: BrowserThread) -> None:
    def look(page: Any) -> tuple[int, str, int]:
        assert "Search" not in page.inner_text("main"), "a control that does nothing is not shown"
        pictures = page.locator(".levels figure svg[role=img]:visible")
        return pictures.count(), pictures.first.get_attribute("aria-label"), page.locator("select:visible").count()

    small = {"width": 380, "height": 800}
    count, words, selects = browser.on_page(page_file, look, java_script_enabled=False, viewport=small)
    assert (count, selects) == (4, 0), "one for each test"
    assert words.startswith("Supported users of both builds over 40 releases, v1.0 to v1.39, Unbounded MySQL.")


def test_a_level_that_changed_for_good_is_found_where_it_changed() -> None:
    releases = [entry(number).tests for number in range(COUNT)]
    found = {(each.test, each.slug): each for each in over_releases(releases, read_catalogue("mattermost"))}
    assert len(found) == 10
    assert next(iter(found)) == ("Unbounded MySQL", USERS)
    for (_, slug), series in found.items():
        assert [change.at for change in series.changes] == ([STEP] if slug == "avg-api-times" else [])
    series = found["Bounded MySQL", "avg-api-times"]
    assert series.changes[0].percent == pytest.approx(50, abs=4)
    assert np.isnan(series.levels[5]).all()
    assert (series.unit, found["Bounded MySQL", "own"].unit) == ("seconds", "")
    assert (found["Bounded MySQL", "own"].half, level_changes(np.full(30, np.nan))) == (None, [])
