"""Did requests fail more often?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from buildcompare.findings.finding import Labels, finding, title
from buildcompare.metrics.counted_errors import UNIT as PER_USER_MINUTE
from buildcompare.results import ErrorRateResult, Finding, TestResult
from buildcompare.results.codes import FindingKind, Severity
from buildcompare.text.numbers import change, listed, quantity, significant
from buildcompare.text.reasons import reason_words

WORTH_PERCENT = 0.025
"""Load-test tools take users away above this part of failed requests (mattermost-load-test-ng's thresholds)."""
WORTH_PER_USER_MINUTE = 1.0 / 480.0
"""One error for each user in a day of eight hours."""
TIMES = 2.0
"""Rates of two identical runs differ; a rate that at least doubles is worth a look all the same.

A comparison alone does not know how far rates usually lie apart. Where a chain of comparisons tells that,
`analysis.error_counts` asks another question of the counts: whether they changed as in no other comparison.
"""


def error_rates(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """One sentence for each error rate that rose so far that somebody should look, though nothing calls it."""
    for row in test.errors:
        if row.base is None or row.new is None or not _jumped(row):
            continue
        size = f" ({change(row.delta_percent)})" if row.delta_percent is not None else ""
        of = " of the requests" if row.unit == "percent" else ""
        why = reason_words(row.reason) if row.reason else "not judged"
        text = (
            f"{title(test)}: {row.name} of {labels[1]} are {quantity(row.new, row.unit)}{of} against "
            f"{quantity(row.base, row.unit)}{size}: {why}, so this cannot be told from chance."
        )
        yield finding(test, FindingKind.ERROR_RATE, Severity.WARNING, text, row.model_dump(), metric=row.slug)


def counted_errors(tests: Sequence[TestResult], labels: Labels) -> Iterator[Finding]:
    """One sentence for all tests: the errors that the load-test tool counted, relative to the connected users."""
    rows = [(test, row) for test in tests for row in test.errors if row.unit == PER_USER_MINUTE and row.new is not None]
    known = [(test, row) for test, row in rows if row.base is not None]
    if known:
        told = [
            f"{title(test)} {significant(row.new or 0.0)} against {significant(row.base or 0.0)}"
            + (f" ({change(row.delta_percent)})" if row.delta_percent is not None else "")
            for test, row in known
        ]
        text = f"Errors counted by the load test, for each connected user and minute: {listed(told, most=len(told))}."
        evidence = {test.name: row.model_dump(include={"base", "new", "delta_percent"}) for test, row in known}
        found = finding(known[0][0], FindingKind.COUNTED_ERRORS, Severity.INFO, text, evidence)
        yield found.model_copy(update={"id": "counted_errors", "test": None})


def _jumped(row: ErrorRateResult) -> bool:
    worth = {"percent": WORTH_PERCENT, PER_USER_MINUTE: WORTH_PER_USER_MINUTE}.get(row.unit)
    if worth is None or row.base is None or row.new is None:
        return False
    return row.new >= worth and row.new >= TIMES * row.base
