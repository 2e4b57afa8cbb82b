"""May we ship? One verdict from statuses, by the rule that every report prints beside it."""

from __future__ import annotations

from collections.abc import Sequence

from buildcompare.results import MetricResult, SupportedUsersResult, TestResult, Validity, Verdict

RULE = (
    "invalid if any test is invalid; regression if the supported users or any gate metric regresses in a valid "
    "test; inconclusive if one of them leans worse or could not be judged; else pass"
)
"""Gate metrics are those that users feel: API times, supported users, errors. The others only warn."""


def of_test(
    metrics: Sequence[MetricResult], supported_users: SupportedUsersResult | None, validity: Validity
) -> Verdict:
    """The verdict of one test."""
    if validity.status == "invalid":
        return "invalid"
    statuses = [metric.status for metric in metrics if metric.gate]
    if supported_users is not None:
        statuses.append(supported_users.status)
    if "regression" in statuses:
        return "regression"
    judged = [status for status in statuses if status in ("equivalent", "improvement")]
    return "pass" if statuses and len(judged) == len(statuses) else "inconclusive"


def of_comparison(tests: Sequence[TestResult]) -> Verdict:
    """The verdict of the whole comparison: the worst of its tests."""
    verdicts = {test.verdict for test in tests}
    worst: tuple[Verdict, ...] = ("invalid", "regression", "inconclusive")
    return next((verdict for verdict in worst if verdict in verdicts), "pass")
