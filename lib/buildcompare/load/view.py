"""One run as the analyses see it: its load, where that stopped, its steady window, and its levels there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.config.params import Coordinator
from buildcompare.load.curve import PrepareLoad
from buildcompare.load.phases import MeasureShape, Shape
from buildcompare.load.steady_state import FindSteadyState, SteadyState
from buildcompare.load.stop import FindStop, Stop
from buildcompare.recordings.recording import Recording, Series
from buildcompare.results.base import Reason
from buildcompare.results.codes import ReasonCode
from buildcompare.stats.levels import Level, measure_level
from buildcompare.stats.noise import RunLevel

TIMES = "seconds"
"""Unit of metrics that are compared by their geometric mean."""


@dataclass(frozen=True)
class RunView:
    """What the analyses of a run share."""

    recording: Recording
    load: pd.Series | None
    load_slug: str | None
    users: pd.Series | None
    stop: Stop | None
    steady: SteadyState
    shape: Shape | None

    def level(self, series: Series) -> Level | None:
        """The level of the series that this run has in place of `series`; None where it has none."""
        found = self.recording.find(series.metric, series.labels)
        if found is None or self.steady.window is None:
            return None
        return measure_level(self.recording.curve(found), self.steady.window, geometric=found.unit == TIMES)


@dataclass(frozen=True)
class ViewRun:
    """See a run through the catalogue's load curve, or through a proxy that follows it."""

    catalogue: Catalogue
    coordinator: Coordinator = field(default_factory=Coordinator)

    def __call__(self, recording: Recording, kind: Literal["bounded", "unbounded"]) -> RunView:
        """The view of a run of a test of type `kind`."""
        users = _filled(recording, self.catalogue.load)
        slug, load = (self.catalogue.load.slug, users) if self.catalogue.load and users is not None else (None, None)
        for proxy in self.catalogue.proxies():
            if load is None and (load := _filled(recording, proxy)) is not None:
                slug = proxy.slug
        fall = self.coordinator.fastest_fall if users is not None else None
        stop = FindStop(fastest_fall=fall)(load) if load is not None else None
        shape = self._shape(load, stop, slug, bounded=kind == "bounded") if load is not None and stop else None
        return RunView(
            recording, load, slug, users, stop, _steady(kind, recording, load, stop, proxy=users is None), shape
        )

    def _shape(self, load: pd.Series, stop: Stop, slug: str | None, *, bounded: bool) -> Shape | None:
        proxy = next((metric for metric in self.catalogue.proxies() if metric.slug == slug), None)
        return MeasureShape(prepare=PrepareLoad(step=self.coordinator.users_inc))(
            load,
            stop,
            bounded=bounded,
            proxy=proxy is not None,
            per_user=proxy.proxy_per_unit if proxy else None,
            ideal_slope=self.coordinator.users_inc / self.coordinator.rest_s if proxy is None else None,
        )


def run_level(level: Level) -> RunLevel:
    """A level as a calibration and a judgement take it."""
    return RunLevel(level.value or 0.0, level.se_log, level.seconds)


def _filled(recording: Recording, metric: Metric | None) -> pd.Series | None:
    """The curve of `metric`, if it has numbers above zero in it."""
    series = recording.total(metric.slug) if metric else None
    curve = recording.curve(series) if series else None
    if curve is None or not np.any(curve[np.isfinite(curve.to_numpy())] > 0):
        return None
    return curve


def _steady(kind: str, recording: Recording, load: pd.Series | None, stop: Stop | None, *, proxy: bool) -> SteadyState:
    find = FindSteadyState()
    if kind == "unbounded" and (load is None or stop is None):
        return SteadyState(None, "none", Reason(code=ReasonCode.LOAD_UNKNOWN))
    if load is None or stop is None:
        curves = [recording.curve(series) for series in recording.graphs()]
        filled = [curve for curve in curves if np.isfinite(curve.to_numpy()).any()]
        return find.without_load(filled[0]) if filled else SteadyState(None, "none", Reason(code=ReasonCode.NO_SAMPLES))
    if kind == "bounded":
        return find.bounded(load, stop, proxy=proxy)
    return find.unbounded(stop, float(load.index[0]))
