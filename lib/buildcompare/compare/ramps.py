"""How did the load come up in each run?"""

from __future__ import annotations

from buildcompare.analysis.levels import MeasureLevel, mean_of_runs
from buildcompare.analysis.ramp_up import TimeToUsers
from buildcompare.compare.sides import SIDES, Views
from buildcompare.results import RampUp, Side
from buildcompare.run_view import RunView


def ramp_ups(views: Views) -> dict[Side, list[RampUp]]:
    """The shape of each run's beginning."""
    plateaus = {side: [_plateau(view) for view in views[side]] for side in SIDES}
    known = [plateau for side in SIDES for plateau in plateaus[side] if plateau is not None]
    time_to = TimeToUsers()
    marks = time_to.marks(known)
    return {
        side: [
            RampUp(
                plateau_users=plateau,
                time_to={str(k): v for k, v in time_to(view.users, marks).items()} if view.users is not None else {},
            )
            for view, plateau in zip(views[side], plateaus[side], strict=True)
        ]
        for side in SIDES
    }


def _plateau(view: RunView) -> float | None:
    if view.users is None or view.steady.window is None:
        return None
    return MeasureLevel()(view.users, view.steady.window).value


def mean_ramp(ramps: list[RampUp]) -> RampUp:
    """The mean over the runs of one build."""
    marks = ramps[0].time_to if ramps else {}
    return RampUp(
        plateau_users=mean_of_runs([ramp.plateau_users for ramp in ramps]),
        time_to={mark: mean_of_runs([ramp.time_to.get(mark) for ramp in ramps]) for mark in marks},
    )
