"""Measure the shape of a run: its phases (early bumps, ramp, waves, plateau, shutdown), and what it lost on its way."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from buildcompare.load.curve import USERS_INC, LoadCurve, prepare_load
from buildcompare.load.ramp import Beginning, Ramp, bumps, ramp
from buildcompare.load.waves import Waves, waves
from buildcompare.load.windows import Stop, find_stop, plateau_start
from buildcompare.results.users import Phase, PhaseName

# ---- The plateau ----------------------------------------------------------------------------------------------------

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


# ---- The whole shape ------------------------------------------------------------------------------------------------


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
