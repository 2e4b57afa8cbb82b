"""Find the events of a metric in one run: level shifts, spikes and drops.

Constants without a source are round numbers chosen on published comparisons; `benchmarks/events.py` prints error rates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildcompare.load import curve as curves
from buildcompare.recordings.recording import FloatArray
from buildcompare.stats import changepoints as search
from buildcompare.stats.changepoints import Ar1Noise, robust_sd
from buildcompare.stats.levels import FEWEST, HARDLY_COVERED, LARGEST, MINUTE_S, ROUNDED, SHOWS_S, minute_means

Kind = Literal["level", "spike", "drop"]
Range = tuple[int, int]  # start and end (excluded) of a range of intervals, as indices of `_Averages.averages`
Span = tuple[float, float]  # elapsed seconds

Z95 = 1.96  # normal quantile of a two-sided 95 % interval
TIME_95 = 7.35
"""The 95 % interval of a change's time contains each time whose sum of squared residuals exceeds the smallest sum by at
most this number of long-run variances (Hansen 2000)."""
LONGEST_EXCURSION_S = 1200.0
"""Maximum length of a spike or drop in seconds. A metric that returns later has two level shifts instead."""
SPIKE_HALF_WIDTH = 10  # longest spike of `find_spikes`, and half-width of its running median, in averaging intervals
FLANK = 0.5  # averages next to a peak belong to its spike if they exceed this fraction of the threshold for peaks


@dataclass(frozen=True)
class MetricEvent:
    """An event of one metric in one run: a level shift, a spike or a drop."""

    kind: Kind
    """``spike``, ``drop``: the metric is higher or lower for at most `LONGEST_EXCURSION_S`, or for less than
    `curves.SHORTEST_S` at the start or end of the window. ``level``: the change lasts longer."""
    at_s: float  # elapsed seconds of the shift, or of the extreme of a spike or drop
    span_s: Span  # start and end of a spike or drop, or the 95 % interval of the time of a shift
    size: float
    """In the metric's unit: new minus old level of a shift; extreme minute minus level around a spike or drop."""
    size_percent: float | None  # change in percent of `before`; None if `before` is not positive
    ci: tuple[float, float]  # 95 % interval of `size`, not corrected for the selection of large changes (too narrow)
    before: float  # level before the event
    extreme: float  # farthest sample of a spike or drop (exaggerated by noise), or the new level of a shift
    around_s: Span  # stretch over which the levels before and after were measured

    @property
    def start_s(self) -> float:
        """Start of the event in elapsed seconds: the time of a shift, or the start of a spike or drop."""
        return self.at_s if self.kind == "level" else self.span_s[0]

    def at_least_percent(self, z: float = Z95) -> float:
        """Lower bound of the absolute size in percent: the size minus `z` standard errors; 0 if negative or unknown."""
        if self.size_percent is None:
            return 0.0
        half = (self.ci[1] - self.ci[0]) / 2.0 * z / Z95
        return max(abs(self.size) - half, 0.0) / self.before * 100.0


@dataclass(frozen=True)
class RunEvents:
    """Events of one metric in one run, and the averages of samples that were searched for these events."""

    events: tuple[MetricEvent, ...]
    times_s: FloatArray  # middle of each averaging interval, in elapsed seconds
    averages: FloatArray
    end_s: float = math.nan  # end of the searched window, in elapsed seconds

    def beyond(self, percent: float) -> RunEvents:
        """Return a copy without events smaller than `percent`; events without `size_percent` are kept."""
        large = (each for each in self.events if each.size_percent is None or abs(each.size_percent) >= percent)
        return replace(self, events=tuple(large))

    def mean(self, start_s: float, end_s: float) -> float:
        """Mean of the averages between two times (elapsed seconds); NaN if no average lies between them."""
        inside = self.averages[(self.times_s >= start_s) & (self.times_s < end_s)]
        return float(inside.mean()) if inside.size else math.nan


def search_window(steady: Span | None, kind: str) -> Span | None:
    """Part of a steady window that is searched for events; None if it is shorter than `FEWEST` minutes.

    In a bounded test the first `SHOWS_S` seconds are omitted, because averages in this time still include the ramp.
    """
    if steady is None:
        return None
    start = steady[0] + (SHOWS_S if kind == "bounded" else 0.0)
    return (start, steady[1]) if steady[1] - start >= FEWEST * MINUTE_S else None


