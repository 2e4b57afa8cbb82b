"""The figures: both builds on elapsed time, same axes, each run to its own end. No statistics here."""

from __future__ import annotations

import base64
import functools
import io
import itertools
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, cast

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from buildcompare.comparison.analysis import TestView
from buildcompare.figures.svg import compact
from buildcompare.recordings.recording import Recording
from buildcompare.results import MetricResult, RunResult
from buildcompare.text.numbers import change, minutes, quantity, unit_scale
from buildcompare.text.reasons import reason_words

FIGURE_MIME = "buildcompare"
"""Key of the display metadata that tells the exporters a figure's file name and alternative text."""
COLOURS = {"base": "#0072b2", "new": "#d55e00"}
"""Blue and vermillion of Okabe & Ito (2008): apart for every kind of colour vision and in grey."""
DASHES: dict[str, Any] = {"base": "", "new": (4, 1.2)}
INK, GRID, SHADE = "#1b1b1a", "#dddddc", "#e8e8e7"
POINTS_PER_CURVE = 280
"""More cannot be told apart at the width of a report's figure."""
SMALL = (5.4, 3.1)
POINTS_PER_INCH = 72.0
LEAST_POINTS = 6.5
"""Smaller titles are not read; longer ones lose their middle: the end holds the numbers."""
"""Inches; forty of one size, so that an odd one stands out."""


@dataclass(frozen=True)
class Figure:
    """A drawn figure in both forms, with what it says in words."""

    name: str
    alt: str
    svg: str
    png: bytes
    graph_of: str | None
    """The test whose graph it is in the Markdown report; None for the other figures."""

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, str], dict[str, Any]]:
        data = {
            "image/svg+xml": self.svg,
            "image/png": base64.b64encode(self.png).decode("ascii"),
            "text/plain": self.alt,
        }
        return data, {FIGURE_MIME: {"name": self.name, "alt": self.alt, "graph_of": self.graph_of}}


def graphs(test: TestView) -> Iterator[Figure]:
    """One figure per metric, named as performance reports name them: ``mysql_bounded_0_rps``."""
    taken: set[str] = set()
    for metric in test.result.metrics:
        stem = metric.slug + _file_part("".join(f"-{value}" for value in metric.labels.values()))
        name = next(n for i in itertools.count(1) if (n := stem if i == 1 else f"{stem}-{i}") not in taken)
        taken.add(name)
        yield graph(test, metric, f"{test.result.name}_0_{name}")


def graph(test: TestView, metric: MetricResult, name: str) -> Figure:
    """Both builds' curves of one metric, in a file of this name."""
    title = f"{metric.name}{_labelled(metric)}: {levels(metric)}"
    draw, axes = new_figure(SMALL, title)
    top = draw_curves(axes, test, metric.slug, metric.labels, metric.unit)
    steady_windows(axes, test)
    events = _events(axes, test, metric)
    scale_axis(axes, top, metric.unit)
    return finished(draw, name, in_words(test, metric) + events, graph_of=test.result.name)


def _events(axes: Axes, test: TestView, metric: MetricResult) -> str:
    """Mark what happened in one build only and is worth a warning; the same in words."""
    words = ""
    for event in test.result.events:
        if event.metric == metric.slug and event.warning:
            colour = COLOURS[event.build]
            axes.axvline(event.at_s / 60, color=colour, lw=0.9, ls="--", zorder=1)
            where = axes.get_xaxis_transform()
            mark = f" {event.kind} {change(event.size_percent)}"
            axes.text(event.at_s / 60, 0.03, mark, transform=where, color=colour, fontsize=7, va="bottom")
            label = test.labels[0 if event.build == "base" else 1]
            words += f" {label} has a {event.kind} of {change(event.size_percent)} at {minutes(event.at_s)}."
    return words


def levels(metric: MetricResult) -> str:
    """The levels of both builds, and the change."""
    if metric.base is None and metric.new is None:
        return "no steady level"
    text = f"{quantity(metric.base, metric.unit)} → {quantity(metric.new, metric.unit)}"
    return text if metric.delta_percent is None else f"{text} ({change(metric.delta_percent)})"


