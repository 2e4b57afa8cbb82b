"""How bumpy was the beginning, and when did the ramp start that lasted?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from buildcompare.load.curve import LoadCurve, holes
from buildcompare.load.turning_points import Fall, falls


@dataclass(frozen=True)
class Bump:
    """A rise that fell back before the lasting ramp; elapsed seconds and the curve's unit.

    Attributes
    ----------
    start_s, peak_s, end_s
        The trough before it, its peak, and the trough after it.
    peak, depth
        The curve at its peak, and how far it then fell.
    """

    start_s: float
    peak_s: float
    end_s: float
    peak: float
    depth: float

    @property
    def duration_s(self) -> float:
        """From the trough before to the trough after."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Beginning:
    """How a run began.

    Attributes
    ----------
    bumps
        The early bumps in their order.
    onset_s
        When the lasting ramp starts, elapsed seconds: the last sample that is within one step of the trough that it
        climbs from. None where the recording starts in mid-ramp, where a hole hides it, or the curve never climbs.
    """

    bumps: tuple[Bump, ...]
    onset_s: float | None

    @property
    def bump_seconds(self) -> float:
        """Time spent in early bumps."""
        return sum(bump.duration_s for bump in self.bumps)


@dataclass(frozen=True)
class FindBumps:
    """Tell early bumps from the ramp that lasts.

    A turning point counts when the curve turns by `turn_steps` actions of the coordinator, and by more than noise.
    A peak is early when it lies below `early_part` of the curve's level, or the curve then falls by `deep_part` of
    it before it first reaches `until_part` of the level: the ramp had to start again. Everything up to the last
    early peak is a beginning; the lasting ramp starts at the trough after it.

    Parameters
    ----------
    turn_steps
        8 actions, 64 users: the first whole number of actions beyond the coarsest pixel (56 users) of the published
        plots, so that a single pixel makes no bump. A fall of 5 actions, as for waves, counts more of them.
    """

    turn_steps: float = 8.0
    early_part: float = 0.15
    deep_part: float = 0.5
    until_part: float = 0.5
    midramp_steps: float = 10.0
    """A curve that climbs from its first sample on, and from more than this many steps, was not seen from its start:
    its onset is unknown, and a fall is no early bump unless it ends below the first sample."""
    foot: float = 2.0
    """A climb began before the recording if it leaves its foot within this many times what a straight one takes."""

    def __call__(self, curve: LoadCurve) -> Beginning:
        """Find the early bumps and the onset of the lasting ramp."""
        half = int(np.argmax(curve.values >= self.until_part * curve.level))
        elapsed, values = curve.elapsed[: half + 1], curve.values[: half + 1]
        least = curve.fall(self.turn_steps)
        turns = [fall for fall in falls(elapsed, values, least) if fall.peak - fall.rise_from >= least]
        early = [i for i, fall in enumerate(turns) if self._early(fall, curve.level)]
        bumps = tuple(
            Bump(f.rise_s, f.peak_s, f.trough_s, f.peak, f.depth) for f in turns[: early[-1] + 1 if early else 0]
        )
        if self._midramp(curve, half) and all(fall.trough >= values[0] for fall in turns[: len(bumps)]):
            return Beginning((), None)
        return Beginning(bumps, self._onset(curve, half, bumps))

    def _early(self, fall: Fall, level: float) -> bool:
        return fall.peak < self.early_part * level or fall.depth >= self.deep_part * fall.peak

    def _onset(self, curve: LoadCurve, half: int, bumps: tuple[Bump, ...]) -> float | None:
        first = int(np.searchsorted(curve.elapsed, bumps[-1].end_s)) if bumps else 0
        values = curve.values[first : half + 1]
        if values.size < 2:
            return None
        # The climb: from where the curve for the first time stands well above all that came before.
        lowest = np.minimum.accumulate(values)
        climbing = np.flatnonzero(values - lowest >= curve.fall(self.turn_steps))
        if not climbing.size:
            return None
        last = int(climbing[0])
        near = values[: last + 1] <= lowest[last] + self._near(curve)
        onset = first + int(np.flatnonzero(near)[-1])
        unseen = holes(curve.elapsed[onset : half + 1])
        low = curve.values[onset:half] < self.early_part * curve.level
        return None if (unseen & low).any() else float(curve.elapsed[onset])  # a bump may hide in there

    def _midramp(self, curve: LoadCurve, half: int) -> bool:
        """Whether the curve climbs from its first sample on, and not from near zero."""
        onset_s = self._onset(curve, half, ())
        if not curve.values[0] > self.midramp_steps * curve.step or onset_s is None:
            return False
        # A straight climb leaves its foot, one step high, after this part of the time that it takes to count.
        risen = np.maximum.accumulate(curve.values) - curve.values[0] >= curve.fall(self.turn_steps)
        climb_s = float(curve.elapsed[int(np.argmax(risen))] - curve.elapsed[0])
        foot_s = climb_s * self._near(curve) / curve.fall(self.turn_steps)
        return onset_s - float(curve.elapsed[0]) <= self.foot * foot_s

    def _near(self, curve: LoadCurve) -> float:
        """What is no higher than this above the trough is at its foot."""
        return max(curve.step, 2.0 * curve.noise)
