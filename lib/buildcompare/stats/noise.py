"""How far do two runs of one build lie apart? Learned from repeated runs, or borrowed from the catalogue.

One run per build is one observation per side: what happens inside a run says nothing about the next run of the
same build (Kalibera & Jones 2013, "Rigorous benchmarking in reasonable time"). Levels are compared on the log
scale, so all noise here is a standard deviation of log levels, close to a relative one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from buildcompare.config.catalogue import Metric
from buildcompare.results.codes import NoiseSource, TestType

BORROWED_S = 1800.0
"""The priors of the catalogues were learned from windows of 30 minutes and more."""


@dataclass(frozen=True)
class RunLevel:
    """Level of one metric in one run.

    Attributes
    ----------
    level
        The mean over the steady window, positive.
    se_log
        Standard error of its logarithm within the run; NaN where unknown.
    seconds
        Length of the window; NaN where unknown.
    """

    level: float
    se_log: float = math.nan
    seconds: float = math.nan


@dataclass(frozen=True)
class LabelValue:
    """One label's value in one run (seconds), and how often it was called (None: unknown)."""

    value: float
    calls: float | None = None


@dataclass(frozen=True)
class RunLevels:
    """What one run says: levels by metric, values by (group, stat, label), and by metric its no-change penalty.

    See :meth:`buildcompare.metrics.events.FindEvents.no_change` for the last.
    """

    metrics: Mapping[str, RunLevel] = field(default_factory=dict)
    labels: Mapping[tuple[str, str, str], LabelValue] = field(default_factory=dict)
    no_change: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class NoiseAtEqualLoad:
    """What runs of one group differ by at equal load, in one metric.

    Attributes
    ----------
    variance
        Of one run's log value around that of its build, errors within the run included.
    within
        The part of it that the runs' own standard errors explain.
    df
        Degrees of freedom of `variance`.
    """

    variance: float
    within: float
    df: float


@dataclass(frozen=True)
class RepeatedRuns:
    """Runs of one build on one setup: between them nothing changed."""

    name: str
    type: TestType
    runs: Sequence[RunLevels]
    at_load: Mapping[str, NoiseAtEqualLoad] = field(default_factory=dict)
    """By metric, of unbounded runs; empty where it was not measured."""


@dataclass(frozen=True)
class Noise:
    """Run-to-run noise of one metric or label.

    Attributes
    ----------
    sd
        Standard deviation of one run's log level around the level of its build and setup.
    df
        Degrees of freedom that `sd` is known with; infinite for a borrowed noise_source.
    within
        The standard error that calibrated runs had of their own mean (log scale); None where unknown.
    seconds
        Length of the windows that it was learned from; NaN where unknown.
    at_load
        Whether it is that of runs compared at equal load, without the error within them.
    """

    sd: float
    df: float
    noise_source: NoiseSource
    within: float | None = None
    seconds: float = math.nan
    at_load: bool = False


