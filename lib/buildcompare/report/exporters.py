"""Exporters of nbconvert, which make the files of a report from an executed notebook."""

from typing import Any

from jinja2 import Environment
from nbconvert.exporters.templateexporter import TemplateExporter
from nbformat import NotebookNode
from traitlets import List, Unicode

from buildcompare import figures
from buildcompare.report import junit, markdown
from buildcompare.report.notebook import page_of, results_of
from buildcompare.report.sections import TEMPLATES, assets, templates


class _ReportExporter(TemplateExporter):
    """Export an executed notebook with a template of the report, or with the one that ``--template-file`` names."""

    template_paths = List(Unicode(), [str(TEMPLATES)]).tag(config=True, affects_environment=True)
    default_preprocessors: Any = List([])

    @property
    def environment(self) -> Environment:
        """Return the template environment of reports, which escapes text, unlike the environment of nbconvert."""
        made = templates(*self.extra_template_paths)
        made.globals.update(page_of=page_of, assets=assets, component=figures.component, results_of=results_of)
        made.globals.update(readme=_readme, junit=junit.render)
        return made


class HtmlReportExporter(_ReportExporter):
    """Export an executed notebook as report.html (``jupyter nbconvert --to buildcompare_html``).

    ``resources["beside"]`` lists the files to which the page links. ``resources["written"]`` maps each hand-written
    block of README.md to its text.
    """

    export_from_notebook = "buildcompare report"
    output_mimetype = "text/html"
    file_extension = ".html"
    template_file = Unicode("buildcompare/report.html.j2").tag(config=True, affects_template=True)


class MarkdownReportExporter(_ReportExporter):
    """Export an executed notebook as README.md and graphs (``jupyter nbconvert --to buildcompare_markdown``).

    ``resources["graphs"]`` is the format of graphs, or None for none. ``resources["written"]`` maps blocks to texts.
    ``resources["outputs"]`` gets the graphs and pictures by path.
    """

    export_from_notebook = "buildcompare README"
    output_mimetype = "text/markdown"
    file_extension = ".md"
    template_file = Unicode("buildcompare/README.md.j2").tag(config=True, affects_template=True)


class JUnitExporter(_ReportExporter):
    """Export an executed notebook as junit.xml (``jupyter nbconvert --to buildcompare_junit``)."""

    export_from_notebook = "buildcompare JUnit"
    output_mimetype = "application/xml"
    file_extension = ".xml"
    template_file = Unicode("buildcompare/junit.xml.j2").tag(config=True, affects_template=True)


def _readme(nb: NotebookNode, resources: dict[str, Any]) -> str:
    """Write README.md, and put its graphs and pictures into ``resources["outputs"]``."""
    results, suffix = results_of(nb), resources.get("graphs", "svg")
    graphs = markdown.graphs_of(nb, results) if suffix else []
    resources["outputs"] = markdown.files_of(graphs, results, suffix)
    return markdown.put_written(markdown.render(results, graphs, suffix), resources.get("written", {}))


def convert(exporter: Any, notebook: NotebookNode, **resources: object) -> tuple[str, dict[str, bytes]]:
    """Convert an executed notebook as ``jupyter nbconvert`` does; return the text, and other files by their paths."""
    text, used = exporter(default_preprocessors=[]).from_notebook_node(notebook, resources)  # no preprocessor is needed
    return text, used.get("outputs") or {}
