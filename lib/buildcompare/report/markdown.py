"""The Markdown report in the shape of published performance comparisons, ready to commit with its graphs."""

from __future__ import annotations

import re
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
    file_extension = ".md"

    def from_notebook_node(self, nb: NotebookNode, resources: Any = None, **kw: Any) -> tuple[Any, Any]:
        """Convert `nb`; the graphs come back in ``resources["outputs"]`` under their paths."""
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        graphs = [figure for figure in figures_of(nb) if figure.graph_of is not None]
        resources["outputs"] = {str(GRAPHS / f"{figure.name}.png"): figure.png for figure in graphs}
        return render(results_of(nb), graphs), resources


def render(results: Results, graphs: Sequence[Figure]) -> str:
    """README.md from `results`; `graphs` are the figures that stand beside it."""
    several = len({test.db_engine for test in results.tests}) > 1
    tests = sorted(results.tests, key=lambda test: (_TYPES.index(test.type), db_name(test.db_engine)))
    links = "\n".join(f"- [{plain(link.title)}]({_destination(link.url)})" for link in results.grafana)
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
        *_setup(results),
        "## Results",
        *(["### Grafana", "Saved dashboards:", links] if links else []),
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
    lines += [f"{len(rest)} more in [report.html](report.html)."] if rest else []
    if lines:
        blocks.append("\n".join(f"- {text}" for text in lines))
    if results.suggestions:  # away from the action items, which are the analyst's own
        items = "\n".join(f"- {plain(suggestion.text)}" for suggestion in results.suggestions)
        blocks += ["Suggested by these results, not written by the analyst:", items]
    return blocks


def _items(items: Sequence[str], none: str) -> str:
    lines = ["- " + to_markdown(item.strip()).replace("\n", "\n  ") for item in items if item.strip()]
    return "\n".join(lines or [f"- {plain(none)}"])


def _setup(results: Results) -> list[str]:
    """The setup, and how it differs from the comparison before, where there is a ledger that knows."""
    rows = [[to_markdown(row.setting), to_markdown(row.value)] for row in results.setup]
    blocks = [_table(["Setting", "Value"], rows) if rows else "The setup was not written down."]
    if results.history and results.history.before is not None:
        before, words = plain(results.history.before), plain(setup_words(results.setup_differences))
        blocks.append(f"Differences to the comparison before, {before}: {words}.")
    return blocks


def _supported_users(results: Results, tests: Sequence[TestResult], *, several: bool) -> list[str]:
    rows = []
    for test in tests:
        if users := test.supported_users:
            engines = [other.db_engine for other in tests]
            name = db_name(test.db_engine) if test.db_engine and engines.count(test.db_engine) == 1 else test.name
            # two decimals and no plus sign; a leading minus is escaped, as it would start a list
            delta = "unknown" if users.delta_percent is None else f"{users.delta_percent:.2f}%"
            delta = delta.replace("-0.00%", "0.00%").replace("-", "\\-")
            rows.append([plain(name), _count(users, "base"), _count(users, "new"), delta])
    if not rows:
        return []
    header = ["Test", plain(results.base.label), plain(results.new.label), "Delta"]
    skipped = 0 if several or len(tests) > 1 else 1  # one test needs no name
    heading = f"### Supported users in unbounded {'test' if len(tests) == 1 else 'tests'}"
    return [heading, _table(header[skipped:], [row[skipped:] for row in rows])]


def _count(users: SupportedUsersResult, side: str) -> str:
    value, at_least = getattr(users, side), getattr(users.at_least, side)
    if value is not None:
        return f"{value:.0f}"
    return f"at least {at_least:.0f}" if at_least is not None else "unknown"


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
    grid.insert(1, ["-" * width for width in widths])
    lines = (" | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in grid)
    return "\n".join(f"| {line} |" for line in lines)


def _destination(url: str) -> str:
    """A link's destination, which brackets and spaces would end."""
    return re.sub(r"[()<>|]", lambda match: f"%{ord(match[0]):02X}", url)
