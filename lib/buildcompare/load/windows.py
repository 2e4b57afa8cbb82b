"""Find when the load stopped, and the steady window over which two runs are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from buildcompare.load.curve import FASTEST_FALL, ROUNDING, USERS_INC, LoadCurve, prepare_load, samples
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import Reason, ReasonCode, TestType

LARGEST = 1e300  # Larger numbers are scaled down: their sums are no longer finite
REFERENCE_S = 1800.0  # The level before the stop is the median over this long: the coordinator's own window
STILL_UP = 0.95  # A curve above this part of its level is still under load
LITTLE_LEFT = 0.5  # A tail that falls below this part of the level is a shutdown however long it lasts
LONGEST_TAIL_S = 180.0  # A tail that stays above `LITTLE_LEFT` is a shutdown only if it is this short
STEP_NOISE = 0.01  # Steps below this part of the level are never the start of a shutdown
DECLINE_S = 60.0  # Window for telling a shutdown from a slow decline: the queries are rates over one minute


@dataclass(frozen=True)
class Stop:
    """The end of the load, in elapsed seconds."""

    at_s: float  # Of the last sample under load
    end_s: float  # Of the last sample that is a number
    shutdown: bool  # Whether the curve shows the agents being shut down in between


def find_stop(load: pd.Series, *, fastest_fall: float | None = FASTEST_FALL) -> Stop | None:
    """Find the shutdown at the end of a curve of users; None without a number in it.

    A shutdown is a fall at the very end, faster than the coordinator can take users away, after which the curve does
    not come back. A fall that lasts is no shutdown but a loss of load, unless little is left. A curve that is not above
    zero shows no load and so no shutdown: its stop is its last number. `fastest_fall` is what the coordinator can do by
    itself, per second; None where the curve is not in users.
    """
    elapsed, values = samples(load)
    if not values.size:
        return None
    end_s = float(elapsed[-1])
    none = Stop(end_s, end_s, shutdown=False)
    largest = float(np.abs(values).max())
    if largest > LARGEST:
        values = values * (LARGEST / largest)
    high = float(np.quantile(values, 0.99))
    up = elapsed[np.flatnonzero(values >= 0.5 * high)[-1]] if high > 0 else end_s  # the last that is clearly under load
    level = float(np.median(values[(elapsed <= up) & (elapsed > up - REFERENCE_S)]))
    if not (high > 0 and level > 0):
        return none

    def allowed(seconds: FloatArray) -> FloatArray:  # how far a curve under load may fall in so long
        return np.maximum(STEP_NOISE * level, ROUNDING * (fastest_fall or 0.0) * seconds)

    cut = int(np.flatnonzero(values >= STILL_UP * level)[-1])
    # Where a slow decline goes over into the shutdown: users who drop out a few at a time are none, however many.
    ahead = np.minimum(np.searchsorted(elapsed, elapsed[cut:] + DECLINE_S), values.size - 1)
    steep = np.flatnonzero(values[cut:] - values[ahead] > allowed(elapsed[ahead] - elapsed[cut:]))
    if steep.size and steep[0] > 0:
        first, last = cut + int(steep[0]), int(ahead[steep[0]])
        cut = first + int(np.argmax(np.diff(values[first : last + 1]) < -allowed(np.diff(elapsed[first : last + 1]))))
    while cut > 0 and values[cut - 1] - values[cut] > allowed(elapsed[cut] - elapsed[cut - 1]):
        cut -= 1
    tail = values[cut + 1 :]
    short = end_s - elapsed[cut] <= LONGEST_TAIL_S
    if tail.size == 0 or not (short or tail.min() < LITTLE_LEFT * level):
        return none
    return Stop(float(elapsed[cut]), end_s, shutdown=True)


PLATEAU = 0.98  # The plateau is reached at this part of its level
SETTLE_S = 60.0
"""Added after it: metrics are rates over one minute, so their first minute there still holds samples of the ramp."""
UNBOUNDED_S = 1800.0  # The load-test tool counts the supported users over the last 30 minutes
SHORTEST_S = 300.0  # A shorter window is none: it would hold five independent samples of a one-minute rate
ARRIVAL_S = 60.0  # What a load must have lasted, to be told from a spike


@dataclass(frozen=True)
class SteadyState:
    """The steady window of one run, in elapsed seconds; None where there is none, and why."""

    window: tuple[float, float] | None
    method: Literal["target_reached", "last_30_minutes", "mser5", "none"]
    reason: Reason | None = None


def steady_window(
    users: pd.Series,
    type: TestType = "unbounded",  # noqa: A002 - as in params
    *,
    stop: Stop | None = None,
    proxy: bool = False,
) -> SteadyState:
    """The window over which a run may be compared: where the load no longer changes by itself.

    Bounded tests: from the start of the plateau to the stop. Unbounded tests: the last 30 minutes before the stop, over
    which the load-test tool counts the supported users.

    Parameters
    ----------
    users
        Connected users over elapsed seconds; NaN where a sample has no number. With `proxy` a curve that only follows
        them, such as goroutines.
    type
        Whether the test has a fixed number of users (`bounded`) or adds users until the server is at its limit.
    stop
        When the load stopped; default: :func:`find_stop`.

    Returns
    -------
    SteadyState
        `window` as (start, end) in elapsed seconds, or None with a `reason`; `method` says how it was found.

    Examples
    --------
    >>> elapsed = np.arange(0.0, 3600.0, 5.0)
    >>> users = pd.Series(np.minimum(4.0 * elapsed, 5000.0), index=elapsed)
    >>> steady_window(users, "bounded").window
    (1285.0, 3595.0)
    >>> steady_window(users, "unbounded").window
    (1795.0, 3595.0)
    """
    stop = stop or find_stop(users)
    if stop is None:
        return no_window(ReasonCode.NO_SAMPLES)
    if type == "unbounded":
        return _checked(max(stop.at_s - UNBOUNDED_S, float(users.index[0]) + SETTLE_S), stop.at_s, "last_30_minutes")
    reached = plateau_start(*samples(users, stop.at_s), proxy=proxy)
    if reached is None:
        return no_window(ReasonCode.NEVER_RISES)
    return _checked(reached + SETTLE_S, stop.at_s, "target_reached")


def mser_window(curve: pd.Series) -> SteadyState:
    """MSER-5 on any curve that follows the load: means of 5, cut where the standard error of the rest is smallest.

    White (1997), "An effective truncation heuristic for bias reduction in simulation output".
    """
    elapsed, values = samples(curve)
    batches = values[: values.size // 5 * 5].reshape(-1, 5).mean(axis=1)
    if batches.size < 10:
        return no_window(ReasonCode.FEW_SAMPLES)
    reverse, counts = batches[::-1], np.arange(1, batches.size + 1)
    sums, squares = np.cumsum(reverse), np.cumsum(reverse**2)
    variances = np.maximum(squares / counts - (sums / counts) ** 2, 0.0)
    errors = (variances / counts)[::-1]  # errors[d]: squared standard error after dropping d batches
    cut = int(np.argmin(errors[: batches.size // 2]))
    if cut >= batches.size // 2 - 1:
        return no_window(ReasonCode.STILL_MOVES)
    return _checked(float(elapsed[5 * cut]), float(elapsed[-1]), "mser5")


def plateau_start(elapsed: FloatArray, values: FloatArray, *, proxy: bool = False) -> float | None:
    """When a bounded run's load first stood at its plateau; None where it never rises.

    The plateau is what the load was at or above for 6 minutes in all, whatever it lost later: the median of a run that
    loses agents one by one lies on its ramp. A run that ends as it arrives has no plateau of that length; its start is
    where the last minute's level was reached. A proxy also rises by itself for a while, which is no plateau: there the
    median of the second half must do.
    """
    shortest_s = SHORTEST_S + SETTLE_S
    level = sustained(elapsed, values, shortest_s)
    if not level > 0:
        return None
    if proxy:
        level = float(np.median(values[elapsed >= elapsed[-1] / 2]))
    arrived = float(np.median(values[elapsed >= elapsed[-1] - ARRIVAL_S]))
    if elapsed[int(np.argmax(values >= PLATEAU * arrived))] > elapsed[-1] - shortest_s:
        level = max(level, arrived)
    return float(elapsed[int(np.argmax(values >= PLATEAU * level))])


def sustained(elapsed: FloatArray, values: FloatArray, seconds: float) -> float:
    """The highest load that a run was at or above for this long in all; of a shorter run its lowest, of none 0."""
    if values.size < 2:
        return 0.0
    count = max(round(seconds / float(np.median(np.diff(elapsed)))), 1)
    return float(np.sort(values)[-min(count, values.size)])


def no_window(code: ReasonCode) -> SteadyState:
    """A run without a steady window, and why."""
    return SteadyState(None, "none", Reason(code=code))


def _checked(start: float, end: float, method: Literal["target_reached", "last_30_minutes", "mser5"]) -> SteadyState:
    if end - start < SHORTEST_S:
        return SteadyState(None, "none", Reason(code=ReasonCode.SHORT, minutes=max(end - start, 0) / 60))
    return SteadyState((start, end), method)


def load_curve(users: pd.Series | LoadCurve, *, step: float = USERS_INC) -> LoadCurve:
    """`users` up to their stop, prepared to be measured; ValueError where the curve shows no load."""
    if isinstance(users, LoadCurve):
        return users
    stop = find_stop(users)
    curve = None if stop is None else prepare_load(users, stop.at_s, step=step)
    if curve is None:
        raise ValueError(f"`users`: expected a curve that rises above {10 * step:g} users, found none of {len(users)}")
    return curve
