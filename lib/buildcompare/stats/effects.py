"""Judge differences of two builds against the noise of their runs: interval, p-value, and status.

A metric gets the first status that applies. It is equivalent if its 90 % interval lies inside the margin (Schuirmann
1987, J. Pharmacokinet. Biopharm. 15). It is changed if its adjusted p-value is below 5 % (Lakens, Scheel & Isager 2018,
Advances in Methods and Practices in Psychological Science 1); for a gate metric (felt by users), the estimate must also
exceed the margin. It is not worse if its 95 % interval excludes a loss of twice the margin. Else it is inconclusive.
P-values are adjusted within each family of metrics (:func:`family_of`), and within each statistic of a label table.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy import special

from buildcompare.config.catalogue import Metric
from buildcompare.config.units import TIMES
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.base import Model
from buildcompare.results.codes import Better, NoiseSource, Pair, Status
from buildcompare.stats.noise import Key, Noise, RunLevel, beside_repeats, in_windows, repeat_noise
from buildcompare.stats.planning import ALPHA, SOUGHT, Looks, enough_runs, percent, quantile, smallest_found

LABEL_ALPHA = 0.02  # significance level of each label row: by chance, 4 of 200 unchanged rows are marked
LABEL_MARGIN_PERCENT = 10.0  # equals the catalogue's `margin_percent` of averages over all labels
FOUND = 1.5, 2.0, 4.0, 8.0
"""The false-alarm rate is shared among gate metrics to find many changes of these sizes (multiples of the margin). In
CPython's benchmarks, shares proportional to power find as many injected slowdowns of 7.5 %, but fewer of 10 to 50 %."""
LEAST_SHARE = 0.1  # minimum part of the false-alarm rate for each gate metric, as a fraction of an equal share
STEPS = 40  # number of critical values tried for each gate metric (felt by users); 20 or 80 find as many changes
GATE = "gate"  # name of the family of metrics that users feel
Row = TypeVar("Row", bound=Model)
USERS = 5.0
"""Factor on the p-value of a loss of supported users. With it, 0.5 % of unchanged tests show a loss (2.5 % for
other gate metrics). Of losses of 10 % injected into identical unbounded runs (tuning data), 80-84 % are found."""


@dataclass(frozen=True)
class Effect:
    """Difference of two builds in one metric or label."""

    log_ratio: float  # logarithm of new over base
    sd: float  # standard error of `log_ratio`
    df: float  # degrees of freedom of `sd`
    run_sd: float  # standard deviation of the logarithm of one run's level
    noise_source: NoiseSource
    comparisons: int = 0  # number of earlier comparisons that the noise was learned from
    log_attempts: float = 0.0  # log(attempts of new / attempts of base), if failures are judged per attempt

    @property
    def delta_percent(self) -> float:
        """Estimated change from base to new, in percent."""
        return percent(self.log_ratio)

    @property
    def runs(self) -> float:
        """Number of runs of each build; if the numbers differ, their harmonic mean."""
        return 2.0 * (self.run_sd / self.sd) ** 2

    @property
    def p_value(self) -> float:
        """Two-sided p-value of the hypothesis that nothing changed."""
        z = abs(self.log_ratio) / self.sd
        return 2.0 * float(special.ndtr(-z) if math.isinf(self.df) else special.stdtr(self.df, -z))

    def interval(self, level: float = 1.0 - ALPHA) -> tuple[float, float]:
        """Two-sided confidence interval of the change in percent."""
        half = quantile(0.5 + level / 2.0, self.df) * self.sd
        return percent(self.log_ratio - half), percent(self.log_ratio + half)

    def min_detectable_percent(
        self, margin_percent: float = 0.0, family: float = 1.0, level: float = ALPHA, *, gate: bool = False
    ) -> float:
        """Smallest rise in percent that is found with probability `POWER` at significance level `level` / `family`.

        With `gate`, the estimate must also exceed the margin; else, the upper end of its 1 - 2 * `level` interval must.
        """
        reach = quantile(1.0 - level / family / 2.0, self.df) * self.sd
        return smallest_found(reach, self.sd, self.df, margin_percent, level, gate=gate)


