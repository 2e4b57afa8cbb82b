"""The sections of a report as fragments of HTML; the templates escape all text, only commonmark's filters do not."""

from __future__ import annotations

import base64
import functools
import hashlib
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, select_autoescape
from markupsafe import Markup

from buildcompare import figures
from buildcompare.comparison.analysis import Analysis
from buildcompare.comparison.matrix import Matrix
from buildcompare.config.errors import ExecutionError
from buildcompare.config.project import resolve
from buildcompare.figures import FIGURE_MIME, Figure
from buildcompare.figures.flame import flame_graph
from buildcompare.findings import above_the_fold
from buildcompare.findings.subject import Subject, subject
from buildcompare.findings.variants import is_known
from buildcompare.findings.verdict import opening
from buildcompare.labels.tables import most_moved
from buildcompare.metrics.events import search_window
from buildcompare.report import commonmark
from buildcompare.results import Decided, Finding, LabelResult, Results, TestResult
from buildcompare.results.codes import FindingKind, ValidityStatus, Verdict
from buildcompare.stats.noise import series_key
from buildcompare.text import numbers, sentences
from buildcompare.text.sentences import title as title_of

if TYPE_CHECKING:
    from nbformat import NotebookNode  # a kernel need not import it

TEMPLATES = Path(__file__).parent / "templates"
RESULTS_MIME = "application/vnd.buildcompare.results+json"
"""The output that carries results.json inside the executed notebook."""
FRAGMENT = "buildcompare_fragment"
"""Key of the display metadata by which the HTML exporter knows our own, escaped markup."""
HEADLINE_TESTS = 6  # tests in the table below the verdict; the others are folded, the gravest shown
MOST_LABELS = 500
"""Of a table on the page: as many as a reader may scroll through; thousands make a page of many megabytes."""
KNOWN = (
    (commonmark, "aligned cell code destination plain to_html to_inline_html to_markdown"),
    (sentences, "say"),
    (numbers, "DECIDED_WORDS STATUS_SYMBOLS STATUS_WORDS VERDICT_SYMBOLS VERDICT_WORDS"),
    (numbers, "change db_name interval minutes p_words percent quantity share significant status_words test_words"),
)
"""What templates may call, as functions and as filters."""
GRAVEST_FIRST = (Verdict.INVALID, Verdict.REGRESSION, Verdict.INCONCLUSIVE, Verdict.PASS)


@dataclass(frozen=True)
class Fragment:
    """A piece of HTML that a notebook displays and the report keeps."""

    html: Markup
    text: str

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, str], dict[str, Any]]:
        return {"text/html": self.styled(), "text/plain": self.text}, {FRAGMENT: True}

    def styled(self) -> str:
        """The HTML with its styles, as it can stand in any page."""
        return f'<div class="buildcompare"><style>{_style()}</style>{self.html}</div>'


@dataclass(frozen=True)
class EmbeddedResults:
    """results.json as an output of the notebook, so that the executed notebook is complete by itself."""

    results: Results

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        found = self.results
        text = f"{found.comparison}: {found.verdict} ({len(found.tests)} tests, {len(found.findings)} findings)"
        return {RESULTS_MIME: {"packed": figures.packed(found.model_dump_json())}, "text/plain": text}


@dataclass(frozen=True)
class Place:
    """Where on the page a finding is shown, and the command that opens it in a notebook."""

    links: list[tuple[str, str]]
    command: str | None


OF_THE_RAMP = (FindingKind.BEGINNING, FindingKind.WAVES, FindingKind.TIME_TO_USERS)
OF_THE_PAST = (FindingKind.SETUP_DIFFERENCES, FindingKind.LEVEL_DRIFT, FindingKind.PREVIOUS_NEW,
               FindingKind.BETWEEN_DATABASES, FindingKind.NO_HISTORY)  # fmt: skip
OF_ERRORS = (FindingKind.COUNTED_ERRORS, FindingKind.ERROR_RATE)


def places(results: Results) -> dict[str, Place]:
    """By the id of each finding, where its row, its chart and its event are."""
    return {finding.id: _place(finding, results) for finding in results.findings}


def _place(finding: Finding, results: Results) -> Place:
    about = subject(finding, results.tests)
    return Place(_links(finding, about, results), _command(results, about))


