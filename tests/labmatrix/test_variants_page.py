"""The page of a matrix in a real browser: short whatever the matrix holds, its charts answer to pointer and keys."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

import buildcompare as bc
from buildcompare.text.numbers import change
from conftest import BrowserThread
from labmatrix.params import check_variants, read_variants

HOSTILE = "<img src=x onerror=alert(1)>\"'</script>"
Made = tuple[bc.VariantsReport, Path]
SEEN = """() => ({
  words: document.body.innerText.split(/\\s+/).filter(Boolean).length,
  size: [document.documentElement.scrollHeight, document.documentElement.scrollWidth],
  findings: document.querySelectorAll("ol.findings > li").length,
})"""
ROWS = """() => {
  const plot = document.querySelector("build-intervals").shadowRoot.querySelector(".plot");
  const centre = (box) => box.left + box.width / 2;
  return [...plot.querySelectorAll(".row:has(.point)")].map((row) => {
    const track = row.querySelector(".track").getBoundingClientRect(), share = (x) => (x - track.left) / track.width;
    const span = row.querySelector(".span")?.getBoundingClientRect();
    return {
      name: row.firstElementChild.textContent,
      at: share(centre(row.querySelector(".point").getBoundingClientRect())),
      one: share(row.querySelector(".one").getBoundingClientRect().left),
      ends: span ? [share(span.left), share(span.right)] : null,
    };
  });
}"""


PLACES = """() => [...document.querySelectorAll("build-intervals")].flatMap((chart) =>
  chart.lines.map((line) => line.getBoundingClientRect().top + scrollY))"""
LINES = """() => [...document.querySelectorAll("build-intervals")].flatMap((chart) =>
  [...chart.shadowRoot.querySelectorAll(".place")].map(
    (tick) => tick.offsetHeight / parseFloat(getComputedStyle(tick).lineHeight)))"""


def large() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    disks, schedulers, scales = ["managed", "ephemeral"], ["none", "mq", HOSTILE], ["1", "10", "100"]
    runs = []
    for _, disk, scheduler, scale in itertools.product(range(3), disks, schedulers, scales):
        effect = 0.3 * (disk != "managed") - 0.15 * (scheduler == HOSTILE) * (disk == "managed")
        values = {f"operation {i}": float(np.exp(effect + rng.normal(0, 0.02))) for i in range(5)}
        levels = {"disk": disk, "scheduler": scheduler, "scale": scale}
        runs.append({"levels": levels, "values": values})
    operation = {"unit": "1/s", "better": "higher", "margin_percent": 5.0}
    return {
        "name": "large", "factors": {"disk": disks, "scheduler": schedulers, "scale": scales}, "workload": ["scale"],
        "baseline": {"disk": "managed", "scheduler": "none"}, "runs": runs,
        "operations": {f"operation {i}": operation for i in range(5)},
    }  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    result = bc.compare_variants(check_variants(large()))
    return result, result.to_html(tmp_path_factory.mktemp("large") / "report.html")


def test_the_page_is_short(browser: BrowserThread, made: Made, tmp_path: Path) -> None:
    files = [made[1]]
    files += [
        bc.compare_variants(read_variants(f"params/{name}.yaml")).to_html(tmp_path / f"{name}.html")
        for name in ("azbench", "ceilometer-schemas")
    ]
    assert len(made[0].result.contrasts) > 100
    for file in files:
        seen = browser.on_page(file, lambda page: page.evaluate(SEEN))
        assert seen["words"] <= 1500
        assert seen["size"][0] <= 6000
        assert 1 <= seen["findings"] <= 5
        small = {"width": 380, "height": 900}
        assert browser.on_page(file, lambda page: page.evaluate(SEEN), viewport=small)["size"][1] == 380
        assert file.stat().st_size < 2_500_000


def test_the_chart_stands_where_the_numbers_are_and_says_them(browser: BrowserThread, made: Made) -> None:
    result, file = made
    expected = result.result.most_telling("operation-0", 20)

    def task(page: Any) -> None:
        rows, chart = page.evaluate(ROWS), page.locator("build-intervals").first
        assert len(rows) == len(expected) == 20
        logs = np.log1p([[row.delta_percent / 100, row.ci_low / 100, row.ci_high / 100] for row in expected])
        lines = page.evaluate(LINES)
        assert lines
        assert max(lines) < 1.5, "a tick's label wraps over the text below"
        slope, start = np.polyfit(logs[:, 0], [row["at"] for row in rows], 1)
        for row, known in zip(rows, logs, strict=True):
            assert [row["at"], *row["ends"]] == pytest.approx(start + slope * known, abs=5e-3)
            assert row["one"] == pytest.approx(start, abs=5e-3)
        said = chart.locator(".readout").inner_text
        places = page.evaluate(PLACES)
        chart.locator(".point").nth(3).hover()
        names = [f"{each.variant.rpartition(' (')[0]} against {each.against.rpartition(' (')[0]}" for each in expected]
        assert [row["name"] for row in rows] == names
        assert change(expected[3].delta_percent) in said()
        assert page.evaluate(PLACES) == places, "what is said moves what is pointed at"
        chart.locator(".plot").focus()
        for key, i in (("Home", 0), ("ArrowDown", 1), ("End", 19), ("ArrowUp", 18)):
            page.keyboard.press(key)
            assert change(expected[i].delta_percent) in said()
            assert chart.locator(".plot").get_attribute("aria-valuetext") == said()
        table = page.get_by_text("operation 0: all")
        table.click()
        assert page.locator("details[open]").filter(has=table).locator("tbody tr").count() > len(rows)
        assert [fault["id"] for fault in Axe().run(page).response["violations"]] == []
        page.emulate_media(media="print")
        assert page.locator(".picture[open] svg").first.is_visible()
        assert not chart.locator(".plot").is_visible()

    browser.on_page(file, task)
