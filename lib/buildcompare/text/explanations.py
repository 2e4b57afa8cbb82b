"""Why a status is what it is, in two sentences for readers who know no statistics."""

from __future__ import annotations

from buildcompare.results import MetricResult, SupportedUsersResult
from buildcompare.results.base import Reason
from buildcompare.results.codes import ReasonCode, Status
from buildcompare.text.numbers import MISSING, change, interval, percent, significant, status_words
from buildcompare.text.reasons import reason_words


def by_chance_percent(row: MetricResult | SupportedUsersResult) -> float | None:
    """How far two comparisons of unchanged builds lie apart in 19 of 20 cases, in percent; None where unknown."""
    if row.ci_high is None or row.delta_percent is None or not row.delta_percent > -100.0:
        return None  # of a metric that is as good as gone there is no ratio
    return ((1.0 + row.ci_high / 100.0) / (1.0 + row.delta_percent / 100.0) - 1.0) * 100.0


def explain(row: MetricResult | SupportedUsersResult) -> str:
    """Two sentences: what chance does to this number, and what follows for this change."""
    chance = by_chance_percent(row)
    if chance is None or row.delta_percent is None:
        return _without_noise(row)
    margin = row.margin_percent if isinstance(row, MetricResult) else row.band_percent
    same = f"Two comparisons of unchanged builds differ by up to {percent(chance)} here in 19 of 20 cases"
    moved = f"{change(row.delta_percent)} (95 % interval {interval(row.ci_low, row.ci_high)})"
    if row.status in (Status.REGRESSION, Status.IMPROVEMENT):
        return f"{same}. The change of {moved} is more than that, and more than the {percent(margin)} that matter."
    if row.status == Status.EQUIVALENT:
        rare = f"one as near to zero as {moved} would come up in fewer than one of 20 comparisons"
        return f"{same}. Were the true change {percent(margin)}, the smallest that matters, {rare}."
    return f"{same}; {why_undecided(row, margin)}. {_settled_by(row, margin)}"


def at_load_words(metric: MetricResult) -> str:
    """The status at equal load; where the interval beside it seems to say something else, with what decided.

    The interval gives each metric of the family an even share of the error (Bonferroni), the status larger ones to
    those that can show more (:mod:`buildcompare.metrics.load_family`), and no difference is claimed by the 90 %
    interval of the metric alone.
    """
    row, margin = metric.load_adjusted, metric.margin_percent
    if row is None:
        return MISSING
    words = status_words(row.status, metric.better, margin)
    if row.ci_low is None or row.ci_high is None:
        return words
    apart = not row.ci_low <= 0.0 <= row.ci_high
    if row.status == Status.EQUIVALENT:
        return words if -margin < row.ci_low <= row.ci_high < margin else f"{words} (its own 90 % interval lies within)"
    if row.status == Status.INCONCLUSIVE and apart:
        if abs(row.delta_percent or 0.0) <= margin:
            return f"{words}: differs, but not surely by more than {percent(margin)}"
        return f"{words}: adjusted p {significant(row.p_adjusted or 0.0, 2)}, by a share smaller than an even one"
    if row.status in (Status.REGRESSION, Status.IMPROVEMENT) and not apart:
        return f"{words}: adjusted p {significant(row.p_adjusted or 0.0, 2)}, by a share larger than an even one"
    return words


def why_undecided(row: MetricResult | SupportedUsersResult, margin: float | None) -> str:
    """Why a judged change is neither called nor ruled out."""
    low, high, delta = row.ci_low or 0.0, row.ci_high or 0.0, row.delta_percent or 0.0
    moved = f"{change(delta)} ({interval(row.ci_low, row.ci_high)})"
    if low <= 0.0 <= high:
        return f"{moved} may be chance and may be real"
    if margin is not None and abs(delta) <= margin:
        return f"{moved} differs, but not surely by more than the {percent(margin)} that matter"
    return f"{moved} would be rare for one metric, and is not for the rarest of all that were compared"


def _settled_by(row: MetricResult | SupportedUsersResult, margin: float | None) -> str:
    seen = f"A rise below {percent(row.min_detectable_percent)} would hardly be called here"
    runs = row.required_runs
    if runs is None:
        return f"{seen}; no number of runs below 100 of each build would tell one of {percent(margin)} from chance."
    if runs == 1:
        return f"{seen}; one run of each build tells a change of {percent(margin)} from chance."
    return f"{seen}; {runs} runs of each build would tell a change of {percent(margin)} from chance."


def _without_noise(row: MetricResult | SupportedUsersResult) -> str:
    if row.delta_percent is None:
        known = row.reason if isinstance(row, MetricResult) else None
        return f"Not judged: {reason_words(known) if known else 'one of the builds has no figure'}."
    reason = (row.reason if isinstance(row, MetricResult) else None) or Reason(code=ReasonCode.NO_NOISE)
    teach = " Repeated runs of one build teach it (`calibrate`)." if reason.code is ReasonCode.NO_NOISE else ""
    return f"Not judged: {reason_words(reason)}.{teach}"
