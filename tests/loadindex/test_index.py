"""The page of every release: what it lists and draws, in a browser, offline, without JavaScript, with 500 releases."""

import html
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import buildcompare as bc
from buildcompare.history.ledger import Entry, read_ledger, record
from conftest import BrowserThread
from curves import CATALOGUE
from ledgers import entry
from loadfiles.comparisons import import_table
from loadindex.page import IndexRow, index_rows, write_index
from loadindex.releases import level_changes, over_releases
from support import command, small_params

MAX_BYTES = 2_000_000
HOSTILE = '<img src=x onerror=alert(1)>"&'


def release(number: int, **more: Any) -> Entry:
    users = dict.fromkeys(("mysql", "postgresql"), (9000.0 + 10 * number, 9100.0 + 7 * number))
    told = {
        "verdict": ("pass", "regression", "inconclusive", "invalid", None)[number % 5],
        "setup": {"Load-test version": f"v{number // 3}", "App instances": "2 x c7i.2xlarge"},
    }
    return entry(f"v1.{number}", number, (f"1.{number - 1}.0", f"1.{number}.0-rc1"), users, **{**told, **more})


SAME = {side: {"label": f"v1.{i}.0", "version": f"1.{i}.0"} for i, side in enumerate(("base", "new"))}
"""The builds of `small`."""


def small(folder: Path, **more: Any) -> dict[str, Any]:
    return dict(json.loads(bc.compare(bc.parameters(**small_params(folder / "data", **more))).to_json()))


def publish(folder: Path, results: dict[str, Any], name: str = "r") -> None:
    (folder / "reports" / name).mkdir(parents=True, exist_ok=True)
    (folder / "reports" / name / "results.json").write_text(json.dumps(results), "utf-8")


def rows_of(folder: Path, *ledgers: Path) -> list[IndexRow]:
    return index_rows(folder / "reports", ledgers, CATALOGUE)[0]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    record(folder / "ledger", [release(number) for number in range(1, 501)])
    file, rows = write_index(folder / "reports", [folder / "ledger"])
    assert rows == 500
    return file


def test_the_published_history_on_one_page(real: Path, tmp_path: Path) -> None:
    import_table(real / "comparisons/history.csv", tmp_path / "ledger")
    file, count = write_index(tmp_path / "reports", [tmp_path / "ledger"])
    entries, rows = read_ledger(tmp_path / "ledger").entries, rows_of(tmp_path, tmp_path / "ledger")
    assert count == len(entries)
    assert [row.entry for row in rows] == sorted(entries, key=lambda each: -(each.position or 0))
    page = file.read_text("utf-8")
    assert "7,097 → 7,126, <b>+0.4 %</b>" in page
    assert "8,638 → 6,537, <b>−24.3 %</b>" in page
    assert "none recorded" in page
    for lines in (lines for row in rows for lines in (row.users, row.drift_lines)):
        names = [line.test for line in lines]
        assert names == sorted(names), "in one order, whatever the table's"
    intervals = [(line.delta_percent, line.ci_low, line.ci_high) for row in rows[-3:] for line in row.users]
    assert all(all(each) for each in intervals), "studies have intervals"


def test_reports_and_ledger_make_one_row(tmp_path: Path) -> None:
    results = small(tmp_path, history=str(tmp_path / "ledger"))
    for name in ("a report", ".v1.9.123.x.making", "damaged", "half", "lost", "somebody's own"):
        publish(tmp_path, results, name)
    for name in ("lost", "somebody's own"):
        (tmp_path / "reports" / name / "results.json").unlink()
    for name in ("a report", "lost"):
        (tmp_path / "reports" / name / "report.html").write_text("", "utf-8")
    (tmp_path / "reports/damaged/results.json").write_text("{", "utf-8")
    half = json.dumps({**results, "comparison": "\ud800"})
    (tmp_path / "reports/half/results.json").write_text(half, "utf-8")
    record(tmp_path / "ledger", [release(1), release(2, **SAME)])
    rows = rows_of(tmp_path)
    assert [row.entry.name for row in rows] == ["small", "v1.1", "damaged", "half", "lost"]
    assert {row.fault for row in rows[2:4]} == {"results.json cannot be read by this version"}
    assert (rows[4].fault, rows[4].links) == ("results.json is missing", [("report", "lost/report.html")])
    assert rows[0].links == [("report", "a%20report/report.html"), ("results", "a%20report/results.json")]
    assert (rows[0].entry.verdict, rows[0].before) == (results["verdict"], "v1.1")
    users = next(test["supported_users"] for test in results["tests"] if test["supported_users"])
    assert (rows[0].users[0].before, rows[0].users[0].value) == (users["base"], users["new"])


