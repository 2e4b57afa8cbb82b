"""Query a server through Prometheus's query API. Error messages and answers never contain secrets."""

import re
import ssl
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, partial
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.parse import urlencode

import requests
from pydantic_core import from_json
from urllib3 import BaseHTTPResponse
from urllib3 import exceptions as faults
from urllib3.response import HTTPResponse
from urllib3.util import Timeout

from buildcompare.config.errors import InputError, SourceError
from buildcompare.config.outside import everywhere, hiding, one_line
from buildcompare.config.params import Source
from buildcompare.recordings import prometheus_answer as answers
from buildcompare.recordings import prometheus_session as sessions

MAX_BYTES = 1_000_000_000  # maximum bytes of one answer: 5,000 series of 1,081 points take about 170 MB
MAX_PAGE = 10_000_000  # maximum bytes of an answer without samples
MAX_PAGE_WORDS = 100_000  # maximum characters of an error page that are searched for secrets and quoted
LONG_QUERY = 1_500
"""Queries of this many characters or more are sent in the body, because proxies refuse long addresses."""
_REFUSALS: tuple[tuple[Collection[int], str | None, str], ...] = (
    (range(300, 400), "source.url", "the query API itself"),
    ((401, 403, 407), "source.auth", "to be let in"),
    ((404,), "source.url", "the query API"),
    ((400, 413, 414, 422), None, "a query that the server accepts"),
)
"""HTTP statuses, key of the faulty setting (None if the query is faulty), and what the error says was expected."""

T = TypeVar("T")


