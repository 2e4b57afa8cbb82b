"""The charts of a page in a real browser: what they say, how they move together, and that nothing leaves the page."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from axe_playwright_python.sync_playwright import Axe

import buildcompare as bc
from buildcompare.comparison.reading import read_recordings
from buildcompare.text.numbers import change
from conftest import BrowserThread

NAME = "v10.4.0-rc1"
UNFOLD = """() => {
  document.querySelectorAll(".picture").forEach((each) => (each.open = true));
  document.querySelector("#metrics ~ .pictures")?.scrollIntoView();
}"""
OPENED = """async () => {
  for (const chart of document.querySelectorAll("build-chart")) {
    chart.scrollIntoView();
    while (!chart.hasAttribute("ready")) await new Promise(requestAnimationFrame);
  }
  document.querySelector("build-chart[ready]").shadowRoot.querySelector("details").open = true;
  await new Promise((done) => setTimeout(done, 300));
}"""
UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}

Task = Callable[[Any], Any]


@pytest.fixture(scope="module")
def page_file(bundled: Callable[[str], Path]) -> Path:
    return bundled(NAME) / "report.html"


def opened(browser: BrowserThread, file: Path, task: Task, **look: Any) -> Any:
    def run(page: Any) -> Any:
        page.evaluate(UNFOLD)
        page.locator("build-chart[ready]").first.wait_for()
        return task(page)

    return browser.on_page(file, run, **look)


def chart(page: Any, name: str, test: str) -> Any:
    return page.locator(f"build-chart[group^='{test}'] .plot[aria-label^='{name}']").last


def hover(page: Any, plot: Any, part: float) -> None:
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + part * box["width"], box["y"] + 80)


def drag(page: Any, plot: Any, start: float, end: float) -> None:
    hover(page, plot, start)
    page.mouse.down()
    hover(page, plot, end)
    page.mouse.up()


def value(text: str) -> float:
    ((number, unit),) = re.findall(r"(-?[\d,.]+) ?(\S*)$", text)
    return float(number.replace(",", "")) * UNITS.get(unit, 1.0)


def percent(text: str) -> float:
    return float(text.removesuffix(" %").replace("−", "-"))


def recorded(side: str, slug: str, test: str = "mysql_bounded") -> pd.Series:
    recording = read_recordings(bc.read_params(f"params/{NAME}.yaml"))[test][side][0]
    return recording.curve(recording.total(slug))


def expected(side: str, slug: str, minute: float, test: str = "mysql_bounded") -> float:
    curve = recorded(side, slug, test)
    return float(curve.iloc[np.abs(curve.index.to_numpy() / 60 - minute).argmin()])


def test_hover_shows_both_values_and_their_difference_everywhere(page_file: Path, browser: BrowserThread) -> None:
    def read(page: Any) -> Any:
        hover(page, chart(page, "P99 API times", "mysql_bounded"), 0.6)
        shown = []
        for name in ("P99 API times", "Avg Store times"):
            plot = chart(page, name, "mysql_bounded")
            readout = plot.locator("xpath=preceding-sibling::p[1]")
            texts = [readout.locator(part).inner_text() for part in (".of-base", ".of-new", ".difference")]
            shown.append((float(plot.get_attribute("aria-valuenow")), plot.get_attribute("aria-valuetext"), *texts))
        elsewhere = page.locator("build-chart[group^='postgresql'] .plot[aria-valuenow]").count()
        return shown, elsewhere

    (p99, store), elsewhere = opened(browser, page_file, read)
    assert (p99[0], elsewhere) == (store[0], 0)
    for slug, (minute, spoken, *texts) in (("p99-api-times", p99), ("avg-store-times", store)):
        base, new = (expected(side, slug, minute) for side in ("base", "new"))
        assert (value(texts[0]), value(texts[1])) == (pytest.approx(base, rel=1e-3), pytest.approx(new, rel=1e-3))
        assert percent(texts[2]) == pytest.approx(100 * (new / base - 1), abs=0.06)
        assert f"{minute:.1f} min, plateau; v10.3.0 " in spoken
        assert spoken.endswith(texts[2])


def test_a_drag_zooms_all_charts_and_a_double_click_goes_back(page_file: Path, browser: BrowserThread) -> None:
    ranges = """[...document.querySelectorAll("#metrics ~ .pictures build-chart[ready]")].map((each) => {
      const plot = each.shadowRoot.querySelector(".plot");
      return [each.getAttribute("group"), +plot.getAttribute("aria-valuemin"), +plot.getAttribute("aria-valuemax")];
    })"""

    def work(page: Any) -> list[Any]:
        page.evaluate(OPENED)
        plot = chart(page, "P99 API times", "mysql_bounded")
        seen = [page.evaluate(ranges)]
        drag(page, plot, 0.4, 0.7)
        seen.append(page.evaluate(ranges))
        plot.dblclick(position={"x": 200, "y": 80})
        return [*seen, page.evaluate(ranges)]

    before, zoomed, after = opened(browser, page_file, work)
    assert after == before
    own = {tuple(ends) for group, *ends in zoomed if group.startswith("mysql_bounded")}
    ((low, high),) = own
    assert 20 < low < 45 < high < 75
    others = [row for row in zoomed if not row[0].startswith("mysql_bounded")]
    assert others
    assert others == [row for row in before if not row[0].startswith("mysql_bounded")]


def test_a_chart_that_is_drawn_later_is_zoomed_too(page_file: Path, browser: BrowserThread) -> None:
    def work(page: Any) -> list[float]:
        drag(page, chart(page, "Avg API times", "mysql_bounded"), 0.4, 0.7)
        late = page.locator("#mysql_bounded_0_stack-in-use")
        assert late.locator("build-chart:not([ready])").count() == 1
        late.scroll_into_view_if_needed()
        plot = chart(page, "Stack In Use", "mysql_bounded")
        plot.wait_for()
        return [float(plot.get_attribute(f"aria-value{end}")) for end in ("min", "max")]

    low, high = opened(browser, page_file, work, viewport={"width": 1280, "height": 500})
    assert 20 < low < high < 75


def test_builds_are_hidden_and_shown_and_the_axis_changes(page_file: Path, browser: BrowserThread) -> None:
    def work(page: Any) -> dict[str, Any]:
        tools = page.locator("#metrics ~ .pictures build-tools").first
        page.locator("#mysql_bounded_0_cpu-utilization").scroll_into_view_if_needed()
        plot = chart(page, "CPU Utilization", "mysql_bounded")
        plot.wait_for()
        curves = plot.locator("path.curve")
        runs = "paths => paths.map(each => each.dataset.run)"
        seen: dict[str, Any] = {"both": curves.evaluate_all(runs)}
        tools.get_by_label("v10.3.0").uncheck()
        seen["new"] = curves.evaluate_all(runs)
        tools.get_by_label("v10.3.0").check()
        seen["again"] = curves.evaluate_all(runs)
        tools.locator("select").select_option("users")
        hover(page, plot, 0.5)
        seen["axis"] = plot.inner_text()
        seen["users"], seen["said"] = float(plot.get_attribute("aria-valuenow")), plot.get_attribute("aria-valuetext")
        return seen

    seen = opened(browser, page_file, work)
    assert seen["both"] == seen["again"] == ["base 1", "new 1"]
    assert seen["new"] == ["new 1"]
    assert "connected users" in seen["axis"]
    # By hand: the mean of the minutes in which the mean number of users rounds to the cursor's.
    for side, said in zip(("base", "new"), seen["said"].split("; ")[1:3], strict=True):
        curves = {slug: recorded(side, slug) for slug in ("cpu-utilization", "number-of-connected-devices")}
        frame = pd.DataFrame(curves).loc[:5400.0]
        minute = frame.index.to_series() // 60
        users = frame["number-of-connected-devices"].groupby(minute).transform("mean")
        near = (users / 200).round() * 200 == seen["users"]
        assert value(said) == pytest.approx(frame["cpu-utilization"][near].mean(), rel=2e-3)


def test_from_the_ramps_start_each_build_is_read_at_its_own_time(page_file: Path, browser: BrowserThread) -> None:
    name = "postgresql_unbounded"

    def read(page: Any) -> tuple[float, str]:
        page.locator(f"build-tools[group^='{name}'] select").last.select_option("ramp")
        page.locator(f"#metrics ~ .pictures build-chart[group^='{name}']").first.scroll_into_view_if_needed()
        plot = chart(page, "Avg API times", name)
        hover(page, plot, 0.5)
        return float(plot.get_attribute("aria-valuenow")), plot.get_attribute("aria-valuetext")

    minute, said = opened(browser, page_file, read)
    results = json.loads((page_file.parent / "results.json").read_text("utf-8"))
    ramp = next(test["ramp_up"] for test in results["tests"] if test["name"] == name)
    assert abs(ramp["base"]["onset_s"] - ramp["new"]["onset_s"]) > 300  # else nothing is moved
    for side, text in zip(("base", "new"), said.split("; ")[1:3], strict=True):
        own = minute + ramp[side]["onset_s"] / 60
        assert value(text) == pytest.approx(expected(side, "avg-api-times", own, name), rel=1e-3)


def test_the_keyboard_moves_the_cursor_zooms_and_opens_every_value(page_file: Path, browser: BrowserThread) -> None:
    def work(page: Any) -> dict[str, Any]:
        plot = chart(page, "Avg API times", "mysql_bounded")
        plot.focus()
        seen: dict[str, Any] = {}
        for key in ("ArrowRight", "ArrowRight", "End", "Home", "Shift+ArrowRight", "+", "0"):
            page.keyboard.press(key)
            ends = [float(plot.get_attribute(f"aria-value{end}")) for end in ("now", "min", "max")]
            seen[key] = [*ends, plot.get_attribute("aria-valuetext")]
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.shadowRoot.activeElement.className") == "table"
        table = plot.locator("xpath=following-sibling::details//table")
        table.locator("tbody tr").first.wait_for()
        cells = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
        return {
            **seen,
            "heads": table.locator("th[scope=col]").all_inner_texts(),
            "rows": table.locator("tbody tr").evaluate_all(cells),
        }

    seen = opened(browser, page_file, work)
    _, low, high, _ = seen["Home"]
    assert seen["Home"][0] == low == 0.0
    assert seen["End"][0] == pytest.approx(high, abs=0.1)
    assert seen["Shift+ArrowRight"][0] > 3.0
    assert (seen["+"][2] - seen["+"][1], seen["0"][1:3]) == (pytest.approx((high - low) / 2), [low, high])
    assert re.fullmatch(r"[\d.]+ min, plateau; v10.3.0 .* ms; v10.4.0-rc1 .* ms; \S+ %", seen["ArrowRight"][3])
    assert seen["heads"] == ["min", "v10.3.0, ms", "v10.4.0-rc1, ms", "Difference"]
    for column, side in enumerate(("base", "new"), start=1):
        curve = recorded(side, "avg-api-times")
        assert [float(row[0]) for row in seen["rows"]] == pytest.approx(curve.index / 60, abs=0.006)
        shown = [np.nan if row[column] == "–" else float(row[column]) for row in seen["rows"]]
        assert shown == pytest.approx(1e3 * curve, rel=6e-4, nan_ok=True)


def test_at_equal_load_a_chart_shows_curves_over_the_users(page_file: Path, browser: BrowserThread) -> None:
    name = "postgresql_unbounded"
    params = bc.read_params(f"params/{NAME}.yaml")
    seen = next(test for test in bc.compare(params).tests() if test.result.name == name).at_load["p99-api-times"]
    curves = {side: 1e3 * seen.curves[side] for side in ("base", "new")}
    cells = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"

    def work(page: Any) -> dict[str, Any]:
        page.evaluate(OPENED)
        plot = page.locator(f"build-chart[group^='{name}'][group$='-load'] .plot[aria-label^='P99 API times']")
        hover(page, plot, 0.7)
        found: dict[str, Any] = {
            "hover": (float(plot.get_attribute("aria-valuenow")), plot.get_attribute("aria-valuetext"))
        }
        details = plot.locator("xpath=following-sibling::details")
        details.evaluate("each => (each.open = true)")
        details.locator("tbody tr").first.wait_for()
        found["rows"] = details.locator("tbody tr").evaluate_all(cells)
        found["drawn"] = [plot.locator(part).count() for part in (".band", ".cloud circle", ".change")]
        drag(page, plot, 0.5, 0.9)
        ends = [float(plot.get_attribute(f"aria-value{end}")) for end in ("min", "max")]
        over_time = chart(page, "P99 API times", name)
        found["zoom"] = (ends, float(over_time.get_attribute("aria-valuemin")))
        return found

    found = opened(browser, page_file, work)
    place, said = found["hover"]
    i = int(np.abs(seen.users - place).argmin())
    where, base, new, difference = said.split("; ")
    assert where == f"{round(place):,} users"
    levels = [1e-3 * curves[side][i] for side in ("base", "new")]
    assert [value(base), value(new)] == pytest.approx(levels, rel=1e-3)
    assert percent(difference) == pytest.approx(100 * (levels[1] / levels[0] - 1), abs=0.06)
    assert [float(row[0]) for row in found["rows"]] == pytest.approx(seen.users, abs=1)
    for column, side in enumerate(("base", "new"), start=1):
        assert [float(row[column]) for row in found["rows"]] == pytest.approx(curves[side], rel=6e-4)
    assert found["drawn"] == [2, sum(len(seen.points[side]) for side in ("base", "new")), 1]
    (low, high), start = found["zoom"]
    assert 2000 < low < high < 8000
    assert start == 0.0


def test_every_chart_opens_without_a_request_or_a_grave_fault(
    page_file: Path, browser: BrowserThread, requests_of: Callable[..., list[str]]
) -> None:
    """All charts in a narrow dark page; in a light one, whose charts differ by colour alone, every eighth."""

    def work(page: Any) -> tuple[int, list[str], str]:
        page.evaluate(OPENED)
        hover(page, chart(page, "P99 API times", "mysql_bounded"), 0.5)
        page.evaluate(
            "document.querySelectorAll('build-chart').forEach((e, i) => e.classList.toggle('some', i % 8 === 0))"
        )
        found = Axe().run(page, context=None if look else ".some").response
        assert found["passes"]
        grave = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
        policy = page.locator("meta[http-equiv]").get_attribute("content")
        return page.locator("build-chart[ready]").count(), grave, policy

    for look in ({}, {"viewport": {"width": 380, "height": 800}, "color_scheme": "dark"}):
        count, grave, policy = opened(browser, page_file, work, **look)
        assert (count, grave) == (44, [])
        assert "unsafe-eval" not in policy
        assert policy.startswith("default-src 'none'")
    assert requests_of(page_file) == []


def test_the_picture_stands_in_print_and_in_an_old_browser(page_file: Path, browser: BrowserThread) -> None:
    state = """chart => [chart.parentElement.querySelector("summary svg"), chart.shadowRoot.querySelector(".plot")].map(
      (each) => Boolean(each?.checkVisibility()))"""

    def on_paper(page: Any) -> list[Any]:
        first = page.locator("build-chart[ready]").first
        seen = [first.evaluate(state)]
        page.emulate_media(media="print")
        return [*seen, first.evaluate(state), page.locator("build-tools .tools:visible").count()]

    assert opened(browser, page_file, on_paper) == [[False, True], [True, False], 0]

    def old(page: Any) -> list[bool]:
        page.evaluate(UNFOLD)
        first = page.locator("#metrics ~ .pictures build-chart").first
        first.locator("xpath=..").locator("summary svg").wait_for()
        return list(first.evaluate(state))

    forget = "delete window.DecompressionStream"
    assert browser.look(page_file.as_uri(), old, lambda page: page.add_init_script(forget)) == [True, False]


def run(name: str, step: float, values: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> pd.DataFrame:
    elapsed = np.arange(0.0, 5400.0, step)
    users = np.minimum(elapsed * 4, 2000)
    return pd.DataFrame({"Number of Connected Devices": users, name: values(elapsed, users)}, index=elapsed)


def test_windows_phases_and_events_are_drawn_in(tmp_path: Path, browser: BrowserThread) -> None:
    rng = np.random.default_rng(5)
    base, new = (run("Avg API times", 5.0, lambda at, _: rng.lognormal(-4.6, 0.02, at.size)) for _ in range(2))
    new.loc[3600.0:, "Avg API times"] *= 2.0
    result = bc.compare(base, new, users=2000)
    (event,) = (each for each in result.results.tests[0].events if each.warning)

    def work(page: Any) -> list[Any]:
        plot = chart(page, "Avg API times", "bounded")
        start, end = (float(plot.locator("line.axis").get_attribute(name)) for name in ("x1", "x2"))
        part = (float(plot.locator("line.event.new").get_attribute("x1")) - start) / (end - start)
        counts = [plot.locator(each).count() for each in ("rect.window", "rect.ramp, rect.plateau")]
        return [part, *counts, plot.text_content()]

    part, windows, phases, text = opened(browser, result.to_html(tmp_path / "page.html"), work)
    assert (part, windows, phases) == (pytest.approx(event.at_s / 5395.0, abs=0.002), 2, 4)
    assert f"level {change(event.size_percent)}" in text


def test_repeated_runs_are_chosen_one_by_one(tmp_path: Path, browser: BrowserThread) -> None:
    rng = np.random.default_rng(5)
    runs = [run("RPS", 10.0, lambda at, users: users * rng.normal(0.1, 0.001, at.size)) for _ in range(4)]
    runs[1]["RPS"] *= 1.2
    file = bc.compare(runs[:2], runs[2:], users=2000).to_html(tmp_path / "page.html")

    def work(page: Any) -> tuple[list[str], list[str], str]:
        tools = page.locator("#metrics ~ .pictures build-tools").first
        names = tools.locator("label:has(input)").all_inner_texts()
        tools.get_by_label("run 2").first.uncheck()
        plot = chart(page, "RPS", "bounded")
        page.evaluate(OPENED)
        runs = plot.locator("path.curve").evaluate_all("paths => paths.map(each => each.dataset.run)")
        hover(page, plot, 0.8)
        return [" ".join(name.split()) for name in names], runs, plot.get_attribute("aria-valuetext")

    names, drawn, said = opened(browser, file, work)
    assert (names, drawn) == (["base", "run 1", "run 2", "new", "run 1", "run 2"], ["base 1", "new 1", "new 2"])
    assert 190 < value(said.split("; ")[1]) < 210


def test_a_thinned_chart_says_so_and_keeps_means_over_users(tmp_path: Path, browser: BrowserThread) -> None:
    rng = np.random.default_rng(5)
    base, new = (run("RPS", 0.75, lambda at, _: rng.normal(100, 10, at.size)) for _ in range(2))
    file = bc.compare(base, new, users=2000).to_html(tmp_path / "page.html")

    def work(page: Any) -> list[str]:
        plot = chart(page, "RPS", "bounded")
        hover(page, plot, 0.8)
        over_time = plot.get_attribute("aria-valuetext")
        page.evaluate(OPENED)
        caption = page.locator("build-chart caption").first.text_content()
        plot.evaluate("element => element.getRootNode().host.group.change({ axis: 'users' })")
        hover(page, plot, 0.95)
        return [over_time, caption, plot.get_attribute("aria-valuetext")]

    over_time, caption, over_users = opened(browser, file, work)
    note = "thinned: minimum and maximum of each 2.16 s"
    assert note in over_time
    assert caption == note
    assert "thinned" not in over_users
    assert [value(said) for said in over_users.split("; ")[1:3]] == pytest.approx([100, 100], abs=1.5)
