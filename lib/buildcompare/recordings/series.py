"""Data of one run: series over time, values without timestamps, values of labels, notes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.outside import shown

FloatArray = npt.NDArray[np.float64]
Role = Literal["graph", "label", "bucket", "alert", "error"]
"""Use of a series in reports. A `bucket` holds the rate of calls that last at most the upper bound of the bucket."""
NoteKind = Literal["simulated", "digitised", "source"]
TESTED = 946_684_800.0, 2_145_916_800.0  # 2000 to 2037 in seconds since 1970; dates outside need a stated unit
LATEST = 7_258_118_400.0  # the year 2200, in seconds since 1970: larger numbers are milliseconds or finer


def to_float(text: object) -> float:
    """Convert text as `float` does, but refuse underscores as in ``1_0``, blanks and characters outside ASCII."""
    if not re.fullmatch(r"[!-^`-~]+", str(text)):
        raise ValueError(f"{text!r}, which is no number")
    return float(str(text))


class _Named:
    """Base class of data with names from other programs; it escapes control characters in all its texts."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, str) and not value.isprintable():
                object.__setattr__(self, name, shown(value))


@dataclass(frozen=True)
class Series(_Named):
    """One time series."""

    metric: str  # slug in the catalogue, or a slug made from `name` if the catalogue does not list the metric
    name: str
    unit: str
    times: FloatArray  # seconds since 1970 (UTC), strictly increasing, shape (n,)
    values: FloatArray  # in `unit`, shape (n,); NaN and infinities as the source gives them
    role: Role = "graph"
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that distinguish several series of one metric; empty for a single series."""
    stat: str = ""  # statistic of a label's values, such as ``avg`` or ``p99``; empty for graphs

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
        """Median time between successive samples, in seconds; NaN with fewer than two samples."""
        return float(np.median(np.diff(self.times))) if self.times.size > 1 else float("nan")


@dataclass(frozen=True)
class Measurement(_Named):
    """One metric's values without timestamps in one run: a benchmark's result, or a value per request or iteration."""

    metric: str  # slug in the catalogue, or a slug made from `name` if the catalogue does not list the metric
    name: str
    unit: str
    values: FloatArray  # finite, in `unit`, shape (n,)

    @classmethod
    def of(cls, name: str, values: Iterable[float], catalogue: Catalogue) -> Measurement:
        """Make the measurement of the metric that `catalogue` finds for `name`."""
        metric = catalogue.find(name)
        numbers = np.asarray([*values], dtype=np.float64)
        return cls(metric.slug, metric.name if metric.known else name, metric.unit, numbers)


@dataclass(frozen=True)
class LabelSummary(_Named):
    """One statistic of a label over the whole run, as the source computes it; durations are in seconds."""

    group: str
    label: str
    stat: str
    value: float


@dataclass(frozen=True)
class Note(_Named):
    """A fact about a recording that reports must state."""

    kind: NoteKind
    text: str


def span(series: Iterable[Series]) -> tuple[float, float] | None:
    """Return the first and last time of all samples, in seconds since 1970; None without samples."""
    ends = [time for each in series if each.times.size for time in (each.times[0], each.times[-1])]
    return (float(min(ends)), float(max(ends))) if ends else None
