"""Draw on matplotlib axes with seaborn, for notebooks."""

from __future__ import annotations

from functools import partial

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from buildcompare.figures.plot import THEME
from buildcompare.results.codes import SIDES, Pair, Window
from buildcompare.text.numbers import unit_scale

PALETTE: dict[str, str] = {side: THEME[side] for side in SIDES}
line = partial(sns.lineplot, hue="build", hue_order=SIDES, palette=PALETTE, estimator=None)


def metric(samples: pd.DataFrame, windows: Pair[list[Window]], labels: Pair[str], *, title: str, unit: str) -> Axes:
    """Draw one metric of both builds over elapsed minutes, with their steady `windows` shaded."""
    _, axes = plt.subplots(figsize=(10.0, 3.6), layout="constrained")
    factor, name = unit_scale(float(samples["value"].abs().max()) if len(samples) else 1.0, unit)
    drawn = samples.assign(minutes=samples["elapsed_s"] / 60.0, shown=samples["value"] * factor)
    steps = drawn.groupby(["build", "run"])["elapsed_s"].diff()
    usual = steps.groupby([drawn["build"], drawn["run"]]).transform("median")
    drawn["stretch"] = (drawn["value"].isna() | ~steps.le(1.5 * usual)).cumsum()  # lines break at gaps and between runs
    line(drawn, x="minutes", y="shown", ax=axes, style="build", style_order=SIDES, units="stretch", lw=1.1)
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
