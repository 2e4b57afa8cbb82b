"""The HTML report: the notebook's outputs as one page that loads nothing and reads without JavaScript."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import nbformat
from markupsafe import Markup
from nbconvert.exporters.templateexporter import TemplateExporter
from nbformat import NotebookNode

from buildcompare.comparison.analysis import Analysis
from buildcompare.figures.base import FIGURE_MIME
from buildcompare.report import sections
from buildcompare.report.commonmark import cell_to_html
from buildcompare.report.notebook import results_of
from buildcompare.report.sections import FRAGMENT, RESULTS_MIME

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
        resources = dict(resources or {})
        found = results_of(nb)
        parts, contents = _with_anchors(_scrollable(_parts(nb)))
        script = (files("buildcompare.report") / "templates/buildcompare/report.js").read_text("utf-8")
        resources["report"] = {
            "title": f"{found.base.label} vs {found.new.label}",
            "css": (files("buildcompare.report") / "templates/buildcompare/report.css").read_text("utf-8"),
            "js": script,
            "js_hash": "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            "sections": parts,
            "contents": contents,
        }
        html, resources = super().from_notebook_node(nb, resources, **kw)
        page, tail, rest = html.rpartition("<script>")  # the script is known by its hash, so it stays as it is
        return re.sub(r"\n\s*\n+", "\n", page) + tail + rest, resources


def page_of(analysis: Analysis) -> str:
    """The report of an analysis as one page, without running a notebook."""
    cells = [_code_cell([sections.EmbeddedResults(analysis.results)], tags=["workbench"])]
    for heading, functions in sections.SECTIONS:
        if heading:
            cells.append({"cell_type": "markdown", "metadata": {}, "source": f"## {heading}"})
        for function in functions:
            made = function(analysis)
            cells.append(_code_cell([made] if isinstance(made, sections.Fragment) else made))
    as_notebook: Any = nbformat.from_dict
    notebook = as_notebook({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": cells})
    exporter: Any = HtmlReportExporter
    return str(exporter().from_notebook_node(notebook)[0])


def _code_cell(shown: Iterable[Any], tags: Sequence[str] = ()) -> dict[str, Any]:
    outputs = []
    for each in shown:
        made = each._repr_mimebundle_()
        data, metadata = made if isinstance(made, tuple) else (made, {})
        outputs.append({"output_type": "display_data", "data": data, "metadata": metadata})
    metadata = {"tags": list(tags)}
    return {"cell_type": "code", "metadata": metadata, "source": "", "execution_count": None, "outputs": outputs}


def _parts(notebook: NotebookNode) -> Iterable[str]:
    """The page's pieces of HTML in order; cells tagged ``workbench`` are for the notebook only."""
    for cell in notebook.cells:
        if "workbench" in cell.metadata.get("tags", []):
            continue
        if cell.cell_type == "markdown":
            yield str(cell_to_html(cell.source))
        for output in cell.get("outputs", []):
            yield from _output(output)


def _output(output: NotebookNode) -> Iterable[str]:
    data, metadata = output.get("data", {}), output.get("metadata", {})
    if FIGURE_MIME in metadata and "image/svg+xml" in data:
        yield f"<figure>{data['image/svg+xml']}</figure>"
    elif metadata.get(FRAGMENT) and "text/html" in data:
        yield data["text/html"]
    elif "image/png" in data:
        alt = Markup.escape(data.get("text/plain", "figure without a description"))
        yield f'<figure><img alt="{alt}" src="data:image/png;base64,{"".join(data["image/png"].split())}"></figure>'
    elif RESULTS_MIME not in data and (text := output.get("text") or data.get("text/plain")):
        yield f"<pre>{Markup.escape(text)}</pre>"


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
