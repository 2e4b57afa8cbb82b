"""Compare every metric and error rate of a test over the steady windows: levels, change and status.

No calibration holds error rates, so none of them is judged: they are shown, and a jump is a finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.config.params import Test
from buildcompare.labels.traffic_mix import TrafficMix, with_traffic_mix
from buildcompare.load.users import Estimates
from buildcompare.load.view import RunView, Views, run_level
from buildcompare.metrics.judge_equal_load import LoadAdjusted
from buildcompare.recordings.recording import Series
from buildcompare.results import ErrorRateResult, Estimate, MetricResult
from buildcompare.results.codes import SIDES, NoiseSource, Pair, Reason, ReasonCode, Side, Status
from buildcompare.stats.effects import Effect, TestedEffect, judge_metrics, measure_effect
from buildcompare.stats.levels import Level, delta_percent, mean_of_runs, measure_level
from buildcompare.stats.noise import RepeatedRuns, metric_noise

SLUG = "counted-errors"
NAME = "Errors counted by the load test"
UNIT = "per user and minute"


def compare_metrics(
    test: Test,
    views: Views,
    catalogue: Catalogue,
    groups: Sequence[RepeatedRuns] = (),
    *,
    at_load: Mapping[str, LoadAdjusted] | None = None,
    splits: Mapping[str, tuple[str, TrafficMix]] | None = None,
) -> list[MetricResult]:
    """Every series that a run of `test` recorded, in the catalogue's order, judged in its family."""
    keys: dict[tuple[str, tuple[tuple[str, str], ...]], Series] = {}
    for side in SIDES:
        for view in views[side]:
            for series in view.recording.graphs():
                keys.setdefault((series.metric, tuple(sorted(series.labels.items()))), series)
    ordered = [series for _, series in sorted(keys.items(), key=lambda item: catalogue.position(item[0][0]))]
    measured = [_measured(test, series, views, catalogue, groups) for series in ordered]
    effects = [(each.metric, each.effect) for each in measured]
    judged = judge_metrics(effects)
    rows = [_row(m, tested, views, at_load or {}) for m, tested in zip(measured, judged, strict=True)]
    return with_traffic_mix(rows, effects, splits or {})


@dataclass(frozen=True)
class _Measured:
    """One metric of both builds: the levels of its runs, and the effect or the reason why there is none."""

    metric: Metric
    series: Series
    levels: Pair[list[Level]]
    values: Pair[float | None]
    effect: Effect | None = None
    reason: Reason | None = None


def _measured(
    test: Test, series: Series, views: Views, catalogue: Catalogue, groups: Sequence[RepeatedRuns]
) -> _Measured:
    metric = catalogue.find(series.name)
    levels = views.map(lambda runs: [level for view in runs if (level := view.level(series)) is not None])
    values = levels.map(lambda runs: mean_of_runs([level.value for level in runs]))
    effect, reason = None, _not_judged(test, metric, series, views, values)
    if reason is None:
        noise = metric_noise(metric, test.type, groups)
        if noise is None:
            several = max(len(views.base), len(views.new)) > 1
            reason = Reason(code=ReasonCode.FEW_RUNS if several else ReasonCode.NO_NOISE)
        else:
            known = levels.map(lambda runs: [run_level(level) for level in runs if level.value is not None])
            effect = measure_effect(known.base, known.new, noise)
            reason = None if effect else Reason(code=ReasonCode.NOT_POSITIVE)
    return _Measured(metric, series, levels, values, effect, reason)


def _not_judged(test: Test, metric: Metric, series: Series, views: Views, values: Pair[float | None]) -> Reason | None:
    """Why a metric is not judged, whatever its noise; None where it is."""
    if delta_percent(values.base, values.new) is not None:
        digitised = [side for side in SIDES if any(view.recording.digitised for view in views[side])]
        if metric.load and test.type == "bounded":
            return Reason(code=ReasonCode.SET_BY_TEST)
        if metric.biased_when_digitised and digitised:
            return Reason(code=ReasonCode.DIGITISED, build=digitised[0] if len(digitised) == 1 else None)
        return None
    for side in SIDES:
        if all(view.recording.find(series.metric, series.labels) is None for view in views[side]):
            return Reason(code=ReasonCode.NOT_RECORDED, build=side)
    for side in SIDES:
        if all(view.steady.window is None for view in views[side]):
            why = views[side][0].steady.reason
            because, minutes = (why.code, why.minutes) if why else (None, None)
            return Reason(code=ReasonCode.NO_STEADY_WINDOW, build=side, because=because, minutes=minutes)
    empty = [side for side in SIDES if values[side] is None]
    if empty:
        return Reason(code=ReasonCode.NO_NUMBER, build=empty[0] if len(empty) == 1 else None)
    return Reason(code=ReasonCode.ZERO_BASE)


