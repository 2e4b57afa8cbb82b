"""Notebooks in real JupyterLab: pulls show progress, results show styled, and widgets show the library's numbers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest

import buildcompare as bc
from buildcompare.results.codes import SIDES, Pair
from buildcompare.text.numbers import change, interval, quantity
from conftest import BrowserThread
from prometheus_server import Servers, free_port, proxying, running
from pulling import params
from support import write_params

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PARAMS, TEST, METRIC = "params/v11.1.0-rc2.yaml", "postgresql_bounded", "cpu-utilization"
UNBOUNDED = "postgresql_unbounded"
INTO_VIEW = "element => element.scrollIntoView({block: 'center'})"
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
SETTINGS: dict[str, dict[str, Any]] = {
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},  # cells out of view stay in the page
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
RUN_ALL = """async () => {
  const panel = jupyterapp.shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
  jupyterapp.commands.execute("notebook:run-all-cells");
}"""
"""What the menu's *Run All Cells* does, as soon as the kernel answers: a click before that is lost."""
STILL = """() => {
  const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  return kernel.status === "idle" && !kernel.hasPendingInput;
}"""
LUMINANCE = """element => {
  const parts = getComputedStyle(element).color.match(/[0-9.]+/g).map(Number);
  return (0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]) / 255;
}"""


@contextlib.contextmanager
def jupyterlab(folder: Path, home: Path, **variables: str) -> Iterator[str]:
    port = free_port()
    for name, values in SETTINGS.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / f"{name}.jupyterlab-settings").write_text(json.dumps(values))
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ServerApp.ip=127.0.0.1"]
    command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={folder}"]
    command += ["--IdentityProvider.token=", "--ServerApp.allow_root=True", f"--LabApp.user_settings_dir={home}"]
    command += ["--LabApp.expose_app_in_browser=True"]
    variables |= {"HOME": str(home), "BUILDCOMPARE_ROOT": str(folder), "JUPYTER_PREFER_ENV_PATH": "1"}
    url = f"http://127.0.0.1:{port}"
    with running(command, home / "jupyterlab.log", f"{url}/api/status", folder, ("JUPYTER", "XDG_"), **variables):
        yield url


@contextlib.contextmanager
def page_of(browser: Browser, address: str, *, height: int = 900) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": height})
    try:
        page = context.new_page()
        page.set_default_timeout(90_000)
        accept = page.locator("dialog.jp-Dialog .jp-mod-accept").first
        page.add_locator_handler(accept, lambda button: button.click())
        page.goto(address)
        yield page
    finally:
        context.close()


def run_all_cells(page: Page, notebook: str) -> None:
    page.wait_for_function(
        "name => window.jupyterapp?.shell.currentWidget?.context?.path.endsWith(name)", arg=f"{notebook}.ipynb"
    )
    page.evaluate(RUN_ALL)


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    return Path(os.environ.get("BUILDCOMPARE_SCREENSHOTS") or tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, project: Path) -> Path:
    made = tmp_path_factory.mktemp("laboratory") / "project"
    made.mkdir()
    for name in ("notebooks", "params"):
        shutil.copytree(project / name, made / name)
    (made / "data").symlink_to(project / "data")
    return made


@pytest.fixture(scope="module")
def laboratory(folder: Path) -> Iterator[str]:
    chosen = {"PARAMS": PARAMS, "BUILDCOMPARE_TEST": TEST, "BUILDCOMPARE_METRIC": METRIC}
    with jupyterlab(folder, folder.parent / "home", **chosen) as url:
        yield url


@pytest.fixture(scope="module")
def result() -> bc.Result:
    return bc.compare(bc.read_params(Path(__file__).parents[2] / PARAMS))


def told(seen: bc.Investigation) -> list[str]:
    row = seen.row
    levels = [quantity(level, seen.unit) for level in (row.base, row.new)]
    return [*levels, change(row.delta_percent), interval(row.ci_low, row.ci_high)]


