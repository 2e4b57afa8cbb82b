"""View a run for the analyses, with its load, stop, steady window and shape, and compare the shapes of two builds.

Numbers without a source were fitted to our own simulator (seeds 0 to 249 of `benchmarks/shapes.py`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Literal, TypeAlias, TypeVar

import numpy as np
import pandas as pd
from scipy.special import ndtr, stdtr

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.config.params import Coordinator, Run
from buildcompare.load import curve as curves
from buildcompare.load.curve import USERS_INC, WINDOW_S, LoadCurve, SteadyState, Stop
from buildcompare.load.phases import HALF, Beginning, Ramp, Waves, bumps, compare_waves, ramp, waves
from buildcompare.recordings.recording import FloatArray, Recording, Series
from buildcompare.results import Estimate, Validity
from buildcompare.results.base import Reason
from buildcompare.results.codes import Better, Pair, ReasonCode, Status, TestType, ValidityStatus
from buildcompare.results.users import Phase, PhaseName, RampUp, RampUps
from buildcompare.stats.levels import FEWEST, MINUTE_S, Level, level_of_samples, mean_of_runs, measure_level
from buildcompare.stats.noise import RunLevel
from buildcompare.stats.planning import ALPHA, quantile

T = TypeVar("T")
SHORTEST_S = 600.0  # shortest plateau: at least two waves, which take up to 250 s in published runs


@dataclass(frozen=True)
class Plateau:
    """Last 30 minutes of a load curve; elapsed seconds and the curve's unit."""

    window: tuple[float, float]
    level: float  # mean
    drift: float  # least-squares slope per second: a stop a minute later changes the level by 60 times it
    settled: bool | None  # True if the drift is about within the load-test tool's stop rule; None if too short to tell
    earliest_level: float | None  # level at the first stop that meets the rule; None without any


def measure_plateau(curve: LoadCurve, stop_s: float, ramp_end_s: float | None = None) -> Plateau | None:
    """Measure the last 30 minutes up to `stop_s`; None if fewer than 10 of them follow the ramp's end."""
    start = max(stop_s - WINDOW_S, float(curve.elapsed[0]) if ramp_end_s is None else ramp_end_s)
    elapsed, values = curve.between(start, stop_s)
    if elapsed.size < 10 or stop_s - start < SHORTEST_S:
        return None
    limit = curves.STOP_STEPS * curve.step
    drift = float(np.polyfit(elapsed, values, 1)[0])
    settled = bool(abs(drift) < curves.TOLERANCE * limit) if stop_s - start >= 0.99 * WINDOW_S else None
    # First stop whose last `WINDOW_S` meet the rule and lie above `HALF` of the level: early bumps can be flat.
    x, y = curve.elapsed - curve.elapsed[0], curve.values - curve.values.mean()
    begins, last = np.searchsorted(x, x - WINDOW_S), np.arange(x.size)

    def mean(each: FloatArray) -> FloatArray:
        sums = np.append(0.0, each.cumsum())
        return np.asarray((sums[1:] - sums[begins]) / (last + 1 - begins))

    spread = mean(x * x) - mean(x) ** 2
    slope = (mean(x * y) - mean(x) * mean(y)) / np.where(spread > 0, spread, np.nan)
    high = np.argmax(curve.values >= HALF * curve.level)
    able = (x >= WINDOW_S) & (begins >= high) & (last > begins) & (curve.elapsed <= stop_s)
    stops = np.flatnonzero(able & (np.abs(slope) < limit))
    earliest = float(curve.values[begins[stops[0]] : stops[0] + 1].mean()) if stops.size else None
    return Plateau((start, stop_s), float(values.mean()), drift, settled, earliest)


