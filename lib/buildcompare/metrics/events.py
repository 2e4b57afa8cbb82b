"""Find the events of metrics (level shifts, spikes, drops), and compare those of two builds.

Compared is what is in one build only, what belongs together, and what is worth a warning. Searched are the window in
which the load was steady and, for spikes and drops alone, the ramp before it: there levels move with the load.

Numbers without another source are round ones, written with the published comparisons in view: `benchmarks/events.py`
prints how often they claim something where nothing happened, and what they find.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtri

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Test
from buildcompare.load.view import RunView, Views
from buildcompare.recordings.recording import FloatArray
from buildcompare.results import Event
from buildcompare.results.codes import SIDES, Pair, Side
from buildcompare.stats import changepoints as search
from buildcompare.stats.changepoints import Ar1Noise, CalibratedPenalty, robust_sd
from buildcompare.stats.noise import RepeatedRuns

Kind = Literal["level", "spike", "drop"]
Range = tuple[int, int]  # half-open, of averages
Span = tuple[float, float]  # elapsed seconds

AFTER_RAMP_S = 120.0
"""To be left out after a ramp: the last 2 % of an hour's ramp, and the first minute of rates over one minute."""
SAMPLING_S = 60.0  # the catalogue's rates are over one minute: closer samples share their data and only look like more
COVERAGE = 0.5  # an interval with fewer of its samples is a gap
LARGEST = 1e100  # what is larger is no measurement: it is left out as NaN is, and its square could not be computed
NOTHING = 1e-9  # a level below this part of the change from it is as good as none
Z95 = 1.96  # of the normal distribution
TIME_95 = 7.35
"""A split is within the 95 % interval of a change while it gains this many variances less (Hansen 2000, table 1)."""
LONGEST_EXCURSION_S = 1200.0
"""What comes back later is two changes of the level: 20 minutes are most of an unbounded test's 30."""
BACK = 1 / 3  # an excursion is over where no more than this part of its height is left
GRADUAL_S = 300.0  # changes of one direction that follow each other this closely are one
LASTING_S = 300.0
"""What began later than this before the window's end may be coming back; what ended within it after the window's start
is the ramp that dies away. Neither is a level."""
JOINED = 2  # a spike and a slower excursion of the same direction are one with at most this many averages between them
SPIKE_HALF_WIDTH = 10  # averages of the running median on each side: what lasts longer than this is no spike
SPIKE = 6.0
"""Robust standard deviations from the running median. Of AR(1) series of 70 to 1080 samples, phi of 0 to 0.9, at most
2 % have a sample as far out as this; at phi 0.95, 3 % (400 each, seed 20240502)."""
FLANK = 0.5  # averages beside a spike belong to it down to this part of `SPIKE`
MEAN_TO_SD = 1.2533  # standard deviation of a normal variable in units of its mean absolute deviation
SMALLEST_SHARE = 0.2  # events below this part of the metric's margin are left out
FOLLOWS = 1.5
"""A level that moves with the load by up to this many times the load's change follows it: costs grow faster than users
(simulated servers: by the power 1.2)."""
TOGETHER_S = 120.0
"""Events of one build that start within this time are one: averages of one minute, of rates over one minute."""
SAME_S = 360.0
"""As far apart may the builds show the same event, measured from the start of their runs, or a drop from the end: jobs
of the server and the agents' end are timed by no stopwatch."""
ALIKE = 0.5  # an event of the other build counts as the same with at least this part of the size
ERROR = 0.05  # of a warning where nothing happened, for all series of the test together
LONE = 6.0
"""Margins that a spike or drop must surely exceed to warn where no other metric moves with it. Identical runs have lone
excursions of 6 margins (p99 store times +60 %, CPU -31 %) in Mattermost's published ceiling tests."""
RAMP_FROM = 0.3  # of its level the load must have before a ramp is searched: below is a server's cold start
RAMP_WITNESSES = 2
"""Metrics that must jump by their margins for an event of the ramp to warn. One does in one run alone in 14 of 31 pairs
of identical unbounded runs (Mattermost's ceiling tests, `benchmarks/events.py`), two in none."""
NEARBY_S = 1200.0  # how far before and after an event the other run is looked at: as long as an excursion may last


