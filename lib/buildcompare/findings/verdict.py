"""Reach the verdict of a test and of a comparison, and write the opening (title and summary) of a report."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from buildcompare.config.catalogue import outcome
from buildcompare.config.kinds import kind_of_results
from buildcompare.config.units import TIMES
from buildcompare.findings.finding import grouped
from buildcompare.findings.labels import labels_beyond_noise
from buildcompare.findings.metrics import NO_LOSS, USERS, failing, few_sessions, gate_rows, lost, may_fail, risen
from buildcompare.load.view import RATES
from buildcompare.results import Decided, MetricResult, PlannedRow, Results, TestResult
from buildcompare.results.codes import (
    Better,
    CauseKind,
    FailOn,
    FindingKind,
    Severity,
    Status,
    SuggestionKind,
    ValidityCode,
    ValidityStatus,
    Verdict,
)
from buildcompare.text.sentences import say, title

GRAVEST_FIRST = (Verdict.INVALID, Verdict.REGRESSION, Verdict.INCONCLUSIVE, Verdict.PASS)
TWICE = {Better.LOWER: 100.0, Better.HIGHER: 50.0}  # To pass, a metric's interval must exclude this worsening (percent)
SHARED = 2.0  # Maximum median change (percent) of endpoints that the report may call unchanged
WORTH_IT = 0.8  # Suggest further runs only if they cut the largest possible worsening to less than this fraction


@dataclass(frozen=True)
class Cause:
    """Reason why a valid test does not pass, with the test's title."""

    kind: CauseKind
    test: str
    name: str | None = None
    """Name of the metric that prevents a pass, or `USERS` for supported users. None if no single metric does."""
    delta_percent: float | None = None
    decided_by: str = "level"
    loss_percent: float | None = None
    """For supported users: largest loss in the confidence interval, in percent; None if unknown."""


def of_test(test: TestResult) -> Verdict:
    """Return the verdict of one test, from its validity and its :func:`causes`."""
    if test.validity.status == ValidityStatus.INVALID:
        return Verdict.INVALID
    every = causes(test)
    if any(cause.kind == CauseKind.REGRESSION for cause in every):
        return Verdict.REGRESSION
    return Verdict.INCONCLUSIVE if every else Verdict.PASS


def of_comparison(tests: Sequence[TestResult]) -> Verdict:
    """Return the verdict of the whole comparison: the gravest verdict of its tests, or pass if there are no tests."""
    return min((test.verdict for test in tests), key=GRAVEST_FIRST.index, default=Verdict.PASS)


def shortcomings(results: Results) -> frozenset[FailOn]:
    """Return the words of ``--fail-on`` that apply; a regression counts even if another test is invalid."""
    verdicts = {results.verdict, *(test.verdict for test in results.tests)}
    words: tuple[FailOn, ...] = ("regression", "invalid", "inconclusive")
    applying = {word for word in words if word in verdicts}
    return frozenset(applying | {"errors"} if _has_more_errors(results) else applying)


def _has_more_errors(results: Results) -> bool:
    """Test whether, in a valid test, failures of the new build rose beyond chance or exceed the allowed rate."""
    valid = {test.name: test for test in results.tests if test.verdict != Verdict.INVALID}
    counts = {
        (test.name, row.slug): row
        for test in valid.values()
        for row in test.metrics
        if outcome(row.slug, row.unit, row.better)
    }
    if any((row.gate or row.failed_percent) and failing(row) for row in counts.values()):
        return True
    for each in (each for each in results.findings if each.test in valid):
        rose = each.kind == FindingKind.UNJUDGEABLE and each.severity != Severity.INFO and each.evidence["base"] == 0
        failing_more = each.kind == FindingKind.ERROR_RATE and each.severity == Severity.CRITICAL
        if failing_more or (rose and (each.test, each.metric) in counts):
            return True
    return any(row.deciding is not None and row.deciding.status == Status.REGRESSION for row in counts.values())