@dataclass(frozen=True)
class Shape:
    """Shape of one run, in the unit of its curve."""

    curve: LoadCurve
    stop: Stop
    proxy: bool  # True for a proxy: heights are no numbers of users, and the size of a turn is a guess
    beginning: Beginning
    ramp: Ramp | None
    waves: Waves
    plateau: Plateau | None
    lost: float | None
    """User-seconds below the ideal ramp, up to the end of the linear part; None if the start was not recorded."""
    top_s: float | None  # start of a bounded run's plateau

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Phases by time, without overlap, from the first sample to the last."""
        line, plateau, first = self.ramp, self.plateau, float(self.curve.elapsed[0])
        onset_s = self.beginning.onset_s if self.beginning.bumps else None
        ramp_s = first if onset_s is None else onset_s
        starts: dict[PhaseName, float | None] = {
            "early_bumps": first if self.beginning.bumps else None,
            "ramp": None if line is None and self.top_s is None else ramp_s,
            "bend": line.end_s if self.top_s is None and line is not None and line.complete else None,
            "waves": self.waves.onset_s if self.waves.claimed else None,
            "plateau": plateau.window[0] if self.top_s is None and plateau and plateau.settled else self.top_s,
            "shutdown": self.stop.at_s if self.stop.shutdown else None,
        }
        marks = [(name, start) for name, start in starts.items() if start is not None]
        # A phase ends where a later one starts; one without length is left out.
        ends = [start for _, start in marks[1:]] + [self.stop.end_s]
        spans = [(name, start, min(ends[i:])) for i, (name, start) in enumerate(marks)]
        return tuple(Phase(name=name, start_s=start, end_s=end) for name, start, end in spans if end > start)


def measure_shape(
    load: pd.Series,
    stop: Stop | None = None,
    *,
    bounded: bool = False,
    proxy: bool = False,
    per_user: float | None = None,
    ideal_slope: float | None = None,
    step: float = USERS_INC,
    rate_s: float = MINUTE_S,
) -> Shape | None:
    """Measure the shape of a run; None without load. `ideal_slope`: users per second without alerts, if known."""
    stop = stop or curves.find_stop(load)
    curve = None if stop is None else curves.prepare_load(load, stop.at_s, step=step, proxy=proxy, per_user=per_user)
    if curve is None or stop is None:
        return None
    beginning = bumps(curve)
    line = ramp(curve, onset_s=beginning.onset_s)
    onset = float(curve.elapsed[0]) if beginning.onset_s is None else beginning.onset_s
    if bounded:
        top_s = curves.plateau_start(curve.elapsed, curve.values, proxy=proxy, rate_s=rate_s)
        its_waves, plateau = Waves(), None if top_s is None else measure_plateau(curve, stop.at_s, top_s)
    else:
        top_s, end_s = None, None if line is None else line.end_s
        its_waves, plateau = waves(curve, onset_s=onset, tested_from_s=end_s), measure_plateau(curve, stop.at_s, end_s)
    lost = None
    if line is not None and beginning.onset_s is not None:
        elapsed, values = curve.between(float(curve.elapsed[0]), line.end_s)
        ideal = values[0] + (line.slope if ideal_slope is None else ideal_slope) * (elapsed - elapsed[0])
        lost = float(np.trapezoid(np.minimum(ideal, max(values[-1], values[0])) - values, elapsed))
    return Shape(curve, stop, proxy, beginning, line, its_waves, plateau, lost, top_s)


RATES = ("requests/s", "transactions/s", "queries/s", "operations/s")
"""Units of metrics that replace the load if no users are recorded."""
SHORT_PARTS = 12.0
"""The window of rates is the length divided by this in short repeated runs whose source states none."""
TIMES = "seconds"  # unit of metrics that are compared by geometric means


@dataclass(frozen=True)
class RunView:
    """A run for the analyses; each may add its own result for the next."""

    recording: Recording
    steady: SteadyState
    load: pd.Series | None = None  # curve of users or of a proxy, over elapsed seconds
    load_slug: str | None = None  # metric of `load`
    users: pd.Series | None = None  # curve of connected users; None if not recorded
    stop: Stop | None = None
    shape: Shape | None = None
    run: Run = field(default_factory=Run.model_construct)  # entry of the run in the params
    estimate: Estimate | None = None  # supported users by the curve; None in bounded tests
    validity: Validity = field(default_factory=lambda: Validity(status=ValidityStatus.VALID))
    ramp_up: RampUp = field(default_factory=RampUp)
    repeated: bool = False  # both builds of a bounded test have several runs

    @property
    def rate_s(self) -> float:
        """Seconds over which rates are taken: as the source states, else a minute, or less in short repeated runs."""
        least = self.recording.duration_s / SHORT_PARTS if self.repeated else MINUTE_S
        return self.recording.rate_s or min(MINUTE_S, least)

    @property
    def shortest_s(self) -> float:
        """Shortest steady window that it may be judged by."""
        return curves.shortest(self.rate_s, self.load if self.repeated else None)

    @cached_property
    def plateau_users(self) -> float | None:
        """Level of the users in the steady window."""
        if self.users is None or self.steady.window is None:
            return None
        return measure_level(self.users, self.steady.window).value

    def level(self, series: Series) -> Level | None:
        """Level of this run's series of the metric and labels of `series`; None without one."""
        same = self.recording.find(series.metric, series.labels)
        window = self.steady.window or self.steady.shown
        if same is None or window is None:
            return None
        return level_of_samples(*self.recording.samples(same), window, geometric=same.unit == TIMES)


