"""Measure the phases of a load curve: early bumps, the lasting ramp, and the waves around the alert threshold.

Constants without a stated source were fitted to simulated runs (seeds 0 to 249 of `benchmarks/shapes.py simulated`).
"""

import math
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import gammaincc

from buildcompare.load.curve import SMALLEST, LoadCurve, Turn, find_turns, holes, load_curve
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.users import BetweenRuns, Bump
from buildcompare.stats.changepoints import robust_sd
from buildcompare.stats.levels import MINUTE_S, ROUNDED
from buildcompare.stats.planning import ALPHA, quantile

TURN_STEPS = 8.0  # minimum rise or fall, in steps of 8 users; larger than a pixel of published plots (at most 56 users)
EARLY_PART, HALF = 0.15, 0.5
"""Before the curve first reaches half of its level, a peak is an early bump if it is lower than `EARLY_PART` times the
level. A higher peak is an early bump if the curve then falls by at least half (`HALF`) of the peak."""
FOOT = 2.0  # a recording starts in mid-ramp if the lasting rise begins within `FOOT` * `foot_s` seconds (see `bumps`)


@dataclass(frozen=True)
class Beginning:
    """Beginning of a run's load: early bumps, and the onset of the lasting ramp."""

    bumps: tuple[Bump, ...]  # early bumps in order of time; heights in the curve's unit
    onset_s: float | None
    """Start of the lasting ramp in elapsed seconds: the time of the last sample near the lowest load before the ramp.
    None if the load does not climb, or if the recording may lack the start."""


def bumps(users: pd.Series | LoadCurve) -> Beginning:
    """Find the early bumps of a run (a rise and then a fall), and the onset of the lasting ramp after the bumps.

    Parameters
    ----------
    users
        Connected users over elapsed seconds.

    Returns
    -------
    Beginning
        `bumps` with their times and heights, and `onset_s`.

    Raises
    ------
    ValueError
        If the curve shows no load.

    Examples
    --------
    >>> elapsed = np.arange(0.0, 3600.0, 5.0)
    >>> users = np.interp(elapsed, [0, 20, 110, 200, 300, 1800, 3600], [0, 0, 180, 0, 0, 6000, 6000])
    >>> beginning = bumps(pd.Series(users, index=elapsed))
    >>> [(bump.peak_s, bump.peak_users) for bump in beginning.bumps], beginning.onset_s
    ([(110.0, 180.0)], 300.0)
    """
    curve = load_curve(users)
    half = int(np.argmax(curve.values >= HALF * curve.level))
    least = curve.least_fall(TURN_STEPS)
    turns = find_turns(curve.elapsed[: half + 1], curve.values[: half + 1], least)
    turns = [turn for turn in turns if turn.peak - turn.rise_from >= least]
    low = EARLY_PART * curve.level
    early = [i for i, turn in enumerate(turns, start=1) if turn.peak < low or turn.depth >= HALF * turn.peak]
    turns = turns[: early[-1] if early else 0]
    climb_s = _onset(curve, half)
    if climb_s is not None and curve.values[0] > SMALLEST * curve.step:  # the recording may start in mid-ramp
        # `foot_s`: seconds that the curve would need for a rise by `curve.foot`, if it always rose as fast as at first.
        counts = int(np.argmax(np.maximum.accumulate(curve.values) - curve.values[0] >= least))
        foot_s = float(curve.elapsed[counts] - curve.elapsed[0]) * curve.foot / least
        at_once = climb_s - float(curve.elapsed[0]) <= FOOT * foot_s
        if at_once and all(turn.trough >= curve.values[0] for turn in turns):
            return Beginning((), None)
    early_bumps = tuple(
        Bump(start_s=t.rise_s, peak_s=t.peak_s, end_s=t.trough_s, peak_users=t.peak, depth_users=t.depth) for t in turns
    )
    return Beginning(early_bumps, _onset(curve, half, early_bumps[-1].end_s if early_bumps else -math.inf))


def _onset(curve: LoadCurve, half: int, after_s: float = -math.inf) -> float | None:
    first = int(np.searchsorted(curve.elapsed, after_s))
    values = curve.values[first : half + 1]
    if values.size < 2:
        return None
    # The ramp has begun at the first sample that lies well above the lowest sample before it.
    lowest = np.minimum.accumulate(values)
    climbing = np.flatnonzero(values - lowest >= curve.least_fall(TURN_STEPS))
    if not climbing.size:
        return None
    last = int(climbing[0])
    onset = first + int(np.flatnonzero(values[: last + 1] <= lowest[last] + curve.foot)[-1])
    unseen = holes(curve.elapsed[onset : half + 1])
    low = curve.values[onset:half] < EARLY_PART * curve.level
    return None if (unseen & low).any() else float(curve.elapsed[onset])  # a gap may hide a bump


