"""Compare metrics of two builds at equal load, each as a curve over the connected users, and judge the differences.

In an unbounded test a build that carries more users is measured under more load. So every minute under load counts, the
ramp too, at the users that were connected then; the builds are compared where both were.

Differences are judged against margins and the noise between runs of one build. The families are those of levels,
without the metrics of which neither direction is better, such as the requests per second (do the users ask for the
same?): these are one more.

Numbers without another source were fitted to our own simulator (seeds below 10,000 of `benchmarks/load_curve.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.config.params import Test
from buildcompare.load.view import RunView, Views, reading_error
from buildcompare.recordings.recording import FloatArray
from buildcompare.results import LoadAdjustedResult
from buildcompare.results.codes import SIDES, Better, NoiseSource, Pair, Status
from buildcompare.stats import noise as run_to_run
from buildcompare.stats.changepoints import robust_sd
from buildcompare.stats.effects import Effect, family_of, judge
from buildcompare.stats.noise import (
    Noise,
    NoiseAtEqualLoad,
    PastChanges,
    RepeatedRuns,
    catalogue_noise,
    metric_noise,
    with_past,
)
from buildcompare.stats.planning import ALPHA, Looks, root

MINUTE_S = 60.0  # means are taken over this long: the queries are rates over one minute
CLIMB_S = 120.0
"""Users who came within this long count as coming: one minute of rate, and one minute for a login's work."""
SUSTAINED_S = 600.0  # a build sustained the highest load that it was at or above for this long in all
LOWEST, HIGHEST = 0.3, 2.0  # parts of the highest common load between which loads count: below is a server's cold start
KNOTS = 4  # of each spline: enough for a saturating metric, few enough for a ramp of half an hour
FEWEST = 15  # minutes that each build needs: those of both are three for each of ten coefficients
POINTS = 41  # of the curves: one for each 2.5 % of their load
NEAR = 0.1  # the rate of new users at a load is the mean within this part of it
DOUBT = 0.15
"""This part of what logins explain of a difference counts as a standard error: their cost may be no straight line."""
HUBER = 1.345  # 95 % efficient where the noise is normal (Huber 1964)
ROUNDS = 4
"""Of weighting again; statsmodels' RLM takes nine times as long, and gives no matrix of which the errors are made."""
CONTRADICTED = 3.0
"""The highest load's difference is another one if it lies this many standard errors from the mean over all loads."""
FARTHEST = 1e6
"""A minute this many times above or below the usual is a fault of the recording, and counts as no farther off."""
MEMORIES = (0.0, 0.2, 0.4, 0.55, 0.7, 0.8, 0.88, 0.94, 0.97)
"""Autoregressions between which is interpolated; at one-minute steps, .97 is a memory of half an hour."""
FOUND_PERCENT = 9.0
"""The change that a family's error is shared out for. Of 50 simulated pairs whose requests cost a tenth more (seeds
from 120,000) it finds 98 % by the catalogue's noise, where even shares (Holm) find 76 %."""
LEAST_BETWEEN = 0.25
"""At least this part of a group's variance counts as between runs: the error within them is an estimate, too."""


@dataclass(frozen=True)
class LoadedRun:
    """One run: its connected users and its metrics, over elapsed seconds, up to `stop_s` (the end of the load)."""

    users: pd.Series
    metrics: Mapping[str, pd.Series]
    stop_s: float


@dataclass(frozen=True)
class MetricAtLoad:
    """One metric of both builds over n loads (connected users) at which both were seen; errors are within the runs."""

    at_users: float  # the highest load that both builds sustained
    base: float  # the metric there, in its unit
    new: float
    log_ratio: float  # logarithm of `new` over `base`
    se_log: float
    constant: bool  # whether the difference was taken as the same at every load, and is the mean over all of them
    users: FloatArray  # the loads, shape (n,)
    curves: Pair[FloatArray]  # the metric there, shape (n,)
    se_curves: Pair[FloatArray]  # of its logarithm
    log_ratios: FloatArray  # the difference at each load, shape (n,)
    se_ratios: FloatArray
    points: Pair[FloatArray]  # users and metric of each minute at the curves' rate of new users, shape (minutes, 2)


