"""The Markdown report in the shape of published performance comparisons, ready to commit with its graphs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from nbconvert.exporters.exporter import Exporter
from nbformat import NotebookNode

from buildcompare.figures.base import Figure
from buildcompare.findings import above_the_fold, headlines
from buildcompare.findings.opening import opening
from buildcompare.report import hand_written
from buildcompare.report.commonmark import cell, code, plain, to_markdown
from buildcompare.report.notebook import figures_of, results_of
from buildcompare.results import Results, SupportedUsersResult, TestResult
from buildcompare.text.findings import title
from buildcompare.text.history import setup_words
from buildcompare.text.numbers import db_name

GRAPHS = PurePosixPath("graphs")
_TYPES = ("bounded", "unbounded")


class MarkdownReportExporter(Exporter):
    """``jupyter nbconvert --to buildcompare_markdown``: README.md and its graphs."""

    export_from_notebook = "buildcompare README"
    output_mimetype = "text/markdown"

    def _file_extension_default(self) -> str:
        return ".md"

    def from_notebook_node(  # type: ignore[override]  # the base class declares a notebook, its exporters return text
        self, nb: NotebookNode, resources: dict[str, Any] | None = None, **kw: Any
    ) -> tuple[str, dict[str, Any]]:
        """Convert `nb`; the graphs come back in ``resources["outputs"]`` under their paths."""
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        graphs = [figure for figure in figures_of(nb) if figure.graph_of is not None]
        resources["outputs"] = {str(GRAPHS / f"{figure.name}.png"): figure.png for figure in graphs}
        return render(results_of(nb), graphs), resources


def render(results: Results, graphs: Sequence[Figure]) -> str:
    """README.md from `results`; `graphs` are the figures that stand beside it."""
    several = len({test.db_engine for test in results.tests}) > 1
    tests = sorted(results.tests, key=lambda test: (_TYPES.index(test.type), db_name(test.db_engine)))
    blocks = [
        f"# Performance Comparison {code(results.base.label)} vs {code(results.new.label)}",
        hand_written.NOTICE,
        *_opening(results),
        "## Comments",
        _items(results.comments, "No comments."),
        hand_written.empty("comments"),
        f"## {plain(results.action_items_title)}",
        _items(results.action_items, f"No {results.action_items_title.casefold()}."),
        hand_written.empty("action-items"),
        "## Setup",
        _setup(results),
        *_setup_differences(results),
        "## Results",
        *_grafana(results),
        *_supported_users(results, [test for test in tests if test.supported_users], several=several),
    ]
    for test in tests:
        blocks += [f"### {plain(_graphs_title(test, tests, several=several))}", _graph_table(test, graphs)]
    return "\n\n".join(blocks) + "\n"


def _opening(results: Results) -> list[str]:
    blocks = []
    if results.simulated:
        blocks.append("> **Simulated recording.** These curves were made by a simulator, not measured on a server.")
    details = "Intervals, tables and what they rest on: [report.html](report.html)."
    first = opening(results)
    blocks.append(f"**{plain(first.title)}.** {plain(first.sentence)} {details}")
    told, rest = above_the_fold(headlines(results.findings))
    lines = [plain(finding.text) for finding in told]
    if rest:
        lines.append(f"{len(rest)} more in [report.html](report.html).")
    if lines:
        blocks.append("\n".join(f"- {text}" for text in lines))
    return blocks + _suggestions(results)


def _suggestions(results: Results) -> list[str]:
    """Below the findings and away from the action items, which are the analyst's own."""
    if not results.suggestions:
        return []
    items = "\n".join(f"- {plain(suggestion.text)}" for suggestion in results.suggestions)
    return ["Suggested by these results, not written by the analyst:", items]


def _items(items: Sequence[str], none: str) -> str:
    items = [item for item in items if item.strip()]
    if not items:
        return f"- {plain(none)}"
    return "\n".join("- " + to_markdown(item.strip()).replace("\n", "\n  ") for item in items)


def _setup(results: Results) -> str:
    rows = [[to_markdown(row.setting), to_markdown(row.value)] for row in results.setup]
    return _table(["Setting", "Value"], rows) if rows else "The setup was not written down."


def _setup_differences(results: Results) -> list[str]:
    """What differs from the comparison before, where there is a ledger that knows."""
    if results.history is None or results.history.before is None:
        return []
    words = setup_words(results.setup_differences)
    return [f"Differences to the comparison before, {plain(results.history.before)}: {plain(words)}."]


def _grafana(results: Results) -> list[str]:
    if not results.grafana:
        return []
    links = "\n".join(f"- [{plain(link.title)}]({_destination(link.url)})" for link in results.grafana)
    return ["### Grafana", "Saved dashboards:", links]


def _supported_users(results: Results, tests: Sequence[TestResult], *, several: bool) -> list[str]:
    if not tests:
        return []
    named = several or len(tests) > 1
    header = [plain(results.base.label), plain(results.new.label), "Delta"]
    rows = []
    for test in tests:
        users = test.supported_users
        if users is not None:
            row = [_count(users, "base"), _count(users, "new"), _delta(users.delta_percent)]
            rows.append([plain(_test_name(test, tests)), *row] if named else row)
    heading = f"### Supported users in unbounded {'test' if len(tests) == 1 else 'tests'}"
    return [heading, _table(["Test", *header] if named else header, rows)]


def _test_name(test: TestResult, tests: Sequence[TestResult]) -> str:
    alike = [other for other in tests if other.db_engine == test.db_engine]
    return db_name(test.db_engine) if test.db_engine and len(alike) == 1 else test.name


def _count(users: SupportedUsersResult, side: str) -> str:
    value, at_least = getattr(users, side), getattr(users.at_least, side)
    if value is not None:
        return f"{value:.0f}"
    return f"at least {at_least:.0f}" if at_least is not None else "unknown"


def _delta(percent: float | None) -> str:
    """Two decimals and no plus sign; a leading minus is escaped, as it would start a list."""
    if percent is None:
        return "unknown"
    return f"{percent:.2f}%".replace("-0.00%", "0.00%").replace("-", "\\-")


def _graphs_title(test: TestResult, tests: Sequence[TestResult], *, several: bool) -> str:
    alike = [t for t in tests if t.type == test.type and (t.db_engine == test.db_engine or not several)]
    if len(alike) > 1:
        return f"Graphs - {title(test)}"
    return f"Graphs - {test.type.capitalize()} {db_name(test.db_engine) if several else ''}".strip()


def _graph_table(test: TestResult, graphs: Sequence[Figure]) -> str:
    """Two graphs in a row, the first row as the header: that is how these reports show them."""
    own = [figure.name for figure in graphs if figure.graph_of == test.name]
    cells = [cell(f"![{plain(name) if '|' in name else name}]({_destination(str(GRAPHS / name))}.png)") for name in own]
    if not cells:
        return "No graph was recorded."
    rows = [cells[i : i + 2] + [""] * (2 - len(cells[i : i + 2])) for i in range(0, len(cells), 2)]
    return _table(rows[0], rows[1:])


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns line up in plain text too."""
    grid = [[cell(text) for text in row] for row in (header, *rows)]
    widths = [max(3, *(len(row[i]) for row in grid)) for i in range(len(header))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |" for row in grid
    ]
    rule = "| " + " | ".join("-" * width for width in widths) + " |"
    return "\n".join([lines[0], rule, *lines[1:]])


def _destination(url: str) -> str:
    """A link's destination, which brackets and spaces would end."""
    return url.replace("(", "%28").replace(")", "%29").replace("<", "%3C").replace(">", "%3E").replace("|", "%7C")
