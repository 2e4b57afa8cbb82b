"""Measure how far the new build's ramp is behind or ahead of the base's, in users and in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from buildcompare.load.curve import LoadCurve
from buildcompare.load.shape import Shape, measure_shape
from buildcompare.recordings.recording import FloatArray

FEWEST = 12  # Times at which a gap is looked at, where samples are so far apart that there would be fewer
LEAST_SD_S, ONSET_SD = 20.0, 0.1
"""Standard deviation of one run's delay without repeated runs: these seconds, and this part of the mean onset, as the
root of the sum of squares. About 1.5 times what 200 simulated pairs vary (seeds 0 to 199 of `benchmarks/shapes.py`: 10
to 13 s without or with one bump, 0.04 to 0.07 of the onset beyond), because real runs vary by more."""
SHORTEST_S = 60.0
FIRST_S = 120.0
"""A shift is there from the later ramp's start on; a gap that opens afterwards is of slopes, alerts, capacities."""
LEVELS = 101


@dataclass(frozen=True)
class Shift:
    """New minus base over the common ramp: negative users mean that the new build is behind.

    Attributes
    ----------
    users, seconds
        Median vertical gap in the curve's unit, and median delay at equal users (positive: the new one is later).
    users_ci, seconds_ci
        95 % intervals: uncertainty within the runs, variation from run to run, and how far the gap, or the delay, is
        from being one number (its spread, and what it was when the later ramp had just started).
    window
        Where it was measured, elapsed seconds: from the later onset to the first wave of either.
    drift
        How much the gap grows per second; apart from 0 where the ramps are not equally steep.
    noise_source
        Where the run-to-run variation is from: runs of one build, or simulated ones.
    p_value
        Two-sided, of no shift.
    """

    users: float
    users_ci: tuple[float, float]
    seconds: float
    seconds_ci: tuple[float, float]
    window: tuple[float, float]
    drift: float
    noise_source: Literal["runs", "simulated"]
    p_value: float

    @property
    def significant(self) -> bool:
        """Whether the interval excludes no shift."""
        return self.p_value <= 0.05


def shift(
    base: pd.Series | Shape, new: pd.Series | Shape, *, sd_s: float | None = None, df: float = math.inf
) -> Shift | None:
    """The shift between the common ramps of two runs.

    Each run's delay is settled in its first minutes, by a handful of alerts: within a run there is nothing to learn
    about how much it would vary. Without repeated runs of one build the variation is that of simulated ones, which
    grows with the time that the beginning took; where there are bumps, one more or one less is chance.

    Parameters
    ----------
    base, new
        Connected users over elapsed seconds, or the shapes of both runs.
    sd_s, df
        Standard deviation of one run's delay in seconds, learned from repeated runs of one build, and its degrees of
        freedom; default: that of simulated runs.

    Returns
    -------
    Shift or None
        None where a ramp's start was not seen, a curve shows no load, or the ramps have no time in common.

    Examples
    --------
    >>> elapsed = np.arange(0.0, 5400.0, 5.0)
    >>> base, new = (np.clip(4.0 * (elapsed - onset), 0.0, 8000.0) for onset in (100, 500))
    >>> found = shift(pd.Series(base, index=elapsed), pd.Series(new, index=elapsed))
    >>> round(found.users), round(found.seconds), found.significant
    (-1600, 400, True)
    """
    one, other = (measure_shape(each) if isinstance(each, pd.Series) else each for each in (base, new))
    window = None if one is None or other is None else _window(one, other)
    if one is None or other is None or window is None:
        return None
    times, gap = _gap(one, other, window)
    slope = _slope(one, other, window)
    users, seconds, delays_sd = _shifts(one, other, window)
    first = _shifts(one, other, (window[0], min(window[0] + FIRST_S, window[1])))
    # A shift is one number in users, or in seconds: past a kink, a delay that stays the same is fewer users.
    wandering_s = min(math.hypot(users - first[0], float(gap.std())) / slope, math.hypot(seconds - first[1], delays_sd))
    within, drift = _within(times, gap)
    onset = ((one.beginning.onset_s or 0.0) + (other.beginning.onset_s or 0.0)) / 2.0
    between = math.sqrt(2.0) * (math.hypot(LEAST_SD_S, ONSET_SD * onset) if sd_s is None else sd_s)
    error_s = math.hypot(within / slope, between, wandering_s)
    reach_s = error_s * float(ndtri(0.975) if math.isinf(df) else stdtrit(df, 0.975))
    z = abs(seconds) / error_s if error_s > 0 else math.inf
    return Shift(
        users=users,
        users_ci=(users - slope * reach_s, users + slope * reach_s),
        seconds=seconds,
        seconds_ci=(seconds - reach_s, seconds + reach_s),
        window=window,
        drift=drift,
        noise_source="simulated" if sd_s is None else "runs",
        p_value=float(2.0 * (ndtr(-z) if math.isinf(df) else stdtr(df, -z))),
    )


