"""See one run as the analyses do: its load, where that stopped, its steady window, its shape, and its levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.config.params import Coordinator
from buildcompare.load.shape import Shape, measure_shape
from buildcompare.load.windows import SteadyState, Stop, find_stop, mser_window, steady_window
from buildcompare.recordings.recording import Recording, Series
from buildcompare.results.base import Reason
from buildcompare.results.codes import Pair, ReasonCode, TestType
from buildcompare.stats.levels import Level, measure_level
from buildcompare.stats.noise import RunLevel

TIMES = "seconds"  # Unit of metrics that are compared by their geometric mean


@dataclass(frozen=True)
class RunView:
    """What the analyses of a run share.

    Attributes
    ----------
    load, load_slug
        The curve of users or of a proxy, over elapsed seconds, and its metric; None without either.
    users
        The curve of connected users; None where it was not recorded.
    """

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


Views: TypeAlias = Pair[list[RunView]]
"""The views of the runs of both builds."""


def view_run(
    recording: Recording,
    type: TestType,  # noqa: A002
    catalogue: Catalogue,
    coordinator: Coordinator | None = None,
) -> RunView:
    """The view of a run of a test of `type` through the catalogue's load curve, or through a proxy that follows it."""
    rule = coordinator or Coordinator()
    users = _filled(recording, catalogue.load)
    proxies = ((proxy, _filled(recording, proxy)) for proxy in catalogue.proxies())
    proxy, load = (None, users) if users is not None else next((e for e in proxies if e[1] is not None), (None, None))
    followed = proxy or catalogue.load
    stop = shape = None
    if load is not None:
        stop = find_stop(load, fastest_fall=rule.fastest_fall if proxy is None else None)
        shape = measure_shape(
            load,
            stop,
            bounded=type == "bounded",
            proxy=proxy is not None,
            per_user=proxy.proxy_per_unit if proxy else None,
            ideal_slope=rule.users_inc / rule.rest_s if proxy is None else None,
            step=rule.users_inc,
        )
        steady = steady_window(load, type, stop=stop, proxy=proxy is not None)
    else:
        steady = _steady_without_load(recording, type)
    slug = followed.slug if followed is not None and load is not None else None
    return RunView(recording, load, slug, users, stop, steady, shape)


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


def _steady_without_load(recording: Recording, type: TestType) -> SteadyState:  # noqa: A002
    if type == "unbounded":
        return SteadyState(None, "none", Reason(code=ReasonCode.LOAD_UNKNOWN))
    curves = (recording.curve(series) for series in recording.graphs())
    filled = next((curve for curve in curves if np.isfinite(curve.to_numpy()).any()), None)
    if filled is None:
        return SteadyState(None, "none", Reason(code=ReasonCode.NO_SAMPLES))
    return mser_window(filled)
