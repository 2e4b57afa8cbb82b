"""Prepare a load curve, and find its peaks and troughs, its sudden losses of users, its stop, and its steady window.

Constants without a stated source are round numbers. The numbers separate faulty from sound simulated runs
(tests/validity), and detect the known faults of published runs without false alarms (`benchmarks/validity.py`).
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildcompare.recordings.recording import FloatArray
from buildcompare.results.base import Length, Reason
from buildcompare.results.codes import ReasonCode, TestType
from buildcompare.stats.changepoints import robust_sd
from buildcompare.stats.levels import LARGEST, MINUTE_S

WINDOW_S, STOP_STEPS = 1800.0, 0.025
"""Stop rule of mattermost-load-test-ng: a run stops once the least-squares slope of active users in the last `WINDOW_S`
seconds is below 0.2 users/s (`STOP_STEPS` times 8 users per second). A run does not stop within `WINDOW_S` seconds of
its first alert. The tool reports the mean over the last `WINDOW_S` seconds as supported users."""
TOLERANCE = 2.0
"""Maximum slope of a curve at its plateau, divided by the slope at which the load-test tool stops a run. Complete
curves of connected users in published tests (the half used for tuning) end at a ratio of up to 1.35."""
USERS_INC = 8.0  # users that mattermost-load-test-ng adds or removes in one step
FASTEST_FALL = 4.0  # maximum number of users that the coordinator removes per second: 8 every 2 s
ROUNDING = 1.5  # factor on the coordinator's rate, to allow for sampling and rounding
HOLE_S = 90.0  # every early bump lasts longer than this, so only a longer gap between samples can hide a bump


def samples(curve: pd.Series, until_s: float = math.inf) -> tuple[FloatArray, FloatArray]:
    """Elapsed seconds and values of the finite samples up to `until_s`, shape (n,) each."""
    elapsed, values = curve.index.to_numpy(dtype=np.float64), curve.to_numpy(dtype=np.float64)
    keep = np.isfinite(values) & (elapsed <= until_s)
    return elapsed[keep], values[keep]


def holes(elapsed: FloatArray) -> npt.NDArray[np.bool_]:
    """Mark each interval between samples that exceeds both `HOLE_S` and 3 times the median interval; shape (n - 1,)."""
    apart = np.diff(elapsed)
    return np.asarray(apart > max(HOLE_S, 3.0 * float(np.median(apart))) if apart.size else apart > 0.0, dtype=np.bool_)


PROXY_STEP = 1.2e-3  # size of one step (8 users) as a fraction of a proxy's level, which stands for 6000 to 8000 users
SMALLEST = 10.0  # minimum level of a curve under load, divided by the size of a step: 80 users
NOISE_UP_TO_S = 20.0  # maximum sample distance in seconds for estimating noise; with larger distances, `noise` is 0
SIGNAL = 30.0  # minimum level of a curve under load, as a multiple of the noise's SD; published curves have 87 or more


@dataclass(frozen=True)
class LoadCurve:
    """A cleaned curve of users, or of a metric that stands in for them; levels on it are in the unit of `values`."""

    elapsed: FloatArray
    values: FloatArray  # finite samples under load, outside of resets; `elapsed` and `values` have shape (n,)
    sample_s: float  # median distance of samples in seconds
    step: float  # what the load-test tool adds or removes in one step (8 users), in the curve's unit
    noise: float  # standard deviation of a sample's noise
    level: float  # 98 % quantile of the values, so that single high samples do not count
    resets: tuple[tuple[float, float], ...]  # start and end of each loss of most users with a fast recovery

    def between(self, start_s: float, end_s: float) -> tuple[FloatArray, FloatArray]:
        """Elapsed seconds and values from `start_s` to `end_s`, both included."""
        inside = (self.elapsed >= start_s) & (self.elapsed <= end_s)
        return self.elapsed[inside], self.values[inside]

    @property
    def foot(self) -> float:
        """Height above a trough's minimum up to which samples belong to the trough, in the unit of `values`."""
        return max(self.step, 2.0 * self.noise)

    def least_fall(self, steps: float) -> float:
        """Minimum size of a fall, in the unit of `values`: `steps` times `step`, but at least 6 SDs of the noise."""
        return max(steps * self.step, 6.0 * self.noise)


