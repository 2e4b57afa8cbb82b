"""A server is asked as the settings say; what is pulled is what it says, to the last bit; and where servers differ."""

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_api_client.exceptions import PrometheusApiClientException

import fuzzing
import prometheus_server as world
from buildcompare.config.catalogue import Catalogue, read_catalogue
from buildcompare.config.errors import InputError, SourceError
from buildcompare.config.params import Source, check_params
from buildcompare.labels.tables import label_levels
from buildcompare.recordings import prometheus_answer
from buildcompare.recordings.prometheus import MAX_PIECES, MAX_POINTS, grid, prometheus_client
from buildcompare.recordings.prometheus_answer import Answer, PassingError, read_answer
from buildcompare.recordings.prometheus_client import LONG_QUERY
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.sources import pull, record
from buildcompare.stats.noise import label_frame
from prometheus_server import BASE_START, LENGTH_S, LONG_S, LONG_START, NEW_START, STEP_S, Prometheus, Proxy, Servers
from pulling import TOKEN, at, bits, catalogue, raw, run, same, source

TABLES = {"store": ("mattermost_db_store_time", "method"), "api": ("mattermost_api_time", "handler")}


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
    recording, provenance = pulled["base"], pulled["base"].provenance
    assert (recording.window, recording.stop_known) == ((BASE_START, BASE_START + LENGTH_S), True)
    assert (provenance["kind"], provenance["url"]) == ("prometheus", prometheus.url)
    assert provenance["server"]["kind"] == prometheus.kind
    assert re.match(r"v?\d+\.\d+", provenance["server"]["version"])
    assert {s.role for s in recording.series} == {"graph", "label", "bucket"}  # no metrics of the load-test tool here
    assert {s.stat for s in recording.series if s.role == "label"} == {"avg", "p99", "calls"}
    assert [s.labels for s in recording.graphs()] == [{}] * 10
    thresholds = provenance["thresholds"]
    assert (thresholds["client-average"], thresholds["app-cpu"]) == (0.1, 85)
    assert json.loads(json.dumps(provenance)) == provenance


def peer(prometheus: Prometheus, group: str, seconds: int, end: float) -> dict[str, dict[str, float]]:
    metric, label = TABLES[group]
    window = f"[{seconds}s]"
    queries = {
        "avg": f"sum(rate({metric}_sum{window})) by ({label}) / sum(rate({metric}_count{window})) by ({label})",
        "p99": f"histogram_quantile(0.99, sum(rate({metric}_bucket{window})) by (le,{label}))",
    }
    rows = {stat: raw(prometheus.url, query, end, end, 60) for stat, query in queries.items()}
    return {stat: {row["metric"][label]: float(row["values"][0][1]) for row in of} for stat, of in rows.items()}


@pytest.mark.parametrize("group", TABLES)
def test_label_values_equal_the_peer_s_queries_over_a_run_and_over_a_steady_window(
    pulled: dict[str, Recording], prometheus: Prometheus, group: str
) -> None:
    """A window is put together from points of a minute: averages weighted with their calls, percentiles of buckets."""
    summaries = [each for each in pulled["base"].label_summaries if each.group == group]
    for stat, answers in peer(prometheus, group, LENGTH_S, BASE_START + LENGTH_S).items():
        of_run = {each.label: each.value for each in summaries if each.stat == stat}
        assert of_run == pytest.approx(answers, rel=0 if prometheus.kind == "prometheus" else 1e-9)
    start, end = 600, 1_680
    levels = label_frame(label_levels(pulled["base"], (start, end)))
    assert {*levels["stat"]} >= {"avg", "p99", "calls"}
    for stat, answers in peer(prometheus, group, end - start, BASE_START + end).items():
        mine = levels[(levels["group"] == group) & (levels["stat"] == stat)].set_index("label")["value"]
        assert mine.to_dict() == pytest.approx(answers, rel=1e-9)


