"""Compare metrics of two builds at equal load: each metric as a curve over the connected users.

In an unbounded test a build that carries more users is measured under more load. So every minute under load counts, the
ramp too, at the users that were connected then; the builds are compared where both were.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Catalogue
from buildcompare.load.view import RunView
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import Pair
from buildcompare.stats.changepoints import robust_sd

MINUTE_S = 60.0  # means are taken over this long: the queries are rates over one minute
CLIMB_S = 120.0
"""Users who came within this long count as coming: one minute of rate, and one minute for a login's work."""
SUSTAINED_S = 600.0  # a build sustained the highest load that it was at or above for this long in all
LOWEST, HIGHEST = 0.3, 2.0  # parts of the highest common load between which loads count: below is a server's cold start
KNOTS = 4  # of each spline: enough for a saturating metric, few enough for a ramp of half an hour
FEWEST = 15  # minutes that each build needs
POINTS = 41  # of the curves
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
    minutes = [
        _under_load(_minutes(run), top).assign(side=side, run=number)
        for number, (side, run) in enumerate([*((0, run) for run in base), *((1, run) for run in new)])
    ]
    shared = [set().union(*(run.metrics for run in runs)) for runs in (base, new)]
    slugs = sorted(shared[0] & shared[1])
    return {slug: metric for slug in slugs if (metric := _metric(slug, minutes, top)) is not None}


def loaded_run(view: RunView, catalogue: Catalogue) -> LoadedRun | None:
    """A run with its metrics over the connected users; None without a curve of users."""
    if view.users is None or view.stop is None:
        return None
    return LoadedRun(view.users, _curves(view, catalogue.load.slug if catalogue.load else None), view.stop.at_s)


def loaded_by_proxy(view: RunView, catalogue: Catalogue) -> LoadedRun | None:
    """The same over a curve that stands in for the users, for runs of one build; None where its scale is unknown."""
    if view.users is not None or view.load is None or view.load_slug is None or view.stop is None:
        return None
    per_user = catalogue.find(view.load_slug).proxy_per_unit
    return LoadedRun(view.load / per_user, _curves(view, view.load_slug), view.stop.at_s) if per_user else None


def _curves(view: RunView, without: str | None) -> dict[str, pd.Series]:
    slugs = sorted({series.metric for series in view.recording.graphs()} - {without})
    return {slug: view.recording.curve(total) for slug in slugs if (total := view.recording.total(slug)) is not None}


def _minutes(run: LoadedRun) -> pd.DataFrame:
    """One row for each minute before the stop: users, the rate at which users came, and the metrics."""
    users = _until_stop(run.users, run)
    elapsed = users.index.to_numpy(dtype=np.float64)
    values = users.to_numpy(dtype=np.float64)
    total = np.cumsum(np.maximum(np.diff(values, prepend=values[:1]), 0.0))
    before = np.interp(elapsed - CLIMB_S, elapsed, total) if elapsed.size else total
    climb = pd.Series((total - before) / CLIMB_S, index=users.index)
    columns = {"users": users, "climb": climb} | {slug: _until_stop(curve, run) for slug, curve in run.metrics.items()}
    minute = {name: np.floor_divide(each.index.to_numpy(dtype=np.float64), MINUTE_S) for name, each in columns.items()}
    return pd.DataFrame({name: column.groupby(minute[name]).mean() for name, column in columns.items()})


def _until_stop(curve: pd.Series, run: LoadedRun) -> pd.Series:
    return pd.Series(curve[np.isfinite(curve.to_numpy()) & (curve.index <= run.stop_s)])


def _sustained(run: LoadedRun) -> float:
    users = _until_stop(run.users, run)
    if len(users) < 2:
        return math.nan
    count = max(round(SUSTAINED_S / float(np.median(np.diff(users.index.to_numpy())))), 1)
    return float(users.nlargest(count).iloc[-1]) if len(users) >= count else math.nan


def _under_load(table: pd.DataFrame, top: float) -> pd.DataFrame:
    """Minutes at a load of interest, after the last time that the load was below it before it was first high."""
    users = table["users"].to_numpy()
    high = np.flatnonzero(users >= 0.9 * top)
    low = np.flatnonzero(users[: high[0]] < LOWEST * top) if high.size else np.empty(0, dtype=int)
    later = table.iloc[int(low[-1]) + 1 if low.size else 0 :]
    return later[later["users"].between(LOWEST * top, HIGHEST * top)]


