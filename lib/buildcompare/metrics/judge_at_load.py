"""Judge metrics at equal load against margins and run-to-run noise.

Families are those of levels, except that metrics without a better direction, such as requests per second, have one of
their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import special

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.config.params import Test
from buildcompare.load.view import Views, reading_error
from buildcompare.metrics.equal_load import LoadedRun, MetricAtLoad, equal_load, loaded_run
from buildcompare.recordings.recording import FloatArray
from buildcompare.results import LoadAdjustedResult
from buildcompare.results.codes import SIDES, Better, NoiseSource, Status
from buildcompare.stats.effects import GATE, Effect, family_of, judge
from buildcompare.stats.noise import (
    LEAST_SD,
    Noise,
    NoiseAtEqualLoad,
    RepeatedRuns,
    catalogue_noise,
    metric_noise,
    mixed_noise,
    pool_variances,
    with_reading_error,
)
from buildcompare.stats.planning import ALPHA, Looks, root

FOUND_PERCENT = 9.0
"""Change that the error of a family is shared out for. Of 50 simulated pairs whose requests cost a tenth more (seeds
from 120,000) it finds 98 % with the catalogue's noise; equal shares (Holm) find 76 %."""
LEAST_BETWEEN = 0.25
"""Smallest part of a group's variance that counts as between runs: the error within them is an estimate too."""


@dataclass(frozen=True)
class MeasuredAtLoad:
    """Metrics of an unbounded test at the highest common load, by slug, before they are judged."""

    curves: Mapping[str, MetricAtLoad] = field(default_factory=dict)
    noises: Mapping[str, Noise | None] = field(default_factory=dict)
    runs: tuple[int, int] = (0, 0)

    def judged(self, catalogue: Catalogue, looks: Looks | None = None) -> dict[str, LoadAdjustedResult]:
        """Judge them by the margins of `catalogue`."""
        return judge_at_load(self.curves, self.runs, catalogue.find, lambda each: self.noises[each.slug], looks)


def measure_at_load(test: Test, views: Views, catalogue: Catalogue, groups: Sequence[RepeatedRuns]) -> MeasuredAtLoad:
    """Compare the runs of an unbounded test at equal load; empty for other tests. Margins play no part."""
    if test.type != "unbounded":
        return MeasuredAtLoad()
    base, new = ([run for view in views[side] if (run := loaded_run(view, catalogue))] for side in SIDES)
    curves = equal_load(base, new)
    noises = {
        metric.slug: noise_at_load(metric, groups, misread=reading_error(metric, views))
        for metric in map(catalogue.find, curves)
    }
    return MeasuredAtLoad(curves, noises, (len(base), len(new)))


def judge_at_load(
    curves: Mapping[str, MetricAtLoad],
    runs: tuple[int, int],
    find: Callable[[str], Metric],
    noise_of: Callable[[Metric], Noise | None],
    looks: Looks | None = None,
) -> dict[str, LoadAdjustedResult]:
    """Judge `curves`, by slug, of `runs` runs of each build, by the run-to-run noise `noise_of` each metric.

    Intervals hold at 95 % for all metrics of a family together (Bonferroni): of ten separate intervals at 95 %, one
    lies wholly on the bad side in a fifth of the tests without a change.
    """
    metrics = {slug: find(slug) for slug in curves}
    noises = {slug: noise for slug, metric in metrics.items() if (noise := noise_of(metric)) is not None}
    effects = {slug: effect_at_load(curves[slug], noise, runs) for slug, noise in noises.items()}
    judged = {slug: _unjudged(curve) for slug, curve in curves.items()}
    kinds = {slug: (family_of(metric), metric.better == Better.NEUTRAL) for slug, metric in metrics.items()}
    level = looks.level if looks else ALPHA
    for kind in sorted({*kinds.values()}):
        family = [slug for slug in effects if kinds[slug] == kind]
        margins = [metrics[slug].margin_percent for slug in family]
        together = [effects[slug] for slug in family]
        detectable = min_detectable_percent(together, margins, level, gate=kind[0] == GATE)
        p_values = adjusted(together, margins, level)
        for i, slug in enumerate(family):
            tested = judge(together[i], margins[i], metrics[slug].better, p_values[i], family=kind[0], looks=looks)
            low, high = tested.effect.interval(1.0 - level / len(family))
            fields = tested.deciding_row(df_per_run=0.0, reach=reach_at_load(together, margins, i))
            fields |= {"ci_low": low, "ci_high": high, "min_detectable_percent": detectable[i]}
            if tested.status == Status.NOT_WORSE:
                fields["no_worse_than_percent"] = max(margins[i], high if tested.better == Better.LOWER else -low)
            noise_of_row = "equal_load" if noises[slug].at_load else "levels"
            judged[slug] = LoadAdjustedResult.model_validate(
                vars(judged[slug]) | fields | {"p_adjusted": p_values[i], "noise_of": noise_of_row}
            )
    return judged