def _links(finding: Finding, about: Subject, results: Results) -> list[tuple[str, str]]:
    """Where on the page a finding has its row, its chart and its event."""
    kind = finding.kind
    if kind in OF_THE_PAST or kind in OF_ERRORS:
        return [("setup", "#setup")] if kind in OF_THE_PAST else [("row", "#errors")]
    test = next((each for each in results.tests if each.name == about.test), None)
    if test is None:
        return []
    keys = (series_key(row.slug, row.labels) for row in test.metrics)
    rows = dict(zip(keys, figures.names(test.metrics, test.name), strict=True))
    load = {run.load_curve for run in (*test.runs.base, *test.runs.new)}
    users = [("chart", f"#{test.name}_users")] if load & {*rows} else []
    if about.label:
        return [("row", f"#{_labels_told(results)[test.name, about.label[0], about.label[1]]}")]
    if kind in OF_THE_RAMP or kind == FindingKind.BUMPS_IN_BOTH:
        return [("row", f"#ramp-{test.name}"), *users]
    if kind == FindingKind.SUPPORTED_USERS:
        return [("row", f"#supported-{test.name}"), *users]
    if kind == FindingKind.PROFILES:
        return [("flame graph", f"#profiles-{test.name}")]
    if kind == FindingKind.UNCHANGED:
        return [("rows", f"#metrics-{test.name}")]
    links = [("event", f"#event-{test.name}-{finding.evidence['group']}")] if kind == FindingKind.EVENT else []
    if about.metric is None:
        return links or [("rows", f"#metrics-{test.name}")]
    row = "load" if finding.evidence.get("decided_by") == "equal_load" else "row"
    chart = users if about.metric in load else [("chart", f"#{rows[about.metric]}")]
    return [*links, ("row", f"#{row}-{rows[about.metric]}"), *chart]


def _labels_told(results: Results) -> dict[tuple[str | None, str, str], str]:
    """The ids of the rows of labels that findings are about, by test, group and label."""
    told = (subject(each, results.tests) for each in results.findings)
    rows = dict.fromkeys((about.test, *about.label[:2]) for about in told if about.label)
    return {row: f"label-{row[0]}-{i}" for i, row in enumerate(rows, start=1)}


def _command(results: Results, about: Subject) -> str | None:
    """The command that opens in a notebook what a finding is about, where the report is of a params file."""
    file = shlex.split(results.provenance.run["command"])[-1]
    if not resolve(file).is_file():
        return None
    label = " ".join(about.label) if about.label else None
    chosen = {"NOTEBOOK": "investigate", "PARAMS": file, "TEST": about.test, "METRIC": about.metric, "LABEL": label}
    named = {key: value.replace("$", "$$") for key, value in chosen.items() if value}  # make would read a variable
    return " ".join(["make lab", *(f"{key}={shlex.quote(value)}" for key, value in named.items())])


def _plain(name: str) -> Callable[[Analysis], Fragment]:
    return lambda analysis: fragment(name, results=analysis.results)


title, comments, action_items, setup = _plain("title"), _plain("comments"), _plain("action_items"), _plain("setup")
supported_users, errors, provenance = _plain("supported_users"), _plain("errors"), _plain("provenance")


def events(analysis: Analysis) -> Fragment:
    """What happened once, and the tests with a run too short to tell."""
    tests = [test for test in analysis.results.tests if test.type != "benchmark"]
    windows = {test.name: [run.window for run in (*test.runs.base, *test.runs.new)] for test in tests}
    short = [test for test in tests if not all(search_window(each, test.type) for each in windows[test.name])]
    return fragment("events", results=analysis.results, short=short)


def charts() -> figures.Charts:
    """What all charts of a notebook need."""
    return figures.Charts()


def verdict(analysis: Analysis) -> Fragment:
    """The verdict, a table of all tests, the findings, and the rule that made the verdict."""
    results, tests = analysis.results, analysis.results.tests
    if len(tests) > HEADLINE_TESTS:
        tests = sorted(tests, key=lambda test: GRAVEST_FIRST.index(test.verdict))
    gates = [metric.name for metric in analysis.catalogue.metrics if metric.gate]
    if any(test.supported_users for test in results.tests):
        gates.append("supported users")
    columns = list(dict.fromkeys(row.name for test in results.tests for row in test.metrics if row.gate))
    split: dict[str, Any] = {"shown": tests[:HEADLINE_TESTS], "folded": tests[HEADLINE_TESTS:]}
    said = opening(results)
    split["top"], split["rest"] = above_the_fold([each for each in results.findings if each.text not in said.sentence])
    split |= {"with_users": any(test.supported_users for test in results.tests), "places": places(results)}
    return fragment("verdict", results=results, opening=said, gate_metrics=columns, gates=gates, **split)


