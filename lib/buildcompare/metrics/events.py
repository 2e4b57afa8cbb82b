"""What happened inside a run? Level shifts, spikes and drops of one metric while the load was steady."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from buildcompare.metrics.event_measures import MeasureEvents, MetricEvent
from buildcompare.recordings.recording import FloatArray
from buildcompare.stats.change_penalty import DetectChanges, no_change_of
from buildcompare.stats.spikes import FindSpikes

Range = tuple[int, int]
Ranges = list[Range]

AFTER_RAMP_S = 120.0
"""To be left out after a ramp: the last 2 % of an hour's ramp, and the first minute of rates over one minute."""

LARGEST = 1e100
"""What is larger is no measurement: it is left out as NaN is, and its square could not be computed."""


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


def search_window(steady: tuple[float, float], kind: str) -> tuple[float, float]:
    """The part of a steady window in which events are searched: after a bounded test's ramp has died away."""
    return (steady[0] + AFTER_RAMP_S, steady[1]) if kind == "bounded" else steady


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
    """What began later than this before the window's end is no level yet, it may be coming back; and what ended within
    it after the window's start was none: there the ramp dies away."""
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
        inside = self._inside(curve, window)
        times, averages, width = self._sample(inside, window[0])
        if times.size < self.detect.shortest:
            return RunEvents((), times, averages)
        values, unit = _scaled(averages)
        rounding = resolution / (float(np.median(averages)) if unit is None else unit)
        spikes = self.spikes(values, resolution=rounding)
        calm = np.ones(times.size, dtype=bool)
        for start, end in spikes:
            calm[start:end] = False
        found = self.detect(values[calm], resolution=rounding)
        whole = MeasureEvents(inside, times, averages, values, found.noise, unit, width)
        rest = MeasureEvents(inside, times[calm], averages[calm], values[calm], found.noise, unit, width)
        slow = self._events(rest, list(found.segmentation.edges(rest.times.size)))
        events = self._joined(whole, spikes, slow)
        events = [event for event in events if _large_enough(event, smallest_percent)]
        return RunEvents(tuple(events), times, averages)

    def no_change(self, curve: pd.Series, window: tuple[float, float]) -> float:
        """What `CalibratedPenalty` learns from a run in which nothing happened; NaN where it is too short."""
        _, averages, _ = self._sample(self._inside(curve, window), window[0])
        return no_change_of(_scaled(averages)[0]) if averages.size >= self.detect.shortest else math.nan

    def _inside(self, curve: pd.Series, window: tuple[float, float]) -> pd.Series:
        numbers = np.abs(curve.to_numpy(dtype=np.float64)) < LARGEST
        inside: pd.Series = curve[(curve.index > window[0]) & (curve.index <= window[1]) & numbers]
        return inside

    def _sample(self, inside: pd.Series, start: float) -> tuple[FloatArray, FloatArray, float]:
        """Middles and means of the sampling intervals that hold enough samples, and their length."""
        elapsed, values = inside.index.to_numpy(dtype=np.float64), inside.to_numpy(dtype=np.float64)
        if elapsed.size < 2:
            return np.empty(0), np.empty(0), self.sampling_s
        step = float(np.median(np.diff(elapsed)))
        width = max(self.sampling_s, step)
        bins = np.maximum(np.ceil((elapsed - start) / width - 1e-9).astype(np.int64) - 1, 0)
        counts = np.bincount(bins)
        full = counts >= max(self.coverage * width / step, 1.0)
        sums = np.bincount(bins, weights=values)
        middles = np.asarray(start + (np.flatnonzero(full) + 0.5) * width, dtype=np.float64)
        return middles, sums[full] / counts[full], width

    def _events(self, run: MeasureEvents, edges: Ranges) -> list[MetricEvent]:
        levels = [float(run.values[a:b].mean()) for a, b in edges]
        events, at = [], 1
        while at < len(edges):
            back = self._excursion_end(run, edges, levels, at)
            if back is not None:
                events.append(run.excursion(edges[at - 1], (edges[at][0], edges[back - 1][1]), edges[back]))
                at = back + 1
                continue
            if at == 1 and run.length_s(*edges[0]) < self.lasting_s:
                events.append(run.early(edges[0], edges[1]))
                at += 1
                continue
            end = self._rise_end(run, edges, levels, at)
            open_end = end + 1 == len(edges) and run.length_s(edges[at][0], edges[end][1]) < self.lasting_s
            events.append(run.shift(edges[at - 1], edges[at : end + 1], lasting=not open_end))
            at = end + 1
        return events

    def _joined(self, run: MeasureEvents, spikes: Sequence[Range], slow: list[MetricEvent]) -> list[MetricEvent]:
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

    def _excursion_end(self, run: MeasureEvents, edges: Ranges, levels: list[float], at: int) -> int | None:
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

    def _settled(self, run: MeasureEvents, edges: Ranges, levels: list[float], at: int, back: int) -> int:
        """From the first segment that is back to where what is left of an excursion has died away."""
        while (
            back + 1 < len(edges)
            and abs(levels[back + 1] - levels[at - 1]) < abs(levels[back] - levels[at - 1])
            and run.length_s(edges[at][0], edges[back][1]) <= self.longest_excursion_s
        ):
            back += 1
        return back

    def _rise_end(self, run: MeasureEvents, edges: Ranges, levels: list[float], at: int) -> int:
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


def _scaled(averages: FloatArray) -> tuple[FloatArray, float | None]:
    """Logarithms where all are positive, else parts of the largest, and that unit."""
    unit = None if (averages > 1.0 / LARGEST).all() else float(np.abs(averages).max()) or 1.0
    return (np.log(averages) if unit is None else averages / unit), unit