def _unjudged(metric: MetricAtLoad) -> LoadAdjustedResult:
    return LoadAdjustedResult(
        users=metric.at_users,
        base=metric.base,
        new=metric.new,
        delta_percent=(metric.new / metric.base - 1.0) * 100.0,
        at_users_range=(float(metric.users[0]), float(metric.users[-1])),
        constant=metric.constant,
        within_se_log=metric.se_log,
        status=Status.INCONCLUSIVE,
    )


def adjusted(effects: Sequence[Effect], margins_percent: Sequence[float], level: float = ALPHA) -> list[float]:
    """Adjusted p-values of one family: step-down over the likelihood ratio of a change of `FOUND_PERCENT` against none.

    One bound on that ratio shares the error out so that most such changes are found (Spjøtvoll 1972, Annals of
    Mathematical Statistics 43). The adjusted p-value sums over the metrics that are not yet significant (Bonferroni)
    the probability that one exceeds the ratio by chance and its 90 % interval reaches beyond its margin (Tarone 1990,
    Biometrics 46: a metric that cannot be significant costs nothing).
    """
    signal, chances = _shares(effects, margins_percent, level)
    p_values = np.array([effect.p_value for effect in effects])
    ratio = signal * np.array([abs(effect.log_ratio) / max(effect.sd, 1e-12) for effect in effects]) - signal**2 / 2.0
    left, p_adjusted, worst = np.arange(ratio.size), np.ones(ratio.size), 0.0
    for i in np.argsort(-ratio, kind="stable"):
        chance = float(chances(ratio[i])[left].sum())
        p_adjusted[i] = worst = max(worst, min(max(chance, float(p_values[i])), 1.0))
        left = left[left != i]
    return [float(p) for p in p_adjusted]


def min_detectable_percent(
    effects: Sequence[Effect], margins_percent: Sequence[float], level: float = ALPHA, *, gate: bool = False
) -> list[float]:
    """Smallest rise of each metric that :func:`adjusted` finds at a power of 80 %, if it is alone in its family."""
    reaches = zip(effects, _reaches(effects, margins_percent, level), margins_percent, strict=True)
    return [
        effect.min_detectable_percent(margin, 1, reach * effect.sd, level, gate=gate)
        for effect, reach, margin in reaches
    ]


def reach_at_load(
    effects: Sequence[Effect], margins_percent: Sequence[float], position: int
) -> Callable[[float, float], float]:
    """Standard errors that the change at `position` of a family needs, as a function of its standard error and level.

    The standard errors of the others shrink with it, as further runs do.
    """

    def reach(sd: float, level: float) -> float:
        scale = sd / effects[position].sd
        scaled = [replace(effect, sd=effect.sd * scale) for effect in effects]
        return _reaches(scaled, margins_percent, level)[position]

    return reach


def _reaches(effects: Sequence[Effect], margins_percent: Sequence[float], level: float) -> list[float]:
    """Standard errors that each change needs for :func:`adjusted` to be below `level`."""
    if not effects:
        return []
    signal, chances = _shares(effects, margins_percent, level)
    least = -(float(signal.max()) ** 2)
    if chances(least).sum() > level:
        df = [min(effect.df, 1e9) for effect in effects]
        enough = special.stdtrit(df, 1.0 - level / (2 * signal.size))  # of equal shares
        most = float((signal * (enough - signal / 2.0)).max()) + 1.0
        least = root(lambda ratio: float(chances(ratio).sum()) - level, least, most)
    return [float(each) for each in signal / 2.0 + least / signal]