def test_which_record_a_report_belongs_to(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "another"
    record(own, [release(1), release(2, **SAME)])
    record(other, [release(7), release(8, **SAME)])
    publish(tmp_path, small(tmp_path, history=str(own)))
    names = {row.entry.name for row in rows_of(tmp_path, other, own)}
    assert names == {"small", "v1.1", "v1.7", "v1.8"}, "the report was held against its ledger"
    results = small(tmp_path)
    without = [{**test, "supported_users": None} for test in results["tests"]]
    for changed, before in (({}, "v1.1"), ({"tests": without}, None)):
        publish(tmp_path, {**results, **changed})
        assert next(row.before for row in rows_of(tmp_path, own) if row.entry.name == "small") == before
    publish(tmp_path, {**results, "simulated": True})
    found = [(row.entry.name, row.entry.simulated) for row in rows_of(tmp_path, own)]
    assert found == [("small", True), ("v1.2", False), ("v1.1", False)]


def test_names_of_strangers_stay_text(tmp_path: Path) -> None:
    record(
        tmp_path / "l", [release(1, base={"label": HOSTILE}, setup={HOSTILE: "a"}), release(2, setup={HOSTILE: "b"})]
    )
    page = write_index(tmp_path / "reports", [tmp_path / "l"])[0].read_text("utf-8")
    assert HOSTILE not in page
    assert page.count("onerror") == page.count(html.escape(HOSTILE, quote=False).replace('"', "&#34;")) > 0


def test_the_newest_of_those_outside_of_ledgers_comes_first(tmp_path: Path) -> None:
    results = small(tmp_path)
    newest_first = ["v10.10.0", "v10.10.0-rc10", "v10.10.0-rc2", "v10.9.0", "v9.9.0", "nightly"]
    for new in sorted(newest_first):
        publish(tmp_path, {**results, "comparison": new, "new": {**results["new"], "label": new}}, new)
    assert [row.entry.name for row in rows_of(tmp_path)] == newest_first


def test_no_release_yet_and_a_ledger_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    shutil.copytree(project / "params/metrics", tmp_path / "params/metrics")
    monkeypatch.setenv("BUILDCOMPARE_ROOT", str(tmp_path))
    assert command("index", "-o", tmp_path / "reports").exit_code == 0
    assert "No report was published" in (tmp_path / "reports/index.html").read_text("utf-8")
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger/x.json").write_text("{")
    assert command("index", "-o", tmp_path / "reports", "--history", tmp_path / "ledger").exit_code == 3
    record(tmp_path / "data/history/product", [release(1), release(2)])
    assert [row.entry.name for row in rows_of(tmp_path)] == ["v1.2", "v1.1"]


def test_a_page_of_500_releases_is_small(
    many: Path, browser: BrowserThread, requests_of: Callable[..., list[str]]
) -> None:
    assert requests_of(many) == []
    text = many.read_text("utf-8").replace('"http://www.w3.org/', "")  # names, not addresses
    assert "http://" not in text
    assert "https://" not in text
    assert len(text.encode()) < MAX_BYTES
    count = "document.querySelectorAll('#releases tbody tr').length"
    assert browser.on_page(many, lambda page: page.evaluate(count)) == 500
    keys = [part.split('"')[0] for part in text.split('data-sort="')[1:]]
    assert len(keys) == 500 * 5
    assert all(isinstance(json.loads(key), (int, float)) for key in keys), "no row falls out of the order"


def test_search_and_sort_by_keyboard(many: Path, browser: BrowserThread) -> None:
    def look(page: Any) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        names = "[...document.querySelectorAll('#releases tbody tr:not([hidden]) th')].map(e => e.firstChild.data)"
        page.focus("#search")
        page.keyboard.type("v1.499 REGRESSION")
        seen["none"] = page.evaluate(names)
        page.fill("#search", "regression v1.496.0-rc1")
        seen["one"] = page.evaluate(names)
        seen["count"] = page.inner_text("#shown")
        page.fill("#search", "v1.496.0-rc1 -9.9 %")
        seen["typed"] = page.evaluate(names)
        page.fill("#search", "")
        for _ in range(2):  # past the name, to the verdict
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        seen["gravest"] = page.evaluate(names)
        seen["said"] = page.get_attribute("#releases thead th:nth-child(2)", "aria-sort")
        page.click("#releases thead button >> nth=2")
        page.click("#releases thead button >> nth=1")
        seen["again"] = page.evaluate(names)
        page.keyboard.press("Enter")
        seen["last"] = page.evaluate(names)
        return seen

    seen = browser.on_page(many, look)
    assert (seen["none"], seen["one"], seen["count"]) == ([], ["v1.496"], "1 of 500")
    assert seen["typed"] == ["v1.496"], "a keyboard has a hyphen where the page shows a minus sign"
    assert seen["said"] == "ascending"
    invalid = [f"v1.{number}" for number in range(500, 0, -1) if number % 5 == 3]
    assert seen["gravest"][: len(invalid)] == invalid
    assert seen["again"] == seen["gravest"], "whatever was sorted before"
    assert seen["last"][0] == "v1.499", "not judged"


COUNT, STEP = 40, 18  # comparisons; from this one on the new builds' API times are half as long again
UNITS = {"ms": 1e-3, "s": 1.0, "users": 1.0}


def measured(number: int, **more: Any) -> Entry:
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
    return entry(f"v1.{number}", number + 1, builds, tests=tests, setup=setup, **more)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("charts")
    record(folder / "ledger", [measured(number) for number in range(COUNT)])
    file, _ = write_index(folder / "reports", [folder / "ledger"])
    return file


def opened(browser: BrowserThread, file: Path, task: Callable[[Any], Any], **look: Any) -> Any:
    def run(page: Any) -> Any:
        page.locator(".levels").first.scroll_into_view_if_needed()  # a chart is drawn when it is seen
        page.locator("build-chart[ready]").first.wait_for()
        return task(page)

    return browser.on_page(file, run, **{"viewport": {"width": 1280, "height": 1000}, **look})


def shown(page: Any) -> Any:
    charts = page.locator("figure:not([hidden]) build-chart[ready]")
    charts.first.wait_for()
    assert page.locator(".levels figure:not([hidden])").count() == 1
    return charts.first.locator(".plot")


def read_at(page: Any, part: float) -> tuple[str, list[str]]:
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
    results = small(tmp_path)
    publish(tmp_path, results, "a #1 report")
    report = tmp_path / "reports/a #1 report/report.html"
    report.write_text("<!doctype html><title>The report</title>")
    record(tmp_path / "ledger", [measured(10), measured(11, **SAME), measured(12)])
    file, _ = write_index(tmp_path / "reports", [tmp_path / "ledger"])
    users, words = next(t["supported_users"] for t in results["tests"] if t["supported_users"]), "Unbounded Postgres"

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
    assert [value(text) for text in texts[:2]] == pytest.approx([users["base"], users["new"]], rel=5e-4)
    assert urls == [report.as_uri()] * 2

    def tap(page: Any) -> list[str]:
        page.get_by_label("Test").select_option(words)
        shown(page)
        page.touchscreen.tap(*place(page, 0.5))
        page.wait_for_timeout(100)
        read = page.url
        page.touchscreen.tap(*place(page, 0.5))
        page.wait_for_url("**/report.html")
        return [read, page.url]

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
    releases = [measured(number).tests for number in range(COUNT)]
    found = {(each.test, each.slug): each for each in over_releases(releases, CATALOGUE)}
    assert len(found) == 10
    assert next(iter(found)) == ("Unbounded MySQL", "supported-users")
    for (_, slug), series in found.items():
        assert [change.at for change in series.changes] == ([STEP] if slug == "avg-api-times" else [])
    series = found["Bounded MySQL", "avg-api-times"]
    assert series.changes[0].percent == pytest.approx(50, abs=4)
    assert np.isnan(series.levels[5]).all()
    assert (series.unit, found["Bounded MySQL", "own"].unit) == ("seconds", "")
    assert (found["Bounded MySQL", "own"].half, level_changes(np.full(30, np.nan))) == (None, [])
