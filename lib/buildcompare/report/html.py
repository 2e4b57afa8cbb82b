"""Write the HTML report: one page that loads nothing and reads without JavaScript."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from markupsafe import Markup
from nbformat import NotebookNode

from buildcompare.figures import FIGURE_MIME, component, unused
from buildcompare.report.commonmark import to_html
from buildcompare.report.sections import (
    FRAGMENT,
    MATRIX_SECTIONS,
    RESULTS_MIME,
    SECTIONS,
    Fragment,
    figure_of,
    page,
    without_style,
)
from buildcompare.results import Results

_PICTURES = ('<details class="picture"', "<build-tools")
_WRITTEN = re.compile(r'(<p class="none">[^<]*</p>\s*)?<!-- written: ([a-z-]+) -->')
_TAGS = re.compile(r"<[^>]+>")
_ABOVE_OR_WIDE = re.compile(
    r"<(h2|h3|summary)>(.*?)</\1>|<table\b.*?</table>",
    re.DOTALL,
)
"""What names a region, and what may be wider than a screen: tables."""


def page_of_notebook(
    notebook: NotebookNode, results: Results, *, beside: Sequence[str] = (), written: Mapping[str, str] | None = None
) -> str:
    """The report of an executed notebook, which holds `results`, as one page.

    With links to the files `beside` it, and with what was `written` by hand into README.md.
    """
    cells = (cell for cell in notebook.cells if "workbench" not in cell.metadata.get("tags", []))  # for notebooks only
    return render(results, (part for cell in cells for part in _of_cell(cell)), beside=beside, written=written)


def page_of(analysis: Any) -> str:
    """The report of an analysis, or of a matrix of variants, as one page, without running a notebook."""
    parts = []
    sections: Iterable[tuple[str, Callable[[Any], Any]]]
    sections = SECTIONS if analysis.results.variants is None else MATRIX_SECTIONS.values()
    for heading, section in sections:
        shown = section(analysis)
        parts += [f"<h2>{heading}</h2>"] if heading else []
        for each in [shown] if isinstance(shown, Fragment) else shown:
            parts.append(str(each.html))
    return render(analysis.results, parts)


def render(
    results: Results, parts: Iterable[str], *, beside: Sequence[str] = (), written: Mapping[str, str] | None = None
) -> str:
    """One page of `parts`, pieces of safe HTML, with links to the files `beside` it and what was `written` by hand."""
    contents: list[tuple[str, str]] = []
    parts = (_with_written(part, written or {}) for part in parts)
    first, *others = _navigable(_together(parts), contents)
    title = f"{results.base.label} vs {results.new.label}"
    html = page(
        "buildcompare/report",
        "buildcompare/report",
        component=component(),
        title=title,
        first=first,
        parts=others,
        contents=contents,
        beside=beside,
    )
    text, tail, script = html.rpartition("<script>")  # the script is known by its hash, so it stays as it is
    return re.sub(r"\n\s*\n+", "\n", text) + tail + script


def _of_cell(cell: NotebookNode) -> Iterator[str]:
    if cell.cell_type == "markdown":
        yield str(to_html(cell.source, headings=True))
    for output in cell.get("outputs", []):
        data, metadata = output.get("data", {}), output.get("metadata", {})
        text = None if RESULTS_MIME in data else output.get("text") or data.get("text/plain")
        if FIGURE_MIME in metadata and "image/svg+xml" in data:
            yield figure_of(output).html
        elif metadata.get(FRAGMENT) and "text/html" in data:
            yield without_style(data["text/html"])
        elif "image/png" in data:
            alt = Markup.escape(data.get("text/plain", "figure without a description"))
            png = "".join(data["image/png"].split())
            yield f'<figure><img alt="{alt}" src="data:image/png;base64,{png}"></figure>'
        elif text:
            yield f"<pre>{Markup.escape(text)}</pre>"


def _with_written(part: str, written: Mapping[str, str]) -> str:
    """A section with the text of README.md's hand-written block that belongs to it."""

    def put(match: re.Match[str]) -> str:
        text = written.get(match[2], "").strip()
        return f'<div class="by-hand">{to_html(text)}</div>' if text else match[1] or ""

    return _WRITTEN.sub(put, part) if "<!-- written: " in part else part


def _together(parts: Iterable[str]) -> Iterator[str]:
    """Figures that follow each other in one grid, with what is chosen for all of them."""
    shown = (part for part in parts if part.strip())
    for pictures, those in groupby(shown, key=lambda part: part.lstrip().startswith(_PICTURES)):
        if pictures:
            yield f'<div class="pictures">{"".join(those)}</div>'
        else:
            yield from those


def _navigable(parts: Iterable[str], contents: list[tuple[str, str]]) -> Iterator[str]:
    """Give every heading an identifier, and list those of the second level in the table of `contents`.

    Every table is put into a region that scrolls, by keyboard too, named by what stands above it.
    """
    above: dict[str, str] = {}
    taken: set[str] = set()

    def changed(match: re.Match[str]) -> str:
        tag = match[1]
        if tag is None:
            name = ", ".join(above.values()).replace('"', "&quot;")
            return f'<div class="scroll" role="group" tabindex="0" aria-label="Table: {name}">{match[0]}</div>'
        for below in [each for each in above if each >= tag]:  # h2, h3, summary: in this order by name too
            del above[below]
        text = above[tag] = _TAGS.sub("", match[2]).strip()
        if tag == "summary":
            return match[0]
        name = unused(re.sub(r"[^a-z0-9]+", "-", text.casefold()).strip("-") or "section", taken)
        if tag == "h2":
            contents.append((name, text))
        return f'<{tag} id="{name}">{match[2]}</{tag}>'

    return (_ABOVE_OR_WIDE.sub(changed, part) for part in parts)
