"""What do runs of one build differ by at equal load? Less than their levels do, which move with the users."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from buildcompare.config.catalogue import Metric
from buildcompare.metrics.load_curve import CompareAtLoad, LoadedRun
from buildcompare.results.codes import NoiseSource
from buildcompare.stats.noise import (
    CATALOGUE_DF,
    Noise,
    NoiseAtEqualLoad,
    RepeatedRuns,
    metric_noise,
    mixed_noise,
    pool_variances,
)

FLOOR = 1e-4
"""Runs that agree to the last digit were rounded, not free of noise."""


@dataclass(frozen=True)
class MeasureNoiseAtLoad:
    """Compare repeated runs of one build with each other at equal load, every pair of them.

    For runs that lie around their build's level with one variance, half the mean square of all pairs' differences
    is that variance, with one degree of freedom less than there are runs.
    """

    compare: CompareAtLoad = field(default_factory=CompareAtLoad)

    def __call__(self, runs: Sequence[LoadedRun]) -> dict[str, NoiseAtEqualLoad]:
        """By metric; a metric that no pair of `runs` shares at a common load has no entry."""
        found: dict[str, list[tuple[int, int, float, float]]] = {}
        for i, j in itertools.combinations(range(len(runs)), 2):
            for slug, pair in self.compare([runs[i]], [runs[j]]).items():
                found.setdefault(slug, []).append((i, j, pair.log_ratio, pair.se_log))
        return {
            slug: NoiseAtEqualLoad(
                variance=math.fsum(ratio**2 for *_, ratio, _ in pairs) / (2 * len(pairs)),
                within=math.fsum(se**2 for *_, se in pairs) / (2 * len(pairs)),
                df=len({run for i, j, *_ in pairs for run in (i, j)}) - 1.0,
            )
            for slug, pairs in found.items()
        }


@dataclass(frozen=True)
class NoiseAtLoad:
    """The noise of metrics at equal load between runs, without the error within them, which each pair adds itself.

    Pooled over groups of repeated unbounded runs as :func:`~buildcompare.stats.noise.run_noise` pools
    levels. The catalogue's value (at equal load, else of levels) counts for a few degrees of freedom beside it. Without
    a group measured at equal load, the noise of levels is used if that was learned from runs, else that value alone.

    Parameters
    ----------
    least_between
        Of a group's variance at least this part counts as between runs, however large the error within them was
        estimated to be: that is an estimate too, and in some setups many times too large.
    """

    groups: Sequence[RepeatedRuns] = ()
    least_between: float = 0.25
    by_chance: float = 0.5
    """Groups whose scatter leaves at least this part of their degrees of freedom differ by chance: of calibrations from
    6 to 12 groups of 2 to 4 runs with one variance, the scatter leaves less in 3 to 4 %."""

    def __call__(self, metric: Metric) -> Noise | None:
        """The noise of `metric`; None where nothing is known of it."""
        learned, borrowed = self._learned(metric.slug), self._prior(metric)
        if learned is None:
            levels = metric_noise(metric, "unbounded", self.groups)
            return levels if levels is not None and levels.noise_source == NoiseSource.CALIBRATION else borrowed
        if borrowed is None:
            return learned
        return mixed_noise(learned, borrowed, CATALOGUE_DF)

    def _prior(self, metric: Metric) -> Noise | None:
        percent = metric.run_sd_percent.equal_load
        if percent is None:
            return metric_noise(metric, "unbounded")
        return Noise(math.log1p(percent / 100.0), math.inf, NoiseSource.CATALOGUE, at_load=True)

    def _learned(self, slug: str) -> Noise | None:
        groups = [group.at_load[slug] for group in self.groups if slug in group.at_load]
        if not groups:
            return None
        between = [max(each.variance - each.within, self.least_between * each.variance) for each in groups]
        dfs = np.array([each.df for each in groups])
        variance, df = pool_variances(np.array(between), dfs)
        if df >= self.by_chance * dfs.sum():
            df = float(dfs.sum())
        return Noise(math.sqrt(max(variance, FLOOR**2)), df, NoiseSource.CALIBRATION, at_load=True)
