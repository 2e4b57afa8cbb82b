"""How did the load come up: how steep was the lasting ramp, and when were how many users connected?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import t as student_t

from buildcompare.analysis.load_curve import LoadCurve
from buildcompare.recording import FloatArray


@dataclass(frozen=True)
class TimeToUsers:
    """When a curve first reached each of some round numbers of users."""

    levels: int = 5
    """About how many round numbers up to the lowest plateau."""

    def marks(self, plateaus: list[float]) -> list[int]:
        """Round numbers of users that every curve with one of these plateaus should reach."""
        lowest = min(plateaus, default=0.0)
        if not lowest > self.levels:
            return []
        raw = lowest / self.levels
        magnitude = 10.0 ** math.floor(math.log10(raw))
        step = max(int(next(nice * magnitude for nice in (1, 2, 5, 10) if nice * magnitude >= raw)), 1)
        return list(range(step, int(lowest) + 1, step))

    def __call__(self, users: pd.Series, marks: list[int]) -> dict[int, float | None]:
        """Elapsed seconds at which `users` first reached each mark; None where it never did."""
        elapsed, values = users.index.to_numpy(dtype=np.float64), users.to_numpy(dtype=np.float64)
        reached: dict[int, float | None] = {}
        for mark in marks:
            above = np.flatnonzero(values >= mark)
            # Already there at the first sample: the window opened in mid-ramp, the time is unknown.
            reached[mark] = float(elapsed[above[0]]) if above.size and above[0] > 0 else None
        return reached


@dataclass(frozen=True)
class Ramp:
    """The lasting ramp of one run; elapsed seconds and the curve's unit.

    Attributes
    ----------
    start_s, end_s
        The straight stretch. It ends at the first alert, at a bend, or with the recording.
    slope, slope_ci
        Per second, and its 95 % interval.
    kink_s, slope_after
        Where a second straight stretch follows, less steep: the coordinator rests between actions from the first
        alert on, which is no defect. None where the curve merely bends.
    complete
        Whether the ramp is seen to end; False where the recording ends first.
    """

    start_s: float
    end_s: float
    slope: float
    slope_ci: tuple[float, float]
    kink_s: float | None
    slope_after: float | None
    complete: bool


@dataclass(frozen=True)
class MeasureRamp:
    """Measure the straight part of the lasting ramp.

    The stretch is grown from the onset while no sample is further than `straight_steps` actions (or than noise) from
    its least-squares line; then the line through its first `trusted_part` says where it really ends. The slope is
    least squares, its interval from blocks of `block_s`: residuals of a ramp are correlated.
    """

    settle_s: float = 45.0
    """After the onset: connections follow the coordinator with a lag of some 12 s, three of which leave 2 to 5 %."""
    straight_steps: float = 5.0
    end_steps: float = 3.0
    trusted_part: float = 0.7
    shortest_s: float = 45.0
    block_s: float = 60.0
    after_s: float = 300.0
    """A second straight stretch is one that lasts this long."""
    slower: tuple[float, float] = (0.2, 0.8)
    """A kink leaves between these parts of the slope: half, or a third, where the coordinator begins to rest."""

    def __call__(self, curve: LoadCurve, onset_s: float | None) -> Ramp | None:
        """Measure the ramp from `onset_s` (None: from the first sample); None where it is too short."""
        start_s = float(curve.elapsed[0]) if onset_s is None else onset_s
        elapsed, values = curve.between(start_s + (0.0 if onset_s is None else self.settle_s), np.inf)
        end = self._grown(curve, elapsed, values)
        if end is None:
            return None
        trusted = max(3, int(self.trusted_part * (end + 1)))
        slope, height = np.polyfit(elapsed[:trusted], values[:trusted], 1)
        off = np.abs(values[: end + 1] - (height + slope * elapsed[: end + 1]))
        last = int(np.flatnonzero(off <= max(self.end_steps * curve.step, 4.0 * curve.noise))[-1])
        slope = float(np.polyfit(elapsed[: last + 1], values[: last + 1], 1)[0])
        if slope <= 0:
            return None
        kink_s, after = self._kink(curve, float(elapsed[last]), slope)
        error = self._error(elapsed[: last + 1], values[: last + 1])
        return Ramp(
            start_s, float(elapsed[last]), slope, (slope - error, slope + error), kink_s, after, end < elapsed.size - 1
        )

    def _grown(self, curve: LoadCurve, elapsed: FloatArray, values: FloatArray) -> int | None:
        """Index of the last sample of the longest straight stretch from the start."""
        least = int(np.searchsorted(elapsed, elapsed[0] + self.shortest_s)) if elapsed.size else 0
        if least >= elapsed.size:
            return None
        allowed = max(self.straight_steps * curve.step, 5.0 * curve.noise)
        good, bad = least, elapsed.size
        # Bisection after doubling: a stretch that is bent stays bent when it grows, up to noise.
        size = least
        while size < elapsed.size:
            size = min(2 * size, elapsed.size)
            if _furthest(elapsed[:size], values[:size]) > allowed:
                bad = size
                break
            good = size
        while bad - good > 1 and good < elapsed.size:
            middle = (good + bad) // 2
            if _furthest(elapsed[:middle], values[:middle]) > allowed:
                bad = middle
            else:
                good = middle
        return min(good, elapsed.size) - 1

    def _kink(self, curve: LoadCurve, end_s: float, slope: float) -> tuple[float | None, float | None]:
        elapsed, values = curve.between(end_s + self.settle_s, end_s + self.settle_s + self.after_s)
        if elapsed.size < 3 or elapsed[-1] - elapsed[0] < 0.9 * self.after_s:
            return None, None
        after, height = np.polyfit(elapsed, values, 1)
        low, high = self.slower
        straight = _furthest(elapsed, values) <= max(self.straight_steps * curve.step / 2.0, 5.0 * curve.noise)
        if not (straight and low * slope <= after <= high * slope):
            return None, None
        before, level = np.polyfit(*curve.between(end_s - self.after_s, end_s), 1)
        crossing = (level - height) / (after - before) if after != before else end_s
        return float(np.clip(crossing, end_s - self.after_s, end_s + self.after_s)), float(after)

    def _error(self, elapsed: FloatArray, values: FloatArray) -> float:
        """Half the 95 % interval of the slope, from the slopes of the residuals' block means."""
        residual = values - np.polyval(np.polyfit(elapsed, values, 1), elapsed)
        block = ((elapsed - elapsed[0]) // self.block_s).astype(int)
        counts = np.bincount(block)
        filled = counts > 0
        means = np.bincount(block, residual)[filled] / counts[filled]
        centres = np.bincount(block, elapsed)[filled] / counts[filled]
        if means.size < 3:
            return math.inf
        variance = float((means**2).sum() / (means.size - 2)) / float(((centres - centres.mean()) ** 2).sum())
        return float(student_t.ppf(0.975, means.size - 2)) * math.sqrt(variance)


def _furthest(elapsed: FloatArray, values: FloatArray) -> float:
    """The largest distance of a sample from the least-squares line."""
    x, y = elapsed - elapsed.mean(), values - values.mean()
    return float(np.abs(y - x * (x @ y) / (x @ x)).max())
