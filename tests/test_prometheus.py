"""What is pulled from a real Prometheus is what the server says, to the last bit, and what was written into it."""

from __future__ import annotations

import datetime as dt
import json
import re
import struct
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import prometheus_server as world
from buildcompare.errors import InputError
from buildcompare.metrics import Catalogue, read_catalogue
from buildcompare.params import Run, Source, check_params
from buildcompare.recording import Recording, Series
from buildcompare.sources import prometheus_answer, record
from buildcompare.sources.prometheus_answer import AnswerReader, BrokenAnswerError, read_answer, read_answer_plainly
from buildcompare.sources.prometheus_client import LONG_QUERY, PrometheusClient
from buildcompare.sources.prometheus_ranges import MAX_PIECES, MAX_POINTS, Grid, grid
from prometheus_server import (  # noqa: F401  # fixtures
    BASE_START,
    LENGTH_S,
    LONG_S,
    LONG_START,
    NEW_START,
    Prometheus,
    Proxy,
    certificates,
    prometheus,
    proxy,
    servers,
)

TOKEN = "t0ken-of-nobody"


def at(seconds: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)


def run(start: float = BASE_START, end: float = BASE_START + LENGTH_S, **more: Any) -> Run:
    return Run(start=at(start), end=at(end), **more)


def source(url: str, **more: Any) -> Source:
    return Source.model_validate({"kind": "prometheus", "url": url, **more})


def catalogue(*queries: str) -> Catalogue:
    return Catalogue.model_validate(
        {"metrics": [{"name": q, "slug": f"m{i}", "query": q} for i, q in enumerate(queries)]}
    )


