"""Compare errors: rates that were recorded, and counts of the load-test tool relative to the users.

No calibration holds error rates, so none of them is judged: they are shown, and a jump is a finding.
"""

from __future__ import annotations

import numpy as np

from buildcompare.config.params import Test
from buildcompare.load.users import Estimates
from buildcompare.load.view import RunView, Views
from buildcompare.results import ErrorRateResult, Estimate, Side
from buildcompare.results.base import Reason
from buildcompare.results.codes import SIDES, Pair, ReasonCode, Status
from buildcompare.stats.levels import delta_percent, mean_of_runs, measure_level

SLUG = "counted-errors"
NAME = "Errors counted by the load test"
UNIT = "per user and minute"


def compare_error_rates(views: Views) -> list[ErrorRateResult]:
    """Each error rate that a run recorded, over the steady windows."""
    recorded = [series for side in SIDES for view in views[side] for series in view.recording.series]
    known = {series.metric: (series.name, series.unit) for series in recorded if series.role == "error"}
    rows = []
    for slug, (name, unit) in known.items():
        base, new = (mean_of_runs([_rate(view, slug) for view in runs]) for runs in views)
        rates = Pair(base, new)
        missing = [side for side in SIDES if rates[side] is None]
        why = Reason(code=ReasonCode.NO_NUMBER, build=missing[0] if len(missing) == 1 else None)
        rows.append(_row(name, slug, unit, rates, why))
    return rows


def compare_counted_errors(test: Test, views: Views, estimates: Estimates) -> list[ErrorRateResult]:
    """The counts that the params state, by the time that users were connected; no row where none is stated.

    A tool counts over the whole run, so the whole curve of the users counts here, ramps included.
    """
    if all(run.errors is None for side in SIDES for run in test.runs(side)):
        return []
    why: dict[Side, Reason] = {}
    rates: dict[Side, list[float | None]] = {"base": [], "new": []}
    for side in SIDES:
        for run, view, estimate in zip(test.runs(side), views[side], estimates[side], strict=True):
            minutes = _user_minutes(view) if _whole(view, estimate, bounded=test.type == "bounded") else None
            if run.errors is None:
                why[side] = Reason(code=ReasonCode.ERRORS_NOT_STATED, build=side)
            elif minutes is None:
                why[side] = Reason(code=ReasonCode.USERS_UNKNOWN, build=side)
            else:
                rates[side].append(run.errors / minutes)
    value = Pair.of(lambda side: None if side in why else mean_of_runs(rates[side]))
    return [_row(NAME, SLUG, UNIT, value, next(iter(why.values()), None))]


def _row(name: str, slug: str, unit: str, rates: Pair[float | None], why: Reason | None) -> ErrorRateResult:
    """One row; `why` is the reason where a rate is not known."""
    base, new = rates
    delta = new - base if base is not None and new is not None else None
    if delta is not None:
        why = Reason(code=ReasonCode.NONE_FAILED if base == new == 0 else ReasonCode.NO_ERROR_NOISE)
    return ErrorRateResult(
        name=name,
        slug=slug,
        unit=unit,
        base=base,
        new=new,
        delta=delta,
        delta_percent=delta_percent(base, new),
        status=Status.NOT_COMPARABLE if delta is None else Status.INCONCLUSIVE,
        reason=why,
    )


def _rate(view: RunView, slug: str) -> float | None:
    """The mean rate over the steady window of one run; an empty answer is no rate of zero."""
    for series in view.recording.series:
        if series.role == "error" and series.metric == slug and view.steady.window is not None:
            return measure_level(view.recording.curve(series), view.steady.window).mean
    return None


def _whole(view: RunView, estimate: Estimate | None, *, bounded: bool) -> bool:
    """Whether the curve goes on to the end of the run; an unbounded one that still climbs may have been cut."""
    if bounded or view.recording.stop_known or (view.stop is not None and view.stop.shutdown):
        return True
    return estimate is not None and estimate.reason is None


def _user_minutes(view: RunView) -> float | None:
    """The area below the curve of connected users; None without one. Gaps are bridged by straight lines."""
    if view.users is None:
        return None
    users = view.users.dropna()
    area = float(np.trapezoid(users.to_numpy(), users.index.to_numpy())) / 60.0
    return area if area > 0 else None
