"""When did the load really stop? The agents are shut down before the end of a run is stamped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from buildcompare.recordings.recording import FloatArray

LARGEST = 1e300
"""Larger numbers are scaled down: their sums are no longer finite."""


@dataclass(frozen=True)
class Stop:
    """The end of the load.

    Attributes
    ----------
    at_s
        Elapsed seconds of the last sample under load.
    end_s
        Elapsed seconds of the last sample that is a number.
    shutdown
        Whether the curve shows the agents being shut down, from `at_s` to `end_s`.
    """

    at_s: float
    end_s: float
    shutdown: bool


@dataclass(frozen=True)
class FindStop:
    """Find the shutdown at the end of a curve of users (or of something that follows them).

    A shutdown is a fall at the very end, faster than the coordinator can take users away, after which the
    curve does not come back. A fall that lasts is no shutdown but a loss of load, unless little is left.

    Parameters
    ----------
    fastest_fall
        What the coordinator can do by itself, in units of the curve per second (8 users every 2 s in
        mattermost-load-test-ng); None where the curve is not in users.
    reference_s
        The level before the stop is the median over this long (30 minutes: the coordinator's own window).
    """

    fastest_fall: float | None = 4.0
    reference_s: float = 1800.0
    still_up: float = 0.95
    """A curve above this part of its level is still under load."""
    little_left: float = 0.5
    """A tail that falls below this part of the level is a shutdown however long it lasts."""
    longest_tail_s: float = 180.0
    """A tail that stays above `little_left` is a shutdown only if it is this short."""
    noise: float = 0.01
    """Steps below this part of the level are never the start of a shutdown."""
    decline_s: float = 60.0
    """A fall is told from a slow decline over this long: the queries are rates over one minute."""
    rounding: float = 1.5
    """Factor on `fastest_fall` for sampling and rounding of the curve."""

    def __call__(self, load: pd.Series) -> Stop | None:
        """Find the stop of `load` (values over elapsed seconds); None without a number in it.

        A curve that is not above zero shows no load and so no shutdown: its stop is its last number.
        """
        curve = load[np.isfinite(load.to_numpy(dtype=np.float64))]
        if curve.empty:
            return None
        elapsed, values = curve.index.to_numpy(dtype=np.float64), curve.to_numpy(dtype=np.float64)
        last = values.size - 1
        largest = float(np.abs(values).max())
        if largest > LARGEST:  # differences of such numbers are none
            values = values * (LARGEST / largest)
        level = self._level(elapsed, values)
        if not level > 0:
            return Stop(float(elapsed[last]), float(elapsed[last]), shutdown=False)
        cut = int(np.flatnonzero(values >= self.still_up * level)[-1])
        cut = self._start_of_fall(elapsed, values, self._end_of_decline(elapsed, values, cut, level), level)
        tail = values[cut + 1 :]
        short = elapsed[last] - elapsed[cut] <= self.longest_tail_s
        if tail.size == 0 or not (short or tail.min() < self.little_left * level):
            return Stop(float(elapsed[last]), float(elapsed[last]), shutdown=False)
        return Stop(float(elapsed[cut]), float(elapsed[last]), shutdown=True)

    def _level(self, elapsed: FloatArray, values: FloatArray) -> float:
        """The level under load: the median of the stretch before the last sample that is clearly up."""
        high = float(np.quantile(values, 0.99))
        if not high > 0:
            return 0.0
        up = int(np.flatnonzero(values >= 0.5 * high)[-1])
        before = (elapsed <= elapsed[up]) & (elapsed > elapsed[up] - self.reference_s)
        return float(np.median(values[before]))

    def _end_of_decline(self, elapsed: FloatArray, values: FloatArray, cut: int, level: float) -> int:
        """Where a slow decline from `cut` on goes over into the shutdown; `cut` where it is not slow, or never ends so.

        Users who drop out a few at a time are no shutdown, however many they are in the end.
        """
        ahead = np.minimum(np.searchsorted(elapsed, elapsed[cut:] + self.decline_s), values.size - 1)
        falls = values[cut:] - values[ahead]
        steep = np.flatnonzero(falls > self._allowed(elapsed[ahead] - elapsed[cut:], level))
        if not steep.size or steep[0] == 0:
            return cut
        first, last = cut + int(steep[0]), int(ahead[steep[0]])
        sudden = np.diff(values[first : last + 1]) < -self._allowed(np.diff(elapsed[first : last + 1]), level)
        return first + int(np.argmax(sudden))

    def _start_of_fall(self, elapsed: FloatArray, values: FloatArray, cut: int, level: float) -> int:
        while cut > 0 and values[cut - 1] - values[cut] > self._allowed(elapsed[cut] - elapsed[cut - 1], level):
            cut -= 1
        return cut

    def _allowed(self, seconds: FloatArray, level: float) -> FloatArray:
        """How far a curve under load may fall in so long."""
        noise = np.full_like(seconds, self.noise * level)
        return noise if self.fastest_fall is None else np.maximum(noise, self.rounding * self.fastest_fall * seconds)
