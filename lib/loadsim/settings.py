"""What is simulated: a server, a coordinator, the noise of one run, and anything that shall go wrong in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from loadsim.injections import Injection

TestType = Literal["bounded", "unbounded"]


@dataclass(frozen=True)
class MetricLevels:
    """What the server's own metrics are without logins, far from saturation and with warm caches.

    The defaults are the plateaus of Mattermost's bounded tests of v10.4 (performance-reports, v10.4/graphs).
    The `*_login` fields say how much one login per second adds, as a fraction of the level;
    `saturation` what a CPU at 100 % adds to times, `heap_busy` to the heap.
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
    """How a server answers to `users` connected users, of whom `logins` per second are new.

    Pressure is ``(users / capacity_users) ** load_exponent + login_weight_s * logins * (1 + cold)``, times the
    noise; at pressure 1 clients see `client_avg_at_capacity_s` on average. Logins weigh so much because each
    hashes a password and loads a user's channels: in v10.4's bounded tests one login per second costs the CPU of
    2800 connected users. That term bends the ramp (the limit is met while users are still being added, and as
    additions become rarer the users creep towards their equilibrium), and with cold caches it makes early bumps.

    Attributes
    ----------
    capacity_users
        Connected users at pressure 1 if nobody logs in; supported users come out 10 to 25 % lower.
    load_exponent
        1 is a cost in proportion to users.
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
        Caches that stay cold for half an hour (a gain above 3 with more than 30,000 requests) let the stop rule
        find its level trend near zero users, as the real one would.
    cold_share
        The part of `cold` that the server's own times show.
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
    """Where the coordinator's queries alert; ``None`` switches one off (defaults: the load-test tool's)."""

    client_avg_s: float | None = 0.1
    client_p99_s: float | None = 2.0
    client_error_percent: float | None = 0.025
    app_cpu_percent: float | None = 85.0


NO_ALERTS = Thresholds(client_avg_s=None, client_p99_s=None, client_error_percent=None, app_cpu_percent=None)


@dataclass(frozen=True)
class Coordinator:
    """The feedback rule of mattermost-load-test-ng's coordinator (coordinator/coordinator.go).

    Until the first alert users are added at every evaluation. From then on an action needs more than `rest_s`
    since the last action, and an increment also more than `rest_s` since the last alert: with an evaluation
    every 2 s and a rest of 2 s the ramp climbs 4 users/s before the first alert and 2 users/s after it.

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
        Seconds from the start in which no query alerts (`MinIntervalSec`).
    window_s, slope_limit
        The stop rule: samples since the first alert reach back further than `window_s` seconds, and the
        least-squares slope of active users over the last `window_s` is under `slope_limit` users/s.
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
    """How runs of one build differ, and how samples of one run do.

    Attributes
    ----------
    pressure_sd, pressure_time_s
        AR(1) noise of log pressure (what the alerts see): standard deviation and time constant in seconds.
    capacity_sd
        Run-to-run standard deviation of log capacity, as clients feel it; CPU has a level of its own.
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
    """Which of the known labels a build has: `without` some, `added` with (group, label, average in seconds)."""

    without: tuple[str, ...] = ()
    added: tuple[tuple[str, str, float], ...] = ()


@dataclass(frozen=True)
class RunSettings:
    """One run of one test on one build.

    Attributes
    ----------
    duration_s
        Length of a bounded test from its start, ramp included, in seconds (published ones: 90 minutes).
    time_limit_s
        After this an unbounded test is stopped without an answer, in seconds.
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
