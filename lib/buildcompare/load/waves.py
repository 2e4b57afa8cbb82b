"""Does the load hunt around its threshold in waves: since when, how fast, how far, and is it more than noise?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import gammaincc

from buildcompare.load.curve import LoadCurve
from buildcompare.load.turning_points import Fall, falls
from buildcompare.recordings.recording import FloatArray

SIGNIFICANT = 0.05
NEAR = 0.25
"""Periods or frequencies this part apart are of one oscillation, whose cycles are not all alike."""
BLOCK = 6
"""Samples per mean that a trend is fitted to: half a minute, for speed."""
FLAT = 1e-9
"""A curve that varies by less than this part of itself is constant: what is left of it is rounding."""


@dataclass(frozen=True)
class WaveTest:
    """A spectral peak against red noise.

    Attributes
    ----------
    p_value
        Of the largest peak against the fitted AR(1) spectrum, over all frequencies searched (Sidak).
    period_s
        Of that peak, in seconds.
    share
        Part of the variance within a quarter of the peak's frequency: 1 is a pure oscillation.
    swing
        From peak to trough of a sine that has this part of the variance, in the curve's unit.
    """

    p_value: float
    period_s: float
    share: float
    swing: float


@dataclass(frozen=True)
class Waves:
    """The wavy pattern of one run.

    Attributes
    ----------
    onset_s, onset_users
        Time and height of the first of three falls in a row after the lasting ramp has started; None without them.
    falls, cycles
        Every fall from there to the stop, and the times between the peaks of all cycles (seconds, shape (n,)).
    period_s
        Median time from peak to peak of all cycles from the onset to the stop, in seconds. Where the curve is too
        noisy to tell a cycle from noise, the spectral peak must agree; else it is that of the peak, or None without.
    amplitude
        Median fall of the waves from peak to trough, in the curve's unit; None where samples are too far apart.
    regularity
        1 minus the relative spread (median absolute deviation, as a standard deviation) of the times between
        peaks, not below 0: 1 is a clock.
    test
        The test against red noise; None where the stretch is too short for it.
    """

    onset_s: float | None
    onset_users: float | None
    falls: tuple[Fall, ...]
    cycles: tuple[float, ...]
    period_s: float | None
    amplitude: float | None
    regularity: float | None
    test: WaveTest | None

    @property
    def claimed(self) -> bool:
        """Whether there are waves: three falls in a row, and a spectral peak that red noise does not make."""
        return self.onset_s is not None and self.test is not None and self.test.p_value <= SIGNIFICANT


@dataclass(frozen=True)
class FindWaves:
    """Find the wavy pattern of a curve.

    Onset: the start of the first of three falls in a row of `fall_steps` actions of the coordinator or more from the
    running maximum. In a row: none of them starts later than `row_s` after the one before. A row that is followed by
    a longer pause than itself, and of `pause_s` at least, is not the pattern yet: it is what an oscillating beginning
    left on the ramp.
    """

    fall_steps: float = 5.0
    row: int = 3
    row_s: float = 600.0
    """Ten minutes: published waves have periods of 145 to 250 s, and a missed one doubles the distance."""
    pause_s: float = 1200.0
    """Twice `row_s`: waves that go on may miss one, and not many."""
    cycle_steps: float = 2.0
    """A cycle of the hunting: shorter falls than a wave's count for the period, or a missed one would double it."""
    fewest: int = 4
    """A period needs this many cycles (three distances)."""
    resolved: float = 8.0
    """Samples per cycle; with fewer, the fall is not known: peaks and troughs lie between samples, which takes an
    eighth off a saw-tooth of 8 samples on average, and a quarter off one of 4."""
    aliased: float = 3.0
    """Samples per cycle; with fewer, the period may be that of faster waves: samples a minute apart show waves of 100 s
    as waves of 150."""
    swing: float = 0.5
    """A spectral peak that swings by less than this part of the falls is an overtone of theirs, or a ripple on them:
    the periods searched end at a fifth of the stretch, and waves that are longer still are in their falls only."""

    def __call__(self, curve: LoadCurve, onset_s: float, *, tested_from_s: float | None = None) -> Waves:
        """Find waves from the lasting ramp's `onset_s` on, and test the stretch from their own onset.

        What lies before it is no oscillation, and its bends would be left to the test by any smooth trend.

        Parameters
        ----------
        tested_from_s
            Where the test starts without waves: the end of the linear ramp; default: no test.
        """
        elapsed, values = curve.between(onset_s, np.inf)
        every = falls(elapsed, values, curve.fall(self.fall_steps))
        first = self._first(every)
        found = tuple(every[first:]) if first is not None else ()
        start = found[0].peak_s if found else tested_from_s
        test = None if start is None else RedNoiseTest()(*curve.between(start, np.inf), curve.sample_s)
        cycles = falls(*curve.between(found[0].peak_s, np.inf), curve.fall(self.cycle_steps)) if found else []
        peaks = np.array([fall.peak_s for fall in cycles])
        enough = peaks.size >= self.fewest
        distances = np.diff(peaks)
        period = self._of_cycles(distances, curve.sample_s) if enough else None
        amplitude = float(np.median([fall.depth for fall in found])) if found else None
        if curve.fall(self.cycle_steps) > self.cycle_steps * curve.step:  # turns of noise would count as cycles
            peak = None if test is None or amplitude is None else self._of_peak(test, amplitude)
            agree = period is not None and peak is not None and abs(period - peak) <= NEAR * peak
            period = period if agree else peak
        resolved = period is None or period >= self.resolved * curve.sample_s
        if period is not None and period < self.aliased * curve.sample_s:
            period = None
        spread = 1.4826 * float(np.median(np.abs(distances - np.median(distances)))) if enough else 0.0
        return Waves(
            onset_s=found[0].peak_s if found else None,
            onset_users=found[0].peak if found else None,
            falls=found,
            cycles=tuple(distances.tolist()),
            period_s=period,
            amplitude=amplitude if resolved else None,
            regularity=max(0.0, 1.0 - spread / float(np.median(distances))) if enough else None,
            test=test,
        )

    def _of_cycles(self, distances: FloatArray, sample_s: float) -> float:
        """The median distance; where it is only a few samples, the mean of those that are like it, to be exact."""
        median = float(np.median(distances))
        like = distances[np.abs(distances - median) <= 0.5 * median]
        return float(like.mean()) if like.size and median < 10.0 * sample_s else median

    def _of_peak(self, test: WaveTest, amplitude: float) -> float | None:
        """The period of the spectral peak, where that is what the waves are made of."""
        return test.period_s if test.p_value <= SIGNIFICANT and test.swing >= self.swing * amplitude else None

    def _first(self, every: list[Fall]) -> int | None:
        ends = [i for i, (a, b) in enumerate(pairwise(every), start=1) if b.peak_s - a.peak_s > self.row_s]
        for first, end in pairwise([0, *ends, len(every)]):
            if end - first >= self.row and (end == len(every) or not self._ended(every[first:end], every[end])):
                return first
        return None

    def _ended(self, row: list[Fall], later: Fall) -> bool:
        pause = later.peak_s - row[-1].trough_s
        return pause > max(row[-1].trough_s - row[0].peak_s, self.pause_s)


