"""The published reports of three real comparisons: beside the seeds, in a browser, on paper, as data."""

import json
import re
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import nbformat
import pytest

from buildcompare.report.exporters import HtmlReportExporter, JUnitExporter, MarkdownReportExporter
from buildcompare.report.publication import MADE
from buildcompare.report.publish import publish
from prometheus_server import needed
from support import command, real_params, small_params, write_params

SEEDS = {"v10.4": "000", "v11.1": "002", "v9.6": "004"}


def shape(markdown: str) -> dict[str, Any]:
    users = markdown.split("### Supported users", 1)[1].split("###", 1)[0]
    rows = [row for row in users.splitlines() if row.startswith("|") and not set(row) <= set("|- ")]
    setup = markdown.split("## Setup", 1)[1].split("## Results", 1)[0]
    return {
        "headings": re.findall(r"(?m)^(#+ .*?)\s*$", markdown),
        "users": [[cell.strip() for cell in row.strip("|").split("|")] for row in rows],
        "graphs": re.findall(r"!\[(.*?)\]\((.*?)\.\w+\)", markdown),
        "settings": re.findall(r"(?m)^\| (.*?) +\|", setup)[2:],
    }


def results_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "results.json").read_text("utf-8")))


def seed_of(real: Path, release: str) -> str:
    for file in (real.parent / "seeds").glob(f"{SEEDS[release]}_*.txt"):
        return file.read_text("utf-8")
    pytest.skip(f"no seeds: {real.parent / 'seeds'} does not hold {SEEDS[release]}_*.txt")


