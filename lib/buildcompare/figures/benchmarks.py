"""Draw what has no times: distributions of a benchmark's values, and variants beside their baseline."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure as Drawing

from buildcompare.comparison.analysis import TestView
from buildcompare.config.catalogue import slugify
from buildcompare.figures import Figure, unused
from buildcompare.figures.base import COLOURS, DASHES, LEGEND, SMALL, STYLE, finished, new_figure
from buildcompare.metrics.measurements import values_of
from buildcompare.results import DistributionResult
from buildcompare.results.codes import SIDES, Better
from buildcompare.results.variants import OperationResult, VariantsResult
from buildcompare.text.numbers import change, unit_scale
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


# ---- Variants -------------------------------------------------------------------------------------------------------

ROW = 0.24  # Inches for each row of a chart of contrasts
MOST_ROWS, MOST_LINES = 40, 12  # what one picture shows: more is not read


@mpl.rc_context(STYLE)
def contrasts(result: VariantsResult, operation: OperationResult) -> Figure | None:
    """The ratio of each variant to what it is compared with, with its interval where it is known."""
    rows = [row for row in result.contrasts if row.operation == operation.slug][:MOST_ROWS]
    if not rows:
        return None
    drawing = Drawing(figsize=(9.0, 1.1 + ROW * len(rows)), layout="constrained")
    axes = drawing.add_subplot()
    axes.set_title(say("figures", "contrasts_title", operation), pad=10, parse_math=False)
    places = range(len(rows))
    ratios = [1.0 + row.delta_percent / 100.0 for row in rows]
    for place, row, ratio in zip(places, rows, ratios, strict=True):
        known = row.ci_low is not None and row.ci_high is not None
        if known:
            bounds = [1.0 + (end or 0.0) / 100.0 for end in (row.ci_low, row.ci_high)]
            axes.plot(bounds, [place, place], color=COLOURS["new"], lw=1.6)
        fill = COLOURS["new"] if known else "none"
        axes.plot([ratio], [place], "o", ms=5, color=COLOURS["new"], mfc=fill)
    axes.axvline(1.0, color=COLOURS["base"], lw=1.2)
    axes.set_xscale("log")
    low, high = min([1.0, *ratios]), max([1.0, *ratios])
    usual = (0.1, 0.2, 0.5, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10)
    marks = [mark for mark in usual if 0.8 * low <= mark <= 1.25 * high]
    axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
    axes.set_xticks([], minor=True)
    names = [f"{row.variant}\nagainst {result.choice(row.against)}" for row in rows]
    axes.set_yticks(places, names, fontsize=6.5, parse_math=False)
    axes.set(ylim=(len(rows) - 0.4, -0.6), xlabel=say("figures", "contrasts_axis", operation))
    sns.despine(ax=axes)
    made = finished(drawing, f"contrasts_{operation.slug}", say("figures", "contrasts_alt", operation, rows))
    return replace(made, caption=operation.name)


def interactions(result: VariantsResult, operation: OperationResult) -> Iterator[Figure]:
    """Means by two factors that were run together, all other choices at the baseline."""
    pairs = dict.fromkeys(tuple(row.factors) for row in result.effects if len(row.factors) > 1)
    for one, other in pairs:
        table = _table(result, operation)
        for name, level in result.baseline.items():
            table = table if name in (one, other) else table[table[name] == level]
        lines, across = (other, one) if one in result.workload else (one, other)
        both = table.groupby(across)[lines].transform("nunique") > 1  # a level of one line shows no interaction
        if both.any():
            yield _interaction(table[both], operation, across, lines)


@mpl.rc_context(STYLE)
def _interaction(table: pd.DataFrame, operation: OperationResult, across: str, lines: str) -> Figure:
    figure, axes = new_figure(SMALL, say("figures", "interaction_title", operation, across, lines))
    levels = list(dict.fromkeys(table[lines]))[:MOST_LINES]
    look: dict[str, Any] = {"hue": lines, "hue_order": levels, "style": lines, "style_order": levels, "markers": True}
    factor, unit = unit_scale(float(table["value"].max()), operation.unit)
    shown = table.assign(value=table["value"] * factor)
    sns.lineplot(shown, x=across, y="value", palette="colorblind", estimator="mean", errorbar=None, ax=axes, **look)
    axes.set(xlabel=across, ylabel=unit, ylim=(0, None))
    axes.legend(ncols=3, **LEGEND)
    means = table.groupby([across, lines], sort=False)["value"].mean().reset_index().itertuples(index=False, name=None)
    alt = say("figures", "interaction_alt", operation, across, lines, list(means))
    made = finished(figure, f"interaction_{operation.slug}_{slugify(across)}_{slugify(lines)}", alt)
    return replace(made, caption=say("figures", "interaction_title", operation, across, lines))


@mpl.rc_context(STYLE)
def heat_map(result: VariantsResult) -> Figure | None:
    """The change of each variant against its baseline, by operation, as colours and numbers."""
    rows = [row for row in result.contrasts if _is_baseline(result, row.against)]
    if not rows:
        return None
    names = {each.slug: each.name for each in result.operations}
    cells = pd.Series({(row.variant, names[row.operation]): row.delta_percent for row in rows})
    order = (dict.fromkeys(row.variant for row in rows), dict.fromkeys(names[row.operation] for row in rows))
    table = pd.DataFrame({column: {row: cells.get((row, column), math.nan) for row in order[0]} for column in order[1]})
    table = table.iloc[:MOST_ROWS]
    better = {each.name: 1.0 if each.better == Better.HIGHER else -1.0 for each in result.operations}
    signed = np.log1p(table / 100.0) * [better[name] for name in table.columns]
    drawing = Drawing(figsize=(min(3.4 + 1.5 * len(table.columns), 9.0), 1.3 + ROW * len(table)), layout="constrained")
    axes = drawing.add_subplot()
    axes.set_title(say("figures", "heat_legend"), pad=10)
    most = max(float(np.nanmax(np.abs(np.asarray(signed)))), 0.05)
    words = table.map(change)
    sns.heatmap(signed, annot=words, fmt="", cmap="vlag_r", center=0, vmin=-most, vmax=most, cbar=False, ax=axes,
                annot_kws={"fontsize": 7})  # fmt: skip
    axes.set(xlabel="", ylabel="")
    axes.tick_params(axis="y", labelsize=7, rotation=0)
    made = finished(drawing, "heat_map", say("figures", "heat_alt", rows, names))
    return replace(made, caption=say("figures", "heat_title"))


def _table(result: VariantsResult, operation: OperationResult) -> pd.DataFrame:
    rows = [{**run.levels, "value": run.values[operation.slug]} for run in result.runs if operation.slug in run.values]
    table = pd.DataFrame(rows)
    for name, levels in reversed(result.factors.items()):
        place = {level: i for i, level in enumerate(levels)}
        table = table.iloc[np.argsort([place[level] for level in table[name]], kind="stable")]
    return table


def _is_baseline(result: VariantsResult, variant: str) -> bool:
    levels = result.variants[variant]
    return all(levels[name] == level for name, level in result.baseline.items())
