"""Prepare a run for the analyses: find its load curve, stop, steady window and shape.

Constants without a stated source were fitted to simulated runs (seeds 0 to 249 of `benchmarks/shapes.py`).
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.config.params import Coordinator, Run
from buildcompare.config.units import TIMES
from buildcompare.load import curve as curves
from buildcompare.load.curve import USERS_INC, WINDOW_S, LoadCurve, SteadyState, Stop
from buildcompare.load.phases import HALF, Beginning, Ramp, Waves, bumps, ramp, waves
from buildcompare.recordings.recording import Recording, Series
from buildcompare.results import Estimate, Validity
from buildcompare.results.base import Reason
from buildcompare.results.codes import Better, Pair, ReasonCode, TestType, ValidityStatus
from buildcompare.results.users import Phase, PhaseName, RampUp
from buildcompare.stats.levels import MINUTE_S, Level, level_of_samples, measure_level
from buildcompare.stats.noise import RunLevel

SHORTEST_S = 600.0  # minimum length of a plateau: it holds at least two waves (up to 250 s each in published runs)


@dataclass(frozen=True)
class Plateau:
    """Last 30 minutes (or less) of a load curve's plateau; times in elapsed seconds, levels in the curve's unit."""

    window: tuple[float, float]  # start and end
    level: float  # mean over the window
    drift: float  # least-squares slope per second over the window
    settled: bool | None  # True if |`drift`| < `TOLERANCE` * the stop rule's limit; None if `window` is under 29.7 min
    earliest_level: float | None  # mean over the first 30 minutes that met the stop rule; None if none did


def measure_plateau(curve: LoadCurve, stop_s: float, ramp_end_s: float | None = None) -> Plateau | None:
    """Measure the plateau: the last 30 minutes up to `stop_s`, without the ramp; None below 10 min or 10 samples."""
    start = max(stop_s - WINDOW_S, float(curve.elapsed[0]) if ramp_end_s is None else ramp_end_s)
    elapsed, values = curve.between(start, stop_s)
    if elapsed.size < 10 or stop_s - start < SHORTEST_S:
        return None
    limit = curves.STOP_STEPS * curve.step
    drift = float(np.polyfit(elapsed, values, 1)[0])
    settled = bool(abs(drift) < curves.TOLERANCE * limit) if stop_s - start >= 0.99 * WINDOW_S else None
    # Find the level when the load test could first have ended. Early plateaus below `HALF` of the level do not count.
    high_s, earliest = float(curve.elapsed[np.argmax(curve.values >= HALF * curve.level)]), None
    ends = curve.elapsed[(curve.elapsed >= high_s + WINDOW_S) & (curve.elapsed <= stop_s)]
    for end_s in ends[:: max(round(5.0 / curve.sample_s), 1)].tolist():
        x, y = curve.between(end_s - WINDOW_S, end_s)
        x = x - x.mean()
        if x.size > 1 and abs(x @ y) < limit * (x @ x):  # the slope of the least-squares line is below the limit
            earliest = float(y.mean())
            break
    return Plateau((start, stop_s), float(values.mean()), drift, settled, earliest)


@dataclass(frozen=True)
class Shape:
    """Shape of one run's load; heights are in the unit of `curve`."""

    curve: LoadCurve
    stop: Stop
    proxy: bool  # True if `curve` is a proxy for the load, such as goroutines: its heights are not numbers of users
    beginning: Beginning
    ramp: Ramp | None
    waves: Waves
    plateau: Plateau | None
    lost: float | None  # user-seconds between a straight ramp and the curve; None without a ramp or its start
    top_s: float | None  # elapsed seconds at which a bounded run reached its plateau; None if never or unbounded

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Phases in order of time, without overlap, up to the last sample."""
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
        # A phase ends at the earliest start of all later phases; phases without length are omitted.
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
    """Measure the shape of a run; None without load. `ideal_slope` is that of a ramp without alerts, in users/s."""
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
"""Units of metrics that stand in for the load of a bounded test if no users are recorded."""
SHORT_PARTS = 12.0
"""If a source does not state `rate_s`, repeated runs take 1/`SHORT_PARTS` of their length, but at most a minute."""


@dataclass(frozen=True)
class RunView:
    """A run with the results of the analyses so far; each analysis can add its result for later analyses."""

    recording: Recording
    steady: SteadyState
    load: pd.Series | None = None  # curve of users or of a proxy, over elapsed seconds
    load_slug: str | None = None  # slug of the metric in `load`
    users: pd.Series | None = None  # curve of connected users; None if not recorded
    stop: Stop | None = None
    shape: Shape | None = None
    run: Run = field(default_factory=Run.model_construct)  # entry of the run in the params file
    estimate: Estimate | None = None  # estimate of the supported users; None until it is computed, and in bounded tests
    validity: Validity = field(default_factory=lambda: Validity(status=ValidityStatus.VALID))
    ramp_up: RampUp = field(default_factory=RampUp)
    repeated: bool = False  # True if both builds of a bounded test have several runs

    @property
    def rate_s(self) -> float:
        """Seconds over which rates are taken: the source's value, or else a minute (less in short repeated runs)."""
        least = self.recording.duration_s / SHORT_PARTS if self.repeated else MINUTE_S
        return self.recording.rate_s or min(MINUTE_S, least)

    @property
    def shortest_s(self) -> float:
        """Minimum length in seconds of a steady window over which the run may be judged."""
        return curves.shortest(self.rate_s, self.load if self.repeated else None)

    @cached_property
    def plateau_users(self) -> float | None:
        """Mean number of connected users over the steady window; None if unknown."""
        if self.users is None or self.steady.window is None:
            return None
        return measure_level(self.users, self.steady.window).value

    def level(self, series: Series, *, geometric: bool | None = None) -> Level | None:
        """Level of the run's series with metric and labels of `series`; geometric for durations; None if unknown."""
        same = self.recording.find(series.metric, series.labels)
        window = self.steady.window or self.steady.shown
        if same is None or window is None:
            return None
        geometric = same.unit in TIMES if geometric is None else geometric
        return level_of_samples(*self.recording.samples(same), window, geometric=geometric)


