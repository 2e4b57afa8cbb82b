"""One test of a comparison: its recordings in, every analysis in order, one result out.

There is no statistics here; each number comes from a file of :mod:`buildcompare.analysis`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from buildcompare import verdict
from buildcompare.analysis.label_levels import LabelLevels, MeasureLabels
from buildcompare.analysis.labels import CompareLabels
from buildcompare.analysis.levels import Level, MeasureLevel, delta_percent, mean_of_runs
from buildcompare.analysis.ramp_up import TimeToUsers
from buildcompare.analysis.steady_state import FindSteadyState, SteadyState
from buildcompare.analysis.stop import FindStop, Stop
from buildcompare.analysis.supported_users import EstimateSupportedUsers, SupportedUsers
from buildcompare.metrics import Catalogue, Metric
from buildcompare.params import Coordinator, Run, Test
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
from buildcompare.wording import NO_ESTIMATE_WORDS

CUT_TOLERANCE_S = 60.0
"""Curves of two builds that end this close together, with no stop seen, may have been cut to one length."""
SIDES: tuple[Side, Side] = ("base", "new")
NO_TEST_YET = "how far two runs of one build lie apart is not known here, so no change can be told from chance"
SeriesKey = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class RunView:
    """One run as the analyses see it: the load, where it stopped, and its steady window."""

    recording: Recording
    params: Run
    load: pd.Series | None
    load_slug: str | None
    users: pd.Series | None
    stop: Stop | None
    steady: SteadyState


@dataclass(frozen=True)
class CompareTest:
    """Compare the runs of one test."""

    catalogue: Catalogue
    coordinator: Coordinator = field(default_factory=Coordinator)

    def __call__(self, test: Test, recordings: Mapping[Side, Sequence[Recording]]) -> TestResult:
        """Analyse `recordings`, which holds one recording for each run of `test`."""
        views = {
            side: [self._view(test, r, p) for r, p in zip(recordings[side], test.runs(side), strict=True)]
            for side in SIDES
        }
        estimates = {side: self._estimates(test, views, side) for side in SIDES}
        metrics = self._metrics(test, views)
        supported = self._supported_users(views, estimates) if test.type == "unbounded" else None
        ramps = self._ramp_ups(views)
        runs = {
            side: [
                self._run(test, view, estimate, ramp)
                for view, estimate, ramp in zip(views[side], estimates[side], ramps[side], strict=True)
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
            labels=self._labels(views),
            events=[],
            validity=validity,
        )

    def _view(self, test: Test, recording: Recording, params: Run) -> RunView:
        users = _filled(recording, self.catalogue.load)
        slug, load = (self.catalogue.load.slug, users) if self.catalogue.load and users is not None else (None, None)
        for proxy in self.catalogue.proxies():
            if load is None and (load := _filled(recording, proxy)) is not None:
                slug = proxy.slug
        fall = self.coordinator.fastest_fall if users is not None else None
        stop = FindStop(fastest_fall=fall)(load) if load is not None else None
        steady = _steady(test, recording, load, stop)
        return RunView(recording, params, load, slug, users, stop, steady)

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
        self, views: Mapping[Side, list[RunView]], estimates: Mapping[Side, list[SupportedUsers | None]]
    ) -> SupportedUsersResult:
        load = self.catalogue.load
        reported = {s: _of_all([v.params.supported_users for v in views[s]]) for s in SIDES}
        estimated = {s: mean_of_runs([e.estimated for e in estimates[s] if e]) for s in SIDES}
        without = {s: estimated[s] is None for s in SIDES}  # a run without an estimate is left out, and said so
        at_least = {s: mean_of_runs([e.at_least for e in estimates[s] if e]) if without[s] else None for s in SIDES}
        reasons = {s: next((e.reason for e in estimates[s] if e and without[s]), None) for s in SIDES}
        if None not in reported.values():
            best = reported
        elif None not in estimated.values():
            best = estimated
        else:
            best = {s: reported[s] if reported[s] is not None else estimated[s] for s in SIDES}
        delta = delta_percent(best["base"], best["new"])
        return SupportedUsersResult(
            base=best["base"],
            new=best["new"],
            delta_percent=delta,
            band_percent=load.margin_percent if load else None,
            status="inconclusive" if delta is not None else "not_comparable",
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
        ordered = sorted(keys.items(), key=lambda item: self.catalogue.position(item[0][0]))
        return [self._metric(self.catalogue.find(s.name), s, views) for _, s in ordered]

    def _metric(self, metric: Metric, series: Series, views: Mapping[Side, list[RunView]]) -> MetricResult:
        levels = {side: [_level(view, series) for view in views[side]] for side in SIDES}
        values = {side: mean_of_runs([level.mean for level in levels[side] if level]) for side in SIDES}
        delta = delta_percent(values["base"], values["new"])
        reason = NO_TEST_YET if delta is not None else _why_no_delta(series, views, values)
        windows = {side: next((v.steady.window for v in views[side] if v.steady.window), None) for side in SIDES}
        return MetricResult(
            name=metric.name if metric.known else series.name,
            slug=series.metric,
            labels=dict(series.labels),
            unit=series.unit,
            better=metric.better,
            gate=metric.gate,
            base=values["base"],
            new=values["new"],
            delta_percent=delta,
            status="inconclusive" if delta is not None else "not_comparable",
            reason=reason,
            window=BothWindows(**windows),
            missing_samples=BothNumbers(
                **{s: sum(level.missing for level in levels[s] if level) if any(levels[s]) else None for s in SIDES}
            ),
        )

    def _labels(self, views: Mapping[Side, list[RunView]]) -> list[LabelResult]:
        levels = {side: [MeasureLabels()(view.recording, view.steady.window) for view in views[side]] for side in SIDES}
        steady = all(level.steady for side in SIDES for level in levels[side])
        if not steady and all(view.recording.label_summaries for side in SIDES for view in views[side]):
            # A steady window is never held against a whole run, where all can be compared over the whole.
            levels = {side: [MeasureLabels()(view.recording, None) for view in views[side]] for side in SIDES}
        tables = {side: [level.summaries for level in levels[side]] for side in SIDES}
        return [
            LabelResult(
                group=d.group,
                label=d.label,
                stat=d.stat,
                base=d.base,
                new=d.new,
                delta_percent=d.delta_percent,
                calls=_calls(levels, (d.group, d.label)),
                window="steady" if steady else "whole_run",
                status="inconclusive" if d.delta_percent is not None else "not_comparable",
                only_in=d.only_in,
                at_least=BothFlags(base=d.at_least[0], new=d.at_least[1]),
                reason=d.reason or NO_TEST_YET,
            )
            for d in CompareLabels(self.catalogue)(tables["base"], tables["new"])
        ]

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

    def _run(self, test: Test, view: RunView, estimate: SupportedUsers | None, ramp: RampUp) -> RunResult:
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
            reported_supported_users=view.params.supported_users,
            coverage=[_coverage(view, series) for series in recording.graphs()],
            missing=[metric.slug for metric in self.catalogue.metrics if metric.slug not in found],
            notes=[note.text for note in recording.notes],
            server=_server(recording),
        )


def _of_all(values: Sequence[float | None]) -> float | None:
    """The mean over the runs, if every one of them has a value."""
    return None if None in values else mean_of_runs(values)


def _filled(recording: Recording, metric: Metric | None) -> pd.Series | None:
    """The curve of `metric`, if it has numbers above zero in it."""
    series = recording.total(metric.slug) if metric else None
    curve = recording.curve(series) if series else None
    if curve is None or not np.any(curve[np.isfinite(curve.to_numpy())] > 0):
        return None
    return curve


def _steady(test: Test, recording: Recording, load: pd.Series | None, stop: Stop | None) -> SteadyState:
    find = FindSteadyState()
    if load is None or stop is None:
        curves = [recording.curve(series) for series in recording.graphs()]
        filled = [curve for curve in curves if np.isfinite(curve.to_numpy()).any()]
        return find.without_load(filled[0]) if filled else SteadyState(None, "none", "no samples")
    return find.bounded(load, stop) if test.type == "bounded" else find.unbounded(stop, float(load.index[0]))


def _may_be_cut(view: RunView, base_ends: list[float]) -> bool:
    if view.recording.stop_known or view.stop is None or view.stop.shutdown:
        return False
    return any(abs(view.stop.end_s - end) <= CUT_TOLERANCE_S for end in base_ends)


def _level(view: RunView, series: Series) -> Level | None:
    found = view.recording.find(series.metric, series.labels)
    if found is None or view.steady.window is None:
        return None
    return MeasureLevel()(view.recording.curve(found), view.steady.window)


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
    return MeasureLevel()(view.users, view.steady.window).mean


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
