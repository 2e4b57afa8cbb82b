"""Had the load settled at the end, at what level, and what would an earlier or later stop have changed?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from buildcompare.load.curve import LoadCurve
from buildcompare.stats.slopes import slope_interval


@dataclass(frozen=True)
class Plateau:
    """The end of a load curve; elapsed seconds and the curve's unit.

    Attributes
    ----------
    level
        Mean over `window`: the last 30 minutes under load.
    drift, drift_ci
        Least-squares slope over the window per second, and its 95 % interval from means over blocks.
    settled
        Whether the load was in equilibrium: the drift is about within the rule of the load-test tool. None where
        the window is too short to tell.
    settled_s
        When a stop would first have met that rule; None where none would have.
    earliest_level
        The level that a stop at `settled_s` would have given.
    per_minute
        How much a stop one minute later would change the level: the mean of a window that slides climbs like the
        curve in it.
    """

    window: tuple[float, float]
    level: float
    drift: float
    drift_ci: tuple[float, float]
    settled: bool | None
    settled_s: float | None
    earliest_level: float | None
    per_minute: float


@dataclass(frozen=True)
class MeasurePlateau:
    """Measure the last 30 minutes under load.

    The stop rule of mattermost-load-test-ng: at least `window_s` after the first alert, and a slope over the last
    `window_s` that is below `slope_steps` actions of the coordinator per second (0.2 users/s of 8).
    """

    window_s: float = 1800.0
    slope_steps: float = 0.025
    tolerance: float = 2.0
    """Factor on the rule for `settled`, as for the supported users: connected users are not exactly the active ones."""
    shortest_s: float = 600.0
    least_part: float = 0.5
    """No stop is looked for before the curve has reached this part of its level: an early stretch of bumps is flat."""
    block_s: float = 300.0
    """Blocks for the drift's interval: longer than the longest usual wave (250 s)."""

    def __call__(self, curve: LoadCurve, stop_s: float, ramp_end_s: float | None = None) -> Plateau | None:
        """Measure up to `stop_s`; None where fewer than `shortest_s` of the window follow the ramp's end."""
        first = float(curve.elapsed[0]) if ramp_end_s is None else ramp_end_s
        start = max(stop_s - self.window_s, first)
        elapsed, values = curve.between(start, stop_s)
        if elapsed.size < 10 or stop_s - start < self.shortest_s:
            return None
        limit = self.slope_steps * curve.step
        drift, interval = slope_interval(elapsed, values, self.block_s)
        whole = stop_s - start >= 0.99 * self.window_s
        settled_s, earliest = self._first_stop(curve, stop_s, limit)
        return Plateau(
            window=(start, stop_s),
            level=float(values.mean()),
            drift=drift,
            drift_ci=interval,
            settled=bool(abs(drift) < self.tolerance * limit) if whole else None,
            settled_s=settled_s,
            earliest_level=earliest,
            per_minute=60.0 * drift,
        )

    def _first_stop(self, curve: LoadCurve, stop_s: float, limit: float) -> tuple[float | None, float | None]:
        """The first sample whose last `window_s` meet the rule, and their mean; sums that slide make it quick."""
        x, y = curve.elapsed - curve.elapsed[0], curve.values
        first = np.searchsorted(x, x - self.window_s)
        sums = [np.concatenate(([0.0], np.cumsum(each))) for each in (np.ones_like(x), x, y, x * x, x * y)]
        n, sx, sy, sxx, sxy = (each[1:] - each[first] for each in sums)
        spread = n * sxx - sx * sx
        with np.errstate(invalid="ignore", divide="ignore"):
            slope = (n * sxy - sx * sy) / spread
        high = np.flatnonzero(y >= self.least_part * curve.level)[0]
        # The whole window must lie above it, and before the stop.
        able = (x >= self.window_s) & (first >= high) & (curve.elapsed <= stop_s) & (spread > 0)
        met = np.flatnonzero(able & (np.abs(slope) < limit))
        return (float(curve.elapsed[met[0]]), float(sy[met[0]] / n[met[0]])) if met.size else (None, None)