@dataclass(frozen=True)
class TestedEffect:
    """An effect with its adjusted p-value and its status."""

    __test__ = False  # keeps pytest from collecting the class as a test

    effect: Effect
    margin_percent: float
    better: Better
    p_adjusted: float
    """P-value adjusted over the family: for metrics by Holm (1979), for labels by Benjamini & Hochberg (1995). Metrics
    are too correlated for Benjamini & Hochberg: several false positives would raise the threshold of the others."""
    status: Status
    family: str = ""
    size: float = 1.0  # false-alarm rate of the family, divided by that of this effect
    looks: Looks | None = None  # numbers of runs at each look (repeated judgement); None if judged only once

    @property
    def level(self) -> float:
        """Significance level for the adjusted p-value; intervals have the confidence 1 - level."""
        return self.looks.level if self.looks else ALPHA

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval of the change in percent, with the confidence 1 - `level`."""
        return self.effect.interval(1.0 - self.level)

    def filled(self, row: Row) -> Row:
        """Return a copy of `row` with the fields of this judgement (see :class:`~buildcompare.results.Decided`)."""
        effect, margin, known = self.effect, self.margin_percent, type(row).model_fields
        interval = self.interval if vars(row).get("delta_percent") is not None else (None, None)  # None if base is zero
        fields: dict[str, object] = dict(zip(("ci_low", "ci_high"), interval, strict=True))
        fields |= {"p_value": effect.p_value, "p_worse_one_sided": self.p_worse_one_sided, "status": self.status}
        fields |= {"p_adjusted": self.p_adjusted, "family": self.family, "noise_source": effect.noise_source}
        if "no_worse_than_percent" in known:  # a row that a verdict can use
            looks, gate = self.looks.runs if self.looks else (effect.runs,), self.family == GATE
            sizes, not_worse = (effect.run_sd, effect.df), self.status == Status.NOT_WORSE
            enough = enough_runs(*sizes, margin_percent=margin, looks=looks, family=self.size, gate=gate)
            fields |= {
                "no_worse_than_percent": no_worse_than(effect, margin, self.better, self.level) if not_worse else None,
                "min_detectable_percent": effect.min_detectable_percent(margin, self.size, level=self.level, gate=gate),
                "required_runs": round(looks[-1] + enough.further) if enough else None,
                "required_runs_show_percent": enough.found_percent if enough else None,
                "run_sd_percent": percent(effect.run_sd), "noise_df": effect.df, "se_log": effect.sd,
                "noise_comparisons": effect.comparisons,
            }  # fmt: skip
        return type(row).model_validate(vars(row) | {name: fields[name] for name in fields.keys() & known.keys()})

    @property
    def p_worse_one_sided(self) -> float | None:
        """Adjusted one-sided p-value if the effect is worse by more than its margin, else None."""
        if self.better == Better.NEUTRAL or abs(self.effect.delta_percent) <= self.margin_percent:
            return None
        return self.p_adjusted / 2.0 if (self.effect.log_ratio > 0) == (self.better == Better.LOWER) else None


def judge_levels(
    base: Iterable[float],
    new: Iterable[float],
    noise: Noise | float,
    *,
    margin_percent: float = 5.0,
    better: Better | str = Better.LOWER,
) -> TestedEffect:
    """Judge whether a metric changed, from its level (mean value) in each run of two builds.

    Parameters
    ----------
    base, new
        Levels of the runs of each build, above zero, in any unit; shape (runs,). Their scatter is pooled with `noise`.
    noise
        Run-to-run noise: standard deviation of the logarithm of a level (0.03 is about 3 %), or
        :class:`~buildcompare.stats.noise.Noise` with its degrees of freedom.
    margin_percent
        Smallest change that matters.
    better
        ``lower``, ``higher`` or ``neutral``.

    Returns
    -------
    TestedEffect
        The effect with interval, p-value and status.

    Raises
    ------
    ValueError
        If a build has no levels, or a level is not above zero.

    References
    ----------
    Schuirmann (1987), J. Pharmacokinet. Biopharm. 15. Kalibera & Jones (2013), ISMM.

    Examples
    --------
    >>> tested = judge_levels([100.0, 103.0], [121.0, 118.0], noise=0.03)
    >>> print(tested.status, [round(percent) for percent in tested.effect.interval()])
    regression [11, 25]
    """
    stated = noise if isinstance(noise, Noise) else Noise(noise, math.inf, NoiseSource.CATALOGUE)
    effect = measure_effect([RunLevel(each) for each in base], [RunLevel(each) for each in new], stated)
    if effect is None:
        raise ValueError("base, new: expected at least one level of each build, and all above zero")
    return judge(effect, margin_percent, Better(better))


def measure_effect(base: Sequence[RunLevel], new: Sequence[RunLevel], noise: Noise | None) -> Effect | None:
    """Compare the mean log levels of base and new in one metric; None without noise, or if a level is not above 0."""
    return measure_effects({"": Pair([*base], [*new])}, {"": noise})[""]


def measure_effects(
    levels: Mapping[Key, Pair[list[RunLevel]]],
    priors: Mapping[Key, Noise | None],
    repeats: Mapping[Key, Noise | None] | None = None,
) -> dict[Key, Effect | None]:
    """Compare the mean log levels of base and new by metric; None without noise, or if a level is not above zero.

    The noise is pooled from `priors` and `repeats`. By default, `repeats` is the scatter of the runs in `levels`.
    """
    used = {key: runs for key, runs in levels.items() if all(runs) and all_positive(*runs)}
    stated = {key: noise and in_windows(noise, *used[key]) for key, noise in priors.items() if key in used}
    noises = beside_repeats(stated, repeats or {key: repeat_noise(*runs) for key, runs in used.items()})
    effects: dict[Key, Effect | None] = dict.fromkeys(levels)
    for key, noise in noises.items():
        if noise is not None:
            base, new = (np.log([run.level for run in runs]) for runs in used[key])
            sd = noise.sd * math.sqrt(1.0 / base.size + 1.0 / new.size)
            change = float(new.mean() - base.mean())
            effects[key] = Effect(change, sd, noise.df, noise.sd, noise.noise_source, noise.comparisons)
    return effects


def all_positive(*builds: Iterable[RunLevel]) -> bool:
    """True if all levels are finite and above zero, so that they have logarithms."""
    return all(0.0 < run.level < math.inf for runs in builds for run in runs)


def status_of(
    effect: Effect,
    p_adjusted: float,
    margin_percent: float,
    better: Better | str,
    *,
    alpha: float = ALPHA,
    bound_alpha: float = ALPHA,
    gate: bool = False,
) -> Status:
    """Return the status of an effect; `bound_alpha` is the significance level of "no worse than".

    For a `gate`, a change counts only if its estimate lies beyond the margin. For a metric without a better direction,
    a rise has the status improvement, and a fall the status regression.
    """
    low, high = effect.interval(1.0 - 2.0 * alpha)
    if -margin_percent < low and high < margin_percent:
        return Status.EQUIVALENT
    if p_adjusted < alpha and not (gate and abs(effect.delta_percent) <= margin_percent):
        return Status.REGRESSION if (effect.log_ratio > 0) == (better == Better.LOWER) else Status.IMPROVEMENT
    bound = no_worse_than(effect, margin_percent, better, bound_alpha)
    return Status.INCONCLUSIVE if bound is None else Status.NOT_WORSE


def no_worse_than(effect: Effect, margin_percent: float, better: Better | str, alpha: float = ALPHA) -> float | None:
    """Largest loss in percent inside the confidence interval (by default 95 %); 0 if the interval holds no loss.

    The result is None if this loss exceeds twice the margin, or if the metric has no better direction.
    """
    low, high = effect.interval(1.0 - alpha)
    worst = max(0.0, high if better == Better.LOWER else -low)
    return None if better == Better.NEUTRAL or worst > 2.0 * margin_percent else worst


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
    """Judge an effect against a margin in percent; by default, `p_adjusted` is the effect's own p-value.

    In the family :data:`GATE`, a change counts only if its estimate lies beyond the margin.
    """
    p_value = effect.p_value if p_adjusted is None else p_adjusted
    level = looks.level if looks else ALPHA
    status = status_of(effect, p_value, margin, better, alpha=level, bound_alpha=level, gate=family == GATE)
    return TestedEffect(effect, margin, better, p_value, status, family, size, looks)


def judge_users(effect: Effect, margin: float, looks: Looks | None = None) -> TestedEffect:
    """Judge supported users. The p-value is multiplied by `USERS`, unless the users rose significantly."""
    gain = judge(effect, margin, Better.HIGHER, family=GATE, looks=looks)
    if gain.status == Status.IMPROVEMENT:
        return gain
    p_adjusted = min(USERS * effect.p_value, 1.0)
    return judge(effect, margin, Better.HIGHER, p_adjusted, family=GATE, size=USERS, looks=looks)


def judge_metrics(
    effects: Sequence[tuple[Metric, Effect | None]], looks: Looks | None = None
) -> list[TestedEffect | None]:
    """Judge metrics within their families. Results are in the order given, with None for metrics without an effect."""
    judged: list[TestedEffect | None] = [None] * len(effects)
    judgeable = [(i, metric, effect) for i, (metric, effect) in enumerate(effects) if effect is not None]
    for family in (GATE, "errors", "times", "other"):
        members = [each for each in judgeable if family_of(each[1]) == family]
        weights = _shares(members, looks.level if looks else ALPHA, gate=family == GATE)
        adjusted = holm([effect.p_value for *_, effect in members], weights)
        for (i, metric, effect), p, size in zip(members, adjusted, weights.sum() / weights, strict=True):
            margin, better = metric.margin_percent, metric.better
            judged[i] = judge(effect, margin, better, float(p), family=family, size=float(size), looks=looks)
    return judged


def family_of(metric: Metric) -> str:
    """Family of a metric: `errors` (request outcomes), `gate` (felt by users), `times` (other durations) or `other`."""
    return "errors" if metric.outcome else GATE if metric.gate else "times" if metric.unit in TIMES else "other"


def _shares(members: Sequence[tuple[int, Metric, Effect]], level: float, *, gate: bool) -> FloatArray:
    """Return weights that divide a family's false-alarm rate among its metrics.

    Without `gate`, or for one metric, a weight is the power to find a change of `SOUGHT` times the margin. With `gate`,
    weights aim at a high power for changes of `FOUND` times the margin (Roeder & Wasserman 2009, Statistical Science
    24); each is at least `LEAST_SHARE` / number of metrics, and their sum is at most 1. Example: two gate metrics with
    margins of 5 % and exactly known standard errors of 2 and 10 % get the weights 0.19 and 0.77.
    """
    of_each = [(min(each.df, 1e9), each.sd, metric.margin_percent) for _, metric, each in members]
    df, sd, margin = np.array(of_each).reshape(-1, 3).T
    alone = special.stdtrit(df, 1.0 - ALPHA / 2.0)  # critical value, in standard errors, of a metric judged alone
    if not gate or df.size < 2:
        return np.asarray(np.maximum(special.stdtr(df, np.log1p(SOUGHT * margin / 100.0) / sd - alone), ALPHA / 2.0))
    strictest = -special.stdtrit(df, LEAST_SHARE * level / df.size / 2.0)
    mildest = np.minimum(strictest, np.maximum(np.log1p(margin / 100.0) / sd, alone))
    critical = np.linspace(strictest, mildest, STEPS)  # critical values, by step (row) and metric (column)
    share = 2.0 * special.stdtr(df, -critical) / level
    power = sum(special.stdtr(df, np.log1p(times * margin / 100.0) / sd - critical) for times in FOUND)
    cost, gain = np.diff(share, axis=0), np.diff(power, axis=0)
    # `worth` is the highest gain per cost of a step and the metric's later steps, so sorting keeps the steps in order.
    worth = np.maximum.accumulate((gain / np.maximum(cost, 1e-300))[::-1])[::-1]
    best_first = np.argsort(-worth, axis=None, kind="stable")
    taken = best_first[np.cumsum(cost.flat[best_first]) <= 1.0 - share[0].sum()]
    return np.asarray(share[0] + np.bincount(taken % df.size, cost.flat[taken], df.size))


def judge_labels(
    effects: Sequence[tuple[Hashable, Effect | None]], *, margin_percent: float = LABEL_MARGIN_PERCENT
) -> list[TestedEffect | None]:
    """Judge rows of label tables at the significance level `LABEL_ALPHA`; `effects` pairs each row's table and effect.

    The status depends on unadjusted p-values, because no row stops a release by itself. At most the fraction
    `LABEL_ALPHA` of unchanged rows is wrongly called changed. A row without a significant change is equivalent if its
    estimate is inside the margin, and its 98 % interval is between -50 and +100 %.
    """
    judged: list[TestedEffect | None] = [None] * len(effects)
    tables: dict[Hashable, list[tuple[int, Effect]]] = {}
    for i, (table, effect) in enumerate(effects):
        if effect is not None:
            tables.setdefault(table, []).append((i, effect))
    for table, members in tables.items():
        p_adjusted = false_discovery([effect.p_value for _, effect in members])
        for (i, effect), p in zip(members, p_adjusted, strict=True):
            status = status_of(effect, effect.p_value, margin_percent, Better.LOWER, alpha=LABEL_ALPHA)
            low, high = effect.interval(1.0 - LABEL_ALPHA)
            if not status.changed and abs(effect.delta_percent) < margin_percent and low > -50.0 and high < 100.0:
                status = Status.EQUIVALENT  # even if the interval is wider than the margin, as for most labels
            family = str(table), len(members)
            judged[i] = TestedEffect(effect, margin_percent, Better.LOWER, float(p), status, *family)
    return judged


def false_discovery(p_values: Sequence[float]) -> FloatArray:
    """Adjust p-values by the procedure of Benjamini & Hochberg (1995, J. Royal Statistical Society B 57).

    ``fdrcorrection`` of statsmodels is not used, because its import takes half a second; unit tests compare with it.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p)
    raw = p[order] / (np.arange(1, p.size + 1) / p.size)
    return np.minimum(np.minimum.accumulate(raw[::-1])[::-1], 1.0)[np.argsort(order)]


def holm(p_values: Sequence[float], weights: npt.ArrayLike = 1.0) -> FloatArray:
    """Adjust p-values by Holm's procedure (1979, Scandinavian J. of Statistics 6); weights divide the alpha.

    ``multipletests`` of statsmodels has no weights, and is slow for 10,000 calls; unit tests compare with it.
    """
    p, weight = np.asarray(p_values, dtype=np.float64), np.broadcast_to(weights, len(p_values)).astype(np.float64)
    order = np.argsort(p / weight, kind="stable")
    left = np.cumsum(weight[order][::-1])[::-1]  # total weight of this p-value and all later ones in `order`
    return np.minimum(np.maximum.accumulate((p / weight)[order] * left), 1.0)[np.argsort(order)]