@dataclass(frozen=True)
class MetricEvent:
    """An event of one metric."""

    kind: Kind
    """``level``: the metric changed and did not come back within `LONGEST_EXCURSION_S` (or the window); ``spike`` and
    ``drop``: it rose or fell and came back, or its other end is outside of the window (`LASTING_S`)."""
    at_s: float  # of the change, or of the spike's top
    span_s: Span  # the excursion, or the 95 % interval of the time of a level's change
    size: float
    """In the metric's unit: level after less level before, or the mean of a minute at the top less the level around."""
    size_percent: float | None  # of `before`; None where that is nothing or negative
    ci: tuple[float, float]  # 95 % interval of `size` for the noise of the run, not for the choice of what is largest
    before: float  # the level that it left
    extreme: float  # the farthest sample of an excursion itself, which noise exaggerates; the new level where it lasts
    around_s: Span  # the whole stretch over which the levels before and after were measured

    @property
    def start_s(self) -> float:
        """When it began: a change of the level at once, an excursion with its span."""
        return self.at_s if self.kind == "level" else self.span_s[0]

    def at_least_percent(self, z: float = Z95) -> float:
        """What is left of the size, in percent without sign, after `z` standard errors; 0 where nothing is."""
        if self.size_percent is None:
            return 0.0
        half = (self.ci[1] - self.ci[0]) / 2.0 * z / Z95
        return max(abs(self.size) - half, 0.0) / self.before * 100.0


@dataclass(frozen=True)
class RunEvents:
    """The events of one metric in one run, and the averages in which they were looked for."""

    events: tuple[MetricEvent, ...]
    times_s: FloatArray  # middle of each sampling interval
    averages: FloatArray
    end_s: float = math.nan  # of the window

    def beyond(self, percent: float) -> RunEvents:
        """Without the events whose size is below `percent`."""
        large = (each for each in self.events if each.size_percent is None or abs(each.size_percent) >= percent)
        return replace(self, events=tuple(large))

    def mean(self, start_s: float, end_s: float) -> float:
        """Mean of the averages between two times; NaN where there is none."""
        inside = self.averages[(self.times_s >= start_s) & (self.times_s < end_s)]
        return float(inside.mean()) if inside.size else math.nan


def search_window(steady: Span | None, kind: str) -> Span | None:
    """The part of a steady window in which events are searched: after a bounded test's ramp has died away.

    None where it is too short for that: it holds fewer than `search.SHORTEST` averages.
    """
    if steady is None:
        return None
    start = steady[0] + (AFTER_RAMP_S if kind == "bounded" else 0.0)
    return (start, steady[1]) if steady[1] - start >= search.SHORTEST * SAMPLING_S else None


