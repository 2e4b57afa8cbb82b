"""Simulate a load test second by second: connected users, logins, pressure on the server and alert queries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from buildcompare.recordings.recording import FloatArray
from loadsim.coordinator import FeedbackLoop
from loadsim.settings import NO_ALERTS, LostAgent, Restart, RunSettings, ServerModel

Number = TypeVar("Number", float, FloatArray)
QUERIES = ("client_avg", "client_p99", "client_errors", "app_cpu")
"""The coordinator's alert queries."""
NEGLIGIBLE_LOGINS = 0.02
"""Fewer logins per second count as none, so that an idle server serves no requests."""
NOTICEABLE_COLD = 0.1
"""Caches count as cold while they add more than this fraction to the cost of a login."""


@dataclass(frozen=True)
class Trace:
    """State of the load test at each second, shape (n,) each, and its end.

    `cold` is the fraction that cold caches add to the cost of a login.
    `alerts` are (time, names of the queries) of every evaluation that alerted; `queried` are the answers of `QUERIES`
    at each scrape, shape (number of scrapes, number of queries).
    """

    connected: FloatArray
    logins: FloatArray
    cold: FloatArray
    decided_s: float
    supported_users: float | None
    first_alert_s: float | None
    alerts: tuple[tuple[float, tuple[str, ...]], ...]
    actions: tuple[tuple[float, int], ...]
    cold_start_s: float
    queried: FloatArray


class Queries:
    """The coordinator's alert queries: `rate` over a window of scraped counters."""

    def __init__(self, settings: RunSettings) -> None:
        rule = settings.coordinator
        limits = NO_ALERTS if settings.type == "bounded" else rule.thresholds
        self._steps = max(1, round(rule.query_window_s / settings.step_s))
        self._scrapes: list[tuple[float, float, float, float, float]] = []
        self._quiet_s = rule.quiet_s
        self._limits = limits
        self._on = limits != NO_ALERTS
        self._p99_ratio = settings.server.client_p99_ratio
        self._thresholds = (
            limits.client_avg_s,
            limits.client_p99_s,
            limits.client_error_percent,
            limits.app_cpu_percent,
        )
        self.fired: list[tuple[float, tuple[str, ...]]] = []
        self.answers: list[tuple[float, float, float, float]] = []

    def scrape(self, at_s: float, requests: float, client_s: float, errors: float, cpu: float) -> None:
        """Keep one sample of the counters."""
        self._scrapes.append((at_s, requests, client_s, errors, cpu))
        self.answers.append(self._answer())

    def alert(self, at_s: float) -> bool:
        """Whether any query has reached its threshold; those that have are added to `fired`."""
        if not self._on or at_s < self._quiet_s or len(self._scrapes) < 2:
            return False
        rows = zip(QUERIES, self.answers[-1], self._thresholds, strict=True)
        names = tuple(name for name, value, limit in rows if limit is not None and value >= limit)
        if names:
            self.fired.append((at_s, names))
        return bool(names)

    def _answer(self) -> tuple[float, float, float, float]:
        """Answers of `QUERIES` now; NaN before the second scrape and for 0/0, as in PromQL."""
        now, then = self._scrapes[-1], self._scrapes[max(0, len(self._scrapes) - 1 - self._steps)]
        span, requests, client, errors, cpu = (a - b for a, b in zip(now, then, strict=True))
        if span == 0:
            return math.nan, math.nan, math.nan, math.nan
        average = client / requests if requests > 0 else math.nan
        return average, average * self._p99_ratio, errors / requests if requests > 0 else math.nan, cpu / span


