"""Draw the figure of all releases: supported users with intervals, the drift between comparisons, and its jumps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.ticker import StrMethodFormatter

from buildcompare.figures.base import COLOURS, GRID, INK, Figure, finished, styled
from buildcompare.text.history import levels_alt, levels_title
from buildcompare.text.numbers import change

APART = {"base": -0.16, "new": 0.16}
"""How far base and new stand from the place of their comparison, in places of the axis."""
MARKERS = {"base": "o", "new": "s"}
_WIDTH_OF_ONE, _LEAST, _MOST = 0.25, 9.0, 30.0
_PER_NAME = 0.18
"""Inches along the axis; where there is less, only every second name is written, or every third."""
_HEIGHT = 3.8
_HEADROOM = 1.16
"""Above the highest level, for the sizes of jumps."""


def levels(table: pd.DataFrame, db_engine: str) -> Figure:
    """Draw one database's chain: `table` as :meth:`HistoryView.levels` makes it, at least one row."""
    order, names = pd.factorize(table["comparison"])
    table = table.assign(order=order, place=order + table["side"].map(APART))
    with styled():
        width = min(max(_LEAST, 1.5 + _WIDTH_OF_ONE * len(names)), _MOST)
        drawing = MatplotlibFigure(figsize=(width, _HEIGHT), layout="constrained")
        axes = drawing.add_subplot()
        axes.set_title(levels_title(table, db_engine), pad=17, parse_math=False)
        _drift(axes, table)
        _builds(axes, table)
        _marks(axes, table)
        every = math.ceil(len(names) * _PER_NAME / (width - 1.0))
        look: dict[str, Any] = {"rotation": 60, "ha": "right", "rotation_mode": "anchor", "parse_math": False}
        axes.set_xticks(range(0, len(names), every), names[::every], **look)
        axes.set(xlim=(-0.6, len(names) - 0.4), ylim=(0, _HEADROOM * table["high"].max()), xlabel="")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_ylabel("supported users")
        axes.grid(visible=False, axis="x")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.1, ncols=4, frameon=False, fontsize=7.5)
        sns.despine(ax=axes)
    return finished(drawing, f"history_{db_engine or 'users'}", levels_alt(table, db_engine), graph_of=None)


def _builds(axes: Axes, table: pd.DataFrame) -> None:
    for side, rows in table.groupby("side"):
        errors = [rows["users"] - rows["low"], rows["high"] - rows["users"]]
        look: dict[str, Any] = {"color": COLOURS[str(side)], "zorder": 3}
        axes.errorbar(rows["place"], rows["users"], yerr=errors, fmt="none", lw=1.1, capsize=2, **look)
        look |= {"marker": MARKERS[str(side)], "label": f"{side}, with 95 % interval"}
        axes.scatter(rows["place"], rows["users"], s=16, linewidths=0, **look)


def _drift(axes: Axes, table: pd.DataFrame) -> None:
    """A line from each new build to the same version as a later base."""
    before = table.loc[table["side"] == "new", ["comparison", "place", "users"]]
    links = table.merge(before, left_on="against", right_on="comparison", suffixes=("", "_before"))
    if not links.empty:
        x, y = (links.assign(gap=np.nan)[[f"{name}_before", name, "gap"]].to_numpy() for name in ("place", "users"))
        axes.plot(x.ravel(), y.ravel(), color=INK, lw=0.9, ls=":", label="same version, measured again", zorder=2)


def _marks(axes: Axes, table: pd.DataFrame) -> None:
    """Jumps with their size, and comparisons before which the setup changed."""
    across = axes.get_xaxis_transform()
    jumps = table[table["jump"]]
    for i, (place, size) in enumerate(zip(jumps["order"] - 0.5, jumps["drift_percent"], strict=True)):
        axes.axvline(place, color=GRID, lw=5, zorder=0)
        axes.text(place, 0.985 - 0.055 * (i % 2), change(size), transform=across, ha="center", va="top", fontsize=7)
    changed = table.loc[table["side"].eq("base") & table["setup_changed"].astype(bool), "order"]
    if not changed.empty:
        low = np.full(len(changed), 0.02)
        axes.plot(changed, low, "^", color=INK, ms=3.5, transform=across, label="setup changed before it", ls="none")