Views: TypeAlias = Pair[list[RunView]]  # runs of both builds


def view_run(
    recording: Recording,
    kind: TestType,
    catalogue: Catalogue,
    coordinator: Coordinator | None = None,
    *,
    repeated: bool = False,
) -> RunView:
    """View a run of a test of this kind, by the catalogue's load curve or a proxy that follows it.

    `repeated`: both builds have several runs. Where no users were recorded, requests per second stand for the load.
    """
    if kind == "benchmark":
        return RunView(recording, SteadyState())  # its values have no times
    rule = coordinator or Coordinator()
    users = _filled(recording, catalogue.load)
    proxies = ((proxy, _filled(recording, proxy)) for proxy in catalogue.proxies())
    proxy, load = (None, users) if users is not None else next((e for e in proxies if e[1] is not None), (None, None))
    if load is None and kind == "unbounded":
        return RunView(recording, SteadyState(reason=Reason(code=ReasonCode.LOAD_UNKNOWN)))
    alone = RunView(recording, SteadyState(reason=Reason(code=ReasonCode.NO_SAMPLES)), repeated=repeated)
    if load is None:
        return _without_users(alone, catalogue)
    stop = curves.find_stop(load, fastest_fall=rule.fastest_fall if proxy is None else None)
    shape = measure_shape(
        load,
        stop,
        bounded=kind == "bounded",
        proxy=proxy is not None,
        per_user=proxy.proxy_per_unit if proxy else None,
        ideal_slope=rule.users_inc / rule.rest_s if proxy is None else None,
        step=rule.users_inc,
        rate_s=alone.rate_s,
    )
    steady = curves.steady_window(load, kind, stop=stop, proxy=bool(proxy), rate_s=alone.rate_s, repeated=repeated)
    slug = followed.slug if (followed := proxy or catalogue.load) else None
    return replace(alone, steady=steady, load=load, load_slug=slug, users=users, stop=stop, shape=shape)


def _filled(recording: Recording, metric: Metric | None) -> pd.Series | None:
    """Curve of a metric, if it has positive values."""
    series = recording.total(metric.slug) if metric else None
    curve = recording.curve(series) if series else None
    return curve if curve is not None and np.any(curve[np.isfinite(curve.to_numpy())] > 0) else None


def _without_users(run: RunView, catalogue: Catalogue) -> RunView:
    """View a bounded run by its requests per second, or else by its first graph."""
    rates = (metric for metric in catalogue.metrics if metric.unit in RATES and metric.better == Better.HIGHER)
    for rate in rates:
        if (load := _filled(run.recording, rate)) is not None:
            stop = curves.find_stop(load, fastest_fall=None)
            steady = curves.steady_window(
                load, "bounded", stop=stop, proxy=True, rate_s=run.rate_s, repeated=run.repeated
            )
            return replace(run, steady=steady, load=load, load_slug=rate.slug, stop=stop)
    for curve in map(run.recording.curve, run.recording.graphs()):
        if np.isfinite(curve.to_numpy()).any():
            return replace(run, steady=curves.mser_window(curve, rate_s=run.rate_s, repeated=run.repeated))
    return run


def reading_error(metric: Metric, views: Views) -> float:
    """Reading error of a run's level of `metric` in percent: 0 if no run was read off a plot."""
    digitised = any(view.recording.digitised for runs in views for view in runs)
    return metric.reading_error_percent if digitised else 0.0


def run_level(level: Level) -> RunLevel:
    """Convert a level to the form that calibrations and tests use."""
    return RunLevel(level.value or 0.0, level.se_log, level.seconds)


# ---- Both builds ----------------------------------------------------------------------------------------------------


def round_marks(plateaus: list[float], levels: int = 5) -> list[int]:
    """About `levels` round numbers of users below all of these plateaus."""
    lowest = min(plateaus, default=0.0)
    if not lowest > levels:
        return []
    magnitude = 10.0 ** math.floor(math.log10(lowest / levels))
    step = max(int(next(nice * magnitude for nice in (1, 2, 5, 10) if nice * magnitude >= lowest / levels)), 1)
    return list(range(step, int(lowest) + 1, step))


def time_to_users(users: pd.Series, marks: list[int]) -> dict[int, float | None]:
    """Elapsed seconds at which `users` first reached each mark; None if never, or within a hole."""
    elapsed, values = curves.samples(users)
    unseen = curves.holes(elapsed)
    first = {mark: int(np.argmax(values >= mark)) for mark in marks}  # 0 if never reached
    return {mark: float(elapsed[i]) if i and not unseen[i - 1] else None for mark, i in first.items()}


