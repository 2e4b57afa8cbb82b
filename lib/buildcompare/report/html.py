"""Write the HTML report: one page that loads nothing and reads without JavaScript."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from markupsafe import Markup
from nbconvert.exporters.exporter import Exporter
from nbconvert.exporters.templateexporter import TemplateExporter
from nbformat import NotebookNode

from buildcompare.comparison.analysis import Analysis
from buildcompare.figures import FIGURE_MIME
from buildcompare.report.commonmark import to_html
from buildcompare.report.sections import FRAGMENT, RESULTS_MIME, SECTIONS, Fragment, results_of, without_style
from buildcompare.results import Results

TEMPLATES = Path(__file__).parent / "templates"
_HEADING = re.compile(r"<(h[23])>(.*?)</\1>", re.DOTALL)
_TAGS = re.compile(r"<[^>]+>")
_TAGS_ABOVE = ("h2", "h3", "summary")
_ABOVE_OR_WIDE = re.compile(
    r'<(h2|h3|summary)\b[^>]*>(.*?)</\1>|<table\b.*?</table>|<figure><svg[^>]* viewBox="0 0 648.*?</figure>', re.DOTALL
)
"""What names a region, and what may be wider than a screen: tables, and figures over the page's whole width."""


class HtmlReportExporter(TemplateExporter):
    """``jupyter nbconvert --to buildcompare_html``: an executed comparison notebook as a report."""

    export_from_notebook = "buildcompare report"
    output_mimetype = "text/html"
    file_extension = ".html"

    def _template_name_default(self) -> str:
        return "buildcompare"

    def _extra_template_basedirs_default(self) -> list[str]:
        return [str(TEMPLATES)]

    def from_notebook_node(self, nb: NotebookNode, resources: Any = None, **kw: Any) -> tuple[Any, Any]:
        """Convert `nb`, which must have been run to its end."""
        nb, resources = Exporter.from_notebook_node(self, nb, resources, **kw)
        cells = (cell for cell in nb.cells if "workbench" not in cell.metadata.get("tags", []))  # for the notebook only
        return self.page(results_of(nb), (part for cell in cells for part in _of_cell(cell))), dict(resources or {})

    def page(self, results: Results, parts: Iterable[str]) -> str:
        """One page of `parts`, pieces of safe HTML."""
        sections, contents = _with_anchors(_scrollable(parts))
        css, script = ((TEMPLATES / "buildcompare" / name).read_text("utf-8") for name in ("report.css", "report.js"))
        digest = "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        values = {"css": css, "js": script, "js_hash": digest, "sections": sections, "contents": contents}
        html: str = self.template.render(title=f"{results.base.label} vs {results.new.label}", **values)
        page, tail, rest = html.rpartition("<script>")  # the script is known by its hash, so it stays as it is
        return re.sub(r"\n\s*\n+", "\n", page) + tail + rest


def page_of(analysis: Analysis) -> str:
    """The report of an analysis as one page, without running a notebook."""
    parts = []
    for heading, functions in SECTIONS:
        parts += [f"<h2>{heading}</h2>"] if heading else []
        for shown in (function(analysis) for function in functions):
            for each in [shown] if isinstance(shown, Fragment) else shown:
                parts.append(str(each.html) if isinstance(each, Fragment) else f"<figure>{each.svg}</figure>")
    exporter: Any = HtmlReportExporter
    return str(exporter().page(analysis.results, parts))


def _of_cell(cell: NotebookNode) -> Iterator[str]:
    if cell.cell_type == "markdown":
        yield str(to_html(cell.source, headings=True))
    for output in cell.get("outputs", []):
        data, metadata = output.get("data", {}), output.get("metadata", {})
        text = None if RESULTS_MIME in data else output.get("text") or data.get("text/plain")
        if FIGURE_MIME in metadata and "image/svg+xml" in data:
            yield f"<figure>{data['image/svg+xml']}</figure>"
        elif metadata.get(FRAGMENT) and "text/html" in data:
            yield without_style(data["text/html"])
        elif "image/png" in data:
            alt = Markup.escape(data.get("text/plain", "figure without a description"))
            png = "".join(data["image/png"].split())
            yield f'<figure><img alt="{alt}" src="data:image/png;base64,{png}"></figure>'
        elif text:
            yield f"<pre>{Markup.escape(text)}</pre>"


def _scrollable(parts: Iterable[str]) -> list[str]:
    """Put every table and wide figure into a region that scrolls, by keyboard too, named by what stands above it."""
    above: dict[str, str] = {}

    def wrapped(match: re.Match[str]) -> str:
        if match[1]:
            for tag in _TAGS_ABOVE[_TAGS_ABOVE.index(match[1]) :]:
                above.pop(tag, None)
            above[match[1]] = _TAGS.sub("", match[2]).strip()
            return match[0]
        name = ", ".join(above.values()).replace('"', "&quot;")
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
