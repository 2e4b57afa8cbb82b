"""Judge differences of two builds against the noise of their runs: interval, p-value, status, and families of rows.

No difference is a claim that needs an interval inside the margin (Schuirmann 1987, J. Pharmacokinet. Biopharm. 15). A
change is an interval that excludes zero and is not inside the margin (Lakens, Scheel & Isager 2018, Advances in Methods
and Practices in Psychological Science 1). No worse is a claim about the bad end alone: it lies within the margin, or
within twice of it, and then says how far. Everything else is inconclusive. Families are declared before any data is
seen: of one test the gate metrics, its other times, and the rest; and each label table with one statistic.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from buildcompare.config.catalogue import Metric
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import Better, NoiseSource, Status
from buildcompare.stats.noise import CATALOGUE_DF, Noise, RunLevel
from buildcompare.stats.planning import ALPHA, Looks, enough_runs, percent, quantile, smallest_found

LABEL_ALPHA = 0.02  # of each row of a label table: of 200 rows four are marked by chance, which a reader can look at
LABEL_MARGIN_PERCENT = 10.0  # as for the averages over all labels (`margin_percent` of the catalogue)
SOUGHT = 1.5
"""The error of a family is shared out by how likely each metric alone shows a change of so many of its margins: one
that cannot show it takes less from those that can. From 1.5 to 2 nothing but a few changes of 10 % is lost against even
shares in identical ceiling runs; the fewer, the more of P99 API times 10 % slower in bounded releases are found beside
averages that are known half as well (both of the development half)."""
LEAST_WEIGHT = 0.02  # of a metric that can hardly show one: it is still judged


@dataclass(frozen=True)
class Effect:
    """The difference of two builds in one metric or label."""

    log_ratio: float  # logarithm of new over base
    sd: float  # its standard deviation where nothing changed
    df: float  # degrees of freedom of `sd`
    run_sd: float  # standard deviation of a single run, which says how many runs would settle it
    noise_source: NoiseSource
    comparisons: int = 0  # earlier comparisons that its noise was learned from

    @property
    def delta_percent(self) -> float:
        """Change in percent."""
        return percent(self.log_ratio)

    @property
    def runs(self) -> float:
        """Runs of each build; of unequal numbers twice the harmonic sum."""
        return 2.0 * (self.run_sd / self.sd) ** 2

    @property
    def p_value(self) -> float:
        """Two-sided, of no change at all."""
        z = abs(self.log_ratio) / self.sd
        return 2.0 * float(special.ndtr(-z) if math.isinf(self.df) else special.stdtr(self.df, -z))

    def interval(self, level: float = 1.0 - ALPHA) -> tuple[float, float]:
        """Two-sided interval of the change in percent."""
        half = quantile(0.5 + level / 2.0, self.df) * self.sd
        return percent(self.log_ratio - half), percent(self.log_ratio + half)

    def min_detectable_percent(
        self, margin_percent: float = 0.0, family: float = 1.0, reach: float = 0.0, level: float = ALPHA
    ) -> float:
        """The smallest rise found with probability `POWER`, alone among `family` and beyond `reach`.

        Its 90 % interval must reach beyond the margin, too.
        """
        reach = max(reach, quantile(1.0 - level / family / 2.0, self.df) * self.sd)
        return smallest_found(reach, self.sd, self.df, margin_percent, level)


@dataclass(frozen=True)
class TestedEffect:
    """One effect, judged in its family."""

    __test__ = False  # not a test class of pytest's

    effect: Effect
    margin_percent: float
    better: Better
    p_adjusted: float
    """Over the family: Holm's (1979) for metrics, Benjamini and Hochberg's (1995) for labels. Metrics of one run move
    together, so a family that is wrong once is often wrong several times, which the latter would reward."""
    status: Status
    family: str = ""
    size: float = 1.0  # what its share of the family's error is one of: of equal shares, how many were judged
    looks: Looks | None = None  # None: these runs were not looked at before

    @property
    def level(self) -> float:
        """What the adjusted p-value must be below; intervals hold at one less it."""
        return self.looks.level if self.looks else ALPHA

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the change in percent, over all looks."""
        return self.effect.interval(1.0 - self.level)

    @property
    def p_value(self) -> float:
        """Two-sided, of no change at all."""
        return self.effect.p_value

    def row(self) -> dict[str, Any]:
        """What a row of results.json tells of a change (:class:`~buildcompare.results.Tested`)."""
        low, high = self.interval
        return {"ci_low": low, "ci_high": high, "p_value": self.p_value, "status": self.status}

    def deciding_row(self) -> dict[str, Any]:
        """What a row tells that a verdict may rest on (:class:`~buildcompare.results.Decided`)."""
        effect, margin, not_worse = self.effect, self.margin_percent, self.status == Status.NOT_WORSE
        return self.row() | {
            "p_worse_one_sided": self.p_worse_one_sided,
            "no_worse_than_percent": no_worse_than(effect, margin, self.better, self.level) if not_worse else None,
            "min_detectable_percent": effect.min_detectable_percent(margin, self.size, level=self.level),
            **self.enough_runs(family=self.size),
            "run_sd_percent": percent(effect.run_sd),
            "noise_df": effect.df,
            "noise_source": effect.noise_source,
            "se_log": effect.sd,
            "noise_comparisons": effect.comparisons,
        }

    def enough_runs(self, **family: Any) -> dict[str, Any]:
        """The runs that would show a change of the margin, and what they would show; nothing beyond `MOST_RUNS`."""
        effect, looks = self.effect, self.looks.runs if self.looks else (self.effect.runs,)
        enough = enough_runs(effect.run_sd, effect.df, margin_percent=self.margin_percent, looks=looks, **family)
        if enough is None:
            return {}
        return {"required_runs": round(looks[-1] + enough.further), "required_runs_show_percent": enough.found_percent}

    @property
    def p_worse_one_sided(self) -> float | None:
        """Adjusted one-sided p-value of an effect beyond its margin on the bad side; None of any other."""
        if self.better == Better.NEUTRAL or abs(self.effect.delta_percent) <= self.margin_percent:
            return None
        rises = self.effect.log_ratio > 0
        return self.p_adjusted / 2.0 if rises == (self.better == Better.LOWER) else None


