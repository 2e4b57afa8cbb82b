"""Judge differences at equal load against margins and the noise between runs of one build.

Metrics of which less is better are one family (does a request cost the same?), those of which neither direction is
better, such as the requests per second, another (do the users ask for the same?).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.config.params import Test
from buildcompare.load.view import Views
from buildcompare.metrics.equal_load import LoadedRun, MetricAtLoad, equal_load, loaded_run
from buildcompare.results import LoadAdjustedResult
from buildcompare.results.codes import SIDES, Better, NoiseSource, Status
from buildcompare.stats.effects import ALPHA, Effect, status_of
from buildcompare.stats.noise import (
    CATALOGUE_DF,
    LEAST_SD,
    Noise,
    NoiseAtEqualLoad,
    RepeatedRuns,
    metric_noise,
    mixed_noise,
    pool_variances,
)

FOUND_PERCENT = 9.0
"""The change that a family's error is shared out for. Of 50 simulated pairs whose requests cost a tenth more (seeds
from 120,000) it finds 98 % by the catalogue's noise, where even shares (Holm) find 76 %."""
LEAST_BETWEEN = 0.25
"""At least this part of a group's variance counts as between runs: the error within them is an estimate, too."""
BY_CHANCE = 0.5
"""Groups whose scatter leaves at least this part of their degrees of freedom differ by chance: of calibrations from 6
to 12 groups of 2 to 4 runs with one variance, the scatter leaves less in 3 to 4 %."""


@dataclass(frozen=True)
class LoadAdjusted:
    """One metric at the highest load that both builds sustained; `None`s where its noise is not known."""

    at_load: MetricAtLoad
    effect: Effect | None = None
    p_adjusted: float | None = None
    status: Status = Status.INCONCLUSIVE
    family: int = 1  # how many metrics were judged together
    noise: Noise | None = None  # what it was judged by

    def interval(self) -> tuple[float, float] | None:
        """Of the change in percent, at 95 % for all metrics of the family together (Bonferroni).

        Of ten intervals at 95 % each, one lies wholly on the bad side in a fifth of the tests in which nothing changed.
        """
        return self.effect.interval(1.0 - ALPHA / self.family) if self.effect else None

    def row(self) -> LoadAdjustedResult:
        """As a row of results.json."""
        low, high = self.interval() or (None, None)
        seen = self.at_load
        return LoadAdjustedResult(
            users=seen.at_users,
            base=seen.base,
            new=seen.new,
            delta_percent=(seen.new / seen.base - 1.0) * 100.0,
            ci_low=low,
            ci_high=high,
            p_value=self.effect.p_value if self.effect else None,
            p_adjusted=self.p_adjusted,
            status=self.status,
            at_users_range=(float(seen.users[0]), float(seen.users[-1])),
            constant=seen.constant,
            noise_source=self.noise.noise_source if self.noise else NoiseSource.NONE,
            noise_of="none" if self.noise is None else "equal_load" if self.noise.at_load else "levels",
        )


def at_equal_load(
    test: Test, views: Views, catalogue: Catalogue, groups: Sequence[RepeatedRuns]
) -> dict[str, LoadAdjusted]:
    """Each metric of an unbounded test by its slug, at the highest load that both builds sustained."""
    if test.type != "unbounded":
        return {}
    base, new = ([run for view in views[side] if (run := loaded_run(view, catalogue))] for side in SIDES)
    curves = equal_load(base, new)
    judged = judge_at_load(curves, (len(base), len(new)), catalogue.find, lambda metric: noise_at_load(metric, groups))
    if any(view.recording.digitised for side in SIDES for view in views[side]):
        biased = [slug for slug in judged if catalogue.find(slug).biased_when_digitised]
        judged |= {slug: LoadAdjusted(curves[slug]) for slug in biased}
    return judged


def judge_at_load(
    curves: Mapping[str, MetricAtLoad],
    runs: tuple[int, int],
    find: Callable[[str], Metric],
    noise_of: Callable[[Metric], Noise | None],
) -> dict[str, LoadAdjusted]:
    """Judge `curves`, by slug, made from `runs` of each build; `noise_of` is what runs of one build differ by."""
    metrics = {slug: find(slug) for slug in curves}
    noises = {slug: noise for slug, metric in metrics.items() if (noise := noise_of(metric)) is not None}
    effects = {slug: effect_at_load(curves[slug], noise, runs) for slug, noise in noises.items()}
    judged = {slug: LoadAdjusted(curve) for slug, curve in curves.items()}
    for neutral in (False, True):
        family = [slug for slug in effects if (metrics[slug].better == Better.NEUTRAL) == neutral]
        margins = [metrics[slug].margin_percent for slug in family]
        for slug, p_adjusted in zip(family, adjusted([effects[slug] for slug in family], margins), strict=True):
            metric, effect = metrics[slug], effects[slug]
            status = status_of(effect, p_adjusted, metric.margin_percent, metric.better)
            judged[slug] = LoadAdjusted(curves[slug], effect, p_adjusted, status, len(family), noises[slug])
    return judged


