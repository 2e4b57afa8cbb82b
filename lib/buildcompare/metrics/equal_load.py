"""Estimate metrics of two builds at equal load: curves over the connected users, and the difference of the curves.

In an unbounded test, a build that supports more users is measured under more load. So each minute under load, ramp
included, is assigned to the number of users connected in it, and builds are compared at loads that both reached.

Constants without a stated source were fitted to simulated runs (seeds below 10,000 of `benchmarks/load_curve.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Catalogue
from buildcompare.load.curve import samples, sustained
from buildcompare.load.view import SHORTEST_S, RunView
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import Pair
from buildcompare.stats.changepoints import robust_sd
from buildcompare.stats.levels import MINUTE_S, SHOWS_S, minute_means

LOWEST, HIGHEST = 0.3, 2.0  # loads used, relative to the highest common load; below `LOWEST` the server is cold
KNOTS = 4  # number of knots of a spline: enough for a saturating metric, few enough for a ramp of half an hour
FEWEST = 15  # minimum number of minutes per build: together 30, three for each of ten coefficients
POINTS = 41  # number of points of a curve: one for each 2.5 % of its range
NEAR = 0.1  # the rate of new users at a load is averaged over minutes whose load differs by at most 10 %
DOUBT = 0.15
"""Assumed relative error of the subtracted cost of logins, which may not be proportional to the rate of logins."""
HUBER = 0.3
"""Tuning constant of the robust fit (Huber 1964). It is low, so that waves of overload hardly count. On red noise,
standard errors are 0.98 of the true standard deviation with this constant, and 0.85 with the usual constant 1.345."""
ROUNDS = 4
"""Number of reweighting rounds of the robust fit. RLM of statsmodels takes nine times as long."""
CONTRADICTED = 3.0
"""Number of standard errors beyond which the difference at the highest load contradicts the common difference."""
FARTHEST = 1e6
"""Means over one minute are limited to this factor above and below the median. Farther values are recording faults."""
COSINES = 0.4
"""The noise of n minutes is measured by `COSINES` * n^(2/3) slow cosines (Lazarus, Lewis, Stock & Watson 2018)."""

Fit = tuple[FloatArray, FloatArray, FloatArray, float]  # the results of :func:`_fit`


@dataclass(frozen=True)
class LoadedRun:
    """Connected users and metrics of one run over elapsed seconds, up to the end of the load at `stop_s`."""

    users: pd.Series
    metrics: Mapping[str, pd.Series]
    stop_s: float


@dataclass(frozen=True)
class MetricAtLoad:
    """One metric of both builds over n common loads (connected users); errors of curves exclude noise between runs."""

    at_users: float  # highest load that both builds sustained
    base: float  # the metric at `at_users`, in its unit
    new: float
    log_ratio: float  # logarithm of `new` over `base`
    se_log: float  # standard error of `log_ratio`; includes noise between runs only if `constant` is False
    constant: bool  # True if `log_ratio` holds at every load, not only at `at_users`
    users: FloatArray  # the loads, shape (n,)
    curves: Pair[FloatArray]  # the metric at these loads, shape (n,)
    se_curves: Pair[FloatArray]  # standard errors of the logarithms of `curves`, shape (n,)
    se_ratios: FloatArray  # standard errors of log(new / base) at each load, shape (n,)
    points: Pair[FloatArray]  # users, and metric corrected to both builds' mean rate of new users; shape (minutes, 2)


def equal_load(
    base: Sequence[LoadedRun], new: Sequence[LoadedRun], noise: Callable[[str], float] = lambda slug: 0.0
) -> dict[str, MetricAtLoad]:
    """Compare metrics of two builds at the highest load that both sustained.

    Logarithms of minute means are fitted by robust least squares, with natural cubic splines over the users. A login
    costs more than a connected user, so the rate of new users is another term, with the same coefficients for both
    builds. Builds are compared at the mean of their rates of new users. A fit with one spline shape for both builds
    gives the result: a difference common to all loads. If separate splines contradict this difference at the highest
    load, the difference between these splines is the result. The standard error includes autocorrelation.

    Parameters
    ----------
    base, new
        Runs of each build: connected users and metrics, each a Series over elapsed seconds.
    noise
        Maps a metric's slug to the standard deviation of its log ratio between runs of one build. The larger it is,
        the less often the separate splines contradict the common difference; with infinity, they never do.

    Returns
    -------
    dict
        Comparison by slug, of metrics with enough minutes above zero in both builds; empty without a common load.

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
    curves = [samples(run.users, run.stop_s) for runs in (base, new) for run in runs]
    top = min((sustained(*each, SHORTEST_S) for each in curves), default=0.0)
    if not top > 0 or not base or not new:
        return {}
    runs = [*((0, run) for run in base), *((1, run) for run in new)]
    minutes = [pd.DataFrame(_minutes(run, top)).assign(side=side, run=i) for i, (side, run) in enumerate(runs)]
    columns = {str(name): column.to_numpy() for name, column in pd.concat(minutes).items()}
    shared = [set().union(*(run.metrics for run in runs)) for runs in (base, new)]
    slugs = sorted(shared[0] & shared[1])
    return {slug: each for slug in slugs if (each := _compare(slug, columns, top, noise(slug))) is not None}


