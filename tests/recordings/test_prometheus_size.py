"""A comparison of published size, pulled: 10 metrics, 170 methods, 60 handlers, two windows of 90 minutes.

Every value is held against the raw API's JSON and against a computation from what was written.
"""

from __future__ import annotations

import json
import math
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import prometheus_server as world
from buildcompare.config.catalogue import Catalogue, read_catalogue
from buildcompare.config.params import Run
from buildcompare.labels.tables import label_levels
from buildcompare.recordings.recording import Recording, Series
from buildcompare.recordings.sources import record
from buildcompare.stats.noise import label_frame
from pulling import at, bits, raw, same, source

STEP_S, LENGTH_S, LABEL_S = 5, 5_400, 60
STARTS = {"base": world.BASE_START, "new": world.NEW_START}
BOUNDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, math.inf)
TABLES = {
    "store": ("mattermost_db_store_time", "method", [f"Store{i % 17}.Method{i:03}" for i in range(170)]),
    "api": ("mattermost_api_time", "handler", [f"handler{i:02}" for i in range(60)]),
}
COUNTERS = ("mattermost_http_requests_total", "mattermost_process_cpu_seconds_total")
GAUGES = ("go_goroutines", "go_memstats_heap_inuse_bytes", "go_memstats_stack_inuse_bytes")
FIRST, SECOND = world.INSTANCES


@dataclass
class Written:
    """One build's window: what was written, before it is text."""

    start: int
    counts: dict[str, np.ndarray] = field(default_factory=dict)  # buckets of each label: (labels, bounds, times)
    sums: dict[str, np.ndarray] = field(default_factory=dict)  # (labels, times)
    plain: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)  # (times,) of each instance

    @property
    def times(self) -> np.ndarray:
        return self.start + np.arange(0, LENGTH_S + 1, STEP_S)

    def text(self) -> str:
        stamps = [f" {time}\n" for time in self.times.tolist()]
        parts = []

        def add(name: str, labels: str, values: np.ndarray) -> None:
            head = f"{name}{{{labels}}} "
            parts.extend(f"{head}{value!r}{stamp}" for value, stamp in zip(values.tolist(), stamps, strict=True))

        for group, (metric, label, names) in TABLES.items():
            parts.append(f"# TYPE {metric} histogram\n")
            for i, name in enumerate(names):
                labels = f'instance="{FIRST}",{label}="{name}"'
                for j, bound in enumerate(BOUNDS):
                    add(f"{metric}_bucket", f'{labels},le="{edge(bound)}"', self.counts[group][i, j])
                add(f"{metric}_count", labels, self.counts[group][i, -1])
                add(f"{metric}_sum", labels, self.sums[group][i])
        for name, by_instance in self.plain.items():
            family = name.removesuffix("_total")
            parts.append(f"# TYPE {family} counter\n" if name in COUNTERS else f"# TYPE {name} gauge\n")
            for instance, values in by_instance.items():
                add(name, f'instance="{instance}"', values)
        return "".join([*parts, "# EOF\n"])


def edge(bound: float) -> str:
    return "+Inf" if math.isinf(bound) else str(bound)


def write(start: int, seed: int) -> Written:
    rng = np.random.default_rng(seed)
    written = Written(start)
    points = written.times.size
    for group, (_, _, names) in TABLES.items():
        scale = rng.uniform(0.001, 0.4, len(names))[:, None]
        calls = rng.poisson(rng.uniform(0.2, 300, len(names))[:, None], (len(names), points))
        slower = scale * rng.uniform(0.8, 1.2, (len(names), points))
        shares = np.stack([1 - np.exp(-min(bound, 1e9) / slower) for bound in BOUNDS], axis=1)
        inside = np.floor(shares * calls[:, None, :]).astype(np.int64)
        inside[:, -1] = calls
        written.counts[group] = np.cumsum(inside, axis=2)
        written.sums[group] = np.cumsum(calls * slower, axis=1)
    users = [np.minimum(np.arange(points) * 25, 3_750) + rng.integers(-5, 6, points) for _ in world.INSTANCES]
    written.plain = {
        "mattermost_http_websockets_total": {i: np.maximum(u, 0) for i, u in zip(world.INSTANCES, users, strict=True)},
        COUNTERS[0]: {FIRST: np.cumsum(rng.poisson(12_000, points))},
        COUNTERS[1]: {FIRST: np.cumsum(rng.uniform(10, 20, points))},
        **{gauge: {FIRST: rng.integers(10**6, 10**10, points)} for gauge in GAUGES},
    }
    return written


