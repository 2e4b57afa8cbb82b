"""How far off are levels that were read off a plot?

    python benchmarks/reading.py [FOLDER]

Identical ceiling runs of `FOLDER` (default: BUILDCOMPARE_REAL, or ../shared/real) are drawn as plots of 640 x 480
pixels, the new build's line over the base's, and read again: the middle of what is seen of a line in each column, and
of the other line where nothing is. Printed is by how much that moves log(new / base), and beside it the published
comparisons, which were read off such plots: the median and robust spread (about zero) of their changes. Releases may
have moved these medians too, so they bound what a plot does.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
from identical import CATALOGUE, SMALL, read

from buildcompare.comparison.measure import compare_test
from buildcompare.config.catalogue import Metric
from buildcompare.load.view import RunView, view_run
from buildcompare.recordings.sources import record
from buildcompare.results.codes import SIDES
from buildcompare.stats.levels import measure_level
from validity import published

COLUMNS, ROWS = 540, 400  # of the area that gnuplot draws in
SHORTEST_S = 600.0  # of a common window


def main(folder: str | None = None) -> None:
    """Print both tables."""
    real = Path(folder or os.environ.get("BUILDCOMPARE_REAL") or "../shared/real").resolve()
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (name, kind), runs in read(real)[0].items():
        views = [view_run(run, kind, CATALOGUE) for run in runs if name not in SMALL]  # type: ignore[arg-type]
        for (base, new), metric in itertools.product(itertools.permutations(views, 2), CATALOGUE.metrics):
            if (moved := moved_by_reading(base, new, metric)) is not None:
                errors[kind, metric.slug].append(moved)
    print("Identical runs, drawn and read again: error of log(new / base) in percent\n")
    print(f"{'':10} {'':28} {'pairs':>6} {'mean':>6} {'rms':>6} {'95 %':>6}")
    for (kind, slug), found in sorted(errors.items()):
        off = 100.0 * np.array(found)
        cells = off.size, off.mean(), np.sqrt(np.mean(off**2)), np.quantile(np.abs(off), 0.95)
        print(f"{kind:10} {slug:28} {{:6}} {{:6.1f}} {{:6.1f}} {{:6.1f}}".format(*cells))
    changes: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for _, test, source in published(real):
        recordings = {side: [record(run, source, CATALOGUE) for run in test.runs(side)] for side in SIDES}
        result = compare_test(test, recordings, CATALOGUE).result
        for row in result.metrics if result.validity.status != "invalid" else ():
            for load, each in (("own load", row), ("equal load", row.load_adjusted)):
                if each and each.base and each.new:
                    changes[result.type, load, row.slug].append(100.0 * np.log(each.new / each.base))
    print("\nPublished comparisons: log(new / base) in percent\n")
    print(f"{'':10} {'':11} {'':28} {'tests':>6} {'median':>7} {'spread':>7}")
    for (kind, load, slug), found in sorted(changes.items()):
        spread = 1.4826 * np.median(np.abs(found))
        print(f"{kind:10} {load:11} {slug:28} {len(found):6} {np.median(found):7.1f} {spread:7.1f}")


def moved_by_reading(base: RunView, new: RunView, metric: Metric) -> float | None:
    """By how much drawing and reading move log(new / base); None where the windows or the metric are missing."""
    curves = []
    for view in (base, new):
        series = view.recording.total(metric.slug)
        curve = view.recording.curve(series).dropna() if series else pd.Series(dtype=float)
        curves.append(curve[curve.index <= view.stop.at_s] if view.stop else curve)
    if any(curve.empty or not curve.max() > 0 for curve in curves):
        return None
    end = float(curves[0].index[-1])  # the plot ends with the base
    curves[1] = curves[1][curves[1].index <= end]
    logs = []
    for drawn in (curves, read_again(*curves)):
        levels = []
        for view, curve in zip((base, new), drawn, strict=True):
            if view.steady.window is None or min(view.steady.window[1], end) - view.steady.window[0] < SHORTEST_S:
                return None
            window = (view.steady.window[0], min(view.steady.window[1], end))
            levels.append(measure_level(curve, window, geometric=metric.unit == "seconds").value)
        if not levels[0] or not levels[1]:
            return None
        logs.append(float(np.log(levels[1] / levels[0])))
    return logs[1] - logs[0]


def read_again(base: pd.Series, new: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Both curves as they are read off their plot."""
    end, highest = float(base.index[-1]), 1.05 * max(base.max(), new.max())
    (base_low, base_high), (low, high) = (_drawn(curve, end, highest) for curve in (base, new))
    seen = []
    for column in range(COLUMNS):
        rows = np.arange(base_low[column], base_high[column] + 1)
        visible = rows[(rows < low[column]) | (rows > high[column])]
        seen.append(visible.mean() if visible.size else (low[column] + high[column]) / 2.0)
    at = (np.arange(COLUMNS) + 0.5) * end / COLUMNS
    both = (base, np.array(seen)), (new, (low + high) / 2.0)
    found = [pd.Series(np.interp(curve.index, at, rows / ROWS * highest), curve.index) for curve, rows in both]
    return found[0], found[1]


def _drawn(curve: pd.Series, end: float, highest: float) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest row of a line in each column."""
    edges = np.linspace(0.0, end, COLUMNS + 1)
    at = np.unique(np.concatenate([curve.index.to_numpy(dtype=float), edges]))
    rows = np.interp(at, curve.index, curve.to_numpy()) / highest * ROWS
    low, high = np.full(COLUMNS, np.inf), np.full(COLUMNS, -np.inf)
    for side in ("right", "left"):  # a point on an edge belongs to both columns
        column = np.clip(np.searchsorted(edges, at, side=side) - 1, 0, COLUMNS - 1)
        np.minimum.at(low, column, rows)
        np.maximum.at(high, column, rows)
    return np.round(low - 0.5), np.round(high + 0.5)


if __name__ == "__main__":
    main(*sys.argv[1:])
