"""Reasons and conclusions in words: why a row was not judged, what limited a build, how certain a change is."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from buildcompare.config.catalogue import Alert
from buildcompare.results import LimitedBy, MetricResult, SupportedUsersResult, ValidityReason
from buildcompare.results.codes import Better, Pair, Reason, Side
from buildcompare.text.sentences import say

Row = MetricResult | SupportedUsersResult


def reason_words(reason: Reason) -> str:
    """A reason as a clause without a full stop."""
    return say("reasons", "reason_words", reason)


def validity_words(
    reasons: Iterable[ValidityReason], labels: tuple[str, str] = ("base", "new"), *, several: bool = False
) -> list[str]:
    """Each reason with the run that it is about; `several`: a build has several runs."""
    return [say("reasons", "limit", reason, Pair(*labels), several) for reason in reasons]


def limited_words(limits: LimitedBy, build: Side, alerts: Sequence[Alert]) -> str:
    """A phrase for one build: what limited it, how often that alerted, what alerted first, and what was near."""
    return say("reasons", "limited_by", limits, build, {alert.slug: alert for alert in alerts})


def by_chance_percent(row: Row) -> float | None:
    """How far two comparisons of unchanged builds differ in 19 of 20 cases, in percent; None if unknown."""
    if row.ci_high is None or row.delta_percent is None or not row.delta_percent > -100.0:
        return None  # of a metric that is as good as gone there is no ratio
    return ((1.0 + row.ci_high / 100.0) / (1.0 + row.delta_percent / 100.0) - 1.0) * 100.0


def explain(row: Row) -> str:
    """Two sentences for readers without statistics: what chance does to this number, and what follows."""
    chance = by_chance_percent(row)
    if isinstance(row, MetricResult):
        return say("reasons", "explain", row, row.margin_percent, chance, row.reason)
    return say("reasons", "explain", row, row.band_percent, chance)


def at_load_words(row: Mapping[str, Any], better: Better | str, margin: float) -> str:
    """The status at equal load; where the interval beside it seems to contradict it, with what decided."""
    return say("reasons", "at_equal_load", row, better, margin)
