"""The verdict of a test and of a comparison, by the rule that reports print beside it, and how a report begins."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from buildcompare.findings import variants
from buildcompare.findings.finding import grouped
from buildcompare.findings.labels import beyond_noise
from buildcompare.findings.metrics import failing, leans, lost
from buildcompare.results import (
    Decided,
    ErrorRateResult,
    MetricResult,
    PlannedRow,
    Results,
    SupportedUsersResult,
    TestResult,
    Validity,
)
from buildcompare.results.codes import (
    Better,
    CauseKind,
    Severity,
    Status,
    SuggestionKind,
    ValidityCode,
    ValidityStatus,
    Verdict,
)
from buildcompare.text.sentences import say, title

USERS = "supported users"
TWICE = {Better.LOWER: 100.0, Better.HIGHER: 50.0}  # percent: runs that do not exclude it cannot pass a build
WORTH_IT = 0.8  # further runs are named beside a pass where they would exclude so much of what is still possible


@dataclass(frozen=True)
class Cause:
    """One reason why a valid test does not pass, with the title of the test and the row that it is about."""

    kind: CauseKind
    test: str
    name: str | None = None
    """Of the metric, or `USERS`; None where the cause is about no single row."""
    delta_percent: float | None = None
    decided_by: str = "level"
    loss_percent: float | None = None
    """The largest loss of users that the interval does not exclude."""


def of_test(
    metrics: Sequence[MetricResult],
    supported_users: SupportedUsersResult | None,
    validity: Validity,
    errors: Sequence[ErrorRateResult] = (),
) -> Verdict:
    """The verdict of one test."""
    if validity.status == ValidityStatus.INVALID:
        return Verdict.INVALID
    found = causes(metrics, supported_users, errors)
    if any(cause.kind == CauseKind.REGRESSION for cause in found):
        return Verdict.REGRESSION
    return Verdict.INCONCLUSIVE if found else Verdict.PASS


def of_comparison(tests: Sequence[TestResult]) -> Verdict:
    """The verdict of the whole comparison: the worst of its tests."""
    verdicts = {test.verdict for test in tests}
    worst: tuple[Verdict, ...] = (Verdict.INVALID, Verdict.REGRESSION, Verdict.INCONCLUSIVE)
    return next((verdict for verdict in worst if verdict in verdicts), Verdict.PASS)


def causes(
    metrics: Sequence[MetricResult],
    users: SupportedUsersResult | None,
    errors: Sequence[ErrorRateResult] = (),
    test: str = "",
) -> list[Cause]:
    """Everything that keeps a valid test from passing, with the test's title."""
    found = [Cause(CauseKind.FAILING, test, row.name, row.delta_percent) for row in errors if failing(row)]
    if users is not None:
        loss = None if users.ci_low is None else -users.ci_low
        excluded = loss is not None and users.band_percent is not None and loss < 2.0 * users.band_percent
        kinds = [*_worse(users), *([] if excluded else [CauseKind.LOSS_NOT_EXCLUDED])]
        found += [Cause(kind, test, USERS, users.delta_percent, loss_percent=loss) for kind in kinds]
    for metric in (each for each in metrics if each.gate):
        delta = (metric.deciding or metric).delta_percent
        kinds = [*_worse(metric.deciding), *([CauseKind.UNJUDGEABLE] if lost(metric) else [])]
        if not kinds and _worst(metric.deciding, metric.better) >= TWICE.get(metric.better, math.inf):
            kinds.append(CauseKind.TWICE_AS_BAD)
        found += [Cause(kind, test, metric.full_name, delta, metric.decided_by) for kind in kinds]
    if not any(map(_judged, metrics)) and (users is None or users.p_value is None):
        found.append(Cause(CauseKind.NOTHING_JUDGED, test))
    return sorted(found, key=lambda cause: list(CauseKind).index(cause.kind))


def _worse(row: Decided | None) -> list[CauseKind]:
    if row and row.status == Status.REGRESSION:
        return [CauseKind.REGRESSION]
    return [CauseKind.LEANING] if row and leans(row.p_worse_one_sided) else []


def _judged(metric: MetricResult) -> bool:
    return metric.gate and metric.deciding is not None and metric.deciding.p_value is not None


@dataclass(frozen=True)
class Opening:
    """A title such as ``Regression in Bounded MySQL: P99 API times +33.4 %``, and a sentence on what it means."""

    title: str
    sentence: str


def opening(results: Results) -> Opening:
    """The verdict of `results` with the rows that made it; of a pass, how small a change would have been seen.

    That the load of a test was not recorded stands first, as all that follows is limited by it.
    """
    if results.variants is not None:
        return Opening(*variants.opening(results, results.variants))
    made = _opening(results)
    unknown = [title(test) for test in results.tests if ValidityCode.LOAD_UNKNOWN in test.validity.codes]
    limited = say("opening", "load_unknown", unknown) + " " if unknown else ""
    slower = [each for found in beyond_noise(results.tests) for each in found.evidence["labels"]]  # type: ignore[attr-defined]  # any JSON
    named = " " + say("opening", "labels_beyond_noise", slower) if slower else ""
    return replace(made, sentence=limited + made.sentence + named)