def find_events(
    series: pd.Series, window: Span, *, smallest_percent: float = 0.0, factor: float | None = None
) -> RunEvents:
    """Find the events of a metric within a window of steady load.

    Minute averages are searched for changes of their mean. If all are positive, their logarithms are searched, because
    most metrics vary in proportion to their level.

    Parameters
    ----------
    series
        The metric, indexed by elapsed seconds.
    window
        Elapsed seconds; samples after ``window[0]`` up to ``window[1]`` count.
    smallest_percent
        Events smaller than this are omitted.
    factor
        Penalty for each change as a multiple of the noise variance, learned from identical runs.

    Returns
    -------
    RunEvents
        The events in the order of their times, and the averages.

    References
    ----------
    Hansen (2000), "Sample splitting and threshold estimation", Econometrica 68 (interval of a change's time).

    Examples
    --------
    >>> elapsed = np.arange(0.0, 3600.0, 5.0)
    >>> heap = 100.0 + np.random.default_rng(1).normal(size=elapsed.size) + 20.0 * (elapsed > 2000.0)
    >>> run = find_events(pd.Series(heap, index=elapsed), (600.0, 3600.0))
    >>> [(event.kind, event.at_s, round(event.size)) for event in run.events]
    [('level', 2000.0, 20)]
    """
    run = averages_in(series, window)
    times, values = run.times, run.values
    if times.size < FEWEST:
        return RunEvents((), times, run.averages, window[1])
    spikes = find_spikes(values)
    calm = np.ones(times.size, dtype=bool)
    for start, end in spikes:
        calm[start:end] = False
    steps = search.changepoints(values[calm], factor=factor, cautious=True)
    whole = replace(run, noise=steps.noise)
    rest = replace(whole, times=times[calm], averages=run.averages[calm], values=values[calm])
    edges = list(itertools.pairwise((0, *steps.changes, rest.times.size)))
    events = _joined(whole, spikes, _slow_events(rest, edges))
    return RunEvents(tuple(events), times, run.averages, window[1]).beyond(smallest_percent)


def find_spikes(values: FloatArray) -> tuple[Range, ...]:
    """Half-open ranges of the short spikes and drops of `values`, shape (n,), all finite.

    Spikes stand out of the noise around a running median, which ignores spikes shorter than half its width. Spikes that
    touch an end of the series are omitted: they may be a new level. ``scipy.signal.peak_widths`` is not used: it
    measures widths at a share of each peak's height, instead of at one height above the noise.
    """
    away = values - search.running_median(values, SPIKE_HALF_WIDTH)
    if away.size <= 2 * SPIKE_HALF_WIDTH:
        return ()
    scale = robust_sd(away) or float(away.std())  # `robust_sd` is 0 if most samples are equal
    if scale <= ROUNDED * float(np.abs(values).max()):
        return ()
    spikes = []
    for sign in (1.0, -1.0):
        flanks = np.concatenate([[False], sign * away > FLANK * search.OUTLYING * scale, [False]])
        for start, end in np.flatnonzero(np.diff(flanks.astype(np.int8))).reshape(-1, 2).tolist():
            inside = start > 0 and end < values.size
            if inside and end - start <= SPIKE_HALF_WIDTH and abs(away[start:end]).max() > search.OUTLYING * scale:
                spikes.append((start, end))
    return tuple(sorted(spikes))


