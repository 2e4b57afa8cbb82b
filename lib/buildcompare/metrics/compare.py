"""Compare every metric and error rate of a test over the steady windows: levels, change and status."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from buildcompare.config.catalogue import SHARES, Catalogue, Metric
from buildcompare.config.params import Test
from buildcompare.labels.traffic_mix import TrafficMix, with_traffic_mix
from buildcompare.load.view import RunView, Views, is_geometric, reading_error
from buildcompare.metrics.failures import Counts, attempts_name, compare_failures, counts, failed_percent
from buildcompare.metrics.measurements import Measured, level_of_build, no_ratio, run_levels, unjudged_row, with_effects
from buildcompare.recordings.recording import Series
from buildcompare.results import ErrorRateResult, FailingLabel, LoadAdjustedResult, MetricResult
from buildcompare.results.base import Reason
from buildcompare.results.codes import SIDES, Pair, ReasonCode, Side, Status
from buildcompare.stats.effects import TestedEffect, judge_metrics
from buildcompare.stats.levels import Level, delta_percent, mean_of_runs, measure_level
from buildcompare.stats.noise import Contrasts, Noise, RepeatedRuns, metric_noise
from buildcompare.stats.planning import Looks

SLUG = "counted-errors"
NAME = "Errors counted by the load test"
UNIT = "per user and minute"
Failures = TypeVar("Failures", MetricResult, ErrorRateResult)
LAST = 0.95  # A percentile at or above this fraction of its histogram's last bound may be too low


def measure_metrics(
    test: Test, views: Views, catalogue: Catalogue, groups: Sequence[RepeatedRuns] = (), past: Contrasts | None = None
) -> list[Measured]:
    """Measure every series that a run of `test` recorded, in the catalogue's order."""
    recorded: dict[tuple[str, tuple[tuple[str, str], ...]], Series] = {}
    for series in (series for runs in views for view in runs for series in view.recording.graphs()):
        recorded.setdefault((series.metric, tuple(sorted(series.labels.items()))), series)
    ordered = sorted(recorded.values(), key=lambda series: catalogue.position(series.metric))
    measured = []
    for series in ordered:
        metric = catalogue.find(series.name)
        noise = metric_noise(metric, test.type, groups, past, misread=reading_error(metric, views))
        measured.append(_measured(test, series, views, metric, noise))
    measured = with_effects(measured)
    return measured if test.type == "unbounded" else [_at_end(each, catalogue) for each in measured]


def _at_end(measured: Measured, catalogue: Catalogue) -> Measured:
    """Add a reason to a percentile near the last bound of its histogram: it can show a change, but not equivalence."""
    row, top = measured.row, catalogue.last_bound(measured.row.slug, measured.row.unit)
    ends = [side for side, level in zip(SIDES, (row.base, row.new), strict=True) if (level or 0.0) >= LAST * top]
    if not ends or measured.effect is None:
        return measured
    reason = Reason(code=ReasonCode.BEYOND_LAST_BUCKET, build=ends[0] if len(ends) == 1 else None)
    return replace(measured, row=row.model_copy(update={"reason": reason}))


