"""How sure is a slope whose samples are correlated?"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import stdtrit

from buildcompare.recordings.recording import FloatArray


def slope_interval(elapsed: FloatArray, values: FloatArray, block_s: float) -> tuple[float, tuple[float, float]]:
    """Least-squares slope per second, and its 95 % interval from means over blocks of `block_s` seconds.

    Means over blocks longer than the samples' memory are nearly independent, where the samples are not. With fewer
    than three blocks nothing is known: the interval is infinite.

    Parameters
    ----------
    elapsed, values
        Elapsed seconds and values, shape (n,), n > 1, finite.
    """
    slope, height = np.polyfit(elapsed, values, 1)
    residual = values - (height + slope * elapsed)
    block = ((elapsed - elapsed[0]) // block_s).astype(np.int64)
    counts = np.bincount(block)
    filled = counts > 0
    means = np.bincount(block, residual)[filled] / counts[filled]
    centres = np.bincount(block, elapsed)[filled] / counts[filled]
    error = math.inf
    if means.size > 2:
        spread = float(((centres - centres.mean()) ** 2).sum())
        variance = float((means**2).sum()) / (means.size - 2) / spread
        error = float(stdtrit(means.size - 2, 0.975)) * math.sqrt(variance)
    return float(slope), (float(slope) - error, float(slope) + error)
