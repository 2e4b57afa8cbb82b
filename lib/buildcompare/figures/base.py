"""Draw with matplotlib and seaborn, in the page's colours: levels over releases; no statistics here."""

import hashlib
import html
import io
import math
import re
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import StrMethodFormatter

from buildcompare.figures import Figure
from buildcompare.figures.plot import DASHES as DASHES
from buildcompare.figures.plot import SMALL as SMALL
from buildcompare.figures.plot import THEME, fitted
from buildcompare.results.codes import SIDES
from buildcompare.text.numbers import change
from buildcompare.text.sentences import say

COLOURS: dict[str, str] = {side: THEME[side] for side in SIDES}
INK, GRID, SHADE = (THEME[name] for name in ("ink", "grid", "shade"))
_INKED = ("axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "text.color", "xtick.color", "ytick.color")
STYLE: dict[Any, Any] = sns.axes_style("whitegrid") | sns.plotting_context("paper") | dict.fromkeys(_INKED, INK) | {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 8.0, "axes.labelsize": 8.0,
    "xtick.labelsize": 8.0, "ytick.labelsize": 7.5, "axes.titlesize": 9.0, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "grid.color": GRID, "svg.fonttype": "none", "svg.hashsalt": "buildcompare",
    "path.simplify": True, "path.simplify_threshold": 0.3,
}  # fmt: skip
"""What makes a :class:`Figure` does so in this style, from its first line to its file."""
LEGEND: dict[str, Any] = {
    "loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.1, "frameon": False, "fontsize": 7.5,
}  # fmt: skip
"""Between the title and the axes, where no curve is."""
_GEOMETRY = re.compile(r'(\s(?:d|points|transform|x|y|x1|x2|y1|y2|width|height)=")([^"]*)"')


def new_figure(size: tuple[float, float], title: str) -> tuple[Drawing, Axes]:
    """An empty figure of `size` inches; all of one size have the same margins, so that axes stand under each other."""
    (width, height), left, right, top, bottom = size, 0.68, 0.08, 0.52, 0.45
    figure = Drawing(figsize=size)
    axes = figure.add_axes((left / width, bottom / height, 1 - (left + right) / width, 1 - (top + bottom) / height))
    sns.despine(ax=axes)
    lines, points = fitted(title, 0.97 * 72 * (width - left))
    axes.set_title("\n".join(lines), y=1.0, pad=17, parse_math=False, fontsize=points)
    return figure, axes


def finished(figure: Drawing, name: str, alt: str, graph_of: str | None = None) -> Figure:
    """The figure as pictures."""
    vector, pixels = io.StringIO(), io.BytesIO()
    figure.savefig(vector, format="svg", metadata={"Date": None, "Creator": None})
    figure.savefig(pixels, format="png", dpi=120, metadata={"Software": None})
    return Figure(name, alt, compact(vector.getvalue(), alt), graph_of, pixels=pixels.getvalue())


def compact(svg: str, alt: str) -> str:
    """One of matplotlib's SVG documents for standing inside an HTML page: small, themed, named by `alt`."""

    def rounded(match: re.Match[str]) -> str:
        return match[1] + re.sub(r"-?\d+\.\d{2,}", lambda m: f"{round(float(m[0]), 1) + 0.0:g}", match[2]) + '"'

    body = re.sub(r"(?s)^.*?(?=<svg)|<metadata>.*?</metadata>|<!--.*?-->", "", svg)
    body = _GEOMETRY.sub(rounded, body)
    body = re.sub(r"> +<", "><", re.sub(r"\s*\n\s*", " ", body)).replace("xlink:href", "href")
    for name, colour in THEME.items():
        body = re.sub(rf": ({colour})\b", rf": var(--{name}, \1)", body)
    used = {name for pair in re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', body) for name in pair}
    own = "f" + hashlib.sha256(body.encode()).hexdigest()[:8]  # many figures share a page
    body = re.sub(r' id="([^"]+)"', lambda match: f' id="{own}{match[1]}"' if match[1] in used else "", body)
    body = re.sub(r'(url\(#|href="#)', lambda match: match[1] + own, body)
    tag, rest = body.split(">", 1)
    tag = re.sub(r'\s(width|height|version|xmlns:xlink)="[^"]*"', "", tag)
    return f'{tag} role="img" aria-label="{html.escape(alt, quote=True)}">{rest}'


# ---- All releases ---------------------------------------------------------------------------------------------------

APART = {"base": -0.16, "new": 0.16}
"""How far base and new stand from the place of their comparison, in places of the axis."""
MARKERS = {"base": "o", "new": "s"}
_WIDTH_OF_ONE, _LEAST, _MOST = 0.25, 9.0, 30.0
_PER_NAME = 0.18  # Inches along the axis; where there is less, only every second name is written, or every third
_HEIGHT = 3.8
_HEADROOM = 1.16  # Above the highest level, for the sizes of jumps


@mpl.rc_context(STYLE)
def levels(table: pd.DataFrame, db_engine: str) -> Figure:
    """Draw one database's chain: `table` as :meth:`HistoryView.levels` makes it, at least one row."""
    order, names = pd.factorize(table["comparison"])
    table = table.assign(order=order, place=order + table["side"].map(APART))
    width = min(max(_LEAST, 1.5 + _WIDTH_OF_ONE * len(names)), _MOST)
    drawing = Drawing(figsize=(width, _HEIGHT), layout="constrained")
    axes = drawing.add_subplot()
    axes.set_title(say("figures", "levels_title", table.to_dict("records"), db_engine), pad=17, parse_math=False)
    # A line from each new build to the same version as a later base.
    before = table.loc[table["side"] == "new", ["comparison", "place", "users"]]
    links = table.merge(before, left_on="against", right_on="comparison", suffixes=("", "_before"))
    if not links.empty:
        x, y = (links.assign(gap=np.nan)[[f"{name}_before", name, "gap"]].to_numpy() for name in ("place", "users"))
        axes.plot(x.ravel(), y.ravel(), color=INK, lw=0.9, ls=":", label="same version, measured again", zorder=2)
    for side, rows in table.groupby("side"):
        errors = [rows["users"] - rows["low"], rows["high"] - rows["users"]]
        look: dict[str, Any] = {"fmt": MARKERS[str(side)], "ms": 4.0, "mec": "none", "color": COLOURS[str(side)]}
        look |= {"elinewidth": 1.1, "capthick": 1.1, "capsize": 2, "label": f"{side}, with 95 % interval", "zorder": 3}
        axes.errorbar(rows["place"], rows["users"], yerr=errors, **look)
    across = axes.get_xaxis_transform()
    # Jumps with their size, and comparisons before which the setup changed.
    jumps = table[table["jump"]]
    for i, (place, size) in enumerate(zip(jumps["order"] - 0.5, jumps["drift_percent"], strict=True)):
        axes.axvline(place, color=GRID, lw=5, zorder=0)
        axes.text(place, 0.985 - 0.055 * (i % 2), change(size), transform=across, ha="center", va="top", fontsize=7)
    changed = table.loc[table["side"].eq("base") & table["setup_changed"].astype(bool), "order"]
    if not changed.empty:
        low = np.full(len(changed), 0.02)
        axes.plot(changed, low, "^", color=INK, ms=3.5, transform=across, label="setup changed before it", ls="none")
    every = math.ceil(len(names) * _PER_NAME / (width - 1.0))
    look = {"rotation": 60, "ha": "right", "rotation_mode": "anchor", "parse_math": False}
    axes.set_xticks(range(0, len(names), every), names[::every], **look)
    axes.set(xlim=(-0.6, len(names) - 0.4), ylim=(0, _HEADROOM * table["high"].max()), ylabel="supported users")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(visible=False, axis="x")
    axes.legend(ncols=4, **LEGEND)
    sns.despine(ax=axes)
    alt = say("figures", "levels_alt", table.to_dict("records"), db_engine)
    return finished(drawing, f"history_{db_engine or 'users'}", alt)
