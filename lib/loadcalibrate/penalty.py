"""Measure the penalty that a search for change points needs on a run without changes."""

import math

import numpy as np
import numpy.typing as npt

from buildcompare.recordings.recording import FloatArray
from buildcompare.stats.changepoints import ar1_noise, best_segmentation, best_splits, segment_means, split_gains


def no_change_penalty(values: npt.ArrayLike) -> float:
    """Smallest penalty at which :func:`best_segmentation` finds no change in a series."""
    series = np.asarray(values, dtype=np.float64)
    if series.size < 2:
        return 0.0
    unsplit = float(((series - series.mean()) ** 2).sum())
    penalty = float(split_gains(series).max())
    while penalty > unsplit * 1e-12:
        changes = best_segmentation(series, penalty * (1.0 + 1e-9))
        left = float(((series - segment_means(series, changes)) ** 2).sum())
        gain = (unsplit - left) / len(changes) if changes else penalty
        if gain <= penalty * (1.0 + 1e-9):
            return penalty
        penalty = gain
    return 0.0


def no_change_of(values: FloatArray) -> float:
    """Smallest penalty at which a run shows no change, in units of its noise variance; NaN if the variance is 0."""
    variance = ar1_noise(values, best_splits(values, 1)).sd ** 2
    return no_change_penalty(values) / variance if variance > 0 else math.nan