Views: TypeAlias = Pair[list[RunView]]  # the runs of each build


ZEROS = 0.01  # maximum share of zeros among the samples of a geometric mean, which leaves out zeros


def is_geometric(views: Views, series: Series) -> bool:
    """Whether a metric's mean is geometric: true for durations if at most `ZEROS` of each run's samples are zero."""
    if series.unit not in TIMES:
        return False
    both = ([view.level(series, geometric=each) for each in (True, False)] for runs in views for view in runs)
    return all(above.samples >= (1.0 - ZEROS) * every.samples for above, every in both if above and every)


def view_run(
    recording: Recording,
    kind: TestType,
    catalogue: Catalogue,
    coordinator: Coordinator | None = None,
    *,
    repeated: bool = False,
    shared: Collection[str] | None = None,
) -> RunView:
    """Find load, stop and steady window of a run, from its load curve or from a proxy that follows the load.

    If neither users nor a proxy were recorded, the request rate stands in for the load of a bounded run. Only a rate
    in `shared` is used: metrics that all runs of the test recorded. `repeated` is True if builds have several runs.
    """
    if kind == "benchmark":
        return RunView(recording, SteadyState())  # values of a benchmark have no timestamps
    rule = coordinator or Coordinator()
    users = _filled(recording, catalogue.load)
    proxies = ((proxy, _filled(recording, proxy)) for proxy in catalogue.proxies())
    proxy, load = (None, users) if users is not None else next((e for e in proxies if e[1] is not None), (None, None))
    if load is None and kind == "unbounded":
        return RunView(recording, SteadyState(reason=Reason(code=ReasonCode.LOAD_UNKNOWN)))
    alone = RunView(recording, SteadyState(reason=Reason(code=ReasonCode.NO_SAMPLES)), repeated=repeated)
    if load is None:
        return _without_users(alone, catalogue, shared)
    stop = curves.find_stop(load, fastest_fall=rule.fastest_fall if proxy is None else None)
    ideal, per_user = (None, proxy.proxy_per_unit) if proxy else (rule.users_inc / rule.rest_s, None)
    shape = measure_shape(load, stop, bounded=kind == "bounded", proxy=proxy is not None, per_user=per_user,
                          ideal_slope=ideal, step=rule.users_inc, rate_s=alone.rate_s)  # fmt: skip
    steady = curves.steady_window(load, kind, stop=stop, proxy=bool(proxy), rate_s=alone.rate_s, repeated=repeated)
    slug = followed.slug if (followed := proxy or catalogue.load) else None
    return replace(alone, steady=steady, load=load, load_slug=slug, users=users, stop=stop, shape=shape)


def _filled(recording: Recording, metric: Metric | None) -> pd.Series | None:
    """Curve of a metric, summed over its series; None without positive values."""
    series = recording.total(metric.slug) if metric else None
    curve = recording.curve(series) if series else None
    return curve if curve is not None and np.any(curve[np.isfinite(curve.to_numpy())] > 0) else None


def request_rate(recording: Recording, catalogue: Catalogue, shared: Collection[str] | None = None) -> pd.Series | None:
    """Curve of the rate of answered requests, from a metric in `shared` (if given); None if none is recorded."""
    rates = [metric for metric in catalogue.metrics if metric.unit in RATES and metric.better == Better.HIGHER]
    rates = [metric for metric in rates if shared is None or metric.slug in shared]
    place = {each.slug: (0, "") if each.known else (len(each.slug), each.slug) for each in rates}
    rates = sorted(rates, key=lambda each: (RATES.index(each.unit), place[each.slug]))
    return next((curve for rate in rates if (curve := _filled(recording, rate)) is not None), None)


def _without_users(run: RunView, catalogue: Catalogue, shared: Collection[str] | None) -> RunView:
    """Find the steady window of a bounded run from its request rate, or else from a graph (gate metrics first)."""
    if (load := request_rate(run.recording, catalogue, shared)) is not None:
        stop = curves.rate_stop(load)
        steady = curves.steady_window(load, "bounded", stop=stop, proxy=True, rate_s=run.rate_s, repeated=run.repeated)
        return replace(run, steady=steady, load=load, load_slug=str(load.name), stop=stop)
    graphs = sorted(run.recording.graphs(), key=lambda each: not catalogue.find(each.metric).gate)
    for curve in map(run.recording.curve, graphs):
        if np.isfinite(curve.to_numpy()).any():
            return replace(run, steady=curves.mser_window(curve, rate_s=run.rate_s, repeated=run.repeated))
    return run


def reading_error(metric: Metric, views: Views) -> float:
    """Error in percent with which a run's level of `metric` is read off a plot; 0 if no run was read off a plot."""
    return metric.reading_error_percent if any(view.recording.digitised for runs in views for view in runs) else 0.0


def run_level(level: Level) -> RunLevel:
    """Convert a level to the form that calibrations and significance tests use."""
    return RunLevel(level.value or 0.0, level.se_log, level.seconds)
