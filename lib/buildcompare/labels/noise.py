"""Estimate labels' run-to-run noise, from groups of repeated runs, the comparison's own runs, or the catalogue.

The constants below were chosen on half of Mattermost's unbounded tests. `benchmarks/accuracy.py` checks them.
"""

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from buildcompare.config.catalogue import LabelTable
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import NoiseSource
from buildcompare.stats.changepoints import robust_sd
from buildcompare.stats.effects import LABEL_ALPHA, Effect
from buildcompare.stats.noise import LABEL_KEY, LEAST_REPEATS, LENT_DF, Noise, RepeatedRuns, RunLevels, beside_repeats

TABLE = ["group", "stat"]  # Columns that identify a table of labels; the noise of each table is learned separately
FEWEST_SETUPS = 3  # Minimum number of setups for fitting the t distribution: one is held out, two or more remain
FEWEST_ROWS = 20  # Minimum rows of a label table for its noise and median change; an SD of 20 rows is off by about 16 %
RESOLUTION = 0.01  # Minimum noise (1 %), because percentiles come from histograms with few buckets
TYPICAL = 12.0
"""A label's variance is predicted as a weighted mean: the variance of its label table has this weight, and each squared
change of the label has weight 1. Values of 4 to 32 were tried on half of Mattermost's unbounded tests, for tuning."""
CALM = 0.8  # A t distribution is fitted to this quantile of |change / SD| and to the quantile 1 - `LABEL_ALPHA`
DFS = np.geomspace(0.5, 100.0, 100)  # Grid of degrees of freedom; the fit interpolates
SHORT, SHALLOW = 0.3, 0.7
"""Exponents of :func:`relative_noise` for fast labels and for percentiles. In two parts of the tuning data, some
durations were doubled; 58 and 42 % of these labels are detected at 2 % false alarms (47 and 29 % without exponents)."""
TYPICAL_S, TYPICAL_RATIO = 0.02, 2.0
"""Labels with an average below `TYPICAL_S` seconds (or below the table's median average, if lower) have more noise than
others. Percentiles have more noise if log(percentile / average) is below `TYPICAL_RATIO`, and less noise if above."""
ERRATIC = 4.0
"""Limit of a label's variance in the mean over its table: this many times the median, or the 90 % quantile if higher.
Set on one half of the unbounded tests. In the other half (identical builds, 3 runs each), 0.2 to 0.8 % of the labels
have p < 0.02 (ideal: 2 %); without this limit, 0.1 to 0.5 %."""
MANY_CALLS, MOST_OF_MANY = 100_000, 5.0  # Above 100,000 calls, a label's catalogue SD is at most 5 table SDs
QUIETEST = 0.1  # Minimum ratio of the spread of two runs to the usual spread; two copies of one file have a ratio of 0
MILLISECOND = 1e-3  # Unit, in seconds, to which published tables are rounded


@dataclass(frozen=True)
class TableNoise:
    """Noise between runs of one build for the labels of one table."""

    sd: float  # Robust SD of one run's log values over all labels
    df: float  # Degrees of freedom of the t distribution of change / predicted deviation
    source: NoiseSource = NoiseSource.CATALOGUE
    scale: float = 1.0  # Scale of the t distribution with `df` degrees of freedom
    usual: float = math.nan  # Median ratio of a label's absolute change to its predicted deviation
    labels: Mapping[str, float] = field(default_factory=dict)  # SD of log values of very noisy labels; others have `sd`


