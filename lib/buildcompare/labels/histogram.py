"""Which value lies below a given part of what a histogram of cumulative buckets has counted?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from buildcompare.recordings.recording import FloatArray


@dataclass(frozen=True)
class HistogramQuantile:
    """Linear inside of the bucket that holds the rank, as Prometheus's histogram_quantile() computes it.

    A rank in the last bucket, which has no end, gives the last finite bound: the quantile is at least that. The method,
    and its error of up to a bucket's width: https://prometheus.io/docs/practices/histograms/

    Attributes
    ----------
    quantile
        The part, between 0 and 1.
    """

    quantile: float

    def __call__(self, bounds: FloatArray, counts: FloatArray) -> float:
        """Find it.

        Parameters
        ----------
        bounds
            Upper bounds in increasing order, the last one infinite, shape (n,).
        counts
            How many observations, or how many per second, lie at or below each bound, shape (n,). They may fall by
            what rounding leaves: a bucket holds at least what the one before it holds.

        Returns
        -------
        float
            In the unit of `bounds`; NaN where nothing was counted or the last bound is finite.
        """
        if bounds.size < 2 or not np.isposinf(bounds[-1]):
            return float("nan")
        counts = np.maximum.accumulate(counts)
        if not counts[-1] > 0:
            return float("nan")
        rank = self.quantile * counts[-1]
        index = int(np.searchsorted(counts, rank))
        if index >= bounds.size - 1:
            return float(bounds[-2])
        low, before = (bounds[index - 1], counts[index - 1]) if index else (0.0, 0.0)
        if index == 0 and bounds[0] <= 0:
            return float(bounds[0])
        return float(low + (bounds[index] - low) * (rank - before) / (counts[index] - before))
