"""Compare the ramps of two builds: when they reach given numbers of users, the delay between them, and their waves."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal, TypeVar

import numpy as np
import pandas as pd
from scipy.special import ndtr, stdtr

from buildcompare.load.curve import LoadCurve, holes, samples
from buildcompare.load.phases import Waves, compare_waves
from buildcompare.load.view import RunView, Shape, Views, measure_shape
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import Status
from buildcompare.results.users import RampUp, RampUps
from buildcompare.stats.levels import FEWEST, MINUTE_S, mean_of_runs
from buildcompare.stats.planning import ALPHA, quantile

T = TypeVar("T")


def round_marks(plateaus: list[float], levels: int = 5) -> list[int]:
    """Choose about `levels` equally spaced round numbers of users, none above the lowest of the `plateaus`."""
    lowest = min(plateaus, default=0.0)
    if not lowest > levels:
        return []
    magnitude = 10.0 ** math.floor(math.log10(lowest / levels))
    step = max(int(next(nice * magnitude for nice in (1, 2, 5, 10) if nice * magnitude >= lowest / levels)), 1)
    return list(range(step, int(lowest) + 1, step))


def time_to_users(users: pd.Series, marks: list[int]) -> dict[int, float | None]:
    """Map each mark to the elapsed seconds when `users` first reached the mark; None if unknown or never."""
    elapsed, values = samples(users)
    unseen = holes(elapsed)
    first = {mark: int(np.argmax(values >= mark)) for mark in marks}  # index; 0 if never reached, or from the start
    return {mark: float(elapsed[i]) if i and not unseen[i - 1] else None for mark, i in first.items()}


def with_ramp_ups(views: Views) -> Views:
    """Add a summary of the ramp, as in results.json, to each run."""
    marks = round_marks([view.plateau_users for runs in views for view in runs if view.plateau_users is not None])
    return views.map(lambda runs: [replace(view, ramp_up=_ramp_up(view, marks)) for view in runs])


def _ramp_up(view: RunView, marks: list[int]) -> RampUp:
    """Summarise a run's ramp for results.json; omit heights of a proxy, because they are not users."""
    reached = {} if view.users is None else time_to_users(view.users, marks)
    times = {str(mark): at_s for mark, at_s in reached.items()}
    if view.shape is None:
        return RampUp(plateau_users=view.plateau_users, time_to=times)
    beginning, line, plateau = view.shape.beginning, view.shape.ramp, view.shape.plateau
    waves = view.shape.waves if view.shape.waves.claimed else Waves(test=view.shape.waves.test)
    seen, in_users = beginning.onset_s is not None, not view.shape.proxy
    if not seen and line is not None:
        times = dict.fromkeys(times)  # all None: the recording starts in mid-ramp, so the run's start is unknown
    in_curve = {  # values in the curve's unit: users, or the unit of a proxy
        "slope_users_per_s": line.slope if line else None,
        "wave_onset_users": waves.onset_users,
        "wave_amplitude_users": waves.amplitude,
        "lost_user_seconds": view.shape.lost,
        "stopped_earlier_users": plateau.earliest_level if plateau else None,
        "plateau_drift_users_per_s": plateau.drift if plateau else None,
        "bumps": list(beginning.bumps),
    }
    return RampUp(
        onset_s=beginning.onset_s, early_bumps=len(beginning.bumps) if seen else None,
        early_bump_seconds=sum(bump.end_s - bump.start_s for bump in beginning.bumps) if seen else None,
        kink_s=line.kink_s if line else None,
        wave_onset_s=waves.onset_s, wave_period_s=waves.period_s, wave_regularity=waves.regularity,
        waves_p_value=waves.test.p_value if waves.test else None, plateau_users=view.plateau_users,
        equilibrium=plateau.settled if plateau else None, time_to=times, **(in_curve if in_users else {}),
    )  # fmt: skip


LEAST_SD_S, ONSET_SD = 20.0, 0.1
"""Without repeated runs, a run's delay has an assumed SD of sqrt(`LEAST_SD_S`^2 + (`ONSET_SD` * onset)^2) seconds; the
onset is when the ramp starts. In simulated pairs (seeds 0 to 199 of `benchmarks/shapes.py`), the SD is 10 to 13 s if
the load begins to rise at most twice, else 0.04 to 0.07 of the onset. The constants are larger: real runs vary more."""
FIRST_S = 120.0  # length of the first part of a ramp (s), whose delay is compared with the delay over the whole ramp
LEVELS = 101  # number of loads at which delays are measured: one for each percent of the common range of loads