@dataclass(frozen=True)
class _Averages:
    """Averages of a metric over the n intervals of a run, shape (n,), and the single samples."""

    elapsed: FloatArray  # elapsed seconds of the single samples
    samples: FloatArray  # values of the single samples
    times: FloatArray  # middle of each interval, in elapsed seconds
    averages: FloatArray
    values: FloatArray  # averages divided by `unit`, or logarithms of the averages
    unit: float | None  # divisor of the averages (largest absolute average); None if `values` are logarithms
    width_s: float  # length of an interval
    noise: Ar1Noise = field(default_factory=Ar1Noise)  # noise of `values` after spikes and shifts are removed

    def start_s(self, sample: int) -> float:
        return float(self.times[sample]) - self.width_s / 2

    def span_s(self, part: Range) -> Span:
        return self.start_s(part[0]), self.start_s(part[1] - 1) + self.width_s

    def length_s(self, start: int, end: int) -> float:
        return float(self.times[end - 1] - self.times[start]) + self.width_s

    def mean(self, part: Range) -> float:
        return float(self.averages[slice(*part)].mean())

    def samples_between(self, start: float, end: float) -> tuple[FloatArray, FloatArray]:
        """Elapsed seconds and values of the samples between two times."""
        inside = (self.elapsed > start) & (self.elapsed <= end)
        return self.elapsed[inside], self.samples[inside]

    def excursion(self, away: Range, beside: npt.NDArray[np.int64], around: Range) -> MetricEvent:
        """Measure the spike or drop in the range `away` against the mean of the averages at the indices `beside`."""
        level = float(self.averages[beside].mean())
        up = self.mean(away) > level
        extreme = np.argmax if up else np.argmin
        top = self.start_s(away[0] + int(extreme(self.averages[slice(*away)])))
        half = Z95 * math.sqrt(self.noise.sd**2 + self.noise.mean_variance(beside.size))
        half_s = self.width_s / 2
        elapsed, values = self.samples_between(top - half_s, top + 3 * half_s)
        centre = (elapsed > top) & (elapsed <= top + self.width_s)  # possible middles of the extreme minute
        ends = np.searchsorted(elapsed, (elapsed[centre] - half_s, elapsed[centre] + half_s), "right")
        means = np.diff(np.r_[0.0, values.cumsum()][ends], axis=0)[0] / np.diff(ends, axis=0)[0]
        place = np.flatnonzero(centre)[extreme(values[centre])]
        at, height = float(elapsed[place]), (level, float(means[extreme(means)]) - level, float(values[place]))
        return self.event("spike" if up else "drop", at, self.span_s(away), height, half, around)

    def spike(self, away: Range, calm: npt.NDArray[np.bool_]) -> MetricEvent:
        """Measure the spike or drop at `away` against the `calm` averages on both sides (or all, if none is calm)."""
        first, last = max(away[0] - SPIKE_HALF_WIDTH, 0), min(away[1] + SPIKE_HALF_WIDTH, self.times.size)
        beside = np.r_[first : away[0], away[1] : last]
        quiet = beside[calm[beside]]
        return self.excursion(away, quiet if quiet.size else beside, (first, last))

    def shift(self, before: Range, first: Range, last: Range, *, lasting: bool) -> MetricEvent:
        """Measure the shift from segment `before` to segment `last`; `first` is the segment that follows `before`."""
        level, size = self.mean(before), self.mean(last) - self.mean(before)
        variance = self.noise.mean_variance(before[1] - before[0]) + self.noise.mean_variance(last[1] - last[0])
        # The change is placed at the sample where a step between the two means fits best.
        rise, near = self.mean(first) - level, (max(before[0], before[1] - 2), min(first[1], first[0] + 2))
        elapsed, values = self.samples_between(*self.span_s(near))
        at = float(elapsed[(np.cumsum(values - level - rise / 2) * math.copysign(1.0, rise)).argmin()])
        kind: Kind = "level" if lasting else "spike" if size > 0 else "drop"
        ends = self._when(before, first)[0], self._when((before[1], last[0]) if first != last else before, last)[1]
        span = ends if lasting else (at, self.span_s(last)[1])
        height = (level, size, level + size)
        return self.event(kind, at, span, height, Z95 * math.sqrt(variance), (before[0], last[1]))

    def event(
        self, kind: Kind, at: float, span: Span, height: tuple[float, float, float], half: float, over: Range
    ) -> MetricEvent:
        """Make an event from its `height` (level, size, extreme) and `half`, the half-width of the size's interval."""
        level, size, extreme = height
        half = half * (level if self.unit is None else self.unit)
        percent = size / level * 100.0 if level > ROUNDED * abs(size) else None
        return MetricEvent(kind, at, span, size, percent, (size - half, size + half), level, extreme, self.span_s(over))

    def _when(self, before: Range, after: Range) -> Span:
        """95 % interval of the time of a shift (Hansen 2000), rounded to starts of averaging intervals."""
        gains = search.split_gains(self.values[before[0] : after[1]])
        likely = np.flatnonzero(gains >= gains.max() - TIME_95 * self.noise.long_run_variance) + before[0] + 1
        return self.start_s(int(likely[0])), self.start_s(int(likely[-1]))


