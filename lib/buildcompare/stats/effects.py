"""Did it change? A difference of two builds against the noise of their runs: interval, p-value, status.

The verdict is by inclusion of intervals (Schuirmann 1987, "A comparison of the two one-sided tests procedure and
the power approach", J. Pharmacokinet. Biopharm. 15): no difference is a claim that needs an interval inside the
margin, a change is one that excludes zero and lies beyond the margin, and everything else cannot be told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from buildcompare.results.codes import Better, NoiseSource, Status
from buildcompare.stats.noise import Noise, RunLevel

ALPHA = 0.05
POWER = 0.8
"""The usual power at which a detectable effect is stated (Cohen 1988)."""
BORROWED_DF = 8.0
"""What a borrowed noise_source counts for beside the repeated runs of a comparison, which know their own noise."""
MOST_RUNS = 99
"""More runs per build than this are no advice."""


@dataclass(frozen=True)
class Effect:
    """The difference of two builds in one metric or label.

    Attributes
    ----------
    log_ratio
        Logarithm of new over base.
    sd
        Its standard deviation where nothing changed.
    df
        Degrees of freedom of `sd`; infinite where it is a borrowed noise_source.
    run_sd
        Standard deviation of a single run, which says how many runs would settle it.
    """

    log_ratio: float
    sd: float
    df: float
    run_sd: float
    noise_source: NoiseSource

    @property
    def delta_percent(self) -> float:
        """Change in percent."""
        return _percent(self.log_ratio)

    @property
    def p_value(self) -> float:
        """Two-sided, of no change at all."""
        return 2.0 * _tail(abs(self.log_ratio) / self.sd, self.df)

    def interval(self, level: float = 1.0 - ALPHA) -> tuple[float, float]:
        """Two-sided interval of the change in percent."""
        half = _quantile(0.5 + level / 2.0, self.df) * self.sd
        return _percent(self.log_ratio - half), _percent(self.log_ratio + half)

    def min_detectable_percent(self, margin_percent: float = 0.0, family: int = 1) -> float:
        """The smallest rise that would be called with probability `POWER`, alone among `family` metrics.

        It must be told from chance, and its estimate must lie beyond the margin.
        """
        beyond = math.log1p(margin_percent / 100.0) + _quantile(POWER, self.df) * self.sd
        return _percent(max(_reach(self.df, ALPHA / family) * self.sd, beyond))

    def required_runs(self, margin_percent: float, family: int = 1) -> int | None:
        """Runs per build that tell a change of the size of the margin from chance; None beyond `MOST_RUNS`."""
        wanted = math.log1p(margin_percent / 100.0)
        for runs in range(1, MOST_RUNS + 1):
            if _reach(self.df + 2.0 * (runs - 1), ALPHA / family) * self.run_sd * math.sqrt(2.0 / runs) <= wanted:
                return runs
        return None


@dataclass(frozen=True)
class MeasureEffect:
    """The difference of two builds with its standard deviation, from the levels of their runs."""

    def __call__(self, base: Sequence[RunLevel], new: Sequence[RunLevel], noise: Noise) -> Effect | None:
        """Compare the mean levels of the runs of two builds; None where one of them is not positive."""
        means = [math.fsum(run.level for run in runs) / len(runs) if runs else 0.0 for runs in (base, new)]
        if min(means) <= 0 or not math.isfinite(max(means)):
            return None
        variance, df = self._with_own_runs((base, new), noise)
        per_side = [variance * self._excess(runs, noise) / len(runs) for runs in (base, new)]
        return Effect(
            math.log(means[1] / means[0]), math.sqrt(sum(per_side)), df, math.sqrt(variance), noise.noise_source
        )

    def _with_own_runs(self, sides: Sequence[Sequence[RunLevel]], noise: Noise) -> tuple[float, float]:
        """Repeated runs of these builds count like those of a calibration."""
        logs = [np.log([run.level for run in runs if run.level > 0]) for runs in sides]
        own_df = float(sum(max(log.size - 1, 0) for log in logs))
        if own_df == 0:
            return noise.sd**2, noise.df
        known_df = noise.df if math.isfinite(noise.df) else BORROWED_DF
        squares = math.fsum(float(((log - log.mean()) ** 2).sum()) for log in logs if log.size > 1)
        return (known_df * noise.sd**2 + squares) / (known_df + own_df), known_df + own_df

    def _excess(self, runs: Sequence[RunLevel], noise: Noise) -> float:
        """Factor on the variance for runs that were measured over shorter windows than those it was learned from.

        The part of the variance that comes from within the runs grows as the window shrinks. That part is not taken
        from the runs at hand: in a wavy load their own standard errors are many times too large.
        """
        known = [run.seconds for run in runs if run.seconds > 0]
        if not known or not noise.seconds > 0:
            return 1.0
        shorter = max(noise.seconds / (math.fsum(known) / len(known)) - 1.0, 0.0)
        share = 1.0 if noise.within is None else min(1.0, noise.within**2 / noise.sd**2)
        return 1.0 + share * shorter


@dataclass(frozen=True)
class Judge:
    """Status of an effect against a margin."""

    alpha: float = ALPHA

    def __call__(self, effect: Effect, adjusted: float, margin_percent: float, better: Better) -> Status:
        """Judge `effect`, whose p-value is `adjusted` over its family.

        For a metric of which neither direction is better, an improvement is merely more and a regression less.
        """
        delta = effect.delta_percent
        if adjusted < self.alpha and abs(delta) > margin_percent:
            return Status.REGRESSION if (delta > 0) == (better == Better.LOWER) else Status.IMPROVEMENT
        low, high = effect.interval(1.0 - 2.0 * self.alpha)
        if -margin_percent < low and high < margin_percent:
            return Status.EQUIVALENT
        return Status.INCONCLUSIVE


def p_worse_one_sided(effect: Effect, margin_percent: float, better: Better) -> float | None:
    """One-sided p-value of an effect that lies beyond its margin on the bad side; None where it does not."""
    if better == "neutral":
        return None
    worse = effect.log_ratio if better == Better.LOWER else -effect.log_ratio
    if worse <= 0 or abs(effect.delta_percent) <= margin_percent:
        return None
    return effect.p_value / 2.0


def _tail(x: float, df: float) -> float:
    """Probability of more than `x` under Student's t; the normal distribution where `df` is infinite."""
    return float(special.ndtr(-x) if math.isinf(df) else special.stdtr(df, -x))


def _quantile(p: float, df: float) -> float:
    return float(special.ndtri(p) if math.isinf(df) else special.stdtrit(df, p))


def _reach(df: float, alpha: float) -> float:
    """In standard deviations, the effect that a two-sided test finds with probability `POWER`."""
    return _quantile(1.0 - alpha / 2.0, df) + _quantile(POWER, df)


def _percent(log_ratio: float) -> float:
    return math.expm1(min(log_ratio, 700.0)) * 100.0
