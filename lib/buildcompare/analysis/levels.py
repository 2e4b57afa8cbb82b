"""At what level was a metric over a window, and how far apart are two levels?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from buildcompare.analysis.significance import StandardError
from buildcompare.recording import FloatArray


@dataclass(frozen=True)
class Level:
    """Mean of a metric over a window of one run.

    Attributes
    ----------
    mean
        In the metric's unit; None where the window holds no number.
    samples, missing
        How many samples went in, and how many were NaN, infinite or absent.
    se
        Standard error of `mean` within this run, autocorrelation accounted for; NaN where it is unknown.
    n_effective
        How many independent samples would know the mean as well; NaN where that is unknown.
    seconds
        What the samples cover: the window without its gaps.
    """

    mean: float | None
    samples: int
    missing: int
    se: float = math.nan
    n_effective: float = math.nan
    seconds: float = math.nan


@dataclass(frozen=True)
class MeasureLevel:
    """The time mean over a window; samples that are no number are left out and counted."""

    def __call__(self, curve: pd.Series, window: tuple[float, float]) -> Level:
        """Measure `curve` (over elapsed seconds) after ``window[0]`` up to ``window[1]``."""
        inside = curve[(curve.index > window[0]) & (curve.index <= window[1])]
        values = inside.to_numpy(dtype=np.float64)
        finite = values[np.isfinite(values)]
        step = float(np.median(np.diff(curve.index.to_numpy()))) if len(curve) > 1 else math.nan
        expected = round((window[1] - window[0]) / step) if step > 0 else values.size
        missing = max(expected, values.size) - int(finite.size)
        if not finite.size:
            return Level(None, 0, missing)
        worth = StandardError()(_on_grid(inside, step) if step > 0 else values)
        covered = (window[1] - window[0]) * finite.size / (finite.size + missing)
        se, n_effective = float(worth.se[0]), float(worth.n_effective[0])
        return Level(float(finite.mean()), int(finite.size), missing, se, n_effective, covered)


def _on_grid(curve: pd.Series, step: float) -> FloatArray:
    """The samples at equal distances, NaN where one is missing."""
    elapsed = curve.index.to_numpy(dtype=np.float64)
    places = np.rint((elapsed - elapsed[0]) / step).astype(np.int64)
    if places[-1] >= 4 * places.size + 100:  # hardly any samples: their grid says nothing, and may be endless
        return np.full(1, np.nan)
    grid = np.full(places[-1] + 1, np.nan)
    grid[places] = np.where(np.isfinite(curve.to_numpy()), curve.to_numpy(), np.nan)
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
