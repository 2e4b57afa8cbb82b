"""Which changes of a level are more than the series' own noise makes by itself?

Load-test metrics remember: neighbouring samples lean the same way, and a penalty made for independent samples calls
every swing a change. Here a penalty is learned from identical runs where there are any, and otherwise scaled with the
long-run variance of an AR(1) process fitted to what the changes leave over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from scipy.stats import t as student_t

from buildcompare.recordings.recording import FloatArray
from buildcompare.stats.changepoints import FindChanges, Segmentation, no_change_penalty, split_gains


@dataclass(frozen=True)
class Noise:
    """What a segmentation leaves of a series.

    Attributes
    ----------
    sd
        Standard deviation around the segments' means.
    phi
        Correlation of neighbouring samples (0 to `HIGHEST_PHI`), corrected for the small-sample bias.
    long_run_variance
        n times the variance of a mean of n samples, for large n: ``sd**2`` where phi is 0, more where it is not.
    """

    sd: float
    phi: float
    long_run_variance: float

    def mean_variance(self, size: int) -> float:
        """Variance of the mean of `size` successive samples (of an AR(1) process)."""
        phi = self.phi
        lags = np.arange(1, min(size, 200))
        return self.sd**2 / size * (1.0 + 2.0 * float(((1.0 - lags / size) * phi**lags).sum()))


HIGHEST_PHI = 0.97
"""Above it a series of an hour cannot be told from one that wanders without a level."""


def estimate_noise(values: FloatArray, changes: tuple[int, ...]) -> Noise:
    """Noise of `values`, shape (n,), around the means of the segments between `changes`.

    phi is the first autocorrelation, plus its bias (Marriott & Pope 1954: ``-(1 + 3 phi) / n`` with one mean; each
    further mean costs ``(1 + phi) / n`` more).
    """
    size, means = values.size, len(changes) + 1
    starts = np.array((0, *changes))
    counts = np.diff(np.append(starts, size))
    rest = values - np.repeat(np.add.reduceat(values, starts) / counts, counts)
    power = float(rest @ rest)
    if size <= means + 1 or power <= size * np.finfo(float).eps * float(values @ values) / max(size, 1):
        return Noise(0.0, 0.0, 0.0)
    raw = float(rest[1:] @ rest[:-1]) / power
    phi = min(max(raw + (means * (1.0 + raw) + 2.0 * raw) / size, 0.0), HIGHEST_PHI)
    shocks = rest[1:] - phi * rest[:-1]
    shock_variance = float(shocks @ shocks) / max(size - 1 - means, 1)
    return Noise(math.sqrt(power / (size - means)), phi, shock_variance / (1.0 - phi) ** 2)


@dataclass(frozen=True)
class CalibratedPenalty:
    """A penalty that identical runs, in which nothing happened, did not reach.

    Attributes
    ----------
    no_change
        Of each run, its no-change penalty in units of its variance. Of the same metric and sampling, and about as
        long as the series to be judged.
    false_alarms
        How often a further such run may show a change.
    """

    no_change: tuple[float, ...]
    false_alarms: float = 0.03

    MIN_RUNS = 10

    def __post_init__(self) -> None:
        if len(self.no_change) < self.MIN_RUNS or not all(each > 0 for each in self.no_change):
            raise ValueError(
                f"no_change: expected at least {self.MIN_RUNS} numbers above 0, found {len(self.no_change)}"
            )

    @classmethod
    def learn(cls, runs: Sequence[FloatArray]) -> CalibratedPenalty:
        """From the values of at least 10 identical runs, all finite, each of shape (n,)."""
        return cls(tuple(no_change_of(run) for run in runs))

    @property
    def factor(self) -> float:
        """The penalty in units of a series' variance.

        The larger of the largest seen, and of the bound that the next run stays below but for `false_alarms` of the
        cases if logarithms are normal: the largest of k alone is exceeded by one run in k + 1.
        """
        logs = np.log(self.no_change)
        runs = logs.size
        quantile = float(student_t.ppf(1.0 - self.false_alarms, runs - 1))
        bound = float(logs.mean()) + quantile * float(logs.std(ddof=1)) * math.sqrt(1.0 + 1.0 / runs)
        return math.exp(max(bound, float(logs.max())))


def no_change_of(values: FloatArray) -> float:
    """The no-change penalty of a run in which nothing happened, in units of its variance; NaN where it has none."""
    variance = first_noise(values).sd ** 2
    return no_change_penalty(values) / variance if variance > 0 else math.nan


def best_split_noise(values: FloatArray) -> Noise:
    """Noise around the best single split: a step in the middle must not pass for noise."""
    return estimate_noise(values, best_splits(values, 1))


def best_splits(values: FloatArray, splits: int) -> tuple[int, ...]:
    """The best split, then the best split of one of its sides, and so on (binary segmentation)."""
    changes: list[int] = []
    for _ in range(splits):
        edges = (0, *sorted(changes), values.size)
        gains = [(a + 1, split_gains(values[a:b])) for a, b in pairwise(edges) if b - a > 1]
        if gains:
            first, best = max(gains, key=lambda each: float(each[1].max()))
            changes.append(first + int(best.argmax()))
    return tuple(sorted(changes))


def first_noise(values: FloatArray) -> Noise:
    """Noise before any change is known: around the best split, or that of what is left without outlying stretches.

    A high spike leaves so much around any single split that it would hide itself.
    """
    noise = best_split_noise(values)
    away = np.abs(values - np.median(values))
    calm = away <= OUTLYING * 1.4826 * np.median(away)
    if calm.all() or calm.sum() < max(CALM * values.size, 3):
        return noise
    return min(noise, best_split_noise(values[calm]), key=lambda each: each.long_run_variance)


OUTLYING = 6.0
"""Robust standard deviations from the median beyond which samples are left out of the first look at the noise ..."""
CALM = 0.6
"""... unless less than this part of the samples remained: then nothing is the usual level."""
_ROUNDING = 1e-9
"""What gains less than this part of a series' whole sum of squares may come from rounding."""


