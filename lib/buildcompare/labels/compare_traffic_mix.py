"""What of an average's change is a changed traffic mix, and how does it count without that?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.config.params import Test
from buildcompare.labels.levels import LabelLevels
from buildcompare.labels.noise import LabelNoise
from buildcompare.labels.traffic_mix import Split, SplitAverage, TellMix, Traffic, at_unchanged_mix
from buildcompare.load.sides import SIDES, Views
from buildcompare.recordings.recording import Series
from buildcompare.results import MetricResult, MixMover, TrafficMixResult
from buildcompare.stats.effects import Effect, TestedEffect, judge_metrics
from buildcompare.stats.noise import LabelValue, Noise

MOST_MOVERS = 5
"""Labels that results.json names for a mix; the largest few make up nearly all of it."""


def split_averages(
    test: Test, views: Views, catalogue: Catalogue, label_noise: LabelNoise
) -> dict[str, tuple[str, Split]]:
    """By slug of the average, its label table and the split of its change; only where calls per label are known."""
    tables = [table for table in catalogue.label_tables if table.average is not None]
    if not tables or any(not _has_calls(view.recording.series) for side in SIDES for view in views[side]):
        return {}
    levels = {side: [view.labels() for view in views[side]] for side in SIDES}
    found = {}
    for table in tables:
        traffic = {side: _traffic(levels[side], table.group) for side in SIDES}
        runs = min(len(levels[side]) for side in SIDES)
        noise = {
            label: replace(known, sd=known.sd / math.sqrt(runs))
            for label in {*traffic["base"], *traffic["new"]}
            if (known := _noise(label_noise, test, table.group, label, levels["base"] + levels["new"])) is not None
        }
        split = SplitAverage()(traffic["base"], traffic["new"], noise)
        if split is not None and table.average is not None:
            found[table.average] = (table.group, split)
    return found


def with_traffic_mix(
    rows: Sequence[MetricResult],
    effects: Sequence[tuple[Metric, Effect | None]],
    splits: Mapping[str, tuple[str, Split]],
) -> list[MetricResult]:
    """The rows of all metrics, those that have a split judged a second time, at unchanged mix."""
    tell = TellMix()
    moved = {
        i
        for i, (row, (_, effect)) in enumerate(zip(rows, effects, strict=True))
        if row.slug in splits
        and not row.labels
        and (effect is None or tell.agrees(splits[row.slug][1], effect, row.margin_percent))
    }
    changed = [
        (metric, at_unchanged_mix(effect, splits[metric.slug][1]) if i in moved and effect is not None else effect)
        for i, (metric, effect) in enumerate(effects)
    ]
    judged = judge_metrics(changed) if moved else []
    return [
        row.model_copy(update={"traffic_mix": _result(row, *splits[row.slug], effects[i][1], judged[i])})
        if i in moved
        else row
        for i, row in enumerate(rows)
    ]


def _result(
    row: MetricResult, group: str, split: Split, effect: Effect | None, judged: TestedEffect | None
) -> TrafficMixResult:
    tell = TellMix()
    kind = tell(split, effect, row.margin_percent)
    low, high = judged.effect.interval() if judged else (None, None)
    mix_low, mix_high = split.mix_ci or (None, None)
    speed = split.speed_ci
    if judged is not None and high is not None:
        # The noise of the average holds what slows a whole run, which that of its labels does not know.
        chance = math.expm1(math.log1p(high / 100.0) - judged.effect.log_ratio) * 100.0
        speed = (split.speed_percent - chance, split.speed_percent + chance)
    return TrafficMixResult(
        group=group,
        kind=kind,
        counts=judged is not None and tell.is_material(split, row.margin_percent),
        base=split.base,
        new=split.new,
        delta_percent=split.delta_percent,
        mix_percent=split.mix_percent,
        mix_ci_low=mix_low,
        mix_ci_high=mix_high,
        speed_percent=split.speed_percent,
        speed_ci_low=speed[0] if speed else None,
        speed_ci_high=speed[1] if speed else None,
        at_unchanged_mix_percent=judged.effect.delta_percent if judged else None,
        ci_low=low,
        ci_high=high,
        p_adjusted=judged.p_adjusted if judged else None,
        p_worse_one_sided=judged.p_worse_one_sided if judged else None,
        status=judged.status if judged else row.status,
        movers=[
            MixMover(
                label=mover.label,
                base_share_percent=100.0 * mover.base_share,
                new_share_percent=100.0 * mover.new_share,
                seconds=mover.seconds,
                percent=mover.percent,
            )
            for mover in split.movers[:MOST_MOVERS]
        ],
    )


def _has_calls(series: Sequence[Series]) -> bool:
    return any(each.role == "label" and each.stat == "calls" for each in series)


def _traffic(runs: Sequence[LabelLevels], group: str) -> dict[str, Traffic]:
    """Calls and seconds per call of each label, all runs of a build taken together."""
    calls: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for run in runs:
        times = {row.label: row.value for row in run.summaries if row.group == group and row.stat == "avg"}
        for (table, label), count in run.calls.items():
            if table == group and math.isfinite(count):
                calls[label] = calls.get(label, 0.0) + count
                spent = count * times.get(label, math.nan) if count > 0 else 0.0
                seconds[label] = seconds.get(label, 0.0) + spent
    return {label: Traffic(count, seconds[label] / count if count > 0 else math.nan) for label, count in calls.items()}


def _noise(label_noise: LabelNoise, test: Test, group: str, label: str, runs: Sequence[LabelLevels]) -> Noise | None:
    values = [
        LabelValue(row.value, run.calls.get((group, label)))
        for run in runs
        for row in run.summaries
        if (row.group, row.label, row.stat) == (group, label, "avg") and math.isfinite(row.value)
    ]
    return label_noise((group, "avg"), label, values, test.type)