class Client:
    """Query one server: repeat requests after temporary faults, explain lasting faults, return arrays; thread-safe.

    prometheus-api-client's `custom_query_range` is not used: it omits warnings and takes 3.5 to 9.5 times curl's time.
    """

    def __init__(self, source: Source, url: str) -> None:
        self.url = url
        self._session, secrets = sessions.open_session(source, url)
        self._hide = hiding(secrets)
        self._source = source
        self.stopped = threading.Event()
        """Once this event is set, no request is repeated, and answers that are still arriving are abandoned."""

    def close(self) -> None:
        """Close every connection."""
        self._session.close()

    def server(self) -> dict[str, str]:
        """Return the kind and version of the server; raise an error if the server is not ready."""
        ready = self._page("/-/ready").decode("utf-8", "replace").casefold()
        try:
            build = dict(from_json(self._page("/api/v1/status/buildinfo"))["data"])
        except (ValueError, KeyError, TypeError):
            build = {}
        if "victoriametrics" in ready:  # its buildinfo reports a Prometheus version, so read /metrics
            match = re.search(rb'vm_app_version\{[^}]*short_version="([^"]+)"', self._page("/metrics"))
            version = match[1].decode("utf-8", "replace") if match else ""
            return {"kind": "victoriametrics", "version": self._line(version, 60)}
        kind = str(build.get("application") or ("prometheus" if "prometheus" in ready else "unknown"))
        return {"kind": self._line(kind, 60).casefold(), "version": self._line(str(build.get("version", "")), 60)}

    def query_range(self, query: str, start_s: float, end_s: float, step_s: float) -> answers.Answer:
        """Ask for every series of `query`; times are in seconds since 1970, and are rounded to milliseconds."""
        grid = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:.3f}"}
        # `timeout` lets the server stop first, with a message. `nocache` keeps VictoriaMetrics from rounding the times.
        limit = {"timeout": f"{max(1, round(self._source.timeout_s * 1000))}ms", "nocache": "1"}
        return self._repeated("/api/v1/query_range", {"query": query, **grid, **limit}, self._answer)

    def listing(self, path: str, fields: Mapping[str, str]) -> Any:
        """Return the data of an answer without samples, such as names of metrics or the labels of series."""

        def read(response: HTTPResponse) -> Any:
            body = b"".join(self._chunks(response, MAX_PAGE))
            if response.status != 200 or _kind(response) != "application/json":
                raise self._complaint(response, body)
            return everywhere(answers.json_object(body).get("data", ()), self._hide)

        return self._repeated(path, fields, read)

    def _answer(self, response: HTTPResponse) -> answers.Answer:
        if response.status != 200 or _kind(response) != "application/json":
            raise self._complaint(response, b"".join(self._chunks(response, MAX_PAGE)))
        try:
            return answers.read_answer(self._chunks(response), self._hide)
        except answers.RefusedAnswerError as error:
            raise self._complaint(response, *error.args) from None

    def _page(self, path: str) -> bytes:
        """Return the body of an answer of any type; it is empty if the server lacks this path."""

        def read(response: HTTPResponse) -> bytes:
            body = b"".join(self._chunks(response, MAX_PAGE))
            if response.status not in (200, 400, 404, 405):
                raise self._complaint(response, body)
            return body if response.status == 200 else b""

        return self._repeated(path, {}, read)

    def _repeated(self, path: str, fields: Mapping[str, str], read: Callable[[HTTPResponse], T]) -> T:
        """Send a request, and repeat it after a `PassingError`; urllib3 repeats it after other temporary faults."""
        started, most_s, attempt = time.monotonic(), sessions.PATIENCE * sessions.timeouts(self._source)[1], 0
        sessions.limit.is_over = lambda: self.stopped.is_set() or time.monotonic() > started + most_s
        try:
            while True:
                attempt += 1
                try:
                    return self._once(path, fields, read)
                except answers.PassingError as error:
                    pause_s = sessions.BACKOFF_S * 2 ** (attempt - 1)
                    if attempt > sessions.REPEATS or sessions.limit.is_over() or self.stopped.wait(pause_s):
                        raise self._failed("a whole answer", f"{error}, {attempt} times") from None
        except sessions.TrickleError:
            expected = f"a whole answer within {most_s:g} s (see source.timeout_s)"
            raise self._failed(expected, f"none after {time.monotonic() - started:.3g} s") from None
        finally:
            del sessions.limit.is_over  # later requests in this thread must not use this limit

    @cached_property
    def _server(self) -> tuple[partial[Any], str]:
        """Return a function that sends requests, and the prefix of request addresses (a path, or a URL for a proxy).

        The result is cached, because preparing it takes more CPU time than the rest of a small query.
        """
        session = self._session
        adapter: Any = session.get_adapter(self.url)
        asked = session.prepare_request(requests.Request("GET", self.url))
        pool = adapter.get_connection_with_tls_context(asked, session.verify, session.proxies, session.cert)
        adapter.cert_verify(pool, self.url, session.verify, session.cert)
        connect_s, read_s = sessions.timeouts(self._source)
        send = partial(
            pool.urlopen,
            headers=dict(asked.headers),
            retries=adapter.max_retries,
            timeout=Timeout(connect=connect_s, read=read_s),
            **dict.fromkeys(("redirect", "assert_same_host", "preload_content", "decode_content"), False),
        )
        return send, adapter.request_url(asked, session.proxies).rstrip("/")

    def _once(self, path: str, fields: Mapping[str, str], read: Callable[[HTTPResponse], T]) -> T:
        try:
            (send, start), words = self._server, urlencode(fields)
            if len(fields.get("query", "")) < LONG_QUERY:
                answer = send("GET", f"{start}{path}?{words}")
            else:
                form = {"Content-Type": "application/x-www-form-urlencoded"}
                answer = send("POST", start + path, words, headers=send.keywords["headers"] | form)
            with answer:
                return read(answer)
        except (requests.RequestException, faults.HTTPError, HTTPException, OSError) as error:
            raise self._meaning(error) from None

    def _chunks(self, response: BaseHTTPResponse, most: int = MAX_BYTES) -> Iterator[bytes]:
        """Yield the chunks of a body as they arrive; raise an error if the body has more than `most` bytes."""
        total = 0
        try:
            while chunk := response.read1(answers.BATCH, decode_content=True):
                total += len(chunk)
                if total > most:
                    expected = f"an answer of at most {most // 1_000_000:,} MB"
                    raise InputError(file=None, key="source.step_s", expected=expected, found="a larger one")
                yield chunk
        except (faults.ProtocolError, HTTPException) as error:
            raise answers.PassingError(f"a damaged body ({self._words(error)})") from None

    def _meaning(self, error: Exception) -> Exception:
        """Translate an error of requests or urllib3, whose message is ten lines long, into an error of this package."""
        causes, words = _causes(error), self._words(error)
        connect_s, read_s = sessions.timeouts(self._source)

        def has(*kinds: type[BaseException]) -> bool:
            return any(isinstance(cause, kinds) for cause in causes)

        if has(faults.SSLError, ssl.SSLError):
            return self._refused("source.tls", "a certificate that source.tls.ca, or the system, vouches for", words)
        if has(ConnectionRefusedError, faults.NameResolutionError):
            return self._failed("a server that answers", words)
        if has(faults.NewConnectionError):
            return answers.PassingError(words)
        if has(faults.ConnectTimeoutError):
            return self._failed("a connection", f"none within {connect_s:g} s")
        if has(faults.ReadTimeoutError, TimeoutError):
            return self._failed(f"an answer that does not pause for {read_s:g} s (source.timeout_s)", "silence")
        if has(requests.RequestException) and not has(faults.HTTPError, HTTPException, ConnectionError):
            return self._failed("an address that can be asked", words)
        return answers.PassingError("a damaged gzip stream" if has(faults.DecodeError) else words)

    def _words(self, error: BaseException) -> str:
        """Return the system's or OpenSSL's message, else the error's type: other messages may contain addresses."""
        causes = _causes(error)
        messages = [getattr(cause, "verify_message", None) or getattr(cause, "strerror", None) for cause in causes]
        names = [type(cause).__name__ for cause in causes if cause is error or isinstance(cause, faults.HTTPError)]
        return self._line(str(next(filter(None, messages), names[-1])))

    def _complaint(self, response: BaseHTTPResponse, body: bytes) -> Exception:
        """Make the error for an answer without samples: an InputError if the query or a setting is at fault."""
        status, kind = response.status, _kind(response)
        try:
            data = answers.json_object(body) if kind == "application/json" else {}
        except answers.PassingError:
            data = {}
        failed, fault = data.get("status") == "error", self._line(str(data.get("errorType", "")), 40)
        code = f"HTTP {status} ({fault})" if failed else f"HTTP {status}"
        page = body.decode("utf-8", "replace") if kind in ("text/plain", "application/json") else ""
        words = self._line(f"{code}: {self._line(str(data.get('error', '')) if failed else page) or response.reason}")
        if status == 200 and not failed:
            words = f"an answer of the type {self._line(kind, 60) or 'none'}"
            return self._refused("source.url", "the query API (JSON)", words)
        if fault in ("bad_data", "execution") and status in (200, 400, 422):
            return self._refused(None, "a query that the server can answer", words)
        if 300 <= status < 400:
            words = f"a redirect ({code})"
        for statuses, key, expected in _REFUSALS:
            if status in statuses:
                return self._refused(key, expected, words)
        return answers.PassingError(words) if status == 503 and not failed else self._failed("an answer", words)

    def _refused(self, key: str | None, expected: str, found: str) -> InputError:
        """Make the error for a faulty setting `key`, or for a faulty query if there is no key."""
        return InputError(file=None, key=key, expected=f"{expected} at {self.url}", found=self._hide(found))

    def _failed(self, expected: str, found: str) -> SourceError:
        return SourceError(url=self.url, expected=expected, found=self._hide(found))

    def _line(self, text: str, limit: int = answers.MAX_WORDS) -> str:
        """Return a server's message as one line. Secrets are hidden before the line is cut to `limit` characters."""
        return one_line(self._hide(text[:MAX_PAGE_WORDS]), limit)


def _kind(response: BaseHTTPResponse) -> str:
    """Return the content type of a response, without parameters such as the charset."""
    return str(response.headers.get("Content-Type", "")).partition(";")[0].strip().casefold()


def _causes(error: BaseException) -> list[BaseException]:
    """Return the error and all errors that caused it."""
    causes = [error]
    for cause in causes:  # the loop appends the causes of each cause
        inner = (getattr(cause, "reason", None), cause.__cause__, cause.__context__, *cause.args)
        causes += [each for each in inner if isinstance(each, BaseException) and each not in causes]
    return causes
