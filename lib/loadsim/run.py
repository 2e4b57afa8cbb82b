"""One load test from start to stop: what would have been recorded of it, and what really happened."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from buildcompare.recordings.recording import FloatArray, Note, Recording
from loadsim.inject import inject
from loadsim.labels import label_summaries
from loadsim.measure import alert_series, graphs, requests, run_levels, slowdown
from loadsim.noise import ar1
from loadsim.server import Trace, play
from loadsim.settings import RunSettings
from loadsim.traffic import PlayTraffic, Traffic

NOTE = "simulated: a model of a server under the coordinator's feedback rule, not a measurement"


@dataclass(frozen=True)
class Truth:
    """What really happened in a simulated run. Times are seconds since its start.

    Attributes
    ----------
    supported_users
        The coordinator's answer: mean of the active users over the window of the stop rule; None in a bounded
        test and where the time limit came first.
    connected_users
        Mean of the connected devices over the same time (a lost agent's users are active, but not connected).
    decided_s, stop_s
        When the test was over, and when its stop was stamped after the agents' shutdown.
    first_alert_s
        None if nothing ever alerted.
    cold_start_s
        Until then cold caches made a login noticeably dearer.
    capacity_users
        Of this run: the build's capacity with the run's own deviation.
    levels
        Factors of this run on each metric's level, by slug.
    alerts, limited_by
        How many evaluations each query alerted at, and the query that did most often in the last window.
    alert_s
        Time of every evaluation that alerted.
    actions
        (time, users added or removed), every one.
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
    alert_s: tuple[float, ...]
    actions: tuple[tuple[float, int], ...]
    settings: RunSettings
    seed: int


@dataclass(frozen=True)
class SimulatedRun:
    """A run as it would have been recorded, and its truth."""

    recording: Recording
    truth: Truth


def simulate_run(
    settings: RunSettings, seed: int, *, alerts: bool = False, traffic: Traffic | None = None
) -> SimulatedRun:
    """Play one load test; equal settings and seeds give equal values. With `alerts` those series are recorded too.

    With `traffic` there is a series of each label's calls and times, and the averages follow from what is called.

    The random numbers of the loop are drawn for the whole time limit, and before any others, so that settings
    of the recorded metrics or of the stop do not change what the coordinator does until then.
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
    slowed = _slowed(settings, trace, levels)
    summaries = label_summaries(settings, slowed, rng)
    if traffic is not None:
        slow = slowdown(settings, trace)
        play_traffic = PlayTraffic(settings, traffic, requests(settings, trace), slow, slowed)
        series, summaries = play_traffic(series, summaries, rng)
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
    return SimulatedRun(inject(recording, settings.injections), truth)


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
        alert_s=tuple(at_s for at_s, _ in trace.alerts),
        actions=trace.actions,
        settings=settings,
        seed=seed,
    )


def _slowed(settings: RunSettings, trace: Trace, levels: dict[str, float]) -> FloatArray:
    """Request-weighted factors of the whole run on API and store times."""
    own = settings.server.levels
    weight = requests(settings, trace)
    slow = slowdown(settings, trace)

    def mean(login: float, slug: str) -> float:
        return levels[slug] * float(np.average(slow * (1.0 + login * trace.logins), weights=weight))

    return np.array([mean(own.api_avg_login, "avg-api-times"), mean(own.store_avg_login, "avg-store-times")])


def _plain(settings: RunSettings) -> dict[str, object]:
    """The settings as plain data, each injection with its kind."""
    injections = [{"kind": type(i).__name__, **asdict(i)} for i in settings.injections]
    return {**asdict(settings), "injections": injections}
