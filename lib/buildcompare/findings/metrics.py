"""Make findings about metrics: changes, agreement of tests, metrics that cannot be judged, error rates."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from buildcompare.config.catalogue import outcome
from buildcompare.findings.finding import Found, grouped
from buildcompare.metrics.compare import UNIT as PER_USER_MINUTE
from buildcompare.results import Decided, ErrorRateResult, MetricResult, TestResult
from buildcompare.results.codes import Better, FindingKind, NoiseSource, ReasonCode, Severity, Status, ValidityStatus
from buildcompare.stats.effects import Effect
from buildcompare.stats.noise import series_key
from buildcompare.stats.planning import ALPHA, percent, quantile
from buildcompare.text.sentences import MOST_METRICS, MOST_MOVERS

ERRORS_PERCENT = 0.025
"""Minimum percentage of failed requests for a finding. mattermost-load-test-ng removes users at the same percentage."""
ERRORS_PER_USER_MINUTE = 1.0 / 480.0
"""Minimum number of errors per user and minute for a finding: one error per user in a day of eight hours."""
ERRORS_TIMES = 2.0
"""Minimum ratio of new to base error rate for a finding if the rise is not significant.

It is a convention, because noise is often unknown. For comparisons of successive builds, `history.chain` also compares
changes of error counts with their usual size."""
NO_LOSS = (ReasonCode.NONE_FAILED, ReasonCode.FEW_FAILED)
FAILING_PERCENT = 1.0
"""A new build with at least this percentage of failed requests, and `ERRORS_TIMES` times that of base, cannot pass."""
USERS = "supported users"
Row = tuple[TestResult, MetricResult]


def metrics(tests: Sequence[TestResult]) -> Iterator[Found]:
    """Report metrics that changed or probably got worse; tests with the same direction of change share a finding.

    Unbounded tests are compared at equal load, because the load-test coordinator raises the load until a build is slow.
    Invalid unbounded tests are skipped. Changes that occur only in invalid tests have severity info.
    """
    tests = [test for test in tests if test.type != "unbounded" or test.validity.status != ValidityStatus.INVALID]
    changed = (
        ((metric.slug, series_key(metric.slug, metric.labels), metric.judged.delta_percent > 0), (test, metric))
        for test in tests
        for metric in test.metrics
        if metric.judged.delta_percent is not None and _significant(metric)
    )
    keys = {"slug", "name", "unit", "better", "base", "new", "delta_percent", "ci_low", "ci_high", "p_adjusted",
            "status", "no_worse_than_percent", "margin_percent", "reading_error_percent", "traffic_mix",
            "load_adjusted", "decided_by", "gate", "noise_source", "per_attempt"}  # fmt: skip
    for (slug, _, _), rows in grouped(changed).items():
        valid = [row for row in rows if row[0].validity.status != ValidityStatus.INVALID]
        test, metric = max(
            valid or rows, key=lambda r: ((at := r[1].judged).status.changed, abs(at.delta_percent or 0))
        )
        here = {t.name for t, _ in rows}
        others = [(t, m) for t in tests if t.name not in here for m in t.metrics if m.slug == slug]
        elsewhere = [(t, m) for t, m in others if m.judged.delta_percent is not None]
        groups = {
            "also": [_in_test(t, m) for t, m in rows if t is not test],
            "contrary": [_in_test(t, m) for t, m in elsewhere if _significant(m)],
            "rest": [_in_test(t, m) for t, m in elsewhere if not _significant(m)],
        }
        row = metric.judged
        evidence = metric.model_dump(include=keys) | {"groups": groups, "by_chance_percent": row.by_chance_percent}
        evidence |= {"name": metric.full_name, "leans_worse": row.leans_worse, "invalid": not valid}
        if metric.decided_by == "equal_load":
            evidence |= {"own_load_percent": metric.delta_percent, **row.model_dump(include=keys)}
        yield Found(FindingKind.METRIC, _severity(valid), evidence, test=test.name, metric=slug)


def _significant(metric: MetricResult) -> bool:
    row = metric.judged
    return row.status.changed or (metric.better != "neutral" and row.leans_worse)


def lost(metric: MetricResult) -> bool:
    """Test whether a metric has no p-value, and either only one build has it above 0 or it may exceed its histogram."""
    levels = (metric.base or 0.0, metric.new or 0.0)
    at_end = metric.reason is not None and metric.reason.code == ReasonCode.BEYOND_LAST_BUCKET
    return metric.p_value is None and (at_end or (levels[0] == 0.0) != (levels[1] == 0.0))


def _severity(rows: Sequence[Row]) -> Severity:
    """Return the severity of a change in valid tests: critical for a regression of a gate metric, else info."""
    decided = [metric.deciding for _, metric in rows if metric.gate]
    return Severity.CRITICAL if any(row.status == Status.REGRESSION for row in decided if row) else Severity.INFO


def _in_test(test: TestResult, metric: MetricResult) -> dict[str, object]:
    row = metric.judged.model_dump(include={"delta_percent", "status"})
    return {"test": test.name, **row, "decided_by": metric.decided_by}


def drifts(test: TestResult) -> Iterator[Found]:
    """Report metrics that get worse within every run of the new build, by clearly more than in the base."""
    for metric in test.metrics:
        if metric.drift_percent:
            base, new = metric.drift_percent
            rises = metric.better == Better.LOWER
            least, most = (min(new), max(base)) if rises else (max(new), min(base))  # the two closest runs
            evidence = {"name": metric.full_name, "rises": rises, "least": least, "base": most, "runs": len(new)}
            yield Found(FindingKind.DRIFT_IN_RUN, Severity.WARNING, evidence, metric=metric.slug)


def unjudgeable(test: TestResult) -> Iterator[Found]:
    """Report gate metrics without a usable ratio (:func:`lost`), and metrics that rose from zero in every run.

    A rise from zero is a warning only if each build has several runs, because a single run may have errors by chance.
    """
    for metric in test.metrics:
        (base, new), gone = metric.levels, metric.gate and lost(metric)
        rose = base and new and not any(base) and all(new) and metric.better != Better.HIGHER
        if (gone or (rose and metric.p_value is None)) and not _fails(metric):
            evidence = metric.model_dump(include={"slug", "unit", "base", "new", "reason"}) | {"name": metric.full_name}
            severity = Severity.WARNING if gone or min(map(len, test.runs)) > 1 else Severity.INFO
            yield Found(FindingKind.UNJUDGEABLE, severity, evidence, metric=metric.slug)


def single_runs(test: TestResult) -> Iterator[Found]:
    """Report changes whose run-to-run noise is unknown: all metrics in benchmarks, gate metrics in bounded tests."""
    benchmark = test.type == "benchmark"
    for metric in test.metrics if benchmark or test.type == "bounded" else ():
        if metric.delta_percent is None or metric.p_value is not None or _fails(metric):
            continue
        code = metric.reason and metric.reason.code
        if code in NO_LOSS or not (benchmark or (metric.gate and code == ReasonCode.NO_NOISE)):
            continue
        low = high = None
        if metric.within_se_log and benchmark:
            log = math.log1p(metric.delta_percent / 100.0)
            low, high = Effect(log, metric.within_se_log, math.inf, 0.0, NoiseSource.NONE).interval()
        evidence = metric.model_dump(include={"slug", "unit", "base", "new", "delta_percent"})
        evidence |= {"name": metric.full_name, "within_low": low, "within_high": high}
        yield Found(FindingKind.SINGLE_RUNS, Severity.INFO, evidence, metric=metric.slug)


def sessions(test: TestResult) -> Iterator[Found]:
    """Report a benchmark's sessions (runs made together) or their absence; if few, the smallest significant change."""
    if test.sessions is None:
        if test.type == "benchmark" and max(map(len, test.runs)) > 1:
            yield Found(FindingKind.SESSIONS, Severity.INFO, {"runs": dict(test.runs.map(len).items())})
        return
    family, few = Counter(row.family for row in test.metrics), [row for row in test.metrics if few_sessions(row)]
    least = [
        quantile(1.0 - test.level / family[row.family] / 2.0, row.noise_df or math.inf) * (row.se_log or 0.0)
        for row in few
        if not row.status.changed
    ]
    counts = {"open": len(least), "called": len(few) - len(least)}
    evidence = test.sessions.model_dump() | counts | {"least_percent": percent(max(least)) if least else None}
    yield Found(FindingKind.SESSIONS, Severity.WARNING if few else Severity.INFO, evidence)