LAG_S = 45.0
"""Minimum seconds of a straight part of the ramp, and seconds skipped before it because users connect with a delay."""
STRAIGHT_STEPS = 3.0  # maximum distance of samples from a straight line, in steps of 8 users; larger for noisy curves
PIXEL = 0.003  # maximum distance of samples from a line, as a share of the level: one pixel of a published plot
TRUSTED_PART, END_STEPS = 0.7, 2.0
"""A straight part of the ramp ends at the last sample within `END_STEPS` * 8 users of a line through its first 70 %."""
MAIN_PART = 0.35  # the ramp is the first straight stretch whose rise is at least this fraction of the largest rise
STAIR_PART = 0.1  # a straight rise below this fraction of the level is a step, not a ramp; published ramps have >= 0.13
AFTER_S = 240.0  # minimum seconds of a stretch after a kink: enough for alerts to make the load fall and rise twice
SLOWER = (0.2, 0.8)  # limits of the slope after a kink, relative to the slope before it; a third to a half is expected


@dataclass(frozen=True)
class Ramp:
    """Lasting ramp of one run; times in elapsed seconds, heights in the curve's unit."""

    start_s: float
    end_s: float  # end of the straight stretch: an alert, a bend, or the recording's end
    slope: float  # in the curve's unit per second
    kink_s: float | None
    """Elapsed seconds at which the ramp becomes less steep but stays straight; None without such a kink. A kink is
    normal: after the first alert, the load-test coordinator pauses between its steps of 8 users."""
    complete: bool  # False if the recording ends before the ramp does


def ramp(users: pd.Series | LoadCurve, *, onset_s: float | None = None) -> Ramp | None:
    """Measure the straight part of the lasting ramp: slope, end, and kink (the start of a less steep part).

    Parameters
    ----------
    users
        Connected users over elapsed seconds.
    onset_s
        Start of the ramp; default: the onset of :func:`bumps`, or else the first sample.

    Returns
    -------
    Ramp or None
        None if the curve does not climb, or climbs in steps of less than a tenth of its level.

    Raises
    ------
    ValueError
        If the curve shows no load.

    Examples
    --------
    >>> elapsed = np.arange(0.0, 3600.0, 5.0)
    >>> line = ramp(pd.Series(np.minimum(4.0 * elapsed, 6000.0), index=elapsed))
    >>> round(line.slope, 2), line.end_s, line.complete
    (4.0, 1500.0, True)
    """
    curve = load_curve(users)
    onset_s = bumps(curve).onset_s if onset_s is None else onset_s
    start_s = float(curve.elapsed[0]) if onset_s is None else onset_s + LAG_S
    # A further stretch must start below half of the curve's level. Above half, the curve only levels off slowly.
    until_s = float(curve.elapsed[int(np.argmax(curve.values >= HALF * curve.level))])
    stretches: list[tuple[float, float, float]] = []
    while (not stretches or start_s < until_s) and (stretch := _stretch(curve, start_s)):
        stretches.append(stretch)
        start_s = stretch[1] + LAG_S
    rises = [slope * (end_s - start_s) for start_s, end_s, slope in stretches]
    most = max(rises, default=0.0)
    if not most > STAIR_PART * curve.level:
        return None
    start_s, end_s, slope = next(s for s, rise in zip(stretches, rises, strict=True) if rise >= MAIN_PART * most)
    # `pixel` is 0: with the default tolerance, the slow approach to the equilibrium would count as straight (a kink).
    after = _stretch(curve, end_s + LAG_S, pixel=0.0)
    kinked = after and after[1] - after[0] >= AFTER_S and SLOWER[0] * slope <= after[2] <= SLOWER[1] * slope
    return Ramp(start_s, end_s, slope, end_s if kinked else None, complete=bool(end_s < curve.elapsed[-1]))


def _stretch(curve: LoadCurve, start_s: float, *, pixel: float = PIXEL) -> tuple[float, float, float] | None:
    """Start, end and slope of the straight stretch from `start_s`; None if less than `LAG_S` of the curve is left."""
    elapsed, values = curve.between(start_s, np.inf)
    least = int(np.searchsorted(elapsed, elapsed[0] + LAG_S)) + 1 if elapsed.size else 1
    if least > elapsed.size:
        return None
    end = _grown(elapsed, values, least, max(STRAIGHT_STEPS * curve.step, 5.0 * curve.noise, pixel * curve.level))
    trusted = max(3, int(TRUSTED_PART * end))
    slope, height = np.polyfit(elapsed[:trusted], values[:trusted], 1)
    off = np.abs(values[:end] - (height + slope * elapsed[:end]))
    near = np.flatnonzero(off <= max(END_STEPS * curve.step, 4.0 * curve.noise))
    last = max(int(near[-1]) + 1 if near.size else 0, min(least, end))
    slope, _ = np.polyfit(elapsed[:last], values[:last], 1)
    return float(elapsed[0]), float(elapsed[last - 1]), float(slope)


