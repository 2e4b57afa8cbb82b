"""Did requests fail more often?"""

from __future__ import annotations

from collections.abc import Iterator

from buildcompare.findings.finding import Labels, finding, title
from buildcompare.results import ErrorRateResult, Finding, TestResult
from buildcompare.wording import change, quantity

WORTH_PERCENT = 0.025
"""Load-test tools take users away above this part of failed requests (mattermost-load-test-ng's thresholds)."""
TIMES = 2.0
"""Rates of two identical runs differ; a rate that at least doubles is worth a look all the same."""


def error_rates(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """One sentence for each error rate that rose so far that somebody should look, though nothing calls it."""
    for row in test.errors:
        if row.base is None or row.new is None or not _jumped(row):
            continue
        size = f" ({change(row.delta_percent)})" if row.delta_percent is not None else ""
        text = (
            f"{title(test)}: {row.name} of {labels[1]} are {quantity(row.new, row.unit)} of the requests against "
            f"{quantity(row.base, row.unit)}{size}: {row.reason}, so this cannot be told from chance."
        )
        yield finding(test, "error_rate", "warning", text, row.model_dump(), metric=row.slug)


def _jumped(row: ErrorRateResult) -> bool:
    if row.unit != "percent" or row.base is None or row.new is None:
        return False
    return row.new >= WORTH_PERCENT and row.new >= TIMES * row.base