def find_events(
    series: pd.Series,
    window: tuple[float, float],
    *,
    smallest_percent: float = 0.0,
    resolution: float = 0.0,
    calibration: CalibratedPenalty | None = None,
) -> RunEvents:
    """Find the events of a metric within the window in which the load was steady.

    Averages over a minute are searched for changes of their mean, of their logarithms where all are positive: most
    metrics vary in proportion to their level.

    Parameters
    ----------
    series
        The metric, indexed by elapsed seconds.
    window
        Elapsed seconds; samples after ``window[0]`` up to ``window[1]`` count.
    smallest_percent
        Smaller events are left out.
    resolution
        The step in which the metric was read off, in its unit; 0 where it was not read off a plot.
    calibration
        The penalty of changes, learned from identical runs.

    Returns
    -------
    RunEvents
        The events in the order of their times, and the averages.

    References
    ----------
    Hansen (2000), "Sample splitting and threshold estimation", Econometrica 68 (the interval of the time of a change).

    Examples
    --------
    >>> elapsed = np.arange(0.0, 3600.0, 5.0)
    >>> heap = 100.0 + np.random.default_rng(1).normal(size=elapsed.size) + 20.0 * (elapsed > 2000.0)
    >>> found = find_events(pd.Series(heap, index=elapsed), (600.0, 3600.0))
    >>> [(event.kind, event.at_s, round(event.size)) for event in found.events]
    [('level', 2000.0, 20)]
    """
    run = _averages(series, window)
    times, values = run.times, run.values
    if times.size < search.SHORTEST:
        return RunEvents((), times, run.averages, window[1])
    rounding = resolution / (float(np.median(run.averages)) if run.unit is None else run.unit)
    spikes = find_spikes(values, resolution=rounding)
    calm = np.ones(times.size, dtype=bool)
    for start, end in spikes:
        calm[start:end] = False
    found = search.changepoints(values[calm], calibration=calibration, resolution=rounding)
    whole = replace(run, noise=found.noise)
    rest = replace(whole, times=times[calm], averages=run.averages[calm], values=values[calm])
    edges = list(itertools.pairwise((0, *found.changes, rest.times.size)))
    events = _joined(whole, spikes, _slow_events(rest, edges))
    return RunEvents(tuple(events), times, run.averages, window[1]).beyond(smallest_percent)


def find_ramp_events(series: pd.Series, ramp: Span, until_s: float, *, smallest_percent: float = 0.0) -> RunEvents:
    """Find the spikes and drops of a metric on the ramp of the load, up to `until_s`, a little after its end.

    A running median follows whatever only rises or falls, so what lies far from it is no part of the ramp; averages
    after its end tell a spike there from a new level. Arguments and result are as in :func:`find_events`.
    """
    run = _averages(series, (ramp[0], max(ramp[1], until_s) + SPIKE_HALF_WIDTH * SAMPLING_S))
    away = _from_median(run.values)
    half = Z95 * robust_sd(away) if away.size else 0.0
    events = []
    for start, end in find_spikes(run.values):
        top = start + int(np.argmax(np.abs(away[start:end])))
        level = (
            float(np.exp(run.values[top] - away[top])) if run.unit is None else run.averages[top] - away[top] * run.unit
        )
        size = float(run.averages[top]) - float(level)
        percent = size / level * 100.0 if level > NOTHING * abs(size) else None
        if run.times[top] <= until_s:
            ci = half * (level if run.unit is None else run.unit)
            kind: Kind = "spike" if size > 0 else "drop"
            whole = run.span_s((0, run.times.size))
            at, span = float(run.times[top]), run.span_s((start, end))
            events.append(
                MetricEvent(kind, at, span, size, percent, (size - ci, size + ci), level, level + size, whole)
            )
    return RunEvents(tuple(events), run.times, run.averages, until_s).beyond(smallest_percent)


def no_change(series: pd.Series, window: tuple[float, float]) -> float:
    """What `CalibratedPenalty` learns from a run in which nothing happened; NaN where it is too short."""
    values = _averages(series, window).values
    return search.no_change_of(values) if values.size >= search.SHORTEST else math.nan


def find_spikes(values: FloatArray, *, resolution: float = 0.0) -> tuple[Range, ...]:
    """Half-open ranges of the short spikes and drops of `values`, shape (n,), all finite.

    Each is judged by the noise around a running median, which does not see what is shorter than half of it; those that
    touch an end of the series are left out, as they may be a new level. Widths at one height above all, as here, are
    none that ``scipy.signal.peak_widths`` knows.
    """
    away = _from_median(values)
    if away.size <= 2 * SPIKE_HALF_WIDTH:
        return ()
    scale = max(robust_sd(away), resolution / math.sqrt(12.0))
    if scale == 0.0:  # more than half of the samples at one value
        scale = MEAN_TO_SD * float(np.abs(away).mean())
    if scale <= 1e-9 * float(np.abs(values).max()):
        return ()
    found = []
    for sign in (1.0, -1.0):
        flanks = np.concatenate([[False], sign * away > FLANK * SPIKE * scale, [False]])
        for start, end in np.flatnonzero(np.diff(flanks.astype(np.int8))).reshape(-1, 2).tolist():
            inside = start > 0 and end < values.size
            if inside and end - start <= SPIKE_HALF_WIDTH and abs(away[start:end]).max() > SPIKE * scale:
                found.append((start, end))
    return tuple(sorted(found))


