"""The figure of connected users: how the load came up, which phases it had, how far apart the builds are."""

from __future__ import annotations

from typing import Literal

import numpy as np
from matplotlib.axes import Axes

from buildcompare.comparison.analysis import TestView
from buildcompare.figures.base import (
    COLOURS,
    GRID,
    INK,
    Figure,
    draw_curves,
    finished,
    in_words,
    levels,
    new_figure,
    runs_of,
    scale_axis,
    steady_windows,
    styled,
)
from buildcompare.results import MetricResult, RampUp
from buildcompare.results.codes import Status
from buildcompare.text.numbers import change, minutes

WIDE, BARS = (9.0, 4.4), 0.6
"""Inches: the figure, and what the bars of its phases take."""
SHADES = {
    "early_bumps": "#6e6e6c",
    "ramp": "#d9d9d8",
    "bend": "#c4c4c3",
    "waves": "#b0b0ae",
    "plateau": "#e6e6e5",
    "shutdown": "#4e4e4c",
}
"""Of each phase; all follow the page's theme (`svg.THEMED`). Names stand on them in INK, on the dark ones in PAPER."""
DARK = ("early_bumps", "shutdown")
PAPER = "#ffffff"
WORDS = {"early_bumps": "bumps", "shutdown": ""}
NARROW = 0.045
"""A phase that takes less of the axis than this has no room for its name."""
Side = Literal["base", "new"]
SIDES: tuple[Side, Side] = ("base", "new")


def users(test: TestView) -> Figure | None:
    """The curves of connected users with their phases and the shift; None where nobody recorded them."""
    load = test.catalogue.load
    metric = next((m for m in test.result.metrics if load and m.slug == load.slug), None)
    if metric is None:
        return None
    figure, axes = new_figure(WIDE, _title(test, metric), below=BARS)
    draw_curves(axes, test, metric.slug, None, metric.unit)
    steady_windows(axes, test)
    for side in SIDES:
        for run in runs_of(test, side):
            if test.result.type == "unbounded" and run.window and run.ramp_up.plateau_users is not None:
                ends = [second / 60 for second in run.window]
                axes.plot(ends, [run.ramp_up.plateau_users] * 2, color=COLOURS[side], lw=4, alpha=0.35)
        _wave_onset(axes, getattr(test.result.ramp_up, side), side)
    _shift(axes, test, metric.slug)
    scale_axis(axes, 1.0, "users")
    _phase_bars(axes, test)
    return finished(figure, f"{test.result.name}_users", _alt(test, metric), graph_of=None)


def _title(test: TestView, metric: MetricResult) -> str:
    users = test.result.supported_users
    if users is None:
        return f"Connected users: {levels(metric)}"
    if users.delta_percent is None:
        return "Connected users; the supported users cannot be compared"
    return (
        f"{test.labels[1]} supports {users.new:,.0f} users, {test.labels[0]} {users.base:,.0f} "
        f"({change(users.delta_percent)})"
    )


def _wave_onset(axes: Axes, ramp: RampUp, side: Side) -> None:
    if ramp.wave_onset_s is not None and ramp.wave_onset_users is not None:
        axes.plot(ramp.wave_onset_s / 60, ramp.wave_onset_users, "o", color=COLOURS[side], ms=5, mec="white", zorder=4)


def _shift(axes: Axes, test: TestView, slug: str) -> None:
    """The gap between the builds, drawn where their ramps ran side by side."""
    ramp = test.result.ramp_up
    if ramp.shift_users is None or ramp.shift_window is None or ramp.shift_status == Status.INCONCLUSIVE:
        return
    at = sum(ramp.shift_window) / 2
    heights = []
    for side in SIDES:
        recording = test.recordings[side][0]
        series = recording.total(slug)
        if series is None:
            return
        curve = recording.curve(series)
        heights.append(float(np.interp(at, curve.index.to_numpy(dtype=np.float64), curve.to_numpy(dtype=np.float64))))
    axes.annotate(
        "",
        xy=(at / 60, heights[1]),
        xytext=(at / 60, heights[0]),
        arrowprops={"arrowstyle": "<->", "color": INK, "lw": 1.0, "shrinkA": 0, "shrinkB": 0},
    )
    words = f" {abs(ramp.shift_users):,.0f} users {'behind' if ramp.shift_users < 0 else 'ahead'}"
    paper = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.0}
    axes.text(at / 60, sum(heights) / 2, words, fontsize=7.5, va="center", color=INK, bbox=paper, zorder=5)


def _phase_bars(axes: Axes, test: TestView) -> None:
    """Under the curves a bar for each build: which phase it was in."""
    with styled():
        bars = axes.inset_axes((0.0, -0.34, 1.0, 0.14), sharex=axes)
    limit = axes.get_xlim()[1]
    for row, side in enumerate(SIDES):
        for phase in runs_of(test, side)[0].phases:
            start, width = phase.start_s / 60, (phase.end_s - phase.start_s) / 60
            shade = SHADES[phase.name]
            bars.barh(-row, width, left=start, height=0.82, color=shade, edgecolor=PAPER, lw=0.6)
            if width >= NARROW * limit:
                name = WORDS.get(phase.name, phase.name)
                colour = PAPER if phase.name in DARK else INK
                bars.text(start + width / 2, -row, name, ha="center", va="center", fontsize=6.5, color=colour)
    bars.set_yticks([0, -1], ["base", "new"], fontsize=7)
    bars.set_ylim(-1.5, 0.5)
    bars.tick_params(length=0, labelbottom=False)
    bars.grid(visible=False)
    for spine in bars.spines.values():
        spine.set_visible(False)
    bars.set_facecolor("none")
    axes.set_xlim(0.0, limit)
    axes.xaxis.grid(color=GRID)


def _alt(test: TestView, metric: MetricResult) -> str:
    words = in_words(test, metric)
    for side, label in zip(SIDES, test.labels, strict=True):
        ramp: RampUp = getattr(test.result.ramp_up, side)
        if ramp.onset_s is not None:
            words += f" {label}: {ramp.early_bumps or 0} early bumps, lasting ramp from {minutes(ramp.onset_s)}"
            if ramp.slope_users_per_s is not None:
                words += f" at {ramp.slope_users_per_s:.2f} users/s"
            if ramp.wave_onset_s is not None and ramp.wave_period_s is not None:
                words += f", waves from {minutes(ramp.wave_onset_s)} with a period of {ramp.wave_period_s:.0f} s"
            words += "."
    shift = test.result.ramp_up
    if shift.shift_users is not None and shift.shift_status != Status.INCONCLUSIVE:
        side_word = "behind" if shift.shift_users < 0 else "ahead"
        words += f" {test.labels[1]} runs {abs(shift.shift_users):,.0f} users {side_word} on the common ramp."
    return words
