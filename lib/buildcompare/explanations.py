"""Why a status is what it is, in two sentences for readers who know no statistics."""

from __future__ import annotations

from buildcompare.results import MetricResult, SupportedUsersResult
from buildcompare.wording import NO_NOISE, change, interval, percent


def by_chance_percent(row: MetricResult | SupportedUsersResult) -> float | None:
    """How far two comparisons of unchanged builds lie apart in 19 of 20 cases, in percent; None where unknown."""
    if row.ci_high is None or row.delta_percent is None:
        return None
    return ((1.0 + row.ci_high / 100.0) / (1.0 + row.delta_percent / 100.0) - 1.0) * 100.0


def explain(row: MetricResult | SupportedUsersResult) -> str:
    """Two sentences: what chance does to this number, and what follows for this change."""
    chance = by_chance_percent(row)
    if chance is None or row.delta_percent is None:
        return _without_noise(row)
    margin = row.margin_percent if isinstance(row, MetricResult) else row.band_percent
    same = f"Runs of one unchanged build differ by up to {percent(chance)} here in 19 of 20 cases"
    moved = f"{change(row.delta_percent)} (95 % interval {interval(row.ci_low, row.ci_high)})"
    if row.status in ("regression", "improvement"):
        return f"{same}. The change of {moved} is more than that, and more than the {percent(margin)} that matter."
    if row.status == "equivalent":
        return f"{same}. The change of {moved} leaves no room for one of {percent(margin)}, the smallest that matters."
    runs = row.runs_to_settle
    settle = f"{runs} runs of each build" if runs and runs > 1 else "no number of runs below 100 of each build"
    return (
        f"{same}, so {moved} may be chance and may be real. A rise below {percent(row.detectable_percent)} would "
        f"hardly be seen here; {settle} would show one of {percent(margin)}."
    )


def _without_noise(row: MetricResult | SupportedUsersResult) -> str:
    if row.delta_percent is None:
        reason = row.reason if isinstance(row, MetricResult) else "one of the builds has no figure"
        return f"Not judged: {reason}."
    reason = row.reason if isinstance(row, MetricResult) else NO_NOISE
    teach = " Repeated runs of one build teach it (`calibrate`)." if reason == NO_NOISE else ""
    return f"Not judged: {reason}.{teach}"
