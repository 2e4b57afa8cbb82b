"""The comparison as JUnit XML: a test case for everything that has a status, for build servers."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

from nbconvert.exporters.exporter import Exporter
from nbformat import NotebookNode

from buildcompare.report.notebook import results_of
from buildcompare.results import ErrorRateResult, MetricResult, Results, SupportedUsersResult, TestResult
from buildcompare.results.codes import Status, Verdict
from buildcompare.text.numbers import STATUS_WORDS, change, quantity
from buildcompare.text.reasons import reason_words, validity_words

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class JUnitExporter(Exporter):
    """``jupyter nbconvert --to buildcompare_junit``: junit.xml."""

    export_from_notebook = "buildcompare JUnit"
    output_mimetype = "application/xml"

    def _file_extension_default(self) -> str:
        return ".xml"

    def from_notebook_node(  # type: ignore[override]  # the base class declares a notebook, its exporters return text
        self, nb: NotebookNode, resources: dict[str, Any] | None = None, **kw: Any
    ) -> tuple[str, dict[str, Any]]:
        """Convert `nb`."""
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        return render(results_of(nb)), resources


def render(results: Results) -> str:
    """JUnit XML: a regression of what users feel fails, what cannot be told is skipped."""
    root = ET.Element("testsuites", name=_text(f"{results.base.label} vs {results.new.label}"))
    for test in results.tests:
        cases = [_supported_users(test, test.supported_users)] if test.supported_users else []
        cases += [_metric(test, metric) for metric in test.metrics]
        cases += [_error_rate(test, row) for row in test.errors]
        counts = {kind: sum(case.find(kind) is not None for case in cases) for kind in ("failure", "error", "skipped")}
        suite = ET.SubElement(
            root,
            "testsuite",
            name=_text(test.name),
            tests=str(len(cases)),
            failures=str(counts["failure"]),
            errors=str(counts["error"]),
            skipped=str(counts["skipped"]),
        )
        properties = ET.SubElement(suite, "properties")
        for name, value in (("verdict", test.verdict), ("simulated", str(results.simulated).lower())):
            ET.SubElement(properties, "property", name=name, value=value)
        suite.extend(cases)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _supported_users(test: TestResult, users: SupportedUsersResult) -> ET.Element:
    text = f"{quantity(users.base, 'users')} to {quantity(users.new, 'users')}, {change(users.delta_percent)}"
    return _case(test, "supported users", users.status, text, gate=True)


def _metric(test: TestResult, metric: MetricResult) -> ET.Element:
    text = (
        f"{quantity(metric.base, metric.unit)} to {quantity(metric.new, metric.unit)}, "
        f"{change(metric.delta_percent)}" + (f": {reason_words(metric.reason)}" if metric.reason else "")
    )
    name = metric.slug + "".join(f" {key}={value}" for key, value in metric.labels.items())
    if metric.effective_status != metric.status:
        text += " (at unchanged traffic mix)"
    return _case(test, name, metric.effective_status, text, gate=metric.gate)


def _error_rate(test: TestResult, row: ErrorRateResult) -> ET.Element:
    text = f"{quantity(row.base, row.unit)} to {quantity(row.new, row.unit)}, {change(row.delta_percent)}" + (
        f": {reason_words(row.reason)}" if row.reason else ""
    )
    return _case(test, row.slug, row.status, text, gate=row.gate)


def _case(test: TestResult, name: str, status: Status, text: str, *, gate: bool) -> ET.Element:
    case = ET.Element("testcase", classname=_text(test.name), name=_text(name))
    message = _text(f"{STATUS_WORDS[status]}: {text}")
    if test.verdict == Verdict.INVALID and gate:
        why = validity_words(test.validity.reasons, several=test.runs.several)
        ET.SubElement(case, "error", message=_text(f"invalid test: {'; '.join(why)}"))
    elif status == Status.REGRESSION and gate:
        ET.SubElement(case, "failure", message=message)
    elif status in (Status.INCONCLUSIVE, Status.NOT_COMPARABLE):
        ET.SubElement(case, "skipped", message=message)
    else:
        ET.SubElement(case, "system-out").text = message
    return case


def _text(text: str) -> str:
    """Without the control characters that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", text)