def loaded_run(view: RunView, catalogue: Catalogue, *, by_proxy: bool = False) -> LoadedRun | None:
    """Collect the connected users and the metrics of a run; None without a curve of users.

    With `by_proxy`, a proxy with a known value per user replaces missing users. Use it only for runs of one build.
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
    """Minute means of users, of the rate of new users (over `SHOWS_S` seconds) and of metrics, up to the stop.

    Only minutes with `LOWEST` to `HIGHEST` times `top` users are used, after the ramp was last below this range.
    """
    elapsed, users = samples(run.users, run.stop_s)
    total = np.cumsum(np.maximum(np.diff(users, prepend=users[:1]), 0.0))
    before = np.interp(elapsed - SHOWS_S, elapsed, total) if elapsed.size else total
    columns = {"users": (elapsed, users), "climb": (elapsed, (total - before) / SHOWS_S)}
    columns |= {slug: samples(curve, run.stop_s) for slug, curve in run.metrics.items()}
    first, last = (each // MINUTE_S for each in (elapsed[0] if elapsed.size else 0.0, run.stop_s))
    count = int(last - first) + 1
    table = {name: minute_means(*column, start_s=first * MINUTE_S, count=count) for name, column in columns.items()}
    high = np.flatnonzero(table["users"] >= 0.9 * top)
    low = np.flatnonzero(table["users"][: high[0] if high.size else 0] < LOWEST * top)
    wanted = (table["users"] >= LOWEST * top) & (table["users"] <= HIGHEST * top)
    wanted[: int(low[-1]) + 1 if low.size else 0] = False
    return {name: column[wanted] for name, column in table.items()}


def _compare(slug: str, minutes: Mapping[str, FloatArray], top: float, noise: float) -> MetricAtLoad | None:
    """Fit the curves of one metric in both builds, and compare them; None with too few minutes or no common load."""
    used = (minutes[slug] > 0) & np.isfinite(minutes["users"]) & np.isfinite(minutes["climb"])
    users, climb, side, run, values = (minutes[name][used] for name in ("users", "climb", "side", "run", slug))
    builds = [side == each for each in (0, 1)]
    if min(int(each.sum()) for each in builds) < FEWEST:
        return None
    low = max(float(users[each].min()) for each in builds)
    if low >= top:
        return None
    median = float(np.median(values))
    logs = np.log(np.clip(values, median / FARTHEST, median * FARTHEST))
    loads = np.linspace(low, top, POINTS)
    at_users, at_loads = _splines(users, loads, top)
    logins = _logins(users, climb, top)
    of_builds = np.hstack([at_users * each[:, None] for each in builds])
    coefficients, inverse, residuals, variance = _fit(np.hstack([of_builds, logins]), logs, run)
    shift = _fit(np.hstack([side[:, None], at_users, logins]), logs, run)

    climbs = [_climb_at(loads, users[each], climb[each]) for each in builds]
    climb_at = (climbs[0] + climbs[1]) / 2.0
    at_climb, none = _logins(loads, climb_at, top), np.zeros_like(at_loads)
    rows = [np.hstack([*each, at_climb]) for each in ((at_loads, none), (none, at_loads))]
    apart = _logins(loads, climbs[1], top) - _logins(loads, climbs[0], top)
    at_climb = np.hstack([of_builds, _logins(users, np.interp(users, loads, climb_at), top)])
    points = np.column_stack([users, np.exp(at_climb @ coefficients + residuals)])
    logs_at, weights = [row @ coefficients for row in rows], [row @ inverse for row in rows]
    weights.append(weights[1] - weights[0])
    errors = _errors(np.array(weights), variance)
    ratios, doubts = logs_at[1] - logs_at[0], DOUBT * (apart @ coefficients[-2:])
    log_ratio, se_log, constant = _difference(ratios, weights[2], doubts, variance, shift, noise)
    there = float(logs_at[0][-1] + logs_at[1][-1]) / 2.0
    return MetricAtLoad(
        at_users=top, base=math.exp(there - log_ratio / 2.0), new=math.exp(there + log_ratio / 2.0),
        log_ratio=log_ratio, se_log=se_log, constant=constant, users=loads, curves=Pair(*map(np.exp, logs_at)),
        se_curves=Pair(errors[0], errors[1]), se_ratios=np.hypot(errors[2], doubts),
        points=Pair(points[builds[0]], points[builds[1]]),
    )  # fmt: skip


def _splines(users: FloatArray, loads: FloatArray, top: float) -> tuple[FloatArray, FloatArray]:
    """Evaluate the spline basis at each minute's users, and at the `loads`; the results have a column for each knot."""
    from patsy import cr

    knots = np.linspace(float(users.min()), top, KNOTS) / top
    knots = np.append(knots, users.max() / top) if users.max() > 1.02 * top else knots
    inner = {"knots": knots[1:-1], "lower_bound": knots[0], "upper_bound": knots[-1]}
    return np.asarray(cr(users / top, **inner)), np.asarray(cr(loads / top, **inner))