def further_runs(analysis: Analysis) -> Fragment:
    """How many further runs would decide what is not decided, in which order, and what they would show."""
    titles = {test.name: title_of(test) for test in analysis.results.tests}
    return fragment("further_runs", results=analysis.results, titles=titles)


def summary(analysis: Analysis) -> Fragment:
    """The verdict, the findings and the metrics, for a notebook's cell."""
    return fragment("summary", results=analysis.results, title=title(analysis).html, verdict=verdict(analysis).html)


def ramp_up(analysis: Analysis) -> Iterator[Fragment | Figure]:
    """How the load came up in each test, the tests first in which it came up otherwise: curve and times."""
    told = {each.test for each in analysis.results.findings if each.kind in OF_THE_RAMP}
    hinted = False
    for test in sorted(analysis.tests(), key=lambda test: test.result.name not in told):
        shown = test.result.name in told
        if test.result.type == "benchmark":
            continue
        if figure := figures.users(test):
            if shown:
                yield _chart_tools([figure], hint=not hinted)
                hinted = True
            yield replace(figure, caption=title_of(test.result), shown=shown, alone=False)
    yield fragment("ramp_up", results=analysis.results)


def metrics(analysis: Analysis) -> Iterator[Fragment | Figure]:
    """Every metric over the steady windows, and at equal load where the load was not the same."""
    yield fragment("matrix", results=analysis.results, matrix=_matrix(analysis.results.tests))
    for test in analysis.tests():
        yield fragment("test_heading", test=test.result)
        rows = list(zip(test.result.metrics, figures.names(test.result.metrics, test.result.name), strict=True))
        yield fragment("metrics", results=analysis.results, test=test.result, rows=rows)
        if test.result.distributions:
            yield fragment("distributions", results=analysis.results, test=test.result)
        if test.result.type == "benchmark":
            yield from figures.ecdfs(test)
        else:
            for drawn in ([*figures.at_equal_load(test)], [*figures.graphs(test)]):
                if drawn:
                    yield _chart_tools(drawn)
                    yield from (replace(each, alone=False) for each in sorted(drawn, key=lambda each: not each.shown))
        if test.profiles:
            graph = flame_graph(test.profiles, test.labels, name=title_of(test.result))
            yield fragment("profiles", results=analysis.results, test=test.result, graph=Markup(graph))  # noqa: S704  # ours
    if analysis.results.pooled:
        yield fragment("pooled", results=analysis.results)
    yield fragment("metrics_rule", results=analysis.results, prior_source=analysis.catalogue.prior_source)


def _matrix(tests: Iterable[TestResult]) -> list[tuple[str, list[Decided | None]]]:
    """By the name of each metric its row in each test, at equal load where that is known; None where it has none."""
    of_tests = [{metric.full_name: metric for metric in test.metrics if metric.p_value is not None} for test in tests]
    names = dict.fromkeys(name for metrics in of_tests for name in metrics)
    found = [(name, [metrics.get(name) for metrics in of_tests]) for name in names]
    return [(name, [row and (row.load_adjusted or row.effective) for row in rows]) for name, rows in found]


def labels(analysis: Analysis) -> Fragment:
    """The labels of every table, what moved most first: one row per label, its statistics side by side.

    Of a longer table than `MOST_LABELS` those that are marked, and no more than so many others.
    """
    told = _labels_told(analysis.results)
    tables: list[tuple[TestResult, list[tuple[Any, ...]]]] = []
    for test in (test for test in analysis.results.tests if test.labels):
        tables.append((test, []))
        judged = test.validity.status != ValidityStatus.INVALID
        for group, rows in groupby(test.labels, key=lambda row: row.group):
            of_group = list(rows)
            by_label: dict[str, dict[str, LabelResult]] = {row.label: {} for row in (*most_moved(of_group), *of_group)}
            for row in of_group:
                by_label[row.label][row.stat] = row
            stats = sorted({stat for row in by_label.values() for stat in row})
            marked = [row.label for row in of_group if judged and row.status.changed]
            first = {*marked, *(row.label for row in of_group if row.only_in), *list(by_label)[:MOST_LABELS]}
            first |= {label for test_name, of, label in told if (test_name, of) == (test.name, group)}
            kept = {label: rows for label, rows in by_label.items() if label in first}
            tables[-1][1].append((analysis.catalogue.label_table(group), stats, kept, len(by_label), len(marked)))
    return fragment("labels", results=analysis.results, tables=tables, told=told)


