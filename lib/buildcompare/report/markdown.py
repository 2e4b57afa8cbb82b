"""README.md in the shape of published performance comparisons, with its graphs and what people wrote into it."""

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from nbconvert.exporters.exporter import Exporter
from nbformat import NotebookNode

from buildcompare.config.errors import InputError
from buildcompare.figures import Figure
from buildcompare.findings import above_the_fold, headlines
from buildcompare.findings.verdict import opening
from buildcompare.report.commonmark import cell, code, plain, to_markdown
from buildcompare.report.sections import figures_of, results_of
from buildcompare.results import Results, SupportedUsersResult, TestResult
from buildcompare.text.findings import title
from buildcompare.text.history import setup_words
from buildcompare.text.numbers import db_name

GRAPHS = PurePosixPath("graphs")
_TYPES = ("bounded", "unbounded")
BLOCKS = ("comments", "action-items")
NOTICE = "<!-- Write between the hand-written markers: all other text of this file is made anew with every report. -->"
"""For whoever opens README.md to edit it."""
_MARKER = re.compile(r"<!-- hand-written (begin|end): ([^\n]*?) -->")
_LIKE_A_MARKER = re.compile(r"<[!\s-]*hand[-_\s]*written[-_\s]*(begin|end)\b[^\n>]*>?", re.IGNORECASE)
"""What was a marker before somebody, or an editor, touched it."""


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
        NOTICE,
        *_opening(results),
        "## Comments",
        _items(results.comments, "No comments."),
        markers("comments"),
        f"## {plain(results.action_items_title)}",
        _items(results.action_items, f"No {results.action_items_title.casefold()}."),
        markers("action-items"),
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


def markers(block: str) -> str:
    """The markers of `block` with nothing between them: people write there."""
    return f"{_marker('begin', block)}\n{_marker('end', block)}"


def read_written(file: Path) -> dict[str, str]:
    """What stands between the markers of each block; nothing where there is no file.

    An :class:`InputError` where a marker is broken or missing: what is not between markers is written anew.
    """
    fault = functools.partial(InputError, file=file)
    try:
        text = file.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (UnicodeDecodeError, OSError) as error:
        other = getattr(error, "strerror", None) or "other bytes"
        raise fault(key="the markers", expected="UTF-8", found=other) from None
    if not text.strip("\ufeff \t\r\n"):
        return {}
    found: dict[str, str] = {}
    opened: re.Match[str] | None = None
    for like in _LIKE_A_MARKER.finditer(text):
        marker = _MARKER.match(text, like.start())
        block = marker[2] if marker else ""
        wanted = _marker("end", opened[2]) if opened else _marker("begin", block)
        expected = None
        if marker is None:
            expected = f"{_marker('begin', BLOCKS[0])}, to the letter"
        elif block not in BLOCKS:
            expected = f"a marker of {' or '.join(BLOCKS)}"
        elif marker[0] != wanted:
            expected = wanted
        elif block in found:
            expected = f"one block {block!r}"
        if expected:
            raise fault(key=_line(text, like), expected=expected, found=repr((marker or like)[0])[:80])
        if opened and marker:
            found[block] = text[opened.end() : marker.start()]
        opened = None if opened else marker
    if opened:
        expected = f"{_marker('end', opened[2])} after it"
        raise fault(key=_line(text, opened), expected=expected, found="the end of the file")
    for block in BLOCKS:
        if block not in found:
            expected = f"{_marker('begin', block)} and {_marker('end', block)} (or no README.md: it is made anew)"
            raise fault(key="the markers", expected=expected, found="neither")
    return found


def put_written(readme: str, written: Mapping[str, str]) -> str:
    """`readme` with what was written by hand in its places; a block that it lacks goes to its end."""
    for block, text in written.items():
        marked = f"{_marker('begin', block)}{text}{_marker('end', block)}"
        readme = readme.replace(markers(block), marked, 1) if markers(block) in readme else f"{readme}\n{marked}\n"
    return readme


def _marker(what: str, block: str) -> str:
    return f"<!-- hand-written {what}: {block} -->"


def _line(text: str, match: re.Match[str]) -> str:
    return f"line {text.count(chr(10), 0, match.start()) + 1}"
