"""The pages for everybody: axe-core, the keyboard alone, a narrow screen, 200 % zoom; in light and dark."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from buildcompare.report.publish import publish
from loadfiles.comparisons import import_table
from loadindex.page import write_index
from support import published_params, small_params, write_params

PAGES = ("simulated", "small", "index")
REAL = "published"
VIEWS = {"wide": (1200, 1), "narrow": (380, 1), "zoomed": (640, 2)}
"""Width in CSS pixels, and device pixels per CSS pixel: 200 % zoom halves the first and doubles the second."""
OPEN_ALL = "document.querySelectorAll('details').forEach((each) => (each.open = true))"
CUT = """() => {
  const scrolls = (e) => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
  const cut = [...document.querySelectorAll("body *")].filter((e) => {
    if (e.closest(".unseen, #releases thead") || e.closest("svg") !== null && e.tagName !== "svg") return false;
    const box = e.getBoundingClientRect();
    if (!box.width || !box.height) return false;
    let around = e.parentElement;
    while (around && !scrolls(around)) around = around.parentElement;
    return around ? around.tabIndex < 0 && around.scrollWidth > around.clientWidth
                  : box.right > innerWidth + 0.5 || box.left < -0.5;
  }).map((e) => e.outerHTML.slice(0, 160));
  return {page: document.documentElement.scrollWidth - innerWidth, cut};
}"""
REACHED = """() => {
  let e = document.activeElement;
  while (e?.shadowRoot?.activeElement) e = e.shadowRoot.activeElement;
  if (!e || e === document.body) return null;
  window.reached ??= new Set();
  const style = getComputedStyle(e);
  const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  window.reached.add(e);
  return {seen, what: e.outerHTML.slice(0, 120), open: e.parentElement?.open};
}"""
LEFT = """() => {
  const roots = [document, ...[...document.querySelectorAll("*")].flatMap((e) => e.shadowRoot ?? [])];
  const stops = "a[href], summary, button:enabled, input, select, [role=slider], .table, .scroll";
  return roots.flatMap((root) => [...root.querySelectorAll(stops)]).filter((e) =>
    e.checkVisibility() && !(e.matches(".scroll") && e.scrollWidth <= e.clientWidth) && !window.reached?.has(e)
  ).map((e) => e.outerHTML.slice(0, 120));
}"""

Look = Callable[[Any], Any]


@pytest.fixture(scope="module")
def pages(bundled: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("site")
    reports, ledger = root / "reports", root / "ledger"
    table = root / "history.csv"
    table.write_text(
        "order,monthly,release,base_label,new_label,base_version,new_version,db,test_type,su_base,su_new,load_test_version\n"
        "1,yes,v0.9,v0.9.0,v1.0.0-rc1,0.9.0,1.0.0-rc1,postgresql,unbounded,1100,1000,v1\n"
        "2,yes,v1.0,v1.0.0,v1.1.0-rc1,1.0.0,1.1.0-rc1,postgresql,unbounded,700,990,v2\n",
        "utf-8",
    )
    import_table(table, ledger)
    shutil.copytree(bundled("v11.1.0-rc2"), reports / "simulated")
    small = small_params(root / "data", history=str(ledger), setup={"Load-test version": "v3"})
    publish(write_params(root / "small.yaml", small), output=reports / "small")
    index, _ = write_index(reports, [ledger])
    return {**{name: reports / name / "report.html" for name in PAGES[:2]}, "index": index}


@pytest.fixture(scope="module")
def published(real: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("published")
    import_table(real / "comparisons/history.csv", root / "ledger")
    params = published_params(real, "v10.4", root / "ledger")
    params["tests"] = [test for test in params["tests"] if test["type"] == "unbounded"]
    page = publish(write_params(root / "v10.4.yaml", params), output=root / "report").folder / "report.html"
    assert "Postgres supports fewer users than MySQL" in page.read_text("utf-8")
    return page


@pytest.fixture
def file(request: pytest.FixtureRequest, name: str) -> Path:
    if name == REAL:
        return Path(request.getfixturevalue(REAL))
    return Path(request.getfixturevalue("pages")[name])


def look(browser: Any, file: Path, view: str, scheme: str, task: Look, *, javascript: bool = True) -> Any:
    width, pixels = VIEWS[view]
    screen = {"viewport": {"width": width, "height": 800}, "device_scale_factor": pixels, "color_scheme": scheme}
    return browser.look(file.as_uri(), task, java_script_enabled=javascript, **screen)


def grave_violations(page: Any) -> list[str]:
    page.evaluate(OPEN_ALL)
    page.wait_for_timeout(100)
    found = Axe().run(page).response
    assert found["testEngine"]["name"] == "axe-core"
    return [
        f"{each['id']} ({each['impact']}): {node['html'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"][:3]
    ]


def measure_cut(page: Any) -> Any:
    page.evaluate(OPEN_ALL)
    page.wait_for_timeout(100)
    return page.evaluate(CUT)


DRAWN = """async () => {
  for (const chart of document.querySelectorAll("build-chart")) if (chart.checkVisibility()) await chart.build();
}"""


def walk(page: Any) -> tuple[int, list[str], list[str]]:
    if page.url.endswith("index.html"):
        page.evaluate(DRAWN)
    unseen, stops = [], 0
    for _ in range(2000):
        page.keyboard.press("Tab")
        at = page.evaluate(REACHED)
        if at and at["what"].startswith("<build-chart"):  # it is drawn now, and then takes the focus
            page.locator("build-chart:not([tabindex]):focus-within").wait_for()
            at = page.evaluate(REACHED)
        if at is None:
            break
        stops += 1
        unseen += [] if at["seen"] else [at["what"]]
        if at["what"].startswith("<summary") and not at["open"]:
            page.keyboard.press("Enter")
            page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")  # it is filled
    return stops, unseen, page.evaluate(LEFT)


LOOKS = [("wide", "light"), ("narrow", "dark"), ("zoomed", "light")]
"""No colour is another in a narrow view."""


@pytest.mark.parametrize(
    ("name", "view", "scheme"), [*((name, *look) for name in PAGES for look in LOOKS), (REAL, "narrow", "dark")]
)
def test_axe_finds_nothing_serious(file: Path, browser: Any, view: str, scheme: str) -> None:
    assert look(browser, file, view, scheme, grave_violations) == []


def test_axe_would_find_something(browser: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text("<!doctype html><title>x</title><img src='data:,'><p style='color:#eee'>pale</p>", "utf-8")
    found = " ".join(look(browser, bad, "wide", "light", grave_violations))
    assert {"image-alt", "color-contrast", "html-has-lang"} <= {word for word in found.split() if "-" in word}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    ("name", "javascript"), [*((name, javascript) for name in PAGES for javascript in (True, False)), (REAL, True)]
)
def test_nothing_is_cut(file: Path, browser: Any, view: str, *, javascript: bool) -> None:
    assert look(browser, file, view, "light", measure_cut, javascript=javascript) == {"page": 0, "cut": []}


@pytest.mark.parametrize(
    ("name", "view"), [*((name, "narrow") for name in (*PAGES, REAL)), ("small", "wide")]
)  # narrow, where most regions scroll
def test_the_keyboard_alone_reaches_everything(file: Path, name: str, browser: Any, view: str) -> None:
    stops, unseen, left = look(browser, file, view, "dark", walk)
    assert stops > (40 if name == REAL else 5)
    assert (unseen, left) == ([], [])


def test_a_label_table_is_filtered_and_sorted_by_keyboard(pages: dict[str, Path], browser: Any) -> None:
    def work(page: Any) -> tuple[int, int, str | None]:
        page.locator("details:has(table.labels) > summary").first.focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        shown = "document.querySelectorAll('details[open] table.labels tbody tr:not([hidden])').length"
        before = page.evaluate(shown)
        page.keyboard.type("no such label")
        after = page.evaluate(shown)
        page.keyboard.press("Control+A")
        page.keyboard.press("Delete")
        page.locator("details[open] table.labels th button").nth(1).focus()
        page.keyboard.press("Enter")
        return before, after, page.locator("details[open] table.labels th[aria-sort]").get_attribute("aria-sort")

    before, after, sorted_by = look(browser, pages["simulated"], "wide", "light", work)
    assert before > 10
    assert (after, sorted_by) == (0, "descending")


def test_a_wide_table_is_scrolled_by_keyboard_and_one_that_fits_is_no_stop(
    pages: dict[str, Path], browser: Any
) -> None:
    def scroll(page: Any) -> list[bool]:
        moved = []
        for region in page.locator(".scroll:visible").all():
            region.scroll_into_view_if_needed()
            if region.evaluate("e => e.scrollWidth > e.clientWidth"):
                region.focus()
                page.keyboard.press("ArrowRight")
                page.wait_for_timeout(200)
                moved.append(region.evaluate("e => e.scrollLeft > 0"))
        return moved

    for javascript in (True, False):
        moved = look(browser, pages["small"], "narrow", "light", scroll, javascript=javascript)
        assert moved
        assert all(moved)

    def count(page: Any) -> list[int]:
        page.evaluate(OPEN_ALL)
        page.wait_for_timeout(300)
        return list(page.evaluate("[...document.querySelectorAll('.scroll')].map((e) => e.tabIndex)"))

    stops = look(browser, pages["small"], "wide", "light", count)
    assert stops
    assert (set(stops), set(look(browser, pages["small"], "wide", "light", count, javascript=False))) == ({-1}, {0})