@dataclass(frozen=True)
class LabelNoise:
    """Noise of labels, from groups of repeated runs, or else from the catalogue's `tables`.

    The median change of a table is subtracted, because a whole run may be slower or faster. A label's variance is the
    weighted mean of its table's variance and its squared changes in `groups`. The SD is multiplied by
    :func:`relative_noise`, and in comparisons by sqrt(spread / usual spread). A table's spread is its labels' median
    |change| / SD. A t distribution is fitted to change / SD; each SD ignores the change's own group.
    """

    groups: Sequence[RepeatedRuns] = ()
    tables: Sequence[LabelTable] = ()

    def predict(self, rows: pd.DataFrame) -> dict[tuple[str, str, str], Noise]:
        """Map the key (`LABEL_KEY`) of each row to the predicted noise of one run; omit rows of unknown noise."""
        noises: dict[tuple[str, str, str], Noise] = {}
        relative = relative_noise(rows, "value", "value")
        for table, keys, at in self._tables(rows):
            if table is None:
                continue
            sds = table.scale * self._deviations(table, keys) * relative[at]
            noises |= {key: Noise(sd, table.df, table.source) for key, sd in zip(keys, sds, strict=True)}
        return noises

    def effects(
        self, rows: pd.DataFrame, runs: tuple[int, int] = (1, 1), repeats: pd.DataFrame | None = None
    ) -> pd.DataFrame:
        """Return for each row its table's median log change (`shared`) and the `effect` beyond this change.

        `rows` have the columns of `LABEL_KEY`, base and new (means over `runs` runs); a mean of 0 gives no effect. With
        `repeats`, the noise also uses the scatter between the comparison's own runs. `repeats` has a column for each
        key, a row for each run and the build as index. `rows` may have the column calls (sum of both builds, or 0).
        """
        all_shared, effects = np.zeros(len(rows)), np.full(len(rows), None, dtype=object)
        per_pair = math.sqrt(1.0 / runs[0] + 1.0 / runs[1])
        values = rows[["base", "new"]].to_numpy(dtype=np.float64).T
        positive = np.asarray((values > 0).all(axis=0))
        rounding, relative = _rounding(values[:, positive]), relative_noise(rows, "base", "new")
        calls = np.asarray(rows.get("calls", pd.Series(0.0, rows.index)), dtype=np.float64)
        few = np.sqrt(2.0 / np.where(calls > 0, calls, np.inf))  # relative SD of a build's mean of exponential times
        for table, keys, at in self._tables(rows, positive, every=repeats is not None):
            base, new = values[:, at]
            change = np.log(new / base)
            shared = float(np.median(change)) if change.size >= FEWEST_ROWS else 0.0
            scatter = None if repeats is None else _scatter(repeats, keys, calls[at])
            noises = scatter.noises() if scatter else []
            if table is not None:
                sd = self._deviations(table, keys, few[at]) * relative[at] * per_pair
                sd = np.hypot(sd, rounding * np.hypot(1.0 / base, 1.0 / new))
                usual = np.median(np.abs(change - shared) / sd) if change.size >= FEWEST_ROWS else table.usual
                run_sds = sd * table.scale * math.sqrt(max(usual / table.usual, QUIETEST)) / per_pair
                noises = [Noise(run_sd, table.df, table.source) for run_sd in run_sds]
                if scatter:
                    beside = beside_repeats(dict(enumerate(noises)), dict(enumerate(scatter.of_each())))
                    noises = [*beside.values()]
            all_shared[at] = shared
            for i, beyond, noise in zip(at, change - shared, noises, strict=True):
                if noise:
                    effects[i] = Effect(beyond, noise.sd * per_pair, noise.df, noise.sd, noise.noise_source)
        return pd.DataFrame({"shared": all_shared, "effect": effects}, rows.index)

    def _tables(
        self, rows: pd.DataFrame, counted: npt.NDArray[np.bool_] | None = None, *, every: bool = False
    ) -> Iterator[tuple[TableNoise | None, list[tuple[str, str, str]], list[int]]]:
        """Yield noise, keys and positions of each table's `counted` rows; skip tables without noise unless `every`."""
        labels = rows[LABEL_KEY].reset_index(drop=True)
        for table, part in (labels if counted is None else labels[counted]).groupby(TABLE, sort=False):
            noise = self._noises.get(table)
            if noise or every:
                yield noise, [*part.itertuples(index=False, name=None)], [*part.index]

    def _deviations(
        self, table: TableNoise, keys: Sequence[tuple[str, str, str]], few: npt.ArrayLike = 0.0
    ) -> FloatArray:
        """Predict the SD of one run's log value for each of `keys` in one table; `few` is the SD due to few calls."""
        many = (np.asarray(few) > 0.0) & (np.asarray(few) < math.sqrt(2.0 / MANY_CALLS))
        most = np.where(many, MOST_OF_MANY * table.sd, np.inf)
        stated = np.hypot(np.minimum([table.labels.get(label, table.sd) for _, label, _ in keys], most), few)
        squares, count = np.array([self._squares.get(key, (0.0, 0.0)) for key in keys]).T
        return np.asarray(_shrunk(stated, squares, count), dtype=np.float64)

    @cached_property
    def _noises(self) -> Mapping[Hashable, TableNoise]:
        stated = {(table.group, stat): noise for table in self.tables for stat, noise in table.run_sd_percent.items()}
        noises: dict[Hashable, TableNoise] = {}
        for table, each in stated.items():
            labels = {label: math.log1p(percent / 100.0) for label, percent in each.labels.items()}
            sd, usual = math.log1p(each.percent / 100.0), float(_reach(each.df, 0.5))
            noises[table] = TableNoise(sd, each.df, usual=usual, labels=labels)
        if len(self.groups) < FEWEST_SETUPS or self._changes["setup"].nunique() < FEWEST_SETUPS:
            return noises
        rows = self._changes.groupby(TABLE)
        return noises | {key: _learned(of_table) for key, of_table in rows if len(of_table) >= FEWEST_ROWS}

    @cached_property
    def _changes(self) -> pd.DataFrame:
        changes = pd.concat([label_pairs(group).assign(setup=number) for number, group in enumerate(self.groups)])
        changes["change"] = changes["change"] / changes["relative"]
        return changes.assign(square=changes["change"] ** 2)

    @cached_property
    def _squares(self) -> Mapping[Hashable, tuple[float, float]]:
        """Map the key of each label to the sum and the number of its squared changes."""
        if not self.groups:
            return {}
        squares = self._changes.groupby(LABEL_KEY)["square"].agg(["sum", "count"])
        return dict(zip(squares.index, squares.itertuples(index=False, name=None), strict=True))


