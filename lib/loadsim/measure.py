"""Recorded metrics and alert series of a simulated load test, with noise within and between runs."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from buildcompare.config.catalogue import Catalogue, read_catalogue
from buildcompare.recordings.recording import FloatArray, Series
from loadsim.server import QUERIES, Trace, cpu_percent
from loadsim.settings import RunSettings

RATE_WINDOW_S = 60
"""``rate(...[1m])`` in every query of the catalogue."""
TOP_BUCKET_S = 10.0
"""Upper end of the server's histograms, in seconds; no p99 is higher."""
SAMPLE_SD = {
    "avg-api-times": (0.09, 60.0),
    "p99-api-times": (0.045, 60.0),
    "avg-store-times": (0.06, 60.0),
    "p99-store-times": (0.15, 60.0),
    "cpu-utilization": (0.045, 40.0),
    "rps": (0.04, 100.0),
    "goroutines-in-use": (0.0012, 20.0),
    "heap-in-use": (0.04, 25.0),
    "stack-in-use": (0.0025, 200.0),
}
"""Noise within a run: standard deviation of the log value, time constant in seconds (v10.4's bounded plateaus)."""
LEVEL_SD = {
    "avg-api-times": 0.07,
    "p99-api-times": 0.09,
    "avg-store-times": 0.08,
    "p99-store-times": 0.08,
    "cpu-utilization": 0.011,
    "rps": 0.01,
    "goroutines-in-use": 0.001,
    "heap-in-use": 0.016,
    "stack-in-use": 0.005,
}
"""Noise between runs of one build: standard deviation of the log value at equal users (Mattermost's ceiling tests v2,
three runs each). Goroutines and stack vary by 2 % there, mostly with the users. The values are for arithmetic means.
Geometric means, and minutes at equal users, vary less (`run_sd_percent` of the catalogue, from the same runs), so
changes are easier to detect in published runs than in simulated ones."""
ALERTS = {
    "client_avg": "client-average",
    "client_p99": "client-p99",
    "client_errors": "client-5xx",
    "app_cpu": "app-cpu",
}
"""The catalogue's alert for each of the coordinator's queries."""
SATURATION_POWER = 6
"""Times grow with this power of the CPU: at half of it by 1.6 % of `saturation`, at 85 % by 38 % (v11.1: graphs)."""


@cache
def catalogue() -> Catalogue:
    """The catalogue of a Mattermost server: names, slugs and units."""
    return read_catalogue("mattermost")


def ar1(rng: np.random.Generator, size: int, sd: float, time_s: float, step_s: float = 1.0) -> FloatArray:
    """Draw a stationary AR(1) series: mean 0, standard deviation `sd`, correlation ``exp(-lag / time_s)``."""
    phi = math.exp(-step_s / time_s)
    shocks = rng.standard_normal(size) * sd
    shocks[1:] *= math.sqrt(1.0 - phi**2)
    value, values = 0.0, []
    for shock in shocks.tolist():
        value = phi * value + shock
        values.append(value)
    return np.array(values)


def run_levels(settings: RunSettings, rng: np.random.Generator) -> dict[str, float]:
    """Draw this run's factor on the level of each metric, by slug (users have none)."""
    scale = settings.noise.level_scale
    return {slug: float(np.exp(rng.normal() * sd * scale)) for slug, sd in LEVEL_SD.items()}


def graphs(
    settings: RunSettings, trace: Trace, levels: dict[str, float], rng: np.random.Generator
) -> tuple[Series, ...]:
    """The catalogue's ten graphs, one sample every `step_s` from the run's start to its stop."""
    step = settings.step_s
    times = settings.start + np.arange(0, trace.connected.size, step, dtype=np.float64)
    values = _values(settings, trace, _noise(settings, levels, times.size, rng))
    return tuple(
        Series(metric=metric.slug, name=metric.name, unit=metric.unit, times=times, values=values[metric.slug])
        for metric in catalogue().metrics
        if metric.slug in values
    )


