"""README.md in the shape of published performance comparisons, with its graphs and what people wrote into it."""

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from nbformat import NotebookNode

from buildcompare.config.errors import InputError
from buildcompare.figures import Figure, names
from buildcompare.findings import above_the_fold, headlines
from buildcompare.findings.verdict import opening
from buildcompare.report.commonmark import images
from buildcompare.report.sections import figures_of, template
from buildcompare.results import Results
from buildcompare.text.numbers import db_name

GRAPHS = PurePosixPath("graphs")
BLOCKS = ("comments", "action-items")
NOTICE = "<!-- Write between the hand-written markers: all other text of this file is made anew with every report. -->"
"""For whoever opens README.md to edit it."""
_MARKER = re.compile(r"<!-- hand-written (begin|end): ([^\n]*?) -->")
_LIKE_A_MARKER = re.compile(r"<[!\s-]*hand[-_\s]*written[-_\s]*(begin|end)\b[^\n>]*>?", re.IGNORECASE)
"""What was a marker before somebody, or an editor, touched it."""


def graphs_of(notebook: NotebookNode, results: Results) -> list[Figure]:
    """The figures of an executed notebook, which holds `results`, that stand in README.md."""
    variants = results.variants is not None
    return [each for each in figures_of(notebook) if (each.shown if variants else each.graph_of is not None)]


def files_of(graphs: Sequence[Figure], results: Results) -> dict[str, bytes]:
    """The pictures of `graphs` and of what people wrote, by their paths beside README.md."""
    found = {str(GRAPHS / f"{figure.name}.png"): figure.png for figure in graphs}
    written = (*results.comments, *results.action_items)
    return found | {name: contents for text in written for _, name, contents in images(text)}


def render(results: Results, graphs: Sequence[Figure]) -> str:
    """README.md from `results`; `graphs` are the figures that stand beside it."""
    order = [
        name for test in results.tests for name in names(test.metrics, test.name)
    ]  # the page's: what changed first
    graphs = sorted(graphs, key=lambda graph: order.index(graph.name) if graph.name in order else len(order))
    tests = sorted(results.tests, key=lambda test: (test.type, db_name(test.db_engine)))  # bounded ones first
    told, rest = above_the_fold(results.findings if results.variants else headlines(results.findings))
    said = {"opening": opening(results), "told": told, "rest": rest, "notice": NOTICE, "markers": markers}
    name = "variants.md" if results.variants else "README.md"
    return template(name).render(results=results, tests=tests, graphs=graphs, **said)


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
        faults = (
            (marker is None, f"{_marker('begin', BLOCKS[0])}, to the letter"),
            (block not in BLOCKS, f"a marker of {' or '.join(BLOCKS)}"),
            ((marker or like)[0] != wanted, wanted),
            (block in found, f"one block {block!r}"),
        )
        for is_broken, expected in faults:
            if is_broken:
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
