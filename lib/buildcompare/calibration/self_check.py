"""How often is this pipeline wrong? It is run on pairs of runs between which nothing changed.

Every pair of runs of a calibration's group is judged as if it were two builds, by the noise of the other groups
only; then one run of it is scaled, one metric or label at a time, to see how often the change is found.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from buildcompare.config.catalogue import Metric
from buildcompare.labels.noise import LabelNoise, label_pairs
from buildcompare.results.codes import NoiseSource, Status
from buildcompare.stats.effects import Effect, TestedEffect, judge_labels, judge_metrics, measure_effect
from buildcompare.stats.noise import Noise, RepeatedRuns, RunLevel, RunToRun, slug_of

INJECTED = (5.0, 10.0, 20.0, 50.0)
"""Percent by which one run of a pair is scaled."""
_CALLED = (Status.REGRESSION, Status.IMPROVEMENT)
FindMetric = Callable[[str], Metric]


@dataclass(frozen=True)
class Row:
    """One metric or label of an identical pair: how it was judged, and which injected changes were found."""

    key: str
    judged: TestedEffect
    found: dict[float, bool]

    @property
    def called(self) -> bool:
        """Whether it was called changed."""
        return self.judged.status in _CALLED


@dataclass(frozen=True)
class Rates:
    """Counts, so that a reader can see how much a rate is worth.

    Attributes
    ----------
    rows
        Judged rows of identical pairs.
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
    found: dict[float, int]


@dataclass(frozen=True)
class SelfCheckResult:
    """What the self-check found on `pairs` identical pairs, of which `pairs_called` had a metric called changed."""

    groups: int
    pairs: int
    pairs_called: int
    metrics: Rates
    labels: Rates


@dataclass(frozen=True)
class SelfCheck:
    """Judge every identical pair with its own group left out of the calibration."""

    find: FindMetric
    """The catalogue's metric of a slug."""

    def __call__(self, groups: Sequence[RepeatedRuns]) -> SelfCheckResult | None:
        """None with fewer than two groups: nothing can be left out."""
        if len(groups) < 2:
            return None
        pairs = [rows for _, rows in self.metric_pairs(groups)]
        called = sum(any(row.called for row in rows) for rows in pairs)
        metrics = _rates([row for rows in pairs for row in rows])
        return SelfCheckResult(
            len(groups), len(pairs), called, metrics, _rates([row for _, row in self.label_rows(groups)])
        )

    def metric_pairs(self, groups: Sequence[RepeatedRuns]) -> Iterator[tuple[RepeatedRuns, list[Row]]]:
        """Each identical pair's group, and its judged metrics."""
        for group in groups:
            noise = RunToRun([each for each in groups if each is not group])
            for first, second in itertools.combinations(group.runs, 2):
                shared = sorted({*first.metrics} & {*second.metrics})
                keys = [key for key in shared if not self.find(slug_of(key)).load]  # the load is set, not judged
                metrics = [self.find(slug_of(key)) for key in keys]
                known = [_calibrated(noise(metric, group.type)) for metric in metrics]
                pair = _Pair(metrics, known, [first.metrics[k] for k in keys], [second.metrics[k] for k in keys])
                yield (
                    group,
                    [
                        Row(key, judged, {p: _rose(pair.judged(i, p)[i]) for p in INJECTED})
                        for i, (key, judged) in enumerate(zip(keys, pair.judged(), strict=True))
                        if judged is not None
                    ],
                )

    def label_rows(self, groups: Sequence[RepeatedRuns]) -> Iterator[tuple[RepeatedRuns, Row]]:
        """Every label of every identical pair, with its group."""
        for group in groups:
            others = LabelNoise([each for each in groups if each is not group])
            tails = others.tails
            if tails is None:
                continue
            for table, label, a, b in label_pairs(group):
                sd = others.predicted(table, label, (a, b), group.type)
                if sd is None:
                    continue
                noise = Noise(sd * tails.scale, tails.df, NoiseSource.CALIBRATION)
                ratio = b.value / a.value
                effects = {p: _effect(ratio * (1.0 + p / 100.0), noise) for p in (0.0, *INJECTED)}
                row, *found = judge_labels([(table, effect) for effect in effects.values()])
                if row is not None:
                    hits = dict(zip(INJECTED, (_rose(each) for each in found), strict=True))
                    yield group, Row(f"{table[0]} {table[1]} {label}", row, hits)


@dataclass(frozen=True)
class _Pair:
    """Two runs with the metrics that both have; one metric of the second may be scaled before they are judged."""

    metrics: Sequence[Metric]
    noise: Sequence[Noise | None]
    first: Sequence[RunLevel]
    second: Sequence[RunLevel]

    def judged(self, scaled: int | None = None, percent: float = 0.0) -> list[TestedEffect | None]:
        effects: list[tuple[Metric, Effect | None]] = []
        for i, (metric, noise) in enumerate(zip(self.metrics, self.noise, strict=True)):
            factor = 1.0 + percent / 100.0 if i == scaled else 1.0
            second = replace(self.second[i], level=self.second[i].level * factor)
            effects.append((metric, measure_effect([self.first[i]], [second], noise) if noise else None))
        return judge_metrics(effects)


def _effect(ratio: float, noise: Noise) -> Effect:
    return Effect(math.log(ratio), math.sqrt(2.0) * noise.sd, noise.df, noise.sd, noise.noise_source)


def _calibrated(noise: Noise | None) -> Noise | None:
    """A borrowed noise_source was learned elsewhere, and has no place in a check of this calibration."""
    return noise if noise is not None and noise.noise_source == NoiseSource.CALIBRATION else None


def _rose(judged: TestedEffect | None) -> bool:
    return judged is not None and judged.status in _CALLED and judged.effect.log_ratio > 0


def _rates(rows: Sequence[Row]) -> Rates:
    intervals = [row.judged.effect.interval() for row in rows]
    return Rates(
        rows=len(rows),
        called=sum(row.called for row in rows),
        covering=sum(low <= 0.0 <= high for low, high in intervals),
        found={percent: sum(row.found[percent] for row in rows) for percent in INJECTED},
    )