def _from_median(values: FloatArray) -> FloatArray:
    """How far each value lies from the running median around it."""
    if not values.size:
        return values
    longer = np.pad(values, SPIKE_HALF_WIDTH, mode="edge")
    around = np.lib.stride_tricks.sliding_window_view(longer, 2 * SPIKE_HALF_WIDTH + 1)
    return np.asarray(values - np.partition(around, SPIKE_HALF_WIDTH, axis=1)[:, SPIKE_HALF_WIDTH])


@dataclass(frozen=True)
class _Averages:
    """A run as averages over intervals, shape (n,) each, and the samples that they were made of."""

    elapsed: FloatArray  # of the samples themselves
    samples: FloatArray
    times: FloatArray  # the middle of each interval
    averages: FloatArray
    values: FloatArray  # the averages divided by `unit`, or their logarithms where that is None
    unit: float | None
    width_s: float
    noise: Ar1Noise = field(default_factory=Ar1Noise)  # of `values`, apart from events

    def start_s(self, sample: int) -> float:
        return float(self.times[sample]) - self.width_s / 2

    def span_s(self, part: Range) -> Span:
        return self.start_s(part[0]), self.start_s(part[1] - 1) + self.width_s

    def length_s(self, start: int, end: int) -> float:
        return float(self.times[end - 1] - self.times[start]) + self.width_s

    def mean(self, part: Range) -> float:
        return float(self.averages[slice(*part)].mean())

    def fine(self, start: float, end: float) -> tuple[FloatArray, FloatArray]:
        """The elapsed seconds and the values of samples between two times."""
        inside = (self.elapsed > start) & (self.elapsed <= end)
        return self.elapsed[inside], self.samples[inside]

    def excursion(self, away: Range, beside: npt.NDArray[np.int64], around: Range) -> MetricEvent:
        """A spike or drop of `away`, from its top or bottom to the level of the averages `beside`."""
        level = float(self.averages[beside].mean())
        up = self.mean(away) > level
        extreme = np.argmax if up else np.argmin
        top = self.start_s(away[0] + int(extreme(self.averages[slice(*away)])))
        variance = self.noise.sd**2 + self.noise.mean_variance(beside.size)
        elapsed, fine = self.fine(top, top + self.width_s)
        at, farthest = float(elapsed[extreme(fine)]), float(fine[extreme(fine)])
        size = float(self.fine(at - self.width_s / 2, at + self.width_s / 2)[1].mean()) - level
        height = level, size, farthest
        return self._event("spike" if up else "drop", at, self.span_s(away), height, variance, around)

    def spike(self, away: Range, calm: npt.NDArray[np.bool_]) -> MetricEvent:
        """A spike or drop of `away`, from the calm averages on both sides (all, where none is calm)."""
        first, last = max(away[0] - SPIKE_HALF_WIDTH, 0), min(away[1] + SPIKE_HALF_WIDTH, self.times.size)
        beside = np.r_[first : away[0], away[1] : last]
        calmly = beside[calm[beside]]
        return self.excursion(away, calmly if calmly.size else beside, (first, last))

    def shift(self, before: Range, after: Sequence[Range], *, lasting: bool) -> MetricEvent:
        """A change of the level from `before` to the last of the segments `after`; the others lead there."""
        last, around = after[-1], (before[0], after[-1][1])
        level = self.mean(before)
        size = self.mean(last) - level
        height = level, size, level + size
        variance = self.noise.mean_variance(before[1] - before[0]) + self.noise.mean_variance(last[1] - last[0])
        # The change is where a step fits the curve's own samples best.
        low, high = level, self.mean(after[0])
        elapsed, fine = self.fine(*self.span_s((max(before[0], before[1] - 2), min(after[0][1], after[0][0] + 2))))
        lean = np.cumsum(fine - (low + high) / 2) * math.copysign(1.0, high - low)
        at = float(elapsed[lean.argmin()])
        if lasting:
            kind: Kind = "level"
            span = self._when(before, after[0])[0], self._when(after[-2] if len(after) > 1 else before, last)[1]
        else:
            kind, span = "spike" if size > 0 else "drop", (at, self.span_s(last)[1])
        return self._event(kind, at, span, height, variance, around)

    def _event(
        self, kind: Kind, at: float, span: Span, height: tuple[float, float, float], variance: float, around: Range
    ) -> MetricEvent:
        level, size, extreme = height
        half = Z95 * math.sqrt(variance) * (level if self.unit is None else self.unit)
        percent = size / level * 100.0 if level > NOTHING * abs(size) else None
        ci = size - half, size + half
        return MetricEvent(kind, at, span, size, percent, ci, level, extreme, self.span_s(around))

    def _when(self, before: Range, after: Range) -> Span:
        """95 % interval of the time of a change (Hansen 2000), in steps of the averages."""
        gains = search.split_gains(self.values[before[0] : after[1]])
        likely = np.flatnonzero(gains >= gains.max() - TIME_95 * self.noise.long_run_variance) + before[0] + 1
        return self.start_s(int(likely[0])), self.start_s(int(likely[-1]))


