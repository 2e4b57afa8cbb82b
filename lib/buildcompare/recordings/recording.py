"""What was measured: one run of one test on one build, exactly as its source gave it.

Nothing is filled in here. A missing sample is missing from `times`, a NaN stays a NaN, and a metric
that was asked for and not found is absent; analyses decide what that means for them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

FloatArray = npt.NDArray[np.float64]
Role = Literal["graph", "label", "bucket", "alert", "error"]
"""What a series is for; `bucket`: observations per second of one label at or below the bound in its label `le`."""
NoteKind = Literal["simulated", "digitised", "source"]


@dataclass(frozen=True)
class Series:
    """One time series.

    Attributes
    ----------
    metric
        The catalogue's slug, or one made from the source's name.
    times
        Seconds since 1970 (UTC), strictly increasing, shape (n,).
    values
        In `unit`, shape (n,); may hold NaN and infinities as the source gave them.
    labels
        What tells several series of one metric apart; empty where there is one.
    stat
        What each value is of its label, such as ``avg`` or ``p99``; empty for graphs.
    """

    metric: str
    name: str
    unit: str
    times: FloatArray
    values: FloatArray
    role: Role = "graph"
    labels: Mapping[str, str] = field(default_factory=dict)
    stat: str = ""

    def __post_init__(self) -> None:
        if self.times.shape != self.values.shape or self.times.ndim != 1:
            raise ValueError(
                f"times {self.times.shape} and values {self.values.shape} of {self.metric} differ in shape"
            )
        if self.times.size > 1 and not np.all(np.diff(self.times) > 0):
            raise ValueError(f"times of {self.metric} do not increase")

    @cached_property
    def step_s(self) -> float:
        """The usual distance of two samples, in seconds; NaN with fewer than two samples."""
        return float(np.median(np.diff(self.times))) if self.times.size > 1 else float("nan")


@dataclass(frozen=True)
class LabelSummary:
    """One value per label over the whole run, as the source computed it (in seconds for times)."""

    group: str
    label: str
    stat: str
    value: float


@dataclass(frozen=True)
class Note:
    """Something about a recording that its readers must know."""

    kind: NoteKind
    text: str


@dataclass(frozen=True)
class Recording:
    """One run of one test on one build.

    Attributes
    ----------
    window
        Start and end in seconds since 1970; elapsed time counts from the start.
    stop_known
        Whether `window` ends where the run was stopped. False where the data merely ends, as in a
        table of samples without a stated stop: such a curve may have been cut.
    """

    series: tuple[Series, ...]
    window: tuple[float, float]
    stop_known: bool
    label_summaries: tuple[LabelSummary, ...] = ()
    notes: tuple[Note, ...] = ()
    provenance: Mapping[str, object] = field(default_factory=dict)

    @property
    def duration_s(self) -> float:
        """Length of the window."""
        return self.window[1] - self.window[0]

    @property
    def simulated(self) -> bool:
        """Whether any of it was made by the simulator."""
        return any(note.kind == "simulated" for note in self.notes)

    @property
    def digitised(self) -> bool:
        """Whether its values were read off a plot."""
        return any(note.kind == "digitised" for note in self.notes)

    def graphs(self) -> tuple[Series, ...]:
        """The series that reports draw."""
        return tuple(series for series in self.series if series.role == "graph")

    def find(self, metric: str, labels: Mapping[str, str] | None = None) -> Series | None:
        """The graph series of `metric`; without `labels` the first of several."""
        for series in self.graphs():
            if series.metric == metric and (labels is None or dict(series.labels) == dict(labels)):
                return series
        return None

    def total(self, metric: str) -> Series | None:
        """The one graph series of `metric`, or the sum of several (of instances) at the times that all share."""
        found = [series for series in self.graphs() if series.metric == metric]
        if len(found) < 2:
            return found[0] if found else None
        times = functools.reduce(np.intersect1d, [series.times for series in found])
        values = np.sum([series.values[np.isin(series.times, times)] for series in found], axis=0)
        return Series(metric, found[0].name, found[0].unit, times, np.asarray(values, dtype=np.float64))

    def curve(self, series: Series) -> pd.Series:
        """A series on elapsed time: values over seconds since the window's start, inside the window."""
        start, end = self.window
        inside = (series.times >= start) & (series.times <= end)
        index = pd.Index(series.times[inside] - start, name="elapsed_s")
        return pd.Series(series.values[inside], index=index, name=series.metric)

    def coverage(self, series: Series, until_s: float | None = None) -> Coverage:
        """How much of the window a series covers, or of its part up to `until_s` (elapsed seconds)."""
        curve = self.curve(series)
        length = self.duration_s if until_s is None else until_s
        curve = curve[curve.index <= length]
        step = series.step_s
        expected = len(curve) if not step > 0 else max(len(curve), math.floor(length / step + 1e-6) + 1)
        finite = int(np.isfinite(curve.to_numpy()).sum())
        return Coverage(expected=expected, present=len(curve), finite=finite)


@dataclass(frozen=True)
class Coverage:
    """Samples of a series inside its run's window: expected at its step, present, and present as a number."""

    expected: int
    present: int
    finite: int

    @property
    def fraction(self) -> float:
        """The part of the expected samples that is a number (0 to 1)."""
        return self.finite / self.expected if self.expected else 0.0
