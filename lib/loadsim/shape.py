"""The true shape of a simulated run (early bumps, ramp, waves), from the coordinator's actions and alerts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from buildcompare.recordings.recording import FloatArray
from loadsim.run import Truth

BUMP_STEPS, WAVE_STEPS, CYCLE_STEPS = 8, 5, 2
"""Fall of connected users, in coordinator steps, that makes an early bump, a wave, and a cycle of the waves."""
EARLY_PART, DEEP_PART, UNTIL_PART = 0.15, 0.5, 0.5
"""A bump is early if its peak is below `EARLY_PART` of the level, or if it comes before the curve first reaches
`UNTIL_PART` of the level and falls by `DEEP_PART` of its peak."""
ROW_S = 600.0
"""Longest time between the starts of two falls in a row."""
PAUSE_S = 1200.0
"""Falls in a row are not yet the waves if the pause after them is longer than this and longer than the row."""

Turn = tuple[int, int, int]
"""Seconds of the trough before a peak, of the peak, and of the trough after it."""


@dataclass(frozen=True)
class ShapeTruth:
    """True shape of a run, in seconds since its start and users.

    Attributes
    ----------
    early_bumps
        Number of rises that fell back before the lasting ramp.
    onset_s
        Last second near the trough from which the lasting ramp climbs.
    first_alert_s, slopes
        First alert of the run, and the users per second that the coordinator adds before and after it
        while no query alerts.
    wave_onset_s
        Start of the first of three or more falls in a row after the onset, not followed by a long pause.
    wave_period_s, wave_amplitude_users
        Median time from peak to peak (of all cycles) and median fall (of waves) after the wave onset.
    connected
        Connected users at each second, without noise, shape (n,).
    """

    early_bumps: int
    onset_s: float
    first_alert_s: float
    slopes: tuple[float, float]
    wave_onset_s: float | None
    wave_period_s: float | None
    wave_amplitude_users: float | None
    connected: FloatArray

    def slope_at(self, at_s: float) -> float:
        """Users per second that the coordinator adds at `at_s` while no query alerts."""
        return self.slopes[at_s > self.first_alert_s]


def shape_truth(truth: Truth) -> ShapeTruth:
    """Shape of a run without lost agents and restarts."""
    rule = truth.settings.coordinator
    active, connected = _replayed(truth)
    level = float(np.quantile(connected, 0.98))
    half = int(np.argmax(connected >= UNTIL_PART * level))
    turns = _turns(connected[: half + 1].tolist(), BUMP_STEPS * rule.users_dec)
    early = [
        i
        for i, (_, peak, trough) in enumerate(turns)
        if connected[peak] < EARLY_PART * level or connected[peak] - connected[trough] >= DEEP_PART * connected[peak]
    ]
    bumps = turns[: early[-1] + 1] if early else []
    first = bumps[-1][1] if bumps else 0
    onset = first + _last_at_trough(active[first : half + 1], rule.users_inc)
    waves = _waves(connected, onset, WAVE_STEPS * rule.users_dec)
    start = waves[0][1] if waves else 0
    cycles = _turns(connected[start:].tolist(), CYCLE_STEPS * rule.users_dec) if waves else []
    falls = [connected[peak] - connected[trough] for _, peak, trough in waves]
    return ShapeTruth(
        early_bumps=len(bumps),
        onset_s=float(onset),
        first_alert_s=math.inf if truth.first_alert_s is None else truth.first_alert_s,
        slopes=_slopes(truth),
        wave_onset_s=float(start) if waves else None,
        wave_period_s=float(np.median(np.diff([peak for _, peak, _ in cycles]))) if len(cycles) > 3 else None,
        wave_amplitude_users=float(np.median(falls)) if waves else None,
        connected=connected,
    )


def _replayed(truth: Truth) -> tuple[FloatArray, FloatArray]:
    """Active and connected users at each second until the test was over."""
    seconds = np.arange(math.floor(truth.decided_s) + 1)
    times = np.array([0.0, *(at_s for at_s, _ in truth.actions)])
    counts = np.cumsum([0.0, *(change for _, change in truth.actions)])
    active = counts[np.searchsorted(times, seconds, side="right") - 1]
    connected, now = [], 0.0
    for wanted in active.tolist():
        connected.append(now)
        now += (wanted - now) / max(1.0, truth.settings.server.connect_s)
    return active, np.array(connected)


def _slopes(truth: Truth) -> tuple[float, float]:
    """Users per second before the first alert, where every pass adds users, and after it, with rests."""
    rule = truth.settings.coordinator
    passes = math.floor(rule.rest_s / rule.evaluate_every_s) + 1
    return rule.users_inc / rule.evaluate_every_s, rule.users_inc / (passes * rule.evaluate_every_s)


def _last_at_trough(users: FloatArray, step: int) -> int:
    """The last second within a step of the trough from which `users` climb."""
    lowest = np.minimum.accumulate(users)
    climbing = np.flatnonzero(users - lowest >= BUMP_STEPS * step)
    last = int(climbing[0]) if climbing.size else users.size - 1
    return int(np.flatnonzero(users[: last + 1] <= lowest[last] + step)[-1])


def _turns(users: list[float], least: float) -> list[Turn]:
    """Rises by `least` or more, each followed by a fall by `least` or more."""
    turns: list[Turn] = []
    start = low = high = 0
    falling = False
    for i, now in enumerate(users):
        if falling:
            low = i if now < users[low] else low
            if now - users[low] >= least:
                turns.append((start, high, low))
                start, high, falling = low, i, False
        else:
            high = i if now > users[high] else high
            if users[high] - now >= least:
                low, falling = i, True
    return [*turns, (start, high, low)] if falling else turns


def _waves(connected: FloatArray, onset: int, least: float) -> list[Turn]:
    turns = [(a + onset, b + onset, c + onset) for a, b, c in _turns(connected[onset:].tolist(), least)]
    peaks = np.array([peak for _, peak, _ in turns])
    rows = np.split(np.arange(peaks.size), np.flatnonzero(np.diff(peaks) > ROW_S) + 1)
    for row, later in zip(rows, [*rows[1:], None], strict=True):
        if row.size < 3:
            continue
        ended = turns[row[-1]][2]
        if later is None or peaks[later[0]] - ended <= max(ended - peaks[row[0]], PAUSE_S):
            return turns[row[0] :]
    return []


def shift_truth(base: ShapeTruth, new: ShapeTruth) -> float | None:
    """Median difference of connected users, new minus base, from the later onset to the first wave of either."""
    waves = [shape.wave_onset_s for shape in (base, new) if shape.wave_onset_s is not None]
    start, end = max(base.onset_s, new.onset_s), min(waves, default=math.inf)
    size = min(base.connected.size, new.connected.size, end + 1)
    if size <= start:
        return None
    return float(np.median((new.connected[: int(size)][int(start) :]) - base.connected[: int(size)][int(start) :]))
