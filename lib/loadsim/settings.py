"""Settings of a simulated load test: server, coordinator, noise, and injected faults and effects."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

TestType = Literal["bounded", "unbounded"]


@dataclass(frozen=True)
class MetricLevels:
    """Levels of the server's metrics without logins, far from saturation and with warm caches.

    The defaults are the plateaus of Mattermost's bounded tests of v10.4 (performance-reports, v10.4/graphs).
    One login per second adds the fraction `*_login` to its metric; a CPU at 100 % adds the fraction `saturation` to
    times and `heap_busy` to the heap.
    """

    api_avg_s: float = 0.0095
    api_p99_s: float = 0.078
    store_avg_s: float = 0.0015
    store_p99_s: float = 0.016
    api_avg_login: float = 0.1
    api_p99_login: float = 0.6
    store_avg_login: float = 0.45
    store_p99_login: float = 0.95
    goroutines_idle: float = 350.0
    goroutines_per_user: float = 3.01
    stack_idle_bytes: float = 5.2e6
    stack_per_user_bytes: float = 14_270.0
    heap_idle_bytes: float = 1.6e8
    heap_per_user_bytes: float = 84_000.0
    heap_busy: float = 0.8
    saturation: float = 10.0


@dataclass(frozen=True)
class ServerModel:
    """A server under load: how its times, errors and CPU depend on connected users and logins per second.

    Pressure is ``(users / capacity_users) ** load_exponent + login_weight_s * logins * (1 + cold)``, times the
    noise; at pressure 1 clients see `client_avg_at_capacity_s` on average. A login costs so much because it
    hashes a password and loads a user's channels: in v10.4's bounded tests one login per second costs the CPU of
    2800 connected users. That term bends the ramp (the limit is met while users are still being added, and as
    additions become rarer the users creep towards their equilibrium), and with cold caches it makes early bumps.

    Attributes
    ----------
    capacity_users
        Connected users at pressure 1 if nobody logs in; supported users come out 10 to 25 % lower.
    load_exponent
        Power of users in pressure; 1 is proportional.
    login_weight_s
        Pressure of one login per second, in seconds.
    login_work_s
        Time constant of the work that a login starts, in seconds.
    connect_s
        Time constant from the coordinator's order to a connected device, in seconds.
    client_avg_idle_s, client_avg_at_capacity_s, client_steepness
        Average client time: idle value, value at pressure 1, and the power of pressure in between.
    client_p99_ratio
        Client p99 over client average.
    error_percent_at_capacity
        Client errors at pressure 1, in percent of requests.
    cores, cpu_at_capacity_percent, cpu_per_login_percent
        CPU of an app node: number of cores, and percent of all of them at `capacity_users` and per login/s.
    requests_per_user, requests_per_login
        Requests per second of a connected user; requests of one login.
    cold_gain, cold_requests
        ``cold = cold_gain * exp(-served / cold_requests)``: caches fill with the requests served.
        With caches that stay cold for half an hour (a gain above 3 with more than 30,000 requests) the stop rule
        ends the test near zero users, as the real one would.
    cold_share
        Fraction of `cold` that shows in the server's own times.
    """

    capacity_users: float = 8500.0
    load_exponent: float = 1.2
    login_weight_s: float = 0.28
    login_work_s: float = 60.0
    connect_s: float = 12.0
    client_avg_idle_s: float = 0.02
    client_avg_at_capacity_s: float = 0.1
    client_steepness: float = 3.0
    client_p99_ratio: float = 12.0
    error_percent_at_capacity: float = 0.01
    cores: int = 8
    cpu_at_capacity_percent: float = 20.0
    cpu_per_login_percent: float = 6.5
    requests_per_user: float = 0.116
    requests_per_login: float = 10.0
    cold_gain: float = 6.0
    cold_requests: float = 4000.0
    cold_share: float = 0.3
    levels: MetricLevels = field(default_factory=MetricLevels)


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of the coordinator's alert queries (defaults: the load-test tool's); None disables a query."""

    client_avg_s: float | None = 0.1
    client_p99_s: float | None = 2.0
    client_error_percent: float | None = 0.025
    app_cpu_percent: float | None = 85.0


NO_ALERTS = Thresholds(client_avg_s=None, client_p99_s=None, client_error_percent=None, app_cpu_percent=None)


@dataclass(frozen=True)
class Coordinator:
    """The feedback rule of mattermost-load-test-ng's coordinator (coordinator/coordinator.go).

    Until the first alert, users are added at every evaluation. Afterwards an action needs more than `rest_s` since the
    last action, and an increment also more than `rest_s` since the last alert: with an evaluation every 2 s and a
    rest of 2 s the ramp climbs 4 users/s before the first alert and 2 users/s after it.

    Attributes
    ----------
    users_inc, users_dec
        Users per action.
    rest_s
        Rest after an action or an alert, in seconds.
    evaluate_every_s
        Pause of 1 s plus the time of the queries, in seconds: 1 in v11.1 (its ramp climbs 8 users/s until the
        first alert), about 2 in v10.4.
    quiet_s
        No query alerts before this many seconds (`MinIntervalSec`).
    window_s, slope_limit
        The stop rule: more than `window_s` seconds have passed since the first alert, and the least-squares slope of
        active users over the last `window_s` is under `slope_limit` users/s.
    query_window_s
        Range of the alert queries (`rate[1m]`), in seconds.
    max_users
        The ceiling, or the target of a bounded test.
    """

    users_inc: int = 8
    users_dec: int = 8
    rest_s: float = 2.0
    evaluate_every_s: float = 2.0
    quiet_s: float = 60.0
    window_s: float = 1800.0
    slope_limit: float = 0.2
    query_window_s: float = 60.0
    max_users: int = 20_000
    thresholds: Thresholds = field(default_factory=Thresholds)


