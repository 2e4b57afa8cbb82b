"""Make the sections of a report as fragments of HTML; templates escape all text except rendered CommonMark."""

from __future__ import annotations

import base64
import functools
import hashlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, select_autoescape
from markupsafe import Markup

from buildcompare import figures
from buildcompare.comparison.analysis import Analysis
from buildcompare.config.kinds import Section, kind_of_results, kinds
from buildcompare.config.project import resolve, root
from buildcompare.figures import Figure, curves
from buildcompare.figures.flame import flame_graph
from buildcompare.findings import above_the_fold
from buildcompare.findings.labels import most_moved
from buildcompare.findings.subject import Subject, lab_command, subject
from buildcompare.findings.verdict import GRAVEST_FIRST, opening
from buildcompare.metrics.events import search_window
from buildcompare.report import commonmark
from buildcompare.results import Decided, Finding, LabelResult, Results, TestResult
from buildcompare.results.codes import FindingKind, ValidityStatus
from buildcompare.stats.noise import series_key
from buildcompare.text import numbers, sentences
from buildcompare.text.sentences import title as title_of

TEMPLATES = Path(__file__).parent / "templates"
RESULTS_MIME = "application/vnd.buildcompare.results+json"
"""MIME type of results.json in the executed notebook."""
FRAGMENT_MIME = "application/vnd.buildcompare.fragment+json"
"""MIME type of a fragment's fields in the notebook, for the HTML exporter."""
OPENED = "notebooks/investigate.ipynb"  # commands shown beside findings open this notebook
HEADLINE_TESTS = 6
"""Maximum number of tests, worst verdicts first, in the table below the verdict. A collapsed table has the rest."""
MOST_LABELS = 500
"""Maximum number of labels in a table (exceptions: see `labels`). Thousands of labels would take many megabytes."""
CALLABLE = (
    (commonmark, "aligned cell code destination plain to_html to_inline_html to_markdown"),
    (sentences, "macros say"),
    (
        numbers,
        "DECIDED_WORDS STATUS_SYMBOLS status_symbol STATUS_WORDS VERDICT_SYMBOLS VERDICT_WORDS change db_name interval",
    ),
    (numbers, "duration minutes moved of_label p_words percent quantity share significant status_words test_words"),
    (numbers, "whole"),
)
"""Functions and constants that templates may use, as globals and as filters."""


@dataclass(frozen=True)
class Fragment:
    """Piece of HTML for the notebook and the report."""

    html: Markup
    text: str = ""
    """Plain text for places without HTML."""
    heading: str = ""
    """Heading of the section that begins here."""
    for_figures: bool = False
    """If True, the fragment holds the controls of the figures that follow."""
    block: str = ""
    """Name of the hand-written block of README.md that the page shows after the fragment; empty for none."""
    is_placeholder: bool = False
    """If True, the page replaces the fragment by the hand-written text of `block`, or omits it if there is no text."""
    alone: bool = True
    """If True, `styled` adds the CSS styles, because the page (such as a notebook) has none."""

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        fields = {name: value for name, value in vars(self).items() if value and name not in ("text", "alone")}
        shown = {"text/html": self.styled()} if self.html else {}  # no HTML for a fragment with only a heading
        return {**shown, "text/plain": self.text, FRAGMENT_MIME: {**fields, "html": str(self.html)}}

    def styled(self) -> str:
        """Return the HTML, with CSS styles if the fragment is `alone`."""
        style = f"<style>{_style()}</style>" if self.alone else ""
        return f'<div class="buildcompare">{style}{self.html}</div>'


class Report(Protocol):
    """A comparison, from which the sections of a report are made."""

    @property
    def results(self) -> Results:
        """Model of results.json."""


Part: TypeAlias = Fragment | Figure


@dataclass(frozen=True)
class EmbeddedResults:
    """results.json as an output of the notebook, so that the executed notebook holds all results."""

    results: Results

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        results = self.results
        text = f"{results.comparison}: {results.verdict} ({len(results.tests)} tests, {len(results.findings)} findings)"
        return {RESULTS_MIME: {"packed": figures.packed(results.model_dump_json())}, "text/plain": text}


@dataclass(frozen=True)
class Place:
    """Links from a finding to its evidence on the page, and the command that opens the finding in a notebook."""

    links: list[tuple[str, str]]
    command: str | None


OF_THE_RAMP = (FindingKind.BEGINNING, FindingKind.WAVES, FindingKind.TIME_TO_USERS)
OF_THE_PAST = (FindingKind.SETUP_DIFFERENCES, FindingKind.LEVEL_DRIFT, FindingKind.PREVIOUS_NEW,
               FindingKind.BETWEEN_DATABASES, FindingKind.BUMPS_CHANGED, FindingKind.NO_HISTORY)  # fmt: skip


