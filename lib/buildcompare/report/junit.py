"""Write the comparison as JUnit XML for build servers: each metric, error rate or number of users is a test case."""

from xml.sax.saxutils import escape

from markupsafe import Markup

from buildcompare.config.kinds import kind_of_results
from buildcompare.config.outside import xml_text
from buildcompare.report.sections import template
from buildcompare.results import Results


def render(results: Results) -> str:
    """Return junit.xml: gates of invalid tests are errors, regressed gates fail, other undecided rows are skipped."""
    return template("junit.xml").render(results=results, kind=kind_of_results(results), xml=escaped) + "\n"


def escaped(text: str) -> Markup:
    """Escape `text` for XML, with U+FFFD in place of each character that XML forbids."""
    more = {'"': "&quot;", "\t": "&#09;", "\n": "&#10;", "\r": "&#13;"}
    return Markup(escape(xml_text(text), more))  # noqa: S704  # escaped on this line
