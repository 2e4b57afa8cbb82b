"""What can an exact search for changes leave out? Bounds and hulls over blocks of cumulated sums."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from buildcompare.recording import FloatArray

IntArray = npt.NDArray[np.int64]


def block_contrasts(sums: FloatArray, block: int, penalty: float) -> FloatArray:
    """For every block, a bound on ``(S_t - S_s)**2 / (t - s)`` over its pairs, with sums around the block's mean."""
    size = sums.size - 1
    count = -(-size // block)
    table = np.full((count, block), np.nan)
    table.ravel()[:size] = sums[1:]
    lengths = np.full(count, block)
    lengths[-1] = size - (count - 1) * block
    means = (table[np.arange(count), lengths - 1] - table[:, 0]) / np.maximum(lengths - 1, 1)
    table -= table[:, :1] + means[:, None] * np.arange(block)
    table.ravel()[size:] = 0.0  # the last block goes on along its mean: at most larger contrasts
    bound = _contrast_bound(table, parts=1)
    close = bound > 0.8 * penalty  # a rough bound will not do
    bound[close] = _contrast_bound(table[close], parts=2)
    return bound


def _contrast_bound(table: FloatArray, parts: int) -> FloatArray:
    """The bound for each row of sums, at most ``1 + 1 / parts`` times the largest contrast (`parts` 1 or 2).

    The pairs at a lag of L to 2 L, in as many parts, are bounded by their largest rise or fall over the least lag.
    """
    rows, block = table.shape
    bound = np.zeros(rows)
    highest = lowest = table
    width = lag = 1  # `highest` is over `width` sums, from each on
    while rows and lag < block:
        for first in range(lag, min(2 * lag, block), width):
            early = table[:, : block - first]
            rise = (highest[:, first:] - early).max(axis=1)
            fall = (early - lowest[:, first:]).max(axis=1)
            np.maximum(bound, np.maximum(rise, fall) ** 2 / first, out=bound)
        lag *= 2
        if lag >= parts * width * 2 or parts == 1:
            highest, lowest = _wider(highest, width, np.maximum), _wider(lowest, width, np.minimum)
            width *= 2
    return bound


def _wider(extremes: FloatArray, width: int, extreme: np.ufunc) -> FloatArray:
    """From extremes over `width` samples from each on to those over twice as many (fewer at a block's end)."""
    wider = extremes.copy()
    extreme(extremes[:, :-width], extremes[:, width:], out=wider[:, :-width])
    return wider


def block_corners(sums: FloatArray, block: int) -> list[IntArray]:
    """For every block, those of its points (t, S_t) that may be corners of their convex hull."""
    size = sums.size - 1
    points = np.arange(1, size + 1)
    fixed = np.zeros(size + 1, dtype=bool)
    fixed[1::block] = fixed[block::block] = fixed[size] = True
    found = corners(points, sums, fixed)
    return np.split(found, np.searchsorted(found, np.arange(block, size, block), side="right"))


def corners(points: IntArray, sums: FloatArray, fixed: npt.NDArray[np.bool_] | None = None) -> IntArray:
    """Those of some points (t, S_t), t increasing, that may be corners of the convex hull between fixed ones.

    A point that lies on or under the chord of its neighbours is no upper corner, whatever becomes of the
    neighbours: so all such points go at once, in a few rounds.
    """
    kept = []
    for sign in (1.0, -1.0):
        left = points
        while left.size > 2:
            heights = sign * sums[left]
            slopes = np.diff(heights) / np.diff(left)
            stay = np.ones(left.size, dtype=bool)
            stay[1:-1] = slopes[:-1] > slopes[1:]
            if fixed is not None:
                stay |= fixed[left]
            if stay.all():
                break
            left = left[stay]
        kept.append(left)
    return np.union1d(*kept)
