"""How many users does a build support? The load-test tool's own definition, from the curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from buildcompare.load.stop import Stop

Reason = Literal[
    "no_users_curve",
    "too_short",
    "gaps",
    "interrupted",
    "users_lost",
    "still_climbing",
    "still_falling",
    "may_be_cut",
    "ceiling_reached",
]


@dataclass(frozen=True)
class SupportedUsers:
    """An estimate, or the reason why there is none.

    Attributes
    ----------
    estimated
        Mean users over the last 30 minutes under load; None where that is not what the build supports.
    at_least
        The same mean where the curve still rose or met the ceiling, so that the build supports at least as many.
    slope_users_per_s
        Least-squares slope over those 30 minutes.
    window
        Start and end of those 30 minutes, elapsed seconds.
    """

    estimated: float | None
    at_least: float | None
    reason: Reason | None
    slope_users_per_s: float | None = None
    window: tuple[float, float] | None = None


@dataclass(frozen=True)
class EstimateSupportedUsers:
    """The mean of the connected users over the last 30 minutes under load.

    mattermost-load-test-ng stops an unbounded test once the least-squares slope of the active users over the
    last 30 minutes is below 0.2 users/s, and reports their mean as the supported users. A curve whose stop
    was seen (or is known) has met that rule by the tool's own count, so it is called climbing only well
    beyond it; a curve that may have been cut must not be estimated at all.
    """

    window_s: float = 1800.0
    stop_slope: float = 0.2
    """Users per second; mattermost-load-test-ng's stop rule."""
    slope_tolerance: float = 2.0
    """Factor on `stop_slope` beyond which a curve is not at its plateau. The connected users are not exactly the
    active ones: whole published curves (development half) end at up to 1.35 times the rule's slope, so that half as
    much again is left for curves that were not seen."""
    min_coverage: float = 0.9
    interrupted: float = 0.5
    """Users below this part of their median, in the middle of the last 30 minutes, are a fault of the test."""
    ceiling: float = 0.98
    """Above this part of the users' ceiling the test was stopped by it, and not by the server: the waves of the
    feedback loop keep the mean below the ceiling itself."""
    longest_silence_s: float = 120.0
    """A run that is known to have gone on for longer than this after the last number has a gap there."""

    def __call__(
        self,
        users: pd.Series | None,
        stop: Stop | None,
        *,
        may_be_cut: bool,
        known_end_s: float | None = None,
        ceiling: int | None = None,
    ) -> SupportedUsers:
        """Estimate from `users` (over elapsed seconds) whose load ended at `stop`.

        Parameters
        ----------
        may_be_cut
            Whether the curve may have been cut before its run stopped.
        known_end_s
            When the run is known to have been stopped; None where the curve merely ends.
        ceiling
            The highest number of users that the test would have added; None where it is not known.
        """
        if users is None or stop is None:
            return SupportedUsers(None, None, "no_users_curve")
        start = stop.at_s - self.window_s
        last = users[(users.index > start) & (users.index <= stop.at_s)]
        finite = last[np.isfinite(last.to_numpy())]
        if users.index[0] > start + _step(users) or finite.size < 2:
            return SupportedUsers(None, None, "too_short")
        window = (start, stop.at_s)
        elapsed, values = finite.index.to_numpy(dtype=np.float64), finite.to_numpy(dtype=np.float64)
        slope = float(np.polyfit(elapsed - elapsed[0], values, 1)[0])
        mean = float(values.mean())
        silence = 0.0 if known_end_s is None else known_end_s - stop.end_s
        if finite.size * _step(users) < self.min_coverage * self.window_s or silence > self.longest_silence_s:
            return SupportedUsers(None, None, "gaps", slope, window)
        if values.min() < self.interrupted * np.median(values):
            return SupportedUsers(None, None, "interrupted", slope, window)
        if ceiling is not None and mean >= self.ceiling * ceiling:
            return SupportedUsers(None, mean, "ceiling_reached", slope, window)
        if may_be_cut:
            climbing = slope > self.stop_slope
            reason: Reason = "still_climbing" if climbing else "may_be_cut"
            return SupportedUsers(None, mean if climbing else None, reason, slope, window)
        limit = self.slope_tolerance * self.stop_slope
        if slope > limit:
            return SupportedUsers(None, mean, "still_climbing", slope, window)
        if slope < -limit:
            return SupportedUsers(None, None, "still_falling", slope, window)
        return SupportedUsers(mean, None, None, slope, window)


def _step(curve: pd.Series) -> float:
    return float(np.median(np.diff(curve.index.to_numpy(dtype=np.float64)))) if len(curve) > 1 else 0.0