def _opening(results: Results) -> Opening:
    tests, verdict = results.tests, results.verdict
    valid = [test for test in tests if test.verdict != Verdict.INVALID]
    found = [cause for test in valid for cause in causes(test.metrics, test.supported_users, test.errors, title(test))]
    worse = _by_name(each for each in found if each.kind == CauseKind.REGRESSION)
    if verdict == Verdict.REGRESSION:
        return Opening(say("opening", "headed", verdict, worse, len(tests)), say("opening", "regressed"))
    if verdict == Verdict.INVALID:
        invalid = [title(test) for test in tests if test.verdict == Verdict.INVALID]
        why = {
            title(test): sorted(test.validity.reasons, key=lambda reason: reason.status != ValidityStatus.INVALID)
            for test in tests
            if test.verdict == Verdict.INVALID
        }
        several = any(len(runs) > 1 for test in tests for runs in test.runs)
        builds = {"base": results.base.label, "new": results.new.label}
        sentence = say("opening", "invalid", why, several, builds, worse)
        return Opening(say("opening", "invalid_title", invalid, len(tests)), sentence)
    if verdict == Verdict.INCONCLUSIVE:
        settle = any(each.kind == SuggestionKind.SETTLE for each in results.suggestions)
        about = _by_name(each for each in found if each.name)
        sentence = say(
            "opening", "undecided", found, settle, _further(results, [(each.test, each.name) for each in found])
        )
        return Opening(say("opening", "headed", verdict, about, len(tests)), sentence)
    warnings = sum(each.severity == Severity.WARNING for each in results.findings)
    gates = [metric for test in tests for metric in test.metrics if metric.gate]
    judged = {metric.name for metric in gates if _judged(metric)}
    not_judged = [name for name in dict.fromkeys(metric.name for metric in gates) if name not in judged]
    sentence = say("opening", "pass", _possible(valid), not_judged, _further(results))
    return Opening(say("opening", "pass_title", warnings), sentence)


def _possible(tests: Sequence[TestResult]) -> dict[str, float]:
    """By what users feel, how much worse it may still be in one of the tests: its interval's bad end, in percent."""
    rows = [(metric.name, metric.better, metric.deciding) for test in tests for metric in test.metrics if metric.gate]
    rows += [(USERS, Better.HIGHER, test.supported_users) for test in tests]
    possible: dict[str, float] = {}
    for name, better, row in rows:
        possible[name] = max(possible.get(name, 0.0), _worst(row, better))
    return {name: worst for name, worst in possible.items() if worst > 0}


def _worst(row: Decided | None, better: Better) -> float:
    """The bad end of a row's interval, in percent, as the table of tests says it; 0 where none is known."""
    if row is None or row.ci_low is None or row.ci_high is None:
        return 0.0
    return max(row.ci_high if better == Better.LOWER else -row.ci_low, row.no_worse_than_percent or 0.0)


def _further(results: Results, about: Sequence[tuple[str, str | None]] | None = None) -> dict[str, object] | None:
    """The plan of one row: of those that it is `about`, what shows a change of the margin.

    Without `about`, of the metric that users feel and that may be worst: what would exclude a good part of that.
    """
    titles = {test.name: title(test) for test in results.tests}
    known = [plan for plan in results.plan if plan.test in titles]
    if about is not None:
        rows = [(titles[plan.test], row) for plan in known for row in plan.rows]
        best = min((each for each in rows if (each[0], each[1].name) in about), key=_hours, default=None)
        return {"test": best[0], "name": best[1].name, **dict(best[1].steps[-1])} if best else None
    gates = {(test.name, metric.slug): metric for test in results.tests for metric in test.metrics if metric.gate}
    found = [
        (_worst(metric.deciding, metric.better), titles[plan.test], row)
        for plan in known
        for row in plan.undecided
        if (metric := gates.get((plan.test, row.slug or "")))
    ]
    for size, test, row in sorted(found, key=lambda each: -each[0])[:1]:
        for step in row.steps:
            if step.no_worse_than_percent is not None and step.no_worse_than_percent < WORTH_IT * size:
                return {"test": test, "name": row.name, **dict(step)}
    return None


def _hours(planned: tuple[str, PlannedRow]) -> float:
    return planned[1].steps[-1].hours


def _by_name(found: Iterable[Cause]) -> list[list[Cause]]:
    """Causes about the same row, the supported users first, then what moved most."""
    largest_first = sorted(found, key=lambda each: (each.name != USERS, -abs(each.delta_percent or 0.0)))
    return list(grouped((each.name, each) for each in largest_first).values())