def _window(base: Shape, new: Shape) -> tuple[float, float] | None:
    if base.beginning.onset_s is None or new.beginning.onset_s is None:
        return None
    start = max(base.beginning.onset_s, new.beginning.onset_s)
    waves = [side.waves.onset_s for side in (base, new) if side.waves.onset_s is not None]
    ramps = [side.ramp.end_s for side in (base, new) if side.ramp is not None]
    end = min(waves or ramps, default=start)
    end = min(end, *(float(side.curve.elapsed[-1]) for side in (base, new)))
    return (start, end) if end - start >= SHORTEST_S else None


def _shifts(base: Shape, new: Shape, window: tuple[float, float]) -> tuple[float, float, float]:
    """Median gap in the curve's unit, median delay in seconds, and the delays' spread (infinite without any)."""
    users = float(np.median(_gap(base, new, window)[1]))
    low, high = (np.array([_at(curve, np.array(window)) for curve in (base.curve, new.curve)])).T
    if not high.min() > low.max():
        return users, -users / _slope(base, new, window), math.inf
    levels = np.linspace(low.max(), high.min(), LEVELS)
    delays = _reached(new.curve, levels) - _reached(base.curve, levels)  # when each level was first reached
    return users, float(np.median(delays)), float(delays.std())


def _gap(base: Shape, new: Shape, window: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
    """Times over a window, about a sample apart, and the vertical gap there."""
    times = np.linspace(*window, max(FEWEST, round((window[1] - window[0]) / base.curve.sample_s) + 1))
    return times, _at(new.curve, times) - _at(base.curve, times)


def _at(curve: LoadCurve, times: FloatArray) -> FloatArray:
    return np.asarray(np.interp(times, curve.elapsed, curve.values), dtype=np.float64)


def _reached(curve: LoadCurve, levels: FloatArray) -> FloatArray:
    """Elapsed seconds at which the running maximum first reaches each level."""
    highest = np.maximum.accumulate(curve.values)
    rising = np.flatnonzero(np.diff(highest, prepend=-np.inf) > 0)
    return np.asarray(np.interp(levels, highest[rising], curve.elapsed[rising]), dtype=np.float64)


def _slope(base: Shape, new: Shape, window: tuple[float, float]) -> float:
    """Users per second of the common ramp: mean of both."""
    rises = [np.diff(_at(side.curve, np.array(window)))[0] for side in (base, new)]
    return max(float(np.mean(rises)) / (window[1] - window[0]), 1e-9)


def _within(times: FloatArray, gap: FloatArray) -> tuple[float, float]:
    """Standard error of the median gap from the samples' own AR(1) noise, and the gap's trend per second."""
    drift, height = np.polyfit(times - times[0], gap, 1)
    residual = gap - (height + drift * (times - times[0]))
    variance = float(residual @ residual)
    phi = float(residual[1:] @ residual[:-1]) / variance if variance > 0 else 0.0
    phi = min(max(phi, 0.0), 0.99)
    effective = max(gap.size * (1.0 - phi) / (1.0 + phi), 1.0)
    # A median's standard error is root(pi/2) times a mean's.
    return math.sqrt(math.pi / 2.0 * variance / max(gap.size - 2, 1) / effective), float(drift)