def averages_in(series: pd.Series, window: Span) -> _Averages:
    """Average a metric over the intervals of a window; intervals with too few samples are omitted."""
    elapsed, samples = curves.samples(series[np.abs(series.to_numpy()) < LARGEST], window[1])
    elapsed, samples = elapsed[elapsed > window[0]], samples[elapsed > window[0]]
    if elapsed.size < 2:
        return _Averages(elapsed, samples, np.empty(0), np.empty(0), np.empty(0), None, MINUTE_S)
    step = float(np.median(np.diff(elapsed)))
    width = max(MINUTE_S, step)
    least = HARDLY_COVERED * width / step
    means = minute_means(elapsed, samples, start_s=window[0], width_s=width, closed="right", least=least)
    full = np.isfinite(means)
    averages, times = means[full], np.asarray(window[0] + (np.flatnonzero(full) + 0.5) * width, dtype=np.float64)
    if (averages > 1.0 / LARGEST).all():
        return _Averages(elapsed, samples, times, averages, np.log(averages), None, width)
    unit = float(np.abs(averages).max()) or 1.0
    return _Averages(elapsed, samples, times, averages, averages / unit, unit, width)


def _slow_events(run: _Averages, edges: Sequence[Range]) -> list[MetricEvent]:
    """Turn the segments between changepoints into level shifts and slow spikes or drops (excursions)."""
    levels = [float(run.values[a:b].mean()) for a, b in edges]
    events, at = [], 1
    while at < len(edges):
        before = edges[at - 1]
        if (back := _excursion_end(run, edges, levels, at)) > at:
            beside = np.r_[slice(*before), slice(*edges[back])]
            events.append(run.excursion((before[1], edges[back][0]), beside, (before[0], edges[back][1])))
        elif at == 1 and run.length_s(*before) < curves.SHORTEST_S:  # the window begins within a spike or drop
            events.append(run.excursion(before, np.arange(*edges[1]), (before[0], edges[1][1])))
        else:
            rise = levels[at] - levels[at - 1]
            while (  # steps in one direction with short segments between them are one change
                back + 1 < len(edges)
                and run.length_s(*edges[back]) <= curves.SHORTEST_S
                and (levels[back + 1] - levels[back]) * rise > 0
                and _excursion_end(run, edges, levels, back + 1) == back + 1
            ):
                back += 1
            lasting = back + 1 < len(edges) or run.length_s(edges[at][0], edges[back][1]) >= curves.SHORTEST_S
            events.append(run.shift(before, edges[at], edges[back], lasting=lasting))
        at = back + 1
    return events


def _excursion_end(run: _Averages, edges: Sequence[Range], levels: list[float], at: int) -> int:
    """Return the segment where the metric is back after an excursion in segment `at`; `at` if it is not back in time.

    The metric is back where its level is nearest to the earlier level, within half of the excursion's size.
    """
    back, nearest = at, 0.5
    for i in range(at + 1, len(edges)):
        left = (levels[i] - levels[at - 1]) / (levels[at] - levels[at - 1])
        if run.length_s(edges[at][0], edges[i - 1][1]) > LONGEST_EXCURSION_S or left <= -0.5:
            break
        if abs(left) < nearest:
            back, nearest = i, abs(left)
        elif back > at:
            break
    return back


def _joined(run: _Averages, spikes: Sequence[Range], slow: list[MetricEvent]) -> list[MetricEvent]:
    """Return all events in order of time; a spike is merged with the slow excursion that it overlaps."""
    calm = np.ones(run.times.size, dtype=bool)
    ranges = []
    for spike in spikes:
        kind, whole = run.spike(spike, calm).kind, spike
        for other in [each for each in slow if each.kind == kind]:
            a, b = (int(each) for each in np.searchsorted(run.times, other.span_s))
            if a <= whole[1] and b >= whole[0]:
                whole = min(a, whole[0]), max(b, whole[1])
                slow = [each for each in slow if each is not other]
        ranges.append(whole)
        calm[slice(*whole)] = False
    return sorted([*(run.spike(each, calm) for each in ranges), *slow], key=lambda each: each.at_s)
