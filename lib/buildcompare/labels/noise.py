"""How far does one label's value move between two runs of one build? Most labels have only a few repeated runs.

The noise of a label follows from its level (short times and rare calls are noisier), from its call rate where that
is known, and from how the same label behaved elsewhere; what remains unexplained has heavy tails, which are fitted
on setups that the prediction had not seen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import special, stats

from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import NoiseSource, TestType
from buildcompare.stats.noise import LabelValue, Noise, RepeatedRuns

FEWEST_GROUPS = 3
"""Setups that the tails need: one is held out, and the others must not be one alone."""
Table = tuple[str, str]
"""Group and statistic, such as ``("api", "p99")``."""


@dataclass(frozen=True)
class _Rows:
    """Log variances of labels in groups of repeated runs: one row for each label and group."""

    label: list[str]
    bounded: FloatArray
    level: FloatArray
    calls: FloatArray
    log_variance: FloatArray


@dataclass(frozen=True)
class _Model:
    """Expected log variance: a spline in the level, call rate and test type, and an effect of each label."""

    knots: FloatArray
    coefficients: FloatArray
    mean_calls: float
    effects: Mapping[str, float]

    def __call__(self, label: str, level: float, calls: float | None, kind: TestType) -> float:
        """By hand, not through `_design`: it is asked for a hundred thousand rows, one by one."""
        knots = [float(knot) for knot in self.knots]
        at = min(max(level, knots[0]), knots[-1])
        slopes = [
            (max(at - knot, 0.0) ** 3 - max(at - knots[-1], 0.0) ** 3) / max(knots[-1] - knot, 1e-9)
            for knot in knots[:-1]
        ]
        rate = math.log(calls) if calls and calls > 0 else self.mean_calls
        row = (1.0, at, *(slope - slopes[-1] for slope in slopes[:-1]), rate, float(kind == "bounded"))
        return sum(a * float(b) for a, b in zip(row, self.coefficients, strict=True)) + self.effects.get(label, 0.0)


@dataclass(frozen=True)
class Tails:
    """Differences over predicted noise follow a t distribution with these degrees of freedom, times `scale`."""

    df: float
    scale: float


def fit_tails(scores: Mapping[str, Sequence[float]]) -> Tails | None:
    """The tails of `scores` by group (see `LabelNoise.held_out`); None of fewer than two groups."""
    if len(scores) < FEWEST_GROUPS - 1:
        return None
    df, _, scale = stats.t.fit(np.concatenate([np.asarray(each) for each in scores.values()]), floc=0.0)
    return Tails(float(df), float(scale))


@dataclass(frozen=True)
class LabelNoise:
    """The noise of labels, from groups of repeated runs.

    Log variances are modelled by a natural cubic spline in the log level (Hastie, Tibshirani & Friedman 2009,
    section 5.2.1) and an effect of each label shrunk towards it by its reliability (best linear unbiased prediction,
    Robinson 1991). Differences of held-out groups divided by the predicted noise follow a scaled t, whose scale and
    degrees of freedom are fitted by maximum likelihood: the tails are measured, not assumed.
    """

    groups: Sequence[RepeatedRuns] = ()
    resolution: float = 0.01
    """Noise below one percent is not told apart: percentiles come from histograms with few buckets."""
    fewest_rows: int = 20
    """Labels with repeated values that a table needs before its noise is modelled at all."""
    _models: dict[Table, _Model | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __call__(self, table: Table, label: str, values: Sequence[LabelValue], kind: TestType) -> Noise | None:
        """The noise of one label whose `values` in all runs at hand say its level and calls; None where unknown."""
        sd = self.predicted(table, label, values, kind)
        if sd is None or self.tails is None:
            return None
        return Noise(sd * self.tails.scale, self.tails.df, NoiseSource.CALIBRATION)

    @cached_property
    def tails(self) -> Tails | None:
        """The tails of all groups; None with too few of them."""
        return fit_tails(self.held_out())

    def held_out(self) -> dict[str, list[float]]:
        """For each group, the differences of its runs over the noise that the other groups predict."""
        if len(self.groups) < FEWEST_GROUPS:
            return {}
        scores = {}
        for left_out in self.groups:
            others = LabelNoise([group for group in self.groups if group is not left_out])
            scores[left_out.name] = [
                math.log(b.value / a.value) / (math.sqrt(2.0) * sd)
                for table, label, a, b in label_pairs(left_out)
                if (sd := others.predicted(table, label, (a, b), left_out.type)) is not None
            ]
        return {name: each for name, each in scores.items() if each}

    def predicted(self, table: Table, label: str, values: Sequence[LabelValue], kind: TestType) -> float | None:
        """The predicted standard deviation of one run (log scale), before the tails; None where nothing is known."""
        if table not in self._models:
            self._models[table] = self._fit(table)
        model = self._models[table]
        positive = [value for value in values if value.value > 0]
        if model is None or not positive:
            return None
        level = math.fsum(math.log(value.value) for value in positive) / len(positive)
        calls = [value.calls for value in positive if value.calls]
        return math.exp(0.5 * model(label, level, math.fsum(calls) / len(calls) if calls else None, kind))

    def _fit(self, table: Table) -> _Model | None:
        rows = self._rows(table)
        if len(rows.label) < self.fewest_rows:
            return None
        known = rows.calls[np.isfinite(rows.calls)]
        mean_calls = float(known.mean()) if known.size else 0.0
        # Where the four knots stand: Harrell (2001), Regression Modeling Strategies, table 2.3.
        knots = np.asarray(np.quantile(rows.level, [0.05, 0.35, 0.65, 0.95]), dtype=np.float64)
        calls = np.where(np.isfinite(rows.calls), rows.calls, mean_calls)
        level = np.clip(rows.level, knots[0], knots[-1])
        design = _design(level, calls, rows.bounded, knots)
        coefficients = np.asarray(np.linalg.lstsq(design, rows.log_variance, rcond=None)[0], dtype=np.float64)
        effects = _shrunk(rows.label, rows.log_variance - design @ coefficients)
        return _Model(knots, coefficients, mean_calls, effects)

    def _rows(self, table: Table) -> _Rows:
        found: list[tuple[str, float, float, float, float]] = []
        for group in self.groups:
            values: dict[str, list[LabelValue]] = {}
            for run in group.runs:
                for (name, stat, label), value in run.labels.items():
                    if (name, stat) == table and value.value > 0:
                        values.setdefault(label, []).append(value)
            for label, each in values.items():
                if len(each) < 2:
                    continue
                logs = np.log([value.value for value in each])
                df = logs.size - 1.0
                variance = float(np.var(logs, ddof=1)) + self.resolution**2
                bias = float(special.digamma(df / 2.0)) - math.log(df / 2.0)  # of the logarithm of a variance
                calls = [math.log(value.calls) for value in each if value.calls and value.calls > 0]
                mean_calls = math.fsum(calls) / len(calls) if calls else math.nan
                row = (float(logs.mean()), mean_calls, float(group.type == "bounded"), math.log(variance) - bias)
                found.append((label, *row))
        columns = list(zip(*found, strict=True)) or [()] * 5
        level, calls_, bounded, log_variance = (np.array(column, dtype=np.float64) for column in columns[1:])
        return _Rows([*columns[0]], bounded, level, calls_, log_variance)


def label_pairs(group: RepeatedRuns) -> list[tuple[Table, str, LabelValue, LabelValue]]:
    """Every label in every pair of runs of one group."""
    return [
        ((name, stat), label, first.labels[name, stat, label], second.labels[name, stat, label])
        for first, second in itertools.combinations(group.runs, 2)
        for name, stat, label in sorted({*first.labels} & {*second.labels})
        if min(first.labels[name, stat, label].value, second.labels[name, stat, label].value) > 0
    ]


def _design(level: FloatArray, calls: FloatArray, bounded: FloatArray, knots: FloatArray) -> FloatArray:
    """Columns: one, level, two natural cubic spline terms, call rate, test type."""

    def slope(j: int) -> FloatArray:
        cubes = np.maximum(level - knots[j], 0.0) ** 3 - np.maximum(level - knots[-1], 0.0) ** 3
        return np.asarray(cubes / max(knots[-1] - knots[j], 1e-9), dtype=np.float64)

    terms = [slope(j) - slope(len(knots) - 2) for j in range(len(knots) - 2)]
    return np.column_stack([np.ones_like(level), level, *terms, calls, bounded])


def _shrunk(labels: Sequence[str], residuals: FloatArray) -> dict[str, float]:
    """The mean residual of each label, shrunk by its reliability."""
    of: dict[str, list[float]] = {}
    for label, residual in zip(labels, residuals, strict=True):
        of.setdefault(label, []).append(float(residual))
    counts = np.array([len(each) for each in of.values()], dtype=np.float64)
    means = np.array([math.fsum(each) / len(each) for each in of.values()])
    squares = math.fsum((r - mean) ** 2 for each, mean in zip(of.values(), means, strict=True) for r in each)
    within = squares / max(float((counts - 1).sum()), 1.0)
    between = max(float((means**2).mean() - (within / counts).mean()), 0.0)
    if between == 0.0:
        return {}
    return {label: float(m * between / (between + within / n)) for label, m, n in zip(of, means, counts, strict=True)}