def opened(laboratory: str, browser: BrowserThread, notebook: str, by_hand: Callable[[Page], None]) -> None:
    def task(browser: Browser) -> None:
        with page_of(browser, f"{laboratory}/lab/tree/notebooks/{notebook}.ipynb?reset", height=1000) as page:
            run_all_cells(page, notebook)
            numbers = page.locator(".jp-CodeCell .jp-InputPrompt")
            last = numbers.count() - 1
            page.wait_for_function(
                "n => /\\d/.test(document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')[n].textContent)", arg=last
            )
            assert page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
            by_hand(page)

    browser.run(task)


def answer(page: Page) -> list[str]:
    return [page.locator(f"td.{name}").first.inner_text() for name in ("base", "new", "change", "interval")]


def settled(page: Page, expected: list[str]) -> list[str]:
    from playwright.sync_api import TimeoutError as NotInTimeError

    with contextlib.suppress(NotInTimeError):
        page.locator("td.interval", has_text=expected[3]).first.wait_for(timeout=15_000)
    page.wait_for_function(STILL)  # what stands below the answer moves until then
    return answer(page)


def test_a_window_that_is_dragged_is_measured(
    laboratory: str, browser: BrowserThread, result: bc.Result, folder: Path, shots: Path
) -> None:
    found: dict[str, Any] = {}
    seen = bc.investigate(result, TEST, METRIC)
    rps = seen.choose(metric="rps")

    def by_hand(page: Page) -> None:
        found["first"] = settled(page, told(seen))
        chart = page.locator(".jp-OutputArea build-chart")
        chart.scroll_into_view_if_needed()
        plot = chart.locator(".plot")
        plot.wait_for()
        page.screenshot(path=shots / "investigate.png")
        box = plot.bounding_box()
        page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 80)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 80, steps=3)
        page.mouse.up()
        page.get_by_text("The chosen window").first.wait_for()
        found["range"] = chart.evaluate("element => element.group.range")
        found["dragged"] = settled(page, told(seen.over([60 * each for each in found["range"]])))
        page.screenshot(path=shots / "investigate-dragged.png")
        page.get_by_label("Metric", exact=True).select_option(label="RPS")
        moved = rps.over([60 * each for each in found["range"]])
        found["other"] = settled(page, told(moved))
        page.get_by_role("button", name="Steady windows").click()
        found["steady"] = settled(page, told(rps))
        chart.evaluate("element => new Promise(done => requestAnimationFrame(() => done()))")
        found["whole"] = chart.evaluate("element => element.group.range")
        page.get_by_role("button", name="Keep as comment").click()
        page.get_by_text("Written into").wait_for()
        page.get_by_label("Test", exact=True).select_option(label=UNBOUNDED)
        assert settled(page, told(rps.choose(UNBOUNDED))) == told(rps.choose(UNBOUNDED))
        p99 = told(rps.choose(UNBOUNDED, "p99-api-times"))
        page.get_by_label("Metric", exact=True).select_option(label="P99 API times")
        assert settled(page, p99) == p99
        loads = page.locator(".jp-OutputArea build-chart[group$='-load']")
        loads.evaluate("element => element.scrollIntoView({ block: 'center' })")
        plot = loads.locator(".plot[aria-label^='P99']")
        plot.focus()
        page.keyboard.press("End")
        found["at load"] = plot.get_attribute("aria-valuetext")

    opened(laboratory, browser, "investigate", by_hand)
    assert found["first"] == told(seen)
    assert found["range"][0] < found["range"][1]
    over = [60 * each for each in found["range"]]
    assert found["dragged"] == told(seen.over(over)) != told(seen)
    assert (found["other"], found["steady"]) == (told(rps.over(over)), told(rps))
    assert found["whole"] is None
    at_load = seen.choose(UNBOUNDED).view.at_load["p99-api-times"]
    levels = [f"{1e3 * at_load.curves[side][-1]:.4g} ms" for side in SIDES]
    assert re.findall(r"[\d.]+ ms", found["at load"]) == levels
    assert found["at load"].startswith(f"{at_load.at_users:,.0f} users; ")
    assert bc.read_params(folder / PARAMS).comments[-1].startswith("Bounded Postgres: RPS ")