def judge_measured(
    measured: Sequence[Measured],
    test: Test,
    catalogue: Catalogue,
    *,
    at_load: Mapping[str, LoadAdjustedResult] | None = None,
    splits: Mapping[str, tuple[str, TrafficMix]] | None = None,
    looks: Looks | None = None,
) -> list[MetricResult]:
    """Judge the metrics of a test by the margins of `catalogue`; adjust p-values within each family of metrics."""
    effects = [(catalogue.find(each.metric_name), each.effect) for each in measured]
    rows = []
    for each, (metric, _), tested in zip(measured, effects, judge_metrics(effects, looks), strict=True):
        load_adjusted = (at_load or {}).get(each.row.slug)
        row = each.row.model_copy(update={"margin_percent": metric.margin_percent, "load_adjusted": load_adjusted})
        at_end = each.row.reason is not None and each.row.reason.code == ReasonCode.BEYOND_LAST_BUCKET
        if tested and (tested.status.changed or not at_end):
            row = tested.filled(row).model_copy(update={"reason": None if at_end else row.reason})
            row = _with_change(row, tested) if metric.outcome else row
            if each.row.reason and not tested.status.changed:  # inconclusive: too few sessions to exclude a change
                unknown = {"status": Status.INCONCLUSIVE, "no_worse_than_percent": None, "p_worse_one_sided": None}
                row = row.model_copy(update=unknown)
        rows.append(row)
    if test.type == "benchmark":
        return rows
    rows = with_traffic_mix(rows, effects, splits or {}, looks)
    return [row.model_copy(update={"decided_by": _decided_by(row, test)}) for row in rows]


def _with_change(row: Failures, tested: TestedEffect) -> Failures:
    """Adjust the change of failures to equal attempts; if this leaves the interval, use the effect's change."""
    plain, effect, (low, high) = row.delta_percent, tested.effect, tested.effect.interval()
    if plain is None or plain == -100.0:
        return row if plain is None else row.model_copy(update={"ci_low": plain})
    change = (100.0 + plain) * math.exp(-effect.log_attempts) - 100.0
    change = change if low <= change <= high else effect.delta_percent
    return row.model_copy(update={"delta_percent": change, "per_attempt": abs(effect.log_attempts) > 0.01})


def _decided_by(row: MetricResult, test: Test) -> str:
    """Return the result that the verdict uses for a metric: a value of `decided_by` in :class:`MetricResult`."""
    if test.type == "bounded":
        return "traffic_mix" if row.mix else "level"
    if row.load_adjusted is None or row.load_adjusted.p_value is None:
        return "none"
    return "traffic_mix" if row.mix and row.mix.status != Status.REGRESSION else "equal_load"


def _measured(test: Test, series: Series, views: Views, metric: Metric, noise: Noise | None) -> Measured:
    """Make the row of a metric; compute the effect only if the metric counts failures or successes."""
    named = attempts_name([view.recording for runs in views for view in runs]) if metric.outcome else None
    is_share, geometric = metric.outcome == "successes" or metric.unit in SHARES, is_geometric(views, series)

    def counted(view: RunView) -> Counts | None:
        same, level = view.recording.find(series.metric, series.labels), view.level(series, geometric=geometric)
        return None if level is None else counts(level, view, named, same if is_share else None)

    runs = views.map(lambda runs: [each for each in map(counted, runs) if each is not None])
    levels = runs.map(lambda runs: [run.level for run in runs])
    effect, few = compare_failures(metric, runs) if no_steady_window(views) is None else (None, None)
    reason = few if effect or few else _not_judged(test, metric, series, views, levels)
    of_series = {
        "name": metric.name if metric.known else series.name,
        "slug": series.metric,
        "labels": dict(series.labels),
        "unit": series.unit,
        "n_effective": min((level.n_effective for runs in levels for level in runs), default=None),
        "window": views.map(lambda runs: next((view.steady.window for view in runs if view.steady.window), None)),
        "reading_error_percent": reading_error(metric, views) or None,
        "failed_percent": failed_percent(metric, runs),
        "missing_samples": levels.map(lambda runs: sum(level.missing for level in runs) if runs else None),
    }
    row = MetricResult.model_validate(vars(unjudged_row(metric, levels, reason)) | of_series)
    return Measured(series.name, row, effect, run_levels(levels), noise)


