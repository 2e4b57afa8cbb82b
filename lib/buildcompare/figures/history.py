"""The figure of all releases: supported users with intervals, the drift between comparisons, and its jumps."""

from __future__ import annotations

import math

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.ticker import StrMethodFormatter

from buildcompare.config.errors import plural
from buildcompare.figures.base import COLOURS, GRID, INK, Figure, finished, styled
from buildcompare.text.numbers import change, db_name, listed

APART = 0.16
"""How far base and new of one comparison stand apart, in places of the axis."""
TOO_FEW = "too few comparisons of one version to tell whether the level jumped"
MARKERS = {"base": "o", "new": "s"}
_WIDTH_OF_ONE, _LEAST, _MOST = 0.25, 9.0, 30.0
_PER_NAME = 0.18
"""Inches along the axis; where there is less, only every second name is written, or every third."""
_HEIGHT = 3.8
_HEADROOM = 1.16
"""Above the highest level, for the sizes of jumps."""


def levels(table: pd.DataFrame, db_engine: str) -> Figure:
    """Draw one database's chain.

    Parameters
    ----------
    table
        As :meth:`buildcompare.history.view.HistoryView.levels` makes it; at least one row.
    """
    names = list(dict.fromkeys(table["comparison"]))
    title = _title(table, db_engine)
    with styled():
        width = min(max(_LEAST, 1.5 + _WIDTH_OF_ONE * len(names)), _MOST)
        drawing = MatplotlibFigure(figsize=(width, _HEIGHT), layout="constrained")
        axes = drawing.add_subplot()
        axes.set_title(title, pad=17)
        _jumps(axes, table, names)
        _drift(axes, table, names)
        for side in ("base", "new"):
            _build(axes, table[table["side"] == side], names, side)
        _setup(axes, table, names)
        every = math.ceil(len(names) * _PER_NAME / (width - 1.0))
        axes.set_xticks(
            range(0, len(names), every),
            [name.replace("$", r"\$") for name in names[::every]],
            rotation=60,
            ha="right",
            rotation_mode="anchor",
        )
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.set_ylim(0, _HEADROOM * table["high"].max())
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_ylabel("supported users")
        axes.grid(visible=False, axis="x")
        _legend(axes)
        sns.despine(ax=axes)
    return finished(drawing, f"history_{db_engine or 'users'}", _alt(table, db_engine), graph_of=None)


def _build(axes: Axes, rows: pd.DataFrame, names: list[str], side: str) -> None:
    x = _places(rows, names, side)
    users = rows["users"].to_numpy()
    errors = [users - rows["low"].to_numpy(), rows["high"].to_numpy() - users]
    axes.errorbar(
        x,
        users,
        yerr=errors,
        fmt=MARKERS[side],
        ms=4,
        lw=1.1,
        capsize=2,
        color=COLOURS[side],
        mfc=COLOURS[side] if side == "new" else "#ffffff",
        label=f"{side}, with 95 % interval",
        zorder=3,
    )


def _drift(axes: Axes, table: pd.DataFrame, names: list[str]) -> None:
    """From each new build to the same version as a later base."""
    new: dict[str, tuple[float, float]] = {}
    label: str | None = "same version, measured again"
    for name, side, users, against in table[["comparison", "side", "users", "against"]].to_numpy().tolist():
        x = names.index(name) + (-APART if side == "base" else APART)
        if against in new:
            axes.plot([new[against][0], x], [new[against][1], users], color=INK, lw=0.9, ls=":", label=label, zorder=2)
            label = None
        if side == "new":
            new[name] = (x, users)


def _jumps(axes: Axes, table: pd.DataFrame, names: list[str]) -> None:
    jumps = table[table["jump"]]
    for i, row in enumerate(jumps.itertuples()):
        x = names.index(str(row.comparison)) - 0.5
        axes.axvline(x, color=GRID, lw=5, zorder=0)
        text = change(float(str(row.drift_percent)))
        axes.text(
            x, 0.985 - 0.055 * (i % 2), text, transform=axes.get_xaxis_transform(), ha="center", va="top", fontsize=7
        )


def _setup(axes: Axes, table: pd.DataFrame, names: list[str]) -> None:
    changed = [
        names.index(str(row.comparison)) for row in table.itertuples() if row.side == "base" and row.setup_changed
    ]
    if changed:
        axes.plot(
            changed,
            [0.02] * len(changed),
            "^",
            color=INK,
            ms=3.5,
            transform=axes.get_xaxis_transform(),
            label="setup changed before it",
            ls="none",
        )


def _legend(axes: Axes) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.1, ncols=4, frameon=False, fontsize=7.5)


def _places(rows: pd.DataFrame, names: list[str], side: str) -> list[float]:
    return [names.index(name) + (-APART if side == "base" else APART) for name in rows["comparison"]]


def _title(table: pd.DataFrame, db_engine: str) -> str:
    where = db_name(db_engine) or "Supported users"
    jumps = list(table.loc[table["jump"], "comparison"])
    if not jumps:
        told = "the level never jumped between comparisons" if table["judged"].any() else TOO_FEW
        return f"{where}: {told}"
    return f"{where}: the level jumped at {listed(jumps, most=8)}".replace("$", r"\$")


def _alt(table: pd.DataFrame, db_engine: str) -> str:
    names = list(dict.fromkeys(table["comparison"]))
    words = (
        f"Supported users over {plural(len(names), 'comparison')}, {names[0]} to {names[-1]}, "
        f"{db_name(db_engine) or 'all databases'}: from {table['users'].min():,.0f} to {table['users'].max():,.0f}. "
    )
    jumps = [f"{row.comparison} {change(float(str(row.drift_percent)))}" for row in table[table["jump"]].itertuples()]
    if jumps:
        return f"{words}The same version jumped at {listed(jumps, most=20)}."
    return words + ("The level never jumped." if table["judged"].any() else f"There are {TOO_FEW}.")
