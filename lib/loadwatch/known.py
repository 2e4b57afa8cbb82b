"""Hold what is known of a test when one looks at it: the finished runs, the plan, and what is recorded so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.config.params import Coordinator, Test
from buildcompare.load.view import RunView, Shape, view_run
from buildcompare.recordings.recording import FloatArray, Recording, Series
from buildcompare.results.codes import SIDES, Pair
from buildcompare.stats.levels import minute_means

CERTAIN = 4.0  # rate windows before a fault is certain: four minutes by default


@dataclass(frozen=True)
class Watched:
    """A test whose last run of the new build is still running, with its finished runs and noise."""

    test: Test
    catalogue: Catalogue
    base: Sequence[Recording]
    start_s: float
    """Start of the run, in seconds since 1970."""
    length_s: float
    before: Sequence[Recording] = ()  # finished runs of the new build
    coordinator: Coordinator = field(default_factory=Coordinator)
    labels: tuple[str, str] = SIDES
    settings: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of :func:`compare_test`: noise between runs, and planned runs."""
    beside: bool = False
    """Whether the last run of the base goes on too."""

    def view(self, recording: Recording) -> RunView:
        """View the series that decide, and error rates, of a run for this test."""
        slugs = {metric.slug for metric in deciding_metrics(self.catalogue)}
        kept = (s for s in recording.series if s.role == "error" or (s.role == "graph" and s.metric in slugs))
        deciding = replace(recording, series=tuple(kept), label_summaries=())
        return view_run(deciding, self.test.type, self.catalogue, self.coordinator)

    @cached_property
    def views(self) -> Pair[list[RunView]]:
        """The other runs of both builds."""
        return Pair([*map(self.view, self.base)], [*map(self.view, self.before)])

    @cached_property
    def load(self) -> float:
        """Load of a test: the stated users of a bounded one; otherwise the median level of the finished base runs."""
        levels = [each.plateau_users for each in self.views.base if each.plateau_users]
        stated = self.test.users if self.test.type == "bounded" else None
        return float(stated or (np.median(levels) if levels else 0.0))

    @cached_property
    def shapes(self) -> list[Shape]:
        """Shapes of the base's runs."""
        return [each.shape for each in self.views.base if each.shape]

    @cached_property
    def slope(self) -> float:
        """Users per second on the base's ramp; 0 if unknown."""
        return next((each.ramp.slope for each in self.shapes if each.ramp and not each.proxy), 0.0)

    @cached_property
    def ramp(self) -> tuple[float, float]:
        """Start and end of the base's ramp, in seconds since its start; of several runs the last."""
        ends = [each.ramp.end_s for each in self.shapes if each.ramp]
        return max((each.beginning.onset_s or 0.0 for each in self.shapes), default=0.0), max(ends, default=0.0)


@dataclass(frozen=True)
class Look:
    """What a look at a test sees; at `at_s` the clock goes on even where samples do not."""

    watched: Watched
    view: RunView
    at_s: float

    @property
    def since_s(self) -> float:
        """Since when a fault that is certain now has lasted."""
        return self.at_s - CERTAIN * self.view.rate_s

    @property
    def bounded(self) -> bool:
        """Whether the load is stated."""
        return self.watched.test.type == "bounded"

    @property
    def shut_down(self) -> bool:
        """Whether the load ended long ago, after the base's ramp."""
        stop = self.view.stop
        return stop is not None and stop.shutdown and self.since_s >= stop.at_s >= self.watched.ramp[1]

    def recent(self, series: Series) -> FloatArray:
        """Means of the last `CERTAIN` windows of rates; NaN at a gap."""
        of_run, width_s = self.view.recording.samples(series), self.view.rate_s
        return minute_means(*of_run, start_s=self.since_s, count=int(CERTAIN), width_s=width_s, closed="right")


def cut(recording: Recording, at_s: float) -> Recording:
    """The recording as it was `at_s` seconds after its start; values of labels over the whole run are not known."""
    end = min(recording.window[0] + at_s, recording.window[1])
    sizes = [int(np.searchsorted(each.times, end, "right")) for each in recording.series]
    series = tuple(replace(each, times=each.times[:size], values=each.values[:size])
                   for each, size in zip(recording.series, sizes, strict=True))  # fmt: skip
    ended = recording.stop_known and at_s >= recording.duration_s
    return replace(recording, series=series, window=(recording.window[0], end), stop_known=ended, label_summaries=())


def deciding_metrics(catalogue: Catalogue) -> list[Metric]:
    """Metrics that decisions and faults rest on: load, what users feel, failures, requests, and what shows units."""
    proxies = catalogue.proxies()
    return [
        m for m in catalogue.metrics
        if m.load or m.gate or m.outcome or m.least_per or m in proxies or m.unit.endswith("/s")
    ]  # fmt: skip
