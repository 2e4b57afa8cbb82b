"""Where does the level of a series change? The exact optimum for any penalty, fast enough for every metric.

Optimal partitioning (Jackson et al. 2005): among all segmentations the one with the smallest sum of squares around
the segments' means plus `penalty` per change. What a penalty should be is asked in `change_penalty`.

Why no library: skchange's FPOP takes 0.02 s for 100,000 points, but 5 CPU seconds of imports (numba, scikit-learn),
five times what all events of a comparison may cost; ruptures' KernelCPD (C, linear kernel) takes 5.9 s for as many.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from buildcompare.recordings.recording import FloatArray
from buildcompare.stats.changepoint_bounds import IntArray, block_corners, calm_blocks, corners


@dataclass(frozen=True)
class Segmentation:
    """The best segmentation of a series.

    Attributes
    ----------
    changes
        First sample of every segment but the first, increasing.
    cost
        Sum of squares around the segments' means, in the series' unit squared (without the penalties).
    """

    changes: tuple[int, ...]
    cost: float

    def edges(self, size: int) -> tuple[tuple[int, int], ...]:
        """Half-open ranges of the segments of a series of `size` samples."""
        return tuple(zip((0, *self.changes), (*self.changes, size), strict=True))


@dataclass(frozen=True)
class FindChanges:
    """Exact search for changes of the mean.

    With S the cumulated sums, the optimal cost of the first t samples (less their sum of squares) is ``G(t) = min over
    r < t of G(r) + penalty - (S_t - S_r)**2 / (t - r)``. The recursion runs over blocks of samples, for a whole block
    at a time in numpy, and gives up nothing for it:

    - a change and its successor in one block need a contrast in the block that beats the penalty; where a bound over
      all pairs of the block excludes that, no pair is tried;
    - among starts r whose own last change lies before all of them, G is concave in (r, S_r), so only the corners
      of their convex hull can ever be the best start of a segment (the functional pruning of FPOP, Maidstone et al.
      2017, in the geometry of Pishchagina et al. 2024);
    - a start that loses by the penalty now loses for ever (PELT, Killick et al. 2012).
    """

    block: int = 256
    """Samples per block: changes the speed, never the result."""

    def __call__(self, values: FloatArray, penalty: float) -> Segmentation:
        """Segment `values`, shape (n,), all finite; `penalty` > 0, in their unit squared.

        Raises
        ------
        ValueError
            If a value is not finite, or `penalty` is not positive.
        """
        series = np.asarray(values, dtype=np.float64)
        if series.ndim != 1 or not np.isfinite(series).all():
            raise ValueError(f"values: expected finite numbers of shape (n,), found shape {series.shape} or NaN")
        if not penalty > 0:
            raise ValueError(f"penalty: expected a number above 0, found {penalty}")
        if series.size < 2:
            return Segmentation((), 0.0)
        centred = series - series.mean()
        last = _last_changes(np.concatenate([[0.0], np.cumsum(centred)]), float(penalty), self.block)
        changes = []
        at = int(last[series.size])
        while at > 0:
            changes.append(at)
            at = int(last[at])
        found = tuple(reversed(changes))
        return Segmentation(found, _cost(centred, found))


def no_change_penalty(values: FloatArray, find: FindChanges | None = None) -> float:
    """The smallest penalty at which a series shows no change: the largest gain per change that it offers.

    Of a run in which nothing happened this is what a penalty must exceed (`change_penalty.CalibratedPenalty`).
    """
    series = np.asarray(values, dtype=np.float64)
    if series.size < 2:
        return 0.0
    find = find or FindChanges()
    unsplit = _cost(series - series.mean(), ())
    penalty = float(split_gains(series).max())
    while penalty > unsplit * 1e-12:
        found = find(series, penalty * (1.0 + 1e-9))
        gain = (unsplit - found.cost) / len(found.changes) if found.changes else penalty
        if gain <= penalty * (1.0 + 1e-9):
            return penalty
        penalty = gain
    return 0.0


def split_gains(values: FloatArray) -> FloatArray:
    """How much the sum of squares falls by splitting a series before sample 1, 2, ..., n - 1; shape (n - 1,)."""
    size = values.size
    sums = np.cumsum(values - values.mean())[:-1]
    left = np.arange(1, size)
    return np.asarray(sums**2 * (size / (left * (size - left))), dtype=np.float64)


def _cost(values: FloatArray, changes: tuple[int, ...]) -> float:
    starts = np.array((0, *changes))
    counts = np.diff(np.append(starts, values.size))
    means = np.add.reduceat(values, starts) / counts
    return float(((values - np.repeat(means, counts)) ** 2).sum())


# ---- The recursion --------------------------------------------------------------------------------------------------


def _last_changes(sums: FloatArray, penalty: float, block: int) -> IntArray:
    """For every number of samples t, the last change in their best segmentation; `sums` from S_0 = 0 on."""
    size = sums.size - 1
    best = np.empty(size + 1)
    best[0] = -penalty
    last = np.zeros(size + 1, dtype=np.int64)
    edges, contrasts = calm_blocks(sums, block, penalty, _PART)
    fresh = block_corners(sums, edges)
    times, rows = np.arange(size + 1.0), np.arange(block)
    starts: IntArray = np.zeros(1, dtype=np.int64)
    group, full = 0, _MANY  # starts after `group` have their last change at or before it
    for number, (first, final) in enumerate(pairwise(edges.tolist())):
        begin, whole = first, True
        while begin < final:
            end = final if whole else min(begin + _PART, final)
            ends = np.arange(begin + 1, end + 1)
            near = _in_question(starts, ends, sums, best, int(last[begin]))
            gains = sums[begin + 1 : end + 1, None] - sums[near]
            gains *= gains
            gains /= times[begin + 1 : end + 1, None] - times[near]
            gains -= best[near]
            choice = gains.argmax(axis=1)
            best[begin + 1 : end + 1] = penalty - gains[rows[: choice.size], choice]
            last[begin + 1 : end + 1] = near[choice]
            inside = sums[begin + 1 : end + 1]
            if whole:
                moved = _may_change_within(inside, best[begin + 1 : end + 1], penalty, contrasts[number])
                if moved.size > _PART:
                    whole = False  # the same samples again, in parts short enough to try all pairs
                    continue
            else:
                moved = np.arange(ends.size - 1)
            if moved.size:
                _change_within(inside, best, last, ends, penalty, moved)
            changed = last[begin + 1 : end + 1]
            latest = int(changed.max())
            kept = fresh[number] if whole else ends
            if whole and latest > begin:  # G is concave over the other samples, so their corners will do
                stay = changed > begin
                stay[kept - begin - 1] = True
                kept = ends[stay]
            if latest > group:
                group = max(latest, begin)
            starts = np.concatenate([starts, kept])
            if starts.size > full:
                held = starts[:-1]
                held = held[best[held] - (sums[end] - sums[held]) ** 2 / (end - held) < best[end]]
                together = held > group
                starts = np.concatenate([held[~together], corners(np.append(held[together], end), sums)])
                full = starts.size + _MANY
            begin = end
    return last


_PART = 64
"""Samples of a part of a block, where a change and its successor may both lie in it, and ..."""
_MANY = 400
"""... starts to collect before those that can no longer win are sorted out: they change the speed, never the result."""


def _in_question(starts: IntArray, ends: IntArray, sums: FloatArray, best: FloatArray, change: int) -> IntArray:
    """Those starts that can be the best for one of `ends`, by a bound on what each can gain over the block.

    Around any mean m the recursion keeps its form, with ``S_t - m t`` and ``G(t) + 2 m S_t - m**2 t`` in place of S and
    G. With the mean of the segment that is open at the block's begin, or of the block where that is the longer one,
    the bound excludes nearly all.
    """
    begin, end = int(ends[0]) - 1, int(ends[-1])
    if begin - change > end - begin:
        mean = (sums[begin] - sums[change]) / (begin - change)
    else:
        mean = (sums[end] - sums[begin]) / (end - begin)
    inside = sums[begin + 1 : end + 1] - mean * ends
    at = sums[starts]
    around = at - mean * starts
    offset = best[starts] + mean * (at + around)
    reach = np.maximum(inside.max() - around, around - inside.min())
    bound = reach * reach / (ends[0] - starts) - offset
    least = offset.min()
    near: IntArray = starts[bound >= -least - 1e-9 * (1.0 + abs(least))]
    return near


def _may_change_within(sums: FloatArray, best: FloatArray, penalty: float, contrast: float) -> IntArray:
    """Those samples of a block that may be a change whose successor lies in it too; their numbers in the block.

    `contrast` is the largest of any of the block's pairs: no more is what such a change can gain, less the penalty,
    on what the block's samples have cost so far.
    """
    mean = (sums[-1] - sums[0]) / max(sums.size - 1, 1)
    offset = best + 2.0 * mean * sums - mean**2 * np.arange(sums.size)
    most, least = float(offset.max()), float(offset.min())
    rounding = 1e-9 * (penalty + max(abs(most), abs(least)))
    if least + penalty - contrast >= most + rounding:
        return np.empty(0, dtype=np.int64)
    costliest = np.maximum.accumulate(offset[:0:-1])[::-1]
    return np.flatnonzero(offset[:-1] + penalty - contrast < costliest + rounding)


def _change_within(
    sums: FloatArray, best: FloatArray, last: IntArray, ends: IntArray, penalty: float, moved: IntArray
) -> None:
    """Let segments start at `moved` in the block itself: one more change in each round, until nothing gains."""
    rows = np.arange(ends.size)
    current = best[ends]
    while moved.size:
        gains = sums[:, None] - sums[moved]
        gains *= gains
        gains /= np.maximum(rows[:, None] - moved, 1)
        gains -= current[moved]
        gains[rows[:, None] <= moved] = -np.inf
        choice = gains.argmax(axis=1)
        trial = penalty - gains[rows, choice]
        better = trial < current
        current[better] = trial[better]
        last[ends[better]] = ends[moved[choice[better]]]
        moved = rows[better]
    best[ends] = current
