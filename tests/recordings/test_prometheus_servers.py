"""Where the same samples give different numbers on different servers: each difference that users are told of."""

from typing import Any

import numpy as np

from buildcompare.recordings.sources import record
from prometheus_server import BASE_START, LENGTH_S, Servers
from pulling import catalogue, run, source

CPU = 'mattermost_process_cpu_seconds_total{instance="app-0:8067"}'


def both(servers: Servers, query: str, *, offset: float = 0.0, more: float = 0.0) -> list[dict[float, float]]:
    """Value by time since the start, from Prometheus and from VictoriaMetrics."""
    found: list[dict[float, float]] = []
    for kind in ("prometheus", "victoriametrics"):
        asked = run(BASE_START + offset, BASE_START + LENGTH_S + more)
        series: Any = record(asked, source(servers(kind).url), catalogue(query, "go_goroutines")).find("m0")
        found.append({} if series is None else dict(zip(series.times - BASE_START, series.values, strict=True)))
    return found


def apart(first: dict[float, float], second: dict[float, float], after: float) -> np.ndarray:
    """By how much (relative) the second differs at the times that both have."""
    times = [time for time in first if time in second and time >= after]
    assert len(times) > 300
    return np.abs(np.array([second[time] / first[time] for time in times]) - 1)


def test_a_rate_is_the_same_where_its_window_meets_the_samples(servers: Servers) -> None:
    prometheus, victoria = both(servers, f"rate({CPU}[1m])")
    assert apart(prometheus, victoria, 60).max() < 1e-9
    assert victoria[5.0] > 5 * prometheus[5.0], "the first minute of a counter differs by a multiple"


def test_a_rate_differs_where_its_window_lies_between_samples(servers: Servers) -> None:
    """Prometheus extrapolates to the edges of the window, VictoriaMetrics goes back to the sample before it."""
    prometheus, victoria = both(servers, f"rate({CPU}[1m])", offset=2)
    differences = apart(prometheus, victoria, 62)
    assert np.median(differences) > 0.001
    assert differences.max() < 0.1


def test_a_window_of_one_scrape_has_a_rate_on_victoriametrics_only(servers: Servers) -> None:
    prometheus, victoria = both(servers, f"rate({CPU}[5s])", offset=2)
    assert not prometheus
    assert len(victoria) > 300


def test_the_last_sample_is_repeated_for_five_minutes_or_for_one_scrape(servers: Servers) -> None:
    prometheus, victoria = both(servers, "sum(mattermost_http_websockets_total)", more=600)
    assert (max(prometheus) - LENGTH_S, max(victoria) - LENGTH_S) == (300, 5)


def test_victoriametrics_drops_nan_and_keeps_infinities_and_the_digits_of_its_largest_numbers(servers: Servers) -> None:
    prometheus, victoria = both(servers, "odd")
    assert np.isnan(prometheus[15.0])
    assert not any(np.isnan(value) for value in victoria.values())
    assert victoria[25.0] == prometheus[25.0] == np.inf
    assert victoria[40.0] == prometheus[40.0] == -np.inf
    # Numbers that are stored together share one exponent: beside 1e308 the number 1e12 is zero.
    assert 1e12 < prometheus[5.0] < 1e13
    assert victoria[5.0] == 0
    first, second = both(servers, CPU)
    assert 0 < apart(first, second, 0).max() < 1e-12
