"""Measure the level of a metric over a window, and compare two levels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from buildcompare.recordings.recording import FloatArray
from buildcompare.stats.autocorrelation import mean_with_error


@dataclass(frozen=True)
class Level:
    """Level of a metric over a window of one run."""

    value: float | None
    """In the metric's unit: the mean, or for times the geometric mean; None where the window holds no number."""
    mean: float | None
    """The arithmetic mean of the same samples."""
    samples: int
    missing: int
    """How many samples were NaN, infinite or absent (and, for times, not above zero)."""
    se_log: float = math.nan
    """Standard error of the logarithm of `value` within this run, autocorrelation accounted for."""
    n_effective: float = math.nan
    """How many independent samples would know it as well."""
    seconds: float = math.nan
    """What the samples cover: the window without its gaps."""


def measure_level(series: pd.Series, window: tuple[float, float], *, geometric: bool = False) -> Level:
    """Measure the level of a metric over a window.

    Parameters
    ----------
    series
        The metric, indexed by elapsed seconds; samples that are no number are left out and counted.
    window
        Elapsed seconds; samples after ``window[0]`` up to ``window[1]`` count.
    geometric
        Take the geometric mean, as for times: they are skewed, and in a wavy load a few peaks of ten times the usual
        would decide the arithmetic one. A time is never zero; one that is was too short to be measured.

    Returns
    -------
    Level
        The level with its standard error within the run.

    References
    ----------
    Andrews & Monahan (1992), Econometrica 60 (the standard error).

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
    worth = mean_with_error(_on_grid(inside.index.to_numpy()[usable], scaled, step) if step > 0 else scaled)
    value = math.exp(float(scaled.mean())) if geometric else mean
    se = float(worth.se[0]) if geometric else float(worth.se[0]) / mean if mean > 0 else math.nan
    covered = (window[1] - window[0]) * finite.size / (finite.size + missing)
    return Level(value, mean, int(finite.size), missing, se, float(worth.n_effective[0]), covered)


def _on_grid(elapsed: FloatArray, values: FloatArray, step: float) -> FloatArray:
    """The samples at equal distances, NaN where one is missing."""
    places = np.rint((elapsed - elapsed[0]) / step).astype(np.int64)
    if places[-1] >= 4 * places.size + 100:  # hardly any samples: their grid says nothing, and may be endless
        return np.full(1, np.nan)
    grid = np.full(places[-1] + 1, np.nan)
    grid[places] = values
    return grid


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
