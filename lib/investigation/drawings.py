"""Draw samples with seaborn, as images for widgets."""

from __future__ import annotations

import base64
import html
import io
from functools import partial

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure as Drawing

from buildcompare.figures.axes import PALETTE, line
from buildcompare.figures.plot import THEME
from buildcompare.results.codes import SIDES
from buildcompare.text.numbers import unit_scale


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
        line(lags, x="minutes", y="correlation", units="run", legend=False, ax=right)
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
    line(drawn, x="minutes", y="value", units="unit", lw=1.0, ax=axes)
    axes.set(xlabel="elapsed time, minutes", ylabel="")
    sns.despine(drawing)
    return drawing


def image(drawing: Drawing, alt: str) -> str:
    """Return a drawing as an HTML image; `alt` describes it in words."""
    sink = io.BytesIO()
    drawing.savefig(sink, format="svg")
    data = base64.b64encode(sink.getvalue()).decode("ascii")
    return f'<img alt="{html.escape(alt)}" style="width: 100%" src="data:image/svg+xml;base64,{data}">'