def causes(test: TestResult) -> list[Cause]:
    """List all reasons why a valid test does not pass."""
    users, named = test.supported_users, title(test)
    worse = {row.slug for row in test.errors if row.status == Status.REGRESSION and users is None}
    every = [
        Cause(CauseKind.REGRESSION if row.slug in worse else CauseKind.FAILING, named, row.name, row.delta_percent)
        for row in test.errors
        if row.slug in worse or failing(row)
    ]
    counted = (row for row in test.metrics if not row.gate and row.failed_percent and failing(row))
    every += [Cause(CauseKind.FAILING, named, row.name, row.delta_percent) for row in counted]
    if users is not None:
        loss = None if users.ci_low is None else -users.ci_low
        excluded = loss is not None and users.band_percent is not None and loss < 2.0 * users.band_percent
        kinds = [*_worse(users), *([] if excluded else [CauseKind.LOSS_NOT_EXCLUDED])]
        every += [Cause(kind, named, USERS, users.delta_percent, loss_percent=loss) for kind in kinds]
    for metric in (each for each in test.metrics if each.gate):
        delta = (metric.deciding or metric).delta_percent
        kinds = [*_worse(metric.deciding), *([CauseKind.UNJUDGEABLE] if lost(metric) else [])]
        worst = _worst(metric.deciding, metric.better)
        if not kinds and (worst >= TWICE.get(metric.better, math.inf) or may_fail(metric, worst)):
            kinds.append(CauseKind.TWICE_AS_BAD)
        if not kinds and outcome(metric.slug, metric.unit, metric.better) and failing(metric):
            kinds.append(CauseKind.FAILING)
        if not kinds and _mean_doubled(metric):
            kinds.append(CauseKind.MEAN_DOUBLED)
        every += [Cause(kind, named, metric.full_name, delta, metric.decided_by) for kind in kinds]
    marks = {name for each in test.validity.reasons if each.side == "new" for name in each.numbers}
    if "all_ended_early" in marks:
        every.append(Cause(CauseKind.ENDED_EARLY, named))
    if "all_restarted" in marks:
        every.append(Cause(CauseKind.RESTARTED, named))
    if any(few_sessions(metric) for metric in test.metrics if metric.gate):
        every.append(Cause(CauseKind.FEW_SESSIONS, named))
    elif not any(map(_judged, test.metrics)) and (users is None or users.p_value is None):
        every.append(Cause(CauseKind.NOTHING_JUDGED, named))
    return sorted(every, key=lambda cause: list(CauseKind).index(cause.kind))


def _mean_doubled(metric: MetricResult) -> bool:
    """Test whether a duration's arithmetic mean at least doubled; few long durations hardly move the geometric mean."""
    base, new = metric.mean
    return metric.unit in TIMES and metric.decided_by == "level" and bool(base and new and new >= 2.0 * base)


def _worse(row: Decided | None) -> list[CauseKind]:
    if row and row.status == Status.REGRESSION:
        return [CauseKind.REGRESSION]
    return [CauseKind.LEANING] if row and row.leans_worse else []


def _judged(metric: MetricResult) -> bool:
    return metric.gate and metric.deciding is not None and metric.deciding.p_value is not None


@dataclass(frozen=True)
class Opening:
    """Title such as ``Regression in Bounded MySQL: P99 API times +33.4 %``, and a sentence that explains it."""

    title: str
    sentence: str
    states: tuple[str, ...] = ()
    """Ids of the findings that `title` and `sentence` already state."""