def _chart_tools(drawn: Iterable[Figure], *, hint: bool = False) -> Fragment:
    """What is chosen for all charts of a test; with a `hint` how they are used."""
    group = next((figure.chart["group"] for figure in drawn if figure.chart), None)
    return fragment("chart_tools", group=group, hint=hint)


@functools.cache
def templates() -> Environment:
    """Where the templates are, with what they may call."""
    look: dict[str, Any] = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    loader = FileSystemLoader([TEMPLATES, TEMPLATES / "sections"])
    look["bytecode_cache"] = sentences.compiled(__file__)
    made = Environment(loader=loader, autoescape=select_autoescape(["html.j2", "xml.j2"]), **look)
    known = {name: getattr(module, name) for module, names in KNOWN for name in names.split()}
    made.filters |= known | {"test_title": title_of}
    made.globals |= known
    return made


def template(name: str) -> Template:
    """One of the templates by its name without ``.j2``; those of HTML and XML escape what they are given."""
    return templates().get_template(f"{name}.j2")


def without_style(shown: str) -> str:
    """The HTML of a fragment as a notebook shows it, without its styles: the page has its own."""
    return shown.partition("</style>")[2].removesuffix("</div>")


@functools.cache
def _style() -> str:
    return "\n".join([figures.themes(), (TEMPLATES / "sections/fragment.css").read_text("utf-8")])


def fragment(name: str, **values: object) -> Fragment:
    """The section template `name` with these values."""
    html = template(f"{name}.html").render(**values)
    return Fragment(Markup(html), f"[{name.replace('_', ' ')}]")  # noqa: S704  # escaped by the template


def page(name: str, *styles: str, component: str = "", **values: object) -> str:
    """A page by the template `name`: it loads nothing, and by its policy runs its one script alone.

    The script is the template's own, with a `component` that others made after it.
    """
    script = (TEMPLATES / f"{name}.js").read_text("utf-8") + component
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    css = "\n".join([figures.theme(), *((TEMPLATES / f"{style}.css").read_text("utf-8") for style in styles)])
    ours = {"css": Markup(css), "script": Markup(script), "script_hash": f"sha256-{digest}"}  # noqa: S704  # our own files
    return template(f"{name}.html").render(**ours, **values)


def outputs_of(notebook: NotebookNode) -> Iterator[Any]:
    """Every output of every code cell."""
    for cell in notebook.cells:
        yield from cell.get("outputs", [])


def results_of(notebook: NotebookNode) -> Results:
    """The results that the notebook embeds; an :class:`ExecutionError` where it was not run to its end."""
    for output in outputs_of(notebook):
        if RESULTS_MIME in output.get("data", {}):
            return Results.model_validate_json(figures.unpacked(output["data"][RESULTS_MIME]["packed"]))
    raise ExecutionError("the notebook holds no results: it was not run to its end")


def keep_beside_results(notebook: NotebookNode, more: dict[str, Any]) -> Results:
    """Keep `more` under `provenance.run` of the results that the notebook embeds, and return them."""
    results = results_of(notebook)
    results.provenance.run.update(more)
    for output in outputs_of(notebook):
        if RESULTS_MIME in output.get("data", {}):
            output["data"] |= EmbeddedResults(results)._repr_mimebundle_()
    return results


def figures_of(notebook: NotebookNode) -> Iterator[Figure]:
    """The figures that the notebook shows, as pictures: without their charts."""
    shown = (output for output in outputs_of(notebook) if output.get("metadata", {}).get(FIGURE_MIME))
    return (figure_of(output, with_chart=False) for output in shown)


def figure_of(output: Any, *, with_chart: bool = True) -> Figure:
    """The figure that an output of a notebook shows."""
    data = output["data"]
    pixels = base64.b64decode(data["image/png"]) if "image/png" in data else None
    chart = figures.chart_of("".join(data.get("application/javascript", ""))) if with_chart else None
    return Figure(**output["metadata"][FIGURE_MIME], svg="".join(data["image/svg+xml"]), pixels=pixels, chart=chart)


SECTIONS: tuple[tuple[str, Callable[[Analysis], Fragment | Iterator[Fragment | Figure]]], ...] = (
    ("", title),
    ("Verdict", verdict),
    ("Comments", comments),
    ("", action_items),
    ("Further runs", further_runs),
    ("Setup", setup),
    ("Supported users", supported_users),
    ("Ramp-up", ramp_up),
    ("Metrics", metrics),
    ("Errors", errors),
    ("Labels", labels),
    ("Events", events),
    ("Provenance", provenance),
)
"""Headings of a report with what stands below them; the notebook's cells are the same."""


