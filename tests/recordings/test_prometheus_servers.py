"""Where the same samples give different numbers on different servers: each difference that users are told of."""

from typing import Any

import numpy as np

from buildcompare.recordings.sources import record
from prometheus_server import BASE_START, LENGTH_S, Servers
from pulling import catalogue, run, source

CPU = 'mattermost_process_cpu_seconds_total{instance="app-0:8067"}'


Both = tuple[dict[float, float], dict[float, float]]


def both(servers: Servers, query: str, *, offset: float = 0.0, more: float = 0.0) -> Both:
    """Value by time since the start, from Prometheus and from VictoriaMetrics."""
    found: list[dict[float, float]] = []
    for kind in ("prometheus", "victoriametrics"):
        asked = run(BASE_START + offset, BASE_START + LENGTH_S + more)
        series: Any = record(asked, source(servers(kind).url), catalogue(query, "go_goroutines")).find("m0")
        found.append({} if series is None else dict(zip(series.times - BASE_START, series.values, strict=True)))
    return found[0], found[1]


def apart(first: dict[float, float], second: dict[float, float], after: float) -> np.ndarray:
    """By how much (relative) the second differs at the times that both have."""
    times = [time for time in first if time in second and time >= after]
    assert len(times) > 300
    return np.abs(np.array([second[time] / first[time] for time in times]) - 1)


def test_rates_are_the_same_where_their_window_meets_the_samples_alone(servers: Servers) -> None:
    """Prometheus extrapolates to the edges of the window, VictoriaMetrics goes back to the sample before it."""
    prometheus, victoria = both(servers, f"rate({CPU}[1m])")
    assert apart(prometheus, victoria, 60).max() < 1e-9
    assert victoria[5.0] > 5 * prometheus[5.0], "the first minute of a counter differs by a multiple"
    between = apart(*both(servers, f"rate({CPU}[1m])", offset=2), 62)
    assert np.median(between) > 0.001
    assert between.max() < 0.1
    prometheus, victoria = both(servers, f"rate({CPU}[5s])", offset=2)
    assert (len(prometheus), len(victoria) > 300) == (0, True), "a window of one scrape"


def test_samples_end_later_and_lose_digits(servers: Servers) -> None:
    """The last one is repeated for five minutes or for one scrape; VictoriaMetrics drops NaN and digits."""
    prometheus, victoria = both(servers, "sum(mattermost_http_websockets_total)", more=600)
    assert (max(prometheus) - LENGTH_S, max(victoria) - LENGTH_S) == (300, 5)
    prometheus, victoria = both(servers, "odd")
    assert np.isnan(prometheus[15.0])
    assert not any(np.isnan(value) for value in victoria.values())
    assert (victoria[25.0], victoria[40.0]) == (prometheus[25.0], prometheus[40.0]) == (np.inf, -np.inf)
    assert 1e12 < prometheus[5.0] < 1e13
    assert victoria[5.0] == 0, "numbers that are stored together share one exponent"
    assert 0 < apart(*both(servers, CPU), 0).max() < 1e-12
