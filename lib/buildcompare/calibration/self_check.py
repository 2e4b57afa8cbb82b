"""Measure how often a comparison is wrong, on pairs of runs between which nothing changed.

Every pair of runs of a calibration's group is judged as if it were two builds, by the noise of the other groups
only; then one run of it is scaled, one metric or label at a time, to see how often the change is found.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Metric
from buildcompare.labels.noise import LabelNoise, label_pairs
from buildcompare.results.codes import NoiseSource, Status
from buildcompare.stats.effects import Effect, TestedEffect, judge_labels, judge_metrics, measure_effect
from buildcompare.stats.noise import RepeatedRuns, RunLevels, metric_noise, slug_of

INJECTED = (5.0, 10.0, 20.0, 50.0)
"""Percent by which one run of a pair is scaled."""
COLUMNS = ("group", "pair", "key", "log_ratio", "called", "covering", *INJECTED)
Find = Callable[[str], Metric]
"""The catalogue's metric of a slug."""


def self_check(groups: Sequence[RepeatedRuns], find: Find) -> dict[str, Any] | None:
    """Judge every identical pair of runs by the other groups; None with fewer than two.

    Returns
    -------
    dict or None
        How many `groups` and `pairs` there are, `pairs_called` (of which a metric was called changed), and for the
        `metrics` and `labels` of all pairs counts, so that a reader can see how much a rate is worth: `rows`, `called`
        (changed: false alarms), `covering` (95 % intervals that hold zero), and `found`: by injected change in percent,
        how many were called changed in its direction.
    """
    if len(groups) < 2:
        return None
    metrics, labels = check_metrics(groups, find), check_labels(groups)
    return {
        "groups": len(groups),
        "pairs": sum(math.comb(len(group.runs), 2) for group in groups),
        "pairs_called": int(metrics.groupby(["group", "pair"])["called"].any().sum()),
        **{
            name: {
                "rows": len(rows),
                "called": int(rows["called"].sum()),
                "covering": int(rows["covering"].sum()),
                "found": {f"{percent:g}": int(rows[percent].sum()) for percent in INJECTED},
            }
            for name, rows in (("metrics", metrics), ("labels", labels))
        },
    }


def check_metrics(groups: Sequence[RepeatedRuns], find: Find) -> pd.DataFrame:
    """The metrics of each identical pair, judged.

    Columns group, pair (its number in the group), key, log_ratio, called (changed), covering (whether the 95 % interval
    holds zero), and for each injected change in percent whether it was found.
    """
    rows = []
    for group in groups:
        others = [each for each in groups if each is not group]
        metrics = {key: find(slug_of(key)) for run in group.runs for key in run.metrics}
        # The load is set and not judged; the catalogue's noise has no place in a check of this calibration.
        noises = {key: metric_noise(metric, group.type, others) for key, metric in metrics.items() if not metric.load}
        known = {key: each for key, each in noises.items() if each and each.noise_source == NoiseSource.CALIBRATION}
        for number, (first, second) in enumerate(itertools.combinations(group.runs, 2)):
            keys = sorted({*known} & {*first.metrics} & {*second.metrics})

            def effect(key: str, percent: float, first: RunLevels = first, second: RunLevels = second) -> Effect | None:
                scaled = replace(second.metrics[key], level=second.metrics[key].level * (1.0 + percent / 100.0))
                return measure_effect([first.metrics[key]], [scaled], known[key])  # noqa: B023

            plain = {key: effect(key, 0.0) for key in keys}
            for i, key in enumerate(keys):
                scaled = [{**plain, key: effect(key, percent)} for percent in (0.0, *INJECTED)]
                judged = [judge_metrics([(metrics[k], each[k]) for k in keys])[i] for each in scaled]
                rows += _checked(group, number, key, judged)
    return pd.DataFrame(rows, columns=COLUMNS)


def check_labels(groups: Sequence[RepeatedRuns]) -> pd.DataFrame:
    """The labels of all identical pairs, judged; columns as :func:`check_metrics` has them."""
    rows = []
    for group in groups:
        noise = LabelNoise([each for each in groups if each is not group])
        if noise.tails is None:
            continue
        df, scale = noise.tails
        pairs = label_pairs(group)
        pairs = pairs.assign(sd=scale * noise.predicted(pairs)).dropna(subset="sd")
        tables = pairs["group"] + " " + pairs["stat"]
        judged = []
        for percent in (0.0, *INJECTED):
            ratios = np.log(pairs["second"] / pairs["first"]) + math.log1p(percent / 100.0)
            effects = [
                Effect(ratio, math.sqrt(2.0) * sd, df, sd, NoiseSource.CALIBRATION)
                for ratio, sd in zip(ratios, pairs["sd"], strict=True)
            ]
            judged.append(judge_labels([*zip(tables, effects, strict=True)]))
        for number, key, *each in zip(pairs["pair"], tables + " " + pairs["label"], *judged, strict=True):
            rows += _checked(group, number, key, each)
    return pd.DataFrame(rows, columns=COLUMNS)


def _checked(group: RepeatedRuns, pair: int, key: str, judged: Sequence[TestedEffect | None]) -> list[tuple[Any, ...]]:
    """One row of what was judged as measured and with each injected change; none where nothing was."""
    called = [each is not None and each.status in (Status.REGRESSION, Status.IMPROVEMENT) for each in judged]
    found = [hit and each is not None and each.effect.log_ratio > 0 for hit, each in zip(called, judged, strict=True)]
    if (plain := judged[0]) is None:
        return []
    low, high = plain.effect.interval()
    return [(group.name, pair, key, plain.effect.log_ratio, called[0], low <= 0.0 <= high, *found[1:])]
