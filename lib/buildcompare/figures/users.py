"""Draw the connected users with the phases of the load, and metrics of both builds over them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from buildcompare.comparison.analysis import TestView
from buildcompare.figures import base as drawing
from buildcompare.figures.base import COLOURS, DASHES, GRID, INK, PAPER, THEME, Figure, finished, runs_of, styled
from buildcompare.metrics.equal_load import MetricAtLoad
from buildcompare.results import MetricResult, RampUp
from buildcompare.results.codes import SIDES, Pair, Status
from buildcompare.text import figures as words
from buildcompare.text.numbers import unit_scale

WIDE, BARS = (9.0, 4.4), 0.6
"""Inches: the figure, and what the bars of its phases take."""
PHASES = ("early_bumps", "ramp", "bend", "waves", "plateau", "shutdown")
SHADES = {phase: THEME[phase.removeprefix("early_")] for phase in PHASES}
"""All follow the page's theme. Names stand on them in INK, on the dark ones in PAPER."""
DARK = ("early_bumps", "shutdown")
NARROW = 0.045
"""A phase that takes less of the axis than this has no room for its name."""


def users(test: TestView) -> Figure | None:
    """The curves of connected users with their phases and the shift; None where nobody recorded them."""
    load, labels = test.catalogue.load, test.labels
    metric = next((m for m in test.result.metrics if load and m.slug == load.slug), None)
    if metric is None:
        return None
    figure, axes = drawing.new_figure(WIDE, words.users_title(test.result, metric, labels), below=BARS)
    drawing.draw_curves(axes, test, metric.slug, None, metric.unit)
    drawing.steady_windows(axes, test)
    for side in SIDES:
        for run in runs_of(test, side):
            if test.result.type == "unbounded" and run.window and run.ramp_up.plateau_users is not None:
                ends = [second / 60 for second in run.window]
                axes.plot(ends, [run.ramp_up.plateau_users] * 2, color=COLOURS[side], lw=4, alpha=0.35)
        ramp: RampUp = getattr(test.result.ramp_up, side)
        if ramp.wave_onset_s is not None and ramp.wave_onset_users is not None:
            onset = ramp.wave_onset_s / 60, ramp.wave_onset_users
            axes.plot(*onset, "o", color=COLOURS[side], ms=5, mec="white", zorder=4)
    _shift(axes, test, metric.slug)
    drawing.scale_axis(axes, 1.0, "users")
    _phase_bars(axes, test)
    alt = words.users_alt(test.result, metric, labels)
    return finished(figure, f"{test.result.name}_users", alt, graph_of=None)


def _shift(axes: Axes, test: TestView, slug: str) -> None:
    """Draw the gap between the builds where their ramps ran side by side."""
    ramp = test.result.ramp_up
    if ramp.shift_users is None or ramp.shift_window is None or ramp.shift_status == Status.INCONCLUSIVE:
        return
    at, ends = sum(ramp.shift_window) / 2, []
    for recording in (test.recordings[side][0] for side in SIDES):
        series = recording.total(slug)
        if series is None:
            return
        curve = recording.curve(series).astype(np.float64)
        ends.append(float(np.interp(at, curve.index.to_numpy(dtype=np.float64), curve)))
    base, new = ends
    arrow = {"arrowstyle": "<->", "color": INK, "lw": 1.0, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=(at / 60, new), xytext=(at / 60, base), arrowprops=arrow)
    paper = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.0}
    gap = f" {words.shift_words(ramp.shift_users)}"
    axes.text(at / 60, (base + new) / 2, gap, fontsize=7.5, va="center", color=INK, bbox=paper, zorder=5)


def _phase_bars(axes: Axes, test: TestView) -> None:
    """Draw a bar for each build under the curves: which phase it was in."""
    with styled():
        bars = axes.inset_axes((0.0, -0.34, 1.0, 0.14), sharex=axes)
    limit = axes.get_xlim()[1]
    for row, side in enumerate(SIDES):
        for phase in runs_of(test, side)[0].phases:
            start, width = phase.start_s / 60, (phase.end_s - phase.start_s) / 60
            bars.barh(-row, width, left=start, height=0.82, color=SHADES[phase.name], edgecolor=PAPER, lw=0.6)
            if width >= NARROW * limit:
                name, colour = words.PHASES.get(phase.name, phase.name), PAPER if phase.name in DARK else INK
                bars.text(start + width / 2, -row, name, ha="center", va="center", fontsize=6.5, color=colour)
    bars.set_yticks([0, -1], list(SIDES), fontsize=7)
    bars.set_ylim(-1.5, 0.5)
    bars.tick_params(length=0, labelbottom=False)
    bars.grid(visible=False)
    bars.spines[:].set_visible(False)
    bars.set_facecolor("none")
    axes.set_xlim(0.0, limit)
    axes.xaxis.grid(color=GRID)


def at_equal_load(test: TestView) -> Iterator[Figure]:
    """A figure for each metric of `test` that users feel, or that changed at equal load or at the builds' own."""
    for row in test.result.metrics:
        statuses = (row.status, row.load_adjusted.status if row.load_adjusted else None)
        changed = Status.REGRESSION in statuses or Status.IMPROVEMENT in statuses
        if row.slug in test.at_load and not row.labels and (row.gate or changed):
            name = f"{test.result.name}_at_load_{row.slug}"
            yield metric_at_load(name, test.labels, row, test.at_load[row.slug].at_load)


def metric_at_load(name: str, labels: Pair[str], metric: MetricResult, seen: MetricAtLoad) -> Figure:
    """The metric over the users: a dot per minute, each build's curve with its 95 % interval, and where they meet."""
    top = max(float(np.quantile(seen.points[side][:, 1], 0.99)) for side in SIDES)
    factor, unit = unit_scale(top, metric.unit)
    with styled():
        figure, axes = drawing.new_figure(drawing.SMALL, words.at_load_title(metric), above=0.14)
        for side in SIDES:
            users, values = seen.points[side].T
            curve, half, colour = seen.curves[side] * factor, 1.96 * seen.se_curves[side], COLOURS[side]
            axes.scatter(users, values * factor, s=5, color=colour, alpha=0.35, lw=0)
            axes.fill_between(seen.users, curve * np.exp(-half), curve * np.exp(half), color=colour, alpha=0.18, lw=0)
            axes.plot(seen.users, curve, color=colour, lw=1.6, dashes=DASHES[side] or (None, None))
        axes.axvline(seen.at_users, color=INK, lw=0.8, ls=":")
        place: dict[str, Any] = {
            "xytext": (-3, 0),
            "textcoords": "offset points",
            "xycoords": ("data", "axes fraction"),
        }
        at = f"both sustained {seen.at_users:,.0f}"
        axes.annotate(at, (seen.at_users, 0.02), ha="right", fontsize=7, **place)
        axes.set(xlabel="connected users", ylabel=unit, xlim=(0.0, None))
        axes.set_ylim(0.0, 1.1 * factor * max(top, seen.base, seen.new))
        axes.xaxis.set_major_formatter(lambda users, _: f"{users:,.0f}")
        drawing.legend_above(axes, dict(labels.items()))
    counts = Pair.of(lambda side: len(seen.points[side]))
    return finished(figure, name, words.at_load_alt(metric, labels, counts), graph_of=None)
