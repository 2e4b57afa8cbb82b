"""Puts the asked-for faults and effects into a finished recording; everything else stays to the last bit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from buildcompare.recordings.recording import LabelSummary, Recording, Series
from loadsim.injections import (
    Gap,
    Injection,
    LabelEffect,
    LostAgent,
    MetricEffect,
    NanStretch,
    Restart,
    Truncation,
)
from loadsim.measure import TOP_BUCKET_S


def inject(recording: Recording, injections: Iterable[Injection]) -> Recording:
    """Apply `injections` in their order; those that the load test itself has to answer to are skipped."""
    for injection in injections:
        recording = _applied(recording, injection)
    return recording


def _applied(recording: Recording, injection: Injection) -> Recording:
    match injection:
        case LostAgent() | Restart():
            return recording
        case LabelEffect():
            summaries = tuple(_label(summary, injection) for summary in recording.label_summaries)
            return replace(recording, label_summaries=summaries)
        case Truncation(at_s=at_s):
            start, end = recording.window[0], min(recording.window[1], recording.window[0] + at_s)
            series = tuple(_kept(s, s.times <= end) for s in recording.series)
            return replace(recording, series=series, window=(start, end), stop_known=False)
        case Gap() | NanStretch() | MetricEffect():
            return replace(recording, series=tuple(_series(recording, s, injection) for s in recording.series))


def _series(recording: Recording, series: Series, injection: Gap | NanStretch | MetricEffect) -> Series:
    if injection.metric not in (None, series.metric):
        return series
    elapsed = series.times - recording.window[0]
    if isinstance(injection, MetricEffect):
        return replace(
            series, values=np.where(elapsed >= injection.at_s, series.values * injection.factor, series.values)
        )
    hit = (elapsed >= injection.start_s) & (elapsed < injection.end_s)
    if isinstance(injection, Gap):
        return _kept(series, ~hit)
    return replace(series, values=np.where(hit, np.nan, series.values))


def _kept(series: Series, keep: npt.NDArray[np.bool_]) -> Series:
    return replace(series, times=series.times[keep], values=series.values[keep])


def _label(summary: LabelSummary, effect: LabelEffect) -> LabelSummary:
    if (summary.group, summary.label) != (effect.group, effect.label):
        return summary
    value = summary.value * effect.factor
    return replace(summary, value=min(value, TOP_BUCKET_S) if summary.stat == "p99" else value)