def in_words(test: TestView, metric: MetricResult) -> str:
    """What a figure of `metric` shows, for those who cannot see it."""
    base, new = test.labels
    words = f"{metric.name}{_labelled(metric)} over elapsed time, {test.result.name}. "
    for side, label in (("base", base), ("new", new)):
        runs = runs_of(test, side)
        length = max((run.duration_s for run in runs), default=0.0) / 60
        level = quantity(getattr(metric, side), metric.unit)
        words += f"{label} runs {length:.0f} minutes, steady level {level}. "
    return words + (
        f"Change {change(metric.delta_percent)}."
        if metric.delta_percent is not None
        else f"{reason_words(metric.reason) if metric.reason else ''}."
    )


def _labelled(metric: MetricResult) -> str:
    return f" ({', '.join(metric.labels.values())})" if metric.labels else ""


def _file_part(text: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in text)[:80]


def runs_of(test: TestView, side: str) -> list[RunResult]:
    """The runs of one build."""
    return test.result.runs.base if side == "base" else test.result.runs.new


def styled() -> AbstractContextManager[None]:
    """The style that every part of a figure is drawn in."""
    return mpl.rc_context(cast(Any, dict(_style())))


@functools.cache
def _style() -> Mapping[str, Any]:
    own = {
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 8.0,
        "axes.titlesize": 9.0,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "grid.color": GRID,
        "svg.fonttype": "none",
        "svg.hashsalt": "buildcompare",
        "path.simplify": True,
        "path.simplify_threshold": 0.3,
    }
    return {**sns.axes_style("whitegrid"), **sns.plotting_context("paper"), **own}


def new_figure(
    size: tuple[float, float], title: str, *, below: float = 0.0, above: float = 0.0
) -> tuple[MatplotlibFigure, Axes]:
    """An empty figure of `size` inches, over elapsed time, with some inches left free below and above its axes.

    The margins are the same in all figures of one size: in a column of them, the axes stand under each other.
    """
    left, right, top, bottom = 0.68, 0.08, 0.52 + above, 0.45 + below
    with styled():
        figure = MatplotlibFigure(figsize=size)
        axes = figure.add_axes(
            (left / size[0], bottom / size[1], 1 - (left + right) / size[0], 1 - (top + bottom) / size[1])
        )
        text, points = _fitting(title, POINTS_PER_INCH * (size[0] - left))
        axes.set_title(text, pad=17, fontsize=points)
        axes.set_xlabel("elapsed time, minutes")
        sns.despine(ax=axes)
    return figure, axes


def _fitting(title: str, width: float) -> tuple[str, float]:
    """`title` and the size at which no line is wider than `width`, both in points; cut where that is too small."""
    usual, bold = 9.0, FontProperties(weight="bold")
    shown = [line.replace("$", r"\$") for line in title.split("\n")]
    widest = max(TextPath((0, 0), line, size=usual, prop=bold).get_extents().width for line in shown if line)
    points = usual * min(1.0, 0.97 * width / widest)
    if points >= LEAST_POINTS:
        return "\n".join(shown), points
    longest = max(len(line) for line in title.split("\n"))
    keep = max(int(longest * points / LEAST_POINTS) - 2, 10)
    cut = (
        line if len(line) <= keep else f"{line[: keep // 2]} … {line[-(keep - keep // 2) :]}"
        for line in title.split("\n")
    )
    return "\n".join(line.replace("$", r"\$") for line in cut), LEAST_POINTS


def draw_curves(axes: Axes, test: TestView, slug: str, labels: Mapping[str, str] | None, unit: str) -> float:
    """Draw every run of both builds, without `labels` the sum of their series; the largest value drawn."""
    curves = [
        (side, i, recording.curve(series))
        for side in ("base", "new")
        for i, recording in enumerate(_of(test, side))
        if (series := recording.total(slug) if labels is None else recording.find(slug, labels)) is not None
    ]
    finite = [c.to_numpy()[np.isfinite(c.to_numpy())] for _, _, c in curves]
    top = max((float(np.abs(values).max()) for values in finite if values.size), default=0.0)
    factor, _ = unit_scale(top, unit)
    for side, i, curve in curves:
        thin = _decimated(curve)
        label = test.labels[0 if side == "base" else 1]
        with styled():
            sns.lineplot(
                x=thin.index.to_numpy() / 60,
                y=thin.to_numpy() * factor,
                ax=axes,
                color=COLOURS[side],
                lw=1.3 if side == "base" else 1.1,
                dashes=DASHES[side] or (None, None),
                label=legend_text(label) if i == 0 else None,
                estimator=None,
                sort=False,
            )
    if curves:
        legend_above(axes)
    return top


