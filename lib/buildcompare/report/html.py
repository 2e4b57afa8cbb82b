"""Write the HTML report: one page that loads nothing and reads without JavaScript."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup
from nbconvert.exporters.exporter import Exporter
from nbconvert.exporters.templateexporter import TemplateExporter
from nbformat import NotebookNode

from buildcompare.comparison.analysis import Analysis
from buildcompare.figures.base import FIGURE_MIME
from buildcompare.report.commonmark import cell_to_html
from buildcompare.report.notebook import results_of
from buildcompare.report.sections import FRAGMENT, RESULTS_MIME, SECTIONS, Fragment, without_style
from buildcompare.results import Results

_HEADING = re.compile(r"<(h[23])>(.*?)</\1>", re.DOTALL)
_TAGS = re.compile(r"<[^>]+>")
_ABOVE_OR_WIDE = re.compile(
    r'<(h2|h3|summary)\b[^>]*>(.*?)</\1>|<table\b.*?</table>|<figure><svg[^>]* viewBox="0 0 648.*?</figure>', re.DOTALL
)
"""What names a region, and what may be wider than a screen: tables, and figures over the page's whole width."""


class HtmlReportExporter(TemplateExporter):
    """``jupyter nbconvert --to buildcompare_html``: an executed comparison notebook as a report."""

    export_from_notebook = "buildcompare report"
    output_mimetype = "text/html"

    def _file_extension_default(self) -> str:
        return ".html"

    def _template_name_default(self) -> str:
        return "buildcompare"

    def _extra_template_basedirs_default(self) -> list[str]:
        return [str(Path(str(files("buildcompare.report"))) / "templates")]

    def from_notebook_node(  # type: ignore[override]  # the base class declares a notebook, its exporters return text
        self, nb: NotebookNode, resources: dict[str, Any] | None = None, **kw: Any
    ) -> tuple[str, dict[str, Any]]:
        """Convert `nb`, which must have been run to its end."""
        nb, resources = Exporter.from_notebook_node(self, nb, resources, **kw)
        return self.page(results_of(nb), _of_notebook(nb)), dict(resources or {})

    def page(self, results: Results, parts: Iterable[str]) -> str:
        """One page of `parts`, pieces of safe HTML."""
        sections, contents = _with_anchors(_scrollable(parts))
        texts = files("buildcompare.report") / "templates/buildcompare"
        script = (texts / "report.js").read_text("utf-8")
        html: str = self.template.render(
            title=f"{results.base.label} vs {results.new.label}",
            css=(texts / "report.css").read_text("utf-8"),
            js=script,
            js_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            sections=sections,
            contents=contents,
        )
        page, tail, rest = html.rpartition("<script>")  # the script is known by its hash, so it stays as it is
        return re.sub(r"\n\s*\n+", "\n", page) + tail + rest


def page_of(analysis: Analysis) -> str:
    """The report of an analysis as one page, without running a notebook."""
    exporter: Any = HtmlReportExporter
    return str(exporter().page(analysis.results, _of_analysis(analysis)))


def _of_analysis(analysis: Analysis) -> Iterator[str]:
    for heading, functions in SECTIONS:
        if heading:
            yield f"<h2>{heading}</h2>"
        for function in functions:
            shown = function(analysis)
            for each in [shown] if isinstance(shown, Fragment) else shown:
                yield str(each.html) if isinstance(each, Fragment) else f"<figure>{each.svg}</figure>"


def _of_notebook(notebook: NotebookNode) -> Iterator[str]:
    """The pieces of a page in order; cells tagged ``workbench`` are for the notebook only."""
    for cell in notebook.cells:
        if "workbench" not in cell.metadata.get("tags", []):
            if cell.cell_type == "markdown":
                yield str(cell_to_html(cell.source))
            for output in cell.get("outputs", []):
                yield _output(output)


def _output(output: NotebookNode) -> str:
    data, metadata = output.get("data", {}), output.get("metadata", {})
    if FIGURE_MIME in metadata and "image/svg+xml" in data:
        return f"<figure>{data['image/svg+xml']}</figure>"
    if metadata.get(FRAGMENT) and "text/html" in data:
        return without_style(data["text/html"])
    if "image/png" in data:
        alt = Markup.escape(data.get("text/plain", "figure without a description"))
        return f'<figure><img alt="{alt}" src="data:image/png;base64,{"".join(data["image/png"].split())}"></figure>'
    text = None if RESULTS_MIME in data else output.get("text") or data.get("text/plain")
    return f"<pre>{Markup.escape(text)}</pre>" if text else ""


def _scrollable(parts: Iterable[str]) -> list[str]:
    """Put every table and wide figure into a region that scrolls, by keyboard too, named by what stands above it.

    On a narrow screen or at 200 % zoom nothing of it is cut, and the page itself does not scroll sideways.
    """
    above: dict[str, str] = {}

    def wrapped(match: re.Match[str]) -> str:
        if match[1]:
            text = _TAGS.sub("", match[2]).strip()
            for lower in {"h2": ("h3", "summary"), "h3": ("summary",)}.get(match[1], ()):
                above.pop(lower, None)
            above[match[1]] = text
            return match[0]
        name = ", ".join(above[tag] for tag in ("h2", "h3", "summary") if tag in above).replace('"', "&quot;")
        kind = "Table" if match[0].startswith("<table") else "Figure"
        return f'<div class="scroll" role="group" tabindex="0" aria-label="{kind}: {name}">{match[0]}</div>'

    return [_ABOVE_OR_WIDE.sub(wrapped, part) for part in parts]


def _with_anchors(parts: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Give every heading an identifier; list those of the second level for the table of contents."""
    contents: list[tuple[str, str]] = []
    taken: set[str] = set()

    def anchored(match: re.Match[str]) -> str:
        text = _TAGS.sub("", match[2]).strip()
        stem = re.sub(r"[^a-z0-9]+", "-", text.casefold()).strip("-") or "section"
        name = next(n for i in range(len(taken) + 1) if (n := stem if i == 0 else f"{stem}-{i + 1}") not in taken)
        taken.add(name)
        if match[1] == "h2":
            contents.append((name, text))
        return f'<{match[1]} id="{name}">{match[2]}</{match[1]}>'

    return [_HEADING.sub(anchored, part) for part in parts], contents
