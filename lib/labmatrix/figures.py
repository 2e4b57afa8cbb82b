"""Draw variants beside their baseline."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import slugify
from buildcompare.figures import Figure
from buildcompare.figures.plot import SMALL, Plot, Ticks, dot_style, ticks
from buildcompare.results.codes import Better
from buildcompare.text.numbers import change, unit_scale
from buildcompare.text.sentences import say
from labmatrix.results import ContrastResult, OperationResult, VariantsResult

ROW = 0.24  # Height of a row of contrasts, in inches
MOST_ROWS, MOST_LINES = 20, 12  # Limits of one picture
IN_LEGEND, LONGEST_NAME = 3, 20  # Names per row of the legend, letters per name
LEAST_SHARE = -0.9  # Colour limit of decreases, because the logarithm of a change to 0 is infinite
BEYOND = 4.0
"""An axis extends at most this factor beyond the outermost ratios; wider intervals are cut there."""
LINES = ("base", "new", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Colours of lines (Okabe & Ito 2008); from the seventh on lines are dashed."""


def contrasts(result: VariantsResult, operation: OperationResult) -> Figure | None:
    """Draw the ratio of each variant to its reference, with its interval if known.

    It shows the `MOST_ROWS` most telling rows, without those that have a value of 0.
    """
    rows = [row for row in result.most_telling(operation.slug, MOST_ROWS) if row.base > 0 and row.new > 0]
    if not rows:
        return None
    ratios = np.array([(row.delta_percent, row.ci_low, row.ci_high) for row in rows], dtype=np.float64) / 100.0 + 1.0
    least, most = np.append(ratios[:, 0], 1.0).min() / BEYOND, np.append(ratios[:, 0], 1.0).max() * BEYOND
    ends = ratios[(ratios > least) & (ratios < most)].tolist()  # without the NaN of missing intervals
    low, high = 0.98 * min([1.0, *ends]), 1.02 * max([1.0, *ends])

    def place(ratio: float) -> float:
        """Return the place of a ratio on the axis, from 0 to 1, where ratios beyond the axis are cut."""
        return round(math.log(min(max(ratio, low), high) / low) / math.log(high / low), 4)

    at_ticks = [(place(mark), f"{mark:g}") for mark in _marks(low, high)]
    names = [(-float(i), f"{row.variant}\nagainst {result.choice(row.against)}") for i, row in enumerate(rows)]
    title, axis = say("figures", "contrasts_title", operation), say("figures", "contrasts_axis", operation)
    size, down = (9.0, 1.1 + ROW * len(rows)), (0.4 - len(rows), 0.6)
    plot = Plot(size, title, x=(0.0, 1.0), y=down, xlabel=axis, xticks=at_ticks, yticks=names)
    plot.rule(place(1.0), "base", 1.2)
    drawn: list[dict[str, object]] = []
    for (y, _), row, (ratio, *interval) in zip(names, rows, ratios.tolist(), strict=True):
        at, is_proven = place(ratio), row.ci_low is not None
        span = [*map(place, interval)] if is_proven else None
        if span:
            plot.curve([(span, [y, y])], "new", width=1.6, dashes=())
        plot.dots([at], [y], 2.5, dot_style("new", hollow=not is_proven))
        drawn.append(_chart_row(result, operation, row) | {"at": at, "span": span})
    alt = say("figures", "contrasts_alt", operation, rows)
    chart = json.dumps({"title": title, "axis": axis, "ticks": at_ticks, "one": place(1.0), "rows": drawn})
    figure = Figure(f"contrasts_{operation.slug}", alt, plot.svg(alt), caption=operation.name)
    return replace(figure, chart={"intervals": chart}, alone=False)


def _marks(low: float, high: float) -> list[float]:
    """Choose round ratios for the ticks from `low` to `high`: on a long axis 1, 2 and 5 times powers of ten."""
    short = high < 3 * low
    marks = (
        [mark for mark, _ in ticks(low, high, 6)] if short else [m * 10.0**e for e in range(-9, 10) for m in (1, 2, 5)]
    )
    return [mark for mark in marks if low <= mark <= high]


def _chart_row(result: VariantsResult, operation: OperationResult, row: ContrastResult) -> dict[str, object]:
    """Return the texts of a row in the interactive chart."""
    return {
        "name": say("figures", "contrast_name", row, result),
        "task": result.task(row.variant),
        "said": say("figures", "contrast_row", row, result, operation),
        "change": change(row.delta_percent),
        "status": row.status,
    }


def interactions(result: VariantsResult, operation: OperationResult) -> Iterator[tuple[tuple[str, ...], Figure]]:
    """Draw means by two factors that were varied together, the others at the baseline; yield factors and figure."""
    of_operation = [row for row in result.effects if row.operation == operation.slug]
    pairs = dict.fromkeys(tuple(row.factors) for row in of_operation if len(row.factors) > 1)
    for one, other in pairs:
        table = _table(result, operation)
        for name, level in result.baseline.items():
            table = table if name in (one, other) else table[table[name] == level]
        lines, across = (other, one) if one in result.workload else (one, other)
        # An interaction needs several levels on each line, and several lines at each level.
        several_lines = table.groupby(across)[lines].transform("nunique") > 1
        both = several_lines & (table.groupby(lines)[across].transform("nunique") > 1)
        if both.any():
            yield (one, other), _interaction(table[both], operation, across, lines)


