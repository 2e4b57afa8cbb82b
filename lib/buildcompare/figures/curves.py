"""Draw metrics of both builds on the same axes over elapsed time or users, and draw distributions."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from operator import methodcaller
from typing import get_args

import numpy as np

from buildcompare.comparison.measure import TestView
from buildcompare.config.catalogue import outcome
from buildcompare.figures import Figure, chart, names, unused
from buildcompare.figures.plot import NOTE, SMALL, Plot, dot_style, width_of
from buildcompare.metrics.equal_load import MetricAtLoad
from buildcompare.metrics.measurements import values_of
from buildcompare.results import MetricResult, TestResult
from buildcompare.results.codes import SIDES, Pair, Side, Status, ValidityStatus
from buildcompare.results.users import PhaseName, RampUp
from buildcompare.text.numbers import change, shift_words, unit_scale
from buildcompare.text.sentences import say

POINTS_PER_CURVE = 280  # More points make no visible difference at a figure's width
WIDE, BARS = (9.0, 4.4), 0.6
"""Size of the wide figure, and height of its phase bars, in inches."""
SHADES = {phase: phase.removeprefix("early_") for phase in get_args(PhaseName)}
"""Short name of each phase, which is also the name of its colour in the page's theme."""
DARK = ("early_bumps", "shutdown")  # Phases with dark colours, on which text is light
NARROW = 0.045  # Narrowest phase whose name is drawn, as a share of the axis
ROOM = 1.05
"""Upper end of an axis, divided by the largest value drawn along the axis."""


def graphs(test: TestView) -> Iterator[Figure]:
    """Draw one figure per metric; changed metrics are open, unless equal load decides or the test is invalid."""
    load, valid = test.catalogue.load, test.result.validity.status != ValidityStatus.INVALID
    for metric, name in zip(test.result.metrics, names(test.result.metrics, test.result.name), strict=True):
        changed = valid and metric.status.changed and metric.decided_by != "equal_load"  # closed if equal load decides
        elsewhere = load is not None and metric.slug == load.slug and rises(test.result)  # `users` draws the load
        yield replace(graph(test, metric, name), caption=metric.full_name, shown=None if elsewhere else changed)


def graph(test: TestView, metric: MetricResult, name: str) -> Figure:
    """Draw one metric of both builds over elapsed time; `name` is the file name."""
    title, find = say("figures", "metric_title", metric), methodcaller("find", metric.slug, metric.labels)
    plot = _with_curves(test, metric, find, title, SMALL)
    for event in test.result.events_of(metric):
        at, side = event.at_s / 60, event.build
        plot.rule(at, side, 0.9, (3.7, 1.6))
        mark = f"{event.kind} {change(event.size_percent)}"
        plot.text(plot.across(at) + 2, plot.bottom - 4, mark, points=NOTE, colour=side)
    alt = say("figures", "metric_alt", metric, test.result, test.labels)
    shown = chart.chart(test, metric, find, title=title, alt=alt)
    return Figure(name, alt, plot.svg(alt), graph_of=test.result.name, chart=shown)


def rises(test: TestResult) -> bool:
    """Test whether the users of a build rose after the first sample."""
    return any(ramp.onset_s is not None or any(ramp.time_to.values()) for ramp in (test.ramp_up.base, test.ramp_up.new))


def users(test: TestView) -> Figure | None:
    """Draw connected users, phases and the difference between the ramps; None if users were not recorded."""
    load, labels = test.catalogue.load, test.labels
    metric = next((m for m in test.result.metrics if load and m.slug == load.slug), None)
    if metric is None:
        return None
    title, marks = say("figures", "users_title", test.result, metric, labels), []
    find = methodcaller("total", metric.slug)
    plot = _with_curves(test, metric, find, title, WIDE, below=BARS)
    for side in SIDES:
        for run in test.result.runs[side]:
            if test.result.type == "unbounded" and run.window and run.ramp_up.plateau_users is not None:
                level = [(second, run.ramp_up.plateau_users) for second in run.window]
                plot.curve([_in_minutes(level)], side, width=4, dashes=(), opacity=0.35)
                marks.append(_mark(level, side))
        ramp: RampUp = getattr(test.result.ramp_up, side)
        if ramp.wave_onset_s is not None and ramp.wave_onset_users is not None:
            onset = [(ramp.wave_onset_s, ramp.wave_onset_users)]
            plot.dots(*_in_minutes(onset), 2.5, dot_style(side))
            marks.append(_mark(onset, side, "waves begin"))
    marks += _shift(plot, test, metric.slug)
    _phase_bars(plot, test)
    alt = say("figures", "users_alt", test.result, metric, labels)
    shown = chart.chart(test, metric, find, title=title, alt=alt, marks=marks, wide=True)
    return Figure(f"{test.result.name}_users", alt, plot.svg(alt), chart=shown)