def _averages(series: pd.Series, window: tuple[float, float]) -> _Averages:
    """Means of the sampling intervals that hold enough samples."""
    elapsed, samples = series.index.to_numpy(dtype=np.float64), series.to_numpy(dtype=np.float64)
    inside = (elapsed > window[0]) & (elapsed <= window[1]) & (np.abs(samples) < LARGEST)
    elapsed, samples = elapsed[inside], samples[inside]
    if elapsed.size < 2:
        return _Averages(elapsed, samples, np.empty(0), np.empty(0), np.empty(0), None, SAMPLING_S)
    step = float(np.median(np.diff(elapsed)))
    width = max(SAMPLING_S, step)
    bins = np.maximum(np.ceil((elapsed - window[0]) / width - 1e-9).astype(np.int64) - 1, 0)
    counts = np.bincount(bins)
    full = counts >= max(COVERAGE * width / step, 1.0)
    averages = np.bincount(bins, weights=samples)[full] / counts[full]
    times = np.asarray(window[0] + (np.flatnonzero(full) + 0.5) * width, dtype=np.float64)
    if (averages > 1.0 / LARGEST).all():
        return _Averages(elapsed, samples, times, averages, np.log(averages), None, width)
    unit = float(np.abs(averages).max()) or 1.0
    return _Averages(elapsed, samples, times, averages, averages / unit, unit, width)


def _slow_events(run: _Averages, edges: Sequence[Range]) -> list[MetricEvent]:
    """Changes of the level and slow excursions, from the segments between changes."""
    levels = [float(run.values[a:b].mean()) for a, b in edges]
    events, at = [], 1
    while at < len(edges):
        before = edges[at - 1]
        back = _excursion_end(run, edges, levels, at)
        if back is not None:
            beside = np.r_[slice(*before), slice(*edges[back])]
            events.append(run.excursion((before[1], edges[back][0]), beside, (before[0], edges[back][1])))
            at = back + 1
        elif at == 1 and run.length_s(*before) < LASTING_S:  # the window begins with it
            events.append(run.excursion(before, np.arange(*edges[1]), (before[0], edges[1][1])))
            at += 1
        else:
            end, rise = at, levels[at] - levels[at - 1]
            while (  # it goes on, in short segments, in the direction of its first step
                end + 1 < len(edges)
                and run.length_s(*edges[end]) <= GRADUAL_S
                and (levels[end + 1] - levels[end]) * rise > 0
                and _excursion_end(run, edges, levels, end + 1) is None
            ):
                end += 1
            open_end = end + 1 == len(edges) and run.length_s(edges[at][0], edges[end][1]) < LASTING_S
            events.append(run.shift(before, edges[at : end + 1], lasting=not open_end))
            at = end + 1
    return events


