"""A server fails in every way: what passes changes nothing, what lasts is named, and secrets stay secret."""

import json
import logging
import re
import threading
import time
import traceback
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from urllib3.util.retry import Retry

import buildcompare as bc
import prometheus_server as world
from buildcompare.recordings import prometheus_session
from buildcompare.recordings.sources import record
from prometheus_server import Exchange, Fault, Prometheus, Proxy
from pulling import TOKEN, bits, catalogue, run, source

QUERIES = ("go_goroutines", "gappy", "odd")


def becomes(status: int, body: str | bytes = "", kind: str = "application/json", **headers: str) -> Fault:
    def fault(exchange: Exchange) -> None:
        exchange.status, exchange.headers = status, {"Content-Type": kind, **headers}
        exchange.body = body.encode()

    return fault


def api_error(status: int, kind: str, words: str) -> Fault:
    return becomes(status, json.dumps({"status": "error", "errorType": kind, "error": words}))


def truncated(exchange: Exchange) -> None:
    exchange.body = exchange.body[: len(exchange.body) // 2]


def not_utf8(exchange: Exchange) -> None:
    exchange.body = exchange.body.replace(b'"metric":{', b'"metric":{"\xff":"x",', 1)


def negative_chunk(exchange: Exchange) -> None:
    handler = exchange.handler
    world.send_head(exchange, **{"Transfer-Encoding": "chunked"})
    handler.wfile.write(b"-5\r\n" + exchange.body)
    exchange.sent = handler.close_connection = True


def stalled(exchange: Exchange) -> None:
    time.sleep(3)


def stalled_in_mid_body(exchange: Exchange) -> None:
    handler = exchange.handler
    world.send_head(exchange)
    handler.wfile.write(exchange.body[:20])
    handler.wfile.flush()
    time.sleep(3)
    exchange.sent = handler.close_connection = True


def trickled(exchange: Exchange, part: str) -> None:
    handler = exchange.handler
    if part == "body":
        world.send_head(exchange)
    with suppress(OSError):
        for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 30 if part == "headers" else b" " * 30:
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
            time.sleep(0.1)
    exchange.sent = handler.close_connection = True


RESET, EARLY_END = partial(world.cut_off, abruptly=True), partial(world.cut_off, abruptly=False)


@pytest.fixture
def prometheus(servers: world.Servers) -> Prometheus:
    return servers("prometheus")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_session, "BACKOFF_S", 0.02)
    monkeypatch.setattr(prometheus_session, "GRACE_S", 0.2)


