"""What ``jupyter nbconvert --to`` makes of an executed notebook; apart, as nbconvert takes long to import."""

from typing import Any

from nbconvert.exporters.exporter import Exporter
from nbformat import NotebookNode

from buildcompare.report import html, junit, markdown
from buildcompare.report.sections import results_of


class HtmlReportExporter(Exporter):
    """``jupyter nbconvert --to buildcompare_html``: an executed comparison notebook as a report."""

    export_from_notebook = "buildcompare report"
    output_mimetype = "text/html"
    file_extension = ".html"

    def from_notebook_node(self, nb: NotebookNode, resources: Any = None, **kw: Any) -> tuple[Any, Any]:
        """Convert `nb`, which must have been run to its end."""
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        return html.page_of_notebook(nb, results_of(nb)), resources


class MarkdownReportExporter(Exporter):
    """``jupyter nbconvert --to buildcompare_markdown``: README.md and its graphs."""

    export_from_notebook = "buildcompare README"
    output_mimetype = "text/markdown"
    file_extension = ".md"

    def from_notebook_node(self, nb: NotebookNode, resources: Any = None, **kw: Any) -> tuple[Any, Any]:
        """Convert `nb`; the graphs come back in ``resources["outputs"]`` under their paths."""
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        results = results_of(nb)
        graphs = markdown.graphs_of(nb, results)
        resources["outputs"] = markdown.files_of(graphs, results)
        return markdown.render(results, graphs), resources


class JUnitExporter(Exporter):
    """``jupyter nbconvert --to buildcompare_junit``: junit.xml."""

    export_from_notebook = "buildcompare JUnit"
    output_mimetype = "application/xml"
    file_extension = ".xml"

    def from_notebook_node(self, nb: NotebookNode, resources: Any = None, **kw: Any) -> tuple[Any, Any]:
        """Convert `nb`."""
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        return junit.render(results_of(nb)), resources