def _excursion_end(run: _Averages, edges: Sequence[Range], levels: list[float], at: int) -> int | None:
    """The segment after an excursion that begins with segment `at`; None where it does not come back in time."""
    height = 0.0
    for i in range(at, len(edges)):
        away = levels[i] - levels[at - 1]
        if i > at and abs(away) <= BACK * abs(height):
            break
        if away * height < 0.0 or run.length_s(edges[at][0], edges[i][1]) > LONGEST_EXCURSION_S:
            return None
        height = max(height, away, key=abs)
    else:
        return None
    back = i
    while (  # what is left of it dies away
        back + 1 < len(edges)
        and abs(levels[back + 1] - levels[at - 1]) < abs(levels[back] - levels[at - 1])
        and run.length_s(edges[at][0], edges[back][1]) <= LONGEST_EXCURSION_S
    ):
        back += 1
    return back


def _joined(run: _Averages, spikes: Sequence[Range], slow: list[MetricEvent]) -> list[MetricEvent]:
    """All events in the order of their times; a spike and the slow excursion that it is the top of are one."""
    calm = np.ones(run.times.size, dtype=bool)
    ranges = []
    for spike in spikes:
        kind, whole = run.spike(spike, calm).kind, spike
        for other in [each for each in slow if each.kind == kind]:
            a, b = (int(each) for each in np.searchsorted(run.times, other.span_s))
            if a <= whole[1] + JOINED and b >= whole[0] - JOINED:
                whole = min(a, whole[0]), max(b, whole[1])
                slow = [each for each in slow if each is not other]
        ranges.append(whole)
        calm[slice(*whole)] = False
    return sorted([*(run.spike(each, calm) for each in ranges), *slow], key=lambda each: each.at_s)


# ---- Two builds -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlacedEvent(MetricEvent):
    """An event of one metric of one build, and how it relates to the rest of the test."""

    metric: str
    build: Side
    matched: bool  # whether the other build shows it too
    phase: Literal["steady", "ramp"] = "steady"  # in which it was found
    group: int = 0  # the same for events of one build that happened together; numbered by time, from 1
    warning: bool = False  # whether it is in one build only and surely larger than the metric's margin


Found: TypeAlias = tuple[dict[str, RunEvents], dict[str, RunEvents]]
"""What was found in one run, by metric: in its steady window, and on its ramp."""


def search_events(
    test: Test, views: Views, catalogue: Catalogue, identical: Sequence[RepeatedRuns] = ()
) -> Pair[list[Found]]:
    """The events of every run, of any size."""

    def found(view: RunView) -> Found:
        series = ((metric.slug, view.recording.total(metric.slug)) for metric in catalogue.metrics)
        curves = {slug: view.recording.curve(each) for slug, each in series if each is not None}
        return _of_run(test, view, curves, identical), _of_ramp(test, view, curves)

    return views.map(lambda runs: [found(view) for view in runs])


def compare_events(found: Pair[list[Found]], test: Test, views: Views, catalogue: Catalogue) -> list[Event]:
    """Those events of ramps and steady windows that are large enough for the metrics' margins.

    Each is matched with the run of the same number of the other build.
    """
    events: list[Event] = []
    margins = {metric.slug: metric.margin_percent for metric in catalogue.metrics}

    def large(of: Mapping[str, RunEvents], share: float = 1.0) -> dict[str, RunEvents]:
        return {slug: run.beyond(share * margins[slug]) for slug, run in of.items()}

    for number, pair in enumerate(itertools.zip_longest(*found)):
        base, new = (large(of[0], SMALLEST_SHARE) if of else {} for of in pair)
        ramps = [large(of[1]) if of else {} for of in pair]
        groups = max((event.group or 0 for event in events), default=0)
        on_ramp = match_ramp_events(ramps[0], ramps[1])
        ramp_groups = max((event.group for event in on_ramp), default=0)
        steady = (replace(each, group=each.group + ramp_groups) for each in match_events(base, new, margins))
        for event in (*on_ramp, *steady):
            follows = test.type == "unbounded" and _follows_load(event, views[event.build][number])
            row = {name: value for name, value in vars(event).items() if name in Event.model_fields}
            warns = event.warning and None not in pair and not follows
            events.append(Event(**row | {"run": number + 1, "group": groups + event.group, "warning": warns}))
    return events


