"""Write the comparison as JUnit XML for build servers: a test case for everything that has a status."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as ET

from nbconvert.exporters.exporter import Exporter
from nbformat import NotebookNode

from buildcompare.report.sections import results_of
from buildcompare.results import ErrorRateResult, MetricResult, Results, SupportedUsersResult, TestResult
from buildcompare.results.codes import Reason, Status, Verdict
from buildcompare.text.numbers import DECIDED_WORDS, STATUS_WORDS, change, quantity
from buildcompare.text.reasons import reason_words, validity_words

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class JUnitExporter(Exporter):
    """``jupyter nbconvert --to buildcompare_junit``: junit.xml."""

    export_from_notebook = "buildcompare JUnit"
    output_mimetype = "application/xml"
    file_extension = ".xml"

    def from_notebook_node(self, nb: NotebookNode, resources: Any = None, **kw: Any) -> tuple[Any, Any]:
        """Convert `nb`."""
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        return render(results_of(nb)), resources


def render(results: Results) -> str:
    """JUnit XML: a regression of what users feel fails, what cannot be told is skipped."""
    root = ET.Element("testsuites", name=_text(f"{results.base.label} vs {results.new.label}"))
    for test in results.tests:
        cases = list(_cases(test))
        count = Counter(child.tag for case in cases for child in case)
        counts = {"failures": str(count["failure"]), "errors": str(count["error"]), "skipped": str(count["skipped"])}
        suite = ET.SubElement(root, "testsuite", {"name": _text(test.name), "tests": str(len(cases)), **counts})
        properties = ET.SubElement(suite, "properties")
        for name, value in (("verdict", test.verdict), ("simulated", str(results.simulated).lower())):
            ET.SubElement(properties, "property", name=name, value=value)
        suite.extend(cases)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _cases(test: TestResult) -> Iterator[ET.Element]:
    if (users := test.supported_users) is not None:
        yield _case(test, "supported users", users.status, _moved(users, "users"), gate=True)
    for row in test.metrics:
        name = row.slug + "".join(f" {key}={value}" for key, value in row.labels.items())
        decided = row.deciding or row
        how = (
            f" ({DECIDED_WORDS[row.decided_by]} {change(decided.delta_percent)})"
            if row.decided_by in DECIDED_WORDS
            else ""
        )
        status = Status.INCONCLUSIVE if row.deciding is None and row.status == Status.REGRESSION else decided.status
        yield _case(test, name, status, _moved(row, row.unit, row.reason) + how, gate=row.gate)
    for rate in test.errors:
        yield _case(test, rate.slug, rate.status, _moved(rate, rate.unit, rate.reason), gate=rate.gate)


def _moved(row: MetricResult | ErrorRateResult | SupportedUsersResult, unit: str, reason: Reason | None = None) -> str:
    why = f": {reason_words(reason)}" if reason else ""
    return f"{quantity(row.base, unit)} to {quantity(row.new, unit)}, {change(row.delta_percent)}{why}"


def _case(test: TestResult, name: str, status: Status, text: str, *, gate: bool) -> ET.Element:
    case = ET.Element("testcase", classname=_text(test.name), name=_text(name))
    message = _text(f"{STATUS_WORDS[status]}: {text}")
    if test.verdict == Verdict.INVALID and gate:
        why = validity_words(test.validity.reasons, several=any(len(runs) > 1 for runs in test.runs))
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