def _grown(elapsed: FloatArray, values: FloatArray, least: int, allowed: float) -> int:
    """Return how many samples, counted from the first, lie within `allowed` of a straight line; at least `least`."""

    def straight(size: int) -> bool:
        x, y = elapsed[:size] - elapsed[:size].mean(), values[:size] - values[:size].mean()
        return float(np.abs(y - x * (x @ y) / (x @ x)).max()) <= allowed

    good, bad = least, min(2 * least, elapsed.size)
    while good < bad and straight(bad):
        good, bad = bad, min(2 * bad, elapsed.size)
    return good + bisect_left(range(good + 1, bad), True, key=lambda size: not straight(size))


# ---- Waves ----------------------------------------------------------------------------------------------------------

FALL_STEPS = 5.0  # minimum fall of a wave, in steps of 8 users
ROW, PAUSE_S = 3, 1200.0
"""Waves of the load begin with at least `ROW` falls. The peaks are at most `LONGEST_S` seconds apart (145 to 250 s in
published runs). The pause after these falls is at most `PAUSE_S` seconds, or as long as the falls if that is more."""
CYCLE_STEPS = 2.0  # minimum fall after a peak, in steps of 8 users; small, because a missed peak merges two cycles
FEWEST_CYCLES = 4  # minimum number of peaks for a period: four peaks have three distances
RESOLVED, ALIASED = 8.0, 3.0
"""Minimum samples per cycle: `RESOLVED` for the amplitude, `ALIASED` for the period. Peaks and troughs lie between
samples, so the amplitude of a saw-tooth appears an eighth too small on average with 8 samples per cycle, and a quarter
too small with 4 samples. Samples one minute apart show waves of 100 s as waves of 150 s."""
SWING = 0.5  # minimum `swing` of a spectral peak, as a part of the waves' median fall; overtones have less
NEAR = 0.25  # periods, or frequencies, within this relative distance count as the same oscillation


@dataclass(frozen=True)
class WaveTest:
    """Test of the largest spectral peak against red noise."""

    p_value: float  # p-value against the fitted AR(1) spectrum, adjusted for all frequencies searched (Sidak)
    period_s: float
    share: float  # fraction of the variance at frequencies within 25 % of the peak frequency; 1 for a pure oscillation
    swing: float  # height from peak to trough (curve's unit) of a sine with `share` of the detrended curve's variance


@dataclass(frozen=True)
class Waves:
    """Waves of one run; unknown values are None."""

    onset_s: float | None = None  # elapsed seconds of the peak before the first fall
    onset_users: float | None = None  # height of the peak at `onset_s`, in the curve's unit
    falls: tuple[Turn, ...] = ()  # all falls (peak to next trough) from `onset_s` to the end of the load
    cycles: tuple[float, ...] = ()  # seconds between successive peaks, also of falls that are too small for `falls`
    period_s: float | None = None
    """Typical length of `cycles` (s), or the period of the spectral peak if cycles may be noise; None if unknown."""
    amplitude: float | None = None  # median fall from peak to trough; None if samples are too far apart
    regularity: float | None = None  # 1 minus the robust relative standard deviation of `cycles`; 1 if all are equal
    test: WaveTest | None = None  # None if the curve is too short, constant, or without a spectral peak

    @property
    def claimed(self) -> bool:
        """True if there are waves: three falls in a row, and a significant spectral peak."""
        return self.onset_s is not None and self.test is not None and self.test.p_value <= ALPHA


