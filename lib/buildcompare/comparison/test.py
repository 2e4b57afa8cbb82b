"""One test of a comparison: its recordings in, every analysis in order, one result out.

There is no statistics here; each number comes from a file of :mod:`buildcompare.analysis`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from buildcompare.comparison.runs import run_result
from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Coordinator, Test
from buildcompare.findings import verdict
from buildcompare.labels.compare import CompareLabelTables
from buildcompare.labels.compare_traffic_mix import split_averages
from buildcompare.labels.noise import LabelNoise
from buildcompare.load.compare_ramps import compare_ramps, ramp_ups
from buildcompare.load.compare_users import CompareSupportedUsers, estimates
from buildcompare.load.sides import SIDES
from buildcompare.load.view import ViewRun
from buildcompare.metrics.compare import CompareMetrics
from buildcompare.metrics.compare_at_load import at_equal_load, limited_by
from buildcompare.metrics.compare_events import CompareEvents
from buildcompare.metrics.counted_errors import compare_counted_errors
from buildcompare.metrics.error_rates import compare_error_rates
from buildcompare.metrics.load_adjusted import LoadAdjusted
from buildcompare.recordings.recording import Recording
from buildcompare.results import Runs, Side, TestResult
from buildcompare.stats.noise import RunToRun
from buildcompare.validity.apply import Fitness, judge_fitness

__all__ = ["SIDES", "CompareTest"]


@dataclass(frozen=True)
class CompareTest:
    """Compare the runs of one test."""

    catalogue: Catalogue
    coordinator: Coordinator = field(default_factory=Coordinator)
    run_to_run: RunToRun = field(default_factory=RunToRun)
    label_noise: LabelNoise = field(default_factory=LabelNoise)

    def __call__(self, test: Test, recordings: Mapping[Side, Sequence[Recording]]) -> TestResult:
        """Analyse `recordings`, which holds one recording for each run of `test`."""
        fitness = self._fitness(test, recordings)
        views, supported_by_run = fitness.views, fitness.estimates
        ramps = ramp_ups(views)
        runs = {
            side: [
                run_result(self.catalogue, view, estimate, ramp, params.supported_users, fitness.of_run(side, number))
                for number, (view, estimate, ramp, params) in enumerate(
                    zip(views[side], supported_by_run[side], ramps[side], test.runs(side), strict=True)
                )
            ]
            for side in SIDES
        }
        supported = None
        if test.type == "unbounded":
            supported = CompareSupportedUsers(self.catalogue, self.run_to_run)(test, supported_by_run)
        loaded = at_equal_load(test, views, self.catalogue, self.run_to_run)
        splits = split_averages(test, views, self.catalogue, self.label_noise)
        metrics = CompareMetrics(self.catalogue, self.run_to_run)(test, views, loaded, splits)
        validity = fitness.of_test()
        return TestResult(
            name=test.name,
            type=test.type,
            db_engine=test.db_engine,
            users=test.users,
            verdict=verdict.of_test(metrics, supported, validity),
            limited_by=limited_by(test, views, self.catalogue, self.coordinator),
            runs=Runs(base=runs["base"], new=runs["new"]),
            supported_users=supported,
            ramp_up=compare_ramps(views, ramps),
            metrics=metrics,
            errors=[*compare_error_rates(views), *compare_counted_errors(test, views, supported_by_run)],
            labels=CompareLabelTables(self.catalogue, self.label_noise)(test, views),
            events=CompareEvents(self.catalogue, self.run_to_run.groups)(test, views),
            validity=validity,
        )

    def at_equal_load(self, test: Test, recordings: Mapping[Side, Sequence[Recording]]) -> dict[str, LoadAdjusted]:
        """Each metric of an unbounded test over the load, with its curves."""
        return at_equal_load(test, self._fitness(test, recordings).views, self.catalogue, self.run_to_run)

    def _fitness(self, test: Test, recordings: Mapping[Side, Sequence[Recording]]) -> Fitness:
        """The runs of `test` as they may be judged."""
        view_run = ViewRun(self.catalogue, self.coordinator)
        seen = {side: [view_run(recording, test.type) for recording in recordings[side]] for side in SIDES}
        by_curve = {side: estimates(test, seen, side) for side in SIDES}
        return judge_fitness(test, seen, by_curve, self.catalogue, self.coordinator)