def _logins(users: FloatArray, climb: FloatArray, top: float) -> FloatArray:
    """Columns of the design matrix, shape (n, 2), for the cost of users who log in; both builds share coefficients."""
    return np.column_stack([climb, climb * (top / users - 1.0)])


def _climb_at(loads: FloatArray, users: FloatArray, climb: FloatArray) -> FloatArray:
    """Mean rate of new users over the minutes near each load, or the rate of the nearest minute if none is near."""
    apart = np.abs(users[None, :] - loads[:, None])
    near = apart <= NEAR * loads[:, None]
    count = near.sum(axis=1)
    return np.asarray(np.where(count > 0, near @ climb / np.maximum(count, 1), climb[np.argmin(apart, axis=1)]))


def _fit(matrix: FloatArray, logs: FloatArray, run: FloatArray) -> Fit:
    """Fit `logs` by the design `matrix`; return coefficients, weighted inverse, residuals and long-run variance.

    `run` has the index of each minute's run. Outliers get smaller weights (Huber).
    """
    weights = np.ones_like(logs)
    for _ in range(ROUNDS):
        inverse = np.linalg.pinv(matrix * weights[:, None], rcond=1e-10) * weights
        coefficients = inverse @ logs
        off = np.abs(logs - matrix @ coefficients)
        scale = max(robust_sd(off), 1e-12)
        weights = np.sqrt(np.minimum(HUBER * scale / np.maximum(off, 1e-300), 1.0))
    residuals = logs - matrix @ coefficients
    return coefficients, inverse, residuals, _long_run_variance(residuals, run, matrix)


def _difference(
    ratios: FloatArray, weights: FloatArray, doubts: FloatArray, variance: float, shift: Fit, noise: float
) -> tuple[float, float, bool]:
    """Return a log ratio of the builds, its standard error, and whether the log ratio is common to all loads.

    Most changes slow requests equally at every load. So the default is the common log ratio: the first coefficient of
    `shift`, a fit with one curve shape for both builds. The ratio at the highest load is returned if its distance to
    the common ratio exceeds `CONTRADICTED` standard errors. These errors include `noise` between runs, because this
    distance varies 1.2 times as much as the common ratio (9 metrics in half of the published unbounded tests).

    `ratios`, shape (n,), are logarithms of new over base at each load. Each row of `weights`, shape (n, minutes), gives
    the error of a ratio as a weighted sum of residuals, whose long-run variance is `variance`. `doubts`, shape (n,),
    are signed errors of `ratios` due to the uncertain cost of logins.
    """
    errors = np.hypot(_errors(weights, variance), doubts)
    doubt = float(np.average(doubts, weights=1.0 / np.maximum(errors, 1e-12) ** 2))
    (common, *_), (of_minutes, *_), _, around = shift
    apart_se = float(_errors(weights[-1] - of_minutes, variance))
    if abs(float(ratios[-1] - common)) > CONTRADICTED * math.hypot(apart_se, float(doubts[-1]) - doubt, noise):
        return float(ratios[-1]), math.hypot(float(errors[-1]), noise), False
    return float(common), math.hypot(float(_errors(of_minutes, around)), doubt), True


def _long_run_variance(residuals: FloatArray, run: FloatArray, matrix: FloatArray) -> float:
    """Long-run variance of a fit's noise, from its slowest oscillations (equal-weighted cosine estimator).

    Residuals of each run, in order of time, are projected onto the run's slowest cosine waves. The variance is the sum
    of the squared projections divided by (their degrees of freedom after the fit - 2), as for Student's t. Oscillations
    of the load are faster than these waves and do not count. An autoregression would take these oscillations for slow
    noise, and standard errors would be two to four times as large (Lazarus, Lewis, Stock & Watson 2018, "HAR inference:
    recommendations for practice", Journal of Business & Economic Statistics 36).
    """
    vectors, singular, _ = np.linalg.svd(matrix, full_matrices=False)
    fitted = vectors[:, singular > 1e-10 * singular[0]]
    squares = left = 0.0
    for minutes in (np.flatnonzero(run == each) for each in np.unique(run)):
        slow = np.arange(1, max(int(COSINES * minutes.size ** (2 / 3)), 2) + 1)
        at = (np.arange(minutes.size) + 0.5) / minutes.size
        cosines = math.sqrt(2.0 / minutes.size) * np.cos(np.pi * slow[:, None] * at)
        squares += float(((cosines @ residuals[minutes]) ** 2).sum())
        left += float((cosines**2).sum() - ((cosines @ fitted[minutes]) ** 2).sum())
    return squares / max(left - 2.0, 1.0)


def _errors(weights: FloatArray, variance: float) -> FloatArray:
    """Standard errors of weighted sums of residuals with a long-run `variance`; `weights` have shape (..., minutes)."""
    return np.asarray(np.sqrt(variance * (weights**2).sum(axis=-1)), dtype=np.float64)