def waves(users: pd.Series | LoadCurve, *, onset_s: float | None = None, tested_from_s: float | None = None) -> Waves:
    """Measure the waves of a run's load: onset, period, height, and a test against red noise.

    Parameters
    ----------
    users
        Connected users over elapsed seconds.
    onset_s
        Start of the lasting ramp; default: the onset of :func:`bumps`.
    tested_from_s
        Start of the red-noise test, for a run without `ROW` falls in a row (otherwise the first peak is the start).
        By default it is the end of the ramp; if `onset_s` is given, the default is no test.

    Returns
    -------
    Waves
        `claimed` is True if waves were found.

    Raises
    ------
    ValueError
        If the curve shows no load.

    Examples
    --------
    >>> elapsed = np.arange(0.0, 7200.0, 5.0)
    >>> users = np.minimum(4.0 * elapsed, 6000 + 50 * np.sin(2 * np.pi * elapsed / 180))
    >>> run = waves(pd.Series(users, index=elapsed))
    >>> run.claimed, run.period_s, round(run.amplitude)
    (True, 180.0, 100)
    """
    curve = load_curve(users)
    if onset_s is None:
        onset_s = bumps(curve).onset_s
        line = ramp(curve, onset_s=onset_s) if tested_from_s is None else None
        tested_from_s = line.end_s if line is not None else tested_from_s
        onset_s = float(curve.elapsed[0]) if onset_s is None else onset_s
    falls = _from_first_row(find_turns(*curve.between(onset_s, np.inf), curve.least_fall(FALL_STEPS)))
    start = falls[0].peak_s if falls else tested_from_s
    test = None if start is None else red_noise_test(*curve.between(start, np.inf), curve.sample_s)
    if not falls:
        return Waves(test=test)
    amplitude = float(np.median([turn.depth for turn in falls]))
    cycles = find_turns(*curve.between(falls[0].peak_s, np.inf), curve.least_fall(CYCLE_STEPS))
    distances = np.diff(np.array([turn.peak_s for turn in cycles]))
    period = regularity = None
    if len(cycles) >= FEWEST_CYCLES:
        period = middle = float(np.median(distances))
        regularity = max(0.0, 1.0 - robust_sd(distances - middle) / middle)
        like = distances[np.abs(distances - middle) <= 0.5 * middle]
        if like.size and period < 10.0 * curve.sample_s:  # few samples per cycle: the mean is more exact than a median
            period = float(like.mean())
    noisy = curve.least_fall(CYCLE_STEPS) > CYCLE_STEPS * curve.step
    if noisy or (period and period < MINUTE_S):  # the cycles may be noise
        explains = test is not None and test.p_value <= ALPHA and test.swing >= SWING * amplitude
        peak = test.period_s if test is not None and explains else None
        if not (period and peak and abs(period - peak) <= NEAR * peak):
            period = peak
    resolved = period is None or period >= RESOLVED * curve.sample_s
    if period is not None and period < ALIASED * curve.sample_s:
        period = None
    return Waves(
        onset_s=falls[0].peak_s, onset_users=falls[0].peak, falls=tuple(falls), cycles=tuple(distances.tolist()),
        period_s=period, amplitude=amplitude if resolved else None, regularity=regularity, test=test,
    )  # fmt: skip


def _from_first_row(turns: list[Turn]) -> list[Turn]:
    """Drop the falls before the first `ROW` or more close falls that no long pause follows; without these, drop all."""
    ends = [i for i, (a, b) in enumerate(pairwise(turns), start=1) if b.peak_s - a.peak_s > LONGEST_S]
    for first, end in pairwise([0, *ends, len(turns)]):
        last_s = turns[end - 1].trough_s if end else 0.0
        pause_s = turns[end].peak_s - last_s if end < len(turns) else 0.0
        if end - first >= ROW and pause_s <= max(last_s - turns[first].peak_s, PAUSE_S):
            return turns[first:]
    return []


LONGEST_S = 600.0  # longest period searched; the shortest is `MINUTE_S`, over which alert queries look back
CYCLES = 5.0  # the longest period searched is at most the curve's length divided by this number
KNOT_S = 1800.0  # distance of the knots of the trend (quadratic spline): three times the longest period searched
TAPERS = 3  # number of sine tapers (Riedel & Sidorenko 1995): more tapers widen a peak, fewer make its height uncertain
FEWEST_SAMPLES = 40  # minimum; 40 to 90 samples of red noise (15 to 60 s apart, phi up to 0.95) give 5 % false alarms


