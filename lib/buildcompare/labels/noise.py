"""Predict how far one label's value moves between two runs of one build, where most labels have few repeated runs."""

import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pandas as pd
from scipy import special

from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import NoiseSource, TestType
from buildcompare.stats.noise import LABEL_KEY, NO_LABELS, Noise, RepeatedRuns, RunLevels

FEWEST_SETUPS = 3  # Setups that the tails need: one is held out, and the others must not be one alone
FEWEST_ROWS = 20  # Labels with repeated values that a table needs before its noise is modelled at all
RESOLUTION = 0.01  # Noise below one percent is not told apart: percentiles come from histograms with few buckets
KNOTS = (0.05, 0.35, 0.65, 0.95)  # Quantiles of the levels: Harrell (2001), Regression Modeling Strategies, table 2.3
_LogVariance = Callable[[pd.DataFrame], FloatArray]  # Expected log variance of the rows of one table


@dataclass(frozen=True)
class LabelNoise:
    """The noise of labels, learned from groups of repeated runs.

    Short times and rare calls are noisier, and so is what was noisy elsewhere: log variances are modelled by a natural
    cubic spline in the log level (Hastie, Tibshirani & Friedman 2009, section 5.2.1) and an effect of each label shrunk
    towards it by its reliability (best linear unbiased prediction, Robinson 1991). Differences of held-out groups
    divided by the predicted noise follow a scaled t, fitted by maximum likelihood: the tails are measured, not assumed.
    """

    groups: Sequence[RepeatedRuns] = ()

    def predict(self, runs: Sequence[pd.DataFrame], test_type: TestType) -> dict[tuple[str, str, str], Noise]:
        """The noise by group, label and statistic of the label tables of all runs at hand; without what is unknown."""
        rows = pd.concat([run[run["value"] > 0] for run in runs])
        if rows.empty or self.tails is None:
            return {}
        df, scale = self.tails
        rows = rows.assign(level=np.log(rows["value"]), calls=rows["calls"].where(rows["calls"] > 0))
        found = rows.groupby(LABEL_KEY, as_index=False)[["level", "calls"]].mean()
        sds = scale * self.predicted(found.assign(log_calls=np.log(found["calls"]), bounded=test_type == "bounded"))
        keys = found[LABEL_KEY].itertuples(index=False, name=None)
        return {key: Noise(sd, df, NoiseSource.CALIBRATION) for key, sd in zip(keys, sds, strict=True) if sd > 0}

    @cached_property
    def tails(self) -> tuple[float, float] | None:
        """Degrees of freedom and scale of the t distribution of differences over the noise of the other groups."""
        from scipy import stats

        scores = []
        for left_out in self.groups if len(self.groups) >= FEWEST_SETUPS else ():
            pairs = label_pairs(left_out)
            sds = LabelNoise([group for group in self.groups if group is not left_out]).predicted(pairs)
            score = np.log((pairs["second"] / pairs["first"]).to_numpy()) / (math.sqrt(2.0) * sds)
            if np.isfinite(score).any():
                scores.append(score[np.isfinite(score)])
        if len(scores) < FEWEST_SETUPS - 1:
            return None
        df, _, scale = stats.t.fit(np.concatenate(scores), floc=0.0)
        return float(df), float(scale)

    def predicted(self, rows: pd.DataFrame) -> FloatArray:
        """The predicted standard deviation of one run (log scale), before the tails; NaN where nothing is known.

        `rows` have the columns group, label, stat, level (log), log_calls (NaN: unknown) and bounded.
        """
        found = np.full(len(rows), np.nan)
        for table, at in rows.groupby(["group", "stat"]).indices.items():
            if log_variance := self._models.get(table):
                found[at] = np.exp(0.5 * log_variance(rows.iloc[at]))
        return found

    @cached_property
    def _models(self) -> dict[Hashable, _LogVariance]:
        rows = pd.concat([_variances(group) for group in self.groups] or [NO_LABELS])
        tables = rows.groupby(["group", "stat"])
        return {table: _fit(of_table) for table, of_table in tables if len(of_table) >= FEWEST_ROWS}


