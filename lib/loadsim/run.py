"""Simulate one run: its recording, and the truth behind it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

import numpy as np
import numpy.typing as npt

from buildcompare.recordings.recording import FloatArray, LabelSummary, Note, Recording, Series
from loadsim.labels import Traffic, add_traffic, label_summaries
from loadsim.measure import TOP_BUCKET_S, alert_series, ar1, graphs, requests, run_levels, time_factor
from loadsim.server import Trace, play
from loadsim.settings import (
    Gap,
    Injection,
    LabelEffect,
    LostAgent,
    MetricEffect,
    NanStretch,
    Restart,
    RunSettings,
    Truncation,
)

NOTE = "simulated: a model of a server under the coordinator's feedback rule, not a measurement"


@dataclass(frozen=True)
class Truth:
    """The truth of a simulated run; times are seconds since its start.

    Attributes
    ----------
    supported_users
        The coordinator's result: mean of the active users over the window of the stop rule; None for a bounded
        test and when the time limit came first.
    connected_users
        Mean of the connected users over the same window (a lost agent's users are active, but not connected).
    decided_s, stop_s
        When the test was over, and its stamped stop after the agents' shutdown.
    first_alert_s
        None if no query alerted.
    cold_start_s
        Until then cold caches made logins noticeably more expensive.
    capacity_users
        Capacity of this run: the build's, with the run's random deviation.
    levels
        Factors of this run on each metric's level, by slug.
    alerts, limited_by
        Number of evaluations at which each query alerted, and the query that alerted most in the last window.
    actions
        Every (time, users added or removed).
    """

    supported_users: float | None
    connected_users: float
    decided_s: float
    stop_s: float
    first_alert_s: float | None
    cold_start_s: float
    capacity_users: float
    levels: dict[str, float]
    alerts: dict[str, int]
    limited_by: str | None
    actions: tuple[tuple[float, int], ...]
    settings: RunSettings
    seed: int


@dataclass(frozen=True)
class SimulatedRun:
    """The recording of a simulated run, and its truth."""

    recording: Recording
    truth: Truth


def simulate_run(
    settings: RunSettings, seed: int, *, alerts: bool = False, traffic: Traffic | None = None
) -> SimulatedRun:
    """Simulate one load test; equal settings and seeds give equal values.

    The random numbers of the feedback loop are drawn first, and for the whole time limit, so that settings of the
    recorded metrics or of the stop do not change the coordinator's actions before it.

    Parameters
    ----------
    settings
        Server, coordinator, noise and injections.
    seed
        Seed of all random numbers.
    alerts
        Whether to record the answers of the coordinator's alert queries.
    traffic
        Factors on calls and times of labels. With it each label has a series of calls and times, and the averages of
        all calls follow from them.

    Returns
    -------
    SimulatedRun
        The recording and the truth.

    Examples
    --------
    >>> from loadsim import Coordinator
    >>> settings = RunSettings(type="bounded", coordinator=Coordinator(max_users=500), duration_s=600.0)
    >>> run = simulate_run(settings, seed=1)
    >>> float(run.recording.find("number-of-connected-devices").values[100])
    500.0
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    noise, server = settings.noise, settings.server
    capacity = server.capacity_users * math.exp(float(rng.normal()) * noise.capacity_sd)
    levels = run_levels(settings, rng)
    limit_s = settings.duration_s if settings.type == "bounded" else settings.time_limit_s
    size = math.ceil(limit_s + settings.shutdown_s) + 2
    trace = play(
        settings, capacity, levels["cpu-utilization"], ar1(rng, size, noise.pressure_sd, noise.pressure_time_s)
    )

    series = graphs(settings, trace, levels, rng)
    stop_s = float(series[0].times[-1])
    run_factor = _run_factor(settings, trace, levels)
    summaries = label_summaries(settings, run_factor, rng)
    if traffic is not None:
        series, summaries = add_traffic(
            settings,
            traffic,
            series,
            summaries,
            rng,
            requests=requests(settings, trace),
            time_factor=time_factor(settings, trace),
            run_factor=run_factor,
        )
    recording = Recording(
        series=series + alert_series(settings, trace) if alerts else series,
        window=(float(settings.start), stop_s),
        stop_known=True,
        label_summaries=summaries,
        notes=(Note(kind="simulated", text=NOTE),),
        provenance={"kind": "simulated", "seed": seed, "settings": _plain(settings)}
        | ({"traffic": asdict(traffic)} if traffic else {}),
    )
    truth = _truth(settings, seed, trace, capacity, levels, recording.duration_s)
    for injection in settings.injections:
        recording = _inject(recording, injection)
    return SimulatedRun(recording, truth)


def _truth(
    settings: RunSettings, seed: int, trace: Trace, capacity: float, levels: dict[str, float], stop_s: float
) -> Truth:
    end = int(trace.decided_s)
    since = trace.decided_s - settings.coordinator.window_s
    late = [name for at_s, names in trace.alerts for name in names if at_s >= since]
    every = [name for _, names in trace.alerts for name in names]
    return Truth(
        supported_users=trace.supported_users,
        connected_users=float(trace.connected[max(0, math.ceil(since)) : end + 1].mean()),
        decided_s=trace.decided_s,
        stop_s=stop_s,
        first_alert_s=trace.first_alert_s,
        cold_start_s=trace.cold_start_s,
        capacity_users=capacity,
        levels=levels,
        alerts={name: every.count(name) for name in sorted(set(every))},
        limited_by=max(sorted(set(late)), key=late.count, default=None),
        actions=trace.actions,
        settings=settings,
        seed=seed,
    )


def _run_factor(settings: RunSettings, trace: Trace, levels: dict[str, float]) -> FloatArray:
    """Request-weighted factors of the whole run on API and store times."""
    own = settings.server.levels
    weight = requests(settings, trace)
    slow = time_factor(settings, trace)

    def mean(login: float, slug: str) -> float:
        return levels[slug] * float(np.average(slow * (1.0 + login * trace.logins), weights=weight))

    return np.array([mean(own.api_avg_login, "avg-api-times"), mean(own.store_avg_login, "avg-store-times")])


def _plain(settings: RunSettings) -> dict[str, object]:
    """The settings as plain data, with the kind of each injection."""
    injections = [{"kind": type(i).__name__, **asdict(i)} for i in settings.injections]
    return {**asdict(settings), "injections": injections}


def _inject(recording: Recording, injection: Injection) -> Recording:
    """Apply one injection; `play` has already applied those that happen to the load test itself."""
    match injection:
        case LostAgent() | Restart():
            return recording
        case LabelEffect():
            summaries = tuple(_label(summary, injection) for summary in recording.label_summaries)
            return replace(recording, label_summaries=summaries)
        case Truncation(at_s=at_s):
            start, end = recording.window[0], min(recording.window[1], recording.window[0] + at_s)
            series = tuple(_kept(s, s.times <= end) for s in recording.series)
            return replace(recording, series=series, window=(start, end), stop_known=False)
        case Gap() | NanStretch() | MetricEffect():
            return replace(recording, series=tuple(_series(recording, s, injection) for s in recording.series))


def _series(recording: Recording, series: Series, injection: Gap | NanStretch | MetricEffect) -> Series:
    if injection.metric not in (None, series.metric):
        return series
    elapsed = series.times - recording.window[0]
    if isinstance(injection, MetricEffect):
        return replace(
            series, values=np.where(elapsed >= injection.at_s, series.values * injection.factor, series.values)
        )
    hit = (elapsed >= injection.start_s) & (elapsed < injection.end_s)
    if isinstance(injection, Gap):
        return _kept(series, ~hit)
    return replace(series, values=np.where(hit, np.nan, series.values))


def _kept(series: Series, keep: npt.NDArray[np.bool_]) -> Series:
    return replace(series, times=series.times[keep], values=series.values[keep])


def _label(summary: LabelSummary, effect: LabelEffect) -> LabelSummary:
    if (summary.group, summary.label) != (effect.group, effect.label):
        return summary
    value = summary.value * effect.factor
    return replace(summary, value=min(value, TOP_BUCKET_S) if summary.stat == "p99" else value)