@pytest.mark.parametrize("offset", [0.0, 3.217, 4.999])
def test_long_windows_on_and_off_the_grid_come_back_with_exactly_their_points(
    prometheus: Prometheus, offset: float
) -> None:
    length_s = LONG_S - 1_200
    start, end = LONG_START + 600 + offset, LONG_START + 600 + offset + length_s + 1.75
    [series] = record(run(start, end), source(prometheus.url), catalogue("long")).series
    steps = np.arange(length_s // 5 + 1)
    assert steps.size > 11_000
    assert np.array_equal(np.round(series.times * 1000), np.round(start * 1000) + 5_000 * steps)
    written = LONG_START + 600 + 5.0 * steps
    assert prometheus.gives(series.values, prometheus.truth.at("long", written))


def test_a_grid_has_whole_milliseconds_and_a_bound() -> None:
    assert [*grid(at(1.234), at(1.383), 0.05)] == [1_234, 1_284, 1_334]
    with pytest.raises(InputError, match="at most"):
        grid(at(0), at(MAX_POINTS * MAX_PIECES / 1000), 0.001)


def test_several_series_are_kept_by_their_labels(prometheus: Prometheus) -> None:
    query = 'mattermost_api_time_count{handler=~"createPost|getUser"}'
    recording = record(run(), source(prometheus.url), catalogue(query, "go_goroutines"))
    several = [s for s in recording.series if s.metric == "m0"]
    labels = [dict(s.labels) for s in several]
    assert sorted(map(str, labels)) == sorted(
        str({"handler": h, "instance": i}) for h in ("createPost", "getUser") for i in world.INSTANCES
    )
    for series in several:
        written = prometheus.truth.at("mattermost_api_time_count", series.times, **series.labels)
        assert prometheus.gives(series.values, written)
    assert [dict(s.labels) for s in recording.series if s.metric == "m1"] == [{"instance": i} for i in world.INSTANCES]


def test_nan_infinities_and_the_smallest_and_largest_numbers(servers: world.Servers) -> None:
    server = servers("prometheus")  # the other kind: test_samples_end_later_and_lose_digits
    [series] = record(run(), source(server.url), catalogue("odd")).series
    assert bits(series.values) == bits(server.truth.at("odd", series.times))
    odd = np.array([np.nan, np.inf, -np.inf, 5e-324, 1.7976931348623157e308])
    assert bits(series.values[[3, 5, 8, 10, 11]]) == bits(odd)


QUOTED, ODD = fuzzing.seed("answer-quoted"), fuzzing.seed("answer-odd")
SKELETONS = [QUOTED, ODD, *(fuzzing.seed(f"answer-{name}") for name in ("empty", "spaced", "mixed", "matrix"))]


def whole_answer(body: bytes, chunk: int = 1 << 30) -> Answer:
    return read_answer(body[i : i + chunk] for i in range(0, len(body), chunk))


@pytest.mark.parametrize("chunk", [1 << 30, 1, 7, 50])
@pytest.mark.parametrize("body", SKELETONS)
def test_an_answer_is_what_the_json_parser_reads(body: bytes, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_answer, "BATCH", 20)
    plain = json.loads(body)
    found = whole_answer(body, chunk)
    said = [*plain.get("warnings", []), *plain.get("infos", [])]
    assert [*found.warnings] == [*dict.fromkeys(said)]
    rows = [row for row in plain["data"]["result"] if "values" in row]
    assert [dict(labels) for labels, _, _ in found.series] == [row["metric"] for row in rows]
    for (_, times, values), row in zip(found.series, rows, strict=True):
        assert bits(times) == bits(np.array([float(time) for time, _ in row["values"]]))
        assert bits(values) == bits(np.array([float(value) for _, value in row["values"]]))


def test_the_fast_path_reads_any_number_as_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(prometheus_answer, "_of_json")  # the slow path
    rng = np.random.default_rng(1)
    words = [repr(float(v)) for v in rng.integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64)]
    words = [{"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(w, w) for w in words]
    words += [f"{rng.random():.{d}f}" for d in range(1, 40)]
    pairs = ",".join(f'[{i / 1000},"{w}"]' for i, w in enumerate(words))
    body = f'{{"data":{{"resultType":"matrix","result":[{{"metric":{{}},"values":[{pairs}]}}]}}}}'.encode()
    [(_, times, values)] = whole_answer(body).series
    assert bits(times) == bits(np.array([i / 1000 for i in range(len(words))]))
    assert bits(values) == bits(np.array([float(w) for w in words]))


def test_no_truncated_or_damaged_answer_is_taken_for_a_whole_one() -> None:
    body = ODD
    for end in range(len(body)):
        with pytest.raises(PassingError):
            whole_answer(body[:end])
    for damaged in (b"[]", b"{}", b'{"data":{"resultType":"vector","result":[]}}', body.replace(b'"NaN"', b'"x"'),
                    *(body.replace(b'"NaN"', word) for word in (b'"1_0"', b'"nan(1)"', b'" 1"')),
                    body.replace(b'"NaN"', b'"1,2"'), body.replace(b'"NaN"', b'"--1"'),
                    body.replace(b"[7,", b"[null,"), body.replace(b"[7,", b"[" + b"9" * 400 + b","),
                    body.replace(b"isPartial", b"\xff"), QUOTED.replace(b"]]}", b'],["],[3,"4"]]}')):  # fmt: skip
        with pytest.raises(PassingError):
            whole_answer(damaged)


CPU = 'mattermost_process_cpu_seconds_total{instance="app-0:8067"}'
Both = tuple[dict[float, float], dict[float, float]]


def both(servers: Servers, query: str, *, offset: float = 0.0, more: float = 0.0) -> Both:
    found: list[dict[float, float]] = []
    for kind in ("prometheus", "victoriametrics"):
        asked = run(BASE_START + offset, BASE_START + LENGTH_S + more)
        series: Any = record(asked, source(servers(kind).url), catalogue(query, "go_goroutines")).find("m0")
        found.append({} if series is None else dict(zip(series.times - BASE_START, series.values, strict=True)))
    return found[0], found[1]


def apart(first: dict[float, float], second: dict[float, float], after: float) -> np.ndarray:
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


# Many seconds of work in small pieces at a step of 1 s: between them, servers look at a clock that counts seconds.
SLOW = " + ".join(f"quantile_over_time(0.5, go_goroutines[{900 + i}s])" for i in range(300))


@pytest.mark.parametrize(
    ("kind", "query", "words"),
    [
        ("prometheus", '{__name__=~".+"}', "HTTP 422 .*too many samples"),
        ("victoriametrics", '{__name__=~".+"}', "HTTP 422 .*cannot select more than .* samples"),
        ("prometheus", "sum((", "parse error"),
        ("victoriametrics", "sum((", "unexpected token"),
        pytest.param("prometheus", SLOW, r"HTTP 503 \(timeout\): query timed out in ", id="prometheus-time-out"),
        pytest.param("victoriametrics", SLOW, "HTTP 422 .*timeout exceeded", id="victoriametrics-time-out"),
    ],
)
def test_a_query_is_refused_in_the_server_s_own_words(servers: Servers, kind: str, query: str, words: str) -> None:
    error, timeout_s = SourceError if "503" in words else InputError, 0.3 if query == SLOW else 30
    with world.proxying(servers(kind).url) as proxy, pytest.raises(error, match=rf"query of graph m1: .*{words}"):
        record(run(), source(proxy.url, timeout_s=timeout_s, step_s=1, threads=1), catalogue("go_goroutines", query))
    assert len([path for _, path, *_ in proxy.seen if "query_range" in path]) == 2, "each is asked once"


def test_a_metric_without_an_answer_is_absent_and_the_rest_is_recorded(prometheus: Prometheus) -> None:
    names = ["no_such_metric", *(f"go_goroutines + {i}" for i in range(9))]
    recording = record(run(), source(prometheus.url), catalogue(*names))
    assert {series.metric for series in recording.series} == {f"m{i}" for i in range(1, 10)}
    assert [query["series"] for query in recording.provenance["queries"]] == [0] + [2] * 9


def test_a_window_without_any_sample(prometheus: Prometheus) -> None:
    with pytest.raises(InputError, match=r"start, end: expected samples at http.*, found none for any of 1"):
        record(run(1e9, 1e9 + 600), source(prometheus.url), catalogue("go_goroutines"))
    with pytest.raises(InputError, match=r"metrics: .*found no series `go_gorutines`; near: `go_goroutines`$"):
        record(run(), source(prometheus.url), catalogue('sum by (a_b) (go_gorutines{c="d_e"})'))


def test_a_gap_of_five_minutes(prometheus: Prometheus) -> None:
    recording = record(run(), source(prometheus.url), catalogue("rate(scraped_total[1m])"))
    [series] = recording.series
    apart = np.diff(series.times)
    first = series.times[int(np.argmax(apart))] - BASE_START
    assert 600 <= first <= 665  # the window of a rate goes on for a minute
    assert (apart.max(), np.sum(apart > STEP_S)) == (pytest.approx(910 - first, abs=10), 1)
    assert recording.provenance["queries"][0]["missing_points"] == LENGTH_S // STEP_S + 1 - series.times.size >= 49
    np.testing.assert_allclose(series.values[series.times > BASE_START + 970], 1.4, rtol=1e-9)


def test_a_counter_that_starts_again(prometheus: Prometheus, proxy: Proxy) -> None:
    """Its rate goes on without a drop; a restart is counted, but not where the server cannot count."""
    name, whole = "mattermost_http_requests_total", NEW_START + np.arange(0.0, LENGTH_S + 1, STEP_S)
    asked = run(NEW_START, NEW_START + LENGTH_S), source(proxy.url), catalogue(f"sum by (instance) (rate({name}[1m]))")
    recording = record(*asked)
    assert recording.provenance["counter_resets"] == {name: 1}
    for series in recording.series:
        written = prometheus.truth.at(name, whole, **series.labels)
        steps = np.where(np.diff(written) < 0, written[1:], np.diff(written))  # from zero again
        np.testing.assert_allclose(series.values[-349:], np.convolve(steps, np.ones(12), "valid") / 60, rtol=1e-9)

    def uncounted(exchange: world.Exchange) -> None:
        if "resets(" in exchange.asked.get("query", ""):
            exchange.body = re.sub(rb'"\d+"\]', b'"NaN"]', exchange.body)

    proxy.faults = [uncounted]
    assert record(*asked).provenance["counter_resets"] == {}


def test_a_long_query_goes_into_the_body(prometheus: Prometheus, proxy: Proxy) -> None:
    query = '{__name__=~"long|' + "|".join(f"other_{i}" for i in range(6_000)) + '"}'
    [series] = record(run(LONG_START, LONG_START + 600), source(proxy.url), catalogue(query)).series
    assert len(query) > 40 * LONG_QUERY
    assert prometheus.gives(series.values, prometheus.truth.at("long", series.times))
    [(path, body), *_] = [(path, body) for method, path, _, body in proxy.seen if method == "POST"]
    assert path == "/api/v1/query_range"
    assert len(body) > len(query)


def test_a_query_of_the_whole_window_is_never_asked_in_pieces(prometheus: Prometheus) -> None:
    window = run(LONG_START, LONG_START + 16 * 3_600)
    with pytest.raises(InputError, match=r"query of graph m0: .*at most 10,999 points .* has end\(\), found 11,521"):
        record(window, source(prometheus.url), catalogue("long - (long @ end())"))
    [series] = record(window, source(prometheus.url), catalogue("long{x!~'end()|/range(/.*)?'}")).series
    assert series.values.size == 11_521
    window = run(LONG_START + 600, LONG_START + 4_200)
    [series] = record(window, source(prometheus.url), catalogue("long @ Start ( )")).series
    assert series.values.size == 721


def test_the_client_library_asks_as_we_do(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROM_TOKEN", TOKEN)
    proxy.allowed = lambda headers: headers.get("Authorization") == f"Bearer {TOKEN}"
    login = source(proxy.url, auth={"bearer_token_env": "PROM_TOKEN"})
    with pytest.raises(InputError, match="near: `go_goroutines`"):
        record(run(), login, catalogue("go_gorutines"))
    clock = time.monotonic  # a recording's time limit ends with it
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 1_000)
    with prometheus_client(login) as client:
        assert "go_goroutines" in client.all_metrics(params={"start": LONG_START, "end": BASE_START})
        client._method = "POST"  # long queries go into the body, not into the address
        rows = client.custom_query_range("long", at(LONG_START), at(LONG_START + 60), "5")
        assert len(rows[0]["values"]) == 13
        assert proxy.seen[-1][:2] == ("POST", "/api/v1/query_range")
        asked, late = len(proxy.seen), b'{"status":"error","errorType":"timeout","error":"late"}'
        proxy.faults = [lambda exchange: vars(exchange).update(status=503, body=late)]
        with pytest.raises(PrometheusApiClientException, match="late"):
            client.custom_query("up")
    assert (len(proxy.seen) - asked, client._timeout) == (1, (10.0, 125.0)), "what timed out is not asked again"
    assert {headers["Accept-Encoding"] for *_, headers, _ in proxy.seen} == {"identity"}


@pytest.mark.parametrize(("more", "wanted"), [({}, "identity"), ({"gzip": True}, "gzip")])
def test_compression_is_a_setting(proxy: Proxy, more: dict[str, Any], wanted: str) -> None:
    recording = record(run(), source(proxy.url, **more), catalogue("go_goroutines"))
    assert {headers["Accept-Encoding"] for *_, headers, _ in proxy.seen} == {wanted}
    direct = record(run(), source(proxy.url), catalogue("go_goroutines"))
    assert [bits(s.values) for s in recording.series] == [bits(s.values) for s in direct.series]


@pytest.mark.parametrize("way", ["bearer_token_env", "bearer_token_file", "basic", "headers_env"])
def test_ways_to_log_in(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setenv("PROM_TOKEN", TOKEN)
    monkeypatch.setenv("PROM_USER", "jürgen")
    (tmp_path / "token").write_text(TOKEN + "\n")
    bearer, basic = {"Authorization": f"Bearer {TOKEN}"}, {"Authorization": "Basic asO8cmdlbjp0MGtlbi1vZi1ub2JvZHk="}
    keyed = {"X-Api-Key": TOKEN, "X-Scope-OrgID": "tenant 1"}
    settings, wanted = {
        "bearer_token_env": ({"auth": {"bearer_token_env": "PROM_TOKEN"}}, bearer),
        "bearer_token_file": ({"auth": {"bearer_token_file": str(tmp_path / "token")}}, bearer),
        "basic": ({"auth": {"username_env": "PROM_USER", "password_env": "PROM_TOKEN"}}, basic),
        "headers_env": ({"headers_env": {"X-Api-Key": "PROM_TOKEN"}, "headers": {"X-Scope-OrgID": "tenant 1"}}, keyed),
    }[way]
    proxy.allowed = lambda headers: wanted.items() <= headers.items()
    recording = record(run(), source(proxy.url, **settings), catalogue("go_goroutines"))
    assert len(recording.series) == 2
    assert TOKEN not in repr(recording.provenance)


def test_a_password_in_netrc_is_not_sent(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text(f"default login a password {TOKEN}\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    record(run(), source(proxy.url), catalogue("go_goroutines"))
    assert not any("Authorization" in headers for *_, headers, _ in proxy.seen)


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
@pytest.mark.parametrize("way", ["an authority of its own", "a client certificate", "unchecked"])
def test_ways_to_trust(way: str, prometheus: Prometheus, certificates: Path) -> None:
    tls: dict[str, Any] = {"verify": False} if way == "unchecked" else {"ca": f"{certificates}/ca.pem"}
    if way == "a client certificate":
        tls |= {"cert": f"{certificates}/cert.pem", "key": f"{certificates}/key.pem"}
    with world.proxying(prometheus.url, tls=world.tls_front(certificates, client="cert" in tls)) as proxy:
        recording = record(run(), source(proxy.url, tls=tls), catalogue("go_goroutines"))
    assert len(recording.series) == 2
    assert ["was not checked" in note.text for note in recording.notes] == [True] * (way == "unchecked")


BAD_SOURCES = [
    ({"url": f"http://me:{TOKEN}@h"}, "without credentials"),
    ({"url": f"http://h?token={TOKEN}"}, "without credentials"),
    ({"auth": TOKEN}, "keys with values"), ({"auth": {}}, "one of `bearer_token_env`"),
    ({"auth": {"bearer_token": TOKEN}}, "bearer_token_env"),
    ({"auth": {"bearer_token_env": TOKEN}}, "the name of an environment variable"),
    ({"auth": {"username_env": "A"}}, "together"),
    ({"auth": {"bearer_token_env": "A", "bearer_token_file": "b"}}, "one of"),
    ({"headers": {"Authorization": TOKEN}}, "no header that other settings decide"),
    ({"headers": {"X": TOKEN + "\n"}}, "printable ASCII"), ({"headers": {"X": 7}}, "text"),
    ({"headers": {"X": "a"}, "headers_env": {"x": "A"}}, "each header once"),
    ({"headers_env": {"X": TOKEN}}, "the name of an environment variable"),
    ({"tls": {"key": "k"}}, "`cert` beside `key`"), ({"tls": {"ca": "k", "verify": False}}, "`verify: true`"),
    ({"tls": {"verfy": False}}, "ca, cert, key, verify"),
    ({"step_s": 0}, "greater than"), ({"step_s": 0.0015}, "whole milliseconds"),
    ({"threads": 0}, "greater than"), ({"timeout_s": -1}, "greater than"),
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
    "stats_reset active_time active_time_seconds_total",
    "pg_stat_activity": "count max_tx_duration",
    "pg_locks": "count",
}
"""By collector what postgres_exporter exports without options, read from its sources: collector/pg_stat_database.go,
collector/pg_locks.go and, for pg_stat_activity, cmd/postgres_exporter/queries.go; 0.11 counts `active_time` in
milliseconds."""


def test_the_postgresql_catalogue_asks_for_what_the_exporter_has() -> None:
    exported = {f"{collector}_{name}" for collector, names in EXPORTED.items() for name in names.split()}
    asked = [question.query for question in read_catalogue("postgresql").questions(label_step_s=60)]
    names = {name for query in asked for name in re.findall(r"\bpg_\w+", query)}
    assert len(names) >= 14
    own = {"pg_stat_statements_calls_total", "pg_stat_statements_seconds_total"}  # params/example/statements.yaml
    assert names <= exported | own


def test_the_source_says_over_how_long_rates_are(prometheus: Prometheus) -> None:
    queries = {each.metric: each.query for each in read_catalogue("postgresql").questions(label_step_s=5, rate_s=2.5)}
    assert queries["deadlocks"] == 'sum(rate(pg_stat_database_deadlocks{datname!~"template.*|postgres|"}[2500ms]))'
    assert "[1m]" not in str(queries)
    window = "2024-12-11T10:00:00Z", "2024-12-11T10:05:00Z"
    for asked, filled_in, rate_s in (("{rate}", "20s", 20.0), ("1m", "1m", None)):
        pulled = pull(prometheus.url, *window, catalogue=catalogue(f"sum(rate(up[{asked}])) or vector(1)"), rate_s=20.0)
        assert f"[{filled_in}]" in pulled.provenance["queries"][0]["query"]
        assert pulled.rate_s == rate_s, "what the catalogue leaves open, and nothing else"


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
