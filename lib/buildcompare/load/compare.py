"""Compare how the load came up in both builds: the beginning of each run, the shift between them, and their waves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from buildcompare.load.curve import LoadCurve
from buildcompare.load.ramp import round_marks, time_to_users
from buildcompare.load.view import RunView, Shape, Views, measure_shape
from buildcompare.load.waves import compare_waves
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import Pair, Status
from buildcompare.results.users import RampUp, RampUps, WithinRuns
from buildcompare.stats.levels import mean_of_runs, measure_level


def ramp_ups(views: Views) -> Pair[list[RampUp]]:
    """The shape of each run's beginning."""
    plateaus = views.map(
        lambda runs: [
            None if v.users is None or v.steady.window is None else measure_level(v.users, v.steady.window).value
            for v in runs
        ]
    )
    marks = round_marks([users for runs in plateaus for users in runs if users is not None])

    def ramp_up(view: RunView, plateau: float | None) -> RampUp:
        shape = view.shape
        # A window that opened in mid-ramp does not know since when.
        opened_late = shape is not None and shape.ramp is not None and shape.beginning.onset_s is None
        reached = {} if view.users is None else time_to_users(view.users, marks)
        times = {str(mark): None if opened_late else at_s for mark, at_s in reached.items()}
        return RampUp(plateau_users=plateau, time_to=times, **_shape(shape))

    return Pair.of(lambda side: [*map(ramp_up, views[side], plateaus[side])])


def _shape(shape: Shape | None) -> dict[str, object]:
    """What results.json holds of a shape; heights of a proxy are no users and are left out."""
    if shape is None:
        return {}
    beginning, line, waves, plateau = shape.beginning, shape.ramp, shape.waves, shape.plateau
    seen = beginning.onset_s is not None  # else the recording does not show how the run began
    found: dict[str, object] = {
        "onset_s": beginning.onset_s,
        "early_bumps": len(beginning.bumps) if seen else None,
        "early_bump_seconds": beginning.bump_seconds if seen else None,
        "kink_s": line and line.kink_s,
        "waves_p_value": waves.test and waves.test.p_value,
        "equilibrium": plateau and plateau.settled,
    }
    if waves.claimed:
        found |= {"wave_onset_s": waves.onset_s, "wave_period_s": waves.period_s, "wave_regularity": waves.regularity}
    if not shape.proxy:
        found |= {
            "bumps": list(beginning.bumps),
            "slope_users_per_s": line and line.slope,
            "lost_user_seconds": shape.lost,
            "plateau_drift_users_per_s": plateau and plateau.drift,
            "stopped_earlier_users": plateau and plateau.earliest_level,
        }
        if waves.claimed:
            found |= {"wave_onset_users": waves.onset_users, "wave_amplitude_users": waves.amplitude}
    return found


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
    """New minus base over the common ramp: negative users mean that the new build is behind."""

    users: float  # Median vertical gap in the curve's unit
    users_ci: tuple[float, float]
    """95 % interval: uncertainty within the runs, variation from run to run, and how far the gap, or the delay, is from
    being one number (its spread, and what it was when the later ramp had just started)."""
    seconds: float  # Median delay at equal users; positive: the new one is later
    window: tuple[float, float]  # Where it was measured, elapsed seconds: from the later onset to the first wave
    noise_source: Literal["runs", "simulated"]  # Of the run-to-run variation
    p_value: float  # Two-sided, of no shift

    @property
    def significant(self) -> bool:
        """Whether the interval excludes no shift."""
        return self.p_value <= 0.05


