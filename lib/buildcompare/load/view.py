"""See one run as the analyses do: its load and its stop, its steady window, its levels, and its shape in phases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.config.params import Coordinator
from buildcompare.load.curve import USERS_INC, LoadCurve, prepare_load
from buildcompare.load.ramp import Beginning, Ramp, bumps, ramp
from buildcompare.load.waves import Waves, waves
from buildcompare.load.windows import SteadyState, Stop, find_stop, mser_window, no_window, plateau_start, steady_window
from buildcompare.recordings.recording import Recording, Series
from buildcompare.results.codes import Pair, ReasonCode, TestType
from buildcompare.results.users import Phase, PhaseName
from buildcompare.stats.levels import Level, measure_level
from buildcompare.stats.noise import RunLevel

WINDOW_S = 1800.0
SLOPE_STEPS = 0.025
"""The stop rule of mattermost-load-test-ng: at least `WINDOW_S` after the first alert, and a slope over the last
`WINDOW_S` that is below this many actions of the coordinator per second (0.2 users/s of 8)."""
TOLERANCE = 2.0
"""Factor on the rule for `settled`, as for the supported users: connected users are not exactly the active ones."""
SHORTEST_S = 600.0
LEAST_PART = 0.5
"""No stop is looked for before the curve has reached this part of its level: an early stretch of bumps is flat."""


@dataclass(frozen=True)
class Plateau:
    """The end of a load curve; elapsed seconds and the curve's unit."""

    window: tuple[float, float]  # The last 30 minutes under load
    level: float  # Mean over them
    drift: float  # Least-squares slope over them per second: a stop one minute later changes the level by 60 times it
    settled: bool | None  # Whether the drift is about within the load-test tool's rule; None: too short to tell
    settled_s: float | None  # When a stop would first have met that rule; None where none would have
    earliest_level: float | None  # The level that such a stop would have given


def measure_plateau(curve: LoadCurve, stop_s: float, ramp_end_s: float | None = None) -> Plateau | None:
    """Measure the last 30 minutes up to `stop_s`; None where fewer than 10 of them follow the ramp's end."""
    start = max(stop_s - WINDOW_S, float(curve.elapsed[0]) if ramp_end_s is None else ramp_end_s)
    elapsed, values = curve.between(start, stop_s)
    if elapsed.size < 10 or stop_s - start < SHORTEST_S:
        return None
    limit = SLOPE_STEPS * curve.step
    drift = float(np.polyfit(elapsed, values, 1)[0])
    whole = stop_s - start >= 0.99 * WINDOW_S
    settled = bool(abs(drift) < TOLERANCE * limit) if whole else None
    return Plateau((start, stop_s), float(values.mean()), drift, settled, *_first_stop(curve, stop_s, limit))


def _first_stop(curve: LoadCurve, stop_s: float, limit: float) -> tuple[float | None, float | None]:
    """The first sample whose last `WINDOW_S` meet the rule, and their mean; sums that slide make it quick."""
    x, y = curve.elapsed - curve.elapsed[0], curve.values
    first = np.searchsorted(x, x - WINDOW_S)
    sums = [np.concatenate(([0.0], np.cumsum(each))) for each in (np.ones_like(x), x, y, x * x, x * y)]
    n, sx, sy, sxx, sxy = (each[1:] - each[first] for each in sums)
    spread = n * sxx - sx * sx
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = (n * sxy - sx * sy) / spread
    high = np.flatnonzero(y >= LEAST_PART * curve.level)[0]
    # The whole window must lie above it, and before the stop.
    able = (x >= WINDOW_S) & (first >= high) & (curve.elapsed <= stop_s) & (spread > 0)
    met = np.flatnonzero(able & (np.abs(slope) < limit))
    return (float(curve.elapsed[met[0]]), float(sy[met[0]] / n[met[0]])) if met.size else (None, None)


@dataclass(frozen=True)
class Shape:
    """The shape of one run, in the unit of its curve."""

    curve: LoadCurve
    proxy: bool
    """Whether the curve only follows the users: heights are then not users, and the threshold of a turn is a guess."""
    beginning: Beginning
    ramp: Ramp | None
    waves: Waves
    plateau: Plateau | None
    lost: float | None
    """User-seconds lost against the ideal ramp up to the end of the linear one; None where the start was not seen."""
    phases: tuple[Phase, ...]  # In their order, without overlap, from the first sample to the last number