# ---- A matrix of variants --------------------------------------------------------------------------------------------

OPEN_CHARTS, MOST_TERMS = 2, 12
"""Charts and rows of factors that a page shows unfolded."""


def _of_matrix(name: str) -> Callable[[Matrix], Iterator[Fragment]]:
    return lambda matrix: iter([fragment(name, results=matrix.results)])


def matrix_title(matrix: Matrix) -> Iterator[Fragment]:
    """What is compared."""
    yield fragment("variants_title", results=matrix.results, result=matrix.result, title=matrix.params.title)


def matrix_verdict(matrix: Matrix) -> Iterator[Fragment]:
    """The verdict with its rule, what others concluded, and the findings."""
    top, rest = above_the_fold(matrix.results.findings)
    yield fragment("variants_verdict", results=matrix.results, opening=opening(matrix.results), top=top, rest=rest)


def matrix_contrasts(matrix: Matrix) -> Iterator[Fragment | Figure]:
    """Each variant beside what it is compared with, in all operations, and then operation by operation.

    Charts of operations in which something changed stand open, or else the first; at most `OPEN_CHARTS`.
    """
    result = matrix.result
    rows = {each.slug: [row for row in result.contrasts if row.operation == each.slug] for each in result.operations}
    drawn = {each.slug: figure for each in result.operations if (figure := figures.contrasts(result, each))}
    changed = [slug for slug in drawn if any(row.status.changed for row in rows[slug])]
    shown = (changed or [*drawn])[: OPEN_CHARTS if changed else 1]
    yield from (replace(drawn[slug], alone=slug == shown[0]) for slug in shown)
    small = [figures.heat_map(result), *(figure for slug, figure in drawn.items() if slug not in shown)]
    yield from (replace(figure, shown=False) for figure in small if figure)
    for operation in result.operations:
        if of := rows[operation.slug]:
            yield fragment("variants_contrasts", result=result, operation=operation, rows=of)


def matrix_factors(matrix: Matrix) -> Iterator[Fragment | Figure]:
    """What each factor does, and how two act together; pictures are open where that is proven."""
    result = matrix.result
    proven = [term for term in result.terms if term.proven]
    shown = proven or [term for term in result.terms if len(term.factors) == 1]
    yield fragment("variants_factors", result=result, shown=shown[:MOST_TERMS])
    acting = [(term.operation, *term.factors) for term in proven]
    drawn = [
        (replace(figure, shown=False), (operation.slug, *pair) in acting)
        for operation in result.operations
        for pair, figure in figures.interactions(result, operation)
    ]
    first = [figure for figure, acts in drawn if acts][:OPEN_CHARTS]
    yield from (replace(figure, shown=True) for figure in first)
    yield from (figure for figure, _ in drawn if figure not in first)


def matrix_ranking(matrix: Matrix) -> Iterator[Fragment]:
    """The variants in order, with ties where the runs cannot tell two apart."""
    result = matrix.result
    ranked = result.ranking if is_known(result) else []
    groups = [
        (result.operation(slug), task, [*rows])
        for (slug, task), rows in groupby(ranked, key=lambda row: (row.operation, row.workload))
    ]
    yield fragment("variants_ranking", result=result, groups=groups)


def matrix_runs(matrix: Matrix) -> Iterator[Fragment]:
    """Every run with its numbers."""
    every = matrix.result.runs
    facts = list(dict.fromkeys(name for run in every for name in run.facts))
    told = {"blocks": any(run.block for run in every), "sources": any(run.source for run in every), "facts": facts}
    yield fragment("variants_runs", results=matrix.results, result=matrix.result, **told)


MATRIX_SECTIONS: dict[str, tuple[str, Callable[[Matrix], Iterator[Fragment | Figure]]]] = {
    "title": ("", matrix_title),
    "verdict": ("Verdict", matrix_verdict),
    "comments": ("Comments", _of_matrix("comments")),
    "action_items": ("", _of_matrix("action_items")),
    "variants": ("Variants", matrix_contrasts),
    "factors": ("Factors", matrix_factors),
    "ranking": ("Ranking", matrix_ranking),
    "setup": ("Setup", _of_matrix("setup")),
    "runs": ("Runs", matrix_runs),
    "provenance": ("Provenance", _of_matrix("provenance")),
}
"""By name, the heading of each section and what stands below it, in the order of the report and its notebook."""