@dataclass(frozen=True)
class DetectedChanges:
    """Changes of a series that are more than its noise.

    Attributes
    ----------
    segmentation
        Where they are.
    penalty
        What each had to gain, in the series' unit squared.
    noise
        What they leave over.
    calibrated
        Whether the penalty was learned from identical runs.
    """

    segmentation: Segmentation
    penalty: float
    noise: Noise
    calibrated: bool


@dataclass(frozen=True)
class DetectChanges:
    """Changes of the mean at a known rate of false alarms.

    The noise is estimated around the best split at first (and the best two, or steps of a staircase would pass for
    noise), then around the changes found, until these stay the same. The penalty without calibration is
    ``per_variance + per_independent / m`` long-run variances, for a series worth m independent samples. The numbers
    were chosen so that at most 5 % of AR(1) series of 60 to 1080 samples with phi of 0 to 0.9 (400 each, seed
    20240501) show a change, and two splits add less than 1 % (300 each, seed 20240503); short series with a long memory
    show up to 10 %.
    """

    per_variance: float = 12.0
    per_independent: float = 40.0
    two_per_variance: float = 20.0
    two_per_independent: float = 600.0
    calibration: CalibratedPenalty | None = None
    shortest: int = 12
    """Shorter series have no changes: there is nothing to estimate their noise from."""
    rounds: int = 5
    find: FindChanges = field(default_factory=FindChanges)

    def __call__(self, values: FloatArray, *, resolution: float = 0.0) -> DetectedChanges:
        """Detect the changes of `values`, shape (n,), all finite.

        Parameters
        ----------
        resolution
            The step in which values were read, where it is known: noise is never taken for smaller than that makes it.
        """
        found = Segmentation((), 0.0)
        if values.size < self.shortest:
            return DetectedChanges(found, math.inf, estimate_noise(values, ()), self.calibration is not None)
        noise, penalty = estimate_noise(values, ()), math.inf
        least = _ROUNDING * float(((values - values.mean()) ** 2).sum()) + 1e-300
        for i in range(self.rounds):
            trial = self.penalty(noise, values.size, resolution) if i else self.first_penalty(values, resolution)
            trial = max(trial, least)
            if not trial < penalty:
                break
            again = self.find(values, trial)
            same = again.changes == found.changes
            found, penalty = again, trial
            noise = estimate_noise(values, found.changes)
            if same or len(found.changes) > values.size // self.shortest:
                break
        return DetectedChanges(found, penalty, noise, self.calibration is not None)

    def first_penalty(self, values: FloatArray, resolution: float = 0.0) -> float:
        """What a change must gain as long as none is known: by the noise around one split, or around two."""
        one = self.penalty(first_noise(values), values.size, resolution)
        if self.calibration is not None:
            return one
        stairs = replace(self, per_variance=self.two_per_variance, per_independent=self.two_per_independent)
        return min(one, stairs.penalty(estimate_noise(values, best_splits(values, 2)), values.size, resolution))

    def penalty(self, noise: Noise, size: int, resolution: float = 0.0) -> float:
        """What a change must gain in a series of `size` samples with this noise."""
        rounding = resolution**2 / 12.0  # the variance of rounding
        if self.calibration is not None:
            return self.calibration.factor * (noise.sd**2 + rounding)
        independent = size * (1.0 - noise.phi) / (1.0 + noise.phi)
        return (self.per_variance + self.per_independent / independent) * (noise.long_run_variance + rounding)