def judge_levels(
    base: Iterable[float],
    new: Iterable[float],
    noise: Noise | float,
    *,
    margin_percent: float = 5.0,
    better: Better | str = Better.LOWER,
) -> TestedEffect:
    """Judge the levels of a metric in the runs of two builds.

    Parameters
    ----------
    base, new
        Levels of the runs of each build, positive, in any unit; shape (runs,). Repeated runs count beside `noise`.
    noise
        What single runs of one build differ by: standard deviation of the logarithm of a level (0.03: about 3 %), or
        :class:`~buildcompare.stats.noise.Noise` with its degrees of freedom.
    margin_percent
        The smallest change that matters.
    better
        ``lower``, ``higher`` or ``neutral``.

    Returns
    -------
    TestedEffect
        The effect with its interval and its p-value, and the status.

    Raises
    ------
    ValueError
        If a build has no positive level.

    References
    ----------
    Schuirmann (1987), J. Pharmacokinet. Biopharm. 15. Kalibera & Jones (2013), ISMM.

    Examples
    --------
    >>> tested = judge_levels([100.0, 103.0], [121.0, 118.0], noise=0.03)
    >>> print(tested.status, [round(percent) for percent in tested.effect.interval()])
    regression [11, 25]
    """
    known = noise if isinstance(noise, Noise) else Noise(noise, math.inf, NoiseSource.CATALOGUE)
    effect = measure_effect([RunLevel(each) for each in base], [RunLevel(each) for each in new], known)
    if effect is None:
        raise ValueError("base, new: expected at least one positive level of each build")
    return judge(effect, margin_percent, Better(better))


