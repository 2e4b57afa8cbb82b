"""When was an event of a metric, how large was it, and how sure is that?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildcompare.recordings.recording import FloatArray
from buildcompare.stats.change_penalty import Noise
from buildcompare.stats.changepoints import split_gains

Kind = Literal["level", "spike", "drop"]
Z95 = 1.96
TIME_95 = 7.35
"""A split is within the 95 % interval of a change while it gains this many variances less (Hansen 2000, table 1)."""

NOTHING = 1e-9
"""A level below this part of the change from it is as good as none."""


@dataclass(frozen=True)
class MetricEvent:
    """One thing that happened in one metric.

    Attributes
    ----------
    kind
        ``level``: the metric changed and did not come back within `FindEvents.longest_excursion_s` (or the window);
        ``spike`` and ``drop``: it rose or fell and came back, or its other end is outside of the window
        (`FindEvents.lasting_s`).
    at_s
        Elapsed seconds of the change, or of the spike's top.
    span_s
        From when to when: the excursion, or the 95 % interval of a level's change.
    size
        In the metric's unit: level after less level before, or the mean of a minute at the top less the level around.
    size_percent
        The same in percent of `before`; None where that is nothing or negative.
    ci
        95 % interval of `size` for the noise of the run, not for the choice of what is largest.
    before
        The level that it left.
    extreme
        The farthest sample of an excursion itself, which noise exaggerates; the new level where it lasts.
    around_s
        The whole stretch over which `before` and `after` were measured.
    """

    kind: Kind
    at_s: float
    span_s: tuple[float, float]
    size: float
    size_percent: float | None
    ci: tuple[float, float]
    before: float
    extreme: float
    around_s: tuple[float, float]

    def at_least_percent(self, z: float = Z95) -> float:
        """What is left of the size, in percent without sign, after `z` standard errors; 0 where nothing is."""
        if self.size_percent is None:
            return 0.0
        half = (self.ci[1] - self.ci[0]) / 2.0 * z / Z95
        return max(abs(self.size) - half, 0.0) / self.before * 100.0


@dataclass(frozen=True)
class MeasureEvents:
    """What measures an event among the averages of a run; ranges are half-open, of averages.

    Attributes
    ----------
    curve
        The samples within the window, over elapsed seconds.
    times, averages, values
        Middle of each sampling interval, mean of its samples, and that or its logarithm, shape (n,) each.
    noise
        Of `values`, apart from events.
    unit
        What `averages` were divided by to give `values`; None where these are logarithms.
    width_s
        Length of a sampling interval.
    """

    curve: pd.Series
    times: FloatArray
    averages: FloatArray
    values: FloatArray
    noise: Noise
    unit: float | None
    width_s: float

    def length_s(self, start: int, end: int) -> float:
        """How long a range lasts."""
        return float(self.times[end - 1] - self.times[start]) + self.width_s

    def samples(self, span_s: tuple[float, float]) -> tuple[int, int]:
        """The averages of a stretch of time."""
        start, end = np.searchsorted(self.times, span_s)
        return int(start), int(end)

    def spike(self, away: tuple[int, int], half_width: int, calm: npt.NDArray[np.bool_]) -> MetricEvent:
        """A spike or drop of the samples `away`, from the calm samples on both sides (all, where none is calm)."""
        first, last = max(away[0] - half_width, 0), min(away[1] + half_width, self.times.size)
        beside = np.r_[first : away[0], away[1] : last]
        calmly = beside[calm[beside]]
        return self._top(away, calmly if calmly.size else beside, (first, last))

    def excursion(self, before: tuple[int, int], away: tuple[int, int], after: tuple[int, int]) -> MetricEvent:
        """A spike or drop of `away`, from its top or bottom to the level of the segments around."""
        beside = np.concatenate([np.arange(*before), np.arange(*after)])
        return self._top(away, beside, (before[0], after[1]))

    def _top(self, away: tuple[int, int], beside: npt.NDArray[np.int64], around: tuple[int, int]) -> MetricEvent:
        level = float(self.averages[beside].mean())
        up = float(self.averages[slice(*away)].mean()) > level
        extreme = np.argmax if up else np.argmin
        top = away[0] + int(extreme(self.averages[slice(*away)]))
        variance = self.noise.sd**2 + self.noise.mean_variance(beside.size)
        fine = self._fine(self._start_s(top), self._start_s(top) + self.width_s)
        at = float(fine.index[int(extreme(fine.to_numpy()))])
        farthest = float(fine.loc[at])
        size = float(self._fine(at - self.width_s / 2, at + self.width_s / 2).mean()) - level
        span = self._start_s(away[0]), self._start_s(away[1] - 1) + self.width_s
        return self._event("spike" if up else "drop", at, span, (level, size, farthest), variance, around)

    def early(self, away: tuple[int, int], after: tuple[int, int]) -> MetricEvent:
        """A spike or drop `away` with which the window begins, from the level after it."""
        return self._top(away, np.arange(*after), (away[0], after[1]))

    def shift(self, before: tuple[int, int], after: list[tuple[int, int]], *, lasting: bool) -> MetricEvent:
        """A change of the level from `before` to the last of the segments `after`; the others lead there."""
        last = after[-1]
        level = float(self.averages[slice(*before)].mean())
        size = float(self.averages[slice(*last)].mean()) - level
        variance = self.noise.mean_variance(before[1] - before[0]) + self.noise.mean_variance(last[1] - last[0])
        at, around = self._at(before, after[0]), (before[0], last[1])
        if not lasting:
            span = at, self._start_s(last[1] - 1) + self.width_s
            return self._event("spike" if size > 0 else "drop", at, span, (level, size, level + size), variance, around)
        early, _ = self._when(before, after[0])
        _, late = self._when(after[-2] if len(after) > 1 else before, last)
        return self._event("level", at, (early, late), (level, size, level + size), variance, around)

    def _event(
        self,
        kind: Kind,
        at: float,
        span: tuple[float, float],
        height: tuple[float, float, float],
        variance: float,
        around: tuple[int, int],
    ) -> MetricEvent:
        level, size, extreme = height
        half = Z95 * math.sqrt(variance) * (level if self.unit is None else self.unit)
        percent = size / level * 100.0 if level > NOTHING * abs(size) else None
        stretch = self._start_s(around[0]), self._start_s(around[1] - 1) + self.width_s
        return MetricEvent(kind, at, span, size, percent, (size - half, size + half), level, extreme, stretch)

    def _at(self, before: tuple[int, int], after: tuple[int, int]) -> float:
        """When the level changed, on the curve's own samples: where a step fits best."""
        start = self._start_s(max(before[0], before[1] - 2))
        end = self._start_s(min(after[1], after[0] + 2) - 1) + self.width_s
        low, high = float(self.averages[slice(*before)].mean()), float(self.averages[slice(*after)].mean())
        fine = self._fine(start, end)
        lean = np.cumsum(fine.to_numpy(dtype=np.float64) - (low + high) / 2) * math.copysign(1.0, high - low)
        return float(fine.index[int(lean.argmin())])

    def _when(self, before: tuple[int, int], after: tuple[int, int]) -> tuple[float, float]:
        """95 % interval of the time of a change (Hansen 2000), in steps of the averages."""
        gains = split_gains(self.values[before[0] : after[1]])
        likely = np.flatnonzero(gains >= gains.max() - TIME_95 * self.noise.long_run_variance) + before[0] + 1
        return self._start_s(int(likely[0])), self._start_s(int(likely[-1]))

    def _start_s(self, sample: int) -> float:
        return float(self.times[sample]) - self.width_s / 2

    def _fine(self, start: float, end: float) -> pd.Series:
        return self.curve[(self.curve.index > start) & (self.curve.index <= end)]
