"""Find the waves in which the load hunts around its threshold, test them against red noise, and compare two runs'."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import gammaincc

from buildcompare.load.curve import GAUSSIAN_MAD, LoadCurve, Turn, find_turns
from buildcompare.load.ramp import bumps, ramp
from buildcompare.load.windows import load_curve
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.users import WithinRuns

SIGNIFICANT = 0.05
FALL_STEPS = 5.0  # A wave falls by this many actions of the coordinator or more
ROW, ROW_S = 3, 600.0
"""Waves begin with three falls in a row, none of which starts later than this after the one before: published waves
have periods of 145 to 250 s, and a missed one doubles the distance."""
PAUSE_S = 1200.0
"""A row that is followed by a longer pause than itself, and than this, is what an oscillating beginning left on the
ramp: waves that go on may miss one, and not many."""
CYCLE_STEPS = 2.0  # Shorter falls than a wave's count for the period, or a missed one would double it
FEWEST_CYCLES = 4  # A period needs this many cycles (three distances)
RESOLVED, ALIASED = 8.0, 3.0
"""Samples per cycle. With fewer than `RESOLVED` the fall is not known: peaks and troughs lie between samples, which
takes an eighth off a saw-tooth of 8 samples on average, and a quarter off one of 4. With fewer than `ALIASED` the
period may be that of faster waves: samples a minute apart show waves of 100 s as waves of 150."""
SWING = 0.5  # A spectral peak that swings by less than this part of the falls is an overtone of theirs, or a ripple
NEAR = 0.25  # Periods or frequencies this part apart are of one oscillation, whose cycles are not all alike


@dataclass(frozen=True)
class WaveTest:
    """A spectral peak against red noise."""

    p_value: float  # Of the largest peak against the fitted AR(1) spectrum, over all frequencies searched (Sidak)
    period_s: float
    share: float  # Part of the variance within a quarter of the peak's frequency: 1 is a pure oscillation
    swing: float  # From peak to trough of a sine that has this part of the variance, in the curve's unit


@dataclass(frozen=True)
class Waves:
    """The wavy pattern of one run."""

    onset_s: float | None = None  # Of the first of three falls in a row after the lasting ramp has started
    onset_users: float | None = None  # The height there
    falls: tuple[Turn, ...] = ()  # Every one from there to the stop
    cycles: tuple[float, ...] = ()  # Seconds between the peaks of all cycles
    period_s: float | None = None
    """Median of the cycles. Where the curve is too noisy to tell a cycle from noise, the spectral peak must agree; else
    it is that of the peak, or None without."""
    amplitude: float | None = None  # Median fall of the waves from peak to trough; None: samples too far apart
    regularity: float | None = None
    """1 minus the relative spread (median absolute deviation, as a standard deviation) of the cycles, not below 0: 1 is
    a clock."""
    test: WaveTest | None = None  # None where the stretch is too short for it

    @property
    def claimed(self) -> bool:
        """Whether there are waves: three falls in a row, and a spectral peak that red noise does not make."""
        return self.onset_s is not None and self.test is not None and self.test.p_value <= SIGNIFICANT


def waves(users: pd.Series | LoadCurve, *, onset_s: float | None = None, tested_from_s: float | None = None) -> Waves:
    """The waves of a run's load: since when, how fast, how high, and whether red noise would make them.

    Parameters
    ----------
    users
        Connected users over elapsed seconds.
    onset_s
        Where the lasting ramp starts; default: the onset that :func:`buildcompare.load.ramp.bumps` finds.
    tested_from_s
        Where the test starts without waves; default: the end of the linear ramp, where `onset_s` is not given either.

    Returns
    -------
    Waves
        With None for what was not found; `claimed` says whether there are waves at all.

    Raises
    ------
    ValueError
        Where the curve shows no load.

    Examples
    --------
    >>> elapsed = np.arange(0.0, 7200.0, 5.0)
    >>> users = np.minimum(4.0 * elapsed, 6000 + 50 * np.sin(2 * np.pi * elapsed / 180))
    >>> found = waves(pd.Series(users, index=elapsed))
    >>> found.claimed, found.period_s, round(found.amplitude)
    (True, 180.0, 100)
    """
    curve = load_curve(users)
    if onset_s is None:
        onset_s = bumps(curve).onset_s
        line = ramp(curve, onset_s=onset_s) if tested_from_s is None else None
        tested_from_s = line.end_s if line is not None else tested_from_s
        onset_s = float(curve.elapsed[0]) if onset_s is None else onset_s
    found = _from_first_row(find_turns(*curve.between(onset_s, np.inf), curve.least_fall(FALL_STEPS)))
    start = found[0].peak_s if found else tested_from_s
    test = None if start is None else red_noise_test(*curve.between(start, np.inf), curve.sample_s)
    cycles = find_turns(*curve.between(found[0].peak_s, np.inf), curve.least_fall(CYCLE_STEPS)) if found else []
    distances = np.diff(np.array([turn.peak_s for turn in cycles]))
    enough = len(cycles) >= FEWEST_CYCLES
    period = None
    if enough:  # the median; where it is only a few samples, the mean of the distances that are like it, to be exact
        period = float(np.median(distances))
        like = distances[np.abs(distances - period) <= 0.5 * period]
        period = float(like.mean()) if like.size and period < 10.0 * curve.sample_s else period
    amplitude = float(np.median([turn.depth for turn in found])) if found else None
    if curve.least_fall(CYCLE_STEPS) > CYCLE_STEPS * curve.step:  # turns of noise would count as cycles
        peak = None  # the spectral peak, where that is what the waves are made of
        if test is not None and amplitude is not None and test.p_value <= SIGNIFICANT:
            peak = test.period_s if test.swing >= SWING * amplitude else None
        agree = period is not None and peak is not None and abs(period - peak) <= NEAR * peak
        period = period if agree else peak
    resolved = period is None or period >= RESOLVED * curve.sample_s
    if period is not None and period < ALIASED * curve.sample_s:
        period = None
    spread = GAUSSIAN_MAD * float(np.median(np.abs(distances - np.median(distances)))) if enough else 0.0
    return Waves(
        onset_s=found[0].peak_s if found else None,
        onset_users=found[0].peak if found else None,
        falls=tuple(found),
        cycles=tuple(distances.tolist()),
        period_s=period,
        amplitude=amplitude if resolved else None,
        regularity=max(0.0, 1.0 - spread / float(np.median(distances))) if enough else None,
        test=test,
    )


def _from_first_row(turns: list[Turn]) -> list[Turn]:
    """The falls from the first row on that the waves go on from."""
    ends = [i for i, (a, b) in enumerate(pairwise(turns), start=1) if b.peak_s - a.peak_s > ROW_S]
    for first, end in pairwise([0, *ends, len(turns)]):
        last_s = turns[end - 1].trough_s if end else 0.0
        pause_s = turns[end].peak_s - last_s if end < len(turns) else 0.0
        if end - first >= ROW and pause_s <= max(last_s - turns[first].peak_s, PAUSE_S):
            return turns[first:]
    return []


LONGEST_S, SHORTEST_S = 600.0, 60.0  # Periods searched: the loop cannot hunt faster than alert queries look back
CYCLES = 5.0  # The longest period searched fits this often into the stretch
KNOT_S = 1800.0  # One piece of the trend (quadratic spline) per this long: three times the longest period searched
BLOCK = 6  # Samples per mean that the trend is fitted to: half a minute, for speed
TAPERS = 3
FEWEST_SAMPLES = 40  # On 40 to 90 (15 to 60 s apart, phi 0 to .95, 300 runs each) at most 5 % of red noise passed
FLAT = 1e-9  # A curve that varies by less than this part of itself is constant: what is left of it is rounding


def red_noise_test(elapsed: FloatArray, values: FloatArray, sample_s: float) -> WaveTest | None:
    """Test finite values over elapsed seconds, shape (n,), for an oscillation that an AR(1) process would not show.

    Multitaper spectrum (sine tapers, Riedel & Sidorenko 1995) against an AR(1) spectrum fitted to it by Whittle's
    likelihood, after a smooth trend is taken away; the largest ratio over the frequencies searched, with Sidak's
    correction. A peak stands above its neighbours, those outside of the search too: a ratio that still rises towards
    longer periods is what the trend left of a bend. Red noise as the null: Mann & Lees 1996; against white noise 95 to
    100 % of red noise would be called an oscillation. By hand: neither scipy nor statsmodels has this test.
    """
    if elapsed.size < FEWEST_SAMPLES:
        return None
    grid = np.arange(elapsed[0], elapsed[-1] + sample_s / 2, sample_s)
    residual = _without_trend(grid, np.interp(grid, elapsed, values))
    if not residual.std() > FLAT * np.abs(values).max():
        return None
    frequency = np.asarray(np.fft.rfftfreq(grid.size, sample_s)[1:], dtype=np.float64)
    order, place = np.arange(1, TAPERS + 1)[:, np.newaxis], np.arange(1, grid.size + 1) / (grid.size + 1)
    tapers = np.sqrt(2.0 / (grid.size + 1)) * np.sin(np.pi * order * place)
    power = np.asarray((np.abs(np.fft.rfft(tapers * residual, axis=1)) ** 2).mean(axis=0)[1:], dtype=np.float64)
    longest = min(LONGEST_S, (grid[-1] - grid[0]) / CYCLES)
    band = (frequency >= 1.0 / longest) & (frequency <= 1.0 / SHORTEST_S)
    if band.sum() < 5:
        return None
    every = power / _red(power, frequency, sample_s, frequency >= 1.0 / longest)
    reach = (TAPERS + 1) // 2  # nothing is higher within the bandwidth of the tapers, on both sides
    around = np.lib.stride_tricks.sliding_window_view(np.pad(every, reach), 2 * reach + 1)
    ratio = np.where(every >= around.max(axis=1), every, 0.0)[band]
    best = int(np.argmax(ratio))
    if not ratio[best] > 0:
        return None
    single = float(gammaincc(TAPERS, TAPERS * ratio[best]))
    peak = float(frequency[band][best])
    share = float(power[np.abs(frequency - peak) <= NEAR * peak].sum() / power.sum())
    return WaveTest(
        p_value=float(-np.expm1(band.sum() * np.log1p(-min(single, 1.0 - 1e-16)))),
        period_s=1.0 / peak,
        share=share,
        swing=math.sqrt(8.0 * share * float(residual.var())),
    )


def _red(power: FloatArray, frequency: FloatArray, sample_s: float, used: npt.NDArray[np.bool_]) -> FloatArray:
    """The AR(1) spectrum that fits best; its level follows from its coefficient."""
    phi = np.concatenate([np.linspace(0.0, 0.9, 46), 1.0 - np.geomspace(0.095, 0.002, 30)])[:, np.newaxis]
    shape = 1.0 / (1.0 + phi**2 - 2.0 * phi * np.cos(2.0 * np.pi * frequency * sample_s))
    level = (power / shape)[:, used].mean(axis=1, keepdims=True)
    best = int(np.argmin(np.log(level[:, 0]) + np.log(shape[:, used]).mean(axis=1)))
    return np.asarray(level[best] * shape[best], dtype=np.float64)


def _without_trend(elapsed: FloatArray, values: FloatArray) -> FloatArray:
    """What a quadratic spline with a knot every `KNOT_S` leaves; it is fitted to means of `BLOCK` samples."""
    pieces = int((elapsed[-1] - elapsed[0]) // KNOT_S)
    if pieces < 1:
        return np.asarray(values - np.polyval(np.polyfit(elapsed, values, 1), elapsed), dtype=np.float64)
    x = (elapsed - elapsed[0]) / (elapsed[-1] - elapsed[0])
    knots = np.arange(1, pieces) / pieces
    basis = np.column_stack([np.ones_like(x), x, x**2, *(np.maximum(0.0, x - knot) ** 2 for knot in knots)])
    whole = x.size // BLOCK * BLOCK
    rows = basis[:whole].reshape(-1, BLOCK, basis.shape[1]).mean(axis=1)
    means = values[:whole].reshape(-1, BLOCK).mean(axis=1)
    return np.asarray(values - basis @ np.linalg.lstsq(rows, means, rcond=None)[0], dtype=np.float64)


TRIMMED = 0.2  # Part of the cycles left out at each end: a missed one is twice as long
FEWEST_COMPARED = 8  # Cycles per run; with fewer, none to four would be left to tell a spread by
LEAST_REACH = 2.5  # Half a sample of 5 s: cycles that are all alike would claim to know the difference exactly


def compare_waves(base: Waves, new: Waves) -> tuple[WithinRuns | None, WithinRuns | None]:
    """How the period (seconds) and the height (the curve's unit) of the waves of two runs differ, new minus base.

    By trimmed means with Welch's degrees of freedom (Yuen 1974, Biometrika 61): neighbouring cycles are nearly
    independent, since each ends with the alert that the one before knew nothing of. The intervals hold within this pair
    of runs, which is one observation of the builds: another pair differs by more. Of pairs of equal settings (seeds
    below 500) 2.6 % are called different in their period, by medians and quartiles 5.9 %; of those with a tenth more,
    73 and 68 %. None for what one of the runs does not state, or has too few cycles for.
    """
    period = None not in (base.period_s, new.period_s)
    height = None not in (base.amplitude, new.amplitude)
    depths = ([turn.depth for turn in waves.falls] for waves in (base, new))
    return _difference(base.cycles, new.cycles) if period else None, _difference(*depths) if height else None


def _difference(base: Sequence[float], new: Sequence[float]) -> WithinRuns | None:
    from scipy.stats import trim_mean, ttest_ind

    if min(len(base), len(new)) < FEWEST_COMPARED:
        return None
    value = float(trim_mean(new, TRIMMED) - trim_mean(base, TRIMMED))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)  # cycles that are all alike
        low, high = ttest_ind(new, base, equal_var=False, trim=TRIMMED).confidence_interval(0.95)
    reach = max(float(high - low) / 2.0, LEAST_REACH) if math.isfinite(high - low) else LEAST_REACH
    return WithinRuns(value=value, ci_low=value - reach, ci_high=value + reach)
