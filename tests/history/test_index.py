"""The page of every release: what it lists, in a browser, offline, without JavaScript, and with 500 releases."""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from buildcompare import __main__ as command_line
from buildcompare.comparison import analysis as workbench
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import check_params
from buildcompare.history.ledger import Entry, LedgerBuild, LedgerTest, read_ledger, record
from buildcompare.history.table import import_table
from buildcompare.report.index import index_rows, write_index
from buildcompare.results import dumps
from buildcompare.results.codes import Pair
from support import small_params

CATALOGUE = read_catalogue("mattermost")
MAX_BYTES = 2_000_000
HOSTILE = '<img src=x onerror=alert(1)>"&'


def entry(number: int, **more: Any) -> Entry:
    tests = [
        LedgerTest(
            name=f"{db}_unbounded",
            type="unbounded",
            db_engine=db,
            supported_users=Pair(9000.0 + 10 * number, 9100.0 + 7 * number),
        )
        for db in ("mysql", "postgresql")
    ]
    data: dict[str, Any] = {
        "name": f"v1.{number}",
        "position": number,
        "base": LedgerBuild(label=f"v1.{number - 1}.0", version=f"1.{number - 1}.0"),
        "new": LedgerBuild(label=f"v1.{number}.0-rc1", version=f"1.{number}.0-rc1"),
        "verdict": ("pass", "regression", "inconclusive", "invalid", None)[number % 5],
        "tests": tests,
        "setup": {"Load-test version": f"v{number // 3}", "App instances": "2 x c7i.2xlarge"},
        "source": "report",
        **more,
    }
    return Entry.model_validate(data)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 500 releases."""
    folder = tmp_path_factory.mktemp("many")
    record(folder / "ledger", [entry(number) for number in range(1, 501)])
    file, rows = write_index(folder / "reports", [folder / "ledger"])
    assert rows == 500
    return file


def test_the_published_history_on_one_page(real: Path, tmp_path: Path) -> None:
    import_table(real / "comparisons/history.csv", tmp_path / "ledger")
    file, rows = write_index(tmp_path / "reports", [tmp_path / "ledger"])
    ledger = read_ledger(tmp_path / "ledger")
    assert rows == len(ledger.entries)
    page = file.read_text("utf-8")
    listed = [row.entry.name for row in index_rows(tmp_path / "reports", [tmp_path / "ledger"], CATALOGUE)[0]]
    assert listed == [each.name for each in sorted(ledger.entries, key=lambda each: -(each.position or 0))]
    assert "7,097 → 7,126, <b>+0.4 %</b>" in page
    assert "8,638 → 6,537, <b>−24.3 %</b>" in page
    assert "none recorded" in page
    for row in index_rows(tmp_path / "reports", [tmp_path / "ledger"], CATALOGUE)[0]:
        for lines in (row.users, row.drift_lines):
            names = [line.test for line in lines]
            assert names == sorted(names), "in one order, whatever the table's"
    studies = index_rows(tmp_path / "reports", [tmp_path / "ledger"], CATALOGUE)[0][-3:]
    assert all(line.delta_percent and line.ci_low and line.ci_high for row in studies for line in row.users), (
        "with intervals"
    )


def test_reports_and_ledger_make_one_row(tmp_path: Path) -> None:
    params = small_params(tmp_path / "data", history=str(tmp_path / "ledger"))
    checked = check_params(params)
    results = workbench.analyse(checked, workbench.read_recordings(checked)).results
    for name in ("a report", "damaged", "half", "lost", "somebody's own", ".v1.9.123.x.making"):
        (tmp_path / "reports" / name).mkdir(parents=True)
    (tmp_path / "reports/a report/results.json").write_text(dumps(results), "utf-8")
    (tmp_path / "reports/a report/report.html").write_text("", "utf-8")
    (tmp_path / "reports/damaged/results.json").write_text("{", "utf-8")
    (tmp_path / "reports/lost/report.html").write_text("", "utf-8")
    (tmp_path / "reports/.v1.9.123.x.making/results.json").write_text(dumps(results), "utf-8")
    half = json.dumps({**json.loads(dumps(results)), "comparison": "\ud800"})
    (tmp_path / "reports/half/results.json").write_text(half, "utf-8")
    builds = {
        "base": LedgerBuild(label="v1.0.0", version="1.0.0"),
        "new": LedgerBuild(label="v1.1.0", version="1.1.0"),
    }
    record(tmp_path / "ledger", [entry(1), entry(2, name="recorded", **builds)])
    rows = index_rows(tmp_path / "reports", [], CATALOGUE)[0]
    assert [row.entry.name for row in rows] == ["small", "v1.1", "damaged", "half", "lost"]
    assert {row.fault for row in rows[2:4]} == {"results.json cannot be read by this version"}
    assert (rows[4].fault, rows[4].links) == ("results.json is missing", [("report", "lost/report.html")])
    assert rows[0].links == [("report", "a%20report/report.html"), ("results", "a%20report/results.json")]
    assert (rows[0].entry.verdict, rows[0].before) == (results.verdict, "v1.1")
    users = next(test.supported_users for test in results.tests if test.supported_users)
    assert (rows[0].users[0].before, rows[0].users[0].value) == (users.base, users.new)


def test_a_simulated_report_is_not_the_measured_comparison(tmp_path: Path) -> None:
    checked = check_params(small_params(tmp_path / "data"))
    results = workbench.analyse(checked, workbench.read_recordings(checked)).results
    (tmp_path / "reports/r").mkdir(parents=True)
    (tmp_path / "reports/r/results.json").write_text(dumps(results.model_copy(update={"simulated": True})), "utf-8")
    builds = {"base": LedgerBuild(label="v1.0.0", version="1.0.0"), "new": LedgerBuild(label="v1.1.0", version="1.1.0")}
    record(tmp_path / "ledger", [entry(1, name="measured", **builds)])
    rows = index_rows(tmp_path / "reports", [tmp_path / "ledger"], CATALOGUE)[0]
    assert [(row.entry.name, row.entry.simulated) for row in rows] == [("small", True), ("measured", False)]


def test_a_report_belongs_to_the_ledger_that_it_was_held_against(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "another"
    checked = check_params(small_params(tmp_path / "data", history=str(own)))
    builds = {"base": LedgerBuild(label="v1.0.0", version="1.0.0"), "new": LedgerBuild(label="v1.1.0", version="1.1.0")}
    record(own, [entry(1), entry(2, name="recorded", **builds)])
    record(other, [entry(7), entry(8, name="elsewhere", **builds)])
    results = workbench.analyse(checked, workbench.read_recordings(checked)).results
    (tmp_path / "reports/r").mkdir(parents=True)
    (tmp_path / "reports/r/results.json").write_text(dumps(results), "utf-8")
    names = [row.entry.name for row in index_rows(tmp_path / "reports", [other, own], CATALOGUE)[0]]
    assert "elsewhere" in names
    assert "recorded" not in names


def test_a_report_without_supported_users_borrows_no_drift(tmp_path: Path) -> None:
    checked = check_params(small_params(tmp_path / "data"))
    results = workbench.analyse(checked, workbench.read_recordings(checked)).results
    tests = [test.model_copy(update={"supported_users": None}) for test in results.tests]
    builds = {"base": LedgerBuild(label="v1.0.0", version="1.0.0"), "new": LedgerBuild(label="v1.1.0", version="1.1.0")}
    record(tmp_path / "ledger", [entry(1), entry(2, name="recorded", **builds)])
    (tmp_path / "reports/r").mkdir(parents=True)
    for held, before in ((results, "v1.1"), (results.model_copy(update={"tests": tests}), None)):
        (tmp_path / "reports/r/results.json").write_text(dumps(held), "utf-8")
        rows = index_rows(tmp_path / "reports", [tmp_path / "ledger"], CATALOGUE)[0]
        assert next(row.before for row in rows if row.entry.name == "small") == before


def test_names_of_strangers_stay_text(tmp_path: Path) -> None:
    record(
        tmp_path / "l",
        [entry(1, base=LedgerBuild(label=HOSTILE), setup={HOSTILE: "a"}), entry(2, setup={HOSTILE: "b"})],
    )
    file, _ = write_index(tmp_path / "reports", [tmp_path / "l"])
    page = file.read_text("utf-8")
    assert HOSTILE not in page
    assert page.count("onerror") == page.count(html.escape(HOSTILE, quote=False).replace('"', "&#34;")) > 0


def test_the_newest_of_those_outside_of_ledgers_comes_first(tmp_path: Path) -> None:
    checked = check_params(small_params(tmp_path / "data"))
    results = workbench.analyse(checked, workbench.read_recordings(checked)).results
    for new in ("v9.9.0", "v10.10.0-rc2", "v10.10.0", "v10.10.0-rc10", "v10.9.0", "nightly"):
        (tmp_path / "reports" / new).mkdir(parents=True)
        named = results.model_copy(update={"comparison": new, "new": results.new.model_copy(update={"label": new})})
        (tmp_path / "reports" / new / "results.json").write_text(dumps(named), "utf-8")
    rows = index_rows(tmp_path / "reports", [], CATALOGUE)[0]
    assert [row.entry.name for row in rows] == [
        "v10.10.0",
        "v10.10.0-rc10",
        "v10.10.0-rc2",
        "v10.9.0",
        "v9.9.0",
        "nightly",
    ]


def test_a_ledger_at_the_usual_place_needs_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    shutil.copytree(project / "params/metrics", tmp_path / "params/metrics")
    monkeypatch.setenv("BUILDCOMPARE_ROOT", str(tmp_path))
    record(tmp_path / "data/history/product", [entry(1), entry(2)])
    assert [row.entry.name for row in index_rows(tmp_path / "reports", [], CATALOGUE)[0]] == ["v1.2", "v1.1"]


def test_no_release_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: Path) -> None:
    shutil.copytree(project / "params/metrics", tmp_path / "params/metrics")
    monkeypatch.setenv("BUILDCOMPARE_ROOT", str(tmp_path))
    done = CliRunner().invoke(command_line.app, ["index", "-o", str(tmp_path / "reports")])
    assert done.exit_code == 0
    assert "No report was published" in (tmp_path / "reports/index.html").read_text("utf-8")
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger/x.json").write_text("{")
    bad = CliRunner().invoke(
        command_line.app, ["index", "-o", str(tmp_path / "reports"), "--history", str(tmp_path / "ledger")]
    )
    assert bad.exit_code == 3


def test_the_page_asks_for_nothing(many: Path, requests_of: Callable[..., list[str]]) -> None:
    assert requests_of(many) == []
    text = many.read_text("utf-8").replace('"http://www.w3.org/', "")  # names, not addresses
    assert "http://" not in text
    assert "https://" not in text


def test_a_page_of_500_releases_is_small_and_without_errors(many: Path, browser: Any) -> None:
    assert many.stat().st_size < MAX_BYTES

    def look(browser: Any) -> tuple[int, list[str]]:
        page = browser.new_page()
        try:
            errors: list[str] = []
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
            page.goto(many.as_uri(), wait_until="load")
            return page.evaluate("document.querySelectorAll('#releases tbody tr').length"), errors
        finally:
            page.close()

    rows, errors = browser.run(look)
    assert rows == 500
    assert errors == []


def test_search_and_sort_by_keyboard(many: Path, browser: Any) -> None:
    def look(browser: Any) -> dict[str, Any]:
        page = browser.new_page()
        try:
            page.goto(many.as_uri())
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
        finally:
            page.close()

    seen = browser.run(look)
    assert seen["none"] == []
    assert seen["one"] == ["v1.496"]
    assert seen["count"] == "1 of 500"
    assert seen["typed"] == ["v1.496"], "a keyboard has a hyphen where the page shows a minus sign"
    assert seen["said"] == "ascending"
    invalid = [f"v1.{number}" for number in range(500, 0, -1) if number % 5 == 3]
    assert seen["gravest"][: len(invalid)] == invalid
    assert seen["again"] == seen["gravest"], "whatever was sorted before"
    assert seen["last"][0] == "v1.499", "not judged"


@pytest.mark.parametrize(("width", "zoom"), [(380, 1.0), (1200, 2.0), (1200, 1.0)])
def test_no_content_is_cut(many: Path, browser: Any, width: int, zoom: float) -> None:
    def look(browser: Any) -> tuple[int, int, str]:
        context = browser.new_context(java_script_enabled=False, viewport={"width": int(width / zoom), "height": 800})
        try:
            page = context.new_page()
            page.goto(many.as_uri())
            size = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
            return size[0], size[1], page.inner_text("main")
        finally:
            context.close()

    wide, shown, text = browser.run(look)
    assert wide <= shown
    assert "v1.500" in text
    assert "Regression" in text
    assert "Search" not in text, "a control that does nothing is not shown"


@pytest.mark.slow
def test_results_are_plain_data(many: Path) -> None:
    """The rows' sort keys are numbers, so that no row falls out of the order."""
    keys = [part.split('"')[0] for part in many.read_text("utf-8").split('data-sort="')[1:]]
    assert len(keys) == 500 * 5
    assert all(isinstance(json.loads(key), (int, float)) for key in keys)
