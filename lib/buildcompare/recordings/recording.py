"""What was measured in one run of one test on one build, exactly as its source gave it: nothing is filled in."""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import plural
from buildcompare.config.outside import shown
from buildcompare.results import SeriesCoverage

FloatArray = npt.NDArray[np.float64]
Role = Literal["graph", "label", "bucket", "alert", "error"]
"""What a series is for; `bucket`: observations per second of one label at or below the bound in its label `le`."""
NoteKind = Literal["simulated", "digitised", "source"]


class _Named:
    """Something with names from outside, in which control characters are shown."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, str) and not value.isprintable():
                object.__setattr__(self, name, shown(value))  # the one change, before anyone has seen it


@dataclass(frozen=True)
class Series(_Named):
    """One time series."""

    metric: str
    """The catalogue's slug, or one made from the source's name."""
    name: str
    unit: str
    times: FloatArray
    """Seconds since 1970 (UTC), strictly increasing, shape (n,)."""
    values: FloatArray
    """In `unit`, shape (n,); may hold NaN and infinities as the source gave them."""
    role: Role = "graph"
    labels: Mapping[str, str] = field(default_factory=dict)
    """What tells several series of one metric apart; empty where there is one."""
    stat: str = ""
    """What each value is of its label, such as ``avg`` or ``p99``; empty for graphs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels and not "".join([*self.labels, *self.labels.values()]).isprintable():
            object.__setattr__(self, "labels", {shown(key): shown(value) for key, value in self.labels.items()})
        if self.times.shape != self.values.shape or self.times.ndim != 1:
            shapes = f"times {self.times.shape} and values {self.values.shape}"
            raise ValueError(f"{shapes} of {self.metric} differ in shape")
        if not (self.times[1:] > self.times[:-1]).all():
            raise ValueError(f"times of {self.metric} do not increase")

    @cached_property
    def step_s(self) -> float:
        """The usual distance of two samples, in seconds; NaN with fewer than two samples."""
        return float(np.median(np.diff(self.times))) if self.times.size > 1 else float("nan")


@dataclass(frozen=True)
class Measurement(_Named):
    """Numbers of one run without times: one that a benchmark printed, or one for each request or iteration."""

    metric: str
    """The catalogue's slug, or one made from the source's name."""
    name: str
    unit: str
    values: FloatArray
    """Finite, in `unit`, shape (n,)."""

    @classmethod
    def of(cls, name: str, values: Iterable[float], catalogue: Catalogue) -> Measurement:
        """The measurement of the catalogue's metric of this name."""
        metric = catalogue.find(name)
        named = metric.name if metric.known else name
        return cls(metric.slug, named, metric.unit, np.asarray([*values], dtype=np.float64))


@dataclass(frozen=True)
class LabelSummary(_Named):
    """One value per label over the whole run, as the source computed it (in seconds for times)."""

    group: str
    label: str
    stat: str
    value: float


