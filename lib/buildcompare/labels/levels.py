"""How long did each label take over a window, and how often was it called?"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from buildcompare.labels.histogram import HistogramQuantile
from buildcompare.recordings.recording import LabelSummary, Recording, Series

Buckets = dict[float, float]
"""Observations at or below each bound."""


@dataclass(frozen=True)
class LabelLevels:
    """The label table of one run.

    Attributes
    ----------
    summaries
        One value per label and statistic, in seconds.
    calls
        How often each (group, label) was called in the window; empty where the source does not know.
    steady
        Whether the values are of the steady window; False: of the whole run, as the source summed it up.
    """

    summaries: tuple[LabelSummary, ...]
    calls: dict[tuple[str, str], float] = field(default_factory=dict)
    steady: bool = False


@dataclass(frozen=True)
class MeasureLabels:
    """From series per label over the steady window where there are any, else the source's own summaries.

    An average is weighted with the calls of each point, which makes it the average over the window. A percentile
    cannot be put together from percentiles: it comes from the buckets of all points, as the server's own over the whole
    window would, and only where there are none it is the median of the points' percentiles.
    """

    def __call__(self, recording: Recording, window: tuple[float, float] | None) -> LabelLevels:
        """Measure the labels of one run."""
        series = [each for each in recording.series if each.role == "label"]
        if not series or window is None:
            return LabelLevels(recording.label_summaries)
        inside = {(s.metric, s.name, s.stat): self._inside(recording, s, window) for s in series}
        buckets = self._buckets(recording, window)
        summaries, calls = [], {}
        for (group, label, stat), values in inside.items():
            rate = inside.get((group, label, "calls"))
            if stat == "calls":
                finite = values[np.isfinite(values.to_numpy())]
                calls[group, label] = float(finite.mean()) * (window[1] - window[0]) if finite.size else 0.0
            else:
                value = (
                    _weighted_mean(values, rate) if stat == "avg" else _percentile(stat, values, buckets[group, label])
                )
                summaries.append(LabelSummary(group, label, stat, value))
        return LabelLevels(tuple(summaries), calls, steady=True)

    def _inside(self, recording: Recording, series: Series, window: tuple[float, float]) -> pd.Series:
        curve = recording.curve(series)
        return curve[(curve.index > window[0]) & (curve.index <= window[1])]

    def _buckets(self, recording: Recording, window: tuple[float, float]) -> defaultdict[tuple[str, str], Buckets]:
        """By group and label: what was counted in the window at or below each bound."""
        found: defaultdict[tuple[str, str], Buckets] = defaultdict(dict)
        start, end = (recording.window[0] + edge for edge in window)
        for series in recording.series:
            if series.role == "bucket" and "le" in series.labels:
                values = series.values[(series.times > start) & (series.times <= end)]
                counts = found[series.metric, series.name]
                bound = float(series.labels["le"])
                counts[bound] = counts.get(bound, 0.0) + float(values[np.isfinite(values)].sum())
        return found


def _percentile(stat: str, values: pd.Series, buckets: Buckets) -> float:
    """The percentile that `stat` names (``p99``) from the buckets, or else from the points' own."""
    if not buckets:
        return _median(values)
    bounds = np.array(sorted(buckets))
    return HistogramQuantile(float(stat[1:]) / 100.0)(bounds, np.array([buckets[bound] for bound in bounds]))


def _weighted_mean(values: pd.Series, rate: pd.Series | None) -> float:
    weights = pd.Series(1.0, index=values.index) if rate is None else rate.reindex(values.index)
    known = np.isfinite(values.to_numpy()) & np.isfinite(weights.to_numpy()) & (weights.to_numpy() > 0)
    if not known.any():
        return float("nan")
    return float(np.average(values.to_numpy()[known], weights=weights.to_numpy()[known]))


def _median(values: pd.Series) -> float:
    finite = values.to_numpy()[np.isfinite(values.to_numpy())]
    return float(np.median(finite)) if finite.size else float("nan")
