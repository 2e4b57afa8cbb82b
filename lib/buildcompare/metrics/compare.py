"""How did every metric change over the steady windows of a test?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.config.params import Test
from buildcompare.labels.traffic_mix import TrafficMix, with_traffic_mix
from buildcompare.load.view import Views, run_level
from buildcompare.metrics.judge_equal_load import LoadAdjusted
from buildcompare.recordings.recording import Series
from buildcompare.results import MetricResult, Pair, Side
from buildcompare.results.base import Reason
from buildcompare.results.codes import SIDES, ReasonCode, Status
from buildcompare.stats.effects import Effect, TestedEffect, judge_metrics, measure_effect
from buildcompare.stats.levels import Level, delta_percent, mean_of_runs
from buildcompare.stats.noise import RepeatedRuns, metric_noise

SeriesKey = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class CompareMetrics:
    """Levels, change and status of each metric that a run recorded."""

    catalogue: Catalogue
    groups: Sequence[RepeatedRuns] = ()

    def __call__(
        self,
        test: Test,
        views: Views,
        loaded: Mapping[str, LoadAdjusted] | None = None,
        splits: Mapping[str, tuple[str, TrafficMix]] | None = None,
    ) -> list[MetricResult]:
        """Every series of `test` in the catalogue's order, judged in its family."""
        keys: dict[SeriesKey, Series] = {}
        for side in SIDES:
            for view in views[side]:
                for series in view.recording.graphs():
                    keys.setdefault((series.metric, tuple(sorted(series.labels.items()))), series)
        ordered = [series for _, series in sorted(keys.items(), key=lambda item: self.catalogue.position(item[0][0]))]
        measured = [self._measured(test, series, views) for series in ordered]
        judged = judge_metrics([(each.metric, each.effect) for each in measured])
        rows = [_metric_result(m, j, views, loaded or {}) for m, j in zip(measured, judged, strict=True)]
        return with_traffic_mix(rows, [(each.metric, each.effect) for each in measured], splits or {})

    def _measured(self, test: Test, series: Series, views: Views) -> _Measured:
        metric = self.catalogue.find(series.name)
        levels = {side: [view.level(series) for view in views[side]] for side in SIDES}
        values = {side: mean_of_runs([level.value for level in levels[side] if level]) for side in SIDES}
        if delta_percent(values["base"], values["new"]) is None:
            return _Measured(metric, series, levels, None, _why_no_delta(series, views, values))
        if metric.load and test.type == "bounded":
            return _Measured(metric, series, levels, None, Reason(code=ReasonCode.SET_BY_TEST))
        digitised = [side for side in SIDES if any(view.recording.digitised for view in views[side])]
        if metric.biased_when_digitised and digitised:
            which = None if len(digitised) == 2 else digitised[0]
            return _Measured(metric, series, levels, None, Reason(code=ReasonCode.DIGITISED, build=which))
        noise = metric_noise(metric, test.type, self.groups)
        if noise is None:
            few = max(len(views[side]) for side in SIDES) > 1
            return _Measured(
                metric, series, levels, None, Reason(code=ReasonCode.FEW_RUNS if few else ReasonCode.NO_NOISE)
            )
        known = {
            side: [run_level(level) for level in levels[side] if level and level.value is not None] for side in SIDES
        }
        effect = measure_effect(known["base"], known["new"], noise)
        return _Measured(metric, series, levels, effect, None if effect else Reason(code=ReasonCode.NOT_POSITIVE))


@dataclass(frozen=True)
class _Measured:
    """One metric of both builds: the levels of its runs, and the effect or the reason why there is none."""

    metric: Metric
    series: Series
    levels: Mapping[Side, Sequence[Level | None]]
    effect: Effect | None
    reason: Reason | None


def _metric_result(
    measured: _Measured, judged: TestedEffect | None, views: Views, loaded: Mapping[str, LoadAdjusted]
) -> MetricResult:
    metric, series, levels = measured.metric, measured.series, measured.levels
    values = {side: mean_of_runs([level.value for level in levels[side] if level]) for side in SIDES}
    delta = delta_percent(values["base"], values["new"])
    windows = {side: next((v.steady.window for v in views[side] if v.steady.window), None) for side in SIDES}
    effective = [level.n_effective for side in SIDES for level in levels[side] if level]
    low, high = judged.effect.interval() if judged else (None, None)
    at_load = loaded.get(series.metric)
    return MetricResult(
        name=metric.name if metric.known else series.name,
        slug=series.metric,
        labels=dict(series.labels),
        unit=series.unit,
        better=metric.better,
        gate=metric.gate,
        margin_percent=metric.margin_percent,
        base=values["base"],
        new=values["new"],
        mean=Pair(**{s: mean_of_runs([level.mean for level in levels[s] if level]) for s in SIDES}),
        delta_percent=delta,
        ci_low=low,
        ci_high=high,
        p_value=judged.p_value if judged else None,
        p_adjusted=judged.p_adjusted if judged else None,
        family=judged.family if judged else None,
        p_worse_one_sided=judged.p_worse_one_sided if judged else None,
        status=judged.status if judged else Status.INCONCLUSIVE if delta is not None else Status.NOT_COMPARABLE,
        reason=measured.reason,
        n_effective=min(effective) if effective else None,
        min_detectable_percent=judged.effect.min_detectable_percent(metric.margin_percent, judged.size)
        if judged
        else None,
        required_runs=judged.effect.required_runs(metric.margin_percent, judged.size) if judged else None,
        noise_source=judged.effect.noise_source if judged else "none",
        load_adjusted=at_load.row() if at_load else None,
        window=Pair(**windows),
        missing_samples=Pair(
            **{s: sum(level.missing for level in levels[s] if level) if any(levels[s]) else None for s in SIDES}
        ),
    )


def _why_no_delta(series: Series, views: Views, values: Mapping[Side, float | None]) -> Reason:
    sides = [side for side in SIDES if all(v.recording.find(series.metric, series.labels) is None for v in views[side])]
    if sides:
        return Reason(code=ReasonCode.NOT_RECORDED, build=sides[0])
    for side in SIDES:
        if all(view.steady.window is None for view in views[side]):
            why = views[side][0].steady.reason
            code, minutes = (why.code, why.minutes) if why else (None, None)
            return Reason(code=ReasonCode.NO_STEADY_WINDOW, build=side, because=code, minutes=minutes)
    empty = [side for side in SIDES if values[side] is None]
    if empty:
        return Reason(code=ReasonCode.NO_NUMBER, build=None if len(empty) == 2 else empty[0])
    return Reason(code=ReasonCode.ZERO_BASE)