def few_sessions(metric: MetricResult) -> bool:
    """Test whether a metric has too few sessions (runs made together) to estimate the noise between sessions."""
    return metric.reason is not None and metric.reason.code == ReasonCode.FEW_SESSIONS


def gate_rows(test: TestResult) -> list[tuple[str, Decided | None, Better]]:
    """List what decides the verdict of `test` (name, result, better direction): gate metrics, then supported users."""
    rows = [(metric.name, metric.deciding, metric.better) for metric in test.metrics if metric.gate]
    return [*rows, (USERS, test.supported_users, Better.HIGHER)]


def blind_spots(tests: Sequence[TestResult]) -> Iterator[Found]:
    """Report the smallest changes of gate metrics and supported users that the tests would have detected."""
    judged = [test for test in tests if not any(map(few_sessions, test.metrics))]  # :func:`sessions` reports the rest
    rows = [
        (t.name, name, row) for t in judged for name, row, _ in gate_rows(t) if row and row.delta_percent is not None
    ]
    if seen := [(test, name, size) for test, name, row in rows if (size := row.min_detectable_percent)]:
        sizes = {f"{test} {name}": size for test, name, size in seen}
        evidence = {"min_detectable_percent": sizes, "by_name": grouped((name, size) for _, name, size in seen)}
        yield Found(FindingKind.BLIND_SPOTS, Severity.INFO, evidence, test=seen[0][0])


