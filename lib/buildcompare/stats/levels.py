"""Measure the level of a metric over a window, with a standard error for autocorrelated samples."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from buildcompare.recordings.recording import FloatArray

STRONGEST = 0.99  # maximum absolute autoregressive coefficient (Andrews & Monahan 1992, section 3)
LONGEST_LAG = 60  # maximum bandwidth in samples; an hour of samples says little about longer lags
FEWEST = 12  # minimum number of samples to estimate noise and its autocorrelation
HARDLY_COVERED = 0.5  # minimum fraction of the expected samples for a minute's mean, and for a valid run
MINUTE_S = 60.0  # time range of rate queries, in seconds; rates that are closer in time share data
SHOWS_S = 120.0  # a sudden change takes this long to pass through minute means of one-minute rates
ROUNDED = 1e-9  # relative size below which a difference may be a rounding error
LARGEST = 1e100  # maximum absolute sample, so that squares cannot overflow; larger samples are omitted or scaled down


@dataclass(frozen=True)
class Level:
    """Level of a metric over a window of one run."""

    value: float | None  # mean (geometric if requested); None if no sample is usable
    mean: float | None  # arithmetic mean of the same samples; None if no sample is usable
    samples: int
    missing: int  # samples that are absent, NaN or infinite; for a geometric mean also those not above zero
    se_log: float = math.nan  # standard error of the logarithm of `value`, from the samples of this run
    n_effective: float = math.nan  # number of independent samples with the same standard error
    seconds: float = math.nan  # length of the window times the share of usable samples


def measure_level(series: pd.Series, window: tuple[float, float], *, geometric: bool = False) -> Level:
    """Measure the level of a metric over a window.

    Parameters
    ----------
    series
        The metric, indexed by elapsed seconds; samples that are not finite are left out and counted as missing.
    window
        Elapsed seconds; samples after ``window[0]`` up to ``window[1]`` count.
    geometric
        Take the geometric mean. Response times are skewed, so a few peaks would dominate their arithmetic mean.

    Returns
    -------
    Level
        The level with its standard error within the run (Andrews & Monahan 1992, Econometrica 60).

    Examples
    --------
    >>> cpu = pd.Series([10.0, 30.0, 40.0, 50.0, float("nan")] * 20, index=range(0, 500, 5))
    >>> level = measure_level(cpu, (100.0, 400.0))
    >>> level.value, level.samples, level.missing
    (32.5, 48, 12)
    """
    return level_of_samples(series.index.to_numpy(), series.to_numpy(dtype=np.float64), window, geometric=geometric)


def level_of_samples(
    elapsed: FloatArray, samples: FloatArray, window: tuple[float, float], *, geometric: bool = False
) -> Level:
    """Measure the level of a metric over a window, from its elapsed seconds and samples of shape (n,)."""
    inside = (elapsed > window[0]) & (elapsed <= window[1])
    values = samples[inside]
    usable = np.isfinite(values) & ((values > 0) | (not geometric))
    finite = values[usable]
    step = float(np.median(np.diff(elapsed))) if elapsed.size > 1 else math.nan
    expected = round((window[1] - window[0]) / step) if step > 0 else values.size
    missing = max(expected, values.size) - int(finite.size)
    if not finite.size:
        return Level(None, None, 0, missing)
    mean = float(finite.mean())
    scaled = np.log(finite) if geometric else finite
    grid = scaled
    if step > 0:  # put the samples on an equidistant grid, with NaN for missing ones
        at = elapsed[inside][usable]
        places = np.rint((at - at[0]) / step).astype(np.int64)
        sparse = places[-1] >= 4 * places.size + 100  # too few samples to estimate their autocorrelation
        grid = np.full(1 if sparse else places[-1] + 1, np.nan)
        if not sparse:
            grid[places] = scaled
    _, se, n_effective = mean_with_error(grid)
    value = math.exp(float(scaled.mean())) if geometric else mean
    se_log = se if geometric else se / mean if mean > 0 else math.nan
    covered = (window[1] - window[0]) * finite.size / (finite.size + missing)
    return Level(value, mean, int(finite.size), missing, se_log, n_effective, covered)


def minute_means(
    elapsed: FloatArray,
    values: FloatArray,
    *,
    start_s: float = 0.0,
    count: int | None = None,
    width_s: float = MINUTE_S,
    closed: Literal["left", "right"] = "left",
    least: float = 1.0,
) -> FloatArray:
    """Average the finite samples of each interval of `width_s` from `start_s` on; NaN with fewer than `least` samples.

    The result has `count` values, by default one for each interval up to the last sample. A sample on a boundary
    belongs to the later interval if `closed` is ``left``, and to the earlier interval if `closed` is ``right``.

    >>> minute_means(np.array([0.0, 30.0, 60.0, 190.0]), np.array([1.0, 3.0, 5.0, 7.0])).tolist()
    [2.0, 5.0, nan, 7.0]
    """
    place = (elapsed - start_s) / width_s
    minute = (np.floor(place) if closed == "left" else np.ceil(place - 1e-9) - 1.0).astype(np.int64)
    if count is None:
        count = max(int(minute.max(initial=-1)) + 1, 0)
    used = np.isfinite(values) & (minute >= 0) & (minute < count)
    samples = np.bincount(minute[used], minlength=count)
    sums = np.bincount(minute[used], values[used], count)
    return np.where(samples >= max(least, 1.0), sums / np.maximum(samples, 1), np.nan)


def mean_of_runs(values: Iterable[float | None], *, geometric: bool = False) -> float | None:
    """Mean of the values that are not None; None if there are no such values.

    With `geometric`, the result is the geometric mean if all values are above zero, else the arithmetic mean.
    """
    numbers = [value for value in values if value is not None]
    if geometric and numbers and 0.0 < min(numbers) < max(numbers):
        return math.exp(math.fsum(map(math.log, numbers)) / len(numbers))
    return math.fsum(numbers) / len(numbers) if numbers else None


def delta_percent(base: float | None, new: float | None) -> float | None:
    """Change from `base` to `new` in percent; None if a level is unknown or negative, or `base` is (almost) zero."""
    if base is None or new is None or base <= 0 or new < 0:
        return None
    delta = (new / base - 1.0) * 100.0
    return delta if math.isfinite(delta) else None


def mean_with_error(values: FloatArray) -> tuple[float, float, float]:
    """Return the mean of equidistant samples (NaN marks a gap), its standard error, and the effective sample size.

    The error comes from an AR(1)-prewhitened HAC estimator (Andrews & Monahan 1992, Econometrica 60) with the Bartlett
    kernel and the automatic bandwidth of Andrews (1991), Econometrica 59, equations 6.2 and 6.4. ``cov_hac`` of
    statsmodels does not prewhiten and has a small-sample bias. Error and size are NaN with fewer than `FEWEST` samples.
    """
    finite = np.isfinite(values)
    count = int(finite.sum())
    mean = float(values[finite].mean()) if count else math.nan
    if count < FEWEST:
        return mean, math.nan, math.nan
    centred = np.where(finite, values - mean, 0.0)
    both = finite[1:] & finite[:-1]
    earlier, pairs = np.where(both, centred[:-1], 0.0), max(int(both.sum()), 1)
    rho = _bounded(float(centred[1:] @ earlier), float(earlier @ earlier))
    residuals = np.where(both, centred[1:] - rho * centred[:-1], 0.0)
    # Long-run variance of the residuals: Bartlett-weighted autocovariances up to the automatic bandwidth.
    innovations = float(residuals @ residuals) / pairs
    r = _bounded(float(residuals[1:] @ residuals[:-1]), innovations * pairs)
    alpha = 4.0 * r**2 / ((1.0 - r) ** 2 * (1.0 + r) ** 2)
    bandwidth = min(1.1447 * float(np.cbrt(alpha * pairs)), LONGEST_LAG, max(residuals.size // 4, 1))
    for lag in range(1, math.ceil(bandwidth)):
        innovations += 2.0 * (1.0 - lag / (bandwidth + 1.0)) * float(residuals[lag:] @ residuals[:-lag]) / pairs
    # The estimate of rho has bias -(1 + 3 rho) / n (Marriott & Pope 1954, Biometrika 41) and variance (1 - rho^2) / n.
    # To second order, errors of rho multiply the mean of 1 / (1 - rho)^2 by `bias`. Therefore divide by `bias`.
    bias = max(1.0 + (1.0 - 3.0 * rho) / (count * (1.0 - rho)), 0.5)
    long_run = max(innovations, 0.0) / (1.0 - rho) ** 2 / bias
    n_effective = float(centred @ centred) / long_run if long_run > 0 else math.inf
    return mean, math.sqrt(long_run / count), min(n_effective, float(count))


def _bounded(products: float, squares: float) -> float:
    """Return the coefficient `products / squares`, limited to +-`STRONGEST`; 0 if `squares` is 0."""
    return min(max(products / squares, -STRONGEST), STRONGEST) if squares > 0 else 0.0
