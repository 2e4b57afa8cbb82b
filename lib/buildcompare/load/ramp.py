"""Measure how the load came up: early bumps, the lasting ramp, and when round numbers of users were reached."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from buildcompare.load.curve import LoadCurve, find_turns, holes, samples
from buildcompare.load.windows import load_curve
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.users import Bump

TURN_STEPS = 8.0  # Actions of a turn that counts: the first number beyond a published plot's coarsest pixel, 56 users
EARLY_PART, DEEP_PART, HALF = 0.15, 0.5, 0.5
"""A peak is early below `EARLY_PART` of the curve's level, or where the curve then falls by `DEEP_PART` of the peak
before it first reaches `HALF` of the level: the ramp had to start again."""
MIDRAMP_STEPS = 10.0  # A curve that climbs at once, and from more than this many steps, was not seen from its start
FOOT = 2.0  # A climb began before the recording if it leaves its foot within this many times what a straight one takes


@dataclass(frozen=True)
class Beginning:
    """How a run began."""

    bumps: tuple[Bump, ...]  # The early ones in their order; heights in the curve's unit
    onset_s: float | None
    """When the lasting ramp starts: the last sample that is within one step of the trough that it climbs from. None
    where the recording starts in mid-ramp, where a hole hides it, or the curve never climbs."""

    @property
    def bump_seconds(self) -> float:
        """Time spent in early bumps, each from the trough before to the trough after."""
        return sum(bump.end_s - bump.start_s for bump in self.bumps)


def bumps(users: pd.Series | LoadCurve) -> Beginning:
    """The early bumps of a run, rises that fall back, and the onset of the lasting ramp after the last of them.

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
        Where the curve shows no load.

    Examples
    --------
    >>> elapsed = np.arange(0.0, 3600.0, 5.0)
    >>> users = np.interp(elapsed, [0, 20, 110, 200, 300, 1800, 3600], [0, 0, 180, 0, 0, 6000, 6000])
    >>> found = bumps(pd.Series(users, index=elapsed))
    >>> [(bump.peak_s, bump.peak_users) for bump in found.bumps], found.onset_s
    ([(110.0, 180.0)], 300.0)
    """
    curve = load_curve(users)
    half = int(np.argmax(curve.values >= HALF * curve.level))
    least = curve.least_fall(TURN_STEPS)
    turns = find_turns(curve.elapsed[: half + 1], curve.values[: half + 1], least)
    turns = [turn for turn in turns if turn.peak - turn.rise_from >= least]
    low = EARLY_PART * curve.level
    early = [i for i, turn in enumerate(turns, start=1) if turn.peak < low or turn.depth >= DEEP_PART * turn.peak]
    turns = turns[: early[-1] if early else 0]
    if _midramp(curve, half) and all(turn.trough >= curve.values[0] for turn in turns):
        return Beginning((), None)
    found = tuple(
        Bump(start_s=t.rise_s, peak_s=t.peak_s, end_s=t.trough_s, peak_users=t.peak, depth_users=t.depth) for t in turns
    )
    return Beginning(found, _onset(curve, half, found[-1].end_s if found else -math.inf))


def _onset(curve: LoadCurve, half: int, after_s: float = -math.inf) -> float | None:
    first = int(np.searchsorted(curve.elapsed, after_s))
    values = curve.values[first : half + 1]
    if values.size < 2:
        return None
    # The climb: from where the curve for the first time stands well above all that came before.
    lowest = np.minimum.accumulate(values)
    climbing = np.flatnonzero(values - lowest >= curve.least_fall(TURN_STEPS))
    if not climbing.size:
        return None
    last = int(climbing[0])
    onset = first + int(np.flatnonzero(values[: last + 1] <= lowest[last] + _near(curve))[-1])
    unseen = holes(curve.elapsed[onset : half + 1])
    low = curve.values[onset:half] < EARLY_PART * curve.level
    return None if (unseen & low).any() else float(curve.elapsed[onset])  # a bump may hide in there


def _midramp(curve: LoadCurve, half: int) -> bool:
    """Whether the curve climbs from its first sample on, and not from near zero."""
    onset_s = _onset(curve, half)
    if not curve.values[0] > MIDRAMP_STEPS * curve.step or onset_s is None:
        return False
    # A straight climb leaves its foot, one step high, after this part of the time that it takes to count.
    least = curve.least_fall(TURN_STEPS)
    risen = np.maximum.accumulate(curve.values) - curve.values[0] >= least
    climb_s = float(curve.elapsed[int(np.argmax(risen))] - curve.elapsed[0])
    return onset_s - float(curve.elapsed[0]) <= FOOT * (climb_s * _near(curve) / least)


def _near(curve: LoadCurve) -> float:
    """What is no higher than this above the trough is at its foot."""
    return max(curve.step, 2.0 * curve.noise)


LAG_S = 45.0  # Between stretches, and after the onset: connections follow the coordinator with a lag of some 12 s
STRAIGHT_STEPS = 3.0  # A stretch grows while no sample is further than this, or than noise, from its least-squares line
PIXEL = 0.003  # Nor is a curve bent by this part of its level: a pixel of a published plot is about 0.3 % of it
TRUSTED_PART, END_STEPS = 0.7, 2.0
"""The line through the first `TRUSTED_PART` of a stretch says where it ends: at the last sample this near to it."""
SHORTEST_STRETCH_S, MAIN_PART = 45.0, 0.35
"""The ramp is the first stretch that climbs at least this part of what the longest climbs: an alert soon after the
onset makes a short stretch, and is not the ramp."""
AFTER_S = 240.0  # A second straight stretch is one that lasts this long: twice the alert queries' minute, up and down
SLOWER = (0.2, 0.8)  # A kink leaves between these parts of the slope: half, or a third, where the coordinator rests


class _Stretch(NamedTuple):
    start_s: float
    end_s: float
    slope: float


@dataclass(frozen=True)
class Ramp:
    """The lasting ramp of one run; elapsed seconds and the curve's unit."""

    start_s: float
    end_s: float  # Of its straight stretch: an alert, a bend, or the recording's end
    slope: float  # Per second
    kink_s: float | None
    """Where the curve leaves the ramp for a second straight stretch, less steep: the coordinator rests between actions
    from the first alert on, which is no defect. None where the curve merely bends."""
    complete: bool  # Whether the ramp is seen to end; False where the recording ends first