def places(results: Results) -> dict[str, Place]:
    """Return the links and the notebook command of each finding, by the id of the finding."""
    about = ((finding, subject(finding, results.tests)) for finding in results.findings)
    return {each.id: Place(_links(each, of, results), _command(results, of)) for each, of in about}


def _links(finding: Finding, about: Subject, results: Results) -> list[tuple[str, str]]:
    """Return links from a finding to its evidence on the page, such as a table row, chart or event."""
    kind = finding.kind
    if kind in OF_THE_PAST or kind in (FindingKind.COUNTED_ERRORS, FindingKind.ERROR_RATE):
        return [("setup", "#setup")] if kind in OF_THE_PAST else [("row", "#errors")]
    test = next((each for each in results.tests if each.name == about.test), None)
    if test is None:
        return []
    keys = (series_key(row.slug, row.labels) for row in test.metrics)
    rows = dict(zip(keys, figures.names(test.metrics, test.name), strict=True))
    load = {run.load_curve for run in (*test.runs.base, *test.runs.new)} if curves.rises(test) else set()
    users = [("chart", f"#{test.name}_users")] if load & {*rows} else []
    if about.label:
        return [("row", f"#{_label_ids(results)[test.name, about.label[0], about.label[1]]}")]
    if kind in OF_THE_RAMP or kind in (FindingKind.BUMPS_IN_BOTH, FindingKind.SUPPORTED_USERS):
        return [("row", f"#{'supported' if kind == FindingKind.SUPPORTED_USERS else 'ramp'}-{test.name}"), *users]
    if kind == FindingKind.PROFILES:
        return [("flame graph", f"#profiles-{test.name}")]
    links = [("event", f"#event-{test.name}-{finding.evidence['group']}")] if kind == FindingKind.EVENT else []
    if about.metric is None or kind == FindingKind.UNCHANGED:
        return links or [("rows", f"#metrics-{test.name}")]
    row = "load" if finding.evidence.get("decided_by") == "equal_load" else "row"
    chart = users if about.metric in load else [("chart", f"#{rows[about.metric]}")]
    return [*links, ("row", f"#{row}-{rows[about.metric]}"), *chart]


def _label_ids(results: Results) -> dict[tuple[str | None, str, str], str]:
    """Return the HTML id of each label with a finding; a key is the test, the label table (group) and the label."""
    about_all = (subject(each, results.tests) for each in results.findings)
    rows = dict.fromkeys((about.test, *about.label[:2]) for about in about_all if about.label)
    return {row: f"label-{row[0]}-{i}" for i, row in enumerate(rows, start=1)}


def _command(results: Results, about: Subject) -> str | None:
    """Return the command that opens a finding in the project's notebook; None without a params file or notebook."""
    stated = shlex.split(results.provenance.run["command"])
    if stated[:-1] != ["python", "-m", "buildcompare", "report"] or not resolve(file := stated[-1]).is_file():
        return None
    return lab_command(file, about.test, about.metric, about.label) if (root() / OPENED).is_file() else None


def _plain(name: str) -> Callable[[Report], Fragment]:
    return lambda report: fragment(name, results=report.results)


title, setup, supported_users = _plain("title"), _plain("setup"), _plain("supported_users")
errors, provenance, further_runs = _plain("errors"), _plain("provenance"), _plain("further_runs")


def comments(report: Report) -> Fragment:
    """Show the analyst's comments from the params; the page adds those from README.md."""
    return _written("comments", report.results.comments, "No comments were written.")


def action_items(report: Report) -> Fragment:
    """Show the heading and the analyst's next steps from the params; the page adds next steps from README.md."""
    results = report.results
    return _written("action-items", results.action_items, "None were written.", results.action_items_title)


def _written(block: str, items: Iterable[str], nothing: str, heading: str = "") -> Fragment:
    given = [item for item in items if item.strip()]
    made = fragment("written", items=given, nothing=nothing)
    return replace(made, heading=heading, block=block, is_placeholder=not given)


def events(analysis: Analysis) -> Fragment:
    """Show the events of each test, and name the tests with runs that are too short to search for events."""
    tests = [test for test in analysis.results.tests if test.type != "benchmark"]
    windows = {test.name: [run.window for run in (*test.runs.base, *test.runs.new)] for test in tests}
    short = [test for test in tests if not all(search_window(each, test.type) for each in windows[test.name])]
    return fragment("events", results=analysis.results, short=short)