def prepare_load(
    curve: pd.Series, stop_s: float, *, step: float = USERS_INC, proxy: bool = False, per_user: float | None = None
) -> LoadCurve | None:
    """Prepare `curve` (values over elapsed seconds) up to `stop_s`; None if it shows no load.

    A `proxy` is a metric that grows with the users; its minimum (idle) is subtracted. The load test adds `step` users
    at a time. A user adds `per_user` to a proxy. Without `per_user`, `step` users add `PROXY_STEP` * the proxy's level.
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
    # The second difference of white noise has sqrt(6) times the standard deviation of the noise.
    noise = robust_sd(second) / math.sqrt(6.0) if second.size else 0.0
    return LoadCurve(elapsed, values, sample_s, step, noise, level, resets) if level > SIGNAL * noise else None


def load_curve(users: pd.Series | LoadCurve) -> LoadCurve:
    """Cut a curve of users where the load stops, and measure its level, noise and restarts.

    Parameters
    ----------
    users
        Connected users over elapsed seconds; a `LoadCurve` is returned unchanged.

    Returns
    -------
    LoadCurve
        Samples under load, `sample_s`, `step` (users added at a time), `noise`, `level` and `resets` (restarts).

    Raises
    ------
    ValueError
        If the curve shows no load.

    Examples
    --------
    >>> elapsed = np.arange(0.0, 3600.0, 5.0)
    >>> curve = load_curve(pd.Series(np.minimum(4.0 * elapsed, 6000.0), index=elapsed))
    >>> curve.sample_s, curve.step, curve.level
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


RECOVERED = 0.9  # minimum number of users that are connected after a restart, as a fraction of the users before it


def _resets(elapsed: FloatArray, values: FloatArray, step: float) -> tuple[tuple[float, float], ...]:
    """Start and end (s) of restarts with fast recovery; the load test changes the load by at most `step` per second."""
    resets = []
    for fall in find_falls(pd.Series(values, elapsed), fastest_fall=step, smooth=False):
        low = int(np.argmax((elapsed > fall.at_s) & (values < HARDLY_ANY * fall.before)))
        again = np.flatnonzero((values >= RECOVERED * fall.before) & (elapsed <= fall.at_s + LOW_S))
        if fall.kind == "restart" and again.size and again[-1] > low:
            end = int(again[np.searchsorted(again, low)])
            # A reset (fast restart) lasts while users reconnect faster than the coordinator adds them.
            while end + 1 < values.size and np.diff(values)[end] > ROUNDING * step * np.diff(elapsed)[end]:
                end += 1
            resets.append((fall.at_s, float(elapsed[end])))
    return tuple(resets)


class Turn(NamedTuple):
    """A fall from a peak to a trough, and the rise to the peak from the previous trough (or the first sample)."""

    rise_s: float
    rise_from: float
    peak_s: float
    peak: float
    trough_s: float
    trough: float

    @property
    def depth(self) -> float:
        """Height from peak to trough."""
        return self.peak - self.trough


def find_turns(elapsed: FloatArray, values: FloatArray, least: float) -> list[Turn]:
    """Find all falls of at least `least`, separated by rises of at least `least`; samples are finite, shape (n,)."""
    turns: list[Turn] = []
    if not elapsed.size:
        return turns
    points = [*zip(elapsed.tolist(), values.tolist(), strict=True)]
    start = low = high = points[0]
    falling = False
    for now in points:
        if falling and now[1] < low[1]:
            low = now
        elif falling and now[1] - low[1] >= least:
            turns.append(Turn(*start, *high, *low))
            start, high, falling = low, now, False
        elif not falling and now[1] > high[1]:
            high = now
        elif not falling and high[1] - now[1] >= least:
            low, falling = now, True
    if falling:
        turns.append(Turn(*start, *high, *low))
    return turns


