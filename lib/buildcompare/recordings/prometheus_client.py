"""What does a server answer to one query, once passing faults are repeated and lasting ones named?"""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import requests
from prometheus_api_client import PrometheusConnect
from urllib3 import BaseHTTPResponse, Timeout
from urllib3.exceptions import (
    ConnectTimeoutError,
    DecodeError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ProtocolError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from buildcompare.config.errors import InputError, SourceError
from buildcompare.config.params import Source
from buildcompare.recordings import prometheus_session
from buildcompare.recordings.prometheus_answer import (
    Answer,
    AnswerReader,
    BrokenAnswerError,
    RefusedAnswerError,
    one_line,
)
from buildcompare.recordings.prometheus_ranges import Grid

MAX_BYTES = 1_000_000_000
"""Bound on one answer: 5,000 series of 1,081 points take about 170 MB."""
LONG_QUERY = 1_500
"""Characters from which a query is sent in a body: addresses are cut at a few kilobytes on the way."""
GRACE_S = 5.0
"""How much longer than the server's own time-out we wait, so that its words reach us."""
_CHUNK = 1 << 18

T = TypeVar("T")


@dataclass(frozen=True)
class Server:
    """Who answered."""

    kind: str
    version: str


class _PassingError(Exception):
    """A fault that is worth another try; the message says what was found."""


class PrometheusClient(PrometheusConnect):  # type: ignore[misc]  # it ships no types
    """prometheus-api-client on our own session, with answers as arrays.

    Its own `custom_query_range` makes a Python object of every number and drops the server's warnings.
    """

    def __init__(self, source: Source, url: str) -> None:
        session, self._secrets = prometheus_session.open_session(source)
        self._source = source
        super().__init__(url=url, session=session, timeout=self._timeouts(source), retry=prometheus_session.retry())
        session.mount(url, prometheus_session.adapter(source))  # instead of its own, which is too small
        self._stopped = threading.Event()

    @staticmethod
    def _timeouts(source: Source) -> tuple[float, float]:
        return min(10.0, source.timeout_s), source.timeout_s + GRACE_S

    def stop(self) -> None:
        """Give up repeating: another query has failed for good."""
        self._stopped.set()

    def server(self) -> Server:
        """Ask who the server is, having made sure that it is ready.

        Raises
        ------
        InputError, SourceError
            Where it cannot be reached, does not let us in, or is not ready.
        """
        ready = self._repeated(lambda: self._ask_plainly("/-/ready"))
        said = ready.decode("utf-8", "replace")
        try:
            data = json.loads(self._repeated(lambda: self._ask_plainly("/api/v1/status/buildinfo")))
            build = data["data"] if isinstance(data["data"], dict) else {}
        except (ValueError, KeyError, TypeError):
            build = {}
        version = one_line(str(build.get("version", "")), 60)
        if "victoriametrics" in said.casefold():
            return Server("victoriametrics", self._victoria_version())  # its buildinfo pretends to be Prometheus
        if build.get("application"):
            return Server(one_line(str(build["application"]), 60).casefold(), version)
        return Server("prometheus" if "prometheus" in said.casefold() else "unknown", version)

    def _victoria_version(self) -> str:
        metrics = self._repeated(lambda: self._ask_plainly("/metrics"))
        found = re.search(rb'vm_app_version\{[^}]*short_version="([^"]+)"', metrics)
        return found[1].decode("utf-8", "replace")[:60] if found else ""

    def query_range(self, query: str, piece: Grid) -> Answer:
        """Every series of `query` on the times of `piece`.

        Raises
        ------
        InputError
            Where the server refuses the query or us.
        SourceError
            Where the server fails.
        """
        # Its own limit is told to the server, so that its words reach us; nocache keeps VictoriaMetrics on our grid.
        limit = f"{max(1, round(self._source.timeout_s * 1000))}ms"
        parameters = {"query": query, **piece.parameters(), "timeout": limit, "nocache": "1"}
        method = "POST" if len(query) >= LONG_QUERY else "GET"

        def ask() -> Answer:
            with self._answered(method, "/api/v1/query_range", parameters) as response:
                if response.status != 200 or _kind(response) != "application/json":
                    self._check(response, self._read(response))
                return self._parsed(response)

        return self._repeated(ask)

    def _repeated(self, ask: Callable[[], T]) -> T:
        """Ask again where an answer came in pieces; the session itself repeats refused connections and statuses."""
        for attempt in range(prometheus_session.REPEATS + 1):
            try:
                return ask()
            except _PassingError as error:
                last = str(error)
            if attempt < prometheus_session.REPEATS and self._stopped.wait(prometheus_session.BACKOFF_S * 2**attempt):
                break
        raise self._failed("a whole answer", f"{last}, {prometheus_session.REPEATS + 1} times")

    def _ask_plainly(self, path: str) -> bytes:
        """A body of any type; none from a server without the path."""
        with self._answered("GET", path, {}) as response:
            body = self._read(response)
            if response.status in (400, 404, 405):
                return b""
            if response.status != 200:
                self._check(response, body)
            return body

    @contextmanager
    def _answered(self, method: str, path: str, parameters: dict[str, str]) -> Iterator[BaseHTTPResponse]:
        """An answer whose headers are there; its connection is given back, or closed where the body was not read."""
        connect_s, read_s = self._timeout
        with self._named_faults():
            limits = Timeout(connect=connect_s, read=read_s)
            response = self._session.ask(method, self.url + path, parameters, limits)
            try:
                yield response
            finally:
                response.close()
                response.release_conn()

    def _read(self, response: BaseHTTPResponse) -> bytes:
        return b"".join(self._chunks(response))

    def _parsed(self, response: BaseHTTPResponse) -> Answer:
        try:
            with closing(AnswerReader()) as reader:
                for chunk in self._chunks(response):
                    reader.feed(chunk)
                return reader.finish()
        except BrokenAnswerError as error:
            raise _PassingError(str(error)) from None
        except RefusedAnswerError as error:
            raise self._complaint(response, (error.kind, error.words), b"") from None

    def _chunks(self, response: BaseHTTPResponse) -> Iterator[bytes]:
        total = 0
        for chunk in response.stream(_CHUNK, decode_content=True):
            total += len(chunk)
            if total > MAX_BYTES:
                expected = f"an answer of at most {MAX_BYTES // 1_000_000:,} MB"
                raise InputError(file=None, key="source.step_s", expected=expected, found="a larger one")
            yield chunk

    @contextmanager
    def _named_faults(self) -> Iterator[None]:
        """Say in one line what urllib3 says in ten."""
        try:
            yield
        except (HTTPError, OSError) as error:
            causes = list(_chain(error))
            if any(isinstance(cause, (SSLError, ssl.SSLError)) for cause in causes):
                expected = f"a certificate that source.tls.ca, or the system, vouches for at {self.url}"
                raise InputError(file=None, key="source.tls", expected=expected, found=self._cause(error)) from None
            if any(type(cause) is ConnectTimeoutError for cause in causes):
                raise self._failed("a connection", f"none within {self._timeouts(self._source)[0]:g} s") from None
            if any(isinstance(cause, (ReadTimeoutError, TimeoutError)) for cause in causes):
                raise self._stalled() from None
            if any(isinstance(cause, (ConnectionRefusedError, NameResolutionError)) for cause in causes):
                raise self._failed("a server that answers", self._cause(error)) from None
            if any(isinstance(cause, DecodeError) for cause in causes):
                raise _PassingError("a damaged gzip stream") from None
            if any(isinstance(cause, (ProtocolError, NewConnectionError, ProxyError, OSError)) for cause in causes):
                raise _PassingError(self._cause(error)) from None
            raise self._failed("an answer", self._cause(error)) from None
        except requests.exceptions.RequestException as error:  # an address that nothing can be sent to
            raise self._failed("an address that can be asked", self._cause(error)) from None

    def _check(self, response: BaseHTTPResponse, body: bytes) -> NoReturn:
        raise self._complaint(response, _failure(body) if _kind(response) == "application/json" else None, body)

    def _complaint(self, response: BaseHTTPResponse, failure: tuple[str, str] | None, body: bytes) -> Exception:
        """What an answer that is none means: whose fault it is, and in whose words."""
        status, kind = response.status, _kind(response)
        code = f"HTTP {status}" + (f" ({failure[0]})" if failure else "")
        words = self._secrets.hide(one_line(f"{code}: {failure[1] if failure else _plain(body, kind, response)}"))
        if status == 200 and failure is None:
            found = f"an answer of the type {one_line(kind, 60) or 'none'}"
            return self._refused("source.url", "the query API (JSON)", found)
        if 300 <= status < 400:
            return self._refused("source.url", "the query API itself", f"a redirect ({code})")
        if status in (401, 403, 407):
            return self._refused("source.auth", "to be let in", words)
        if status == 404:
            return self._refused("source.url", "the query API", words)
        if failure is not None and failure[0] in ("bad_data", "execution") and status in (200, 400, 422):
            return self._refused("query", "a query that the server can answer", words)
        if status in (400, 413, 414, 422):
            return self._refused("query", "a query that the server accepts", words)
        if status == 503 and failure is None:
            return _PassingError(words)
        return self._failed("an answer", words)

    def _refused(self, key: str, expected: str, found: str) -> InputError:
        return InputError(file=None, key=key, expected=f"{expected} at {self.url}", found=found)

    def _failed(self, expected: str, found: str) -> SourceError:
        return SourceError(url=self.url, expected=expected, found=self._secrets.hide(found))

    def _stalled(self) -> SourceError:
        limit = f"{self._timeouts(self._source)[1]:g} s (source.timeout_s)"
        return self._failed(f"an answer that does not pause for {limit}", "silence")

    def _cause(self, error: BaseException) -> str:
        """The innermost thing that an error has to say, without addresses."""
        words = type(error).__name__
        for cause in _chain(error):
            said = getattr(cause, "verify_message", None) or getattr(cause, "strerror", None)
            words = str(said) if said else f"{type(cause).__name__}" if isinstance(cause, HTTPError) else words
            if said:
                break
        return self._secrets.hide(one_line(words))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and all that caused it, wherever requests and urllib3 keep it."""
    waiting, seen = [error], set()
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        inner = [getattr(current, "reason", None), current.__cause__, current.__context__, *current.args]
        waiting += [each for each in inner if isinstance(each, BaseException)]


def _kind(response: BaseHTTPResponse) -> str:
    """The type of a body, without its parameters."""
    return str(response.headers.get("Content-Type", "")).partition(";")[0].strip().casefold()


def _failure(body: bytes) -> tuple[str, str] | None:
    """Type and words of an error that the query API itself reports."""
    if not body.lstrip().startswith(b"{") or b'"error' not in body[:4096]:
        return None
    try:
        data: Any = json.loads(body)
    except ValueError:
        return None
    if not isinstance(data, dict) or data.get("status") != "error":
        return None
    return one_line(str(data.get("errorType", "")), 40), one_line(str(data.get("error", "")))


def _plain(body: bytes, kind: str, response: BaseHTTPResponse) -> str:
    """What a body that is no JSON says: a page of HTML says nothing that fits in a line."""
    text = bytes(body[:2000]).decode("utf-8", "replace")
    return one_line(text) if text.strip() and kind in ("text/plain", "application/json") else str(response.reason)