def equal_load(base: Sequence[LoadedRun], new: Sequence[LoadedRun]) -> dict[str, MetricAtLoad]:
    """Compare metrics of two builds at the highest load that both sustained.

    Per build a natural cubic spline over the users, by robust weighted least squares over one-minute means. A login
    costs more than a connected user: so the rate at which users came is in the model too, with the same coefficients
    for both builds, which are compared at the mean of the rates that they had at each load. The difference is the mean
    over all loads, unless the one at the highest load contradicts it; its standard error counts the noise's memory.

    Parameters
    ----------
    base, new
        The runs of each build: connected users and metrics, each a Series over elapsed seconds.

    Returns
    -------
    dict
        By metric that has enough minutes above zero in both builds; empty where they shared no load.

    References
    ----------
    Huber (1964), Annals of Mathematical Statistics 35. Wood (2017), Generalized Additive Models, 5.3.1 (the spline).

    Examples
    --------
    >>> elapsed = np.arange(0.0, 3600.0, 5.0)
    >>> users = pd.Series(np.minimum(2.0 * elapsed, 4000.0), index=elapsed)
    >>> noise = np.random.default_rng(1).normal(1.0, 0.01, (2, elapsed.size))
    >>> base, new = (LoadedRun(users, {"cpu": cost * users * each}, 3600.0) for cost, each in zip((1.0, 1.1), noise))
    >>> cpu = equal_load([base], [new])["cpu"]
    >>> print(f"{100 * np.expm1(cpu.log_ratio):+.0f} % at {cpu.at_users:.0f} users")
    +10 % at 4000 users
    """
    top = min((_sustained(run) for runs in (base, new) for run in runs), default=math.nan)
    if not top > 0 or not base or not new:
        return {}
    runs = [*((0, run) for run in base), *((1, run) for run in new)]
    minutes = [_minutes(run, top) for _, run in runs]
    sizes = [each["users"].size for each in minutes]
    columns = {"side": np.repeat([side for side, _ in runs], sizes), "run": np.repeat(np.arange(len(runs)), sizes)}
    for name in set().union(*minutes):
        columns[name] = np.concatenate([each.get(name, np.full(each["users"].size, math.nan)) for each in minutes])
    shared = [set().union(*(run.metrics for run in runs)) for runs in (base, new)]
    slugs = sorted(shared[0] & shared[1])
    return {slug: metric for slug in slugs if (metric := _metric(slug, columns, top)) is not None}


def loaded_run(view: RunView, catalogue: Catalogue, *, by_proxy: bool = False) -> LoadedRun | None:
    """A run with its metrics over the connected users; None without a curve of users.

    With `by_proxy`, for runs of one build, over a curve that stands in for users; None where its scale is unknown.
    """
    load, slug, per_user = view.users, catalogue.load.slug if catalogue.load else None, 1.0
    if by_proxy and load is None and view.load_slug is not None:
        load, slug, per_user = view.load, view.load_slug, catalogue.find(view.load_slug).proxy_per_unit or 0.0
    if load is None or view.stop is None or not per_user:
        return None
    slugs = sorted({series.metric for series in view.recording.graphs()} - {slug})
    curves = {each: view.recording.curve(total) for each in slugs if (total := view.recording.total(each)) is not None}
    return LoadedRun(load / per_user, curves, view.stop.at_s)