@dataclass(frozen=True)
class _Scatter:
    """How much the labels of one table vary between a comparison's runs of the same build."""

    squares: FloatArray  # Sum of squared deviations of each label's log values from the mean of their build
    dfs: FloatArray
    alike: float  # Correlation between labels within a run, 0 to 1
    rarer: FloatArray  # The table's median number of calls divided by the label's, at least 1

    def of_each(self) -> list[Noise | None]:
        """Noise of each label from its runs alone; None if it has too few runs."""
        return [
            Noise(max(math.sqrt(square / df), RESOLUTION), df, NoiseSource.REPEATS) if df >= LEAST_REPEATS else None
            for square, df in zip(self.squares.tolist(), self.dfs.tolist(), strict=True)
        ]

    def noises(self) -> list[Noise | None]:
        """Noise of each label from its own values and those of the whole table; None for a label with few runs."""
        if not self.dfs.any():
            return [None] * self.dfs.size
        variances = self.squares / np.maximum(self.dfs, 1.0)
        most, labels = self.dfs.max(), np.count_nonzero(self.dfs)
        known = variances[self.dfs > 0]
        most_of_one = max(ERRATIC * np.median(known), np.quantile(known, 0.9))
        pooled = np.average(np.minimum(variances, most_of_one), weights=self.dfs)
        others = min(most * (labels / (1.0 + (labels - 1.0) * self.alike) - 1.0), LENT_DF)
        total = others + self.dfs
        sds = np.sqrt((others * pooled * self.rarer + self.squares) / np.maximum(total, 1.0))
        return [
            Noise(max(sd, RESOLUTION), df, NoiseSource.REPEATS) if own >= LEAST_REPEATS else None
            for sd, df, own in zip(sds.tolist(), total.tolist(), self.dfs.tolist(), strict=True)
        ]


def _scatter(repeats: pd.DataFrame, keys: Sequence[tuple[str, str, str]], calls: FloatArray) -> _Scatter:
    """Measure the scatter of one table; with at least `FEWEST_ROWS` labels, subtract each run's median deviation."""
    values = repeats.reindex(columns=pd.MultiIndex.from_tuples(keys))
    logs = pd.DataFrame(np.log(values.where(values > 0)), values.index, values.columns)
    builds = logs.groupby(level=0)
    deviations = logs - builds.transform("mean")
    if len(keys) >= FEWEST_ROWS:
        deviations = deviations.sub(deviations.median(axis=1), axis=0)
    squares, dfs = (deviations**2).sum().to_numpy(), (builds.count() - 1).clip(lower=0).sum().to_numpy(dtype=np.float64)
    alike, labels = 0.0, int(np.count_nonzero(dfs))
    if labels > 1 and (pooled := squares.sum() / dfs.sum()) > 0:
        together = float((deviations.mean(axis=1) ** 2).sum()) / dfs.max()
        alike = min(max((together * labels / pooled - 1.0) / (labels - 1.0), 0.0), 1.0)
    typical = float(np.median(counted)) if (counted := calls[calls > 0]).size else 1.0
    return _Scatter(squares, dfs, alike, np.maximum(typical / np.where(calls > 0, calls, typical), 1.0))


