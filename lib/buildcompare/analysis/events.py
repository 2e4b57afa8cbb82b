"""What happened inside a run? Level shifts, spikes and drops of one metric while the load was steady."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildcompare.analysis.change_penalty import DetectChanges, Noise
from buildcompare.analysis.changepoints import split_gains
from buildcompare.analysis.spikes import FindSpikes
from buildcompare.recording import FloatArray

Kind = Literal["level", "spike", "drop"]
Z95 = 1.96
AFTER_RAMP_S = 120.0
"""To be left out after a ramp: the last 2 % of an hour's ramp, and the first minute of rates over one minute."""
TIME_95 = 7.35
"""A split is within the 95 % interval of a change while it gains this many variances less (Hansen 2000, table 1)."""


@dataclass(frozen=True)
class MetricEvent:
    """One thing that happened in one metric.

    Attributes
    ----------
    kind
        ``level``: the metric changed and did not come back within `FindEvents.longest_excursion_s` (or the window);
        ``spike`` and ``drop``: it rose or fell and came back, or began too late to tell (`FindEvents.lasting_s`).
    at_s
        Elapsed seconds of the change, or of the spike's top.
    span_s
        From when to when: the excursion, or the 95 % interval of a level's change.
    size
        In the metric's unit: level after less level before, or the mean of a minute at the top less the level around.
    size_percent
        The same in percent of `before`; None where that is zero or negative.
    ci
        95 % interval of `size` for the noise of the run, not for the choice of what is largest.
    before
        The level that it left.
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
    around_s: tuple[float, float]

    def at_least_percent(self, z: float = Z95) -> float:
        """What is left of the size, in percent without sign, after `z` standard errors; 0 where nothing is."""
        if self.size_percent is None:
            return 0.0
        half = (self.ci[1] - self.ci[0]) / 2.0 * z / Z95
        return max(abs(self.size) - half, 0.0) / self.before * 100.0


@dataclass(frozen=True)
class RunEvents:
    """The events of one metric in one run, and the averages in which they were looked for.

    Attributes
    ----------
    times_s, averages
        Middle of each sampling interval in elapsed seconds and the mean of its numbers, shape (n,).
    """

    events: tuple[MetricEvent, ...]
    times_s: FloatArray
    averages: FloatArray

    def mean(self, start_s: float, end_s: float) -> float:
        """Mean of the averages between two times; NaN where there is none."""
        inside = self.averages[(self.times_s >= start_s) & (self.times_s < end_s)]
        return float(inside.mean()) if inside.size else math.nan


@dataclass(frozen=True)
class FindEvents:
    """Events of a metric within the window in which the load was steady.

    Outside of it the load itself moves every metric. Averages over `sampling_s` are searched for changes of their
    mean, of their logarithms where all are positive: most metrics vary in proportion to their level.
    """

    sampling_s: float = 60.0
    """The catalogue's rates are over one minute: closer samples share their data and only look like more."""
    coverage: float = 0.5
    """An interval with fewer of its samples is a gap."""
    longest_excursion_s: float = 1200.0
    """What comes back later is two changes of the level: 20 minutes are most of the 30 that an unbounded test is
    judged by, and an hour's plateau holds three."""
    back: float = 1 / 3
    """An excursion is over where no more than this part of its height is left."""
    gradual_s: float = 300.0
    """Changes of one direction that follow each other this closely are one."""
    lasting_s: float = 300.0
    """What began later than this before the window's end is no level yet: it may be coming back."""
    joined: int = 2
    """A spike and a slower excursion of the same direction are one with at most this many averages between them."""
    detect: DetectChanges = field(default_factory=DetectChanges)
    spikes: FindSpikes = field(default_factory=FindSpikes)

    def __call__(
        self, curve: pd.Series, window: tuple[float, float], *, smallest_percent: float = 0.0, resolution: float = 0.0
    ) -> RunEvents:
        """Find the events of `curve` (over elapsed seconds) within `window`.

        Parameters
        ----------
        smallest_percent
            Smaller events are left out.
        resolution
            The step in which the curve was read off, in its unit; 0 where it was not read off a plot.
        """
        inside = curve[(curve.index > window[0]) & (curve.index <= window[1]) & np.isfinite(curve.to_numpy())]
        times, averages = self._sample(inside, window[0])
        if times.size < self.detect.shortest:
            return RunEvents((), times, averages)
        logs = bool((averages > 0).all())
        values = np.log(averages) if logs else averages
        rounding = resolution / abs(float(np.median(averages))) if logs else resolution
        spikes = self.spikes(values, resolution=rounding)
        calm = np.ones(times.size, dtype=bool)
        for start, end in spikes:
            calm[start:end] = False
        found = self.detect(values[calm], resolution=rounding)
        whole = _Run(inside, times, averages, values, found.noise, logs, self.sampling_s)
        rest = _Run(inside, times[calm], averages[calm], values[calm], found.noise, logs, self.sampling_s)
        slow = self._events(rest, list(found.segmentation.edges(rest.times.size)))
        events = self._joined(whole, spikes, slow)
        events = [event for event in events if _large_enough(event, smallest_percent)]
        return RunEvents(tuple(events), times, averages)

    def _sample(self, inside: pd.Series, start: float) -> tuple[FloatArray, FloatArray]:
        elapsed, values = inside.index.to_numpy(dtype=np.float64), inside.to_numpy(dtype=np.float64)
        if elapsed.size < 2:
            return np.empty(0), np.empty(0)
        step = float(np.median(np.diff(elapsed)))
        width = max(self.sampling_s, step)
        bins = np.ceil((elapsed - start) / width - 1e-9).astype(np.int64) - 1
        counts = np.bincount(bins)
        full = counts >= max(self.coverage * width / step, 1.0)
        sums = np.bincount(bins, weights=values)
        middles = np.asarray(start + (np.flatnonzero(full) + 0.5) * width, dtype=np.float64)
        return middles, sums[full] / counts[full]

    def _events(self, run: _Run, edges: list[tuple[int, int]]) -> list[MetricEvent]:
        levels = [float(run.values[a:b].mean()) for a, b in edges]
        events, at = [], 1
        while at < len(edges):
            back = self._excursion_end(run, edges, levels, at)
            if back is not None:
                events.append(run.excursion(edges[at - 1], (edges[at][0], edges[back - 1][1]), edges[back]))
                at = back + 1
                continue
            end = self._rise_end(run, edges, levels, at)
            open_end = end + 1 == len(edges) and run.length_s(edges[at][0], edges[end][1]) < self.lasting_s
            events.append(run.shift(edges[at - 1], edges[at : end + 1], lasting=not open_end))
            at = end + 1
        return events

    def _joined(self, run: _Run, spikes: tuple[tuple[int, int], ...], slow: list[MetricEvent]) -> list[MetricEvent]:
        """All events in the order of their times; a spike and the slow excursion that it is the top of are one."""
        calm = np.ones(run.times.size, dtype=bool)
        ranges = []
        for start, end in spikes:
            kind = run.spike((start, end), self.spikes.half_width, calm).kind
            whole = (start, end)
            for other in [each for each in slow if each.kind == kind]:
                a, b = run.samples(other.span_s)
                if a <= whole[1] + self.joined and b >= whole[0] - self.joined:
                    whole = min(a, whole[0]), max(b, whole[1])
                    slow = [each for each in slow if each is not other]
            ranges.append(whole)
            calm[slice(*whole)] = False
        events = [run.spike(each, self.spikes.half_width, calm) for each in ranges]
        return sorted([*events, *slow], key=lambda each: each.at_s)

    def _excursion_end(self, run: _Run, edges: list[tuple[int, int]], levels: list[float], at: int) -> int | None:
        """The first segment from `at` on that is back at the level before it; None where there is none in time."""
        height = 0.0
        for i in range(at, len(edges)):
            away = levels[i] - levels[at - 1]
            if i > at and abs(away) <= self.back * abs(height):
                return self._settled(run, edges, levels, at, i)
            if away * height < 0.0 or run.length_s(edges[at][0], edges[i][1]) > self.longest_excursion_s:
                return None
            height = max(height, away, key=abs)
        return None

    def _settled(self, run: _Run, edges: list[tuple[int, int]], levels: list[float], at: int, back: int) -> int:
        """From the first segment that is back to where what is left of an excursion has died away."""
        while (
            back + 1 < len(edges)
            and abs(levels[back + 1] - levels[at - 1]) < abs(levels[back] - levels[at - 1])
            and run.length_s(edges[at][0], edges[back][1]) <= self.longest_excursion_s
        ):
            back += 1
        return back

    def _rise_end(self, run: _Run, edges: list[tuple[int, int]], levels: list[float], at: int) -> int:
        """The last segment of a change that goes on, in short segments, in the direction of its first step."""
        end = at
        while (
            end + 1 < len(edges)
            and run.length_s(*edges[end]) <= self.gradual_s
            and (levels[end + 1] - levels[end]) * (levels[at] - levels[at - 1]) > 0
            and self._excursion_end(run, edges, levels, end + 1) is None
        ):
            end += 1
        return end