def _interaction(table: pd.DataFrame, operation: OperationResult, across: str, lines: str) -> Figure:
    means = table.groupby([across, lines], sort=False)["value"].mean()
    levels, names = list(dict.fromkeys(table[across])), list(dict.fromkeys(table[lines]))[:MOST_LINES]
    factor, unit = unit_scale(float(table["value"].max()), operation.unit)
    title = say("figures", "interaction_title", operation, across, lines)
    rows = math.ceil(len(names) / IN_LEGEND)
    ends, top = (-0.1, len(levels) - 0.9), 1.05 * factor * float(means.max())
    marks = [*enumerate(levels)]
    plot = Plot(SMALL, title, x=ends, y=(0.0, top), xlabel=across, ylabel=unit, xticks=marks, legend_rows=rows)
    for i, name in enumerate(names):
        dashes = () if i < len(LINES) else (4.0, 1.2)
        points = [(x, factor * means[level, name]) for x, level in enumerate(levels) if (level, name) in means.index]
        x, y = zip(*points, strict=True)
        plot.curve([(x, y)], LINES[i % len(LINES)], width=1.4, dashes=dashes)
        row, column = divmod(i, IN_LEGEND)
        at = plot.left + column * (plot.right - plot.left) / IN_LEGEND
        plot.legend_entry(at, rows - 1 - row, name[:LONGEST_NAME], LINES[i % len(LINES)], 1.4, dashes)
    of_cells = means.reset_index().itertuples(index=False, name=None)
    alt = say("figures", "interaction_alt", operation, across, lines, list(of_cells))
    name = f"interaction_{operation.slug}_{slugify(across)}_{slugify(lines)}"
    return Figure(name, alt, plot.svg(alt), caption=title)


def heat_map(result: VariantsResult) -> Figure | None:
    """Draw the change of each variant against its baseline, by operation, as colours and numbers."""
    rows = [row for row in result.contrasts if result.is_baseline(row.against) and row.delta_percent is not None]
    if not rows:
        return None
    operations = {each.slug: each for each in result.operations if any(row.operation == each.slug for row in rows)}
    variants = list(dict.fromkeys(row.variant for row in rows))[:MOST_ROWS]
    cells = {(row.variant, row.operation): row.delta_percent or 0.0 for row in rows if row.variant in variants}
    signed = {
        at: math.log1p(max(percent / 100.0, LEAST_SHARE)) * (1.0 if operations[at[1]].better == Better.HIGHER else -1.0)
        for at, percent in cells.items()
    }
    most = max(0.05, *map(abs, signed.values()))
    size = (min(3.4 + 1.5 * len(operations), 9.0), 1.3 + ROW * len(variants))
    across: Ticks = [(i + 0.5, each.name) for i, each in enumerate(operations.values())]
    down: Ticks = [(-i - 0.5, name) for i, name in enumerate(variants)]
    ends = {"x": (0.0, float(len(operations))), "y": (-float(len(variants)), 0.0)}
    plot = Plot(size, say("figures", "heat_legend"), x=ends["x"], y=ends["y"], xlabel="", xticks=across, yticks=down)
    plot.rectangle(plot.left, plot.top, plot.right - plot.left, plot.bottom - plot.top, "paper")
    width, height = (plot.right - plot.left) / len(operations), (plot.bottom - plot.top) / len(variants)
    column, line = ({name: i for i, name in enumerate(names)} for names in (operations, variants))
    for (variant, slug), percent in cells.items():
        x, y = plot.left + column[slug] * width, plot.top + line[variant] * height
        colour = "base" if signed[variant, slug] > 0 else "new"
        plot.rectangle(x, y, width, height, colour, round(0.5 * abs(signed[variant, slug]) / most, 2))
        plot.text(x + width / 2, y + height / 2 + 2.5, change(percent), points=7.0, anchor="middle")
    alt = say("figures", "heat_alt", rows, {slug: each.name for slug, each in operations.items()})
    return Figure("heat_map", alt, plot.svg(alt), caption=say("figures", "heat_title"))


def _table(result: VariantsResult, operation: OperationResult) -> pd.DataFrame:
    """Tabulate the values of an operation with the levels of their runs, in the order of the levels."""
    rows = [{**run.levels, "value": run.values[operation.slug]} for run in result.runs if operation.slug in run.values]
    table = pd.DataFrame(rows)
    for name, levels in reversed(result.factors.items()):
        place = {level: i for i, level in enumerate(levels)}
        table = table.iloc[np.argsort([place[level] for level in table[name]], kind="stable")]
    return table
