"""How did the load come up in each run, and how far apart are the builds?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from buildcompare.load.phases import Shape
from buildcompare.load.ramp_up import TimeToUsers
from buildcompare.load.shift import MeasureShift, Shift
from buildcompare.load.sides import SIDES, Views
from buildcompare.load.view import RunView
from buildcompare.load.wave_difference import CompareWaves, Difference
from buildcompare.results import Bump, RampUp, RampUps, Side, WithinRuns
from buildcompare.results.codes import Status
from buildcompare.stats.levels import mean_of_runs, measure_level


def ramp_ups(views: Views) -> dict[Side, list[RampUp]]:
    """The shape of each run's beginning."""
    plateaus = {side: [_plateau(view) for view in views[side]] for side in SIDES}
    known = [plateau for side in SIDES for plateau in plateaus[side] if plateau is not None]
    marks = TimeToUsers().marks(known)
    return {
        side: [
            RampUp(
                plateau_users=plateau,
                time_to=_time_to(view, marks),
                **(_shape(view.shape) if view.shape else {}),
            )
            for view, plateau in zip(views[side], plateaus[side], strict=True)
        ]
        for side in SIDES
    }


def _time_to(view: RunView, marks: list[int]) -> dict[str, float | None]:
    """When the run reached each mark; a window that opened in mid-ramp does not know since when."""
    if view.users is None:
        return {}
    shape = view.shape
    opened_late = shape is not None and shape.ramp is not None and shape.beginning.onset_s is None
    reached = TimeToUsers()(view.users, marks)
    return {str(mark): None if opened_late else at_s for mark, at_s in reached.items()}


def compare_ramps(views: Views, ramps: dict[Side, list[RampUp]]) -> RampUps:
    """The mean shapes, and the shift between the runs of each number."""
    pairs = [(a.shape, b.shape) for a, b in zip(views["base"], views["new"], strict=False) if a.shape and b.shape]
    proxy = any(shape.proxy for pair in pairs for shape in pair)
    shifts = [] if proxy else [MeasureShift()(base, new) for base, new in pairs]
    found = [shift for shift in shifts if shift is not None]
    means = {side: _mean_ramp(ramps[side]) for side in SIDES}
    period, amplitude = _waves(pairs)
    amplitude = None if proxy else amplitude  # heights of a proxy are no users
    if not found:
        return RampUps(base=means["base"], new=means["new"], wave_period_s=period, wave_amplitude_users=amplitude)
    middle = sorted(found, key=lambda shift: shift.users)[(len(found) - 1) // 2]
    return RampUps(
        base=means["base"],
        new=means["new"],
        wave_period_s=period,
        wave_amplitude_users=amplitude,
        shift_users=middle.users,
        shift_seconds=middle.seconds,
        shift_ci_low=middle.users_ci[0],
        shift_ci_high=middle.users_ci[1],
        shift_p_value=middle.p_value,
        shift_window=middle.window,
        shift_noise_source=middle.noise_source,
        shift_status=_status(middle),
    )


def _waves(pairs: Sequence[tuple[Shape, Shape]]) -> tuple[WithinRuns | None, WithinRuns | None]:
    """How the period and the height of the waves differ."""
    both = [(base.waves, new.waves) for base, new in pairs if base.waves.claimed and new.waves.claimed]
    found = [each for each in (CompareWaves()(*waves) for waves in both) if each is not None]
    return _middle([each.period_s for each in found]), _middle([each.amplitude for each in found])


def _middle(differences: Sequence[Difference | None]) -> WithinRuns | None:
    """That of the pair of runs in the middle."""
    known = sorted((each for each in differences if each is not None), key=lambda each: each.value)
    if not known:
        return None
    middle = known[(len(known) - 1) // 2]
    return WithinRuns(value=middle.value, ci_low=middle.ci[0], ci_high=middle.ci[1])


def _status(shift: Shift) -> Status:
    if not shift.significant:
        return Status.INCONCLUSIVE
    return Status.REGRESSION if shift.users < 0 else Status.IMPROVEMENT


def _shape(shape: Shape) -> dict[str, object]:
    """What results.json holds of a shape; heights of a proxy are no users and are left out."""
    ramp, waves, plateau = shape.ramp, shape.waves, shape.plateau
    seen = shape.beginning.onset_s is not None  # else the recording does not show how the run began
    found: dict[str, object] = {
        "onset_s": shape.beginning.onset_s,
        "early_bumps": len(shape.beginning.bumps) if seen else None,
        "early_bump_seconds": shape.beginning.bump_seconds if seen else None,
        "kink_s": ramp.kink_s if ramp else None,
        "waves_p_value": waves.test.p_value if waves.test else None,
        "equilibrium": plateau.settled if plateau else None,
    }
    if waves.claimed:
        found |= {
            "wave_onset_s": waves.onset_s,
            "wave_period_s": waves.period_s,
            "wave_regularity": waves.regularity,
        }
    if not shape.proxy:
        found |= {
            "slope_users_per_s": ramp.slope if ramp else None,
            "lost_user_seconds": shape.lost,
            "plateau_drift_users_per_s": plateau.drift if plateau else None,
            "stopped_earlier_users": plateau.earliest_level if plateau else None,
            "bumps": [
                Bump(start_s=b.start_s, peak_s=b.peak_s, end_s=b.end_s, peak_users=b.peak, depth_users=b.depth)
                for b in shape.beginning.bumps
            ],
        }
        if waves.claimed:
            found |= {"wave_onset_users": waves.onset_users, "wave_amplitude_users": waves.amplitude}
    return found


def _plateau(view: RunView) -> float | None:
    if view.users is None or view.steady.window is None:
        return None
    return measure_level(view.users, view.steady.window).value


def _mean_ramp(ramps: Sequence[RampUp]) -> RampUp:
    """The mean over the runs of one build; of a single run, that run."""
    if len(ramps) == 1:
        return ramps[0]
    names = [
        name
        for name, field in RampUp.model_fields.items()
        if name not in ("time_to", "bumps", "early_bumps", "equilibrium") and field.default is None
    ]
    marks = ramps[0].time_to if ramps else {}
    counts = [ramp.early_bumps for ramp in ramps if ramp.early_bumps is not None]
    return RampUp(
        **{name: mean_of_runs([getattr(ramp, name) for ramp in ramps]) for name in names},
        early_bumps=math.ceil(sorted(counts)[len(counts) // 2]) if counts else None,
        time_to={mark: mean_of_runs([ramp.time_to.get(mark) for ramp in ramps]) for mark in marks},
    )
