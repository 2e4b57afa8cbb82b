"""What is there to say of each run by itself: its windows, its gaps, whether it may be judged?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from buildcompare.config.catalogue import Catalogue
from buildcompare.load.view import RunView
from buildcompare.recordings.recording import Recording, Series, utc
from buildcompare.results import (
    Estimate,
    RampUp,
    RunResult,
    SeriesCoverage,
    ServerResult,
    Validity,
)


def run_result(
    catalogue: Catalogue,
    view: RunView,
    estimate: Estimate | None,
    ramp: RampUp,
    reported: int | None,
    validity: Validity,
) -> RunResult:
    """One run, with what it misses."""
    recording = view.recording
    found = {series.metric for series in recording.graphs()}
    return RunResult(
        start=utc(recording.window[0]),
        end=utc(recording.window[1]),
        duration_s=recording.duration_s,
        stop_s=view.stop.at_s if view.stop else None,
        shutdown=bool(view.stop and view.stop.shutdown),
        window=view.steady.window,
        window_method=view.steady.method,
        window_reason=view.steady.reason,
        load_curve=view.load_slug,
        phases=list(view.shape.phases) if view.shape else [],
        ramp_up=ramp,
        validity=validity,
        estimated_supported_users=estimate,
        reported_supported_users=reported,
        coverage=[_coverage(view, series) for series in recording.graphs()],
        missing=[metric.slug for metric in catalogue.metrics if metric.slug not in found],
        notes=[note.text for note in recording.notes],
        server=_server(recording),
        samples_sha256=recording.samples_sha256,
    )


def _coverage(view: RunView, series: Series) -> SeriesCoverage:
    """Up to the stop: after it nobody asks the server anything, and rates of nothing are NaN."""
    until = view.stop.at_s if view.stop else view.recording.duration_s
    return SeriesCoverage(slug=series.metric, **vars(view.recording.coverage(series, (0.0, until))))


def _server(recording: Recording) -> ServerResult | None:
    """What the recording knows of the server that it was pulled from; None where others wrote something else there."""
    known: Mapping[str, Any] = recording.provenance
    try:
        return ServerResult(
            **known["server"],
            url=known["url"],
            step_s=known["step_s"],
            label_step_s=known["label_step_s"],
            queries=len(known["queries"]),
            points=sum(query["points"] for query in known["queries"]),
            missing_points=sum(query["missing_points"] for query in known["queries"] if query["role"] == "graph"),
            counter_resets=known["counter_resets"],
            warnings=known["warnings"],
        )
    except (KeyError, TypeError, ValueError):
        return None