class Fall(NamedTuple):
    """A loss of users that is faster than the coordinator removes them, because an agent or the server failed."""

    kind: Literal["lost", "restart"]  # `restart`: most users were lost and later returned; otherwise `lost`
    at_s: float  # elapsed seconds of the last sample before the fall
    before: float  # users at `at_s`
    after: float  # lowest number of users in the `LOW_S` seconds from `at_s` on
    back_s: float | None  # elapsed seconds when the lost users had returned; None if they never did


AT_ONCE_S = 30.0  # maximum duration of a sudden loss: connections of a lost agent time out within half a minute
HARDLY_ANY = 0.5  # restarts, interruptions and long shutdowns leave less than this fraction of the users
HELD = 0.97  # a load below this fraction of the highest lasting load has lost users (0.95 if 1 of 20 agents fails)
IDLE = 0.1  # a load below this fraction of its peak counts as none; idle servers keep 0.003 to 0.14 of their goroutines
LOW_S = 300.0  # maximum seconds from a fall to its lowest point, and to the return of users in a reset (fast restart)


def find_falls(
    load: pd.Series, stop_s: float = math.inf, *, fastest_fall: float = FASTEST_FALL, hardly_any: float = HARDLY_ANY,
    smooth: bool = True,
) -> tuple[Fall, ...]:  # fmt: skip
    """Find the falls of `load` (users or a proxy, over elapsed seconds) before `stop_s`, in order of time.

    The load test removes at most `fastest_fall` users per second (0 in bounded tests). A fall is faster. In a restart,
    users drop below `hardly_any` and return to `RECOVERED` times the users before. `smooth` ignores single low samples.
    """
    elapsed, users = samples(load, stop_s)
    if users.size < 3:
        return ()
    if smooth:
        users[1:-1] = np.median(np.stack([users[:-2], users[1:-1], users[2:]]), axis=0)
    allowed, losses = np.zeros(users.size), np.zeros(users.size, dtype=np.bool_)
    for within_s in (AT_ONCE_S, AT_ONCE_S / 3.0) if smooth and fastest_fall else (AT_ONCE_S,):
        later = np.searchsorted(elapsed, elapsed + within_s, "right") - 1
        later = np.minimum(np.maximum(later, np.arange(users.size) + 1), users.size - 1)
        allowed = np.where(losses, allowed, ROUNDING * fastest_fall * (elapsed[later] - elapsed) + (1.0 - HELD) * users)
        losses |= users - users[later] > allowed
    allowed_step, step_s = ROUNDING * fastest_fall * np.diff(elapsed), float(np.median(np.diff(elapsed)))
    high = (users > 0.0) & (users >= IDLE * float(np.quantile(users, 0.95)))
    falls: list[Fall] = []
    searched_s = -1.0
    for first in np.flatnonzero(losses & high):
        if elapsed[first] < searched_s:
            continue
        end = int(np.searchsorted(elapsed, elapsed[first] + AT_ONCE_S, "right"))
        start = steepest = first + int(np.argmax(-np.diff(users[first : end + 1])))
        # The fall includes earlier samples that drop faster than the coordinator removes users.
        while start > 0 and users[start - 1] - users[start] > max(0.02 * allowed[first], allowed_step[start - 1]):
            start -= 1
        before, since = float(users[start]), max(elapsed[start] + AT_ONCE_S, elapsed[steepest])
        # The loss must last a minute. With `fastest_fall`, half a minute is enough; users added since are subtracted.
        after = (elapsed[steepest], max(AT_ONCE_S, 2.0 * step_s), 0.75) if fastest_fall else (since, MINUTE_S, 0.5)
        ago = int(np.searchsorted(elapsed, elapsed[start] - MINUTE_S - step_s))
        rise = (users[start] - users[ago]) / max(elapsed[start] - elapsed[ago], step_s)
        soon = (elapsed > after[0]) & (elapsed <= after[0] + after[1])
        soon = users[soon] - min(max(rise, 0.0), fastest_fall) * (elapsed[soon] - elapsed[steepest])
        remaining = float(np.quantile(soon, after[2])) if soon.size else float(users[-1])
        last = int(np.searchsorted(elapsed, elapsed[start] + LOW_S, "right"))
        low_at = start + 1 + int(np.argmin(users[start + 1 : max(last, start + 2)]))
        lowest = float(users[low_at])
        emptied = lowest < hardly_any * before
        if before - remaining <= 0.5 * allowed[first] and not emptied:
            continue
        since = max(since, elapsed[low_at]) if emptied else since
        again = np.flatnonzero((elapsed > since) & (users >= (RECOVERED if emptied else HELD) * before))
        back_s = float(elapsed[again[0]]) if again.size else None
        restart = emptied and back_s is not None
        falls.append(Fall("restart" if restart else "lost", float(elapsed[start]), before, lowest, back_s))
        searched_s = max(falls[-1].at_s + (LOW_S if smooth else 0.0), (back_s or 0.0) if restart else 0.0)
    return tuple(falls)


