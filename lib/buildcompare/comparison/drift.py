"""Find metrics that get worse throughout the runs of the new build, such as memory that leaks."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.load.view import RunView, Views
from buildcompare.metrics.measurements import Measured
from buildcompare.results import MetricResult
from buildcompare.results.codes import Better, Pair
from buildcompare.stats.levels import FEWEST, mean_with_error
from buildcompare.stats.planning import percent

WORSENS = 1.5
"""Minimum factor by which a metric worsens from the first to the last third of the new build's steady windows, divided
by the base's factor. In 28 pairs of identical unbounded runs, not on tiny machines, durations and memory reach 1.42."""
ERRORS = 3.0  # each new run must worsen more than every base run, by at least this many standard errors within runs


def with_drifts(measured: Sequence[Measured], views: Views, catalogue: Catalogue) -> list[Measured]:
    """Set `drift_percent` of metrics that worsen throughout all new runs, and clearly more than in the base runs."""
    drifts = ((each, {"drift_percent": _drifts(each.row, views, catalogue)}) for each in measured)
    return [replace(each, row=each.row.model_copy(update=drift)) for each, drift in drifts]


def _drifts(row: MetricResult, views: Views, catalogue: Catalogue) -> Pair[list[float]] | None:
    metric, sign = catalogue.find(row.slug), {Better.LOWER: 1.0, Better.HIGHER: -1.0}.get(row.better)
    if sign is None or metric.load or metric.outcome:
        return None
    runs = views.map(lambda of: [drift for view in of if (drift := _drift(view, row, sign))])
    if not all(runs):
        return None
    base, new = runs.map(lambda of: np.array([log for log, _, _ in of]))
    error = math.hypot(*(max(se for _, se, _ in of) for of in runs))
    apart, steady = new.min() - max(base.max(), 0.0), all(steady for _, _, steady in runs.new)
    if not (steady and new.mean() - max(base.mean(), 0.0) >= math.log(WORSENS) and apart >= ERRORS * error):
        return None
    return runs.map(lambda of: [percent(sign * log) for log, _, _ in of])


def _drift(view: RunView, row: MetricResult, sign: float) -> tuple[float, float, bool] | None:
    """Return a window's log change from first to last third, its error, and whether values worsen from sixth to sixth.

    A positive change is worse. The error is from scatter around a trend line in each third. Too few samples give None.
    """
    series, window = view.recording.find(row.slug, row.labels), view.steady.window
    if series is None or window is None:
        return None
    elapsed, values = view.recording.samples(series)
    inside = (elapsed > window[0]) & (elapsed <= window[1]) & np.isfinite(values) & (values > 0.0)
    logs = sign * np.log(values[inside])
    if (size := logs.size // 3) < FEWEST:
        return None
    ends, places = (logs[:size], logs[-size:]), np.arange(size)
    errors = [mean_with_error(part - np.polyval(np.polyfit(places, part, 1), places))[1] for part in ends]
    sixths = np.array([part.mean() for part in np.array_split(logs, 6)])
    return float(ends[1].mean() - ends[0].mean()), math.hypot(*errors), bool((np.diff(sixths) > 0.0).all())