def _not_judged(test: Test, metric: Metric, series: Series, views: Views, levels: Pair[list[Level]]) -> Reason | None:
    """Return the reason why a metric cannot be judged even if its noise is known; None if there is no such reason."""
    values = levels.map(lambda runs: level_of_build(metric, runs))
    if delta_percent(values.base, values.new) is not None:
        if metric.load:
            return Reason(code=ReasonCode.SET_BY_TEST if test.type == "bounded" else ReasonCode.SUPPORTED_USERS)
        return no_steady_window(views)
    for side in SIDES:
        if all(view.recording.find(series.metric, series.labels) is None for view in views[side]):
            return Reason(code=ReasonCode.NOT_RECORDED, build=side)
    return no_steady_window(views) or _no_number(values) or Reason(code=no_ratio(metric, levels))


def no_steady_window(views: Views) -> Reason | None:
    """Return a reason if a build has no run with a steady window, else None."""
    for side in SIDES:
        if all(view.steady.window is None for view in views[side]):
            why = views[side][0].steady.reason
            more = why.model_dump(exclude={"code", "build", "because"}) | {"because": why.code} if why else {}
            return Reason(code=ReasonCode.NO_STEADY_WINDOW, build=side, **more)
    return None


def _no_number(values: Pair[float | None]) -> Reason | None:
    """Return a reason if the value of a build is None, else None."""
    empty = [side for side, value in values.items() if value is None]
    return Reason(code=ReasonCode.NO_NUMBER, build=empty[0] if len(empty) == 1 else None) if empty else None


def compare_error_rates(test: Test, views: Views, looks: Looks | None = None) -> list[ErrorRateResult]:
    """Compare the error rates of two builds; p-values are adjusted over all rows.

    Recorded rates cover the steady windows; error counts of the params file, per user and minute, cover whole runs.
    """
    recorded = [series for runs in views for view in runs for series in view.recording.series]
    names = {series.metric: (series.name, series.unit) for series in recorded if series.role == "error"}
    rows, named = [], attempts_name([view.recording for runs in views for view in runs])
    for slug, (name, unit) in names.items():
        runs = views.map(lambda runs: [each for view in runs if (each := _error_counts(view, slug, named))])  # noqa: B023  # called at once, in the same round of the loop
        rates = runs.map(lambda each: mean_of_runs([run.level.value for run in each]))
        rows.append(((name, slug, unit), runs, rates, _no_number(rates)))
    if any(run.errors is not None for side in SIDES for run in test.runs(side)):
        rows.append(((NAME, SLUG, UNIT), *_counted_errors(test, views)))
    short = no_steady_window(views) is not None
    effects = []
    for (name, slug, unit), runs, _, _ in rows:
        metric = Metric(name=name, slug="errors", unit="errors/s" if unit == UNIT else unit, better="lower")
        effects.append((metric, *((None, None) if short and slug != SLUG else compare_failures(metric, runs))))
    judged = zip(rows, effects, judge_metrics([each[:2] for each in effects], looks), strict=True)
    made = []
    for (about, runs, rates, reason), (metric, _, few), tested in judged:
        row = _error_row(*about, rates, few or reason, tested)
        more = {"most": _most_failing(views, row), "failed_percent": failed_percent(metric, runs)}
        made.append(row.model_copy(update=more))
    return made


def _most_failing(views: Views, of: ErrorRateResult) -> FailingLabel | None:
    """Find the label whose error rate rose most; None if no rate rose or no rates were recorded by label.

    The rate of a label is capped at the rate of all labels together, because a mean over few samples may be too high.
    """
    rates = views.map(lambda runs: _rates_by_label(runs, of.slug))
    if not rates.base or of.base is None or of.new is None:
        return None
    pairs = {label: (min(rates.base.get(label, 0.0), of.base), min(new, of.new)) for label, new in rates.new.items()}
    if len(only := {label for of_build in rates for label, rate in of_build.items() if rate > 0.0}) == 1:
        pairs = dict.fromkeys(only, (of.base, of.new))
    rows = [FailingLabel(label=label, base=base, new=new) for label, (base, new) in pairs.items()]
    return max((row for row in rows if row.new > row.base), key=lambda row: row.new - row.base, default=None)