def with_ramp_ups(views: Views) -> Views:
    """Add the shape of each run's beginning."""
    marks = round_marks([view.plateau_users for runs in views for view in runs if view.plateau_users is not None])
    return views.map(lambda runs: [replace(view, ramp_up=_ramp_up(view, marks)) for view in runs])


def _ramp_up(view: RunView, marks: list[int]) -> RampUp:
    """Beginning of a run for results.json, without the heights of a proxy, which are no users."""
    reached = {} if view.users is None else time_to_users(view.users, marks)
    times = {str(mark): at_s for mark, at_s in reached.items()}
    if view.shape is None:
        return RampUp(plateau_users=view.plateau_users, time_to=times)
    beginning, line, plateau = view.shape.beginning, view.shape.ramp, view.shape.plateau
    waves = view.shape.waves if view.shape.waves.claimed else Waves(test=view.shape.waves.test)
    seen, in_users = beginning.onset_s is not None, not view.shape.proxy
    if not seen and line is not None:
        times = dict.fromkeys(times)  # the recording starts in mid-ramp: the start of the run is unknown
    return RampUp(
        onset_s=beginning.onset_s,
        early_bumps=len(beginning.bumps) if seen else None,
        early_bump_seconds=beginning.bump_seconds if seen else None,
        bumps=list(beginning.bumps) if in_users else [],
        kink_s=line.kink_s if line else None,
        slope_users_per_s=line.slope if line and in_users else None,
        lost_user_seconds=view.shape.lost if in_users else None,
        wave_onset_s=waves.onset_s,
        wave_onset_users=waves.onset_users if in_users else None,
        wave_period_s=waves.period_s,
        wave_amplitude_users=waves.amplitude if in_users else None,
        wave_regularity=waves.regularity,
        waves_p_value=waves.test.p_value if waves.test else None,
        plateau_users=view.plateau_users,
        plateau_drift_users_per_s=plateau.drift if plateau and in_users else None,
        equilibrium=plateau.settled if plateau else None,
        stopped_earlier_users=plateau.earliest_level if plateau and in_users else None,
        time_to=times,
    )


LEAST_SD_S, ONSET_SD = 20.0, 0.1
"""Standard deviation of one run's delay without repeated runs: root of `LEAST_SD_S`^2 + (`ONSET_SD` * mean onset)^2. It
is 1.5 times that of 200 simulated pairs (seeds 0 to 199 of `benchmarks/shapes.py`: 10 to 13 s with at most one bump,
0.04 to 0.07 of the onset with more), because real runs vary more."""
FIRST_S = 120.0  # seconds after the later ramp's start that show a shift; later gaps come from slopes or alerts
LEVELS = 101  # number of levels where delays are measured: one for each percent of the common ramp


@dataclass(frozen=True)
class Shift:
    """New minus base over the common ramp: with negative users the new build is behind."""

    users: float  # median vertical gap in the curve's unit
    users_ci: tuple[float, float]
    """95 % interval from noise within the runs, variation between runs, and the drift of the gap or of the delay along
    the ramp (its spread, and its difference from the first minutes)."""
    seconds: float  # median delay at equal users; positive if the new build is later
    window: tuple[float, float]  # elapsed seconds: from the later onset to the first wave
    noise_source: Literal["runs", "simulated"]  # source of the run-to-run variation
    p_value: float  # two-sided, for no shift

    @property
    def significant(self) -> bool:
        """True if the interval excludes zero."""
        return self.p_value <= ALPHA


