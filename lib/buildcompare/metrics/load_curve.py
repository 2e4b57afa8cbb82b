"""At equal load, do the builds differ? Each metric as a curve over the connected users, of both builds.

In an unbounded test a build that carries more users is measured under more load, so the levels of its last 30
minutes cannot be held against the other's. Here every minute under load counts, the ramp too, at the users that were
connected then; the builds are compared where both were.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from buildcompare.metrics.load_errors import ResidualErrors, Residuals
from buildcompare.metrics.load_model import LoadModel, Minutes
from buildcompare.metrics.load_ratio import PoolRatio
from buildcompare.recordings.recording import FloatArray
from buildcompare.stats.effects import Effect
from buildcompare.stats.noise import Noise

FARTHEST = 1e6
"""A minute this many times above or below the usual is a fault of the recording, and counts as no farther off."""


@dataclass(frozen=True)
class LoadedRun:
    """One run: its connected users and its metrics, over elapsed seconds, up to `stop_s` (the end of the load)."""

    users: pd.Series
    metrics: Mapping[str, pd.Series]
    stop_s: float


@dataclass(frozen=True)
class MetricAtLoad:
    """One metric of both builds over the connected users.

    Attributes
    ----------
    at_users
        The highest load that both builds sustained.
    base, new
        The metric there, in its unit.
    log_ratio, se_log
        Logarithm of `new` over `base`, and its standard error within the runs (autocorrelation accounted for).
    constant
        Whether the difference was the same at every load as far as could be told, and is the mean over all of them.
    users
        Shape (n,): loads at which both builds were seen.
    curves, se_curves
        By build, shape (n,): the metric there, and the standard error of its logarithm within the runs.
    log_ratios, se_ratios
        Shape (n,): the difference at each load.
    points
        By build, shape (minutes, 2): users and metric of each minute, at the same rate of new users as the curves.
    """

    at_users: float
    base: float
    new: float
    log_ratio: float
    se_log: float
    constant: bool
    users: FloatArray
    curves: Mapping[str, FloatArray]
    se_curves: Mapping[str, FloatArray]
    log_ratios: FloatArray
    se_ratios: FloatArray
    points: Mapping[str, FloatArray]

    def effect(self, noise: Noise, runs: tuple[int, int]) -> Effect:
        """The difference at `at_users` with what runs of one build differ by, for `runs` runs of each build."""
        between = noise.sd**2 * (1.0 / runs[0] + 1.0 / runs[1])
        return Effect(
            self.log_ratio, math.hypot(self.se_log, math.sqrt(between)), noise.df, noise.sd, noise.noise_source
        )

    def intervals(self, noise: Noise, runs: tuple[int, int]) -> FloatArray:
        """95 % intervals of the difference in percent at each of `users`, shape (n, 2)."""
        between = noise.sd**2 * (1.0 / runs[0] + 1.0 / runs[1])
        rows = [
            Effect(
                float(ratio), math.hypot(float(se), math.sqrt(between)), noise.df, noise.sd, noise.noise_source
            ).interval()
            for ratio, se in zip(self.log_ratios, self.se_ratios, strict=True)
        ]
        return np.array(rows)


@dataclass(frozen=True)
class CompareAtLoad:
    """Fit every metric of both builds as a smooth curve over the users.

    Per build a natural cubic spline over the users, by weighted least squares over one-minute means. A login costs
    more than a connected user, and one build may climb through a load at which the other rests: so the rate at
    which users came is in the model too, with the same coefficients for both builds, and the builds are compared at
    the mean of the rates that they had at each load. Each estimate is a sum of weighted residuals; for its standard
    error see :class:`~buildcompare.metrics.load_errors.ResidualErrors`.

    Parameters
    ----------
    minute_s
        Means are taken over this long: the queries are rates over one minute.
    climb_s
        Users who came within this long count as coming: one minute of rate, and one minute for a login's work.
    sustained_s
        A build sustained the highest load that it was at or above for this long in all.
    lowest
        Loads below this part of the highest common load are left out, and with them a server's cold start.
    highest
        Loads above this part of it say nothing about it.
    knots
        Of each spline: enough for a saturating metric, few enough for a ramp of half an hour.
    doubt
        How far the cost of logins may be from a straight line: this part of what it explains of a difference
        counts as a standard error.
    fewest
        Minutes that each build needs.
    points
        Of the curves.
    tuning
        Of Huber's weights: 95 % efficient where the noise is normal.
    rounds
        Of weighting again.
    """

    minute_s: float = 60.0
    climb_s: float = 120.0
    sustained_s: float = 600.0
    lowest: float = 0.3
    highest: float = 2.0
    knots: int = 4
    fewest: int = 15
    points: int = 41
    doubt: float = 0.15
    tuning: float = 1.345
    rounds: int = 4
    errors: ResidualErrors = field(default_factory=ResidualErrors)
    pool: PoolRatio = field(default_factory=PoolRatio)

    def __call__(self, base: Sequence[LoadedRun], new: Sequence[LoadedRun]) -> dict[str, MetricAtLoad]:
        """Compare the metrics that runs of both builds have; empty where the builds shared no load.

        A metric without enough minutes above zero in a build has no entry.
        """
        tables = [[self._minutes(run) for run in runs] for runs in (base, new)]
        tops = [self._sustained(run) for runs in (base, new) for run in runs]
        top = min(tops, default=math.nan)
        if not top > 0 or any(not runs for runs in tables):
            return {}
        kept = [[self._under_load(table, top) for table in runs] for runs in tables]
        shared = [set().union(*(table.columns for table in runs)) for runs in kept]
        slugs = sorted((shared[0] & shared[1]) - {"users", "climb"})
        found = {slug: self._metric(slug, kept, top) for slug in slugs}
        return {slug: metric for slug, metric in found.items() if metric is not None}

    def _minutes(self, run: LoadedRun) -> pd.DataFrame:
        """One row for each minute before the stop: users, the rate at which users came, and the metrics."""
        users = run.users[np.isfinite(run.users.to_numpy()) & (run.users.index <= run.stop_s)]
        elapsed = users.index.to_numpy(dtype=np.float64)
        values = users.to_numpy(dtype=np.float64)
        total = np.cumsum(np.maximum(np.diff(values, prepend=values[:1]), 0.0))
        before = np.interp(elapsed - self.climb_s, elapsed, total) if elapsed.size else total
        columns = {"users": users, "climb": pd.Series((total - before) / self.climb_s, index=users.index)}
        for slug, curve in run.metrics.items():
            columns[slug] = curve[np.isfinite(curve.to_numpy()) & (curve.index <= run.stop_s)]
        return pd.DataFrame({name: _means(column, self.minute_s) for name, column in columns.items()})

    def _sustained(self, run: LoadedRun) -> float:
        users = run.users[np.isfinite(run.users.to_numpy()) & (run.users.index <= run.stop_s)]
        if len(users) < 2:
            return math.nan
        count = max(round(self.sustained_s / float(np.median(np.diff(users.index.to_numpy())))), 1)
        values = np.sort(users.to_numpy(dtype=np.float64))
        return float(values[-count]) if values.size >= count else math.nan

    def _under_load(self, table: pd.DataFrame, top: float) -> pd.DataFrame:
        """Minutes at a load of interest, after the last time that the load was below it before it was first high."""
        users = table["users"].to_numpy()
        high = np.flatnonzero(users >= 0.9 * top)
        low = np.flatnonzero(users[: high[0]] < self.lowest * top) if high.size else np.empty(0, dtype=int)
        first = int(low[-1]) + 1 if low.size else 0
        later = table.iloc[first:]
        return later[later["users"].between(self.lowest * top, self.highest * top)]

    def _metric(self, slug: str, tables: list[list[pd.DataFrame]], top: float) -> MetricAtLoad | None:
        parts = [
            (side, run.loc[run[slug] > 0, ["users", "climb", slug]].dropna())
            for side, runs in enumerate(tables)
            for run in runs
            if slug in run
        ]
        minutes = [sum(len(part) for own, part in parts if own == side) for side in (0, 1)]
        if min(minutes) < self.fewest:
            return None
        rows = pd.concat([part for _, part in parts])
        values = rows[slug].to_numpy()
        usual = float(np.median(values))
        seen = Minutes(
            users=rows["users"].to_numpy(),
            climb=rows["climb"].to_numpy(),
            values=np.clip(values, usual / FARTHEST, usual * FARTHEST),
            side=np.concatenate([np.full(len(part), own) for own, part in parts]),
            run=np.concatenate([np.full(len(part), i) for i, (_, part) in enumerate(parts)]),
        )
        low = max(float(seen.users[seen.side == own].min()) for own in (0, 1))
        return self._compared(seen, low, top) if low < top else None

    def _compared(self, seen: Minutes, low: float, top: float) -> MetricAtLoad | None:
        """Both curves from `low` to `top`, each load at the mean of the climbs that the builds had there."""
        places = np.linspace(float(seen.users.min()), top, self.knots)
        if seen.users.max() > 1.02 * top:
            places = np.append(places, seen.users.max())
        model = LoadModel(top, places / top)
        matrix = model.design(seen.users, seen.climb, seen.side)
        coefficients, inverse, size = self._fit(matrix, seen.values)

        grid = np.linspace(low, top, self.points)
        climbs = [seen.climb_near(grid, own) for own in (0, 1)]
        usual = (climbs[0] + climbs[1]) / 2.0
        wanted = [model.design(grid, usual, np.full(grid.size, own)) for own in (0, 1)]
        curves = [each @ coefficients for each in wanted]
        if min(float(curve[-1]) for curve in curves) <= 0:
            return None
        bad = np.flatnonzero((curves[0] <= 0) | (curves[1] <= 0))  # a straight term may undercut a small value
        first = int(bad[-1]) + 1 if bad.size else 0

        scaled = [each[first:] / curve[first:, None] for each, curve in zip(wanted, curves, strict=True)]
        weights = np.vstack([*scaled, scaled[1] - scaled[0]]) @ inverse
        residuals = seen.values - matrix @ coefficients
        left = Residuals(residuals, size, seen.run, matrix)

        def sum_errors(rows: FloatArray) -> FloatArray:
            return self.errors(rows, left)

        errors = sum_errors(weights).reshape(3, -1)
        apart = model.design(grid, climbs[1], seen.side[:1]) - model.design(grid, climbs[0], seen.side[:1])
        moved = apart[:, -2:] @ coefficients[-2:]
        doubtful = self.doubt * moved[first:] / (np.sqrt(curves[0][first:]) * np.sqrt(curves[1][first:]))
        ratios = np.log(curves[1][first:] / curves[0][first:])
        ratio = self.pool(ratios, weights[-ratios.size :], doubtful, sum_errors)
        there = math.sqrt(float(curves[0][-1])) * math.sqrt(float(curves[1][-1]))
        plain = model.design(seen.users, np.interp(seen.users, grid, usual), seen.side) @ coefficients + residuals
        return MetricAtLoad(
            at_users=top,
            base=there * math.exp(-ratio.log_ratio / 2.0),
            new=there * math.exp(ratio.log_ratio / 2.0),
            log_ratio=ratio.log_ratio,
            se_log=ratio.se_log,
            constant=ratio.constant,
            users=grid[first:],
            curves={"base": curves[0][first:], "new": curves[1][first:]},
            se_curves={"base": errors[0], "new": errors[1]},
            log_ratios=ratios,
            se_ratios=np.hypot(errors[2], doubtful),
            points={
                name: np.column_stack([seen.users, plain])[seen.side == own] for own, name in enumerate(("base", "new"))
            },
        )

    def _fit(self, matrix: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Coefficients, the matrix that makes them from the values, and the usual value of each minute.

        Noise grows with the metric: each minute weighs by its usual value, from a fit of the logarithms. Minutes
        that lie far off weigh less (Huber 1964).
        """
        logs = np.log(values)
        usual = np.exp(np.clip(matrix @ (np.linalg.pinv(matrix, rcond=1e-10) @ logs), logs.min(), logs.max()))
        weights = 1.0 / usual
        for _ in range(self.rounds):
            inverse = np.linalg.pinv(matrix * weights[:, None], rcond=1e-10) * weights
            coefficients = inverse @ values
            off = np.abs(values - matrix @ coefficients) / usual
            scale = max(float(np.median(off)) / 0.6745, 1e-12)
            weights = np.sqrt(np.minimum(self.tuning * scale / np.maximum(off, 1e-300), 1.0)) / usual
        return coefficients, inverse, usual


def _means(curve: pd.Series, seconds: float) -> pd.Series:
    """Means over stretches of this length, by the number of the stretch."""
    return curve.groupby(np.floor_divide(curve.index.to_numpy(dtype=np.float64), seconds)).mean()
