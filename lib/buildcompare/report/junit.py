"""Write the comparison as JUnit XML for build servers: a test case for everything that has a status."""

import re
from xml.sax.saxutils import escape

from markupsafe import Markup

from buildcompare.report.sections import template
from buildcompare.results import Results

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(results: Results) -> str:
    """JUnit XML: a regression of what users feel fails, what cannot be told is skipped."""
    return template("junit.xml").render(results=results, xml=escaped) + "\n"


def escaped(text: str) -> Markup:
    """`text` as XML holds it, without the control characters that it cannot hold."""
    more = {'"': "&quot;", "\t": "&#09;", "\n": "&#10;", "\r": "&#13;"}
    return Markup(escape(_NOT_XML.sub("\ufffd", text), more))  # noqa: S704  # escaped on this line
