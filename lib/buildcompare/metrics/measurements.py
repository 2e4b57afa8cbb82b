"""Compare what benchmarks measure without times: levels of runs, and distributions of requests or iterations."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.recordings.recording import FloatArray, Recording
from buildcompare.results import Distribution, DistributionResult
from buildcompare.results.base import Reason
from buildcompare.results.codes import SIDES, Pair, ReasonCode, Side, Status
from buildcompare.stats.effects import Effect, measure_effect
from buildcompare.stats.levels import Level, delta_percent, mean_of_runs, measure_level
from buildcompare.stats.noise import PastChanges, RepeatedRuns, RunLevel, metric_noise, repeats_noise
from buildcompare.stats.planning import ALPHA

QUANTILES = (0.5, 0.9, 0.99)  # that people set themselves as goals for requests
FEWEST = 3  # fewer values have no distribution worth a row


@dataclass(frozen=True)
class Measured:
    """One metric of a test before it is judged: nothing in it depends on a margin."""

    name: str
    """By which the catalogue finds it."""
    row: dict[str, Any]
    """The fields of its result."""
    effect: Effect | None
    """What is to be judged, if there is something."""


def measure_measurements(
    runs: Mapping[Side, Sequence[Recording]],
    catalogue: Catalogue,
    groups: Sequence[RepeatedRuns] = (),
    past: PastChanges | None = None,
) -> list[Measured]:
    """Every metric that a run measured, in the catalogue's order."""
    rows = []
    for metric in measured_metrics(runs, catalogue):
        levels = Pair(*([level_of(each, metric.unit) for each in _values(runs[side], metric.slug)] for side in SIDES))
        values = levels.map(lambda of: mean_of_runs([level.value for level in of]))
        delta, effect, reason = delta_percent(*values), None, None
        missing = [side for side in SIDES if not levels[side]]
        if missing:
            reason = Reason(code=ReasonCode.NOT_RECORDED, build=missing[0])
        elif delta is None:
            reason = Reason(code=ReasonCode.ZERO_BASE)
        elif not all(level.value for of in levels for level in of):
            reason = Reason(code=ReasonCode.NOT_POSITIVE)
        else:
            known = levels.map(lambda of: [RunLevel(level.value, level.se_log) for level in of if level.value])
            noise = metric_noise(metric, "benchmark", groups, past) or repeats_noise(known.base, known.new)
            effect = measure_effect(known.base, known.new, noise) if noise else None
            reason = None if effect else Reason(code=ReasonCode.NOT_POSITIVE if noise else ReasonCode.NO_NOISE)
        row = metric.model_dump(include={"name", "slug", "unit", "better", "gate"}) | {
            "base": values.base,
            "new": values.new,
            "levels": levels.map(lambda of: [level.value for level in of if level.value is not None]),
            "mean": levels.map(lambda of: mean_of_runs([level.mean for level in of])),
            "delta_percent": delta,
            "status": Status.NOT_COMPARABLE if delta is None else Status.INCONCLUSIVE,
            "reason": reason,
            "within_se_log": _within(levels),
            "window": Pair(None, None),
            "missing_samples": Pair(None, None),
        }
        rows.append(Measured(metric.name, row, effect))
    return rows


def compare_distributions(runs: Mapping[Side, Sequence[Recording]], catalogue: Catalogue) -> list[DistributionResult]:
    """The distribution of each metric of which a build has at least `FEWEST` values, over all of its runs."""
    rows = []
    for metric in measured_metrics(runs, catalogue):
        values = Pair(*(values_of(runs[side], metric.slug) for side in SIDES))
        if max(each.size for each in values) >= FEWEST:
            named = metric.model_dump(include={"name", "slug", "unit"})
            rows.append(DistributionResult(**named, base=distribution(values.base), new=distribution(values.new)))
    return rows


def distribution(values: FloatArray) -> Distribution | None:
    """Mean, spread and quantiles of independent values with their 95 % intervals; None of fewer than `FEWEST`.

    The mean's interval is Student's, a quantile's that of order statistics, which assumes nothing of the distribution.

    References
    ----------
    Conover (1999), Practical Nonparametric Statistics, 3.2.

    Examples
    --------
    >>> found = distribution(np.arange(1.0, 101.0))
    >>> found.mean, found.quantiles["0.5"]
    (50.5, (50.0, 40.0, 61.0))
    """
    from scipy import stats  # late: it takes a second to import

    count = values.size
    if count < FEWEST:
        return None
    ordered, mean, sd = np.sort(values), float(values.mean()), float(values.std(ddof=1))
    half = float(stats.t.ppf(1 - ALPHA / 2, count - 1)) * sd / math.sqrt(count)
    quantiles = {}
    for part in QUANTILES:
        low, high = (int(each) for each in stats.binom.ppf((ALPHA / 2, 1 - ALPHA / 2), count, part))
        at = float(ordered[max(math.ceil(part * count), 1) - 1])
        bounds = (ordered[low - 1] if low >= 1 else None, ordered[high] if high < count else None)
        quantiles[f"{part:g}"] = (at, *(None if each is None else float(each) for each in bounds))
    return Distribution(values=count, mean=mean, ci=(mean - half, mean + half), sd=sd, quantiles=quantiles)


def measured_metrics(runs: Mapping[Side, Sequence[Recording]], catalogue: Catalogue) -> list[Metric]:
    """The metrics that any run measured, in the catalogue's order."""
    names = {each.metric: each.name for side in SIDES for run in runs[side] for each in run.measurements}
    return [catalogue.find(names[slug]) for slug in sorted(names, key=catalogue.position)]


def level_of(values: FloatArray, unit: str) -> Level:
    """The level of one run: its number, or the mean of its requests, of times the geometric one."""
    return measure_level(pd.Series(values), (-1.0, float(values.size)), geometric=unit == "seconds")


def values_of(runs: Sequence[Recording], slug: str) -> FloatArray:
    """All values of a metric in these runs."""
    return np.concatenate([np.empty(0), *_values(runs, slug)])


def _values(runs: Sequence[Recording], slug: str) -> list[FloatArray]:
    return [each.values for run in runs for each in run.measurements if each.metric == slug]


def _within(levels: Pair[list[Level]]) -> float | None:
    errors = [level.se_log / len(of) for of in levels for level in of]
    return math.hypot(*errors) if errors and all(levels) and all(map(math.isfinite, errors)) else None
