"""Was an average moved by other calls, not by slower ones?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from buildcompare.findings.finding import Labels, finding, title
from buildcompare.results import Finding, MetricResult, MixMover, TestResult, TrafficMixResult
from buildcompare.results.codes import FindingKind, Severity, Status
from buildcompare.text.numbers import change, interval, listed, percent, status_words

MOST_NAMED = 3


def traffic_mix(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """One sentence for each average that the mix moved: an info, as no build is slower for being asked other things."""
    for metric in test.metrics:
        mix = metric.traffic_mix
        if mix is None or mix.kind not in ("mix", "both", "unknown") or metric.delta_percent is None:
            continue
        percentiles = [
            row.name for row in test.metrics if re.fullmatch(rf"p\d+-{re.escape(_after_avg(metric))}", row.slug)
        ]
        why = listed([_moved(mover) for mover in mix.movers], most=MOST_NAMED)
        text = (
            f"{title(test)}: other calls moved {metric.name} of {labels[1]} by {change(mix.mix_percent)}, of "
            f"{change(metric.delta_percent)} in all; of all calls {why}. {_without(metric, mix)}"
        )
        evidence = {
            "delta_percent": metric.delta_percent,
            "status": metric.status,
            "margin_percent": metric.margin_percent,
            **mix.model_dump(exclude={"delta_percent", "status"}),
            "labels_delta_percent": mix.delta_percent,
            "status_at_unchanged_mix": mix.status,
            "not_named": max(len(mix.movers) - MOST_NAMED, 0),
        }
        if percentiles:
            text += (
                f" {listed(percentiles)} may hold the same mix and cannot be split: a percentile is no sum over calls."
            )
        yield finding(test, FindingKind.TRAFFIC_MIX, Severity.INFO, text, evidence, metric=metric.slug)


def _after_avg(metric: MetricResult) -> str:
    """What an average is of: ``api-times`` of ``avg-api-times``."""
    return metric.slug.partition("-")[2]


def at_unchanged_mix(metric: MetricResult) -> str:
    """The end of a sentence about a metric whose mix changed too; empty where it did not."""
    mix = metric.traffic_mix
    if mix is None or not mix.counts or mix.at_unchanged_mix_percent is None:
        return ""
    words = status_words(mix.status, metric.better, metric.margin_percent, mix.ci_low, mix.ci_high)
    where = f"{change(mix.at_unchanged_mix_percent)} ({interval(mix.ci_low, mix.ci_high)})"
    return f" The traffic mix changed by itself ({change(mix.mix_percent)}); at unchanged mix: {where}, {words}."


def _without(metric: MetricResult, mix: TrafficMixResult) -> str:
    if mix.at_unchanged_mix_percent is None:
        return (
            f"The rest, {change(mix.speed_percent)}, is slower or faster calls; how far two runs of one build lie "
            "apart is not known here, so it may be chance."
        )
    size = f"{change(mix.at_unchanged_mix_percent)} (95 % interval {interval(mix.ci_low, mix.ci_high)})"
    start = f"At unchanged mix it is {size}"
    if mix.status in (Status.REGRESSION, Status.IMPROVEMENT):
        return f"{start}: the calls became {'slower' if mix.at_unchanged_mix_percent > 0 else 'faster'} too."
    end = " and the mix does not count against the build" if mix.mix_percent > 0 else ""
    if mix.status == Status.EQUIVALENT:
        words = status_words(Status.EQUIVALENT, metric.better, metric.margin_percent, mix.ci_low, mix.ci_high)
        return f"{start}, {words}{end}."
    return f"{start}, which cannot be told from chance{end}."


def _moved(mover: MixMover) -> str:
    old, new = percent(mover.base_share_percent), percent(mover.new_share_percent)
    return f"{mover.label} went from {old} to {new}"