def _large_enough(event: MetricEvent, smallest_percent: float) -> bool:
    return event.size_percent is None or abs(event.size_percent) >= smallest_percent


@dataclass(frozen=True)
class _Run:
    """The samples of a run and what measures an event among them; ranges are half-open, of averages."""

    curve: pd.Series
    times: FloatArray
    averages: FloatArray
    values: FloatArray
    noise: Noise
    logs: bool
    width_s: float

    def length_s(self, start: int, end: int) -> float:
        return float(self.times[end - 1] - self.times[start]) + self.width_s

    def samples(self, span_s: tuple[float, float]) -> tuple[int, int]:
        """The averages of a stretch of time."""
        start, end = np.searchsorted(self.times, span_s)
        return int(start), int(end)

    def spike(self, away: tuple[int, int], half_width: int, calm: npt.NDArray[np.bool_]) -> MetricEvent:
        """A spike or drop of the samples `away`, from the calm samples on both sides."""
        first, last = max(away[0] - half_width, 0), min(away[1] + half_width, self.times.size)
        outside = calm[first:last].copy()
        outside[away[0] - first : away[1] - first] = False
        return self._top(away, np.flatnonzero(outside) + first, (first, last))

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
        size = float(self._fine(at - self.width_s / 2, at + self.width_s / 2).mean()) - level
        span = self._start_s(away[0]), self._start_s(away[1] - 1) + self.width_s
        return self._event("spike" if up else "drop", at, span, size, level, variance, around)

    def shift(self, before: tuple[int, int], after: list[tuple[int, int]], *, lasting: bool) -> MetricEvent:
        """A change of the level from `before` to the last of the segments `after`; the others lead there."""
        last = after[-1]
        level = float(self.averages[slice(*before)].mean())
        size = float(self.averages[slice(*last)].mean()) - level
        variance = self.noise.mean_variance(before[1] - before[0]) + self.noise.mean_variance(last[1] - last[0])
        at, around = self._at(before, after[0]), (before[0], last[1])
        if not lasting:
            span = at, self._start_s(last[1] - 1) + self.width_s
            return self._event("spike" if size > 0 else "drop", at, span, size, level, variance, around)
        early, _ = self._when(before, after[0])
        _, late = self._when(after[-2] if len(after) > 1 else before, last)
        return self._event("level", at, (early, late), size, level, variance, around)

    def _event(
        self,
        kind: Kind,
        at: float,
        span: tuple[float, float],
        size: float,
        level: float,
        variance: float,
        around: tuple[int, int],
    ) -> MetricEvent:
        half = Z95 * math.sqrt(variance) * (abs(level) if self.logs else 1.0)
        percent = size / level * 100.0 if level > 0 else None
        stretch = self._start_s(around[0]), self._start_s(around[1] - 1) + self.width_s
        return MetricEvent(kind, at, span, size, percent, (size - half, size + half), level, stretch)

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
