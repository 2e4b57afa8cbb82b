"""Measure the level of a metric over a window with its standard error: samples are correlated over minutes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildcompare.recordings.recording import FloatArray

STRONGEST = 0.99  # bound on the autoregression before colouring again, as Andrews & Monahan advise (section 3)
LONGEST_LAG = 60  # bound on the lags of the residuals: an hour's samples rarely carry information on longer ones
FEWEST = 10  # fewer numbers carry no information on their own correlation
_BLOCK = 256  # series treated at a time, so that their samples stay in the processor's cache


@dataclass(frozen=True)
class Level:
    """Level of a metric over a window of one run."""

    value: float | None  # the mean, or for times the geometric mean; None where the window holds no number
    mean: float | None  # the arithmetic mean of the same samples
    samples: int
    missing: int  # samples that were NaN, infinite or absent (and, for times, not above zero)
    se_log: float = math.nan  # standard error of the logarithm of `value` within this run
    n_effective: float = math.nan  # how many independent samples would know it as well
    seconds: float = math.nan  # what the samples cover: the window without its gaps


def measure_level(series: pd.Series, window: tuple[float, float], *, geometric: bool = False) -> Level:
    """Measure the level of a metric over a window.

    Parameters
    ----------
    series
        The metric, indexed by elapsed seconds; samples that are no number are left out and counted.
    window
        Elapsed seconds; samples after ``window[0]`` up to ``window[1]`` count.
    geometric
        Take the geometric mean, as for times (above zero): of skewed ones a few peaks decide the arithmetic mean.

    Returns
    -------
    Level
        The level with its standard error within the run (Andrews & Monahan 1992, Econometrica 60).

    Examples
    --------
    >>> cpu = pd.Series([10.0, 30.0, 40.0, 50.0, float("nan")] * 20, index=range(0, 500, 5))
    >>> found = measure_level(cpu, (100.0, 400.0))
    >>> found.value, found.samples, found.missing
    (32.5, 48, 12)
    """
    inside = series[(series.index > window[0]) & (series.index <= window[1])]
    values = inside.to_numpy(dtype=np.float64)
    usable = np.isfinite(values) & ((values > 0) | (not geometric))
    finite = values[usable]
    step = float(np.median(np.diff(series.index.to_numpy()))) if len(series) > 1 else math.nan
    expected = round((window[1] - window[0]) / step) if step > 0 else values.size
    missing = max(expected, values.size) - int(finite.size)
    if not finite.size:
        return Level(None, None, 0, missing)
    mean = float(finite.mean())
    scaled = np.log(finite) if geometric else finite
    grid = scaled
    if step > 0:  # at equal distances, NaN where a sample is missing
        elapsed = inside.index.to_numpy()[usable]
        places = np.rint((elapsed - elapsed[0]) / step).astype(np.int64)
        endless = places[-1] >= 4 * places.size + 100  # hardly any samples: their grid says nothing
        grid = np.full(1 if endless else places[-1] + 1, np.nan)
        if not endless:
            grid[places] = scaled
    worth = mean_with_error(grid)
    value = math.exp(float(scaled.mean())) if geometric else mean
    se = float(worth.se[0]) if geometric else float(worth.se[0]) / mean if mean > 0 else math.nan
    covered = (window[1] - window[0]) * finite.size / (finite.size + missing)
    return Level(value, mean, int(finite.size), missing, se, float(worth.n_effective[0]), covered)


def mean_of_runs(values: Sequence[float | None]) -> float | None:
    """The level of a build: the mean over those of its runs that have one."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def delta_percent(base: float | None, new: float | None) -> float | None:
    """Change of `new` against `base` in percent, from unrounded values; None where it has no meaning."""
    if base is None or new is None or base == 0:
        return None
    delta = (new / base - 1.0) * 100.0
    return delta if math.isfinite(delta) else None


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