def _row(
    measured: _Measured, tested: TestedEffect | None, views: Views, at_load: Mapping[str, LoadAdjusted]
) -> MetricResult:
    metric, series, levels = measured.metric, measured.series, measured.levels
    delta = delta_percent(measured.values.base, measured.values.new)
    effective = [level.n_effective for runs in levels for level in runs]
    effect = tested.effect if tested else None
    low, high = effect.interval() if effect else (None, None)
    family = (metric.margin_percent, tested.size if tested else 1)
    loaded = at_load.get(series.metric)
    return MetricResult(
        name=metric.name if metric.known else series.name,
        slug=series.metric,
        labels=dict(series.labels),
        unit=series.unit,
        better=metric.better,
        gate=metric.gate,
        margin_percent=metric.margin_percent,
        base=measured.values.base,
        new=measured.values.new,
        mean=levels.map(lambda runs: mean_of_runs([level.mean for level in runs])),
        delta_percent=delta,
        ci_low=low,
        ci_high=high,
        p_value=tested.p_value if tested else None,
        p_adjusted=tested.p_adjusted if tested else None,
        family=tested.family if tested else None,
        p_worse_one_sided=tested.p_worse_one_sided if tested else None,
        status=tested.status if tested else Status.NOT_COMPARABLE if delta is None else Status.INCONCLUSIVE,
        reason=measured.reason,
        n_effective=min(effective) if effective else None,
        min_detectable_percent=effect.min_detectable_percent(*family) if effect else None,
        required_runs=effect.required_runs(*family) if effect else None,
        noise_source=effect.noise_source if effect else NoiseSource.NONE,
        load_adjusted=loaded.row() if loaded else None,
        window=views.map(lambda runs: next((view.steady.window for view in runs if view.steady.window), None)),
        missing_samples=levels.map(lambda runs: sum(level.missing for level in runs) if runs else None),
    )


def compare_error_rates(views: Views) -> list[ErrorRateResult]:
    """Each error rate that a run recorded, over the steady windows."""
    recorded = [series for side in SIDES for view in views[side] for series in view.recording.series]
    known = {series.metric: (series.name, series.unit) for series in recorded if series.role == "error"}
    rows = []
    for slug, (name, unit) in known.items():
        base, new = (mean_of_runs([_rate(view, slug) for view in runs]) for runs in views)
        rates = Pair(base, new)
        missing = [side for side in SIDES if rates[side] is None]
        why = Reason(code=ReasonCode.NO_NUMBER, build=missing[0] if len(missing) == 1 else None)
        rows.append(_error_row(name, slug, unit, rates, why))
    return rows


def compare_counted_errors(test: Test, views: Views, estimates: Estimates) -> list[ErrorRateResult]:
    """The counts that the params state, by the time that users were connected; no row where none is stated.

    A tool counts over the whole run, so the whole curve of the users counts here, ramps included.
    """
    if all(run.errors is None for side in SIDES for run in test.runs(side)):
        return []
    why: dict[Side, Reason] = {}
    rates: dict[Side, list[float | None]] = {"base": [], "new": []}
    for side in SIDES:
        for run, view, estimate in zip(test.runs(side), views[side], estimates[side], strict=True):
            minutes = _user_minutes(view, estimate, bounded=test.type == "bounded")
            if run.errors is None:
                why[side] = Reason(code=ReasonCode.ERRORS_NOT_STATED, build=side)
            elif minutes is None:
                why[side] = Reason(code=ReasonCode.USERS_UNKNOWN, build=side)
            else:
                rates[side].append(run.errors / minutes)
    value = Pair.of(lambda side: None if side in why else mean_of_runs(rates[side]))
    return [_error_row(NAME, SLUG, UNIT, value, next(iter(why.values()), None))]


def _error_row(name: str, slug: str, unit: str, rates: Pair[float | None], why: Reason | None) -> ErrorRateResult:
    """One row; `why` is the reason where a rate is not known."""
    base, new = rates
    delta = new - base if base is not None and new is not None else None
    if delta is not None:
        why = Reason(code=ReasonCode.NONE_FAILED if base == new == 0 else ReasonCode.NO_ERROR_NOISE)
    return ErrorRateResult(
        name=name,
        slug=slug,
        unit=unit,
        base=base,
        new=new,
        delta=delta,
        delta_percent=delta_percent(base, new),
        status=Status.NOT_COMPARABLE if delta is None else Status.INCONCLUSIVE,
        reason=why,
    )


def _rate(view: RunView, slug: str) -> float | None:
    """The mean rate over the steady window of one run; an empty answer is no rate of zero."""
    for series in view.recording.series:
        if series.role == "error" and series.metric == slug and view.steady.window is not None:
            return measure_level(view.recording.curve(series), view.steady.window).mean
    return None


def _user_minutes(view: RunView, estimate: Estimate | None, *, bounded: bool) -> float | None:
    """The area below the curve of connected users; None without one, or where it may end before the run did."""
    whole = bounded or view.recording.stop_known or (view.stop is not None and view.stop.shutdown)
    if view.users is None or not (whole or (estimate is not None and estimate.reason is None)):
        return None  # an unbounded curve that still climbs may have been cut
    users = view.users.dropna()  # gaps are bridged by straight lines
    area = float(np.trapezoid(users.to_numpy(), users.index.to_numpy())) / 60.0
    return area if area > 0 else None