def red_noise_test(elapsed: FloatArray, values: FloatArray, sample_s: float) -> WaveTest | None:
    """Test finite values over elapsed seconds, shape (n,), for an oscillation that AR(1) noise does not explain.

    A smooth trend is subtracted. The multitaper spectrum (sine tapers, Riedel & Sidorenko 1995) is divided by an AR(1)
    spectrum fitted by Whittle's likelihood. The largest ratio in the search range is tested with Sidak's correction.
    The ratio must be a local maximum, because a bend of the curve raises ratios at long periods. The null hypothesis is
    red noise (Mann & Lees 1996), because a test against white noise would find an oscillation in 95 to 100 % of series
    of red noise. Neither scipy nor statsmodels has this test.
    """
    if elapsed.size < FEWEST_SAMPLES:
        return None
    grid = np.arange(elapsed[0], elapsed[-1] + sample_s / 2, sample_s)
    residual = _without_trend(grid, np.interp(grid, elapsed, values))
    if not residual.std() > ROUNDED * np.abs(values).max():
        return None
    frequency = np.asarray(np.fft.rfftfreq(grid.size, sample_s)[1:], dtype=np.float64)
    order, place = np.arange(1, TAPERS + 1)[:, np.newaxis], np.arange(1, grid.size + 1) / (grid.size + 1)
    tapers = np.sqrt(2.0 / (grid.size + 1)) * np.sin(np.pi * order * place)
    power = np.asarray((np.abs(np.fft.rfft(tapers * residual, axis=1)) ** 2).mean(axis=0)[1:], dtype=np.float64)
    longest = min(LONGEST_S, (grid[-1] - grid[0]) / CYCLES)
    band = (frequency >= 1.0 / longest) & (frequency <= 1.0 / MINUTE_S)
    if band.sum() < 5:
        return None
    every = power / _red(power, frequency, sample_s, frequency >= 1.0 / longest)
    reach = (TAPERS + 1) // 2  # bandwidth of the tapers on each side, in frequency bins
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
    """Fit an AR(1) spectrum to `power` by Whittle likelihood at the `used` frequencies."""
    phi = np.concatenate([np.linspace(0.0, 0.9, 46), 1.0 - np.geomspace(0.095, 0.002, 30)])[:, np.newaxis]
    shape = 1.0 / (1.0 + phi**2 - 2.0 * phi * np.cos(2.0 * np.pi * frequency * sample_s))
    level = (power / shape)[:, used].mean(axis=1, keepdims=True)
    best = int(np.argmin(np.log(level[:, 0]) + np.log(shape[:, used]).mean(axis=1)))
    return np.asarray(level[best] * shape[best], dtype=np.float64)


def _without_trend(elapsed: FloatArray, values: FloatArray) -> FloatArray:
    """Return the residuals of a quadratic spline with a knot every `KNOT_S`, or of a line if the curve is shorter."""
    pieces = int((elapsed[-1] - elapsed[0]) // KNOT_S)
    if pieces < 1:
        return np.asarray(values - np.polyval(np.polyfit(elapsed, values, 1), elapsed), dtype=np.float64)
    x = (elapsed - elapsed[0]) / (elapsed[-1] - elapsed[0])
    knots = np.arange(1, pieces) / pieces
    basis = np.column_stack([np.ones_like(x), x, x**2, *(np.maximum(0.0, x - knot) ** 2 for knot in knots)])
    return np.asarray(values - basis @ np.linalg.lstsq(basis, values, rcond=None)[0], dtype=np.float64)


FEWEST_COMPARED = 8  # minimum number of cycles (to compare periods) or falls (to compare amplitudes) of each run
PERIOD_SD, PERIOD_DF, FALL_SD, FALL_DF = 0.092, 8.0, 0.15, 11.0
"""Standard deviation between runs and its degrees of freedom, for the logarithms of the waves' period and amplitude.
Estimated from Mattermost's published unbounded tests (`benchmarks/shapes.py real`). If the scatter of cycles within
runs were used instead, 5 of 12 pairs of identical runs would differ in amplitude."""


def compare_waves(base: Waves, new: Waves) -> tuple[BetweenRuns | None, BetweenRuns | None]:
    """Return the differences (new - base) in period (seconds) and amplitude (curve's unit) of the waves of two runs.

    A run is one observation, so the 95 % intervals use the noise between runs, not the scatter of cycles within a run.
    A difference is None if a run has too few cycles, or if its period or amplitude is unknown.
    """
    period = fall = None
    if min(len(base.cycles), len(new.cycles)) >= FEWEST_COMPARED:
        period = _difference(base.period_s, new.period_s, PERIOD_SD, PERIOD_DF)
    if min(len(base.falls), len(new.falls)) >= FEWEST_COMPARED:
        fall = _difference(base.amplitude, new.amplitude, FALL_SD, FALL_DF)
    return period, fall


def _difference(base: float | None, new: float | None, sd: float, df: float) -> BetweenRuns | None:
    if not base or not new:
        return None
    ratio, half = math.log(new / base), quantile(1.0 - ALPHA / 2.0, df) * math.sqrt(2.0) * sd
    low, high = (base * math.expm1(ratio + each) for each in (-half, half))
    return BetweenRuns(value=new - base, ci_low=low, ci_high=high)
