"""How did the load come up: how steep was the lasting ramp, and when were how many users connected?"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from buildcompare.load.curve import LoadCurve, holes
from buildcompare.recordings.recording import FloatArray
from buildcompare.stats.slopes import slope_interval


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
        """Elapsed seconds at which `users` first reached each mark; None where it never did, or nobody saw when."""
        users = users[np.isfinite(users.to_numpy())]
        elapsed, values = users.index.to_numpy(dtype=np.float64), users.to_numpy(dtype=np.float64)
        unseen = holes(elapsed)
        reached: dict[int, float | None] = {}
        for mark in marks:
            above = np.flatnonzero(values >= mark)
            # Already there at the first sample, or after a hole: nobody saw when.
            seen = above.size and above[0] > 0 and not unseen[above[0] - 1]
            reached[mark] = float(elapsed[above[0]]) if seen else None
        return reached


@dataclass(frozen=True)
class Stretch:
    """A straight stretch of a curve: elapsed seconds, and the curve's unit (per second)."""

    start_s: float
    end_s: float
    slope: float
    height: float
    """The line at elapsed second 0."""

    @property
    def rise(self) -> float:
        """From its start to its end."""
        return self.slope * (self.end_s - self.start_s)


@dataclass(frozen=True)
class Ramp:
    """The lasting ramp of one run; elapsed seconds and the curve's unit.

    Attributes
    ----------
    start_s, end_s
        Its straight stretch. It ends at an alert, at a bend, or with the recording.
    slope, slope_ci
        Per second, and its 95 % interval (infinite for a stretch too short to tell).
    kink_s, slope_after
        Where the curve leaves the ramp for a second straight stretch, less steep: the coordinator rests between
        actions from the first alert on, which is no defect. None where the curve merely bends.
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

    From the onset, the curve is cut into straight stretches: each is grown while no sample is further than
    `straight_steps` actions (or than noise) from its least-squares line; then the line through its first
    `trusted_part` says where it really ends. The ramp is the first stretch that climbs at least `main_part` of what
    the longest climbs: an alert soon after the onset makes a short stretch, and is not the ramp.
    """

    settle_s: float = 45.0
    """Between stretches, and after the onset: connections follow the coordinator with a lag of some 12 s, three of
    which leave 2 to 5 %."""
    straight_steps: float = 3.0
    pixel: float = 0.003
    """Nor is a curve bent by this part of its level: a pixel of a published plot is about 0.3 % of it."""
    end_steps: float = 2.0
    trusted_part: float = 0.7
    shortest_s: float = 45.0
    main_part: float = 0.35
    until_part: float = 0.5
    """A ramp starts before this part of the level; what starts later is the creep towards the equilibrium."""
    block_s: float = 30.0
    """The slope's interval is from means over blocks: residuals of a ramp are correlated."""
    after_s: float = 240.0
    """A second straight stretch is one that lasts this long: twice the alert queries' minute, up and down."""
    slower: tuple[float, float] = (0.2, 0.8)
    """A kink leaves between these parts of the slope: half, or a third, where the coordinator begins to rest."""

    def __call__(self, curve: LoadCurve, onset_s: float | None) -> Ramp | None:
        """Measure the ramp from `onset_s` (None: from the first sample); None where there is no climb."""
        start_s = float(curve.elapsed[0]) if onset_s is None else onset_s + self.settle_s
        stretches = self._stretches(curve, start_s)
        most = max((stretch.rise for stretch in stretches), default=0.0)
        if not most > 0:
            return None
        main = next(i for i, stretch in enumerate(stretches) if stretch.rise >= self.main_part * most)
        ramp = stretches[main]
        # Strictly straight: with a pixel's room, the creep towards the equilibrium would look like a kink.
        after = replace(self, pixel=0.0)._stretch(curve, ramp.end_s + self.settle_s)
        low, high = self.slower
        kinked = (
            after is not None
            and after.end_s - after.start_s >= self.after_s
            and low * ramp.slope <= after.slope <= high * ramp.slope
        )
        kink_s = slope_after = None
        if kinked and after is not None:
            kink_s, slope_after = ramp.end_s, after.slope
        _, interval = slope_interval(*curve.between(ramp.start_s, ramp.end_s), self.block_s)
        complete = bool(ramp.end_s < curve.elapsed[-1])
        return Ramp(ramp.start_s, ramp.end_s, ramp.slope, interval, kink_s, slope_after, complete)

    def _stretches(self, curve: LoadCurve, start_s: float) -> list[Stretch]:
        until_s = float(curve.elapsed[int(np.argmax(curve.values >= self.until_part * curve.level))])
        found: list[Stretch] = []
        while not found or start_s < until_s:
            stretch = self._stretch(curve, start_s)
            if stretch is None:
                break
            found.append(stretch)
            start_s = stretch.end_s + self.settle_s
        return found

    def _stretch(self, curve: LoadCurve, start_s: float) -> Stretch | None:
        """The straight stretch from `start_s`; None where less than `shortest_s` is left."""
        elapsed, values = curve.between(start_s, np.inf)
        least = int(np.searchsorted(elapsed, elapsed[0] + self.shortest_s)) + 1 if elapsed.size else 1
        if least > elapsed.size:
            return None
        end = self._grown(curve, elapsed, values, least)
        trusted = max(3, int(self.trusted_part * end))
        slope, height = np.polyfit(elapsed[:trusted], values[:trusted], 1)
        off = np.abs(values[:end] - (height + slope * elapsed[:end]))
        near = np.flatnonzero(off <= max(self.end_steps * curve.step, 4.0 * curve.noise))
        last = max(int(near[-1]) + 1 if near.size else 0, min(least, end))
        slope, height = np.polyfit(elapsed[:last], values[:last], 1)
        return Stretch(float(elapsed[0]), float(elapsed[last - 1]), float(slope), float(height))

    def _grown(self, curve: LoadCurve, elapsed: FloatArray, values: FloatArray, least: int) -> int:
        """How many samples from the first on are straight (at least `least`): doubling, then bisection."""
        allowed = max(self.straight_steps * curve.step, 5.0 * curve.noise, self.pixel * curve.level)

        def straight(size: int) -> bool:
            return _furthest(elapsed[:size], values[:size]) <= allowed

        good, bad = least, least
        while bad < elapsed.size:
            bad = min(2 * bad, elapsed.size)
            if not straight(bad):
                break
            good = bad
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if straight(middle) else (good, middle)
        return good


def _furthest(elapsed: FloatArray, values: FloatArray) -> float:
    """The largest distance of a sample from the least-squares line."""
    x, y = elapsed - elapsed.mean(), values - values.mean()
    return float(np.abs(y - x * (x @ y) / (x @ x)).max())