def opening(results: Results) -> Opening:
    """State the verdict of `results` with its causes; for a pass, also how much worse each metric may still be.

    Tests whose load is unknown are named first, because the unknown load limits the other statements.
    """
    if kind := kind_of_results(results):
        return Opening(*kind.opening(results))
    valid = [test for test in results.tests if test.verdict != Verdict.INVALID]
    every = [cause for test in valid for cause in causes(test)]
    match results.verdict:
        case Verdict.REGRESSION:
            worse = _by_name(cause for cause in every if cause.kind == CauseKind.REGRESSION)
            heading = say("opening", "headed", results.verdict, worse, len(results.tests))
            orders = [test.in_order for test in valid if test.verdict == Verdict.REGRESSION and test.in_order]
            made = Opening(heading, say("opening", "regressed", *orders[:1]))
        case Verdict.INVALID:
            made = _invalid(results, every)
        case Verdict.INCONCLUSIVE:
            made = _undecided(results, every)
        case _:
            made = _passed(results, valid)
    unknown = [title(test) for test in results.tests if ValidityCode.LOAD_UNKNOWN in test.validity.codes]
    limited = say("opening", "load_unknown", unknown) + " " if unknown else ""
    slower = [each for each in labels_beyond_noise(results.tests) if each.added_share is not None]
    failing_most = [row for test in valid for row in risen(test) if row.most][:1]
    named = "".join(" " + say("opening", "fails_most", row) for row in failing_most)
    if slower:
        named += " " + say("opening", "labels_beyond_noise", slower)
    elif results.verdict != Verdict.PASS and (labels := _slower_labels(results)):
        named += " " + say("opening", "labels_slower", labels)
    return replace(made, sentence=limited + made.sentence + named)


def _slower_labels(results: Results) -> list[dict[str, object]]:
    """List the evidence of slower labels whose finding is a warning or critical, in the order of findings."""
    kind = FindingKind.LABEL_CHANGED
    return [each.evidence for each in results.findings if each.kind == kind and each.severity != Severity.INFO]


def _invalid(results: Results, every: Sequence[Cause]) -> Opening:
    tests = {test.name: test for test in results.tests if test.verdict == Verdict.INVALID}
    why = {title(test): test.validity.reasons for test in tests.values()}
    several = any(len(runs) > 1 for test in results.tests for runs in test.runs)
    builds = {"base": results.base.label, "new": results.new.label}
    worse = _by_name(cause for cause in every if cause.kind == CauseKind.REGRESSION)
    states = [each.id for each in results.findings if each.kind == FindingKind.VALIDITY and each.test in tests]
    heading = say("opening", "invalid_title", list(why), len(results.tests))
    sentence = say("opening", "invalid", why, several, builds, worse)
    return Opening(heading, sentence, tuple(states) if len(tests) == 1 else ())


def _undecided(results: Results, every: Sequence[Cause]) -> Opening:
    settle = any(each.kind == SuggestionKind.SETTLE for each in results.suggestions)
    further = _settling(results, [(each.test, each.name) for each in every])
    about = _by_name(each for each in every if each.name)
    stopped = any(each.kind in (CauseKind.RESTARTED, CauseKind.ENDED_EARLY) for each in every)
    heading = say("opening", "headed", results.verdict, about, len(results.tests), stopped)
    return Opening(heading, say("opening", "undecided", every, settle, further))


def _passed(results: Results, valid: Sequence[TestResult]) -> Opening:
    warnings = sum(each.severity == Severity.WARNING for each in results.findings)
    gates = [metric for test in results.tests for metric in test.metrics if metric.gate]
    judged = {metric.name for metric in gates if _judged(metric)}
    failed = (metric for metric in gates if not metric.reason or metric.reason.code not in NO_LOSS)
    not_judged = [name for name in dict.fromkeys(metric.name for metric in failed) if name not in judged]
    slower = _slower_labels(results)
    worse = _by_name(
        Cause(CauseKind.REGRESSION, title(test), row.full_name, row.delta_percent)
        for test in valid
        for row in (each.at_unchanged_mix for each in test.metrics)
        if not row.gate and row.better != Better.NEUTRAL and row.unit in {*TIMES, *RATES}
        if row.status == Status.REGRESSION
    )
    mixed = [row for test in valid for row in test.metrics if row.gate and row.mix and row.status == Status.REGRESSION]
    said = (_possible(valid), not_judged, _excluding(results), bool(slower), worse, len(results.tests), _unmoved(valid))
    return Opening(say("opening", "pass_title", warnings, slower), say("opening", "pass", *said, mixed))


