"""The page as it is first seen: the table below the verdict, and the rows of labels."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import buildcompare as bc
import golden
from buildcompare.comparison import analysis as workbench
from buildcompare.findings import above_the_fold
from buildcompare.report import markdown, sections
from buildcompare.report.exporters import HtmlReportExporter, convert
from buildcompare.report.notebook import notebook_of
from buildcompare.results import Finding, Results, Validity
from buildcompare.text.numbers import change, interval
from support import analysed, small_params


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> workbench.Analysis:
    return analysed(small_params(tmp_path_factory.mktemp("small")))


def test_the_table_below_the_verdict_names_every_test_and_folds_all_but_the_gravest(made: workbench.Analysis) -> None:
    test = made.results.tests[0]
    verdicts = ("pass", "regression", "pass", "inconclusive", "invalid", "pass", "pass", "pass")
    tests = [
        test.model_copy(update={"name": f"t{i}", "db_engine": f"db{i}", "verdict": verdict})
        for i, verdict in enumerate(verdicts)
    ]

    def rows(count: int) -> tuple[list[str], list[str]]:
        results = made.results.model_copy(update={"tests": tests[:count], "plan": []})
        html = str(sections.verdict(replace(made, results=results)).html)
        shown, _, folded = html.partition('<ol class="findings">')[0].partition("more tests</summary>")
        return re.findall(r"Db(\d)", shown), re.findall(r"Db(\d)", folded)

    assert rows(6) == (list("012345"), [])
    shown, folded = rows(8)
    assert (shown, folded) == (list("413025"), list("67"))
    html = str(sections.verdict(made).html)
    for row in (row for each in made.results.tests for row in each.metrics if row.gate):
        seen = row.deciding
        if seen is None:
            assert "not known at equal load" in html
        else:
            span = f"({interval(seen.ci_low, seen.ci_high)})"
            assert f'<b>{change(seen.delta_percent)}</b> <span class="ci">{span}' in html
    users = next(each.supported_users for each in made.results.tests if each.supported_users)
    assert f"{users.base:,.0f} \u2192 {users.new:,.0f} <b>{change(users.delta_percent)}</b>" in html


def test_a_label_of_one_build_alone_is_a_marked_row(made: workbench.Analysis, tmp_path: Path, browser: Any) -> None:
    test = next(each for each in made.results.tests if each.labels)
    row = test.labels[0]
    rows = [
        row.model_copy(update={"label": "both", "status": bc.Status.EQUIVALENT, "only_in": None}),
        row.model_copy(update={"label": "alone", "status": bc.Status.NOT_COMPARABLE, "only_in": "new"}),
    ]
    results = made.results.model_copy(update={"tests": [test.model_copy(update={"labels": rows})]})
    script = (files("buildcompare.report") / "templates/buildcompare/report.js").read_text("utf-8")
    table = str(sections.labels(replace(made, results=results)).html)
    (tmp_path / "page.html").write_text(f"<meta charset=utf-8>{table}<script>{script}</script>", "utf-8")

    def look(page: Any) -> list[str]:
        page.evaluate("document.querySelector('details').open = true")
        page.check("input[type=checkbox]")
        names = "[...document.querySelectorAll('tbody tr:not([hidden]) th')].map(each => each.textContent)"
        return list(page.evaluate(names))

    assert browser.look((tmp_path / "page.html").as_uri(), look) == ["alone"]


def test_a_fragment_carries_its_styles_in_light_and_dark_and_the_page_drops_them(made: workbench.Analysis) -> None:
    fragment = sections.verdict(made)
    shown = fragment._repr_mimebundle_()
    html = str(shown["text/html"])
    assert html.count("<style>") == 1
    for theme in ("true", "false"):
        assert re.search(rf'\[data-jp-theme-light="{theme}"\] \.buildcompare \{{[^}}]*--ink: #', html)
    assert shown[sections.FRAGMENT_MIME] == {"html": str(fragment.html)}
    assert ".buildcompare" not in convert(HtmlReportExporter, notebook_of(made))[0]


FIRST = """() => ({
  words: document.body.innerText.split(/\\s+/).filter(Boolean).length,
  height: document.documentElement.scrollHeight,
  findings: document.querySelectorAll("ol.findings > li").length,
  text: document.querySelector("main").innerText,
  lost: [...document.querySelectorAll('main a[href^="#"]')].map((each) => each.hash.slice(1))
    .filter((id) => !document.getElementById(decodeURIComponent(id))),
})"""
VERDICTS = (
    "[...document.querySelectorAll('.headline td.verdict-word')].map((each) => each.getBoundingClientRect().right)"
)
FOLLOWED = """async () => {
  const seen = [];
  for (const link of document.querySelectorAll("ol.findings .links > a")) {
    document.querySelectorAll("details[open]:not(.picture)").forEach((each) => (each.open = false));
    link.click();
    await new Promise((done) => setTimeout(done, 50));
    const target = document.getElementById(link.hash.slice(1)), box = target.getBoundingClientRect();
    seen.push([link.hash, target.checkVisibility() && box.top < innerHeight && box.bottom > 0]);
  }
  return seen;
}"""


def sentences(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"(?<=[.?!:]) +(?=[A-Z0-9]|v\d)|\n+", text) if part.strip()]


@pytest.mark.parametrize("name", golden.BUNDLED)
def test_the_page_is_read_in_a_minute(bundled: Callable[[str], Path], browser: Any, name: str) -> None:
    file = bundled(name) / "report.html"

    def look(page: Any) -> Any:
        seen = page.evaluate(FIRST)
        sheets = page.pdf(format="A4").count(b"/Type /Page\n")
        followed = page.evaluate(FOLLOWED)
        page.set_viewport_size({"width": 380, "height": 800})
        return seen, sheets, followed, page.evaluate(VERDICTS)

    wide = {"width": 1280, "height": 900}
    seen, sheets, followed, verdicts = browser.look(file.as_uri(), look, viewport=wide)
    assert file.stat().st_size < 2_500_000
    assert file.with_name("comparison.ipynb").stat().st_size < 1_500_000
    assert seen["words"] <= 1500
    assert seen["height"] <= 6000
    assert 0 < sheets <= 15
    assert verdicts
    assert max(verdicts) <= 380
    assert seen["lost"] == []
    assert followed
    assert all(visible for _, visible in followed), followed
    results = json.loads((file.parent / "results.json").read_text("utf-8"))
    top, _ = above_the_fold([Finding.model_validate(each) for each in results["findings"]])
    assert seen["findings"] <= 5
    assert [sentence for each in top for sentence in sentences(each.text) if len(sentence.split()) > 25] == []
    said = [sentence for sentence in sentences(seen["text"]) if len(sentence.split()) > 5]
    assert [sentence for sentence in set(said) if said.count(sentence) > 1] == []
    assert words_of(file.with_name("README.md").read_text("utf-8").partition("## Comments")[0]) < 250


def words_of(markdown: str) -> int:
    lines = [line for line in markdown.splitlines() if not line.startswith("<!--")]
    told = [re.sub(r"\*\*|\]\([^)]*\)|^[->] ", "", line) for line in lines if not line.startswith("#")]
    said = [sentence for line in told for sentence in sentences(line)]
    assert len(said) > 3
    assert [sentence for sentence in said if len(sentence.split()) > 30] == []
    assert [sentence for sentence in set(said) if said.count(sentence) > 1 and not sentence.endswith(":")] == []
    return len(" ".join(lines).split())


PUBLISHED_WORDS = {"v9.5": 178, "v10.4": 619, "v11.1": 223}
"""Words of the published README.md of these releases above their setup: what an analyst wrote by hand."""


@pytest.mark.parametrize("release", PUBLISHED_WORDS)
def test_a_published_comparison_takes_no_more_words(
    real: Path, compared: Callable[[str], Results], release: str
) -> None:
    results = compared(release)
    assert words_of(markdown.render(results, []).partition("## Setup")[0]) <= PUBLISHED_WORDS[release]
    top, _ = above_the_fold(results.findings)
    assert [each.text for each in top if any(len(part.split()) > 25 for part in sentences(each.text))] == []


def test_no_row_of_an_invalid_test_reads_as_judged(made: workbench.Analysis) -> None:
    def shown(validity: str) -> str:
        changed = []
        for test in made.results.tests:
            rows = [row.model_copy(update={"status": bc.Status.REGRESSION}) for row in test.metrics]
            changed.append(test.model_copy(update={"validity": Validity(status=validity), "metrics": rows}))
        now = replace(made, results=made.results.model_copy(update={"tests": changed}))
        parts = [*sections.metrics(now), sections.labels(now), sections.errors(now)]
        return "".join(str(part.html) for part in parts if isinstance(part, sections.Fragment))

    marks = re.compile(r'class="[^"]*\bstatus\b|[✗✓]|\d changed')
    assert marks.search(shown("valid"))
    rule = r'<p class="rule">.*?</p>'  # says what each sign means
    assert not marks.search(re.sub(rule, "", shown("invalid"), flags=re.S))