def _metric(slug: str, tables: Sequence[pd.DataFrame], top: float) -> MetricAtLoad | None:
    from patsy import cr

    columns = ["users", "climb", "side", "run", slug]
    rows = pd.concat([each.loc[each[slug] > 0, columns].dropna() for each in tables if slug in each])
    users, climb, side, run, values = (rows[name].to_numpy() for name in columns)
    if min(int(np.sum(side == own)) for own in (0, 1)) < FEWEST:
        return None
    low = max(float(users[side == own].min()) for own in (0, 1))
    if low >= top:
        return None
    usual = float(np.median(values))
    values = np.clip(values, usual / FARTHEST, usual * FARTHEST)
    knots = np.linspace(float(users.min()), top, KNOTS) / top
    knots = np.append(knots, users.max() / top) if users.max() > 1.02 * top else knots

    def design(at: FloatArray, climb: FloatArray, side: FloatArray) -> FloatArray:
        """One row per load, shape (n, 2 knots + 2): a spline for each build, and the cost of new users for both."""
        spline = np.asarray(cr(at / top, knots=knots[1:-1], lower_bound=knots[0], upper_bound=knots[-1]))
        return np.column_stack([spline * (side == 0)[:, None], spline * (side == 1)[:, None],
                                climb, climb * (top / at - 1.0)])  # fmt: skip

    matrix = design(users, climb, side)
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
    wanted = [design(loads, usual_climb, np.full(POINTS, own)) for own in (0, 1)]
    curves = [each @ coefficients for each in wanted]
    if min(float(curve[-1]) for curve in curves) <= 0:
        return None
    bad = np.flatnonzero((curves[0] <= 0) | (curves[1] <= 0))  # a straight term may undercut a small value
    first = int(bad[-1]) + 1 if bad.size else 0
    base, new = (curve[first:] for curve in curves)

    scaled = [wanted[0][first:] / base[:, None], wanted[1][first:] / new[:, None]]
    weights = np.vstack([*scaled, scaled[1] - scaled[0]]) @ inverse
    errors = residual_errors(weights, left).reshape(3, -1)
    logins = design(loads, climbs[1], np.zeros(POINTS)) - design(loads, climbs[0], np.zeros(POINTS))
    doubts = DOUBT * (logins[:, -2:] @ coefficients[-2:])[first:] / (np.sqrt(base) * np.sqrt(new))
    ratios = np.log(new / base)
    log_ratio, se_log, constant = pooled_ratio(ratios, weights[-ratios.size :], doubts, left)
    there = math.sqrt(float(base[-1])) * math.sqrt(float(new[-1]))
    at_usual = design(users, np.interp(users, loads, usual_climb), side) @ coefficients + left.values
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


def residual_errors(weights: FloatArray, left: Residuals) -> FloatArray:
    """Standard errors of sums of residuals with each row of `weights`, shape (k, n): AR(1) noise before the fit.

    A fit takes the slow part of the noise away with the curve. So the noise over its usual size is taken as AR(1)
    within each run, with the coefficient and variance whose expected sums of squares and of products of neighbours,
    after the fit's projection, equal the observed ones (a method of moments). By hand: a prewhitened HAC estimate is
    half the truth in every fourth fit and fifty times too large in some; GLSAR's 95 % intervals hold it in 85 %.
    """
    size = np.maximum(left.usual, 1e-300)
    noise = left.values / size
    vectors, singular, _ = np.linalg.svd(left.matrix / size[:, None], full_matrices=False)
    fitted = vectors[:, singular > 1e-10 * singular[0]]
    runs = [np.flatnonzero(left.run == each) for each in np.unique(left.run)]
    next_to = np.concatenate([part[:-1] for part in runs])
    squares, products = float(noise @ noise), float(noise[next_to] @ noise[next_to + 1])
    if not squares > 0:
        return np.zeros(len(weights))
    expected = np.array([_expected(phi, fitted, runs, next_to) for phi in MEMORIES])
    seen = np.maximum.accumulate(expected[:, 1] / expected[:, 0])
    phi = float(np.interp(products / squares, seen, MEMORIES))
    variance = squares / _expected(phi, fitted, runs, next_to)[0]
    total = np.zeros(len(weights))
    for part in runs:
        sized = weights[:, part] * size[part]
        total += np.einsum("ki,ki->k", sized @ _correlation(phi, part.size), sized)
    return np.asarray(np.sqrt(np.maximum(variance * total, 0.0)), dtype=np.float64)


def _expected(phi: float, fitted: FloatArray, runs: list[np.ndarray], next_to: np.ndarray) -> tuple[float, float]:
    """Sum of squares, and of products of neighbours, that noise of unit variance leaves after the fit."""
    moved = np.vstack([_correlation(phi, part.size) @ fitted[part] for part in runs])
    inner = fitted.T @ moved
    here, there = fitted[next_to], fitted[next_to + 1]
    crossed = np.einsum("ij,ij->", here, moved[next_to + 1]) + np.einsum("ij,ij->", moved[next_to], there)
    products = phi * next_to.size - float(crossed) + float(np.einsum("ij,ij->", here @ inner, there))
    return max(len(fitted) - float(np.trace(inner)), 1e-12), products


def _correlation(phi: float, size: int) -> FloatArray:
    """Of AR(1) noise, shape (size, size)."""
    each = np.arange(size)
    return np.asarray((phi**each)[np.abs(each[:, None] - each)], dtype=np.float64)