def _rates_by_label(runs: Sequence[RunView], slug: str) -> dict[str, float]:
    """Return the mean rate of each label over the steady windows of one build's runs."""
    rates: dict[str, list[float]] = {}
    for view in runs:
        start, end = view.steady.window or view.steady.shown or (0.0, 0.0)
        every = _error_series(view, slug)
        for series in [] if every and every[0].labels else every[1:]:
            elapsed, values = view.recording.samples(series)
            inside = values[(elapsed > start) & (elapsed <= end)]
            rates.setdefault(", ".join(series.labels.values()), []).extend(inside[np.isfinite(inside)].tolist())
    return {label: float(np.mean(each)) for label, each in rates.items() if each}


def _counted_errors(test: Test, views: Views) -> tuple[Pair[list[Counts]], Pair[float | None], Reason | None]:
    """Return the params file's errors per user and minute, by run and by build, and a reason if they are unknown."""
    reasons: dict[Side, Reason] = {}
    runs: Pair[list[Counts]] = Pair([], [])
    for side in SIDES:
        for run, view in zip(test.runs(side), views[side], strict=True):
            minutes = _user_minutes(view, bounded=test.type == "bounded")
            if run.errors is None:
                reasons[side] = Reason(code=ReasonCode.ERRORS_NOT_STATED, build=side)
            elif minutes is None:
                reasons[side] = Reason(code=ReasonCode.USERS_UNKNOWN, build=side)
            else:
                rate = run.errors / minutes
                runs[side].append(Counts(Level(rate, rate, 1, 0, seconds=minutes)))
    values = Pair.of(lambda side: None if side in reasons else mean_of_runs([run.level.value for run in runs[side]]))
    return runs if not reasons else Pair([], []), values, next(iter(reasons.values()), None)


def _error_row(
    name: str, slug: str, unit: str, rates: Pair[float | None], reason: Reason | None, tested: TestedEffect | None
) -> ErrorRateResult:
    """Make the row of an error rate; `reason` says why it cannot be judged."""
    base, new = rates
    delta = new - base if base is not None and new is not None else None
    if delta is not None and tested is None and reason is None:
        reason = Reason(code=ReasonCode.NONE_FAILED if base == new == 0 else ReasonCode.NO_ERROR_NOISE)
    row = ErrorRateResult(
        name=name, slug=slug, unit=unit, base=base, new=new, delta=delta, reason=reason,
        delta_percent=delta_percent(base, new),
        status=Status.NOT_COMPARABLE if delta is None else Status.INCONCLUSIVE,
    )  # fmt: skip
    return _with_change(tested.filled(row), tested) if tested else row


def _error_counts(view: RunView, slug: str, named: tuple[str, str] | None) -> Counts | None:
    """Count a run's failures and attempts in its steady window; return None, not zero, if there are no samples."""
    window, series = view.steady.window or view.steady.shown, _error_series(view, slug)
    level = measure_level(view.recording.curve(series[0]), window) if series and window is not None else None
    if level is None or level.value is None:
        return None
    return counts(level, view, named, series[0] if series[0].unit in SHARES else None)


def _error_series(view: RunView, slug: str) -> list[Series]:
    """Return the series of an error rate: first the sum over all labels, then those of single labels."""
    rates = (series for series in view.recording.series if series.role == "error" and series.metric == slug)
    return sorted(rates, key=lambda series: len(series.labels))


def _user_minutes(view: RunView, *, bounded: bool) -> float | None:
    """Return the area below the curve of users, in user-minutes; None without users or if the curve may end early."""
    whole = bounded or view.recording.stop_known or (view.stop is not None and view.stop.shutdown)
    if view.users is None or not (whole or (view.estimate is not None and view.estimate.reason is None)):
        return None  # unknown, because the curve may end before the run
    users = view.users.dropna()  # the integral connects the samples around a gap by a line
    area = float(np.trapezoid(users.to_numpy(), users.index.to_numpy())) / 60.0
    return area if area > 0 else None
