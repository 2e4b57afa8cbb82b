"""Prepare a load curve for measuring, and find its turns, its falls, its stop, and its steady window.

Numbers without another source are round ones that tell the faults of simulated runs apart (tests/validity) and find in
published runs what is known of them, and nothing else: `benchmarks/validity.py` prints it.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildcompare.recordings.recording import FloatArray
from buildcompare.results.base import Reason
from buildcompare.results.codes import ReasonCode, TestType

WINDOW_S, STOP_STEPS = 1800.0, 0.025
"""The stop rule of mattermost-load-test-ng: at least `WINDOW_S` after the first alert, and a least-squares slope of the
active users over the last `WINDOW_S` that is below this many actions of the coordinator per second (0.2 users/s of 8).
Their mean over it is what it reports as the supported users."""
TOLERANCE = 2.0
"""Factor on that slope beyond which a curve is not at its plateau: the connected users are not exactly the active ones.
Whole published curves (development half) end at up to 1.35 times the rule's slope; half as much again is left."""
USERS_INC = 8.0  # Users that mattermost-load-test-ng's coordinator adds or takes in one action
FASTEST_FALL = 4.0  # Users per second that it takes away by itself: 8 every 2 s
ROUNDING = 1.5  # Factor on the coordinator's own pace, for sampling and rounding of a curve
GAUSSIAN_MAD = 1.4826  # Standard deviation over median absolute deviation of a normal distribution
HOLE_S = 90.0  # A longer silence may hide an early bump: none is shorter, as no alert is heard in the first minute


def samples(curve: pd.Series, until_s: float = math.inf) -> tuple[FloatArray, FloatArray]:
    """Elapsed seconds and values of the finite samples up to `until_s`, shape (n,) each."""
    elapsed, values = curve.index.to_numpy(dtype=np.float64), curve.to_numpy(dtype=np.float64)
    keep = np.isfinite(values) & (elapsed <= until_s)
    return elapsed[keep], values[keep]


def holes(elapsed: FloatArray) -> npt.NDArray[np.bool_]:
    """After which samples there is a hole: longer than `HOLE_S`, and than two missing samples; shape (n - 1,)."""
    apart = np.diff(elapsed)
    return np.asarray(apart > max(HOLE_S, 3.0 * float(np.median(apart))) if apart.size else apart > 0.0, dtype=np.bool_)


PROXY_STEP = 1.2e-3  # One action as a part of a proxy's level, where its scale is unknown: 8 of 6000 to 8000 users
SMALLEST = 10.0  # A curve that never exceeds this many actions shows no load
NOISE_UP_TO_S = 20.0  # With samples further apart, differences are the waves', and the curve counts as exact
SIGNAL = 30.0  # A curve below this many deviations of its noise is a constant load: published ones have 87 and more


@dataclass(frozen=True)
class LoadCurve:
    """A curve of users, or of a proxy that follows them, ready to be measured: elapsed seconds and the curve's unit."""

    elapsed: FloatArray
    values: FloatArray  # Finite samples under load, without those of a reset; shape (n,) each
    sample_s: float  # The usual distance of two samples
    step: float  # What one action of the coordinator adds or takes
    noise: float  # Standard deviation of a sample's own noise
    level: float  # What the curve reaches (its 98 % quantile: single samples do not count)
    resets: tuple[tuple[float, float], ...]  # Collapses that no coordinator orders, such as a restart: start and end

    def between(self, start_s: float, end_s: float) -> tuple[FloatArray, FloatArray]:
        """Elapsed seconds and values from `start_s` to `end_s`, both included."""
        inside = (self.elapsed >= start_s) & (self.elapsed <= end_s)
        return self.elapsed[inside], self.values[inside]

    @property
    def foot(self) -> float:
        """What is no higher than this above a trough is at its foot."""
        return max(self.step, 2.0 * self.noise)

    def least_fall(self, steps: float) -> float:
        """The smallest fall that is more than `steps` actions and than noise: from peak to peak some 6 deviations."""
        return max(steps * self.step, 6.0 * self.noise)