LOAD = (ReasonCode.SET_BY_TEST, ReasonCode.SUPPORTED_USERS)  # reasons why a load metric is not judged


def unchanged(tests: Sequence[TestResult]) -> Iterator[Found]:
    """Report, by type of load test, which metrics changed, are equivalent, not worse, undecided or not judged."""
    for kind in ("bounded", "unbounded"):
        alike = [test for test in tests if test.type == kind and test.validity.status != ValidityStatus.INVALID]
        rows = [(test, metric) for test in alike for metric in test.metrics]
        judged = [(test, metric) for test, metric in rows if metric.judged.p_value is not None]
        if not judged:
            continue
        largest = sorted(judged, key=lambda row: -abs(row[1].judged.delta_percent or 0.0))
        differ = [row for row in largest if row[1].judged.status.changed]
        same = [row for row in judged if row[1].judged.status == Status.EQUIVALENT]
        not_worse = [row for row in judged if row[1].judged.status == Status.NOT_WORSE]
        undecided = [row for row in largest if row not in (*differ, *same, *not_worse)]
        within = [getattr(metric.judged, "p_adjusted", None) for _, metric in (*same, *not_worse)]
        others = [(test, metric) for test, metric in rows if metric.judged.p_value is None]
        aside = [(t, m) for t, m in others if m.reason is None or m.reason.code not in LOAD]
        not_judged = list(dict.fromkeys(metric.name for _, metric in aside))
        listed = {"same": same, "not_worse": not_worse, "undecided": undecided, "not_judged": aside}
        evidence = {
            "tests": [test.name for test in alike],
            "judged": len(judged),
            "decided_by": "equal_load" if any(m.decided_by == "equal_load" for _, m in judged) else "level",
            "differ": [_row_evidence(row) for row in differ],
            **{key: [f"{test.name} {metric.slug}" for test, metric in of_key] for key, of_key in listed.items()},
            "within_margin": sum(p is not None and p < ALPHA for p in within),
            "same_rows": [{"test": test.name, "slug": metric.slug} for test, metric in same],
            "not_worse_percent": max((m.judged.no_worse_than_percent or 0.0 for _, m in not_worse), default=None),
            "largest_undecided": _row_evidence(undecided[0]) if undecided else None,
            "not_judged_names": not_judged,
            "not_named": [max(len(each) - MOST_METRICS, 0) for each in (differ, not_judged)],
        }
        only = alike[0].name if len(alike) == 1 else None
        yield Found(FindingKind.UNCHANGED, Severity.INFO, evidence, test=only, id=f"{FindingKind.UNCHANGED}.{kind}")


def _row_evidence(row: Row) -> dict[str, object]:
    test, metric = row
    size = metric.judged.model_dump(include={"delta_percent", "ci_low", "ci_high"})
    return {"test": test.name, **metric.model_dump(include={"slug", "name", "margin_percent", "decided_by"}), **size}


def traffic_mix(test: TestResult) -> Iterator[Found]:
    """Report averages that may have moved because the traffic mix (shares of calls) changed; the severity is info."""
    for metric in test.metrics:
        mix, is_percentile = metric.traffic_mix, re.match(r"p\d+-", metric.slug)  # the average's finding reports these
        if mix is None or is_percentile or mix.kind not in ("mix", "both", "unknown") or metric.delta_percent is None:
            continue
        follows = rf"p\d+-{re.escape(metric.slug.removeprefix('avg-'))}"
        follow = [row for row in test.metrics if re.fullmatch(follows, row.slug)]
        evidence = {
            **metric.model_dump(include={"name", "better", "delta_percent", "status", "margin_percent"}),
            **mix.model_dump(exclude={"delta_percent", "status"}),
            "labels_delta_percent": mix.delta_percent,
            "status_at_unchanged_mix": mix.status,
            "not_named": max(len(mix.movers) - MOST_MOVERS, 0),
            "percentiles": [row.name for row in follow if row.mix is None],
            "explained": {row.name: row.mix.mix_percent for row in follow if row.mix},
        }
        yield Found(FindingKind.TRAFFIC_MIX, Severity.INFO, evidence, metric=metric.slug)


