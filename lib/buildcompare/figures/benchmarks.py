"""Draw what has no times: distributions of a benchmark's values, and variants beside their baseline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import matplotlib as mpl
import seaborn as sns

from buildcompare.comparison.analysis import TestView
from buildcompare.figures import Figure, unused
from buildcompare.figures.base import COLOURS, DASHES, SMALL, STYLE, finished, new_figure
from buildcompare.metrics.measurements import values_of
from buildcompare.results import DistributionResult
from buildcompare.results.codes import SIDES
from buildcompare.text.numbers import unit_scale
from buildcompare.text.sentences import say


def ecdfs(test: TestView) -> Iterator[Figure]:
    """One figure for each metric of a benchmark that has a distribution."""
    taken: set[str] = set()
    for row in test.result.distributions:
        figure = ecdf(test, row, f"{test.result.name}_0_{unused(row.slug, taken)}")
        changed = any(metric.slug == row.slug and metric.status.changed for metric in test.result.metrics)
        yield replace(figure, caption=row.name, shown=changed)


@mpl.rc_context(STYLE)
def ecdf(test: TestView, row: DistributionResult, name: str) -> Figure:
    """The part of all values of each build that is at or below each value (empirical distribution function)."""
    title = say("figures", "ecdf_title", row, test.labels)
    figure, axes = new_figure(SMALL, title)
    values = {side: values_of(test.recordings[side], row.slug) for side in SIDES}
    factor, unit = unit_scale(max(float(of.max()) for of in values.values() if of.size), row.unit)
    for side in SIDES:
        if values[side].size:
            look = {"color": COLOURS[side], "dashes": DASHES[side] or (None, None), "lw": 1.2}
            sns.ecdfplot(x=values[side] * factor, ax=axes, label=test.labels[side], **look)
    axes.set(xlabel=unit or row.name, ylabel="part of all values")
    legend = axes.legend(loc="lower right", frameon=False, fontsize=7.5)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return finished(figure, name, say("figures", "ecdf_alt", row, test.labels), graph_of=test.result.name)