def adjusted(effects: Sequence[Effect], margins_percent: Sequence[float]) -> list[float]:
    """Adjusted p-values of one family: step-down over the likelihood ratio of the change to be found against none.

    One bound on that ratio shares the error out so that most changes of that size are found (Spjøtvoll 1972, Annals of
    Mathematical Statistics 43). The adjusted p-value is the probability, added up over the metrics that are not yet
    significant (Bonferroni), that one of them exceeds the ratio by chance and lies beyond its own margin (Tarone 1990,
    Biometrics 46: what cannot be significant costs nothing).
    """
    signal = np.array([math.log1p(FOUND_PERCENT / 100.0) / max(effect.sd, 1e-12) for effect in effects])
    p_values = np.array([effect.p_value for effect in effects])
    possible = np.zeros(len(effects))  # the probability that a metric that did not change lies beyond its margin
    for i, (effect, margin) in enumerate(zip(effects, margins_percent, strict=True)):
        bounds = math.log1p(margin / 100.0), -math.log1p(-min(margin, 99.9) / 100.0)
        possible[i] = sum(0.5 * replace(effect, log_ratio=bound).p_value for bound in bounds)
    score = np.minimum(-special.ndtri(p_values / 2.0), 37.0)  # beyond that a tail is zero in floating point
    ratio = signal * score - signal**2 / 2.0
    left, found, worst = np.arange(ratio.size), np.ones(ratio.size), 0.0
    for i in np.argsort(-ratio, kind="stable"):
        bound = np.maximum(signal[left] / 2.0 + ratio[i] / signal[left], 0.0)
        chance = float(np.minimum(2.0 * special.ndtr(-bound), possible[left]).sum())
        found[i] = worst = max(worst, min(max(chance, float(p_values[i])), 1.0))
        left = left[left != i]
    return [float(p) for p in found]


def effect_at_load(seen: MetricAtLoad, noise: Noise, runs: tuple[int, int]) -> Effect:
    """The difference at the highest load with what runs of one build differ by, for `runs` runs of each build."""
    between = noise.sd * math.sqrt(1.0 / runs[0] + 1.0 / runs[1])
    return Effect(seen.log_ratio, math.hypot(seen.se_log, between), noise.df, noise.sd, noise.noise_source)


def measure_noise_at_load(runs: Sequence[LoadedRun]) -> dict[str, NoiseAtEqualLoad]:
    """Compare repeated runs of one build with each other at equal load, every pair of them, by metric.

    For runs that lie around their build's level with one variance, half the mean square of all pairs' differences is
    that variance, with one degree of freedom less than there are runs.
    """
    found: dict[str, list[tuple[int, int, float, float]]] = {}
    for i, j in itertools.combinations(range(len(runs)), 2):
        for slug, pair in equal_load([runs[i]], [runs[j]]).items():
            found.setdefault(slug, []).append((i, j, pair.log_ratio, pair.se_log))
    noise = {}
    for slug, pairs in found.items():
        variance = math.fsum(ratio**2 for *_, ratio, _ in pairs) / (2 * len(pairs))
        within = math.fsum(se**2 for *_, se in pairs) / (2 * len(pairs))
        noise[slug] = NoiseAtEqualLoad(variance, within, len({run for pair in pairs for run in pair[:2]}) - 1.0)
    return noise


def noise_at_load(metric: Metric, groups: Sequence[RepeatedRuns] = ()) -> Noise | None:
    """Noise of `metric` at equal load between runs, without the error within them, which each pair adds itself.

    The catalogue's value (at equal load, else of levels) counts for a few degrees of freedom beside groups of repeated
    unbounded runs. Without a group measured at equal load, the noise of levels is used if runs taught it, else that
    value alone; None where nothing is known.
    """
    percent = metric.run_sd_percent.equal_load
    catalogue = metric_noise(metric, "unbounded")
    if percent is not None:
        catalogue = Noise(math.log1p(percent / 100.0), math.inf, NoiseSource.CATALOGUE, at_load=True)
    measured = [group.at_load[metric.slug] for group in groups if metric.slug in group.at_load]
    if not measured:
        levels = metric_noise(metric, "unbounded", groups)
        return levels if levels is not None and levels.noise_source == NoiseSource.CALIBRATION else catalogue
    between = [max(each.variance - each.within, LEAST_BETWEEN * each.variance) for each in measured]
    dfs = np.array([each.df for each in measured])
    variance, df = pool_variances(np.array(between), dfs)
    if df >= BY_CHANCE * dfs.sum():
        df = float(dfs.sum())
    learned = Noise(max(math.sqrt(variance), LEAST_SD), df, NoiseSource.CALIBRATION, at_load=True)
    return mixed_noise(learned, catalogue, CATALOGUE_DF) if catalogue else learned