def raw(url: str, query: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
    """The API's JSON, by nothing of ours."""
    parameters = urllib.parse.urlencode({"query": query, "start": start, "end": end, "step": step, "nocache": 1})
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{parameters}", timeout=30) as answer:
        result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return result


def bits(values: np.ndarray) -> list[bytes]:
    """Every value's bytes; a NaN is a NaN."""
    return [b"nan" if np.isnan(value) else struct.pack("<d", value) for value in values]


def same(series: Series, row: Mapping[str, Any]) -> bool:
    times, values = (np.array([float(pair[i]) for pair in row["values"]]) for i in (0, 1))
    return bits(series.times) == bits(times) and bits(series.values) == bits(values)


@pytest.fixture(scope="session")
def mattermost() -> Catalogue:
    return read_catalogue("mattermost")


@pytest.fixture(scope="session")
def pulled(prometheus: Prometheus, mattermost: Catalogue) -> dict[str, Recording]:
    """Both windows with the catalogue that is shipped."""
    starts = {"base": BASE_START, "new": NEW_START}
    return {
        side: record(run(start, start + LENGTH_S), source(prometheus.url), mattermost) for side, start in starts.items()
    }


# ---- The last bit ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("side", "start"), [("base", BASE_START), ("new", NEW_START)])
def test_every_value_is_the_raw_api_s(
    prometheus: Prometheus, mattermost: Catalogue, pulled: dict[str, Recording], side: str, start: int
) -> None:
    found = list(pulled[side].series)
    compared = 0
    for question in mattermost.questions(label_step_s=60):
        step = 60 if question.label else 5
        rows = raw(prometheus.url, question.query, start, start + LENGTH_S, step)
        mine = [s for s in found if (s.role, s.metric, s.stat) == (question.role, question.metric, question.stat)]
        assert len(mine) == len(rows)
        if question.label:
            rows.sort(key=lambda row: sorted(row["metric"].items()))
            assert [s.name for s in mine] == [row["metric"][question.label] for row in rows]
        for series, row in zip(mine, rows, strict=True):
            assert same(series, row)
            compared += series.values.size
    assert compared > 4_000
    assert sum(s.values.size for s in found) == compared


def test_what_a_recording_says_of_itself(pulled: dict[str, Recording], prometheus: Prometheus) -> None:
    recording = pulled["base"]
    assert recording.window == (BASE_START, BASE_START + LENGTH_S)
    assert recording.stop_known
    provenance = recording.provenance
    assert provenance["kind"] == "prometheus"
    assert provenance["url"] == prometheus.url
    server = provenance["server"]
    assert isinstance(server, dict)
    assert server["kind"] == prometheus.kind
    assert re.match(r"v?\d+\.\d+", server["version"])
    assert {s.role for s in recording.series} == {
        "graph",
        "label",
        "bucket",
    }  # nothing here exports the load-test tool's metrics
    assert {s.stat for s in recording.series if s.role == "label"} == {"avg", "p99", "calls"}
    assert len(recording.graphs()) == 10
    assert all(not s.labels for s in recording.graphs())
    thresholds = provenance["thresholds"]
    assert isinstance(thresholds, dict)
    assert (thresholds["client-average"], thresholds["app-cpu"]) == (0.1, 85)
    assert json.loads(json.dumps(provenance)) == provenance


def test_gauges_are_what_was_written(pulled: dict[str, Recording], prometheus: Prometheus) -> None:
    users = pulled["base"].find("number-of-connected-devices")
    assert users is not None
    written = sum(
        prometheus.truth.at("mattermost_http_websockets_total", users.times, instance=i) for i in world.INSTANCES
    )
    assert np.array_equal(users.values, written)
    assert users.times.size == LENGTH_S / 5 + 1


# ---- Labels ---------------------------------------------------------------------------------------------------------

GROUPS = [
    ("api", "mattermost_api_time", "handler", world.HANDLERS),
    ("store", "mattermost_db_store_time", "method", world.METHODS),
]


def increase(truth: world.Truth, name: str, times: np.ndarray, **labels: str) -> np.ndarray:
    parts = [
        truth.at(name, times, instance=i, **labels) - truth.at(name, times - 60, instance=i, **labels)
        for i in world.INSTANCES
    ]
    return np.sum(parts, axis=0)


@pytest.mark.parametrize(("group", "metric", "label", "table"), GROUPS)
@pytest.mark.parametrize("side", ["base", "new"])
def test_label_values_equal_an_independent_computation(
    prometheus: Prometheus,
    pulled: dict[str, Recording],
    side: str,
    group: str,
    metric: str,
    label: str,
    table: dict[str, Any],
) -> None:
    series = {(s.stat, s.name): s for s in pulled[side].series if s.role == "label" and s.metric == group}
    assert {name for _, name in series} == set(table)
    for name in table:
        whole = series["avg", name].times  # the first window, with one sample in it, has no answer
        assert whole.size == LENGTH_S / 60
        by = {label: name}
        calls = increase(prometheus.truth, f"{metric}_count", whole, **by)
        average = increase(prometheus.truth, f"{metric}_sum", whole, **by) / calls
        np.testing.assert_allclose(series["avg", name].values, average, rtol=1e-9)
        np.testing.assert_allclose(series["calls", name].values, calls / 60, rtol=1e-9)
        edges = ["+Inf" if np.isinf(b) else str(b) for b in world.BOUNDS]
        buckets = np.stack([increase(prometheus.truth, f"{metric}_bucket", whole, le=le, **by) for le in edges], axis=1)
        np.testing.assert_allclose(series["p99", name].values, [quantile(0.99, row) for row in buckets], rtol=1e-9)


def quantile(q: float, cumulative: np.ndarray) -> float:
    """Linear within the bucket that holds the rank, as the documentation of histogram_quantile says."""
    rank = q * cumulative[-1]
    i = int(np.argmax(cumulative >= rank))
    if i == len(cumulative) - 1:
        return world.BOUNDS[-2]
    low, before = (world.BOUNDS[i - 1], cumulative[i - 1]) if i else (0.0, 0.0)
    return float(low + (world.BOUNDS[i] - low) * (rank - before) / (cumulative[i] - before))


# ---- Ranges ---------------------------------------------------------------------------------------------------------


def test_twenty_hours_come_back_with_exactly_their_points(prometheus: Prometheus) -> None:
    recording = record(run(LONG_START, LONG_START + LONG_S), source(prometheus.url), catalogue("long"))
    [series] = recording.series
    expected = LONG_START + 5.0 * np.arange(LONG_S // 5 + 1)
    assert expected.size > 11_000
    assert np.array_equal(series.times, expected)
    assert prometheus.gives(series.values, prometheus.truth.at("long", expected))


@pytest.mark.parametrize("offset", [0.0, 1.0, 2.5, 3.217, 4.999])
def test_windows_off_the_grid(prometheus: Prometheus, offset: float) -> None:
    start, end = LONG_START + 600 + offset, LONG_START + 600 + offset + 16 * 3_600 + 1.75
    [series] = record(run(start, end), source(prometheus.url), catalogue("long")).series
    steps = np.arange(16 * 3_600 // 5 + 1)
    assert np.array_equal(np.round(series.times * 1000), np.round(start * 1000) + 5_000 * steps)
    written = LONG_START + 600 + 5.0 * steps
    assert prometheus.gives(series.values, prometheus.truth.at("long", written))


def test_pieces_share_no_point_and_lose_none() -> None:
    for points in (1, 2, MAX_POINTS, MAX_POINTS + 1, 2 * MAX_POINTS, 3 * MAX_POINTS + 7):
        whole = Grid(1_234, 1_234 + (points - 1) * 50 + 49, 50)
        pieces = whole.pieces()
        times = [t for p in pieces for t in range(p.start_ms, p.end_ms + 1, p.step_ms)]
        assert times == [1_234 + 50 * k for k in range(points)]
        assert all((p.end_ms - p.start_ms) / p.step_ms < 11_000 for p in pieces)
    with pytest.raises(InputError, match="at most"):
        Grid(0, MAX_POINTS * MAX_PIECES, 1).pieces()


def test_a_time_without_its_zone_is_refused() -> None:
    with pytest.raises(InputError, match="times with their zone, found 2024-01-01T00:00:00"):
        grid(at(0), dt.datetime(2024, 1, 1), 5)  # noqa: DTZ001


# ---- Series and numbers ---------------------------------------------------------------------------------------------


def test_several_series_are_kept_by_their_labels(prometheus: Prometheus) -> None:
    query = 'mattermost_api_time_count{handler=~"createPost|getUser"}'
    recording = record(run(), source(prometheus.url), catalogue(query, "go_goroutines"))
    several = [s for s in recording.series if s.metric == "m0"]
    labels = [dict(s.labels) for s in several]
    assert sorted(map(str, labels)) == sorted(
        str({"handler": h, "instance": i}) for h in ("createPost", "getUser") for i in world.INSTANCES
    )
    for series in several:
        assert prometheus.gives(
            series.values, prometheus.truth.at("mattermost_api_time_count", series.times, **series.labels)
        )
    assert [dict(s.labels) for s in recording.series if s.metric == "m1"] == [{"instance": i} for i in world.INSTANCES]


def test_nan_infinities_and_the_smallest_and_largest_numbers(servers: world.Servers) -> None:
    server = servers("prometheus")  # the other kind: test_prometheus_servers.py
    [series] = record(run(), source(server.url), catalogue("odd")).series
    assert bits(series.values) == bits(server.truth.at("odd", series.times))
    assert np.isnan(series.values[3])
    assert series.values[5] == np.inf
    assert series.values[8] == -np.inf
    assert (series.values[10], series.values[11]) == (5e-324, 1.7976931348623157e308)


def test_a_gap_stays_a_gap_and_is_counted(prometheus: Prometheus) -> None:
    recording = record(run(), source(prometheus.url), catalogue("gappy"))
    [series] = recording.series
    missing = LENGTH_S // 5 + 1 - series.times.size
    queries = recording.provenance["queries"]
    assert isinstance(queries, list)
    assert queries[0]["missing_points"] == missing
    # 15 minutes without samples, and Prometheus repeats the last sample before them for five minutes.
    assert np.diff(series.times).max() == pytest.approx(605 if prometheus.kind == "prometheus" else 905, abs=5)


EMPTY = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'
QUOTED = b"""{"status":"success","data":{"resultType":"matrix","result":[
{"metric":{"a":"x\\"values\\":[[1"},"values":[[1,"2"]]}]},"warnings":["w"],"infos":["i","w"]}"""
ODD = b"""{"status":"success","isPartial":false,"data":{"resultType":"matrix","result":[
{"metric":{},"values":[[1.5,"+Inf"],[2.25,"-Inf"],[3,"NaN"],[4,"-0"],[5,"1e-310"]]},
{"metric":{"values":"]]"},"values":[[7,"8"]]}]}}"""
SPACED = b'{"data": {"resultType": "matrix", "result": [{"metric": {"a": "b"}, "values": [[1, "2"], [3, "4"]]}]}}'
MIXED = b"""{"status":"success","data":{"resultType":"matrix","result":[
{"metric":{"a":"}"},"values":[[1,"2"],[3,"4"]],"histograms":[[5,{"count":"1","buckets":[[0,"1","2","1"]]}]]},
{"metric":{"a":"{"},"values":[[1,"6"],[3,"7"]]},{"metric":{},"values":[[1,"2"],[3, "4"]] },
{"values":[[8,"9"]],"metric":{"b":"\\"]]}"}},{"metric":{"c":""},"values":[]}]}}"""
SKELETONS = [EMPTY, QUOTED, ODD, SPACED, MIXED]


@pytest.mark.parametrize("chunk", [0, 1, 7, 50])
@pytest.mark.parametrize("body", SKELETONS)
def test_the_fast_path_equals_the_plain_one(body: bytes, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = read_answer_plainly(body)
    if chunk:
        monkeypatch.setattr(prometheus_answer, "_BATCH", 1)
        reader = AnswerReader()
        for i in range(0, len(body), chunk):
            reader.feed(body[i : i + chunk])
        fast = reader.finish()
    else:
        fast = read_answer(body)
    assert fast.warnings == plain.warnings
    assert [dict(s[0]) for s in fast.series] == [dict(s[0]) for s in plain.series]
    for mine, other in zip(fast.series, plain.series, strict=True):
        assert bits(mine[1]) == bits(other[1])
        assert bits(mine[2]) == bits(other[2])


def test_the_fast_path_reads_any_number_as_python_does() -> None:
    rng = np.random.default_rng(1)
    words = [repr(float(v)) for v in rng.integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64)]
    words = [{"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(w, w) for w in words]
    words += [f"{rng.random():.{d}f}" for d in range(1, 40)]
    pairs = ",".join(f'[{i / 1000},"{w}"]' for i, w in enumerate(words))
    body = f'{{"data":{{"resultType":"matrix","result":[{{"metric":{{}},"values":[{pairs}]}}]}}}}'.encode()
    [(_, times, values)] = read_answer(body).series
    assert bits(times) == bits(np.array([i / 1000 for i in range(len(words))]))
    assert bits(values) == bits(np.array([float(w) for w in words]))


def test_no_truncated_or_damaged_answer_is_taken_for_a_whole_one() -> None:
    body = ODD
    for end in range(len(body)):
        with pytest.raises(BrokenAnswerError):
            read_answer(body[:end])
    for damaged in (b"[]", b"{}", b'{"data":{"resultType":"vector","result":[]}}', body.replace(b'"NaN"', b'"x"'),
                    body.replace(b'"NaN"', b'"1,2"'), body.replace(b'"NaN"', b'"--1"'),
                    body.replace(b"isPartial", b"\xff")):  # fmt: skip
        with pytest.raises(BrokenAnswerError):
            read_answer(damaged)


# ---- How it asks ----------------------------------------------------------------------------------------------------


def test_a_long_query_goes_into_the_body(prometheus: Prometheus, proxy: Proxy) -> None:
    query = '{__name__=~"long|' + "|".join(f"other_{i}" for i in range(6_000)) + '"}'
    [series] = record(run(LONG_START, LONG_START + 600), source(proxy.url), catalogue(query)).series
    assert len(query) > 40 * LONG_QUERY
    assert prometheus.gives(series.values, prometheus.truth.at("long", series.times))
    [(path, body), *_] = [(path, body) for method, path, _, body in proxy.seen if method == "POST"]
    assert path == "/api/v1/query_range"
    assert len(body) > len(query)


def test_the_library_s_own_call_posts_into_the_body_too(proxy: Proxy) -> None:
    with PrometheusClient(source(proxy.url), proxy.url) as client:
        client._method = "POST"
        rows = client.custom_query_range("long", at(LONG_START), at(LONG_START + 60), "5")
    assert len(rows[0]["values"]) == 13
    assert proxy.seen[-1][:2] == ("POST", "/api/v1/query_range")


@pytest.mark.parametrize(("more", "wanted"), [({}, "identity"), ({"gzip": True}, "gzip")])
def test_compression_is_a_setting(proxy: Proxy, more: dict[str, Any], wanted: str) -> None:
    recording = record(run(), source(proxy.url, **more), catalogue("go_goroutines"))
    assert {headers["Accept-Encoding"] for *_, headers, _ in proxy.seen} == {wanted}
    direct = record(run(), source(proxy.url), catalogue("go_goroutines"))
    assert [bits(s.values) for s in recording.series] == [bits(s.values) for s in direct.series]


def test_a_run_has_its_own_server(prometheus: Prometheus, proxy: Proxy) -> None:
    recording = record(run(url=proxy.url), source("http://127.0.0.1:9"), catalogue("go_goroutines"))
    assert recording.provenance["url"] == proxy.url
    assert proxy.seen


@pytest.mark.parametrize("way", ["bearer_token_env", "bearer_token_file", "basic", "headers_env"])
def test_ways_to_log_in(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setenv("PROM_TOKEN", TOKEN)
    monkeypatch.setenv("PROM_USER", "jürgen")
    (tmp_path / "token").write_text(TOKEN + "\n")
    settings: dict[str, Any] = {
        "bearer_token_env": {"auth": {"bearer_token_env": "PROM_TOKEN"}},
        "bearer_token_file": {"auth": {"bearer_token_file": str(tmp_path / "token")}},
        "basic": {"auth": {"username_env": "PROM_USER", "password_env": "PROM_TOKEN"}},
        "headers_env": {"headers_env": {"X-Api-Key": "PROM_TOKEN"}, "headers": {"X-Scope-OrgID": "tenant 1"}},
    }[way]
    wanted = {
        "basic": ("Authorization", "Basic asO8cmdlbjp0MGtlbi1vZi1ub2JvZHk="),
        "headers_env": ("X-Api-Key", TOKEN),
    }.get(way, ("Authorization", f"Bearer {TOKEN}"))
    proxy.allowed = lambda headers: headers.get(wanted[0]) == wanted[1]
    recording = record(run(), source(proxy.url, **settings), catalogue("go_goroutines"))
    assert len(recording.series) == 2
    assert TOKEN not in repr(recording.provenance)
    if way == "headers_env":
        assert all(headers["X-Scope-OrgID"] == "tenant 1" for *_, headers, _ in proxy.seen)


def test_a_password_in_netrc_is_not_sent(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text(f"default login a password {TOKEN}\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    record(run(), source(proxy.url), catalogue("go_goroutines"))
    assert not any("Authorization" in headers for *_, headers, _ in proxy.seen)


@pytest.fixture
def tls_proxy(prometheus: Prometheus, certificates: world.Certificates) -> Iterator[Callable[..., Proxy]]:
    stops = []

    def start(*, client: bool = False) -> Proxy:
        proxy, stop = world.start_proxy(prometheus.url, tls=world.tls_front(certificates, client=client))
        stops.append(stop)
        return proxy

    yield start
    for stop in stops:
        stop()


def test_tls_with_an_authority_of_its_own(tls_proxy: Callable[..., Proxy], certificates: world.Certificates) -> None:
    proxy = tls_proxy()
    recording = record(run(), source(proxy.url, tls={"ca": str(certificates.ca)}), catalogue("go_goroutines"))
    assert len(recording.series) == 2
    assert recording.notes == ()


def test_a_client_certificate(tls_proxy: Callable[..., Proxy], certificates: world.Certificates) -> None:
    proxy = tls_proxy(client=True)
    tls = {"ca": str(certificates.ca), "cert": str(certificates.cert), "key": str(certificates.key)}
    assert len(record(run(), source(proxy.url, tls=tls), catalogue("go_goroutines")).series) == 2


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_an_unchecked_certificate_is_said(tls_proxy: Callable[..., Proxy]) -> None:
    recording = record(run(), source(tls_proxy().url, tls={"verify": False}), catalogue("go_goroutines"))
    assert "was not checked" in recording.notes[0].text


# ---- Params and catalogues ------------------------------------------------------------------------------------------

BAD_SOURCES = [
    ({"url": f"http://me:{TOKEN}@h"}, "without credentials"),
    ({"url": f"http://h?token={TOKEN}"}, "without credentials"),
    ({"auth": TOKEN}, "keys with values"),
    ({"auth": {}}, "one of `bearer_token_env`"),
    ({"auth": {"bearer_token": TOKEN}}, "bearer_token_env"),
    ({"auth": {"bearer_token_env": TOKEN}}, "the name of an environment variable"),
    ({"auth": {"username_env": "A"}}, "together"),
    ({"auth": {"bearer_token_env": "A", "bearer_token_file": "b"}}, "one of"),
    ({"headers": {"Authorization": TOKEN}}, "no header that other settings decide"),
    ({"headers": {"X": TOKEN + "\n"}}, "printable ASCII"),
    ({"headers": {"X": 7}}, "text"),
    ({"headers": {"X": "a"}, "headers_env": {"x": "A"}}, "each header once"),
    ({"headers_env": {"X": TOKEN}}, "the name of an environment variable"),
    ({"tls": {"key": "k"}}, "`cert` beside `key`"),
    ({"tls": {"ca": "k", "verify": False}}, "`verify: true`"),
    ({"tls": {"verfy": False}}, "ca, cert, key, verify"),
    ({"step_s": 0}, "greater than"),
    ({"step_s": 0.0015}, "whole milliseconds"),
    ({"threads": 0}, "greater than"),
    ({"timeout_s": -1}, "greater than"),
]  # fmt: skip


@pytest.mark.parametrize(("more", "expected"), BAD_SOURCES, ids=[str(i) for i in range(len(BAD_SOURCES))])
def test_a_fault_in_the_settings_is_named_without_secrets(more: dict[str, Any], expected: str) -> None:
    times = {"start": "2024-01-01T00:00:00Z", "end": "2024-01-01T01:00:00Z"}
    test = {"name": "a", "type": "bounded", "base": times, "new": times}
    params = {"base": {"label": "a"}, "new": {"label": "b"}, "tests": [test]}
    with pytest.raises(InputError) as caught:
        check_params({**params, "source": {"kind": "prometheus", "url": "http://h", **more}})
    assert expected in caught.value.expected
    assert (caught.value.key or "").startswith("source")
    assert TOKEN not in str(caught.value)


def test_a_source_of_files_has_no_settings_of_servers() -> None:
    with pytest.raises(ValueError, match="no `threads` where kind is recorded"):
        Source.model_validate({"kind": "recorded", "threads": 2})


@pytest.mark.parametrize("name", ["mattermost", "postgresql"])
def test_a_server_takes_every_query_of_the_catalogues(prometheus: Prometheus, name: str) -> None:
    asked = read_catalogue(name).questions(label_step_s=2.5)
    assert len(asked) >= 12
    for question in asked:
        raw(prometheus.url, question.query, BASE_START, BASE_START + 60, 60)


EXPORTED = {
    "pg_stat_database": "numbackends xact_commit xact_rollback blks_read blks_hit tup_returned tup_fetched "
    "tup_inserted tup_updated tup_deleted conflicts temp_files temp_bytes deadlocks blk_read_time blk_write_time "
    "stats_reset",
    "pg_stat_activity": "count max_tx_duration",
    "pg_locks": "count",
}
"""By collector what postgres_exporter exports without options, read from its sources: collector/pg_stat_database.go,
collector/pg_locks.go and, for pg_stat_activity, cmd/postgres_exporter/queries.go."""


def test_the_postgresql_catalogue_asks_for_what_the_exporter_has() -> None:
    exported = {f"{collector}_{name}" for collector, names in EXPORTED.items() for name in names.split()}
    asked = [question.query for question in read_catalogue("postgresql").questions(label_step_s=60)]
    names = {name for query in asked for name in re.findall(r"\bpg_\w+", query)}
    assert len(names) >= 14
    assert names <= exported


def test_variables_and_windows_are_filled_in(mattermost: Catalogue) -> None:
    queries = {(q.metric, q.stat): q.query for q in mattermost.questions(label_step_s=60)}
    assert queries["rps", ""] == 'sum(rate(mattermost_http_requests_total{instance=~"app.*:8067"}[1m]))'
    assert queries["api", "calls"] == "sum(rate(mattermost_api_time_count[60s])) by (handler)"
    short = {(q.metric, q.stat): q.query for q in mattermost.questions(label_step_s=2.5)}
    assert "[2500ms]" in short["api", "calls"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("sum(up{{ap}})", r"a variable that `variables` has \(app\), found '{{ap}}'"),
        ("rate(up[{window}])", "only in queries of label tables"),
    ],
)
def test_an_unknown_variable_is_an_error(tmp_path: Path, query: str, words: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"variables: {{app: 'a=\"b\"'}}\nmetrics:\n  - {{name: A, slug: a, query: '{query}'}}\n")
    with pytest.raises(InputError, match=words):
        read_catalogue(str(file))
