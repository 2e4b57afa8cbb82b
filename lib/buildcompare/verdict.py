"""May we ship? One verdict from statuses, by the rule that every report prints beside it."""

from __future__ import annotations

from collections.abc import Sequence

from buildcompare.results import MetricResult, SupportedUsersResult, TestResult, Validity, Verdict

RULE = (
    "invalid if any test is invalid; regression if the supported users or any gate metric regresses in a valid test; "
    "inconclusive if one of them leans worse (beyond its margin, adjusted one-sided p below 0.1), if the supported "
    "users cannot exclude a loss of twice their margin, if a gate metric has no number in one build or rises from "
    "zero, or if nothing that users feel could be judged; else pass; "
    "an average that a changed traffic mix moved counts as at unchanged mix"
)
"""Gate metrics are those that users feel: API times, supported users, errors. The others only warn."""
LEANING = 0.1


def of_test(
    metrics: Sequence[MetricResult], supported_users: SupportedUsersResult | None, validity: Validity
) -> Verdict:
    """The verdict of one test."""
    if validity.status == "invalid":
        return "invalid"
    felt = [metric for metric in metrics if metric.gate]
    statuses = [metric.counted_status for metric in felt]
    leanings = [metric.counted_leaning for metric in felt]
    judged = any(metric.p_value is not None for metric in felt)
    if supported_users is not None:
        statuses.append(supported_users.status)
        leanings.append(supported_users.leans_worse)
        judged = judged or supported_users.p_value is not None
    if "regression" in statuses:
        return "regression"
    leaning = any(each is not None and each < LEANING for each in leanings)
    unjudgeable = any(lost(metric) for metric in felt)
    if leaning or not judged or unjudgeable or (supported_users is not None and not _excludes_a_loss(supported_users)):
        return "inconclusive"
    return "pass"


def lost(metric: MetricResult) -> bool:
    """Whether a metric is there in one build only, or was zero in one and is not in the other."""
    levels = (metric.base or 0.0, metric.new or 0.0)
    return metric.p_value is None and (levels[0] == 0.0) != (levels[1] == 0.0)


def _excludes_a_loss(users: SupportedUsersResult) -> bool:
    """Whether a loss of twice the margin lies outside the interval."""
    return users.ci_low is not None and users.band_percent is not None and users.ci_low > -2.0 * users.band_percent


def of_comparison(tests: Sequence[TestResult]) -> Verdict:
    """The verdict of the whole comparison: the worst of its tests."""
    verdicts = {test.verdict for test in tests}
    worst: tuple[Verdict, ...] = ("invalid", "regression", "inconclusive")
    return next((verdict for verdict in worst if verdict in verdicts), "pass")
