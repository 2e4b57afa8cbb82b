"""Make a notebook from a report, and read a report from an executed notebook."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from markupsafe import Markup
from nbformat import NotebookNode, v4

from buildcompare.config.catalogue import slugify
from buildcompare.config.errors import ExecutionError
from buildcompare.figures import FIGURE_MIME, Figure, unpacked, unused
from buildcompare.report import commonmark, sections
from buildcompare.report.sections import Fragment, Part, Report
from buildcompare.results import Results

NOT_PUBLISHED = "workbench"
"""Notebook cells with this tag are not shown on the published page."""


def notebook_of(report: Report) -> NotebookNode:
    """Make a notebook that looks executed: one cell for each section, and a last cell with the results."""
    shown = [sections.parts_of(report, name) for name in sections.sections_of(report.results)]
    new: Any = v4  # nbformat has no types
    cells = [
        new.new_code_cell(outputs=[new.new_output("display_data", data=part._repr_mimebundle_()) for part in parts])
        for parts in (*shown, [sections.EmbeddedResults(report.results)])
    ]
    made: NotebookNode = new.new_notebook(cells=cells)
    return made


def outputs_of(notebook: NotebookNode) -> Iterator[Any]:
    """Yield every output of every code cell."""
    for cell in notebook.cells:
        yield from cell.get("outputs", [])


def _data_of(notebook: NotebookNode, mime: str) -> Iterator[Any]:
    """Yield the data of each output of the type `mime`."""
    return (output["data"] for output in outputs_of(notebook) if mime in output.get("data", {}))


def results_of(notebook: NotebookNode) -> Results:
    """Read the results from an executed notebook; raise an :class:`ExecutionError` if it did not run to its end."""
    for data in _data_of(notebook, sections.RESULTS_MIME):
        return Results.model_validate_json(unpacked(data[sections.RESULTS_MIME]["packed"]))
    raise ExecutionError("the notebook holds no results: it was not run to its end")


def keep_beside_results(notebook: NotebookNode, more: Mapping[str, str | None]) -> Results:
    """Add `more` to `provenance.run` of the notebook's embedded results, and return the results."""
    results = results_of(notebook)
    results.provenance.run.update(more)
    for data in _data_of(notebook, sections.RESULTS_MIME):
        data.update(sections.EmbeddedResults(results)._repr_mimebundle_())
    return results


def figures_of(notebook: NotebookNode) -> Iterator[Figure]:
    """Read the figures of the report from the notebook."""
    return map(Figure.from_data, _data_of(notebook, FIGURE_MIME))


def without_scripts(notebook: NotebookNode) -> NotebookNode:
    """Remove the scripts of charts, which JupyterLab does not run in a notebook that somebody else executed."""
    for data in _data_of(notebook, FIGURE_MIME):
        data.pop("application/javascript", None)
    return notebook


# ---- The page -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """Part of the page: HTML with an optional heading, or a grid of figures."""

    html: Markup
    heading: str = ""
    anchor: str = ""
    is_grid: bool = False


@dataclass(frozen=True)
class Page:
    """Values of the page's template."""

    title: str
    blocks: list[Block]
    contents: list[tuple[str, str]]
    """Anchor and text of each heading of the second level."""


def page_of(notebook: NotebookNode, written: Mapping[str, str]) -> Page:
    """Make the page of an executed notebook, with the hand-written blocks of README.md."""
    results = results_of(notebook)
    made, taken = Page(f"{results.base.label} vs {results.new.label}", [], []), set[str]()
    shown = _with_content(_parts(notebook, made.contents, taken), written)
    for is_grid, parts in groupby(shown, key=lambda part: isinstance(part, Figure) or part.for_figures):
        if is_grid:
            made.blocks.append(Block(Markup("").join(part.html for part in parts), is_grid=True))
            continue
        for part in parts:
            assert isinstance(part, Fragment)
            html, anchor = part.html, unused(slugify(part.heading), taken) if part.heading else ""
            if text := written.get(part.block, "").strip():
                by_hand = Markup('<div class="by-hand">{}</div>').format(commonmark.to_html(text))
                html = by_hand if part.is_placeholder else html + by_hand
            made.contents.extend([(anchor, part.heading)] if anchor else [])
            made.blocks.append(Block(html, part.heading, anchor))
    return made


def _with_content(parts: Iterable[Part], written: Mapping[str, str]) -> Iterator[Part]:
    """Leave out hand-written blocks without a text, and headings without a part below them."""
    kept = [
        each for each in parts
        if not (isinstance(each, Fragment) and each.is_placeholder) or written.get(each.block, "").strip()
    ]  # fmt: skip
    for part, below in zip(kept, [*kept[1:], Fragment(Markup(), heading="end")], strict=True):
        if part.html or not (isinstance(below, Fragment) and below.heading):
            yield part


def _parts(notebook: NotebookNode, contents: list[tuple[str, str]], taken: set[str]) -> Iterator[Part]:
    for cell in notebook.cells:
        if NOT_PUBLISHED in cell.metadata.get("tags", []):
            continue
        if cell.cell_type == "markdown":
            html, headings = commonmark.to_html_with_headings(cell.source, taken)
            contents += headings
            yield Fragment(html)
        for part in map(_part, cell.get("outputs", [])):
            if part and (str(part.html).strip() or (isinstance(part, Fragment) and part.heading)):
                yield part


def _part(output: Any) -> Part | None:
    """Convert an output of the notebook to a part of the page; None if the page does not show it."""
    data = output.get("data", {})
    if FIGURE_MIME in data:
        return Figure.from_data(data)
    if sections.FRAGMENT_MIME in data:
        fields = data[sections.FRAGMENT_MIME]
        return Fragment(**{**fields, "html": Markup(fields["html"])})  # noqa: S704  # escaped by its template
    if sections.RESULTS_MIME in data:
        return None
    if "image/png" in data:
        alt, source = data.get("text/plain", "figure without a description"), "".join(data["image/png"].split())
        return Fragment(Markup('<figure><img alt="{}" src="data:image/png;base64,{}"></figure>').format(alt, source))
    text = output.get("text") or data.get("text/plain")
    return Fragment(Markup("<pre>{}</pre>").format(text)) if text else None
