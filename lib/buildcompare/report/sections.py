"""The sections of a report as fragments of HTML: what each cell of the notebook shows.

Every text is escaped in one place: the templates' automatic escaping. Only the filters of
:mod:`buildcompare.report.commonmark` return markup.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from buildcompare.comparison.analysis import Analysis
from buildcompare.figures import base as figures
from buildcompare.figures import equal_load as figures_load
from buildcompare.figures import users as figures_users
from buildcompare.findings import above_the_fold
from buildcompare.findings.opening import opening
from buildcompare.report.commonmark import to_html, to_inline_html
from buildcompare.results import LabelResult, MetricResult, Results, TestResult, dumps
from buildcompare.results.codes import Status, Verdict
from buildcompare.stats.effects import MOST_RUNS
from buildcompare.text import conclusions
from buildcompare.text import numbers as wording
from buildcompare.text.findings import title as title_of
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
        return {"text/html": str(self.html), "text/plain": self.text}, {FRAGMENT: True}


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


def title(bench: Analysis) -> Fragment:
    """What was compared; and first of all, whether it was only simulated."""
    return _fragment("title", results=bench.results)


def verdict(bench: Analysis) -> Fragment:
    """The verdict, a table of all tests, the findings, and the rule that made the verdict."""
    results = bench.results
    gravest = sorted(results.tests, key=lambda test: _GRAVEST_FIRST.index(test.verdict))
    tests = results.tests if len(gravest) <= HEADLINE_TESTS else gravest
    gates = [metric.name for metric in bench.catalogue.metrics if metric.gate]
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


def summary(bench: Analysis) -> str:
    """The verdict, the findings and the metrics as one piece of HTML with its own styles, for a notebook's cell."""
    return str(_fragment("summary", results=bench.results, title=title(bench).html, verdict=verdict(bench).html).html)


def comments(bench: Analysis) -> Fragment:
    """The analyst's own words."""
    return _fragment(
        "written", items=[item for item in bench.results.comments if item.strip()], nothing="No comments were written."
    )


def action_items(bench: Analysis) -> Fragment:
    """What the analyst wants done."""
    return _fragment("action_items", results=bench.results)


def setup(bench: Analysis) -> Fragment:
    """The setup, and links to the dashboards."""
    return _fragment("setup", results=bench.results)


def supported_users(bench: Analysis) -> Fragment:
    """How many users each build supports: reported by the tool and estimated from the curves."""
    unbounded = [test for test in bench.results.tests if test.supported_users is not None]
    return _fragment("supported_users", results=bench.results, tests=unbounded)


def ramp_up(bench: Analysis) -> Iterator[Fragment | figures.Figure]:
    """How the load came up in each test: curve and times."""
    for test in bench.tests():
        yield _fragment("test_heading", test=test.result)
        figure = figures_users.users(test)
        if figure is not None:
            yield figure
        yield _fragment("ramp_up", results=bench.results, test=test.result)


def metrics(bench: Analysis) -> Iterator[Fragment | figures.Figure]:
    """Every metric over the steady windows, and at equal load where the load was not the same."""
    for test in bench.tests():
        yield _fragment("test_heading", test=test.result)
        yield _fragment("metrics", results=bench.results, test=test.result)
        yield from figures_load.at_equal_load(test)
    yield _fragment("metrics_rule", results=bench.results, prior_source=bench.catalogue.prior_source)


def labels(bench: Analysis) -> Fragment:
    """Every label of every table, paired by name."""
    tables = [(test, _label_groups(bench, test)) for test in bench.results.tests if test.labels]
    return _fragment("labels", results=bench.results, tables=tables)


def events(bench: Analysis) -> Fragment:
    """What happened at one time in one metric."""
    return _fragment("events", results=bench.results)


def graphs(bench: Analysis) -> Iterator[Fragment | figures.Figure]:
    """One figure for each metric of each test."""
    for test in bench.tests():
        yield _fragment("test_heading", test=test.result)
        yield from figures.graphs(test)


def provenance(bench: Analysis) -> Fragment:
    """Where all of it comes from."""
    return _fragment("provenance", results=bench.results)


def _label_groups(bench: Analysis, test: TestResult) -> list[dict[str, Any]]:
    """The rows of each label table: one row per label, its statistics side by side."""
    groups = []
    for group, rows in groupby(test.labels, key=lambda row: row.group):
        by_label: dict[str, dict[str, LabelResult]] = {}
        for row in rows:
            by_label.setdefault(row.label, {})[row.stat] = row
        stats = sorted({stat for row in by_label.values() for stat in row})
        table = bench.catalogue.label_table(group)
        groups.append(
            {"title": table.title, "label": table.label, "unit": table.unit, "stats": stats, "rows": by_label}
        )
    return groups


def _bounded_value(value: float | None, unit: str, at_least: bool) -> str:
    return ("≥ " if at_least and value is not None else "") + wording.quantity(value, unit)


def _sort_key(value: float | None) -> Markup:
    """The attribute that the page's script sorts a cell by."""
    return Markup("") if value is None else Markup(' data-v="{:.6g}"').format(value)


def _p_value(value: float | None) -> str:
    if value is None:
        return wording.MISSING
    return "below 0.001" if value < 0.001 else wording.significant(value, 2)


def _count_of(value: float | None) -> str:
    """A number of samples, which is never none: a window over which a metric only drifts is worth less than one."""
    if value is None:
        return wording.MISSING
    return "below 1" if value < 1.0 else f"{value:,.0f}"


def _to_settle(metric: MetricResult) -> str:
    """Runs of each build that would settle what is open; of what is called or ruled out there is nothing to settle."""
    if metric.effective_status != Status.INCONCLUSIVE or metric.p_value is None:
        return wording.MISSING
    return str(metric.required_runs) if metric.required_runs is not None else f"over {MOST_RUNS}"


def _rate(count: int, of: int) -> str:
    return f"{100.0 * count / of:.1f} %" if of else wording.MISSING


@functools.cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("buildcompare.report", "templates/sections"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        commonmark=to_html,
        commonmark_line=to_inline_html,
        quantity=wording.quantity,
        change=wording.change,
        minutes=wording.minutes,
        reason=reason_words,
        test_title=title_of,
        db_name=wording.db_name,
        bounded_value=_bounded_value,
        percent=wording.percent,
        p=_p_value,
        count_of=_count_of,
        to_settle=_to_settle,
        sort_key=_sort_key,
        explained=conclusions.explain,
        at_load_words=conclusions.at_load_words,
    )
    environment.globals.update(
        STATUS_WORDS=wording.STATUS_WORDS,
        STATUS_SYMBOLS=wording.STATUS_SYMBOLS,
        DRIFT_WORDS=DRIFT_WORDS,
        no_history=no_history,
        VERDICT_WORDS=wording.VERDICT_WORDS,
        VERDICT_SYMBOLS=wording.VERDICT_SYMBOLS,
        NO_ESTIMATE_WORDS=NO_ESTIMATE_WORDS,
        interval=wording.interval,
        status_words=wording.status_words,
        rate=_rate,
    )
    return environment


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