def measure_effect(base: Sequence[RunLevel], new: Sequence[RunLevel], noise: Noise) -> Effect | None:
    """Compare the mean levels of the runs of two builds, repeated runs counted in; None where one is not positive."""
    means = [math.fsum(run.level for run in runs) / len(runs) if runs else 0.0 for runs in (base, new)]
    if min(means) <= 0 or not math.isfinite(max(means)):
        return None
    variance, df = noise.sd**2, noise.df
    logs = [np.log([run.level for run in runs if run.level > 0]) for runs in (base, new)]
    own_df = float(sum(max(log.size - 1, 0) for log in logs))
    if own_df:
        known_df = df if math.isfinite(df) else CATALOGUE_DF
        squares = math.fsum(float(((log - log.mean()) ** 2).sum()) for log in logs if log.size > 1)
        variance, df = (known_df * variance + squares) / (known_df + own_df), known_df + own_df
    sd = math.sqrt(sum(variance * _excess(runs, noise) / len(runs) for runs in (base, new)))
    run_sd = sd / math.sqrt(1.0 / len(base) + 1.0 / len(new))
    return Effect(math.log(means[1] / means[0]), sd, df, run_sd, noise.noise_source, noise.comparisons)


def _excess(runs: Sequence[RunLevel], noise: Noise) -> float:
    """Factor on the variance for runs that were measured over shorter windows than those it was learned from.

    The part of it from within the runs grows as the window shrinks. It is not taken from the runs at hand: in a wavy
    load their own standard errors are many times too large.
    """
    known = [run.seconds for run in runs if run.seconds > 0]
    if not known or not noise.seconds > 0:
        return 1.0
    shorter = max(noise.seconds / (math.fsum(known) / len(known)) - 1.0, 0.0)
    share = 1.0 if noise.within is None else min(1.0, noise.within**2 / noise.sd**2)
    return 1.0 + share * shorter


def status_of(
    effect: Effect,
    p_adjusted: float,
    margin_percent: float,
    better: Better | str,
    *,
    alpha: float = ALPHA,
    bound_alpha: float = ALPHA,
) -> Status:
    """Status of an effect whose p-value is `p_adjusted` over its family; `bound_alpha` is that of "no worse than".

    For a metric of which neither direction is better, an improvement is merely more and a regression less.
    """
    low, high = effect.interval(1.0 - 2.0 * alpha)
    if -margin_percent < low and high < margin_percent:
        return Status.EQUIVALENT
    if p_adjusted < alpha:
        return Status.REGRESSION if (effect.log_ratio > 0) == (better == Better.LOWER) else Status.IMPROVEMENT
    bound = no_worse_than(effect, margin_percent, better, bound_alpha)
    return Status.INCONCLUSIVE if bound is None else Status.NOT_WORSE


def no_worse_than(effect: Effect, margin_percent: float, better: Better | str, alpha: float = ALPHA) -> float | None:
    """The change for the worse, in percent, that the 95 % interval excludes; the margin where that is larger.

    None beyond twice the margin, and where neither direction is better.
    """
    low, high = effect.interval(1.0 - alpha)
    least = max(margin_percent, high if better == Better.LOWER else -low)
    return None if better == Better.NEUTRAL or least > 2.0 * margin_percent else least


def judge(
    effect: Effect,
    margin: float,
    better: Better,
    p_adjusted: float | None = None,
    *,
    family: str = "",
    size: float = 1.0,
    looks: Looks | None = None,
) -> TestedEffect:
    """Judge an effect against a margin in percent: alone, or in a family of `size` by its adjusted p-value."""
    p_value = effect.p_value if p_adjusted is None else p_adjusted
    level = looks.level if looks else ALPHA
    status = status_of(effect, p_value, margin, better, alpha=level, bound_alpha=level)
    return TestedEffect(effect, margin, better, p_value, status, family, size, looks)


