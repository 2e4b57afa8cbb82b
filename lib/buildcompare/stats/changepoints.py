"""Find changes of the mean of an autocorrelated series, by an exact search with a penalty for each change.

A penalty for independent samples would find changes in the slow fluctuations of a load test's metric. So the penalty is
learned from identical runs, or else is proportional to the long-run variance of the residuals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from buildcompare.recordings.recording import FloatArray
from buildcompare.stats.levels import FEWEST, ROUNDED

PENALTY = 12.0, 40.0
"""Penalty, if not calibrated: (first number + second number / effective sample size) * long-run variance. Of unchanged
AR(1) series (60 to 1080 samples, autocorrelation 0 to 0.9), up to 5 % show a change, or 12 % if short with 0.9."""
PENALTY_OF_TWO = 20.0, 600.0  # like `PENALTY`, for noise around three preliminary segments instead of two
HIGHEST_PHI = 0.97  # maximum lag-1 autocorrelation of noise; above it, a series of an hour looks like a random walk
CHANGE_PHI = 0.93
"""Maximum lag-1 autocorrelation of noise in series from other sources than load tests. On them, this value has a better
covering score than `HIGHEST_PHI` (0.73, not 0.71). In load tests, 11 instead of 9 of 31 identical pairs show events."""
MAD_TO_SD = 1.0 / 0.6745
"""Standard deviation / median absolute deviation of a normal distribution (Rousseeuw & Croux 1993, JASA 88)."""
CALIBRATION_RUNS = 10  # minimum number of identical runs from which a penalty is learned
FALSE_ALARMS = 0.03  # maximum probability that a calibrated penalty finds a change in a run without changes
OUTLYING, BESIDE = 6.0, 2
"""An outlier is over `OUTLYING` robust standard deviations from the median of itself and `BESIDE` samples on each side.
At most 2 % of AR(1) series (70 to 1080 samples, autocorrelation 0 to 0.9) contain an outlier; with 0.95, 3 % do."""


def robust_sd(deviations: npt.ArrayLike) -> float:
    """Estimate the standard deviation of normal `deviations` from their median absolute value; NaN if empty."""
    absolute = np.abs(deviations)
    return MAD_TO_SD * float(np.median(absolute)) if absolute.size else math.nan


@dataclass(frozen=True)
class Ar1Noise:
    """Noise of a series around the means of its segments."""

    sd: float = 0.0
    phi: float = 0.0  # lag-1 autocorrelation, 0 to `highest_phi`, corrected for small-sample bias
    long_run_variance: float = 0.0  # limit of n times the variance of a mean of n samples

    def mean_variance(self, size: int) -> float:
        """Variance of the mean of `size` successive samples."""
        lags = np.arange(1, min(size, 200))
        return self.sd**2 / size * (1.0 + 2.0 * float(((1.0 - lags / size) * self.phi**lags).sum()))


def ar1_noise(values: FloatArray, changes: tuple[int, ...] = (), highest_phi: float = HIGHEST_PHI) -> Ar1Noise:
    """Noise of `values`, shape (n,), around the means of the segments between `changes`."""
    size, means = values.size, len(changes) + 1
    rest = values - segment_means(values, changes)
    power = float(rest @ rest)
    if size <= means + 1 or power <= size * np.finfo(float).eps * float(values @ values) / max(size, 1):
        return Ar1Noise()
    # The bias of phi is -(1 + 3 phi) / n with one mean (Marriott & Pope 1954); each further mean adds -(1 + phi) / n.
    raw = float(rest[1:] @ rest[:-1]) / power
    phi = min(max(raw + (means * (1.0 + raw) + 2.0 * raw) / size, 0.0), highest_phi)
    shocks = rest[1:] - phi * rest[:-1]
    shock_variance = float(shocks @ shocks) / max(size - 1 - means, 1)
    return Ar1Noise(math.sqrt(power / (size - means)), phi, shock_variance / (1.0 - phi) ** 2)


def segment_means(values: FloatArray, changes: tuple[int, ...]) -> FloatArray:
    """Mean of each value's segment, shape (n,); `changes` are indices at which new segments begin."""
    starts = np.array((0, *changes))
    counts = np.diff(np.append(starts, values.size))
    return np.asarray(np.repeat(np.add.reduceat(values, starts) / counts, counts), dtype=np.float64)


