"""One test of a comparison: its recordings in, every analysis in order, one result out.

There is no statistics here; each number comes from a file of :mod:`buildcompare.analysis`.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from buildcompare import verdict
from buildcompare.analysis.families import Judged, JudgeLabels, JudgeMetrics
from buildcompare.analysis.judge import Effect, Judge, MeasureEffect, leans_worse
from buildcompare.analysis.label_levels import LabelLevels
from buildcompare.analysis.label_noise import LabelNoise
from buildcompare.analysis.labels import CompareLabels, LabelDelta
from buildcompare.analysis.levels import Level, MeasureLevel, delta_percent, mean_of_runs
from buildcompare.analysis.ramp_up import TimeToUsers
from buildcompare.analysis.run_to_run import LabelValue, RunLevel, RunToRun
from buildcompare.analysis.supported_users import EstimateSupportedUsers, SupportedUsers
from buildcompare.metrics import Catalogue, Metric
from buildcompare.params import Coordinator, Test
from buildcompare.recording import Recording, Series
from buildcompare.results import (
    BothFlags,
    BothNumbers,
    BothTexts,
    BothWindows,
    Estimate,
    LabelResult,
    MetricResult,
    Phase,
    RampUp,
    RampUps,
    RunResult,
    Runs,
    SeriesCoverage,
    ServerResult,
    Side,
    SupportedUsersResult,
    TestResult,
    Validity,
)
from buildcompare.run_view import RunView, ViewRun, run_level
from buildcompare.wording import NO_ESTIMATE_WORDS, NO_NOISE

CUT_TOLERANCE_S = 60.0
"""Curves of two builds that end this close together, with no stop seen, may have been cut to one length."""
SIDES: tuple[Side, Side] = ("base", "new")
NOT_POSITIVE = "a level that is not above zero has no ratio to judge"
DIGITISED = "the {} was read off a plot, where a line this noisy is hidden by the other one and biased by some percent"
SeriesKey = tuple[str, tuple[tuple[str, str], ...]]
_LabelValues = Mapping[tuple[str, str, str], LabelValue]


@dataclass(frozen=True)
class CompareTest:
    """Compare the runs of one test."""

    catalogue: Catalogue
    coordinator: Coordinator = field(default_factory=Coordinator)
    run_to_run: RunToRun = field(default_factory=RunToRun)
    label_noise: LabelNoise = field(default_factory=LabelNoise)

    def __call__(self, test: Test, recordings: Mapping[Side, Sequence[Recording]]) -> TestResult:
        """Analyse `recordings`, which holds one recording for each run of `test`."""
        view_run = ViewRun(self.catalogue, self.coordinator)
        views = {side: [view_run(recording, test.type) for recording in recordings[side]] for side in SIDES}
        estimates = {side: self._estimates(test, views, side) for side in SIDES}
        metrics = self._metrics(test, views)
        supported = self._supported_users(test, estimates) if test.type == "unbounded" else None
        ramps = self._ramp_ups(views)
        runs = {
            side: [
                self._run(view, estimate, ramp, params.supported_users)
                for view, estimate, ramp, params in zip(
                    views[side], estimates[side], ramps[side], test.runs(side), strict=True
                )
            ]
            for side in SIDES
        }
        validity = _test_validity(runs)
        return TestResult(
            name=test.name,
            type=test.type,
            db_engine=test.db_engine,
            users=test.users,
            verdict=verdict.of_test(metrics, supported, validity),
            runs=Runs(base=runs["base"], new=runs["new"]),
            supported_users=supported,
            ramp_up=RampUps(base=_mean_ramp(ramps["base"]), new=_mean_ramp(ramps["new"])),
            metrics=metrics,
            labels=self._labels(test, views),
            events=[],
            validity=validity,
        )

    def _estimates(self, test: Test, views: Mapping[Side, list[RunView]], side: Side) -> list[SupportedUsers | None]:
        if test.type != "unbounded":
            return [None] * len(views[side])
        base_ends = [view.stop.end_s for view in views["base"] if view.stop]
        return [
            EstimateSupportedUsers()(
                view.users,
                view.stop,
                may_be_cut=side == "new" and _may_be_cut(view, base_ends),
                known_end_s=view.recording.duration_s if view.recording.stop_known else None,
            )
            for view in views[side]
        ]

    def _supported_users(
        self, test: Test, estimates: Mapping[Side, list[SupportedUsers | None]]
    ) -> SupportedUsersResult:
        load = self.catalogue.load
        reports: dict[Side, list[float | None]] = {s: [run.supported_users for run in test.runs(s)] for s in SIDES}
        curves: dict[Side, list[float | None]] = {s: [e.estimated for e in estimates[s] if e] for s in SIDES}
        reported = {s: None if None in reports[s] else mean_of_runs(reports[s]) for s in SIDES}
        estimated = {s: mean_of_runs(curves[s]) for s in SIDES}
        without = {s: estimated[s] is None for s in SIDES}  # a run without an estimate is left out, and said so
        at_least = {s: mean_of_runs([e.at_least for e in estimates[s] if e]) if without[s] else None for s in SIDES}
        reasons = {s: next((e.reason for e in estimates[s] if e and without[s]), None) for s in SIDES}
        if None not in reported.values():
            chosen = reports
        elif None not in estimated.values():
            chosen = curves
        else:
            chosen = {s: reports[s] if reported[s] is not None else curves[s] for s in SIDES}
        best = {s: mean_of_runs(chosen[s]) for s in SIDES}
        delta = delta_percent(best["base"], best["new"])
        noise = self.run_to_run(load, "unbounded") if load else None
        levels = {s: [RunLevel(float(users)) for users in chosen[s] if users is not None] for s in SIDES}
        effect = MeasureEffect()(levels["base"], levels["new"], noise) if noise and delta is not None else None
        band = load.margin_percent if load else None
        judged = Judge()(effect, effect.p_value, band, "higher") if effect and band else None
        low, high = effect.interval() if effect else (None, None)
        if delta is None and noise and best["base"] and at_least["new"]:  # it may be more, so only the low end is known
            bound = MeasureEffect()(levels["base"], [RunLevel(at_least["new"])], noise)
            low = bound.interval()[0] if bound else None
        return SupportedUsersResult(
            base=best["base"],
            new=best["new"],
            delta_percent=delta,
            ci_low=low,
            ci_high=high,
            p_value=effect.p_value if effect else None,
            leans_worse=leans_worse(effect, band, "higher") if effect and band else None,
            detectable_percent=effect.detectable_percent if effect else None,
            runs_to_settle=effect.runs_to_settle(band) if effect and band else None,
            prior=effect.prior if effect else "none",
            run_sd_percent=100.0 * effect.run_sd if effect else None,
            band_percent=band,
            status=judged or ("inconclusive" if delta is not None else "not_comparable"),
            reported=BothNumbers(**reported),
            estimated=BothNumbers(**estimated),
            at_least=BothNumbers(**at_least),
            reason=BothTexts(**reasons),
        )

    def _metrics(self, test: Test, views: Mapping[Side, list[RunView]]) -> list[MetricResult]:
        keys: dict[SeriesKey, Series] = {}
        for side in SIDES:
            for view in views[side]:
                for series in view.recording.graphs():
                    keys.setdefault((series.metric, tuple(sorted(series.labels.items()))), series)
        ordered = [series for _, series in sorted(keys.items(), key=lambda item: self.catalogue.position(item[0][0]))]
        measured = [self._measured(test, series, views) for series in ordered]
        judged = JudgeMetrics()([(each.metric, each.effect) for each in measured])
        return [_metric_result(m, j, views) for m, j in zip(measured, judged, strict=True)]

    def _measured(self, test: Test, series: Series, views: Mapping[Side, list[RunView]]) -> _Measured:
        metric = self.catalogue.find(series.name)
        levels = {side: [view.level(series) for view in views[side]] for side in SIDES}
        values = {side: mean_of_runs([level.value for level in levels[side] if level]) for side in SIDES}
        if delta_percent(values["base"], values["new"]) is None:
            return _Measured(metric, series, levels, None, _why_no_delta(series, views, values))
        digitised = [side for side in SIDES if any(view.recording.digitised for view in views[side])]
        if metric.biased_when_digitised and digitised:
            which = "recording of both builds" if len(digitised) == 2 else f"{digitised[0]} recording"
            return _Measured(metric, series, levels, None, DIGITISED.format(which))
        noise = self.run_to_run(metric, test.type)
        if noise is None:
            return _Measured(metric, series, levels, None, NO_NOISE)
        known = {
            side: [run_level(level) for level in levels[side] if level and level.value is not None] for side in SIDES
        }
        effect = MeasureEffect()(known["base"], known["new"], noise)
        return _Measured(metric, series, levels, effect, None if effect else NOT_POSITIVE)

    def _labels(self, test: Test, views: Mapping[Side, list[RunView]]) -> list[LabelResult]:
        levels = {side: [view.labels() for view in views[side]] for side in SIDES}
        steady = all(level.steady for side in SIDES for level in levels[side])
        if not steady and all(view.recording.label_summaries for side in SIDES for view in views[side]):
            # A steady window is never held against a whole run, where all can be compared over the whole.
            levels = {side: [view.labels(steady=False) for view in views[side]] for side in SIDES}
        tables = {side: [level.summaries for level in levels[side]] for side in SIDES}
        deltas = CompareLabels(self.catalogue)(tables["base"], tables["new"])
        calls = {(d.group, d.label): _calls(levels, (d.group, d.label)) for d in deltas}
        rows = {side: [_by_label(level) for level in levels[side]] for side in SIDES}
        effects = [self._label_effect(test, d, rows) for d in deltas]
        judged = JudgeLabels()([((d.group, d.stat), effect) for d, effect in zip(deltas, effects, strict=True)])
        return [
            _label_result(d, j, calls[d.group, d.label], steady=steady) for d, j in zip(deltas, judged, strict=True)
        ]

    def _label_effect(self, test: Test, delta: LabelDelta, rows: Mapping[Side, list[_LabelValues]]) -> Effect | None:
        if delta.delta_percent is None:
            return None
        key = (delta.group, delta.stat, delta.label)
        values = {side: [row[key] for row in rows[side] if key in row] for side in SIDES}
        noise = self.label_noise(key[:2], delta.label, values["base"] + values["new"], test.type)
        if noise is None:
            return None
        levels = {side: [RunLevel(value.value) for value in values[side]] for side in SIDES}
        return MeasureEffect()(levels["base"], levels["new"], noise)

    def _ramp_ups(self, views: Mapping[Side, list[RunView]]) -> dict[Side, list[RampUp]]:
        plateaus = {side: [_plateau(view) for view in views[side]] for side in SIDES}
        known = [plateau for side in SIDES for plateau in plateaus[side] if plateau is not None]
        time_to = TimeToUsers()
        marks = time_to.marks(known)
        return {
            side: [
                RampUp(
                    plateau_users=plateau,
                    time_to={str(k): v for k, v in time_to(view.users, marks).items()}
                    if view.users is not None
                    else {},
                )
                for view, plateau in zip(views[side], plateaus[side], strict=True)
            ]
            for side in SIDES
        }

    def _run(self, view: RunView, estimate: SupportedUsers | None, ramp: RampUp, reported: int | None) -> RunResult:
        recording = view.recording
        found = {series.metric for series in recording.graphs()}
        return RunResult(
            start=_rfc3339(recording.window[0]),
            end=_rfc3339(recording.window[1]),
            duration_s=recording.duration_s,
            stop_s=view.stop.at_s if view.stop else None,
            shutdown=bool(view.stop and view.stop.shutdown),
            window=view.steady.window,
            window_method=view.steady.method,
            window_reason=view.steady.reason,
            load_curve=view.load_slug,
            phases=_phases(view),
            ramp_up=ramp,
            validity=_run_validity(view, estimate),
            estimated_supported_users=Estimate(**vars(estimate)) if estimate else None,
            reported_supported_users=reported,
            coverage=[_coverage(view, series) for series in recording.graphs()],
            missing=[metric.slug for metric in self.catalogue.metrics if metric.slug not in found],
            notes=[note.text for note in recording.notes],
            server=_server(recording),
        )


@dataclass(frozen=True)
class _Measured:
    """One metric of both builds: the levels of its runs, and the effect or the reason why there is none."""

    metric: Metric
    series: Series
    levels: Mapping[Side, Sequence[Level | None]]
    effect: Effect | None
    reason: str | None


def _metric_result(measured: _Measured, judged: Judged | None, views: Mapping[Side, list[RunView]]) -> MetricResult:
    metric, series, levels = measured.metric, measured.series, measured.levels
    values = {side: mean_of_runs([level.value for level in levels[side] if level]) for side in SIDES}
    delta = delta_percent(values["base"], values["new"])
    windows = {side: next((v.steady.window for v in views[side] if v.steady.window), None) for side in SIDES}
    effective = [level.n_effective for side in SIDES for level in levels[side] if level]
    low, high = judged.effect.interval() if judged else (None, None)
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
        mean=BothNumbers(**{s: mean_of_runs([level.mean for level in levels[s] if level]) for s in SIDES}),
        delta_percent=delta,
        ci_low=low,
        ci_high=high,
        p_value=judged.p_value if judged else None,
        p_adjusted=judged.p_adjusted if judged else None,
        family=judged.family if judged else None,
        leans_worse=judged.leans_worse if judged else None,
        status=judged.status if judged else "inconclusive" if delta is not None else "not_comparable",
        reason=measured.reason,
        n_effective=min(effective) if effective else None,
        detectable_percent=judged.effect.detectable_percent if judged else None,
        runs_to_settle=judged.effect.runs_to_settle(metric.margin_percent) if judged else None,
        prior=judged.effect.prior if judged else "none",
        window=BothWindows(**windows),
        missing_samples=BothNumbers(
            **{s: sum(level.missing for level in levels[s] if level) if any(levels[s]) else None for s in SIDES}
        ),
    )


def _label_result(delta: LabelDelta, judged: Judged | None, calls: BothNumbers | None, *, steady: bool) -> LabelResult:
    low, high = judged.effect.interval() if judged else (None, None)
    return LabelResult(
        group=delta.group,
        label=delta.label,
        stat=delta.stat,
        base=delta.base,
        new=delta.new,
        delta_percent=delta.delta_percent,
        ci_low=low,
        ci_high=high,
        p_value=judged.p_value if judged else None,
        p_adjusted=judged.p_adjusted if judged else None,
        calls=calls,
        window="steady" if steady else "whole_run",
        status=judged.status if judged else "inconclusive" if delta.delta_percent is not None else "not_comparable",
        only_in=delta.only_in,
        at_least=BothFlags(base=delta.at_least[0], new=delta.at_least[1]),
        reason=delta.reason or (None if judged else NO_NOISE),
    )


def _may_be_cut(view: RunView, base_ends: list[float]) -> bool:
    if view.recording.stop_known or view.stop is None or view.stop.shutdown:
        return False
    return any(abs(view.stop.end_s - end) <= CUT_TOLERANCE_S for end in base_ends)


def _why_no_delta(series: Series, views: Mapping[Side, list[RunView]], values: Mapping[Side, float | None]) -> str:
    sides = [side for side in SIDES if all(v.recording.find(series.metric, series.labels) is None for v in views[side])]
    if sides:
        return f"not recorded in the {sides[0]} build"
    for side in SIDES:
        if all(view.steady.window is None for view in views[side]):
            return f"no steady window in the {side} build: {views[side][0].steady.reason}"
    empty = [side for side in SIDES if values[side] is None]
    if empty:
        return "no number in the steady window of " + ("either build" if len(empty) == 2 else f"the {empty[0]} build")
    return "the base level is zero"


def _plateau(view: RunView) -> float | None:
    if view.users is None or view.steady.window is None:
        return None
    return MeasureLevel()(view.users, view.steady.window).value


def _mean_ramp(ramps: list[RampUp]) -> RampUp:
    marks = ramps[0].time_to if ramps else {}
    return RampUp(
        plateau_users=mean_of_runs([ramp.plateau_users for ramp in ramps]),
        time_to={mark: mean_of_runs([ramp.time_to.get(mark) for ramp in ramps]) for mark in marks},
    )


def _phases(view: RunView) -> list[Phase]:
    phases: list[Phase] = []
    if view.steady.window:
        start, end = view.steady.window
        if start > 0:
            phases.append(Phase(name="ramp_up", start_s=0.0, end_s=start))
        phases.append(Phase(name="steady", start_s=start, end_s=end))
    if view.stop and view.stop.shutdown:
        phases.append(Phase(name="shutdown", start_s=view.stop.at_s, end_s=view.stop.end_s))
    return phases


def _run_validity(view: RunView, estimate: SupportedUsers | None) -> Validity:
    reasons = []
    if view.steady.reason:
        reasons.append(f"no steady window: {view.steady.reason}")
    if estimate and estimate.reason:
        reasons.append(f"no estimate of the supported users: {NO_ESTIMATE_WORDS[estimate.reason]}")
    return Validity(status="limited" if reasons else "valid", reasons=reasons)


def _test_validity(runs: Mapping[Side, list[RunResult]]) -> Validity:
    reasons = [
        f"{side} run {i + 1}: {reason}" if len(runs[side]) > 1 else f"{side}: {reason}"
        for side in SIDES
        for i, run in enumerate(runs[side])
        for reason in run.validity.reasons
    ]
    return Validity(status="limited" if reasons else "valid", reasons=reasons)


def _coverage(view: RunView, series: Series) -> SeriesCoverage:
    """Up to the stop: after it nobody asks the server anything, and rates of nothing are NaN."""
    until = view.stop.at_s if view.stop else view.recording.duration_s
    coverage = view.recording.coverage(series, until)
    curve = view.recording.curve(series)
    finite = curve.index.to_numpy()[np.isfinite(curve.to_numpy()) & (curve.index <= until)]
    edges = np.concatenate(([0.0], finite, [until]))
    return SeriesCoverage(
        slug=series.metric,
        expected=coverage.expected,
        present=coverage.present,
        finite=coverage.finite,
        longest_gap_s=float(np.diff(edges).max()),
    )


def _by_label(levels: LabelLevels) -> _LabelValues:
    """The values of one run by (group, statistic, label), without those that are no number."""
    return {
        (row.group, row.stat, row.label): LabelValue(row.value, levels.calls.get((row.group, row.label)))
        for row in levels.summaries
        if math.isfinite(row.value)
    }


def _calls(levels: Mapping[Side, list[LabelLevels]], label: tuple[str, str]) -> BothNumbers | None:
    """Calls of a label in the steady window, the mean over the runs of each build."""
    known = {side: mean_of_runs([level.calls.get(label) for level in levels[side]]) for side in SIDES}
    return None if known == {"base": None, "new": None} else BothNumbers(**known)


def _server(recording: Recording) -> ServerResult | None:
    """What the recording knows of the server that it was pulled from; None where others wrote something else there."""
    known: Mapping[str, Any] = recording.provenance
    try:
        return ServerResult(
            **known["server"],
            url=known["url"],
            step_s=known["step_s"],
            label_step_s=known["label_step_s"],
            queries=len(known["queries"]),
            points=sum(query["points"] for query in known["queries"]),
            missing_points=sum(query["missing_points"] for query in known["queries"] if query["role"] == "graph"),
            counter_resets=known["counter_resets"],
            warnings=known["warnings"],
        )
    except (KeyError, TypeError, ValueError):
        return None


def _rfc3339(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat().replace("+00:00", "Z")