@dataclass(frozen=True)
class Note(_Named):
    """Something about a recording that its readers must know."""

    kind: NoteKind
    text: str


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
        Whether `window` ends where the run was stopped, or the data merely ends: such a curve may have been cut.
    label_summaries
        Values per API handler, database method and so on, over the whole run.
    notes
        What readers must know, such as that the values were read off a plot.
    provenance
        Where it comes from: files with their hashes, or a server and what it was asked.
    measurements
        Numbers without times.
    """

    series: tuple[Series, ...]
    window: tuple[float, float]
    stop_known: bool
    label_summaries: tuple[LabelSummary, ...] = ()
    notes: tuple[Note, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    measurements: tuple[Measurement, ...] = ()

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        catalogue: str | Catalogue = "mattermost",
        window: tuple[float, float] | None = None,
        stop_known: bool = False,
    ) -> Recording:
        """Make a recording of a table of samples.

        Parameters
        ----------
        frame
            Tidy: one sample per row, in the columns ``time`` (or ``timestamp``), ``metric`` and ``value``; every other
            column is a label that tells series of one metric apart. Or wide: one column per metric, and the time in
            the index. Times are seconds (since 1970, or since the run began), milliseconds or finer since 1970, or
            dates (without a zone: UTC).
        catalogue
            A catalogue's name, path or contents: it knows the unit of each metric, by name, alias or slug.
        window
            Start and end of the run in seconds, on the clock of `frame`; by default its first and last sample.
        stop_known
            Whether the window ends where the run was stopped.

        Returns
        -------
        Recording
            With the samples as they are, NaN included.

        Raises
        ------
        InputError
            Where a row is no sample, or a metric has two values at one time.

        Examples
        --------
        >>> import pandas as pd
        >>> Recording.from_frame(pd.DataFrame({"rps": [850.0, 870.0, 865.0]}, index=[0, 5, 10]))
        Recording(1 series of 1 metric over 10 s from 1970-01-01T00:00:00Z)
          rps: 3 samples every 5 s
        """
        from buildcompare.config.catalogue import read_catalogue
        from buildcompare.recordings.table import recording_of_frame

        made = recording_of_frame(frame, read_catalogue(catalogue) if isinstance(catalogue, str) else catalogue)
        return replace(made, window=window or made.window, stop_known=stop_known)

    def __repr__(self) -> str:
        metrics = list(dict.fromkeys(series.metric for series in self.graphs()))
        head = f"{len(self.series)} series of {plural(len(metrics), 'metric')}"
        lines = [f"Recording({head} over {self.duration_s:,.6g} s from {utc(self.window[0])})"]
        if metrics:
            first = self.graphs()[0]
            shown = ", ".join(metrics[:6]) + (f" and {len(metrics) - 6} more" if len(metrics) > 6 else "")
            lines.append(f"  {shown}: {first.times.size:,} samples every {first.step_s:g} s")
        if self.measurements:
            sizes = (f"{each.metric} ({each.values.size:,})" for each in self.measurements)
            lines.append("  without times: " + ", ".join(sizes))
        groups = Counter(summary.group for summary in self.label_summaries)
        if groups:
            lines.append("  label values: " + ", ".join(f"{group} ({count})" for group, count in groups.items()))
        lines += [f"  {note.kind}: {note.text[:90]}" for note in self.notes[:3]]
        return "\n".join(lines)

    def to_frame(self, role: Role = "graph") -> pd.DataFrame:
        """The samples of all series with `role` as a long table, for seaborn and pandas.

        Columns: ``metric``, ``labels`` (such as ``instance=app-0``, empty where a metric has one series), ``elapsed_s``
        (seconds since the window's start) and ``value`` (NaN as recorded).

        Examples
        --------
        >>> import pandas as pd
        >>> Recording.from_frame(pd.DataFrame({"rps": [850.0, 870.0]}, index=[100, 105])).to_frame()
          metric labels  elapsed_s  value
        0    rps               0.0  850.0
        1    rps               5.0  870.0
        """
        frames = []
        for series in (each for each in self.series if each.role == role):
            own = {**series.labels, **({"label": series.name, "stat": series.stat} if series.stat else {})}
            labels = ", ".join(f"{key}={value}" for key, value in own.items())
            columns = {"elapsed_s": series.times - self.window[0], "value": series.values}
            frames.append(pd.DataFrame({"metric": series.metric, "labels": labels, **columns}))
        empty = pd.DataFrame({"metric": [], "labels": [], "elapsed_s": [], "value": []})
        return pd.concat(frames, ignore_index=True) if frames else empty

    @property
    def duration_s(self) -> float:
        """Length of the window."""
        return self.window[1] - self.window[0]

    @property
    def rate_s(self) -> float:
        """Over how many seconds its rates are: as a server was asked for them, or else a minute."""
        asked = self.provenance.get("rate_s")
        return float(asked) if isinstance(asked, (int, float)) and asked > 0 else 60.0

    @property
    def simulated(self) -> bool:
        """Whether any of it was made by the simulator."""
        return any(note.kind == "simulated" for note in self.notes)

    @property
    def digitised(self) -> bool:
        """Whether its values were read off a plot."""
        return any(note.kind == "digitised" for note in self.notes)

    @cached_property
    def samples_sha256(self) -> str:
        """Hash of the graphs' samples and of when they were taken: what the run is known by."""
        samples = hashlib.sha256()
        for series in self.graphs():
            samples.update(f"{series.metric} {sorted(series.labels.items())}".encode())
            samples.update(series.times.tobytes())
            samples.update(series.values.tobytes())
        for measured in self.measurements:
            samples.update(f"{measured.metric} {measured.values.tolist()}".encode())
        return samples.hexdigest()

    def graphs(self) -> tuple[Series, ...]:
        """The series that reports draw."""
        return tuple(series for series in self.series if series.role == "graph")

    def find(self, metric: str, labels: Mapping[str, str] | None = None) -> Series | None:
        """The graph series of `metric`; without `labels` the first of several."""
        found = (series for series in self.graphs() if series.metric == metric)
        return next((series for series in found if labels is None or dict(series.labels) == dict(labels)), None)

    def total(self, metric: str) -> Series | None:
        """The one graph series of `metric`, or the sum of several (of instances) at the times that all share."""
        found = [series for series in self.graphs() if series.metric == metric]
        if len(found) < 2:
            return found[0] if found else None
        times = functools.reduce(np.intersect1d, [series.times for series in found])
        values = np.sum([series.values[np.isin(series.times, times)] for series in found], axis=0)
        return Series(metric, found[0].name, found[0].unit, times, np.asarray(values, dtype=np.float64))

    def samples(self, series: Series) -> tuple[FloatArray, FloatArray]:
        """A series on elapsed time: seconds since the window's start, and values, inside the window."""
        start, end = self.window
        inside = slice(np.searchsorted(series.times, start), np.searchsorted(series.times, end, "right"))
        return series.times[inside] - start, series.values[inside]

    def curve(self, series: Series) -> pd.Series:
        """A series on elapsed time as one of pandas."""
        elapsed, values = self.samples(series)
        return pd.Series(values, index=pd.Index(elapsed, name="elapsed_s"), name=series.metric, copy=True)

    def coverage(self, series: Series, window: tuple[float, float] | None = None) -> SeriesCoverage:
        """How much a series covers of the run, or of a `window` in it (elapsed seconds, both ends belong to it)."""
        start, end = window or (0.0, self.duration_s)
        elapsed, step = series.times - self.window[0], series.step_s
        first, stop = (
            np.searchsorted(elapsed, max(start, 0.0)),
            np.searchsorted(elapsed, min(end, self.duration_s), "right"),
        )
        elapsed, known = elapsed[first:stop], np.isfinite(series.values[first:stop])
        present = elapsed.size
        steps = (end - start) / step if step > 0 else math.inf
        expected = max(present, math.floor(steps + 1e-6) + 1) if math.isfinite(steps) else present
        gap = float(np.diff(np.concatenate(([start], elapsed[known], [end]))).max())
        counts = {"expected": expected, "present": present, "finite": int(known.sum())}
        return SeriesCoverage(slug=series.metric, longest_gap_s=gap, **counts)


def span(series: Iterable[Series]) -> tuple[float, float] | None:
    """The first and the last time of any sample; None without samples."""
    ends = [time for each in series if each.times.size for time in (each.times[0], each.times[-1])]
    return (float(min(ends)), float(max(ends))) if ends else None


def utc(seconds: float) -> str:
    """Seconds since 1970 in RFC 3339."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat().replace("+00:00", "Z")
