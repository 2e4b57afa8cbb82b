"""Small pictures of samples for widgets, drawn within tens of milliseconds: pyplot and seaborn would take longer."""

from __future__ import annotations

import io
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from buildcompare.figures.base import COLOURS, DASHES, SHADE, STYLE, compact
from buildcompare.results.codes import SIDES, Pair
from buildcompare.text.numbers import unit_scale

BINS = 40  # of a distribution: half an hour of samples five seconds apart are nine a bin
SIZE = (9.0, 2.3)  # inches


@mpl.rc_context(STYLE)
def spread(samples: pd.DataFrame, autocorrelation: pd.DataFrame, labels: Pair[str], unit: str, alt: str) -> str:
    """How often each value was measured, and how far samples are like those before them, as an SVG.

    Parameters
    ----------
    samples
        Finite samples in their windows: columns build, value.
    autocorrelation
        Columns build, run, lag_s, correlation, chance (shaded).
    labels
        The builds by name.
    unit
        Of the values.
    alt
        What it shows in words.
    """
    drawing, (left, right) = _drawing(2)
    values = samples["value"].to_numpy(dtype=np.float64)
    factor, name = unit_scale(float(np.abs(values).max()) if values.size else 1.0, unit)
    bins = np.histogram_bin_edges(values * factor, BINS)
    for side in SIDES:
        own = values[(samples["build"] == side).to_numpy()] * factor
        counts, _ = np.histogram(own, bins)
        look: dict[str, Any] = {"color": COLOURS[side], "label": labels[side], "lw": 1.3}
        left.stairs(counts / max(own.size, 1) * 100.0, bins, **look)
        for _, run in autocorrelation[autocorrelation["build"] == side].groupby("run"):
            right.plot(run["lag_s"] / 60.0, run["correlation"], dashes=DASHES[side] or (None, None), **look)
    if len(autocorrelation):
        chance = float(autocorrelation["chance"].max())
        right.axhspan(-chance, chance, color=SHADE, lw=0, zorder=0)
    left.set(xlabel=name, ylabel="% of samples", title="Distribution")
    right.set(xlabel="minutes between two samples", title="Autocorrelation", ylim=(None, 1.05))
    for text in left.legend(frameon=False, fontsize=7).get_texts():
        text.set_parse_math(False)
    return _svg(drawing, alt)


@mpl.rc_context(STYLE)
def lines(samples: pd.DataFrame, alt: str) -> str:
    """Every series (columns build, run, series, elapsed_s, value) in the colour of its build, as an SVG."""
    drawing, (axes,) = _drawing(1)
    for (side, _, _), each in samples.groupby(["build", "run", "series"]):
        axes.plot(each["elapsed_s"] / 60.0, each["value"], color=COLOURS[str(side)], lw=1.0)
    axes.set(xlabel="elapsed time, minutes")
    return _svg(drawing, alt)


def _drawing(columns: int) -> tuple[Drawing, tuple[Axes, ...]]:
    drawing = Drawing(figsize=SIZE)
    grid = drawing.subplots(1, columns, squeeze=False)
    drawing.subplots_adjust(left=0.06, right=0.99, top=0.9, bottom=0.2, wspace=0.14)
    for axes in grid[0]:
        axes.spines[["top", "right"]].set_visible(False)
    return drawing, tuple(grid[0])


def _svg(drawing: Drawing, alt: str) -> str:
    sink = io.StringIO()
    drawing.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    return compact(sink.getvalue(), alt)
