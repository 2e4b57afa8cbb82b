"""Ask a server that speaks Prometheus's query API; nothing that is secret leaves this file but in a request."""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode

import requests
from requests.adapters import HTTPAdapter
from urllib3 import BaseHTTPResponse, Timeout
from urllib3 import exceptions as faults
from urllib3.util.retry import Retry

from buildcompare.config.errors import InputError, SourceError
from buildcompare.config.params import Source
from buildcompare.config.project import resolve
from buildcompare.recordings import prometheus_answer as answers
from buildcompare.recordings.prometheus_answer import Answer, error_of, one_line

REPEATS = 4
BACKOFF_S = 0.5
MAX_WAIT_S = 60.0
"""The longest that a server's Retry-After makes us wait."""
CONNECT_S = 10.0
GRACE_S = 5.0
"""How much longer than the server's own time-out we wait, so that its words reach us."""
MAX_BYTES = 1_000_000_000
"""Bound on one answer: 5,000 series of 1,081 points take about 170 MB."""
LONG_QUERY = 1_500
"""Characters from which a query is sent in a body: addresses are cut at a few kilobytes on the way."""
_CHUNK = 1 << 18

T = TypeVar("T")


class _PassingError(Exception):
    """A fault that is worth another try; the message says what was found."""


class Client:
    """Asks one server: passing faults are repeated, lasting ones named, answers are arrays.

    prometheus-api-client's `custom_query_range` makes a Python object of every number and drops the server's warnings.
    """

    def __init__(self, source: Source, url: str) -> None:
        self.url = url
        self._session, self._secrets = open_session(source)
        self._source = source
        self.close = self._session.close
        self.stopped = threading.Event()
        """Set once another query has failed for good: then nothing is repeated."""

    def server(self) -> dict[str, str]:
        """Kind and version of the server, having made sure that it is ready."""
        ready = self._page("/-/ready").decode("utf-8", "replace").casefold()
        try:
            build = dict(json.loads(self._page("/api/v1/status/buildinfo"))["data"])
        except (ValueError, KeyError, TypeError):
            build = {}
        if "victoriametrics" in ready:  # its buildinfo pretends to be Prometheus
            found = re.search(rb'vm_app_version\{[^}]*short_version="([^"]+)"', self._page("/metrics"))
            return {"kind": "victoriametrics", "version": found[1].decode("utf-8", "replace")[:60] if found else ""}
        kind = str(build.get("application") or ("prometheus" if "prometheus" in ready else "unknown"))
        return {"kind": one_line(kind, 60).casefold(), "version": one_line(str(build.get("version", "")), 60)}

    def query_range(self, query: str, times: Mapping[str, str]) -> Answer:
        """Every series of `query` at `times` (start, end and step in seconds, as text)."""
        # Its own limit is told to the server, so that its words reach us; nocache keeps VictoriaMetrics on our grid.
        limit = f"{max(1, round(self._source.timeout_s * 1000))}ms"
        parameters = {"query": query, **times, "timeout": limit, "nocache": "1"}
        method = "POST" if len(query) >= LONG_QUERY else "GET"

        def ask() -> Answer:
            with self._answered(method, "/api/v1/query_range", parameters) as response:
                if response.status != 200 or _kind(response) != "application/json":
                    raise self._complaint(response, b"".join(self._chunks(response)))
                try:
                    return answers.read_answer(self._chunks(response))
                except answers.BrokenAnswerError as error:
                    raise _PassingError(str(error)) from None
                except answers.RefusedAnswerError as error:
                    raise self._complaint(response, b"", error.args) from None

        return self._repeated(ask)

    def _page(self, path: str) -> bytes:
        """A body of any type; none from a server without the path."""

        def ask() -> bytes:
            with self._answered("GET", path, {}) as response:
                body = b"".join(self._chunks(response))
                if response.status not in (200, 400, 404, 405):
                    raise self._complaint(response, body)
                return body if response.status == 200 else b""

        return self._repeated(ask)

    def _repeated(self, ask: Callable[[], T]) -> T:
        """Ask again where an answer came in pieces; the session itself repeats refused connections and statuses."""
        for attempt in range(REPEATS + 1):
            try:
                return ask()
            except _PassingError as error:
                last = str(error)
            if attempt < REPEATS and self.stopped.wait(BACKOFF_S * 2**attempt):
                break
        raise self._failed("a whole answer", f"{last}, {REPEATS + 1} times")

    @contextmanager
    def _answered(self, method: str, path: str, parameters: dict[str, str]) -> Iterator[BaseHTTPResponse]:
        """An answer whose headers are there; its connection is given back, or closed where the body was not read."""
        try:
            connect_s, read_s = timeouts(self._source)
            response = self._session.ask(method, self.url + path, parameters, Timeout(connect=connect_s, read=read_s))
            try:
                yield response
            finally:
                response.close()
                response.release_conn()
        except (faults.HTTPError, OSError, requests.RequestException) as error:
            raise self._named(error) from None

    def _chunks(self, response: BaseHTTPResponse) -> Iterator[bytes]:
        total = 0
        for chunk in response.stream(_CHUNK, decode_content=True):
            total += len(chunk)
            if total > MAX_BYTES:
                expected = f"an answer of at most {MAX_BYTES // 1_000_000:,} MB"
                raise InputError(file=None, key="source.step_s", expected=expected, found="a larger one")
            yield chunk

    def _named(self, error: BaseException) -> Exception:
        """What requests and urllib3 say in ten lines, in one."""
        causes: list[BaseException] = [error]
        for cause in causes:  # it grows: all that caused it, wherever requests and urllib3 keep it
            inner = (getattr(cause, "reason", None), cause.__cause__, cause.__context__, *cause.args)
            causes += [each for each in inner if isinstance(each, BaseException) and each not in causes]

        def caused(*kinds: type[BaseException]) -> bool:
            return any(isinstance(cause, kinds) for cause in causes)

        words = type(error).__name__
        for cause in causes:  # the innermost that has something to say, without addresses
            said = getattr(cause, "verify_message", None) or getattr(cause, "strerror", None)
            words = str(said) if said else type(cause).__name__ if isinstance(cause, faults.HTTPError) else words
            if said:
                break
        words = self._hidden(one_line(words))
        connect_s, read_s = timeouts(self._source)
        if isinstance(error, requests.RequestException):
            return self._failed("an address that can be asked", words)
        if caused(faults.SSLError, ssl.SSLError):
            return self._refused("source.tls", "a certificate that source.tls.ca, or the system, vouches for", words)
        if any(type(cause) is faults.ConnectTimeoutError for cause in causes):
            return self._failed("a connection", f"none within {connect_s:g} s")
        if caused(faults.ReadTimeoutError, TimeoutError):
            return self._failed(f"an answer that does not pause for {read_s:g} s (source.timeout_s)", "silence")
        if caused(ConnectionRefusedError, faults.NameResolutionError):
            return self._failed("a server that answers", words)
        if caused(faults.DecodeError):
            return _PassingError("a damaged gzip stream")
        if caused(faults.ProtocolError, faults.NewConnectionError, faults.ProxyError, OSError):
            return _PassingError(words)
        return self._failed("an answer", words)

    def _complaint(self, response: BaseHTTPResponse, body: bytes, failure: tuple[str, str] | None = None) -> Exception:
        """What an answer that is none means: whose fault it is, and in whose words."""
        if _kind(response) == "application/json":
            failure = failure or error_of(body)
        status, kind = response.status, _kind(response)
        code = f"HTTP {status}" + (f" ({failure[0]})" if failure else "")
        text = one_line(body[:2000].decode("utf-8", "replace")) if kind in ("text/plain", "application/json") else ""
        words = self._hidden(one_line(f"{code}: {failure[1] if failure else text or response.reason}"))
        if status == 200 and failure is None:
            words = f"an answer of the type {one_line(kind, 60) or 'none'}"
            return self._refused("source.url", "the query API (JSON)", words)
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
        return _PassingError(words) if status == 503 and failure is None else self._failed("an answer", words)

    def _refused(self, key: str, expected: str, found: str) -> InputError:
        return InputError(file=None, key=key, expected=f"{expected} at {self.url}", found=found)

    def _failed(self, expected: str, found: str) -> SourceError:
        return SourceError(url=self.url, expected=expected, found=self._hidden(found))

    def _hidden(self, text: str) -> str:
        """`text` without secrets, which a server may repeat in an error."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _kind(response: BaseHTTPResponse) -> str:
    """The type of a body, without its parameters."""
    return str(response.headers.get("Content-Type", "")).partition(";")[0].strip().casefold()


def timeouts(source: Source) -> tuple[float, float]:
    """Seconds to connect in, and between two parts of an answer."""
    return min(CONNECT_S, source.timeout_s), source.timeout_s + GRACE_S


class _PoliteRetry(Retry):
    """Waits as long as the server asks for, within reason."""

    def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
        asked = super().get_retry_after(response)
        return None if asked is None else min(asked, MAX_WAIT_S)


class Session(requests.Session):
    """Sends a POST's parameters in its body, where a long query fits, and our headers to no redirect's target."""

    def __init__(self) -> None:
        super().__init__()
        self._ways: dict[tuple[str, str], tuple[Callable[..., BaseHTTPResponse], str]] = {}

    def request(self, method: str, url: str, **options: Any) -> requests.Response:  # type: ignore[override]
        """Send one request, as the client library does in its own calls."""
        if method.upper() == "POST" and options.get("data") is None:
            options["data"] = options.pop("params", None)
        options.setdefault("allow_redirects", False)
        return super().request(method, url, **options)

    def ask(self, method: str, url: str, parameters: Mapping[str, str], timeout: Timeout) -> BaseHTTPResponse:
        """Send one request, and return its answer once the headers are there, for the caller to close and release.

        What requests knows of connections, headers, proxies and certificates is the same for every request to `url`
        and made once: each time anew it costs more than a small answer.
        """
        send, target = self._ways.get((method, url)) or self._ways.setdefault((method, url), self._way(method, url))
        encoded = urlencode(parameters)
        if method == "POST":
            return send(method, target, body=encoded, timeout=timeout)
        return send(method, f"{target}?{encoded}" if encoded else target, timeout=timeout)

    def _way(self, method: str, url: str) -> tuple[Callable[..., BaseHTTPResponse], str]:
        prepared = self.prepare_request(requests.Request(method, url))
        headers = {name: str(value) for name, value in prepared.headers.items() if name != "Content-Length"}
        if method == "POST":
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        settings = self.merge_environment_settings(url, {}, True, self.verify, self.cert)
        proxies, verify, cert = settings["proxies"], settings["verify"], settings["cert"]
        adapter: Any = self.get_adapter(url)
        pool = adapter.get_connection_with_tls_context(prepared, verify, proxies, cert)
        adapter.cert_verify(pool, str(prepared.url), verify, cert)
        late = {"redirect": False, "preload_content": False, "decode_content": False}
        send = partial(pool.urlopen, headers=headers, retries=adapter.max_retries, assert_same_host=False, **late)
        return send, adapter.request_url(prepared, proxies)


def open_session(source: Source) -> tuple[Session, list[str]]:
    """A session as `source` describes it, and the secrets in it, the longest first."""
    session = Session()
    # Repeat what passes (no connection, busy statuses), never a query that ran too long; a query changes nothing.
    never: dict[str, Any] = {"read": 0, "redirect": 0, "other": 0, "raise_on_status": False, "raise_on_redirect": False}
    passing: dict[str, Any] = {"allowed_methods": {"GET", "POST"}, "status_forcelist": (429, 502, 504)}
    repeats = _PoliteRetry(REPEATS, backoff_factor=BACKOFF_S, **passing, **never)
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(2, source.threads, repeats, pool_block=True))
    session.headers.update({"Accept-Encoding": "gzip" if source.gzip else "identity", "User-Agent": "buildcompare"})
    session.headers.update(source.headers)
    own = {name: _secret(f"headers_env.{name}", variable=named) for name, named in source.headers_env.items()}
    session.headers.update(own)
    authorization, secret = _authorization(source)
    secrets = [*own.values(), authorization, authorization.partition(" ")[2], secret]

    def authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
        if authorization:
            request.headers["Authorization"] = authorization
        return request

    session.auth = authorize  # even for nobody: else requests would look for a password in ~/.netrc
    tls = source.tls
    if tls is not None:
        session.verify = tls.verify
        if tls.ca is not None:
            certificates = "a file of certificates (PEM)"
            session.verify = _pem(tls.ca, "ca", certificates, ssl.SSLContext.load_verify_locations)
        if tls.cert is not None:
            key = None if tls.key is None else _pem(tls.key, "key", "", lambda context, file: None)
            wanted = "a certificate and its key (PEM, without a passphrase)"
            file = _pem(tls.cert, "cert", wanted, lambda c, f: c.load_cert_chain(f, key, password=lambda: b""))
            session.cert = file if key is None else (file, key)
    return session, sorted(filter(None, secrets), key=len, reverse=True)


def _authorization(source: Source) -> tuple[str, str]:
    """The value of the header, and the token or password in it."""
    auth = source.auth
    if auth is None:
        return "", ""
    if auth.username_env is not None and auth.password_env is not None:
        user = _secret("auth.username_env", variable=auth.username_env, ascii_only=False)
        password = _secret("auth.password_env", variable=auth.password_env, ascii_only=False)
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode(), password
    key = "auth.bearer_token_env" if auth.bearer_token_env else "auth.bearer_token_file"
    token = _secret(key, variable=auth.bearer_token_env or "", file=auth.bearer_token_file or "")
    return f"Bearer {token}", token


def _secret(key: str, *, variable: str = "", file: str = "", ascii_only: bool = True) -> str:
    """One line of text in an environment variable or a file."""
    place = file or f"the environment variable {variable}"
    try:
        value = (resolve(file).read_text("utf-8") if file else os.environ.get(variable, "")).strip()
        if not value:
            expected, found = (f"a token in {file}", "an empty file") if file else (place, "none or empty")
        elif not value.isprintable() or (ascii_only and not value.isascii()):
            expected = f"one line of printable {'ASCII' if ascii_only else 'text'} in {place}"
            found = "other characters"
        else:
            return value
    except (OSError, UnicodeDecodeError) as error:
        expected = f"a readable file {file}"
        found = str(error.strerror) if isinstance(error, OSError) else "bytes that are not UTF-8"
    raise InputError(file=None, key=f"source.{key}", expected=expected, found=found)


def _pem(name: str, key: str, expected: str, load: Callable[[ssl.SSLContext, str], Any]) -> str:
    """The path of a file, once OpenSSL could read it: later its error would name neither file nor key."""
    file = resolve(name)
    try:
        if file.is_file():
            load(ssl.create_default_context(), str(file))
            return str(file)
        expected, found = f"the file {name}", "no such file"
    except (ssl.SSLError, OSError, ValueError) as error:
        found = str(getattr(error, "reason", None) or getattr(error, "strerror", None) or "something else")
        expected = f"{expected} in {name}"
    raise InputError(file=None, key=f"source.tls.{key}", expected=expected, found=found)
