"""The places that recordings come from, one file each behind one small protocol."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Protocol

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import InputError, plural
from buildcompare.config.params import Run, Source
from buildcompare.recordings import cache
from buildcompare.recordings.grafana import GrafanaSource
from buildcompare.recordings.ltctl import LtctlSource
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.table import RecordedSource

__all__ = ["RecordingSource", "open_source", "record"]
MAX_GRAPHS = 200
"""Bound on the series of one run that a report draws: each is a figure."""


class RecordingSource(Protocol):
    """A place that recordings come from."""

    def record(self, run: Run) -> Recording:
        """Read the measurements of one run, whole, or raise :class:`InputError` or :class:`SourceError`."""
        ...


def open_source(run: Run, source: Source, catalogue: Catalogue) -> RecordingSource:
    """The source that `run` is read from: its own keys decide, times alone mean `source`."""
    if run.report is not None:
        return LtctlSource(catalogue)
    if run.recording is not None:
        return RecordedSource(catalogue)
    if run.snapshot is not None:
        return GrafanaSource(catalogue)
    if source.kind == "prometheus":
        from buildcompare.recordings.prometheus import PrometheusSource  # late: the client takes time to import

        return PrometheusSource(source, catalogue)
    raise InputError(
        file=None,
        key="source.kind",
        expected="prometheus, ltctl, recorded or grafana",
        found=source.kind,
    )


def record(run: Run, source: Source, catalogue: Catalogue) -> Recording:
    """Read one run and cut it to the window that the params state, if any."""
    recording = open_source(run, source, catalogue).record(run)
    if run.window is not None:
        recording = _cut(recording, run.window)
    covered = [recording.coverage(series) for series in recording.series]
    if any(series.times.size for series in recording.series) and not any(each.present for each in covered):
        raise InputError(
            file=run.file,
            key="window",
            expected=f"a window that overlaps the data ({_span(recording)})",
            found=" to ".join(_said(end) for end in recording.window),
        )
    if len(recording.series) > MAX_GRAPHS and len(recording.graphs()) > MAX_GRAPHS:
        raise InputError(
            file=run.file,
            key="metrics",
            expected=f"at most {MAX_GRAPHS} series to draw",
            found=f"{len(recording.graphs()):,}",
        )
    if not recording.label_summaries and not any(each.finite for each in covered):
        raise InputError(
            file=run.file,
            key="values",
            expected="at least one number in the run's window",
            found=plural(len(recording.series), "metric") + " without any",
        )
    return recording


def _cut(recording: Recording, window: tuple[dt.datetime, dt.datetime]) -> Recording:
    """Cut `recording`; a window that ends before the recording does says nothing about where the run stopped."""
    start, end = (instant.timestamp() for instant in window)
    return replace(recording, window=(start, end), stop_known=recording.stop_known and end >= recording.window[1])


def _span(recording: Recording) -> str:
    filled = [series.times for series in recording.series if series.times.size]
    if not filled:
        return "none"
    ends = (min(times[0] for times in filled), max(times[-1] for times in filled))
    return " to ".join(_said(float(end)) for end in ends)


def _said(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat()


def read_run(
    run: Run, source: Source, catalogue: Catalogue, place: tuple[str, str, str, int], *, refresh: bool = False
) -> Recording:
    """Read one run; what is pulled for it is kept under `place`: comparison, test, build, number from 1."""
    if not run.is_pulled:
        return record(run, source, catalogue)
    slot, request = cache.Slot(*place), cache.request_of(run, source, catalogue)
    kept = None if refresh else cache.cached(slot, request)
    return kept if kept is not None else cache.keep(slot, record(run, source, catalogue), request)
