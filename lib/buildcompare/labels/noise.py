"""How far one label's value moves between two runs of one build: learned from repeated runs, or the catalogue's.

Its numbers were chosen on Mattermost's ceiling tests, the development half; `benchmarks/accuracy.py` prints rates.
"""

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from buildcompare.stats.effects import Effect
from buildcompare.stats.noise import LABEL_KEY, Noise, RepeatedRuns, RunLevels

TABLE = ["group", "stat"]  # What a table is told apart by: its noise is learned by itself
FEWEST_SETUPS = 3  # Setups that the tails need: one is held out, and the others must not be one alone
FEWEST_ROWS = 20  # Rows that a table needs for its noise and shared change: a spread of 20 is known to a sixth
RESOLUTION = 0.01  # Noise below one percent is not told apart: percentiles come from histograms with few buckets
TYPICAL = 12.0
"""Differences that the spread of the whole table counts for beside a label's own: of 4 to 32, by the development half
of Mattermost's ceiling tests, where a spline in the level and an effect of each label found no more."""
CALM, RARE = 0.8, 0.98  # Parts of the held-out changes at which their t distribution is fitted
DFS = np.geomspace(0.5, 100.0, 100)  # Its degrees of freedom lie between the first and the last
QUIETEST = 0.1  # Bound on how much calmer than usual a pair may be: two copies of one file differ in nothing
MILLISECOND = 1e-3  # Published tables are rounded to it


@dataclass(frozen=True)
class TableNoise:
    """How far the labels of one table move between runs of one build."""

    sd: float  # Of one run, log scale: robust, over all labels
    df: float  # Of the t distribution of changes over their predicted deviations
    source: NoiseSource = NoiseSource.CATALOGUE
    scale: float = 1.0  # Its scale
    usual: float = math.nan  # The median of these, before the spread of their pair is counted in


@dataclass(frozen=True)
class LabelNoise:
    """The noise of labels, from groups of repeated runs, or else as the catalogue's `tables` state it.

    A run is slower or faster as a whole, so a label's change is what it moved beyond the median of its table. A label
    that was noisy elsewhere is so again: its own squared changes count beside the spread of the table. And a pair of
    runs whose labels lie far apart says less of each: the root of how much farther than usual widens it. Changes of
    held-out groups over the deviations predicted so follow a t distribution, whose tails are measured by quantiles.
    """

    groups: Sequence[RepeatedRuns] = ()
    tables: Sequence[LabelTable] = ()

    def predict(self, rows: pd.DataFrame) -> dict[tuple[str, str, str], Noise]:
        """The noise of one run by group, label and statistic, of `rows` with these; without what is unknown."""
        found: dict[tuple[str, str, str], Noise] = {}
        for known, keys, _ in self._tables(rows):
            sds = known.scale * self._deviations(known, keys)
            found |= {key: Noise(sd, known.df, known.source) for key, sd in zip(keys, sds, strict=True)}
        return found

    def effects(self, rows: pd.DataFrame, runs: tuple[int, int] = (1, 1)) -> pd.DataFrame:
        """The change that the table of each row shares (`shared`, log scale), and the `effect` beyond it, or None.

        `rows` have the columns of `LABEL_KEY`, base and new: the means over so many `runs`, positive (else: no effect).
        """
        all_shared, effects = np.zeros(len(rows)), np.full(len(rows), None, dtype=object)
        per_pair = math.sqrt(1.0 / runs[0] + 1.0 / runs[1])
        values = rows[["base", "new"]].to_numpy(dtype=np.float64).T
        positive = np.asarray((values > 0).all(axis=0))
        rounding = _rounding(values[:, positive])
        for known, keys, at in self._tables(rows, positive):
            base, new = values[:, at]
            sd = np.hypot(self._deviations(known, keys) * per_pair, rounding * np.hypot(1.0 / base, 1.0 / new))
            change, shared, spread = np.log(new / base), 0.0, 1.0
            if change.size >= FEWEST_ROWS:
                shared = float(np.median(change))
                spread = max(float(np.median(np.abs(change - shared) / sd)) / known.usual, QUIETEST)
            noises = sd * known.scale * math.sqrt(spread)
            all_shared[at] = shared
            for i, own, noise in zip(at, change - shared, noises, strict=True):
                effects[i] = Effect(own, noise, known.df, noise / per_pair, known.source)
        return pd.DataFrame({"shared": all_shared, "effect": effects}, rows.index)

    def _tables(
        self, rows: pd.DataFrame, counted: npt.NDArray[np.bool_] | None = None
    ) -> Iterator[tuple[TableNoise, list[tuple[str, str, str]], list[int]]]:
        """The noise of each table that is known, with the keys and positions of its rows that are `counted`."""
        found: dict[tuple[str, str], dict[int, tuple[str, str, str]]] = {}
        for i, key in enumerate(zip(*(rows[name].tolist() for name in LABEL_KEY), strict=True)):
            if counted is None or counted[i]:
                found.setdefault((key[0], key[2]), {})[i] = key
        for table, keys in found.items():
            if known := self._known.get(table):
                yield known, [*keys.values()], [*keys]

    def _deviations(self, known: TableNoise, keys: Sequence[tuple[str, str, str]]) -> FloatArray:
        """The predicted deviation of one run of each of these labels of one table."""
        own = np.array([self._squares.get(key, (0.0, 0.0)) for key in keys]).T
        return np.asarray(_shrunk(known.sd, *own), dtype=np.float64)

    @cached_property
    def _known(self) -> Mapping[Hashable, TableNoise]:
        stated = {(table.group, stat): noise for table in self.tables for stat, noise in table.run_sd_percent.items()}
        known: dict[Hashable, TableNoise] = {
            key: TableNoise(math.log1p(each.percent / 100.0), each.df, usual=float(_reach(each.df, 0.5)))
            for key, each in stated.items()
        }
        if len(self.groups) < FEWEST_SETUPS or self._changes["setup"].nunique() < FEWEST_SETUPS:
            return known
        rows = self._changes.groupby(TABLE)
        return known | {key: _learned(of_table) for key, of_table in rows if len(of_table) >= FEWEST_ROWS}

    @cached_property
    def _changes(self) -> pd.DataFrame:
        pairs = [label_pairs(group).assign(setup=number) for number, group in enumerate(self.groups)]
        changes = pd.concat(pairs)
        return changes.assign(square=changes["change"] ** 2)

    @cached_property
    def _squares(self) -> Mapping[Hashable, tuple[float, float]]:
        """By label, the sum of its squared changes and their number."""
        if not self.groups:
            return {}
        known = self._changes.groupby(LABEL_KEY)["square"].agg(["sum", "count"])
        return dict(zip(known.index, known.itertuples(index=False, name=None), strict=True))


