"""Draw distributions of a benchmark's values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from buildcompare.comparison.analysis import TestView
from buildcompare.figures import Figure, unused
from buildcompare.figures.plot import SMALL, Plot
from buildcompare.metrics.measurements import values_of
from buildcompare.results import DistributionResult
from buildcompare.results.codes import SIDES
from buildcompare.text.numbers import unit_scale
from buildcompare.text.sentences import say

MOST_STEPS = 280  # Most steps of a distribution; more look the same


def ecdfs(test: TestView) -> Iterator[Figure]:
    """Draw a figure for each metric of a benchmark with a distribution."""
    taken: set[str] = set()
    for row in test.result.distributions:
        figure = ecdf(test, row, f"{test.result.name}_0_{unused(row.slug, taken)}")
        changed = any(metric.slug == row.slug and metric.status.changed for metric in test.result.metrics)
        yield replace(figure, caption=row.name, shown=changed)


def ecdf(test: TestView, row: DistributionResult, name: str) -> Figure:
    """Draw the empirical distribution function of each build."""
    values = {side: np.sort(values_of(test.recordings[side], row.slug)) for side in SIDES}
    every = np.concatenate(list(values.values()))
    factor, unit = unit_scale(float(every.max()), row.unit)
    least, most = factor * every.min(), factor * every.max()
    pad = 0.05 * (most - least or abs(most) or 1.0)
    title = say("figures", "ecdf_title", row, test.labels)
    x_axis, words = (least - pad, most + pad), "part of all values"
    plot = Plot(SMALL, title, x=x_axis, y=(0.0, 1.03), xlabel=unit or row.name, ylabel=words)
    drawn = [side for side in SIDES if values[side].size]
    for side in drawn:
        count = values[side].size
        shown = np.unique(np.linspace(0, count - 1, min(count, MOST_STEPS)).round().astype(int))
        x, y = np.repeat(values[side][shown] * factor, 2), np.repeat(np.append(0, shown + 1) / count, 2)[1:-1]
        plot.curve([(x, y)], side)
    plot.legend({side: test.labels[side] for side in drawn})
    alt = say("figures", "ecdf_alt", row, test.labels)
    return Figure(name, alt, plot.svg(alt), graph_of=test.result.name)