def _shares(
    effects: Sequence[Effect], margins_percent: Sequence[float], level: float
) -> tuple[FloatArray, Callable[[float], FloatArray]]:
    """`FOUND_PERCENT` in standard errors of each metric, and the probability of each to exceed a ratio by chance."""
    sd, df = np.array([(max(effect.sd, 1e-12), min(effect.df, 1e9)) for effect in effects]).reshape(-1, 2).T
    signal = math.log1p(FOUND_PERCENT / 100.0) / sd
    margins = np.array(margins_percent) / 100.0
    bounds = np.log1p(margins), -np.log1p(-np.minimum(margins, 0.999))  # upward and downward
    inside = special.stdtrit(df, 1.0 - level)  # reach of the interval, in standard errors
    beyond = sum(special.stdtr(df, np.minimum(inside - bound / sd, 0.0)) for bound in bounds)  # without a change
    return signal, lambda ratio: np.minimum(
        2.0 * special.stdtr(df, -np.maximum(signal / 2.0 + ratio / signal, 0.0)), beyond
    )


def effect_at_load(metric: MetricAtLoad, noise: Noise, runs: tuple[int, int]) -> Effect:
    """Difference at the highest load, with its errors within and between `runs` runs of each build."""
    per_run = math.sqrt(1.0 / runs[0] + 1.0 / runs[1])
    sd = math.hypot(metric.se_log, noise.sd * per_run)
    return Effect(metric.log_ratio, sd, noise.df, sd / per_run, noise.noise_source, noise.comparisons)


def measure_noise_at_load(runs: Sequence[LoadedRun]) -> dict[str, NoiseAtEqualLoad]:
    """Compare every pair of repeated runs of one build at equal load, by metric.

    Half the mean square of the differences of all pairs estimates the variance of a run, with one degree of freedom
    less than there are runs.
    """
    differences: dict[str, list[tuple[int, int, float, float]]] = {}
    for i, j in itertools.combinations(range(len(runs)), 2):
        for slug, pair in equal_load([runs[i]], [runs[j]]).items():
            differences.setdefault(slug, []).append((i, j, pair.log_ratio, pair.se_log))
    noise = {}
    for slug, pairs in differences.items():
        variance = math.fsum(ratio**2 for *_, ratio, _ in pairs) / (2 * len(pairs))
        within = math.fsum(se**2 for *_, se in pairs) / (2 * len(pairs))
        noise[slug] = NoiseAtEqualLoad(variance, within, len({run for pair in pairs for run in pair[:2]}) - 1.0)
    return noise


def noise_at_load(metric: Metric, groups: Sequence[RepeatedRuns] = (), *, misread: float = 0.0) -> Noise | None:
    """Noise of `metric` at equal load between runs; None if unknown. Each pair adds its own error within the runs.

    Groups of repeated unbounded runs come first, mixed with the catalogue's value at equal load, or else of levels.
    Without a group measured at equal load, repeated runs teach the noise of levels. Earlier comparisons teach nothing:
    the catalogue's intervals hold only 87 % of the contrasts between their tests (development half, every second
    release), and what is learned from these would be narrower still. `misread` is the reading error in percent.
    """
    return with_reading_error(_repeated_noise(metric, groups), misread)


def _repeated_noise(metric: Metric, groups: Sequence[RepeatedRuns]) -> Noise | None:
    catalogue = catalogue_noise(metric, "equal_load") or catalogue_noise(metric, "unbounded")
    learned = learned_at_load(metric.slug, groups)
    if learned is None:
        levels = metric_noise(metric, "unbounded", groups)
        return levels if levels is not None and levels.noise_source == NoiseSource.CALIBRATION else catalogue
    return mixed_noise(learned, catalogue, catalogue.df) if catalogue else learned


def learned_at_load(slug: str, groups: Sequence[RepeatedRuns]) -> Noise | None:
    """Noise of a metric at equal load from repeated unbounded runs alone."""
    measured = [group.at_load[slug] for group in groups if slug in group.at_load]
    if not measured:
        return None
    between = [max(each.variance - each.within, LEAST_BETWEEN * each.variance) for each in measured]
    variance, df = pool_variances(np.array(between), np.array([each.df for each in measured]))
    return Noise(max(math.sqrt(variance), LEAST_SD), df, NoiseSource.CALIBRATION, at_load=True)
