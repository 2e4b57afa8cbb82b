"""Which numbers of a finding's sentence does its evidence not hold?"""

import re
from collections.abc import Iterator
from typing import Any

from buildcompare.results import Finding, Results
from buildcompare.text.numbers import change, minutes, percent, quantity, significant, whole
from buildcompare.text.sentences import title

FIXED = ("95 % interval", "90 % interval", "30 minutes", "p below 0.001")
"""Numbers of the method, the same in every report: the levels of intervals, what supported users are taken over."""
MOST = (3, 4, 5, 8)
"""So many entries of a list are named before "and 7 more"."""
_UNITS = r"(?: ?%| min| ms| µs| ns| s| GB| MB| kB| B)?(?![\w.]*\w)"
_NUMBER = re.compile(r"(?<![\w.])[+−-]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]\d+)?" + _UNITS)


def without_evidence(finding: Finding, results: Results) -> list[str]:
    text = finding.whole
    for name in sorted(_names(finding, results), key=len, reverse=True):
        text = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w])", "…", text)
    nodes = [*_nodes(finding.evidence)]
    sizes = {len(each) for each in nodes if isinstance(each, (dict, list))}
    text = re.sub(
        r" and (\d+) more", lambda more: "" if sizes & {int(more[1]) + most for most in MOST} else more[0], text
    )
    numbers = [float(each) for each in nodes if isinstance(each, (int, float)) and not isinstance(each, bool)]
    held = {words for value in (*numbers, *sizes) for words in _said(value)}
    held |= {words for words in _strings(finding.evidence) if words.isdigit()}  # a setting: said as it was written
    return [number for number in _NUMBER.findall(text) if number.strip() not in held]


def _names(finding: Finding, results: Results) -> Iterator[str]:
    yield from FIXED
    yield from (results.base.label, results.new.label)
    for test in results.tests:
        yield from (test.name, title(test))
        yield from (name for metric in test.metrics for name in (metric.name, metric.slug))
    yield from (name for name in _strings(finding.evidence) if len(name) > 1 and not name.isdigit())


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (key for key in value if isinstance(key, str))
        for key, each in value.items():
            yield from () if key in ("reasons", "base", "new") else _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
    elif isinstance(value, str):
        yield value


def _nodes(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _nodes(each)


def _said(value: float) -> Iterator[str]:
    for bound in ("", "lower", "upper"):
        yield from (change(value, bound), change(value, bound).strip("× %"), percent(abs(value), bound))
        size = whole(abs(value), "", bound)
        yield from (size, f"{size} s", whole(value, "+", bound), significant(abs(value), 2, bound))
    yield from (f"{value:.2f}", percent(value))
    yield from (significant(abs(value)), minutes(value), f"{value / 60:.0f} min")
    yield from (quantity(value, unit) for unit in ("seconds", "bytes", "percent"))
    yield from (f"{100 * value:.0f} %", f"{value:+.1%}", f"{value:.0f} %", change(100 * value))
