"""What of a load curve may be measured? The finite samples up to the stop, its scale, its noise and its resets."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildcompare.recordings.recording import FloatArray

GAUSSIAN_MAD = 1.4826
"""Standard deviation over median absolute deviation of a normal distribution."""
SECOND_DIFFERENCE = math.sqrt(6.0)
"""Standard deviation of the second difference of white noise over that of the noise."""


HOLE_S = 90.0
"""A longer silence may hide an early bump: no alert is heard in the first minute, and what came up has to go down."""


def holes(elapsed: FloatArray) -> npt.NDArray[np.bool_]:
    """After which samples there is a hole: longer than `HOLE_S`, and than two missing samples; shape (n - 1,)."""
    apart = np.diff(elapsed)
    return np.asarray(apart > max(HOLE_S, 3.0 * float(np.median(apart))) if apart.size else apart > 0.0, dtype=np.bool_)


@dataclass(frozen=True)
class LoadCurve:
    """A curve of users, or of something that follows them, ready to be measured.

    Attributes
    ----------
    elapsed, values
        Finite samples under load, without those of a reset; elapsed seconds and the curve's unit, shape (n,) each.
    sample_s
        The usual distance of two samples, in seconds.
    step
        What one action of the coordinator adds or takes, in the curve's unit.
    noise
        Standard deviation of a sample's own noise, in the curve's unit.
    level
        What the curve reaches (its 98 % quantile: single samples do not count).
    resets
        (start, end) in elapsed seconds of each collapse that no coordinator orders, such as a server's restart.
    """

    elapsed: FloatArray
    values: FloatArray
    sample_s: float
    step: float
    noise: float
    level: float
    resets: tuple[tuple[float, float], ...]

    def between(self, start_s: float, end_s: float) -> tuple[FloatArray, FloatArray]:
        """Elapsed seconds and values from `start_s` to `end_s`, both included."""
        inside = (self.elapsed >= start_s) & (self.elapsed <= end_s)
        return self.elapsed[inside], self.values[inside]

    def fall(self, steps: float, noises: float = 6.0) -> float:
        """The smallest fall that is more than `steps` actions and than noise: from peak to peak some 6 deviations."""
        return max(steps * self.step, noises * self.noise)


@dataclass(frozen=True)
class PrepareLoad:
    """Make a :class:`LoadCurve` of samples over elapsed seconds.

    Parameters
    ----------
    step
        Users per action of the coordinator (mattermost-load-test-ng: 8).
    proxy_step
        The same as a part of the level, for a curve whose scale is unknown: 8 users of 6000 to 8000.
    smallest
        A curve that never exceeds this many steps shows no load.
    """

    step: float = 8.0
    proxy_step: float = 1.2e-3
    smallest: float = 10.0
    collapse: float = 0.5
    """A reset leaves less than this part of the users ..."""
    collapse_s: float = 30.0
    """... within this time, or from one sample to the next, ..."""
    own_pace: float = 1.5
    """... and somewhere in it by more than this many steps per second. The coordinator looks at its alerts once a
    second, so that one step is its fastest; half as much again is left for sampling and rounding, as for the stop."""
    collapse_level: float = 0.1
    """A reset takes away at least this part of the level: among fewer users a single step is a large part."""
    recovered: float = 0.9
    """A reset is over when this part of the users before it is back ..."""
    recovery_s: float = 300.0
    """... within this time; else the run went on from where it had fallen to."""

    noise_up_to_s: float = 20.0
    """With samples further apart, differences are the waves' and not noise; the curve counts as exact then."""
    signal: float = 30.0
    """A curve below this many deviations of its noise is nothing but noise around a constant load."""

    def __call__(
        self, curve: pd.Series, stop_s: float, *, proxy: bool = False, per_user: float | None = None
    ) -> LoadCurve | None:
        """Prepare `curve` (values over elapsed seconds) up to `stop_s`; None where it shows no load.

        Parameters
        ----------
        proxy
            Whether the curve only follows the users: its idle level is then taken off.
        per_user
            What a user adds to a proxy, where it is known (goroutines: about 3); else the step is a part of the level.
        """
        elapsed, values = curve.index.to_numpy(dtype=np.float64), curve.to_numpy(dtype=np.float64)
        keep = np.isfinite(values) & (elapsed <= stop_s)
        elapsed, values = elapsed[keep], values[keep]
        if elapsed.size < 3:
            return None
        if proxy:
            values = values - values.min()
        level = float(np.quantile(values, 0.98))
        step = self.step if not proxy else self.proxy_step * level if per_user is None else self.step * per_user
        if not level > self.smallest * step:
            return None
        resets = self._resets(elapsed, values, level, step)
        for start, end in resets:
            inside = (elapsed > start) & (elapsed < end)
            elapsed, values = elapsed[~inside], values[~inside]
        sample_s = float(np.median(np.diff(elapsed)))
        noise = self._noise(values) if sample_s <= self.noise_up_to_s else 0.0
        if not level > self.signal * noise:
            return None
        return LoadCurve(elapsed, values, sample_s, step, noise, level, resets)

    def _noise(self, values: FloatArray) -> float:
        second = np.diff(values, 2)
        return GAUSSIAN_MAD * float(np.median(np.abs(second))) / SECOND_DIFFERENCE if second.size else 0.0

    def _resets(
        self, elapsed: FloatArray, values: FloatArray, level: float, step: float
    ) -> tuple[tuple[float, float], ...]:
        found: list[tuple[float, float]] = []
        later = np.searchsorted(elapsed, elapsed + self.collapse_s, side="right") - 1
        later = np.minimum(np.maximum(later, np.arange(values.size) + 1), values.size - 1)
        own = self.own_pace * step * np.diff(elapsed)
        sudden = np.concatenate(([0], np.cumsum(np.diff(values) < -own)))
        high = (values >= self.collapse_level * level) & (sudden[later] > sudden)
        candidates = np.flatnonzero(high & (values[later] < self.collapse * values))
        for i in candidates:
            if found and elapsed[i] < found[-1][1]:
                continue
            # The collapse starts at the last sample that still holds what was there before.
            start = i + int(np.flatnonzero(values[i : later[i] + 1] >= self.recovered * values[i])[-1])
            window = (elapsed > elapsed[start]) & (elapsed <= elapsed[start] + self.recovery_s)
            back = np.flatnonzero(window & (values >= self.recovered * values[start]))
            if back.size:
                end = int(back[0])
                # Until nobody reconnects any more: what is left is what the coordinator adds.
                while end + 1 < values.size and values[end + 1] - values[end] > own[end]:
                    end += 1
                found.append((float(elapsed[start]), float(elapsed[end])))
        return tuple(found)