def verdict(analysis: Analysis, *, links: bool = True) -> Fragment:
    """Show the verdict, a table of all tests, the findings, and the rule of the verdict."""
    results, tests = analysis.results, analysis.results.tests
    if len(tests) > HEADLINE_TESTS:
        tests = sorted(tests, key=lambda test: GRAVEST_FIRST.index(test.verdict))
    with_users = any(test.supported_users for test in tests)
    gates = [metric.name for metric in analysis.catalogue.metrics if metric.gate] + ["supported users"] * with_users
    rows = [row for test in results.tests for row in test.metrics if row.gate]
    rows.sort(key=lambda row: not (row.deciding and row.deciding.status.changed))  # changed metrics come first
    begins = opening(results)
    top, rest = above_the_fold(results.findings, begins.states)
    return fragment(
        "verdict",
        results=results,
        opening=begins,
        gate_metrics=list(dict.fromkeys(row.name for row in rows)),
        gates=gates,
        shown=tests[:HEADLINE_TESTS],
        folded=tests[HEADLINE_TESTS:],
        top=top,
        rest=rest,
        with_users=with_users,
        places=places(results),
        links=links,
    )


def summary(analysis: Analysis) -> Fragment:
    """Show the verdict, the findings and the metrics in a notebook's cell."""
    shown = verdict(analysis, links=False)  # no links, because their targets exist only on the report's page
    return fragment("summary", results=analysis.results, title=title(analysis).html, verdict=shown.html)


def ramp_up(analysis: Analysis) -> Iterator[Part]:
    """Show the ramp of each test whose load rises, as a chart and in tables; tests with a changed ramp come first."""
    with_findings = {each.test for each in analysis.results.findings if each.kind in OF_THE_RAMP}
    hinted, drawn = False, False
    rising = [test for test in analysis.tests() if curves.rises(test.result)]
    for test in sorted(rising, key=lambda test: test.result.name not in with_findings):
        shown = test.result.name in with_findings
        if figure := curves.users(test):
            drawn = True
            if shown:
                yield _chart_tools([figure], hint=not hinted)
                hinted = True
            yield replace(figure, caption=title_of(test.result), shown=shown)
    if rising:
        yield fragment("ramp_up", results=analysis.results, tests=[test.result for test in rising], drawn=drawn)


def metrics(analysis: Analysis) -> Iterator[Part]:
    """Show the metrics of every test as tables and charts, and the mean changes over several tests."""
    yield fragment("matrix", results=analysis.results, matrix=_matrix(analysis.results.tests))
    for test in analysis.tests():
        yield fragment("test_heading", test=test.result)
        rows = list(zip(test.result.metrics, figures.names(test.result.metrics, test.result.name), strict=True))
        yield fragment("metrics", results=analysis.results, test=test.result, rows=rows)
        if test.result.distributions:
            yield fragment("distributions", results=analysis.results, test=test.result)
        if test.result.type == "benchmark":
            yield from curves.ecdfs(test)
        else:
            for drawn in ([*curves.at_equal_load(test)], [*curves.graphs(test)]):
                if drawn:
                    yield _chart_tools(drawn)
                    yield from sorted(drawn, key=lambda each: not each.shown)
        if test.profiles:
            graph = flame_graph(test.profiles, test.labels, name=title_of(test.result))
            yield fragment("profiles", results=analysis.results, test=test.result, graph=Markup(graph))  # noqa: S704  # our HTML
    if analysis.results.pooled:
        yield fragment("pooled", results=analysis.results)
    yield fragment("metrics_rule", results=analysis.results, prior_source=analysis.catalogue.prior_source)


def _matrix(tests: Iterable[TestResult]) -> list[tuple[str, list[Decided | None]]]:
    """Return each metric's name and its result in every test; the result is None in tests without a judgement."""
    of_tests = [{metric.full_name: metric for metric in test.metrics if metric.p_value is not None} for test in tests]
    names = dict.fromkeys(name for metrics in of_tests for name in metrics)
    matrix = [(name, [metrics.get(name) for metrics in of_tests]) for name in names]
    return [(name, [row and (row.load_adjusted or row.at_unchanged_mix) for row in rows]) for name, rows in matrix]


def labels(analysis: Analysis) -> Fragment:
    """Show the labels of every table, largest changes first: one row per label, statistics side by side.

    A table has its first `MOST_LABELS` labels, and any label that changed, has a finding, or is in one build only.
    """
    ids = _label_ids(analysis.results)
    tables: list[tuple[TestResult, list[tuple[Any, ...]]]] = []
    for test in (test for test in analysis.results.tests if test.labels):
        tables.append((test, []))
        judged = test.validity.status != ValidityStatus.INVALID
        for group, rows in groupby(test.labels, key=lambda row: row.group):
            of_group = list(rows)
            by_label: dict[str, dict[str, LabelResult]] = {row.label: {} for row in (*most_moved(of_group), *of_group)}
            for row in of_group:
                by_label[row.label][row.stat] = row
            marked = [row.label for row in of_group if judged and row.status.changed]
            first = {*marked, *(row.label for row in of_group if row.only_in), *list(by_label)[:MOST_LABELS]}
            kept = {each: by_label[each] for each in by_label if each in first or (test.name, group, each) in ids}
            stats = sorted({row.stat for row in of_group})
            counts = len(by_label), len(set(marked))
            tables[-1][1].append((analysis.catalogue.label_table(group), stats, kept, *counts))
    endpoints = {table.group for _, of_test in tables for table, *_ in of_test} == {"endpoint"}
    noun = "endpoint" if endpoints else "label"
    made = fragment("labels", results=analysis.results, tables=tables, ids=ids, noun=noun)
    return replace(made, heading=f"{noun.capitalize()}s") if tables else made