def ramp(users: pd.Series | LoadCurve, *, onset_s: float | None = None) -> Ramp | None:
    """The straight part of the lasting ramp: its slope, its end, and a kink in it.

    Parameters
    ----------
    users
        Connected users over elapsed seconds.
    onset_s
        Where the ramp starts; default: the onset that :func:`bumps` finds, or else the first sample.

    Returns
    -------
    Ramp or None
        None where the curve does not climb.

    Raises
    ------
    ValueError
        Where the curve shows no load.

    Examples
    --------
    >>> elapsed = np.arange(0.0, 3600.0, 5.0)
    >>> found = ramp(pd.Series(np.minimum(4.0 * elapsed, 6000.0), index=elapsed))
    >>> round(found.slope, 2), found.end_s, found.complete
    (4.0, 1500.0, True)
    """
    curve = load_curve(users)
    onset_s = bumps(curve).onset_s if onset_s is None else onset_s
    start_s = float(curve.elapsed[0]) if onset_s is None else onset_s + LAG_S
    # A stretch that starts above half is the creep towards the equilibrium.
    until_s = float(curve.elapsed[int(np.argmax(curve.values >= HALF * curve.level))])
    stretches: list[_Stretch] = []
    while (not stretches or start_s < until_s) and (stretch := _stretch(curve, start_s)):
        stretches.append(stretch)
        start_s = stretch.end_s + LAG_S
    rises = [stretch.slope * (stretch.end_s - stretch.start_s) for stretch in stretches]
    most = max(rises, default=0.0)
    if not most > 0:
        return None
    found = next(stretch for stretch, rise in zip(stretches, rises, strict=True) if rise >= MAIN_PART * most)
    # Strictly straight: with a pixel's room, the creep towards the equilibrium would look like a kink.
    after = _stretch(curve, found.end_s + LAG_S, pixel=0.0)
    long = after is not None and after.end_s - after.start_s >= AFTER_S
    kinked = after is not None and long and SLOWER[0] * found.slope <= after.slope <= SLOWER[1] * found.slope
    return Ramp(*found, kink_s=found.end_s if kinked else None, complete=bool(found.end_s < curve.elapsed[-1]))


def _stretch(curve: LoadCurve, start_s: float, *, pixel: float = PIXEL) -> _Stretch | None:
    """The straight stretch from `start_s`; None where less than `SHORTEST_STRETCH_S` is left."""
    elapsed, values = curve.between(start_s, np.inf)
    least = int(np.searchsorted(elapsed, elapsed[0] + SHORTEST_STRETCH_S)) + 1 if elapsed.size else 1
    if least > elapsed.size:
        return None
    end = _grown(elapsed, values, least, max(STRAIGHT_STEPS * curve.step, 5.0 * curve.noise, pixel * curve.level))
    trusted = max(3, int(TRUSTED_PART * end))
    slope, height = np.polyfit(elapsed[:trusted], values[:trusted], 1)
    off = np.abs(values[:end] - (height + slope * elapsed[:end]))
    near = np.flatnonzero(off <= max(END_STEPS * curve.step, 4.0 * curve.noise))
    last = max(int(near[-1]) + 1 if near.size else 0, min(least, end))
    slope, _ = np.polyfit(elapsed[:last], values[:last], 1)
    return _Stretch(float(elapsed[0]), float(elapsed[last - 1]), float(slope))


def _grown(elapsed: FloatArray, values: FloatArray, least: int, allowed: float) -> int:
    """How many samples from the first on are straight (at least `least`): doubling, then bisection."""

    def straight(size: int) -> bool:
        x, y = elapsed[:size] - elapsed[:size].mean(), values[:size] - values[:size].mean()
        return float(np.abs(y - x * (x @ y) / (x @ x)).max()) <= allowed

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


def round_marks(plateaus: list[float], levels: int = 5) -> list[int]:
    """About `levels` round numbers of users that every curve with one of these plateaus should reach."""
    lowest = min(plateaus, default=0.0)
    if not lowest > levels:
        return []
    magnitude = 10.0 ** math.floor(math.log10(lowest / levels))
    step = max(int(next(nice * magnitude for nice in (1, 2, 5, 10) if nice * magnitude >= lowest / levels)), 1)
    return list(range(step, int(lowest) + 1, step))


def time_to_users(users: pd.Series, marks: list[int]) -> dict[int, float | None]:
    """Elapsed seconds at which `users` first reached each mark; None where it never did, or nobody saw when."""
    elapsed, values = samples(users)
    unseen = holes(elapsed)
    reached: dict[int, float | None] = {}
    for mark in marks:
        above = np.flatnonzero(values >= mark)
        # Already there at the first sample, or after a hole: nobody saw when.
        seen = above.size and above[0] > 0 and not unseen[above[0] - 1]
        reached[mark] = float(elapsed[above[0]]) if seen else None
    return reached
