"""How far is the new build's ramp behind or ahead of the base's, in users and in seconds?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from buildcompare.load.curve import LoadCurve
from buildcompare.load.phases import Shape
from buildcompare.recordings.recording import FloatArray

FEWEST = 12
"""Times at which a gap is looked at, where samples are so far apart that there would be fewer."""


@dataclass(frozen=True)
class DelayNoise:
    """How much the start of the lasting ramp varies from run to run of one build.

    Attributes
    ----------
    sd_s
        Standard deviation of one run's delay, in seconds.
    df
        Degrees of freedom of that estimate; infinite for a known one.
    """

    sd_s: float
    df: float = math.inf


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
    prior
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


@dataclass(frozen=True)
class MeasureShift:
    """Measure the shift between two runs over their common ramp.

    Each run's delay is settled in its first minutes, by a handful of alerts: within a run there is nothing to learn
    about how much it would vary. Without repeated runs of one build the variation is that of simulated ones, which
    grows with the time that the beginning took; where there are bumps, one more or one less is chance.

    Parameters
    ----------
    least_sd_s, onset_sd
        Standard deviation of one run's delay: these seconds, and this part of the mean onset, as the root of the
        sum of squares. About 1.5 times what 200 simulated pairs vary (seeds 0 to 199 of `benchmarks/shapes.py`:
        10 to 13 s without or with one bump, 0.04 to 0.07 of the onset beyond), because real runs vary by more.
    """

    least_sd_s: float = 20.0
    onset_sd: float = 0.1
    shortest_s: float = 60.0
    first_s: float = 120.0
    """A shift is there from the later ramp's start on; a gap that opens afterwards is of slopes, alerts, capacities."""
    levels: int = 101

    def __call__(self, base: Shape, new: Shape, run_to_run: DelayNoise | None = None) -> Shift | None:
        """Measure it; None where a ramp's start was not seen or the ramps have no time in common."""
        window = self._window(base, new)
        if window is None:
            return None
        times = _grid(window, base.curve.sample_s)
        gap = _at(new.curve, times) - _at(base.curve, times)
        slope = _slope(base, new, window)
        users, seconds, delays_sd = self._shifts(base, new, window)
        first = self._shifts(base, new, (window[0], min(window[0] + self.first_s, window[1])))
        # A shift is one number in users, or in seconds: past a kink, a delay that stays the same is fewer users.
        wandering_s = min(
            math.hypot(users - first[0], float(gap.std())) / slope, math.hypot(seconds - first[1], delays_sd)
        )
        within, drift = _within(times, gap)
        noise_source = run_to_run or self._simulated(base, new)
        between = math.sqrt(2.0) * noise_source.sd_s
        error_s = math.hypot(within / slope, between, wandering_s)
        error = slope * error_s
        reach = float(ndtri(0.975) if math.isinf(noise_source.df) else stdtrit(noise_source.df, 0.975))
        z = abs(seconds) / error_s if error_s > 0 else math.inf
        return Shift(
            users=users,
            users_ci=(users - reach * error, users + reach * error),
            seconds=seconds,
            seconds_ci=(seconds - reach * error_s, seconds + reach * error_s),
            window=window,
            drift=drift,
            noise_source="runs" if run_to_run else "simulated",
            p_value=float(2.0 * (ndtr(-z) if math.isinf(noise_source.df) else stdtr(noise_source.df, -z))),
        )

    def _window(self, base: Shape, new: Shape) -> tuple[float, float] | None:
        onsets = [side.beginning.onset_s for side in (base, new)]
        if onsets[0] is None or onsets[1] is None:
            return None
        start = max(onsets[0], onsets[1])
        waves = [side.waves.onset_s for side in (base, new) if side.waves.onset_s is not None]
        ramps = [side.ramp.end_s for side in (base, new) if side.ramp is not None]
        end = min(waves or ramps, default=start)
        end = min(end, *(float(side.curve.elapsed[-1]) for side in (base, new)))
        return (start, end) if end - start >= self.shortest_s else None

    def _shifts(self, base: Shape, new: Shape, window: tuple[float, float]) -> tuple[float, float, float]:
        """Median gap in the curve's unit, median delay in seconds, and the delays' spread (infinite without any)."""
        times = _grid(window, base.curve.sample_s)
        users = float(np.median(_at(new.curve, times) - _at(base.curve, times)))
        delays = self._delays(base.curve, new.curve, window)
        if not delays.size:
            return users, -users / _slope(base, new, window), math.inf
        return users, float(np.median(delays)), float(delays.std())

    def _delays(self, base: LoadCurve, new: LoadCurve, window: tuple[float, float]) -> FloatArray:
        """New minus base, in seconds, when each level of the common ramp was first reached."""
        low = max(float(_at(curve, np.array(window[:1]))[0]) for curve in (base, new))
        high = min(float(_at(curve, np.array(window[1:]))[0]) for curve in (base, new))
        if not high > low:
            return np.empty(0)
        levels = np.linspace(low, high, self.levels)
        return _reached(new, levels) - _reached(base, levels)

    def _simulated(self, base: Shape, new: Shape) -> DelayNoise:
        onset = ((base.beginning.onset_s or 0.0) + (new.beginning.onset_s or 0.0)) / 2.0
        return DelayNoise(math.hypot(self.least_sd_s, self.onset_sd * onset))


def _grid(window: tuple[float, float], sample_s: float) -> FloatArray:
    """Times over a window, about a sample apart."""
    return np.linspace(*window, max(FEWEST, round((window[1] - window[0]) / sample_s) + 1))


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
