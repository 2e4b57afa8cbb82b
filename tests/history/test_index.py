"""The page of every release: what it lists, in a browser, offline, without JavaScript, and with 500 releases."""

import html
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from buildcompare.config.catalogue import read_catalogue
from buildcompare.history.ledger import Entry, read_ledger, record
from buildcompare.report.index import IndexRow, index_rows, write_index
from buildcompare.results import Results, dumps
from conftest import BrowserThread
from ledgers import entry
from loadfiles.comparisons import import_table
from support import analysed, command, small_params

CATALOGUE = read_catalogue("mattermost")
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


def small(folder: Path, **more: Any) -> Results:
    return analysed(small_params(folder / "data", **more)).results


def publish(folder: Path, results: Results, name: str = "r") -> None:
    (folder / "reports" / name).mkdir(parents=True, exist_ok=True)
    (folder / "reports" / name / "results.json").write_text(dumps(results), "utf-8")


def rows_of(folder: Path, *ledgers: Path) -> list[IndexRow]:
    return index_rows(folder / "reports", ledgers, CATALOGUE)[0]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 500 releases."""
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
    assert [row.entry.name for row in rows] == [
        each.name for each in sorted(entries, key=lambda each: -(each.position or 0))
    ]
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
    half = json.dumps({**json.loads(dumps(results)), "comparison": "\ud800"})
    (tmp_path / "reports/half/results.json").write_text(half, "utf-8")
    record(tmp_path / "ledger", [release(1), release(2, **SAME)])
    rows = rows_of(tmp_path)
    assert [row.entry.name for row in rows] == ["small", "v1.1", "damaged", "half", "lost"]
    assert {row.fault for row in rows[2:4]} == {"results.json cannot be read by this version"}
    assert (rows[4].fault, rows[4].links) == ("results.json is missing", [("report", "lost/report.html")])
    assert rows[0].links == [("report", "a%20report/report.html"), ("results", "a%20report/results.json")]
    assert (rows[0].entry.verdict, rows[0].before) == (results.verdict, "v1.1")
    users = next(test.supported_users for test in results.tests if test.supported_users)
    assert (rows[0].users[0].before, rows[0].users[0].value) == (users.base, users.new)


def test_which_record_a_report_belongs_to(tmp_path: Path) -> None:
    """A simulated report is not the measured comparison; without supported users it has no drift."""
    own, other = tmp_path / "own", tmp_path / "another"
    record(own, [release(1), release(2, **SAME)])
    record(other, [release(7), release(8, **SAME)])
    publish(tmp_path, small(tmp_path, history=str(own)))
    names = {row.entry.name for row in rows_of(tmp_path, other, own)}
    assert names == {"small", "v1.1", "v1.7", "v1.8"}, "the report was held against its ledger"
    results = small(tmp_path)
    without = [test.model_copy(update={"supported_users": None}) for test in results.tests]
    for changed, before in (({}, "v1.1"), ({"tests": without}, None)):
        publish(tmp_path, results.model_copy(update=changed))
        assert next(row.before for row in rows_of(tmp_path, own) if row.entry.name == "small") == before
    publish(tmp_path, results.model_copy(update={"simulated": True}))
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
        label = results.new.model_copy(update={"label": new})
        publish(tmp_path, results.model_copy(update={"comparison": new, "new": label}), new)
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
    asked = ["index", "-o", tmp_path / "reports", "--history", tmp_path / "ledger"]
    assert command(*asked).exit_code == 3
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
