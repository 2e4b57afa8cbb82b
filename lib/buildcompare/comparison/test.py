"""Compare the runs of one test: every analysis in order, one result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Coordinator, Test
from buildcompare.findings import verdict
from buildcompare.labels.noise import LabelNoise
from buildcompare.labels.tables import compare_label_tables, label_tables
from buildcompare.labels.traffic_mix import split_averages
from buildcompare.load.compare import compare_ramps, ramp_ups
from buildcompare.load.users import compare_supported_users, estimates, limited_by
from buildcompare.load.view import RunView, Views, view_run
from buildcompare.metrics.compare import compare_counted_errors, compare_error_rates, compare_metrics
from buildcompare.metrics.compare_events import compare_events
from buildcompare.metrics.judge_equal_load import LoadAdjusted, at_equal_load
from buildcompare.recordings.recording import Recording, utc
from buildcompare.results import Estimate, RunResult, Runs, SeriesCoverage, ServerResult, TestResult, Validity
from buildcompare.results.codes import SIDES, Pair, Side
from buildcompare.results.users import RampUp
from buildcompare.stats.noise import RepeatedRuns
from buildcompare.validity.rules import judge_validity

__all__ = ["SIDES", "TestData", "compare_test"]

TestRecordings = Mapping[Side, Sequence[Recording]]


@dataclass(frozen=True)
class TestData:
    """The result of one test, with what its figures need beside it."""

    __test__ = False  # not a test class of pytest's

    result: TestResult
    views: Views
    at_load: Mapping[str, LoadAdjusted]
    """By slug, each metric over the connected users; empty in a bounded test."""


def compare_test(
    test: Test,
    recordings: TestRecordings,
    catalogue: Catalogue,
    *,
    coordinator: Coordinator | None = None,
    groups: Sequence[RepeatedRuns] = (),
    label_noise: LabelNoise | None = None,
) -> TestData:
    """Compare the runs of one test.

    The noise between runs is learned from `groups`, the repeated runs, or else is the catalogue's; `label_noise` is
    what was learned of labels from `groups`, where several tests share it.
    """
    coordinator = coordinator or Coordinator()
    seen = Pair.of(lambda side: [view_run(each, test.type, catalogue, coordinator) for each in recordings[side]])
    by_curve = estimates(test, seen)
    validity, views, supported_by_run = judge_validity(test, seen, by_curve, catalogue, coordinator)
    ramps = ramp_ups(views)
    runs = {
        side: [
            run_result(catalogue, view, estimate, ramp, params.supported_users, valid)
            for view, estimate, ramp, params, valid in zip(
                views[side], supported_by_run[side], ramps[side], test.runs(side), validity.runs[side], strict=True
            )
        ]
        for side in SIDES
    }
    unbounded = test.type == "unbounded"
    supported = compare_supported_users(test, supported_by_run, catalogue, groups) if unbounded else None
    at_load = at_equal_load(test, views, catalogue, groups)
    labels = label_tables(views, label_noise or LabelNoise(groups), test.type)
    splits = split_averages(labels, catalogue)
    metrics = compare_metrics(test, views, catalogue, groups, at_load=at_load, splits=splits)
    result = TestResult(
        name=test.name,
        type=test.type,
        db_engine=test.db_engine,
        users=test.users,
        verdict=verdict.of_test(metrics, supported, validity.test),
        limited_by=limited_by(test, views, catalogue, coordinator),
        runs=Runs(base=runs["base"], new=runs["new"]),
        supported_users=supported,
        ramp_up=compare_ramps(views, ramps),
        metrics=metrics,
        errors=[*compare_error_rates(views), *compare_counted_errors(test, views, supported_by_run)],
        labels=compare_label_tables(labels, catalogue),
        events=compare_events(test, views, catalogue, groups),
        validity=validity.test,
    )
    return TestData(result, views, at_load)


def run_result(
    catalogue: Catalogue,
    view: RunView,
    estimate: Estimate | None,
    ramp: RampUp,
    reported: int | None,
    validity: Validity,
) -> RunResult:
    """One run, with what it misses."""
    recording, stop = view.recording, view.stop
    found = {series.metric for series in recording.graphs()}
    until = stop.at_s if stop else recording.duration_s  # after the stop nobody asks, and rates of nothing are NaN
    return RunResult(
        start=utc(recording.window[0]),
        end=utc(recording.window[1]),
        duration_s=recording.duration_s,
        stop_s=stop.at_s if stop else None,
        shutdown=bool(stop and stop.shutdown),
        window=view.steady.window,
        window_method=view.steady.method,
        window_reason=view.steady.reason,
        load_curve=view.load_slug,
        phases=list(view.shape.phases) if view.shape else [],
        ramp_up=ramp,
        validity=validity,
        estimated_supported_users=estimate,
        reported_supported_users=reported,
        coverage=[
            SeriesCoverage(slug=series.metric, **vars(recording.coverage(series, (0.0, until))))
            for series in recording.graphs()
        ],
        missing=[metric.slug for metric in catalogue.metrics if metric.slug not in found],
        notes=[note.text for note in recording.notes],
        server=_server(recording),
        samples_sha256=recording.samples_sha256,
    )


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
