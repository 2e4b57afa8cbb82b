"""Compare how the load came up in both builds: the beginning of each run, the shift between them, and their waves."""

from __future__ import annotations

from collections.abc import Sequence

from buildcompare.load.ramp import round_marks, time_to_users
from buildcompare.load.shape import Shape
from buildcompare.load.shift import shift
from buildcompare.load.view import RunView, Views
from buildcompare.load.waves import compare_waves
from buildcompare.results.codes import Pair, Status
from buildcompare.results.users import RampUp, RampUps, WithinRuns
from buildcompare.stats.levels import mean_of_runs, measure_level


def ramp_ups(views: Views) -> Pair[list[RampUp]]:
    """The shape of each run's beginning."""
    plateaus = views.map(
        lambda runs: [
            None if v.users is None or v.steady.window is None else measure_level(v.users, v.steady.window).value
            for v in runs
        ]
    )
    marks = round_marks([users for runs in plateaus for users in runs if users is not None])
    return Pair.of(
        lambda side: [
            RampUp(plateau_users=users, time_to=_time_to(view, marks), **_shape(view.shape))
            for view, users in zip(views[side], plateaus[side], strict=True)
        ]
    )


def _time_to(view: RunView, marks: list[int]) -> dict[str, float | None]:
    """When the run reached each mark; a window that opened in mid-ramp does not know since when."""
    if view.users is None:
        return {}
    shape = view.shape
    opened_late = shape is not None and shape.ramp is not None and shape.beginning.onset_s is None
    reached = time_to_users(view.users, marks)
    return {str(mark): None if opened_late else at_s for mark, at_s in reached.items()}


def _shape(shape: Shape | None) -> dict[str, object]:
    """What results.json holds of a shape; heights of a proxy are no users and are left out."""
    if shape is None:
        return {}
    beginning, line, waves, plateau = shape.beginning, shape.ramp, shape.waves, shape.plateau
    seen = beginning.onset_s is not None  # else the recording does not show how the run began
    found: dict[str, object] = {
        "onset_s": beginning.onset_s,
        "early_bumps": len(beginning.bumps) if seen else None,
        "early_bump_seconds": beginning.bump_seconds if seen else None,
        "kink_s": line and line.kink_s,
        "waves_p_value": waves.test and waves.test.p_value,
        "equilibrium": plateau and plateau.settled,
    }
    if waves.claimed:
        found |= {"wave_onset_s": waves.onset_s, "wave_period_s": waves.period_s, "wave_regularity": waves.regularity}
    if not shape.proxy:
        found |= {
            "bumps": list(beginning.bumps),
            "slope_users_per_s": line and line.slope,
            "lost_user_seconds": shape.lost,
            "plateau_drift_users_per_s": plateau and plateau.drift,
            "stopped_earlier_users": plateau and plateau.earliest_level,
        }
        if waves.claimed:
            found |= {"wave_onset_users": waves.onset_users, "wave_amplitude_users": waves.amplitude}
    return found


def compare_ramps(views: Views, ramps: Pair[list[RampUp]]) -> RampUps:
    """The mean shapes, and of the pairs of runs of each number the middle one's shift and difference of the waves."""
    pairs = [(a.shape, b.shape) for a, b in zip(views.base, views.new, strict=False) if a.shape and b.shape]
    proxy = any(shape.proxy for pair in pairs for shape in pair)
    shifts = [] if proxy else [each for pair in pairs if (each := shift(*pair)) is not None]
    waves = [compare_waves(a.waves, b.waves) for a, b in pairs if a.waves.claimed and b.waves.claimed]
    found: dict[str, object] = {
        "wave_period_s": _middle([period for period, _ in waves]),
        "wave_amplitude_users": None if proxy else _middle([amplitude for _, amplitude in waves]),
    }
    if shifts:
        middle = sorted(shifts, key=lambda each: each.users)[(len(shifts) - 1) // 2]
        status = Status.REGRESSION if middle.users < 0 else Status.IMPROVEMENT
        found |= {
            "shift_users": middle.users,
            "shift_seconds": middle.seconds,
            "shift_ci_low": middle.users_ci[0],
            "shift_ci_high": middle.users_ci[1],
            "shift_p_value": middle.p_value,
            "shift_window": middle.window,
            "shift_noise_source": middle.noise_source,
            "shift_status": status if middle.significant else Status.INCONCLUSIVE,
        }
    return RampUps(base=_mean_ramp(ramps.base), new=_mean_ramp(ramps.new), **found)


def _middle(differences: Sequence[WithinRuns | None]) -> WithinRuns | None:
    known = sorted((each for each in differences if each is not None), key=lambda each: each.value)
    return known[(len(known) - 1) // 2] if known else None


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
    counts = sorted(ramp.early_bumps for ramp in ramps if ramp.early_bumps is not None)
    return RampUp(
        **{name: mean_of_runs([getattr(ramp, name) for ramp in ramps]) for name in names},
        early_bumps=counts[len(counts) // 2] if counts else None,
        time_to={mark: mean_of_runs([ramp.time_to.get(mark) for ramp in ramps]) for mark in marks},
    )
