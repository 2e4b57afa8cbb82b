"""The figure of equal load: a metric over the connected users, of both builds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from matplotlib.axes import Axes

from buildcompare.comparison.analysis import TestView
from buildcompare.config.catalogue import Metric
from buildcompare.figures.base import (
    COLOURS,
    DASHES,
    INK,
    SMALL,
    Figure,
    finished,
    legend_above,
    legend_text,
    new_figure,
    styled,
)
from buildcompare.metrics.load_adjusted import LoadAdjusted
from buildcompare.results.codes import Status
from buildcompare.text.numbers import change, quantity, unit_scale

_SIDES = ("base", "new")


def at_equal_load(test: TestView, curves: Mapping[str, LoadAdjusted]) -> Iterator[Figure]:
    """A figure for each metric of `test` that users feel, or that was called at equal load or at the builds' own."""
    for row in test.result.metrics:
        called = {row.status, row.load_adjusted.status if row.load_adjusted else None} & {
            Status.REGRESSION,
            Status.IMPROVEMENT,
        }
        if row.slug in curves and not row.labels and (row.gate or called):
            metric = test.catalogue.find(row.slug)
            yield metric_at_load(f"{test.result.name}_at_load_{row.slug}", test.labels, metric, curves[row.slug])


def metric_at_load(name: str, labels: tuple[str, str], metric: Metric, adjusted: LoadAdjusted) -> Figure:
    """The metric over the users: one dot per minute, each build's curve with its 95 % interval, and where they meet."""
    seen = adjusted.at_load
    top = max(float(np.quantile(seen.points[side][:, 1], 0.99)) for side in _SIDES)
    factor, unit = unit_scale(top, metric.unit)
    answer = _answer(metric, adjusted)
    with styled():
        figure, axes = new_figure(SMALL, answer, above=0.14)
        for side, label in zip(_SIDES, labels, strict=True):
            _curve(axes, adjusted, side, label, factor)
        axes.axvline(seen.at_users, color=INK, lw=0.8, ls=":")
        axes.annotate(
            f"both sustained {seen.at_users:,.0f}",
            (seen.at_users, 0.02),
            xycoords=("data", "axes fraction"),
            xytext=(-3, 0),
            textcoords="offset points",
            ha="right",
            fontsize=7,
        )
        axes.set(xlabel="connected users", ylabel=unit, xlim=(0.0, None))
        axes.set_ylim(0.0, 1.1 * factor * max(top, seen.base, seen.new))
        axes.xaxis.set_major_formatter(lambda users, _: f"{users:,.0f}")
        legend_above(axes)
    return finished(figure, name, _alt(labels, adjusted, answer), graph_of=None)


def _curve(axes: Axes, adjusted: LoadAdjusted, side: str, label: str, factor: float) -> None:
    seen = adjusted.at_load
    users, metric = seen.points[side].T
    axes.scatter(users, metric * factor, s=5, color=COLOURS[side], alpha=0.35, lw=0)
    curve = seen.curves[side] * factor
    half = 1.96 * seen.se_curves[side]
    axes.fill_between(seen.users, curve * np.exp(-half), curve * np.exp(half), color=COLOURS[side], alpha=0.18, lw=0)
    axes.plot(
        seen.users, curve, color=COLOURS[side], lw=1.6, dashes=DASHES[side] or (None, None), label=legend_text(label)
    )


def _answer(metric: Metric, adjusted: LoadAdjusted) -> str:
    """What the figure says: the metric of both builds at one load."""
    row, seen = adjusted, adjusted.at_load
    delta = change((seen.new / seen.base - 1.0) * 100.0)
    if (interval := row.interval()) is not None:
        low, high = interval
        delta += f"; {change(low)} to {change(high)}"
    levels = f"{quantity(seen.base, metric.unit)} → {quantity(seen.new, metric.unit)}"
    return f"{metric.name} at {seen.at_users:,.0f} users: {levels}\n({delta})"


def _alt(labels: tuple[str, str], adjusted: LoadAdjusted, answer: str) -> str:
    seen = adjusted.at_load
    minutes = " and ".join(f"{len(seen.points[s])} of {label}" for s, label in zip(_SIDES, labels, strict=True))
    words = answer.replace("\n", " ")
    return (
        f"{words}. Over the connected users, from {seen.users[0]:,.0f} to {seen.users[-1]:,.0f}, {labels[0]} against "
        f"{labels[1]}. One dot per minute ({minutes}); dots and curves stand at the mean login rate of both builds. "
        "The bands are 95 % intervals within the runs; the interval of the change counts the variance between runs too."
    )
