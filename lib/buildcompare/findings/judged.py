"""The end of a sentence about a change: how much, how sure, and what follows."""

from __future__ import annotations

from buildcompare.explanations import by_chance_percent
from buildcompare.results import MetricResult, SupportedUsersResult
from buildcompare.wording import change, interval, percent, status_words


def judged(delta: float, row: MetricResult | SupportedUsersResult) -> str:
    """The end of a sentence about a change of `delta` percent."""
    margin = row.margin_percent if isinstance(row, MetricResult) else row.band_percent
    better = row.better if isinstance(row, MetricResult) else "higher"
    if row.ci_low is None:
        return f"{change(delta)}: how far two runs of one build lie apart is not known here, so this may be chance."
    words = {
        "regression": f"more than chance and more than the {percent(margin)} that matter",
        "improvement": f"more than chance and more than the {percent(margin)} that matter",
        "equivalent": f"no difference beyond {percent(margin)}",
    }
    said = words.get(row.status)
    if said is None:
        chance = percent(by_chance_percent(row))
        said = f"cannot be told from chance, which moves this by up to {chance}"
    elif row.status != "equivalent":
        said = f"{status_words(row.status, better)}, {said}"
    return f"{change(delta)} (95 % interval {interval(row.ci_low, row.ci_high)}): {said}."