@dataclass(frozen=True)
class RunToRun:
    """The noise of metrics, from groups of repeated runs; without any, the catalogue's noise_source.

    The variance is pooled over groups. Its degrees of freedom are what the scatter of the groups' own variances
    leaves of them (Satterthwaite 1946): where one setup is quiet and the next is not, a pooled variance is worth
    less than its number of runs. A test type with few runs leans on the other type's variance of the same metric, and
    then on the catalogue's noise_source.
    """

    groups: Sequence[RepeatedRuns] = ()
    enough_df: float = 8.0
    """With fewer degrees of freedom the other test type is drawn on: three setups of three runs have six."""
    borrowed_df: float = 4.0
    """What the other type's variance counts for, at most: two setups of three runs."""
    least_df: float = 3.0
    """Bound on the loss of degrees of freedom to setups that differ."""
    prior_df: float = 4.0
    """What the catalogue's noise_source counts for beside too few runs of the user's own."""

    def __call__(self, metric: Metric, kind: TestType) -> Noise | None:
        """The noise of `metric` in tests of type `kind`; None where nothing is known of it."""
        percent = getattr(metric.run_sd_percent, kind)
        borrowed = (
            Noise(math.log1p(percent / 100.0), math.inf, NoiseSource.CATALOGUE, seconds=BORROWED_S) if percent else None
        )
        learned = self._learned(metric, kind)
        if learned is None or borrowed is None or learned.df >= self.enough_df:
            return learned or borrowed
        df = learned.df + self.prior_df
        variance = (learned.df * learned.sd**2 + self.prior_df * borrowed.sd**2) / df
        return Noise(math.sqrt(variance), df, NoiseSource.CALIBRATION, learned.within, learned.seconds)

    def _learned(self, metric: Metric, kind: TestType) -> Noise | None:
        """From the groups alone."""
        own = self._pooled(metric.slug, kind)
        other = self._pooled(metric.slug, "bounded" if kind == "unbounded" else "unbounded")
        known = own or other
        if known is None:
            return None
        if own is None or other is None:
            df = known.df if own else min(known.df, self.borrowed_df)
            return Noise(math.sqrt(known.variance), df, NoiseSource.CALIBRATION, known.within, known.seconds)
        if own.df >= self.enough_df:
            return Noise(math.sqrt(own.variance), own.df, NoiseSource.CALIBRATION, own.within, own.seconds)
        lent = min(other.df, self.borrowed_df)
        variance = (own.df * own.variance + lent * other.variance) / (own.df + lent)
        return Noise(math.sqrt(variance), own.df + lent, NoiseSource.CALIBRATION, own.within, own.seconds)

    def _pooled(self, slug: str, kind: TestType) -> _Pooled | None:
        variances, dfs, within, seconds = [], [], [], []
        for group in self.groups:
            if group.type != kind:
                continue
            for key in sorted({key for run in group.runs for key in run.metrics if slug_of(key) == slug}):
                levels = [run.metrics[key] for run in group.runs if key in run.metrics and run.metrics[key].level > 0]
                if len(levels) > 1:
                    variances.append(float(np.var(np.log([each.level for each in levels]), ddof=1)))
                    dfs.append(len(levels) - 1.0)
                    within += [each.se_log**2 for each in levels if math.isfinite(each.se_log)]
                    seconds += [each.seconds for each in levels if each.seconds > 0]
        if not dfs:
            return None
        variance, df = self.pool(np.array(variances), np.array(dfs))
        # Runs that agree to the last digit were rounded, not free of noise: no variance at all judges nothing.
        floor = (1e-4) ** 2
        typical = math.sqrt(float(np.median(within))) if within else None
        return _Pooled(max(variance, floor), df, typical, float(np.median(seconds)) if seconds else math.nan)

    def pool(self, variances: np.ndarray, dfs: np.ndarray) -> tuple[float, float]:
        """The pooled variance of groups, and the degrees of freedom that the scatter of its parts leaves."""
        weights, total = dfs / dfs.sum(), float(dfs.sum())
        pooled = float(weights @ variances)
        count = len(variances)
        if count < 3 or pooled == 0:
            return pooled, total
        scatter = float(weights**2 @ (variances - pooled) ** 2) * count / (count - 1)
        left = 2.0 * pooled**2 / scatter if scatter > 0 else total
        return pooled, min(total, max(left, self.least_df))


@dataclass(frozen=True)
class _Pooled:
    variance: float
    df: float
    within: float | None
    seconds: float


def series_key(slug: str, labels: Mapping[str, str]) -> str:
    """How a calibration names a series: the metric's slug, and its labels where it has any."""
    if not labels:
        return slug
    return slug + "{" + ",".join(f"{name}={value}" for name, value in sorted(labels.items())) + "}"


def slug_of(key: str) -> str:
    """The metric's slug in a key of :func:`series_key`."""
    return key.partition("{")[0]
