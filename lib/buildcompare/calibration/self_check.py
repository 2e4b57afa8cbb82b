"""Measure how often a comparison is wrong, on pairs of runs between which nothing changed.

Every pair of runs of a calibration's group is judged as if it were two builds, by the noise of the other groups
only; then one run of it is scaled, one metric or label at a time, to see how often the change is found.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from buildcompare.config.catalogue import Metric
from buildcompare.labels.noise import LabelNoise, label_pairs
from buildcompare.results.codes import NoiseSource, Status
from buildcompare.stats.effects import Effect, TestedEffect, judge_labels, judge_metrics, measure_effect
from buildcompare.stats.noise import RepeatedRuns, metric_noise, slug_of

INJECTED = (5.0, 10.0, 20.0, 50.0)
"""Percent by which one run of a pair is scaled."""


@dataclass(frozen=True)
class CheckedRow:
    """One metric or label of an identical pair: how it was judged, and which injected changes (percent) were found."""

    key: str
    judged: TestedEffect
    found: dict[float, bool]

    @property
    def called(self) -> bool:
        """Whether it was called changed."""
        return _called(self.judged)


@dataclass(frozen=True)
class Rates:
    """Counts, so that a reader can see how much a rate is worth.

    Attributes
    ----------
    rows
        TestedEffect rows of identical pairs.
    called
        How many of them were called changed: false alarms.
    covering
        How many 95 % intervals contained zero.
    found
        For each injected change in percent, how many of `rows` were called changed in its direction.
    """

    rows: int
    called: int
    covering: int
    found: dict[str, int]


@dataclass(frozen=True)
class SelfCheck:
    """What the self-check found on `pairs` identical pairs, of which `pairs_called` had a metric called changed."""

    groups: int
    pairs: int
    pairs_called: int
    metrics: Rates
    labels: Rates


def self_check(groups: Sequence[RepeatedRuns], find: Callable[[str], Metric]) -> SelfCheck | None:
    """Judge every identical pair by the other groups; None with fewer than two. `find` gives the metric of a slug."""
    if len(groups) < 2:
        return None
    pairs = [rows for _, rows in metric_pairs(groups, find)]
    return SelfCheck(
        groups=len(groups),
        pairs=len(pairs),
        pairs_called=sum(any(row.called for row in rows) for rows in pairs),
        metrics=_rates([row for rows in pairs for row in rows]),
        labels=_rates([row for _, row in label_rows(groups)]),
    )


def metric_pairs(
    groups: Sequence[RepeatedRuns], find: Callable[[str], Metric]
) -> Iterator[tuple[RepeatedRuns, list[CheckedRow]]]:
    """Each identical pair's group, and its judged metrics."""
    for group in groups:
        others = [each for each in groups if each is not group]
        slugs = {slug_of(key) for run in group.runs for key in run.metrics}
        # The load is set and not judged; the catalogue's noise has no place in a check of this calibration.
        noises = {slug: metric_noise(find(slug), group.type, others) for slug in slugs if not find(slug).load}
        known = {slug: each for slug, each in noises.items() if each and each.noise_source == NoiseSource.CALIBRATION}
        for first, second in itertools.combinations(group.runs, 2):
            keys = [key for key in sorted({*first.metrics} & {*second.metrics}) if slug_of(key) in known]
            scaled = {
                percent: [
                    measure_effect(
                        [first.metrics[key]],
                        [replace(second.metrics[key], level=second.metrics[key].level * (1.0 + percent / 100.0))],
                        known[slug_of(key)],
                    )
                    for key in keys
                ]
                for percent in (0.0, *INJECTED)
            }
            metrics, plain = [find(slug_of(key)) for key in keys], scaled[0.0]
            rows = []
            for i, judged in enumerate(_judged(metrics, plain)):
                found = {
                    percent: _rose(_judged(metrics, [*plain[:i], scaled[percent][i], *plain[i + 1 :]])[i])
                    for percent in INJECTED
                }
                if judged is not None:
                    rows.append(CheckedRow(keys[i], judged, found))
            yield group, rows


def label_rows(groups: Sequence[RepeatedRuns]) -> Iterator[tuple[RepeatedRuns, CheckedRow]]:
    """Every label of every identical pair, with its group."""
    for group in groups:
        others = LabelNoise([each for each in groups if each is not group])
        if others.tails is None:
            continue
        df, scale = others.tails
        pairs = label_pairs(group)
        pairs = pairs.assign(sd=scale * others.predicted(pairs)).dropna(subset="sd")
        tables = [*zip(pairs["group"], pairs["stat"], strict=True)]
        ratios, sds = np.log(pairs["second"] / pairs["first"]), pairs["sd"]
        judged = {}
        for percent in (0.0, *INJECTED):
            effects = [
                Effect(ratio, math.sqrt(2.0) * sd, df, sd, NoiseSource.CALIBRATION)
                for ratio, sd in zip(ratios + math.log1p(percent / 100.0), sds, strict=True)
            ]
            judged[percent] = judge_labels([*zip(tables, effects, strict=True)])
        for i, (table, label) in enumerate(zip(tables, pairs["label"], strict=True)):
            row = judged[0.0][i]
            if row is not None:
                found = {percent: _rose(judged[percent][i]) for percent in INJECTED}
                yield group, CheckedRow(f"{table[0]} {table[1]} {label}", row, found)


def _judged(metrics: Sequence[Metric], effects: Sequence[Effect | None]) -> list[TestedEffect | None]:
    return judge_metrics([*zip(metrics, effects, strict=True)])


def _called(judged: TestedEffect) -> bool:
    return judged.status in (Status.REGRESSION, Status.IMPROVEMENT)


def _rose(judged: TestedEffect | None) -> bool:
    return judged is not None and _called(judged) and judged.effect.log_ratio > 0


def _rates(rows: Sequence[CheckedRow]) -> Rates:
    intervals = [row.judged.effect.interval() for row in rows]
    return Rates(
        rows=len(rows),
        called=sum(row.called for row in rows),
        covering=sum(low <= 0.0 <= high for low, high in intervals),
        found={f"{percent:g}": sum(row.found[percent] for row in rows) for percent in INJECTED},
    )