def prepare_load(
    curve: pd.Series, stop_s: float, *, step: float = USERS_INC, proxy: bool = False, per_user: float | None = None
) -> LoadCurve | None:
    """Prepare `curve` (values over elapsed seconds) up to `stop_s`; None where it shows no load.

    The idle level of a `proxy` is taken off. `step` is the users per action of the coordinator, `per_user` what a user
    adds to a proxy (goroutines: about 3); where that is unknown, the step is a part of the level.
    """
    elapsed, values = samples(curve, stop_s)
    if elapsed.size < 3:
        return None
    values = values - values.min() if proxy else values
    level = float(np.quantile(values, 0.98))
    if proxy:
        step = PROXY_STEP * level if per_user is None else step * per_user
    if not level > SMALLEST * step:
        return None
    resets = _resets(elapsed, values, step)
    for start, end in resets:
        inside = (elapsed > start) & (elapsed < end)
        elapsed, values = elapsed[~inside], values[~inside]
    sample_s = float(np.median(np.diff(elapsed)))
    second = np.diff(values, 2) if sample_s <= NOISE_UP_TO_S else np.empty(0)
    # The second difference of white noise has root 6 times its standard deviation.
    noise = GAUSSIAN_MAD * float(np.median(np.abs(second))) / math.sqrt(6.0) if second.size else 0.0
    return LoadCurve(elapsed, values, sample_s, step, noise, level, resets) if level > SIGNAL * noise else None


def load_curve(users: pd.Series | LoadCurve) -> LoadCurve:
    """Prepare a curve of users up to its stop: the curve's own numbers, which say what counts as a fall or a bump.

    Parameters
    ----------
    users
        Connected users over elapsed seconds.

    Returns
    -------
    LoadCurve
        Its samples under load; `sample_s`, `step` (of the coordinator), `noise` (of a sample), `level` and `resets`.

    Raises
    ------
    ValueError
        Where the curve shows no load.

    Examples
    --------
    >>> elapsed = np.arange(0.0, 3600.0, 5.0)
    >>> own = load_curve(pd.Series(np.minimum(4.0 * elapsed, 6000.0), index=elapsed))
    >>> own.sample_s, own.step, own.level
    (5.0, 8.0, 6000.0)
    """
    if isinstance(users, LoadCurve):
        return users
    stop = find_stop(users)
    curve = None if stop is None else prepare_load(users, stop.at_s)
    if curve is None:
        least = SMALLEST * USERS_INC
        raise ValueError(f"`users`: expected a curve that rises above {least:g} users, found none of {len(users)}")
    return curve


RECOVERED, RECOVERY_S = 0.9, 300.0
"""A reset is over when this part of the users is back, within this time; else the run went on from where it fell to."""


def _resets(elapsed: FloatArray, values: FloatArray, step: float) -> tuple[tuple[float, float], ...]:
    """Restarts that are soon made good. The coordinator looks at its alerts once a second: one step is its fastest."""
    found = []
    for fall in find_falls(pd.Series(values, elapsed), fastest_fall=step, back=RECOVERED, smooth=False):
        low = int(np.argmax((elapsed > fall.at_s) & (values < HARDLY_ANY * fall.before)))
        again = np.flatnonzero((values >= RECOVERED * fall.before) & (elapsed <= fall.at_s + RECOVERY_S))
        if fall.kind == "restart" and again.size and again[-1] > low:
            end = int(again[np.searchsorted(again, low)])
            # Until nobody reconnects any more: what is left is what the coordinator adds.
            while end + 1 < values.size and np.diff(values)[end] > ROUNDING * step * np.diff(elapsed)[end]:
                end += 1
            found.append((fall.at_s, float(elapsed[end])))
    return tuple(found)


class Turn(NamedTuple):
    """A fall from a peak to the trough after it, and the trough before the peak (at first: the first sample)."""

    rise_s: float
    rise_from: float
    peak_s: float
    peak: float
    trough_s: float
    trough: float

    @property
    def depth(self) -> float:
        """From peak to trough."""
        return self.peak - self.trough


def find_turns(elapsed: FloatArray, values: FloatArray, least: float) -> list[Turn]:
    """Every fall of at least `least`, two falls parted by a rise of at least `least`; of finite samples, shape (n,)."""
    found: list[Turn] = []
    if not elapsed.size:
        return found
    points = [*zip(elapsed.tolist(), values.tolist(), strict=True)]
    start = low = high = points[0]
    falling = False
    for now in points:
        if falling and now[1] < low[1]:
            low = now
        elif falling and now[1] - low[1] >= least:
            found.append(Turn(*start, *high, *low))
            start, high, falling = low, now, False
        elif not falling and now[1] > high[1]:
            high = now
        elif not falling and high[1] - now[1] >= least:
            low, falling = now, True
    if falling:
        found.append(Turn(*start, *high, *low))
    return found