def test_a_result_shows_verdict_and_table_and_a_chart_answers(
    laboratory: str, browser: BrowserThread, folder: Path, result: bc.Result, shots: Path
) -> None:
    seen: dict[str, dict[str, Any]] = {}
    chart: dict[str, Any] = {}
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]  # type: ignore[no-untyped-call]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), folder / "one.ipynb")  # type: ignore[no-untyped-call]

    def by_hand(browser: Browser) -> None:
        with page_of(browser, f"{laboratory}/lab/tree/one.ipynb?reset") as page:
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
        assert (shown["rows"], shown["border"], shown["ink"] > 0.5) == (2, "6px", theme == "dark")
    assert seen["light"]["curve"] != seen["dark"]["curve"]
    assert chart["runs"] == 1
    recordings = result.recordings[TEST]
    for side, text in zip(SIDES, chart["values"], strict=True):
        curve = recordings[side][0].curve(recordings[side][0].total("p99-api-times"))
        nearest = curve.iloc[abs(curve.index / 60 - chart["minute"]).argmin()]
        assert text.endswith(" ms")
        assert float(text.split()[-2]) == pytest.approx(1e3 * nearest, rel=1e-3)


Pulling = tuple[str, Pair[threading.Event]]
"""The address of a JupyterLab, and the gates behind which the servers of both builds wait."""


@pytest.fixture
def pulling(tmp_path: Path, project: Path, servers: Servers) -> Iterator[Pulling]:
    folder = tmp_path / "project"
    (folder / "params").mkdir(parents=True)
    (folder / "params/metrics").symlink_to(project / "params/metrics")
    shutil.copytree(project / "notebooks", folder / "notebooks")
    server, gates = servers("prometheus").url, Pair(threading.Event(), threading.Event())
    base_gate, new_gate = (lambda _, gate=gate: gate.wait(600) for gate in (gates.base, gates.new))
    with proxying(server, base_gate) as base, proxying(server, new_gate) as new:
        pulled = params(base.url, timeout_s=600)
        pulled["tests"][0]["new"]["url"] = new.url
        write_params(folder / "params/pulled.yaml", pulled)
        with jupyterlab(folder, tmp_path / "home", PARAMS="params/pulled.yaml") as url:
            yield url, gates


def test_a_pull_shows_its_progress(pulling: Pulling, browser: BrowserThread, shots: Path) -> None:
    seen: dict[str, str] = {}

    def by_hand(browser: Browser) -> None:
        with page_of(browser, f"{pulling[0]}/lab/tree/notebooks/comparison.ipynb") as page:
            run_all_cells(page, "comparison")
            for (side, gate), done in zip(pulling[1].items(), ("0/2", "1/2"), strict=True):
                shown = re.compile(rf"postgresql_bounded, {side}, run 1.*{done}", re.DOTALL)
                progress = page.locator(".jp-RenderedHTML", has_text=shown).first  # it stays until the gate opens
                progress.evaluate(INTO_VIEW)
                page.screenshot(path=shots / f"pulling-{done[0]}.png")
                gate.set()
            page.get_by_text("reports/pulled/results.json").wait_for(state="attached")
            cell = page.locator(".jp-CodeCell", has_text="bc.compare(comparison").first
            cell.evaluate(INTO_VIEW)
            page.screenshot(path=shots / "pulled.png")
            seen["after"] = cell.inner_text()

    browser.run(by_hand)
    assert "recordings" in seen["after"]
    assert "2/2" in seen["after"]
