"""At what level was a metric over a window, and how far apart are two levels?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Level:
    """Mean of a metric over a window of one run.

    Attributes
    ----------
    mean
        In the metric's unit; None where the window holds no number.
    samples, missing
        How many samples went in, and how many were NaN, infinite or absent.
    """

    mean: float | None
    samples: int
    missing: int


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
        return Level(
            mean=float(finite.mean()) if finite.size else None,
            samples=int(finite.size),
            missing=max(expected, values.size) - int(finite.size),
        )


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