STILL_UP = 0.95  # share of the level above which a curve is still under load
LONGEST_TAIL_S = 180.0  # a longer shutdown must end below `HARDLY_ANY` of the load; published shutdowns take 20 to 85 s
STEP_NOISE = 0.01  # a shutdown starts with a fall by more than this share of the level


@dataclass(frozen=True)
class Stop:
    """End of the load, in elapsed seconds."""

    at_s: float  # last sample under load
    end_s: float  # last finite sample
    shutdown: bool  # True if the curve shows that the agents shut down between `at_s` and `end_s`


def find_stop(load: pd.Series, *, fastest_fall: float | None = FASTEST_FALL) -> Stop | None:
    """Find where the load stops at the end of a curve; None without a finite sample.

    A shutdown is a final fall: users leave faster than the load test removes them, and do not return. The load test
    removes up to `fastest_fall` users per second; None if the curve is not in users. A fall after which many users stay
    for a long time is no shutdown. Without a shutdown, the stop is the last sample.
    """
    elapsed, values = samples(load)
    if not values.size:
        return None
    end_s = float(elapsed[-1])
    none = Stop(end_s, end_s, shutdown=False)
    values = values * min(LARGEST / max(float(np.abs(values).max()), 1.0), 1.0)
    high = float(np.quantile(values, 0.99))
    up = elapsed[np.flatnonzero(values >= 0.5 * high)[-1]] if high > 0 else end_s  # last sample clearly under load
    level = float(np.median(values[(elapsed <= up) & (elapsed > up - WINDOW_S)]))
    if not (high > 0 and level > 0):
        return none

    def allowed(seconds: FloatArray) -> FloatArray:  # largest fall of a curve under load
        return np.maximum(STEP_NOISE * level, ROUNDING * (fastest_fall or 0.0) * seconds)

    cut = int(np.flatnonzero(values >= STILL_UP * level)[-1])
    # Users may first leave a few at a time; the shutdown starts where this slow decline becomes steep.
    ahead = np.minimum(np.searchsorted(elapsed, elapsed[cut:] + MINUTE_S), values.size - 1)
    steep = np.flatnonzero(values[cut:] - values[ahead] > allowed(elapsed[ahead] - elapsed[cut:]))
    if steep.size and steep[0] > 0:
        first, last = cut + int(steep[0]), int(ahead[steep[0]])
        cut = first + int(np.argmax(np.diff(values[first : last + 1]) < -allowed(np.diff(elapsed[first : last + 1]))))
    while cut > 0 and values[cut - 1] - values[cut] > allowed(elapsed[cut] - elapsed[cut - 1]):
        cut -= 1
    tail = values[cut + 1 :]
    short = end_s - elapsed[cut] <= LONGEST_TAIL_S
    if tail.size == 0 or not (short or tail.min() < HARDLY_ANY * level):
        return none
    return Stop(float(elapsed[cut]), end_s, shutdown=True)