@dataclass(frozen=True)
class Shift:
    """Shift of the new build's ramp against the base's; `users` is negative if the new build is behind."""

    users: float  # median of new minus base at equal times, in the curve's unit
    users_ci: tuple[float, float]
    """95 % interval of `users`. It accounts for noise within runs, for variation between runs, and for changes of the
    difference between the builds during the ramp."""
    seconds: float  # median delay at equal users; positive if the new build is later
    window: tuple[float, float]  # start and end of the time in which both builds ramp up, in elapsed seconds
    noise_source: Literal["runs", "simulated"]  # source of the run-to-run variation
    p_value: float  # two-sided p-value for the hypothesis that the delay `seconds` is 0

    @property
    def significant(self) -> bool:
        """True if `p_value`, which tests the median delay `seconds`, is at most `ALPHA`."""
        return self.p_value <= ALPHA


def shift(
    base: pd.Series | Shape, new: pd.Series | Shape, *, sd_s: float | None = None, df: float = math.inf
) -> Shift | None:
    """Measure how far the ramp of the new run is shifted against the ramp of the base.

    The delay of a ramp varies between runs by chance, because alerts in the first minutes stop and restart the ramp.
    Samples of one run do not show this variation. Without `sd_s`, a larger variation than in simulated runs is assumed;
    it grows with the start time of the ramp.

    Parameters
    ----------
    base, new
        Connected users over elapsed seconds, or the shapes of both runs.
    sd_s, df
        Standard deviation of one run's delay in seconds from repeated runs of one build, and its degrees of freedom;
        default: a standard deviation somewhat above that of simulated runs.

    Returns
    -------
    Shift or None
        None if a curve shows no load or ramp, a ramp's start is unknown, or the ramps overlap by less than a minute.

    Examples
    --------
    >>> elapsed = np.arange(0.0, 5400.0, 5.0)
    >>> base, new = (np.clip(4.0 * (elapsed - onset), 0.0, 8000.0) for onset in (100, 500))
    >>> later = shift(pd.Series(base, index=elapsed), pd.Series(new, index=elapsed))
    >>> round(later.users), round(later.seconds), later.significant
    (-1600, 400, True)
    """
    one, other = (measure_shape(each) if isinstance(each, pd.Series) else each for each in (base, new))
    if one is None or other is None or (window := _common_ramp(one, other)) is None:
        return None
    slope, gap, delays = _gaps(one.curve, other.curve, window)
    _, first_gap, first_delays = _gaps(one.curve, other.curve, (window[0], min(window[0] + FIRST_S, window[1])))
    users, seconds = float(np.median(gap)), float(np.median(delays))
    # Two ramps keep a constant distance in users or, if their slope changes, in seconds. Use the steadier distance.
    wandering_s = math.hypot(users - float(np.median(first_gap)), float(gap.std())) / slope
    if delays.size > 1:
        wandering_s = min(wandering_s, math.hypot(seconds - float(np.median(first_delays)), float(delays.std())))
    onset = ((one.beginning.onset_s or 0.0) + (other.beginning.onset_s or 0.0)) / 2.0
    between = math.sqrt(2.0) * (math.hypot(LEAST_SD_S, ONSET_SD * onset) if sd_s is None else sd_s)
    error_s = math.hypot(_error_of_median(gap) / slope, between, wandering_s)
    reach_s = error_s * quantile(1.0 - ALPHA / 2.0, df)
    z = abs(seconds) / error_s if error_s > 0 else math.inf
    p_value = float(2.0 * (ndtr(-z) if math.isinf(df) else stdtr(df, -z)))
    interval = users - slope * reach_s, users + slope * reach_s
    return Shift(users, interval, seconds, window, "simulated" if sd_s is None else "runs", p_value)


def _common_ramp(base: Shape, new: Shape) -> tuple[float, float] | None:
    if base.beginning.onset_s is None or new.beginning.onset_s is None or not (base.ramp and new.ramp):
        return None
    start = max(base.beginning.onset_s, new.beginning.onset_s)
    waves = [side.waves.onset_s for side in (base, new) if side.waves.onset_s is not None]
    ends = waves or [base.ramp.end_s, new.ramp.end_s]
    end = min(*ends, float(base.curve.elapsed[-1]), float(new.curve.elapsed[-1]))
    return (start, end) if end - start >= MINUTE_S else None


