"""Changes of all metrics with their 95 % intervals.

`Result.metrics` is a data frame, so any figure can be made from it.
"""

from matplotlib.figure import Figure

import buildcompare as bc

result = bc.compare(bc.read_params("params/v11.1.0-rc2.yaml"))
rows = result.metrics.query("test == 'postgresql_bounded'").dropna(subset=["ci_low", "ci_high"])

figure = Figure(figsize=(8, 4), layout="constrained")
axes = figure.add_subplot()
axes.errorbar(
    rows["delta_percent"],
    rows["name"],
    xerr=[rows["delta_percent"] - rows["ci_low"], rows["ci_high"] - rows["delta_percent"]],
    fmt="o",
    capsize=3,
)
axes.axvline(0, color="grey", linewidth=1)
axes.set_xlabel("change, percent")
axes.invert_yaxis()
