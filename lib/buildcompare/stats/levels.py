"""Measure the level of a metric over a window with its standard error: samples are correlated over minutes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from buildcompare.recordings.recording import FloatArray

STRONGEST = 0.99  # bound on the autoregression before colouring again, as Andrews & Monahan advise (section 3)
LONGEST_LAG = 60  # bound on the lags of the residuals: an hour's samples rarely carry information on longer ones
FEWEST = 10  # fewer numbers carry no information on their own correlation


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
    return level_of_samples(series.index.to_numpy(), series.to_numpy(dtype=np.float64), window, geometric=geometric)


def level_of_samples(
    elapsed: FloatArray, samples: FloatArray, window: tuple[float, float], *, geometric: bool = False
) -> Level:
    """What :func:`measure_level` measures, of samples at elapsed seconds, shape (n,) each."""
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
    if step > 0:  # at equal distances, NaN where a sample is missing
        at = elapsed[inside][usable]
        places = np.rint((at - at[0]) / step).astype(np.int64)
        endless = places[-1] >= 4 * places.size + 100  # hardly any samples: their grid says nothing
        grid = np.full(1 if endless else places[-1] + 1, np.nan)
        if not endless:
            grid[places] = scaled
    _, se, n_effective = mean_with_error(grid)
    value = math.exp(float(scaled.mean())) if geometric else mean
    se_log = se if geometric else se / mean if mean > 0 else math.nan
    covered = (window[1] - window[0]) * finite.size / (finite.size + missing)
    return Level(value, mean, int(finite.size), missing, se_log, n_effective, covered)


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


def mean_with_error(values: FloatArray) -> tuple[float, float, float]:
    """Mean of equidistant samples (NaN: a gap), its standard error, and how many independent ones would know as much.

    AR(1)-prewhitened HAC (Andrews & Monahan 1992, Econometrica 60) with the Bartlett kernel and the automatic bandwidth
    of Andrews (1991), Econometrica 59, equations 6.2 and 6.4. By hand, as statsmodels' ``cov_hac`` does not prewhiten
    and has a small-sample bias. The error and the number are NaN with fewer than `FEWEST` samples.
    """
    known = np.isfinite(values)
    count = int(known.sum())
    mean = float(values[known].mean()) if count else math.nan
    if count < FEWEST:
        return mean, math.nan, math.nan
    centred = np.where(known, values - mean, 0.0)
    both = known[1:] & known[:-1]
    earlier, pairs = np.where(both, centred[:-1], 0.0), max(int(both.sum()), 1)
    rho = _bounded(float(centred[1:] @ earlier), float(earlier @ earlier))
    residuals = np.where(both, centred[1:] - rho * centred[:-1], 0.0)
    # Their long-run variance: Bartlett-weighted autocovariances up to the automatic bandwidth.
    innovations = float(residuals @ residuals) / pairs
    r = _bounded(float(residuals[1:] @ residuals[:-1]), innovations * pairs)
    alpha = 4.0 * r**2 / ((1.0 - r) ** 2 * (1.0 + r) ** 2)
    bandwidth = min(1.1447 * float(np.cbrt(alpha * pairs)), LONGEST_LAG, max(residuals.size // 4, 1))
    for lag in range(1, math.ceil(bandwidth)):
        innovations += 2.0 * (1.0 - lag / (bandwidth + 1.0)) * float(residuals[lag:] @ residuals[:-lag]) / pairs
    # The estimate of rho has bias -(1 + 3 rho) / n (Marriott & Pope 1954, Biometrika 41) and variance
    # (1 - rho^2) / n: by this factor 1 / (1 - rho)^2 is too small, to second order.
    bias = max(1.0 + (1.0 - 3.0 * rho) / (count * (1.0 - rho)), 0.5)
    long_run = max(innovations, 0.0) / (1.0 - rho) ** 2 / bias
    n_effective = float(centred @ centred) / long_run if long_run > 0 else math.inf
    return mean, math.sqrt(long_run / count), min(n_effective, float(count))


def _bounded(products: float, squares: float) -> float:
    """An autoregression within its bounds; 0 where nothing varies."""
    return min(max(products / squares, -STRONGEST), STRONGEST) if squares > 0 else 0.0
