"""The end of a sentence about a change: how much, how sure, and what follows."""

from __future__ import annotations

from buildcompare.results import MetricResult, SupportedUsersResult
from buildcompare.results.codes import Better, Status
from buildcompare.text.explanations import by_chance_percent
from buildcompare.text.numbers import change, interval, percent, status_words


def judged(delta: float, row: MetricResult | SupportedUsersResult) -> str:
    """The end of a sentence about a change of `delta` percent."""
    margin = row.margin_percent if isinstance(row, MetricResult) else row.band_percent
    better = row.better if isinstance(row, MetricResult) else Better.HIGHER
    if row.ci_low is None:
        return f"{change(delta)}: how far two runs of one build lie apart is not known here, so this may be chance."
    words = {
        Status.REGRESSION: f"more than chance and more than the {percent(margin)} that matter",
        Status.IMPROVEMENT: f"more than chance and more than the {percent(margin)} that matter",
        Status.EQUIVALENT: status_words(Status.EQUIVALENT, better, margin, row.ci_low, row.ci_high),
    }
    said = words.get(row.status)
    if said is None:
        if row.ci_low <= 0.0 <= (row.ci_high or 0.0):
            said = f"cannot be told from chance, which moves this by up to {percent(by_chance_percent(row))}"
        elif margin is not None and abs(delta) <= margin:
            said = f"differs, but not surely by more than the {percent(margin)} that matter"
        else:
            said = "rare for one metric, but not for the rarest of all that were compared"
    elif row.status != Status.EQUIVALENT:
        said = f"{status_words(row.status, better)}, {said}"
    return f"{change(delta)} (95 % interval {interval(row.ci_low, row.ci_high)}): {said}."
