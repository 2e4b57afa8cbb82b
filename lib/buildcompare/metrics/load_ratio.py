"""Is the difference of two builds the same at every load? Then all loads tell of it, and not only the highest."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from buildcompare.recordings.recording import FloatArray

SumErrors = Callable[[FloatArray], FloatArray]
"""Standard errors of sums of the residuals with each row of weights."""


@dataclass(frozen=True)
class Ratio:
    """The difference of two builds at a load.

    Attributes
    ----------
    log_ratio, se_log
        Logarithm of new over base, and its standard error within the runs.
    constant
        Whether it was taken from all loads.
    """

    log_ratio: float
    se_log: float
    constant: bool


@dataclass(frozen=True)
class PoolRatio:
    """The difference at the highest load: the mean over all loads, unless the data contradict that it is one.

    A load that both builds had is often one that one of them only passed on its way up, in a few minutes: what it
    showed then says little, and its curve is least certain at the ends. Most changes cost the same part of a request
    at every load, and so the mean difference, each load weighted by what is known there (inverse variance), knows
    it better. Where the difference at the highest load is another one, by more than chance, it is taken from there.

    Parameters
    ----------
    contradicted
        The highest load's difference is another one if it lies this many standard errors from the mean.
    """

    contradicted: float = 3.0

    def __call__(self, ratios: FloatArray, weights: FloatArray, doubts: FloatArray, errors: SumErrors) -> Ratio:
        """The difference at the last of the loads.

        Parameters
        ----------
        ratios
            Shape (n,): logarithm of new over base at each load.
        weights
            Shape (n, minutes): each of them is the sum of the residuals with its row.
        doubts
            Shape (n,): what may be wrong in each by the model, in common for all, with its sign.
        """
        known = np.hypot(errors(weights), doubts)
        share = 1.0 / np.maximum(known, 1e-12) ** 2
        share /= share.sum()
        mean, mean_doubt, mean_weights = float(share @ ratios), float(share @ doubts), share @ weights
        mean_se, apart_se = errors(np.vstack([mean_weights, weights[-1] - mean_weights]))
        apart = float(ratios[-1]) - mean
        if abs(apart) > self.contradicted * math.hypot(float(apart_se), float(doubts[-1]) - mean_doubt):
            return Ratio(float(ratios[-1]), float(known[-1]), constant=False)
        return Ratio(mean, math.hypot(float(mean_se), mean_doubt), constant=True)
