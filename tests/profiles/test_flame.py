"""The flame graph of a page in a real browser: widths, keys, zoom, search, and names that do nothing."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

import buildcompare as bc
from buildcompare.config.params import check_params
from buildcompare.profiles.compare import mean_stacks
from buildcompare.profiles.stacks import read_profile
from buildcompare.report import markdown
from buildcompare.results import Finding
from buildcompare.results.codes import FindingKind
from conftest import BrowserThread
from support import small_params

Made = tuple[Path, list[Finding]]
RECORDED = Path(__file__).parents[1] / "recorded_profiles"
HOSTILE = (
    "<img src=x onerror=alert(1)>", "</title><script>alert(2)</script>", '"onmouseover="alert(3)', "{{ 7 * 7 }}",
    "</svg><h1>mine</h1>", "a" * 3000,
)  # fmt: skip


def page_with(folder: Path, profiles: dict[str, list[str]]) -> Made:
    """The page, with README.md beside it, and the findings."""
    params = small_params(folder / "data")
    params["tests"] = params["tests"][:1]
    params["tests"][0]["profiles"] = profiles
    result = bc.compare(check_params(params))
    result.to_html(str(folder / "report.html"))
    (folder / "README.md").write_text(markdown.render(result.results, []), "utf-8")
    return folder / "report.html", result.results.findings


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("flame")
    return page_with(folder, {s: [str(RECORDED / f"{s}-{i}.folded") for i in (1, 2, 3)] for s in ("base", "new")})


WIDTHS = """() => {
  const whole = document.querySelector("svg.flame").getBoundingClientRect();
  return [...document.querySelectorAll("svg.flame svg")].filter((each) => each.style.display !== "none").map((each) => {
    const box = each.querySelector("rect").getBoundingClientRect(), name = each.querySelector("text").textContent;
    return [name, Number(each.dataset.depth), box.left - whole.left, box.width, whole.width];
  });
}"""


def expected_widths(side: str) -> dict[tuple[str, int], float]:
    """Share of all samples of each frame at each depth, from the files themselves."""
    found: dict[tuple[str, int], float] = {("all samples", 0): 1.0}
    profiles = [read_profile(str(RECORDED / f"{side}-{i}.folded")) for i in (1, 2, 3)]
    for stack, share in mean_stacks(profiles).items():
        for depth, frame in enumerate(stack, start=1):
            found[frame, depth] = found.get((frame, depth), 0.0) + share
    return found


def test_widths_are_shares_and_no_frame_covers_another(browser: BrowserThread, page: Made) -> None:
    def both(shown: Any) -> Any:
        new = shown.evaluate(WIDTHS)
        shown.locator("build-flame select").select_option("base")
        return {"new": new, "base": shown.evaluate(WIDTHS)}

    # Without JavaScript there is the picture alone; the browser's own tools may still ask it.
    picture = {"new": browser.on_page(page[0], lambda shown: shown.evaluate(WIDTHS), java_script_enabled=False)}
    for side, frames in [*browser.on_page(page[0], both).items(), *picture.items()]:
        shares: dict[tuple[str, int], float] = {}
        for name, depth, _, width, whole in frames:
            shares[name, depth] = shares.get((name, depth), 0.0) + width / whole
        large = {frame: share for frame, share in expected_widths(side).items() if share >= 0.002}
        assert len(large) > 10
        assert {frame: shares[frame] for frame in large} == pytest.approx(large, abs=2e-4)
        for depth in {frame[1] for frame in frames}:
            row = sorted((left, left + width) for _, each, left, width, _ in frames if each == depth)
            assert all(end <= start + 0.01 for (_, end), (start, _) in itertools.pairwise(row))
            assert row[-1][1] <= frames[0][4] + 0.01


def test_it_answers_to_keys_and_words(browser: BrowserThread, page: Made) -> None:
    def task(shown: Any) -> None:
        hidden = "all => all.filter((each) => each.style.display === 'none').length"
        frames, said = shown.locator("build-flame svg.flame > svg"), shown.locator("build-flame [role=status]")
        only_base = frames.evaluate_all(hidden)
        shown.locator("build-flame input").fill("validate (")
        assert said.inner_text().startswith("1 frames, 70.7 % of the samples")
        assert shown.locator("build-flame .match").count() == 1
        shown.locator("build-flame input").fill("no such frame")
        assert said.inner_text() == "0 frames, 0.0 % of the samples"
        shown.locator("build-flame button").focus()
        shown.keyboard.press("Tab")  # the root, the only stop
        focused = "document.activeElement.querySelector('text').textContent"
        assert shown.evaluate(focused) == "all samples"
        for _ in range(3):
            shown.keyboard.press("ArrowDown")
        name = shown.evaluate(focused)
        assert said.inner_text().startswith(f"{name}: ")
        shown.keyboard.press("ArrowRight")
        assert shown.evaluate(focused) != name
        shown.keyboard.press("Enter")
        zoomed = shown.evaluate("document.activeElement.getBoundingClientRect().width")
        whole = shown.evaluate("document.querySelector('svg.flame').getBoundingClientRect().width")
        assert zoomed == pytest.approx(whole, abs=3)
        assert frames.evaluate_all(hidden) > only_base
        shown.keyboard.press("Escape")
        assert shown.evaluate(focused) == "all samples"
        frames.filter(has_text="handle (server.py)").first.click()
        assert frames.first.get_attribute("width") == "100%"
        shown.locator("build-flame button").click()
        assert frames.evaluate_all(hidden) == only_base
        faults = Axe().run(shown, context=["build-flame"]).response["violations"]
        assert [fault["id"] for fault in faults] == []

    browser.on_page(page[0], task)


def test_the_finding_names_the_frame_and_leads_to_the_flame_graph(page: Made) -> None:
    [finding] = [each for each in page[1] if each.kind == FindingKind.PROFILES]
    assert "validate (server.py) 50 % → 71 % (noise explains up to 30 % of it)" in finding.text
    readme, html = page[0].with_name("README.md").read_text("utf-8"), page[0].read_text("utf-8")
    link = re.search(r"validate \(server\.py\) 50 % → 71 % .*\[Flame graph\]\(report\.html#(.+)\)", readme)
    assert link
    assert f'<h4 id="{link[1]}">Profiles</h4>' in html
    assert f'<a href="#{link[1]}">flame graph</a>' in html


def test_hostile_names_do_nothing(browser: BrowserThread, tmp_path: Path) -> None:
    for side, count in (("base", 5), ("new", 9)):
        (tmp_path / f"{side}.folded").write_text(
            "".join(f"main;{name} {count + i}\n" for i, name in enumerate(HOSTILE))
        )
    files = {side: [str(tmp_path / f"{side}.folded")] for side in ("base", "new")}
    file, _ = page_with(tmp_path, files)

    def task(shown: Any) -> Any:
        for frame in shown.locator("svg.flame > svg").all():
            frame.locator(".change").hover()
            frame.locator(".change").click()
            shown.locator("build-flame button").click()
        names = shown.locator("svg.flame text").all_text_contents()
        foreign = shown.locator(
            "svg.flame :not(svg, title, rect, text, style), h1:has-text('mine'), img[src=x]"
        ).count()
        return names, foreign

    names, foreign = browser.on_page(file, task)
    assert set(HOSTILE) <= set(names)
    assert foreign == 0
