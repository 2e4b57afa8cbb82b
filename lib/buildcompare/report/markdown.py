"""Write the report as README.md, with graphs and hand-written blocks, and as a comment for a pull request."""

import functools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from nbformat import NotebookNode

from buildcompare.config.errors import InputError
from buildcompare.config.kinds import kind_of_results
from buildcompare.figures import Figure, names
from buildcompare.findings import above_the_fold, headlines
from buildcompare.findings.labels import most_moved
from buildcompare.findings.verdict import GRAVEST_FIRST, opening
from buildcompare.report.commonmark import images
from buildcompare.report.notebook import figures_of
from buildcompare.report.sections import template
from buildcompare.results import LabelResult, Results, TestResult
from buildcompare.results.codes import Status, Verdict
from buildcompare.text.numbers import MISSING, STATUS_WORDS, db_name
from buildcompare.text.sentences import title

MOST_ROWS, MOST_LABELS, MOST_PLANNED = 18, 8, 2
"""Maximum numbers of table rows, labels and plans that a comment for a pull request shows."""
_NOT_JUDGED = "not judged"
GRAPHS = PurePosixPath("graphs")
BLOCKS = ("comments", "action-items")
NOTICE = "<!-- Write between the hand-written markers: all other text of this file is made anew with every report. -->"
"""Note in README.md for people who edit the file."""
_MARKER = re.compile(r"<!-- hand-written (begin|end): ([^\n]*?) -->")
_LIKE_A_MARKER = re.compile(r"<[!\s-]*hand[-_\s]*written[-_\s]*(begin|end)\b[^\n>]*>?", re.IGNORECASE)
"""Pattern of texts similar to the markers of hand-written blocks; it finds markers damaged by an editor or a typo."""


def graphs_of(notebook: NotebookNode, results: Results) -> list[Figure]:
    """Select the figures for README.md from an executed notebook with `results`."""
    kind = kind_of_results(results)
    return [each for each in figures_of(notebook) if (each.shown if kind else each.graph_of is not None)]


def files_of(graphs: Sequence[Figure], results: Results, suffix: str | None = "svg") -> dict[str, bytes]:
    """Return the contents of graph files and of pictures in hand-written text, by path relative to README.md."""
    drawn = {
        str(GRAPHS / f"{each.name}.{suffix}"): each.png if suffix == "png" else each.svg.encode() for each in graphs
    }
    written = (*results.comments, *results.action_items)
    return drawn | {name: contents for text in written for _, name, contents in images(text)}


def render(results: Results, graphs: Sequence[Figure], suffix: str | None = "svg") -> str:
    """Render README.md from `results`; it shows `graphs`, whose files end in `suffix` (``svg`` or ``png``)."""
    order = [name for test in results.tests for name in names(test.metrics, test.name)]  # the order of results.json
    graphs = sorted(graphs, key=lambda graph: order.index(graph.name) if graph.name in order else len(order))
    tests = sorted(results.tests, key=lambda test: (test.type, db_name(test.db_engine)))  # bounded before unbounded
    begins, kind = opening(results), kind_of_results(results)
    top, _ = above_the_fold(results.findings if kind else headlines(results.findings), begins.states)
    rest = [each for each in results.findings if each not in top]
    values = {"opening": begins, "top": top, "rest": rest, "notice": NOTICE, "markers": markers}
    made = template(kind.markdown if kind else "README.md")
    return made.render(results=results, tests=tests, graphs=graphs, suffix=suffix, **values)