def _of_run(
    test: Test, view: RunView, curves: Mapping[str, pd.Series], identical: Sequence[RepeatedRuns]
) -> dict[str, RunEvents]:
    inside = search_window(view.steady.window, test.type)
    if inside is None:
        return {}
    runs = [run for group in identical if group.type == test.type for run in group.runs]  # their windows are as long
    found: dict[str, RunEvents] = {}
    for slug, curve in curves.items():
        known = tuple(each for run in runs if (each := run.no_change.get(slug, 0.0)) > 0)
        calibration = CalibratedPenalty(known) if len(known) >= CalibratedPenalty.MIN_RUNS else None
        found[slug] = find_events(curve, inside, calibration=calibration)
    return found


def _of_ramp(test: Test, view: RunView, curves: Mapping[str, pd.Series]) -> dict[str, RunEvents]:
    """The events of the last part of a run's ramp; without those of the hours after an unbounded test's first alert."""
    shape, steady = view.shape, view.steady.window
    if shape is None or steady is None:
        return {}
    line_end_s = shape.ramp.end_s if shape.ramp else None
    end_s = shape.top_s if test.type == "bounded" else line_end_s
    if end_s is None:
        return {}
    until_s = steady[0] + AFTER_RAMP_S if test.type == "bounded" else min(end_s + AFTER_RAMP_S, steady[0])
    elapsed, values = shape.curve.between(-math.inf, end_s)
    low = elapsed[values < RAMP_FROM * shape.curve.level]
    since_s = float(low[-1] if low.size else elapsed[0])
    if not until_s > since_s:
        return {}
    return {slug: find_ramp_events(curve, (since_s, end_s), until_s) for slug, curve in curves.items()}


def _follows_load(event: PlacedEvent, view: RunView) -> bool:
    """Whether a level changed as the users did, which in an unbounded test climb for as long as they can."""
    if event.kind != "level" or event.size_percent is None or view.load is None or event.metric == view.load_slug:
        return False
    load = view.load[np.isfinite(view.load.to_numpy())]
    before = load[(load.index > event.around_s[0]) & (load.index <= event.at_s)]
    after = load[(load.index > event.at_s) & (load.index <= event.around_s[1])]
    if before.empty or after.empty or not before.mean() > 0:
        return False
    moved = 100.0 * (float(after.mean()) / float(before.mean()) - 1.0)
    return moved * event.size_percent > 0 and abs(event.size_percent) <= FOLLOWS * abs(moved)


def match_events(
    base: Mapping[str, RunEvents], new: Mapping[str, RunEvents], margins: Mapping[str, float]
) -> tuple[PlacedEvent, ...]:
    """Pair the events of two runs of one test, group them, and pick those worth a warning, in order of group and time.

    What belongs to the test (the ramp's end, a job at a fixed time) is in both builds at about the same elapsed time:
    it is no finding. A warning needs an event that the other build does not show, and whose size is beyond the
    metric's margin even at the near end of its interval, with an error of 5 % for all series of the test together. A
    spike or drop must be witnessed by another metric, or be out of all proportion: one minute of one metric alone is
    what identical runs show every day. By slug; a metric without a margin (percent) never warns.
    """
    found = [
        PlacedEvent(**vars(event), metric=slug, build=build, matched=_matched(slug, event, mine, other))
        for build, mine, other in zip(SIDES, (base, new), (new, base), strict=True)
        for slug, run in mine.items()
        for event in run.events
    ]
    groups = _together(found)
    # Standard errors of an interval that holds for all series at once (Sidak 1967).
    z = float(ndtri(0.5 + 0.5 * (1.0 - ERROR) ** (1.0 / max(len(base) + len(new), 1))))
    placed = []
    for number, group in enumerate(groups, 1):
        for each in group:
            witnessed = each.kind == "level" or any(other.metric != each.metric for other in group)
            least = margins.get(each.metric, math.inf) * (1.0 if witnessed else LONE)
            warning = not each.matched and each.at_least_percent(z) >= least
            placed.append(replace(each, group=number, warning=warning))
    return tuple(placed)