def shift(
    base: pd.Series | Shape, new: pd.Series | Shape, *, sd_s: float | None = None, df: float = math.inf
) -> Shift | None:
    """Measure the shift between the common ramps of two runs.

    A few alerts in the first minutes decide the delay of a run, so samples within the run do not show its variation.
    Without repeated runs the variation is that of simulated runs, which grows with the length of the beginning: one
    bump more or less is chance.

    Parameters
    ----------
    base, new
        Connected users over elapsed seconds, or the shapes of both runs.
    sd_s, df
        Standard deviation of one run's delay in seconds from repeated runs of one build, and its degrees of freedom;
        default: that of simulated runs.

    Returns
    -------
    Shift or None
        None if the start of a ramp was not recorded, a curve shows no load, or the ramps share no time.

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
    # A shift is constant in users or in seconds: after a kink, the same delay is fewer users.
    wandering_s = math.hypot(users - float(np.median(first_gap)), float(gap.std())) / slope
    if delays.size > 1:
        wandering_s = min(wandering_s, math.hypot(seconds - float(np.median(first_delays)), float(delays.std())))
    onset = ((one.beginning.onset_s or 0.0) + (other.beginning.onset_s or 0.0)) / 2.0
    between = math.sqrt(2.0) * (math.hypot(LEAST_SD_S, ONSET_SD * onset) if sd_s is None else sd_s)
    error_s = math.hypot(_error_of_median(gap) / slope, between, wandering_s)
    reach_s = error_s * quantile(1.0 - ALPHA / 2.0, df)
    z = abs(seconds) / error_s if error_s > 0 else math.inf
    return Shift(
        users=users,
        users_ci=(users - slope * reach_s, users + slope * reach_s),
        seconds=seconds,
        window=window,
        noise_source="simulated" if sd_s is None else "runs",
        p_value=float(2.0 * (ndtr(-z) if math.isinf(df) else stdtr(df, -z))),
    )


def _common_ramp(base: Shape, new: Shape) -> tuple[float, float] | None:
    if base.beginning.onset_s is None or new.beginning.onset_s is None:
        return None
    start = max(base.beginning.onset_s, new.beginning.onset_s)
    waves = [side.waves.onset_s for side in (base, new) if side.waves.onset_s is not None]
    ramps = [side.ramp.end_s for side in (base, new) if side.ramp is not None]
    end = min(*(waves or ramps or [start]), float(base.curve.elapsed[-1]), float(new.curve.elapsed[-1]))
    return (start, end) if end - start >= MINUTE_S else None


def _gaps(base: LoadCurve, new: LoadCurve, window: tuple[float, float]) -> tuple[float, FloatArray, FloatArray]:
    """Mean slope of both ramps, gaps about a sample apart, and delays at equal levels (one if they share no level)."""
    times = np.linspace(*window, max(FEWEST, round((window[1] - window[0]) / base.sample_s) + 1))
    one, other = (np.interp(times, curve.elapsed, curve.values) for curve in (base, new))
    gap = np.asarray(other - one, dtype=np.float64)
    slope = max(float(one[-1] - one[0] + other[-1] - other[0]) / 2.0 / (window[1] - window[0]), 1e-9)
    low, high = max(one[0], other[0]), min(one[-1], other[-1])
    if not high > low:
        return slope, gap, np.array([-np.median(gap) / slope])
    reached = []  # times at which the running maximum first reached each level
    for curve in (base, new):
        highest = np.maximum.accumulate(curve.values)
        rising = np.flatnonzero(np.diff(highest, prepend=-np.inf) > 0)
        reached.append(np.interp(np.linspace(low, high, LEVELS), highest[rising], curve.elapsed[rising]))
    return slope, gap, np.asarray(reached[1] - reached[0], dtype=np.float64)


def _error_of_median(gap: FloatArray) -> float:
    """Standard error of the median gap from the AR(1) noise of the samples around its trend."""
    places = np.arange(gap.size)
    residual = gap - np.polyval(np.polyfit(places, gap, 1), places)
    variance = float(residual @ residual)
    phi = min(max(float(residual[1:] @ residual[:-1]) / variance if variance > 0 else 0.0, 0.0), 0.99)
    effective = max(gap.size * (1.0 - phi) / (1.0 + phi), 1.0)
    # The standard error of a median is sqrt(pi/2) times that of a mean.
    return math.sqrt(math.pi / 2.0 * variance / max(gap.size - 2, 1) / effective)


def compare_ramps(views: Views) -> RampUps:
    """Compare the beginnings of two builds: mean shapes, and the median shift and wave differences of pairs of runs."""
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
    """The difference whose number `name` is the median (of two, the lower); None without any."""
    ordered = sorted((each for each in differences if each is not None), key=attrgetter(name))
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def _mean_ramp(ramps: Sequence[RampUp]) -> RampUp:
    """Mean over the runs of one build; a single run is unchanged."""
    if len(ramps) == 1:
        return ramps[0]
    names = RampUp.model_fields.keys() - {"time_to", "bumps", "early_bumps", "equilibrium"}
    marks = ramps[0].time_to if ramps else {}
    counts = sorted(ramp.early_bumps for ramp in ramps if ramp.early_bumps is not None)
    return RampUp(
        **{name: mean_of_runs([getattr(ramp, name) for ramp in ramps]) for name in names},
        early_bumps=counts[len(counts) // 2] if counts else None,
        time_to={mark: mean_of_runs([ramp.time_to.get(mark) for ramp in ramps]) for mark in marks},
    )