def comment(results: Results, link: str | None = None) -> str:
    """Render a comment for a pull request: at most 60 lines, no pictures; `link` is the report's address."""
    from buildcompare.report.terminal import table_rows  # late import: only tables of text need rich

    begins, rows, left_out = opening(results), [], Counter[str]()
    for test in sorted(results.tests, key=lambda test: GRAVEST_FIRST.index(test.verdict)):
        shown, rest = table_rows(test)
        if test.verdict == Verdict.INVALID:
            shown = [((*cells[:-2], MISSING, _NOT_JUDGED), Status.INCONCLUSIVE) for cells, _ in shown]
            rest = Counter({_NOT_JUDGED: rest.total()} if rest else {})
        rows += [(title(test), cells, status) for cells, status in shown]
        left_out += rest
    rows.sort(key=lambda row: (not row[2].changed, row[2] != Status.REGRESSION))
    left_out.update(STATUS_WORDS[status] for _, _, status in rows[MOST_ROWS:])
    top, others = above_the_fold(results.findings, begins.states)
    titles = {test.name: title(test) for test in results.tests}
    planned = [(row, titles[plan.test]) for plan in results.plan for row in plan.undecided]
    return template("comment.md").render(
        results=results,
        kind=kind_of_results(results),
        opening=begins,
        rows=rows[:MOST_ROWS],
        left_out=left_out,
        labels=_changed_labels(results.tests),
        most_labels=MOST_LABELS,
        top=top,
        rest=others,
        planned=planned[:MOST_PLANNED],
        link=link,
    )


def _changed_labels(tests: Sequence[TestResult]) -> list[tuple[str, LabelResult]]:
    """List each changed label of valid tests once, with test title: regressions first, then by added or saved time."""
    first: dict[tuple[str, str, str], tuple[tuple[bool, float, float], str, LabelResult]] = {}
    for test in (each for each in tests if each.verdict != Verdict.INVALID):
        place = {id(row): i for i, row in enumerate(most_moved(test.labels))}
        for row in (each for each in test.labels if each.status.changed):
            order = (row.status != Status.REGRESSION, place.get(id(row), math.inf), -abs(row.delta_percent or 0.0))
            key = test.name, row.group, row.label
            if key not in first or order < first[key][0]:
                first[key] = order, title(test), row
    return [(of, row) for _, of, row in sorted(first.values(), key=lambda each: each[0])]


def markers(block: str) -> str:
    """Return the begin and end markers of `block`, with no text between them."""
    return f"{_marker('begin', block)}\n{_marker('end', block)}"


def read_written(file: Path) -> dict[str, str]:
    """Read the hand-written text of each block; raise :class:`InputError` for an unreadable file or faulty markers."""
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
    blocks: dict[str, str] = {}
    opened: re.Match[str] | None = None
    for like in _LIKE_A_MARKER.finditer(text):
        marker = _MARKER.match(text, like.start())
        block = marker[2] if marker else ""
        wanted = _marker("end", opened[2]) if opened else _marker("begin", block)
        faults = (
            (marker is None, f"{_marker('begin', BLOCKS[0])}, to the letter"),
            (block not in BLOCKS, f"a marker of {' or '.join(BLOCKS)}"),
            ((marker or like)[0] != wanted, wanted),
            (block in blocks, f"one block {block!r}"),
        )
        for is_broken, expected in faults:
            if is_broken:
                raise fault(key=_line(text, like), expected=expected, found=repr((marker or like)[0])[:80])
        if opened and marker:
            blocks[block] = text[opened.end() : marker.start()]
        opened = None if opened else marker
    if opened:
        expected = f"{_marker('end', opened[2])} after it"
        raise fault(key=_line(text, opened), expected=expected, found="the end of the file")
    for block in BLOCKS:
        if block not in blocks:
            expected = f"{_marker('begin', block)} and {_marker('end', block)} (or no README.md: it is made anew)"
            raise fault(key="the markers", expected=expected, found="neither")
    return blocks


def put_written(readme: str, written: Mapping[str, str]) -> str:
    """Insert the hand-written blocks into `readme`; a block without markers goes to the end."""
    for block, text in written.items():
        marked = f"{_marker('begin', block)}{text}{_marker('end', block)}"
        readme = readme.replace(markers(block), marked, 1) if markers(block) in readme else f"{readme}\n{marked}\n"
    return readme


def _marker(what: str, block: str) -> str:
    return f"<!-- hand-written {what}: {block} -->"


def _line(text: str, match: re.Match[str]) -> str:
    return f"line {text.count(chr(10), 0, match.start()) + 1}"