@dataclass(frozen=True)
class Filled:
    url: str
    kind: str
    written: dict[str, Written]
    catalogue: Catalogue
    pulled: dict[str, Recording]
    answers: dict[tuple[str, float], bytes]
    """By query and start, the very bytes that the server answered to the pull."""


@pytest.fixture(scope="module")
def written() -> dict[str, Written]:
    return {side: write(start, seed) for seed, (side, start) in enumerate(STARTS.items())}


@pytest.fixture(scope="module", params=world.KINDS)
def filled(
    request: pytest.FixtureRequest, written: dict[str, Written], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Filled]:
    folder = tmp_path_factory.mktemp("size")
    with world.START[request.param](folder, [each.text() for each in written.values()]) as url:
        catalogue = read_catalogue("mattermost")
        answers: dict[tuple[str, float], bytes] = {}

        def keep(exchange: world.Exchange) -> None:
            answers[exchange.asked["query"], float(exchange.asked["start"])] = exchange.body

        proxy, stop = world.start_proxy(url)
        proxy.faults = [keep]
        pulled = {side: record(whole(side), source(proxy.url, gzip=False), catalogue) for side in STARTS}
        stop()
        yield Filled(url, request.param, written, catalogue, pulled, answers)


def whole(side: str) -> Run:
    return Run(start=at(STARTS[side]), end=at(STARTS[side] + LENGTH_S))


def instant(url: str, query: str, time: float) -> list[dict[str, Any]]:
    parameters = urllib.parse.urlencode({"query": query, "time": time, "nocache": 1})
    with urllib.request.urlopen(f"{url}/api/v1/query?{parameters}", timeout=60) as answer:
        result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return result


def quantile(q: float, cumulative: np.ndarray) -> np.ndarray:
    """As the documentation of histogram_quantile says, of buckets (labels, bounds): linear inside of a bucket."""
    found = np.full(len(cumulative), math.nan)
    for i, row in enumerate(cumulative):
        if row[-1] == 0:
            continue
        rank = q * row[-1]
        j = int(np.argmax(row >= rank))
        low, before = (BOUNDS[j - 1], row[j - 1]) if j else (0.0, 0.0)
        found[i] = BOUNDS[-2] if j == len(BOUNDS) - 1 else low + (BOUNDS[j] - low) * (rank - before) / (row[j] - before)
    return found


# ---- Every value ----------------------------------------------------------------------------------------------------


def alike(series: Series, row: Mapping[str, Any]) -> bool:
    """Whether each value is the server's but for rounding: VictoriaMetrics rounds each answer anew to one query."""
    times, values = (np.array([float(pair[i]) for pair in row["values"]]) for i in (0, 1))
    return np.array_equal(series.times, times) and np.allclose(series.values, values, 1e-9, 0.0, equal_nan=True)


@pytest.mark.parametrize("side", STARTS)
def test_every_value_is_the_raw_api_s(filled: Filled, side: str) -> None:
    recording, start = filled.pulled[side], STARTS[side]
    compared = 0
    for question in filled.catalogue.questions(label_step_s=LABEL_S):
        step = LABEL_S if question.label else STEP_S
        rows = raw(filled.url, question.query, start, start + LENGTH_S, step)
        rows.sort(key=lambda row: sorted(row["metric"].items()))
        key = (question.role, question.metric, question.stat)
        mine = [s for s in recording.series if (s.role, s.metric, s.stat) == key]
        assert [s.name for s in mine if question.label] == [
            row["metric"][question.label] for row in rows if question.label
        ]
        answered = json.loads(filled.answers[question.query, start])["data"]["result"]
        answered.sort(key=lambda row: sorted(row["metric"].items()))
        for series, row, own in zip(mine, rows, answered, strict=True):
            assert same(series, own)
            assert same(series, row) if filled.kind == "prometheus" else alike(series, row)
            compared += series.values.size
    assert compared == sum(s.values.size for s in recording.series)
    assert len(recording.graphs()) == 10
    assert compared > 10 * 1_000 + 3 * 230 * 89