def _unmoved(tests: Sequence[TestResult]) -> dict[str, object] | None:
    """Summarise judged endpoints; None if none is judged, one regressed, or a median change exceeds `SHARED`."""
    rows = [row for test in tests for row in test.labels if row.group == "endpoint" and row.p_value is not None]
    if any(row.status == Status.REGRESSION or abs(row.shared_percent or 0.0) > SHARED for row in rows) or not rows:
        return None
    undecided = [row for row in rows if row.stat == rows[0].stat and row.status == Status.INCONCLUSIVE]
    largest = max(undecided, key=lambda row: abs(row.delta_percent or 0.0), default=None)
    faster = any(row.status == Status.IMPROVEMENT for row in rows)
    return {"count": len({row.label for row in rows}), "faster": faster, "largest": largest}


def _possible(tests: Sequence[TestResult]) -> dict[str, float]:
    """Map each gate metric, and supported users, to its largest possible worsening (percent); omit equivalent rows."""
    rows = [each for test in tests for each in gate_rows(test) if each[1] and each[1].status != Status.EQUIVALENT]
    worst = [(name, _worst(row, better)) for name, row, better in rows]
    return {name: max(sizes) for name, sizes in grouped(worst).items() if max(sizes) > 0}


def _worst(row: Decided | None, better: Better) -> float:
    """Return the largest worsening, in percent, that a row's interval includes; 0 if the interval is unknown."""
    if row is None or row.ci_low is None or row.ci_high is None:
        return 0.0
    return row.ci_high if better == Better.LOWER else -row.ci_low


def _settling(results: Results, about: Sequence[tuple[str, str | None]]) -> dict[str, object] | None:
    """Return the plan of further runs with the fewest hours, if any; `about` lists allowed (test title, row name)."""
    matching = [(test, row) for test, row in _planned(results) if (test, row.name) in about]
    test, row = min(matching, key=lambda each: each[1].steps[-1].hours, default=(None, None))
    named = {"test": test if len(results.tests) > 1 else None}
    return {**named, "name": row.name, "unit": row.unit, **dict(row.steps[-1])} if row else None


def _excluding(results: Results) -> dict[str, object] | None:
    """Find runs that would cut the largest possible worsening of a gate metric to less than `WORTH_IT` of its size."""
    gates = {(title(test), metric.slug): metric for test in results.tests for metric in test.metrics if metric.gate}
    planned = [
        (_worst(metric.deciding, metric.better), test, row)
        for test, row in _planned(results)
        if row.undecided and (metric := gates.get((test, row.slug or "")))
    ]
    for size, test, row in sorted(planned, key=lambda each: -each[0])[:1]:
        for step in row.steps:
            if step.no_worse_than_percent is not None and step.no_worse_than_percent < WORTH_IT * size:
                return {
                    "test": test if len(results.tests) > 1 else None,
                    "name": row.name,
                    "unit": row.unit,
                    **dict(step),
                }
    return None


def _planned(results: Results) -> list[tuple[str, PlannedRow]]:
    """List the rows of the plan of further runs, each with its test's title."""
    titles = {test.name: title(test) for test in results.tests}
    return [(titles[plan.test], row) for plan in results.plan for row in plan.rows]


def _by_name(causes: Iterable[Cause]) -> list[list[Cause]]:
    """Group causes by metric: supported users first, then metrics from the largest to the smallest change."""
    largest_first = sorted(causes, key=lambda each: (each.name != USERS, -abs(each.delta_percent or 0.0)))
    return list(grouped((each.name, each) for each in largest_first).values())
