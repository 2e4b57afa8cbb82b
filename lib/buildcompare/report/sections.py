"""The sections of a report as fragments of HTML: what each cell of the notebook shows.

Every text is escaped in one place: the templates' automatic escaping. Only the filters of
:mod:`buildcompare.report.commonmark` return markup.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from buildcompare.comparison.analysis import Analysis
from buildcompare.figures import base as figures
from buildcompare.figures import users as figures_users
from buildcompare.findings import above_the_fold
from buildcompare.findings.opening import opening
from buildcompare.report.commonmark import to_html, to_inline_html
from buildcompare.results import LabelResult, Results, TestResult, dumps
from buildcompare.results.codes import Verdict
from buildcompare.text import conclusions, numbers
from buildcompare.text.findings import title as test_title
from buildcompare.text.history import DRIFT_WORDS, no_history
from buildcompare.text.reasons import NO_ESTIMATE_WORDS, reason_words

RESULTS_MIME = "application/vnd.buildcompare.results+json"
"""The output that carries results.json inside the executed notebook."""
FRAGMENT = "buildcompare_fragment"
"""Key of the display metadata by which the HTML exporter knows our own, escaped markup."""
HEADLINE_TESTS = 6
"""Tests in the table below the verdict; the others are folded, the gravest shown."""
_GRAVEST_FIRST = (Verdict.INVALID, Verdict.REGRESSION, Verdict.INCONCLUSIVE, Verdict.PASS)


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
        tests = len(self.results.tests)
        text = (
            f"{self.results.comparison}: {self.results.verdict} ({tests} tests, {len(self.results.findings)} findings)"
        )
        return {RESULTS_MIME: json.loads(dumps(self.results)), "text/plain": text}


def title(analysis: Analysis) -> Fragment:
    """What was compared; and first of all, whether it was only simulated."""
    return _fragment("title", results=analysis.results)


def verdict(analysis: Analysis) -> Fragment:
    """The verdict, a table of all tests, the findings, and the rule that made the verdict."""
    results = analysis.results
    gravest = sorted(results.tests, key=lambda test: _GRAVEST_FIRST.index(test.verdict))
    tests = results.tests if len(gravest) <= HEADLINE_TESTS else gravest
    gates = [metric.name for metric in analysis.catalogue.metrics if metric.gate]
    if any(test.supported_users for test in results.tests):
        gates.append("supported users")
    top, rest = above_the_fold(results.findings)
    return _fragment(
        "verdict",
        results=results,
        opening=opening(results),
        shown=tests[:HEADLINE_TESTS],
        folded=tests[HEADLINE_TESTS:],
        gate_metrics=list(dict.fromkeys(row.name for test in results.tests for row in test.metrics if row.gate)),
        top=top,
        rest=rest,
        gates=gates,
    )


def summary(analysis: Analysis) -> Fragment:
    """The verdict, the findings and the metrics, for a notebook's cell."""
    return _fragment("summary", results=analysis.results, title=title(analysis).html, verdict=verdict(analysis).html)


def comments(analysis: Analysis) -> Fragment:
    """The analyst's own words."""
    return _fragment(
        "written",
        items=[item for item in analysis.results.comments if item.strip()],
        nothing="No comments were written.",
    )


def action_items(analysis: Analysis) -> Fragment:
    """What the analyst wants done."""
    return _fragment("action_items", results=analysis.results)


def setup(analysis: Analysis) -> Fragment:
    """The setup, and links to the dashboards."""
    return _fragment("setup", results=analysis.results)


def supported_users(analysis: Analysis) -> Fragment:
    """How many users each build supports: reported by the tool and estimated from the curves."""
    unbounded = [test for test in analysis.results.tests if test.supported_users is not None]
    return _fragment("supported_users", results=analysis.results, tests=unbounded)


def ramp_up(analysis: Analysis) -> Iterator[Fragment | figures.Figure]:
    """How the load came up in each test: curve and times."""
    for test in analysis.tests():
        yield _fragment("test_heading", test=test.result)
        figure = figures_users.users(test)
        if figure is not None:
            yield figure
        yield _fragment("ramp_up", results=analysis.results, test=test.result)


def metrics(analysis: Analysis) -> Iterator[Fragment | figures.Figure]:
    """Every metric over the steady windows, and at equal load where the load was not the same."""
    for test in analysis.tests():
        yield _fragment("test_heading", test=test.result)
        yield _fragment("metrics", results=analysis.results, test=test.result)
        yield from figures_users.at_equal_load(test)
    yield _fragment("metrics_rule", results=analysis.results, prior_source=analysis.catalogue.prior_source)