@pytest.mark.parametrize("side", STARTS)
def test_counters_and_gauges_are_what_was_written(filled: Filled, side: str) -> None:
    recording, written = filled.pulled[side], filled.written[side]
    for slug, name in (
        ("heap-in-use", "go_memstats_heap_inuse_bytes"),
        ("stack-in-use", "go_memstats_stack_inuse_bytes"),
        ("goroutines-in-use", "go_goroutines"),
    ):
        gauge = recording.find(slug)
        assert gauge is not None
        assert np.array_equal(gauge.times, written.times)
        assert bits(gauge.values) == bits(written.plain[name][FIRST].astype(float))
    users = recording.find("number-of-connected-devices")
    assert users is not None
    each = written.plain["mattermost_http_websockets_total"]
    assert bits(users.values) == bits((each[FIRST] + each[SECOND]).astype(float))
    back = 60 // STEP_S  # the queries' [1m]
    for slug, name, scale in (
        ("rps", "mattermost_http_requests_total", 1),
        ("cpu-utilization", "mattermost_process_cpu_seconds_total", 100),
    ):
        rate = recording.find(slug)
        assert rate is not None
        values = written.plain[name][FIRST].astype(float)
        assert np.array_equal(rate.times[-(written.times.size - back) :], written.times[back:])
        expected = (values[back:] - values[:-back]) / 60 * scale
        np.testing.assert_allclose(rate.values[-expected.size :], expected, rtol=1e-9)


# ---- Labels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", TABLES)
@pytest.mark.parametrize("side", STARTS)
def test_every_label_s_series_equal_an_independent_computation(filled: Filled, side: str, group: str) -> None:
    recording, written = filled.pulled[side], filled.written[side]
    names = TABLES[group][2]
    series = {(s.stat, s.name): s for s in recording.series if s.role == "label" and s.metric == group}
    every = LABEL_S // STEP_S
    counts = np.diff(written.counts[group][:, :, ::every], axis=2)
    sums = np.diff(written.sums[group][:, ::every], axis=1)
    for i, name in enumerate(names):
        times = written.times[every::every]
        found = {stat: dict(zip(series[stat, name].times, series[stat, name].values, strict=True)) for stat in
                 ("calls", "avg", "p99")}  # fmt: skip
        calls = counts[i, -1]
        some = calls > 0
        np.testing.assert_allclose([found["calls"][t] for t in times], calls / LABEL_S, rtol=1e-9)
        np.testing.assert_allclose([found["avg"][t] for t in times[some]], sums[i][some] / calls[some], rtol=1e-9)
        expected = quantile(0.99, counts[i].T)
        np.testing.assert_allclose([found["p99"][t] for t in times[some]], expected[some], rtol=1e-9)


@pytest.mark.parametrize("group", TABLES)
@pytest.mark.parametrize("side", STARTS)
def test_whole_runs_equal_the_peer_s_queries(filled: Filled, side: str, group: str) -> None:
    """ltctl's own queries over its window, by an instant query of the raw API, and a computation from the samples."""
    recording, written = filled.pulled[side], filled.written[side]
    metric, label, names = TABLES[group]
    queries = {
        "avg": f"sum(rate({metric}_sum[5400s])) by ({label}) / sum(rate({metric}_count[5400s])) by ({label})",
        "p99": f"histogram_quantile(0.99, sum(rate({metric}_bucket[5400s])) by (le,{label}))",
    }
    counts = written.counts[group][:, :, -1] - written.counts[group][:, :, 0]
    sums = written.sums[group][:, -1] - written.sums[group][:, 0]
    computed = {"avg": sums / counts[:, -1], "p99": quantile(0.99, counts)}
    for stat, query in queries.items():
        mine = {s.label: s.value for s in recording.label_summaries if (s.group, s.stat) == (group, stat)}
        assert sorted(mine) == sorted(names)
        rows = instant(filled.url, query, STARTS[side] + LENGTH_S)
        peer = {row["metric"][label]: float(row["value"][1]) for row in rows}
        assert mine == peer
        np.testing.assert_allclose([mine[name] for name in names], computed[stat], rtol=1e-9)


def test_a_steady_window_equals_the_peer_s_queries_over_it(filled: Filled) -> None:
    """It is put together from points of a minute: averages weighted with their calls, percentiles from the buckets."""
    window = (1_800.0, 5_100.0)
    levels = label_frame(label_levels(filled.pulled["base"], window))
    assert {*levels["stat"]} >= {"avg", "p99", "calls"}
    for group, (metric, label, names) in TABLES.items():
        queries = {
            "avg": f"sum(rate({metric}_sum[3300s])) by ({label}) / sum(rate({metric}_count[3300s])) by ({label})",
            "p99": f"histogram_quantile(0.99, sum(rate({metric}_bucket[3300s])) by (le,{label}))",
        }
        for stat, query in queries.items():
            rows = instant(filled.url, query, STARTS["base"] + window[1])
            peer = {row["metric"][label]: float(row["value"][1]) for row in rows}
            of_table = (levels["group"] == group) & (levels["stat"] == stat)
            mine = levels[of_table].set_index("label")["value"]
            np.testing.assert_allclose([mine[name] for name in names], [peer[name] for name in names], rtol=1e-9)
