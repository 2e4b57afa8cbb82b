"""The HTML report: the notebook's outputs as one page that loads nothing and reads without JavaScript."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup
from nbconvert.exporters.templateexporter import TemplateExporter
from nbformat import NotebookNode

from buildcompare.figures import FIGURE_MIME
from buildcompare.report import executed
from buildcompare.report.commonmark import cell_to_html
from buildcompare.report.sections import FRAGMENT, RESULTS_MIME

_HEADING = re.compile(r"<(h[23])>(.*?)</\1>", re.DOTALL)
_TAGS = re.compile(r"<[^>]+>")


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
        found = executed.results(nb)
        sections, contents = _with_anchors(list(_parts(nb)))
        script = (files("buildcompare.report") / "templates/buildcompare/report.js").read_text("utf-8")
        resources["report"] = {
            "title": f"{found.base.label} vs {found.new.label}",
            "css": (files("buildcompare.report") / "templates/buildcompare/report.css").read_text("utf-8"),
            "js": script,
            "js_hash": "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            "sections": sections,
            "contents": contents,
        }
        html, resources = super().from_notebook_node(nb, resources, **kw)
        page, tail, rest = html.rpartition("<script>")  # the script is known by its hash, so it stays as it is
        return re.sub(r"\n\s*\n+", "\n", page) + tail + rest, resources


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