def _minutes(run: LoadedRun, top: float) -> dict[str, FloatArray]:
    """Each minute before the stop at a load of interest: users, the rate at which users came, and the metrics.

    After the last time that the load was below it before it was first high.
    """
    elapsed, users = _until_stop(run.users, run)
    total = np.cumsum(np.maximum(np.diff(users, prepend=users[:1]), 0.0))
    before = np.interp(elapsed - CLIMB_S, elapsed, total) if elapsed.size else total
    columns = {"users": (elapsed, users), "climb": (elapsed, (total - before) / CLIMB_S)}
    columns |= {slug: _until_stop(curve, run) for slug, curve in run.metrics.items()}
    first, last = (each // MINUTE_S for each in (elapsed[0] if elapsed.size else 0.0, run.stop_s))
    table = {name: _means(*column, first, int(last - first) + 1) for name, column in columns.items()}
    high = np.flatnonzero(table["users"] >= 0.9 * top)
    low = np.flatnonzero(table["users"][: high[0] if high.size else 0] < LOWEST * top)
    wanted = (table["users"] >= LOWEST * top) & (table["users"] <= HIGHEST * top)
    wanted[: int(low[-1]) + 1 if low.size else 0] = False
    return {name: column[wanted] for name, column in table.items()}


def _means(elapsed: FloatArray, values: FloatArray, first: float, count: int) -> FloatArray:
    """The mean of each of `count` minutes from the `first` on; NaN where there is no value."""
    minute = (elapsed // MINUTE_S - first).astype(np.int64)
    minute, values = minute[minute >= 0], values[minute >= 0]
    with np.errstate(invalid="ignore"):
        return np.asarray(np.bincount(minute, values, count) / np.bincount(minute, minlength=count))


def _until_stop(curve: pd.Series, run: LoadedRun) -> tuple[FloatArray, FloatArray]:
    """The elapsed seconds and the values of finite samples up to the stop."""
    elapsed, values = curve.index.to_numpy(dtype=np.float64), curve.to_numpy(dtype=np.float64)
    known = np.isfinite(values) & (elapsed <= run.stop_s)
    return elapsed[known], values[known]


def _sustained(run: LoadedRun) -> float:
    elapsed, users = _until_stop(run.users, run)
    if users.size < 2:
        return math.nan
    count = max(round(SUSTAINED_S / float(np.median(np.diff(elapsed)))), 1)
    return float(np.sort(users)[-count]) if users.size >= count else math.nan


def _metric(slug: str, minutes: Mapping[str, FloatArray], top: float) -> MetricAtLoad | None:
    from patsy import cr

    known = (minutes[slug] > 0) & np.isfinite(minutes["users"]) & np.isfinite(minutes["climb"])
    users, climb, side, run, values = (minutes[name][known] for name in ("users", "climb", "side", "run", slug))
    if min(int(np.sum(side == own)) for own in (0, 1)) < FEWEST:
        return None
    low = max(float(users[side == own].min()) for own in (0, 1))
    if low >= top:
        return None
    usual = float(np.median(values))
    values = np.clip(values, usual / FARTHEST, usual * FARTHEST)
    knots = np.linspace(float(users.min()), top, KNOTS) / top
    knots = np.append(knots, users.max() / top) if users.max() > 1.02 * top else knots

    def spline(at: FloatArray) -> FloatArray:
        """One row per load, shape (n, knots)."""
        return np.asarray(cr(at / top, knots=knots[1:-1], lower_bound=knots[0], upper_bound=knots[-1]))

    def logins(at: FloatArray, climb: FloatArray) -> FloatArray:
        """The cost of new users, shape (n, 2): the same for both builds."""
        return np.column_stack([climb, climb * (top / at - 1.0)])

    own_spline = spline(users)
    own_splines = np.hstack([own_spline * (side == own)[:, None] for own in (0, 1)])
    matrix = np.hstack([own_splines, logins(users, climb)])
    coefficients, inverse, size = _fit(matrix, values)
    left = Residuals(values - matrix @ coefficients, size, run, matrix)

    # Both curves from `low` to `top`, each load at the mean of the climbs that the builds had there.
    loads = np.linspace(low, top, POINTS)
    climbs = []
    for own in (0, 1):  # its mean near each load; that of the nearest minute where there is none
        apart = np.abs(users[side == own][None, :] - loads[:, None])
        near = apart <= NEAR * loads[:, None]
        count, known = near.sum(axis=1), climb[side == own]
        mean = near @ known / np.maximum(count, 1)
        climbs.append(np.where(count > 0, mean, known[np.argmin(apart, axis=1)]))
    usual_climb = (climbs[0] + climbs[1]) / 2.0
    along, none = spline(loads), np.zeros((POINTS, own_spline.shape[1]))
    wanted = [np.hstack([*each, logins(loads, usual_climb)]) for each in ((along, none), (none, along))]
    curves = [each @ coefficients for each in wanted]
    if min(float(curve[-1]) for curve in curves) <= 0:
        return None
    bad = np.flatnonzero((curves[0] <= 0) | (curves[1] <= 0))  # a straight term may undercut a small value
    first = int(bad[-1]) + 1 if bad.size else 0
    base, new = (curve[first:] for curve in curves)

    scaled = [wanted[0][first:] / base[:, None], wanted[1][first:] / new[:, None]]
    weights = np.vstack([*scaled, scaled[1] - scaled[0]]) @ inverse
    errors = residual_errors(weights, left).reshape(3, -1)
    came = logins(loads, climbs[1]) - logins(loads, climbs[0])
    doubts = DOUBT * (came @ coefficients[-2:])[first:] / (np.sqrt(base) * np.sqrt(new))
    ratios = np.log(new / base)
    log_ratio, se_log, constant = pooled_ratio(ratios, weights[-ratios.size :], doubts, left)
    there = math.sqrt(float(base[-1])) * math.sqrt(float(new[-1]))
    usually = np.hstack([own_splines, logins(users, np.interp(users, loads, usual_climb))])
    at_usual = usually @ coefficients + left.values
    points = np.column_stack([users, at_usual])
    return MetricAtLoad(
        at_users=top,
        base=there * math.exp(-log_ratio / 2.0),
        new=there * math.exp(log_ratio / 2.0),
        log_ratio=log_ratio,
        se_log=se_log,
        constant=constant,
        users=loads[first:],
        curves=Pair(base, new),
        se_curves=Pair(errors[0], errors[1]),
        log_ratios=ratios,
        se_ratios=np.hypot(errors[2], doubts),
        points=Pair(points[side == 0], points[side == 1]),
    )


def _fit(matrix: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Coefficients, the matrix that makes them from the values, and the usual value of each minute.

    Each minute weighs by its usual value (from a fit of the logarithms), as noise grows with it; minutes that lie far
    off weigh less (Huber).
    """
    logs = np.log(values)
    usual = np.exp(np.clip(matrix @ (np.linalg.pinv(matrix, rcond=1e-10) @ logs), logs.min(), logs.max()))
    weights = 1.0 / usual
    for _ in range(ROUNDS):
        inverse = np.linalg.pinv(matrix * weights[:, None], rcond=1e-10) * weights
        coefficients = inverse @ values
        off = np.abs(values - matrix @ coefficients) / usual
        scale = max(robust_sd(off), 1e-12)
        weights = np.sqrt(np.minimum(HUBER * scale / np.maximum(off, 1e-300), 1.0)) / usual
    return coefficients, inverse, usual


def pooled_ratio(
    ratios: FloatArray, weights: FloatArray, doubts: FloatArray, left: Residuals
) -> tuple[float, float, bool]:
    """The difference at the highest load, its standard error within the runs, and whether it is the mean of all loads.

    What one build only passed on its way up says little, and its curve is least certain at the ends. Most changes cost
    the same part of a request at every load: so the mean difference, weighted by inverse variance, knows it better,
    unless the difference at the highest load is another one by more than chance.

    `ratios`, shape (n,), are logarithms of new over base at each load, made of the residuals by the rows of `weights`,
    shape (n, minutes); `doubts`, shape (n,), may be wrong in all of them together by the model, with their sign.
    """
    known = np.hypot(residual_errors(weights, left), doubts)
    share = 1.0 / np.maximum(known, 1e-12) ** 2
    share /= share.sum()
    mean, mean_doubt, mean_weights = float(share @ ratios), float(share @ doubts), share @ weights
    mean_se, apart_se = residual_errors(np.vstack([mean_weights, weights[-1] - mean_weights]), left)
    if abs(float(ratios[-1]) - mean) > CONTRADICTED * math.hypot(float(apart_se), float(doubts[-1]) - mean_doubt):
        return float(ratios[-1]), float(known[-1]), False
    return mean, math.hypot(float(mean_se), mean_doubt), True


@dataclass(frozen=True)
class Residuals:
    """Residuals of a weighted least-squares fit of n minutes, of which those of a run stand together in their order."""

    values: FloatArray  # in the metric's unit
    usual: FloatArray  # the size that the noise is in proportion to
    run: FloatArray  # which run each minute is of
    matrix: FloatArray  # shape (n, parameters): the design of the fit

    @cached_property
    def covariance(self) -> FloatArray:
        """Of the noise over its usual size, shape (n, n): AR(1) noise before the fit.

        A fit takes the slow part of the noise away with the curve. So the noise is taken as AR(1) within each run, with
        the coefficient and variance whose expected sums of squares and of products of neighbours, after the fit's
        projection, equal the observed ones (a method of moments). By hand: a prewhitened HAC estimate is half the truth
        in every fourth fit and fifty times too large in some; GLSAR's 95 % intervals hold it in 85 %.
        """
        size, minute = self.size, np.arange(self.run.size)
        noise = self.values / size
        vectors, singular, _ = np.linalg.svd(self.matrix / size[:, None], full_matrices=False)
        fitted = vectors[:, singular > 1e-10 * singular[0]]
        next_to = np.flatnonzero(self.run[1:] == self.run[:-1])
        squares, products = float(noise @ noise), float(noise[next_to] @ noise[next_to + 1])
        apart = np.where(self.run[:, None] == self.run, np.abs(minute[:, None] - minute), minute.size)
        if not squares > 0:
            return np.zeros(apart.shape)

        def correlation(phi: float) -> FloatArray:
            return np.asarray(np.append(phi**minute, 0.0)[apart])

        def expected(phi: float) -> tuple[float, float]:  # the sums that noise of unit variance leaves after the fit
            moved = correlation(phi) @ fitted
            inner, here, there = fitted.T @ moved, fitted[next_to], fitted[next_to + 1]
            crossed = np.vdot(here, moved[next_to + 1]) + np.vdot(moved[next_to], there)
            products = phi * next_to.size - float(crossed) + float(np.vdot(here @ inner, there))
            return max(len(fitted) - float(np.trace(inner)), 1e-12), products

        sums = np.array([expected(phi) for phi in MEMORIES])
        phi = float(np.interp(products / squares, np.maximum.accumulate(sums[:, 1] / sums[:, 0]), MEMORIES))
        return squares / expected(phi)[0] * correlation(phi)

    @property
    def size(self) -> FloatArray:
        """The size that the noise is in proportion to, above zero."""
        return np.maximum(self.usual, 1e-300)


def residual_errors(weights: FloatArray, left: Residuals) -> FloatArray:
    """Standard errors of sums of residuals with each row of `weights`, shape (k, n)."""
    sized = weights * left.size
    total = np.vecdot(sized @ left.covariance, sized)
    return np.asarray(np.sqrt(np.maximum(total, 0.0)), dtype=np.float64)


# ---- Judging --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeasuredAtLoad:
    """The metrics of an unbounded test at the highest load that both builds sustained, by slug, not yet judged."""

    curves: Mapping[str, MetricAtLoad] = field(default_factory=dict)
    noises: Mapping[str, Noise | None] = field(default_factory=dict)
    runs: tuple[int, int] = (0, 0)

    def judged(self, catalogue: Catalogue, looks: Looks | None = None) -> dict[str, LoadAdjustedResult]:
        """What the margins of `catalogue` make of them."""
        return judge_at_load(self.curves, self.runs, catalogue.find, lambda each: self.noises[each.slug], looks)


def measure_at_load(
    test: Test, views: Views, catalogue: Catalogue, groups: Sequence[RepeatedRuns], past: PastChanges | None = None
) -> MeasuredAtLoad:
    """Compare the runs of a test at equal load, where it is unbounded; nothing of it depends on a margin."""
    if test.type != "unbounded":
        return MeasuredAtLoad()
    base, new = ([run for view in views[side] if (run := loaded_run(view, catalogue))] for side in SIDES)
    curves = equal_load(base, new)
    noises = {
        metric.slug: noise_at_load(metric, groups, past, misread=reading_error(metric, views))
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
    """Judge `curves`, by slug, made from `runs` of each build; `noise_of` is what runs of one build differ by.

    The intervals hold at 95 % for all metrics of a family together (Bonferroni): of ten intervals at 95 % each, one
    lies wholly on the bad side in a fifth of the tests in which nothing changed.
    """
    metrics = {slug: find(slug) for slug in curves}
    noises = {slug: noise for slug, metric in metrics.items() if (noise := noise_of(metric)) is not None}
    effects = {slug: effect_at_load(curves[slug], noise, runs) for slug, noise in noises.items()}
    judged = {slug: _row(curve) for slug, curve in curves.items()}
    kinds = {slug: (family_of(metric), metric.better == Better.NEUTRAL) for slug, metric in metrics.items()}
    for kind in sorted({*kinds.values()}):
        family = [slug for slug in effects if kinds[slug] == kind]
        margins = [metrics[slug].margin_percent for slug in family]
        together = [effects[slug] for slug in family]
        level = looks.level if looks else ALPHA
        least = min_detectable_percent(together, margins, level)
        rows = zip(family, adjusted(together, margins, level), least, strict=True)
        for i, (slug, p_adjusted, size) in enumerate(rows):
            tested = judge(effects[slug], margins[i], metrics[slug].better, p_adjusted, looks=looks)
            low, high = tested.effect.interval(1.0 - level / len(family))
            own = {"ci_low": low, "ci_high": high, "p_adjusted": p_adjusted, "min_detectable_percent": size}
            own |= tested.enough_runs(df_per_run=0.0, reach=reach_at_load(together, margins, i))
            if tested.status == Status.NOT_WORSE:
                own["no_worse_than_percent"] = max(margins[i], high if tested.better == Better.LOWER else -low)
            noise_of_row = "equal_load" if noises[slug].at_load else "levels"
            judged[slug] = _row(curves[slug], **tested.deciding_row() | own, noise_of=noise_of_row)
    return judged


def _row(seen: MetricAtLoad, **judged: Any) -> LoadAdjustedResult:
    """A metric as a row of results.json; inconclusive where it was not judged."""
    return LoadAdjustedResult(
        users=seen.at_users,
        base=seen.base,
        new=seen.new,
        delta_percent=(seen.new / seen.base - 1.0) * 100.0,
        at_users_range=(float(seen.users[0]), float(seen.users[-1])),
        constant=seen.constant,
        within_se_log=seen.se_log,
        **{"status": Status.INCONCLUSIVE, **judged},
    )


def adjusted(effects: Sequence[Effect], margins_percent: Sequence[float], level: float = ALPHA) -> list[float]:
    """Adjusted p-values of one family: step-down over the likelihood ratio of the change to be found against none.

    One bound on that ratio shares the error out so that most changes of that size are found (Spjøtvoll 1972, Annals of
    Mathematical Statistics 43). The adjusted p-value is the probability, added up over the metrics that are not yet
    significant (Bonferroni), that one of them exceeds the ratio by chance and reaches beyond its own margin with its
    90 % interval (Tarone 1990, Biometrics 46: what cannot be significant costs nothing).
    """
    signal, chances = _shares(effects, margins_percent, level)
    p_values = np.array([effect.p_value for effect in effects])
    ratio = signal * np.array([abs(effect.log_ratio) / max(effect.sd, 1e-12) for effect in effects]) - signal**2 / 2.0
    left, found, worst = np.arange(ratio.size), np.ones(ratio.size), 0.0
    for i in np.argsort(-ratio, kind="stable"):
        chance = float(chances(ratio[i])[left].sum())
        found[i] = worst = max(worst, min(max(chance, float(p_values[i])), 1.0))
        left = left[left != i]
    return [float(p) for p in found]


def min_detectable_percent(
    effects: Sequence[Effect], margins_percent: Sequence[float], level: float = ALPHA
) -> list[float]:
    """The smallest rise of each metric that :func:`adjusted` finds with a probability of 80 %, alone in its family."""
    found = zip(effects, _reaches(effects, margins_percent, level), margins_percent, strict=True)
    return [effect.min_detectable_percent(margin, 1, each * effect.sd, level) for effect, each, margin in found]


def reach_at_load(
    effects: Sequence[Effect], margins_percent: Sequence[float], position: int
) -> Callable[[float, float], float]:
    """How many standard errors the change at `position` of a family must have, by its standard error and its level.

    With more runs all of the family are known better.
    """

    def reach(sd: float, level: float) -> float:
        scale = sd / effects[position].sd
        scaled = [replace(effect, sd=effect.sd * scale) for effect in effects]
        return _reaches(scaled, margins_percent, level)[position]

    return reach


def _reaches(effects: Sequence[Effect], margins_percent: Sequence[float], level: float) -> list[float]:
    """How many standard errors each change must have so that :func:`adjusted` is below `level`."""
    if not effects:
        return []
    signal, chances = _shares(effects, margins_percent, level)
    least = -(float(signal.max()) ** 2)
    if chances(least).sum() > level:
        df = [min(effect.df, 1e9) for effect in effects]
        enough = special.stdtrit(df, 1.0 - level / (2 * signal.size))  # standard errors that leave each its equal part
        most = float((signal * (enough - signal / 2.0)).max()) + 1.0
        least = root(lambda ratio: float(chances(ratio).sum()) - level, least, most)
    return [float(each) for each in signal / 2.0 + least / signal]


def _shares(
    effects: Sequence[Effect], margins_percent: Sequence[float], level: float
) -> tuple[FloatArray, Callable[[float], FloatArray]]:
    """The change to be found of each metric, in standard errors, and how likely each exceeds a ratio by chance."""
    sd, df = np.array([(max(effect.sd, 1e-12), min(effect.df, 1e9)) for effect in effects]).reshape(-1, 2).T
    signal = math.log1p(FOUND_PERCENT / 100.0) / sd
    margins = np.array(margins_percent) / 100.0
    bounds = np.log1p(margins), -np.log1p(-np.minimum(margins, 0.999))  # on the way up and down
    inside = special.stdtrit(df, 1.0 - level)  # how far the interval reaches, in standard errors
    beyond = sum(special.stdtr(df, np.minimum(inside - bound / sd, 0.0)) for bound in bounds)  # where nothing changed
    return signal, lambda ratio: np.minimum(
        2.0 * special.stdtr(df, -np.maximum(signal / 2.0 + ratio / signal, 0.0)), beyond
    )


def effect_at_load(seen: MetricAtLoad, noise: Noise, runs: tuple[int, int]) -> Effect:
    """The difference at the highest load with what runs of one build differ by, for `runs` runs of each build."""
    between = noise.sd * math.sqrt(1.0 / runs[0] + 1.0 / runs[1])
    sd = math.hypot(noise.within_scale * seen.se_log, between)
    run_sd = sd / math.sqrt(1.0 / runs[0] + 1.0 / runs[1])
    return Effect(seen.log_ratio, sd, noise.df, run_sd, noise.noise_source, noise.comparisons)


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


def noise_at_load(
    metric: Metric, groups: Sequence[RepeatedRuns] = (), past: PastChanges | None = None, *, misread: float = 0.0
) -> Noise | None:
    """Noise of `metric` at equal load between runs, without the error within them, which each pair adds itself.

    The catalogue's value (at equal load, else of levels) counts for a few degrees of freedom beside groups of repeated
    unbounded runs. Without a group measured at equal load, the noise of levels is used if runs taught it, else that
    value alone. Earlier comparisons scale all of it, and the error within the runs too. None where nothing is known.
    """
    known = _repeated_noise(metric, groups)
    return with_past(known, (past or {}).get(("equal_load", metric.slug), ()), misread=misread)


def _repeated_noise(metric: Metric, groups: Sequence[RepeatedRuns]) -> Noise | None:
    catalogue = catalogue_noise(metric, "equal_load") or catalogue_noise(metric, "unbounded")
    learned = learned_at_load(metric.slug, groups)
    if learned is None:
        levels = metric_noise(metric, "unbounded", groups)
        return levels if levels is not None and levels.noise_source == NoiseSource.CALIBRATION else catalogue
    return run_to_run.mixed_noise(learned, catalogue, catalogue.df) if catalogue else learned


def learned_at_load(slug: str, groups: Sequence[RepeatedRuns]) -> Noise | None:
    """Noise of a metric at equal load from repeated unbounded runs alone."""
    measured = [group.at_load[slug] for group in groups if slug in group.at_load]
    if not measured:
        return None
    between = [max(each.variance - each.within, LEAST_BETWEEN * each.variance) for each in measured]
    variance, df = run_to_run.pool_variances(np.array(between), np.array([each.df for each in measured]))
    return Noise(max(math.sqrt(variance), run_to_run.LEAST_SD), df, NoiseSource.CALIBRATION, at_load=True)