KEPT, STILL = 0.5, 0.1
"""After a fall, rates >= `STILL` * level still are load, but not if their last third is < `KEPT` * the first third."""


def rate_stop(rate: pd.Series) -> Stop | None:
    """Find where the load stops on a curve of requests; a server that answers fewer requests is still under load."""
    stop = find_stop(rate, fastest_fall=None)
    if stop is None or not stop.shutdown:
        return stop
    elapsed, values = samples(rate)
    smooth, after = pd.Series(values).rolling(5, center=True, min_periods=1).mean(), elapsed > stop.at_s
    still = np.flatnonzero(after & (smooth.to_numpy() >= STILL * np.median(values[~after])))
    first, last = (float(np.median(values[part])) if part.size else 0.0 for part in np.array_split(still, 3)[::2])
    sparse = still.size <= max(3.0, (still[-1] - int(after.argmax())) / 2.0) if still.size else True
    if sparse or last < KEPT * first:  # few samples after the fall show load, or their rates keep falling
        return stop
    return replace(stop, at_s=float(elapsed[still[-1]]))


PLATEAU = 0.98  # the plateau starts where the load reaches this share of the plateau's level
SHORTEST_S = 300.0  # minimum length of a steady window: five independent samples of a one-minute rate
REPEATED_S, REPEATED_SAMPLES = 30.0, 30
"""Minimum steady window of repeated runs: 30 seconds or 30 samples, whichever is shorter."""

Method = Literal["target_reached", "last_30_minutes", "mser5", "none"]


@dataclass(frozen=True)
class SteadyState:
    """Steady window of one run in elapsed seconds, or the reason why it has none."""

    window: tuple[float, float] | None = None
    method: Method = "none"
    reason: Reason | None = None
    shown: tuple[float, float] | None = None
    """Window whose levels are shown but not judged, because it is too short; None if there is no such window."""


