"""How exactly does one run know its own mean? Samples that follow each other are not independent.

Samples of a load test are correlated over minutes, so their number says little about what the mean is worth.
The long-run variance comes from the estimator of Andrews and Monahan: whiten by a first-order autoregression,
sum the weighted autocovariances of what is left, colour again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from buildcompare.recordings.recording import FloatArray

_BLOCK = 256
"""Series treated at a time, so that their samples stay in the processor's cache."""


@dataclass(frozen=True)
class RunMeans:
    """What each of k series is worth.

    Attributes
    ----------
    mean
        Shape (k,); NaN where a series has no number.
    se
        Standard error of the mean, shape (k,); NaN with fewer than `StandardError.fewest` numbers.
    n_effective
        How many independent samples would know the mean as well, shape (k,), at most the number of samples.
    """

    mean: FloatArray
    se: FloatArray
    n_effective: FloatArray


@dataclass(frozen=True)
class StandardError:
    """Standard error of the mean of autocorrelated series: AR(1)-prewhitened HAC.

    Andrews & Monahan (1992), "An improved heteroskedasticity and autocorrelation consistent covariance matrix
    estimator", Econometrica 60, with the Bartlett kernel and the automatic bandwidth of Andrews (1991),
    Econometrica 59, equations 6.2 and 6.4.
    """

    strongest: float = 0.99
    """Bound on the autoregression before colouring again, as Andrews & Monahan advise (section 3)."""
    longest_lag: int = 60
    """Bound on the lags of the residuals: an hour's samples rarely carry information on longer ones."""
    fewest: int = 10
    """Fewer numbers carry no information on their own correlation."""

    def __call__(self, values: npt.ArrayLike) -> RunMeans:
        """Judge `values`, shape (k, n) or (n,): k series of n equidistant samples; a NaN is a gap."""
        table = np.atleast_2d(np.asarray(values, dtype=np.float64))
        parts = [self._block(table[i : i + _BLOCK]) for i in range(0, len(table), _BLOCK)]
        mean, se, n_effective = (np.concatenate([part[i] for part in parts]) for i in range(3))
        return RunMeans(mean, se, n_effective)

    def _block(self, values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        known = np.isfinite(values)
        count = known.sum(axis=1).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(known, values, 0.0).sum(axis=1) / count
            centred = np.where(known, values - mean[:, None], 0.0)
            squares = np.einsum("ij,ij->i", centred, centred)
            both = known[:, 1:] & known[:, :-1]
            earlier = np.where(both, centred[:, :-1], 0.0)
            rho = _lagged(centred, 1) / np.einsum("ij,ij->i", earlier, earlier)
            rho = np.clip(np.nan_to_num(rho), -self.strongest, self.strongest)
            residuals = np.where(both, centred[:, 1:] - rho[:, None] * centred[:, :-1], 0.0)
            innovations = self._kernel_sum(residuals, np.maximum(both.sum(axis=1).astype(np.float64), 1.0))
            long_run = innovations / (1.0 - rho) ** 2 / _bias(rho, count)
            variance = squares / count
            enough = count >= self.fewest
            se = np.where(enough, np.sqrt(long_run / count), np.nan)
            n_effective = np.where(long_run > 0, np.minimum(count * variance / long_run, count), count)
        return mean, se, np.where(enough, n_effective, np.nan)

    def _kernel_sum(self, residuals: FloatArray, pairs: FloatArray) -> FloatArray:
        """Long-run variance of `residuals`: Bartlett-weighted autocovariances up to the automatic bandwidth."""
        variance = np.einsum("ij,ij->i", residuals, residuals) / pairs
        r = np.clip(np.nan_to_num(_lagged(residuals, 1) / (variance * pairs)), -self.strongest, self.strongest)
        alpha = 4.0 * r**2 / ((1.0 - r) ** 2 * (1.0 + r) ** 2)
        limit = min(self.longest_lag, max(residuals.shape[1] // 4, 1))
        bandwidth = np.minimum(1.1447 * np.cbrt(alpha * pairs), limit)
        total = variance.copy()
        for lag in range(1, int(np.max(bandwidth, initial=0.0)) + 1):
            wide = bandwidth > lag
            weight = 1.0 - lag / (bandwidth[wide] + 1.0)
            total[wide] += 2.0 * weight * _lagged(residuals[wide], lag) / pairs[wide]
        return np.asarray(np.maximum(total, 0.0), dtype=np.float64)


@dataclass(frozen=True)
class WithinPair:
    """The difference of two runs, judged by what happened inside these two runs alone.

    It says whether this pair differs, not whether the builds do: see :mod:`buildcompare.stats.noise`.
    """

    standard_error: StandardError = StandardError()

    def __call__(self, base: npt.ArrayLike, new: npt.ArrayLike) -> FloatArray:
        """Two-sided p-values, shape (k,), of k pairs of series, each of shape (k, n) (n may differ)."""
        b, n = self.standard_error(base), self.standard_error(new)
        se = np.hypot(b.se, n.se)
        df = np.maximum(b.n_effective + n.n_effective - 2.0, 1.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            p_values = 2.0 * special.stdtr(df, -np.abs(n.mean - b.mean) / se)
        return np.asarray(p_values, dtype=np.float64)


def _bias(rho: FloatArray, count: FloatArray) -> FloatArray:
    """By what factor 1 / (1 - rho)^2 is too small, to second order.

    The estimate of rho has bias -(1 + 3 rho) / n (Marriott & Pope 1954, Biometrika 41) and variance (1 - rho^2) / n;
    put into the expansion of 1 / (1 - rho)^2 they give 1 + (1 - 3 rho) / (n (1 - rho)).
    """
    return np.asarray(np.maximum(1.0 + (1.0 - 3.0 * rho) / (count * (1.0 - rho)), 0.5), dtype=np.float64)


def _lagged(values: FloatArray, lag: int) -> FloatArray:
    return np.asarray(np.einsum("ij,ij->i", values[:, lag:], values[:, :-lag]), dtype=np.float64)
