"""Do the waves of two builds differ: in their onset, their period, their height?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from buildcompare.analysis.waves import Waves

LEAST = 2.5
"""Half a sample of 5 s: quartiles of cycles that are all alike would claim to know them exactly."""


@dataclass(frozen=True)
class Difference:
    """New minus base, with its 95 % interval within this pair of runs; it says nothing about other runs."""

    value: float
    ci: tuple[float, float]

    @property
    def excludes_zero(self) -> bool:
        """Whether the two runs differ."""
        return not self.ci[0] <= 0.0 <= self.ci[1]


@dataclass(frozen=True)
class WaveDifference:
    """How the waves of two runs differ; None where one of them has too few.

    Attributes
    ----------
    onset_s, onset_users
        Of the first wave. One number per run: there is no interval within a pair.
    period_s, amplitude
        Difference of the medians over all cycles, and over all waves.
    """

    onset_s: float
    onset_users: float
    period_s: Difference | None
    amplitude: Difference | None


@dataclass(frozen=True)
class CompareWaves:
    """Compare the waves of two runs, cycle by cycle.

    The standard error of a median is root(pi / 2) times a mean's, its spread taken from the quartiles. Neighbouring
    cycles are nearly independent: each ends with the alert that the one before knew nothing of.
    """

    fewest: int = 8
    """Cycles per run; the quartiles of fewer are no spread."""

    def __call__(self, base: Waves, new: Waves) -> WaveDifference | None:
        """Compare; None where one run has no waves."""
        if base.onset_s is None or new.onset_s is None or base.onset_users is None or new.onset_users is None:
            return None
        return WaveDifference(
            onset_s=new.onset_s - base.onset_s,
            onset_users=new.onset_users - base.onset_users,
            period_s=self._difference(base.cycles, new.cycles),
            amplitude=self._difference([f.depth for f in base.falls], [f.depth for f in new.falls]),
        )

    def _difference(self, base: Sequence[float], new: Sequence[float]) -> Difference | None:
        if min(len(base), len(new)) < self.fewest:
            return None
        value = float(np.median(new) - np.median(base))
        variance = sum(_spread(each) ** 2 / len(each) for each in (base, new)) * math.pi / 2.0
        reach = float(stdtrit(min(len(base), len(new)) - 1, 0.975)) * math.sqrt(variance)
        return Difference(value, (value - reach, value + reach))


def _spread(values: Sequence[float]) -> float:
    """Standard deviation from the quartiles, 1.349 of which are apart in a normal distribution; at least a sample."""
    low, high = np.quantile(values, [0.25, 0.75])
    return max(float(high - low) / 1.349, LEAST)