def _learned(changes: pd.DataFrame) -> TableNoise:
    """Estimate the noise of a table from the changes of its labels in all groups."""
    sd = max(robust_sd(changes["change"]), RESOLUTION)
    by_label, by_group = (changes.groupby(keys)["square"] for keys in (["label"], ["label", "setup"]))
    # Hold out the group of each change: subtract the group's sums from the sums over all groups.
    squares, count = (by_label.transform(what) - by_group.transform(what) for what in ("sum", "count"))
    scores = changes["change"].abs() / _shrunk(sd, squares, count)
    usual = float(scores.median())
    spread = scores.groupby([changes["setup"], changes["pair"]]).transform("median") / usual
    calm, rare = (scores / np.sqrt(spread.clip(lower=QUIETEST))).quantile([CALM, 1.0 - LABEL_ALPHA])
    # The ratio of the higher to the lower quantile determines the degrees of freedom: fatter tails have a larger ratio.
    df = float(np.interp(rare / calm, (_reach(DFS, 1.0 - LABEL_ALPHA) / _reach(DFS, CALM))[::-1], DFS[::-1]))
    return TableNoise(sd, df, NoiseSource.CALIBRATION, calm / float(_reach(df, CALM)), usual)


def relative_noise(rows: pd.DataFrame, first: str, second: str) -> FloatArray:
    """Return the noise of each label relative to that of its table, from the values of two runs.

    Fast labels have more noise, and so have percentiles that are close to the label's average (a sign of few calls).
    """
    values = rows[[first, second]]
    logs = pd.DataFrame(np.log(values.where(values > 0)), rows.index)
    average = logs.where(rows["stat"] == "avg").groupby([rows["group"], rows["label"]]).transform("max")
    above = (logs - average).min(axis=1).clip(0.0).where(rows["stat"].str.startswith("p"), TYPICAL_RATIO)
    level = average.mean(axis=1)
    level -= level.groupby([rows[name] for name in TABLE]).transform("median").clip(upper=math.log(TYPICAL_S))
    lower = SHALLOW * (above.fillna(TYPICAL_RATIO) - TYPICAL_RATIO) + SHORT * level.clip(upper=0.0).fillna(0.0)
    return np.asarray(np.exp(-lower.to_numpy(dtype=np.float64)))


def _reach(df: npt.ArrayLike, part: float) -> FloatArray:
    """Return half the width of the central interval that contains the fraction `part` of a t distribution."""
    return np.asarray(special.stdtrit(df, 0.5 + part / 2.0))


def _shrunk(sd: Any, squares: Any, count: Any) -> Any:
    return np.sqrt((TYPICAL * sd**2 + squares) / (TYPICAL + count))


def _rounding(values: FloatArray) -> float:
    """Return the SD of the rounding error if all `values` are whole milliseconds, else 0."""
    steps = values / MILLISECOND
    return MILLISECOND / math.sqrt(12.0) if np.allclose(steps, np.rint(steps), rtol=0.0, atol=1e-6) else 0.0


@lru_cache(256)  # many comparisons learn from the same groups
def label_pairs(group: RepeatedRuns) -> pd.DataFrame:
    """Make a row for each pair of a group's runs and each label in both: `first`, `second`, `relative` noise, `change`.

    `change` is (log ratio - the table's median log ratio) / sqrt(2), so that its SD is that of one run.
    """
    frames = []
    for number, runs in enumerate([*itertools.combinations(group.runs, 2)] or [(RunLevels(), RunLevels())]):
        first, second = (run.labels.loc[run.labels["value"] > 0, [*LABEL_KEY, "value"]] for run in runs)
        pair = first.merge(second, on=LABEL_KEY).set_axis([*LABEL_KEY, "first", "second"], axis=1)
        pair = pair.sort_values(["group", "stat", "label"], ignore_index=True)
        frames.append(pair.assign(pair=number, relative=relative_noise(pair, "first", "second")))
    pairs = pd.concat(frames, ignore_index=True)
    ratio = pd.Series(np.log(pairs["second"] / pairs["first"]))
    shared = ratio.groupby([pairs["pair"], *(pairs[name] for name in TABLE)]).transform("median")
    return pairs.assign(change=(ratio - shared) / math.sqrt(2.0))