@dataclass(frozen=True)
class Changepoints:
    """Changes of the mean of a series beyond its noise."""

    changes: tuple[int, ...]  # index of the first sample of each segment after the first, increasing
    penalty: float  # minimum gain of a change (see `split_gains`), in the series' unit squared
    noise: Ar1Noise  # noise of the series around the means of its segments
    calibrated: bool = False  # True if the penalty was learned from identical runs


def penalty_factor(no_change: Sequence[float]) -> float:
    """Penalty for each change as a multiple of the noise variance, learned from runs without changes.

    `no_change` holds, for each of at least `CALIBRATION_RUNS` runs of similar length, the smallest multiple at which
    the run shows no change. The result is the maximum of `no_change`, or a log-normal bound if that is higher. A new
    run exceeds the maximum of k runs with probability 1 / (k + 1), and the bound with probability `FALSE_ALARMS`.
    """
    count = len(no_change)
    if count < CALIBRATION_RUNS or not all(each > 0 for each in no_change):
        raise ValueError(f"no_change: expected at least {CALIBRATION_RUNS} numbers above 0, found {count}")
    logs = np.log(no_change)
    reach = float(stdtrit(count - 1, 1.0 - FALSE_ALARMS)) * math.sqrt(1.0 + 1.0 / count)
    return math.exp(max(float(logs.mean()) + reach * float(logs.std(ddof=1)), float(logs.max())))


def changepoints(values: npt.ArrayLike, *, factor: float | None = None, cautious: bool = False) -> Changepoints:
    """Find the changes of the mean of a series at a known rate of false alarms.

    Parameters
    ----------
    values
        Shape (n,), equidistant, all finite. Take logarithms of a metric that varies in proportion to its level.
        Outliers of one or two samples do not count as a change, unless `cautious` keeps the outliers.
    factor
        Penalty for each change as a multiple of the noise variance, learned by :func:`penalty_factor`. By default, the
        penalty is computed from the noise of `values` around the means of preliminary segments.
    cautious
        For metrics of load tests after removal of spikes: allow a higher autocorrelation, and keep outliers.

    Returns
    -------
    Changepoints
        The first sample of each new level, the penalty and the noise.

    Raises
    ------
    ValueError
        If a value is not finite.

    References
    ----------
    Jackson et al. (2005), IEEE Signal Processing Letters 12. Lavielle & Moulines (2000), Journal of Time Series
    Analysis 21 (the penalty under autocorrelation).

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> changepoints(rng.normal(size=60) + np.repeat([100.0, 104.0], 30)).changes
    (30,)
    """
    series = _checked(values) if cautious else without_outliers(_checked(values))
    highest_phi = HIGHEST_PHI if cautious else CHANGE_PHI
    changes: tuple[int, ...] = ()
    penalty = math.inf
    # Minimum penalty: smaller gains may be floating-point errors.
    least = ROUNDED * float(((series - series.mean()) ** 2).sum()) + 1e-300
    for first in (True, False) if series.size >= FEWEST else ():  # two rounds of estimation; a third changes nothing
        around = best_splits(series, 1) if first else changes
        if factor is not None:
            trial = factor * ar1_noise(series, around).sd ** 2
        else:
            tried = [(around, *PENALTY), (best_splits(series, 2), *PENALTY_OF_TWO)]
            trial = math.inf
            for splits, per_variance, per_independent in tried if first else tried[:1]:
                noise = ar1_noise(series, splits, highest_phi)
                independent = series.size * (1.0 - noise.phi) / (1.0 + noise.phi)  # effective sample size
                variances = per_variance + per_independent / independent
                trial = min(trial, variances * noise.long_run_variance)
        if max(trial, least) < penalty and len(changes) <= series.size // FEWEST:
            penalty = max(trial, least)
            changes = best_segmentation(series, penalty)
    return Changepoints(changes, penalty, ar1_noise(series, changes), factor is not None)


