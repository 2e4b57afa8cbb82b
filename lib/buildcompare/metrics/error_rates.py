"""How often did requests fail in each build, relative to how many there were?"""

from __future__ import annotations

from buildcompare.load.view import RunView, Views
from buildcompare.results import ErrorRateResult, Side
from buildcompare.results.base import Reason
from buildcompare.results.codes import SIDES, ReasonCode, Status
from buildcompare.stats.levels import delta_percent, mean_of_runs, measure_level


def compare_error_rates(views: Views) -> list[ErrorRateResult]:
    """Each error rate that a run recorded, over the steady windows.

    No calibration holds error rates, so none of them is called: they are shown, and a jump is told.
    """
    known = {s.metric: (s.name, s.unit) for side in SIDES for v in views[side] for s in v.recording.series
             if s.role == "error"}  # fmt: skip
    rows = []
    for slug, (name, unit) in known.items():
        value = {side: mean_of_runs([_rate(view, slug) for view in views[side]]) for side in SIDES}
        base, new = value["base"], value["new"]
        both = base is not None and new is not None
        rows.append(
            ErrorRateResult(
                name=name,
                slug=slug,
                unit=unit,
                base=base,
                new=new,
                delta=new - base if base is not None and new is not None else None,
                delta_percent=delta_percent(base, new),
                status=Status.INCONCLUSIVE if both else Status.NOT_COMPARABLE,
                reason=unjudged(base, new) or _missing(views, slug),
            )
        )
    return rows


def _rate(view: RunView, slug: str) -> float | None:
    """The mean rate over the steady window of one run; an empty answer is no rate of zero."""
    series = next((s for s in view.recording.series if s.role == "error" and s.metric == slug), None)
    if series is None or view.steady.window is None:
        return None
    return measure_level(view.recording.curve(series), view.steady.window).mean


def unjudged(base: float | None, new: float | None) -> Reason | None:
    """Why two known rates are not judged; None where one is not known."""
    if base is None or new is None:
        return None
    return Reason(code=ReasonCode.NONE_FAILED if base == new == 0 else ReasonCode.NO_ERROR_NOISE)


def _missing(views: Views, slug: str) -> Reason:
    sides: list[Side] = [side for side in SIDES if all(_rate(view, slug) is None for view in views[side])]
    return Reason(code=ReasonCode.NO_NUMBER, build=None if len(sides) == 2 else sides[0])