def pull(url: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> bc.Recording:
    monkeypatch.setenv("PROM_TOKEN", TOKEN)
    return record(run(), source(url, auth={"bearer_token_env": "PROM_TOKEN"}, **more), catalogue(*QUERIES))


def content(recording: bc.Recording) -> list[Any]:
    return [(s.metric, dict(s.labels), bits(s.times), bits(s.values)) for s in recording.series]


PASSING = {
    "reset in mid-body": RESET, "end in mid-body": EARLY_END, "truncated JSON": truncated,
    "a chunk of negative size": negative_chunk, "invalid UTF-8": not_utf8,
    "429 with Retry-After": becomes(429, "slow down", "text/plain", **{"Retry-After": "1"}),
    "429 whose Retry-After nobody can read": becomes(429, "slow down", "text/plain", **{"Retry-After": "soon"}),
    "429": becomes(429, "slow down", "text/plain"), "502": becomes(502, "<html>", "text/html"), "504": becomes(504),
    "503 of a server that starts": becomes(503, "Service Unavailable", "text/plain"),
}  # fmt: skip


@pytest.mark.parametrize("name", PASSING)
def test_a_passing_fault_changes_nothing(
    prometheus: Prometheus, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    proxy.faults = [PASSING[name], PASSING[name], None]
    assert content(pull(proxy.url, monkeypatch)) == content(pull(prometheus.url, monkeypatch))
    assert len([path for _, path, *_ in proxy.seen if "query_range" in path]) == len(QUERIES) + 2


def test_retry_after_is_kept_up_to_a_minute(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(Retry, "sleep", lambda self, answer: waits.append(self.get_retry_after(answer)))
    asked = ("3600", "Thu, 01 Jan 2099 00:00:00 GMT", "7")
    slow = [becomes(429, "slow down", "text/plain", **{"Retry-After": each}) for each in asked]
    proxy.faults = [*slow, None]
    pull(proxy.url, monkeypatch, threads=1)
    assert waits == [prometheus_session.MAX_WAIT_S] * 2 + [7]


@pytest.mark.parametrize(
    ("url", "found"), [("http://127.0.0.1:{}", "Connection refused"), ("http://nowhere.invalid", ".*[Nn]ame")]
)
def test_nobody_listens(url: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = url.format(world.free_port())
    with pytest.raises(bc.SourceError, match=rf"{url}: expected a server that answers, found {found}"):
        pull(url, monkeypatch)


def test_a_server_that_starts_again_in_mid_pull(
    prometheus: Prometheus, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = content(pull(prometheus.url, monkeypatch))
    monkeypatch.setattr(prometheus_session, "BACKOFF_S", 0.3)
    port = int(proxy.url.rpartition(":")[2])
    again: list[Proxy] = []

    def dies(exchange: Exchange) -> None:
        stop = exchange.handler.server

        def restart() -> None:
            stop.shutdown()
            stop.server_close()
            time.sleep(0.4)
            again.append(stack.enter_context(world.proxying(prometheus.url, port=port)))

        threading.Thread(target=restart, daemon=True).start()
        world.cut_off(exchange, abruptly=True)

    proxy.faults = [dies, RESET, None]
    with ExitStack() as stack:
        assert content(pull(proxy.url, monkeypatch, threads=1)) == whole
        assert again


Lasting = tuple[Fault, type[bc.BuildcompareError], tuple[str, ...], str]
"""A fault, its error, words of it, and what its key begins with."""
ONCE: dict[str, Lasting] = {
    "401": (becomes(401, f"no: {TOKEN}", "text/plain"), bc.InputError, ("HTTP 401", "no: ***"), "source.auth"),
    "403": (becomes(403, "", "text/html"), bc.InputError, ("HTTP 403: Forbidden",), "source.auth"),
    "404": (becomes(404, "404 page not found", "text/plain"), bc.InputError, ("404 page not found",), "source.url"),
    "redirect": (becomes(302, Location="http://h/"), bc.InputError, ("a redirect (HTTP 302)",), "source.url"),
    "500": (api_error(500, "internal", "boom"), bc.SourceError, ("HTTP 500 (internal): boom",), ""),
    "503 query time-out": (
        api_error(503, "timeout", "query timed out in expression"), bc.SourceError,
        ("HTTP 503 (timeout): query timed out in expression",), "",
    ),
    "stall": (stalled, bc.SourceError, ("does not pause for 1.2 s", "silence"), ""),
    "stall in mid-body": (stalled_in_mid_body, bc.SourceError, ("does not pause for 1.2 s", "silence"), ""),
    **{
        f"{part} that trickle": (
            partial(trickled, part=part), bc.SourceError, ("a whole answer within 2.4 s", "none after"), "",
        )
        for part in ("body", "headers")
    },
    "wrong content type": (
        becomes(200, "<html>Please log in</html>", "text/html"), bc.InputError,
        ("query API (JSON)", "the type text/html"), "source.url",
    ),
    "bad query": (
        api_error(400, "bad_data", "1:1: parse error\nand more"), bc.InputError,
        ("parse error and more",), "query of graph m",
    ),
    "an error within 200": (api_error(200, "execution", "no"), bc.InputError, ("(execution): no",), "query of"),
}  # fmt: skip
AGAIN: dict[str, Lasting] = {
    "reset in mid-body": (RESET, bc.SourceError, ("a whole answer", "5 times"), ""),
    "truncated JSON": (truncated, bc.SourceError, ("a whole answer", "JSON that"), ""),
    "a chunk of negative size": (negative_chunk, bc.SourceError, ("a damaged body", "5 times"), ""),
    "invalid UTF-8": (not_utf8, bc.SourceError, ("bytes that are not UTF-8",), ""),
    "429": (becomes(429, "too many", "text/plain"), bc.SourceError, ("HTTP 429: too many",), ""),
    "429 for three years": (
        becomes(429, "too many", "text/plain", **{"Retry-After": "99999999"}), bc.SourceError,
        ("a whole answer within 2.4 s", "none after 3."), "",
    ),
    "502": (becomes(502, "<html>", "text/html"), bc.SourceError, ("HTTP 502: Bad Gateway",), ""),
}  # fmt: skip
LASTING = ONCE | AGAIN
"""Faults after which a query is asked once, and those after which it is asked again."""


@pytest.mark.parametrize("name", LASTING)
def test_a_lasting_fault_is_named(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    fault, error, said, key = LASTING[name]
    proxy.faults = [fault]
    caplog.set_level(logging.DEBUG)
    with pytest.raises(error) as caught:
        pull(proxy.url, monkeypatch, threads=1, timeout_s=1.0 if re.search(r"\d s$", said[0]) else 30)
    text = str(caught.value)
    assert proxy.url in text
    assert "\n" not in text
    assert all(words in text for words in said), text
    assert (getattr(caught.value, "key", "") or "").startswith(key)
    queries = [path for _, path, *_ in proxy.seen if "query_range" in path]
    assert len(queries) == len(set(queries)) if name in ONCE else len(queries) > len(set(queries))
    assert TOKEN not in text + caplog.text + "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("kind", "query", "words"),
    [
        ("prometheus", '{__name__=~".+"}', "HTTP 422 .*too many samples"),
        ("victoriametrics", '{__name__=~".+"}', "HTTP 422 .*cannot select more than .* samples"),
        ("prometheus", "sum((", "parse error"),
        ("victoriametrics", "sum((", "unexpected token"),
    ],
)
def test_a_query_is_refused_in_the_server_s_own_words(
    servers: world.Servers, kind: str, query: str, words: str
) -> None:
    with pytest.raises(bc.InputError, match=rf"query of graph m1: .*{words}"):
        record(run(), source(servers(kind).url), catalogue("go_goroutines", query))


def test_a_metric_without_an_answer_is_absent_and_the_rest_is_recorded(prometheus: Prometheus) -> None:
    names = ["no_such_metric", *(f"go_goroutines + {i}" for i in range(9))]
    recording = record(run(), source(prometheus.url), catalogue(*names))
    assert {series.metric for series in recording.series} == {f"m{i}" for i in range(1, 10)}
    queries = recording.provenance["queries"]
    assert isinstance(queries, list)
    assert [query["series"] for query in queries] == [0] + [2] * 9


def test_a_window_without_any_sample(prometheus: Prometheus) -> None:
    with pytest.raises(bc.InputError, match=r"start, end: expected samples at http.*, found none for any of 1"):
        record(run(1e9, 1e9 + 600), source(prometheus.url), catalogue("go_goroutines"))
    with pytest.raises(bc.InputError, match=r"metrics: .*found no series `go_gorutines`; near: `go_goroutines`$"):
        record(run(), source(prometheus.url), catalogue('sum by (a_b) (go_gorutines{c="d_e"})'))


def test_an_authority_that_nobody_knows(
    prometheus: Prometheus, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        world.proxying(prometheus.url, tls=world.tls_front(certificates, client=False)) as proxy,
        pytest.raises(bc.InputError, match=r"source.tls: .*found unable to get local issuer certificate"),
    ):
        pull(proxy.url, monkeypatch)


@pytest.mark.parametrize(
    ("more", "key", "words"),
    [
        ({"auth": {"bearer_token_env": "NOT_SET"}}, "source.auth.bearer_token_env", "the environment variable NOT_SET"),
        ({"auth": {"bearer_token_file": "missing"}}, "source.auth.bearer_token_file", "no such file"),
        (
            {"auth": {"bearer_token_file": "docs/report.png"}},
            "docs/report.png: source.auth.bearer_token_file",
            "bytes that are no UTF-8",
        ),
        ({"tls": {"ca": "missing"}}, "source.tls.ca", "found no such file"),
        ({"tls": {"ca": "LICENSE"}}, "source.tls.ca", "a file of certificates"),
        ({"tls": {"cert": "LICENSE"}}, "source.tls.cert", "a certificate and its key"),
    ],
)
def test_what_is_missing_on_our_side(more: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(bc.InputError, match=rf"(^|/|: ){key}: expected .*{words}"):
        record(run(), source("http://127.0.0.1:9", **more), catalogue("go_goroutines"))


def test_a_server_that_is_slow_is_waited_for(
    prometheus: Prometheus, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus_session, "CONNECT_S", 1.0)
    proxy.faults = [stalled, None]
    assert content(pull(proxy.url, monkeypatch, timeout_s=30)) == content(pull(prometheus.url, monkeypatch))
    assert len([path for _, path, *_ in proxy.seen if "query_range" in path]) == len(QUERIES)


def test_a_gap_of_five_minutes(prometheus: Prometheus) -> None:
    recording = record(run(), source(prometheus.url), catalogue("rate(scraped_total[1m])"))
    [series] = recording.series
    apart = np.diff(series.times)
    first = series.times[int(np.argmax(apart))] - world.BASE_START
    assert 600 <= first <= 665  # the window of a rate goes on for a minute
    assert (apart.max(), np.sum(apart > world.STEP_S)) == (pytest.approx(910 - first, abs=10), 1)
    queries: Any = recording.provenance["queries"]
    assert queries[0]["missing_points"] == world.LENGTH_S // world.STEP_S + 1 - series.times.size >= 49
    after = series.values[series.times > world.BASE_START + 970]
    np.testing.assert_allclose(after, 1.4, rtol=1e-9)


def test_restarts_that_the_server_cannot_count_are_not_counted(prometheus: Prometheus, proxy: Proxy) -> None:
    def uncounted(exchange: Exchange) -> None:
        if "resets(" in exchange.asked.get("query", ""):
            exchange.body = re.sub(rb'"\d+"\]', b'"NaN"]', exchange.body)

    asked = run(world.NEW_START, world.NEW_START + world.LENGTH_S)
    proxy.faults = [uncounted] * 20
    recording = record(asked, source(proxy.url), catalogue("sum(rate(mattermost_http_requests_total[1m]))"))
    assert recording.provenance["counter_resets"] == {}
