"""Standard errors of means of autocorrelated samples, and robust standard deviations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from buildcompare.recordings.recording import FloatArray

STRONGEST = 0.99
"""Bound on the autoregression before colouring again, as Andrews & Monahan advise (section 3)."""
LONGEST_LAG = 60
"""Bound on the lags of the residuals: an hour's samples rarely carry information on longer ones."""
FEWEST = 10
"""Fewer numbers carry no information on their own correlation."""
HIGHEST_PHI = 0.97
"""Above it a series of an hour cannot be told from one that wanders without a level."""
MAD_TO_SD = 1.0 / 0.6745
"""Median absolute deviation to standard deviation, for a normal distribution (Rousseeuw & Croux 1993, JASA 88)."""
_BLOCK = 256
"""Series treated at a time, so that their samples stay in the processor's cache."""


def robust_sd(deviations: npt.ArrayLike) -> float:
    """Standard deviation from the median of absolute `deviations`, for a normal distribution."""
    return MAD_TO_SD * float(np.median(np.abs(deviations)))


@dataclass(frozen=True)
class RunMeans:
    """What each of k series is worth, shape (k,) each; NaN where that is unknown."""

    mean: FloatArray
    se: FloatArray  # standard error of the mean; NaN with fewer than `FEWEST` numbers
    n_effective: FloatArray  # how many independent samples would know the mean as well, at most all of them


def mean_with_error(values: npt.ArrayLike) -> RunMeans:
    """Means of k autocorrelated series of n equidistant samples, shape (k, n) or (n,), where a NaN is a gap.

    AR(1)-prewhitened HAC (Andrews & Monahan 1992, Econometrica 60) with the Bartlett kernel and the automatic bandwidth
    of Andrews (1991), Econometrica 59, equations 6.2 and 6.4. By hand, as statsmodels' ``cov_hac`` does not prewhiten,
    takes one series at a time and has a small-sample bias.
    """
    table = np.atleast_2d(np.asarray(values, dtype=np.float64))
    parts = [_block(table[i : i + _BLOCK]) for i in range(0, len(table), _BLOCK)]
    return RunMeans(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _block(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    known = np.isfinite(values)
    count = known.sum(axis=1).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, values, 0.0).sum(axis=1) / count
        centred = np.where(known, values - mean[:, None], 0.0)
        squares = np.einsum("ij,ij->i", centred, centred)
        both = known[:, 1:] & known[:, :-1]
        earlier = np.where(both, centred[:, :-1], 0.0)
        rho = _lagged(centred, 1) / np.einsum("ij,ij->i", earlier, earlier)
        rho = np.clip(np.nan_to_num(rho), -STRONGEST, STRONGEST)
        residuals = np.where(both, centred[:, 1:] - rho[:, None] * centred[:, :-1], 0.0)
        innovations = _kernel_sum(residuals, np.maximum(both.sum(axis=1).astype(np.float64), 1.0))
        # The estimate of rho has bias -(1 + 3 rho) / n (Marriott & Pope 1954, Biometrika 41) and variance
        # (1 - rho^2) / n: by this factor 1 / (1 - rho)^2 is too small, to second order.
        bias = np.maximum(1.0 + (1.0 - 3.0 * rho) / (count * (1.0 - rho)), 0.5)
        long_run = innovations / (1.0 - rho) ** 2 / bias
        variance = squares / count
        enough = count >= FEWEST
        se = np.where(enough, np.sqrt(long_run / count), np.nan)
        n_effective = np.where(long_run > 0, np.minimum(count * variance / long_run, count), count)
    return mean, se, np.where(enough, n_effective, np.nan)


def _kernel_sum(residuals: FloatArray, pairs: FloatArray) -> FloatArray:
    """Long-run variance of `residuals`: Bartlett-weighted autocovariances up to the automatic bandwidth."""
    variance = np.einsum("ij,ij->i", residuals, residuals) / pairs
    r = np.clip(np.nan_to_num(_lagged(residuals, 1) / (variance * pairs)), -STRONGEST, STRONGEST)
    alpha = 4.0 * r**2 / ((1.0 - r) ** 2 * (1.0 + r) ** 2)
    limit = min(LONGEST_LAG, max(residuals.shape[1] // 4, 1))
    bandwidth = np.minimum(1.1447 * np.cbrt(alpha * pairs), limit)
    total = variance.copy()
    for lag in range(1, int(np.max(bandwidth, initial=0.0)) + 1):
        wide = bandwidth > lag
        weight = 1.0 - lag / (bandwidth[wide] + 1.0)
        total[wide] += 2.0 * weight * _lagged(residuals[wide], lag) / pairs[wide]
    return np.asarray(np.maximum(total, 0.0), dtype=np.float64)


def _lagged(values: FloatArray, lag: int) -> FloatArray:
    return np.asarray(np.einsum("ij,ij->i", values[:, lag:], values[:, :-lag]), dtype=np.float64)


@dataclass(frozen=True)
class Ar1Noise:
    """Noise of a series around the means of its segments."""

    sd: float
    phi: float  # correlation of neighbouring samples (0 to `HIGHEST_PHI`), corrected for the small-sample bias
    long_run_variance: float  # n times the variance of a mean of n samples, for large n

    def mean_variance(self, size: int) -> float:
        """Variance of the mean of `size` successive samples."""
        lags = np.arange(1, min(size, 200))
        return self.sd**2 / size * (1.0 + 2.0 * float(((1.0 - lags / size) * self.phi**lags).sum()))


def ar1_noise(values: FloatArray, changes: tuple[int, ...] = ()) -> Ar1Noise:
    """Noise of `values`, shape (n,), around the means of the segments between `changes`."""
    size, means = values.size, len(changes) + 1
    rest = values - segment_means(values, changes)
    power = float(rest @ rest)
    if size <= means + 1 or power <= size * np.finfo(float).eps * float(values @ values) / max(size, 1):
        return Ar1Noise(0.0, 0.0, 0.0)
    # The bias of phi is -(1 + 3 phi) / n with one mean (Marriott & Pope 1954); each further one costs (1 + phi) / n.
    raw = float(rest[1:] @ rest[:-1]) / power
    phi = min(max(raw + (means * (1.0 + raw) + 2.0 * raw) / size, 0.0), HIGHEST_PHI)
    shocks = rest[1:] - phi * rest[:-1]
    shock_variance = float(shocks @ shocks) / max(size - 1 - means, 1)
    return Ar1Noise(math.sqrt(power / (size - means)), phi, shock_variance / (1.0 - phi) ** 2)


def segment_means(values: FloatArray, changes: tuple[int, ...]) -> FloatArray:
    """At each of `values` the mean of its segment, shape (n,); each of `changes` begins one."""
    starts = np.array((0, *changes))
    counts = np.diff(np.append(starts, values.size))
    return np.asarray(np.repeat(np.add.reduceat(values, starts) / counts, counts), dtype=np.float64)
