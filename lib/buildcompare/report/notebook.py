"""Put a report into a notebook, and read it from an executed one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
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
"""Tag of cells that reports leave out."""


def notebook_of(report: Report) -> NotebookNode:
    """Make a notebook that looks executed, with a cell for each section and the results."""
    shown = [sections.parts_of(report, name) for name in sections.sections_of(report.results)]
    cells = [v4.new_code_cell(outputs=[_output(part) for part in parts]) for parts in shown]  # type: ignore[no-untyped-call]
    cells.append(v4.new_code_cell(outputs=[_output(sections.EmbeddedResults(report.results))]))  # type: ignore[no-untyped-call]
    made: NotebookNode = v4.new_notebook(cells=cells)  # type: ignore[no-untyped-call]
    return made


def _output(shown: Part | sections.EmbeddedResults) -> NotebookNode:
    made: NotebookNode = v4.new_output("display_data", data=shown._repr_mimebundle_())  # type: ignore[no-untyped-call]
    return made


def outputs_of(notebook: NotebookNode) -> Iterator[Any]:
    """Yield every output of every code cell."""
    for cell in notebook.cells:
        yield from cell.get("outputs", [])


def _data_of(notebook: NotebookNode, mime: str) -> Iterator[Any]:
    """Yield the data of each output of the type `mime`."""
    return (output["data"] for output in outputs_of(notebook) if mime in output.get("data", {}))


def results_of(notebook: NotebookNode) -> Results:
    """Read the results from an executed notebook; an :class:`ExecutionError` if it did not run to its end."""
    for data in _data_of(notebook, sections.RESULTS_MIME):
        return _results(data[sections.RESULTS_MIME]["packed"])
    raise ExecutionError("the notebook holds no results: it was not run to its end")


@lru_cache(1)
def _results(packed: str) -> Results:
    return Results.model_validate_json(unpacked(packed))


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
    """Remove the scripts of charts from the notebook; their data stay in the outputs.

    JupyterLab runs no script of a notebook that somebody else executed, and shows the pictures.
    """
    for data in _data_of(notebook, FIGURE_MIME):
        data.pop("application/javascript", None)
    return notebook


# ---- The page -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """Part of the page: HTML, or figures in a grid, with a heading."""

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
    blocks: list[Block] = []
    contents: list[tuple[str, str]] = []
    taken: set[str] = set()
    for is_grid, group in groupby(_parts(notebook, contents, taken), key=_is_in_grid):
        parts = list(group)
        if is_grid:
            blocks.append(Block(Markup("").join(part.html for part in parts), is_grid=True))
            continue
        for part in parts:
            assert isinstance(part, Fragment)
            anchor = unused(slugify(part.heading), taken) if part.heading else ""
            contents += [(anchor, part.heading)] if anchor else []
            blocks.append(Block(_with_written(part, written), part.heading, anchor))
    return Page(f"{results.base.label} vs {results.new.label}", blocks, contents)


def _parts(notebook: NotebookNode, contents: list[tuple[str, str]], taken: set[str]) -> Iterator[Part]:
    for cell in notebook.cells:
        if NOT_PUBLISHED in cell.metadata.get("tags", []):
            continue
        if cell.cell_type == "markdown":
            html, headings = commonmark.to_html_with_headings(cell.source, taken)
            contents += headings
            yield Fragment(html)
        for output in cell.get("outputs", []):
            part = _part(output)
            if part is not None and (str(part.html).strip() or (isinstance(part, Fragment) and part.heading)):
                yield part


def _part(output: Any) -> Part | None:
    """Convert an output of the notebook for the page; None if the page shows nothing."""
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


def _is_in_grid(part: Part) -> bool:
    return isinstance(part, Figure) or part.for_figures


def _with_written(fragment: Fragment, written: Mapping[str, str]) -> Markup:
    """Return the HTML of a fragment with the text of its block in README.md."""
    text = written.get(fragment.block, "").strip()
    if not text:
        return fragment.html
    by_hand = Markup('<div class="by-hand">{}</div>').format(commonmark.to_html(text))
    return by_hand if fragment.is_placeholder else fragment.html + by_hand
