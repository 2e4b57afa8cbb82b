"""Draw the connected users: how the load came up, which phases it had, how far apart the builds are."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from buildcompare.comparison.analysis import TestView
from buildcompare.figures.base import (
    COLOURS,
    GRID,
    INK,
    PAPER,
    THEME,
    Figure,
    draw_curves,
    finished,
    new_figure,
    runs_of,
    scale_axis,
    steady_windows,
    styled,
)
from buildcompare.results import RampUp
from buildcompare.results.codes import SIDES, Side, Status
from buildcompare.text.figures import PHASES, shift_words, users_alt, users_title

WIDE, BARS = (9.0, 4.4), 0.6
"""Inches: the figure, and what the bars of its phases take."""
SHADES = {
    phase: THEME[phase.removeprefix("early_")]
    for phase in ("early_bumps", "ramp", "bend", "waves", "plateau", "shutdown")
}
"""Of each phase; all follow the page's theme. Names stand on them in INK, on the dark ones in PAPER."""
DARK = ("early_bumps", "shutdown")
NARROW = 0.045
"""A phase that takes less of the axis than this has no room for its name."""


def users(test: TestView) -> Figure | None:
    """The curves of connected users with their phases and the shift; None where nobody recorded them."""
    load, labels = test.catalogue.load, test.labels
    metric = next((m for m in test.result.metrics if load and m.slug == load.slug), None)
    if metric is None:
        return None
    figure, axes = new_figure(WIDE, users_title(test.result, metric, labels), below=BARS)
    draw_curves(axes, test, metric.slug, None, metric.unit)
    steady_windows(axes, test)
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
    scale_axis(axes, 1.0, "users")
    _phase_bars(axes, test)
    alt = users_alt(test.result, metric, labels)
    return finished(figure, f"{test.result.name}_users", alt, graph_of=None)


def _shift(axes: Axes, test: TestView, slug: str) -> None:
    """Draw the gap between the builds where their ramps ran side by side."""
    ramp = test.result.ramp_up
    if ramp.shift_users is None or ramp.shift_window is None or ramp.shift_status == Status.INCONCLUSIVE:
        return
    at = sum(ramp.shift_window) / 2
    base, new = (_users_at(test, side, slug, at) for side in SIDES)
    if base is None or new is None:
        return
    arrow = {"arrowstyle": "<->", "color": INK, "lw": 1.0, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=(at / 60, new), xytext=(at / 60, base), arrowprops=arrow)
    paper = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.0}
    words = f" {shift_words(ramp.shift_users)}"
    axes.text(at / 60, (base + new) / 2, words, fontsize=7.5, va="center", color=INK, bbox=paper, zorder=5)


def _users_at(test: TestView, side: Side, slug: str, elapsed_s: float) -> float | None:
    recording = test.recordings[side][0]
    series = recording.total(slug)
    if series is None:
        return None
    curve = recording.curve(series)
    return float(np.interp(elapsed_s, curve.index.to_numpy(dtype=np.float64), curve.to_numpy(dtype=np.float64)))


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
                name, colour = PHASES.get(phase.name, phase.name), PAPER if phase.name in DARK else INK
                bars.text(start + width / 2, -row, name, ha="center", va="center", fontsize=6.5, color=colour)
    bars.set_yticks([0, -1], list(SIDES), fontsize=7)
    bars.set_ylim(-1.5, 0.5)
    bars.tick_params(length=0, labelbottom=False)
    bars.grid(visible=False)
    bars.spines[:].set_visible(False)
    bars.set_facecolor("none")
    axes.set_xlim(0.0, limit)
    axes.xaxis.grid(color=GRID)