def _gaps(base: LoadCurve, new: LoadCurve, window: tuple[float, float]) -> tuple[float, FloatArray, FloatArray]:
    """Return mean slope, load differences (new - base) at equal times, and delays in seconds at equal load."""
    times = np.linspace(*window, max(FEWEST, round((window[1] - window[0]) / base.sample_s) + 1))
    one, other = (np.interp(times, curve.elapsed, curve.values) for curve in (base, new))
    gap = np.asarray(other - one, dtype=np.float64)
    slope = max(float(one[-1] - one[0] + other[-1] - other[0]) / 2.0 / (window[1] - window[0]), 1e-9)
    low, high = max(one[0], other[0]), min(one[-1], other[-1])
    if not high > low:
        return slope, gap, np.array([-np.median(gap) / slope])
    reached = []  # for each curve, the elapsed seconds at which its running maximum first reached each level
    for curve in (base, new):
        highest = np.maximum.accumulate(curve.values)
        rising = np.flatnonzero(np.diff(highest, prepend=-np.inf) > 0)
        reached.append(np.interp(np.linspace(low, high, LEVELS), highest[rising], curve.elapsed[rising]))
    return slope, gap, np.asarray(reached[1] - reached[0], dtype=np.float64)


def _error_of_median(gap: FloatArray) -> float:
    """Standard error of the median of `gap`, from the AR(1) noise of its samples around a linear trend."""
    places = np.arange(gap.size)
    residual = gap - np.polyval(np.polyfit(places, gap, 1), places)
    variance = float(residual @ residual)
    phi = min(max(float(residual[1:] @ residual[:-1]) / variance if variance > 0 else 0.0, 0.0), 0.99)
    effective = max(gap.size * (1.0 - phi) / (1.0 + phi), 1.0)
    # The standard error of a median is sqrt(pi/2) times that of a mean.
    return math.sqrt(math.pi / 2.0 * variance / max(gap.size - 2, 1) / effective)


def compare_ramps(views: Views) -> RampUps:
    """Compare the ramps of two builds: average each build's ramps, and take median differences over pairs of runs."""
    pairs = [(a.shape, b.shape) for a, b in zip(views.base, views.new, strict=False) if a.shape and b.shape]
    proxy = any(shape.proxy for pair in pairs for shape in pair)
    waves = [compare_waves(a.waves, b.waves) for a, b in pairs if a.waves.claimed and b.waves.claimed]
    base, new = views.map(lambda runs: _mean_ramp([view.ramp_up for view in runs]))
    ramps = RampUps(
        base=base,
        new=new,
        wave_period_s=_middle([period for period, _ in waves], "value"),
        wave_amplitude_users=None if proxy else _middle([amplitude for _, amplitude in waves], "value"),
    )
    median = None if proxy else _middle([shift(*pair) for pair in pairs], "users")
    if median is None:
        return ramps
    names = ("users", "seconds", "p_value", "window", "noise_source")
    fields = vars(ramps) | {f"shift_{name}": getattr(median, name) for name in names}
    fields["shift_ci_low"], fields["shift_ci_high"] = median.users_ci
    if median.significant:
        fields["shift_status"] = Status.REGRESSION if median.users < 0 else Status.IMPROVEMENT
    return RampUps.model_validate(fields)


def _middle(differences: Sequence[T | None], name: str) -> T | None:
    """Return the item with the median value of attribute `name` (of two, the one nearer to 0); None without items."""
    ordered = sorted((each for each in differences if each is not None), key=attrgetter(name))
    middle = ordered[max(len(ordered) - 1, 0) // 2 : len(ordered) // 2 + 1]
    return min(middle, key=lambda each: abs(getattr(each, name)), default=None)


def _mean_ramp(ramps: Sequence[RampUp]) -> RampUp:
    """Average a build's ramps; a value that most runs lack is None, except `early_bumps` (a median) and `time_to`."""
    if len(ramps) == 1:
        return ramps[0]
    names = RampUp.model_fields.keys() - {"time_to", "bumps", "early_bumps", "equilibrium"}
    known = {name: [value for ramp in ramps if (value := getattr(ramp, name)) is not None] for name in names}
    marks = ramps[0].time_to if ramps else {}
    counts = sorted(ramp.early_bumps for ramp in ramps if ramp.early_bumps is not None)
    return RampUp(
        **{name: mean_of_runs(each) if 2 * len(each) >= len(ramps) else None for name, each in known.items()},
        early_bumps=counts[len(counts) // 2] if counts else None,
        time_to={mark: mean_of_runs([ramp.time_to.get(mark) for ramp in ramps]) for mark in marks},
    )