@dataclass(frozen=True)
class NoiseModel:
    """Differences between runs of one build, and between samples of one run.

    Attributes
    ----------
    pressure_sd, pressure_time_s
        AR(1) noise of log pressure (what the alerts see): standard deviation and time constant in seconds.
    capacity_sd
        Run-to-run standard deviation of log capacity, as clients feel it; CPU has a level of its own. Supported users
        vary by 1.8 to 1.9 % in Mattermost's ceiling tests v2.
    level_scale
        Multiplies the run-to-run standard deviations of the recorded metrics (`measure.LEVEL_SD`, learned from
        Mattermost's ceiling tests); 0 makes runs of one build alike.
    sample_scale
        Multiplies the noise of the samples within a run (`measure.SAMPLE_SD`).
    """

    pressure_sd: float = 0.05
    pressure_time_s: float = 60.0
    capacity_sd: float = 0.018
    level_scale: float = 1.0
    sample_scale: float = 1.0


@dataclass(frozen=True)
class LabelSet:
    """Labels of a build: the usual ones `without` some, and `added` as (group, label, average in seconds)."""

    without: tuple[str, ...] = ()
    added: tuple[tuple[str, str, float], ...] = ()


# ---- Faults and effects; times are seconds since the start of the run -----------------------------------------------


@dataclass(frozen=True)
class LostAgent:
    """One of `agents` agents dies: its users disconnect, but the coordinator still counts them."""

    at_s: float
    agents: int = 11


@dataclass(frozen=True)
class Restart:
    """The server restarts with cold caches: all users are gone for `down_s` and reconnect over `reconnect_s`."""

    at_s: float
    down_s: float = 20.0
    reconnect_s: float = 60.0


@dataclass(frozen=True)
class Gap:
    """Samples from `start_s` to before `end_s` are missing, of one metric or of all."""

    start_s: float
    end_s: float
    metric: str | None = None


@dataclass(frozen=True)
class NanStretch:
    """Samples from `start_s` to before `end_s` are NaN, of one metric or of all."""

    start_s: float
    end_s: float
    metric: str | None = None


@dataclass(frozen=True)
class MetricEffect:
    """The values of one metric are multiplied by `factor` from `at_s` on."""

    metric: str
    factor: float
    at_s: float = 0.0


@dataclass(frozen=True)
class LabelEffect:
    """Average and p99 of one label are multiplied by `factor`; a p99 stays within the histogram."""

    group: str
    label: str
    factor: float


@dataclass(frozen=True)
class Truncation:
    """The recording ends at `at_s`, before the run did, and its stop is not known."""

    at_s: float


Injection: TypeAlias = LostAgent | Restart | Gap | NanStretch | MetricEffect | LabelEffect | Truncation
"""`LostAgent` and `Restart` happen to the load test itself, and the coordinator reacts to them. The others change the
finished recording and nothing else."""


# ---- One run --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunSettings:
    """All settings of one simulated run.

    Attributes
    ----------
    duration_s
        Length of a bounded test from its start, ramp included, in seconds (published ones: 90 minutes).
    time_limit_s
        An unbounded test that has not ended by then stops without an answer, in seconds.
    shutdown_s
        Time from the stop decision to the stamped stop, while agents disconnect, in seconds; 0 for none.
    start
        Seconds since 1970 of the first sample; whole.
    step_s
        Scrape interval and step of the recording, in whole seconds.
    """

    type: TestType = "unbounded"
    server: ServerModel = field(default_factory=ServerModel)
    coordinator: Coordinator = field(default_factory=Coordinator)
    noise: NoiseModel = field(default_factory=NoiseModel)
    labels: LabelSet = field(default_factory=LabelSet)
    injections: tuple[Injection, ...] = ()
    duration_s: float = 5400.0
    time_limit_s: float = 14_400.0
    shutdown_s: float = 45.0
    start: int = 1_733_911_200
    step_s: int = 5


SEEDS_APART = 10_000
"""Offset of the seed of random settings, so that settings and run of one seed use different random numbers."""


def random_settings(seed: int) -> RunSettings:
    """Draw the settings of an unbounded test from the range in which the simulator resembles real servers.

    Capacity, pace of the coordinator and noise vary; half of the servers start with cold caches. The product of
    `cold_gain` and `cold_requests` stays small enough that the stop rule does not end the test among early bumps.
    """
    rng = np.random.default_rng(SEEDS_APART + seed)

    def logarithmic(low: float, high: float) -> float:
        return math.exp(rng.uniform(math.log(low), math.log(high)))

    cold = bool(rng.integers(2))
    step = int(rng.choice([4, 8, 8, 8, 16]))
    return RunSettings(
        server=ServerModel(
            capacity_users=logarithmic(4000, 20_000),
            load_exponent=rng.uniform(1.0, 1.4),
            login_weight_s=rng.uniform(0.09, 0.3),
            login_work_s=rng.uniform(40, 80),
            connect_s=rng.uniform(8, 16),
            client_steepness=rng.uniform(2.5, 4),
            cold_gain=rng.uniform(1.5, 6) if cold else rng.uniform(0, 0.3),
            cold_requests=logarithmic(2000, 30_000),
        ),
        coordinator=Coordinator(
            users_inc=step, users_dec=step, evaluate_every_s=rng.uniform(1.0, 2.2), rest_s=rng.uniform(1.5, 3)
        ),
        noise=NoiseModel(pressure_sd=rng.uniform(0.012, 0.06), pressure_time_s=rng.uniform(40, 90)),
    )