def _learned(changes: pd.DataFrame) -> TableNoise:
    """The noise of a table, from the changes of its labels in all groups."""
    sd = max(robust_sd(changes["change"]), RESOLUTION)
    by_label, by_group = (changes.groupby(keys)["square"] for keys in (["label"], ["label", "setup"]))
    squares, count = (by_label.transform(what) - by_group.transform(what) for what in ("sum", "count"))  # of the others
    scores = changes["change"].abs() / _shrunk(sd, squares, count)
    usual = float(scores.median())
    spread = scores.groupby([changes["setup"], changes["pair"]]).transform("median") / usual
    calm, rare = (scores / np.sqrt(spread.clip(lower=QUIETEST))).quantile([CALM, RARE])
    # The fatter the tails, the farther the rare ones lie from the calm ones.
    df = float(np.interp(rare / calm, (_reach(DFS, RARE) / _reach(DFS, CALM))[::-1], DFS[::-1]))
    return TableNoise(sd, df, NoiseSource.CALIBRATION, calm / float(_reach(df, CALM)), usual)


def _reach(df: npt.ArrayLike, part: float) -> FloatArray:
    """How far from zero this part of a t distribution reaches."""
    return np.asarray(special.stdtrit(df, 0.5 + part / 2.0))


def _shrunk(sd: float, squares: Any, count: Any) -> Any:
    return np.sqrt((TYPICAL * sd**2 + squares) / (TYPICAL + count))


def _rounding(values: FloatArray) -> float:
    """The standard deviation of rounding where all `values` are whole milliseconds; 0 where they are exact."""
    steps = values / MILLISECOND
    return MILLISECOND / math.sqrt(12.0) if np.allclose(steps, np.rint(steps), rtol=0.0, atol=1e-6) else 0.0


@lru_cache(256)  # the noise of many comparisons is learned from the same groups, all but one
def label_pairs(group: RepeatedRuns) -> pd.DataFrame:
    """Every label in every pair of runs of one group, by the pair's number: its values `first` and `second`.

    `change` is the logarithm of their ratio beyond what the table shares, as far as one run makes it.
    """
    found = []
    for number, runs in enumerate([*itertools.combinations(group.runs, 2)] or [(RunLevels(), RunLevels())]):
        first, second = (run.labels.loc[run.labels["value"] > 0, [*LABEL_KEY, "value"]] for run in runs)
        pair = first.merge(second, on=LABEL_KEY).set_axis([*LABEL_KEY, "first", "second"], axis=1)
        found.append(pair.sort_values(["group", "stat", "label"]).assign(pair=number))
    pairs = pd.concat(found, ignore_index=True)
    ratio = pd.Series(np.log(pairs["second"] / pairs["first"]))
    shared = ratio.groupby([pairs["pair"], *(pairs[name] for name in TABLE)]).transform("median")
    return pairs.assign(change=(ratio - shared) / math.sqrt(2.0))