def judge_metrics(
    effects: Sequence[tuple[Metric, Effect | None]], looks: Looks | None = None
) -> list[TestedEffect | None]:
    """Judge the metrics of one test, each in its family: one judgement for each, in order."""
    judged: list[TestedEffect | None] = [None] * len(effects)
    judgeable = [(i, metric, effect) for i, (metric, effect) in enumerate(effects) if effect is not None]
    for family in ("gate", "times", "other"):
        members = [each for each in judgeable if family_of(each[1]) == family]
        weights = np.array([_power(effect, SOUGHT * metric.margin_percent) for _, metric, effect in members])
        adjusted = holm([effect.p_value for *_, effect in members], weights)
        for (i, metric, effect), p_adjusted, weight in zip(members, adjusted, weights, strict=True):
            size = float(weights.sum() / weight)
            margin, better = metric.margin_percent, metric.better
            judged[i] = judge(effect, margin, better, float(p_adjusted), family=family, size=size, looks=looks)
    return judged


def family_of(metric: Metric) -> str:
    """Which question a metric answers: what users feel (`gate`), other `times`, or what the server needs (`other`)."""
    return "gate" if metric.gate else "times" if metric.unit == "seconds" else "other"


def _power(effect: Effect, percent: float) -> float:
    """How likely a change of this size is found by a metric alone, at least `LEAST_WEIGHT`."""
    reach = math.log1p(percent / 100.0) / effect.sd - quantile(1.0 - ALPHA / 2.0, effect.df)
    return max(float(special.ndtr(reach) if math.isinf(effect.df) else special.stdtr(effect.df, reach)), LEAST_WEIGHT)


def judge_labels(
    effects: Sequence[tuple[Hashable, Effect | None]], *, margin_percent: float = LABEL_MARGIN_PERCENT
) -> list[TestedEffect | None]:
    """Judge the rows of label tables, each given with its table, at an error rate of `LABEL_ALPHA` each.

    Nobody ships or stops a build for one row, but everybody reads the rows that are marked: so of the rows of a table
    where nothing changed at most `LABEL_ALPHA` are marked. The adjusted p-value stands beside it.
    """
    judged: list[TestedEffect | None] = [None] * len(effects)
    for i, effect, p_adjusted, size in _adjusted(effects, false_discovery):
        status = status_of(effect, effect.p_value, margin_percent, Better.LOWER, alpha=LABEL_ALPHA)
        judged[i] = TestedEffect(effect, margin_percent, Better.LOWER, p_adjusted, status, str(effects[i][0]), size)
    return judged


def _adjusted(
    effects: Sequence[tuple[Hashable, Effect | None]], adjust: Callable[[Sequence[float]], Iterable[float]]
) -> Iterator[tuple[int, Effect, float, int]]:
    """Position of each effect, the effect, its adjusted p-value and the size of its family, the first member."""
    families: dict[Hashable, list[tuple[int, Effect]]] = {}
    for i, (family, effect) in enumerate(effects):
        if effect is not None:
            families.setdefault(family, []).append((i, effect))
    for members in families.values():
        adjusted = adjust([effect.p_value for _, effect in members])
        for (i, effect), p_adjusted in zip(members, adjusted, strict=True):
            yield i, effect, float(p_adjusted), len(members)


def false_discovery(p_values: Sequence[float]) -> FloatArray:
    """Adjust p-values by the procedure of Benjamini & Hochberg (1995, J. Royal Statistical Society B 57).

    By hand: importing statsmodels' takes half a second of each report and notebook.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p)
    raw = p[order] / (np.arange(1, p.size + 1) / p.size)
    adjusted = np.empty(p.size)
    adjusted[order] = np.minimum(np.minimum.accumulate(raw[::-1])[::-1], 1.0)
    return adjusted


def holm(p_values: Sequence[float], weights: npt.ArrayLike = 1.0) -> FloatArray:
    """Adjust p-values by Holm's procedure (1979, Scandinavian J. of Statistics 6), the error shared out by `weights`.

    By hand: statsmodels' takes 174 ms and no weights, and a self-check calls it 10,000s of times.
    """
    p, weight = np.asarray(p_values, dtype=np.float64), np.broadcast_to(weights, len(p_values)).astype(np.float64)
    order = np.argsort(p / weight, kind="stable")
    left = np.cumsum(weight[order][::-1])[::-1]  # of those that are not yet significant
    adjusted = np.empty(p.size)
    adjusted[order] = np.minimum(np.maximum.accumulate((p / weight)[order] * left), 1.0)
    return adjusted