def legend_above(axes: Axes) -> None:
    """Name the builds between the title and the axes, where no curve is."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.1,
        ncols=2,
        frameon=False,
        fontsize=7.5,
        labelcolor=INK,
        handlelength=2.6,
    )


def legend_text(label: str) -> str:
    """A label as matplotlib shows it: it reads $ as mathematics and hides what starts with an underscore."""
    return label.replace("$", r"\$").replace("_", "\u200b_", 1) if label.startswith("_") else label.replace("$", r"\$")


def _of(test: TestView, side: str) -> list[Recording]:
    return list(test.recordings["base" if side == "base" else "new"])


def _decimated(curve: pd.Series) -> pd.Series:
    """The smallest and the largest value of each stretch, so that no spike is lost; gaps stay gaps."""
    elapsed, values = curve.index.to_numpy(dtype=np.float64), curve.to_numpy(dtype=np.float64)
    values = np.where(np.isfinite(values), values, np.nan)
    if values.size > 1:
        holes = np.flatnonzero(np.diff(elapsed) > 1.5 * np.median(np.diff(elapsed)))
        elapsed = np.insert(elapsed, holes + 1, elapsed[holes] + 1e-3)
        values = np.insert(values, holes + 1, np.nan)
    if values.size <= POINTS_PER_CURVE:
        return pd.Series(values, index=elapsed)
    keep: list[int] = []
    for part in np.array_split(np.arange(values.size), POINTS_PER_CURVE // 2):
        chunk = values[part]
        known = part[~np.isnan(chunk)]
        ends = {int(known[np.argmin(values[known])]), int(known[np.argmax(values[known])])} if known.size else set()
        hole = part[np.isnan(chunk)][:1]
        keep += sorted(ends | {int(i) for i in hole})
    return pd.Series(values[keep], index=elapsed[keep])


def steady_windows(axes: Axes, test: TestView) -> None:
    """Shade the steady windows and the shutdowns of both builds."""
    windows = [run.window for side in ("base", "new") for run in runs_of(test, side)[:1] if run.window]
    if windows:
        words = "steady" if test.result.type == "bounded" else "last 30 min"
        middle = sum(windows[-1]) / 120
        top = axes.get_xaxis_transform()
        axes.text(middle, 0.99, words, transform=top, ha="center", va="top", fontsize=7, color=INK, alpha=0.7)
    for side in ("base", "new"):
        for run in runs_of(test, side)[:1]:
            if run.window:
                axes.axvspan(run.window[0] / 60, run.window[1] / 60, color=SHADE, alpha=0.55, lw=0, zorder=0)
                axes.axvline(run.window[0] / 60, color=COLOURS[side], lw=0.7, ls=":", zorder=1)
            for phase in run.phases:
                if phase.name == "shutdown":
                    axes.axvspan(phase.start_s / 60, phase.end_s / 60, color=GRID, lw=0, zorder=0)


def scale_axis(axes: Axes, top: float, unit: str) -> None:
    """Name the unit that values up to `top` are read in, and start at zero."""
    _, name = unit_scale(top, unit)
    axes.set_ylabel(name)
    axes.ticklabel_format(axis="y", useOffset=False, style="plain")
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]) if axes.dataLim.ymin < 0 else 0.0)
    axes.set_xlim(left=0.0)


def finished(figure: MatplotlibFigure, name: str, alt: str, *, graph_of: str | None) -> Figure:
    """The figure in both forms."""
    vector, pixels = io.StringIO(), io.BytesIO()
    with styled():
        figure.savefig(vector, format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(pixels, format="png", dpi=120, metadata={"Software": None})
    return Figure(name=name, alt=alt, svg=compact(vector.getvalue(), alt), png=pixels.getvalue(), graph_of=graph_of)
