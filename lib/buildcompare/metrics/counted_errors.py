"""How many errors did the load-test tool count in each build, relative to the users who could meet them?"""

from __future__ import annotations

import numpy as np

from buildcompare.config.params import Test
from buildcompare.load.users import Estimates
from buildcompare.load.view import RunView, Views
from buildcompare.metrics.error_rates import unjudged
from buildcompare.results import ErrorRateResult, Estimate, Side
from buildcompare.results.base import Reason
from buildcompare.results.codes import SIDES, ReasonCode, Status
from buildcompare.stats.levels import delta_percent, mean_of_runs

SLUG = "counted-errors"
NAME = "Errors counted by the load test"
UNIT = "per user and minute"
_MINUTE_S = 60.0


def compare_counted_errors(test: Test, views: Views, estimates: Estimates) -> list[ErrorRateResult]:
    """The counts that the params state, by the time that users were connected; no row where none is stated.

    A tool counts over the whole run, so the whole curve of the users counts here, ramps included.
    """
    if all(run.errors is None for side in SIDES for run in test.runs(side)):
        return []
    rates: dict[Side, list[float | None]] = {side: [] for side in SIDES}
    why: dict[Side, Reason] = {}
    for side in SIDES:
        for run, view, estimate in zip(test.runs(side), views[side], estimates[side], strict=True):
            minutes = _user_minutes(view) if _whole(view, estimate, bounded=test.type == "bounded") else None
            if run.errors is None:
                why[side] = Reason(code=ReasonCode.ERRORS_NOT_STATED, build=side)
            elif minutes is None:
                why[side] = Reason(code=ReasonCode.USERS_UNKNOWN, build=side)
            rates[side].append(None if run.errors is None or minutes is None else run.errors / minutes)
    value = {side: None if side in why else mean_of_runs(rates[side]) for side in SIDES}
    base, new = value["base"], value["new"]
    both = base is not None and new is not None
    return [
        ErrorRateResult(
            name=NAME,
            slug=SLUG,
            unit=UNIT,
            base=base,
            new=new,
            delta=new - base if base is not None and new is not None else None,
            delta_percent=delta_percent(base, new),
            status=Status.INCONCLUSIVE if both else Status.NOT_COMPARABLE,
            reason=unjudged(base, new) or next(iter(why.values())),
        )
    ]


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
    area = float(np.trapezoid(users.to_numpy(), users.index.to_numpy())) / _MINUTE_S
    return area if area > 0 else None