@dataclass(frozen=True)
class RedNoiseTest:
    """Is there an oscillation that an AR(1) process would not show?

    Multitaper spectrum (sine tapers, Riedel & Sidorenko 1995) against an AR(1) spectrum fitted to it by Whittle's
    likelihood, after a smooth trend is taken away; the largest ratio over the frequencies searched, with Sidak's
    correction. A peak stands above its neighbours, those outside of the search too: a ratio that still rises towards
    longer periods is what the trend left of a bend. Red noise as the null: Mann & Lees 1996; against white noise 95 to
    100 % of red noise would be called an oscillation. The frequencies count as independent, which tapers make
    conservative.
    """

    longest_s: float = 600.0
    shortest_s: float = 60.0
    """Periods searched; alert queries look back one minute, so that the loop cannot hunt faster."""
    cycles: float = 5.0
    """The longest period searched fits this often into the stretch."""
    knot_s: float = 1800.0
    """One piece of the trend (quadratic spline) per this long: three times the longest period searched."""
    tapers: int = 3
    fewest: int = 40
    """Samples. On 40 to 90 of them (15 to 60 s apart, phi 0 to .95, 300 runs each) at most 5 % of red noise passed."""

    def __call__(self, elapsed: FloatArray, values: FloatArray, sample_s: float) -> WaveTest | None:
        """Test values over elapsed seconds, shape (n,), finite; gaps are bridged by straight lines."""
        if elapsed.size < self.fewest:
            return None
        grid = np.arange(elapsed[0], elapsed[-1] + sample_s / 2, sample_s)
        residual = _without_trend(grid, np.interp(grid, elapsed, values), self.knot_s)
        if not residual.std() > FLAT * np.abs(values).max():
            return None
        frequency = np.asarray(np.fft.rfftfreq(grid.size, sample_s)[1:], dtype=np.float64)
        spectra = np.abs(np.fft.rfft(_sine_tapers(grid.size, self.tapers) * residual, axis=1)) ** 2
        power = np.asarray(spectra.mean(axis=0)[1:], dtype=np.float64)
        longest = min(self.longest_s, (grid[-1] - grid[0]) / self.cycles)
        band = (frequency >= 1.0 / longest) & (frequency <= 1.0 / self.shortest_s)
        if band.sum() < 5:
            return None
        every = power / self._red(power, frequency, sample_s, frequency >= 1.0 / longest)
        ratio = np.where(self._peaks(every), every, 0.0)[band]
        best = int(np.argmax(ratio))
        if not ratio[best] > 0:
            return None
        single = float(gammaincc(self.tapers, self.tapers * ratio[best]))
        peak = float(frequency[band][best])
        near = np.abs(frequency - peak) <= NEAR * peak
        share = float(power[near].sum() / power.sum())
        return WaveTest(
            p_value=float(-np.expm1(band.sum() * np.log1p(-min(single, 1.0 - 1e-16)))),
            period_s=1.0 / peak,
            share=share,
            swing=math.sqrt(8.0 * share * float(residual.var())),
        )

    def _peaks(self, ratio: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Where nothing is higher within the bandwidth of the tapers, (tapers + 1) / 2 frequencies on both sides."""
        reach = (self.tapers + 1) // 2
        around = np.lib.stride_tricks.sliding_window_view(np.pad(ratio, reach), 2 * reach + 1)
        return np.asarray(ratio >= around.max(axis=1), dtype=np.bool_)

    def _red(
        self,
        power: FloatArray,
        frequency: FloatArray,
        sample_s: float,
        used: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    ) -> FloatArray:
        """The AR(1) spectrum that fits best; its level follows from its coefficient."""
        phi = np.concatenate([np.linspace(0.0, 0.9, 46), 1.0 - np.geomspace(0.095, 0.002, 30)])[:, np.newaxis]
        shape = 1.0 / (1.0 + phi**2 - 2.0 * phi * np.cos(2.0 * np.pi * frequency * sample_s))
        level = (power / shape)[:, used].mean(axis=1, keepdims=True)
        cost = np.log(level[:, 0]) + np.log(shape[:, used]).mean(axis=1)
        best = int(np.argmin(cost))
        return np.asarray(level[best] * shape[best], dtype=np.float64)


def _sine_tapers(size: int, number: int) -> FloatArray:
    """Orthogonal tapers, shape (number, size)."""
    order = np.arange(1, number + 1)[:, np.newaxis]
    place = np.arange(1, size + 1) / (size + 1)
    return np.asarray(np.sqrt(2.0 / (size + 1)) * np.sin(np.pi * order * place), dtype=np.float64)


def _without_trend(elapsed: FloatArray, values: FloatArray, knot_s: float) -> FloatArray:
    """What a quadratic spline with a knot every `knot_s` leaves; it is fitted to means of `BLOCK` samples."""
    pieces = int((elapsed[-1] - elapsed[0]) // knot_s)
    if pieces < 1:
        return np.asarray(values - np.polyval(np.polyfit(elapsed, values, 1), elapsed), dtype=np.float64)
    x = (elapsed - elapsed[0]) / (elapsed[-1] - elapsed[0])
    knots = np.arange(1, pieces) / pieces
    basis = np.column_stack([np.ones_like(x), x, x**2, *(np.maximum(0.0, x - knot) ** 2 for knot in knots)])
    whole = x.size // BLOCK * BLOCK
    rows = basis[:whole].reshape(-1, BLOCK, basis.shape[1]).mean(axis=1)
    means = values[:whole].reshape(-1, BLOCK).mean(axis=1)
    return np.asarray(values - basis @ np.linalg.lstsq(rows, means, rcond=None)[0], dtype=np.float64)
