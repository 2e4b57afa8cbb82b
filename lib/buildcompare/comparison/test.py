"""Compare the runs of one test: every analysis in order, one result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from buildcompare.comparison.runs import run_result
from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Coordinator, Test
from buildcompare.findings import verdict
from buildcompare.labels.noise import LabelNoise
from buildcompare.labels.tables import compare_label_tables, label_tables
from buildcompare.labels.traffic_mix import split_averages
from buildcompare.load.compare import compare_ramps, ramp_ups
from buildcompare.load.limits import limited_by
from buildcompare.load.users import compare_supported_users, estimates
from buildcompare.load.view import Views, view_run
from buildcompare.metrics.compare import compare_metrics
from buildcompare.metrics.compare_events import compare_events
from buildcompare.metrics.errors import compare_counted_errors, compare_error_rates
from buildcompare.metrics.judge_equal_load import LoadAdjusted, at_equal_load
from buildcompare.recordings.recording import Recording
from buildcompare.results import Pair, Runs, Side, TestResult
from buildcompare.results.codes import SIDES
from buildcompare.stats.noise import RepeatedRuns
from buildcompare.validity.judge import judge_validity

__all__ = ["SIDES", "TestData", "compare_test"]

TestRecordings = Mapping[Side, Sequence[Recording]]


@dataclass(frozen=True)
class TestData:
    """The result of one test, with what its figures need beside it.

    Attributes
    ----------
    views
        Its runs by build, each with its load, its windows and its shape.
    at_load
        By slug, each metric over the connected users; empty in a bounded test.
    """

    __test__ = False  # not a test class of pytest's

    result: TestResult
    views: Views
    at_load: Mapping[str, LoadAdjusted]


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

    Parameters
    ----------
    recordings
        By build, one recording for each run of `test`.
    coordinator
        How the load was added; the default is that of Mattermost's load tests.
    groups
        Repeated runs, from which the noise between runs is learned; without them the catalogue's counts.
    label_noise
        What was learned of labels from `groups`, where several tests share it.
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
    supported = None
    if test.type == "unbounded":
        supported = compare_supported_users(test, supported_by_run, catalogue, groups)
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