def match_ramp_events(base: Mapping[str, RunEvents], new: Mapping[str, RunEvents]) -> tuple[PlacedEvent, ...]:
    """Pair the events of two ramps and group them; events of the load, whose size depends on when they hit it.

    So whatever moves in the same direction at about the same time in the other build is the same event, in any metric.
    """
    found = []
    for build, mine, other in zip(SIDES, (base, new), (new, base), strict=True):
        theirs = [each for run in other.values() for each in run.events]
        for slug, event in ((slug, event) for slug, run in mine.items() for event in run.events):
            matched = any(event.kind == each.kind and _near(event, each) for each in theirs)
            found.append(PlacedEvent(**vars(event), metric=slug, build=build, matched=matched, phase="ramp"))
    return tuple(
        replace(each, group=number, warning=not each.matched and len({e.metric for e in group}) >= RAMP_WITNESSES)
        for number, group in enumerate(_together(found), 1)
        for each in group
    )


def _together(found: Sequence[PlacedEvent]) -> list[list[PlacedEvent]]:
    """Events of one build that happened together, in order of time."""
    groups: list[list[PlacedEvent]] = []
    for each in sorted(found, key=lambda each: (each.build, each.matched, each.start_s, each.metric)):
        first = groups[-1][0] if groups else None
        alike = first is not None and (first.build, first.matched) == (each.build, each.matched)
        if first is None or not alike or each.start_s > first.start_s + TOGETHER_S:
            groups.append([])
        groups[-1].append(each)
    return sorted(groups, key=lambda group: (group[0].start_s, group[0].build))


def _matched(slug: str, event: MetricEvent, mine: Mapping[str, RunEvents], other: Mapping[str, RunEvents]) -> bool:
    if slug not in other:
        return False
    shorter = other[slug].end_s - mine[slug].end_s
    for each in other[slug].events:
        small, large = sorted((abs(event.size), abs(each.size)))
        near = _near(event, each) or (event.kind == "drop" and _near(event, each, shorter))
        if event.kind == each.kind and event.size * each.size > 0 and near and small >= ALIKE * large:
            return True
    own, there = _contrast(event, mine[slug]), _contrast(event, other[slug])
    return own != 0.0 and there / own >= ALIKE


def _near(one: MetricEvent, other: MetricEvent, later_s: float = 0.0) -> bool:
    """Whether `other` is `SAME_S` from `one`, which would be so much later in its run."""
    since, until, at = one.span_s[0] + later_s, one.span_s[1] + later_s, one.at_s + later_s
    return since - SAME_S <= other.at_s <= until + SAME_S or (
        other.span_s[0] - SAME_S <= at <= other.span_s[1] + SAME_S
    )


def _contrast(event: MetricEvent, run: RunEvents) -> float:
    """What an event changed, as means over the same times in any run; NaN where one of them has no numbers."""
    begin, end = event.start_s, event.at_s if event.kind == "level" else event.span_s[1]
    first, last = max(event.around_s[0], begin - NEARBY_S), min(event.around_s[1], end + NEARBY_S)
    if event.kind == "level":
        return run.mean(end, last) - run.mean(first, begin)
    outside = (run.times_s >= first) & (run.times_s < last) & ((run.times_s < begin) | (run.times_s >= end))
    around = run.averages[outside]
    return run.mean(begin, end) - float(around.mean()) if around.size else float("nan")