@pytest.fixture(scope="module")
def reports(real: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for release in SEEDS:
        seed = seed_of(real, release)
        base, new = re.findall(r"`(.*?)`", seed.splitlines()[0])
        setup = dict(
            re.findall(r"(?m)^\| (\S.*?) +\| (\S.*?) +\|$", seed.split("## Setup")[1].split("## Results")[0])[2:]
        )
        grafana = dict(re.findall(r"(?m)^- \[(.*?)\]\((.*?)\)$", seed.split("### Grafana")[1].split("###")[0]))
        title = "Next Steps" if "## Next Steps" in seed else "Action Items"
        params = real_params(real, release, base, new, setup=setup, grafana=grafana, action_items_title=title)
        made[release] = tmp_path_factory.mktemp("reports") / release
        publish(write_params(made[release].parent / f"{release}.yaml", params), output=made[release])
    return made


@pytest.mark.parametrize("release", SEEDS)
def test_the_folder_is_whole_and_its_readme_has_the_shape_of_the_seed(
    real: Path, reports: dict[str, Path], release: str
) -> None:
    folder = reports[release]
    ours = shape((folder / "README.md").read_text("utf-8"))
    assert ours == shape(seed_of(real, release))
    graphs = {folder / f"{path}.svg" for _, path in ours["graphs"]}
    assert graphs == {*(folder / "graphs").iterdir()}
    assert all(graph.read_bytes().startswith(b"<svg") for graph in graphs)
    assert {path.name for path in folder.iterdir()} == MADE
    assert not [path for path in folder.parent.iterdir() if path.name.startswith(".")]


def test_results_follow_the_published_schema(reports: dict[str, Path], project: Path) -> None:
    schema = json.loads((project / "docs/results.schema.json").read_text("utf-8"))
    made = json.loads(command("schema").stdout)
    assert schema == made, "make it again: python -m buildcompare schema > docs/results.schema.json"
    for folder in reports.values():
        jsonschema.validate(results_of(folder), schema, cls=jsonschema.Draft202012Validator)


def test_the_page_reads_without_javascript(reports: dict[str, Path], browser: Any) -> None:
    """Its pictures: four tests with nine graphs, four curves of users, and five metrics at equal load."""
    page_file = reports["v10.4"] / "report.html"
    assert page_file.stat().st_size < 2_500_000

    def look(page: Any) -> tuple[str, list[str], list[str | None], int]:
        alts = [svg.get_attribute("aria-label") for svg in page.locator(".picture svg").all()]
        wide = page.locator("main").bounding_box()["width"]
        return page.inner_text("main"), page.locator("h2").all_inner_texts(), alts, wide

    screen = {"width": 1200, "height": 900}
    text, headings, alts, wide = browser.look(page_file.as_uri(), look, java_script_enabled=False, viewport=screen)
    assert headings == [
        "Verdict", "Further runs", "Setup", "Supported users", "Ramp-up", "Metrics", "Labels", "Events", "Provenance",
    ]  # fmt: skip
    assert "Nothing speaks against shipping" in text
    assert "6,934" in text
    assert wide <= 1200
    assert len(alts) == 45
    for alt in alts:
        over_time = r"over elapsed time, \w+\. v10.3.0 runs \d+ min, steady level .*\d.*v10.4.0-rc1 runs \d+"
        over_load = r"at [\d,]+ users: .*\d.* → .*\d.*Over the connected users, from \d"
        assert re.search(f"{over_time}|{over_load}", alt)
    assert len(set(alts)) == 45


def test_the_page_prints_on_few_sheets(reports: dict[str, Path], browser: Any, tmp_path: Path) -> None:
    page_file, pdf = reports["v10.4"] / "report.html", tmp_path / "report.pdf"

    def print_it(page: Any) -> list[Any]:
        page.emulate_media(media="print")
        cut = page.evaluate(
            "() => [...document.querySelectorAll('table, table *')].filter(e => e.getBoundingClientRect().right > 704"
            " || e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX != 'visible').map(e => e.outerHTML)"
        )
        page.pdf(path=str(pdf), format="A4")
        return list(cut)

    paper = {"width": 703, "height": 1000}  # A4 less its margins, in CSS pixels
    assert browser.look(page_file.as_uri(), print_it, viewport=paper) == []
    drawn = [needed("pdftotext", "poppler-utils"), "-raw", str(pdf), "-"]  # as it was drawn: cell by cell
    text = subprocess.run(drawn, check=True, capture_output=True, text=True).stdout
    printed = "".join(unicodedata.normalize("NFKC", text).split())  # fonts print "fi" as one sign
    for test in results_of(reports["v10.4"])["tests"]:
        of_the_load = ("set_by_test", "supported_users")  # a curve of its own
        judged = [row for row in test["metrics"] if (row["reason"] or {}).get("code") not in of_the_load]
        for row in judged:  # of what is folded the line that names it
            assert row["name"].replace(" ", "") in printed
    assert text.count("\f") <= 15


@pytest.mark.slow
def test_nbconvert_writes_the_page_that_report_publishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = write_params(tmp_path / "small.yaml", small_params(tmp_path / "data"))
    made = publish(params, output=tmp_path / "out")
    named = {"report.html": HtmlReportExporter, "README.md": MarkdownReportExporter, "junit.xml": JUnitExporter}
    for file, exporter in named.items():
        by_hand, _ = exporter().from_filename(str(tmp_path / "out/comparison.ipynb"))  # type: ignore[no-untyped-call]
        assert re.sub(r'<p class="files">.*?</p>\n', "", (tmp_path / "out" / file).read_text("utf-8")) == by_hand
    template = tmp_path / "mine.html.j2"
    template.write_text('{% extends "buildcompare/report.html.j2" %}{% block main %}Ours{% endblock %}')
    ours, _ = HtmlReportExporter(template_file=str(template)).from_filename(str(tmp_path / "out/comparison.ipynb"))  # type: ignore[no-untyped-call]
    assert "Ours" in ours
    before = {file: file.read_bytes() for file in made.folder.rglob("*") if file.is_file()}
    monkeypatch.setitem(sys.modules, "nbconvert.exporters.templateexporter", None)
    monkeypatch.delitem(sys.modules, "buildcompare.report.exporters")
    with pytest.raises(ImportError):
        publish(params, output=made.folder)
    assert {file: file.read_bytes() for file in made.folder.rglob("*") if file.is_file()} == before


def test_junit_has_a_case_for_everything_with_a_status(reports: dict[str, Path]) -> None:
    root = ET.parse(reports["v10.4"] / "junit.xml").getroot()  # our own
    suites = root.findall("testsuite")
    assert [suite.get("tests") for suite in suites] == ["10", "11", "10", "11"]
    assert {suite.get("failures") for suite in suites} == {"0"}
    statuses = [metric["status"] for metric in results_of(reports["v10.4"])["tests"][0]["metrics"]]
    assert suites[0].get("skipped") == str(sum(each in ("inconclusive", "not_comparable") for each in statuses))
    assert "cannot tell" in str(suites[0].find("testcase/skipped").get("message"))  # type: ignore[union-attr]


def test_the_executed_notebook_is_published_without_this_machine(reports: dict[str, Path]) -> None:
    folder = reports["v10.4"]
    notebook = nbformat.read(folder / "comparison.ipynb", as_version=4)
    assert notebook.metadata.papermill.output_path == "comparison.ipynb"
    assert str(folder.parent) not in json.dumps(notebook.metadata)
    assert not [o for c in notebook.cells for o in c.get("outputs", []) if o.output_type == "error"]
