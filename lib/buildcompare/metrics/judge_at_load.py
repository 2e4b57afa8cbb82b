"""Judge metrics at equal load against margins and run-to-run noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.config.params import Test
from buildcompare.load.view import Views, reading_error
from buildcompare.metrics.equal_load import LoadedRun, MetricAtLoad, equal_load, loaded_run
from buildcompare.results import LoadAdjustedResult
from buildcompare.results.codes import SIDES, NoiseSource, Status
from buildcompare.stats.effects import Effect, judge_metrics
from buildcompare.stats.noise import (
    LEAST_SD,
    Noise,
    NoiseAtEqualLoad,
    RepeatedRuns,
    beside_repeats,
    catalogue_noise,
    metric_noise,
    mixed_noise,
    pool_variances,
    with_reading_error,
)
from buildcompare.stats.planning import Looks

LEAST_BETWEEN = 0.25
"""Minimum variance between runs, as a fraction of the total variance (between and within runs)."""


@dataclass(frozen=True)
class MeasuredAtLoad:
    """Metrics of an unbounded test at the highest common load, by slug, before they are judged."""

    curves: Mapping[str, MetricAtLoad] = field(default_factory=dict)
    noises: Mapping[str, Noise | None] = field(default_factory=dict)
    runs: tuple[int, int] = (0, 0)

    def judged(self, catalogue: Catalogue, looks: Looks | None = None) -> dict[str, LoadAdjustedResult]:
        """Judge the metrics against the margins of `catalogue`; results by slug."""
        pairs = [(slug, curve, self.noises.get(slug)) for slug, curve in self.curves.items()]
        effects = [
            (catalogue.find(slug), effect_at_load(curve, noise, self.runs) if noise else None)
            for slug, curve, noise in pairs
        ]
        judged = {}
        for (slug, curve, noise), each in zip(pairs, judge_metrics(effects, looks), strict=True):
            row = LoadAdjustedResult(
                base=curve.base, new=curve.new, constant=curve.constant, users=curve.at_users,
                delta_percent=(curve.new / curve.base - 1.0) * 100.0,
                at_users_range=(float(curve.users[0]), float(curve.users[-1])),
                within_se_log=curve.se_log, status=Status.INCONCLUSIVE,
                noise_of="none" if not each or not noise else "equal_load" if noise.at_load else "levels",
            )  # fmt: skip
            judged[slug] = each.filled(row) if each else row
        return judged


def measure_at_load(test: Test, views: Views, catalogue: Catalogue, groups: Sequence[RepeatedRuns]) -> MeasuredAtLoad:
    """Compare the runs of an unbounded test at equal load, without using margins; empty for other tests."""
    if test.type != "unbounded":
        return MeasuredAtLoad()
    base, new = ([run for view in views[side] if (run := loaded_run(view, catalogue))] for side in SIDES)
    repeats = [RepeatedRuns(test.name, test.type, [], measure_noise_at_load(runs)) for runs in (base, new)]
    metrics = [catalogue.find(slug) for slug in sorted({slug for run in (*base, *new) for slug in run.metrics})]
    priors = {each.slug: noise_at_load(each, groups, misread=reading_error(each, views)) for each in metrics}
    learned = {each.slug: learned_at_load(each.slug, repeats) for each in metrics}
    repeated = {slug: each and replace(each, noise_source=NoiseSource.REPEATS) for slug, each in learned.items()}
    noises, runs = beside_repeats(priors, repeated), (len(base), len(new))
    return MeasuredAtLoad(equal_load(base, new, noise_between(noises, runs)), noises, runs)


def noise_between(noises: Mapping[str, Noise | None], runs: tuple[int, int]) -> Callable[[str], float]:
    """Return a function that maps a slug to the SD of log(new / base) from noise between runs (0 if unknown)."""
    per_run = math.sqrt(1.0 / max(runs[0], 1) + 1.0 / max(runs[1], 1))
    return lambda slug: noise.sd * per_run if (noise := noises.get(slug)) else 0.0


def effect_at_load(metric: MetricAtLoad, noise: Noise, runs: tuple[int, int]) -> Effect:
    """Return the effect of a metric at the highest load; its error combines the noise within runs and between runs."""
    per_run = math.sqrt(1.0 / runs[0] + 1.0 / runs[1])
    sd = math.hypot(metric.se_log, noise.sd * per_run)
    return Effect(metric.log_ratio, sd, noise.df, sd / per_run, noise.noise_source, noise.comparisons)


def measure_noise_at_load(runs: Sequence[LoadedRun]) -> dict[str, NoiseAtEqualLoad]:
    """Estimate the noise of each metric at equal load from all pairs of repeated runs of one build; by slug.

    Half the mean square of the differences of all pairs estimates the variance of a single run. Its degrees of freedom
    are the number of runs minus one.
    """
    differences: dict[str, list[tuple[int, int, float, float]]] = {}
    for i, j in itertools.combinations(range(len(runs)), 2):
        for slug, pair in equal_load([runs[i]], [runs[j]], lambda slug: math.inf).items():
            differences.setdefault(slug, []).append((i, j, pair.log_ratio, pair.se_log))
    noise = {}
    for slug, pairs in differences.items():
        variance = math.fsum(ratio**2 for *_, ratio, _ in pairs) / (2 * len(pairs))
        within = math.fsum(se**2 for *_, se in pairs) / (2 * len(pairs))
        noise[slug] = NoiseAtEqualLoad(variance, within, len({run for pair in pairs for run in pair[:2]}) - 1.0)
    return noise


def noise_at_load(metric: Metric, groups: Sequence[RepeatedRuns] = (), *, misread: float = 0.0) -> Noise | None:
    """Return the noise of `metric` between runs at equal load, without the error within runs; None if unknown.

    The first available source is used: repeated unbounded runs at equal load (pooled with the catalogue's value), the
    levels of repeated runs, or the catalogue's value. Earlier comparisons are not used, because they underestimate the
    noise. Even the catalogue's larger noise gives 95 % intervals that contain only 92 % of differences between tests
    (measured on every second release of the tuning data). `misread` is the reading error of plots in percent.
    """
    catalogue = catalogue_noise(metric, "equal_load") or catalogue_noise(metric, "unbounded")
    learned = learned_at_load(metric.slug, groups)
    if learned is not None:
        noise: Noise | None = mixed_noise(learned, catalogue) if catalogue else learned
    else:
        levels = metric_noise(metric, "unbounded", groups)
        noise = levels if levels is not None and levels.noise_source == NoiseSource.CALIBRATION else catalogue
    return with_reading_error(noise, misread)


def learned_at_load(slug: str, groups: Sequence[RepeatedRuns]) -> Noise | None:
    """Noise of a metric at equal load from repeated unbounded runs alone; None without such runs."""
    measured = [group.at_load[slug] for group in groups if slug in group.at_load]
    if not measured:
        return None
    between = [max(each.variance - each.within, LEAST_BETWEEN * each.variance) for each in measured]
    variance, df = pool_variances(np.array(between), np.array([each.df for each in measured]))
    return Noise(max(math.sqrt(variance), LEAST_SD), df, NoiseSource.CALIBRATION, at_load=True)
