"""What can an exact search for changes leave out? Bounds and hulls over blocks of cumulated sums."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from buildcompare.recordings.recording import FloatArray

IntArray = npt.NDArray[np.int64]


def calm_blocks(sums: FloatArray, block: int, penalty: float, least: int) -> tuple[IntArray, FloatArray]:
    """Blocks of samples that hold no change in their inside, as far as that can be had, and a bound for each.

    Blocks of `block` samples, cut where their cumulated sum is farthest from its chord (at the step, where there is
    one) until each is calm, or has at most `least` samples.

    Returns
    -------
    edges, bounds
        The blocks' edges from 0 to n, shape (k + 1,), and for each block a bound on ``(S_t - S_s)**2 / (t - s)`` over
        its pairs, with sums around the block's mean, shape (k,).
    """
    size = sums.size - 1
    starts: IntArray = np.arange(0, size, block)
    ends = np.append(starts[1:], size)
    done: list[tuple[IntArray, FloatArray]] = []
    while starts.size:
        farthest, bounds = _contrasts(sums, starts, ends, penalty)
        cut = (bounds > penalty) & (ends - starts > least)
        done.append((starts[~cut], bounds[~cut]))
        starts, ends, middles = starts[cut], ends[cut], farthest[cut]
        starts, ends = np.concatenate([starts, middles]), np.concatenate([middles, ends])
    firsts, known = (np.concatenate(each) for each in zip(*done, strict=True))
    order = np.argsort(firsts)
    return np.append(firsts[order], size), known[order]


def _contrasts(sums: FloatArray, starts: IntArray, ends: IntArray, penalty: float) -> tuple[IntArray, FloatArray]:
    """Where each block's sum is farthest from its chord (inside of it), and the bound on its contrasts."""
    lengths = ends - starts
    width = int(lengths.max())
    steps = np.arange(width)
    # The points after the first, the last of them at the block's end; beyond it the sum goes on along its chord.
    points = np.minimum(starts[:, None] + 1 + steps, ends[:, None])
    table = sums[points]
    means = (table[:, -1] - table[:, 0]) / np.maximum(lengths - 1, 1)
    table -= table[:, :1] + means[:, None] * np.minimum(steps, lengths[:, None] - 1)
    bound = _contrast_bound(table, parts=1)
    close = (bound > 0.8 * penalty) & (bound < 2.0 * penalty)  # a rough bound will not do
    bound[close] = _contrast_bound(table[close], parts=2)
    farthest = starts + 1 + np.abs(table).argmax(axis=1)
    return np.clip(farthest, starts + 1, ends - 1), bound


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


def block_corners(sums: FloatArray, edges: IntArray) -> list[IntArray]:
    """For every block, those of its points (t, S_t) that may be corners of their convex hull."""
    size = sums.size - 1
    points = np.arange(1, size + 1)
    fixed = np.zeros(size + 1, dtype=bool)
    fixed[edges[:-1] + 1] = fixed[edges[1:]] = True
    found = corners(points, sums, fixed)
    return np.split(found, np.searchsorted(found, edges[1:-1], side="right"))


def corners(points: IntArray, sums: FloatArray, fixed: npt.NDArray[np.bool_] | None = None) -> IntArray:
    """Those of some points (t, S_t), t increasing, that may be corners of the convex hull between fixed ones.

    A point that lies on or under the chord of its neighbours is no upper corner, whatever becomes of the
    neighbours: so all such points go at once, in a few rounds.
    """
    kept = np.zeros(points.size, dtype=bool)
    pinned = np.zeros(points.size, dtype=bool) if fixed is None else fixed[points]
    for sign in (1.0, -1.0):
        left, held = np.arange(points.size), pinned
        at, heights = points.astype(np.float64), sign * sums[points]
        while left.size > 2:
            slopes = np.diff(heights) / np.diff(at)
            inner = (slopes[:-1] > slopes[1:]) | held[1:-1]
            stay = np.concatenate([_FIRST, np.flatnonzero(inner) + 1, [left.size - 1]])
            if stay.size == left.size:
                break
            left, held, at, heights = left[stay], held[stay], at[stay], heights[stay]
        kept[left] = True
    return points[kept]


_FIRST: IntArray = np.zeros(1, dtype=np.int64)