def shift(
    base: pd.Series | Shape, new: pd.Series | Shape, *, sd_s: float | None = None, df: float = math.inf
) -> Shift | None:
    """The shift between the common ramps of two runs.

    Within a run there is nothing to learn about how much its delay would vary: a handful of alerts settles it in the
    first minutes. Without repeated runs of one build the variation is that of simulated ones, which grows with the time
    that the beginning took; where there are bumps, one more or one less is chance.

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
    within = _within(times, gap)
    onset = ((one.beginning.onset_s or 0.0) + (other.beginning.onset_s or 0.0)) / 2.0
    between = math.sqrt(2.0) * (math.hypot(LEAST_SD_S, ONSET_SD * onset) if sd_s is None else sd_s)
    error_s = math.hypot(within / slope, between, wandering_s)
    reach_s = error_s * float(ndtri(0.975) if math.isinf(df) else stdtrit(df, 0.975))
    z = abs(seconds) / error_s if error_s > 0 else math.inf
    return Shift(
        users=users,
        users_ci=(users - slope * reach_s, users + slope * reach_s),
        seconds=seconds,
        window=window,
        noise_source="simulated" if sd_s is None else "runs",
        p_value=float(2.0 * (ndtr(-z) if math.isinf(df) else stdtr(df, -z))),
    )


def _window(base: Shape, new: Shape) -> tuple[float, float] | None:
    if base.beginning.onset_s is None or new.beginning.onset_s is None:
        return None
    start = max(base.beginning.onset_s, new.beginning.onset_s)
    waves = [side.waves.onset_s for side in (base, new) if side.waves.onset_s is not None]
    ramps = [side.ramp.end_s for side in (base, new) if side.ramp is not None]
    end = min(min(waves or ramps, default=start), *(float(side.curve.elapsed[-1]) for side in (base, new)))
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


def _within(times: FloatArray, gap: FloatArray) -> float:
    """Standard error of the median gap from the samples' own AR(1) noise around its trend."""
    drift, height = np.polyfit(times - times[0], gap, 1)
    residual = gap - (height + drift * (times - times[0]))
    variance = float(residual @ residual)
    phi = min(max(float(residual[1:] @ residual[:-1]) / variance if variance > 0 else 0.0, 0.0), 0.99)
    effective = max(gap.size * (1.0 - phi) / (1.0 + phi), 1.0)
    # A median's standard error is root(pi/2) times a mean's.
    return math.sqrt(math.pi / 2.0 * variance / max(gap.size - 2, 1) / effective)


def compare_ramps(views: Views, ramps: Pair[list[RampUp]]) -> RampUps:
    """The mean shapes, and of the pairs of runs of each number the middle one's shift and difference of the waves."""
    pairs = [(a.shape, b.shape) for a, b in zip(views.base, views.new, strict=False) if a.shape and b.shape]
    proxy = any(shape.proxy for pair in pairs for shape in pair)
    shifts = [] if proxy else [each for pair in pairs if (each := shift(*pair)) is not None]
    waves = [compare_waves(a.waves, b.waves) for a, b in pairs if a.waves.claimed and b.waves.claimed]
    found: dict[str, object] = {
        "wave_period_s": _middle([period for period, _ in waves]),
        "wave_amplitude_users": None if proxy else _middle([amplitude for _, amplitude in waves]),
    }
    if shifts:
        middle = sorted(shifts, key=lambda each: each.users)[(len(shifts) - 1) // 2]
        status = Status.REGRESSION if middle.users < 0 else Status.IMPROVEMENT
        found |= {
            "shift_users": middle.users,
            "shift_seconds": middle.seconds,
            "shift_ci_low": middle.users_ci[0],
            "shift_ci_high": middle.users_ci[1],
            "shift_p_value": middle.p_value,
            "shift_window": middle.window,
            "shift_noise_source": middle.noise_source,
            "shift_status": status if middle.significant else Status.INCONCLUSIVE,
        }
    return RampUps(base=_mean_ramp(ramps.base), new=_mean_ramp(ramps.new), **found)


def _middle(differences: Sequence[WithinRuns | None]) -> WithinRuns | None:
    known = sorted((each for each in differences if each is not None), key=lambda each: each.value)
    return known[(len(known) - 1) // 2] if known else None


def _mean_ramp(ramps: Sequence[RampUp]) -> RampUp:
    """The mean over the runs of one build; of a single run, that run."""
    if len(ramps) == 1:
        return ramps[0]
    names = RampUp.model_fields.keys() - {"time_to", "bumps", "early_bumps", "equilibrium"}
    marks = ramps[0].time_to if ramps else {}
    counts = sorted(ramp.early_bumps for ramp in ramps if ramp.early_bumps is not None)
    return RampUp(
        **{name: mean_of_runs([getattr(ramp, name) for ramp in ramps]) for name in names},
        early_bumps=counts[len(counts) // 2] if counts else None,
        time_to={mark: mean_of_runs([ramp.time_to.get(mark) for ramp in ramps]) for mark in marks},
    )