def play(settings: RunSettings, capacity_users: float, cpu_level: float, noise: FloatArray) -> Trace:
    """Simulate one load test.

    Parameters
    ----------
    capacity_users
        Capacity of this run.
    cpu_level
        Factor of this run on the CPU usage of its build.
    noise
        Noise of log pressure, one value per second.
    """
    server, rule = settings.server, settings.coordinator
    loop, queries = FeedbackLoop(rule), Queries(settings)
    states: list[tuple[float, ...]] = []
    limit_s = settings.duration_s if settings.type == "bounded" else settings.time_limit_s
    restarts = _restarts(settings)
    factors = np.exp(noise).tolist()
    connected = logins = served = client_sum = error_sum = cpu_sum = 0.0
    warmed = cold_start_s = 0.0
    decided: float | None = None
    evaluation = second = 0
    while decided is None or second <= decided + settings.shutdown_s:
        if second % settings.step_s == 0:
            queries.scrape(second, served, client_sum, error_sum, cpu_sum)
        while decided is None and evaluation * rule.evaluate_every_s <= second:
            at_s = evaluation * rule.evaluate_every_s
            if at_s >= limit_s or loop.evaluate(at_s, queries.alert(at_s)):
                decided = at_s
            evaluation += 1
        load = (connected / capacity_users) ** server.load_exponent
        cold = server.cold_gain * math.exp(-warmed / server.cold_requests)
        factor = factors[min(second, len(factors) - 1)]
        pressure = (load + server.login_weight_s * logins * (1.0 + cold)) * factor
        states.append((connected, logins, cold))
        if cold > NOTICEABLE_COLD:
            cold_start_s = float(second)
        requests = connected * server.requests_per_user + logins * server.requests_per_login
        served += requests
        warmed += requests
        client_sum += requests * client_average(server, pressure)
        error_sum += requests * server.error_percent_at_capacity * pressure**8
        cpu_sum += min(100.0, cpu_percent(server, connected, logins) * cpu_level * factor)
        # After the decision to stop, agents disconnect before the stop is stamped.
        wanted, lag = (float(loop.active), server.connect_s) if decided is None else (0.0, settings.shutdown_s / 3)
        if second in restarts:
            connected, warmed = 0.0, 0.0
        change = (wanted * _connectable(settings, second) - connected) / max(1.0, lag)
        connected = max(0.0, connected + change)
        logins += (max(0.0, change) - logins) / server.login_work_s
        if connected < 0.5 and logins < NEGLIGIBLE_LOGINS:  # no requests: rates become 0/0
            connected = logins = 0.0
        second += 1
    users, new, cache = np.array(states, dtype=np.float64).T
    return Trace(
        connected=users, logins=new, cold=cache,
        decided_s=decided, supported_users=loop.supported_users, first_alert_s=loop.first_alert_s,
        alerts=tuple(queries.fired), actions=tuple(loop.actions), cold_start_s=cold_start_s,
        queried=np.array(queries.answers, dtype=np.float64),
    )  # fmt: skip


def client_average(server: ServerModel, pressure: float) -> float:
    """Average response time for clients, in seconds."""
    rise = server.client_avg_at_capacity_s / server.client_avg_idle_s - 1.0
    return float(server.client_avg_idle_s * (1.0 + rise * pressure**server.client_steepness))


def cpu_percent(server: ServerModel, users: Number, logins: Number) -> Number:
    """CPU of an app node in percent of all its cores, before the run's own factor.

    It follows the build's capacity, not the run's: in Mattermost's ceiling tests (v2, six setups) supported users
    differ by 1.9 % from run to run, but CPU at equal users by 0.9 %.
    """
    load: Number = (users / server.capacity_users) ** server.load_exponent
    return server.cpu_at_capacity_percent * load + server.cpu_per_login_percent * logins


def _restarts(settings: RunSettings) -> set[int]:
    """Seconds at which the server restarts."""
    return {round(each.at_s) for each in settings.injections if isinstance(each, Restart)}


def _connectable(settings: RunSettings, second: int) -> float:
    """Fraction of the wanted users that can be connected, after lost agents and restarts."""
    part = 1.0
    for each in settings.injections:
        since = second - each.at_s if isinstance(each, LostAgent | Restart) else -1.0
        if since < 0:
            continue
        if isinstance(each, LostAgent):
            part *= 1.0 - 1.0 / each.agents
        elif isinstance(each, Restart):
            part *= min(1.0, max(0.0, (since - each.down_s) / each.reconnect_s))
    return part