def labels(analysis: Analysis) -> Fragment:
    """Every label of every table, paired by name."""
    tables = [(test, _label_groups(analysis, test)) for test in analysis.results.tests if test.labels]
    return _fragment("labels", results=analysis.results, tables=tables)


def events(analysis: Analysis) -> Fragment:
    """What happened at one time in one metric."""
    return _fragment("events", results=analysis.results)


def graphs(analysis: Analysis) -> Iterator[Fragment | figures.Figure]:
    """One figure for each metric of each test."""
    for test in analysis.tests():
        yield _fragment("test_heading", test=test.result)
        yield from figures.graphs(test)


def provenance(analysis: Analysis) -> Fragment:
    """Where all of it comes from."""
    return _fragment("provenance", results=analysis.results)


def _label_groups(analysis: Analysis, test: TestResult) -> list[dict[str, Any]]:
    """The rows of each label table: one row per label, its statistics side by side."""
    groups = []
    for group, rows in groupby(test.labels, key=lambda row: row.group):
        by_label: dict[str, dict[str, LabelResult]] = {}
        for row in rows:
            by_label.setdefault(row.label, {})[row.stat] = row
        stats = sorted({stat for row in by_label.values() for stat in row})
        table = analysis.catalogue.label_table(group)
        groups.append(
            {"title": table.title, "label": table.label, "unit": table.unit, "stats": stats, "rows": by_label}
        )
    return groups


@functools.cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("buildcompare.report", "templates/sections"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    words = (numbers.change, numbers.db_name, numbers.minutes, numbers.percent, numbers.quantity, reason_words)
    more = (conclusions.at_load_words, conclusions.explain)
    environment.filters.update({each.__name__: each for each in (*words, *more)})
    environment.filters.update(commonmark=to_html, commonmark_line=to_inline_html, test_title=test_title)
    names = ("interval", "p_words", "status_words", "STATUS_SYMBOLS", "STATUS_WORDS", "VERDICT_SYMBOLS")
    environment.globals.update({name: getattr(numbers, name) for name in (*names, "VERDICT_WORDS")})
    environment.globals.update(DRIFT_WORDS=DRIFT_WORDS, NO_ESTIMATE_WORDS=NO_ESTIMATE_WORDS, no_history=no_history)
    return environment


def without_style(shown: str) -> str:
    """The HTML of a fragment as a notebook shows it, without its styles: the page has its own."""
    return shown.partition("</style>")[2].removesuffix("</div>")


@functools.cache
def _style() -> str:
    """What styles a fragment in a notebook; the colours are the report's, in the theme of JupyterLab or the reader."""
    templates = files("buildcompare.report") / "templates"
    page = (templates / "buildcompare/report.css").read_text("utf-8")
    light, dark = re.findall(r":root \{([^}]*)\}", page)[:2]
    scope, in_jupyterlab = ".buildcompare", '[data-jp-theme-light="{}"] .buildcompare'
    themes = [
        f"{scope} {{{light}}}",
        f"@media (prefers-color-scheme: dark) {{ {scope} {{{dark}}} }}",
        f"{in_jupyterlab.format('true')} {{{light}}}",
        f"{in_jupyterlab.format('false')} {{{dark}}}",
    ]
    return "\n".join([*themes, (templates / "sections/fragment.css").read_text("utf-8")])


def _fragment(template: str, **values: object) -> Fragment:
    html = _templates().get_template(f"{template}.html.j2").render(**values)
    return Fragment(Markup(html), f"[{template.replace('_', ' ')}]")  # noqa: S704  # escaped by the template


SECTIONS: tuple[tuple[str, tuple[Callable[[Analysis], Fragment | Iterator[Fragment | figures.Figure]], ...]], ...] = (
    ("", (title,)),
    ("Verdict", (verdict,)),
    ("Comments", (comments, action_items)),
    ("Setup", (setup,)),
    ("Supported users", (supported_users,)),
    ("Ramp-up", (ramp_up,)),
    ("Metrics", (metrics,)),
    ("Labels", (labels,)),
    ("Events", (events,)),
    ("Graphs", (graphs,)),
    ("Provenance", (provenance,)),
)
"""Headings of a report with what stands below them; the notebook's cells are the same."""
