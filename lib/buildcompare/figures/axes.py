"""Draw on matplotlib axes with seaborn, for notebooks and their widgets."""

from __future__ import annotations

import base64
import html
import io
from functools import partial

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from buildcompare.figures.plot import THEME
from buildcompare.results.codes import SIDES, Pair, Window
from buildcompare.text.numbers import unit_scale

PALETTE: dict[str, str] = {side: THEME[side] for side in SIDES}
_line = partial(sns.lineplot, hue="build", hue_order=SIDES, palette=PALETTE, estimator=None)


def metric(samples: pd.DataFrame, windows: Pair[list[Window]], labels: Pair[str], *, title: str, unit: str) -> Axes:
    """Draw one metric of both builds over elapsed minutes on new axes, with their steady `windows` shaded.

    `samples` has a row for each sample: columns build, run, elapsed_s, value.
    """
    _, axes = plt.subplots(figsize=(10.0, 3.6), layout="constrained")
    factor, name = unit_scale(float(samples["value"].abs().max()) if len(samples) else 1.0, unit)
    drawn = samples.assign(minutes=samples["elapsed_s"] / 60.0, shown=samples["value"] * factor)
    steps = drawn.groupby(["build", "run"])["elapsed_s"].diff()
    usual = steps.groupby([drawn["build"], drawn["run"]]).transform("median")
    drawn["stretch"] = (drawn["value"].isna() | ~steps.le(1.5 * usual)).cumsum()  # lines break at gaps and between runs
    dashed = partial(_line, style="build", style_order=SIDES, units="stretch", lw=1.1)
    dashed(drawn, x="minutes", y="shown", ax=axes)
    for start, end in dict.fromkeys(window for side in SIDES for window in windows[side]):
        axes.axvspan(start / 60.0, end / 60.0, color=THEME["shade"], alpha=0.6, lw=0, zorder=0)
    if legend := axes.get_legend():
        legend.set_title("")
        names = {str(side): label for side, label in labels.items()}
        for text in legend.get_texts():
            text.set(text=names.get(text.get_text(), ""), parse_math=False)
    axes.set(xlabel="elapsed time, minutes", ylabel=name, ylim=(min(0.0, axes.get_ylim()[0]), None))
    axes.set_title(title, loc="left", parse_math=False)
    return axes


def spread(samples: pd.DataFrame, autocorrelation: pd.DataFrame, unit: str) -> Drawing:
    """Draw the distribution of finite samples (columns build, value) and their autocorrelation.

    `autocorrelation` has columns build, run, lag_s, correlation, chance (shaded).
    """
    drawing = Drawing(figsize=(9.0, 2.4), layout="constrained")
    left, right = drawing.subplots(1, 2)
    factor, name = unit_scale(float(samples["value"].abs().max()) if len(samples) else 1.0, unit)
    shown = pd.DataFrame({"build": samples["build"], "value": samples["value"].astype(float) * factor})
    bars = partial(sns.histplot, stat="percent", common_norm=False, element="step", fill=False, bins=40)
    bars(shown, x="value", ax=left, hue="build", hue_order=SIDES, palette=PALETTE)
    if len(autocorrelation):
        lags = autocorrelation.assign(minutes=autocorrelation["lag_s"] / 60.0)
        _line(lags, x="minutes", y="correlation", units="run", legend=False, ax=right)
        chance = float(autocorrelation["chance"].max())
        right.axhspan(-chance, chance, color=THEME["shade"], lw=0, zorder=0)
    left.set(xlabel=name, ylabel="% of samples", title="Distribution")
    right.set(xlabel="minutes between two samples", title="Autocorrelation", ylim=(None, 1.05))
    sns.despine(drawing)
    return drawing


def lines(samples: pd.DataFrame) -> Drawing:
    """Draw every series (columns build, run, series, elapsed_s, value) in the colour of its build."""
    drawing = Drawing(figsize=(9.0, 2.4), layout="constrained")
    axes = drawing.subplots()
    drawn = samples.assign(minutes=samples["elapsed_s"] / 60.0, unit=samples.groupby(["run", "series"]).ngroup())
    _line(drawn, x="minutes", y="value", units="unit", lw=1.0, ax=axes)
    axes.set(xlabel="elapsed time, minutes", ylabel="")
    sns.despine(drawing)
    return drawing


def image(drawing: Drawing, alt: str) -> str:
    """Return a drawing as an HTML image; `alt` describes it in words."""
    sink = io.BytesIO()
    drawing.savefig(sink, format="svg")
    data = base64.b64encode(sink.getvalue()).decode("ascii")
    return f'<img alt="{html.escape(alt)}" style="width: 100%" src="data:image/svg+xml;base64,{data}">'