def _fit(rows: pd.DataFrame) -> _LogVariance:
    """Fit log variances by a spline in the level, call rate and test type, and an effect of each label."""
    knots: FloatArray = np.asarray(rows["level"].quantile(KNOTS), dtype=np.float64)
    log_calls = float(rows["log_calls"].mean()) if rows["log_calls"].notna().any() else 0.0
    design, wanted = _design(rows, knots, log_calls), rows["log_variance"].to_numpy()
    coefficients: FloatArray = np.linalg.lstsq(design, wanted, rcond=None)[0]
    residuals = pd.Series(wanted - design @ coefficients).groupby(rows["label"].to_numpy())
    means, counts = residuals.mean(), residuals.count()
    within = float((residuals.std(ddof=0) ** 2 * counts).sum()) / max(float((counts - 1).sum()), 1.0)
    between = max(float((means**2).mean() - (within / counts).mean()), 0.0)
    effects = means * (between / (between + within / counts)) if between else 0.0 * means

    def log_variance(rows: pd.DataFrame) -> FloatArray:
        own = rows["label"].map(effects).fillna(0.0).to_numpy(dtype=np.float64)
        return own + _design(rows, knots, log_calls) @ coefficients

    return log_variance


def _design(rows: pd.DataFrame, knots: FloatArray, log_calls: float) -> FloatArray:
    """Columns: one, level, two natural cubic spline terms, call rate, test type.

    By hand, because patsy.cr refuses knots that coincide, which they do where many labels have one level.
    """
    level = np.clip(rows["level"].to_numpy(), knots[0], knots[-1])
    cubes = np.maximum(level[:, None] - knots, 0.0) ** 3
    slopes = (cubes[:, :-1] - cubes[:, -1:]) / np.maximum(knots[-1] - knots[:-1], 1e-9)
    rest = rows["log_calls"].fillna(log_calls), rows["bounded"].astype(float)
    return np.column_stack([np.ones_like(level), level, slopes[:, :-1] - slopes[:, -1:], *rest])


@lru_cache(256)  # many models are learned from the same groups, all but one
def _variances(group: RepeatedRuns) -> pd.DataFrame:
    """Log variance, level and calls of each label with repeated values."""
    rows = pd.concat([NO_LABELS, *(run.labels[run.labels["value"] > 0] for run in group.runs)])
    rows = rows.assign(log=np.log(rows["value"]), log_calls=np.log(rows["calls"].where(rows["calls"] > 0)))
    found = rows.groupby(LABEL_KEY, as_index=False).agg(
        level=("log", "mean"), variance=("log", "var"), runs=("log", "size"), log_calls=("log_calls", "mean")
    )
    found = found[found["runs"] > 1]
    half_df = (found["runs"] - 1.0) / 2.0
    bias = special.digamma(half_df) - np.log(half_df)  # of the logarithm of a variance
    return found.assign(log_variance=np.log(found["variance"] + RESOLUTION**2) - bias, bounded=group.type == "bounded")


@lru_cache(256)
def label_pairs(group: RepeatedRuns) -> pd.DataFrame:
    """Every label in every pair of runs of one group: its values `first` and `second`, and what predicts its noise."""
    found = []
    for number, runs in enumerate([*itertools.combinations(group.runs, 2)] or [(RunLevels(), RunLevels())]):
        first, second = (run.labels[run.labels["value"] > 0] for run in runs)
        pair = first.merge(second, on=LABEL_KEY, suffixes=("_first", "_second")).sort_values(["group", "stat", "label"])
        found.append(pair.assign(pair=number))
    pairs = pd.concat(found, ignore_index=True).rename(columns={"value_first": "first", "value_second": "second"})
    calls = pairs[["calls_first", "calls_second"]]
    return pairs.assign(
        level=np.log(pairs[["first", "second"]]).mean(axis=1),
        log_calls=np.log(calls.where(calls > 0).mean(axis=1)),
        bounded=group.type == "bounded",
    )