def _chart_tools(drawn: Iterable[Figure], *, hint: bool = False) -> Fragment:
    """Make the controls that all charts of a test share; `hint` adds instructions for mouse and keys."""
    group = next((figure.chart["group"] for figure in drawn if figure.chart), None)
    return replace(fragment("chart_tools", group=group, hint=hint), for_figures=True)


@functools.cache
def templates(*first: str) -> Environment:
    """Make the environment of the templates, with the functions that they call; `first` are folders searched first."""
    rest = (kind.folder / "templates" for kind in kinds())
    loader = FileSystemLoader([*first, TEMPLATES, TEMPLATES / "sections", *rest])
    made = Environment(
        loader=loader,
        autoescape=select_autoescape(["html.j2", "xml.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=sentences.compiled(__file__),
    )
    usable = {name: getattr(module, name) for module, names in CALLABLE for name in names.split()}
    made.filters |= usable | {"test_title": title_of}
    made.globals |= usable | {"test_title": title_of, "region": region, "term": term}
    return made


def region(name: str) -> Markup:
    """Write the opening tag of a labelled region in which the table `name` scrolls, also by keyboard."""
    return Markup('<div class="scroll" role="group" tabindex="0" aria-label="Table: {}">').format(name)


def term(name: str) -> Markup:
    """Write a technical term with its meaning as a tooltip."""
    return Markup('<abbr title="{}">{}</abbr>').format(sentences.macros("reasons").TERMS[name], name)


def template(name: str) -> Template:
    """Load a template by its name without ``.j2``; templates of HTML and XML escape their values."""
    return templates().get_template(f"{name}.j2")


@functools.cache
def _style() -> str:
    return "\n".join([figures.themes(), (TEMPLATES / "sections/fragment.css").read_text("utf-8")])


def fragment(name: str, **values: object) -> Fragment:
    """Render the section template `name` with these values."""
    html = template(f"{name}.html").render(**values)
    return Fragment(Markup(html), f"[{name.replace('_', ' ')}]")  # noqa: S704  # escaped by the template


@functools.cache
def assets(name: str, *styles: str, component: str = "") -> Mapping[str, object]:
    """Return a page's styles, its script (with `component` appended), and the script's hash for the security policy."""
    script = (TEMPLATES / f"{name}.js").read_text("utf-8") + component
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    css = "\n".join([figures.theme(), *((TEMPLATES / f"{style}.css").read_text("utf-8") for style in styles)])
    return {"css": Markup(css), "script": Markup(script), "script_hash": f"sha256-{digest}"}  # noqa: S704  # our own files


SECTIONS: Mapping[str, Section] = {
    "title": Section("", title),
    "verdict": Section("Verdict", verdict),
    "comments": Section("Comments", comments),
    "action_items": Section("", action_items),
    "further_runs": Section("Further runs", further_runs),
    "setup": Section("Setup", setup),
    "supported_users": Section("Supported users", supported_users),
    "ramp_up": Section("Ramp-up", ramp_up),
    "metrics": Section("Metrics", metrics),
    "errors": Section("Errors", errors),
    "labels": Section("", labels),
    "events": Section("Events", events),
    "provenance": Section("Provenance", provenance),
}
"""Sections of a comparison by name, in the order of the page; the notebook's cells show the same sections."""


def sections_of(results: Results) -> Mapping[str, Section]:
    """Return the sections of a report by name."""
    kind = kind_of_results(results)
    return kind.sections() if kind else SECTIONS


def parts_of(report: Report, name: str) -> Iterator[Part]:
    """Yield a section's parts, or nothing if all are empty; its first fragment and first chart contain the CSS."""
    section = sections_of(report.results)[name]
    made = section.parts(report)
    parts = [made] if isinstance(made, Fragment) else [*made]
    if all(isinstance(part, Fragment) and not part.html.strip() and not part.block for part in parts):
        return
    if section.heading:
        yield Fragment(Markup(), heading=section.heading)
    brought: set[type] = set()
    for part in parts:
        yield replace(part, alone=type(part) not in brought)
        if isinstance(part, Fragment) or part.chart is not None:
            brought.add(type(part))