def _in_minutes(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [second / 60 for second, _ in points], [value for _, value in points]


def _mark(points: list[tuple[float, float]], side: Side | None, text: str = "") -> chart.Mark:
    return {"side": side, "from": points[0], "to": points[-1], "text": text}


def _shift(plot: Plot, test: TestView, slug: str) -> list[chart.Mark]:
    """Draw a significant shift as a line between both ramps, with the gap in users; return its marks for the chart."""
    ramp = test.result.ramp_up
    if ramp.shift_users is None or ramp.shift_window is None or ramp.shift_status == Status.INCONCLUSIVE:
        return []
    at, ends = sum(ramp.shift_window) / 2, []
    for recording in (test.recordings[side][0] for side in SIDES):
        if (series := recording.total(slug)) is None:
            return []
        curve = recording.curve(series).astype(np.float64)
        ends.append(float(np.interp(at, curve.index.to_numpy(dtype=np.float64), curve)))
    x, (base, new) = float(plot.across(at / 60)), plot.down(ends)
    words, middle = shift_words(ramp.shift_users), float(base + new) / 2
    plot.segment((x, base), (x, new), "ink", 1.0)
    for end in (base, new):
        plot.segment((x - 3, end), (x + 3, end), "ink", 1.0)
    plot.rectangle(x + 3, middle - 6, width_of(words, 7.5) + 2, 11, "paper")
    plot.text(x + 4, middle + 2.7, words, points=7.5)
    return [_mark([(at, ends[0]), (at, ends[1])], None, words)]


def _phase_bars(plot: Plot, test: TestView) -> None:
    """Draw the phases of the first run of each build as a bar under the curves."""
    height = 0.07 * (plot.bottom - plot.top)
    for row, side in enumerate(SIDES):
        top = plot.bottom + 0.2 * (plot.bottom - plot.top) + row * height
        plot.text(plot.left - 4, top + 0.7 * height, side, points=NOTE, anchor="end")
        for phase in test.result.runs[side][0].phases:
            start, end = plot.across((phase.start_s / 60, phase.end_s / 60)).clip(plot.left, plot.right)
            plot.rectangle(start + 0.3, top + 0.6, end - start - 0.6, height - 1.2, SHADES[phase.name])
            if end - start >= NARROW * (plot.right - plot.left) and phase.name != "shutdown":
                colour = "paper" if phase.name in DARK else "ink"
                middle, name = (start + end) / 2, SHADES[phase.name]
                plot.text(middle, top + 0.7 * height, name, points=6.5, anchor="middle", colour=colour)


def at_equal_load(test: TestView) -> Iterator[Figure]:
    """Draw each gate metric (one that decides the verdict) and each changed metric over connected users."""
    valid = test.result.validity.status != ValidityStatus.INVALID
    for row in test.result.metrics:
        statuses = (row.status, row.load_adjusted.status if row.load_adjusted else None)
        changed = any(status and status.changed for status in statuses)
        if row.slug in test.at_load and not row.labels and (row.gate or changed):
            name = f"{test.result.name}_at_load_{row.slug}"
            figure = metric_at_load(name, test.labels, row, test.at_load[row.slug], group=chart.group_of(test))
            shown = valid and row.load_adjusted is not None and row.load_adjusted.status.changed
            yield replace(figure, caption=say("figures", "at_load_caption", row), shown=shown)


def metric_at_load(name: str, labels: Pair[str], metric: MetricResult, seen: MetricAtLoad, *, group: str) -> Figure:
    """Draw a metric over users: a dot per minute, and each build's curve with its 95 % interval."""
    title = say("figures", "at_load_title", metric)
    top = max(float(np.quantile(seen.points[side][:, 1], 0.99)) for side in SIDES)
    factor, unit = unit_scale(top, metric.unit)
    most = max(float(users.max()) for users in (seen.users, *(seen.points[side][:, 0] for side in SIDES)))
    plot = Plot(
        SMALL,
        title,
        x=(0.0, ROOM * most),
        y=(0.0, 1.1 * factor * max(top, seen.base, seen.new)),
        xlabel="connected users",
        ylabel=unit,
        above=0.14,
    )
    plot.rule(seen.at_users, "ink", 0.8, (1.0, 1.65))
    for side in SIDES:
        users, values = seen.points[side].T
        curve, half = seen.curves[side] * factor, chart.half_widths(seen, side)
        plot.cloud(users, values * factor, side, 2.2, 0.4)
        plot.area(seen.users, curve * np.exp(-half), curve * np.exp(half), side, 0.18)
        plot.curve([(seen.users, curve)], side, width=1.6)
    at = chart.BOTH_SUSTAINED.format(seen.at_users)
    plot.text(plot.across(seen.at_users) - 3, plot.bottom - 3, at, points=NOTE, anchor="end")
    plot.legend(dict(labels.items()))
    alt = say("figures", "at_load_alt", metric, labels, Pair.of(lambda side: len(seen.points[side])))
    return Figure(name, alt, plot.svg(alt), chart=chart.over_loads(labels, metric, seen, group, title=title, alt=alt))


Stretch = tuple[np.ndarray, np.ndarray]
"""Consecutive samples of a curve without a gap: elapsed minutes and values, shape (n,) each."""


def stretches(test: TestView, find: chart.Find) -> dict[Side, list[Stretch]]:
    """Return each build's curves: the series that `find` returns for each recording, thinned and split at gaps."""
    drawn: dict[Side, list[Stretch]] = {}
    for side in SIDES:
        for recording in test.recordings[side]:
            if (series := find(recording)) is not None and (parts := _thinned(*recording.samples(series))):
                drawn.setdefault(side, []).extend(parts)
    return drawn


def _thinned(elapsed: np.ndarray, values: np.ndarray) -> list[Stretch]:
    """Split a curve at its gaps. A long curve keeps only the minimum and maximum of equal pieces, to show spikes."""
    steps, finite = np.diff(elapsed), np.isfinite(values)
    missing = np.concatenate([[False], steps > 1.5 * np.median(steps)]) if steps.size else np.zeros(values.size, bool)
    stretch, shown = np.cumsum(missing | ~finite), np.flatnonzero(finite)
    if shown.size > POINTS_PER_CURVE:
        piece = np.arange(shown.size) * (POINTS_PER_CURVE // 2) // shown.size
        shown = shown[chart.extremes(values[shown], piece)]
    ends = np.flatnonzero(np.diff(stretch[shown])) + 1
    return [(elapsed[part] / 60, values[part]) for part in np.split(shown, ends) if part.size]


def _with_curves(
    test: TestView, metric: MetricResult, find: chart.Find, title: str, size: tuple[float, float], *, below: float = 0.0
) -> Plot:
    """Draw all runs of both builds; shade the steady window and the shutdown of the first run of each build."""
    curves = stretches(test, find)
    minutes, values = (
        np.concatenate([[0.0], *(part[i] for parts in curves.values() for part in parts)]) for i in range(2)
    )
    top, last = float(np.abs(values).max()), float(minutes.max())
    factor, unit = unit_scale(top, metric.unit)
    low, high = (min(0.0, factor * float(values.min())), factor * top) if top else (0.0, 1.0)
    y, least = (ROOM * low, ROOM * high), factor * float(values[1:].min(initial=top))
    if outcome(metric.slug, metric.unit, metric.better) == "successes" and 0 < least < high:
        y = (least - 0.1 * (high - least), high + 0.1 * (high - least))  # axis starts near `least` to show 1 % losses
    plot = Plot(size, title, x=(0.0, ROOM * (last or 1.0)), y=y, ylabel=unit, below=below)
    first = [(side, run) for side in SIDES for run in test.result.runs[side][:1]]
    windows = Counter((run.window[0], run.window[1]) for _, run in first if run.window)
    for (start, end), builds in windows.items():
        plot.band(start / 60, end / 60, "shade", 1.0 - 0.45**builds)
    shutdowns = (each for _, run in first for each in run.phases if each.name == "shutdown")
    for start, end in dict.fromkeys((each.start_s, each.end_s) for each in shutdowns):
        plot.band(start / 60, end / 60, "grid")
    middle = None
    for side, run in first:
        if run.window:
            middle = sum(run.window) / 120
            plot.rule(run.window[0] / 60, side, 0.7, (1.0, 1.65))
    if middle is not None:
        words = chart.WINDOWS[test.result.type]
        plot.text(float(plot.across(middle)), plot.top + 8, words, points=NOTE, anchor="middle", opacity=0.7)
    for side, parts in curves.items():
        plot.curve([(minutes, factor * values) for minutes, values in parts], side)
    plot.legend({side: test.labels[side] for side in curves})
    return plot


def ecdfs(test: TestView) -> Iterator[Figure]:
    """Draw both builds' empirical distribution functions, for each metric in the test's `distributions`."""
    taken: set[str] = set()
    for row in test.result.distributions:
        values = {side: np.sort(values_of(test.recordings[side], row.slug)) for side in SIDES}
        every = np.concatenate(list(values.values()))
        factor, unit = unit_scale(float(every.max()), row.unit)
        least, most = factor * every.min(), factor * every.max()
        pad = 0.05 * (most - least or abs(most) or 1.0)
        title, x_axis = say("figures", "ecdf_title", row, test.labels), (least - pad, most + pad)
        plot = Plot(SMALL, title, x=x_axis, y=(0.0, 1.03), xlabel=unit or row.name, ylabel="part of all values")
        drawn = [side for side in SIDES if values[side].size]
        for side in drawn:
            count = values[side].size
            shown = np.unique(np.linspace(0, count - 1, min(count, POINTS_PER_CURVE)).round().astype(int))
            x, y = np.repeat(values[side][shown] * factor, 2), np.repeat(np.append(0, shown + 1) / count, 2)[1:-1]
            plot.curve([(x, y)], side)
        plot.legend({side: test.labels[side] for side in drawn})
        alt, name = say("figures", "ecdf_alt", row, test.labels), f"{test.result.name}_0_{unused(row.slug, taken)}"
        changed = any(metric.slug == row.slug and metric.status.changed for metric in test.result.metrics)
        yield Figure(name, alt, plot.svg(alt), graph_of=test.result.name, caption=row.name, shown=changed)
