"""Model of one run of one test on one build. Samples are as the source gives them; gaps are not filled."""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from buildcompare.config.assumed import given_or_open
from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import InputError, plural
from buildcompare.recordings.frames import read_frame
from buildcompare.recordings.series import FloatArray, LabelSummary, Measurement, Note, NoteKind, Role, Series, span
from buildcompare.results import SeriesCoverage

__all__ = [
    "FloatArray", "LabelSummary", "Measurement", "Note", "NoteKind", "Recording", "Role", "Series",
    "joined_numbers", "span", "utc",
]  # fmt: skip


ALIKE = 1.1  # Series are sampled at the same times if together they have at most this many distinct times per step
LATE = 2.0  # In a sum, a series counts as 0 more than this many steps before its first or after its last sample


@dataclass(frozen=True)
class Recording:
    """One run of one test on one build.

    Attributes
    ----------
    series
        Everything that was measured over time.
    window
        Start and end in seconds since 1970; elapsed time counts from the start.
    stop_known
        True if `window` ends when the run was stopped; False if only the data end there, as in a truncated curve.
    label_summaries
        Values per API handler, database method and so on, over the whole run.
    notes
        Facts that reports must state, such as that the values were read off a plot.
    provenance
        Files with their hashes, or a server and the queries.
    measurements
        Values without timestamps, such as a benchmark's results.
    session
        Name of the session of a benchmark; empty if the run is its own session, None if no session is stated.
    """

    series: tuple[Series, ...]
    window: tuple[float, float]
    stop_known: bool
    label_summaries: tuple[LabelSummary, ...] = ()
    notes: tuple[Note, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    measurements: tuple[Measurement, ...] = ()
    session: str | None = None

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        catalogue: str | Catalogue | None = None,
        window: tuple[float, float] | None = None,
        stop_known: bool = False,
    ) -> Recording:
        """Make a recording from a table of samples.

        Parameters
        ----------
        frame
            Tidy: one sample per row, in the columns ``time`` (or ``timestamp``), ``metric`` and ``value``; every other
            column is a label that distinguishes series of one metric. Or wide: one column per metric, and the time in
            the index. Times are seconds (since 1970, or since the run began), milliseconds or finer since 1970, or
            dates (in UTC if they have no zone).
        catalogue
            A catalogue's name, path or contents: it states the unit of each metric, found by name, alias or slug. The
            default searches all catalogues, and reads the units of unlisted metrics from their names.
        window
            Start and end of the run in seconds, on the clock of `frame`; by default its first and last sample.
        stop_known
            Whether the window ends when the run was stopped.

        Returns
        -------
        Recording
            All samples, NaN included; values are converted to the catalogue's units, and counters to rates per second.

        Raises
        ------
        InputError
            If a row is not a valid sample, or a series has two values at one time.

        Examples
        --------
        >>> import pandas as pd
        >>> Recording.from_frame(pd.DataFrame({"rps": [850.0, 870.0, 865.0]}, index=[0, 5, 10]))
        Recording(1 series of 1 metric over 10 s from 1970-01-01T00:00:00Z)
          rps: 3 samples every 5 s
        """
        series, notes = read_frame(frame, given_or_open(catalogue))
        window = window or span(series)
        assert window is not None  # read_frame refuses an empty frame
        return cls(series, window, stop_known, notes=notes, provenance={"kind": "frame"})

    def __repr__(self) -> str:
        metrics = list(dict.fromkeys(series.metric for series in self.graphs()))
        head = f"{len(self.series)} series of {plural(len(metrics), 'metric')}"
        lines = [f"Recording({head} over {self.duration_s:,.6g} s from {utc(self.window[0])})"]
        if metrics:
            first = self.graphs()[0]
            names = ", ".join(metrics[:6]) + (f" and {len(metrics) - 6} more" if len(metrics) > 6 else "")
            lines.append(f"  {names}: {first.times.size:,} samples every {first.step_s:g} s")
        if self.measurements:
            sizes = (f"{each.metric} ({each.values.size:,})" for each in self.measurements)
            lines.append("  without times: " + ", ".join(sizes))
        groups = Counter(summary.group for summary in self.label_summaries)
        if groups:
            lines.append("  label values: " + ", ".join(f"{group} ({count})" for group, count in groups.items()))
        lines += [f"  {note.kind}: {note.text[:90]}" for note in self.notes[:3]]
        return "\n".join(lines)

    def to_frame(self, role: Role = "graph") -> pd.DataFrame:
        """Return the samples of all series with `role` as a long table, for seaborn and pandas.

        Columns: ``metric``, ``labels`` (such as ``instance=app-0``, empty for a single series), ``elapsed_s`` (seconds
        since the window's start) and ``value`` (NaN as recorded).

        Examples
        --------
        >>> import pandas as pd
        >>> Recording.from_frame(pd.DataFrame({"rps": [850.0, 870.0]}, index=[100, 105])).to_frame()
          metric labels  elapsed_s  value
        0    rps               0.0  850.0
        1    rps               5.0  870.0
        """
        frames = [pd.DataFrame({"metric": [], "labels": [], "elapsed_s": [], "value": []})]
        for series in (each for each in self.series if each.role == role):
            labels = {**series.labels, **({"label": series.name, "stat": series.stat} if series.stat else {})}
            text = ", ".join(f"{key}={value}" for key, value in labels.items())
            columns = {"elapsed_s": series.times - self.window[0], "value": series.values}
            frames.append(pd.DataFrame({"metric": series.metric, "labels": text, **columns}))
        return pd.concat(frames[1:], ignore_index=True) if len(frames) > 1 else frames[0]

    @property
    def duration_s(self) -> float:
        """Length of the window, in seconds."""
        return self.window[1] - self.window[0]

    @property
    def rate_s(self) -> float | None:
        """Seconds over which each rate is taken; None if the source does not state them."""
        stated = self.provenance.get("rate_s")
        return float(stated) if isinstance(stated, (int, float)) and stated > 0 else None

    def with_rate(self, rate_s: float) -> Recording:
        """Return a copy with `rate_s`, the seconds over which each rate is taken."""
        if not 0.0 < rate_s < math.inf:
            raise InputError(file=None, key="rate_s", expected="seconds above 0", found=str(rate_s))
        return replace(self, provenance={**self.provenance, "rate_s": float(rate_s)})

    @property
    def simulated(self) -> bool:
        """Whether a simulator made any of the data."""
        return any(note.kind == "simulated" for note in self.notes)

    @property
    def digitised(self) -> bool:
        """Whether the values were read off a plot."""
        return any(note.kind == "digitised" for note in self.notes)

    @cached_property
    def samples_sha256(self) -> str:
        """SHA-256 of the graphs (slugs, labels, times, values) and of the measurements; it identifies the run."""
        samples = hashlib.sha256()
        for series in self.graphs():
            samples.update(f"{series.metric} {sorted(series.labels.items())}".encode())
            samples.update(series.times.tobytes())
            samples.update(series.values.tobytes())
        for each in self.measurements:
            samples.update(f"{each.metric} {each.values.tolist()}".encode())
        return samples.hexdigest()

    def graphs(self) -> tuple[Series, ...]:
        """Return the series that reports draw."""
        return tuple(series for series in self.series if series.role == "graph")

    def find(self, metric: str, labels: Mapping[str, str] | None = None) -> Series | None:
        """Return the first series of role ``graph`` with this `metric` and (if given) these `labels`; else None."""
        matches = (series for series in self.graphs() if series.metric == metric)
        return next((series for series in matches if labels is None or dict(series.labels) == dict(labels)), None)

    def total(self, metric: str) -> Series | None:
        """Return the graph series of `metric`, or None; several series, such as of instances, are summed.

        A series counts as 0 more than `LATE` steps before its first or after its last sample. Other times at which a
        series lacks a sample are left out. Of series that are sampled at different times, only shared times are kept.
        """
        parts = [series for series in self.graphs() if series.metric == metric]
        if len(parts) < 2:
            return parts[0] if parts else None
        times = functools.reduce(np.union1d, [series.times for series in parts])
        step = min((series.step_s for series in parts if series.times.size > 1), default=1.0)
        if times.size > ALIKE * (np.ptp(times) / step + 1.0):  # sampled at different times
            times = functools.reduce(np.intersect1d, [series.times for series in parts])
        values, complete = np.zeros(times.size), np.ones(times.size, dtype=bool)
        for each in (series for series in parts if series.times.size):
            recorded, late = np.isin(times, each.times), LATE * each.step_s
            values[recorded] += each.values[np.isin(each.times, times)]
            complete &= recorded | (times < each.times[0] - late) | (times > each.times[-1] + late)
        return Series(metric, parts[0].name, parts[0].unit, times[complete], values[complete])

    def samples(self, series: Series) -> tuple[FloatArray, FloatArray]:
        """Return elapsed times (seconds since the window's start) and values of a series inside the window."""
        start, end = self.window
        inside = slice(np.searchsorted(series.times, start), np.searchsorted(series.times, end, "right"))
        return series.times[inside] - start, series.values[inside]

    def curve(self, series: Series) -> pd.Series:
        """Return the samples of a series inside the window as a pandas Series over ``elapsed_s``."""
        elapsed, values = self.samples(series)
        return pd.Series(values, index=pd.Index(elapsed, name="elapsed_s"), name=series.metric, copy=True)

    def coverage(self, series: Series, window: tuple[float, float] | None = None) -> SeriesCoverage:
        """Count the samples that a series has and should have in a `window` (elapsed seconds; default: the run)."""
        start, end = window or (0.0, self.duration_s)
        elapsed, step = series.times - self.window[0], series.step_s
        first = np.searchsorted(elapsed, max(start, 0.0))
        stop = np.searchsorted(elapsed, min(end, self.duration_s), "right")
        elapsed, finite = elapsed[first:stop], np.isfinite(series.values[first:stop])
        present = elapsed.size
        steps = (end - start) / step if step > 0 else math.inf
        if present and elapsed[0] - start > 0.5 * step:  # timestamps are ends of intervals: none is due at `start`
            steps -= 1.0
        expected = max(present, math.floor(steps + 1e-6) + 1) if math.isfinite(steps) else present
        gap = float(np.diff(np.concatenate(([start], elapsed[finite], [end]))).max())
        return SeriesCoverage(
            slug=series.metric, longest_gap_s=gap, expected=expected, present=present, finite=int(finite.sum())
        )


def joined_numbers(parts: Sequence[Recording]) -> Recording:
    """Join the measurements of all runs of one session into one recording."""
    values: dict[str, list[Measurement]] = {}
    for each in (each for part in parts for each in part.measurements):
        values.setdefault(each.metric, []).append(each)
    joined = (replace(same[0], values=np.concatenate([each.values for each in same])) for same in values.values())
    files = [file for part in parts for file in part.provenance.get("files", ())]
    provenance = {**parts[0].provenance, "files": files}
    return replace(parts[0], measurements=tuple(joined), provenance=provenance, session=parts[0].session or "")


def utc(seconds: float) -> str:
    """Format seconds since 1970 as RFC 3339."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat().replace("+00:00", "Z")
