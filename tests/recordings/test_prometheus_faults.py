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
    time.sleep(3)
    exchange.sent = handler.close_connection = True


def trickled(exchange: Exchange, part: str) -> None:
    handler = exchange.handler
    if part == "body":
        world.send_head(exchange)
    with suppress(OSError):
        for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 90 if part == "headers" else b" " * 90:
            handler.wfile.write(bytes([byte]))
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
    proxy.faults = [*(becomes(429, "slow down", "text/plain", **{"Retry-After": each}) for each in asked), None]
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


Lasting = tuple[Fault, tuple[str, ...], str]
"""A fault, words of its error, and what the error's key begins with: nothing where the server is at fault."""
ONCE: dict[str, Lasting] = {
    "401": (becomes(401, f"no: {TOKEN}", "text/plain"), ("HTTP 401", "no: ***"), "source.auth"),
    "403": (becomes(403, "", "text/html"), ("HTTP 403: Forbidden",), "source.auth"),
    "404": (becomes(404, "404 page not found", "text/plain"), ("404 page not found",), "source.url"),
    "redirect": (becomes(302, Location="http://h/"), ("a redirect (HTTP 302)",), "source.url"),
    "500": (api_error(500, "internal", "boom"), ("HTTP 500 (internal): boom",), ""),
    "503 query time-out": (api_error(503, "timeout", "query timed out in expression"),
                           ("HTTP 503 (timeout): query timed out in expression",), ""),
    "stall": (stalled, ("does not pause for 1.2 s", "silence"), ""),
    "stall in mid-body": (stalled_in_mid_body, ("does not pause for 1.2 s", "silence"), ""),
    "body that trickle": (partial(trickled, part="body"), ("a whole answer within 2.4 s", "none after"), ""),
    "headers that trickle": (partial(trickled, part="headers"), ("a whole answer within 2.4 s", "none after"), ""),
    "wrong content type": (becomes(200, "<html>Please log in</html>", "text/html"),
                           ("query API (JSON)", "the type text/html"), "source.url"),
    "bad query": (api_error(400, "bad_data", "1:1: parse error\nand more"),
                  ("a query that the server can answer at", "parse error and more"), "query of graph m"),
    "an error within 200": (api_error(200, "execution", "no"), ("(execution): no",), "query of"),
}  # fmt: skip
AGAIN: dict[str, Lasting] = {
    "reset in mid-body": (RESET, ("a whole answer", "5 times"), ""),
    "truncated JSON": (truncated, ("a whole answer", "JSON that", "5 times"), ""),
    "a chunk of negative size": (negative_chunk, ("a damaged body", "5 times"), ""),
    "invalid UTF-8": (not_utf8, ("bytes that are not UTF-8",), ""),
    "429": (becomes(429, "too many", "text/plain"), ("HTTP 429: too many",), ""),
    "429 for three years": (becomes(429, "too many", "text/plain", **{"Retry-After": "99999999"}),
                            ("a whole answer within 2.4 s", "none after 3."), ""),
    "502": (becomes(502, "<html>", "text/html"), ("HTTP 502: Bad Gateway",), ""),
}  # fmt: skip
LASTING = ONCE | AGAIN
"""Faults after which a query is asked once, and those after which it is asked again."""


@pytest.mark.parametrize("name", LASTING)
def test_a_lasting_fault_is_named(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    fault, said, key = LASTING[name]
    proxy.faults = [fault]
    caplog.set_level(logging.DEBUG)
    with pytest.raises(bc.InputError if key else bc.SourceError) as caught:
        pull(proxy.url, monkeypatch, threads=1, timeout_s=1.0 if re.search(r"\d s$", said[0]) else 30)
    text = str(caught.value)
    assert proxy.url in text
    assert "\n" not in text
    assert all(words in text for words in said), text
    assert (getattr(caught.value, "key", "") or "").startswith(key)
    queries = [path for _, path, *_ in proxy.seen if "query_range" in path]
    assert len(queries) == len(set(queries)) if name in ONCE else len(queries) > len(set(queries))
    assert TOKEN not in text + caplog.text + "".join(traceback.format_exception(caught.value))


def test_an_authority_that_nobody_knows(
    prometheus: Prometheus, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        world.proxying(prometheus.url, tls=world.tls_front(certificates, client=False)) as proxy,
        pytest.raises(bc.InputError, match=r"source.tls: .*found unable to get local issuer certificate"),
    ):
        pull(proxy.url, monkeypatch)


@pytest.mark.parametrize(
    ("section", "key", "value", "place", "words"),
    [
        ("auth", "bearer_token_env", "NOT_SET", "", "the environment variable NOT_SET"),
        ("auth", "bearer_token_file", "missing", "", "no such file"),
        ("auth", "bearer_token_file", "docs/report.png", "docs/report.png: ", "bytes that are no UTF-8"),
        ("tls", "ca", "missing", "", "found no such file"),
        ("tls", "ca", "LICENSE", "", "a file of certificates"),
        ("tls", "cert", "LICENSE", "", "a certificate and its key"),
    ],
)
def test_what_is_missing_on_our_side(section: str, key: str, value: str, place: str, words: str) -> None:
    with pytest.raises(bc.InputError, match=rf"(^|/|: ){place}source.{section}.{key}: expected .*{words}"):
        record(run(), source("http://127.0.0.1:9", **{section: {key: value}}), catalogue("go_goroutines"))


def test_a_server_that_is_slow_is_waited_for(
    prometheus: Prometheus, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus_session, "CONNECT_S", 1.0)
    proxy.faults = [stalled, None]
    assert content(pull(proxy.url, monkeypatch, timeout_s=30)) == content(pull(prometheus.url, monkeypatch))
    assert len([path for _, path, *_ in proxy.seen if "query_range" in path]) == len(QUERIES)
