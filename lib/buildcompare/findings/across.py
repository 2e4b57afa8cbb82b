"""Do several tests agree on a label, and which database methods move with an API handler?"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from buildcompare.findings.finding import Labels, finding, title
from buildcompare.labels.agreement import Agreement, LabelInTest, agreeing_labels
from buildcompare.results import Finding, LabelResult, TestResult
from buildcompare.results.codes import FindingKind, Severity, Status
from buildcompare.stats.effects import ALPHA
from buildcompare.text.numbers import change, listed, significant

MOST_NAMED = 5
RARE = 0.01
"""A warning needs fewer agreeing labels than this by chance. It is strict because tests are counted as independent,
while a label that is noisier than its level says (StatusStore.SaveOrUpdate) is so in all of them."""
API, STORE = "api", "store"
"""The label tables of handlers and of the methods that they call."""


def labels_in_several_tests(tests: Sequence[TestResult], labels: Labels) -> Iterator[Finding]:
    """One sentence: labels that one test calls slower, and others call slower or lean towards."""
    agreed = slower_in_several(tests)
    if not agreed:
        return
    by_name = {test.name: test for test in tests}
    told = [_told(each, by_name) for each in agreed]
    first = agreed[0]
    rare = first.marked > 1 and first.expected < RARE
    by_chance = f"where nothing changed {significant(first.expected, 2)} labels would agree as the first one does"
    text = f"Slower in several tests: {listed(told, most=MOST_NAMED)}; {by_chance}."
    evidence = {
        "labels": [
            {
                "label": _key(each)[1],
                "group": _key(each)[0],
                "stat": _key(each)[2],
                "marked": each.marked,
                "expected": each.expected,
                "tests": {row.test: {"delta_percent": row.delta_percent, "marked": row.marked} for row in each.rows},
            }
            for each in agreed
        ],
        "not_named": max(len(agreed) - MOST_NAMED, 0),
    }
    where = by_name[first.rows[0].test]
    found = finding(
        where, FindingKind.LABELS_IN_SEVERAL_TESTS, Severity.WARNING if rare else Severity.INFO, text, evidence
    )
    yield found.model_copy(update={"id": "labels_in_several_tests", "test": None})


def slower_in_several(tests: Sequence[TestResult]) -> list[Agreement]:
    """Labels that rose in several tests, the surest first; a label by group, name and statistic."""
    rows: dict[Hashable, list[LabelInTest]] = {}
    for test in tests:
        for row in test.labels:
            if row.delta_percent is not None and row.p_value is not None:
                marked = row.status in (Status.REGRESSION, Status.IMPROVEMENT)
                found = LabelInTest(test.name, row.delta_percent, row.p_value / 2.0, marked)
                rows.setdefault((row.group, row.label, row.stat), []).append(found)
    return agreeing_labels(rows)


def methods_with_handlers(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """API handlers that are slower, and the database methods that are slower with them: a place to look.

    A few rows of every table are marked by chance, so only those count that the whole table cannot explain.
    """
    slower = [
        row
        for row in test.labels
        if row.status == Status.REGRESSION and row.stat == "avg" and (row.p_adjusted or 0.0) < ALPHA
    ]
    handlers, methods = _of(slower, API), _of(slower, STORE)
    if not handlers or not methods:
        return
    text = (
        f"{title(test)}: slower on average together are the handlers {_named(handlers)} and the database methods "
        f"{_named(methods)}; which handler calls which method is not recorded."
    )
    evidence = {
        name: {row.label: row.delta_percent for row in rows}
        for name, rows in (("handlers", handlers), ("methods", methods))
    }
    left_out = [max(len(rows) - MOST_NAMED, 0) for rows in (handlers, methods)]
    yield finding(test, FindingKind.METHODS_WITH_HANDLERS, Severity.INFO, text, {**evidence, "not_named": left_out})


def _of(rows: Sequence[LabelResult], group: str) -> list[LabelResult]:
    return sorted((row for row in rows if row.group == group), key=lambda row: -(row.delta_percent or 0.0))


def _named(rows: Sequence[LabelResult]) -> str:
    return listed([f"{row.label} ({change(row.delta_percent)})" for row in rows], most=MOST_NAMED)


def _told(agreed: Agreement, by_name: dict[str, TestResult]) -> str:
    _, label, stat = _key(agreed)
    where = " and ".join(
        f"{title(by_name[row.test])} {change(row.delta_percent)}{'' if row.marked else ' (leaning)'}"
        for row in agreed.rows
    )
    return f"{label} {stat} ({where})"


def _key(agreed: Agreement) -> tuple[str, str, str]:
    key = agreed.label
    assert isinstance(key, tuple)
    return key
