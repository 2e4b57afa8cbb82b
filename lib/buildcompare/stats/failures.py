"""Compare the failed attempts of two builds, with allowance for scatter between runs."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import NoiseSource
from buildcompare.stats.effects import Effect
from buildcompare.stats.noise import LEAST_REPEATS
from buildcompare.stats.planning import ALPHA, quantile

ADDED = 1.0 / 3.0  # added to failures and successes, so that 0 has a logarithm (Kerman 2011, Electron. J. Statist. 5)


Runs = Sequence[tuple[float, float]]  # numbers of failed and of all attempts in each run


def failures_effect(base: Runs, new: Runs, *, succeeded: bool = False) -> Effect | None:
    """Compare the fraction of failed attempts in the runs of two builds; None without a failure or with too few runs.

    The p-value is the larger of two tests: Student's t test of the runs' log odds (Gart & Zweifel 1967, Biometrika 54),
    which allows for scatter between runs, and the exact binomial test of the sums (Przyborowski & Wilenski 1940,
    Biometrika 31), which is valid for rare failures. Quasi-binomial and beta-binomial tests are worse
    (`benchmarks/errors.py`). With `succeeded`, the effect is the change of the mean fraction of successes.
    """
    df = len(base) + len(new) - 2
    sides = [np.array(runs, dtype=np.float64).reshape(-1, 2) for runs in (base, new)]
    (failed, attempts), (more, of) = (side.sum(axis=0) for side in sides)
    if not base or not new or df < LEAST_REPEATS or not failed + more > 0 or any((side < 0).any() for side in sides):
        return None
    odds = [np.log((side[:, 0] + ADDED) / (np.maximum(side[:, 1] - side[:, 0], 0.0) + ADDED)) for side in sides]
    means = np.array([float(each.mean()) for each in odds])
    difference, part = float(means[1] - means[0]), of / (attempts + of)
    squares = sum(float(((each - each.mean()) ** 2).sum()) for each in odds)
    per_run = 1.0 / len(base) + 1.0 / len(new)
    # Binomial probabilities of at most, and of at least, `more` failures. Incomplete beta functions allow fractions.
    at_most = float(special.betainc(failed, more + 1.0, 1.0 - part)) if failed > 0 else 1.0
    at_least = float(special.betainc(more, failed + 1.0, part)) if more > 0 else 1.0
    p = max(min(1.0, 2.0 * at_most, 2.0 * at_least), 1e-300)
    by_chance = math.sqrt(1.0 / (failed + ADDED) + 1.0 / (more + ADDED))
    by_chance = abs(difference / quantile(p / 2.0, df)) if p < 0.5 else by_chance
    sd = max(math.sqrt(squares / df * per_run), by_chance, 1e-6)
    if succeeded:
        change, sd = _kept(sides, -difference, sd)
    else:  # convert log odds to log fractions (`shares`); `scale` is the ratio of the two changes
        shares, per_odds = special.log_expit(means), float(special.expit(-means[0]))
        scale = abs(float(shares[1] - shares[0]) / difference) if abs(difference) > 1e-6 else per_odds
        change, sd = difference * scale, sd * scale
    return Effect(change, sd, df, sd / math.sqrt(per_run), NoiseSource.REPEATS)


def _kept(sides: Sequence[FloatArray], odds: float, sd: float) -> tuple[float, float]:
    """Return the log change of the mean fraction of successes, and its standard error.

    If the change of log odds (`odds`, with error `sd`) is significant and has the same sign, its t statistic is kept.
    Else (such as if one run has all failures), scatter or chance gives the error, raised to prevent significance.
    """
    kept, df = [1.0 - side[:, 0] / side[:, 1] for side in sides], sum(map(len, sides)) - 2
    means = [max(float(each.mean()), ADDED / side[:, 1].sum()) for each, side in zip(kept, sides, strict=True)]
    change, least = math.log(means[1] / means[0]), quantile(1.0 - ALPHA / 2.0, df)
    if abs(odds) >= least * sd and change * odds > 0.0:
        return change, abs(change * sd / odds)
    by_chance = math.fsum((side[:, 0].sum() + ADDED) / side[:, 1].sum() ** 2 for side in sides)
    relative = math.fsum(1.0 / (each.size * mean**2) for each, mean in zip(kept, means, strict=True))
    scatter = math.fsum(each.var() * each.size for each in kept) / df * relative
    return change, max(math.sqrt(max(scatter, by_chance)), abs(change) / least)