class Fall(NamedTuple):
    """Users who disappeared at once, as no coordinator takes them away: an agent or the server failed."""

    kind: Literal["lost", "restart"]  # `restart`: hardly anyone was left, and they came back
    at_s: float  # Elapsed seconds of the last sample before it
    before: float  # Users then
    after: float  # Users who were left
    back_s: float | None  # When as many were there again; None where they never were


AT_ONCE_S = 30.0  # How fast users are lost: connections of a lost agent time out within half a minute
HARDLY_ANY = 0.5  # A restart leaves less than this part of the users
FALL_PART = 0.03  # Beside what the coordinator may do: an agent of twenty is 5 %, a curve is read off a plot to 0.4 %
BUSY = 0.1  # Falls from less than this part of the highest load are a cold start's
LASTING_S = 60.0  # What is back sooner than this after `AT_ONCE_S` was no loss, unless hardly anyone was left
LOW_S = 300.0  # Within this long the users reach what is left of them, and no second fall is looked for
BACK = 0.8  # After a restart that many of the users are back: not all of them need to return


def find_falls(
    load: pd.Series,
    stop_s: float = math.inf,
    *,
    fastest_fall: float = FASTEST_FALL,
    hardly_any: float = HARDLY_ANY,
    back: float = BACK,
    smooth: bool = True,
) -> tuple[Fall, ...]:
    """The falls of `load` (users, or a proxy, over elapsed seconds) before `stop_s`, in their order.

    The coordinator itself may take away `fastest_fall` users per second (none in a bounded test). With less than
    `hardly_any` left, and the part `back` there later, it is a restart. With `smooth`, a single sample is no fall.
    """
    elapsed, users = samples(load, stop_s)
    if users.size < 3:
        return ()
    if smooth:
        users[1:-1] = np.median(np.stack([users[:-2], users[1:-1], users[2:]]), axis=0)
    later = np.searchsorted(elapsed, elapsed + AT_ONCE_S, "right") - 1
    later = np.minimum(np.maximum(later, np.arange(users.size) + 1), users.size - 1)
    may = ROUNDING * fastest_fall * (elapsed[later] - elapsed) + FALL_PART * users
    own = ROUNDING * fastest_fall * np.diff(elapsed)
    high = (users > 0.0) & (users >= BUSY * float(np.quantile(users, 0.95)))
    found: list[Fall] = []
    past = -1.0
    for first in np.flatnonzero((users - users[later] > may) & high):
        if elapsed[first] < past:
            continue
        end = int(np.searchsorted(elapsed, elapsed[first] + AT_ONCE_S, "right"))
        start = steepest = first + int(np.argmax(-np.diff(users[first : end + 1])))
        # And what leads up to it, faster than the coordinator.
        while start > 0 and users[start - 1] - users[start] > max(0.02 * may[first], own[start - 1]):
            start -= 1
        before, since = float(users[start]), max(elapsed[start] + AT_ONCE_S, elapsed[steepest])
        soon = users[(elapsed > since) & (elapsed <= since + LASTING_S)]
        left = float(np.median(soon)) if soon.size else float(users[-1])
        last = int(np.searchsorted(elapsed, elapsed[start] + LOW_S, "right"))
        lowest = float(users[start + 1 : max(last, start + 2)].min())
        emptied = lowest < hardly_any * before
        if before - left <= 0.5 * may[first] and not emptied:
            continue
        again = np.flatnonzero((elapsed > since) & (users >= (back if emptied else 1.0 - FALL_PART) * before))
        back_s = float(elapsed[again[0]]) if again.size else None
        restart = emptied and back_s is not None
        found.append(Fall("restart" if restart else "lost", float(elapsed[start]), before, lowest, back_s))
        past = max(found[-1].at_s + (LOW_S if smooth else 0.0), (back_s or 0.0) if restart else 0.0)
    return tuple(found)


