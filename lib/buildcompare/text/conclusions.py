"""Conclusions about a change: how large, how certain, and what would settle it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from buildcompare.results import MetricResult, SupportedUsersResult
from buildcompare.results.codes import Better, Reason, ReasonCode, Status
from buildcompare.text.numbers import change, percent, ranged, status_words
from buildcompare.text.reasons import reason_words

Row = MetricResult | SupportedUsersResult
_FOUND = (Status.REGRESSION, Status.IMPROVEMENT)


def by_chance_percent(row: Row) -> float | None:
    """How far two comparisons of unchanged builds differ in 19 of 20 cases, in percent; None if unknown."""
    if row.ci_high is None or row.delta_percent is None or not row.delta_percent > -100.0:
        return None  # of a metric that is as good as gone there is no ratio
    return ((1.0 + row.ci_high / 100.0) / (1.0 + row.delta_percent / 100.0) - 1.0) * 100.0


def conclusion(row: Mapping[str, Any], better: str) -> str:
    """The change of `row`, a finding's evidence, with its interval, and what follows."""
    delta, low, high, status = row["delta_percent"], row["ci_low"], row["ci_high"], row["status"]
    margin = row["margin_percent"] if "margin_percent" in row else row["band_percent"]
    if low is None:
        return f"{change(delta)}: run-to-run noise is not known here, so this may be chance"
    if status in _FOUND:
        words = f"{status_words(status, better)}, more than chance and more than the margin of {percent(margin)}"
    elif status == Status.EQUIVALENT:
        words = status_words(status, better, margin, low, high)
    elif low <= 0.0 <= (high or 0.0):
        words = f"cannot be told from chance, which moves this by up to {percent(row['by_chance_percent'])}"
    else:
        words = _undecided(delta, margin)
    return f"{ranged(delta, low, high)}: {words}"


def explain(row: Row) -> str:
    """Two sentences for readers without statistics: what chance does to this number, and what follows."""
    chance, delta, low, high = by_chance_percent(row), row.delta_percent, row.ci_low, row.ci_high
    margin = row.margin_percent if isinstance(row, MetricResult) else row.band_percent
    if chance is None or delta is None:
        reason = row.reason if isinstance(row, MetricResult) else None
        if delta is None:
            return f"Not judged: {reason_words(reason) if reason else 'one of the builds has no figure'}."
        reason = reason or Reason(code=ReasonCode.NO_NOISE)
        learn = " `calibrate` estimates it from repeated runs." if reason.code is ReasonCode.NO_NOISE else ""
        return f"Not judged: {reason_words(reason)}.{learn}"
    same = f"Two comparisons of unchanged builds differ by up to {percent(chance)} here in 19 of 20 cases"
    moved = ranged(delta, low, high)
    if row.status in _FOUND:
        return f"{same}. The change of {moved} is more than that, and more than the margin of {percent(margin)}."
    if row.status == Status.EQUIVALENT:
        rare = f"{moved} or nearer to zero would be seen in fewer than one of 20 comparisons"
        return f"{same}. If the true change were {percent(margin)}, the margin, {rare}."
    seen = f"A rise below {percent(row.min_detectable_percent)} would rarely be significant here"
    runs = "one run" if row.required_runs == 1 else f"{row.required_runs} runs"
    settled = f"{runs} of each build would show a change of {percent(margin)}"
    if row.required_runs is None:
        settled = f"fewer than 100 runs of each build would not show a change of {percent(margin)}"
    why = " may be chance or real" if (low or 0.0) <= 0.0 <= (high or 0.0) else f": {_undecided(delta, margin)}"
    return f"{same}; {ranged(delta, low, high, '')}{why}. {seen}; {settled}."


def _undecided(delta: float, margin: float | None) -> str:
    if margin is not None and abs(delta) <= margin:
        return f"differs, but not surely by more than the margin of {percent(margin)}"
    return "significant alone, not after adjusting for all metrics"


def at_load_words(row: Mapping[str, Any], better: Better | str, margin: float) -> str:
    """The status at equal load; where the interval beside it seems to contradict it, with what decided."""
    status, low, high = row["status"], row["ci_low"], row["ci_high"]
    words = status_words(status, better, margin, low, high)
    apart = low is not None and high is not None and not low <= 0.0 <= high
    if status == Status.INCONCLUSIVE and apart and abs(row["delta_percent"] or 0.0) <= margin:
        return f"{words}: differs, but not surely by more than {percent(margin)}"
    return words
