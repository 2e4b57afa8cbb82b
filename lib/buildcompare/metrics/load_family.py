"""Which of many metrics changed, each known with a noise of its own? p-values adjusted over one family.

Dividing 5 % evenly wastes most of it. A metric whose noise is a tenth of its margin is never called by chance, as a
call needs a change beyond the margin, and a metric that varies by 10 % from run to run shows no small change
whatever its share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from buildcompare.recordings.recording import FloatArray
from buildcompare.stats.effects import Effect

FOUND_PERCENT = 9.0
"""The change that the error is shared out for.

The comparison shall find requests that cost a tenth more. Of 250 simulated pairs of such builds (seeds below 10,000,
one run each), 8, 9 and 10 % and even shares (Holm) find 98.8, 97.6, 96.4 and 92.4 % by calibrations, and 98.0, 97.6,
97.2 and 80.0 % by the catalogue's noise. Of a rise of API times alone by 40 %, whose noise is five times as large, they
find 76.0, 78.8, 79.6 and 72.4 %, and 68.0, 76.0, 81.6 and 81.6 %.
"""
_FARTHEST = 37.0
"""Beyond this many standard deviations a tail is zero in floating point."""


@dataclass(frozen=True)
class AdjustByNoise:
    """Familywise error by step-down over the likelihood ratio of the change to be found against none.

    Of all tests with a given size, the one by that ratio finds most (Neyman & Pearson 1933); over several metrics,
    one bound on it shares the error out so that most changes of that size are found (Spjøtvoll 1972, Annals of
    Mathematical Statistics 43). The adjusted p-value of a metric is the probability, added up over the metrics that
    are not already called (Bonferroni, so under any dependence), that one of them exceeds its ratio by chance *and*
    lies beyond its own margin (as in Tarone 1990, Biometrics 46: what cannot be called costs nothing).
    """

    found_percent: float = FOUND_PERCENT

    def __call__(self, effects: Sequence[Effect], margins_percent: Sequence[float]) -> list[float]:
        """Adjusted p-values, in the order of `effects`."""
        if not effects:
            return []
        size = math.log1p(self.found_percent / 100.0)
        signal = np.array([size / max(effect.sd, 1e-12) for effect in effects])
        p_values = np.array([effect.p_value for effect in effects])
        possible = np.array([_beyond(e, margin) for e, margin in zip(effects, margins_percent, strict=True)])
        score = np.minimum(-special.ndtri(np.maximum(p_values, 0.0) / 2.0), _FARTHEST)
        ratio = signal * score - signal**2 / 2.0
        left = np.arange(ratio.size)
        adjusted, worst = np.ones(ratio.size), 0.0
        for i in np.argsort(-ratio, kind="stable"):
            chance = float(np.minimum(_tail(signal[left], float(ratio[i])), possible[left]).sum())
            worst = max(worst, min(max(chance, float(p_values[i])), 1.0))
            adjusted[i] = worst
            left = left[left != i]
        return [float(p) for p in adjusted]


def _tail(signal: FloatArray, ratio: float) -> FloatArray:
    """Two-sided probability that chance exceeds this log likelihood ratio."""
    bound = np.maximum(signal / 2.0 + ratio / signal, 0.0)
    return np.asarray(2.0 * special.ndtr(-bound), dtype=np.float64)


def _beyond(effect: Effect, margin_percent: float) -> float:
    """Probability that a metric that did not change lies beyond its margin."""
    up, down = math.log1p(margin_percent / 100.0), -math.log1p(-min(margin_percent, 99.9) / 100.0)
    return sum(
        0.5 * Effect(bound, effect.sd, effect.df, effect.run_sd, effect.noise_source).p_value for bound in (up, down)
    )