def error_rates(test: TestResult) -> Iterator[Found]:
    """Report error rates that rose beyond chance, at least doubled to a rate that matters, or are too high to pass."""
    least = {"percent": ERRORS_PERCENT, PER_USER_MINUTE: ERRORS_PER_USER_MINUTE}
    for row in test.errors:
        doubled = row.unit in least and row.base is not None and row.new is not None and row.new >= least[row.unit]
        worse = row.status == Status.REGRESSION
        if worse or failing(row) or (doubled and (row.new or 0.0) >= ERRORS_TIMES * (row.base or 0.0)):
            decides = worse and test.type != "unbounded"
            severity = Severity.CRITICAL if decides or failing(row) else Severity.WARNING
            yield Found(FindingKind.ERROR_RATE, severity, row.model_dump(mode="json"), metric=row.slug)
    for metric in test.metrics:  # rises from zero (they have no percentage), and metrics with too many failures
        rose = metric.delta_percent is None and metric.status == Status.REGRESSION and metric.decided_by == "level"
        if rose or _fails(metric):
            evidence = metric.model_dump(include={"name", "slug", "unit", "base", "new", "delta_percent", "p_value",
                                                  "status", "reason"}, mode="json")  # fmt: skip
            severity = Severity.CRITICAL if metric.gate or failing(metric) else Severity.WARNING
            yield Found(FindingKind.ERROR_RATE, severity, evidence, metric=metric.slug)


def _fails(metric: MetricResult) -> bool:
    """Test whether the metric has too many failures but is no regression; :func:`error_rates` reports such metrics."""
    counts = metric.failed_percent or (metric.gate and outcome(metric.slug, metric.unit, metric.better))
    return bool(counts) and failing(metric) and metric.status != Status.REGRESSION


def failing(row: ErrorRateResult | MetricResult) -> bool:
    """Test whether the new build has too many failed requests to pass."""
    base, new = row.failed_percent or _failed_percent(row)
    return base is not None and new is not None and new >= max(FAILING_PERCENT, ERRORS_TIMES * base)


def _failed_percent(row: ErrorRateResult | MetricResult) -> tuple[float | None, float | None]:
    """Return the failed part of the requests of both builds, in percent; None if `row` is no share of the requests."""
    if row.base is None or row.new is None:
        return None, None
    highest, of_requests = max(row.base, row.new), not re.search(r"\b(cache|memory|disk|packets?|frames?)\b", row.slug)
    if outcome(row.slug, row.unit, row.better) == "successes" and of_requests:
        whole = _whole(row.unit, highest)
        return 100.0 * (1.0 - row.base / whole), 100.0 * (1.0 - row.new / whole)
    part = not row.unit and of_requests and highest <= 1.0 and re.search(r"\b(rate|ratio|share)\b", row.slug)
    if row.unit == "ratio" or part:
        return 100.0 * row.base, 100.0 * row.new
    return (row.base, row.new) if row.unit == "percent" else (None, None)


def _whole(unit: str, *shares: float) -> float:
    """Return the value of a share that means all requests: 100 if `unit` is percent or a share exceeds 1, else 1."""
    return 100.0 if unit == "percent" or max(shares) > 1.0 else 1.0


def may_fail(metric: MetricResult, worst: float) -> bool:
    """Test whether a fall of a success share by `worst` percent causes too many failures for a pass.

    The result is False if every new run has less than `FAILING_PERCENT` failures, whatever the failures of the base.
    """
    if outcome(metric.slug, metric.unit, metric.better) != "successes" or not (metric.base and metric.levels.new):
        return False
    whole, least = _whole(metric.unit, metric.base, *metric.levels.new), FAILING_PERCENT / 100.0
    kept, worst_run = metric.base / whole, 1.0 - min(metric.levels.new) / whole
    return worst_run >= least and 1.0 - kept * (1.0 - worst / 100.0) >= max(least, ERRORS_TIMES * (1.0 - kept))


def risen(test: TestResult) -> list[ErrorRateResult]:
    """Return the error rates that rose beyond chance."""
    return [row for row in test.errors if row.status == Status.REGRESSION]


def counted_errors(tests: Sequence[TestResult]) -> Iterator[Found]:
    """Report the errors that the load-test tool counted in each test, per connected user and minute."""
    evidence = {
        test.name: row.model_dump(include={"base", "new", "delta_percent"})
        for test in tests
        for row in test.errors
        if row.unit == PER_USER_MINUTE and row.new is not None and row.base is not None
    }
    if evidence:
        yield Found(FindingKind.COUNTED_ERRORS, Severity.INFO, evidence)
