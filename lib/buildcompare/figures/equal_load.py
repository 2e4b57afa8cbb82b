"""Draw a metric of both builds over the connected users."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from buildcompare.comparison.analysis import TestView
from buildcompare.figures.base import (
    COLOURS,
    DASHES,
    INK,
    SMALL,
    Figure,
    finished,
    legend_above,
    new_figure,
    styled,
)
from buildcompare.metrics.equal_load import MetricAtLoad
from buildcompare.results import MetricResult
from buildcompare.results.codes import SIDES, Pair, Status
from buildcompare.text.figures import at_load_alt, at_load_title
from buildcompare.text.numbers import unit_scale


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
        figure, axes = new_figure(SMALL, at_load_title(metric), above=0.14)
        for side in SIDES:
            users, values = seen.points[side].T
            curve, half, colour = seen.curves[side] * factor, 1.96 * seen.se_curves[side], COLOURS[side]
            axes.scatter(users, values * factor, s=5, color=colour, alpha=0.35, lw=0)
            axes.fill_between(seen.users, curve * np.exp(-half), curve * np.exp(half), color=colour, alpha=0.18, lw=0)
            axes.plot(seen.users, curve, color=colour, lw=1.6, dashes=DASHES[side] or (None, None))
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
        legend_above(axes, dict(labels.items()))
    counts = Pair.of(lambda side: len(seen.points[side]))
    return finished(figure, name, at_load_alt(metric, labels, counts), graph_of=None)
