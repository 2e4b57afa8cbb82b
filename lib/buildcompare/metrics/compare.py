"""Compare every metric over the steady windows of a test: levels, change and status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.config.params import Test
from buildcompare.labels.traffic_mix import TrafficMix, with_traffic_mix
from buildcompare.load.view import Views, run_level
from buildcompare.metrics.judge_equal_load import LoadAdjusted
from buildcompare.recordings.recording import Series
from buildcompare.results import MetricResult, Pair
from buildcompare.results.base import Reason
from buildcompare.results.codes import SIDES, NoiseSource, ReasonCode, Status
from buildcompare.stats.effects import Effect, TestedEffect, judge_metrics, measure_effect
from buildcompare.stats.levels import Level, delta_percent, mean_of_runs
from buildcompare.stats.noise import RepeatedRuns, metric_noise


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