def measure_shape(
    load: pd.Series,
    stop: Stop | None = None,
    *,
    bounded: bool = False,
    proxy: bool = False,
    per_user: float | None = None,
    ideal_slope: float | None = None,
    step: float = USERS_INC,
) -> Shape | None:
    """Measure every part of the shape of a run (users, or a proxy, over elapsed seconds); None without any load.

    `proxy`, `per_user` and `step` are as for :func:`~buildcompare.load.curve.prepare_load`. `ideal_slope` is what the
    coordinator would add per second without any alert; where it is unknown, the slope of the lasting ramp.
    """
    stop = stop or find_stop(load)
    curve = None if stop is None else prepare_load(load, stop.at_s, step=step, proxy=proxy, per_user=per_user)
    if curve is None or stop is None:
        return None
    beginning = bumps(curve)
    line = ramp(curve, onset_s=beginning.onset_s)
    onset = float(curve.elapsed[0]) if beginning.onset_s is None else beginning.onset_s
    if bounded:
        end_s = plateau_start(curve.elapsed, curve.values, proxy=proxy)
        hunting = Waves()
        plateau = None if end_s is None else measure_plateau(curve, stop.at_s, end_s)
    else:
        end_s = None if line is None else line.end_s
        hunting = waves(curve, onset_s=onset, tested_from_s=end_s)
        plateau = measure_plateau(curve, stop.at_s, end_s)
    lost = None
    if line is not None and beginning.onset_s is not None:
        lost = _lost(curve, line.end_s, line.slope if ideal_slope is None else ideal_slope)
    found = Shape(curve, proxy, beginning, line, hunting, plateau, lost, phases=())
    return replace(found, phases=_phases(found, stop, end_s if bounded else None))


def _lost(curve: LoadCurve, end_s: float, slope: float) -> float:
    """Area between the ideal ramp from the first sample and the curve."""
    elapsed, values = curve.between(float(curve.elapsed[0]), end_s)
    ideal = np.minimum(values[0] + slope * (elapsed - elapsed[0]), max(float(values[-1]), float(values[0])))
    ahead = ideal - values
    return float(((ahead[1:] + ahead[:-1]) / 2.0 * np.diff(elapsed)).sum())


def _phases(shape: Shape, stop: Stop, top_s: float | None) -> tuple[Phase, ...]:
    """Each phase until a later one starts; `top_s`: the start of a bounded run's plateau."""
    beginning, line, hunting, plateau = shape.beginning, shape.ramp, shape.waves, shape.plateau
    first = float(shape.curve.elapsed[0])
    marks: list[tuple[PhaseName, float]] = [("early_bumps", first)] if beginning.bumps else []
    if line is not None or top_s is not None:
        marks.append(("ramp", beginning.onset_s if beginning.bumps and beginning.onset_s is not None else first))
    if top_s is not None:
        marks.append(("plateau", top_s))
    else:
        if line is not None and line.complete:
            marks.append(("bend", line.end_s))
        if hunting.claimed and hunting.onset_s is not None:
            marks.append(("waves", hunting.onset_s))
        if plateau is not None and plateau.settled:
            marks.append(("plateau", plateau.window[0]))
    # A phase that starts no earlier than a later one is left out.
    ends = [start for _, start in marks[1:]] + [stop.at_s]
    found = [(name, start, min(ends[i:])) for i, (name, start) in enumerate(marks)]
    if stop.shutdown:
        found.append(("shutdown", stop.at_s, stop.end_s))
    return tuple(Phase(name=name, start_s=start, end_s=end) for name, start, end in found if end > start)


TIMES = "seconds"  # Unit of metrics that are compared by their geometric mean


@dataclass(frozen=True)
class RunView:
    """What the analyses of a run share."""

    recording: Recording
    load: pd.Series | None  # The curve of users or of a proxy, over elapsed seconds; None without either
    load_slug: str | None  # Its metric
    users: pd.Series | None  # The curve of connected users; None where it was not recorded
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

    def filled(metric: Metric | None) -> pd.Series | None:  # its curve, if it has numbers above zero in it
        series = recording.total(metric.slug) if metric else None
        curve = recording.curve(series) if series else None
        return curve if curve is not None and np.any(curve[np.isfinite(curve.to_numpy())] > 0) else None

    users = filled(catalogue.load)
    proxies = ((proxy, filled(proxy)) for proxy in catalogue.proxies())
    proxy, load = (None, users) if users is not None else next((e for e in proxies if e[1] is not None), (None, None))
    if load is None:
        return RunView(recording, None, None, None, None, _steady_without_load(recording, type), None)
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
    followed = proxy or catalogue.load
    return RunView(recording, load, followed.slug if followed else None, users, stop, steady, shape)


def run_level(level: Level) -> RunLevel:
    """A level as a calibration and a judgement take it."""
    return RunLevel(level.value or 0.0, level.se_log, level.seconds)


def _steady_without_load(recording: Recording, type: TestType) -> SteadyState:  # noqa: A002
    if type == "unbounded":
        return no_window(ReasonCode.LOAD_UNKNOWN)
    curves = (recording.curve(series) for series in recording.graphs())
    filled = next((curve for curve in curves if np.isfinite(curve.to_numpy()).any()), None)
    return no_window(ReasonCode.NO_SAMPLES) if filled is None else mser_window(filled)