LARGEST = 1e300  # Larger numbers are scaled down: their sums are no longer finite
STILL_UP = 0.95  # A curve above this part of its level is still under load
LITTLE_LEFT = 0.5  # A tail that falls below this part of the level is a shutdown however long it lasts
LONGEST_TAIL_S = 180.0  # A tail that stays above `LITTLE_LEFT` is none if it is longer: published ones take 20 to 85 s
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
    level = float(np.median(values[(elapsed <= up) & (elapsed > up - WINDOW_S)]))
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
"""Added after it: metrics are rates over one minute, so their first minute there still holds samples of the ramp. A
server that was asked for shorter rates (`rate_s`) has them sooner."""
SHORTEST_S = 300.0  # A shorter window is none: it would hold five independent samples of a one-minute rate
ARRIVAL_S = 60.0  # What a load must have lasted, to be told from a spike


@dataclass(frozen=True)
class SteadyState:
    """The steady window of one run, in elapsed seconds; None where there is none, and why."""

    window: tuple[float, float] | None = None
    method: Literal["target_reached", "last_30_minutes", "mser5", "none"] = "none"
    reason: Reason | None = None


def steady_window(
    users: pd.Series,
    type: TestType = "unbounded",  # noqa: A002 - as in params
    *,
    stop: Stop | None = None,
    proxy: bool = False,
    rate_s: float = SETTLE_S,
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
    rate_s
        Over how many seconds rates were taken: so long after the load's arrival metrics still hold samples from before,
        and a window is none that is shorter than five times this.

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
        return SteadyState(reason=Reason(code=ReasonCode.NO_SAMPLES))
    if type == "unbounded":
        start = max(stop.at_s - WINDOW_S, float(users.index[0]) + rate_s)
        return _checked(start, stop.at_s, "last_30_minutes", shortest(rate_s))
    reached = plateau_start(*samples(users, stop.at_s), proxy=proxy, rate_s=rate_s)
    if reached is None:
        return SteadyState(reason=Reason(code=ReasonCode.NEVER_RISES))
    return _checked(reached + rate_s, stop.at_s, "target_reached", shortest(rate_s))


def shortest(rate_s: float) -> float:
    """The shortest steady window, in seconds, where rates are over `rate_s`."""
    return SHORTEST_S * rate_s / SETTLE_S


def mser_window(curve: pd.Series, *, rate_s: float = SETTLE_S) -> SteadyState:
    """MSER-5 (White 1997, Simulation 69) on a curve: means of 5, cut where the rest has the smallest standard error."""
    elapsed, values = samples(curve)
    batches = values[: values.size // 5 * 5].reshape(-1, 5).mean(axis=1)
    if batches.size < 10:
        return SteadyState(reason=Reason(code=ReasonCode.FEW_SAMPLES))
    rest = pd.Series(batches[::-1]).expanding()
    errors = (rest.var(ddof=0) / rest.count()).to_numpy()[::-1]  # squared standard errors after dropping 0, 1, ...
    cut = int(np.argmin(errors[: batches.size // 2]))
    if cut >= batches.size // 2 - 1:
        return SteadyState(reason=Reason(code=ReasonCode.STILL_MOVES))
    return _checked(float(elapsed[5 * cut]), float(elapsed[-1]), "mser5", shortest(rate_s))


def plateau_start(
    elapsed: FloatArray, values: FloatArray, *, proxy: bool = False, rate_s: float = SETTLE_S
) -> float | None:
    """When a bounded run's load first stood at its plateau; None where it never rises.

    The plateau is what the load was at or above for 6 minutes (six times `rate_s`) in all, whatever it lost later: the
    median of a run that loses agents one by one lies on its ramp. A run that ends as it arrives has no plateau of that
    length; its start is where the last minute's level was reached. A proxy also rises by itself for a while, which is
    no plateau: there the median of the second half must do.
    """
    shortest_s = shortest(rate_s) + rate_s
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


def _checked(
    start: float,
    end: float,
    method: Literal["target_reached", "last_30_minutes", "mser5"],
    shortest_s: float = SHORTEST_S,
) -> SteadyState:
    if end - start < shortest_s:
        return SteadyState(reason=Reason(code=ReasonCode.SHORT, minutes=max(end - start, 0) / 60))
    return SteadyState((start, end), method)