def alert_series(settings: RunSettings, trace: Trace) -> tuple[Series, ...]:
    """Answers of the coordinator's queries, named as the catalogue's alerts."""
    times = settings.start + np.arange(0, trace.connected.size, settings.step_s, dtype=np.float64)
    alerts = {alert.slug: alert for alert in catalogue().alerts}
    series = []
    for query, values in zip(QUERIES, trace.queried.T, strict=True):
        alert = alerts[ALERTS[query]]
        series.append(
            Series(
                metric=alert.slug,
                name=alert.name,
                unit=alert.unit,
                times=times,
                values=values[: times.size].copy(),
                role="alert",
            )
        )
    return tuple(series)


def time_factor(settings: RunSettings, trace: Trace) -> FloatArray:
    """Factor on the server's times for cold caches and a busy CPU, at each second."""
    busy = np.minimum(1.0, cpu_percent(settings.server, trace.connected, trace.logins) / 100.0)
    cold = 1.0 + settings.server.cold_share * trace.cold
    return np.asarray(cold * (1.0 + settings.server.levels.saturation * busy**SATURATION_POWER))


def requests(settings: RunSettings, trace: Trace) -> FloatArray:
    """Requests served in each second."""
    return trace.connected * settings.server.requests_per_user + trace.logins * settings.server.requests_per_login


def _noise(
    settings: RunSettings, levels: dict[str, float], size: int, rng: np.random.Generator
) -> dict[str, FloatArray]:
    """Factor on each sample of each metric: level of the run times noise within it."""
    scale, step = settings.noise.sample_scale, settings.step_s
    return {
        slug: levels[slug] * np.exp(ar1(rng, size, sd * scale, time_s, step))
        for slug, (sd, time_s) in SAMPLE_SD.items()
    }


def _values(settings: RunSettings, trace: Trace, noise: dict[str, FloatArray]) -> dict[str, FloatArray]:
    server, levels, step = settings.server, settings.server.levels, settings.step_s
    cpu = np.minimum(100.0, cpu_percent(server, trace.connected, trace.logins))
    slow = time_factor(settings, trace)
    served = _per_step(requests(settings, trace), step)
    users = trace.connected[::step]
    busy = cpu[::step] / 100.0
    window = max(1, RATE_WINDOW_S // step)

    def time(slug: str, level: float, login: float) -> FloatArray:
        """Mean over the requests of the window, as a ratio of two rates gives it."""
        now = level * (1.0 + login * trace.logins[::step]) * slow[::step] * noise[slug]
        with np.errstate(invalid="ignore"):
            return _windowed(np.minimum(now, TOP_BUCKET_S) * served, window) / _windowed(served, window)

    def rate(slug: str, per_second: FloatArray) -> FloatArray:
        now = _per_step(per_second, step) * noise[slug]
        count = np.minimum(np.arange(now.size), window)
        with np.errstate(invalid="ignore"):
            return np.where(count > 0, _windowed(now, window) / (np.maximum(count, 1) * step), np.nan)

    heap = (levels.heap_idle_bytes + levels.heap_per_user_bytes * users) * (1.0 + levels.heap_busy * busy**3)
    return {
        "avg-api-times": time("avg-api-times", levels.api_avg_s, levels.api_avg_login),
        "p99-api-times": time("p99-api-times", levels.api_p99_s, levels.api_p99_login),
        "avg-store-times": time("avg-store-times", levels.store_avg_s, levels.store_avg_login),
        "p99-store-times": time("p99-store-times", levels.store_p99_s, levels.store_p99_login),
        "cpu-utilization": rate("cpu-utilization", cpu * server.cores),
        "goroutines-in-use": np.round(
            (levels.goroutines_idle + levels.goroutines_per_user * users) * noise["goroutines-in-use"]
        ),
        "heap-in-use": np.round(heap * noise["heap-in-use"]),
        "number-of-connected-devices": np.round(users),
        "rps": rate("rps", requests(settings, trace)),
        "stack-in-use": np.round(
            (levels.stack_idle_bytes + levels.stack_per_user_bytes * users) * noise["stack-in-use"]
        ),
    }


def _per_step(per_second: FloatArray, step: int) -> FloatArray:
    """Increase of a counter since the previous scrape; 0 at the first."""
    counter = np.concatenate(([0.0], np.cumsum(per_second)))[: per_second.size : step]
    return np.diff(counter, prepend=counter[0])


def _windowed(gains: FloatArray, window: int) -> FloatArray:
    """Sum of the last `window` increases."""
    total = np.cumsum(gains)
    return total - np.concatenate((np.zeros(min(window, total.size)), total[:-window]))
