"""Draw what has no times: distributions of a benchmark's values, and variants beside their baseline."""

from __future__ import annotations

import json
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
from buildcompare.figures.plot import ticks
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
MOST_ROWS, MOST_LINES = 20, 12  # what one picture shows: more is not read
LEAST_SHARE = -0.9  # the colour of a change to 0, whose logarithm has no end
BEYOND = 4.0
"""How many times beyond the outermost ratios an axis may go for the ends of intervals; wider ones are cut there."""


@mpl.rc_context(STYLE)
def contrasts(result: VariantsResult, operation: OperationResult) -> Figure | None:
    """The ratio of each variant to what it is compared with, with its interval where it is known.

    Of many rows those that tell most are drawn; an axis of ratios has no place for a 0.
    """
    rows = [row for row in result.most_telling(operation.slug, MOST_ROWS) if row.base > 0 and row.new > 0]
    if not rows:
        return None
    ratios = np.array([(row.delta_percent, row.ci_low, row.ci_high) for row in rows], dtype=np.float64) / 100.0 + 1.0
    least, most = np.append(ratios[:, 0], 1.0).min() / BEYOND, np.append(ratios[:, 0], 1.0).max() * BEYOND
    ends = ratios[(ratios > least) & (ratios < most)].tolist()  # NaN where no interval is known
    low, high = 0.98 * min([1.0, *ends]), 1.02 * max([1.0, *ends])
    marks = (
        ticks(low, high, 6)[0] if high < 3 * low else np.array([m * 10.0**e for e in range(-9, 10) for m in (1, 2, 5)])
    )
    marks = marks[(marks >= low) & (marks <= high)]

    def place(ratio: float) -> float:
        """The part of the axis at which a ratio stands; what is beyond it, at its end."""
        return round(math.log(min(max(ratio, low), high) / low) / math.log(high / low), 4)

    title, axis = say("figures", "contrasts_title", operation), say("figures", "contrasts_axis", operation)
    drawing = Drawing(figsize=(9.0, 1.1 + ROW * len(rows)), layout="constrained")
    axes = drawing.add_subplot()
    axes.set_title(title, pad=10, parse_math=False)
    drawn: list[dict[str, Any]] = []
    for i, (row, (ratio, *interval)) in enumerate(zip(rows, ratios.tolist(), strict=True)):
        at, known = place(ratio), row.ci_low is not None
        span = [*map(place, interval)] if known else [at, at]
        axes.plot(span, [i, i], color=COLOURS["new"], lw=1.6)
        axes.plot([at], [i], "o", ms=5, color=COLOURS["new"], mfc=COLOURS["new"] if known else "none")
        told = {"name": say("figures", "contrast_name", row, result), "task": result.task(row.variant)}
        told |= {"said": say("figures", "contrast_row", row, result, operation), "change": change(row.delta_percent)}
        drawn.append({**told, "status": row.status, "at": at, "span": span if known else None})
    axes.axvline(one := place(1.0), color=COLOURS["base"], lw=1.2)
    at_ticks = [(place(mark), f"{mark:g}") for mark in marks.tolist()]
    axes.set_xticks([at for at, _ in at_ticks], [text for _, text in at_ticks])
    names = [f"{row.variant}\nagainst {result.choice(row.against)}" for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=6.5, parse_math=False)
    axes.set(xlim=(0, 1), ylim=(len(rows) - 0.4, -0.6), xlabel=axis)
    sns.despine(ax=axes)
    made = finished(drawing, f"contrasts_{operation.slug}", say("figures", "contrasts_alt", operation, rows))
    chart = json.dumps({"title": title, "axis": axis, "ticks": at_ticks, "one": one, "rows": drawn})
    return replace(made, caption=operation.name, chart={"intervals": chart}, alone=False)


def interactions(result: VariantsResult, operation: OperationResult) -> Iterator[tuple[tuple[str, ...], Figure]]:
    """Means by two factors that were run together, all other choices at the baseline: the factors and the figure."""
    of_operation = [row for row in result.effects if row.operation == operation.slug]
    pairs = dict.fromkeys(tuple(row.factors) for row in of_operation if len(row.factors) > 1)
    for one, other in pairs:
        table = _table(result, operation)
        for name, level in result.baseline.items():
            table = table if name in (one, other) else table[table[name] == level]
        lines, across = (other, one) if one in result.workload else (one, other)
        # A level of one line, and a line of one level, show no interaction.
        both = (table.groupby(across)[lines].transform("nunique") > 1) & (
            table.groupby(lines)[across].transform("nunique") > 1
        )
        if both.any():
            yield (one, other), _interaction(table[both], operation, across, lines)


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
    rows = [row for row in result.contrasts if result.is_baseline(row.against) and row.delta_percent is not None]
    if not rows:
        return None
    names = {each.slug: each.name for each in result.operations}
    cells = pd.Series({(row.variant, names[row.operation]): row.delta_percent for row in rows})
    order = (dict.fromkeys(row.variant for row in rows), dict.fromkeys(names[row.operation] for row in rows))
    table = pd.DataFrame({column: {row: cells.get((row, column), math.nan) for row in order[0]} for column in order[1]})
    table = table.iloc[:MOST_ROWS]
    better = {each.name: 1.0 if each.better == Better.HIGHER else -1.0 for each in result.operations}
    share = np.maximum(table / 100.0, LEAST_SHARE)
    signed = np.log1p(share) * [better[name] for name in table.columns]
    drawing = Drawing(figsize=(min(3.4 + 1.5 * len(table.columns), 9.0), 1.3 + ROW * len(table)), layout="constrained")
    axes = drawing.add_subplot()
    axes.set_title(say("figures", "heat_legend"), pad=10)
    most = max(float(np.nanmax(np.abs(np.asarray(signed)))), 0.05)
    words = table.map(change)
    sns.heatmap(signed, annot=words, fmt="", cmap="vlag_r", vmin=-most, vmax=most, cbar=False, ax=axes,
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