def best_segmentation(values: npt.ArrayLike, penalty: float) -> tuple[int, ...]:
    """Find the changes of the mean that minimise the residual sum of squares plus a penalty for each change.

    Optimal partitioning: with cumulated sums S, let G(t) be the lowest cost of the first t samples minus the sum of
    their squares, and G(0) = -penalty: ``G(t) = min over r < t of G(r) + penalty - (S_t - S_r)**2 / (t - r)``.

    Parameters
    ----------
    values
        Shape (n,), equidistant, all finite.
    penalty
        Above 0, in the unit of `values` squared; :func:`changepoints` chooses one that noise rarely reaches.

    Returns
    -------
    tuple of int
        The first sample of every segment but the first.

    References
    ----------
    Jackson et al. (2005), IEEE Signal Processing Letters 12.

    Examples
    --------
    >>> best_segmentation([1.0, 1.1, 0.9, 3.0, 3.1, 2.9], 0.5)
    (3,)
    """
    series = _checked(values)
    if not penalty > 0:
        raise ValueError(f"penalty: expected a number above 0, found {penalty}")
    if series.size < 2:
        return ()
    sums = np.concatenate([[0.0], np.cumsum(series - series.mean())])
    gains, last = np.empty(sums.size), np.zeros(sums.size, dtype=np.int64)
    gains[0] = penalty
    for end in range(1, sums.size):
        trials = gains[:end] + (sums[end] - sums[:end]) ** 2 / np.arange(end, 0, -1)
        last[end] = trials.argmax()
        gains[end] = trials[last[end]] - penalty
    changes = [int(last[-1])]
    while changes[-1] > 0:
        changes.append(int(last[changes[-1]]))
    return tuple(reversed(changes[:-1]))


def running_median(values: FloatArray, beside: int) -> FloatArray:
    """Median of each value and `beside` values on each side, shape (n,); end values are repeated beyond the ends."""
    if not values.size:
        return values
    around = np.lib.stride_tricks.sliding_window_view(np.pad(values, beside, mode="edge"), 2 * beside + 1)
    return np.asarray(np.partition(around, beside, axis=1)[:, beside])


def without_outliers(values: FloatArray) -> FloatArray:
    """Replace outliers by the median of the samples around them (Hampel filter, Pearson 2002, IEEE Trans. CST 10)."""
    around = running_median(values, BESIDE)
    limit = OUTLYING * robust_sd(values - around)
    return np.where((limit > 0) & (np.abs(values - around) > limit), around, values)


def split_gains(values: FloatArray) -> FloatArray:
    """Reduction of the sum of squares by one split before sample 1, 2, ..., n - 1; shape (n - 1,)."""
    size = values.size
    sums = np.cumsum(values - values.mean())[:-1]
    left = np.arange(1, size)
    return np.asarray(sums**2 * (size / (left * (size - left))), dtype=np.float64)


def best_splits(values: FloatArray, splits: int) -> tuple[int, ...]:
    """Find splits one after another, each with the largest gain (binary segmentation); return sorted indices."""
    changes: list[int] = []
    for _ in range(splits):
        edges = (0, *sorted(changes), values.size)
        gains = [(a + 1, split_gains(values[a:b])) for a, b in pairwise(edges) if b - a > 1]
        if gains:
            first, best = max(gains, key=lambda each: float(each[1].max()))
            changes.append(first + int(best.argmax()))
    return tuple(sorted(changes))


def _checked(values: npt.ArrayLike) -> FloatArray:
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1 or not np.isfinite(series).all():
        raise ValueError(f"values: expected finite numbers of shape (n,), found shape {series.shape} or NaN")
    return series
