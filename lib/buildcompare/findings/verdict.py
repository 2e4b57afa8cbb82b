"""The verdict of a test and of a comparison, by the rule that every report prints beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from buildcompare.results import MetricResult, SupportedUsersResult, TestResult, Validity
from buildcompare.results.codes import CauseKind, Status, ValidityStatus, Verdict

LEANING = 0.1
"""One-sided adjusted p-value below which a row leans worse."""


@dataclass(frozen=True)
class Cause:
    """One reason why a valid test does not pass; `row` is None where it is about no single row."""

    kind: CauseKind
    row: MetricResult | SupportedUsersResult | None = None

    @property
    def delta_percent(self) -> float | None:
        """The change of the row, as a verdict counts it."""
        if isinstance(self.row, MetricResult):
            return self.row.effective_delta_percent
        return self.row.delta_percent if self.row else None


def of_test(
    metrics: Sequence[MetricResult], supported_users: SupportedUsersResult | None, validity: Validity
) -> Verdict:
    """The verdict of one test."""
    if validity.status == ValidityStatus.INVALID:
        return Verdict.INVALID
    found = causes(metrics, supported_users)
    if any(cause.kind == CauseKind.REGRESSION for cause in found):
        return Verdict.REGRESSION
    return Verdict.INCONCLUSIVE if found else Verdict.PASS


def causes(metrics: Sequence[MetricResult], supported_users: SupportedUsersResult | None) -> tuple[Cause, ...]:
    """Everything that keeps a valid test from passing."""
    felt = [metric for metric in metrics if metric.gate]
    rows: list[tuple[MetricResult | SupportedUsersResult, Status, float | None]]
    rows = [(metric, metric.effective_status, metric.effective_p_worse) for metric in felt]
    if supported_users is not None:
        rows.insert(0, (supported_users, supported_users.status, supported_users.p_worse_one_sided))
    found = [Cause(CauseKind.REGRESSION, row) for row, status, _ in rows if status == Status.REGRESSION]
    found += [
        Cause(CauseKind.LEANING, row)
        for row, status, leaning in rows
        if status != Status.REGRESSION and leaning is not None and leaning < LEANING
    ]
    if supported_users is not None:
        low, band = supported_users.ci_low, supported_users.band_percent
        if low is None or band is None or not low > -2.0 * band:  # a loss of twice the margin is not excluded
            found.append(Cause(CauseKind.LOSS_NOT_EXCLUDED, supported_users))
    found += [Cause(CauseKind.UNJUDGEABLE, metric) for metric in felt if lost(metric)]
    if all(row.p_value is None for row, _, _ in rows):
        found.append(Cause(CauseKind.NOTHING_JUDGED))
    return tuple(found)


def lost(metric: MetricResult) -> bool:
    """Whether a metric is there in one build only, or was zero in one and is not in the other."""
    levels = (metric.base or 0.0, metric.new or 0.0)
    return metric.p_value is None and (levels[0] == 0.0) != (levels[1] == 0.0)


def of_comparison(tests: Sequence[TestResult]) -> Verdict:
    """The verdict of the whole comparison: the worst of its tests."""
    verdicts = {test.verdict for test in tests}
    worst: tuple[Verdict, ...] = (Verdict.INVALID, Verdict.REGRESSION, Verdict.INCONCLUSIVE)
    return next((verdict for verdict in worst if verdict in verdicts), Verdict.PASS)