def steady_window(
    users: pd.Series,
    type: TestType = "unbounded",  # noqa: A002 - as in params
    *,
    stop: Stop | None = None,
    proxy: bool = False,
    rate_s: float = MINUTE_S,
    repeated: bool = False,
) -> SteadyState:
    """Find the window of steady load over which a run may be compared.

    A bounded test's window lasts from `rate_s` seconds after the start of the plateau to the stop. An unbounded test's
    window is the last 30 minutes before the stop, over which the load-test tool averages the supported users.

    Parameters
    ----------
    users
        Connected users over elapsed seconds, NaN for missing samples; with `proxy` a curve that follows them, such as
        goroutines.
    type
        ``bounded`` for a fixed number of users, ``unbounded`` for users added until the server is at its limit.
    stop
        End of the load; default: :func:`find_stop`.
    rate_s
        Seconds over which rates are taken. A bounded run's window starts this long after the plateau starts. The
        minimum window is five times as long.
    repeated
        True if both builds have several runs. The minimum bounded window is then at most 30 s, and at most 30 samples.

    Returns
    -------
    SteadyState
        `window` as (start, end) in elapsed seconds, or None with a `reason`; `method` is the rule that set the window.

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
        since = float(users.index[0])
        start = max(stop.at_s - WINDOW_S, since + rate_s)
        return _steady(start, stop.at_s, "last_30_minutes", shortest(rate_s), rate_s, since=since)
    reached = plateau_start(*samples(users, stop.at_s), proxy=proxy, rate_s=rate_s)
    if reached is None:
        return SteadyState(reason=Reason(code=ReasonCode.NEVER_RISES))
    least_s = shortest(rate_s, users if repeated else None)
    return _steady(reached + rate_s, stop.at_s, "target_reached", least_s, rate_s, since=reached)


def shortest(rate_s: float, repeated: pd.Series | None = None) -> float:
    """Minimum steady window in seconds for rates taken over `rate_s`; `repeated` is the curve of a repeated run."""
    least_s = SHORTEST_S * rate_s / MINUTE_S
    if repeated is None or len(repeated) < 2:
        return least_s
    return min(least_s, REPEATED_S, REPEATED_SAMPLES * float(np.median(np.diff(repeated.index))))


def mser_window(curve: pd.Series, *, rate_s: float = MINUTE_S, repeated: bool = False) -> SteadyState:
    """Find a steady window by MSER-5 (White 1997, Simulation 69): omit batches of 5 samples at the start of a run.

    The omission minimises the standard error of the rest. With `repeated`, runs below 50 samples are kept whole.
    """
    elapsed, values = samples(curve)
    batches = values[: values.size // 5 * 5].reshape(-1, 5).mean(axis=1)
    least_s = shortest(rate_s, curve if repeated else None)
    if batches.size < 10 and repeated and values.size > 1:
        return _steady(float(elapsed[0]), float(elapsed[-1]), "mser5", least_s, rate_s)
    if batches.size < 10:
        return SteadyState(reason=Reason(code=ReasonCode.FEW_SAMPLES))
    rest = pd.Series(batches[::-1]).expanding()
    errors = (rest.var(ddof=0) / rest.count()).to_numpy()[::-1]  # entry k: squared error without the first k batches
    cut = int(np.argmin(errors[: batches.size // 2]))
    if cut >= batches.size // 2 - 1:
        return SteadyState(reason=Reason(code=ReasonCode.STILL_MOVES))
    return _steady(float(elapsed[5 * cut]), float(elapsed[-1]), "mser5", least_s, rate_s)


def plateau_start(
    elapsed: FloatArray, values: FloatArray, *, proxy: bool = False, rate_s: float = MINUTE_S
) -> float | None:
    """Elapsed seconds at which a bounded run first reached its plateau; None if the load never rises.

    The plateau is the highest load that was held for 6 * `rate_s` seconds in total, or for half of a short run.
    Unlike a median, this load does not fall if agents are lost one by one. If the level of the last minute is higher
    and was first reached in the last 6 * `rate_s` seconds, this level is the plateau. A proxy may keep rising by
    itself, so the plateau of a proxy is the median of the second half.
    """
    shortest_s = shortest(rate_s) + rate_s
    half_s = 0.5 * float(np.ptp(elapsed)) if elapsed.size else 0.0
    level = sustained(elapsed, values, min(shortest_s, half_s))
    if not level > 0:
        return None
    if proxy:
        level = float(np.median(values[elapsed >= elapsed[-1] / 2]))
    arrived = float(np.median(values[elapsed >= elapsed[-1] - MINUTE_S]))
    if elapsed[int(np.argmax(values >= PLATEAU * arrived))] > elapsed[-1] - shortest_s:
        level = max(level, arrived)
    return float(elapsed[int(np.argmax(values >= PLATEAU * level))])


def sustained(elapsed: FloatArray, values: FloatArray, seconds: float) -> float:
    """Highest load held for `seconds` in total; the lowest load if the run is shorter; 0 without two samples."""
    if values.size < 2:
        return 0.0
    count = max(round(seconds / float(np.median(np.diff(elapsed)))), 1)
    return float(np.sort(values)[-min(count, values.size)])


def _steady(
    start: float, end: float, method: Method, least_s: float, rate_s: float, *, since: float | None = None
) -> SteadyState:
    """Return the window; if shorter than `least_s` seconds, return a reason and a window that is not judged."""
    if end - start >= least_s:
        return SteadyState((start, end), method)
    since = start if since is None else since
    is_repeated = least_s < shortest(rate_s)
    fits = math.floor(max((end - since) / (1.0 + SHORTEST_S / MINUTE_S), end - since - least_s if is_repeated else 0.0))
    length = Length(run_s=end, needed_s=start + least_s, rate_s=fits if 0 < fits < rate_s else None)
    return SteadyState(
        reason=Reason(code=ReasonCode.SHORT, minutes=max(end - start, 0) / 60, length=length),
        shown=(since + min(start - since, 0.5 * (end - since)), end) if end > since else None,
    )
